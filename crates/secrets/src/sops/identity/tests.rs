use std::cell::RefCell;
use std::io::Write;
use std::sync::LazyLock;

use castle_seams::{SystemDisk, SystemEntropy};
use zeroize::Zeroizing;

mod ssh;

use super::*;
use crate::sops::metadata::Wrapped;
use crate::sops::recipient;

/// An identity, made for this run.
static IDENTITY: LazyLock<Zeroizing<String>> =
    LazyLock::new(|| castle_engine::Seal::mint_identity(&SystemEntropy).unwrap());
/// A key of SSH, made for this run: its public half, itself, and itself locked by the passphrase `castle`.
static SSH: LazyLock<[String; 3]> = LazyLock::new(ssh::key);

fn group(recipients: &[&str]) -> Group {
    let wrap =
        |name: &&str| Wrapped { recipient: (*name).to_owned(), armored: recipient::wrap(name, b"data key").unwrap() };
    Group { age: recipients.iter().map(wrap).collect(), foreign: Vec::new() }
}

fn own() -> Group {
    let public = IDENTITY.parse::<age::x25519::Identity>().unwrap().to_public().to_string();
    group(&[&public])
}

struct World {
    folder: tempfile::TempDir,
    variables: BTreeMap<String, Secret>,
    printed: Result<String, String>,
    passphrase: Option<String>,
    asked: RefCell<Vec<String>>,
}

impl World {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut world = Self {
            folder,
            variables: BTreeMap::new(),
            printed: Err("it is not there".to_owned()),
            passphrase: None,
            asked: RefCell::default(),
        };
        let home = world.folder.path().display().to_string();
        world.set("HOME", &home);
        world
    }

    fn set(&mut self, name: &str, value: &str) {
        self.variables.insert(name.to_owned(), Secret::from(value.to_owned()));
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.folder.path().join(name);
        SystemDisk.create_dir_all(path.parent().unwrap(), 0o700).unwrap();
        SystemDisk.replace(&path, content, 0o600).unwrap();
        path.display().to_string()
    }

    /// What is opened, which identities there are, and what was in the way.
    fn unwrap(&self, group: &Group) -> (bool, Vec<String>, Vec<String>) {
        let run = |command: &Command| {
            self.asked.borrow_mut().push(format!("{:?} for {}", command.words, command.recipient));
            self.printed.clone().map(Secret::from)
        };
        let passphrase = |what: &str| {
            self.asked.borrow_mut().push(what.to_owned());
            self.passphrase.clone().map(Secret::from)
        };
        let around = Surroundings {
            variables: self.variables.clone(),
            more: Vec::new(),
            disk: &SystemDisk,
            run: &run,
            passphrase: &passphrase,
        };
        let mut keyring = Keyring::gather(&around);
        let found = keyring.unwrap(group);
        assert!(found.as_ref().is_none_or(|found| found.as_slice() == b"data key"));
        let tried = keyring.tried();
        assert!(!format!("{tried:?}{:?}", keyring.places()).contains("AGE-SECRET-KEY-1"));
        (found.is_some(), tried, keyring.remarks().to_vec())
    }

    fn opens(&self, group: &Group) -> bool {
        self.unwrap(group).0
    }
}

#[test]
fn identities_are_found_wherever_sops_finds_them() {
    let content = format!("# created: today\n# public key: x\n{}\n", **IDENTITY);
    assert!(!World::new().opens(&own()));

    let mut world = World::new();
    world.set(KEY, &format!("{identity} {identity}", identity = **IDENTITY));
    assert!(world.opens(&own()));

    let mut world = World::new();
    let file = world.file("somewhere/keys", content.as_bytes());
    world.set(KEY_FILE, &file);
    assert!(world.opens(&own()));

    let world = World::new();
    let usual = if cfg!(target_os = "macos") {
        "Library/Application Support/sops/age/keys.txt"
    } else {
        ".config/sops/age/keys.txt"
    };
    world.file(usual, content.as_bytes());
    assert!(world.opens(&own()));

    let mut world = World::new();
    let folder = world.folder.path().join("xdg").display().to_string();
    world.file("xdg/sops/age/keys.txt", content.as_bytes());
    world.set("XDG_CONFIG_HOME", &folder);
    assert!(world.opens(&own()));

    let mut world = World::new();
    world.set(KEY_COMMAND, "pass show 'age key'");
    world.printed = Ok(content);
    let own = own();
    assert!(world.opens(&own));
    assert_eq!(*world.asked.borrow(), [format!("[\"pass\", \"show\", \"age key\"] for {}", own.age[0].recipient)]);
}

#[test]
fn keys_of_ssh_open_what_is_for_them() {
    let ssh = group(&[SSH[0].trim()]);
    let world = World::new();
    world.file(".ssh/id_ed25519", SSH[1].as_bytes());
    assert!(world.opens(&ssh));

    let mut world = World::new();
    let file = world.file("key", SSH[1].as_bytes());
    world.set(SSH_FILE, &file);
    let (opened, tried, _) = world.unwrap(&ssh);
    assert!(opened);
    let public = SSH[0].trim().rsplit_once(' ').unwrap().0;
    assert_eq!(tried, [format!("{SSH_FILE} {file}: {public}")]);

    let mut world = World::new();
    world.set(SSH_COMMAND, "agent");
    world.printed = Ok(SSH[1].clone());
    assert!(world.opens(&ssh));
}

#[test]
fn a_passphrase_is_asked_for_only_if_it_may_help() {
    let ssh = group(&[SSH[0].trim()]);
    let mut world = World::new();
    let file = world.file(".ssh/id_ed25519", SSH[2].as_bytes());
    assert!(!world.opens(&own()), "age keys are not opened by it");
    assert!(world.asked.borrow().is_empty());
    let (opened, tried, remarks) = world.unwrap(&ssh);
    assert!(!opened && tried[0].ends_with("(locked by a passphrase)"), "{tried:?}");
    assert_eq!(remarks, [format!("{file} is locked, and there is nobody to ask for its passphrase")]);
    world.passphrase = Some("wrong".to_owned());
    assert_eq!(world.unwrap(&ssh).2, [format!("{file} did not open: wrong passphrase?")]);
    world.passphrase = Some("castle".to_owned());
    assert!(world.opens(&ssh));

    let mut world = World::new();
    let file = world.file("locked.age", &locked());
    world.set(KEY_FILE, &file);
    assert!(!world.opens(&own()));
    world.passphrase = Some("castle".to_owned());
    assert!(world.opens(&own()));
    assert_eq!(world.asked.borrow()[0], format!("{KEY_FILE} {file}"));
}

#[test]
fn what_cannot_be_used_is_remarked() {
    let mut world = World::new();
    world.set(KEY_FILE, "/nowhere/keys.txt");
    world.set(SSH_COMMAND, "'open");
    world.set(KEY, "AGE-SECRET-KEY-PQ-1X AGE-PLUGIN-YUBIKEY-1X nonsense");
    world.set(KEY_COMMAND, "absent");
    world.file(".ssh/id_rsa", b"nonsense");
    let remarks = world.unwrap(&own()).2;
    for wanted in [
        "id_rsa is not a private key of SSH",
        "line 1 holds a post-quantum identity",
        "line 1 holds an identity of a plugin",
        "line 1 holds no age identity",
        "/nowhere/keys.txt",
        "SOPS_AGE_SSH_PRIVATE_KEY_CMD is not a command line",
        "SOPS_AGE_KEY_CMD: it is not there",
    ] {
        assert!(remarks.iter().any(|remark| remark.contains(wanted)), "{wanted}: {remarks:?}");
    }
}

/// Goal: what is sealed with age alone is opened by identities from the same places. Method: each place in turn, and what is in the way.
#[test]
fn the_words_of_age_identities_come_from_the_same_places() {
    let found = |world: &World, recipients: &[String]| {
        let run = |command: &Command| {
            world.asked.borrow_mut().push(command.recipient.clone());
            world.printed.clone().map(Secret::from)
        };
        let passphrase = |what: &str| {
            world.asked.borrow_mut().push(what.to_owned());
            world.passphrase.clone().map(Secret::from)
        };
        let around = Surroundings {
            variables: world.variables.clone(),
            more: Vec::new(),
            disk: &SystemDisk,
            run: &run,
            passphrase: &passphrase,
        };
        let mut ring = Keyring::gather(&around);
        let words = ring.own(recipients);
        if let ([], hindrances @ [_, ..]) = (words.as_slice(), ring.hindrances().as_slice()) {
            return Err(hindrances.join("; "));
        }
        assert!(words.iter().all(|words| words.expose() == IDENTITY.as_str()));
        Ok::<_, String>(words.len())
    };
    assert_eq!(found(&World::new(), &[]), Ok(0));

    let mut world = World::new();
    world.set(KEY, &IDENTITY);
    let file = world.file("keys", format!("# created: today\n{}\n", **IDENTITY).as_bytes());
    world.set(KEY_FILE, &file);
    world.file(".config/sops/age/keys.txt", format!("{}\nAGE-SECRET-KEY-PQ-1X\n", **IDENTITY).as_bytes());
    world.set(KEY_COMMAND, "prints");
    world.file(".ssh/id_ed25519", SSH[1].as_bytes());
    world.file(".ssh/id_rsa", b"nonsense");
    assert_eq!(found(&world, &[]), Ok(3), "and keys of SSH are not among them");
    assert!(world.asked.borrow().is_empty(), "who has some is asked for nothing");
    world.set(KEY_FILE, "/nowhere/keys.txt");
    assert_eq!(found(&world, &[]), Ok(2), "what cannot be read takes no other away");

    // By root, everything can be read but a folder.
    let mut world = World::new();
    world.set(KEY_FILE, "/nowhere/keys.txt");
    SystemDisk.create_dir_all(&world.folder.path().join(".config/sops/age/keys.txt"), 0o700).unwrap();
    let why = found(&world, &[]).unwrap_err();
    assert!(why.starts_with("SOPS_AGE_KEY_FILE /nowhere/keys.txt: "), "what is named must be there: {why}");
    assert!(why.contains("/.config/sops/age/keys.txt: "), "{why}");

    let mut world = World::new();
    world.set(KEY_COMMAND, "prints");
    assert_eq!(found(&world, &[]), Err("SOPS_AGE_KEY_CMD: it is not there".to_owned()));
    world.printed = Ok(IDENTITY.to_string());
    assert_eq!(found(&world, &["age1a".to_owned(), "age1b".to_owned()]), Ok(1));
    assert_eq!(*world.asked.borrow(), ["", "age1a"], "whose is told, and one is enough");

    let mut world = World::new();
    let file = world.file(".config/sops/age/keys.txt", &locked());
    let why = found(&world, &[]).unwrap_err();
    assert_eq!(why, format!("{file} is locked, and there is nobody to ask for its passphrase"));
    world.passphrase = Some("castle".to_owned());
    assert_eq!(found(&world, &[]), Ok(1));
}

/// Goal: identities add up, and an error names all places. Method: a file for another key and one for a key of SSH are opened by a ring that has
/// other identities, too; then by one that has none of them.
#[test]
fn a_file_of_age_alone_is_opened_by_whatever_is_at_hand() {
    let sealed_for = |recipient: &str| {
        let recipient: Box<dyn age::Recipient> = match recipient.parse::<age::x25519::Recipient>() {
            Ok(recipient) => Box::new(recipient),
            Err(_) => Box::new(recipient.parse::<age::ssh::Recipient>().unwrap()),
        };
        let encryptor = age::Encryptor::with_recipients(std::iter::once(recipient.as_ref())).unwrap();
        let mut sealed = Vec::new();
        let mut writer = encryptor.wrap_output(&mut sealed).unwrap();
        writer.write_all(b"a record").unwrap();
        writer.finish().unwrap();
        sealed
    };
    let public = IDENTITY.parse::<age::x25519::Identity>().unwrap().to_public().to_string();
    let (for_age, for_ssh) = (sealed_for(&public), sealed_for(SSH[0].trim()));
    let open = |world: &World, more: Vec<PathBuf>, file: &[u8]| {
        let passphrase = |what: &str| {
            world.asked.borrow_mut().push(what.to_owned());
            world.passphrase.clone().map(Secret::from)
        };
        let run = |_: &Command| world.printed.clone().map(Secret::from);
        let (variables, disk) = (world.variables.clone(), &SystemDisk);
        let around = Surroundings { variables, more, disk, run: &run, passphrase: &passphrase };
        let mut ring = Keyring::gather(&around);
        let first = ring.open(file, &[]).is_some_and(|inside| inside.as_slice() == b"a record");
        let mut again = Keyring::resume(&around, ring.into_found());
        assert_eq!(again.open(file, &[]).is_some(), first, "what was unlocked stays so");
        (first, again.publics(), again.places().join("; "))
    };
    let other = castle_engine::Seal::mint_identity(&SystemEntropy).unwrap();
    let mut world = World::new();
    world.set(KEY, &other);
    let spare = PathBuf::from(world.file("spare.agekey", IDENTITY.as_bytes()));
    let (opened, publics, places) = open(&world, vec![spare.clone()], &for_age);
    assert!(
        opened && publics.len() == 1 && !publics.contains(&public),
        "nothing is sealed for a spare one: {publics:?}"
    );
    assert!(places.contains(&format!("{}: {public}", spare.display())), "{places}");
    let (opened, _, places) = open(&world, Vec::new(), &for_age);
    let ssh = world.folder.path().join(".ssh/id_ed25519").display().to_string();
    assert!(!opened, "{places}");
    for place in [KEY, KEY_FILE, KEY_COMMAND, SSH_FILE, SSH_COMMAND, "sops/age/keys.txt", &ssh, "id_rsa"] {
        assert!(places.contains(place), "{place}: {places}");
    }

    world.file(".ssh/id_ed25519", SSH[1].as_bytes());
    assert!(open(&world, Vec::new(), &for_ssh).0);
    world.file(".ssh/id_ed25519", SSH[2].as_bytes());
    assert!(!open(&world, Vec::new(), &for_age).0);
    assert!(world.asked.borrow().is_empty(), "a key of SSH does not help there");
    world.passphrase = Some("castle".to_owned());
    assert!(open(&world, Vec::new(), &for_ssh).0);
    assert_eq!(world.asked.borrow().len(), 1, "asked once");
}

/// The identity in a file that the passphrase `castle` protects.
fn locked() -> Vec<u8> {
    let mut recipient = age::scrypt::Recipient::new(SecretString::from("castle".to_owned()));
    recipient.set_work_factor(2);
    let encryptor = age::Encryptor::with_recipients(std::iter::once(&recipient as _)).unwrap();
    let mut locked = Vec::new();
    let mut writer = encryptor.wrap_output(&mut locked).unwrap();
    writer.write_all(IDENTITY.as_bytes()).unwrap();
    writer.finish().unwrap();
    locked
}

/// Found by fuzzing: a file that holds anything else was remarked upon line by line.
#[test]
fn much_that_is_wrong_is_said_once() {
    let mut world = World::new();
    world.set(KEY, &"nonsense\n".repeat(100_000));
    let remarks = world.unwrap(&own()).2;
    assert_eq!(remarks, ["SOPS_AGE_KEY: line 1 holds no age identity, and 99999 more of that kind"]);
}
