//! Two verbs at once, in all pairs, from one home and from two: never two truths, never a castle without its secrets.
//!
//! What two verbs say of themselves is held against the world as soon as both have ended: the one that ended last and said that the castle stands,
//! or that nothing is left of it, has to be right. After that the castle is brought to stand, and down again, by whoever can: something that
//! nobody has the secrets of could be neither.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use castle_rehearsal::{Chance, Loss, Moment};
use castle_seams::{Clock as _, SystemClock};
use castle_testbed::{draw, told};

use super::super::life::{At, Home, Kill, Raced};
use super::*;

/// The verbs, each with what it takes to be asked nothing.
const VERBS: [&[&str]; 5] = [&["up"], &["down", "--yes"], &["rebirth", "--yes"], &["adopt"], &["status"]];
/// Every verb with itself and with every other.
const PAIRS: usize = 15;
/// Where the two are: both in one home; in two, with a vault that both know; in two, with nothing in common but the hypervisor.
const SETTINGS: [Setting; 3] = [Setting::OneHome, Setting::SharedVault, Setting::Strangers];
/// So many schedules, unless CASTLE_WORLDS says how many: these have every pair once, 450 have it ten times in each setting. CASTLE_WORLD is one alone.
const SCHEDULES: usize = PAIRS;
const ALL: usize = PAIRS * SETTINGS.len() * 10;

/// Where two verbs are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    OneHome,
    SharedVault,
    Strangers,
}

/// How the castle is when they begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Beginning {
    Nothing,
    CutOff,
    Stands,
}

const LEAN: &str = "castle: green
platform:
  proxmox:
    endpoint: https://pve.lan:8006
    fingerprint: \"AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77:88:99\"
    token: sops:secrets.enc.yaml#proxmox.token
    nodes: [pve]
    storage: {disks: tank, images: local}
    vmids: 421-432
talos: {version: v1.13.9, serviceAccountKey: p256}
kubernetes: {version: v1.36.3}
network: {cidr: 192.168.1.0/24, gateway: 192.168.1.1, nameservers: [192.168.1.1], vip: 192.168.1.210}
nodes:
  controlPlanes: {count: 1, firstAddress: 192.168.1.211, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 192.168.1.214, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
";
const VAULT: &str = "secrets:
  infisical: {region: eu, project: lab, environment: prod, path: /castles/green, identity: 'sops:secrets.enc.yaml#infisical'}
";

fn with_vault() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(&format!("{LEAN}{VAULT}")));
    SCRIPT.clone()
}

fn without_vault() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(LEAN));
    SCRIPT.clone()
}

/// What is run when, and where it begins.
struct Schedule {
    number: usize,
    setting: Setting,
    beginning: Beginning,
    verbs: [&'static [&'static str]; 2],
    /// How much later the second begins, in thousandths of what the first takes alone.
    share: u64,
}

impl Schedule {
    /// The schedule of this number: pairs first, then settings, so that any run of schedules has many of both.
    fn of(number: usize, chance: &Chance) -> Self {
        let mut pairs = Vec::new();
        for (place, first) in VERBS.iter().enumerate() {
            pairs.extend(VERBS[place..].iter().map(|second| [*first, *second]));
        }
        let mut verbs = pairs[number % PAIRS];
        if chance.below(2) == 1 {
            verbs.reverse();
        }
        let setting = SETTINGS[number / PAIRS % SETTINGS.len()];
        let beginning = [Beginning::Nothing, Beginning::CutOff, Beginning::Stands, Beginning::Stands]
            [usize::try_from(chance.below(4)).unwrap()];
        // Most of what goes wrong does so within the first moments; the rest, while machines come and go; and now and then the first has ended.
        let longest = [10, 100, 1_000, 1_500][usize::try_from(chance.below(4)).unwrap()];
        Self { number, setting, beginning, verbs, share: chance.below(longest) }
    }

    /// How much later the second begins.
    fn gap(&self) -> Duration {
        let length = length(&self.script(), self.setting == Setting::Strangers, self.beginning, self.verbs[0]);
        Duration::from_micros(u64::try_from(length.as_micros()).unwrap() * self.share / 1_000)
    }

    fn homes(&self) -> [Home; 2] {
        match self.setting {
            Setting::OneHome => [Home::Usual; 2],
            Setting::SharedVault | Setting::Strangers => [Home::Usual, Home::Colleague],
        }
    }

    fn script(&self) -> Arc<Script> {
        if self.setting == Setting::Strangers { without_vault() } else { with_vault() }
    }
}

/// What a length depends on: whether the castle is without a vault, how it is, and the verb.
type Measured = (bool, Beginning, &'static str);

/// How long a verb takes that nobody is in the way of: measured once.
fn length(script: &Arc<Script>, is_lean: bool, beginning: Beginning, verb: &'static [&'static str]) -> Duration {
    static LENGTHS: Mutex<BTreeMap<Measured, Arc<OnceLock<Duration>>>> = Mutex::new(BTreeMap::new());
    let once = LENGTHS.lock().unwrap().entry((is_lean, beginning, verb[0])).or_default().clone();
    *once.get_or_init(|| {
        in_virtual_time(async |clock| {
            let life = Life::begin(script, 1, clock);
            begin(&life, beginning, &Chance::new(1)).await;
            life.run(verb).await.took
        })
        .unwrap()
    })
}

/// Brings a castle to where two verbs begin.
async fn begin(life: &Life, beginning: Beginning, chance: &Chance) {
    match beginning {
        Beginning::Nothing => {}
        Beginning::CutOff => {
            let kill = Kill { at: At::Beat(chance.below(60)), moment: Moment::After, loss: Loss::None };
            life.run_killed(&["up"], kill).await;
        }
        Beginning::Stands => hold(&life.run(&["up"]).await, Exit::Done, &[]),
    }
}

fn is_castles(guest: &castle_datacenter::GuestView) -> bool {
    guest.config.get("tags").is_some_and(|tags| tags.split(';').any(|tag| tag == "castle"))
}

/// The machines and images of castles.
fn made(life: &Life) -> Vec<u32> {
    let guests = life.datacenter.look().guests;
    guests.into_iter().filter(|(_, guest)| is_castles(guest)).map(|(vmid, _)| vmid).collect()
}

fn etcds(life: &Life) -> usize {
    life.datacenter.cluster("green").map_or(0, |cluster| cluster.etcds.len())
}

/// What a verb claims of the castle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Claim {
    Stands,
    Gone,
    Nothing,
}

/// What a verb claims that was under way together with another; what `status` saw only counts if it began after the other had ended.
fn claim(raced: &Raced, other: &Raced) -> Claim {
    if raced.told.exit != Some(Exit::Done) {
        return Claim::Nothing;
    }
    let result = &raced.told.printed.result;
    match result["result"].as_str() {
        Some("raised" | "unchanged") => Claim::Stands,
        Some("gone") => Claim::Gone,
        Some("shown") if result["standing"] == true && raced.begun >= other.ended => Claim::Stands,
        _ => Claim::Nothing,
    }
}

/// Whether both were under way at once.
fn overlap([first, second]: &[Raced; 2]) -> bool {
    first.begun < second.ended && second.begun < first.ended
}

/// What is said for people besides the lines about steps.
fn said(told: &Told) -> String {
    let is_telling = |line: &&str| !line.contains(" s  ");
    told.printed.text.lines().filter(is_telling).map(|line| format!("  {line}\n")).collect()
}

/// What was done in a world so far, and whether the world bears it out.
struct Story<'l> {
    life: &'l Life,
    setting: Setting,
    text: String,
}

impl Story<'_> {
    fn tell(&mut self, what: &str, told: &Told) {
        self.text += &format!("--- {what} ended {:?}\n{}", told.exit, said(told));
    }

    fn hold(&self, holds: bool, what: &str) -> Result<(), String> {
        if holds { Ok(()) } else { Err(format!("{what}\n{}", self.text)) }
    }

    fn hold_none(&self, found: &[String], what: &str) -> Result<(), String> {
        self.hold(found.is_empty(), &format!("{what}: {}", found.join("; ")))
    }

    /// Whether there is an etcd, and so something that somebody could lose.
    fn serves(&self) -> bool {
        etcds(self.life) > 0
    }

    /// Runs a verb from a home.
    async fn run(&mut self, home: Home, words: &[&str]) -> Option<Exit> {
        let told = self.life.run_from(home, words).await;
        self.tell(&format!("then {} from {home:?}", words[0]), &told);
        told.exit
    }

    /// Somebody brings the castle to stand, has its secrets, and takes it down again.
    async fn heal(&mut self, homes: [Home; 2]) -> Result<(), String> {
        let home = match self.done_by_one_of(homes, &["up"]).await {
            Ok(home) => home,
            // Two who know nothing of each other have made a part of it each: none touches what is the other's, and each takes away his own.
            Err(why) if homes[0] != homes[1] => {
                let is_known =
                    !self.serves() || (self.setting == Setting::Strangers && self.is_open_to_one_of(homes).await);
                self.hold(is_known, &format!("nobody has its secrets: {why}"))?;
                for home in homes {
                    self.run(home, &["down", "--yes"]).await;
                }
                self.done_by_one_of(homes, &["up"]).await?
            }
            Err(why) => return Err(why),
        };
        self.hold(etcds(self.life) == 1, "there is not one etcd")?;
        for look in [&["plan", "--exit-code"][..], &["kubeconfig"], &["talosconfig"]] {
            let told = self.life.run_from(home, look).await;
            self.hold(told.exit == Some(Exit::Done), look[0])?;
        }
        let opens = self.opens(home).await;
        self.hold(opens, "client files are of another cluster")?;
        // Each takes down what is its own.
        self.done_by_one_of(homes, &["down", "--yes"]).await?;
        for home in homes {
            self.run(home, &["down", "--yes"]).await;
        }
        let left: Vec<String> = made(self.life).iter().map(|vmid| format!("VM {vmid}")).collect();
        self.hold_none(&left, "after down")
    }

    /// Whether client files issued in one of these homes open what serves.
    async fn is_open_to_one_of(&self, homes: [Home; 2]) -> bool {
        self.opens(homes[0]).await || self.opens(homes[1]).await
    }

    /// Whether client files issued in this home are those of the machines: the authorities in them are.
    async fn opens(&self, home: Home) -> bool {
        let nodes = self.life.datacenter.talos_nodes();
        let configurations: Vec<String> =
            nodes.iter().filter_map(|node| self.life.datacenter.machine_configuration(node.vmid)).collect();
        for (verb, key) in [("kubeconfig", "certificate-authority-data: "), ("talosconfig", "ca: ")] {
            let told = self.life.run_from(home, &[verb]).await;
            let lines = told.printed.text.lines();
            let authority = lines.filter_map(|line| line.trim().strip_prefix(key)).next().unwrap_or_default();
            let is_theirs = |configuration: &String| !authority.is_empty() && configuration.contains(authority);
            if told.exit != Some(Exit::Done) || !configurations.iter().any(is_theirs) {
                return false;
            }
        }
        true
    }

    async fn done_by_one_of(&mut self, homes: [Home; 2], words: &[&str]) -> Result<Home, String> {
        for home in homes {
            if self.run(home, words).await == Some(Exit::Done) {
                return Ok(home);
            }
        }
        Err(format!("nobody can bring it {}\n{}", words[0], self.text))
    }
}

/// Lives through a schedule; returns whether both were under way at once.
async fn run(schedule: &Schedule, life: &Life, chance: &Chance) -> Result<bool, String> {
    let (others, gap) = (Others::of(life), schedule.gap());
    begin(life, schedule.beginning, chance).await;
    let homes = schedule.homes();
    let [first, second] = schedule.verbs;
    let raced = life.race([(first, homes[0]), (second, homes[1])], gap).await;
    let Schedule { number, setting, beginning, .. } = schedule;
    let text = format!("schedule {number}, {setting:?}, {beginning:?}, the second {gap:?} later\n");
    let mut story = Story { life, setting: *setting, text };
    for (one, verb) in raced.iter().zip(schedule.verbs) {
        story.tell(&format!("{} from {:?} until {:?}", verb[0], one.begun, one.ended), &one.told);
    }
    for (one, verb) in raced.iter().zip(schedule.verbs) {
        let exit = one.told.exit;
        story.hold(
            matches!(exit, Some(Exit::Done | Exit::Failed | Exit::Refused)),
            &format!("{} did not end", verb[0]),
        )?;
        let is_told = exit == Some(Exit::Done) || one.told.printed.text.contains("next: ");
        story.hold(is_told, &format!("{} tells no way out", verb[0]))?;
    }
    story.hold(etcds(life) <= 1, "there are two etcds")?;
    let [first, second] = &raced;
    let mut ends = [(first, claim(first, second), homes[0]), (second, claim(second, first), homes[1])].to_vec();
    ends.sort_by_key(|(one, ..)| one.ended);
    // Whoever shares a home, and looks after the other has ended, sees what the other has made.
    let saw_none = |one: &Raced| one.told.exit == Some(Exit::Done) && one.told.printed.result["standing"] == false;
    let is_missed = second.begun >= first.ended && claim(first, second) == Claim::Stands && saw_none(second);
    story.hold(!(is_missed && homes[0] == homes[1]), "raised, and not seen")?;
    // Whoever adopts puts what he has of the castle back into its vault, and may come after the one who took it down.
    let adopted =
        ends.last().filter(|(one, ..)| one.told.printed.result["result"] == "adopted").map(|(.., home)| *home);
    if let Some(home) = adopted {
        let plan = life.run_from(home, &["plan"]).await;
        story.tell("then plan after adopt", &plan);
        let is_told = plan.exit == Some(Exit::Done) || plan.printed.text.contains("next: ");
        story.hold(is_told, "adopted, and plan names nothing that is missing")?;
    }
    ends.retain(|(_, claim, _)| !(adopted.is_some() && *claim == Claim::Gone));
    if let Some((_, claim, home)) = ends.iter().rev().find(|(_, claim, _)| *claim != Claim::Nothing) {
        match claim {
            Claim::Gone => story.hold_none(&others.left(life), "said to be gone")?,
            _ => {
                let mut exit = story.run(*home, &["plan", "--exit-code"]).await;
                // A vault has no turns: who has lost may have put his own client files there last, for the winner to mend.
                if exit == Some(Exit::Differs) && schedule.setting == Setting::SharedVault {
                    story.run(*home, &["up"]).await;
                    exit = story.run(*home, &["plan", "--exit-code"]).await;
                }
                story.hold(exit == Some(Exit::Done), "said to stand")?;
            }
        }
    }
    story.heal(homes).await?;
    story.hold_none(&others.left(life), "left at the end")?;
    story.hold_none(&others.touched(life), "touched")?;
    Ok(overlap(&raced))
}

/// Runs the schedule of this number in a world of its own; returns whether both were under way at once.
fn world(number: usize) -> Result<bool, String> {
    let seed = u64::try_from(number).unwrap();
    let chance = Chance::new(seed);
    let schedule = Schedule::of(number, &chance);
    let script = schedule.script();
    // Before there is a world: it has a time of its own.
    schedule.gap();
    in_virtual_time(async |clock| run(&schedule, &Life::begin(&script, seed, clock), &chance).await).unwrap()
}

#[test]
fn any_two_verbs_leave_one_castle_and_its_secrets() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    // A part of all has every pair in one setting.
    let (first, wanted) = match number("CASTLE_WORLD") {
        Some(one) => (one, 1),
        None => (usize::try_from(draw()).unwrap() * SCHEDULES, number("CASTLE_WORLDS").unwrap_or(SCHEDULES)),
    };
    let (clock, mut wrong, mut overlapping) = (SystemClock::new(), Vec::new(), BTreeMap::new());
    let numbers: Vec<usize> = (0..wanted).map(|number| (first + number) % ALL).collect();
    for some in numbers.chunks(2) {
        std::thread::scope(|scope| {
            let spawn = |&number: &usize| {
                std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, move || world(number)).unwrap()
            };
            let running: Vec<_> = some.iter().map(spawn).collect();
            for (number, world) in some.iter().zip(running) {
                match world.join().unwrap() {
                    Ok(is_both) => *overlapping.entry(number % PAIRS).or_insert(0_usize) += usize::from(is_both),
                    Err(why) => wrong.push(why),
                }
            }
        });
    }
    let both: usize = overlapping.values().sum();
    let took = clock.monotonic().as_secs();
    told(&format!("{} races of two verbs, {both} of them with both under way at once, in {took} s", numbers.len()));
    assert!(wrong.is_empty(), "{} of {}:\n\n{}", wrong.len(), numbers.len(), wrong.join("\n\n"));
    assert!(wanted < PAIRS || both * 2 >= numbers.len(), "in {both} of {} both were under way", numbers.len());
    let is_rare = |count: &usize| wanted >= ALL && *count < 10;
    assert!(overlapping.len() == wanted.min(PAIRS) && !overlapping.values().any(is_rare), "{overlapping:?}");
}

#[test]
fn all_schedules_have_every_pair_ten_times_in_every_setting() {
    let mut counts = BTreeMap::new();
    for number in 0..ALL {
        let Schedule { setting, mut verbs, .. } = Schedule::of(number, &Chance::new(number as u64));
        verbs.sort_unstable();
        *counts.entry((format!("{setting:?}"), verbs)).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), PAIRS * SETTINGS.len());
    assert!(counts.values().all(|count| *count == 10), "{counts:?}");
}

/// Goal: nobody is sent in a circle by a castle of the same name that a colleague raised. Method: all machines are lost, a colleague raises the
/// castle from elsewhere, and whoever had it ends the old life.
#[test]
fn a_namesake_is_named_after_the_old_life_has_ended() {
    in_worlds(&without_vault(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for vmid in made(&life) {
            life.datacenter.remove_guest(vmid);
        }
        hold(&life.run_from(Home::Colleague, &["up"]).await, Exit::Done, &[]);
        let stands = made(&life);
        hold(&life.run(&["down", "--yes", "--forget-secrets", "green"]).await, Exit::Done, &[]);
        for verb in ["plan", "up", "adopt"] {
            let told = life.run(&[verb]).await;
            hold(&told, Exit::Refused, &["VM 421: belongs to another castle", "take it down where it was raised"]);
            assert!(!said(&told).contains("castle down, then castle up"), "{verb}: {}", said(&told));
        }
        assert_eq!(made(&life), stands);
        hold(&life.run_from(Home::Colleague, &["down", "--yes"]).await, Exit::Done, &[]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}
