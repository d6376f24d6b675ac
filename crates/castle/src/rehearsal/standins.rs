//! Stand-ins for secrets: what each reference of a file leads to in a rehearsal, put where the reference says. No real one is read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use castle_rehearsal::Chance;
use castle_secrets::sops::{Format, KeyPath, Opened, Policy, Value};
use castle_spec::Castle;
use castle_spec::model::{Platform, Vault};
use castle_spec::values::SecretReference;

/// Who castle is at the hypervisor.
pub(crate) const USER: &str = "castle@pve";
/// The name of its token there.
pub(crate) const TOKEN_NAME: &str = "rehearsal";
/// The secret of that token.
pub(crate) const TOKEN_SECRET: &str = "0e4ea25a-1000-4000-8000-7ab1e0000001";
/// Who castle is at its vault.
pub(crate) const CLIENT_ID: &str = "0e4ea25a-2000-4000-8000-7ab1e0000002";
/// What it logs in with there.
pub(crate) const CLIENT_SECRET: &str = "0e4ea25acafe0e4ea25acafe0e4ea25acafe0e4ea25acafe0e4ea25acafe0e4e";
/// What opens the repository.
pub(crate) const GIT_TOKEN: &str = "rehearsed-token-of-the-repository";
/// What opens a mirror of images.
const REGISTRY: &str = "rehearsed-password-of-the-registry";

/// What a reference leads to.
enum StandIn {
    /// A text, and the parts of it that are secret.
    Text(String, Vec<String>),
    /// A mapping, of which the second is secret.
    Members([(&'static str, &'static str); 2]),
}

/// What is before the secret part of an identity of age.
const AGE: &str = "AGE-SECRET-KEY-1";

/// The secret part of an identity of age.
fn age_part(identity: &str) -> String {
    identity.strip_prefix(AGE).unwrap_or(identity).to_owned()
}

/// The secret parts of a Talos bundle but for its keys: of a token that which is behind its name.
pub(crate) fn bundle_parts(bundle: &str) -> Vec<String> {
    let names = ["token", "secret", "secretboxencryptionsecret", "aescbcencryptionsecret", "bootstraptoken"];
    let part = |line: &str| {
        let (name, value) = line.split_once(": ")?;
        let value = value.trim().trim_matches('"');
        let is_secret = names.contains(&name.trim().to_lowercase().as_str()) && value.len() >= 16;
        is_secret.then(|| value.split_once('.').map_or(value, |(_, part)| part).to_owned())
    };
    bundle.lines().filter_map(part).collect()
}

/// Where all of them are.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    pub(crate) variables: BTreeMap<String, OsString>,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Entries of the castle's folder in its vault.
    pub(crate) vault: BTreeMap<String, String>,
    /// What must not show anywhere: what it is for, and the part of it that is secret.
    pub(crate) secrets: Vec<(String, String)>,
}

/// What a castle is given instead of its secrets.
pub(crate) struct Given<'g> {
    pub(crate) castle: &'g Castle,
    /// The folder of castle.yaml.
    pub(crate) folder: &'g Path,
    /// An identity of age, and whom it stands for: whoever runs castle.
    pub(crate) identity: &'g str,
    pub(crate) recipient: &'g str,
    /// Another, for what is sealed in the repository.
    pub(crate) age_key: &'g str,
    /// The secrets of an existing cluster.
    pub(crate) bundle: &'g str,
}

impl Given<'_> {
    /// Each reference, what it is for, and what it leads to.
    fn all(&self) -> Vec<(String, SecretReference, StandIn)> {
        let mut all = Vec::new();
        let mut add = |field: &str, reference: &SecretReference, stand_in| {
            all.push((field.to_owned(), reference.clone(), stand_in));
        };
        let castle = self.castle;
        if let Platform::Proxmox(proxmox) = &castle.platform.value {
            let token = format!("{USER}!{TOKEN_NAME}={TOKEN_SECRET}");
            let token = StandIn::Text(token, vec![TOKEN_SECRET.to_owned()]);
            add("platform.proxmox.token", &proxmox.token.value, token);
        }
        if let Some(Vault::Infisical(infisical)) = castle.secrets.as_deref() {
            let members = StandIn::Members([("clientId", CLIENT_ID), ("clientSecret", CLIENT_SECRET)]);
            add("secrets.infisical.identity", &infisical.identity.value, members);
        }
        if let Some(gitops) = &castle.gitops {
            if let Some(credential) = &gitops.credential {
                add(
                    "gitops.credential",
                    &credential.value,
                    StandIn::Text(GIT_TOKEN.to_owned(), vec![GIT_TOKEN.to_owned()]),
                );
            }
            if let Some(key) = &gitops.age_key {
                add("gitops.ageKey", &key.value, StandIn::Text(self.age_key.to_owned(), vec![age_part(self.age_key)]));
            }
        }
        if let Some(bundle) = &castle.talos.bundle {
            add("talos.bundle", &bundle.value, StandIn::Text(self.bundle.to_owned(), bundle_parts(self.bundle)));
        }
        for (registry, mirror) in castle.talos.mirrors.iter() {
            if let Some(credential) = &mirror.credential {
                let field = format!("talos.mirrors.{}.credential", registry.value);
                let login = StandIn::Text(format!("castle:{REGISTRY}"), vec![REGISTRY.to_owned()]);
                add(&field, &credential.value, login);
            }
        }
        all
    }

    /// Puts them where the references say.
    pub(crate) fn plant(&self, now: SystemTime) -> Result<Planted, String> {
        let mut planted = Planted::default();
        planted.secrets.push(("the age identity".to_owned(), age_part(self.identity)));
        planted.variables.insert("SOPS_AGE_KEY".to_owned(), self.identity.into());
        let mut sealed: BTreeMap<PathBuf, Vec<(String, String)>> = BTreeMap::new();
        for (field, reference, stand_in) in self.all() {
            let (text, parts) = match &stand_in {
                StandIn::Text(text, parts) => (text.clone(), parts.clone()),
                StandIn::Members(members) => {
                    let object: BTreeMap<&str, &str> = members.iter().copied().collect();
                    (serde_json::to_string(&object).unwrap_or_default(), vec![members[1].1.to_owned()])
                }
            };
            planted.secrets.extend(parts.into_iter().map(|part| (field.clone(), part)));
            match (reference, stand_in) {
                (SecretReference::Env(name), _) => {
                    planted.variables.insert(name, text.into());
                }
                (SecretReference::File(file), _) => {
                    planted.files.insert(self.folder.join(file), text.into_bytes());
                }
                (SecretReference::Vault(name), _) => {
                    planted.vault.insert(name, text);
                }
                (SecretReference::Sops { file, path }, StandIn::Members(members)) => {
                    let entries = members.map(|(name, value)| (format!("{path}.{name}"), value.to_owned()));
                    sealed.entry(self.folder.join(file)).or_default().extend(entries);
                }
                (SecretReference::Sops { file, path }, StandIn::Text(..)) => {
                    sealed.entry(self.folder.join(file)).or_default().push((path, text));
                }
            }
        }
        for (file, entries) in sealed {
            let bytes = self.sealed(&file, &entries, now)?;
            planted.files.insert(file, bytes);
        }
        Ok(planted)
    }

    /// A SOPS file with these entries; one without a path is the whole file.
    fn sealed(&self, file: &Path, entries: &[(String, String)], now: SystemTime) -> Result<Vec<u8>, String> {
        let (name, chance) = (file.display().to_string(), Chance::new(1));
        let told = |error: &dyn std::fmt::Display| format!("{name}: {error}");
        let format = Format::of(file).map_err(|error| told(&error))?;
        let policy = Policy::for_recipients(vec![self.recipient.to_owned()]);
        let whole = entries.iter().find(|(path, _)| path.is_empty()).map(|(_, text)| text.as_str());
        let clear = whole.unwrap_or(match format {
            Format::Json => "{\"rehearsal\": \"\"}",
            Format::Dotenv => "REHEARSAL=1\n",
            Format::Yaml | Format::Binary => "rehearsal: ''\n",
        });
        let opened = Opened::fresh(&name, format, clear.as_bytes(), &policy, &chance);
        let mut opened = opened.map_err(|error| told(&error))?;
        for (path, text) in entries.iter().filter(|(path, _)| !path.is_empty()) {
            let path: KeyPath = path.parse().map_err(|error| told(&error))?;
            opened.set(&path, Value::text(text)).map_err(|error| told(&error))?;
        }
        opened.seal(now, &chance).map_err(|error| told(&error))
    }
}
