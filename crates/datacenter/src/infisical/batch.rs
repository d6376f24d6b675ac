//! Many secrets of one folder at once: all of them, or none.

use serde_json::Value;

use super::access::{Place, approval, folder, need, project};
use super::blueprint::Right;
use super::reader::Reader;
use super::reply::{VaultReply, bad_request, not_found};
use super::secrets::{missing_folder, told_all};
use super::{Answer, Call};

struct Wanted {
    name: String,
    value: Option<String>,
    comment: Option<String>,
    metadata: Option<Value>,
}

/// What is wanted, in the order of names; of two of one name the last.
fn wanted(reader: &mut Reader) -> Vec<Wanted> {
    let all = reader.list("secrets", |secret| Wanted {
        name: secret.secret_name("secretKey", None),
        value: secret.value(),
        comment: secret.optional("secretComment"),
        metadata: secret.any("secretMetadata"),
    });
    let last: std::collections::BTreeMap<String, Wanted> =
        all.into_iter().map(|wanted| (wanted.name.clone(), wanted)).collect();
    last.into_values().collect()
}

pub(super) fn create(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let secrets = wanted(&mut reader);
    for secret in secrets.iter().filter(|secret| secret.value.is_none()) {
        reader.custom(&secret.name, "Required");
    }
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Create)?;
    let there = &folder(call.site, &place, missing_folder(&place, "CreateManySecret"))?.secrets;
    let existing: Vec<&str> =
        secrets.iter().map(|secret| secret.name.as_str()).filter(|name| there.contains_key(*name)).collect();
    if !existing.is_empty() {
        return Err(bad_request(format!("Secret already exists: {}", existing.join(","))));
    }
    keep(call, &place, secrets)
}

pub(super) fn update(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let mode = reader.word("mode", &["upsert", "ignore", "failOnNotFound"], "failOnNotFound");
    let mut secrets = wanted(&mut reader);
    let place = Place::read(&mut reader, call, "secretPath")?;
    let Place { environment, path, .. } = &place;
    let project = project(call.site, &call.client_id, &place.project)?;
    if !project.environments.contains_key(environment) {
        let id = &place.project;
        let message = format!("Environment with slug '{environment}' in project with ID '{id}' not found");
        return Err(not_found("NotFound", message));
    }
    let absent =
        || not_found("NotFound", format!("Folder with path '{path}' in environment '{environment}' not found"));
    let folder = project.environments.get(environment).and_then(|environment| environment.folders.get(path));
    let there = &folder.ok_or_else(absent)?.secrets;
    let missing: Vec<&str> =
        secrets.iter().map(|secret| secret.name.as_str()).filter(|name| !there.contains_key(*name)).collect();
    if !missing.is_empty() && mode == "failOnNotFound" {
        let message = format!("Secret does not exist: {} in path {path}", missing.join(", "));
        return Err(not_found("NotFound", message));
    }
    if secrets.len() > missing.len() {
        need(call.site, &call.client_id, project, Right::Edit)?;
    }
    if !missing.is_empty() && mode == "upsert" {
        need(call.site, &call.client_id, project, Right::Create)?;
    }
    if mode == "ignore" {
        let there: Vec<String> = there.keys().cloned().collect();
        secrets.retain(|secret| there.contains(&secret.name));
    }
    keep(call, &place, secrets)
}

fn keep(call: &mut Call<'_>, place: &Place, secrets: Vec<Wanted>) -> Answer {
    if let Some(waiting) = approval(call, place) {
        return Ok(waiting);
    }
    let mut changed = Vec::new();
    for Wanted { name, value, comment, metadata } in secrets {
        let secret = call.put(place, &name, value, comment, metadata)?;
        changed.push((name, secret));
    }
    Ok(told_all(call, place, &changed))
}

pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let names = reader.list("secrets", |secret| secret.required("secretKey"));
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Delete)?;
    let there = &folder(call.site, &place, missing_folder(&place, "DeleteManySecret"))?.secrets;
    let found: Vec<&str> = names.iter().map(String::as_str).filter(|name| there.contains_key(*name)).collect();
    if found.len() != names.len() {
        // The vendor names those that do exist.
        let message = format!("One or more secrets does not exist: {}", found.join(", "));
        return Err(VaultReply::failure(404, "NotFound", message));
    }
    if let Some(waiting) = approval(call, &place) {
        return Ok(waiting);
    }
    let mut taken = Vec::new();
    for name in names {
        let secret = call.take(&place, &name)?;
        taken.push((name, secret));
    }
    Ok(told_all(call, &place, &taken))
}
