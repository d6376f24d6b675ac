//! Many guests made, changed and destroyed at random, under random faults.

use std::time::Duration;

use castle_datacenter::{Blueprint, Ending, GuestView, Snapshot};
use castle_seams::Clock;
use castle_testbed::{Chance, in_virtual_time};

use crate::site::Site;

/// One random request or fault.
async fn step(site: &Site, chance: &Chance) {
    let vmid = (420 + chance.below(6)).to_string();
    let guest = format!("/nodes/pve/qemu/{vmid}");
    let (method, path, given): (&str, String, Vec<(&str, &str)>) = match chance.below(12) {
        0 | 1 => (
            "POST",
            "/nodes/pve/qemu".into(),
            vec![("vmid", &vmid), ("scsi0", "local-lvm:4"), ("ide2", "local-lvm:cloudinit")],
        ),
        2 | 3 => ("POST", "/nodes/pve/qemu/9000/clone".into(), vec![("newid", &vmid)]),
        4 => ("POST", "/nodes/pve/qemu/9000/clone".into(), vec![("newid", &vmid), ("full", "1")]),
        5 => ("PUT", format!("{guest}/config"), vec![("scsi1", "local-lvm:1"), ("memory", "1024")]),
        6 => ("POST", format!("{guest}/config"), vec![("delete", "scsi1"), ("force", "1")]),
        7 => ("PUT", format!("{guest}/resize"), vec![("disk", "scsi0"), ("size", "+1G")]),
        8 => ("POST", format!("{guest}/status/start"), vec![]),
        9 => ("POST", format!("{guest}/status/stop"), vec![]),
        10 => ("DELETE", guest, vec![]),
        _ => {
            match chance.below(4) {
                0 => site.datacenter.fail_storage("local-lvm", "oops"),
                1 => site.datacenter.end_next_task("qmclone", Ending::Fails("oops".into())),
                2 => site.datacenter.end_next_task("qmcreate", Ending::Vanishes),
                _ => site.clock.sleep(Duration::from_secs(chance.below(20))).await,
            }
            return;
        }
    };
    // Whether it is refused is a matter of the moment.
    let said = site.ask(method, &path, &given).await;
    assert!([200, 400, 500].contains(&said.status), "{method} {path}: {said:?}");
}

/// What must hold whenever nothing is going on.
fn check(look: &Snapshot, seed: u64) {
    for guest in look.guests.values().filter(|guest| guest.lock.is_none()) {
        for (key, value) in guest.config.iter().filter(|(_, value)| value.contains("local-lvm:")) {
            let volid = value.split(',').next().unwrap();
            assert!(look.has_volume(volid), "seed {seed}: {key} of {} has no volume\n{look}", guest.vmid);
        }
    }
    for (_, volid) in look.volumes.keys().filter(|(_, volid)| volid.starts_with("local-lvm:")) {
        let owner: u32 = volid.split('-').nth(2).unwrap().parse().unwrap();
        let is_named = |guest: &GuestView| guest.config.values().any(|value| value.contains(volid.as_str()));
        let has_owner = look.guests.get(&owner).is_some_and(is_named);
        // Only what was killed, or could not be freed, leaves something behind.
        let is_excused = look.tasks.iter().filter(|task| task.id == owner.to_string()).any(|task| {
            let exit = task.exit.as_deref().unwrap_or_default();
            exit == "unexpected status" || exit.starts_with("WARNINGS")
        });
        assert!(has_owner || is_excused, "seed {seed}: {volid} belongs to nobody\n{look}");
    }
    for task in &look.tasks {
        assert!(task.exit.is_some(), "seed {seed}: {} does not end", task.upid);
    }
}

fn story(seed: u64) -> Snapshot {
    in_virtual_time(async |clock| {
        let site = Site::new(Blueprint::embedded(&[]).with_seed(seed), clock);
        site.make_template("9000").await;
        let strangers = [site.datacenter.digest_of(100), site.datacenter.digest_of(101)];
        let chance = Chance::new(seed);
        for _ in 0..60 {
            step(&site, &chance).await;
        }
        site.clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!([site.datacenter.digest_of(100), site.datacenter.digest_of(101)], strangers, "seed {seed}");
        site.datacenter.look()
    })
}

/// Goal: whatever is asked and whatever fails, nothing is lost and nothing is left over. Method: random requests and faults,
/// then an hour of rest.
#[test]
fn nothing_is_lost_and_nothing_left_over() {
    for seed in 0..24 {
        check(&story(seed), seed);
    }
}

#[test]
fn a_seed_tells_the_same_story_again() {
    for seed in 100..104 {
        assert_eq!(story(seed), story(seed), "seed {seed}");
    }
}
