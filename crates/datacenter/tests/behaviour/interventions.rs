//! What others do meanwhile.

use castle_datacenter::blueprint::Stranger;
use castle_datacenter::{Blueprint, Latencies};
use serde_json::json;

use crate::site::{both, quick, within};

#[test]
fn guests_come_change_and_go_by_hand() {
    both(async |site| {
        site.datacenter.add_guest(Stranger::new(421, "pve", "stolen", "local-lvm", 8));
        assert_eq!(site.config(421).await["name"], "stolen");
        let before = site.datacenter.digest_of(421);
        assert!(site.datacenter.change_guest(421, &[("cores", Some("16")), ("ostype", None)]));
        assert_ne!(site.datacenter.digest_of(421), before);
        let config = site.config(421).await;
        assert_eq!((&config["cores"], config.get("ostype")), (&json!(16), None));
        assert!(site.datacenter.remove_guest(421) && !site.datacenter.remove_guest(421));
        assert!(!site.datacenter.look().has_volume("local-lvm:vm-421-disk-0"));
        assert_eq!(site.datacenter.digest_of(421), None);
    });
}

#[test]
fn a_guest_moves_with_its_volumes() {
    let blueprint = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]).with_latencies(Latencies::none());
    within(blueprint, async |site| {
        assert!(site.datacenter.move_guest(100, "two"));
        assert_eq!(site.ask("GET", "/nodes/pve/qemu/100/config", &[]).await.status, 500);
        assert_eq!(site.get("/nodes/two/qemu/100/status/current").await["status"], "running");
        let row = site.get("/cluster/resources?type=vm").await[0].clone();
        assert_eq!((&row["vmid"], &row["node"]), (&json!(100), &json!("two")));
        assert!(site.datacenter.look().volumes.contains_key(&("two".to_owned(), "local-lvm:vm-100-disk-0".to_owned())));
    });
}

/// Goal: a host that goes down takes tasks and guests along, and leaves the locks of its clones. Method: one is taken down
/// in the middle of a clone.
#[test]
fn a_host_that_goes_down_leaves_its_traces() {
    let blueprint = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]);
    within(blueprint, async |site| {
        site.datacenter.move_guest(100, "two");
        let upid = site.post("/nodes/two/qemu/100/clone", &[("newid", "421"), ("full", "1")]).await;
        assert_eq!(site.get("/nodes/two/qemu/421/config").await["lock"], "clone");
        site.datacenter.host_down("two");
        let rows = site.get("/cluster/resources?type=vm").await;
        let row = rows.as_array().unwrap().iter().find(|row| row["vmid"] == 421).unwrap();
        assert_eq!((&row["status"], &row["lock"]), (&json!("unknown"), &json!("clone")));
        site.datacenter.host_up("two");
        assert_eq!(site.end_of(&upid).await, "unexpected status");
        assert_eq!(site.get("/nodes/two/qemu/100/status/current").await["status"], "stopped");
        assert_eq!(site.get("/nodes/two/qemu/421/config").await["lock"], "clone");
    });
}

#[test]
fn a_snapshot_is_the_same_text_for_the_same_world() {
    let text = || {
        let mut told = String::new();
        within(quick(), async |site| {
            site.make_template("9000").await;
            told = site.datacenter.look().to_string();
        });
        told
    };
    let (one, two) = (text(), text());
    assert_eq!(one, two);
    for part in ["guest 9000 on pve, stopped", "volume local-lvm:base-9000-disk-0 on pve", "task qmtemplate 9000: OK"] {
        assert!(one.contains(part), "{part} is not in\n{one}");
    }
}
