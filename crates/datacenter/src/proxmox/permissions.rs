//! Whether somebody may, and in which words he may not.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, json};

use super::api::Permission;
use super::{Outcome, Refusal, Request};
use crate::access::{Identity, Privileges};
use crate::world::World;

impl World {
    /// What somebody may at a place. Members of a pool also have what the pool gives.
    pub(crate) fn privileges(&self, who: &Identity, path: &str) -> Privileges {
        let mut privileges = self.access.privileges(who, path);
        let pool = if let Some(vmid) = path.strip_prefix("/vms/") {
            vmid.parse().ok().and_then(|vmid| self.pool_of(vmid))
        } else if let Some(storage) = path.strip_prefix("/storage/") {
            self.pools.iter().find(|(_, pool)| pool.storages.contains(storage)).map(|(name, _)| name.as_str())
        } else {
            None
        };
        if let Some(pool) = pool {
            for (privilege, propagates) in self.access.privileges(who, &format!("/pool/{pool}")) {
                privileges.entry(privilege).or_insert(propagates);
            }
        }
        privileges
    }

    /// Whether somebody has one of these privileges at a place.
    pub(crate) fn may(&self, who: &Identity, path: &str, any_of: &[&str]) -> bool {
        let has = self.privileges(who, path);
        any_of.iter().any(|privilege| has.contains_key(*privilege))
    }

    /// Refuses where somebody lacks one of these privileges.
    pub(crate) fn require(&self, who: &Identity, path: &str, all_of: &[&str]) -> Result<(), Refusal> {
        let has = self.privileges(who, path);
        if all_of.iter().all(|privilege| has.contains_key(*privilege)) {
            return Ok(());
        }
        Err(Refusal::new(403, format!("Permission check failed ({path}, {})", all_of.join(", "))))
    }

    /// Refuses where somebody has none of these privileges.
    pub(crate) fn require_any(&self, who: &Identity, path: &str, any_of: &[&str]) -> Result<(), Refusal> {
        if self.may(who, path, any_of) {
            return Ok(());
        }
        Err(Refusal::new(403, format!("Permission check failed ({path}, {})", any_of.join("|"))))
    }
}

/// Checks what the table of operations demands.
pub(super) fn check(
    world: &World,
    who: &Identity,
    permission: Permission,
    from_path: &BTreeMap<&'static str, String>,
    given: &[(String, String)],
) -> Result<(), Refusal> {
    let value = |name: &str| {
        let given = || given.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value);
        from_path.get(name).or_else(given).map(String::as_str)
    };
    match permission {
        Permission::World | Permission::Everyone | Permission::InHandler => Ok(()),
        Permission::Check { only_with: Some(name), .. } if value(name).is_none() => {
            Err(Refusal::new(403, "Permission check failed"))
        }
        Permission::Check { path, privileges, any, .. } => {
            let place = filled(path, value);
            if any { world.require_any(who, &place, privileges) } else { world.require(who, &place, privileges) }
        }
        Permission::All(parts) => parts.iter().try_for_each(|part| check(world, who, *part, from_path, given)),
        Permission::Any(parts) => {
            let is_one = parts.iter().any(|part| check(world, who, *part, from_path, given).is_ok());
            if is_one { Ok(()) } else { Err(Refusal::new(403, "Permission check failed")) }
        }
    }
}

/// A path with its names in braces replaced.
fn filled<'a>(path: &str, value: impl Fn(&str) -> Option<&'a str>) -> String {
    let parts = path.split('/').map(|part| {
        let name = part.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
        name.map_or(part, |name| value(name).unwrap_or_default())
    });
    parts.collect::<Vec<_>>().join("/")
}

/// What somebody may at the places that there are, or at one.
pub(super) fn list(world: &World, request: &Request) -> Outcome {
    let asked = request.text("userid");
    let who = match asked {
        Some(id) if id != request.who.name() => {
            world.require(&request.who, "/access", &["Sys.Audit"])?;
            let (user, token) = id.split_once('!').map_or((id, None), |(user, token)| (user, Some(token.to_owned())));
            Identity { user: user.to_owned(), token }
        }
        _ => request.who.clone(),
    };
    let mut paths: BTreeSet<String> = BTreeSet::new();
    if let Some(path) = request.text("path") {
        paths.insert(path.to_owned());
    } else {
        paths.extend(["/", "/access", "/access/groups", "/nodes", "/pool", "/sdn", "/storage", "/vms"].map(Into::into));
        paths.extend(world.access.tree());
        for (name, pool) in &world.pools {
            paths.insert(format!("/pool/{name}"));
            paths.extend(pool.guests.iter().map(|vmid| format!("/vms/{vmid}")));
            paths.extend(pool.storages.iter().map(|storage| format!("/storage/{storage}")));
        }
    }
    let mut listed = Map::new();
    for path in paths {
        let privileges = world.privileges(&who, &path);
        if !privileges.is_empty() || request.text("path").is_some() {
            let told: Map<_, _> = privileges.into_iter().map(|(name, below)| (name, json!(u8::from(below)))).collect();
            listed.insert(path, told.into());
        }
    }
    Ok(serde_json::Value::from(listed).into())
}
