//! Goal: whoever adopts a castle of somebody else's is shown what differs, and nothing is marked unless every node is who the file means. Method: a castle
//! without its marks, in a world in which one thing is wrong at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use castle_engine::{CastleId, Layer, OperationId, StepId};
use castle_layers::cluster::{Referred, configuration};
use castle_proxmox::model::{Mark, Place, Role};
use castle_rehearsal::{Loss, Moment};
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::Contract;
use castle_talos::model::pki;

use crate::output::Exit;
use crate::rehearsal::fixture::{hold, in_a_world, written};
use crate::rehearsal::{At, Kill, Life, forget};

const BLUE: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9, serviceAccountKey: p256, bundle: 'file:bundle.yaml'}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 2, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
";
const NODES: [u32; 3] = [1000, 1010, 1011];
const ADOPT: [&str; 3] = ["adopt", "--foreign", "--yes"];

/// A world with the castle as somebody's scripts have made it.
fn scripted(lived: impl AsyncFnOnce(&Life) + Send) {
    in_a_world(&written(BLUE), 5, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for guest in life.datacenter.look().guests.into_values() {
            let is_ours = guest.config.get("tags").is_some_and(|tags| tags.contains("castle"));
            if is_ours && !NODES.contains(&guest.vmid) {
                assert!(life.datacenter.remove_guest(guest.vmid), "its image");
            }
        }
        for vmid in NODES {
            // Whoever made it has given its addresses to Talos alone.
            let notes = [("description", Some("the lab, ask Ann")), ("tags", Some("lab")), ("ipconfig0", None)];
            assert!(life.datacenter.change_guest(vmid, &notes));
        }
        forget(life);
        life.tally.changes();
        lived(life).await;
    });
}

/// Holds that adopting is refused with all of these, after the guests were shown, and that nothing at all was changed.
async fn refused(life: &Life, shown: &str, said: &[&str]) {
    life.tally.changes();
    let before: Vec<_> = NODES.map(|vmid| life.datacenter.digest_of(vmid)).to_vec();
    let told = life.run(&ADOPT).await;
    hold(&told, Exit::Refused, said);
    let text = &told.printed.text;
    let (first, last) = (text.find(shown), text.find(said[0]));
    assert!(first.is_some() && first < last, "what is there is shown before it is judged: {text}");
    assert!(text.trim_end().ends_with("Nothing was changed."), "{text}");
    let result = &told.printed.result;
    assert_eq!((&result["result"], result["problems"].as_array().map(Vec::len)), (&"refused".into(), Some(said.len())));
    assert_eq!(NODES.map(|vmid| life.datacenter.digest_of(vmid)).to_vec(), before);
    assert_eq!(life.tally.changes(), Vec::<String>::new());
}

fn marked(life: &Life) -> Vec<u32> {
    let guests = life.datacenter.look().guests;
    NODES.into_iter().filter(|vmid| guests[vmid].config["description"].contains("Made by castle")).collect()
}

fn write(life: &Life, text: &str) {
    life.disk().tamper(&life.script.file, text.as_bytes().to_vec());
}

/// What the file says of the second worker, too, in front of what it is asked.
const SHOWN: &str = "VM 1011 (blue-worker-2) on pve:";

#[test]
fn a_node_that_waits_for_its_configuration_is_in_no_cluster() {
    scripted(async |life| {
        assert!(life.datacenter.reset_node(1011));
        life.clock().sleep(Duration::from_secs(300)).await;
        let said = "blue-worker-2: waits for its first configuration, so it is in no cluster yet\n  next: talosctl --nodes 127.42.0.22 apply-config \
                    --insecure --file CONFIGURATION\n";
        refused(life, SHOWN, &[said]).await;
    });
}

#[test]
fn a_node_of_another_cluster_is_told_as_one() {
    scripted(async |life| {
        let doors = life.doors();
        let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
        let keys =
            pki::Doors { mint: doors.mint.as_ref(), entropy: doors.entropy.as_ref(), clock: doors.clock.as_ref() };
        let other = Bundle::generate(options, keys).await.unwrap();
        let (castle, nodes) = (&life.script.castle, &life.script.nodes);
        // A worker that no control plane of its cluster signs for would not answer at all.
        let node = nodes.iter().find(|node| node.vmid.0 == 1000).unwrap();
        let made = configuration(castle, nodes, node, &other, &Referred::default()).unwrap();
        life.datacenter.configure_node(1000, made.text().expose()).unwrap();
        life.clock().sleep(Duration::from_secs(300)).await;
        let said = "blue-cp-1: is not of the cluster whose secrets talos.bundle names (";
        refused(life, "VM 1000 (blue-cp-1) on pve:", &[said]).await;
    });
}

#[test]
fn a_node_that_does_not_answer_is_not_believed() {
    scripted(async |life| {
        let address = "127.42.0.22".parse().unwrap();
        life.datacenter.occupy_address(address, true);
        let said = "blue-worker-2: does not answer at 127.42.0.22, so nobody knows its cluster: ";
        refused(life, SHOWN, &[said]).await;
        life.datacenter.occupy_address(address, false);
        hold(&life.run(&ADOPT).await, Exit::Done, &["is this castle's now, as it stands."]);
        assert_eq!(marked(life), NODES);
    });
}

#[test]
fn numbers_that_are_mixed_up_are_found_however_they_are_mixed() {
    scripted(async |life| {
        let swapped = |what: &str| BLUE.replace("storage: none", &format!("  overrides: {what}\nstorage: none"));
        write(life, &swapped("{blue-worker-1: {vmid: 1011}, blue-worker-2: {vmid: 1010}}"));
        let called = [
            "VM 1011: is called `blue-worker-2`, and the file wants `blue-worker-1` there",
            "VM 1010: is called `blue-worker-1`, and the file wants `blue-worker-2` there",
        ];
        refused(life, "VM 1000 (blue-cp-1) on pve", &called).await;

        // Somebody makes the names fit, but not the machines behind them.
        let rename = |vmid, name| assert!(life.datacenter.change_guest(vmid, &[("name", Some(name))]));
        rename(1010, "blue-worker-2");
        rename(1011, "blue-worker-1");
        let mac = |vmid: u32| {
            let line = life.datacenter.look().guests[&vmid].config["net0"].clone();
            line.split(',').next().unwrap().split_once('=').unwrap().1.to_lowercase()
        };
        let (first, second) = (mac(1010), mac(1011));
        let machine = |name: &str, address: &str, has: &str, vmid: u32, wanted: &str| {
            format!(
                "{name}: another machine answers at {address}: it has the hardware addresses {has}, and VM {vmid} has {wanted}\n  next: talosctl \
                 --nodes {address} get links\n"
            )
        };
        let machines = [
            machine("blue-worker-1", "127.42.0.21", &first, 1011, &second),
            machine("blue-worker-2", "127.42.0.22", &second, 1010, &first),
        ];
        refused(life, "VM 1000 (blue-cp-1) on pve", &machines.each_ref().map(String::as_str)).await;

        // The addresses are mixed up as well: every machine is the one that is meant, under another name.
        write(
            life,
            &swapped(
                "{blue-worker-1: {vmid: 1011, address: 127.42.0.22}, blue-worker-2: {vmid: 1010, address: 127.42.0.21}}",
            ),
        );
        let names = [
            "blue-worker-1: calls itself `blue-worker-2` at 127.42.0.22, and castle up would rename it\n  next: give the node the name that it has \
             in castle.yaml\n",
            "blue-worker-2: calls itself `blue-worker-1` at 127.42.0.21, and castle up would rename it\n",
        ];
        refused(life, "VM 1000 (blue-cp-1) on pve", &names).await;
    });
}

#[test]
fn a_machine_of_another_castle_stays_its() {
    scripted(async |life| {
        let green = CastleId { name: "green/embedded".to_owned(), lineage: "5ed1".to_owned(), generation: 1 };
        let step = StepId::new(&Layer::new("platform"), "vm", "blue-worker-2");
        let place = Place { vmid: 1011, cluster: None };
        let operation = OperationId::of(&green, &step, "clone");
        let mark = Mark::new(&green, "blue-worker-2", Role::Worker, place, &operation, 7);
        assert!(life.datacenter.change_guest(1011, &[("description", Some(&mark.to_string()))]));
        let said = "VM 1011: belongs to another castle: `blue-worker-2` of green/embedded";
        refused(life, "VM 1010 (blue-worker-1) on pve", &[said]).await;
    });
}

/// Killed while some are marked and some are not, the same command ends it, and then there is nothing left to do.
#[test]
fn killed_between_two_marks_the_same_command_ends_it() {
    scripted(async |life| {
        // They are all asked for at once, in an order that is drawn: each is killed at the first, or the second, that is marked.
        for (number, moment, loss, count) in [
            (2, Moment::Before, Loss::PowerCut(3), 1),
            (1, Moment::Before, Loss::None, 1),
            (1, Moment::After, Loss::PowerCut(4), 2),
        ] {
            let seen = AtomicUsize::new(0);
            let is_meant =
                move |change: &str| change.ends_with("/config") && seen.fetch_add(1, Ordering::Relaxed) + 1 == number;
            let told = life.run_killed(&ADOPT, Kill { at: At::Change(Box::new(is_meant)), moment, loss }).await;
            assert_eq!(told.exit, None, "it was not killed: {}", told.printed.text);
            assert_eq!(marked(life).len(), count, "killed while some are marked: {}", told.printed.text);
        }
        let notes = |vmid: u32| life.datacenter.look().guests[&vmid].config["description"].clone();
        let done = marked(life);
        let before: Vec<String> = done.iter().copied().map(notes).collect();
        assert!(before.iter().all(|text| text.starts_with("the lab, ask Ann\n\nMade by castle")), "{before:?}");
        hold(&life.run(&ADOPT).await, Exit::Done, &["is this castle's now, as it stands."]);
        let after: Vec<String> = done.iter().copied().map(notes).collect();
        assert_eq!(after, before, "what is marked is not marked again");
        assert_eq!(marked(life), NODES);
        // What was left out of the guests is what `up` would write, and nothing else.
        for (vmid, address) in NODES.into_iter().zip(["127.42.0.11", "127.42.0.21", "127.42.0.22"]) {
            let line = format!("ip={address}/24,gw=127.42.0.1");
            assert!(life.datacenter.change_guest(vmid, &[("ipconfig0", Some(&line))]));
        }
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["plan", "--exit-code", "--deep"]).await, Exit::Done, &[]);
    });
}
