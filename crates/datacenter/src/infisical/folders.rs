//! Folders and projects.

use serde_json::{Value, json};

use super::access::{Place, need, project};
use super::blueprint::Right;
use super::reader::Reader;
use super::reply::{VaultReply, bad_request, not_found};
use super::state::Folder;
use super::{Answer, Call};

fn joined(path: &str, name: &str) -> String {
    format!("{}/{name}", path.trim_end_matches('/'))
}

fn shown(folder: &Folder, name: &str, environment: &str, path: Option<&str>) -> Value {
    let Folder { id, created, .. } = folder;
    let mut shown = json!({"id": id, "name": name, "version": 1, "createdAt": created, "updatedAt": created,
        "envId": environment, "parentId": null, "isReserved": false, "description": null, "lastSecretModified": null});
    if let Some(path) = path {
        shown["path"] = path.into();
    }
    shown
}

fn missing_environment(place: &Place) -> VaultReply {
    let Place { environment, project, .. } = place;
    not_found("NotFound", format!("Environment with slug '{environment}' in project with ID '{project}' not found"))
}

pub(super) fn create(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let name = reader.required("name");
    if !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) || name.is_empty() {
        reader
            .custom("name", "Invalid folder name. Only alphanumeric characters, dashes, and underscores are allowed.");
    }
    let place = Place::read(&mut reader, call, "path")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::CreateFolder)?;
    let absent = missing_environment(&place);
    let project = call.site.projects.get_mut(&place.project);
    let environment = project.and_then(|project| project.environments.get_mut(&place.environment)).ok_or(absent)?;
    let path = joined(&place.path, &name);
    if environment.folders.contains_key(&path) {
        let message = format!("Folder with name '{name}' already exists in path '{}'", place.path);
        return Err(bad_request(message));
    }
    let id = environment.id.clone();
    let folder = environment.folder(call.chance, &path, &call.timestamp);
    call.effects.push(("folder", format!("{}:{path}", place.environment)));
    Ok(VaultReply::of(json!({"folder": shown(folder, &name, &id, Some(&path))})))
}

pub(super) fn list(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::query(call.query);
    let place = Place::read(&mut reader, call, "path")?;
    let project = project(call.site, &call.client_id, &place.project)?;
    let environment = project.environments.get(&place.environment).ok_or_else(|| missing_environment(&place))?;
    let inside = joined(&place.path, "");
    let below = environment.folders.iter().filter_map(|(path, folder)| {
        let name = path.strip_prefix(&inside).filter(|name| !name.is_empty() && !name.contains('/'))?;
        Some(shown(folder, name, &environment.id, None))
    });
    Ok(VaultReply::of(json!({"folders": below.collect::<Vec<_>>()})))
}

pub(super) fn delete(call: &mut Call<'_>) -> Answer {
    let mut reader = Reader::of(call.body);
    let forced = reader.any("forceDelete") == Some(Value::Bool(true));
    let place = Place::read(&mut reader, call, "path")?;
    let name = call.name.clone().unwrap_or_default();
    let project = project(call.site, &call.client_id, &place.project)?;
    need(call.site, &call.client_id, project, Right::DeleteFolder)?;
    let absent = missing_environment(&place);
    let project = call.site.projects.get_mut(&place.project);
    let environment = project.and_then(|project| project.environments.get_mut(&place.environment)).ok_or(absent)?;
    let inside = joined(&place.path, "");
    let meant = environment.folders.iter().find(|(path, folder)| {
        let below = path.strip_prefix(&inside).filter(|below| !below.is_empty() && !below.contains('/'));
        below.is_some_and(|below| below == name || folder.id == name)
    });
    let missing = || not_found("NotFound", format!("Folder with ID '{name}' not found"));
    let path = meant.map(|(path, _)| path.clone()).ok_or_else(missing)?;
    let below = format!("{path}/");
    let is_used = environment.folders.get(&path).is_some_and(|folder| !folder.secrets.is_empty())
        || environment.folders.keys().any(|other| other.starts_with(&below));
    if is_used && !forced {
        return Err(bad_request(format!(
            "Cannot delete folder \"{name}\" because it contains resources. Use forceDelete=true to delete it forcefully."
        )));
    }
    environment.folders.retain(|other, _| other == &path || !other.starts_with(&below));
    let folder = environment.folders.remove(&path).ok_or_else(missing)?;
    let id = environment.id.clone();
    call.effects.push(("unfolder", format!("{}:{path}", place.environment)));
    Ok(VaultReply::of(json!({"folder": shown(&folder, &name, &id, None)})))
}

/// A project by its slug, for a member of it. It is told bare, in nothing.
pub(super) fn project_by_slug(call: &mut Call<'_>) -> Answer {
    let slug = call.name.as_deref().unwrap_or_default();
    let found = call.site.project_by_slug(slug).map(|project| project.id.clone());
    let id = found.ok_or_else(|| not_found("NotFound", format!("Project with slug '{slug}' not found")))?;
    let found = project(call.site, &call.client_id, &id)?;
    let environments =
        found.environments.iter().map(|(slug, environment)| json!({"id": environment.id, "slug": slug, "name": slug}));
    Ok(VaultReply::of(json!({
        "id": found.id, "_id": found.id, "name": found.slug, "slug": found.slug, "type": "secret-manager",
        "version": 3, "environments": environments.collect::<Vec<_>>(), "autoCapitalization": false,
        "hasDeleteProtection": false, "enforceEncryptedSecretManagerSecretMetadata": false,
    })))
}
