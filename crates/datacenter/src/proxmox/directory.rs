//! Users, roles, rights and realms, as they are listed.

use serde_json::{Map, Value, json};

use super::{Outcome, Request};
use crate::world::World;

pub(super) fn users(world: &World, request: &Request) -> Outcome {
    let sees_all = world.may(&request.who, "/access/groups", &["User.Modify", "Sys.Audit"]);
    let rows = world.access.users().filter(|user| sees_all || user.id == request.who.user).map(|user| {
        let mut row = Map::new();
        row.insert("userid".into(), json!(user.id));
        row.insert("enable".into(), json!(1));
        row.insert("expire".into(), json!(0));
        row.insert("realm-type".into(), json!(user.id.rsplit('@').next().unwrap_or_default()));
        if request.flag("full") {
            row.insert("groups".into(), json!(""));
            let tokens = user
                .tokens
                .iter()
                .map(|token| json!({ "tokenid": token.name, "privsep": u8::from(token.privsep), "expire": 0 }));
            row.insert("tokens".into(), tokens.collect());
        }
        Value::from(row)
    });
    // All of them can log in.
    let rows = rows.filter(|_| request.params.flag("enabled") != Some(false));
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn roles(world: &World) -> Outcome {
    let rows = world.access.roles().map(|(name, privileges, is_special)| {
        json!({ "roleid": name, "privs": privileges.join(","), "special": u8::from(is_special) })
    });
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn acl(world: &World, request: &Request) -> Outcome {
    let sees_all = world.may(&request.who, "/access", &["Sys.Audit"]);
    let entries =
        world.access.acl().filter(|entry| sees_all || world.may(&request.who, &entry.path, &["Permissions.Modify"]));
    let rows = entries.map(|entry| {
        json!({
            "path": entry.path, "ugid": entry.who, "roleid": entry.role, "propagate": u8::from(entry.propagate),
            "type": if entry.who.contains('!') { "token" } else { "user" },
        })
    });
    Ok(rows.collect::<Vec<_>>().into())
}

pub(super) fn domains() -> Outcome {
    Ok(json!([
        { "realm": "pam", "type": "pam", "comment": "Linux PAM standard authentication" },
        { "realm": "pve", "type": "pve", "comment": "Proxmox VE authentication server" },
    ])
    .into())
}
