//! Where a request wants to go, and whether it may.

use serde_json::json;

use super::blueprint::{Approvals, Right};
use super::reader::Reader;
use super::reply::{VaultReply, bad_request, not_found};
use super::state::{Folder, Project, Site, uuid};
use super::{Call, Dialect};

/// Where, as the parameters say.
pub(super) struct Place {
    pub(super) project: String,
    pub(super) environment: String,
    pub(super) path: String,
}

impl Place {
    /// Reads project, environment and folder; v3 knows projects by their slugs, too.
    pub(super) fn read(reader: &mut Reader, call: &Call<'_>, folder: &str) -> Result<Self, VaultReply> {
        // The vendor's Go client sends an empty id with every slug: v3 takes what is empty for what is not there.
        let mut told = |name: &str| reader.optional(name).filter(|text| !text.is_empty());
        let (id, slug) = match (call.dialect, call.is_change()) {
            (Dialect::V4, _) => (reader.optional("projectId"), None),
            (Dialect::V3, false) => (told("workspaceId"), told("workspaceSlug")),
            (Dialect::V3, true) => (told("workspaceId"), told("projectSlug")),
        };
        let is_list = !call.is_change() && call.name.is_none() && folder == "secretPath";
        let environment = if is_list { reader.optional("environment") } else { Some(reader.required("environment")) };
        let path = reader.folder(folder);
        if call.dialect == Dialect::V4 && id.is_none() && !is_list {
            reader.required("projectId");
        }
        reader.checked()?;
        let project = match (id, slug) {
            (Some(id), _) => Some(id),
            (None, Some(slug)) => {
                let found = call.site.project_by_slug(&slug).map(|project| project.id.clone());
                Some(found.ok_or_else(|| not_found("NotFound", format!("Project with slug '{slug}' not found")))?)
            }
            (None, None) => None,
        };
        match (project, environment) {
            (Some(project), Some(environment)) => Ok(Self { project, environment, path }),
            _ => Err(bad_request("Missing project id or environment")),
        }
    }
}

/// The project, for a member of it.
pub(super) fn project<'a>(site: &'a Site, client_id: &str, id: &str) -> Result<&'a Project, VaultReply> {
    let project = site.projects.get(id).ok_or_else(|| not_found("NotFound", format!("Project with {id} not found")))?;
    if site.rights(client_id, &project.slug).is_none() {
        return Err(VaultReply::failure(
            403,
            "ProjectMembershipNotFound",
            format!(
                "You are not a member of this project with ID {id}. Please assign this identity to the project with \
                 the appropriate permissions, then try again."
            ),
        ));
    }
    Ok(project)
}

/// Refuses whoever lacks this right.
pub(super) fn need(site: &Site, client_id: &str, project: &Project, right: Right) -> Result<(), VaultReply> {
    if may(site, client_id, project, right) {
        return Ok(());
    }
    let (action, subject) = right.words();
    let message = format!("You are not allowed to {action} on {subject}");
    Err(VaultReply::failure(403, "PermissionDenied", message).with_details(json!([])))
}

pub(super) fn may(site: &Site, client_id: &str, project: &Project, right: Right) -> bool {
    site.rights(client_id, &project.slug).is_some_and(|rights| rights.contains(&right))
}

/// The folder of a place, to be changed; the refusal where it is not there.
pub(super) fn folder<'a>(site: &'a mut Site, place: &Place, absent: VaultReply) -> Result<&'a mut Folder, VaultReply> {
    let Place { project, environment, path } = place;
    let environment = site.projects.get_mut(project).and_then(|project| project.environments.get_mut(environment));
    environment.and_then(|environment| environment.folders.get_mut(path)).ok_or(absent)
}

/// What a change is answered with that waits for somebody's approval; it has not been made.
pub(super) fn approval(call: &mut Call<'_>, place: &Place) -> Option<VaultReply> {
    let project = call.site.projects.get(&place.project)?;
    if project.approvals != Approvals::Everybody {
        return None;
    }
    let (id, policy) = (uuid(call.chance, "infisical approval"), uuid(call.chance, "infisical policy"));
    let folder = project.environments.get(&place.environment)?.folders.get(&place.path)?.id.clone();
    Some(VaultReply::of(json!({"approval": {
        "id": id, "policyId": policy, "hasMerged": false, "status": "open", "conflicts": null,
        "slug": &id[..8], "folderId": folder, "createdAt": call.timestamp, "updatedAt": call.timestamp,
        "isReplicated": null, "committerUserId": null, "statusChangedByUserId": null,
        "bypassReason": null, "commitMessage": null,
    }})))
}
