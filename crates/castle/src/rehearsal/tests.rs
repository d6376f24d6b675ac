//! Goal: a rehearsal tries the user's own file with the real verbs, and tells when castle breaks a promise. Method: whole worlds, as
//! `castle rehearse` makes them; and worlds into which a defect is planted.

use std::path::Path;
use std::sync::{Arc, Mutex};

use castle_datacenter::{Asked, Datacenter, Reply, Witness};
use castle_rehearsal::{Loss, Moment};
use futures_util::future::join;

use super::fixture::{SMALL, in_a_world, script, written};
use super::life::{At, Kill};
use super::world::meddled;
use super::*;
use crate::output::Exit;

#[test]
fn the_castle_of_the_readme_is_rehearsed() {
    let script = script(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/blue"));
    for rehearsed in rehearse(&script, &[1]).unwrap() {
        assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
        let times = rehearsed.times;
        assert!(times.api < times.handover && times.handover <= times.whole && times.api.is_some(), "{times:?}");
    }
}

#[test]
fn a_castle_on_proxmox_is_rehearsed_without_its_secrets() {
    let script = written(SMALL);
    for rehearsed in rehearse(&script, &[1, 2]).unwrap() {
        assert_eq!(rehearsed.broken, [], "{}", rehearsed.story);
        assert!(!rehearsed.kills.is_empty() && rehearsed.effects > 100, "{:?}", rehearsed.kills);
    }
    assert!(script.left_out.iter().any(|what| what.starts_with("your secrets")), "{:?}", script.left_out);
}

/// When a guest of castle's is removed, touches one that is somebody else's.
struct Clumsy(Datacenter);

impl Witness for Clumsy {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let reply = handle();
        if asked.method == "DELETE" {
            self.0.change_guest(420, &[("memory", Some("1024"))]);
        }
        Some(reply)
    }
}

#[test]
fn a_broken_promise_is_told_and_its_seed_replays() {
    let script = written(SMALL);
    let clumsy = |life: &Life| life.datacenter.watch(Arc::new(Clumsy(life.datacenter.clone())));
    let once = || meddled(&script, &[7], &clumsy).unwrap().remove(0);
    let (first, again) = (once(), once());
    let told: Vec<(u8, &str)> = first.broken.iter().map(|broken| (broken.promise, broken.seen.as_str())).collect();
    let expected = (2, "VM 420, which is not castle's, was changed");
    assert_eq!(told, [expected, expected], "in both lives: {}", first.story);
    assert_eq!((first.broken, first.kills, first.times), (again.broken, again.kills, again.times));
    assert_eq!(first.story, again.story, "the same seed is the same story");
}

/// Holds what a hypervisor says of a guest's description, whatever was asked.
struct Forgetful(Mutex<bool>);

impl Witness for Forgetful {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        // The second time that a guest is to be removed nothing happens, and it is said that it did.
        let mut was_asked = self.0.lock().unwrap();
        if asked.method == "DELETE" && asked.path.ends_with("/qemu/424") && std::mem::replace(&mut *was_asked, true) {
            return None;
        }
        Some(handle())
    }
}

#[test]
fn what_cannot_be_done_is_told_as_a_promise_that_was_not_kept() {
    let script = written(SMALL);
    let deaf = |life: &Life| {
        life.datacenter.watch(Arc::new(Forgetful(Mutex::new(true))));
    };
    let rehearsed = meddled(&script, &[3], &deaf).unwrap().remove(0);
    let down = rehearsed.broken.iter().find(|broken| broken.promise == 4);
    let down = down.unwrap_or_else(|| panic!("{:?}", rehearsed.broken));
    assert!(down.when == "down" && down.seen.contains("guest: 424"), "{down:?}");
}

#[test]
fn a_verb_is_killed_where_it_is_meant_and_goes_on() {
    let script = written(SMALL);
    in_a_world(&script, 1, async |life| {
        let is_bootstrap = |change: &str| change.starts_with("Bootstrap");
        let at = At::Change(Box::new(is_bootstrap));
        let told = life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await;
        assert_eq!(told.exit, None, "{}", told.printed.text);
        assert!(life.tally.changes().last().is_some_and(|last| is_bootstrap(last)));
        // Meanwhile somebody presses Ctrl-C; and then goes on.
        let hand = async {
            life.clock().sleep(std::time::Duration::from_secs(5)).await;
            life.interrupt();
        };
        let (told, ()) = join(life.run(&["up"]), hand).await;
        assert_eq!(told.exit, Some(Exit::Interrupted), "{}", told.printed.text);
        let told = life.run(&["up"]).await;
        assert_eq!(told.exit, Some(Exit::Done), "{}", told.printed.text);
        assert_eq!(told.printed.result["result"], "raised");
        assert_eq!(life.datacenter.clusters().len(), 1, "bootstrapped once");
        assert_eq!(life.run(&["status", "--nonsense"]).await.exit, Some(Exit::Invalid));
    });
}
