//! What an Infisical holds while it lives.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};

use super::blueprint::{self, Approvals, RateLimits, Right};
use crate::chance::Chance;

/// One Infisical.
pub(crate) struct Site {
    pub(super) is_down: bool,
    /// By client id.
    pub(super) identities: BTreeMap<String, Identity>,
    /// By the token itself.
    pub(super) tokens: BTreeMap<String, Token>,
    /// By id.
    pub(super) projects: BTreeMap<String, Project>,
    pub(super) limits: Option<RateLimits>,
    /// What was asked since when, by kind of limit.
    pub(super) windows: BTreeMap<&'static str, (Duration, u32)>,
}

pub(super) struct Identity {
    pub(super) id: String,
    pub(super) blueprint: blueprint::MachineIdentity,
    pub(super) failures: u32,
    /// When the failures are forgotten, or the lock is lifted.
    pub(super) forgets_at: Duration,
    pub(super) is_locked: bool,
}

pub(super) struct Token {
    pub(super) client_id: String,
    pub(super) created: Duration,
    pub(super) expires: Duration,
    pub(super) is_revoked: bool,
}

pub(super) struct Project {
    pub(super) id: String,
    pub(super) slug: String,
    pub(super) approvals: Approvals,
    /// By slug.
    pub(super) environments: BTreeMap<String, Environment>,
}

pub(super) struct Environment {
    pub(super) id: String,
    /// By path; `/` is always there.
    pub(super) folders: BTreeMap<String, Folder>,
}

#[derive(Default)]
pub(super) struct Folder {
    pub(super) id: String,
    pub(super) created: String,
    /// By name.
    pub(super) secrets: BTreeMap<String, Secret>,
    /// The environments and folders whose secrets it takes.
    pub(super) imports: Vec<(String, String)>,
}

#[derive(Clone)]
pub(super) struct Secret {
    pub(super) id: String,
    pub(super) version: u64,
    pub(super) value: String,
    pub(super) comment: String,
    pub(super) metadata: Option<Value>,
    pub(super) created: String,
    pub(super) updated: String,
}

impl Site {
    pub(crate) fn new(blueprint: blueprint::Infisical, chance: &mut Chance, epoch: u64) -> Self {
        let blueprint::Infisical { host: _, identities, projects, limits } = blueprint;
        let now = timestamp(epoch);
        let identities = identities.into_iter().map(|blueprint| {
            let id = uuid(chance, "infisical identity");
            let client_id = blueprint.client_id.clone();
            (client_id, Identity { id, blueprint, failures: 0, forgets_at: Duration::ZERO, is_locked: false })
        });
        let identities = identities.collect();
        let mut site = Self {
            is_down: false,
            identities,
            tokens: BTreeMap::new(),
            projects: BTreeMap::new(),
            limits,
            windows: BTreeMap::new(),
        };
        for blueprint::Project { slug, environments, secrets, imports, approvals } in projects {
            let id = uuid(chance, "infisical project");
            let environments = environments.into_iter().map(|slug| {
                let root = Folder { id: uuid(chance, "infisical folder"), created: now.clone(), ..Folder::default() };
                (
                    slug,
                    Environment { id: uuid(chance, "infisical environment"), folders: [("/".to_owned(), root)].into() },
                )
            });
            let environments = environments.collect();
            let mut project = Project { id: id.clone(), slug, approvals, environments };
            for placed in secrets {
                project.place(chance, placed, &now);
            }
            for blueprint::Import { into, from } in imports {
                if let Some(environment) = project.environments.get_mut(&into.0) {
                    environment.folder(chance, &into.1, &now).imports.push(from);
                }
            }
            site.projects.insert(id, project);
        }
        site
    }

    pub(crate) fn is_up(&self) -> bool {
        !self.is_down
    }

    pub(super) fn project_by_slug(&self, slug: &str) -> Option<&Project> {
        self.projects.values().find(|project| project.slug == slug)
    }

    /// What an identity may do in a project; nothing if it is no member.
    pub(super) fn rights(&self, client_id: &str, slug: &str) -> Option<&BTreeSet<Right>> {
        let rights = &self.identities.get(client_id)?.blueprint.rights;
        rights.iter().find(|(project, _)| project == slug).map(|(_, rights)| rights)
    }
}

impl Project {
    /// Puts a secret somewhere without asking anybody. An environment that is not there takes nothing.
    pub(super) fn place(&mut self, chance: &mut Chance, placed: blueprint::Placed, now: &str) {
        let Some(environment) = self.environments.get_mut(&placed.environment) else { return };
        let id = uuid(chance, "infisical secret");
        let folder = environment.folder(chance, &placed.path, now);
        folder.put(&placed.name, id, Some(placed.value), None, None, now);
    }
}

impl Environment {
    /// The folder of this path, made with all above it where it is not there.
    pub(super) fn folder(&mut self, chance: &mut Chance, path: &str, now: &str) -> &mut Folder {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        for depth in 1..parts.len() {
            self.one(chance, &format!("/{}", parts[..depth].join("/")), now);
        }
        self.one(chance, &format!("/{}", parts.join("/")), now)
    }

    fn one(&mut self, chance: &mut Chance, path: &str, now: &str) -> &mut Folder {
        self.folders.entry(path.to_owned()).or_insert_with(|| Folder {
            id: uuid(chance, "infisical folder"),
            created: now.to_owned(),
            ..Folder::default()
        })
    }
}

impl Folder {
    /// Creates or changes a secret; what is not given stays as it is.
    pub(super) fn put(
        &mut self,
        name: &str,
        id: String,
        value: Option<String>,
        comment: Option<String>,
        metadata: Option<Value>,
        now: &str,
    ) {
        let new = || Secret {
            id,
            version: 0,
            value: String::new(),
            comment: String::new(),
            metadata: None,
            created: now.to_owned(),
            updated: String::new(),
        };
        let secret = self.secrets.entry(name.to_owned()).or_insert_with(new);
        secret.version += 1;
        now.clone_into(&mut secret.updated);
        secret.value = value.unwrap_or_else(|| std::mem::take(&mut secret.value));
        secret.comment = comment.unwrap_or_else(|| std::mem::take(&mut secret.comment));
        secret.metadata = metadata.or_else(|| secret.metadata.take());
    }
}

/// Where a secret is.
#[derive(Clone, Copy)]
pub(super) struct Spot<'a> {
    pub(super) project: &'a str,
    pub(super) environment: &'a str,
    pub(super) path: &'a str,
}

impl Secret {
    /// As it is shown; its value is hidden from those who may not read it.
    pub(super) fn shown(&self, name: &str, at: Spot<'_>, value: Option<&str>) -> Value {
        let Self { id, version, comment, metadata, created, updated, .. } = self;
        json!({
            "id": id, "_id": id, "workspace": at.project, "environment": at.environment, "version": version,
            "type": "shared", "secretKey": name, "secretValue": value.unwrap_or("<hidden-by-infisical>"),
            "secretValueHidden": value.is_none(), "secretComment": comment, "secretPath": at.path,
            "secretReminderNote": null, "secretReminderRepeatDays": null, "skipMultilineEncoding": false,
            "createdAt": created, "updatedAt": updated, "isRotatedSecret": false, "rotationId": null,
            "secretMetadata": metadata.clone().unwrap_or_else(|| json!([])), "tags": [],
        })
    }
}

/// A name that nothing else has.
pub(super) fn uuid(chance: &mut Chance, purpose: &str) -> String {
    let bytes = chance.bytes(purpose);
    let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..32])
}

/// A moment as the vendor writes it.
pub(super) fn timestamp(epoch: u64) -> String {
    let [year, month, day, hour, minute, second] = castle_seams::calendar(epoch);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_the_vendor_writes_them() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_790_000_000, "2026-09-21T14:13:20.000Z"),
        ];
        for (epoch, expected) in cases {
            assert_eq!(timestamp(epoch), expected);
        }
    }
}
