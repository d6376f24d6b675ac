//! An empty machine to run castle on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use age::secrecy::ExposeSecret;

/// An age identity made for this run, and its public half.
pub(crate) struct Identity {
    pub(crate) private: String,
    pub(crate) public: String,
}

pub(crate) fn identity() -> &'static Identity {
    static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
        let made = age::x25519::Identity::generate();
        Identity { private: made.to_string().expose_secret().to_owned(), public: made.to_public().to_string() }
    });
    &IDENTITY
}

/// A folder with nothing in it, which is also home.
pub(crate) struct World {
    folder: tempfile::TempDir,
}

/// What castle printed and how it ended.
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) code: Option<i32>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// A world whose only file is this castle.yaml.
    pub(crate) fn with_castle(text: &str) -> Self {
        let world = Self::new();
        world.write("castle.yaml", text);
        world
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// All files, each as a path from the folder.
    pub(crate) fn files(&self) -> Vec<String> {
        fn walk(folder: &Path, base: &Path, found: &mut Vec<String>) {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, base, found);
                } else {
                    found.push(path.strip_prefix(base).unwrap().display().to_string());
                }
            }
        }
        let mut found = Vec::new();
        walk(self.folder.path(), self.folder.path(), &mut found);
        found.sort();
        found
    }

    pub(crate) fn castle(&self, args: &[&str]) -> Ran {
        self.castle_with(args, &[])
    }

    /// castle with these in its environment.
    pub(crate) fn castle_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        self.run_with(Command::new(env!("CARGO_BIN_EXE_castle")).args(args), variables)
    }

    /// castle with at most 100 MB of address space and five seconds of processor: what takes a second at most in a release
    /// build takes some six times as long in the build that tests are run with.
    pub(crate) fn castle_within_bounds(&self, args: &[&str]) -> Ran {
        let script = "ulimit -v 100000; ulimit -t 5; exec \"$0\" \"$@\"";
        self.run(Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_castle")]).args(args))
    }

    pub(crate) fn run(&self, command: &mut Command) -> Ran {
        self.run_with(command, &[])
    }

    fn run_with(&self, command: &mut Command, variables: &[(&str, &str)]) -> Ran {
        let command = command.current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.folder.path()).env("PATH", std::env::var_os("PATH").unwrap());
        let output: Output = command.envs(variables.iter().copied()).output().unwrap();
        Ran {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code(),
        }
    }
}

impl Ran {
    /// Everything a person sees, with how it ended.
    pub(crate) fn transcript(&self) -> String {
        format!(
            "{}{}exit {}\n",
            self.stderr,
            self.stdout,
            self.code.map_or("by a signal".to_owned(), |code| code.to_string())
        )
    }

    /// The result object.
    pub(crate) fn result(&self) -> serde_json::Value {
        serde_json::from_str(self.stdout.lines().last().unwrap_or_default()).unwrap()
    }
}
