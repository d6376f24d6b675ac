//! Guests that high availability looks after, guests that stand still, and who may be asked about what.

use std::time::Duration;

use castle_datacenter::Version;
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::{as_root, quick, within};

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

#[test]
fn a_resource_is_changed_and_its_guest_follows() {
    as_root(async |site| {
        let path = format!("{RESOURCES}/vm:101");
        assert_eq!(site.ask("PUT", &path, &[("state", "stopped")]).await.line(), "500 no such resource 'vm:101'");
        site.post(RESOURCES, &[("sid", "vm:101"), ("comment", "mine"), ("max_restart", "2")]).await;
        site.clock.sleep(Duration::from_secs(20)).await;
        assert!(site.datacenter.look().guests[&101].running);
        let digest = site.get(&path).await["digest"].as_str().unwrap().to_owned();
        let late = site.ask("PUT", &path, &[("state", "stopped"), ("digest", "0000")]).await;
        assert!(late.line().starts_with("500 detected modified configuration"), "{late:?}");
        let change = [("state", "disabled"), ("delete", "comment"), ("max_restart", "3"), ("digest", digest.as_str())];
        assert_eq!(site.put(&path, &change).await, Value::Null);
        let told = site.get(&path).await;
        assert_eq!((&told["state"], told.get("comment"), &told["max_restart"]), (&json!("disabled"), None, &json!(3)));
        assert_ne!(told["digest"], json!(digest));
        site.clock.sleep(Duration::from_secs(20)).await;
        assert!(!site.datacenter.look().guests[&101].running);
        let grouped = site.ask("PUT", &path, &[("group", "none")]).await;
        assert_eq!(grouped.line(), "500 HA group 'none' does not exist");
    });
}

/// Goal: a guest is looked after from its beginning where that is asked for. Method: on 9 by the administrator, and by who has no right to it.
#[test]
fn a_new_guest_is_looked_after_if_that_is_asked_for() {
    within(quick(), async |mut site| {
        let asked = [("vmid", "421"), ("ha-managed", "1")];
        let refused = site.ask("POST", "/nodes/pve/qemu", &asked).await;
        assert_eq!(refused.line(), "403 Permission check failed (/, Sys.Console)");
        site.log_in_as_root().await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &asked).await, "OK");
        assert_eq!(site.get(&format!("{RESOURCES}/vm:421")).await["state"], "started");
        site.clock.sleep(Duration::from_secs(20)).await;
        assert!(site.datacenter.look().guests[&421].running);
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "422"), ("ha-managed", "0")]).await, "OK");
        assert_eq!(site.get(RESOURCES).await.as_array().unwrap().len(), 1);
    });
}

/// Goal: what is not there says that this hypervisor is simulated. Method: each of it.
#[test]
fn what_is_not_simulated_says_so() {
    as_root(async |site| {
        site.datacenter.add_volume(
            "pve",
            "local:backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst",
            "backup",
            1 << 20,
        );
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/snapshot", &[("snapname", "one")]).await, "OK");
        let archive = "local:backup/vzdump-qemu-100-2026_01_01-00_00_00.vma.zst";
        for (method, path, given, what) in [
            ("POST", "/nodes/pve/qemu", vec![("vmid", "421"), ("archive", archive)], "restores no backups"),
            ("POST", "/nodes/pve/qemu/101/clone", vec![("newid", "421"), ("snapname", "one")], "clones no snapshots"),
            (
                "POST",
                "/nodes/pve/qemu/101/move_disk",
                vec![("disk", "scsi0"), ("target-vmid", "100")],
                "reassigns no disks to other guests",
            ),
            (
                "POST",
                "/nodes/pve/qemu/100/snapshot",
                vec![("snapname", "two"), ("vmstate", "1")],
                "keeps no state of memory in snapshots",
            ),
            ("POST", "/nodes/pve/qemu/100/status/suspend", vec![("todisk", "1")], "keeps no guest's memory on a disk"),
        ] {
            let said = site.ask(method, path, &given).await;
            assert_eq!(said.line(), format!("501 this hypervisor is simulated and {what}"), "{path}");
        }
        let absent = site.ask("GET", "/nodes/pve/ceph/status", &[]).await;
        assert_eq!(
            absent.line(),
            "501 Method 'GET /nodes/pve/ceph/status' not implemented (this hypervisor is simulated)"
        );
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
    });
}

/// Goal: statistics know the present alone, of everything that has any. Method: the last row of each, and the one before.
#[test]
fn statistics_tell_the_present() {
    as_root(async |site| {
        for (path, key) in [
            ("/nodes/pve/qemu/100/rrddata", "maxmem"),
            ("/nodes/pve/rrddata", "memtotal"),
            ("/nodes/pve/storage/local-lvm/rrddata", "total"),
        ] {
            let rows = site.get(&format!("{path}?timeframe=hour&cf=AVERAGE")).await;
            let rows = rows.as_array().unwrap();
            let [.., before, last] = rows.as_slice() else { panic!("{path}: {rows:?}") };
            assert!(
                last[key].as_u64().is_some_and(|it| it > 0) && before.get(key).is_none(),
                "{path}: {last} {before}"
            );
            let step = last["time"].as_u64().unwrap() - before["time"].as_u64().unwrap();
            assert_eq!((step, last["time"].as_u64().unwrap() % step), (60, 0), "{path}");
        }
        assert_eq!(site.ask("GET", "/nodes/pve/rrddata", &[]).await.status, 400);
    });
}

#[test]
fn indexes_and_options_of_the_cluster_are_told() {
    as_root(async |site| {
        let names = async |path: &str, key: &str| {
            let rows = site.get(path).await;
            rows.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("/", "subdir").await, ["version", "cluster", "nodes", "storage", "access", "pools"]);
        let below = names("/cluster", "name").await;
        for name in ["ha", "nextid", "options", "resources", "status", "tasks"] {
            assert!(below.iter().any(|it| it == name), "{below:?}");
        }
        let below = names("/access", "subdir").await;
        for name in ["users", "roles", "acl", "domains", "ticket"] {
            assert!(below.iter().any(|it| it == name), "{below:?}");
        }
        assert_eq!(site.get("/cluster/options").await["keyboard"], "en-us");
    });
}

/// Goal: a guest that runs tells the machine that it is, with the release of QEMU. Method: the usual one, a type, a release, a revision.
#[test]
fn the_machine_of_a_guest_that_runs_is_told() {
    for (version, qemu, release) in [(Version::Eight, "9.2.0", "9.2"), (Version::Nine, "10.1.2", "10.1")] {
        within(quick().on(version), async |site| {
            for (machine, expected) in [
                (None, format!("pc-i440fx-{release}+pve0")),
                (Some("q35,viommu=intel"), format!("pc-q35-{release}+pve0")),
                (Some("type=q35"), format!("pc-q35-{release}+pve0")),
                (Some("pc-i440fx-8.1"), "pc-i440fx-8.1+pve0".to_owned()),
                (Some("pc-q35-9.0+pve1"), "pc-q35-9.0+pve1".to_owned()),
            ] {
                site.datacenter.change_guest(100, &[("machine", machine)]);
                let told = site.get("/nodes/pve/qemu/100/status/current").await;
                let told = (&told["running-qemu"], &told["running-machine"]);
                assert_eq!(told, (&json!(qemu), &json!(expected)), "{machine:?}");
            }
        });
    }
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
