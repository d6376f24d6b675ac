//! Damaged files: what castle keeps of a castle that stands is emptied, cut, flipped, lost, or a folder is in its place. Every verb ends, names what is damaged and the way out,
//! and mints nothing; those that only look write nothing; and `adopt` mends it all.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use castle_datacenter::blueprint::Stranger;
use castle_engine::Seal;
use castle_layers::secrets;
use castle_rehearsal::{Chance, Loss, Moment};
use castle_testbed::draw;

use super::super::life::{At, Kill};
use super::super::script::STATE;
use super::of_records::strip;
use super::*;
use crate::keeping::Kept;

mod following;
mod manifests;
mod verbs;

use verbs::{CHANGING, ENDING, FOREIGN, LOOKING, NEWEST, PLAN, TREE, UNNAMED, Verb};

/// No verb takes longer, whatever is damaged: a raise within its own bounds, and a rest of two minutes.
const BOUND: Duration = Duration::from_secs(20 * 60);

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Emptied,
    Halved,
    Flipped,
    /// One digit inside of a value, or any bit of what is no text: it reads as well as before.
    Altered,
    Lost,
    Supplanted,
}

const DAMAGES: [Damage; 6] =
    [Damage::Emptied, Damage::Halved, Damage::Flipped, Damage::Altered, Damage::Lost, Damage::Supplanted];

/// What can happen to a file of these bytes: in a lock there is nothing to damage.
fn damages(bytes: &[u8]) -> impl Iterator<Item = Damage> + use<> {
    let is_lock = bytes.is_empty();
    DAMAGES.into_iter().filter(move |damage| !is_lock || matches!(damage, Damage::Lost | Damage::Supplanted))
}

/// Each of these files, and each damage to it.
fn damaged(files: &Files) -> impl Iterator<Item = (&Path, Damage)> {
    files.iter().flat_map(|(file, bytes)| damages(bytes).map(move |damage| (file.as_path(), damage)))
}

impl Damage {
    fn befall(self, life: &Life, file: &Path, whole: &[u8]) {
        let mut bytes = whole.to_vec();
        match self {
            Self::Emptied => bytes.clear(),
            Self::Halved => bytes.truncate(whole.len() / 2),
            Self::Flipped => bytes[whole.len() / 2] ^= 1,
            Self::Altered => bytes[altered(file, whole)] ^= 1,
            Self::Lost => return life.disk().lose(file),
            Self::Supplanted => return life.disk().supplant(file),
        }
        life.disk().tamper(file, bytes);
    }
}

/// Which byte of a file is altered: drawn, of its digits if it is text.
fn altered(file: &Path, whole: &[u8]) -> usize {
    let is_text = std::str::from_utf8(whole).is_ok();
    let digits: Vec<usize> = (0..whole.len()).filter(|at| is_text && whole[*at].is_ascii_digit()).collect();
    let mut hasher = DefaultHasher::new();
    (draw(), file).hash(&mut hasher);
    let drawn = usize::try_from(hasher.finish() % (1 << 20)).unwrap();
    digits.get(drawn % digits.len().max(1)).copied().unwrap_or(drawn % whole.len())
}

type Files = BTreeMap<PathBuf, Vec<u8>>;

/// What castle keeps.
fn kept(life: &Life) -> Files {
    life.disk().contents().into_iter().filter(|(path, _)| path.starts_with(STATE)).collect()
}

/// Brings back what there was.
fn restore(life: &Life, whole: &Files) {
    life.disk().lose(Path::new(STATE));
    for (path, bytes) in whole {
        life.disk().tamper(path, bytes.clone());
    }
}

/// The keys that castle may mint, and what they are.
fn keys(files: &Files) -> Files {
    let is_key = |path: &Path| path.to_string_lossy().ends_with("agekey");
    files.iter().filter(|(path, _)| is_key(path)).map(|(path, bytes)| (path.clone(), bytes.clone())).collect()
}

/// The small castle, with something in it that can be handed over.
fn furnished() -> String {
    SMALL.replace("vip: 127.42.0.10}", "vip: 127.42.0.10, loadBalancers: 127.42.0.200-127.42.0.210}")
}

/// The same, of somebody who has no key of their own: castle makes one.
fn keyless() -> Arc<Script> {
    let script = Arc::into_inner(written(&furnished())).unwrap();
    let mut variables = script.variables.as_ref().clone();
    variables.remove("SOPS_AGE_KEY");
    Arc::new(Script { variables: Arc::new(variables), ..script })
}

/// What is wrong, gathered: a table is read as a whole.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn unless(&mut self, is_right: bool, case: &str, what: &str, told: &Told) {
        if !is_right {
            let text: Vec<&str> = told.printed.text.lines().filter(|line| !line.contains(" s  ")).collect();
            self.0.push(format!("{case}: {what}: {} {text:?}", told.ending()));
        }
    }

    /// Holds that a verb ended, and told the way out if it did not work.
    fn unless_told(&mut self, told: &Told, case: &str) {
        self.unless(told.exit.is_some(), case, "did not end", told);
        self.unless(told.took <= BOUND, case, &format!("took {:?}", told.took), told);
        self.unless(!is_ill(told) || told.printed.text.contains("next: "), case, "tells no way out", told);
    }

    /// Holds besides that what is damaged was named. Of a file that is lost there may be nothing that could be.
    fn unless_named(&mut self, told: &Told, case: &str, (file, damage): (&Path, Damage)) {
        self.unless_told(told, case);
        let place = file.strip_prefix(STATE).unwrap_or(file).to_string_lossy();
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = &told.printed.text;
        // Everybody says `castle` and `lease`.
        let is_named = text.contains(&*place) || (name.contains(['.', '0']) && text.contains(&*name));
        // A folder in the place of the newest record is no record.
        let is_missed = damage == Damage::Supplanted && text.contains("has been seen: the store has lost");
        let is_told_otherwise =
            |(verb, name, _): &(&str, &str, &str)| case.contains(&format!(": {verb}")) && file.ends_with(name);
        let is_exempt = UNNAMED.iter().any(is_told_otherwise) || damage == Damage::Lost || is_missed;
        self.unless(!is_ill(told) || is_named || is_exempt, case, "does not name it", told);
    }

    #[track_caller]
    fn hold(self) {
        assert!(self.0.is_empty(), "{} of them:\n{}", self.0.len(), self.0.join("\n"));
    }
}

fn is_ill(told: &Told) -> bool {
    matches!(told.exit, Some(Exit::Failed | Exit::Refused | Exit::Invalid))
}

/// Runs a verb, which names records as they were before anything was damaged.
async fn run(life: &Life, verb: Verb, whole: &Files) -> Told {
    // A machine of the castle that nobody can tell for one, while it is asked for.
    let mark = (verb == FOREIGN).then(|| strip(life, "blue-worker-1"));
    let newest = |layer: &str| {
        let folder = format!("/state/{layer}/");
        let record = whole.keys().rfind(|path| path.to_string_lossy().contains(&folder)).unwrap();
        record.file_name().unwrap().to_string_lossy().into_owned()
    };
    let words = (0..verb.len()).map(|at| if verb[at] == NEWEST { newest(verb[at - 1]) } else { verb[at].to_owned() });
    let words: Vec<String> = words.collect();
    let told = life.run(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
    if let Some(give_back) = mark {
        give_back(life);
    }
    told
}

/// Holds that every verb of the table does what it is for while nothing is damaged.
async fn works(life: &Life, whole: &Files) {
    for verb in LOOKING.iter().chain(&CHANGING) {
        let told = run(life, verb, whole).await;
        assert!(!is_ill(&told), "{verb:?}: {}", told.printed.text);
        restore(life, whole);
    }
}

/// What verbs of the table are given.
async fn given(life: &Life) {
    hold(&life.run(&["plan", "--out", PLAN]).await, Exit::Done, &["Nothing to do"]);
    let word = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: word, namespace: default}\n";
    life.disk().tamper(&Path::new(TREE).join("clusters/blue/word.yaml"), word.into());
}

/// The castle stands in its second life, and its third was begun: it has all files that castle ever keeps, those among them that were damaged once and are set
/// aside.
async fn raised(life: &Life) {
    hold(&life.run(&["up"]).await, Exit::Done, &[]);
    for (file, bytes) in kept(life) {
        if file.ends_with("lease") || file.ends_with("predictions.json") || file.ends_with("journal.1") {
            Damage::Halved.befall(life, &file, &bytes);
        }
    }
    hold(&life.run(&["lease", "take", "--yes"]).await, Exit::Done, &["is set aside"]);
    hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &[]);
    given(life).await;
    let at = At::Change(Box::new(|change| change.ends_with("/status/stop")));
    let told = life.run_killed(&["rebirth", "--yes"], Kill { at, moment: Moment::Before, loss: Loss::None }).await;
    assert_eq!(told.exit, None, "{}", told.printed.text);
    // Whoever was killed has the lease still, and is dead by now for anybody who does not know this machine any more.
    life.clock().sleep(Duration::from_secs(300)).await;
    let files = kept(life);
    for name in [
        "rebirth",
        "rebirths.json",
        "castle",
        "lease",
        ".writer",
        ".lock",
        "damaged/lease",
        "predictions.json.damaged",
        "journal.damaged",
    ] {
        assert!(files.keys().any(|file| file.ends_with(name)), "{name}: {:?}", files.keys());
    }
}

/// The part of cases that is lived through: one in so many, drawn; all if CASTLE_WORLDS is set.
fn is_drawn(number: usize, share: usize) -> bool {
    let first = usize::try_from(draw()).unwrap_or_default();
    std::env::var_os("CASTLE_WORLDS").is_some() || (number + first).is_multiple_of(share)
}

/// Holds what every verb promises that only looks, whatever is damaged.
async fn look(life: &Life, verb: Verb, case: &str, damaged: (&Path, Damage), wrong: &mut Wrong) {
    let before = kept(life);
    let told = life.run(verb).await;
    let mut after = kept(life);
    if verb[0] == "state" {
        // It remembers what it has seen.
        after.retain(|path, _| !path.ends_with(".seen.json"));
    }
    let changed = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes));
    let changed: Vec<&PathBuf> = changed.map(|(path, _)| path).collect();
    wrong.unless(changed.is_empty(), case, &format!("wrote {changed:?}"), &told);
    let changes = life.tally.changes();
    wrong.unless(changes.is_empty(), case, &format!("{changes:?}"), &told);
    wrong.unless_named(&told, case, damaged);
}

/// The key of the embedded datacenter cannot be made again from anything: whoever has lost it puts it back.
fn is_key(file: &Path) -> bool {
    file.ends_with("embedded.agekey")
}

/// Holds what the verbs promise that look, raise and adopt, of one damaged file.
async fn case_of(life: &Life, (file, damage): (&Path, Damage), whole: &Files, wrong: &mut Wrong) {
    let (bytes, name) = (&whole[file], format!("{} {damage:?}", file.display()));
    let guests = || life.datacenter.look().guests.keys().copied().collect::<Vec<u32>>();
    let (before, secrets) = ((guests(), bundle(life)), minted(life).await);
    assert!(secrets.is_some(), "the state has none");
    damage.befall(life, file, bytes);
    life.tally.changes();
    for verb in LOOKING {
        look(life, verb, &format!("{name}: {}", verb.join(" ")), (file, damage), wrong).await;
    }
    for verb in CHANGING {
        let told = run(life, verb, whole).await;
        let case = format!("{name}: {}", verb.join(" "));
        wrong.unless_named(&told, &case, (file, damage));
        wrong.unless((guests(), bundle(life)) == before, &case, "it is another castle", &told);
        wrong.unless(minted(life).await.is_none_or(|now| Some(now) == secrets), &case, "it has other secrets", &told);
        if verb == ["lease", "take", "--yes"] && damage != Damage::Supplanted && !is_key(file) {
            wrong.unless(told.exit == Some(Exit::Done), &case, "did not take it", &told);
        }
        restore(life, whole);
        damage.befall(life, file, bytes);
    }
    let up = life.run(&["up"]).await;
    wrong.unless_named(&up, &format!("{name}: up"), (file, damage));
    wrong.unless(minted(life).await.is_none_or(|now| Some(now) == secrets), &name, "up has other secrets", &up);
    if file.ends_with("lease") && damage != Damage::Supplanted {
        damage.befall(life, file, bytes);
        let taken = life.run(&["lease", "take", "--yes"]).await;
        wrong.unless(taken.exit == Some(Exit::Done), &name, "lease take", &taken);
        let up = life.run(&["up"]).await;
        wrong.unless(up.exit == Some(Exit::Done), &name, "up after lease take", &up);
    }
    restore(life, whole);
    damage.befall(life, file, bytes);
    let mut adopt = life.run(&["adopt"]).await;
    wrong.unless_named(&adopt, &format!("{name}: adopt"), (file, damage));
    if damage == Damage::Supplanted && adopt.exit != Some(Exit::Done) {
        // Nobody knows whose folder it is: it is moved away by hand, as was said.
        wrong.unless(adopt.printed.text.contains("move it away"), &name, "adopt", &adopt);
        life.disk().lose(file);
        adopt = life.run(&["adopt"]).await;
    }
    if is_key(file) {
        wrong.unless(adopt.exit != Some(Exit::Done) || keys(&kept(life)) == keys(whole), &name, "adopt", &adopt);
        life.disk().tamper(file, bytes.clone());
        adopt = life.run(&["adopt"]).await;
    }
    wrong.unless(adopt.exit == Some(Exit::Done), &name, "adopt", &adopt);
    let mut up = life.run(&["up"]).await;
    if damage == Damage::Supplanted && up.printed.text.contains("move it away") {
        // What adopt has no need to read is moved away by hand, too, as was said.
        life.disk().lose(file);
        up = life.run(&["up"]).await;
    }
    wrong.unless(up.exit == Some(Exit::Done), &name, "up after adopt", &up);
    wrong.unless((guests(), bundle(life)) == before, &name, "it is another castle", &up);
    wrong.unless(keys(&kept(life)) == keys(whole), &name, "a key was minted", &up);
    wrong.unless(minted(life).await == secrets, &name, "it has other secrets in the end", &up);
    restore(life, whole);
}

#[test]
fn whatever_is_damaged_is_named_and_mended_and_nothing_is_minted() {
    let begun = AtomicUsize::new(0);
    in_worlds(&written(&furnished()), &SEEDS[..2], async |life| {
        raised(&life).await;
        let (whole, mut wrong) = (kept(&life), Wrong::default());
        works(&life, &whole).await;
        // Each world takes its part of them.
        let world = begun.fetch_add(1, Ordering::Relaxed);
        let drawn =
            damaged(&whole).enumerate().filter(|(number, _)| is_drawn(*number, LOOKED_AT)).map(|(_, case)| case);
        for (file, damage) in drawn.skip(world).step_by(2) {
            case_of(&life, (file, damage), &whole, &mut wrong).await;
        }
        wrong.hold();
    });
}

/// Goal: that nothing is minted is seen where castle could. Method: the castle of somebody without a key, whose own is damaged.
#[test]
fn no_second_key_is_minted_for_a_castle_that_has_one() {
    in_worlds(&keyless(), &SEEDS[..1], async |life| {
        let adopt = life.run(&["adopt"]).await;
        hold(&adopt, Exit::Failed, &["there is nothing to adopt", "next: castle up"]);
        assert_eq!(keys(&kept(&life)), Files::new(), "nothing was adopted, and a key was made");
        for verb in LOOKING {
            life.run(verb).await;
            assert_eq!(kept(&life), Files::new(), "{verb:?}");
        }
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        given(&life).await;
        let (whole, mut wrong) = (kept(&life), Wrong::default());
        assert_eq!(keys(&whole).len(), 1, "{:?}", whole.keys());
        let all = damaged(&whole).filter(|(file, _)| is_key(file) || file.ends_with("castle"));
        for (_, (file, damage)) in all.enumerate().filter(|(number, _)| is_drawn(*number, KEYLESS)) {
            case_of(&life, (file, damage), &whole, &mut wrong).await;
        }
        wrong.hold();
    });
}

/// Goal: whoever is refused leaves nothing behind, and no key either. Method: the number of the first node is somebody else's.
#[test]
fn an_up_that_is_refused_makes_no_key() {
    in_worlds(&keyless(), &SEEDS[..1], async |life| {
        let first = life.script.nodes[0].vmid.0;
        life.datacenter.add_guest(Stranger::new(first, "pve", "somebody", "local-lvm", 1));
        hold(&life.run(&["up"]).await, Exit::Refused, &["Nothing was changed."]);
        assert_eq!(kept(&life), Files::new());
        assert!(life.datacenter.remove_guest(first));
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(keys(&kept(&life)).len(), 1);
    });
}

/// Goal: who gets a key of their own goes on with what castle's own key has sealed. Method: a castle is raised and taken down by somebody without one, who then
/// has one where age keeps it.
#[test]
fn a_key_that_comes_later_is_no_hindrance() {
    in_worlds(&keyless(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &[]);
        let own = keys(&kept(&life));
        assert_eq!(own.len(), 1, "{:?}", own.keys());
        let fresh = Seal::mint_identity(&Chance::new(7)).unwrap();
        let file = Path::new("/rehearsal/home/.config/sops/age/keys.txt");
        life.disk().tamper(file, format!("# created: today\n{}\n", *fresh).into_bytes());
        for verb in [&["doctor"][..], &["up"], &["status"], &["state", "history", "secrets"], &["up"]] {
            hold(&life.run(verb).await, Exit::Done, &[]);
        }
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 2)"]);
        assert_eq!(keys(&kept(&life)), own, "castle's own is left as it is");
        // What is sealed from now on is sealed for both.
        life.disk().lose(own.keys().next().unwrap());
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}

/// Where age keeps keys, for the somebody of these tests.
const OWN_KEYS: &str = "/rehearsal/home/.config/sops/age/keys.txt";

/// Goal: the doctor tells of a key that is in the way before the first raise, as `up` would, and `up` does so before it has made anything. Method: a place of keys
/// holds nothing that castle can use.
#[test]
fn a_key_that_is_in_the_way_of_the_first_raise_is_told_by_the_doctor() {
    let own = Path::new(STATE).join("embedded.agekey");
    in_worlds(&keyless(), &SEEDS[..1], async |life| {
        hold(&life.run(&["doctor"]).await, Exit::Done, &["Nothing found in the way"]);
        let cases = [
            (Path::new(OWN_KEYS), "AGE-PLUGIN-YUBIKEY-1QQPSYQYZX82V6G6T\n", "an identity of a plugin"),
            (Path::new(OWN_KEYS), "nonsense\n", "line 1 holds no age identity"),
            (&*own, "AGE-SECRET-KEY-1QQ\n", "embedded.agekey is damaged"),
        ];
        for (file, text, word) in cases {
            life.disk().tamper(file, text.as_bytes().to_vec());
            life.tally.changes();
            hold(&life.run(&["doctor"]).await, Exit::Failed, &["WRONG", word]);
            hold(&life.run(&["up"]).await, Exit::Failed, &[word]);
            assert_eq!(life.tally.changes(), Vec::<String>::new());
            life.disk().lose(file);
            assert_eq!(kept(&life), Files::new(), "{word}");
        }
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}

/// Goal: a place of keys that cannot be read takes none of the others away. Method: a folder is in its place, once castle's own key has sealed the state; and then that
/// key is lost, so that nothing else opens it.
#[test]
fn a_place_of_keys_that_cannot_be_read_takes_no_other_away() {
    in_worlds(&keyless(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.disk().supplant(Path::new(OWN_KEYS));
        for verb in [&["doctor"][..], &["up"], &["status"], &["state", "history", "secrets"]] {
            hold(&life.run(verb).await, Exit::Done, &[]);
        }
        life.disk().lose(&Path::new(STATE).join("embedded.agekey"));
        hold(&life.run(&["up"]).await, Exit::Failed, &[OWN_KEYS, "looked at"]);
    });
}

/// Every so many files and damages are tried with all verbs that do not end the castle, unless CASTLE_WORLDS is set: then all are.
const LOOKED_AT: usize = 11;
/// The same where castle's own key is the only one.
const KEYLESS: usize = 2;
/// The same of those that do: neighbours differ in the verb, then in the damage, so a step that shares no part with their numbers meets them all.
const ENDED: usize = 41;

/// Goal: whoever ends a castle whose files are damaged ends it, or loses nothing. Method: each file, damaged in each way, and each verb, in a world of its own.
#[test]
fn whoever_ends_a_castle_with_damaged_files_loses_nothing() {
    let files = std::sync::Mutex::new(Files::new());
    in_worlds(&small(), &SEEDS[..1], async |life| {
        raised(&life).await;
        *files.lock().unwrap() = kept(&life);
    });
    let files = files.into_inner().unwrap();
    let all = damaged(&files).map(|(file, damage)| ENDING.map(|verb| (file, damage, verb)));
    let cases: Vec<_> =
        all.flatten().enumerate().filter(|(number, _)| is_drawn(*number, ENDED)).map(|(_, case)| case).collect();
    let wrong = std::sync::Mutex::new(Wrong::default());
    for part in cases.chunks(2) {
        let number = AtomicUsize::new(0);
        in_worlds(&small(), &SEEDS[..part.len()], async |life| {
            let (file, damage, verb) = part[number.fetch_add(1, Ordering::Relaxed)];
            let mut found = Wrong::default();
            ended(&life, (file, damage), verb, &mut found).await;
            wrong.lock().unwrap().0.extend(found.0);
        });
    }
    wrong.into_inner().unwrap().hold();
}

/// Goal: secrets that only the vault has are enough. Method: every record of them is damaged; what was sealed with them cannot be trusted either.
#[test]
fn adopt_mends_a_state_that_has_lost_all_its_secrets() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let (whole, before) = (kept(&life), bundle(&life));
        for file in whole.keys().filter(|file| file.to_string_lossy().contains("/state/secrets/")) {
            Damage::Emptied.befall(&life, file, &whole[file]);
        }
        hold(&life.run(&["up"]).await, Exit::Failed, &["castle adopt"]);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["is set aside", "is known again"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!(bundle(&life), before);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue"]);
    });
}

/// Goal: nothing is set aside before somebody has agreed to the rest. Method: nobody answers.
#[test]
fn wipe_asks_before_it_sets_damaged_files_aside() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let whole = kept(&life);
        for file in whole.keys().filter(|file| file.ends_with("castle") || file.ends_with("lease")) {
            Damage::Halved.befall(&life, file, &whole[file]);
            let before = kept(&life);
            let wipe = life.run(&["wipe"]).await;
            hold(&wipe, Exit::Refused, &["nothing was removed", "blue-cp-1"]);
            assert_eq!(kept(&life), before, "{}: {}", file.display(), wipe.printed.text);
            restore(&life, &whole);
        }
        for file in whole.keys().filter(|file| file.ends_with("castle") || file.ends_with("lease")) {
            Damage::Halved.befall(&life, file, &whole[file]);
        }
        hold(&life.run(&["wipe", "--yes"]).await, Exit::Done, &["is set aside"]);
    });
}

/// Holds that a castle with this file damaged ends, or comes back as it was.
async fn ended(life: &Life, (file, damage): (&Path, Damage), verb: Verb, wrong: &mut Wrong) {
    let case = format!("{} {damage:?}: {}", file.display(), verb.join(" "));
    raised(life).await;
    if verb.contains(&"--keep-identity") && !file.ends_with("rebirth") {
        // The one that was begun is another one, and would be all that is told.
        life.disk().lose(&Path::new(STATE).join("blue/embedded/rebirth"));
    }
    let (whole, before) = (kept(life), bundle(life));
    let Some(bytes) = whole.get(file) else { return };
    damage.befall(life, file, bytes);
    let told = life.run(verb).await;
    wrong.unless_named(&told, &case, (file, damage));
    if verb[0] == "rebirth" && file.ends_with("rebirth") && matches!(damage, Damage::Emptied | Damage::Halved) {
        // What is begun anew is not passed over.
        wrong.unless(told.printed.text.contains("/rebirth in "), &case, "says nothing of it", &told);
    }
    let machines = life.datacenter.talos_nodes().len();
    let is_done = told.exit == Some(Exit::Done);
    if verb[0] == "wipe" && does_without(file) && damage != Damage::Supplanted {
        wrong.unless(is_done, &case, "does not do without it", &told);
    }
    if is_done && verb[0] != "rebirth" {
        wrong.unless(machines == 0, &case, "machines are left", &told);
    }
    if !is_done && machines > 0 {
        // What was damaged is put back, and the castle is what it was.
        life.disk().lose(file);
        life.disk().tamper(file, bytes.clone());
    }
    if machines == 0 && (!is_done || verb[0] == "wipe") {
        // Its machines are gone for good, and its state may still tell of them.
        if damage == Damage::Supplanted {
            life.disk().lose(file);
        }
        let down = life.run(&["down", "--yes", "--forget-secrets", "blue"]).await;
        wrong.unless(down.exit == Some(Exit::Done), &case, "down after that", &down);
    }
    let mut up = life.run(&["up"]).await;
    // What is damaged still is: what is told then leads out, at most by one step after the other.
    for _ in 0..2 {
        let text = &up.printed.text;
        if up.exit == Some(Exit::Done) {
            break;
        }
        let leads_out = text.contains("castle adopt") || text.contains("move it away");
        wrong.unless(leads_out, &case, "up after that", &up);
        let tries = text.matches("it is a folder").count();
        wrong.unless(tries <= 3, &case, "it is tried again and again", &up);
        // Nobody knows whose folder it is: it is moved away by hand.
        if text.contains("move it away") {
            life.disk().lose(file);
        } else {
            life.run(&["adopt"]).await;
        }
        up = life.run(&["up"]).await;
    }
    wrong.unless(up.exit == Some(Exit::Done), &case, "up after that", &up);
    wrong.unless(is_done || machines < 2 || bundle(life) == before, &case, "it is another castle", &up);
}

/// Whether `wipe` does without this file: whose castle it is, who works on it, and what it was.
fn does_without(file: &Path) -> bool {
    let kept = file.strip_prefix(STATE).unwrap_or(file);
    kept.ends_with("castle") || kept.ends_with("lease") || kept.to_string_lossy().contains("/state/")
}

/// The secrets that the state has of the life that the castle is in; nothing if it cannot be read.
async fn minted(life: &Life) -> Option<String> {
    let kept = Kept::open(&life.doors(), &life.script.file).ok()?;
    let castle = kept.castle_id().await.ok()??;
    let generation = castle.generation;
    let record = kept.state(castle).ok()?.latest(&secrets::layer()).await.ok()??;
    let is_ours = record.payload["generation"] == generation;
    record.payload["bundle"].as_str().filter(|_| is_ours).map(str::to_owned)
}

/// What the nodes of the castle know each other by, as they have it.
fn bundle(life: &Life) -> Vec<Option<String>> {
    let nodes = life.datacenter.talos_nodes();
    nodes.iter().map(|node| life.datacenter.machine_configuration(node.vmid)).collect()
}
