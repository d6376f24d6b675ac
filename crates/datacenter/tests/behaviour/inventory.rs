//! What the lists say, and how old it is.

use std::time::Duration;

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
fn the_next_id_is_a_hint_and_a_text() {
    both(async |site| {
        assert_eq!(site.get("/cluster/nextid").await, json!("102"));
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
