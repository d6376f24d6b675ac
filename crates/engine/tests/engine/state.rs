//! Sealed records: who can read them, who can write them, and what is noticed.

use std::path::Path;
use std::sync::Arc;

use castle_engine::{CastleId, DirectoryStore, Layer, Memory, Seal, SealError, State, StateError, Store};
use castle_seams::{Clock, Disk};
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};
use serde_json::json;
use zeroize::Zeroizing;

pub(crate) fn keys() -> (String, Zeroizing<String>) {
    use age::secrecy::ExposeSecret;
    let identity = age::x25519::Identity::generate();
    (identity.to_public().to_string(), Zeroizing::new(identity.to_string().expose_secret().to_owned()))
}

fn castle() -> CastleId {
    CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 }
}

fn layer() -> Layer {
    Layer::new("platform")
}

fn store(disk: &ModelDisk) -> Arc<dyn Store> {
    let doors: Arc<dyn Disk> = Arc::new(disk.clone());
    Arc::new(DirectoryStore::new(doors, Path::new("/state")))
}

struct Operator {
    recipients: Vec<String>,
    identity: Zeroizing<String>,
    memory: Memory,
    seed: u64,
}

impl Operator {
    fn new(seed: u64) -> Self {
        let (public, identity) = keys();
        Self { recipients: vec![public], identity, memory: Memory::default(), seed }
    }

    fn state(&self, disk: &ModelDisk, clock: &VirtualClock) -> State {
        let seal = Seal::new(&self.recipients, std::slice::from_ref(&self.identity)).unwrap();
        let clock: Arc<dyn Clock> = Arc::new(*clock);
        State::new(
            store(disk),
            seal,
            castle(),
            (clock, Arc::new(Chance::new(self.seed))),
            "me@here",
            self.memory.clone(),
        )
    }
}

#[test]
fn what_is_written_is_read_again_and_nobody_else_can() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let (mine, other) = (Operator::new(1), Operator::new(2));
        let mut state = mine.state(&disk, clock);
        assert_eq!(state.latest(&layer()).await.unwrap(), None);
        let canary = "a word that must not be found";
        assert_eq!(state.write(&layer(), json!({"note": canary}), 3).await.unwrap(), 1);
        let record = mine.state(&disk, clock).latest(&layer()).await.unwrap().unwrap();
        assert_eq!((record.serial, record.epoch, record.writer.as_str()), (1, 3, "me@here"));
        assert_eq!(record.payload, json!({"note": canary}));
        let error = other.state(&disk, clock).latest(&layer()).await.unwrap_err();
        assert!(matches!(error, StateError::Seal { error: SealError::WrongKey { count: 1, .. }, .. }), "{error}");
        for (path, content) in disk.contents() {
            assert!(
                !content.windows(canary.len()).any(|part| part == canary.as_bytes()),
                "in clear in {}",
                path.display()
            );
        }
        let doors: &dyn Disk = &disk;
        for path in disk.contents().keys() {
            assert_eq!(doors.metadata(path).unwrap().mode, 0o600, "{}", path.display());
        }
    });
}

#[test]
fn several_recipients_read_each_others_records() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let (mut one, mut two) = (Operator::new(1), Operator::new(2));
        let all = [one.recipients.clone(), two.recipients.clone()].concat();
        (one.recipients, two.recipients) = (all.clone(), all);
        one.state(&disk, clock).write(&layer(), json!(1), 1).await.unwrap();
        let mut state = two.state(&disk, clock);
        assert_eq!(state.latest(&layer()).await.unwrap().unwrap().payload, json!(1));
        state.write(&layer(), json!(2), 2).await.unwrap();
        assert_eq!(one.state(&disk, clock).latest(&layer()).await.unwrap().unwrap().payload, json!(2));
    });
}

#[test]
fn of_two_writers_one_is_overtaken_and_the_record_is_the_others() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let operator = Operator::new(1);
        let (mut one, mut two) = (operator.state(&disk, clock), operator.state(&disk, clock));
        one.latest(&layer()).await.unwrap();
        two.latest(&layer()).await.unwrap();
        one.write(&layer(), json!("one"), 1).await.unwrap();
        let error = two.write(&layer(), json!("two"), 1).await.unwrap_err();
        assert!(matches!(error, StateError::Overtaken { .. }), "{error}");
        assert_eq!(operator.state(&disk, clock).latest(&layer()).await.unwrap().unwrap().payload, json!("one"));
    });
}

#[test]
fn the_last_generations_are_kept_and_an_old_one_can_be_written_anew() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let mut state = Operator::new(1).state(&disk, clock);
        for number in 1..=20 {
            state.write(&layer(), json!(number), 1).await.unwrap();
        }
        let history = state.history(&layer()).await.unwrap();
        assert_eq!((history.len(), history.first(), history.last()), (10, Some(&11), Some(&20)), "at least five");
        let old = state.read(&layer(), 13).await.unwrap();
        assert_eq!(state.write(&layer(), old.payload, 1).await.unwrap(), 21);
        assert_eq!(state.latest(&layer()).await.unwrap().unwrap().payload, json!(13));
    });
}

#[test]
fn records_that_were_moved_forged_or_taken_back_are_noticed() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let mut mine = Operator::new(1);
        let mut state = mine.state(&disk, clock);
        state.write(&layer(), json!(1), 1).await.unwrap();
        state.write(&layer(), json!(2), 1).await.unwrap();
        mine.memory = state.memory().clone();
        let path = |serial: u64| std::path::PathBuf::from(format!("/state/blue/state/platform/{serial:012}"));
        let files = disk.contents();

        // The first put in the place of a third.
        disk.tamper(&path(3), files[&path(1)].clone());
        let error = mine.state(&disk, clock).latest(&layer()).await.unwrap_err();
        assert!(matches!(error, StateError::Mistaken { .. }), "{error}");

        // A third by someone who knows only the public key.
        let mut stranger = Operator { memory: mine.memory.clone(), ..Operator::new(9) };
        stranger.recipients.extend(mine.recipients.clone());
        let mut forging = stranger.state(&disk, clock);
        disk.tamper(&path(3), Vec::new());
        let doors: Arc<dyn Disk> = Arc::new(disk.clone());
        doors.remove_file(&path(3)).unwrap();
        forging.write(&layer(), json!("forged"), 1).await.unwrap();
        let error = mine.state(&disk, clock).latest(&layer()).await.unwrap_err();
        assert!(error.to_string().contains("does not know this castle"), "{error}");
        doors.remove_file(&path(3)).unwrap();

        // The newest taken away.
        doors.remove_file(&path(2)).unwrap();
        let error = mine.state(&disk, clock).latest(&layer()).await.unwrap_err();
        assert_eq!(error, StateError::RolledBack { layer: "platform".into(), found: 1, remembered: 2 });

        // A byte changed.
        let mut damaged = files[&path(1)].clone();
        *damaged.last_mut().unwrap() ^= 1;
        disk.tamper(&path(2), files[&path(2)].clone());
        disk.tamper(&path(1), damaged);
        let error = mine.state(&disk, clock).read(&layer(), 1).await.unwrap_err();
        assert!(matches!(error, StateError::Seal { error: SealError::Damaged(_), .. }), "{error}");
    });
}

#[test]
fn a_key_that_cannot_open_what_it_seals_is_found_before_the_first_effect() {
    let ((public, identity), (_, wrong)) = (keys(), keys());
    assert_eq!(Seal::new(std::slice::from_ref(&public), &[identity]).unwrap().prove(), Ok(()));
    assert_eq!(
        Seal::new(&[public], &[wrong]).unwrap().prove(),
        Err(SealError::WrongKey { count: 1, places: Vec::new() })
    );
    assert_eq!(Seal::new(&[], &[]).map(|_| ()).unwrap_err(), SealError::NoRecipient);
    let error = Seal::new(&["age1nonsense".into()], &[]).map(|_| ()).unwrap_err();
    assert_eq!(error, SealError::BadRecipient(1));
}

#[test]
fn a_record_of_a_newer_castle_is_left_alone() {
    in_virtual_time(async |clock| {
        let disk = ModelDisk::new(&Pulse::new());
        let operator = Operator::new(1);
        let seal = Seal::new(&operator.recipients, &[]).unwrap();
        let sealed = seal.seal(&serde_json::to_vec(&json!({"format": 9, "new": "things"})).unwrap(), b"key").unwrap();
        let path = Path::new("/state/blue/state/platform/000000000001");
        disk.tamper(path, sealed.clone());
        let error = operator.state(&disk, clock).latest(&layer()).await.unwrap_err();
        assert!(matches!(error, StateError::Newer { found: 9, .. }), "{error}");
        assert_eq!(disk.contents()[path], sealed);
    });
}

#[test]
fn an_identity_is_one_of_ages_own_and_the_same_for_the_same_chance() {
    use age::secrecy::ExposeSecret as _;
    let mint = |seed| Seal::mint_identity(&Chance::new(seed)).unwrap();
    let identity: age::x25519::Identity = mint(1).parse().unwrap();
    assert_eq!(identity.to_string().expose_secret(), mint(1).as_str(), "as age itself writes it");
    assert_ne!(mint(1), mint(2));
    Seal::own(&[mint(1)]).unwrap().prove().unwrap();
}
