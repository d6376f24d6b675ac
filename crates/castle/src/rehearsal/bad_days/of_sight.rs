//! Machines that castle does not see though they run: a token that shows no guests, a record that nobody can read, a raise that never ended. Whoever
//! does not see is never sure, and the secrets of a castle stay as long as one of its machines may run.

use std::collections::BTreeMap;

use castle_datacenter::EMBEDDED_TOKEN_ID;
use castle_engine::Seal;
use castle_rehearsal::{Chance, Loss, Moment};
use serde_json::json;

use super::super::life::{At, Kill};
use super::super::promises::forget;
use super::of_etcd::{control_planes, identity, three, vmid};
use super::of_identity::vaulted;
use super::*;

/// From now on the token shows no guest, or all of them again.
pub(super) fn blind(life: &Life, is_blind: bool) {
    if is_blind {
        life.datacenter.revoke(EMBEDDED_TOKEN_ID, "VM.Audit");
    } else {
        life.datacenter.grant(EMBEDDED_TOKEN_ID, "VM.Audit");
    }
}

/// Kills a verb at the first change that begins like this.
async fn killed(life: &Life, words: &[&str], change: &'static str, moment: Moment) {
    let at = At::Change(Box::new(move |made| made.starts_with(change)));
    let told = life.run_killed(words, Kill { at, moment, loss: Loss::None }).await;
    assert_eq!(told.exit, None, "{}", told.printed.text);
}

fn guests(life: &Life) -> Vec<u32> {
    life.datacenter.look().guests.keys().copied().collect()
}

/// Holds that `down`, which sees nothing, keeps what it cannot make again; and that afterwards the castle is where it was.
async fn down_keeps_all(life: &Life, words: &[&str]) {
    let (secrets, before) = (vaulted(life), guests(life));
    assert!(!secrets.is_empty());
    // Where nothing is seen there is nothing to ask about: nobody's yes is needed, and nobody's is taken for more than that.
    for verb in [&["down"][..], &["down", "--yes"]] {
        let told = life.run(verb).await;
        hold(&told, Exit::Failed, words);
        assert_eq!(told.printed.result["result"], "failed", "{}", told.printed.result);
        assert_eq!((vaulted(life), guests(life)), (secrets.clone(), before.clone()), "{}", told.printed.text);
    }
}

/// A machine that is just being cloned does not stand yet: whoever adopts meanwhile has none to miss.
#[test]
fn a_machine_that_is_being_made_is_none_that_stands() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        let at = At::Change(Box::new(|change| change.ends_with("/clone")));
        assert_eq!(life.run_killed(&["up"], Kill { at, moment: Moment::After, loss: Loss::None }).await.exit, None);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["is known again"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says (life 1)"]);
    });
}

#[test]
fn a_blind_token_ends_no_life() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        blind(&life, true);
        down_keeps_all(&life, &["may still be there: blue-cp-1 (VM 1000 on pve)", "--forget-secrets blue"]).await;
        let before = identity(&life);
        blind(&life, false);
        let up = life.run(&["up"]).await;
        assert_eq!(up.printed.result["result"], "unchanged", "{}", up.printed.text);
        assert_eq!(identity(&life), before);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says (life 1)"]);
    });
}

/// Goal: whoever sees a part of the castle does not take that for all of it, whatever became of the state. Method: the state is lost, and the token shows
/// two of four machines; with and without an `adopt` in between.
#[test]
fn who_sees_a_part_of_the_machines_ends_no_life() {
    for adopts in [false, true] {
        in_worlds(&three(), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            let hidden = [vmid(&life, "blue-cp-2"), vmid(&life, "blue-worker-1")];
            let hide = |is_hidden| {
                hidden.iter().for_each(|vmid| life.datacenter.hide_guest("castle@pve", *vmid, is_hidden));
            };
            let secrets = vaulted(&life);
            forget(&life);
            hide(true);
            if adopts {
                hold(
                    &life.run(&["adopt"]).await,
                    Exit::Refused,
                    &["Proxmox has a VM 1001, which the token may not see"],
                );
            }
            let down = life.run(&["down", "--yes"]).await;
            let known = "may still be there: blue-cp-2 (VM 1001 on pve), blue-worker-1 (VM 1010 on pve)";
            let unknown = "a node of its file is there that castle may not see";
            hold(&down, Exit::Failed, &[if adopts { known } else { unknown }, "--forget-secrets blue"]);
            assert_eq!(vaulted(&life), secrets, "{}", down.printed.text);
            assert!(hidden.iter().all(|vmid| guests(&life).contains(vmid)));
            hide(false);
            hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        });
    }
}

/// One control plane is hidden from the token, and runs: it keeps its voice in etcd, and nobody makes another in its place.
#[test]
fn a_control_plane_that_is_hidden_from_the_token_is_not_made_anew() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let (before, cluster) = (guests(&life), identity(&life));
        let members = |life: &Life| life.datacenter.cluster("blue").unwrap().etcds.concat().len();
        let hidden = vmid(&life, "blue-cp-2");
        life.datacenter.hide_guest("castle@pve", hidden, true);
        let words =
            ["may be there: Proxmox has a VM 1001, which the token may not see", "give the token VM.Audit on it"];
        for verb in ["plan", "up"] {
            life.tally.changes();
            hold(&life.run(&[verb]).await, Exit::Refused, &words);
            assert_eq!(
                (life.tally.changes(), guests(&life), members(&life)),
                (Vec::new(), before.clone(), 3),
                "{verb}"
            );
        }
        life.datacenter.hide_guest("castle@pve", hidden, false);
        let up = life.run(&["up"]).await;
        assert_eq!(
            (&up.printed.result["result"], identity(&life)),
            (&json!("unchanged"), cluster),
            "{}",
            up.printed.text
        );
    });
}

/// A castle stands, and nothing of it is to be seen where castle looks: `up` and `plan` refuse, say whom they expected, where and as whom they looked, and the
/// ways on; and nothing is made.
fn unseen(happens: impl AsyncFn(&Life) + Sync, is_back: bool) {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        happens(&life).await;
        let before = guests(&life);
        let words = [
            "stands by its state, and none of its machines is to be seen: blue-cp-1 (VM 1000 on pve), blue-cp-2 (VM 1001 on pve)",
            "looked at ",
            "castle@pve!",
            "mend the endpoint or the token in castle.yaml",
            "castle down --forget-secrets blue ends this life",
        ];
        for verb in [["plan"].as_slice(), &["plan", "--deep"], &["up"], &["up", "--deep", "--yes"]] {
            life.tally.changes();
            let told = life.run(verb).await;
            hold(&told, Exit::Refused, &words);
            assert_eq!(told.printed.result["result"], "refused", "{}", told.printed.result);
            assert_eq!((life.tally.changes(), guests(&life)), (Vec::new(), before.clone()), "{verb:?}");
        }
        if is_back {
            blind(&life, false);
            hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        }
    });
}

#[test]
fn a_blind_token_makes_nothing() {
    unseen(async |life| blind(life, true), true);
}

/// Neither is there room for the castle where castle looks: that is not what is told.
#[test]
fn whoever_looks_in_the_wrong_place_is_not_told_to_make_room_there() {
    let elsewhere = async |life: &Life| {
        blind(life, true);
        life.datacenter.fill_storage("pve", "local-lvm", 1 << 30);
    };
    unseen(elsewhere, true);
}

/// Everything is deleted by hand, images and strangers too: as on another hypervisor at the same endpoint.
#[test]
fn an_empty_hypervisor_makes_nothing() {
    unseen(async |life| guests(life).into_iter().for_each(|vmid| assert!(life.datacenter.remove_guest(vmid))), false);
}

/// What a raise was about to make is known before the first of it is made: it need not have ended well.
#[test]
fn a_raise_that_never_ended_is_not_forgotten_by_who_sees_nothing() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        killed(&life, &["up"], "Bootstrap", Moment::After).await;
        blind(&life, true);
        down_keeps_all(&life, &["may still be there: blue-cp-1 (VM 1000 on pve)"]).await;
        blind(&life, false);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 1)"]);
    });
}

/// What was never made is missed by nobody.
#[test]
fn what_was_not_made_yet_keeps_nobody_from_taking_the_rest_down() {
    in_worlds(&three(), &SEEDS, async |life| {
        let others = Others::of(&life);
        for change in ["POST /nodes/pve/qemu/9998/clone", "POST /nodes/pve/qemu", "ApplyConfiguration"] {
            killed(&life, &["up"], change, Moment::Before).await;
            hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
            assert_eq!(others.left(&life), Vec::<String>::new());
        }
    });
}

/// That castle was about to remove machines is no proof that it did.
#[test]
fn a_down_that_removed_nothing_has_removed_nothing() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        killed(&life, &["down", "--yes"], "POST /nodes/pve/qemu/1000/status/stop", Moment::Before).await;
        blind(&life, true);
        down_keeps_all(&life, &["may still be there: ", "blue-cp-1 (VM 1000 on pve)"]).await;
        blind(&life, false);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        assert_eq!(vaulted(&life), BTreeMap::new());
    });
}

/// Only the vault knows the castle: its machines may be anywhere.
#[test]
fn a_lost_state_and_a_blind_token_leave_the_vault_alone() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        forget(&life);
        blind(&life, true);
        down_keeps_all(&life, &["only its vault knows of blue", "--forget-secrets blue"]).await;
        blind(&life, false);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["life 1"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// What is written down of the machines, and cannot be read, is not nothing.
#[test]
fn who_cannot_read_the_state_and_sees_nothing_ends_no_life() {
    // A key of somebody else.
    let other = Seal::mint_identity(&Chance::new(99)).unwrap();
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        blind(&life, true);
        let (secrets, before) = (vaulted(&life), guests(&life));
        for key in [None, Some(other.as_str())] {
            let told = life.run_with("SOPS_AGE_KEY", key, &["down", "--yes"]).await;
            hold(&told, Exit::Failed, &["nobody knows what", "--forget-secrets blue"]);
            assert_eq!((vaulted(&life), guests(&life)), (secrets.clone(), before.clone()), "{}", told.printed.text);
        }
        blind(&life, false);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        // Whoever sees the machines takes them down without a key.
        let told = life.run_with("SOPS_AGE_KEY", None, &["down", "--yes"]).await;
        hold(&told, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// A worker that is not seen keeps the life; once it is seen again the castle goes on in it, though its control planes are gone by castle's own hand.
#[test]
fn a_castle_of_which_only_a_part_went_goes_on_in_its_life() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let worker = vmid(&life, "blue-worker-1");
        let config = life.datacenter.look().guests[&worker].config.clone();
        assert!(life.datacenter.change_guest(worker, &[("description", None), ("tags", None)]));
        hold(&life.run(&["down", "--yes"]).await, Exit::Failed, &["still there: VM 1010 (blue-worker-1)"]);
        assert!(control_planes(&life).iter().all(|vmid| !guests(&life).contains(vmid)));
        hold(
            &life.run(&["up"]).await,
            Exit::Refused,
            &["VM 1010 (blue-worker-1) on pve: is this castle's by its state and has no mark"],
        );
        let options = ["description", "tags"].map(|option| (option, config.get(option).map(String::as_str)));
        assert!(life.datacenter.change_guest(worker, &options));
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says (life 1)"]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// A guest whose removal was cut off on its host has no mark any more, and is still there.
#[test]
fn a_guest_that_is_stuck_in_its_removal_is_told_by_every_down() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let worker = vmid(&life, "blue-worker-1");
        killed(&life, &["down", "--yes"], "DELETE /nodes/pve/qemu/1000", Moment::Before).await;
        life.datacenter.switch(worker, false);
        assert!(life.datacenter.change_guest(worker, &[("description", None), ("tags", None)]));
        assert!(life.datacenter.set_lock(worker, Some("destroyed")));
        for _ in 0..2 {
            let told = life.run(&["down", "--yes"]).await;
            hold(&told, Exit::Failed, &["VM 1010", "qm unlock 1010 && qm destroy 1010"]);
            assert!(!vaulted(&life).is_empty(), "{}", told.printed.text);
        }
        assert!(life.datacenter.remove_guest(worker));
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// `rebirth --keep-identity`, killed anywhere in its end, keeps the identity when it is run again, and so does `up`.
#[test]
fn an_identity_that_is_to_be_kept_is_kept() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let secrets = |life: &Life| vaulted(life).keys().cloned().collect::<Vec<_>>();
        let (before, whole) = (secrets(&life), life.run(&["rebirth", "--yes", "--keep-identity"]).await.effects);
        for beat in (0..whole).step_by(5) {
            let kill = Kill { at: At::Beat(beat), moment: Moment::After, loss: Loss::None };
            if life.run_killed(&["rebirth", "--yes", "--keep-identity"], kill).await.exit.is_some() {
                break;
            }
            let up = life.run(&["up"]).await;
            if up.exit == Some(Exit::Refused) {
                assert!(!up.printed.text.contains("forget-secrets"), "beat {beat}: {}", up.printed.text);
                hold(&life.run(&["rebirth", "--yes", "--keep-identity"]).await, Exit::Done, &[]);
            } else {
                assert_eq!(up.exit, Some(Exit::Done), "beat {beat}: {}", up.printed.text);
            }
            assert_eq!(secrets(&life), before, "beat {beat}");
        }
    });
}
