//! Planted secrets are searched for in everything that castle prints and writes, and in what other processes may see of it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::room::{BLUE, Room};
use crate::world::identity;

/// The login at a mirror, and a part of a patch: both reach the nodes, and nothing else.
const PASSWORD: &str = "canary-of-a-mirror/with+signs=1";
const PATCH: &str = "canary-of-a-patch-0123456789";
/// A token that opens nothing.
const WRONG: &str = "dead0000-0000-4000-8000-00000000beef";
const TOKEN: &str = "ca571e00-0000-4000-8000-000000000000";

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

#[test]
fn no_secret_is_printed_written_or_seen() {
    let room = Room::new(400);
    let secrets = [PASSWORD, PATCH, TOKEN, WRONG, &identity().private];
    let platform = format!(
        "platform:\n  proxmox: {{endpoint: '{}', fingerprint: '{}', token: 'sops:s.enc.yaml#token', nodes: [pve], vmids: 421-450}}\n",
        room.address, room.fingerprint
    );
    let talos = "talos: {version: v1.13.9, patches: [patch.yaml], mirrors: {docker.io: {endpoints: ['https://mirror.lan'], \
                 credential: 'sops:s.enc.yaml#mirror'}}}\n";
    let castle = BLUE.replace("platform: embedded\n", &platform).replace("talos: {version: v1.13.9}\n", talos);
    room.write("castle.yaml", &castle);
    room.world.write("patch.yaml", format!("machine: {{env: {{PLANTED: {PATCH}}}}}\n"));
    room.world.write(".config/sops/age/keys.txt", &identity().private);
    room.world.write(".sops.yaml", format!("creation_rules:\n- age: {}\n", identity().public));
    let encrypt = |token: &str| {
        room.world.write("s.enc.yaml", format!("token: castle@pve!embedded={token}\nmirror: me:{PASSWORD}\n"));
        let ran = room.castle(&["secrets", "encrypt", "--in-place", "s.enc.yaml"]);
        assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    };
    // The patch and the identity are where they were put, in clear.
    let planted = ["patch.yaml", ".config/sops/age/keys.txt"];
    let hold = |args: &[&str], code: i32| {
        let ran = room.castle(args);
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.transcript());
        clean(&secrets, &format!("{args:?}"), &ran.transcript());
        for file in room.world.files().iter().filter(|file| !planted.contains(&file.as_str())) {
            let bytes = std::fs::read(room.world.path(file)).unwrap();
            clean(&secrets, file, &String::from_utf8_lossy(&bytes));
        }
    };

    encrypt(WRONG);
    hold(&["check"], 0);
    for failing in [&["plan"][..], &["up", "--verbose"], &["status", "--json"], &["doctor"]] {
        hold(failing, 1);
    }
    encrypt(TOKEN);
    hold(&["plan", "--json", "--deep"], 0);

    // While it works, others see its arguments, and root its environment.
    let mut up = room.start(&["up", "--json", "--verbose"]);
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut told: Vec<String> = lines.by_ref().take(5).collect();
    for process in [up.id(), room.datacenter.id()] {
        for file in ["cmdline", "environ"] {
            if let Ok(bytes) = std::fs::read(format!("/proc/{process}/{file}")) {
                clean(&secrets, file, &String::from_utf8_lossy(&bytes));
            }
        }
    }
    told.extend(lines);
    assert!(up.wait().unwrap().success(), "{told:?}");
    clean(&secrets, "the events", &told.join("\n"));

    for done in [&["status", "--deep"][..], &["up"], &["doctor"], &["state", "show"], &["state", "history", "secrets"]]
    {
        hold(done, 0);
    }
    hold(&["down", "--yes"], 0);
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
