//! New guests.

use castle_datacenter::{Latencies, Version};
use castle_seams::Clock;
use serde_json::json;
use std::time::Duration;

use crate::site::{both, quick, within};

const GUEST: &[(&str, &str)] = &[
    ("vmid", "421"),
    ("name", "blue-cp-1"),
    ("description", "mine"),
    ("cores", "4"),
    ("memory", "4096"),
    ("agent", "enabled=1"),
    ("bios", "ovmf"),
    ("scsihw", "virtio-scsi-single"),
    ("efidisk0", "local-lvm:1,efitype=4m,pre-enrolled-keys=0"),
    ("scsi0", "local-lvm:32,iothread=1"),
    ("ide2", "local-lvm:cloudinit"),
    ("net0", "virtio,bridge=vmbr0"),
    ("ipconfig0", "ip=192.168.1.211/24,gw=192.168.1.1"),
    ("serial0", "socket"),
    ("tags", "Castle;blue"),
];

#[test]
fn what_is_written_reads_back_as_the_vendor_prints_it() {
    both(async |site| {
        assert_eq!(site.run("POST", "/nodes/pve/qemu", GUEST).await, "OK");
        let config = site.config(421).await;
        // The older generation puts tags in order only when they change.
        let is_eight = site.get("/version").await["release"] == "8.4";
        let tags = if is_eight { "Castle;blue" } else { "blue;castle" };
        assert_eq!(config["efidisk0"], "local-lvm:vm-421-disk-0,efitype=4m,pre-enrolled-keys=0,size=4M");
        assert_eq!(config["scsi0"], "local-lvm:vm-421-disk-1,iothread=1,size=32G");
        assert_eq!(config["ide2"], "local-lvm:vm-421-cloudinit,media=cdrom");
        let net = config["net0"].as_str().unwrap();
        assert!(net.starts_with("virtio=BC:24:11:") && net.ends_with(",bridge=vmbr0"), "{net}");
        assert_eq!(config["boot"], "order=scsi0;ide2;net0");
        assert_eq!((&config["cores"], &config["memory"], &config["tags"]), (&json!(4), &json!("4096"), &json!(tags)));
        assert!(config["smbios1"].as_str().unwrap().starts_with("uuid="));
        assert_eq!(config["digest"].as_str().unwrap().len(), 40);
        let look = site.datacenter.look();
        assert!(look.has_volume("local-lvm:vm-421-disk-1") && look.has_volume("local-lvm:vm-421-cloudinit"));
        assert_eq!(site.datacenter.effects()["create 421"], 1);
    });
}

#[test]
fn a_number_is_claimed_once() {
    both(async |site| {
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421")]).await, "OK");
        let again = site.ask("POST", "/nodes/pve/qemu", &[("vmid", "421")]).await;
        assert_eq!(again.line(), "500 unable to create VM 421 - VM 421 already exists on node 'pve'");
    });
}

/// Goal: while a guest is made, nothing but its lock is known of it. Method: looked at before the task is over.
#[test]
fn a_guest_in_the_making_is_a_placeholder() {
    let blueprint = quick()
        .with_latencies(Latencies { rest: castle_datacenter::blueprint::Span::new(0.0, 0.0), ..Latencies::default() });
    within(blueprint, async |site| {
        site.datacenter.add_pool("blue");
        let mut guest = GUEST.to_vec();
        guest.push(("pool", "blue"));
        let upid = site.post("/nodes/pve/qemu", &guest).await;
        let config = site.config(421).await;
        assert_eq!(config.as_object().unwrap().keys().collect::<Vec<_>>(), ["lock", "digest"]);
        assert_eq!(config["lock"], "create");
        assert_eq!(site.datacenter.look().guests[&421].pool, None);
        assert_eq!(site.end_of(&upid).await, "OK");
        assert_eq!(site.datacenter.look().guests[&421].pool.as_deref(), Some("blue"));
        site.clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(site.config(421).await.get("lock"), None);
    });
}

#[test]
fn what_fails_leaves_nothing() {
    both(async |site| {
        site.datacenter.fail_storage("local-lvm", "lvcreate 'pve/vm-421-disk-0' error: oops");
        let end = site.run("POST", "/nodes/pve/qemu", GUEST).await;
        assert_eq!(end, "unable to create VM 421 - lvcreate 'pve/vm-421-disk-0' error: oops");
        let look = site.datacenter.look();
        assert!(!look.guests.contains_key(&421) && !look.has_volume("local-lvm:vm-421-disk-0"));
    });
}

#[test]
fn a_disk_can_be_imported() {
    both(async |site| {
        site.datacenter.add_volume("pve", "local:import/talos.qcow2", "import", 1246 << 20);
        let disk = ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2");
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), disk]).await, "OK");
        assert_eq!(site.config(421).await["scsi0"], "local-lvm:vm-421-disk-0,size=1246M");
        let wrong = ("scsi0", "local-lvm:8,import-from=local:import/talos.qcow2");
        let refused = site.ask("POST", "/nodes/pve/qemu", &[("vmid", "422"), wrong]).await;
        assert_eq!(refused.status, 400);
        assert!(refused.body["errors"]["scsi0"].as_str().unwrap().contains("import-from"), "{refused:?}");
        let absent = ("scsi0", "local-lvm:0,import-from=local:import/none.qcow2");
        let end = site.run("POST", "/nodes/pve/qemu", &[("vmid", "423"), absent]).await;
        assert_eq!(end, "unable to create VM 423 - failed to stat '/var/lib/vz/import/none.qcow2'");
    });
}

#[test]
fn without_a_quorum_nothing_is_made() {
    both(async |site| {
        site.datacenter.set_quorum(false);
        for (path, body) in [
            ("/nodes/pve/qemu", &[("vmid", "421")][..]),
            ("/nodes/pve/qemu/101/clone", &[("newid", "421")]),
            ("/nodes/pve/qemu/101/status/start", &[]),
        ] {
            assert_eq!(site.ask("POST", path, body).await.line(), "500 cluster not ready - no quorum?");
        }
        let refused = site.ask("PUT", "/nodes/pve/qemu/101/config", &[("cores", "2")]).await;
        assert!(refused.reason.ends_with("Permission denied"), "{refused:?}");
        assert!(site.run("DELETE", "/nodes/pve/qemu/101", &[]).await.ends_with("Permission denied"));
        site.datacenter.set_quorum(true);
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[]).await, "OK");
    });
}

#[test]
fn starting_with_the_creation_is_a_task_of_its_own() {
    within(quick().on(Version::Nine), async |site| {
        let end =
            site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("scsi0", "local-lvm:1"), ("start", "1")]).await;
        assert_eq!(end, "OK");
        assert!(site.datacenter.look().guests[&421].running);
    });
}
