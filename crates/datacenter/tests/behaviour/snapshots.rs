//! Snapshots of guests.

use serde_json::{Value, json};

use crate::site::{Site, as_root};

const SNAPSHOT: &str = "/nodes/pve/qemu/101/snapshot";

async fn names(site: &Site) -> Vec<String> {
    let rows = site.get(SNAPSHOT).await;
    rows.as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned()).collect()
}

/// Goal: what was kept comes back, and nothing else. Method: options and a disk that change after a snapshot.
#[test]
fn a_guest_goes_back_to_what_it_was() {
    as_root(async |site| {
        let taken = site.run("POST", SNAPSHOT, &[("snapname", "before"), ("description", "as it was")]).await;
        assert_eq!(taken, "OK");
        let rows = site.get(SNAPSHOT).await;
        assert_eq!((&rows[0]["name"], &rows[0]["description"]), (&json!("before"), &json!("as it was")));
        assert_eq!((&rows[1]["name"], &rows[1]["parent"]), (&json!("current"), &json!("before")));
        let kept = site.get(&format!("{SNAPSHOT}/before/config")).await;
        assert_eq!((&kept["cores"], &kept["description"]), (&json!(2), &json!("as it was")));

        site.put("/nodes/pve/qemu/101/config", &[("cores", "8"), ("scsi1", "local-lvm:1")]).await;
        assert_eq!(site.run("PUT", "/nodes/pve/qemu/101/resize", &[("disk", "scsi0"), ("size", "+8G")]).await, "OK");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/status/start", &[]).await, "OK");
        assert_eq!(site.run("POST", &format!("{SNAPSHOT}/before/rollback"), &[]).await, "OK");
        let config = site.config(101).await;
        assert_eq!((&config["cores"], config.get("scsi1"), config.get("lock")), (&json!(2), None, None));
        assert_eq!(config["scsi0"], "local-lvm:vm-101-disk-0,size=8G");
        assert_eq!(config["unused0"], "local-lvm:vm-101-disk-1");
        assert!(!site.datacenter.look().guests[&101].running);
        assert_eq!(site.run("DELETE", &format!("{SNAPSHOT}/before"), &[]).await, "OK");
        assert_eq!(names(site).await, ["current"]);
        assert_eq!(site.get(SNAPSHOT).await[0].get("parent"), None);
    });
}

#[test]
fn what_is_not_possible_is_refused() {
    as_root(async |site| {
        let reserved = site.ask("POST", SNAPSHOT, &[("snapname", "current")]).await;
        assert_eq!(reserved.line(), "500 unable to use snapshot name 'current' (reserved name)");
        assert_eq!(site.run("POST", SNAPSHOT, &[("snapname", "one")]).await, "OK");
        assert_eq!(site.run("POST", SNAPSHOT, &[("snapname", "one")]).await, "snapshot name 'one' already used");
        let absent = "snapshot 'two' does not exist";
        assert_eq!(site.run("POST", &format!("{SNAPSHOT}/two/rollback"), &[]).await, absent);
        assert_eq!(site.run("DELETE", &format!("{SNAPSHOT}/two"), &[]).await, absent);
        site.datacenter.set_lock(101, Some("backup"));
        assert_eq!(site.run("POST", SNAPSHOT, &[("snapname", "two")]).await, "VM is locked (backup)");
        site.datacenter.set_lock(101, None);
        site.datacenter.change_guest(101, &[("template", Some("1"))]);
        let template = "you can't take a snapshot if it's a template";
        assert_eq!(site.run("POST", SNAPSHOT, &[("snapname", "two")]).await, template);
    });
}

#[test]
fn drives_are_taken_out_by_name() {
    as_root(async |site| {
        assert_eq!(site.put("/nodes/pve/qemu/101/unlink", &[("idlist", "scsi0")]).await, Value::Null);
        let config = site.config(101).await;
        assert_eq!((config.get("scsi0"), &config["unused0"]), (None, &json!("local-lvm:vm-101-disk-0")));
        site.datacenter.change_guest(101, &[("protection", Some("1"))]);
        let kept = site.ask("PUT", "/nodes/pve/qemu/101/unlink", &[("idlist", "unused0")]).await;
        let why = "can't remove unused disk 'local-lvm:vm-101-disk-0' - protection mode enabled";
        assert_eq!(kept.line(), format!("500 {why}"));
    });
}
