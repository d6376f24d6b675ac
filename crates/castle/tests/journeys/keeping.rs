//! `castle state` and `castle lease`: what is remembered of a castle, and who is writing.

use std::sync::Arc;

use castle_engine::{Applicant, DirectoryStore, Layer, Lease, Memory, Seal, State, Store, Taking, lineage};
use castle_seams::{BoxFuture, Clock, Disk, SystemClock, SystemDisk, SystemEntropy};
use serde_json::json;
use zeroize::Zeroizing;

use crate::problems::GOOD;
use crate::world::World;

const KEY: &str = "blue/proxmox";
const KEYS: &str = ".config/sops/age/keys.txt";

fn wait<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

fn identity() -> Zeroizing<String> {
    use age::secrecy::ExposeSecret;
    Zeroizing::new(age::x25519::Identity::generate().to_string().expose_secret().to_owned())
}

fn store(world: &World) -> Arc<dyn Store> {
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    Arc::new(DirectoryStore::new(disk, &world.path(".local/state/castle")))
}

/// A world with a castle of which three records of one layer are kept.
fn raised() -> World {
    let (world, identity) = (World::with_castle(GOOD), identity());
    world.write(KEYS, format!("# created: today\n{}\n", identity.as_str()));
    wait(async {
        let castle = lineage::find_or_found(store(&world).as_ref(), KEY, &SystemEntropy).await.unwrap();
        let seal = Seal::own(&[identity]).unwrap();
        seal.prove().unwrap();
        let doors: (Arc<dyn Clock>, _) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy) as _);
        let mut state = State::new(store(&world), seal, castle, doors, "me@here", Memory::default());
        for number in 1..=3 {
            state.write(&Layer::new("platform"), json!({"vms": number}), 7).await.unwrap();
        }
    });
    world
}

#[test]
fn of_a_castle_that_was_never_raised_nothing_is_remembered() {
    let world = World::with_castle(GOOD);
    let ran = world.castle(&["state", "show"]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    assert!(ran.stdout.starts_with("Nothing is remembered of blue on proxmox in "), "{}", ran.stdout);
    assert_eq!(world.castle(&["lease", "show"]).stdout, "Nobody works on blue on proxmox\n");
    assert_eq!(world.files(), ["castle.yaml"], "looking leaves no trace");
}

#[test]
fn records_are_shown_listed_and_restored() {
    let world = raised();
    let shown = world.castle(&["state", "show"]);
    assert_eq!(shown.code, Some(0), "{}", shown.transcript());
    assert!(shown.stdout.contains("layer     record  epoch  written"), "{}", shown.stdout);
    assert!(shown.stdout.contains("platform  3       7      "), "{}", shown.stdout);
    let history = world.castle(&["state", "history", "platform", "--json"]).result();
    let serials: Vec<u64> =
        history["records"].as_array().unwrap().iter().map(|record| record["serial"].as_u64().unwrap()).collect();
    assert_eq!(serials, [1, 2, 3]);

    let refused = world.castle(&["state", "restore", "platform", "1"]);
    assert_eq!((refused.code, refused.stderr.contains("give --yes")), (Some(3), true), "{}", refused.transcript());
    let restored = world.castle(&["state", "restore", "platform", "1", "--yes"]);
    assert_eq!(restored.stdout, "Record 1 of platform is now its newest, record 4.\n", "{}", restored.transcript());
    let newest = world.castle(&["state", "show", "--json"]).result();
    assert_eq!((&newest["records"][0]["serial"], &newest["records"][0]["payload"]), (&json!(4), &json!({"vms": 1})));
    assert_eq!(
        world.castle(&["lease", "show"]).stdout,
        "Nobody works on blue on proxmox\n",
        "and the lock was given back"
    );
    for file in world.files().iter().filter(|file| file.starts_with(".local/")) {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(world.path(file)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let world = raised();
    let failed = |what: &str| {
        let ran = world.castle(&["state", "show"]);
        assert_eq!((ran.code, ran.stderr.contains(what)), (Some(1), true), "{what}: {}", ran.transcript());
    };
    let keys = world.read(KEYS);
    world.write(KEYS, identity().as_str());
    failed("none of the 1 age identities opens it (looked at ");
    for place in ["keys.txt: age1", ".ssh/id_ed25519", "embedded.agekey", "SOPS_AGE_KEY_FILE", "SOPS_AGE_KEY_CMD"] {
        failed(place);
    }
    world.write(KEYS, "nonsense");
    failed("keys.txt: line 1 holds no age identity");
    std::fs::remove_file(world.path(KEYS)).unwrap();
    failed("there is no age identity: make one with `age-keygen");
    failed("not set: SOPS_AGE_SSH_PRIVATE_KEY_FILE, SOPS_AGE_KEY, ");
    // From everywhere else where sops looks.
    world.write("elsewhere", &keys);
    for (name, value) in [
        ("SOPS_AGE_KEY", keys.lines().last().unwrap()),
        ("SOPS_AGE_KEY_FILE", "elsewhere"),
        ("SOPS_AGE_KEY_CMD", "cat elsewhere"),
    ] {
        let ran = world.castle_with(&["state", "show"], &[(name, value)]);
        assert_eq!(ran.code, Some(0), "{name}: {}", ran.transcript());
    }
    let ran = world.castle_with(&["state", "show"], &[("SOPS_AGE_KEY_FILE", "nowhere")]);
    assert!(ran.code == Some(1) && ran.stderr.contains("SOPS_AGE_KEY_FILE nowhere: "), "{}", ran.transcript());
    world.write(KEYS, &keys);

    // Someone removes the newest record: this machine has seen it.
    assert_eq!(world.castle(&["state", "show"]).code, Some(0));
    std::fs::remove_file(world.path(".local/state/castle/blue/proxmox/state/platform/000000000003")).unwrap();
    failed("platform is at serial 2, but 3 has been seen");
    let invalid = World::with_castle("castle: Blue\n").castle(&["state", "show"]);
    assert_eq!((invalid.code, invalid.stderr.contains("castle check .")), (Some(4), true), "{}", invalid.transcript());
}

/// A castle in the embedded datacenter whose records are sealed for the identity that castle made by itself.
fn raised_in_the_simulation() -> World {
    let (world, identity) = (World::with_castle(crate::room::BLUE), identity());
    world.write(EMBEDDED, format!("{}\n", identity.as_str()));
    wait(async {
        let castle = lineage::find_or_found(store(&world).as_ref(), "blue/embedded", &SystemEntropy).await.unwrap();
        let doors: (Arc<dyn Clock>, _) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy) as _);
        let seal = Seal::own(&[identity]).unwrap();
        let mut state = State::new(store(&world), seal, castle, doors, "me@here", Memory::default());
        state.write(&Layer::new("platform"), json!({"vms": 1}), 7).await.unwrap();
    });
    world
}

const EMBEDDED: &str = ".local/state/castle/embedded.agekey";

/// Goal: a key of one's own takes no castle away. Method: records of a simulated castle, then keys.txt; then the embedded identity goes.
#[test]
fn whoever_gets_an_age_identity_keeps_the_embedded_one() {
    let world = raised_in_the_simulation();
    assert_eq!(world.castle(&["state", "show"]).code, Some(0));
    world.write(KEYS, format!("{}\n", identity().as_str()));
    let shown = world.castle(&["state", "show"]);
    assert_eq!(shown.code, Some(0), "{}", shown.transcript());
    assert_eq!(world.castle(&["state", "restore", "platform", "1", "--yes"]).code, Some(0));
    let embedded = world.read(EMBEDDED);
    std::fs::remove_file(world.path(EMBEDDED)).unwrap();
    let shown = world.castle(&["state", "show"]);
    assert_eq!(shown.code, Some(0), "what is written now is for both: {}", shown.transcript());
    assert!(!world.path(EMBEDDED).exists(), "and none is made for who has another");
    world.write(EMBEDDED, &embedded);
    world.write(KEYS, "nonsense\n");
    let shown = world.castle(&["state", "show"]);
    assert_eq!(shown.code, Some(0), "what is in the way of one does not hinder the other: {}", shown.transcript());
    std::fs::remove_file(world.path(KEYS)).unwrap();
    world.write(EMBEDDED, "AGE-SECRET");
    let shown = world.castle(&["state", "show"]);
    assert!(
        shown.stderr.contains("embedded.agekey is damaged\n  next: put it back from a copy"),
        "{}",
        shown.transcript()
    );
}

/// A key of SSH seals the state of who has no other, and opens it for who has another later.
#[test]
fn a_key_of_ssh_will_do() {
    let Ok(made) = std::process::Command::new("ssh-keygen").arg("-?").output() else {
        return castle_testbed::skipped("there is no ssh-keygen here");
    };
    drop(made);
    let world = World::with_castle(GOOD);
    world.write(".ssh/placeholder", "");
    let ran = world.run(std::process::Command::new("ssh-keygen").args([
        "-q",
        "-t",
        "ed25519",
        "-N",
        "",
        "-f",
        ".ssh/id_ed25519",
    ]));
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    let public = world.read(".ssh/id_ed25519.pub");
    wait(async {
        let castle = lineage::find_or_found(store(&world).as_ref(), KEY, &SystemEntropy).await.unwrap();
        let doors: (Arc<dyn Clock>, _) = (Arc::new(SystemClock::new()), Arc::new(SystemEntropy) as _);
        // Whoever wrote it had another key, too: what is written is read again at once.
        let other = age::x25519::Identity::generate();
        let words = Zeroizing::new(age::secrecy::ExposeSecret::expose_secret(&other.to_string()).to_owned());
        let seal = Seal::new(&[public.trim().to_owned(), other.to_public().to_string()], &[words]).unwrap();
        let mut state = State::new(store(&world), seal, castle, doors, "me@here", Memory::default());
        state.write(&Layer::new("platform"), json!({"vms": 1}), 7).await.unwrap();
    });
    assert_eq!(world.castle(&["state", "restore", "platform", "1", "--yes"]).code, Some(0));
    world.write(KEYS, format!("{}\n", identity().as_str()));
    let shown = world.castle(&["state", "show"]);
    assert_eq!(shown.code, Some(0), "{}", shown.transcript());
}

/// A clock that is late by some minutes: a lease taken under it looks old.
struct Late(SystemClock);

impl Clock for Late {
    fn monotonic(&self) -> std::time::Duration {
        self.0.monotonic()
    }

    fn wall(&self) -> std::time::SystemTime {
        self.0.wall() - std::time::Duration::from_secs(600)
    }

    fn sleep(&self, duration: std::time::Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

fn take(world: &World, clock: Arc<dyn Clock>) -> Lease {
    let elsewhere = Applicant { owner: "you@elsewhere".to_owned(), machine: "elsewhere".to_owned(), seen_epoch: 0 };
    wait(Lease::take(store(world), KEY, (clock, &SystemEntropy), &elsewhere, Taking::Politely)).unwrap()
}

#[test]
fn who_holds_the_lock_is_shown_and_can_be_relieved() {
    let world = World::with_castle(GOOD);
    let lease = take(&world, Arc::new(SystemClock::new()));
    let shown = world.castle(&["lease", "show"]).stdout;
    assert!(
        shown.starts_with("you@elsewhere works on blue on proxmox under epoch 1; ") && shown.ends_with("(alive)\n"),
        "{shown}"
    );
    let refused = world.castle(&["lease", "take"]);
    assert_eq!((refused.code, refused.stderr.contains("give --yes")), (Some(3), true), "{}", refused.transcript());
    let taken = world.castle(&["lease", "take", "--yes"]);
    assert!(taken.stdout.contains("is free, at epoch 2"), "{}", taken.transcript());
    assert!(wait(castle_engine::Fence::check(&lease)).unwrap_err().is_final(), "the other stops");
}

#[test]
fn a_lock_left_by_a_dead_machine_is_told_from_a_living_one() {
    let world = World::with_castle(GOOD);
    take(&world, Arc::new(Late(SystemClock::new())));
    let shown = world.castle(&["lease", "show"]).stdout;
    assert!(shown.ends_with("last sign of life 10 min ago (probably dead)\n"), "{shown}");
    assert_eq!(world.castle(&["lease", "show", "--json"]).result()["alive"], json!(false));
}

/// Killed with the lock in hand, on this machine: the next one does not wait for it to run out.
#[test]
fn a_lock_left_by_a_killed_castle_on_this_machine_is_no_hindrance() {
    let world = raised();
    assert_eq!(world.castle(&["lease", "take", "--yes"]).code, Some(0));
    let machine = world.read(".local/state/castle/.machine");
    let killed = Applicant { owner: "me@here".to_owned(), machine, seen_epoch: 0 };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    wait(Lease::take(store(&world), KEY, (clock, &SystemEntropy), &killed, Taking::Politely)).unwrap();
    assert!(world.castle(&["lease", "show"]).stdout.contains("(alive)"));
    let ran = world.castle(&["state", "restore", "platform", "1", "--yes"]);
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    let elsewhere = take(&world, Arc::new(SystemClock::new()));
    let ran = world.castle(&["state", "restore", "platform", "1", "--yes"]);
    assert!(ran.stderr.contains("you@elsewhere works on this castle since epoch 4"), "{}", ran.transcript());
    drop(elsewhere);
}

#[test]
fn two_on_one_machine_take_turns() {
    let world = raised();
    let held = SystemDisk.try_lock(&world.path(".local/state/castle/blue/proxmox/.writer"), 0o600).unwrap();
    let ran = world.castle(&["state", "restore", "platform", "1", "--yes"]);
    assert!(ran.stderr.contains("another castle on this machine works on blue on proxmox"), "{}", ran.transcript());
    drop(held);
    assert_eq!(world.castle(&["state", "restore", "platform", "1", "--yes"]).code, Some(0));
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named() {
    let world = raised();
    world.write("file", "");
    let command = format!(
        "CASTLE_STATE_DIR={}/below exec {} lease take --yes",
        world.path("file").display(),
        env!("CARGO_BIN_EXE_castle")
    );
    let ran = world.run(std::process::Command::new("sh").args(["-c", &command]));
    assert_eq!((ran.code, ran.stderr.contains("/file")), (Some(1), true), "{}", ran.transcript());
}
