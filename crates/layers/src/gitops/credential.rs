//! Who may read the repository: a token, a key, or an app, in the parts that Flux knows.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_secrets::Secret;
use thiserror::Error;

/// The parts that a credential may have, as Flux calls them.
pub const PARTS: [&str; 11] = [
    "username",
    "password",
    "bearerToken",
    "identity",
    "identity.pub",
    "known_hosts",
    "githubAppID",
    "githubAppPrivateKey",
    "githubAppInstallationID",
    "githubAppInstallationOwner",
    "githubAppBaseURL",
];

/// How the cluster comes by the credential.
#[derive(Clone, Debug)]
pub enum Credential {
    /// Castle gives it these parts.
    Given(BTreeMap<String, Secret>),
    /// It reads a token from this entry of the castle's vault by itself.
    Vaulted(String),
}

/// Why something is no credential for a repository.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CredentialError {
    /// A key alone, for a host that is not known.
    #[error(
        "an SSH key alone is not enough: Flux must know the host, too; give an entry with `identity` and `known_hosts` \
         (`ssh-keyscan HOST` prints the latter)"
    )]
    UnknownHost,
    /// It is for another kind of address.
    #[error("{0} is read with {1}")]
    WrongKind(&'static str, &'static str),
    /// The host is not among those that are known.
    #[error("`known_hosts` has no line for {0}, and Flux would not believe it: add what `ssh-keyscan {0}` prints")]
    HostMissing(String),
    /// A part is not what it should be.
    #[error("`{0}` is no {1}")]
    Unfit(&'static str, &'static str),
    /// Something is missing.
    #[error(
        "it has {found}, which is no credential: give a token; or `username` and `password`; or `identity` and `known_hosts`; or `githubAppID`, `githubAppPrivateKey` and one of `githubAppInstallationID` and `githubAppInstallationOwner`"
    )]
    Incomplete {
        /// The parts it has.
        found: String,
    },
}

/// A credential of one text: a token, or a mapping as JSON.
///
/// # Errors
///
/// [`CredentialError`] if it cannot be one for this repository.
pub fn of_text(address: &str, text: &Secret) -> Result<BTreeMap<String, Secret>, CredentialError> {
    let trimmed = text.expose().trim();
    if let Ok(parts) = serde_json::from_str::<BTreeMap<String, String>>(trimmed) {
        return of_parts(
            address,
            parts.into_iter().map(|(name, part)| (name, Secret::registered(Secret::from(part)))).collect(),
        );
    }
    if trimmed.starts_with("-----BEGIN") {
        return Err(CredentialError::UnknownHost);
    }
    let given = [("username", Secret::from("git".to_owned())), ("password", Secret::from(trimmed.to_owned()))];
    of_parts(address, given.into_iter().map(|(name, part)| (name.to_owned(), part)).collect())
}

/// A credential of several parts.
///
/// # Errors
///
/// [`CredentialError`] if it cannot be one for this repository.
pub fn of_parts(address: &str, parts: BTreeMap<String, Secret>) -> Result<BTreeMap<String, Secret>, CredentialError> {
    let has = |names: &[&str]| names.iter().all(|name| parts.contains_key(*name));
    let (is_key, is_login) =
        (has(&["identity", "known_hosts"]), has(&["username", "password"]) || has(&["bearerToken"]));
    let has_app = parts.keys().any(|name| name.starts_with("githubApp"));
    let is_ssh = address.starts_with("ssh://");
    match () {
        () if is_ssh && is_key => known_host(address, &parts)?,
        () if !is_ssh && has_app && is_app(&parts) => fit_app(&parts)?,
        () if !is_ssh && !has_app && is_login => {}
        () if is_ssh && (is_login || is_app(&parts)) => {
            return Err(CredentialError::WrongKind(
                "a repository at ssh://",
                "an SSH key: `identity` and `known_hosts`",
            ));
        }
        () if !is_ssh && is_key => {
            return Err(CredentialError::WrongKind("a repository at https://", "a token, or a GitHub App"));
        }
        () => {
            let known: Vec<&str> = parts.keys().map(String::as_str).filter(|name| PARTS.contains(name)).collect();
            let found = if known.is_empty() { "none of the known parts".to_owned() } else { known.join(", ") };
            return Err(CredentialError::Incomplete { found });
        }
    }
    Ok(parts)
}

/// That the host of an address is among those that are known. Names that are hashed are believed to be.
fn known_host(address: &str, parts: &BTreeMap<String, Secret>) -> Result<(), CredentialError> {
    let rest = address.trim_start_matches("ssh://");
    let authority = rest.split('/').next().unwrap_or_default();
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host).to_ascii_lowercase();
    let (host, named) = match authority.split_once(':') {
        Some((host, port)) if port != "22" => (host.to_owned(), format!("[{host}]:{port}")),
        Some((host, _)) => (host.to_owned(), host.to_owned()),
        None => (authority.clone(), authority.clone()),
    };
    let known = parts.get("known_hosts").map(Secret::expose).unwrap_or_default();
    let is_known = known.lines().any(|line| {
        let names = line.trim().split(' ').next().unwrap_or_default();
        names.starts_with(['|', '@']) || names.contains('*') || names.split(',').any(|name| name == named)
    });
    if is_known { Ok(()) } else { Err(CredentialError::HostMissing(host)) }
}

/// That the parts of an app are what Flux takes them for.
fn fit_app(parts: &BTreeMap<String, Secret>) -> Result<(), CredentialError> {
    for name in ["githubAppID", "githubAppInstallationID"] {
        if parts.get(name).is_some_and(|part| part.expose().trim().parse::<u64>().is_err()) {
            return Err(CredentialError::Unfit(name, "number"));
        }
    }
    let key = parts.get("githubAppPrivateKey").map(Secret::expose).unwrap_or_default();
    let is_key = key.trim_start().starts_with("-----BEGIN") && key.contains("PRIVATE KEY-----");
    if is_key { Ok(()) } else { Err(CredentialError::Unfit("githubAppPrivateKey", "private key as PEM")) }
}

/// Whether it is a token and nothing else.
#[must_use]
pub fn is_token(parts: &BTreeMap<String, Secret>) -> bool {
    let is_git = parts.get("username").is_some_and(|name| name.expose() == "git");
    parts.len() == 2 && is_git && parts.contains_key("password")
}

/// Whether it is an app of GitHub's.
pub(super) fn is_app(parts: &BTreeMap<String, Secret>) -> bool {
    let has = |name: &str| parts.contains_key(name);
    has("githubAppID")
        && has("githubAppPrivateKey")
        && (has("githubAppInstallationID") != has("githubAppInstallationOwner"))
}

/// The parts as a Secret holds them.
pub(super) fn encoded(parts: &BTreeMap<String, Secret>) -> BTreeMap<String, String> {
    let known = parts.iter().filter(|(name, _)| PARTS.contains(&name.as_str()));
    known.map(|(name, part)| (name.clone(), encode(part))).collect()
}

pub(super) fn encode(secret: &Secret) -> String {
    STANDARD.encode(secret.expose())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(address: &str, text: &str) -> Result<Vec<String>, CredentialError> {
        of_text(address, &Secret::from(text.to_owned())).map(|parts| parts.into_keys().collect())
    }

    const HTTPS: &str = "https://git.example/r.git";
    const SSH: &str = "ssh://git@git.example/r.git";

    #[test]
    fn a_credential_is_known_by_its_parts() {
        assert_eq!(parts(HTTPS, "ghp_x\n").unwrap(), ["password", "username"]);
        assert_eq!(
            parts(SSH, r#"{"identity": "k", "known_hosts": "git.example k"}"#).unwrap(),
            ["identity", "known_hosts"]
        );
        let app = r#"{"githubAppID": "1", "githubAppPrivateKey": "-----BEGIN RSA PRIVATE KEY-----", "githubAppInstallationID": "2"}"#;
        assert_eq!(parts(HTTPS, app).unwrap().len(), 3);
    }

    #[test]
    fn what_is_none_is_refused_with_what_would_be_one() {
        assert_eq!(parts(SSH, "-----BEGIN OPENSSH PRIVATE KEY-----"), Err(CredentialError::UnknownHost));
        assert!(matches!(parts(SSH, "ghp_x"), Err(CredentialError::WrongKind(..))));
        assert!(matches!(
            parts(HTTPS, r#"{"identity": "k", "known_hosts": "h"}"#),
            Err(CredentialError::WrongKind(..))
        ));
        let both = r#"{"githubAppID": "1", "githubAppPrivateKey": "k", "githubAppInstallationID": "2", "githubAppInstallationOwner": "o"}"#;
        assert!(matches!(parts(HTTPS, both), Err(CredentialError::Incomplete { .. })));
        let half = r#"{"username": "u", "password": "p", "githubAppID": "1"}"#;
        assert!(matches!(parts(HTTPS, half), Err(CredentialError::Incomplete { .. })), "Flux would take it for an app");
        let app = |id: &str, key: &str| {
            format!(r#"{{"githubAppID": "{id}", "githubAppPrivateKey": "{key}", "githubAppInstallationOwner": "o"}}"#)
        };
        let unfit = |id, key| parts(HTTPS, &app(id, key)).unwrap_err().to_string();
        assert_eq!(unfit("hunter2", "-----BEGIN PRIVATE KEY-----"), "`githubAppID` is no number");
        assert_eq!(unfit("1", "hunter2"), "`githubAppPrivateKey` is no private key as PEM");
        let error = parts(HTTPS, r#"{"username": "hunter2secret"}"#).unwrap_err().to_string();
        assert!(!error.contains("hunter2secret"), "{error}");
    }
    #[test]
    fn the_host_of_an_ssh_address_must_be_known() {
        let told = |address: &str, known: &str| {
            let text = format!(r#"{{"identity": "k", "known_hosts": "{known}"}}"#);
            parts(address, &text).map(drop)
        };
        let missing = Err(CredentialError::HostMissing("git.example".to_owned()));
        assert_eq!(told(SSH, "other.example ssh-ed25519 AAAA"), missing);
        assert_eq!(told("ssh://git@git.example:2222/r.git", "git.example ssh-ed25519 AAAA"), missing);
        for (address, known) in [
            (SSH, "other.example,git.example ssh-ed25519 AAAA"),
            (SSH, "|1|salt|hash ssh-ed25519 AAAA"),
            ("ssh://git@git.example:22/r.git", "git.example ssh-ed25519 AAAA"),
            ("ssh://git@git.example:2222/r.git", "[git.example]:2222 ssh-ed25519 AAAA"),
        ] {
            assert_eq!(told(address, known), Ok(()), "{address} {known}");
        }
    }
}
