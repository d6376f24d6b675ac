//! Losses of control planes in every order, with castle killed in between: there is never a second etcd in one life, and what a survivor has is not
//! lost.

use castle_rehearsal::{Chance, Loss as DiskLoss, Moment};

use super::super::life::{At, Kill};
use super::of_etcd::{bootstraps, control_planes, identity, lose, three, vmid};
use super::*;

/// What happens to the control planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
/// So many worlds, unless CASTLE_WORLDS says how many: a hundred have every order at least four times.
const WORLDS: u64 = 6;
/// Kills are drawn from the first so many effects of `up`: most of what it does to a castle that stands.
const EFFECTS: u64 = 40;

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

async fn world(life: &Life, seed: u64) {
    let (others, chance) = (Others::of(life), Chance::new(seed));
    hold(&life.run(&["up"]).await, Exit::Done, &[]);
    for loss in order(seed % ORDERS) {
        let before = identity(life);
        bootstraps(life);
        happens(life, loss, &chance);
        life.clock().sleep(Duration::from_secs(chance.below(180))).await;
        let moment = if chance.below(2) == 0 { Moment::Before } else { Moment::After };
        let power = if chance.below(2) == 0 { DiskLoss::None } else { DiskLoss::PowerCut(chance.draw()) };
        let kill = Kill { at: At::Beat(chance.below(EFFECTS)), moment, loss: power };
        life.run_killed(&["up"], kill).await;
        assert!(etcds(life) <= 1, "{loss:?}");
        let up = life.run(&["up"]).await;
        let story = format!("seed {seed}, {loss:?} of {:?}: {}", order(seed % ORDERS), up.printed.text);
        assert_eq!((bootstraps(life), etcds(life)), (0, 1), "{story}");
        assert_eq!(identity(life), before, "{story}");
        if loss == Loss::Quorum {
            assert_eq!(up.exit, Some(Exit::Refused), "{story}");
            hold(&life.run(&["down", "--yes", "--forget-secrets", "blue"]).await, Exit::Done, &[]);
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            assert_ne!(identity(life), before, "another life");
        } else {
            assert_eq!(up.exit, Some(Exit::Done), "{story}");
        }
        assert_eq!(others.touched(life), Vec::<String>::new(), "{story}");
    }
    let again = life.run(&["up"]).await;
    assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
}

#[test]
fn every_order_is_drawn() {
    let orders: std::collections::BTreeSet<String> = (0..ORDERS).map(|number| format!("{:?}", order(number))).collect();
    assert_eq!(orders.len(), 24);
}

#[test]
fn losses_in_any_order_leave_one_etcd() {
    let worlds = std::env::var("CASTLE_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(WORLDS);
    // A part of a hundred is spread over all orders.
    let seeds: Vec<u64> = (0..worlds).map(|number| number * 100 / worlds).collect();
    for some in seeds.chunks(2) {
        std::thread::scope(|scope| {
            for &seed in some {
                let script = three();
                let lived = move || {
                    in_virtual_time(async |clock| world(&Life::begin(&script, seed, clock), seed).await).unwrap();
                };
                std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, lived).unwrap();
            }
        });
    }
}
