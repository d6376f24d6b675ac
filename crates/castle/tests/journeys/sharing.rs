//! One castle, driven from two machines that share its state in a bucket.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use age::secrecy::ExposeSecret;
use serde_json::Value;

use crate::bucket::{self, Bucket};
use crate::room::Room;
use crate::side_by_side::on_proxmox;
use crate::world::{Ran, World, identity};

const KEYS: [(&str, &str); 2] = [("BUCKET_KEY", "AKIDPLANTED"), ("BUCKET_SECRET", "planted/secret+key")];

/// A hypervisor, a bucket, and two machines that have the castle's file and the same age identity.
struct Lab {
    /// The room is there for its datacenter alone.
    _room: Room,
    bucket: Bucket,
    ada: World,
    bob: World,
}

impl Lab {
    fn new(speed: u32) -> Self {
        let (room, bucket) = (Room::new(speed), Bucket::open());
        let store = format!(
            "state:\n  recipients: [{}]\n  store:\n    s3:\n      bucket: {}\n      region: eu-central-1\n      endpoint: {}\n      \
             accessKey: env:BUCKET_KEY\n      secretKey: env:BUCKET_SECRET\n",
            identity().public,
            bucket::NAME,
            bucket.endpoint
        );
        let castle = on_proxmox(&room).replace("127.42.0", &room.network) + &store;
        let machine = || {
            let world = World::with_castle(&castle);
            world.write("token", room.token());
            world.write(".config/sops/age/keys.txt", &identity().private);
            world
        };
        let (ada, bob) = (machine(), machine());
        Self { _room: room, bucket, ada, bob }
    }
}

/// castle on one of the machines, as its user.
fn castle(world: &World, user: &str, args: &[&str]) -> Ran {
    world.castle_with(args, &[KEYS[0], KEYS[1], ("USER", user)])
}

fn start(world: &World, user: &str, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_castle"));
    command.args(args).env_clear().env("HOME", world.path("")).env("USER", user).envs(KEYS);
    command.current_dir(world.path("")).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Reads what a process tells until it tells this.
fn until(process: &mut Child, word: &str) -> impl Iterator<Item = String> + use<> {
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains(word)), "it never said {word}");
    lines
}

fn signal(process: &Child, name: &str) {
    assert!(Command::new("kill").args([name, &process.id().to_string()]).status().unwrap().success());
}

fn another_identity() -> String {
    age::x25519::Identity::generate().to_string().expose_secret().to_owned()
}

fn unchanged(ran: &Ran) -> Value {
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    ran.result()["result"].clone()
}

#[test]
fn what_one_machine_raises_the_other_sees_and_takes_down() {
    let lab = Lab::new(400);
    let up = castle(&lab.ada, "ada", &["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert!(lab.bucket.keys().iter().any(|key| key.starts_with("castle/blue/proxmox/state/secrets/")));
    for text in lab.bucket.texts() {
        assert!(!text.contains("PRIVATE KEY") && !text.contains("LS0tLS1CRUdJTi"), "a key in clear: {text}");
    }

    let status = castle(&lab.bob, "bob", &["status", "--deep", "--json"]).result();
    assert_eq!((&status["standing"], &status["generation"]), (&true.into(), &1.into()), "{status}");
    assert_eq!(unchanged(&castle(&lab.bob, "bob", &["plan", "--json"])), "unchanged");
    assert_eq!(unchanged(&castle(&lab.bob, "bob", &["up", "--json"])), "unchanged");
    assert!(
        castle(&lab.bob, "bob", &["kubeconfig"]).stdout.contains("admin@blue"),
        "he has the cluster's secrets, too"
    );
    let down = castle(&lab.bob, "bob", &["down", "--yes"]);
    assert_eq!(down.code, Some(0), "{}", down.transcript());
    let status = castle(&lab.ada, "ada", &["status"]);
    assert!(status.stdout.contains("blue on proxmox does not stand: castle up"), "{}", status.transcript());
    // And she goes on where he left off: the next life of the same castle.
    assert_eq!(castle(&lab.ada, "ada", &["up"]).code, Some(0));
    assert_eq!(castle(&lab.bob, "bob", &["status", "--json"]).result()["generation"], 2);
    // A machine without the key sees the machines, and can neither read nor write what is kept.
    lab.bob.write(".config/sops/age/keys.txt", another_identity());
    let stranger = castle(&lab.bob, "bob", &["up"]);
    assert_eq!(stranger.code, Some(1), "{}", stranger.transcript());
}

#[test]
fn of_two_machines_at_once_one_is_refused_and_told_by_whom() {
    let lab = Lab::new(20);
    let mut first = start(&lab.ada, "ada", &["up"]);
    let rest = until(&mut first, "download");
    let second = castle(&lab.bob, "bob", &["up"]);
    assert_eq!(second.code, Some(3), "{}", second.transcript());
    assert!(second.stderr.contains("ada@") && second.stderr.contains("works on this castle since epoch 1"));
    assert!(second.stderr.contains("castle lease take"), "{}", second.stderr);
    let shown = castle(&lab.bob, "bob", &["lease", "show"]).stdout;
    assert!(shown.starts_with("ada@") && shown.ends_with("(alive)\n"), "{shown}");
    let plan = castle(&lab.bob, "bob", &["plan"]);
    assert_eq!(plan.code, Some(0), "whoever only looks is not in the way: {}", plan.transcript());
    let rest: Vec<String> = rest.collect();
    assert!(first.wait().unwrap().success(), "{rest:?}");
    assert_eq!(unchanged(&castle(&lab.bob, "bob", &["up", "--json"])), "unchanged");
}

/// A small file of castle's, as castle would have written what it says now.
fn resealed(note: &Value) -> Vec<u8> {
    let mut content = note.clone();
    let written = content.as_object_mut().unwrap();
    let format = written.remove("format").and_then(|format| format.as_u64()).unwrap();
    written.remove("digest");
    castle_engine::note::bytes(format, &content)
}

#[test]
fn a_machine_that_died_is_followed_by_the_other() {
    let lab = Lab::new(40);
    let mut first = start(&lab.ada, "ada", &["up"]);
    drop(until(&mut first, "clone"));
    first.kill().unwrap();
    first.wait().unwrap();
    let early = castle(&lab.bob, "bob", &["up"]);
    assert!(early.code == Some(3) && early.stderr.contains(" s more"), "{}", early.transcript());
    // Minutes pass.
    lab.bucket.amend("lease", |bytes| {
        let mut holder: Value = serde_json::from_slice(bytes).unwrap();
        holder["heartbeat_unix"] = (holder["heartbeat_unix"].as_u64().unwrap() - 600).into();
        resealed(&holder)
    });
    assert!(castle(&lab.bob, "bob", &["lease", "show"]).stdout.ends_with("(probably dead)\n"));
    let up = castle(&lab.bob, "bob", &["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    assert!(up.stderr.contains("watching for 30 s"), "{}", up.transcript());
    let status = castle(&lab.bob, "bob", &["status", "--deep", "--json"]).result();
    assert_eq!((&status["standing"], &status["generation"]), (&true.into(), &1.into()), "{status}");
    // No orphan, no duplicate.
    let down = castle(&lab.bob, "bob", &["down", "--yes", "--json"]).result();
    assert_eq!(down["gone"].as_array().unwrap().len(), 4, "{down}");
}

#[test]
fn a_machine_that_slept_is_stopped_before_its_next_effect() {
    let lab = Lab::new(20);
    let mut asleep = start(&lab.ada, "ada", &["up"]);
    let rest = until(&mut asleep, "download");
    signal(&asleep, "-STOP");
    let taken = castle(&lab.bob, "bob", &["lease", "take", "--yes"]);
    assert!(taken.stdout.contains("is free, at epoch 2"), "{}", taken.transcript());
    signal(&asleep, "-CONT");
    let rest: Vec<String> = rest.collect();
    let ended = asleep.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("the lease was taken by bob@"), "{rest:?} {said}");
    let up = castle(&lab.bob, "bob", &["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    let status = castle(&lab.bob, "bob", &["status", "--deep", "--json"]).result();
    assert_eq!(status["standing"], true, "{status}");
    let down = castle(&lab.bob, "bob", &["down", "--yes", "--json"]).result();
    assert_eq!(down["gone"].as_array().unwrap().len(), 4, "{down}");
}
