//! What castle remembers of a castle: where it is kept, who may read it, and who is just writing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_engine::{
    Applicant, CastleId, DirectoryStore, Lease, LeaseError, Memory, Seal, State, Store, Taking, lineage,
};
use castle_layers::secrets::Strongroom;
use castle_seams::{
    Clock, Disk, DiskErrorKind, Entropy, LockGuard, SystemClock, SystemDisk, SystemEntropy, SystemKeyMint,
};
use castle_spec::model::{Platform, StateStore};
use castle_spec::{Castle, Node, Severity};
use tokio::sync::Mutex;
use zeroize::Zeroizing;

use crate::project;
use crate::secret::secret;

const NO_IDENTITY: &str = "there is no age identity: make one with `age-keygen -o ~/.config/sops/age/keys.txt`, or name it by \
                           SOPS_AGE_KEY_FILE";
/// No file with keys is longer.
const MAX_KEY_BYTES: u64 = 1 << 20;
/// What this machine remembers of a castle's state is a few numbers.
const MAX_MEMORY_BYTES: u64 = 1 << 20;

/// The doors to the outside that keeping needs.
pub(crate) struct Doors {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

impl Doors {
    pub(crate) fn system() -> Self {
        Self { disk: Arc::new(SystemDisk), clock: Arc::new(SystemClock::new()), entropy: Arc::new(SystemEntropy) }
    }
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
}

impl Kept {
    /// Opens the memory of the castle that `path` names. Nothing is read of it yet.
    pub(crate) fn open(doors: Doors, path: &Path) -> Result<Self, String> {
        let file = project::castle_file(doors.disk.as_ref(), path);
        let bytes = doors.disk.read(&file, castle_spec::MAX_BYTES).map_err(|error| error.to_string())?;
        let reading = castle_spec::read(&bytes);
        let errors = reading.problems.iter().filter(|problem| problem.code.severity() == Severity::Error).count();
        let nodes = reading.nodes;
        let castle = reading.castle.ok_or_else(|| {
            format!("{} is not valid ({errors} errors): castle check {}", file.display(), path.display())
        })?;
        let folder = project::state_folder().ok_or("there is no home for the state: set CASTLE_STATE_DIR")?;
        let (store, place): (Arc<dyn Store>, String) = match &castle.state.store.value {
            StateStore::Directory(()) => {
                (Arc::new(DirectoryStore::new(doors.disk.clone(), &folder)), folder.display().to_string())
            }
            StateStore::S3(bucket) => crate::bucket::open(bucket, &file, &doors)?,
        };
        Ok(Self { doors, file, castle, nodes, store, folder, place })
    }

    /// The castle and its platform: each pair has a memory of its own.
    pub(crate) fn key(&self) -> String {
        format!("{}/{}", self.castle.castle.as_str(), self.castle.platform.word())
    }

    /// The castle, for people.
    pub(crate) fn name(&self) -> String {
        format!("{} on {}", self.castle.castle.as_str(), self.castle.platform.word())
    }

    pub(crate) fn clock(&self) -> &dyn Clock {
        self.doors.clock.as_ref()
    }

    /// Which castle it is, if it was ever raised.
    pub(crate) async fn castle_id(&self) -> Result<Option<CastleId>, String> {
        lineage::find(self.store.as_ref(), &self.key()).await.map_err(|error| error.to_string())
    }

    /// The state, opened with the keys of whoever runs castle.
    pub(crate) fn state(&self, castle: CastleId) -> Result<State, String> {
        let seal = self.seal()?;
        let doors = (self.doors.clock.clone(), self.doors.entropy.clone());
        Ok(State::new(self.store.clone(), seal, castle, doors, &self.owner(), self.memory()?))
    }

    /// What the state is sealed with, and opened.
    pub(crate) fn seal(&self) -> Result<Seal, String> {
        let mut identities = identities(self.doors.disk.as_ref())?;
        if identities.is_empty() {
            identities = match &self.castle.platform.value {
                Platform::Embedded(_) => vec![self.embedded_identity()?],
                Platform::Proxmox(_) => return Err(NO_IDENTITY.to_owned()),
            };
        }
        let recipients = self.castle.state.recipients.as_ref();
        let seal = match recipients {
            Some(recipients) => {
                let recipients: Vec<String> = recipients.iter().map(|recipient| recipient.to_string()).collect();
                Seal::new(&recipients, &identities)
            }
            None => Seal::own(&identities),
        };
        seal.map_err(|error| format!("the state cannot be opened: {error}"))
    }

    /// The identity for castles that stand in a simulation, for who has no other: made when it is first needed.
    fn embedded_identity(&self) -> Result<Zeroizing<String>, String> {
        let (disk, file) = (&self.doors.disk, self.folder.join("embedded.agekey"));
        disk.create_dir_all(&self.folder, 0o700).map_err(|error| error.to_string())?;
        let fresh = Seal::mint_identity();
        match disk.create_new(&file, format!("{}\n", *fresh).as_bytes(), 0o600) {
            Ok(()) => Ok(fresh),
            Err(error) if error.kind == DiskErrorKind::AlreadyExists => {
                let bytes = Zeroizing::new(disk.read(&file, MAX_KEY_BYTES).map_err(|error| error.to_string())?);
                let text = std::str::from_utf8(&bytes).map_err(|_| format!("{} is damaged", file.display()))?;
                Ok(Zeroizing::new(text.trim().to_owned()))
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// The folder on this machine for what belongs to this castle alone.
    pub(crate) fn own_folder(&self) -> PathBuf {
        self.folder.join(self.key())
    }

    fn memory_file(&self) -> PathBuf {
        self.folder.join(self.key()).join(".seen.json")
    }

    fn memory(&self) -> Result<Memory, String> {
        match self.doors.disk.read(&self.memory_file(), MAX_MEMORY_BYTES) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|_| format!("{} is damaged: remove it if you trust the store", self.memory_file().display())),
            Err(error) if error.kind == DiskErrorKind::NotFound => Ok(Memory::default()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Remembers what has been seen, so that the store cannot go back on it.
    pub(crate) fn remember(&self, state: &State) -> Result<(), String> {
        let file = self.memory_file();
        let folder = file.parent().unwrap_or(&self.folder);
        let text = serde_json::to_vec(state.memory()).unwrap_or_default();
        self.doors.disk.create_dir_all(folder, 0o700).map_err(|error| error.to_string())?;
        self.doors.disk.replace(&file, &text, 0o600).map_err(|error| error.to_string())
    }

    /// Makes this process the only writer: first on this machine, then everywhere.
    ///
    /// `seen_epoch` is the highest epoch that marks in the world bear, as far as it is known.
    pub(crate) async fn lease(&self, taking: Taking, seen_epoch: u64) -> Result<Held, Denied> {
        let folder = self.own_folder();
        let failed = |error: &dyn std::fmt::Display| Denied::Failed(error.to_string());
        self.doors.disk.create_dir_all(&folder, 0o700).map_err(|error| failed(&error))?;
        let turn = self.doors.disk.try_lock(&folder.join(".writer"), 0o600).map_err(|error| match error.kind {
            DiskErrorKind::Locked => Denied::Busy(format!("another castle on this machine works on {}", self.name())),
            _ => failed(&error),
        })?;
        let machine = self.machine().map_err(|why| failed(&why))?;
        let applicant = Applicant { owner: self.owner(), machine, seen_epoch };
        let doors = (self.doors.clock.clone(), self.doors.entropy.as_ref());
        let lease = Lease::take(self.store.clone(), &self.key(), doors, &applicant, taking).await;
        let lease = lease.map_err(|error| match error {
            LeaseError::Held(..) => Denied::Busy(error.to_string()),
            error => failed(&error),
        })?;
        Ok(Held { lease, _turn: turn })
    }

    /// Who runs castle, for people.
    fn owner(&self) -> String {
        let host = self.doors.disk.read(Path::new("/proc/sys/kernel/hostname"), 4096).unwrap_or_default();
        let host = Some(String::from_utf8_lossy(&host).trim().to_owned()).filter(|host| !host.is_empty());
        let host = host.or_else(|| variable("HOSTNAME")).unwrap_or_else(|| "unknown".to_owned());
        let user = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "someone".to_owned());
        format!("{user}@{host}")
    }

    /// Where the secrets of one life of the castle are kept.
    pub(crate) fn strongroom(&self, generation: u64, state: Option<State>) -> Arc<Strongroom> {
        let disk = self.doors.disk.as_ref();
        let given = self.castle.talos.bundle.as_ref();
        Arc::new(Strongroom {
            state: state.map(|state| Arc::new(Mutex::new(state))),
            generation,
            given: given.map(|reference| secret(reference, &self.file, disk)),
            mint: Arc::new(SystemKeyMint),
            entropy: self.doors.entropy.clone(),
            clock: self.doors.clock.clone(),
        })
    }

    /// What tells this machine from others: drawn once, and kept beside the lock whose being free tells that a holder of this name is
    /// dead. (The system's own machine id will not do: copies of one image share it.)
    fn machine(&self) -> Result<String, String> {
        let file = self.folder.join(".machine");
        let mut drawn = [0; 16];
        self.doors.entropy.fill(&mut drawn).map_err(|error| error.to_string())?;
        let fresh: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        match self.doors.disk.create_new(&file, fresh.as_bytes(), 0o600) {
            Ok(()) => Ok(fresh),
            Err(error) if error.kind == DiskErrorKind::AlreadyExists => {
                let known = self.doors.disk.read(&file, 4096).map_err(|error| error.to_string())?;
                let known = String::from_utf8_lossy(&known).trim().to_owned();
                // Cut off while it was written: a name that nobody has yet is as good as any.
                if known.len() == fresh.len() {
                    return Ok(known);
                }
                self.doors
                    .disk
                    .replace(&file, fresh.as_bytes(), 0o600)
                    .map(|()| fresh)
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Why there is no right to write.
#[derive(Debug)]
pub(crate) enum Denied {
    /// Someone else has it.
    Busy(String),
    /// It could not be had.
    Failed(String),
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Busy(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

/// The right to write: the lease, and this machine's own lock, which ends with the process.
pub(crate) struct Held {
    pub(crate) lease: Lease,
    _turn: Box<dyn LockGuard>,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The age identities of whoever runs castle, from where sops looks for them; none if there are none.
fn identities(disk: &dyn Disk) -> Result<Vec<Zeroizing<String>>, String> {
    let mut found = Vec::new();
    let mut take = |text: &str| {
        let words = text.lines().filter(|line| !line.trim_start().starts_with('#')).flat_map(str::split_whitespace);
        found.extend(words.map(|word| Zeroizing::new(word.to_owned())));
    };
    if let Some(keys) = variable("SOPS_AGE_KEY") {
        take(&Zeroizing::new(keys));
    }
    let usual = variable("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| Path::new(&home).join(".config")));
    let usual = usual.map(|folder| folder.join("sops/age/keys.txt"));
    let named = variable("SOPS_AGE_KEY_FILE").map(PathBuf::from);
    for (file, must_exist) in named.map(|file| (file, true)).into_iter().chain(usual.map(|file| (file, false))) {
        match disk.read(&file, MAX_KEY_BYTES) {
            Ok(bytes) => {
                let bytes = Zeroizing::new(bytes);
                take(
                    std::str::from_utf8(&bytes)
                        .map_err(|_| format!("{} is not a file of age identities", file.display()))?,
                );
            }
            Err(error) if error.kind == DiskErrorKind::NotFound && !must_exist => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(found)
}
