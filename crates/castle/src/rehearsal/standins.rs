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
    Text(String),
    /// A mapping.
    Members([(&'static str, &'static str); 2]),
}

/// Where all of them are.
#[derive(Debug, Default)]
pub(crate) struct Planted {
    pub(crate) variables: BTreeMap<String, OsString>,
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    /// Entries of the castle's folder in its vault.
    pub(crate) vault: BTreeMap<String, String>,
    /// What must not show anywhere: what it is, and what it reads.
    pub(crate) needles: Vec<(String, String)>,
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
            let token = StandIn::Text(format!("{USER}!{TOKEN_NAME}={TOKEN_SECRET}"));
            add("platform.proxmox.token", &proxmox.token.value, token);
        }
        if let Some(Vault::Infisical(infisical)) = castle.secrets.as_deref() {
            let members = StandIn::Members([("clientId", CLIENT_ID), ("clientSecret", CLIENT_SECRET)]);
            add("secrets.infisical.identity", &infisical.identity.value, members);
        }
        if let Some(gitops) = &castle.gitops {
            if let Some(credential) = &gitops.credential {
                add("gitops.credential", &credential.value, StandIn::Text(GIT_TOKEN.to_owned()));
            }
            if let Some(key) = &gitops.age_key {
                add("gitops.ageKey", &key.value, StandIn::Text(self.age_key.to_owned()));
            }
        }
        if let Some(bundle) = &castle.talos.bundle {
            add("talos.bundle", &bundle.value, StandIn::Text(self.bundle.to_owned()));
        }
        for (registry, mirror) in castle.talos.mirrors.iter() {
            if let Some(credential) = &mirror.credential {
                let field = format!("talos.mirrors.{}.credential", registry.value);
                add(&field, &credential.value, StandIn::Text(format!("castle:{REGISTRY}")));
            }
        }
        all
    }

    /// Puts them where the references say.
    pub(crate) fn plant(&self, now: SystemTime) -> Result<Planted, String> {
        let mut planted = Planted::default();
        planted.needles.push(("the age identity".to_owned(), self.identity.to_owned()));
        planted.variables.insert("SOPS_AGE_KEY".to_owned(), self.identity.into());
        let mut sealed: BTreeMap<PathBuf, Vec<(String, String)>> = BTreeMap::new();
        for (field, reference, stand_in) in self.all() {
            planted.needles.push((
                field,
                match &stand_in {
                    StandIn::Text(text) => text.clone(),
                    StandIn::Members([_, (_, secret)]) => (*secret).to_owned(),
                },
            ));
            let text = match &stand_in {
                StandIn::Text(text) => text.clone(),
                StandIn::Members(members) => {
                    let object: BTreeMap<&str, &str> = members.iter().copied().collect();
                    serde_json::to_string(&object).unwrap_or_default()
                }
            };
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
                (SecretReference::Sops { file, path }, StandIn::Text(text)) => {
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
