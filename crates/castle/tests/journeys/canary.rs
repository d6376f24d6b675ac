//! Planted secrets are searched for in everything that castle prints and writes, and in what other processes may see of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use castle_datacenter::EMBEDDED_TOKEN;
use castle_datacenter::blueprint::Placed;

use crate::room::{BLUE, Room};
use crate::within::{CLIENT_ID, CLIENT_SECRET, ENVIRONMENT, PROJECT, VAULT, Within};
use crate::world::{Ran, World, identity};

/// The login at a mirror, and a part of a patch: both reach the nodes, and nothing else.
const PASSWORD: &str = "canary-of-a-mirror/with+signs=1";
const PATCH: &str = "canary-of-a-patch-0123456789";
/// A token that opens nothing.
const WRONG: &str = "dead0000-0000-4000-8000-00000000beef";

/// A secret as it is, and in the forms that it may be written in.
fn forms(secret: &str) -> Vec<String> {
    let hex: String = secret.bytes().map(|byte| format!("{byte:02x}")).collect();
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    let url: String = secret.bytes().map(escaped).collect();
    // Wherever in a longer text it begins: the letters that its neighbours do not reach.
    let encoded = (0..3).map(|before| {
        let padded = format!("{}{secret}", "x".repeat(before));
        let text = base64(padded.as_bytes());
        text[4..text.len() - 4].to_owned()
    });
    [secret.to_owned(), hex.to_uppercase(), hex, url].into_iter().chain(encoded).collect()
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |chunk: &[u8]| {
        let word = (0..3).fold(0u32, |word, at| word << 8 | u32::from(*chunk.get(at).unwrap_or(&0)));
        (0..4).map(|at| char::from(LETTERS[(word >> (18 - 6 * at) & 63) as usize])).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}

/// Holds that none of the secrets is in `text`.
fn clean(secrets: &[&str], what: &str, text: &str) {
    for secret in secrets {
        for form in forms(secret) {
            assert!(!text.contains(&form), "{what} has {form}");
        }
    }
}

/// Everything that a bystander can read after a run of castle, held to be clean of what was planted and of what was made.
struct Watch<'w> {
    within: &'w Within,
    planted: Vec<String>,
}

impl Watch<'_> {
    /// What was planted, what the vault has issued, and the keys of the files that castle keeps there.
    fn secrets(&self) -> Vec<String> {
        let vault = self.within.datacenter.vault(VAULT);
        let keys = vault.secrets.values().flat_map(|text| text.lines()).filter_map(|line| {
            let line = line.trim();
            line.strip_prefix("client-key-data: ").or_else(|| line.strip_prefix("key: "))
        });
        let keys: Vec<String> = keys.map(str::to_owned).collect();
        self.planted.iter().cloned().chain(self.within.seen.tokens()).chain(keys).collect()
    }

    fn hold(&self, args: &[&str], trap: Option<&str>, code: i32) -> Ran {
        // The most that castle and the libraries in it can be made to say.
        let mut variables = vec![("RUST_LOG", "trace"), ("RUST_BACKTRACE", "full")];
        variables.extend(trap.map(|place| ("CASTLE_TRAP", place)));
        let ran = self.within.room.castle_with(args, &variables);
        assert_eq!(ran.code, Some(code), "{args:?} {trap:?}: {}", ran.transcript());
        self.look(&format!("{args:?} {trap:?}"), &ran.transcript());
        ran
    }

    fn look(&self, what: &str, printed: &str) {
        let (secrets, world) = (self.secrets(), &self.within.room.world);
        let secrets: Vec<&str> = secrets.iter().map(String::as_str).collect();
        clean(&secrets, what, printed);
        clean(&secrets, "what was asked for", &self.within.seen.targets().join("\n"));
        // These are where they were put, in clear: the patch, the identity, and the key of the datacenter, which is its owner's alone.
        let in_clear = ["patch.yaml", ".config/sops/age/keys.txt", ".local/state/castle/datacenter/token"];
        for file in world.files().iter().filter(|file| !in_clear.contains(&file.as_str())) {
            let bytes = std::fs::read(world.path(file)).unwrap();
            clean(&secrets, &format!("{file} after {what}"), &String::from_utf8_lossy(&bytes));
        }
    }
}

/// What others see of a process: its arguments, and root its environment.
fn seen_of(process: u32) -> String {
    let read = |file: &str| std::fs::read(format!("/proc/{process}/{file}")).unwrap_or_default();
    ["cmdline", "environ"].map(|file| String::from_utf8_lossy(&read(file)).into_owned()).join("\n")
}

/// Goal: no secret is anywhere but where it belongs, however a run ends. Method: secrets of every source are planted, castle
/// succeeds, fails and panics at its worst moments, and after each run all that is left of it is searched.
#[test]
fn no_secret_is_printed_written_or_seen() {
    let within = Within::new(400);
    let room = &within.room;
    let platform = format!(
        "platform:\n  proxmox: {{endpoint: '{}', fingerprint: '{}', token: 'sops:s.enc.yaml#token', nodes: [pve], vmids: 421-450}}\n",
        room.address, room.fingerprint
    );
    let talos = "talos: {version: v1.13.9, patches: [patch.yaml], mirrors: {docker.io: {endpoints: ['https://mirror.lan'], \
                 credential: 'vault:MIRROR'}}}\n";
    let castle = BLUE.replace("platform: embedded\n", &platform).replace("talos: {version: v1.13.9}\n", talos);
    room.write("castle.yaml", &(castle + &within.secrets()));
    let mirror = Placed::new(ENVIRONMENT, "/blue", "MIRROR", &format!("me:{PASSWORD}"));
    within.datacenter.place_secret(VAULT, PROJECT, mirror);
    room.world.write("patch.yaml", format!("machine: {{env: {{PLANTED: {PATCH}}}}}\n"));
    room.world.write(".config/sops/age/keys.txt", &identity().private);
    room.world.write(".sops.yaml", format!("creation_rules:\n- age: {}\n", identity().public));
    let planted = [PASSWORD, PATCH, EMBEDDED_TOKEN, CLIENT_SECRET, WRONG, &identity().private];
    let watch = Watch { within: &within, planted: planted.map(str::to_owned).into() };
    let encrypt =
        |token: &str| {
            room.world.write("s.enc.yaml", format!(
            "token: castle@pve!embedded={token}\nvault:\n  clientId: {CLIENT_ID}\n  clientSecret: {CLIENT_SECRET}\n"
        ));
            watch.hold(&["secrets", "encrypt", "--in-place", "s.enc.yaml"], None, 0);
        };

    encrypt(WRONG);
    watch.hold(&["check"], None, 0);
    for failing in [&["plan"][..], &["up", "--verbose"], &["status", "--json"], &["doctor"]] {
        watch.hold(failing, None, 1);
    }
    encrypt(EMBEDDED_TOKEN);
    watch.hold(&["plan", "--json", "--deep"], None, 0);

    // A panic: with a secret in its very words, before anything is done, and between an intent and its effect.
    // No release has the trap.
    if cfg!(debug_assertions) {
        for trap in ["reference", "vault", "secrets/bundle/blue", "secrets/vault/blue", "platform/vm/blue-worker-1"] {
            let panicked = watch.hold(&["up", "--verbose"], Some(trap), 101);
            assert!(panicked.stderr.starts_with("castle stopped at "), "{}", panicked.transcript());
        }
        watch.hold(&["up", "--json", "--verbose"], Some("platform/vm/blue-worker-2"), 101);
    } else {
        watch.hold(&["up"], Some("reference"), 0);
    }

    // While it works, others look.
    let mut up = room.start(&["up", "--json", "--verbose"]);
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told: Vec<String> = lines.by_ref().take(5).collect();
    let seen = seen_of(up.id());
    assert!(seen.contains("--verbose") && seen.contains("HOME="), "it was looked at: {seen}");
    watch.look("the process at work", &seen);
    told.extend(lines);
    assert!(up.wait().unwrap().success(), "{told:?}");
    watch.look("the events", &told.join("\n"));

    for done in [&["status", "--deep"][..], &["up"], &["doctor"], &["state", "show"], &["state", "history", "secrets"]]
    {
        watch.hold(done, None, 0);
    }
    if cfg!(debug_assertions) {
        watch.hold(&["down", "--yes"], Some("platform/vm/431 blue-worker-1"), 101);
    }
    watch.hold(&["down", "--yes"], None, 0);
}

/// Goal: the datacenter that castle starts inherits no secret. Method: castle has some in its environment, and its child is looked at.
#[test]
fn the_datacenter_that_castle_starts_is_told_no_secret() {
    let world = World::new();
    let mirror = "mirrors: {docker.io: {endpoints: ['https://mirror.lan'], credential: 'env:MIRROR'}}";
    world.write(
        "castle.yaml",
        BLUE.replace("talos: {version: v1.13.9}", &format!("talos: {{version: v1.13.9, {mirror}}}")),
    );
    let login = format!("me:{PASSWORD}");
    let variables = [("SOPS_AGE_KEY", identity().private.as_str()), ("MIRROR", &login)];
    let planned = world.castle_with(&["down", "--yes"], &variables);
    let serving: serde_json::Value =
        serde_json::from_str(&world.read(".local/state/castle/datacenter/serving.json")).unwrap();
    let seen = seen_of(u32::try_from(serving["process"].as_u64().unwrap()).unwrap());
    let stopped = world.castle(&["datacenter", "stop"]);
    assert_eq!((planned.code, stopped.code), (Some(0), Some(0)), "{}", planned.transcript());
    assert!(seen.contains("datacenter") && seen.contains("HOME="), "it was looked at: {seen}");
    clean(&[PASSWORD, &identity().private], "the datacenter", &seen);
}

/// Goal: what is typed is not kept. Method: a value goes in at standard input, and is found in no file and no process.
#[test]
fn a_value_that_is_set_is_in_no_argument_and_no_file() {
    let room = Room::new(400);
    room.world.write(".config/sops/age/keys.txt", &identity().private);
    room.world.write(".sops.yaml", format!("creation_rules:\n- age: {}\n", identity().public));
    room.world.write("s.enc.yaml", "a: b\n");
    assert_eq!(room.castle(&["secrets", "encrypt", "--in-place", "s.enc.yaml"]).code, Some(0));
    let mut set = Command::new(env!("CARGO_BIN_EXE_castle"))
        .args(["secrets", "set", "s.enc.yaml", "a"])
        .current_dir(room.world.path(""))
        .env_clear()
        .env("HOME", room.world.path(""))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let arguments = std::fs::read(format!("/proc/{}/cmdline", set.id())).unwrap_or_default();
    set.stdin.take().unwrap().write_all(PASSWORD.as_bytes()).unwrap();
    let output = set.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for (what, bytes) in [("arguments", &arguments), ("stdout", &output.stdout), ("stderr", &output.stderr)] {
        clean(&[PASSWORD], what, &String::from_utf8_lossy(bytes));
    }
    clean(&[PASSWORD], "s.enc.yaml", &room.world.read("s.enc.yaml"));
    let got = room.castle(&["secrets", "get", "s.enc.yaml", "a"]);
    assert_eq!(got.stdout.trim_end(), PASSWORD, "{}", got.transcript());
}

#[test]
#[cfg(target_os = "linux")]
fn no_memory_of_castle_is_ever_written_to_disk() {
    let room = Room::new(400);
    let process = room.datacenter.as_ref().unwrap().id();
    let limits = std::fs::read_to_string(format!("/proc/{process}/limits")).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    let words: Vec<&str> = cores.split_whitespace().collect();
    assert_eq!(words[4..6], ["0", "0"], "{cores}");
}
