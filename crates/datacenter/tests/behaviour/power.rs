//! Guests that are switched on and off.

use std::time::Duration;

use castle_datacenter::blueprint::Span;
use castle_datacenter::{Blueprint, Latencies};
use castle_seams::Clock;

use crate::site::{both, quick, within};

fn path(vmid: u32, verb: &str) -> String {
    format!("/nodes/pve/qemu/{vmid}/status/{verb}")
}

#[test]
fn on_and_off() {
    both(async |site| {
        assert_eq!(site.run("POST", &path(101, "start"), &[]).await, "OK");
        assert_eq!(site.get(&path(101, "current")).await["status"], "running");
        assert_eq!(site.run("POST", &path(101, "start"), &[]).await, "VM 101 already running");
        assert_eq!(site.run("POST", &path(101, "reboot"), &[]).await, "OK");
        assert_eq!(site.run("POST", &path(101, "stop"), &[]).await, "OK");
        assert_eq!(site.run("POST", &path(101, "stop"), &[]).await, "OK");
        assert_eq!(site.get(&path(101, "current")).await["status"], "stopped");
        assert_eq!(site.ask("POST", &path(101, "reboot"), &[]).await.line(), "500 VM 101 not running");
        let effects = site.datacenter.effects();
        assert_eq!((effects["start 101"], effects["stop 101"], effects["reboot 101"]), (1, 1, 1));
    });
}

#[test]
fn what_cannot_start_says_why() {
    both(async |site| {
        let start = async || site.run("POST", &path(101, "start"), &[]).await;
        site.datacenter.set_lock(101, Some("migrate"));
        assert_eq!(start().await, "VM is locked (migrate)");
        site.datacenter.change_guest(101, &[("lock", None), ("net0", Some("virtio=BC:24:11:00:00:01,bridge=vmbr9"))]);
        assert_eq!(start().await, "bridge 'vmbr9' does not exist");
        site.datacenter.change_guest(101, &[("net0", None), ("template", Some("1"))]);
        assert_eq!(start().await, "you can't start a vm if it's a template");
        site.datacenter.change_guest(101, &[("template", None)]);
        site.datacenter.delete_volume("pve", "local-lvm:vm-101-disk-0");
        assert_eq!(start().await, "volume 'local-lvm:vm-101-disk-0' does not exist");
        let absent = site.run("POST", &path(777, "start"), &[]).await;
        assert_eq!(absent, "Configuration file 'nodes/pve/qemu-server/777.conf' does not exist");
    });
}

#[test]
fn a_guest_goes_down_by_itself_once_it_is_up() {
    let latencies = Latencies {
        boot: Span::new(30.0, 30.0),
        shutdown: Span::new(5.0, 5.0),
        rest: Span::new(0.0, 0.0),
        ..Latencies::default()
    };
    within(quick().with_latencies(latencies), async |site| {
        assert_eq!(site.run("POST", &path(101, "start"), &[]).await, "OK");
        let deaf = site.run("POST", &path(101, "shutdown"), &[("timeout", "3")]).await;
        assert_eq!(deaf, "VM quit/powerdown failed - got timeout");
        site.clock.sleep(Duration::from_secs(30)).await;
        let begun = site.clock.monotonic();
        assert_eq!(site.run("POST", &path(101, "shutdown"), &[]).await, "OK");
        assert!(site.clock.monotonic() - begun < Duration::from_secs(7));

        assert_eq!(site.run("POST", &path(101, "start"), &[]).await, "OK");
        let forced = site.run("POST", &path(101, "shutdown"), &[("timeout", "3"), ("forceStop", "1")]).await;
        assert_eq!((forced.as_str(), site.datacenter.look().guests[&101].running), ("OK", false));
    });
}

#[test]
fn a_guest_moves_with_its_disks_but_not_while_it_runs() {
    let blueprint = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]).with_latencies(Latencies::none());
    within(blueprint, async |mut site| {
        site.log_in_as_root().await;
        let to = async |vmid: u32, more: &[(&str, &str)]| {
            let given = [&[("target", "two")], more].concat();
            site.ask("POST", &format!("/nodes/pve/qemu/{vmid}/migrate"), &given).await
        };
        assert_eq!(to(100, &[]).await.line(), "500 can't migrate running VM without --online");
        let refused = site.end_of(&to(100, &[("online", "1")]).await.body["data"]).await;
        let why = "can't live migrate attached local disks without with-local-disks option";
        assert_eq!(refused, format!("migration aborted: {why}"));
        assert_eq!(site.end_of(&to(101, &[]).await.body["data"]).await, "OK");
        assert_eq!(site.run("POST", "/nodes/two/qemu/101/status/start", &[]).await, "OK");
        assert_eq!(site.datacenter.effects()["migrate 101"], 1);
    });
}

#[test]
fn stopping_can_overrule_a_shutdown() {
    let latencies = Latencies { boot: Span::new(600.0, 600.0), rest: Span::new(0.0, 0.0), ..Latencies::default() };
    within(quick().with_latencies(latencies), async |site| {
        assert_eq!(site.run("POST", &path(101, "start"), &[]).await, "OK");
        let slow = site.post(&path(101, "shutdown"), &[]).await;
        assert_eq!(site.run("POST", &path(101, "stop"), &[("overrule-shutdown", "1")]).await, "OK");
        assert_eq!(site.end_of(&slow).await, "received interrupt");
    });
}
