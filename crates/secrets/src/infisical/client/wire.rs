//! What is sent: names, paths, and bodies within the server's limit.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::Secret;
use crate::vault::{VaultError, VaultErrorKind};

/// A part of a path or a query, encoded: what comes from outside never becomes another.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(char::from(byte)),
            // A name of dots would be another folder.
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

fn invalid(subject: String, evidence: &str) -> VaultError {
    VaultError::new(VaultErrorKind::Invalid, subject, evidence)
}

/// A folder that Infisical can have.
pub(super) fn check_path(path: &str) -> Result<(), VaultError> {
    let is_part = |part: &str| {
        !part.is_empty() && part.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))
    };
    if path == "/" || path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(is_part)) {
        return Ok(());
    }
    let evidence = "a folder of Infisical is written /a/b, with letters, digits, dashes and underscores";
    Err(invalid(format!("folder {path}"), evidence).next("correct `path` in `secrets:` of castle.yaml"))
}

/// A name that Infisical can have.
pub(super) fn check_name(name: &str) -> Result<(), VaultError> {
    if !name.trim().is_empty() && name.trim() == name && !name.contains([':', '/']) {
        return Ok(());
    }
    Err(invalid(format!("secret {name}"), "names in Infisical have neither `:` nor `/`, and are not empty"))
}

/// The requests that it takes, each within `largest` bytes; refused whole if one secret alone is larger.
pub(super) fn bodies(
    head: &Value,
    secrets: &BTreeMap<String, Secret>,
    note: &str,
    largest: usize,
) -> Result<Vec<String>, VaultError> {
    let head = head.to_string();
    let frame = format!("{},\"secrets\":[", head.trim_end_matches('}'));
    let mut bodies: Vec<String> = Vec::new();
    for (name, secret) in secrets {
        let item = json!({"secretKey": name, "secretValue": secret.expose(), "secretComment": note}).to_string();
        let alone = frame.len() + item.len() + 2;
        if alone > largest {
            let evidence = format!("a request with it has {alone} bytes, and Infisical takes {largest}");
            return Err(VaultError::new(VaultErrorKind::TooLarge, format!("secret {name}"), evidence)
                .next("nothing was sent; keep something of this size elsewhere"));
        }
        match bodies.last_mut() {
            Some(body) if body.len() + item.len() + 3 <= largest => {
                body.push(',');
                body.push_str(&item);
            }
            _ => bodies.push(format!("{frame}{item}")),
        }
    }
    Ok(bodies.into_iter().map(|body| body + "]}").collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_names_are_those_of_infisical() {
        assert!(["/", "/a", "/castle/blue-1/proxmox_2"].into_iter().all(|path| check_path(path).is_ok()));
        assert!(["", "a", "/a/", "//", "/a b", "/../b"].into_iter().all(|path| check_path(path).is_err()));
        assert!(["KUBECONFIG", "a.b"].into_iter().all(|name| check_name(name).is_ok()));
        assert!(["", " ", "a:b", "a/b", " a"].into_iter().all(|name| check_name(name).is_err()));
        assert_eq!(encoded("../a b?"), "%2E%2E%2Fa%20b%3F");
    }

    #[test]
    fn bodies_stay_within_the_limit_and_are_json() {
        let secrets: BTreeMap<_, _> =
            (0..9).map(|number| (format!("N{number}"), Secret::from("\n\"".repeat(40)))).collect();
        let bodies = bodies(&json!({"mode": "upsert"}), &secrets, "a note", 700).unwrap();
        assert!(bodies.len() > 1 && bodies.iter().all(|body| body.len() <= 700));
        let names: Vec<String> = bodies
            .iter()
            .flat_map(|body| serde_json::from_str::<Value>(body).unwrap()["secrets"].as_array().unwrap().clone())
            .map(|secret| secret["secretKey"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(names, secrets.into_keys().collect::<Vec<_>>());
    }

    #[test]
    fn what_is_too_large_is_refused_with_its_name_and_nothing_of_it() {
        let secrets = BTreeMap::from([("BIG".to_owned(), Secret::from("planted".repeat(300_000)))]);
        let error = bodies(&json!({}), &secrets, "", super::super::LARGEST_BODY).unwrap_err();
        assert_eq!((error.kind, error.subject.as_str()), (VaultErrorKind::TooLarge, "secret BIG"));
        assert!(!format!("{error:?}").contains("planted"));
    }
}
