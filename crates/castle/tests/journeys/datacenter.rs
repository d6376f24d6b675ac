//! The embedded datacenter as a process of its own, started by whoever needs it.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use crate::room::{BLUE, Room, own_network};
use crate::side_by_side::on_proxmox;
use crate::world::World;

#[test]
fn the_datacenter_is_found_started_and_stopped() {
    // Whoever plans looks whether the addresses are free, and others may have castles on this machine.
    let world = World::with_castle(&BLUE.replace("127.42.0", &own_network()));
    assert!(world.castle(&["datacenter", "status"]).stdout.contains("does not run"));
    // Whoever only looks starts nothing, and leaves nothing behind.
    for (verb, code) in [("status", 1), ("drift", 1), ("doctor", 0)] {
        let looked = world.castle(&[verb]);
        assert_eq!(looked.code, Some(code), "{}", looked.transcript());
        let told = looked.transcript();
        assert!(told.contains("no embedded datacenter runs") && told.contains("next: castle up"), "{told}");
    }
    let plan = world.castle(&["plan"]);
    assert!(plan.code == Some(0) && plan.stdout.contains("platform/vm/blue-cp-1"), "{}", plan.transcript());
    assert!(plan.stdout.contains("No embedded datacenter runs"), "{}", plan.transcript());
    assert!(!world.path(".local/state/castle").exists(), "something was left behind");
    let down = world.castle(&["down", "--yes"]);
    assert!(down.stdout.contains("Started the embedded datacenter"), "{}", down.transcript());
    assert!(world.castle(&["datacenter", "status"]).stdout.contains("serves Proxmox VE 9.2"));
    let second = world.castle(&["datacenter"]);
    assert_eq!(second.code, Some(3), "{}", second.transcript());
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("has ended"));
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("does not run"));
    let outside = world.castle(&["datacenter", "--listen", "0.0.0.0:0"]);
    assert_eq!(outside.code, Some(4), "{}", outside.transcript());
}

/// Goal: a datacenter is for its owner alone. Method: two of them, whose keys differ; what everybody knows opens neither; its repository is not cloned
/// without them, and what castle prints holds none of them.
#[test]
fn the_datacenter_opens_for_its_owner_alone() {
    let (room, other) = (Room::new(400), Room::new(400));
    let gitops = format!("{BLUE}gitops: {{repository: embedded}}\n");
    room.write("castle.yaml", &gitops);
    room.world.write(
        "gitops/clusters/blue/config.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: mine, namespace: default}\n",
    );
    let up = room.castle(&["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert_ne!(room.token(), other.token());
    let folder = ".local/state/castle/datacenter";
    let status = room.castle(&["datacenter", "status"]);
    for name in ["token", "password", "vault.json", "git-credentials"] {
        let file = room.world.path(&format!("{folder}/{name}"));
        assert!(status.stdout.contains(&file.display().to_string()), "{}", status.transcript());
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    let told = room.castle(&["datacenter", "status", "--json"]);
    for said in [&up, &status, &told] {
        assert!(!said.transcript().contains(room.token().split_once('=').unwrap().1), "{}", said.transcript());
    }

    // What everybody knows, and what opens another one.
    let real = on_proxmox(&room).replace("127.42.0", &room.network);
    room.world.write("real/castle.yaml", real);
    for token in ["castle@pve!embedded=ca571e00-0000-4000-8000-000000000000", &other.token()] {
        room.world.write("real/token", token);
        let plan = room.castle(&["plan", "real"]);
        assert!(plan.code == Some(1) && plan.stderr.contains("Authentication failed!"), "{}", plan.transcript());
    }
    let url = format!("{}/blue-embedded.git", told.result()["git"]["address"].as_str().unwrap());
    let store =
        format!("credential.helper=store --file {}", room.world.path(&format!("{folder}/git-credentials")).display());
    for (login, expected) in [(None, false), (Some(store.as_str()), true)] {
        let mut git = Command::new("git");
        git.args(["-c", "http.sslVerify=false"]).args(login.iter().flat_map(|login| ["-c", *login]));
        git.args(["ls-remote", &url]).env("GIT_TERMINAL_PROMPT", "0");
        let ran = room.world.run(&mut git);
        assert_eq!(ran.code == Some(0), expected, "{}", ran.transcript());
    }
}

#[test]
fn an_instant_datacenter_claims_no_speed() {
    let world = World::new();
    let mut datacenter = Command::new(env!("CARGO_BIN_EXE_castle"))
        .args(["datacenter", "--instant", "--listen", "127.0.0.1:0"])
        .env_clear()
        .env("HOME", world.path(""))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(datacenter.stdout.take().unwrap()).read_line(&mut line).unwrap();
    datacenter.kill().unwrap();
    datacenter.wait().unwrap();
    assert!(line.ends_with(", and nothing in it takes any time.\n"), "{line}");
}

/// Who removes all that castle keeps begins anew: nothing that is left of the old one is in the way.
#[test]
fn it_ends_when_what_it_keeps_is_removed() {
    let fast = BLUE.replace("platform: embedded", "platform: {embedded: {speed: 400}}");
    let world = World::with_castle(&fast.replace("127.42.0", &own_network()));
    for _ in 0..2 {
        let up = world.castle(&["up"]);
        assert!(up.code == Some(0) && up.stdout.contains("Started the embedded datacenter"), "{}", up.transcript());
        std::fs::remove_dir_all(world.path(".local/state/castle")).unwrap();
    }
    let left = world.castle(&["down", "--yes"]);
    assert!(left.stdout.contains("Started the embedded datacenter"), "{}", left.transcript());
    assert!(world.castle(&["datacenter", "stop"]).stdout.contains("has ended"));
}
