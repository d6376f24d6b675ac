//! Changes of a configuration.

use std::time::Duration;

use castle_datacenter::blueprint::Span;
use castle_datacenter::{Latencies, Version};
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::{Site, both, quick, within};

const CONFIG: &str = "/nodes/pve/qemu/421/config";

async fn make(site: &Site) {
    let guest = [
        ("vmid", "421"),
        ("name", "cp-1"),
        ("memory", "2048"),
        ("scsi0", "local-lvm:8"),
        ("net0", "virtio,bridge=vmbr0"),
    ];
    assert_eq!(site.run("POST", "/nodes/pve/qemu", &guest).await, "OK");
}

#[test]
fn a_stale_digest_is_refused() {
    both(async |site| {
        make(site).await;
        let digest = site.config(421).await["digest"].as_str().unwrap().to_owned();
        site.put(CONFIG, &[("cores", "2"), ("digest", &digest)]).await;
        let stale = site.ask("PUT", CONFIG, &[("cores", "3"), ("digest", &digest)]).await;
        assert_eq!(stale.line(), "500 checksum mismatch (file change by other user?)");
        assert_eq!(site.config(421).await["cores"], 2);
        let stale = site
            .run("PUT", "/nodes/pve/qemu/421/resize", &[("disk", "scsi0"), ("size", "9G"), ("digest", &digest)])
            .await;
        assert_eq!(stale, "checksum mismatch (file change by other user?)");
        let stale = site.ask("POST", CONFIG, &[("cores", "3"), ("digest", &digest)]).await;
        assert_eq!(stale.line(), "500 checksum mismatch (file change by other user?)");
        assert_eq!(site.datacenter.effects()["config 421"], 1);
    });
}

/// Goal: what a running guest cannot take waits until it is off. Method: options of both kinds, read in the three ways.
#[test]
fn what_cannot_be_plugged_is_pending_until_the_guest_is_off() {
    both(async |site| {
        make(site).await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/start", &[]).await, "OK");
        site.put(CONFIG, &[("memory", "4096"), ("name", "cp-2"), ("ipconfig0", "ip=dhcp"), ("scsi1", "local-lvm:1")])
            .await;
        let (wanted, current) = (site.config(421).await, site.get(&format!("{CONFIG}?current=1")).await);
        assert_eq!((&wanted["memory"], &current["memory"]), (&json!("4096"), &json!("2048")));
        assert_eq!((&current["name"], &current["ipconfig0"]), (&json!("cp-2"), &json!("ip=dhcp")));
        assert_eq!(current["scsi1"], "local-lvm:vm-421-disk-1,size=1G");
        let pending = site.get("/nodes/pve/qemu/421/pending").await;
        let row = pending.as_array().unwrap().iter().find(|row| row["key"] == "memory").unwrap();
        assert_eq!((&row["value"], &row["pending"]), (&json!("2048"), &json!("4096")));

        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/stop", &[]).await, "OK");
        assert_eq!(site.get(&format!("{CONFIG}?current=1")).await["memory"], "4096");
        assert!(site.datacenter.look().guests[&421].pending.is_empty());
    });
}

#[test]
fn what_is_pending_can_be_reverted() {
    both(async |site| {
        make(site).await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/start", &[]).await, "OK");
        site.put(CONFIG, &[("cores", "8"), ("delete", "memory")]).await;
        let pending = site.datacenter.look().guests[&421].pending.clone();
        assert_eq!(
            pending.into_iter().collect::<Vec<_>>(),
            [("cores".into(), Some("8".into())), ("memory".into(), None)]
        );
        site.put(CONFIG, &[("revert", "cores,memory")]).await;
        assert!(site.datacenter.look().guests[&421].pending.is_empty());
        assert_eq!(site.config(421).await["memory"], "2048");
    });
}

#[test]
fn a_disk_that_is_taken_out_is_kept_and_freed_on_demand() {
    both(async |site| {
        make(site).await;
        site.put(CONFIG, &[("delete", "scsi0")]).await;
        let config = site.config(421).await;
        assert_eq!((&config["unused0"], &config["boot"]), (&json!("local-lvm:vm-421-disk-0"), &json!("order=net0")));
        site.put(CONFIG, &[("delete", "unused0")]).await;
        assert!(!site.datacenter.look().has_volume("local-lvm:vm-421-disk-0"));
        site.put(CONFIG, &[("ide2", "local-lvm:cloudinit")]).await;
        let twice = site.ask("PUT", CONFIG, &[("ide0", "local-lvm:cloudinit")]).await;
        assert_eq!(twice.line(), "500 ide0 - cloud-init drive is already attached at 'ide2'");
        site.put(CONFIG, &[("delete", "ide2")]).await;
        assert!(!site.datacenter.look().has_volume("local-lvm:vm-421-cloudinit"));
    });
}

#[test]
fn disks_grow_and_never_shrink() {
    both(async |site| {
        make(site).await;
        let resize = async |size: &str| {
            site.run("PUT", "/nodes/pve/qemu/421/resize", &[("disk", "scsi0"), ("size", size)]).await
        };
        assert_eq!(resize("32G").await, "OK");
        assert_eq!(resize("+1G").await, "OK");
        assert_eq!(site.config(421).await["scsi0"], "local-lvm:vm-421-disk-0,size=33G");
        assert_eq!(resize("10G").await, "shrinking disks is not supported");
        assert_eq!(resize("33G").await, "OK");
        assert_eq!(site.datacenter.effects()["resize 421"], 2);
        let absent = site.run("PUT", "/nodes/pve/qemu/421/resize", &[("disk", "scsi5"), ("size", "1G")]).await;
        assert_eq!(absent, "disk 'scsi5' does not exist");
    });
}

#[test]
fn the_boot_order_names_what_is_there() {
    both(async |site| {
        make(site).await;
        let refused = site.ask("PUT", CONFIG, &[("boot", "order=scsi0;ide0")]).await;
        assert_eq!(refused.line(), "500 invalid bootorder: device 'ide0' does not exist'");
        site.datacenter.add_volume("pve", "local:iso/x.iso", "iso", 1 << 20);
        site.put(CONFIG, &[("ide0", "local:iso/x.iso,media=cdrom")]).await;
        let config = site.config(421).await;
        assert_eq!(config["boot"], "order=scsi0;net0;ide0");
        assert_eq!(config["ide0"], "local:iso/x.iso,media=cdrom,size=1M");
        let absent = site.ask("PUT", CONFIG, &[("ide1", "local:iso/y.iso,media=cdrom")]).await;
        assert_eq!(absent.line(), "500 volume 'local:iso/y.iso' does not exist");
    });
}

#[test]
fn what_contradicts_itself_is_refused() {
    both(async |site| {
        make(site).await;
        let errors = async |pairs: &[(&str, &str)]| site.ask("PUT", CONFIG, pairs).await.body["errors"].clone();
        assert_eq!(
            errors(&[("cores", "2"), ("delete", "cores")]).await["delete"],
            "you can't use '-cores' and -delete cores' at the same time"
        );
        assert_eq!(errors(&[("delete", "nonsense")]).await["delete"], "unknown option 'nonsense'");
        let balloon = site.ask("PUT", CONFIG, &[("balloon", "4096")]).await;
        assert_eq!(balloon.line(), "500 balloon value too large (must be smaller than assigned memory)");
        let unknown = "property is not defined in schema and the schema does not allow additional properties";
        assert_eq!(errors(&[("nonsense", "1")]).await["nonsense"], unknown);
        assert_eq!(site.ask("PUT", CONFIG, &[]).await.line(), "500 no options specified");
    });
}

#[test]
fn a_task_does_it_too() {
    both(async |site| {
        make(site).await;
        assert_eq!(site.run("POST", CONFIG, &[("scsi1", "local-lvm:4"), ("description", "a\nb\n")]).await, "OK");
        let config = site.config(421).await;
        assert_eq!(
            (&config["scsi1"], &config["description"]),
            (&json!("local-lvm:vm-421-disk-1,size=4G"), &json!("a\nb"))
        );
        site.datacenter.set_lock(421, Some("backup"));
        assert_eq!(site.ask("POST", CONFIG, &[("cores", "2")]).await.line(), "500 VM is locked (backup)");
        assert_eq!(site.ask("PUT", CONFIG, &[("cores", "2")]).await.line(), "500 VM is locked (backup)");
    });
}

/// Goal: a client that waits a little is spared the task. Method: one that ends in time, one that fails, one that takes longer.
#[test]
fn a_task_that_is_soon_over_is_not_told_of() {
    let latencies = Latencies {
        config: Span::new(2.0, 2.0),
        full_copy: Span::new(60.0, 60.0),
        rest: Span::new(0.0, 0.0),
        ..Latencies::default()
    };
    within(quick().with_latencies(latencies), async |site| {
        let path = "/nodes/pve/qemu/101/config";
        let begun = site.clock.monotonic();
        assert_eq!(site.post(path, &[("cores", "4"), ("background_delay", "10")]).await, Value::Null);
        assert_eq!(site.clock.monotonic() - begun, Duration::from_secs(2));
        let failed = site.ask("POST", path, &[("boot", "order=ide0"), ("background_delay", "10")]).await;
        assert_eq!(failed.line(), "500 failed to update VM 101: invalid bootorder: device 'ide0' does not exist'");
        site.datacenter.add_volume("pve", "local:import/x.qcow2", "import", 1 << 30);
        let disk = ("scsi1", "local-lvm:0,import-from=local:import/x.qcow2");
        let upid = site.post(path, &[disk, ("background_delay", "10")]).await;
        assert_eq!(site.end_of(&upid).await, "OK");
    });
}

#[test]
fn a_disk_moves_to_another_storage() {
    let mut blueprint = quick();
    blueprint.storages[0].content.push("images".to_owned());
    within(blueprint, async |site| {
        make(&site).await;
        let moved = site
            .run("POST", "/nodes/pve/qemu/421/move_disk", &[("disk", "scsi0"), ("storage", "local"), ("delete", "1")])
            .await;
        assert_eq!(moved, "OK");
        assert_eq!(site.config(421).await["scsi0"], "local:421/vm-421-disk-0.raw,size=8G");
        assert!(!site.datacenter.look().has_volume("local-lvm:vm-421-disk-0"));
    });
}

/// Goal: whoever writes while a task holds the guest waits for it, but not for ever. Method: a shutdown of a deaf guest,
/// once shorter and once longer than the ten seconds that the vendor waits.
#[test]
fn a_write_waits_ten_seconds_for_the_guest() {
    let slow_boot =
        Latencies { boot: Span::new(600.0, 600.0), factor: 1.0, rest: Span::new(0.0, 0.0), ..Latencies::default() };
    within(quick().with_latencies(slow_boot).on(Version::Nine), async |site| {
        make(&site).await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/start", &[]).await, "OK");
        let down = "/nodes/pve/qemu/421/status/shutdown";
        let upid = site.post(down, &[("timeout", "5")]).await;
        let begun = site.clock.monotonic();
        assert_eq!(site.put(CONFIG, &[("description", "x")]).await, Value::Null);
        let took = site.clock.monotonic() - begun;
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(9), "{took:?}");
        assert_eq!(site.end_of(&upid).await, "VM quit/powerdown failed - got timeout");

        let upid = site.post(down, &[("timeout", "40")]).await;
        let begun = site.clock.monotonic();
        let refused = site.ask("PUT", CONFIG, &[("description", "y")]).await;
        assert_eq!(refused.line(), "500 can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout");
        assert_eq!(site.clock.monotonic() - begun, Duration::from_secs(10));
        assert_eq!(
            site.run("POST", CONFIG, &[("description", "y")]).await,
            "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout"
        );
        assert_eq!(site.end_of(&upid).await, "VM quit/powerdown failed - got timeout");
    });
}
