//! A real program that a suite runs many times over, held to its answers.

use std::cell::Cell;
use std::fmt;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// No single command takes longer.
const BOUND: Duration = Duration::from_secs(60);
/// What comes about by itself does so within this.
const PATIENCE: Duration = Duration::from_secs(90);

/// What it said, and whether it was content.
pub(super) struct Said {
    pub(super) is_well: bool,
    pub(super) text: String,
}

/// A program in a folder that is its home, too.
pub(super) struct Program {
    program: PathBuf,
    folder: PathBuf,
    held: Cell<usize>,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.program.file_name().unwrap_or_default().to_string_lossy())
    }
}

impl Program {
    /// A program that finds `talosconfig` and `kubeconfig` in its folder.
    pub(super) fn new(program: PathBuf, folder: &Path) -> Self {
        Self { program, folder: folder.to_owned(), held: Cell::new(0) }
    }

    /// How many things have been held.
    pub(super) fn held(&self) -> usize {
        self.held.get()
    }

    /// Runs it to its end, or ends it.
    fn run(&self, arguments: &[&str]) -> Result<Said> {
        let said = self.folder.join("said");
        let mut command = Command::new(&self.program);
        command.args(arguments).current_dir(&self.folder).env("HOME", &self.folder);
        command.env("TALOSCONFIG", self.folder.join("talosconfig")).env("KUBECONFIG", self.folder.join("kubeconfig"));
        command.env_remove("CASTLE_STATE_DIR").env_remove("XDG_STATE_HOME").env("NO_PROXY", "127.0.0.0/8");
        command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(File::options().append(true).open(&said)?);
        let mut child = command.spawn().context("cannot start a peer")?;
        let start = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if start.elapsed() > BOUND {
                child.kill()?;
                child.wait()?;
                bail!("{self} {arguments:?} does not come to its end");
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        Ok(Said { is_well: status.success(), text: std::fs::read_to_string(said)? })
    }

    fn hold(&self) {
        self.held.set(self.held.get() + 1);
    }

    /// Runs it, and holds that all went well.
    pub(super) fn well(&self, arguments: &[&str]) -> Result<String> {
        let said = self.run(arguments)?;
        ensure!(said.is_well, "{self} {arguments:?}: {}", said.text);
        self.hold();
        Ok(said.text)
    }

    /// Runs it until it says what is awaited.
    pub(super) fn until(&self, arguments: &[&str], is_it: impl Fn(&Said) -> bool) -> Result<String> {
        let start = Instant::now();
        loop {
            let said = self.run(arguments)?;
            if is_it(&said) {
                self.hold();
                return Ok(said.text);
            }
            ensure!(start.elapsed() < PATIENCE, "{self} {arguments:?} still says: {}", said.text);
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Runs it, and holds that it is refused with these words.
    pub(super) fn refused(&self, arguments: &[&str], words: &str) -> Result<()> {
        let said = self.run(arguments)?;
        ensure!(!said.is_well && said.text.contains(words), "{self} {arguments:?} is not refused: {}", said.text);
        self.hold();
        Ok(())
    }
}
