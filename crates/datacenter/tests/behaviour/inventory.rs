//! What the lists say, and how old it is.

use std::time::Duration;

use castle_datacenter::blueprint::{GIB, Storage, StorageKind};
use castle_datacenter::{Blueprint, Latencies};
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::{both, quick, within};

fn row(rows: &Value, vmid: u32) -> Value {
    rows.as_array().unwrap().iter().find(|row| row["vmid"] == vmid).cloned().unwrap_or(Value::Null)
}

#[test]
fn the_version_is_told() {
    both(async |site| {
        let version = site.get("/version").await;
        assert!(["8.4", "9.2"].contains(&version["release"].as_str().unwrap()));
    });
}

#[test]
fn hosts_guests_and_storages_are_listed() {
    both(async |site| {
        let nodes = site.get("/nodes").await;
        assert_eq!(
            (&nodes[0]["node"], &nodes[0]["status"], &nodes[0]["maxcpu"]),
            (&json!("pve"), &json!("online"), &json!(64))
        );
        assert_eq!(nodes[0]["ssl_fingerprint"].as_str().unwrap().split(':').count(), 32);
        let guests = site.get("/cluster/resources?type=vm").await;
        let brief = |vmid| {
            let row = row(&guests, vmid);
            format!("{} {} {}", row["name"], row["status"], row["node"])
        };
        assert_eq!(
            (brief(100), brief(101)),
            ("\"nas\" \"running\" \"pve\"".into(), "\"router\" \"stopped\" \"pve\"".into())
        );
        let storages = site.get("/nodes/pve/storage").await;
        let names: Vec<&str> =
            storages.as_array().unwrap().iter().map(|row| row["storage"].as_str().unwrap()).collect();
        assert_eq!(names, ["local", "local-lvm"]);
        assert_eq!(site.get("/nodes/pve/status").await["cpuinfo"]["cpus"], 64);
        assert_eq!(site.get("/nodes/pve/network?type=bridge").await[0]["iface"], "vmbr0");
        // One host alone is no cluster.
        assert!(site.get("/cluster/status").await.as_array().unwrap().iter().all(|row| row["type"] == "node"));
        assert_eq!(site.get("/cluster/ha/resources").await, json!([]));
    });
}

#[test]
fn the_next_id_is_a_hint() {
    both(async |site| {
        assert_eq!(site.get("/cluster/nextid").await, json!(102));
        assert_eq!(site.get("/cluster/nextid?vmid=421").await, json!("421"));
        let taken = site.ask("GET", "/cluster/nextid", &[("vmid", "100")]).await;
        assert_eq!(taken.line(), "400 Parameter verification failed.");
        assert_eq!(taken.body["errors"]["vmid"], "VM 100 already exists");
    });
}

/// Goal: number, host, tags and lock of a guest are told at once, the rest only with the next broadcast. Method: a guest is
/// changed by hand, and looked at before and after ten seconds.
#[test]
fn status_and_name_lag_behind() {
    let blueprint = quick().with_latencies(Latencies { broadcast: Duration::from_secs(10), ..Latencies::none() });
    within(blueprint, async |site| {
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "421"), ("name", "a"), ("tags", "x")]).await, "OK");
        let new = row(&site.get("/cluster/resources?type=vm").await, 421);
        assert_eq!((&new["status"], new.get("name"), &new["tags"]), (&json!("unknown"), None, &json!("x")));
        site.clock.sleep(Duration::from_secs(10)).await;
        let known = row(&site.get("/cluster/resources?type=vm").await, 421);
        assert_eq!((&known["status"], &known["name"]), (&json!("stopped"), &json!("a")));

        site.put("/nodes/pve/qemu/421/config", &[("name", "b"), ("tags", "y")]).await;
        site.datacenter.set_lock(421, Some("backup"));
        let changed = row(&site.get("/cluster/resources?type=vm").await, 421);
        assert_eq!(
            (&changed["name"], &changed["tags"], &changed["lock"]),
            (&json!("a"), &json!("y"), &json!("backup"))
        );
        site.clock.sleep(Duration::from_secs(10)).await;
        assert_eq!(row(&site.get("/cluster/resources?type=vm").await, 421)["name"], "b");
    });
}

/// Goal: a number that is used again is told with its predecessor's name until the next broadcast. Method: one that is.
#[test]
fn the_name_of_a_predecessor_stays_for_a_while() {
    let blueprint = quick().with_latencies(Latencies { broadcast: Duration::from_secs(10), ..Latencies::none() });
    within(blueprint, async |site| {
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[]).await, "OK");
        assert_eq!(row(&site.get("/cluster/resources?type=vm").await, 101), Value::Null);
        assert_eq!(
            site.run("POST", "/nodes/pve/qemu", &[("vmid", "101"), ("name", "new"), ("tags", "mine")]).await,
            "OK"
        );
        let told = row(&site.get("/cluster/resources?type=vm").await, 101);
        assert_eq!((&told["name"], &told["tags"]), (&json!("router"), &json!("mine")));
        site.clock.sleep(Duration::from_secs(10)).await;
        assert_eq!(row(&site.get("/cluster/resources?type=vm").await, 101)["name"], "new");
    });
}

#[test]
fn several_hosts_are_a_cluster() {
    let hosts = ["a".to_owned(), "b".to_owned()];
    within(Blueprint::embedded(&hosts).with_latencies(Latencies::none()), async |site| {
        let status = site.get("/cluster/status").await;
        assert_eq!((&status[0]["type"], &status[0]["quorate"]), (&json!("cluster"), &json!(1)));
        assert_eq!(site.get("/nodes").await.as_array().unwrap().len(), 2);
        // A storage that is not shared is one on each host.
        let storages = site.get("/cluster/resources?type=storage").await;
        assert_eq!(storages.as_array().unwrap().len(), 4);
    });
}

#[test]
fn a_host_tells_its_own_version_and_what_is_below_it() {
    both(async |site| {
        assert_eq!(site.get("/nodes/pve/version").await, site.get("/version").await);
        let names = async |path: &str, key: &str| {
            let rows = site.get(path).await;
            rows.as_array().unwrap().iter().map(|row| row[key].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let below = names("/nodes/pve", "name").await;
        assert!(["qemu", "lxc", "sdn", "version"].iter().all(|name| below.contains(&(*name).to_owned())), "{below:?}");
        let is_nine = site.get("/version").await["release"] == "9.2";
        assert_eq!((below.len(), below.last().unwrap() == "sdn"), if is_nine { (41, false) } else { (40, true) });
        // Nobody looks whether there is such a host, or such a guest.
        assert_eq!(names("/nodes/nowhere", "name").await, below);
        let of_guest = names("/nodes/pve/qemu/999", "subdir").await;
        assert_eq!((of_guest.len(), of_guest[0].as_str()), (20, "config"));
        assert_eq!(site.get("/nodes/pve/lxc").await, json!([]));
    });
}

#[test]
fn a_guest_without_snapshots_is_where_it_is() {
    both(async |site| {
        let digest = site.config(100).await["digest"].clone();
        let here = json!([{ "name": "current", "digest": digest, "running": 1, "description": "You are here!" }]);
        assert_eq!(site.get("/nodes/pve/qemu/100/snapshot").await, here);
        assert_eq!(site.get("/nodes/pve/qemu/101/snapshot").await[0]["running"], 0);
        let absent = site.ask("GET", "/nodes/pve/qemu/999/snapshot", &[]).await;
        assert_eq!(absent.line(), "500 Configuration file 'nodes/pve/qemu-server/999.conf' does not exist");
    });
}

#[test]
fn what_the_storages_of_a_guest_can_do_is_told() {
    let hosts = ["pve".to_owned(), "two".to_owned()];
    let mut blueprint = Blueprint::embedded(&hosts).with_latencies(Latencies::none());
    blueprint.storages.push(Storage::new("files", StorageKind::Dir, &["images"], 64 * GIB));
    blueprint.storages.push(Storage::new("thick", StorageKind::Lvm, &["images"], 64 * GIB));
    blueprint.storages.push(Storage::new("ceph", StorageKind::Rbd, &["images"], 64 * GIB));
    within(blueprint, async |site| {
        site.make_template("9000").await;
        for (vmid, drives) in [
            ("421", &[("scsi0", "files:1,format=qcow2"), ("ide2", "none,media=cdrom")][..]),
            ("422", &[("scsi0", "files:1,format=raw")]),
            ("423", &[("scsi0", "thick:1")]),
            ("424", &[("scsi0", "ceph:1")]),
            ("425", &[("scsi0", "ceph:1"), ("scsi1", "files:1")]),
        ] {
            let guest = [&[("vmid", vmid)], drives].concat();
            assert_eq!(site.run("POST", "/nodes/pve/qemu", &guest).await, "OK");
        }
        let both = json!(["pve", "two"]);
        let one = json!(["pve"]);
        for (vmid, snapshot, clone, nodes) in [
            (100, 1, 0, &one),
            (9000, 0, 1, &one),
            (421, 1, 0, &one),
            (422, 0, 0, &one),
            (423, 0, 0, &one),
            (424, 1, 0, &both),
            (425, 0, 0, &one),
        ] {
            for (feature, has) in [("snapshot", snapshot), ("clone", clone), ("copy", 1)] {
                let told = site.get(&format!("/nodes/pve/qemu/{vmid}/feature?feature={feature}")).await;
                assert_eq!(told, json!({ "hasFeature": has, "nodes": nodes }), "{vmid} {feature}");
            }
        }
        let past = site.ask("GET", "/nodes/pve/qemu/100/feature", &[("feature", "copy"), ("snapname", "before")]).await;
        assert_eq!(past.line(), "500 snapshot 'before' does not exist");
        assert_eq!(site.ask("GET", "/nodes/pve/qemu/100/feature", &[]).await.status, 400);
    });
}
