//! Losses of control planes in every order, with castle killed in between: there is never a second etcd in one life, and what a survivor has is not
//! lost. The first raise is killed, too.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use castle_kubernetes::client::Mode;
use castle_kubernetes::model::Object;
use castle_rehearsal::{Chance, Loss as DiskLoss, Moment};
use castle_seams::{Clock, SystemClock};
use castle_testbed::draw;
use serde_json::json;

use super::super::fixture::person;
use super::super::life::{At, Kill};
use super::of_etcd::{bootstraps, control_planes, first_identity, identity, lose, three, vmid};
use super::*;

/// What happens to the control planes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Loss {
    /// The machine of one is deleted.
    Machine,
    /// All of them are switched off.
    Power,
    /// One loses what its etcd has.
    Data,
    /// The machines of two are deleted.
    Quorum,
}

const LOSSES: [Loss; 4] = [Loss::Machine, Loss::Power, Loss::Data, Loss::Quorum];
const ORDERS: u64 = 24;
/// So many worlds, unless CASTLE_WORLDS says how many: a hundred have every order at least four times. CASTLE_DRAW says which.
const WORLDS: u64 = 6;
/// Of four verbs that are to be killed after a loss, so many must have been: a few come to their end before the effect that was drawn, for no two worlds are the same.
const KILLED_OF_FOUR: usize = 3;

/// How many effects `up` has in a world where nothing is killed: kills are drawn from these.
#[derive(Clone, Debug, Default)]
struct Beats {
    first: u64,
    after: BTreeMap<Loss, u64>,
}

/// One of all orders.
fn order(mut number: u64) -> Vec<Loss> {
    let (mut left, mut order) = (LOSSES.to_vec(), Vec::new());
    for remaining in (1..=4_u64).rev() {
        order.push(left.remove(usize::try_from(number % remaining).unwrap()));
        number /= remaining;
    }
    order
}

fn happens(life: &Life, loss: Loss, chance: &Chance) {
    let names = ["blue-cp-1", "blue-cp-2", "blue-cp-3"];
    let drawn = usize::try_from(chance.below(3)).unwrap();
    match loss {
        Loss::Machine => lose(life, names[drawn]),
        Loss::Power => control_planes(life).into_iter().for_each(|vmid| life.datacenter.switch(vmid, false)),
        Loss::Data => assert!(life.datacenter.lose_etcd_member(vmid(life, names[drawn]))),
        Loss::Quorum => {
            names.iter().enumerate().filter(|(place, _)| *place != drawn).for_each(|(_, name)| lose(life, name));
        }
    }
}

fn etcds(life: &Life) -> usize {
    life.datacenter.cluster("blue").map_or(0, |cluster| cluster.etcds.len())
}

fn killed(effects: u64, chance: &Chance) -> Kill {
    let moment = if chance.below(2) == 0 { Moment::Before } else { Moment::After };
    let loss = if chance.below(2) == 0 { DiskLoss::None } else { DiskLoss::PowerCut(chance.draw()) };
    Kill { at: At::Beat(chance.below(effects.max(1))), moment, loss }
}

/// Counts what `up` does at first, and after each loss, where nothing is killed.
async fn undisturbed_beats(life: &Life) -> Beats {
    let chance = Chance::new(0);
    let up = life.run(&["up"]).await;
    hold(&up, Exit::Done, &[]);
    let mut beats = Beats { first: up.effects, ..Beats::default() };
    // The last one ends the life.
    for loss in LOSSES {
        happens(life, loss, &chance);
        life.clock().sleep(Duration::from_secs(90)).await;
        beats.after.insert(loss, life.run(&["up"]).await.effects);
    }
    beats
}

fn beats() -> &'static Beats {
    static BEATS: LazyLock<Beats> = LazyLock::new(|| {
        let counted = std::sync::Mutex::new(Beats::default());
        in_worlds(&three(), &SEEDS[..1], async |life| *counted.lock().unwrap() = undisturbed_beats(&life).await);
        counted.into_inner().unwrap()
    });
    &BEATS
}

/// Somebody's work in the cluster.
async fn plant(life: &Life) {
    let planted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "planted", "namespace": "default"}, "data": {"a": "b"}});
    person(life).await.apply(&Object::new(planted).unwrap(), Mode::Real).await.unwrap();
}

/// What is left of it.
fn planted(life: &Life) -> Option<String> {
    let object = life.datacenter.object("blue", "configmaps", "default", "planted")?;
    Some(object["metadata"]["uid"].to_string())
}

/// The first raise is killed, and then perhaps a machine is lost: what its etcd has begun with is not lost as long as enough of its members are left.
/// Tells whether it came to the kill.
async fn begin(life: &Life, seed: u64, chance: &Chance) -> bool {
    let told = life.run_killed(&["up"], killed(beats().first, chance)).await;
    life.clock().sleep(Duration::from_secs(chance.below(180))).await;
    // Each member, and whether it votes.
    let members = |life: &Life| -> Vec<(u32, bool)> {
        let cluster = life.datacenter.cluster("blue");
        let members = cluster.into_iter().flat_map(|cluster| cluster.etcds).flatten();
        members.map(|member| (member.vmid, !member.is_learner)).collect()
    };
    let names = ["blue-cp-1", "blue-cp-2", "blue-cp-3"];
    let lost = names[usize::try_from(chance.below(3)).unwrap()];
    let before = members(life);
    let identity_before = first_identity(life).filter(|_| !before.is_empty());
    let is_lost = chance.below(2) == 0 && has_guest(life, lost);
    if is_lost {
        lose(life, lost);
        life.clock().sleep(Duration::from_secs(chance.below(180))).await;
    }
    let stays = |member: &&(u32, bool)| !is_lost || member.0 != vmid(life, lost);
    let left = before.iter().filter(stays).count();
    let voters = before.iter().filter(|(_, votes)| *votes).count();
    let voting = before.iter().filter(stays).filter(|(_, votes)| *votes).count();
    let up = life.run(&["up"]).await;
    let story = format!(
        "seed {seed}, killed at first ({}), {before:?} without {lost}: {is_lost}: {}",
        told.ending(),
        up.printed.text
    );
    assert_eq!(etcds(life), 1, "{story}");
    if left > 0 && voting * 2 <= voters {
        assert_eq!((up.exit, first_identity(life)), (Some(Exit::Refused), identity_before), "{story}");
        hold(&life.run(&["down", "--yes", "--forget-secrets", "blue"]).await, Exit::Done, &[]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        return told.exit.is_none();
    }
    assert_eq!(up.exit, Some(Exit::Done), "{story}");
    let was_known = left > 0 && identity_before.is_some();
    assert!(!was_known || Some(identity(life)) == identity_before, "{story}");
    told.exit.is_none()
}

/// Lives through it, and tells whether the first raise was killed, and how many verbs after it were.
async fn world(life: &Life, seed: u64) -> (bool, usize) {
    let (others, chance) = (Others::of(life), Chance::new(seed));
    let (first, mut kills) = (begin(life, seed, &chance).await, 0);
    for loss in order(seed % ORDERS) {
        plant(life).await;
        let before = (identity(life), planted(life));
        bootstraps(life);
        happens(life, loss, &chance);
        life.clock().sleep(Duration::from_secs(chance.below(180))).await;
        kills += usize::from(life.run_killed(&["up"], killed(beats().after[&loss], &chance)).await.exit.is_none());
        assert!(etcds(life) <= 1, "{loss:?}");
        let up = life.run(&["up"]).await;
        let story = format!("seed {seed}, {loss:?} of {:?}: {}", order(seed % ORDERS), up.printed.text);
        assert_eq!((bootstraps(life), etcds(life)), (0, 1), "{story}");
        assert_eq!((identity(life), planted(life)), before, "{story}");
        if loss == Loss::Quorum {
            assert_eq!(up.exit, Some(Exit::Refused), "{story}");
            hold(&life.run(&["down", "--yes", "--forget-secrets", "blue"]).await, Exit::Done, &[]);
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            assert_ne!(identity(life), before.0, "another life");
        } else {
            assert_eq!(up.exit, Some(Exit::Done), "{story}");
        }
        assert_eq!(others.touched(life), Vec::<String>::new(), "{story}");
    }
    let again = life.run(&["up"]).await;
    assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
    (first, kills)
}

/// The seeds of so many worlds. A part of a hundred is spread over all orders.
fn seeds(first: u64, worlds: u64) -> Vec<u64> {
    (0..worlds).map(|number| first + number * 100 / worlds).collect()
}

#[test]
fn every_order_is_drawn() {
    for first in [0, 1, 23, draw()] {
        let mut drawn = BTreeMap::<String, u64>::new();
        for seed in seeds(first, 100) {
            *drawn.entry(format!("{:?}", order(seed % ORDERS))).or_default() += 1;
        }
        assert_eq!(drawn.len(), 24, "{drawn:?}");
        assert!(drawn.values().all(|times| *times >= 4), "{drawn:?}");
    }
}

#[test]
#[expect(
    clippy::print_stderr,
    reason = "how much was tried, and how long it took, is what whoever runs all of it wants to know"
)]
fn losses_in_any_order_leave_one_etcd() {
    let worlds = std::env::var("CASTLE_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(WORLDS);
    let (clock, firsts, kills) = (SystemClock::new(), AtomicUsize::new(0), AtomicUsize::new(0));
    let began = clock.monotonic();
    eprintln!("where nothing is killed: {:?}", beats());
    let seeds = seeds(draw(), worlds);
    for some in seeds.chunks(2) {
        std::thread::scope(|scope| {
            for &seed in some {
                let (script, firsts, kills) = (three(), &firsts, &kills);
                let lived = move || {
                    let lived = in_virtual_time(async |clock| world(&Life::begin(&script, seed, clock), seed).await);
                    let (first, later) = lived.unwrap();
                    firsts.fetch_add(usize::from(first), Ordering::Relaxed);
                    kills.fetch_add(later, Ordering::Relaxed);
                };
                let named = std::thread::Builder::new().name(format!("the world of seed {seed}"));
                named.stack_size(STACK).spawn_scoped(scope, lived).unwrap();
            }
        });
    }
    let (firsts, kills, worlds) = (firsts.into_inner(), kills.into_inner(), seeds.len());
    // What is refused at once has no effect to be killed at.
    let killable = LOSSES.iter().filter(|loss| beats().after[loss] > 0).count();
    let (meant, took) = (worlds * killable, (clock.monotonic() - began).as_secs());
    eprintln!(
        "{worlds} worlds in {took} s: {firsts} of the first raises were killed, and {kills} of {meant} verbs after a loss"
    );
    assert!(firsts * 2 > worlds, "only {firsts} of {worlds} first raises were killed");
    assert!(kills * 4 >= meant * KILLED_OF_FOUR, "only {kills} of {meant} verbs were killed after a loss");
}
