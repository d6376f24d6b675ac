//! Guests that go.

use std::time::Duration;

use castle_datacenter::blueprint::{GIB, Storage, StorageKind};
use castle_datacenter::{Latencies, Version};
use castle_seams::Clock;

use crate::site::{both, quick, within};

#[test]
fn a_guest_goes_with_what_is_its_own() {
    both(async |site| {
        site.make_template("9000").await;
        site.datacenter.add_volume("pve", "local:iso/x.iso", "iso", 1 << 20);
        let clone = "/nodes/pve/qemu/9000/clone";
        assert_eq!(site.run("POST", clone, &[("newid", "421")]).await, "OK");
        site.put("/nodes/pve/qemu/421/config", &[("ide0", "local:iso/x.iso,media=cdrom"), ("scsi1", "local-lvm:1")])
            .await;
        site.put("/nodes/pve/qemu/421/config", &[("delete", "scsi1")]).await;
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/421", &[("purge", "1")]).await, "OK");
        let look = site.datacenter.look();
        assert!(look.has_volume("local:iso/x.iso") && look.has_volume("local-lvm:base-9000-disk-0"));
        assert!(!look.volumes.keys().any(|(_, name)| name.contains("-421-")), "{look}");
        assert_eq!(site.datacenter.effects()["destroy 421"], 1);
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/9000", &[]).await, "OK");
        assert_eq!(
            site.ask("DELETE", "/nodes/pve/qemu/421", &[]).await.line(),
            "500 Configuration file 'nodes/pve/qemu-server/421.conf' does not exist"
        );
    });
}

/// Goal: a template stays while guests are linked to it, on storages that know of it. Method: one on ZFS, which knows, and one
/// on a thin pool, which does not.
#[test]
fn a_template_stays_while_its_storage_knows_of_clones() {
    let mut blueprint = quick();
    blueprint.storages.push(Storage::new("zfs", StorageKind::ZfsPool, &["images"], 100 * GIB));
    within(blueprint, async |site| {
        let in_use = "base volume 'zfs:base-9000-disk-0' is still in use by linked cloned";
        for (storage, end) in [("zfs", in_use), ("local-lvm", "OK")] {
            let disk = format!("{storage}:1");
            assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "9000"), ("scsi0", &disk)]).await, "OK");
            assert_eq!(site.run("POST", "/nodes/pve/qemu/9000/template", &[]).await, "OK");
            assert_eq!(site.run("POST", "/nodes/pve/qemu/9000/clone", &[("newid", "421")]).await, "OK");
            assert_eq!(site.run("DELETE", "/nodes/pve/qemu/9000", &[]).await, end);
            assert_eq!(site.run("DELETE", "/nodes/pve/qemu/421", &[]).await, "OK");
            site.datacenter.remove_guest(9000);
        }
    });
}

#[test]
fn what_runs_or_is_protected_stays() {
    both(async |site| {
        assert_eq!(
            site.ask("DELETE", "/nodes/pve/qemu/100", &[]).await.line(),
            "500 VM 100 is running - destroy failed"
        );
        site.datacenter.change_guest(101, &[("protection", Some("1"))]);
        let refused = site.ask("DELETE", "/nodes/pve/qemu/101", &[]).await;
        assert_eq!(refused.line(), "500 can't remove VM 101 - protection mode enabled");
    });
}

#[test]
fn what_nothing_refers_to_goes_only_on_demand() {
    both(async |site| {
        site.datacenter.add_volume("pve", "local-lvm:vm-421-disk-7", "images", 1 << 30);
        for (given, is_left) in [(&[][..], true), (&[("destroy-unreferenced-disks", "1")], false)] {
            assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421")]).await, "OK");
            assert_eq!(site.run("DELETE", "/nodes/pve/qemu/421", given).await, "OK");
            assert_eq!(site.datacenter.look().has_volume("local-lvm:vm-421-disk-7"), is_left);
        }
    });
}

#[test]
fn a_disk_that_cannot_be_freed_is_warned_of() {
    for (version, expected) in [(Version::Eight, "OK"), (Version::Nine, "WARNINGS: 1")] {
        within(quick().on(version), async |site| {
            site.datacenter.fail_storage("local-lvm", "lvremove error");
            assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[]).await, expected);
            let look = site.datacenter.look();
            assert!(!look.guests.contains_key(&101) && look.has_volume("local-lvm:vm-101-disk-0"));
        });
    }
}

#[test]
fn pool_and_rights_go_with_the_guest() {
    both(async |site| {
        site.datacenter.add_pool("blue");
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("pool", "blue")]).await, "OK");
        assert!(site.datacenter.look().pools["blue"].contains(&421));
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/421", &[]).await, "OK");
        assert!(site.datacenter.look().pools["blue"].is_empty());
    });
}

/// Goal: nobody can take the number before everything is gone. Method: looked at all the time while the guest goes.
#[test]
fn the_number_is_taken_until_the_end() {
    within(quick().with_latencies(Latencies::default()), async |site| {
        let upid = site.post_delete(101).await;
        let mut locks = Vec::new();
        while let Some(guest) = site.datacenter.look().guests.get(&101) {
            if locks.last() != Some(&guest.lock) {
                locks.push(guest.lock.clone());
            }
            site.clock.sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(locks, [None, Some("destroyed".to_owned())]);
        assert_eq!(site.end_of(&upid).await, "OK");
    });
}
