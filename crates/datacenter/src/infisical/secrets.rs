//! Secrets one by one, and lists of them.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::access::{Place, approval, folder, may, need, project};
use super::blueprint::Right;
use super::expand;
use super::reader::Reader;
use super::reply::{VaultReply, bad_request, not_found};
use super::state::{Secret, Spot, uuid};
use super::{Answer, Call, Dialect};

pub(super) fn list(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::query(call.query);
    let usual = call.dialect == Dialect::V4;
    let imports_flag = if usual { "includeImports" } else { "include_imports" };
    let (expands, imports) = (reader.flag("expandSecretReferences", usual), reader.flag(imports_flag, usual));
    let (recursive, views) = (reader.flag("recursive", false), reader.flag("viewSecretValue", true));
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Describe)?;
    let reads = views && may(call.site, &call.client_id, project, Right::ReadValue);
    let Place { environment, path, .. } = &place;
    let absent = || {
        not_found(
            "SecretPathNotFound",
            format!(
                "Folder with path '{path}' in environment '{environment}' was not found. Please ensure the environment \
                 slug and secret path is correct."
            ),
        )
    };
    let folders = &project.environments.get(environment).ok_or_else(absent)?.folders;
    folders.get(path).ok_or_else(absent)?;
    let below = if path == "/" { "/".to_owned() } else { format!("{path}/") };
    let meant = folders.iter().filter(|(at, _)| *at == path || (recursive && at.starts_with(&below)));
    let mut secrets = Vec::new();
    for (at, folder) in meant.clone() {
        let spot = Spot { project: &project.id, environment, path: at };
        for (name, secret) in &folder.secrets {
            let value = if expands { expand::value(project, spot, &secret.value) } else { secret.value.clone() };
            secrets.push(secret.shown(name, spot, reads.then_some(value.as_str())));
        }
    }
    let mut taken = Vec::new();
    for (from_environment, from) in meant.flat_map(|(_, folder)| &folder.imports).filter(|_| imports) {
        let Some(source) = project.environments.get(from_environment).and_then(|other| other.folders.get(from)) else {
            continue;
        };
        let spot = Spot { project: &project.id, environment: from_environment, path: from };
        let shown =
            source.secrets.iter().map(|(name, secret)| secret.shown(name, spot, reads.then_some(&secret.value)));
        taken.push(json!({"secretPath": from, "environment": from_environment, "folderId": source.id,
            "secrets": shown.collect::<Vec<_>>()}));
    }
    let body = json!({"secrets": secrets, "imports": taken});
    let digest = Sha256::digest(body.to_string());
    let tag = format!("\"{}\"", digest[..16].iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    if call.if_none_match == Some(&tag) {
        return Ok(VaultReply { status: 304, headers: vec![("etag", tag)], body: None });
    }
    Ok(VaultReply::of(body).with("etag", &tag))
}

pub(super) fn get(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::query(call.query);
    let usual = call.dialect == Dialect::V4;
    let imports_flag = if usual { "includeImports" } else { "include_imports" };
    let (expands, imports) = (reader.flag("expandSecretReferences", usual), reader.flag(imports_flag, usual));
    let views = reader.flag("viewSecretValue", true);
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Describe)?;
    let Place { environment, path, .. } = &place;
    let name = call.name.as_deref().unwrap_or_default();
    let folder = project.environments.get(environment).and_then(|environment| environment.folders.get(path));
    let folder = folder.ok_or_else(|| missing_folder(&place, "GetSecretByName"))?;
    let own = Spot { project: &project.id, environment, path };
    let found = folder.secrets.get(name).map(|secret| (own, secret));
    let from_import = || {
        folder.imports.iter().find_map(|(environment, path)| {
            let source = project.environments.get(environment)?.folders.get(path)?;
            Some((Spot { project: &project.id, environment, path }, source.secrets.get(name)?))
        })
    };
    let found = found.or_else(|| if imports { from_import() } else { None });
    let (spot, secret) = found.ok_or_else(|| not_found("NotFound", format!("Secret with name '{name}' not found")))?;
    if views && !may(call.site, &call.client_id, project, Right::ReadValue) {
        let message = format!("You do not have permission to view secret value on secret with name '{name}'");
        return Err(VaultReply::failure(403, "ForbiddenReadSecretError", message));
    }
    let value = if expands { expand::value(project, spot, &secret.value) } else { secret.value.clone() };
    Ok(VaultReply::of(json!({"secret": secret.shown(name, spot, views.then_some(value.as_str()))})))
}

pub(super) fn missing_folder(place: &Place, error: &str) -> VaultReply {
    let Place { environment, path, .. } = place;
    not_found(error, format!("Folder with path '{path}' in environment with slug '{environment}' not found"))
}

/// What is told of a secret that was changed.
fn told(call: &Call<'_>, place: &Place, name: &str, secret: &Secret) -> Value {
    let spot = Spot { project: &place.project, environment: &place.environment, path: &place.path };
    let reads = (call.site.projects.get(&place.project))
        .is_some_and(|project| may(call.site, &call.client_id, project, Right::ReadValue));
    secret.shown(name, spot, reads.then_some(&secret.value))
}

pub(super) fn told_all(call: &Call<'_>, place: &Place, changed: &[(String, Secret)]) -> VaultReply {
    let all = changed.iter().map(|(name, secret)| told(call, place, name, secret));
    VaultReply::of(json!({"secrets": all.collect::<Vec<_>>()}))
}

pub(super) fn create(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let name = reader.secret_name("secretName", call.name.clone());
    reader.required("secretValue");
    let (value, comment) = (reader.value(), reader.optional("secretComment"));
    let metadata = reader.any("secretMetadata");
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Create)?;
    let absent = missing_folder(&place, "CreateSecret");
    if folder(call.site, &place, absent)?.secrets.contains_key(&name) {
        return Err(bad_request("Secret already exists"));
    }
    if let Some(waiting) = approval(call, &place) {
        return Ok(waiting);
    }
    let secret = call.put(&place, &name, value, comment, metadata)?;
    Ok(VaultReply::of(json!({"secret": told(call, &place, &name, &secret)})))
}

pub(super) fn update(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let name = call.name.clone().unwrap_or_default();
    let (value, comment) = (reader.value(), reader.optional("secretComment"));
    let metadata = reader.any("secretMetadata");
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Edit)?;
    let absent = missing_folder(&place, "UpdateSecret");
    if !folder(call.site, &place, absent)?.secrets.contains_key(&name) {
        return Err(not_found("NotFound", format!("Secret with name {name} not found")));
    }
    if let Some(waiting) = approval(call, &place) {
        return Ok(waiting);
    }
    let secret = call.put(&place, &name, value, comment, metadata)?;
    Ok(VaultReply::of(json!({"secret": told(call, &place, &name, &secret)})))
}

pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let name = call.name.clone().unwrap_or_default();
    let place = Place::read(&mut reader, call, "secretPath")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::Delete)?;
    let absent = missing_folder(&place, "DeleteSecret");
    if !folder(call.site, &place, absent)?.secrets.contains_key(&name) {
        return Err(not_found("NotFound", "Secret not found"));
    }
    if let Some(waiting) = approval(call, &place) {
        return Ok(waiting);
    }
    let secret = call.take(&place, &name)?;
    Ok(VaultReply::of(json!({"secret": told(call, &place, &name, &secret)})))
}

impl Call<'_> {
    pub(super) fn put(
        &mut self,
        place: &Place,
        name: &str,
        value: Option<String>,
        comment: Option<String>,
        metadata: Option<Value>,
    ) -> Result<Secret, VaultReply> {
        let id = uuid(self.chance, "infisical secret");
        let folder = folder(self.site, place, missing_folder(place, "NotFound"))?;
        folder.put(name, id, value, comment, metadata, &self.timestamp);
        let kept = folder.secrets.get(name).cloned();
        self.effects.push(("keep", format!("{}:{}/{name}", place.environment, place.path.trim_end_matches('/'))));
        kept.ok_or_else(super::reply::internal)
    }

    pub(super) fn take(&mut self, place: &Place, name: &str) -> Result<Secret, VaultReply> {
        let taken = folder(self.site, place, missing_folder(place, "NotFound"))?.secrets.remove(name);
        self.effects.push(("forget", format!("{}:{}/{name}", place.environment, place.path.trim_end_matches('/'))));
        taken.ok_or_else(|| not_found("NotFound", "Secret not found"))
    }
}
