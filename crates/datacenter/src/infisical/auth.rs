//! Logging in, and what a token is good for.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::reader::Reader;
use super::reply::{VaultReply, token_error, unauthorized};
use super::state::{Site, Token};
use crate::chance::Chance;

/// So many failures lock an identity,
const FAILURES: u32 = 3;
/// for this long.
const LOCKED: Duration = Duration::from_secs(300);
/// Fewer are forgotten after this long.
const FORGOTTEN: Duration = Duration::from_secs(30);

type Answer = Result<VaultReply, VaultReply>;

pub(super) fn login(site: &mut Site, now: Duration, chance: &mut Chance, body: &Value) -> Answer {
    let mut reader = Reader::of(body);
    let (client_id, secret) = (reader.required("clientId"), reader.required("clientSecret"));
    reader.checked()?;
    let wrong = || unauthorized("Invalid credentials");
    let identity = site.identities.get_mut(&client_id).ok_or_else(wrong)?;
    if identity.failures > 0 && now >= identity.forgets_at {
        (identity.failures, identity.is_locked) = (0, false);
    }
    if identity.is_locked {
        return Err(unauthorized("This identity auth method is temporarily locked, please try again later"));
    }
    if identity.blueprint.client_secret != secret {
        identity.failures += 1;
        identity.is_locked = identity.failures >= FAILURES;
        identity.forgets_at = now + if identity.is_locked { LOCKED } else { FORGOTTEN };
        return Err(wrong());
    }
    identity.failures = 0;
    let (ttl, longest) = (identity.blueprint.ttl, identity.blueprint.max_ttl);
    Ok(issue(site, &client_id, now, now, ttl.min(longest), chance))
}

/// A new token, and the answer that tells it.
fn issue(
    site: &mut Site,
    client_id: &str,
    created: Duration,
    now: Duration,
    ttl: Duration,
    chance: &mut Chance,
) -> VaultReply {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let (id, longest) = site
        .identities
        .get(client_id)
        .map_or_else(Default::default, |identity| (identity.id.clone(), identity.blueprint.max_ttl));
    let head = part(&json!({"alg": "HS256", "typ": "JWT"}));
    let claims = part(&json!({"identityId": id, "authTokenType": "identityAccessToken", "exp": (now + ttl).as_secs()}));
    let token = format!("{head}.{claims}.{}", URL_SAFE_NO_PAD.encode(chance.bytes("infisical token")));
    let record = Token { client_id: client_id.to_owned(), created, expires: now + ttl, is_revoked: false };
    site.tokens.insert(token.clone(), record);
    let body = json!({"accessToken": token, "expiresIn": ttl.as_secs(), "accessTokenMaxTTL": longest.as_secs(),
        "tokenType": "Bearer"});
    VaultReply::of(body)
}

pub(super) fn renew(site: &mut Site, now: Duration, chance: &mut Chance, body: &Value) -> Answer {
    let token = told(body)?;
    let found = known(site, now, &token)?;
    if found.is_revoked {
        return Err(unauthorized("Cannot renew: token has been revoked"));
    }
    let (client_id, created) = (found.client_id.clone(), found.created);
    let (ttl, longest) = (site.identities.get(&client_id))
        .map_or_else(Default::default, |identity| (identity.blueprint.ttl, identity.blueprint.max_ttl));
    // Counted in whole seconds: only the last one is refused like this, later the token has expired.
    match (created + longest).saturating_sub(now).as_secs() {
        0 => Err(unauthorized("Cannot renew: identity access token has reached its max TTL")),
        left => Ok(issue(site, &client_id, created, now, ttl.min(Duration::from_secs(left)), chance)),
    }
}

pub(super) fn revoke(site: &mut Site, now: Duration, body: &Value) -> Answer {
    let token = told(body)?;
    known(site, now, &token)?;
    if let Some(found) = site.tokens.get_mut(&token) {
        found.is_revoked = true;
    }
    Ok(VaultReply::of(json!({"message": "Successfully revoked access token"})))
}

fn told(body: &Value) -> Result<String, VaultReply> {
    let mut reader = Reader::of(body);
    let token = reader.required("accessToken");
    reader.checked()?;
    Ok(token)
}

/// A token of this Infisical that has not expired.
fn known<'a>(site: &'a Site, now: Duration, token: &str) -> Result<&'a Token, VaultReply> {
    if token.split('.').count() != 3 {
        return Err(token_error(
            "The provided access token is malformed. Please use a valid token or generate a new one and try again.",
        ));
    }
    let found = site.tokens.get(token).ok_or_else(|| token_error("invalid signature"))?;
    if now >= found.expires {
        return Err(token_error("Your token has expired. Please re-authenticate."));
    }
    Ok(found)
}

/// Who asks: the client id behind the header.
pub(super) fn who(site: &Site, now: Duration, authorization: Option<&str>) -> Result<String, VaultReply> {
    let header = authorization.ok_or_else(|| unauthorized("Token missing"))?;
    // What stands before the token is not looked at.
    let found = known(site, now, header.get(7..).unwrap_or_default())?;
    if found.is_revoked {
        return Err(unauthorized("Failed to authorize: token has been revoked"));
    }
    Ok(found.client_id.clone())
}
