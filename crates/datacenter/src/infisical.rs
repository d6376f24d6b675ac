//! Infisical as its clients know it: universal auth, secrets of v4 and v3, folders, and its refusals.
//!
//! Written from the server's source (0.162), not from what castle sends. What the source leaves to its framework is marked
//! where it is done: nobody here has seen a real one refuse it.

use std::time::Duration;

use serde_json::Value;

use crate::chance::Chance;
use crate::transport::form::percent_decoded;
use crate::world::World;

mod access;
mod auth;
mod batch;
pub(crate) mod blueprint;
mod expand;
mod folders;
mod interventions;
mod limits;
pub(crate) mod line;
mod reader;
pub(crate) mod reply;
mod secrets;
mod state;

pub use interventions::VaultView;
use reply::VaultReply;
pub(crate) use state::Site;

type Answer = Result<VaultReply, VaultReply>;

/// Which of the two interfaces is spoken: they differ in names and defaults.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dialect {
    V3,
    V4,
}

/// A request as it comes in.
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path and query, as they were sent.
    pub(crate) target: String,
    pub(crate) authorization: Option<String>,
    pub(crate) if_none_match: Option<String>,
    /// The body; nothing if it is no JSON, or too large.
    pub(crate) body: Option<Value>,
}

impl Request {
    pub(crate) fn is_change(&self) -> bool {
        self.method != "GET"
    }
}

/// A request whose sender is known.
struct Call<'a> {
    site: &'a mut Site,
    chance: &'a mut Chance,
    timestamp: String,
    dialect: Dialect,
    method: &'a str,
    /// What the path ends with, where that is a name.
    name: Option<String>,
    client_id: String,
    query: &'a str,
    body: &'a Value,
    if_none_match: Option<&'a str>,
    effects: Vec<(&'static str, String)>,
}

impl Call<'_> {
    fn is_change(&self) -> bool {
        self.method != "GET"
    }
}

type Handler = fn(&mut Call<'_>) -> Answer;

/// Who handles a request that needs no token.
type Login = fn(&mut Site, Duration, &mut Chance, &Value) -> Answer;

/// What a request is for: the interface, the limit that it counts towards, the name in its path, and who handles it.
fn route<'a>(method: &str, parts: &[&'a str]) -> Option<(Dialect, &'static str, Option<&'a str>, Handler)> {
    use Dialect::{V3, V4};
    let one: fn(&str) -> Option<Handler> = |method| match method {
        "GET" => Some(secrets::get),
        "POST" => Some(secrets::create),
        "PATCH" => Some(secrets::update),
        "DELETE" => Some(secrets::delete),
        _ => None,
    };
    let many: fn(&str) -> Option<Handler> = |method| match method {
        "POST" => Some(batch::create),
        "PATCH" => Some(batch::update),
        "DELETE" => Some(batch::delete),
        _ => None,
    };
    match (method, parts) {
        ("GET", ["v1", "projects", "slug", slug]) => Some((V4, limits::READS, Some(slug), folders::project_by_slug)),
        ("GET", ["v4", "secrets"]) => Some((V4, limits::SECRETS, None, secrets::list)),
        ("GET", ["v3", "secrets", "raw"]) => Some((V3, limits::SECRETS, None, secrets::list)),
        (method, ["v4", "secrets", "batch"]) if method != "GET" => {
            many(method).map(|handler| (V4, limits::SECRETS, None, handler))
        }
        (method, ["v3", "secrets", "batch", "raw"]) => many(method).map(|handler| (V3, limits::SECRETS, None, handler)),
        (method, ["v4", "secrets", name]) => one(method).map(|handler| (V4, limits::SECRETS, Some(*name), handler)),
        (method, ["v3", "secrets", "raw", name]) => {
            one(method).map(|handler| (V3, limits::SECRETS, Some(*name), handler))
        }
        ("POST", ["v2", "folders"]) => Some((V4, limits::SECRETS, None, folders::create)),
        ("POST", ["v1", "folders"]) => Some((V3, limits::SECRETS, None, folders::create)),
        ("GET", ["v2", "folders"]) => Some((V4, limits::READS, None, folders::list)),
        ("GET", ["v1", "folders"]) => Some((V3, limits::READS, None, folders::list)),
        ("DELETE", ["v2", "folders", name]) => Some((V4, limits::SECRETS, Some(*name), folders::delete)),
        ("DELETE", ["v1", "folders", name]) => Some((V3, limits::SECRETS, Some(*name), folders::delete)),
        _ => None,
    }
}

/// Answers a request to the Infisical of this name.
pub(crate) fn answer(world: &mut World, host: &str, request: &Request) -> VaultReply {
    let (now, epoch) = (world.now, world.epoch());
    let World { infisical, chance, .. } = &mut *world;
    let Some(site) = infisical.get_mut(host) else { return reply::internal() };
    let mut effects = Vec::new();
    let answer = handle(site, chance, (now, epoch), request, &mut effects);
    for (verb, target) in effects {
        world.effect(verb, format!("{host} {target}"));
    }
    answer.unwrap_or_else(|refusal| refusal)
}

fn handle(
    site: &mut Site,
    chance: &mut Chance,
    (now, epoch): (Duration, u64),
    request: &Request,
    effects: &mut Vec<(&'static str, String)>,
) -> Answer {
    let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
    // The server ignores a slash at the end, and the vendor's own command line sends one.
    let route_path = path.strip_suffix('/').unwrap_or(path);
    let decoded: Vec<String> = route_path.trim_start_matches('/').split('/').map(percent_decoded).collect();
    let parts: Vec<&str> = decoded.iter().map(String::as_str).collect();
    let unknown = || {
        let message = format!("Route {}:{path} not found", request.method);
        VaultReply::failure(404, "Not Found", message)
    };
    let ["api", parts @ ..] = parts.as_slice() else { return Err(unknown()) };
    let method = request.method.as_str();
    let login: Option<Login> = match (method, parts) {
        ("POST", ["v1", "auth", "universal-auth", "login"]) => Some(auth::login),
        ("POST", ["v1", "auth", "token", "renew"]) => Some(auth::renew),
        ("POST", ["v1", "auth", "token", "revoke"]) => Some(|site, now, _, body| auth::revoke(site, now, body)),
        _ => None,
    };
    // Not seen: the framework's refusal of a body meets an error handler that has no case for it.
    let body = || request.body.as_ref().ok_or_else(reply::internal);
    if let Some(login) = login {
        let body = body()?;
        limits::count(site, now, limits::WRITES)?;
        return login(site, now, chance, body);
    }
    let (dialect, limit, name, handler) = route(method, parts).ok_or_else(unknown)?;
    let client_id = auth::who(site, now, request.authorization.as_deref())?;
    let body = body()?;
    limits::count(site, now, limit)?;
    let mut call = Call {
        site,
        chance,
        timestamp: state::timestamp(epoch),
        dialect,
        method,
        name: name.map(str::to_owned),
        client_id,
        query,
        body,
        if_none_match: request.if_none_match.as_deref(),
        effects: Vec::new(),
    };
    let answer = handler(&mut call);
    *effects = call.effects;
    answer
}
