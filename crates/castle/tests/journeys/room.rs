//! A machine with a datacenter of its own, for castles that are raised by real processes.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::Value;

use crate::world::{Ran, World};

/// A castle of three machines.
pub(crate) const BLUE: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 2, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB, dataDisk: 100GiB}
storage: none
";

/// Where the nodes of the file above listen. In each room it is another network: no two may have one address on this machine.
const NETWORK: &str = "127.42.0";

/// A network that no other room of this run has.
pub(crate) fn own_network() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // As long as the usual one: tables are as wide as what is in them. Another process begins somewhere else.
    let number = (std::process::id() * 37 + NEXT.fetch_add(1, Ordering::Relaxed)) % 560;
    format!("127.{}.{}", 44 + number / 10, number % 10)
}

/// A machine with a datacenter of its own that ends with the test.
pub(crate) struct Room {
    pub(crate) world: World,
    pub(crate) network: String,
    /// Its process, unless it is this one.
    pub(crate) datacenter: Option<Child>,
    pub(crate) address: String,
    pub(crate) fingerprint: String,
}

impl Room {
    pub(crate) fn new(speed: u32) -> Self {
        let network = own_network();
        let world = World::with_castle(&BLUE.replace(NETWORK, &network));
        let mut datacenter = Command::new(env!("CARGO_BIN_EXE_castle"))
            .args(["datacenter", "--json", "--listen", "127.0.0.1:0", "--speed", &speed.to_string()])
            .env_clear()
            .env("HOME", world.path(""))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(datacenter.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap();
        let text = |key: &str| told[key].as_str().unwrap().to_owned();
        Self {
            address: text("address"),
            fingerprint: text("fingerprint"),
            world,
            network,
            datacenter: Some(datacenter),
        }
    }

    /// The token that opens its datacenter, which is a process of its own.
    pub(crate) fn token(&self) -> String {
        self.world.read(".local/state/castle/datacenter/token").trim().to_owned()
    }

    pub(crate) fn castle(&self, args: &[&str]) -> Ran {
        self.castle_with(args, &[])
    }

    /// castle with these in its environment.
    pub(crate) fn castle_with(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let ran = self.world.castle_with(args, variables);
        if !matches!(args.first(), Some(&("kubeconfig" | "talosconfig" | "secrets"))) {
            keyless("what it printed", &ran.transcript());
        }
        self.hold_private();
        let usual = |text: String| text.replace(&self.network, NETWORK);
        Ran { stdout: usual(ran.stdout), stderr: usual(ran.stderr), ..ran }
    }

    /// Whatever was done: what castle keeps has no key in clear, and is for its owner alone.
    fn hold_private(&self) {
        for file in self.world.files().iter().filter(|file| file.starts_with(".local/")) {
            // One that was there for a moment may be gone.
            let path = self.world.path(file);
            let (Ok(bytes), Ok(metadata)) = (std::fs::read(&path), std::fs::metadata(&path)) else { continue };
            keyless(file, &String::from_utf8_lossy(&bytes));
            assert_eq!(metadata.permissions().mode() & 0o777, 0o600, "{file}");
        }
    }

    /// Writes a castle.yaml.
    pub(crate) fn write(&self, file: &str, text: &str) {
        self.world.write(file, text.replace(NETWORK, &self.network));
    }

    /// The castle's nodes as they are now.
    pub(crate) fn states(&self) -> Vec<String> {
        let status = self.castle(&["status", "--deep", "--json"]);
        let nodes = status.result()["nodes"].as_array().unwrap_or_else(|| panic!("{}", status.transcript())).clone();
        nodes.iter().map(|node| node["state"].as_str().unwrap().to_owned()).collect()
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_castle"));
        command.args(args).env_clear().env("HOME", self.world.path("")).current_dir(self.world.path(""));
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

/// Holds that there is no private key in a text, as it is or as base64, which begins like this.
fn keyless(what: &str, text: &str) {
    assert!(!text.contains("PRIVATE KEY") && !text.contains("LS0tLS1CRUdJTi"), "{what} has a key");
}

impl Drop for Room {
    fn drop(&mut self) {
        if let Some(datacenter) = &mut self.datacenter {
            let _ = datacenter.kill();
            let _ = datacenter.wait();
        }
    }
}
