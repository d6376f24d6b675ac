//! Clones, linked and full.

use std::time::Duration;

use castle_datacenter::blueprint::{GIB, Span, Storage, StorageKind, TalosLatencies};
use castle_datacenter::{Blueprint, Ending, Latencies};
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::{Site, both, quick, within};

const CLONE: &str = "/nodes/pve/qemu/9000/clone";

/// Only clones and copies take time.
fn slow() -> Latencies {
    Latencies { linked_clone: Span::new(2.0, 2.0), full_copy: Span::new(20.0, 20.0), factor: 1.0, ..still() }
}

/// Nothing takes time, but could.
fn still() -> Latencies {
    let none = Span::new(0.0, 0.0);
    Latencies {
        rest: none,
        linked_clone: none,
        full_copy: none,
        download: none,
        allocate: none,
        config: none,
        resize: none,
        start: none,
        stop: none,
        shutdown: none,
        destroy: none,
        template: none,
        boot: none,
        talos: TalosLatencies::default(),
        broadcast: Duration::ZERO,
        factor: 1.0,
    }
}

#[test]
fn a_linked_clone_shares_the_volume_of_its_template() {
    both(async |site| {
        site.make_template("9000").await;
        let template = site.config(9000).await;
        assert_eq!(
            (&template["template"], &template["scsi0"]),
            (&json!(1), &json!("local-lvm:base-9000-disk-0,size=1246M"))
        );
        assert_eq!(
            site.run("POST", CLONE, &[("newid", "421"), ("name", "blue-cp-1"), ("description", "mine")]).await,
            "OK"
        );
        let config = site.config(421).await;
        assert_eq!(config["scsi0"], "local-lvm:vm-421-disk-0,size=1246M");
        assert_eq!(config["ide2"], "local-lvm:vm-421-cloudinit,media=cdrom,size=4M");
        assert_eq!(
            (&config["name"], &config["description"], &config["tags"]),
            (&json!("blue-cp-1"), &json!("mine"), &json!("blue;castle"))
        );
        assert_eq!(config.get("template"), None);
        for key in ["net0", "smbios1", "vmgenid"] {
            assert_ne!(config[key], template[key], "{key}");
        }
        let look = site.datacenter.look();
        let volume = &look.volumes[&("pve".to_owned(), "local-lvm:vm-421-disk-0".to_owned())];
        assert_eq!((volume.written, volume.parent.as_deref()), (0, Some("base-9000-disk-0")));
        assert_eq!(site.datacenter.effects()["clone 421"], 1);
    });
}

#[test]
fn a_clone_without_a_name_is_called_after_its_source() {
    both(async |site| {
        site.make_template("9000").await;
        assert_eq!(site.run("POST", CLONE, &[("newid", "421")]).await, "OK");
        assert_eq!(site.config(421).await["name"], "Copy-of-VM-talos-template");
    });
}

/// Goal: each kind of storage prints linked volumes in its own way. Method: the same template on all of them.
#[test]
fn linked_volumes_are_printed_as_their_storage_does() {
    let mut blueprint = quick();
    blueprint.storages.push(Storage::new("zfs", StorageKind::ZfsPool, &["images"], 100 * GIB));
    blueprint.storages.push(Storage::new("ceph", StorageKind::Rbd, &["images"], 100 * GIB));
    blueprint.storages.push(Storage::new("files", StorageKind::Dir, &["images"], 100 * GIB));
    blueprint.storages.push(Storage::new("thick", StorageKind::Lvm, &["images"], 100 * GIB));
    within(blueprint, async |site| {
        for (at, (storage, base, linked)) in [
            ("zfs", "zfs:base-9000-disk-0", "zfs:base-9000-disk-0/vm-8000-disk-0"),
            ("ceph", "ceph:base-9001-disk-0", "ceph:base-9001-disk-0/vm-8001-disk-0"),
            ("files", "files:9002/base-9002-disk-0.raw", "files:9002/base-9002-disk-0.raw/8002/vm-8002-disk-0.qcow2"),
        ]
        .into_iter()
        .enumerate()
        {
            let (template, clone) = (9000 + at, 8000 + at);
            let disk = format!("{storage}:1");
            let made = site.run("POST", "/nodes/pve/qemu", &[("vmid", &template.to_string()), ("scsi0", &disk)]).await;
            assert_eq!(made, "OK");
            assert_eq!(site.run("POST", &format!("/nodes/pve/qemu/{template}/template"), &[]).await, "OK");
            let path = format!("/nodes/pve/qemu/{template}/clone");
            assert_eq!(site.run("POST", &path, &[("newid", &clone.to_string())]).await, "OK");
            let disk = |config: &Value| config["scsi0"].as_str().unwrap().split(',').next().unwrap().to_owned();
            assert_eq!(disk(&site.get(&format!("/nodes/pve/qemu/{template}/config")).await), base);
            assert_eq!(disk(&site.get(&format!("/nodes/pve/qemu/{clone}/config")).await), linked);
        }
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "9003"), ("scsi0", "thick:1")]).await, "OK");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9003/template", &[]).await, "OK");
        let refused = site.ask("POST", "/nodes/pve/qemu/9003/clone", &[("newid", "8003")]).await;
        assert_eq!(refused.line(), "500 Linked clone feature is not supported for 'thick:vm-9003-disk-0' (scsi0)");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9003/clone", &[("newid", "8003"), ("full", "1")]).await, "OK");
    });
}

#[test]
fn only_a_template_can_be_linked_to() {
    both(async |site| {
        let refused = site.ask("POST", "/nodes/pve/qemu/101/clone", &[("newid", "421"), ("full", "0")]).await;
        assert_eq!(refused.line(), "500 Linked clone feature is not supported for 'local-lvm:vm-101-disk-0' (scsi0)");
        site.make_template("9000").await;
        let refused = site.ask("POST", CLONE, &[("newid", "421"), ("storage", "local-lvm")]).await;
        assert_eq!(refused.line(), "500 parameter 'storage' not allowed for linked clones");
    });
}

#[test]
fn a_number_that_is_taken_is_refused_in_the_clones_own_words() {
    both(async |site| {
        site.make_template("9000").await;
        let refused = site.ask("POST", CLONE, &[("newid", "100")]).await;
        assert_eq!(refused.line(), "500 unable to create VM 100: config file already exists");
    });
}

/// Goal: what a client sees of a clone in the making. Method: a template of two disks, each of which takes two seconds.
#[test]
fn name_and_description_come_with_the_first_disk_and_the_pool_comes_last() {
    within(quick().with_latencies(slow()), async |site| {
        site.datacenter.add_pool("blue");
        site.make_template("9000").await;
        site.datacenter.add_volume("pve", "local-lvm:base-9000-disk-1", "images", GIB);
        site.datacenter.change_guest(9000, &[("scsi1", Some("local-lvm:base-9000-disk-1,size=1G"))]);
        let given = [("newid", "421"), ("name", "cp-1"), ("description", "mine"), ("pool", "blue")];
        let upid = site.post(CLONE, &given).await;
        assert!(upid.as_str().unwrap().contains(":qmclone:9000:"), "{upid}");

        site.clock.sleep(Duration::from_secs(1)).await;
        let config = site.config(421).await;
        // The cloud-init drive is the first, and is made at once.
        assert_eq!(
            (&config["lock"], &config["name"], &config["description"]),
            (&json!("clone"), &json!("cp-1"), &json!("mine"))
        );
        assert_eq!(config.get("scsi0"), None);
        site.clock.sleep(Duration::from_secs(2)).await;
        let config = site.config(421).await;
        assert!(config.get("scsi0").is_some() && config.get("scsi1").is_none() && config["lock"] == "clone");
        assert_eq!(site.datacenter.look().guests[&421].pool, None);
        assert_eq!(site.end_of(&upid).await, "OK");
        let guest = site.datacenter.look().guests[&421].clone();
        assert_eq!((guest.lock, guest.pool.as_deref()), (None, Some("blue")));
    });
}

#[test]
fn the_placeholder_has_nothing_but_its_lock() {
    within(quick().with_latencies(slow()), async |site| {
        site.make_template("9000").await;
        site.datacenter.change_guest(9000, &[("ide2", None)]);
        let upid = site.post(CLONE, &[("newid", "421"), ("name", "cp-1")]).await;
        let config = site.config(421).await;
        assert_eq!(config.as_object().unwrap().keys().collect::<Vec<_>>(), ["lock", "digest"]);
        assert_eq!(site.end_of(&upid).await, "OK");
    });
}

async fn clones(site: &Site, count: u32) -> Vec<String> {
    let mut upids = Vec::new();
    for vmid in 500..500 + count {
        upids.push(site.post(CLONE, &[("newid", &vmid.to_string())]).await);
    }
    let mut ends = Vec::new();
    for upid in upids {
        ends.push(site.end_of(&upid).await);
    }
    ends
}

/// Goal: linked clones go one after the other on a storage, and whoever waits too long is told so. Method: seven at once,
/// of two seconds each, where one waits at most ten.
#[test]
fn linked_clones_queue_for_the_storage_until_they_give_up() {
    within(quick().with_latencies(slow()), async |site| {
        site.make_template("9000").await;
        site.datacenter.change_guest(9000, &[("ide2", None)]);
        let ends = clones(&site, 7).await;
        assert_eq!(ends[..5], ["OK"; 5]);
        let timeout = "clone failed: can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
        assert_eq!(ends[6], timeout);
        assert!(!site.datacenter.look().guests.contains_key(&506));
    });
}

#[test]
fn clones_of_a_running_guest_collide() {
    within(quick().with_latencies(slow()), async |site| {
        let first = site.post("/nodes/pve/qemu/100/clone", &[("newid", "421"), ("full", "1")]).await;
        let second = site.post("/nodes/pve/qemu/100/clone", &[("newid", "422"), ("full", "1")]).await;
        assert_eq!(site.end_of(&second).await, "can't lock file '/var/lock/qemu-server/lock-100.conf' - got timeout");
        assert_eq!(site.end_of(&first).await, "OK");
        let look = site.datacenter.look();
        let written = |vmid: u32| look.volumes[&("pve".to_owned(), format!("local-lvm:vm-{vmid}-disk-0"))].written;
        assert_eq!(written(421), written(100));
    });
}

#[test]
fn two_clones_to_one_number_end_with_one() {
    within(quick().with_latencies(slow()), async |site| {
        site.make_template("9000").await;
        let first = site.post(CLONE, &[("newid", "421"), ("name", "first")]).await;
        let second = site.ask("POST", CLONE, &[("newid", "421"), ("name", "second")]).await;
        assert_eq!(second.line(), "500 unable to create VM 421: config file already exists");
        assert_eq!(site.end_of(&first).await, "OK");
        assert_eq!(site.config(421).await["name"], "first");
    });
}

#[test]
fn a_full_storage_fails_a_clone_and_leaves_nothing() {
    both(async |site| {
        site.make_template("9000").await;
        site.datacenter.fill_storage("pve", "local-lvm", 0);
        let end = site.run("POST", CLONE, &[("newid", "421")]).await;
        assert!(
            end.starts_with("clone failed: ") && end.contains("free space in thin pool pve/data reached threshold"),
            "{end}"
        );
        site.datacenter.fill_storage("pve", "local-lvm", 1 << 20);
        let upid = site.post(CLONE, &[("newid", "421"), ("full", "1")]).await;
        let end = site.end_of(&upid).await;
        assert!(end.starts_with("clone failed: copy failed: command '/usr/bin/qemu-img convert"), "{end}");
        let log = site.get(&format!("/nodes/pve/tasks/{}/log", upid.as_str().unwrap())).await;
        assert!(log.to_string().contains("No space left on device"), "{log}");
        let look = site.datacenter.look();
        assert!(!look.guests.contains_key(&421) && !look.volumes.keys().any(|(_, name)| name.contains("vm-421-")));
    });
}

#[test]
fn a_killed_clone_leaves_its_placeholder_which_no_token_can_clear() {
    both(async |site| {
        site.make_template("9000").await;
        site.datacenter.end_next_task("qmclone", Ending::Vanishes);
        assert_eq!(site.run("POST", CLONE, &[("newid", "421")]).await, "unexpected status");
        assert_eq!(site.config(421).await["lock"], "clone");
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/421", &[]).await, "VM is locked (clone)");
        let skipped = site.ask("DELETE", "/nodes/pve/qemu/421", &[("skiplock", "1")]).await;
        assert_eq!(skipped.body["errors"]["skiplock"], "Only root may use this option.");
        let cleared = site.ask("PUT", "/nodes/pve/qemu/421/config", &[("delete", "lock")]).await;
        assert_eq!(cleared.line(), "500 only root can set 'lock' config");
    });
}

#[test]
fn the_administrator_can_clear_a_lock() {
    within(quick(), async |mut site| {
        site.datacenter.set_lock(101, Some("clone"));
        site.log_in_as_root().await;
        let path = "/nodes/pve/qemu/101/config";
        assert_eq!(site.ask("PUT", path, &[("delete", "lock")]).await.line(), "500 VM is locked (clone)");
        site.put(path, &[("delete", "lock"), ("skiplock", "1")]).await;
        assert_eq!(site.datacenter.look().guests[&101].lock, None);
        site.datacenter.set_lock(101, Some("clone"));
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[("skiplock", "1")]).await, "OK");
    });
}

#[test]
fn a_clone_to_another_host_needs_shared_storage() {
    let mut blueprint = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]).with_latencies(Latencies::none());
    blueprint.storages.push(Storage::new("ceph", StorageKind::Rbd, &["images"], 100 * GIB));
    within(blueprint, async |site| {
        site.make_template("9000").await;
        let refused = site.ask("POST", CLONE, &[("newid", "421"), ("target", "two")]).await;
        assert_eq!(refused.line(), "500 can't clone VM to node 'two' (VM uses local storage)");
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "9001"), ("scsi0", "ceph:1")]).await, "OK");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9001/template", &[]).await, "OK");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9001/clone", &[("newid", "421"), ("target", "two")]).await, "OK");
        assert_eq!(
            site.get("/nodes/two/qemu/421/config").await["scsi0"],
            "ceph:base-9001-disk-0/vm-421-disk-0,size=1G"
        );
        assert_eq!(
            site.ask("GET", "/nodes/pve/qemu/421/config", &[]).await.line(),
            "500 Configuration file 'nodes/pve/qemu-server/421.conf' does not exist"
        );
    });
}
