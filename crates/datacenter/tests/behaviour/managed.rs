//! Guests that high availability looks after, guests that stand still, and who may be asked about what.

use std::time::Duration;

use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::as_root;

const RESOURCES: &str = "/cluster/ha/resources";

#[test]
fn a_resource_is_made_read_changed_and_deleted() {
    as_root(async |site| {
        let made = site.post(RESOURCES, &[("sid", "vm:101"), ("comment", "mine"), ("max_restart", "2")]).await;
        assert_eq!(made, Value::Null);
        let one = site.get(&format!("{RESOURCES}/vm:101")).await;
        assert_eq!((&one["sid"], &one["type"], &one["state"]), (&json!("vm:101"), &json!("vm"), &json!("started")));
        assert_eq!((&one["comment"], &one["max_restart"]), (&json!("mine"), &json!(2)));
        assert_eq!(site.get(RESOURCES).await, json!([one]));
        let again = site.ask("POST", RESOURCES, &[("sid", "101")]).await;
        assert_eq!(again.line(), "500 create resource failed: resource ID 'vm:101' already defined");
        let absent = site.ask("POST", RESOURCES, &[("sid", "vm:777")]).await;
        assert_eq!(absent.line(), "500 resource 'vm:777' does not exist in cluster");
        assert_eq!(site.ask("DELETE", &format!("{RESOURCES}/vm:101"), &[]).await.status, 200);
        assert_eq!(site.ask("GET", &format!("{RESOURCES}/vm:101"), &[]).await.line(), "500 no such resource 'vm:101'");
        let gone = site.ask("DELETE", &format!("{RESOURCES}/vm:101"), &[]).await;
        assert_eq!(gone.line(), "500 cannot delete service 'vm:101', not HA managed!");
    });
}

/// Goal: who looks after a guest starts and stops it, and is asked to. Method: one that was off.
#[test]
fn a_managed_guest_is_started_and_stopped_by_others() {
    as_root(async |site| {
        site.post(RESOURCES, &[("sid", "vm:101")]).await;
        site.clock.sleep(Duration::from_secs(1)).await;
        let status = site.get("/nodes/pve/qemu/101/status/current").await;
        assert_eq!((&status["status"], &status["ha"]["managed"]), (&json!("running"), &json!(1)));
        let rows = site.get("/cluster/resources?type=vm").await;
        assert_eq!(rows[1]["hastate"], "started");
        let upid = site.post("/nodes/pve/qemu/101/status/stop", &[]).await;
        assert!(upid.as_str().unwrap().contains(":hastop:101:"), "{upid}");
        assert_eq!(site.end_of(&upid).await, "OK");
        site.clock.sleep(Duration::from_secs(1)).await;
        assert!(!site.datacenter.look().guests[&101].running);
        let kept = site.ask("DELETE", "/nodes/pve/qemu/101", &[]).await;
        let why = "unable to remove VM 101 - used in HA resources and purge parameter not set.";
        assert_eq!(kept.line(), format!("500 {why}"));
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[("purge", "1")]).await, "OK");
        assert_eq!(site.get(RESOURCES).await, json!([]));
    });
}

#[test]
fn a_guest_stands_still_and_goes_on_and_is_reset() {
    as_root(async |site| {
        let path = |verb: &str| format!("/nodes/pve/qemu/100/status/{verb}");
        assert_eq!(site.run("POST", &path("suspend"), &[]).await, "OK");
        let status = site.get(&path("current")).await;
        assert_eq!((&status["status"], &status["qmpstatus"]), (&json!("running"), &json!("paused")));
        assert_eq!(site.ask("POST", &path("shutdown"), &[]).await.line(), "500 VM is paused - cannot shutdown");
        assert_eq!(site.run("POST", &path("resume"), &[]).await, "OK");
        assert_eq!(site.get(&path("current")).await["qmpstatus"], "running");
        let before = site.datacenter.machines()[0].power_on;
        assert_eq!(site.run("POST", &path("reset"), &[]).await, "OK");
        assert_eq!(site.datacenter.machines()[0].power_on, before + 1);
        let off = site.ask("POST", "/nodes/pve/qemu/101/status/reset", &[]).await;
        assert_eq!(off.line(), "500 VM 101 not running");
        let todisk = site.ask("POST", &path("suspend"), &[("todisk", "1")]).await;
        assert!(todisk.line().starts_with("501 this hypervisor is simulated"), "{todisk:?}");
    });
}

#[test]
fn users_roles_rights_and_realms_are_listed() {
    as_root(async |site| {
        let users = site.get("/access/users?full=1").await;
        assert_eq!(
            (&users[0]["userid"], &users[0]["tokens"][0]["tokenid"]),
            (&json!("castle@pve"), &json!("embedded"))
        );
        let acl = site.get("/access/acl").await;
        let given = json!({ "path": "/", "type": "user", "ugid": "castle@pve", "roleid": "Castle", "propagate": 1 });
        assert_eq!(acl, json!([given]));
        let roles = site.get("/access/roles").await;
        let role = |name: &str| roles.as_array().unwrap().iter().find(|role| role["roleid"] == name).unwrap().clone();
        assert_eq!((&role("Administrator")["special"], &role("Castle")["special"]), (&json!(1), &json!(0)));
        assert_eq!(site.get("/access/domains").await.as_array().unwrap().len(), 2);
        assert_eq!(site.get("/").await[0], json!({ "subdir": "version" }));
        let rows = site.get("/nodes/pve/qemu/100/rrddata?timeframe=hour").await;
        let last = rows.as_array().unwrap().last().unwrap();
        assert!(last["time"].is_u64() && last["maxmem"].is_u64(), "{last}");
    });
}

#[test]
fn what_a_person_clones_says_what_its_source_says() {
    as_root(async |site| {
        site.datacenter.change_guest(101, &[("description", Some("a mark")), ("tags", Some("blue"))]);
        assert!(site.datacenter.clone_guest(101, 421) && !site.datacenter.clone_guest(101, 421));
        let (source, copy) = (site.config(101).await, site.config(421).await);
        assert_eq!((&copy["description"], &copy["tags"]), (&source["description"], &source["tags"]));
        assert_ne!(copy["net0"], source["net0"]);
        assert_eq!(copy["scsi0"], "local-lvm:vm-421-disk-0,size=8G");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/clone", &[("newid", "422"), ("full", "1")]).await, "OK");
        assert_eq!(site.config(422).await["description"], "a mark");
        assert!(site.datacenter.restore_guest(101, 423));
        let restored = site.config(423).await;
        assert_eq!((&restored["name"], &restored["net0"]), (&source["name"], &source["net0"]));
        assert_eq!(restored["description"], "a mark");
        assert!(site.datacenter.remove_guest(421));
    });
}

/// Goal: a storage that its host cannot look at is told as one of no size. Method: one that is silent for a while.
#[test]
fn a_busy_host_tells_a_storage_of_no_size() {
    as_root(async |site| {
        site.datacenter.silence_storage("pve", "local-lvm", true);
        let told = site.get("/nodes/pve/storage/local-lvm/status").await;
        assert_eq!((&told["active"], &told["total"], &told["avail"]), (&json!(0), &json!(0), &json!(0)));
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("scsi0", "local-lvm:1")]).await, "OK");
        site.datacenter.silence_storage("pve", "local-lvm", false);
        assert_eq!(site.get("/nodes/pve/storage/local-lvm/status").await["active"], 1);
    });
}
