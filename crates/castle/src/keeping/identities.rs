//! The identities that what castle remembers is sealed for and opened with. They add up: whoever gets a key still has the old one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use castle_engine::{Locksmith, Seal};
use castle_seams::DiskErrorKind;
use castle_secrets::sops::{Found, Keyring};
use zeroize::Zeroizing;

use crate::doors::Doors;
use crate::secret::{EMBEDDED_IDENTITY, with_found};

const NO_IDENTITY: &str = "there is no age identity: make one with `age-keygen -o ~/.config/sops/age/keys.txt`, or name it by \
                           SOPS_AGE_KEY_FILE";
/// No file with keys is longer.
const MAX_KEY_BYTES: u64 = 1 << 20;

/// Why there are no identities.
pub(super) enum Lack {
    /// There is none, and castle makes one for who raises a castle for the first time.
    Mintable(String),
    /// There is none, or something is in the way of it.
    InTheWay(String),
}

impl Lack {
    pub(super) fn told(self) -> String {
        let (Self::Mintable(why) | Self::InTheWay(why)) = self;
        why
    }
}

/// Everything at hand that opens, and for whom is sealed.
pub(super) struct Identities {
    words: Vec<Zeroizing<String>>,
    /// Public keys of SSH to seal for: only of who has no identity of age.
    ssh: Vec<String>,
    rest: Arc<AtHand>,
}

impl Identities {
    /// Looks in all places. On the embedded platform castle has an identity of its own in `simulation`, beside the others; whoever mints makes it
    /// if there is no other.
    pub(super) fn look(
        doors: &Doors,
        simulation: Option<&Path>,
        recipients: &[String],
        mints: bool,
    ) -> Result<Self, Lack> {
        let look =
            |ring: &mut Keyring<'_>| (ring.own(recipients), ring.ssh_publics(), ring.hindrances(), ring.places());
        let ((own, ssh, hindrances, places), found) = with_found(doors, None, look);
        let mut words: Vec<Zeroizing<String>> =
            own.iter().map(|words| Zeroizing::new(words.expose().to_owned())).collect();
        let is_alone = words.is_empty();
        let looked_at = || format!("looked at {}", places.join("; "));
        let embedded = simulation.map(|folder| embedded_identity(doors, folder)).transpose();
        match (embedded.map(Option::flatten), simulation) {
            (Ok(Some(embedded)), _) => words.push(embedded),
            // Whoever has another can do without.
            (Err(_), _) if !is_alone => {}
            (Err(why), _) => return Err(Lack::InTheWay(why)),
            (Ok(None), _) if is_alone && !hindrances.is_empty() => {
                return Err(Lack::InTheWay(format!("{} ({})", hindrances.join("; "), looked_at())));
            }
            (Ok(None), Some(folder)) if is_alone && mints => {
                words.push(minted(doors, folder).map_err(Lack::InTheWay)?);
            }
            (Ok(None), Some(folder)) if is_alone => {
                let file = embedded_file(folder);
                return Err(Lack::Mintable(format!(
                    "there is no age identity, and {} is not there ({})\n  next: put it back from a copy",
                    file.display(),
                    looked_at()
                )));
            }
            (Ok(None), None) if is_alone && ssh.is_empty() => {
                return Err(Lack::InTheWay(format!("{NO_IDENTITY} ({})", looked_at())));
            }
            (Ok(None), _) => {}
        }
        let rest = AtHand { doors: doors.clone(), recipients: recipients.to_owned(), found: Mutex::new(Some(found)) };
        Ok(Self { words, ssh, rest: Arc::new(rest) })
    }

    /// Seals for these recipients, or for who holds these identities.
    pub(super) fn seal(&self, recipients: Option<&[String]>) -> Result<Seal, String> {
        let seal = match recipients {
            Some(recipients) => Seal::new(recipients, &self.words),
            None if self.words.is_empty() => Seal::new(&self.ssh, &[]),
            None => Seal::own(&self.words),
        };
        let seal = seal.map_err(|error| format!("the state cannot be opened: {error}"))?;
        Ok(seal.with_locksmith(self.rest.clone()))
    }
}

/// What is at hand besides: keys of SSH, what a passphrase unlocks, what commands print. Asked once nothing else opens a record.
struct AtHand {
    doors: Doors,
    recipients: Vec<String>,
    found: Mutex<Option<Found>>,
}

impl AtHand {
    fn with<T>(&self, then: impl FnOnce(&mut Keyring<'_>) -> T) -> T {
        let mut kept = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let (result, found) = with_found(&self.doors, kept.take(), then);
        *kept = Some(found);
        result
    }
}

impl Locksmith for AtHand {
    fn open(&self, age_file: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        self.with(|ring| ring.open(age_file, &self.recipients))
    }

    fn places(&self) -> Vec<String> {
        self.with(|ring| ring.places())
    }
}

fn embedded_file(folder: &Path) -> PathBuf {
    folder.join(EMBEDDED_IDENTITY)
}

/// The identity for castles that stand in a simulation, if it was made.
fn embedded_identity(doors: &Doors, folder: &Path) -> Result<Option<Zeroizing<String>>, String> {
    let file = embedded_file(folder);
    let bytes = match doors.disk.read(&file, MAX_KEY_BYTES) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind == DiskErrorKind::IsDirectory => {
            return Err(format!("{error}\n  next: move it away, and put the key back from a copy"));
        }
        Err(error) => return Err(error.to_string()),
    };
    let words = std::str::from_utf8(&bytes).ok().map(|text| Zeroizing::new(text.trim().to_owned()));
    match words.filter(|words| Seal::own(std::slice::from_ref(words)).is_ok()) {
        Some(words) => Ok(Some(words)),
        None => Err(format!(
            "{} is damaged\n  next: put it back from a copy, or remove it if nothing is needed of what castles in the embedded datacenter \
             remember",
            file.display()
        )),
    }
}

/// Makes it, for who has no other.
fn minted(doors: &Doors, folder: &Path) -> Result<Zeroizing<String>, String> {
    doors.disk.create_dir_all(folder, 0o700).map_err(|error| error.to_string())?;
    let fresh = Seal::mint_identity(doors.entropy.as_ref()).map_err(|error| error.to_string())?;
    match doors.disk.create_new(&embedded_file(folder), format!("{}\n", *fresh).as_bytes(), 0o600) {
        Ok(()) => Ok(fresh),
        // Another castle was faster: there is one for all of them.
        Err(error) if error.kind == DiskErrorKind::AlreadyExists => {
            embedded_identity(doors, folder)?.ok_or_else(|| error.to_string())
        }
        Err(error) => Err(error.to_string()),
    }
}
