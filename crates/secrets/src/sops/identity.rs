//! The identities of whoever reads, from all the places where sops looks for them.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use age::armor::ArmoredReader;
use age::secrecy::SecretString;
use castle_seams::{Disk, DiskErrorKind};
use zeroize::Zeroizing;

use super::metadata::Group;
use crate::Secret;

mod words;

pub use words::command_words;

/// No file with identities is longer.
const MAX_BYTES: u64 = 1 << 20;
const SSH_FILE: &str = "SOPS_AGE_SSH_PRIVATE_KEY_FILE";
const SSH_COMMAND: &str = "SOPS_AGE_SSH_PRIVATE_KEY_CMD";
const KEY: &str = "SOPS_AGE_KEY";
const KEY_FILE: &str = "SOPS_AGE_KEY_FILE";
const KEY_COMMAND: &str = "SOPS_AGE_KEY_CMD";

/// The variables that say where identities are.
pub const VARIABLES: [&str; 8] =
    [SSH_FILE, SSH_COMMAND, KEY, KEY_FILE, KEY_COMMAND, "XDG_CONFIG_HOME", "HOME", "AppData"];

/// A program that prints identities: sops runs it with `SOPS_AGE_RECIPIENT` set.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program and its arguments.
    pub words: Vec<String>,
    /// Whose identity is wanted.
    pub recipient: String,
}

/// What is around: handed in, for nothing here reads the environment, runs programs or asks people.
pub struct Surroundings<'s> {
    /// Those of [`VARIABLES`] that are set.
    pub variables: BTreeMap<String, Secret>,
    /// Where files are.
    pub disk: &'s dyn Disk,
    /// Runs a program and gives what it prints, or says why not.
    pub run: &'s dyn Fn(&Command) -> Result<Secret, String>,
    /// Asks for the passphrase of what is named; none if nobody can be asked.
    pub passphrase: &'s dyn Fn(&str) -> Option<Secret>,
}

impl Surroundings<'_> {
    fn variable(&self, name: &str) -> Option<&Secret> {
        self.variables.get(name).filter(|value| !value.is_empty())
    }

    fn folder(&self, name: &str) -> Option<PathBuf> {
        self.variable(name).map(|folder| PathBuf::from(folder.expose()))
    }

    /// Where the files of the user's programs are.
    fn config_folder(&self) -> Option<PathBuf> {
        let given = self.folder("XDG_CONFIG_HOME");
        if cfg!(target_os = "macos") {
            given.or_else(|| Some(self.folder("HOME")?.join("Library/Application Support")))
        } else if cfg!(windows) {
            self.folder("AppData")
        } else {
            given.or_else(|| Some(self.folder("HOME")?.join(".config")))
        }
    }
}

/// The identities that were found.
pub struct Keyring<'s> {
    around: &'s Surroundings<'s>,
    ready: Vec<Identity>,
    locked: Vec<Locked>,
    commands: Vec<(&'static str, Vec<String>)>,
    /// What was in the way of other identities, never with one of them in it.
    pub(super) remarks: Vec<String>,
}

struct Identity {
    source: String,
    public: Option<String>,
    key: Box<dyn age::Identity + Send + Sync>,
}

/// What takes a passphrase, which is asked for only once nothing else helps.
enum Locked {
    File { source: String, bytes: Zeroizing<Vec<u8>> },
    Ssh { source: String, public: Option<String>, key: Box<age::ssh::Identity> },
}

impl<'s> Keyring<'s> {
    /// Looks in all the places. What cannot be used is remembered for the error, should it come to one.
    #[must_use]
    pub fn gather(around: &'s Surroundings<'s>) -> Self {
        let mut ring =
            Self { around, ready: Vec::new(), locked: Vec::new(), commands: Vec::new(), remarks: Vec::new() };
        let home = around.folder("HOME").map(|home| home.join(".ssh"));
        if let Some(file) = around.folder(SSH_FILE) {
            ring.ssh_file(&file, &format!("{SSH_FILE} {}", file.display()), true);
        }
        for name in ["id_ed25519", "id_rsa"] {
            if let Some(file) = home.as_ref().map(|folder| folder.join(name)) {
                ring.ssh_file(&file, &file.display().to_string(), false);
            }
        }
        if let Some(keys) = around.variable(KEY) {
            ring.age_text(keys.expose(), KEY);
        }
        if let Some(file) = around.folder(KEY_FILE) {
            ring.age_file(&file, &format!("{KEY_FILE} {}", file.display()), true);
        }
        if let Some(file) = around.config_folder().map(|folder| folder.join("sops/age/keys.txt")) {
            ring.age_file(&file, &file.display().to_string(), false);
        }
        for name in [SSH_COMMAND, KEY_COMMAND] {
            if let Some(command) = around.variable(name) {
                match command_words(command.expose()) {
                    Some(words) => ring.commands.push((name, words)),
                    None => ring.remarks.push(format!("{name} is not a command line")),
                }
            }
        }
        ring
    }

    /// Whether there is nothing that could open anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.locked.is_empty() && self.commands.is_empty()
    }

    /// Which identities there are: their source, and their public key where it is known.
    #[must_use]
    pub fn tried(&self) -> Vec<String> {
        let named = |source: &str, public: Option<&String>| match public {
            Some(public) => format!("{source}: {public}"),
            None => source.to_owned(),
        };
        let ready = self.ready.iter().map(|identity| named(&identity.source, identity.public.as_ref()));
        let locked = self.locked.iter().map(|locked| match locked {
            Locked::File { source, .. } => format!("{source} (locked by a passphrase)"),
            Locked::Ssh { source, public, .. } => {
                format!("{} (locked by a passphrase)", named(source, public.as_ref()))
            }
        });
        ready.chain(locked).collect()
    }

    /// The public keys of the identities, for encrypting to oneself.
    #[must_use]
    pub fn publics(&self) -> Vec<String> {
        self.ready.iter().filter_map(|identity| identity.public.clone()).collect()
    }

    /// What is wrapped for a group, if an identity opens it.
    pub(super) fn unwrap(&mut self, group: &Group) -> Option<Zeroizing<Vec<u8>>> {
        if let Some(found) = self.try_ready(group, 0) {
            return Some(found);
        }
        let wants_ssh = group.age.iter().any(|wrapped| wrapped.recipient.starts_with("ssh-"));
        let known = self.ready.len();
        let (asked, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.locked)
            .into_iter()
            .partition(|locked| wants_ssh || matches!(locked, Locked::File { .. }));
        self.locked = left;
        for locked in asked {
            self.unlock(locked);
        }
        if let Some(found) = self.try_ready(group, known) {
            return Some(found);
        }
        for wrapped in &group.age {
            for (name, words) in self.commands.clone() {
                let known = self.ready.len();
                match (self.around.run)(&Command { words, recipient: wrapped.recipient.clone() }) {
                    Ok(printed) if name == SSH_COMMAND => self.ssh(printed.expose().as_bytes(), name),
                    Ok(printed) => self.age(Zeroizing::new(printed.expose().as_bytes().to_vec()), name),
                    Err(why) => self.remark(format!("{name}: {why}")),
                }
                if let Some(found) = self.try_ready(group, known) {
                    return Some(found);
                }
            }
        }
        None
    }

    fn try_ready(&self, group: &Group, from: usize) -> Option<Zeroizing<Vec<u8>>> {
        let identities = self.ready.get(from..).unwrap_or_default();
        group.age.iter().find_map(|wrapped| {
            identities.iter().find_map(|identity| opened(wrapped.armored.as_bytes(), identity.key.as_ref()))
        })
    }

    fn remark(&mut self, remark: String) {
        if !self.remarks.contains(&remark) {
            self.remarks.push(remark);
        }
    }

    fn read(&mut self, file: &Path, source: &str, must_exist: bool) -> Option<Zeroizing<Vec<u8>>> {
        match self.around.disk.read(file, MAX_BYTES) {
            Ok(bytes) => Some(Zeroizing::new(bytes)),
            Err(error) if error.kind == DiskErrorKind::NotFound && !must_exist => None,
            Err(error) => {
                self.remark(format!("{source}: {error}"));
                None
            }
        }
    }

    fn age_file(&mut self, file: &Path, source: &str, must_exist: bool) {
        if let Some(bytes) = self.read(file, source, must_exist) {
            self.age(bytes, source);
        }
    }

    fn age(&mut self, bytes: Zeroizing<Vec<u8>>, source: &str) {
        let is_sealed = [&b"age-encryption.org/"[..], b"-----BEGIN AGE ENCRYPTED FILE-----"]
            .iter()
            .any(|start| bytes.trim_ascii_start().starts_with(start));
        if is_sealed {
            self.locked.push(Locked::File { source: source.to_owned(), bytes });
            return;
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => self.age_text(text, source),
            Err(_) => self.remark(format!("{source} is not a file of age identities")),
        }
    }

    fn age_text(&mut self, text: &str, source: &str) {
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#')) {
            for word in line.split_whitespace() {
                match age::x25519::Identity::from_str(word) {
                    Ok(key) => {
                        let public = Some(key.to_public().to_string());
                        self.ready.push(Identity { source: source.to_owned(), public, key: Box::new(key) });
                    }
                    Err(_) => {
                        let what = if word.starts_with("AGE-SECRET-KEY-PQ-1") {
                            "a post-quantum identity, which castle cannot use yet"
                        } else if word.starts_with("AGE-PLUGIN-") {
                            "an identity of a plugin, which castle does not run"
                        } else {
                            "no age identity"
                        };
                        self.remark(format!("{source}: line {} holds {what}", number + 1));
                    }
                }
            }
        }
    }

    fn ssh_file(&mut self, file: &Path, source: &str, must_exist: bool) {
        if let Some(bytes) = self.read(file, source, must_exist) {
            self.ssh(&bytes, source);
        }
    }

    fn ssh(&mut self, bytes: &[u8], source: &str) {
        let Ok(key) = age::ssh::Identity::from_buffer(bytes, None) else {
            return self.remark(format!("{source} is not a private key of SSH"));
        };
        let public = age::ssh::Recipient::try_from(key.clone()).ok().map(|public| public.to_string());
        let source = source.to_owned();
        match key {
            age::ssh::Identity::Unencrypted(_) => self.ready.push(Identity { source, public, key: Box::new(key) }),
            age::ssh::Identity::Encrypted(_) => self.locked.push(Locked::Ssh { source, public, key: Box::new(key) }),
            age::ssh::Identity::Unsupported(_) => {
                self.remark(format!("{source} is a key of a kind that age does not support: use ed25519 or rsa"));
            }
        }
    }

    fn unlock(&mut self, locked: Locked) {
        let (Locked::File { source, .. } | Locked::Ssh { source, .. }) = &locked;
        let source = source.clone();
        let Some(passphrase) = (self.around.passphrase)(&source) else {
            self.remark(format!("{source} is locked, and there is nobody to ask for its passphrase"));
            return self.locked.push(locked);
        };
        let passphrase = SecretString::from(passphrase.expose().to_owned());
        match locked {
            Locked::File { bytes, .. } => match opened(&bytes, &age::scrypt::Identity::new(passphrase)) {
                Some(inside) => self.age(inside, &source),
                None => self.remark(format!("{source} did not open: wrong passphrase?")),
            },
            Locked::Ssh { public, key, .. } => {
                let age::ssh::Identity::Encrypted(encrypted) = *key else { return };
                match encrypted.decrypt(passphrase) {
                    Ok(key) => {
                        let key = Box::new(age::ssh::Identity::from(key));
                        self.ready.push(Identity { source, public, key });
                    }
                    Err(_) => self.remark(format!("{source} did not open: wrong passphrase?")),
                }
            }
        }
    }
}

/// What is in an age file, armored or not, if `identity` opens it.
fn opened(bytes: &[u8], identity: &dyn age::Identity) -> Option<Zeroizing<Vec<u8>>> {
    let decryptor = age::Decryptor::new(ArmoredReader::new(bytes)).ok()?;
    let reader = decryptor.decrypt(std::iter::once(identity)).ok()?;
    let mut inside = Zeroizing::new(Vec::with_capacity(4096));
    reader.take(MAX_BYTES).read_to_end(&mut inside).ok()?;
    Some(inside)
}

#[cfg(test)]
mod tests;
