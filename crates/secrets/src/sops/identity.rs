//! The identities of whoever reads, from all the places where sops looks for them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use age::armor::ArmoredReader;
use age::secrecy::SecretString;
use castle_seams::{Disk, DiskErrorKind};
use zeroize::Zeroizing;

use super::metadata::Group;
use crate::Secret;

mod alone;
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
    /// Further files with identities, of which none need be there. They open what they can; nothing is sealed for them.
    pub more: Vec<PathBuf>,
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
    found: Found,
}

/// What was found and unlocked, to be taken up again later ([`Keyring::resume`]). It has no `Debug`.
#[derive(Default)]
pub struct Found {
    ready: Vec<Identity>,
    locked: Vec<Locked>,
    commands: Vec<(&'static str, Vec<String>)>,
    /// Which of them were run for whom: nobody is asked twice.
    asked: BTreeSet<(&'static str, String)>,
    /// What was in the way of other identities, never with one of them in it.
    remarks: Vec<String>,
    /// Those of them that are about keys of SSH.
    about_ssh: BTreeSet<String>,
    /// Files that were looked for and are not there.
    absent: Vec<String>,
    /// Variables that were looked at and are not set.
    unset: Vec<&'static str>,
}

struct Identity {
    source: String,
    public: Option<String>,
    key: Box<dyn age::Identity + Send + Sync>,
    /// The words of it, if it is one of age.
    words: Option<Secret>,
    /// Whether it is there to open only.
    is_spare: bool,
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
        let mut ring = Self { around, found: Found::default() };
        ring.look_for_ssh();
        ring.look_for_age();
        ring.look_for_commands();
        ring.look_for_more();
        ring
    }

    /// Goes on with what was found before.
    #[must_use]
    pub fn resume(around: &'s Surroundings<'s>, found: Found) -> Self {
        Self { around, found }
    }

    /// What was found so far.
    #[must_use]
    pub fn into_found(self) -> Found {
        self.found
    }

    fn look_for_ssh(&mut self) {
        let around = self.around;
        let home = around.folder("HOME").map(|home| home.join(".ssh"));
        if let Some(file) = self.named(SSH_FILE) {
            self.ssh_file(&file, &format!("{SSH_FILE} {}", file.display()), true);
        }
        for name in ["id_ed25519", "id_rsa"] {
            if let Some(file) = home.as_ref().map(|folder| folder.join(name)) {
                self.ssh_file(&file, &file.display().to_string(), false);
            }
        }
    }

    fn look_for_age(&mut self) {
        let around = self.around;
        match around.variable(KEY) {
            Some(keys) => self.age_text(keys.expose(), KEY),
            None => self.found.unset.push(KEY),
        }
        if let Some(file) = self.named(KEY_FILE) {
            self.age_file(&file, &format!("{KEY_FILE} {}", file.display()), true);
        }
        if let Some(file) = around.config_folder().map(|folder| folder.join("sops/age/keys.txt")) {
            self.age_file(&file, &file.display().to_string(), false);
        }
    }

    fn look_for_commands(&mut self) {
        for name in [SSH_COMMAND, KEY_COMMAND] {
            match self.around.variable(name).map(|command| command_words(command.expose())) {
                Some(Some(words)) => self.found.commands.push((name, words)),
                Some(None) if name == SSH_COMMAND => self.remark_ssh(format!("{name} is not a command line")),
                Some(None) => self.remark(format!("{name} is not a command line")),
                None => self.found.unset.push(name),
            }
        }
    }

    fn look_for_more(&mut self) {
        let known = self.found.ready.len();
        for file in &self.around.more {
            if let Ok(Some(bytes)) = self.read(file, &file.display().to_string(), false) {
                self.age(bytes, &file.display().to_string());
            }
        }
        self.found.ready.iter_mut().skip(known).for_each(|identity| identity.is_spare = true);
    }

    /// The file that a variable names.
    fn named(&mut self, variable: &'static str) -> Option<PathBuf> {
        let file = self.around.folder(variable);
        if file.is_none() {
            self.found.unset.push(variable);
        }
        file
    }

    /// Whether there is nothing that could open anything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.found.ready.is_empty() && self.found.locked.is_empty() && self.found.commands.is_empty()
    }

    /// Which identities there are: their source, and their public key where it is known.
    #[must_use]
    pub fn tried(&self) -> Vec<String> {
        let named = |source: &str, public: Option<&String>| match public {
            Some(public) => format!("{source}: {public}"),
            None => source.to_owned(),
        };
        let ready = self.found.ready.iter().map(|identity| named(&identity.source, identity.public.as_ref()));
        let locked = self.found.locked.iter().map(|locked| match locked {
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
        let own = self.found.ready.iter().filter(|identity| !identity.is_spare);
        own.filter_map(|identity| identity.public.clone()).collect()
    }

    /// What is wrapped for a group, if an identity opens it.
    pub(super) fn unwrap(&mut self, group: &Group) -> Option<Zeroizing<Vec<u8>>> {
        let files: Vec<&[u8]> = group.age.iter().map(|wrapped| wrapped.armored.as_bytes()).collect();
        let recipients: Vec<&str> = group.age.iter().map(|wrapped| wrapped.recipient.as_str()).collect();
        let wants_ssh = recipients.iter().any(|recipient| recipient.starts_with("ssh-"));
        self.open_one(&files, &recipients, wants_ssh)
    }

    /// What is in the first of these age files that an identity opens. What takes a passphrase is unlocked once nothing else helps, and
    /// then commands are asked for the identities of `recipients`.
    fn open_one(&mut self, files: &[&[u8]], recipients: &[&str], wants_ssh: bool) -> Option<Zeroizing<Vec<u8>>> {
        if let Some(inside) = self.try_ready(files, 0) {
            return Some(inside);
        }
        let known = self.found.ready.len();
        let (asked, left): (Vec<_>, Vec<_>) = std::mem::take(&mut self.found.locked)
            .into_iter()
            .partition(|locked| wants_ssh || matches!(locked, Locked::File { .. }));
        self.found.locked = left;
        for locked in asked {
            self.unlock(locked);
        }
        if let Some(inside) = self.try_ready(files, known) {
            return Some(inside);
        }
        for recipient in recipients {
            for command in self.found.commands.clone() {
                let known = self.found.ready.len();
                self.ask_command(command, recipient);
                if let Some(inside) = self.try_ready(files, known) {
                    return Some(inside);
                }
            }
        }
        None
    }

    /// Runs a program that prints identities.
    fn ask_command(&mut self, (name, words): (&'static str, Vec<String>), recipient: &str) {
        if !self.found.asked.insert((name, recipient.to_owned())) {
            return;
        }
        match (self.around.run)(&Command { words, recipient: recipient.to_owned() }) {
            Ok(printed) if name == SSH_COMMAND => self.ssh(printed.expose().as_bytes(), name),
            Ok(printed) => self.age(Zeroizing::new(printed.expose().as_bytes().to_vec()), name),
            Err(why) => self.remark(format!("{name}: {why}")),
        }
    }

    fn try_ready(&self, files: &[&[u8]], from: usize) -> Option<Zeroizing<Vec<u8>>> {
        let identities = self.found.ready.get(from..).unwrap_or_default();
        files.iter().find_map(|file| identities.iter().find_map(|identity| opened(file, identity.key.as_ref())))
    }

    fn remark_ssh(&mut self, remark: String) {
        self.found.about_ssh.insert(remark.clone());
        self.remark(remark);
    }

    fn remark(&mut self, remark: String) {
        if !self.found.remarks.contains(&remark) {
            self.found.remarks.push(remark);
        }
    }

    /// What is in a file, if it is there; or why it cannot be read, which is remarked.
    fn read(&mut self, file: &Path, source: &str, must_exist: bool) -> Result<Option<Zeroizing<Vec<u8>>>, String> {
        match self.around.disk.read(file, MAX_BYTES) {
            Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
            Err(error) if error.kind == DiskErrorKind::NotFound && !must_exist => {
                self.found.absent.push(source.to_owned());
                Ok(None)
            }
            Err(error) => {
                self.remark(format!("{source}: {error}"));
                Err(format!("{source}: {error}"))
            }
        }
    }

    fn age_file(&mut self, file: &Path, source: &str, must_exist: bool) {
        if let Ok(Some(bytes)) = self.read(file, source, must_exist) {
            self.age(bytes, source);
        }
    }

    fn age(&mut self, bytes: Zeroizing<Vec<u8>>, source: &str) {
        let is_sealed = [&b"age-encryption.org/"[..], b"-----BEGIN AGE ENCRYPTED FILE-----"]
            .iter()
            .any(|start| bytes.trim_ascii_start().starts_with(start));
        if is_sealed {
            self.found.locked.push(Locked::File { source: source.to_owned(), bytes });
            return;
        }
        match std::str::from_utf8(&bytes) {
            Ok(text) => self.age_text(text, source),
            Err(_) => self.remark(format!("{source} is not a file of age identities")),
        }
    }

    fn age_text(&mut self, text: &str, source: &str) {
        // What is wrong: on which line first, and how often.
        let mut wrong: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('#')) {
            for word in line.split_whitespace() {
                if let Ok(key) = age::x25519::Identity::from_str(word) {
                    let (public, words) = (Some(key.to_public().to_string()), Some(Secret::from(word.to_owned())));
                    let (source, key) = (source.to_owned(), Box::new(key));
                    self.found.ready.push(Identity { source, public, key, words, is_spare: false });
                } else {
                    wrong.entry(unusable(word)).or_insert((number + 1, 0)).1 += 1;
                }
            }
        }
        for (what, (line, times)) in wrong {
            let more = if times > 1 { format!(", and {} more of that kind", times - 1) } else { String::new() };
            self.remark(format!("{source}: line {line} holds {what}{more}"));
        }
    }

    fn ssh_file(&mut self, file: &Path, source: &str, must_exist: bool) {
        match self.read(file, source, must_exist) {
            Ok(Some(bytes)) => self.ssh(&bytes, source),
            Ok(None) => {}
            Err(why) => self.remark_ssh(why),
        }
    }

    fn ssh(&mut self, bytes: &[u8], source: &str) {
        let Ok(key) = age::ssh::Identity::from_buffer(bytes, None) else {
            return self.remark_ssh(format!("{source} is not a private key of SSH"));
        };
        let public = age::ssh::Recipient::try_from(key.clone()).ok().map(|public| public.to_string());
        let source = source.to_owned();
        match key {
            age::ssh::Identity::Unencrypted(_) => {
                self.found.ready.push(Identity { source, public, key: Box::new(key), words: None, is_spare: false });
            }
            age::ssh::Identity::Encrypted(_) => {
                self.found.locked.push(Locked::Ssh { source, public, key: Box::new(key) });
            }
            age::ssh::Identity::Unsupported(_) => {
                self.remark_ssh(format!("{source} is a key of a kind that age does not support: use ed25519 or rsa"));
            }
        }
    }

    fn unlock(&mut self, locked: Locked) {
        let (Locked::File { source, .. } | Locked::Ssh { source, .. }) = &locked;
        let source = source.clone();
        let Some(passphrase) = (self.around.passphrase)(&source) else {
            self.remark(format!("{source} is locked, and there is nobody to ask for its passphrase"));
            return self.found.locked.push(locked);
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
                        self.found.ready.push(Identity { source, public, key, words: None, is_spare: false });
                    }
                    Err(_) => self.remark(format!("{source} did not open: wrong passphrase?")),
                }
            }
        }
    }
}

/// What a word is that is no identity which castle can use.
fn unusable(word: &str) -> &'static str {
    if word.starts_with("AGE-SECRET-KEY-PQ-1") {
        "a post-quantum identity, which castle cannot use yet"
    } else if word.starts_with("AGE-PLUGIN-") {
        "an identity of a plugin, which castle does not run"
    } else {
        "no age identity"
    }
}

/// What is in an age file, armored or not, if `identity` opens it.
fn opened(bytes: &[u8], identity: &dyn age::Identity) -> Option<Zeroizing<Vec<u8>>> {
    let decryptor = age::Decryptor::new(ArmoredReader::new(bytes)).ok()?;
    let mut reader = decryptor.decrypt(std::iter::once(identity)).ok()?;
    // What is in it is shorter than the file: the buffer never moves.
    let mut inside = Zeroizing::new(Vec::with_capacity(bytes.len()));
    reader.read_to_end(&mut inside).ok()?;
    Some(inside)
}

#[cfg(test)]
mod tests;
