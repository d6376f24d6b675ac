//! Rows of guests that outlive them, and tasks whose end is not the end.

use std::time::Duration;

use castle_datacenter::blueprint::Span;
use castle_datacenter::{Blueprint, Latencies};
use castle_seams::Clock;
use serde_json::{Value, json};

use crate::site::{Site, quick, within};

async fn row(site: &Site, vmid: u32) -> Value {
    let rows = site.get("/cluster/resources?type=vm").await;
    rows.as_array().unwrap().iter().find(|row| row["vmid"] == vmid).cloned().unwrap_or(Value::Null)
}

fn told_every_ten_seconds() -> Blueprint {
    quick().with_latencies(Latencies { broadcast: Duration::from_secs(10), ..Latencies::none() })
}

/// Goal: a new guest is told with all that was last known of its number, up to five minutes after, whatever came between.
/// Method: a template that is destroyed, and its number given to another after four minutes.
#[test]
fn a_dead_guests_row_haunts_its_number() {
    within(told_every_ten_seconds(), async |site| {
        site.datacenter.change_guest(101, &[("template", Some("1"))]);
        site.clock.sleep(Duration::from_secs(10)).await;
        assert_eq!(row(&site, 101).await["template"], 1);
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[]).await, "OK");
        assert_eq!(row(&site, 101).await, Value::Null);
        site.clock.sleep(Duration::from_secs(240)).await;
        let made = [("vmid", "101"), ("name", "new"), ("tags", "mine"), ("memory", "512")];
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &made).await, "OK");
        let told = row(&site, 101).await;
        assert_eq!((&told["template"], &told["name"], &told["tags"]), (&json!(1), &json!("router"), &json!("mine")));
        assert_eq!(told["maxmem"], 2048_u64 << 20);
        site.clock.sleep(Duration::from_secs(10)).await;
        let told = row(&site, 101).await;
        assert_eq!((&told["template"], &told["name"]), (&json!(0), &json!("new")));
    });
}

#[test]
fn what_was_not_told_for_five_minutes_is_unknown() {
    within(told_every_ten_seconds(), async |site| {
        assert!(site.datacenter.remove_guest(101));
        site.clock.sleep(Duration::from_secs(311)).await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu", &[("vmid", "101"), ("name", "new")]).await, "OK");
        let told = row(&site, 101).await;
        assert_eq!((&told["status"], told.get("name"), told.get("template")), (&json!("unknown"), None, None));
    });
}

/// Goal: a host that is gone is told of as it was, until five minutes have passed. Method: one of two goes down.
#[test]
fn the_guests_of_a_host_that_is_down_are_told_as_they_were() {
    let latencies = Latencies { broadcast: Duration::from_secs(10), ..Latencies::none() };
    let hosts = ["pve".to_owned(), "two".to_owned()];
    within(Blueprint::embedded(&hosts).with_latencies(latencies), async |site| {
        assert!(site.datacenter.move_guest(100, "two"));
        site.clock.sleep(Duration::from_secs(10)).await;
        site.datacenter.host_down("two");
        assert_eq!(row(&site, 100).await["status"], "running");
        site.clock.sleep(Duration::from_secs(290)).await;
        assert_eq!(row(&site, 100).await["status"], "running");
        site.clock.sleep(Duration::from_secs(21)).await;
        assert_eq!(row(&site, 100).await["status"], "unknown");
    });
}

/// Goal: a reboot's task ends with the guest off; somebody else starts it, by a task of his. Method: looks after each.
#[test]
fn a_reboot_ends_before_the_guest_runs_again() {
    let latencies = Latencies { rest: Span::new(0.0, 0.0), boot: Span::new(0.0, 0.0), ..Latencies::default() };
    within(quick().with_latencies(latencies), async |site| {
        let upid = site.post("/nodes/pve/qemu/100/status/reboot", &[]).await;
        let runs = || site.datacenter.look().guests[&100].running;
        while site.datacenter.look().tasks.iter().any(|task| upid == task.upid.as_str() && task.exit.is_none()) {
            assert!(runs());
            site.clock.sleep(Duration::from_millis(10)).await;
        }
        assert_eq!((site.end_of(&upid).await.as_str(), runs()), ("OK", false));
        site.clock.sleep(Duration::from_secs(30)).await;
        assert!(runs());
        let last = site.datacenter.look().tasks.last().unwrap().clone();
        assert_eq!((last.kind.as_str(), last.user.as_str(), last.exit.as_deref()), ("qmstart", "root@pam", Some("OK")));
    });
}

/// Goal: who comes too late for a guest that is locked is told so at once, or by the task, as the vendor does it.
#[test]
fn a_locked_guest_refuses_at_once_or_in_the_task() {
    within(quick(), async |site| {
        site.datacenter.set_lock(101, Some("migrate"));
        let locked = "VM is locked (migrate)";
        for (method, what, given) in [
            ("POST", "config", ("cores", "2")),
            ("POST", "clone", ("newid", "421")),
            ("POST", "template", ("disk", "scsi0")),
        ] {
            let refused = site.ask(method, &format!("/nodes/pve/qemu/101/{what}"), &[given]).await;
            assert_eq!(refused.line(), format!("500 {locked}"), "{what}");
        }
        let resize = [("disk", "scsi0"), ("size", "+1G")];
        assert_eq!(site.run("PUT", "/nodes/pve/qemu/101/resize", &resize).await, locked);
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/status/start", &[]).await, locked);
        assert_eq!(site.run("DELETE", "/nodes/pve/qemu/101", &[]).await, locked);
        // There is nothing to stop, so nobody looks.
        assert_eq!(site.run("POST", "/nodes/pve/qemu/101/status/stop", &[]).await, "OK");
    });
}
