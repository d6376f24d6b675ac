//! Who asks: a token, or a ticket with its cookie and its header.

use serde_json::json;

use super::{Outcome, Raw, Refusal, Request};
use crate::access::Identity;
use crate::transport::form::percent_decoded;
use crate::world::World;

/// Whom a request comes from. A ticket wins over a token.
pub(super) fn identify(world: &World, raw: &Raw) -> Result<Identity, Refusal> {
    let unknown = |why: &str| Refusal::new(401, why);
    let now = world.epoch();
    if let Some(ticket) = &raw.ticket {
        let who =
            world.access.by_ticket(ticket, now).ok_or_else(|| unknown("permission denied - invalid PVE ticket"))?;
        let is_meant =
            raw.method == "GET" || raw.csrf.as_ref().is_some_and(|token| world.access.is_csrf(&who.user, token, now));
        return if is_meant { Ok(who) } else { Err(unknown("Permission denied - invalid csrf token")) };
    }
    let Some(header) = &raw.authorization else { return Err(unknown("No ticket")) };
    let Some(token) = header.strip_prefix("PVEAPIToken=").or_else(|| header.strip_prefix("PVEAPIToken ")) else {
        return Err(unknown("No ticket"));
    };
    world.access.by_token(&percent_decoded(token)).ok_or_else(|| unknown("Authentication failed!"))
}

/// Gives a ticket for a password, or for another ticket.
pub(super) fn ticket(world: &World, request: &Request) -> Outcome {
    let name = request.text("username").unwrap_or_default();
    let realm = request.text("realm").unwrap_or("pam");
    let user = if name.contains('@') { name.to_owned() } else { format!("{name}@{realm}") };
    let password = request.text("password").unwrap_or_default();
    let now = world.epoch();
    let who = world.access.by_password(&user, password, now);
    let who = who.ok_or_else(|| Refusal::new(401, "authentication failure"))?;
    let told = |path: &str| {
        let privileges = world.privileges(&who, path);
        privileges.into_keys().map(|privilege| (privilege, json!(1))).collect::<serde_json::Map<_, _>>()
    };
    Ok(json!({
        "username": user,
        "ticket": world.access.ticket(&user, now),
        "CSRFPreventionToken": world.access.csrf(&user, now),
        "clustername": world.cluster,
        "cap": {
            "access": told("/access"), "dc": told("/"), "mapping": told("/mapping"), "nodes": told("/nodes"),
            "sdn": told("/sdn"), "storage": told("/storage"), "vms": told("/vms"),
        },
    })
    .into())
}
