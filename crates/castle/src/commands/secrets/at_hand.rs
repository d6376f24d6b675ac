//! What the verbs share: files opened and written, and for whom new ones are encrypted.

use std::path::{Path, PathBuf};

use castle_seams::{Disk, DiskErrorKind};
use castle_secrets::sops::{Config, Layout, Opened, Policy, Rule, Sealed};
use clap::Args;

use crate::doors::Doors;
use crate::project::WorkTree;
use crate::secret::with_keyring;
use crate::stand::Trouble;
use crate::writing::{Place, Readers};

/// For whom a file is encrypted, where `.sops.yaml` does not say.
#[derive(Debug, Default, Args)]
pub(super) struct For {
    /// Encrypt for this public key (age1..., ssh-ed25519 ..., ssh-rsa ...); may be repeated. Default: SOPS_AGE_RECIPIENTS, then the creation rule of the
    /// nearest .sops.yaml above the file
    #[arg(long = "age", value_name = "RECIPIENT", value_delimiter = ',')]
    recipients: Vec<String>,
}

impl For {
    /// The policy for `file`, which need not exist yet.
    pub(super) fn policy(&self, file: &Path, rule: Option<Rule>, doors: &Doors) -> Result<Policy, Trouble> {
        let disk = doors.disk.as_ref();
        let mut named: Vec<String> = self.recipients.clone();
        if named.is_empty() {
            let variable = doors.variables.text("SOPS_AGE_RECIPIENTS").unwrap_or_default();
            named = variable.split(',').map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()).collect();
        }
        let whole = absolute(file, disk)?;
        let config = Config::above(&whole, disk)?;
        let found = config.map(|config| config.policy(&whole)).transpose();
        let mut policy = match found {
            Ok(found) => found.flatten().unwrap_or_default(),
            // Who names recipients needs no rule that matches.
            Err(_) if !named.is_empty() => Policy::default(),
            Err(problem) => return Err(problem.into()),
        };
        if !named.is_empty() {
            policy.groups = vec![named];
        }
        policy.rule = rule.or(policy.rule);
        Ok(policy)
    }
}

/// The path without links in its folders.
pub(super) fn absolute(file: &Path, disk: &dyn Disk) -> Result<PathBuf, Trouble> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = disk.real_path(folder).map_err(|error| Trouble::of(&error))?;
    Ok(file.file_name().map_or(folder.clone(), |name| folder.join(name)))
}

/// A file that was opened, and how it lay there.
pub(super) struct Taken {
    pub(super) opened: Opened,
    before: Option<Vec<u8>>,
    file: PathBuf,
}

impl Taken {
    /// Opens a SOPS file.
    pub(super) fn open(file: &Path, doors: &Doors) -> Result<Self, Trouble> {
        let disk = doors.disk.as_ref();
        let sealed = Sealed::load(file, disk)?;
        let before = disk.read(file, castle_secrets::sops::MAX_FILE_BYTES).ok();
        let opened = with_keyring(doors, |keyring| sealed.open(keyring))?.laid_out(layout(file, disk));
        Ok(Self { opened, before, file: file.to_owned() })
    }

    /// Opens a SOPS file, or begins a new one with nothing in it.
    pub(super) fn open_or_begin(file: &Path, whom: &For, doors: &Doors) -> Result<Self, Trouble> {
        let disk = doors.disk.as_ref();
        match disk.metadata(file) {
            Err(error) if error.kind == DiskErrorKind::NotFound => {
                let format = castle_secrets::sops::Format::of(file)?;
                let policy = whom.policy(file, None, doors)?;
                let nothing: &[u8] = if format == castle_secrets::sops::Format::Json { b"{}" } else { b"" };
                let name = file.display().to_string();
                let opened = Opened::fresh(&name, format, nothing, &policy, doors.entropy.as_ref())?;
                Ok(Self { opened, before: None, file: file.to_owned() })
            }
            _ => Self::open(file, doors),
        }
    }

    /// Whether there was no file before.
    pub(super) fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// Encrypts and writes what is in it now.
    pub(super) fn save(mut self, doors: &Doors) -> Result<(), Trouble> {
        let bytes = self.opened.seal(doors.clock.wall(), doors.entropy.as_ref())?;
        self.put(&bytes, doors)
    }

    /// Writes a new form of the file, unless someone else has changed it meanwhile.
    pub(super) fn put(&self, bytes: &[u8], doors: &Doors) -> Result<(), Trouble> {
        let disk = doors.disk.as_ref();
        let now = disk.read(&self.file, castle_secrets::sops::MAX_FILE_BYTES).ok();
        if now != self.before {
            return Err(Trouble::Refused(format!(
                "{} was changed by someone else meanwhile, and is left as they wrote it: do it again",
                self.file.display()
            )));
        }
        Place::find(disk, &self.file)?.write(disk, bytes, Readers::AsBeforeOrAll)
    }
}

fn layout(file: &Path, disk: &dyn Disk) -> Layout {
    let config = absolute(file, disk).ok().and_then(|file| Config::above(&file, disk).ok().flatten());
    config.map(|config| config.layout()).unwrap_or_default()
}

/// A file that git would take along is no place for secrets in clear.
pub(super) fn refuse_tracked(disk: &dyn Disk, file: &Path) -> Result<(), Trouble> {
    let folder = file.parent().unwrap_or(Path::new(""));
    match WorkTree::around(disk, folder) {
        Some(tree) if tree.takes(file) => Err(Trouble::Refused(format!(
            "{} would be taken along by git with secrets in clear: write it elsewhere, or have git ignore it",
            file.display()
        ))),
        _ => Ok(()),
    }
}
