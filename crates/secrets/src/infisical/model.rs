//! What is said: regions, identities, secrets and refusals.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use castle_http::{Endpoint, EndpointError};
use serde_json::Value;
use thiserror::Error;

use crate::Secret;
use crate::vault::{Entry, Folder, VaultErrorKind};

/// What stands in the place of a value that may not be read.
const HIDDEN: &str = "<hidden-by-infisical>";

/// Where the project is. There is no default: a wrong region answers as wrong credentials do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Region {
    /// The cloud in the United States.
    Us,
    /// The cloud in the European Union.
    Eu,
    /// Somebody's own.
    Own(Endpoint),
}

/// It is neither a region nor an address.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the region of Infisical is `us`, `eu`, or the address of your own: {0}")]
pub struct RegionError(EndpointError);

impl Region {
    /// Reads `us`, `eu` or an address.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if it is none of them.
    pub fn parse(text: &str) -> Result<Self, RegionError> {
        match text {
            "us" => Ok(Self::Us),
            "eu" => Ok(Self::Eu),
            address => Endpoint::parse(address).map(Self::Own).map_err(RegionError),
        }
    }

    pub(super) fn endpoint(&self) -> Result<Endpoint, EndpointError> {
        match self {
            Self::Us => Endpoint::parse("https://app.infisical.com/api"),
            Self::Eu => Endpoint::parse("https://eu.infisical.com/api"),
            Self::Own(endpoint) => Ok(Endpoint { base: format!("{}/api", endpoint.base), ..endpoint.clone() }),
        }
    }

    /// What else the region could be, for whoever is not believed there.
    pub(super) fn doubt(&self) -> &'static str {
        match self {
            Self::Us => "if the project is in the EU cloud, write `region: eu`",
            Self::Eu => "if the project is in the US cloud, write `region: us`",
            Self::Own(_) => "if the project is in the cloud, write `region: eu` or `region: us`",
        }
    }
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Us => f.write_str("us"),
            Self::Eu => f.write_str("eu"),
            Self::Own(endpoint) => f.write_str(&endpoint.host),
        }
    }
}

/// A machine identity with universal auth.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What it logs in as.
    pub client_id: Secret,
    /// What it logs in with.
    pub client_secret: Secret,
}

/// It is no identity. Holds nothing of it.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("an identity of Infisical is a mapping with `clientId` and `clientSecret`: {0}")]
pub struct IdentityError(&'static str);

impl Identity {
    /// Reads the members of an entry: `clientId` and `clientSecret`.
    ///
    /// # Errors
    ///
    /// [`IdentityError`] if one of them is missing or empty.
    pub fn of(members: &BTreeMap<String, Secret>) -> Result<Self, IdentityError> {
        let member = |name: &str, missing| {
            let found = members.get(name).map(|secret| secret.map(str::trim)).filter(|secret| !secret.is_empty());
            found.map(Secret::registered).ok_or(IdentityError(missing))
        };
        Ok(Self {
            client_id: member("clientId", "clientId is missing")?,
            client_secret: member("clientSecret", "clientSecret is missing")?,
        })
    }
}

/// A value as Infisical keeps it: without outer whitespace, but with one newline at its end if it ended with one.
pub(super) fn kept(value: &str) -> Cow<'_, str> {
    // What JavaScript trims: all that Unicode calls white space but NEL, and the byte order mark.
    let is_outer = |letter: char| letter == '\u{feff}' || (letter.is_whitespace() && letter != '\u{85}');
    let core = value.trim_matches(is_outer);
    if !value.ends_with('\n') {
        return Cow::Borrowed(core);
    }
    let start = value.len() - value.trim_start_matches(is_outer).len();
    match value.get(start..=start + core.len()) {
        Some(with_newline) if with_newline.ends_with('\n') => Cow::Borrowed(with_newline),
        _ => Cow::Owned(format!("{core}\n")),
    }
}

/// The secrets of one folder; nothing if this is no list of them.
pub(super) fn folder(answer: &Value, path: &str) -> Option<Folder> {
    let secrets = answer["secrets"].as_array()?;
    let own = secrets.iter().filter(|secret| secret["secretPath"].as_str().is_none_or(|at| at == path));
    own.map(entry).collect()
}

/// One secret and its name.
pub(super) fn entry(secret: &Value) -> Option<(String, Entry)> {
    let value = secret["secretValue"].as_str()?;
    let is_hidden = secret["secretValueHidden"].as_bool().unwrap_or(false) || value == HIDDEN;
    let value = (!is_hidden).then(|| Secret::registered(value.to_owned()));
    let note = secret["secretComment"].as_str().unwrap_or_default().to_owned();
    Some((secret["secretKey"].as_str()?.to_owned(), Entry { value, note }))
}

/// A refusal as it is worded: the status, the name of the error, and the sentence.
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) error: String,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn read(status: u16, body: &[u8]) -> Self {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let message = match &body["message"] {
            Value::String(text) => text.clone(),
            // What is not valid is told as a list, each with its place.
            Value::Array(issues) => issues.iter().map(issue).collect::<Vec<_>>().join("; "),
            _ => format!("not answered as Infisical answers: status {status}"),
        };
        let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message = message.chars().filter(|letter| !letter.is_control()).take(400).collect();
        Self { status, error: body["error"].as_str().unwrap_or_default().to_owned(), message }
    }

    pub(super) fn kind(&self) -> VaultErrorKind {
        match (self.status, self.error.as_str()) {
            (429, _) => VaultErrorKind::Busy(self.seconds()),
            // Something in between, or something else at that address.
            (300..=499, "") => VaultErrorKind::Unreadable,
            (401, _) | (403, "TokenError") => VaultErrorKind::Unauthenticated,
            (403, "ForbiddenReadSecretError") => VaultErrorKind::Hidden,
            (403, _) => VaultErrorKind::Forbidden,
            (404, _) => VaultErrorKind::Missing,
            (400..=499, _) => VaultErrorKind::Invalid,
            _ => VaultErrorKind::Unknown,
        }
    }

    /// How long to wait, as the sentence says: `... try again in 12 seconds`.
    fn seconds(&self) -> Option<Duration> {
        let (_, behind) = self.message.split_once("try again in ")?;
        behind.split(' ').next()?.parse().ok().map(Duration::from_secs)
    }
}

fn issue(issue: &Value) -> String {
    let parts = issue["path"].as_array().map(Vec::as_slice).unwrap_or_default();
    let path: Vec<String> =
        parts.iter().map(|part| part.as_str().map_or_else(|| part.to_string(), str::to_owned)).collect();
    format!("{}: {}", path.join("."), issue["message"].as_str().unwrap_or("not accepted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_as_the_server_trims_them() {
        for (value, expected) in [
            ("a", "a"),
            (" a b\t", "a b"),
            ("a\n", "a\n"),
            ("a\n\n", "a\n"),
            ("a \n", "a\n"),
            ("\r\n\u{feff}a\u{a0}\r\n", "a\n"),
            ("a\u{85}", "a\u{85}"),
            ("\n", "\n"),
            ("", ""),
        ] {
            assert_eq!(kept(value), expected, "{value:?}");
            assert_eq!(kept(&kept(value)), expected, "{value:?} once more");
        }
    }

    #[test]
    fn regions_are_named() {
        for (text, name, target) in [
            ("us", "us", "app.infisical.com:443"),
            ("eu", "eu", "eu.infisical.com:443"),
            ("https://vault.example.net", "vault.example.net", "vault.example.net:443"),
        ] {
            let region = Region::parse(text).unwrap();
            assert_eq!(
                (region.to_string().as_str(), region.endpoint().unwrap().target.to_string().as_str()),
                (name, target)
            );
            assert_eq!(region.endpoint().unwrap().base, "/api");
        }
        assert!(Region::parse("asia").unwrap_err().to_string().contains("`us`, `eu`"));
    }

    #[test]
    fn hidden_values_are_told_from_values() {
        let shown = |value: &str, hidden: bool| {
            let secret = serde_json::json!({"secretKey": "A", "secretValue": value, "secretValueHidden": hidden});
            entry(&secret).unwrap().1.value.is_some()
        };
        assert_eq!([shown("x", false), shown("x", true), shown(HIDDEN, false)], [true, false, false]);
    }

    #[test]
    fn refusals_are_read_whatever_their_shape() {
        let read = |status, body: &str| {
            let refusal = Refusal::read(status, body.as_bytes());
            (refusal.kind(), refusal.message)
        };
        let limited =
            r#"{"message":"Rate limit exceeded. Please try again in 12 seconds","error":"RateLimitExceeded"}"#;
        assert_eq!(read(429, limited).0, VaultErrorKind::Busy(Some(Duration::from_secs(12))));
        let invalid =
            r#"{"error":"ValidationFailure","message":[{"path":["secrets",0,"secretKey"],"message":"Required"}]}"#;
        assert_eq!(read(422, invalid), (VaultErrorKind::Invalid, "secrets.0.secretKey: Required".to_owned()));
        let elsewhere = |status: u16| format!("not answered as Infisical answers: status {status}");
        assert_eq!(read(502, "<html>"), (VaultErrorKind::Unknown, elsewhere(502)));
        assert_eq!(read(404, "<html>"), (VaultErrorKind::Unreadable, elsewhere(404)));
        assert_eq!(read(301, ""), (VaultErrorKind::Unreadable, elsewhere(301)));
        assert_eq!(read(429, "").0, VaultErrorKind::Busy(None));
        assert_eq!(read(403, r#"{"error":"TokenError","message":"x"}"#).0, VaultErrorKind::Unauthenticated);
        assert_eq!(read(403, r#"{"error":"PermissionDenied","message":"x"}"#).0, VaultErrorKind::Forbidden);
    }
}
