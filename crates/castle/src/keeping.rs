//! What castle remembers of a castle: where it is kept, who may read it, and who is just writing.

mod identities;
mod leases;
mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use castle_engine::lineage::{self, LineageError};
use castle_engine::note::Unreadable;
use castle_engine::{CastleId, Class, DirectoryStore, Fault, Memory, Seal, SealError, State, StateError, Store};
use castle_layers::cluster::{self, Referred};
use castle_layers::gitops::credential;
use castle_layers::secrets::{Saved, Search, Strongroom};
use castle_layers::vault::{BUNDLE, opened};
use castle_seams::{Clock, DiskError, DiskErrorKind};
use castle_secrets::Secret;
use castle_secrets::validate::{Check, Kind, Origin, is_absent};
use castle_spec::model::{Platform, StateStore};
use castle_spec::values::SecretReference;
use castle_spec::{Castle, Node};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::doors::Doors;
use crate::masking;
use crate::output::Printer;
use crate::patches::{self, Refusal};
use crate::project;
use crate::rehearsal;
use crate::secret::{members_there, secret};
use crate::stand::with_next;
use crate::vault::Chamber;

use identities::{Identities, Lack};
pub(crate) use leases::Denied;

/// How a castle can have moved on: [`Kept::moved_on`].
pub(crate) const ANOTHER_LIFE: &str = "has begun another life";
/// What this machine remembers of a castle's state is a few numbers.
const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// Why it is not known what this machine has seen of a castle's state, in words.
enum Forgotten {
    /// It was, and is lost.
    Damaged(String),
    /// It is known to a newer castle.
    Unread(String),
}

impl Forgotten {
    fn told(self) -> String {
        let (Self::Damaged(why) | Self::Unread(why)) = self;
        why
    }
}

/// Why what configurations of nodes are made of cannot be had.
pub(crate) enum Unreferred {
    /// Talos would refuse it: the files must change.
    Refused(String),
    /// A patch cannot be read.
    Patch(String),
    /// A credential cannot be read, or is none.
    Credential(String),
}

/// The memory of one castle on one platform.
pub(crate) struct Kept {
    pub(crate) doors: Doors,
    /// The file it was read from.
    pub(crate) file: PathBuf,
    pub(crate) castle: Castle,
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: Arc<dyn Store>,
    /// The folder on this machine: the store itself, or what this machine has seen of it.
    folder: PathBuf,
    /// Where it is kept, for people.
    pub(crate) place: String,
    chamber: OnceLock<Option<Arc<Chamber>>>,
    identities: OnceLock<Identities>,
}

impl Kept {
    /// Opens the memory of the castle that `path` names. Nothing is read of it yet.
    pub(crate) fn open(doors: &Doors, path: &Path) -> Result<Self, String> {
        let project::Read { file, castle, nodes } = project::read(doors.disk.as_ref(), path)?;
        let castle = if doors.is_plain() { rehearsal::fitted(castle) } else { castle };
        let folder =
            project::state_folder(&doors.variables).ok_or("there is no home for the state: set CASTLE_STATE_DIR")?;
        let (store, place): (Arc<dyn Store>, String) = match &castle.state.store.value {
            StateStore::Directory(()) => {
                (Arc::new(DirectoryStore::new(doors.disk.clone(), &folder)), folder.display().to_string())
            }
            StateStore::S3(bucket) => crate::bucket::open(bucket, &file, doors)?,
        };
        let (chamber, identities) = (OnceLock::new(), OnceLock::new());
        Ok(Self { doors: doors.clone(), file, castle, nodes, store, folder, place, chamber, identities })
    }

    /// The castle and its platform: each pair has a memory of its own.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.castle.castle.as_str(), self.castle.platform.word())
    }

    /// The castle, for people.
    pub(crate) fn name(&self) -> String {
        format!("{} on {}", self.castle.castle.as_str(), self.castle.platform.word())
    }

    /// That what was looked at before the lease was held is not so any more, and what to do.
    pub(crate) fn moved_on(&self, how: &str) -> String {
        format!("{} {how} while nobody held its lease\n  next: look at it again: run the same command", self.name())
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.doors.clock.as_ref()
    }

    /// Which castle it is, if it was ever raised.
    pub(crate) async fn castle_id(&self) -> Result<Option<CastleId>, String> {
        lineage::find(self.store.as_ref(), &self.key()).await.map_err(|error| match error {
            LineageError::Damaged(..) => {
                let (place, folder) = (&self.place, self.folder_of_file());
                format!("{error} (in {place})\n  next: castle adopt {folder}: what stands tells which castle it is")
            }
            error => error.to_string(),
        })
    }

    /// The state, opened with the keys of whoever runs castle.
    pub(crate) fn state(&self, castle: CastleId) -> Result<State, String> {
        let seal = self.seal()?;
        let doors = (self.doors.clock.clone(), self.doors.entropy.clone());
        Ok(State::new(self.store.clone(), seal, castle, doors, &self.owner(), self.memory().map_err(Forgotten::told)?))
    }

    /// The same for whoever raises a castle: where nothing is sealed yet, the identity that the embedded datacenter needs is made.
    pub(crate) async fn seal_anew(&self) -> Result<Seal, String> {
        let is_new = self.castle_id().await.is_ok_and(|castle| castle.is_none());
        self.seal_with(is_new).map_err(Lack::told)
    }

    /// Why what is remembered could not be sealed. An identity that is only made for who raises a castle is not missed.
    pub(crate) async fn can_seal(&self) -> Result<(), String> {
        match self.castle_id().await {
            Ok(None) => self.seal_exists(),
            Ok(Some(_)) | Err(_) => self.seal().map(|_| ()),
        }
    }

    /// Why the state of a castle that is raised for the first time could not be sealed.
    pub(crate) fn seal_exists(&self) -> Result<(), String> {
        match self.seal_with(false) {
            Ok(_) | Err(Lack::Mintable(_)) => Ok(()),
            Err(Lack::InTheWay(why)) => Err(why),
        }
    }

    /// What the state is sealed with, and opened.
    pub(crate) fn seal(&self) -> Result<Seal, String> {
        self.seal_with(false).map_err(Lack::told)
    }

    fn seal_with(&self, mints: bool) -> Result<Seal, Lack> {
        let recipients = self.castle.state.recipients.as_ref();
        let recipients = recipients.map(|all| all.iter().map(|one| one.to_string()).collect::<Vec<String>>());
        let identities = match self.identities.get() {
            Some(known) => known,
            None => {
                let found = self.look_for_identities(recipients.as_deref().unwrap_or_default(), mints)?;
                self.identities.get_or_init(|| found)
            }
        };
        identities.seal(recipients.as_deref()).map_err(Lack::InTheWay)
    }

    /// The identities of whoever runs castle. Looked for once, for it may take a passphrase.
    fn look_for_identities(&self, recipients: &[String], mints: bool) -> Result<Identities, Lack> {
        let is_embedded = matches!(self.castle.platform.value, Platform::Embedded(_));
        Identities::look(&self.doors, is_embedded.then_some(self.folder.as_path()), recipients, mints)
    }

    /// The folder on this machine for what belongs to this castle alone.
    pub(crate) fn own_folder(&self) -> PathBuf {
        self.folder.join(self.key())
    }

    fn memory_file(&self) -> PathBuf {
        self.folder.join(self.key()).join(".seen.json")
    }

    fn memory(&self) -> Result<Memory, Forgotten> {
        let file = self.memory_file();
        match self.doors.disk.read(&file, MAX_MEMORY_BYTES) {
            Ok(bytes) => seen::read(&bytes).map_err(|why| match why {
                Unreadable::Damaged(_) => Forgotten::Damaged(format!(
                    "{} is damaged\n  next: castle adopt {}",
                    file.display(),
                    self.folder_of_file()
                )),
                Unreadable::Newer(format) => Forgotten::Unread(format!(
                    "{} was written by a newer castle (format {format}): use that one",
                    file.display()
                )),
            }),
            Err(error) if error.kind == DiskErrorKind::NotFound => Ok(Memory::default()),
            Err(error) => Err(Forgotten::Damaged(with_way_out(&error))),
        }
    }

    /// What is wrong with the state, and what to do about it.
    pub(crate) fn told(&self, error: &StateError) -> String {
        let is_damaged = match error {
            StateError::Seal { error, .. } => matches!(error, SealError::Damaged(_)),
            StateError::Mistaken { .. } | StateError::RolledBack { .. } => true,
            _ => false,
        };
        let folder = self.folder_of_file();
        let next = "bring it back from a copy, or an earlier record (castle state history, castle state restore)";
        match is_damaged {
            true => format!("{error}\n  next: {next}; or castle adopt {folder}: what stands tells the same"),
            false => masking::text(&error.to_string()),
        }
    }

    /// That nothing is remembered of the castle, for whoever needs that.
    pub(crate) fn unknown(&self) -> String {
        let folder = self.folder_of_file();
        format!(
            "{} was never raised, as far as {} knows\n  next: castle up {folder}; or, if it stands: castle adopt {folder}",
            self.name(),
            self.place
        )
    }

    /// The folder of the castle.yaml, as a command names it.
    fn folder_of_file(&self) -> String {
        self.file.parent().unwrap_or(Path::new(".")).display().to_string()
    }

    /// Forgets what this machine remembers of the state, if that cannot be read; returns whether it was so.
    pub(crate) fn mend_memory(&self, printer: &mut Printer) -> Result<bool, String> {
        match self.memory() {
            Ok(_) => Ok(false),
            Err(Forgotten::Damaged(_)) => self.forget_memory(printer).map(|()| true),
            Err(Forgotten::Unread(why)) => Err(why),
        }
    }

    /// Forgets what this machine remembers of the state.
    pub(crate) fn forget_memory(&self, printer: &mut Printer) -> Result<(), String> {
        let file = self.memory_file();
        printer.say(&format!("{} does not go with the state, and is written anew.", file.display()));
        match self.doors.disk.remove_file(&file) {
            Err(error) if error.kind != DiskErrorKind::NotFound => Err(with_way_out(&error)),
            _ => Ok(()),
        }
    }

    /// Remembers what has been seen, so that the store cannot go back on it.
    pub(crate) fn remember(&self, state: &State) -> Result<(), String> {
        let file = self.memory_file();
        let folder = file.parent().unwrap_or(&self.folder);
        let text = seen::write(state.memory());
        self.doors.disk.create_dir_all(folder, 0o700).map_err(|error| with_way_out(&error))?;
        self.doors.disk.replace(&file, &text, 0o600).map_err(|error| with_way_out(&error))
    }

    /// The castle's vault, if its file names one: opened once, asked nothing yet.
    pub(crate) fn chamber(&self) -> Result<Option<Arc<Chamber>>, String> {
        if let Some(chamber) = self.chamber.get() {
            return Ok(chamber.clone());
        }
        let opened = Chamber::open(self)?.map(Arc::new);
        Ok(self.chamber.get_or_init(|| opened).clone())
    }

    /// What a reference of the file refers to, wherever that is.
    pub(crate) async fn secret(&self, reference: &SecretReference) -> Result<Secret, String> {
        match reference {
            SecretReference::Vault(name) => match self.chamber()? {
                Some(chamber) => chamber.secret(name).await,
                None => Err(format!("{reference} refers to a vault, and the castle has none: add `secrets:`")),
            },
            _ => secret(reference, &self.file, &self.doors),
        }
    }

    /// A credential for a repository, in the parts that Flux knows: a text, or a mapping of a SOPS file.
    pub(crate) async fn credential(
        &self,
        reference: &SecretReference,
        address: &str,
    ) -> Result<BTreeMap<String, Secret>, String> {
        let told = |error: credential::CredentialError| error.to_string();
        if let SecretReference::Sops { file, path } = reference {
            let file = self.file.parent().unwrap_or(Path::new("")).join(file);
            let parts = members_there(&file, path, &credential::PARTS, &self.doors)?;
            if !parts.is_empty() {
                return credential::of_parts(address, parts).map_err(told);
            }
        }
        credential::of_text(address, &self.secret(reference).await?).map_err(told)
    }

    /// The whole path of an entry of the vault.
    pub(crate) fn vault_key(&self, name: &str) -> Result<String, String> {
        let Some(chamber) = self.chamber()? else { return Err("the castle has no vault".to_owned()) };
        Ok(if name.contains('/') { format!("{}/{name}", chamber.path.trim_end_matches('/')) } else { name.to_owned() })
    }

    /// Everything that the file refers to, and what each should be.
    pub(crate) async fn checks(&self) -> Result<Vec<Check>, String> {
        self.each_check(|_| true).await.into_iter().try_fold(Vec::new(), |mut all, checks| {
            all.extend(checks?);
            Ok(all)
        })
    }

    /// The same, each for itself: what is referred to like this.
    pub(crate) async fn each_check(
        &self,
        is_meant: impl Fn(&SecretReference) -> bool,
    ) -> Vec<Result<Vec<Check>, String>> {
        let mut wanted: Vec<(String, Option<Kind>, &SecretReference)> = Vec::new();
        if let Platform::Proxmox(proxmox) = &self.castle.platform.value {
            wanted.push(("platform.proxmox.token".to_owned(), Some(Kind::ProxmoxToken), &proxmox.token.value));
        }
        if let Some(key) = self.castle.gitops.as_ref().and_then(|gitops| gitops.age_key.as_ref()) {
            wanted.push(("gitops.ageKey".to_owned(), Some(Kind::AgeIdentity), &key.value));
        }
        for (registry, mirror) in self.castle.talos.mirrors.iter() {
            let field = format!("talos.mirrors.{}.credential", registry.value);
            wanted.extend(mirror.credential.as_ref().map(|credential| (field, None, &credential.value)));
        }
        let mut checks = Vec::new();
        let gitops = self.castle.gitops.as_ref();
        let credential = gitops.and_then(|gitops| Some((gitops, gitops.credential.as_ref()?)));
        if let Some((gitops, reference)) = credential.filter(|(_, reference)| is_meant(reference)) {
            let check = |(name, part): (String, Secret)| {
                let kind = if name == "identity" { Some(Kind::SshKey) } else { kind_of(&part) };
                let field = if name == "identity" { "gitops.credential.identity" } else { "gitops.credential" };
                let origin = Origin::new(field, &reference.to_string());
                kind.filter(|_| is_secret_part(&name)).map(|kind| Check::One(kind, part, origin))
            };
            let parts = self.credential(reference, gitops.repository.as_str()).await;
            let parts = parts.map_err(|why| format!("gitops.credential: {why}"));
            checks.push(parts.map(|parts| parts.into_iter().filter_map(check).collect()));
        }
        for (field, kind, reference) in wanted.into_iter().filter(|(.., reference)| is_meant(reference)) {
            let secret = self.secret(reference).await.map_err(|why| format!("{field}: {why}"));
            let check = |secret: Secret| {
                let origin = Origin::new(&field, &reference.to_string());
                kind.or_else(|| kind_of(&secret)).map(|kind| Check::One(kind, secret, origin)).into_iter().collect()
            };
            checks.push(secret.map(check));
        }
        checks
    }

    /// The patches for configurations of nodes, by the names that castle.yaml calls them.
    pub(crate) fn patches(&self) -> Result<BTreeMap<String, Secret>, Unreferred> {
        let files: BTreeSet<&String> = self.nodes.iter().flat_map(|node| &node.patches).collect();
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let read = |file: &String| {
            let bytes = self.doors.disk.read(&folder.join(file), castle_spec::MAX_BYTES);
            let bytes = Zeroizing::new(bytes.map_err(|error| Unreferred::Patch(error.to_string()))?);
            let text = std::str::from_utf8(&bytes).map_err(|_| {
                Unreferred::Refused(format!("the patch {file} is not text\n  next: castle check tells all"))
            })?;
            Ok((file.clone(), Secret::from(text.to_owned())))
        };
        files.into_iter().map(read).collect()
    }

    /// What configurations of nodes are made of besides the file itself: its patches, and the logins of its mirrors.
    pub(crate) async fn referred(&self) -> Result<Referred, Unreferred> {
        let mut referred = Referred { patches: self.patches()?, ..Referred::default() };
        if let Some(refusal) = patches::refused(&self.castle, &self.nodes, &referred.patches).first() {
            let Refusal { file, why, hint } = refusal;
            return Err(Unreferred::Refused(format!(
                "Talos would refuse the patch {file}: {why}\n  next: {hint}; castle check tells all"
            )));
        }
        for (registry, mirror) in self.castle.talos.mirrors.iter() {
            let Some(reference) = &mirror.credential else { continue };
            let credential = self.secret(reference).await;
            let unread = |why| Unreferred::Credential(format!("talos.mirrors.{}.credential: {why}", registry.value));
            referred.credentials.insert(reference.value.clone(), credential.map_err(unread)?);
        }
        // What is no secret at all is told with all other secrets, each held against its kind.
        if referred.credentials.values().any(is_absent) {
            return Ok(referred);
        }
        match cluster::recognised(&self.castle, &referred) {
            Ok(()) => Ok(referred),
            Err(error) => Err(Unreferred::Credential(with_next(&error.fault("talos.mirrors")))),
        }
    }

    /// Where the secrets of one life of the castle are kept.
    pub(crate) fn strongroom(&self, castle: &CastleId, state: Option<State>) -> Arc<Strongroom> {
        Arc::new(Strongroom {
            state: state.map(|state| Arc::new(Mutex::new(state))),
            generation: castle.generation,
            etcd_begins_on: self.castle.first_control_plane(),
            given: self.given(),
            saved: self.saved(castle),
            mint: self.doors.mint.clone(),
            entropy: self.doors.entropy.clone(),
            clock: self.doors.clock.clone(),
        })
    }

    /// The search for the secrets of an existing cluster that the file names.
    fn given(&self) -> Option<Search<Secret>> {
        let reference = self.castle.talos.bundle.as_ref()?.value.clone();
        let wrong = |why| Fault::new(Class::Final, "talos.bundle", why);
        let (file, doors, chamber) = (self.file.clone(), self.doors.clone(), self.chamber());
        Some(Box::new(move || {
            let (reference, file, doors, chamber) = (reference.clone(), file.clone(), doors.clone(), chamber.clone());
            Box::pin(async move {
                let found = match (&reference, chamber) {
                    (SecretReference::Vault(name), Ok(Some(chamber))) => chamber.secret(name).await,
                    (SecretReference::Vault(_), Err(why)) => Err(why),
                    _ => secret(&reference, &file, &doors),
                };
                Some(found.map_err(wrong))
            })
        }))
    }

    /// The search for what this life of the castle has saved in its vault.
    fn saved(&self, castle: &CastleId) -> Option<Search<Saved>> {
        self.castle.secrets.as_ref()?;
        let (chamber, seal, castle) = (self.chamber(), self.seal().map(Arc::new), castle.clone());
        Some(Box::new(move || {
            let (chamber, seal, castle) = (chamber.clone(), seal.clone(), castle.clone());
            Box::pin(async move {
                let wrong = |why: String| Fault::new(Class::Final, "the castle's vault", why);
                let found = async {
                    let Some(chamber) = chamber.map_err(wrong)? else { return Ok(None) };
                    let shelf = chamber.shelf(&castle);
                    let Some(sealed) = shelf.load().await?.0.remove(BUNDLE) else { return Ok(None) };
                    let saved = opened(&*seal.map_err(wrong)?, &sealed).map_err(|why| why.in_the_way_of(&shelf))?;
                    Ok((saved.generation == castle.generation).then_some(saved))
                };
                found.await.transpose()
            })
        }))
    }
}

/// Why a file that castle keeps for itself cannot be used, and what to do: castle moves nothing that it did not make.
pub(crate) fn with_way_out(error: &DiskError) -> String {
    match error.kind {
        DiskErrorKind::IsDirectory => format!("{error}\n  next: move it away, and run the same command again"),
        _ => error.to_string(),
    }
}

/// Whether a part of a credential is what opens the repository, and so has a form to be held against.
fn is_secret_part(name: &str) -> bool {
    ["password", "bearerToken", "identity"].contains(&name)
}

/// What a credential is, by what it looks like; nothing for one of several parts, which whoever uses it takes apart.
fn kind_of(credential: &Secret) -> Option<Kind> {
    let text = credential.expose().trim();
    match text {
        _ if text.starts_with("-----BEGIN") || text.starts_with("ssh-") => Some(Kind::SshKey),
        _ if text.starts_with("github_pat_") || text.starts_with("ghp_") => Some(Kind::GitHubToken),
        _ if text.lines().count() == 1 && !text.starts_with('{') => Some(Kind::Line),
        _ => None,
    }
}
