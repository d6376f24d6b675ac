//! Clocks: one that differs is named before its node gets its configuration and whenever a certificate is not of its time, with the difference and whose clock it
//! is; and `up` goes on once it is right.

use super::of_etcd::vmid;
use super::of_waiting::waited_ten_minutes;
use super::*;

const TWO_HOURS: i64 = 2 * 60 * 60;

/// When something was printed first, in seconds since the verb began.
pub(super) fn told_at(told: &Told, words: &str) -> f64 {
    let line = told.printed.text.lines().find(|line| line.contains(words));
    let line = line.unwrap_or_else(|| panic!("{words}: {}", told.printed.text));
    line.trim_start().split_once(" s  ").unwrap().0.parse().unwrap()
}

/// When a node first could be asked, in seconds since the verb began: the gate before its configuration begins when its machine is on.
fn on_at(told: &Told, node: &str) -> f64 {
    told_at(told, &format!("platform/power/{node}"))
}

#[test]
fn a_clock_that_is_ahead_is_told_before_the_configuration_and_waited_for() {
    day(async |life| {
        let node = vmid(life, "blue-cp-1");
        life.datacenter.shift_clock(node, TWO_HOURS);
        let begun = life.clock().monotonic();
        let is_late = |life: &Life| life.clock().monotonic().saturating_sub(begun) > Duration::from_secs(240);
        let up = meanwhile(life, &["up"], is_late, async |life| life.datacenter.settle_clock(node)).await;
        let words = [
            "waits for blue-cp-1: its clock is ahead of this machine's by at least 1 h 59 min and at most 2 h 1 min",
            "it has not reached a time server yet; the clock of Proxmox (",
            ") agrees with this machine's, so it is the node's clock that is wrong",
        ];
        hold(&up, Exit::Done, &words);
        let waited = told_at(&up, "its clock is ahead") - on_at(&up, "blue-cp-1");
        assert!(waited <= 30.0, "{waited} s: {}", up.printed.text);
        let is_news = |line: &&str| line.contains("its clock is ahead") && !line.contains(" by now");
        assert_eq!(up.printed.text.lines().filter(is_news).count(), 1, "{}", up.printed.text);
    });
}

#[test]
fn a_clock_that_stays_behind_ends_the_run_and_nothing_was_sent() {
    day(async |life| {
        let node = vmid(life, "blue-worker-1");
        life.datacenter.shift_clock(node, -TWO_HOURS);
        let up = life.run(&["up"]).await;
        let words = [
            "blue-worker-1: its clock is behind this machine's by at least 1 h 59 min and at most 2 h",
            ") agrees with this machine's, so it is the node's clock that is wrong",
            "give blue-worker-1 a time server that it can reach (network.timeServers",
        ];
        hold(&up, Exit::Failed, &words);
        waited_ten_minutes(&up, "platform/power/blue-worker-1", "platform/answers/blue-worker-1");
        let changes = life.tally.changes();
        let applied = changes.iter().filter(|change| change.contains("ApplyConfiguration")).count();
        assert_eq!(applied, 1, "only the control plane has its configuration: {changes:?}");
        life.datacenter.settle_clock(node);
    });
}

/// Time servers that the file names are told to a node by its configuration alone: it gets that all the same.
#[test]
fn a_clock_that_the_configuration_puts_right_keeps_nobody() {
    let file = SMALL.replace("vip: 127.42.0.10}", "vip: 127.42.0.10, timeServers: [127.42.0.1]}");
    day_of(&written(&file), async |life| {
        life.datacenter.shift_clock(vmid(life, "blue-cp-1"), TWO_HOURS);
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &["waits for blue-cp-1: its clock is ahead of this machine's by at least 1 h 59 min"]);
    });
}

#[test]
fn a_certificate_of_another_time_names_the_difference() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let node = vmid(life, "blue-cp-1");
        life.datacenter.shift_clock(node, TWO_HOURS);
        assert!(life.datacenter.restart_apid(node));
        life.clock().sleep(Duration::from_secs(60)).await;
        let begun = life.clock().monotonic();
        let up = life.run(&["up"]).await;
        let took = life.clock().monotonic().saturating_sub(begun);
        let words = [
            "its certificate is valid from 2026-",
            "its clock is ahead of this machine's by at least 1 h 5",
            " min, or this machine's is behind by as much; the clock of Proxmox (",
            ") agrees with this machine's, so it is the node's clock that is wrong",
            "next: give blue-cp-1 a time server that it can reach (network.timeServers",
        ];
        hold(&up, Exit::Failed, &words);
        // Nothing is done before: the first look is what it waits from.
        assert!((Duration::from_secs(595)..=Duration::from_secs(640)).contains(&took), "{took:?}");
        assert!(up.printed.text.contains("(waited 10 min"), "{}", up.printed.text);
        // The time goes on, and it is told anew once a minute at most.
        let is_news = |line: &&str| line.contains("platform/answers/blue-cp-1  waits") && !line.contains(" by now");
        let told = up.printed.text.lines().filter(is_news).count();
        assert!(told <= 12, "told {told} times: {}", up.printed.text);
        life.datacenter.settle_clock(node);
    });
}

/// Whose clock it is follows from a third one: the hypervisor's, which every answer of it tells. Also where that agrees with neither.
#[test]
fn a_certificate_of_another_time_names_this_machines_clock_where_that_is_wrong() {
    day(async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let node = vmid(life, "blue-cp-1");
        life.datacenter.shift_clock(node, TWO_HOURS);
        assert!(life.datacenter.restart_apid(node));
        life.clock().sleep(Duration::from_secs(60)).await;
        let agrees = "agrees with the node's, so it is this machine's clock that is wrong";
        let neither = "is ahead of this machine's by 30 min: of three clocks no two are known to agree";
        let here = "next: put this machine's clock right: timedatectl. Then";
        for (ahead, words) in [
            (TWO_HOURS, ["its clock is ahead of this machine's by at least 1 h 5", agrees, here]),
            (TWO_HOURS / 4, ["the clock of Proxmox (", neither, "next: compare date -u here with that of its host"]),
        ] {
            life.datacenter.shift_hypervisor_clock(ahead);
            hold(&life.run(&["up"]).await, Exit::Failed, &words);
        }
        life.datacenter.shift_hypervisor_clock(0);
        life.datacenter.settle_clock(node);
    });
}

/// A node that was in sync when it started, and whose time server does not answer any more, is measured all the same: it got nothing from a machine whose
/// clock is wrong.
#[test]
fn a_clock_is_measured_though_no_time_server_answers() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        let node = vmid(&life, "blue-worker-1");
        life.datacenter.strand_clock(node, -TWO_HOURS);
        life.datacenter.shift_hypervisor_clock(-TWO_HOURS);
        let words = [
            "blue-worker-1: its clock is behind this machine's by at least 1 h 59 min and at most 2 h",
            "its time server does not answer; the clock of Proxmox (",
            "agrees with the node's, so it is this machine's clock that is wrong",
        ];
        hold(&life.run(&["up"]).await, Exit::Failed, &words);
        let changes = life.tally.changes();
        let applied = changes.iter().filter(|change| change.contains("ApplyConfiguration")).count();
        assert_eq!(applied, 1, "only the control plane has its configuration: {changes:?}");
    });
}

/// The same before a node gets its configuration.
#[test]
fn a_new_node_is_right_where_the_hypervisor_agrees_with_it() {
    day(async |life| {
        let node = vmid(life, "blue-worker-1");
        life.datacenter.shift_clock(node, -TWO_HOURS);
        life.datacenter.shift_hypervisor_clock(-TWO_HOURS);
        let words = [
            "blue-worker-1: its clock is behind this machine's by at least 1 h 59 min and at most 2 h",
            "agrees with the node's, so it is this machine's clock that is wrong",
            "next: put this machine's clock right: timedatectl. Then",
        ];
        hold(&life.run(&["up"]).await, Exit::Failed, &words);
        life.datacenter.shift_hypervisor_clock(0);
        life.datacenter.settle_clock(node);
    });
}
