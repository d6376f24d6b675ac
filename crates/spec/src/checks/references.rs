//! References to secrets: that what they refer to is there, in the right form, and private.

use std::collections::BTreeMap;

use crate::model::{Castle, Platform, StateStore, Vault};
use crate::problem::Problems;
use crate::problem::{Code, Problem};
use crate::span::Sourced;
use crate::suggest;
use crate::values::SecretReference;
use crate::yaml::{self, Limits, View};

/// What was found at a path.
#[derive(Clone, Debug)]
pub enum Look {
    /// It cannot be read, and why.
    Missing(String),
    /// It is a file.
    File {
        /// What is in it.
        bytes: Vec<u8>,
        /// Whether others than its owner may read it.
        shared: bool,
        /// Whether git would take it along.
        tracked: bool,
    },
}

/// `vault:` needs a vault, and what opens it cannot be kept in it.
pub(super) fn check_vault(castle: &Castle, problems: &mut Problems) {
    let is_vault = |reference: &&Sourced<SecretReference>| matches!(reference.value, SecretReference::Vault(_));
    let references = castle.references();
    if castle.secrets.is_none() {
        for reference in references.iter().filter(is_vault) {
            problems.report(
                Problem::new(Code::VaultMissing, "a reference to the vault of a castle that has none")
                    .at(reference.origin, "kept in which vault?")
                    .hint("add a `secrets:` section with the vault, or keep this secret in a SOPS file"),
            );
        }
    }
    if let Some(Vault::Infisical(infisical)) = castle.secrets.as_deref()
        && is_vault(&&infisical.identity)
    {
        problems.report(
            Problem::new(Code::VaultMissing, "the key to the vault is kept in the vault")
                .at(infisical.identity.origin, "this opens the vault")
                .hint("keep it in a SOPS file: `sops:secrets.enc.yaml#infisical`"),
        );
    }
    if let StateStore::S3(bucket) = &castle.state.store.value {
        for key in [&bucket.access_key, &bucket.secret_key].into_iter().filter(is_vault) {
            problems.report(
                Problem::new(Code::VaultMissing, "the key to the state is kept in the vault")
                    .at(key.origin, "needed before the vault is asked")
                    .hint("keep it in a SOPS file, or in the environment"),
            );
        }
    }
    if let (Some(secrets), Platform::Proxmox(_)) = (&castle.secrets, &castle.platform.value)
        && matches!(secrets.value, Vault::Embedded(()))
    {
        problems.report(
            Problem::new(Code::VaultMissing, "the embedded vault is a simulation, and this castle is not")
                .at(secrets.origin, "forgets everything when it ends")
                .hint("name a real one: `secrets: {infisical: ...}`"),
        );
    }
}

/// Checks what `references` refer to, by what `look` finds at each path. Nothing is decrypted.
pub fn references(references: &[Sourced<SecretReference>], look: &mut dyn FnMut(&str) -> Look) -> Vec<Problem> {
    let mut looked: BTreeMap<&str, Look> = BTreeMap::new();
    let mut problems = Problems::default();
    for reference in references {
        let path = match &reference.value {
            SecretReference::Sops { file, .. } | SecretReference::File(file) => file.as_str(),
            SecretReference::Vault(_) | SecretReference::Env(_) => continue,
        };
        let found = looked.entry(path).or_insert_with(|| look(path));
        if let Err(problem) = check(&reference.value, found) {
            let label = match found {
                Look::Missing(why) => why.clone(),
                Look::File { .. } => format!("refers to `{path}`"),
            };
            problems.report(problem.at(reference.origin, label));
        }
    }
    problems.sorted()
}

fn check(reference: &SecretReference, found: &Look) -> Result<(), Problem> {
    let (bytes, shared, tracked) = match found {
        Look::Missing(why) => {
            return Err(Problem::new(
                Code::SecretFileMissing,
                format!("a secret is kept in a file that cannot be read: {why}"),
            )
            .hint("paths are relative to castle.yaml; write the file, or refer to another"));
        }
        Look::File { bytes, shared, tracked } => (bytes, *shared, *tracked),
    };
    match reference {
        SecretReference::File(path) => {
            if tracked {
                return Err(Problem::new(
                    Code::SecretFileTracked,
                    "a file with a secret in clear is not ignored by git",
                )
                .hint(format!("add `{path}` to .gitignore, or keep the secret in a SOPS file")));
            }
            if shared {
                return Err(Problem::new(Code::SecretFileMode, "a file with a secret in clear can be read by others")
                    .hint(format!("chmod 600 {path}")));
            }
            Ok(())
        }
        SecretReference::Sops { file, path } => sops(file, path, bytes),
        SecretReference::Vault(_) | SecretReference::Env(_) => Ok(()),
    }
}

fn sops(file: &str, path: &str, bytes: &[u8]) -> Result<(), Problem> {
    let clear = |what: &str| {
        Problem::new(Code::SopsNotEncrypted, format!("{what} is not encrypted"))
            .hint(format!("encrypt it in place: castle secrets encrypt --in-place {file}"))
    };
    let unreadable = || {
        Problem::new(Code::SecretFileMissing, "a secret is kept in a file that is not a SOPS file").hint(
            "castle reads SOPS files in YAML, JSON, dotenv and binary form, told apart by their ending as sops does",
        )
    };
    let text = std::str::from_utf8(bytes).map_err(|_| unreadable())?;
    let missing = |known: Vec<String>| {
        let hint = match suggest::nearest(path, &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.is_empty() => "the file holds no keys there".to_owned(),
            None => format!("it holds {}", known.join(", ")),
        };
        Problem::new(Code::SopsKeyMissing, format!("the SOPS file has no `{path}`")).hint(hint)
    };
    if file.ends_with(".env") {
        let keys: Vec<(&str, &str)> = text.lines().filter_map(|line| line.split_once('=')).collect();
        if !keys.iter().any(|(key, _)| *key == "sops_mac") {
            return Err(clear("the file"));
        }
        return match keys.iter().find(|(key, _)| *key == path) {
            _ if path.is_empty() => Ok(()),
            Some((_, value)) if is_ciphertext(value) => Ok(()),
            Some(_) => Err(clear(&format!("`{path}`"))),
            None => {
                let own =
                    keys.iter().map(|(key, _)| *key).filter(|key| !key.starts_with("sops_") && !key.starts_with('#'));
                Err(missing(own.map(str::to_owned).collect()))
            }
        };
    }
    if file.ends_with(".ini") {
        return Err(unreadable());
    }
    let stream = yaml::parse(text, Limits::REFERENCED).map_err(|_| unreadable())?;
    let documents: Vec<View<'_>> = stream.documents().collect();
    let metadata = documents.first().and_then(|first| first.get("sops"));
    if metadata.is_none_or(|sops| sops.map().is_none()) {
        return Err(clear("the file"));
    }
    // Where in a list a value is, is for whoever opens the file to say.
    if path.is_empty() || path.contains('[') {
        return Ok(());
    }
    let found = documents.iter().find_map(|document| path.split('.').try_fold(*document, View::get));
    match found {
        Some(value) if value.leaves().filter_map(View::scalar).any(is_ciphertext) => Ok(()),
        Some(_) => Err(clear(&format!("`{path}`"))),
        None => Err(missing(documents.iter().flat_map(|document| siblings(*document, path)).collect())),
    }
}

fn is_ciphertext(text: &str) -> bool {
    text.starts_with("ENC[AES256_GCM,")
}

/// The paths beside the wanted one, as far down as the path leads.
fn siblings(document: View<'_>, path: &str) -> Vec<String> {
    let (mut place, mut prefix) = (document, String::new());
    for key in path.split('.') {
        match place.get(key).filter(|value| value.map().is_some()) {
            Some(value) => {
                place = value;
                prefix += &format!("{key}.");
            }
            None => break,
        }
    }
    let keys = place.map().into_iter().flatten().map(|(key, ..)| key).filter(|key| *key != "sops");
    keys.map(|key| format!("{prefix}{key}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENC: &str = "ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]";

    fn code(file: &str, path: &str, text: &str) -> Option<Code> {
        sops(file, path, text.as_bytes()).err().map(|problem| problem.code)
    }

    #[test]
    fn keys_are_found_without_decrypting() {
        let yaml = format!(
            "a:\n  b: {ENC}\n  c: clear\n  d:\n    id: x\n    secret: {ENC}\nsops:\n  mac: x\n---\ne: {ENC}\nsops:\n  mac: x\n"
        );
        assert_eq!(code("s.yaml", "a.b", &yaml), None);
        assert_eq!(code("s.yaml", "a.d", &yaml), None, "a mapping of which some is encrypted");
        assert_eq!(code("s.yaml", "e", &yaml), None, "in the second document");
        assert_eq!(code("s.yaml", "a.c", &yaml), Some(Code::SopsNotEncrypted));
        assert_eq!(code("s.yaml", "a.x", &yaml), Some(Code::SopsKeyMissing));
        assert_eq!(code("s.yaml", "a.b", "a: {b: x}\n"), Some(Code::SopsNotEncrypted));
        assert_eq!(code("s.json", "a", &format!("{{\"a\": \"{ENC}\", \"sops\": {{\"mac\": \"x\"}}}}")), None);
        assert_eq!(code("s.env", "A", &format!("A={ENC}\nsops_mac=x\n")), None);
        assert_eq!(code("s.env", "B", &format!("A={ENC}\nsops_mac=x\n")), Some(Code::SopsKeyMissing));
        assert_eq!(code("s.env", "A", "A=x\n"), Some(Code::SopsNotEncrypted));
        assert_eq!(code("s.ini", "A", "A=x\n"), Some(Code::SecretFileMissing));
        assert_eq!(code("s.bin", "data", &format!("{{\"data\": \"{ENC}\", \"sops\": {{}}}}")), None);
    }

    #[test]
    fn a_missing_key_names_its_neighbours() {
        let yaml = format!("proxmox:\n  token: {ENC}\nsops:\n  mac: x\n");
        assert_eq!(sops("s.yaml", "proxmox.tokn", yaml.as_bytes()).unwrap_err().hint, "did you mean `proxmox.token`?");
        assert_eq!(sops("s.yaml", "infisical", yaml.as_bytes()).unwrap_err().hint, "it holds proxmox");
    }
}
