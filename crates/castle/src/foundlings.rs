//! Goal: what bears a mark that is not this castle's to act on is named as what it is, by every verb, and never touched. Method: a castle with copies that a
//! person made of its nodes, inside of its numbers and outside of them; and one whose marks are those of an unversioned castle.

use castle_datacenter::blueprint::Stranger;

use crate::output::Exit;
use crate::rehearsal::fixture::{SMALL as TWO_HOSTS, hold, in_a_world, written};
use crate::rehearsal::{Life, forget};

const BLUE: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9, serviceAccountKey: p256, bundle: 'file:bundle.yaml'}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.42.0.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.42.0.21, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
";
const NODES: [u32; 2] = [1000, 1010];
/// One within the castle's numbers, one outside of them.
const COPIES: [u32; 2] = [1050, 300];

/// Copies a guest as Proxmox does: with its name, its notes and its tags.
fn copy(life: &Life, original: u32, vmid: u32) {
    copy_to(life, "pve", original, vmid);
}

fn copy_to(life: &Life, host: &str, original: u32, vmid: u32) {
    let config = life.datacenter.look().guests[&original].config.clone();
    let (_, storage) = config.iter().find(|(key, _)| *key == "scsi0").unwrap();
    let storage = storage.split_once(':').unwrap().0;
    life.datacenter.add_guest(Stranger::new(vmid, host, "copy", storage, 1));
    let copied = ["description", "tags", "name"].map(|option| (option, config.get(option).map(String::as_str)));
    assert!(life.datacenter.change_guest(vmid, &copied));
}

#[test]
fn copies_are_named_by_every_verb_and_touched_by_none() {
    in_a_world(&written(BLUE), 5, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        COPIES.iter().for_each(|vmid| copy(life, NODES[1], *vmid));
        let before = COPIES.map(|vmid| life.datacenter.digest_of(vmid));
        let untouched = |life: &Life| assert_eq!(COPIES.map(|vmid| life.datacenter.digest_of(vmid)), before);
        let both =
            ["VM 1050 (blue-worker-1) on pve, a copy of VM 1010", "VM 300 (blue-worker-1) on pve, a copy of VM 1010"];
        let told = life.run(&["status"]).await;
        hold(&told, Exit::Done, &both);
        hold(&told, Exit::Done, &["stands as its file says"]);
        assert_eq!(told.printed.result["copies"][0]["of"], 1010);
        life.tally.changes();
        hold(&life.run(&["plan", "--exit-code", "--deep"]).await, Exit::Done, &[]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["doctor"]).await, Exit::Done, &["VM 1050 (blue-worker-1) on pve: is a copy of VM 1010"]);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        // With the state lost, marks tell which castle it is; those of copies do not count.
        forget(life);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["is known again"]);
        untouched(life);
        hold(
            &life.run(&["wipe", "--yes"]).await,
            Exit::Done,
            &["left alone: VM 1050 (blue-worker-1)", "is left within 1000-9999 but what somebody copied: VM 1050."],
        );
        // That life is over.
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["left alone: VM 1050 (blue-worker-1)"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(
            &life.run(&["down", "--yes"]).await,
            Exit::Done,
            &["left alone: VM 1050 (blue-worker-1)", "is left on its hypervisor"],
        );
        untouched(life);
        // Of a castle that is gone, what is left is a stranger's.
        forget(life);
        hold(&life.run(&["status"]).await, Exit::Done, &["does not stand"]);
        hold(&life.run(&["wipe", "--force-range", "--confirm", "blue"]).await, Exit::Done, &["left alone: VM 1050"]);
        untouched(life);
    });
}

/// A copy where a node should be is in the way, and nobody but its owner can clear it.
#[test]
fn a_copy_at_the_number_of_a_node_stops_that_node_and_is_named() {
    in_a_world(&written(BLUE), 5, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        life.datacenter.remove_guest(NODES[1]);
        copy(life, NODES[0], NODES[1]);
        let before = life.datacenter.digest_of(NODES[1]);
        // Other numbers are no way out for a castle that stands: it moves no machine.
        for (verb, exit) in [("up", Exit::Refused), ("doctor", Exit::Failed)] {
            let told = life.run(&[verb]).await;
            hold(&told, exit, &["VM 1010", "is a copy of VM 1000", "move or remove the copy"]);
            assert!(!told.printed.text.contains("other vmids"), "{}", told.printed.text);
        }
        // What it was copied over is not to be seen: whether it is gone, castle does not know.
        let words = ["left alone: VM 1010", "may still be there: blue-worker-1 (VM 1010 on pve)"];
        hold(&life.run(&["down", "--yes"]).await, Exit::Failed, &words);
        assert_eq!(life.datacenter.digest_of(NODES[1]), before);
    });
}

/// The hosts that a castle's copies are on may be away: what cannot be read is told by its tags, and a copy has those of another guest.
#[test]
fn copies_on_a_host_that_is_away_are_in_nobodys_way() {
    const NODES: [u32; 2] = [421, 424];
    let on_one = "  overrides: {green-cp-1: {host: pve1}, green-worker-1: {host: pve1}}\nstorage: none";
    in_a_world(&written(&TWO_HOSTS.replace("storage: none", on_one)), 5, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let copies = [427, 300];
        for vmid in copies {
            copy_to(life, "pve2", NODES[1], vmid);
        }
        let before = copies.map(|vmid| life.datacenter.digest_of(vmid));
        life.datacenter.host_down("pve2");
        life.tally.changes();
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(up.printed.result["result"], "unchanged", "{}", up.printed.text);
        assert_eq!(life.tally.changes(), Vec::<String>::new());
        let down = life.run(&["down", "--yes"]).await;
        assert!(
            !down.printed.text.contains("VM 300") && !down.printed.text.contains("once pve2 answers"),
            "{}",
            down.printed.text
        );
        hold(&down, Exit::Done, &["left alone: VM 427 (", ") on pve2, a copy of VM 424"]);
        assert_eq!(copies.map(|vmid| life.datacenter.digest_of(vmid)), before);
    });
}

/// The same of both numbers of its image, when another image is wanted; and of a castle that does not stand yet, which may choose other numbers.
#[test]
fn copies_at_both_numbers_of_the_image_are_named() {
    const IMAGES: [u32; 2] = [9998, 9999];
    in_a_world(&written(BLUE), 5, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert!(life.datacenter.remove_guest(IMAGES[0]) && life.datacenter.remove_guest(NODES[1]));
        IMAGES.iter().for_each(|vmid| copy(life, NODES[0], *vmid));
        let words = [
            "its VMIDs are taken by guests that are not castle's: VM 9998 (blue-cp-1, a copy of VM 1000), VM 9999 (blue-cp-1, a copy of VM 1000)",
            "next: move or remove one of them",
        ];
        let told = life.run(&["up"]).await;
        hold(&told, Exit::Refused, &words);
        assert!(!told.printed.text.contains("other vmids"), "{}", told.printed.text);
        // Its life over, the castle may have other numbers.
        IMAGES.iter().for_each(|vmid| assert!(life.datacenter.remove_guest(*vmid)));
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        IMAGES[1..].iter().for_each(|vmid| copy(life, NODES[0], *vmid));
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &[]);
        copy(life, IMAGES[1], IMAGES[0]);
        let told = life.run(&["up"]).await;
        hold(&told, Exit::Refused, &["move or remove one of them, or give this castle other vmids in castle.yaml"]);
    });
}

/// What castle 0.1.0 wrote on a guest, byte for byte but for what is drawn: its description, and its tags.
fn unversioned(life: &Life, vmid: u32) -> [(&'static str, String); 2] {
    let guest = life.datacenter.look().guests.remove(&vmid).unwrap();
    let description = &guest.config["description"];
    let said = |key: &str| description.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
    let [lineage, operation, epoch] = ["lineage: ", "operation: ", "epoch: "].map(said);
    let description = format!(
        "Made by castle; changes by hand will be found and undone.\n\ncastle: blue/embedded\nlineage: {lineage}\ngeneration: 1\nname: {}\n\
         operation: {operation}\nepoch: {epoch}",
        guest.config["name"]
    );
    [("description", description), ("tags", "castle;castle-blue-embedded;castle-is-0123456789ab".to_owned())]
}

#[test]
fn marks_without_a_format_are_named_with_the_way_out_and_nothing_is_touched() {
    in_a_world(&written(BLUE), 5, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for vmid in NODES {
            let written = unversioned(life, vmid);
            let options = written.each_ref().map(|(option, value)| (*option, Some(value.as_str())));
            assert!(life.datacenter.change_guest(vmid, &options));
        }
        let before = NODES.map(|vmid| life.datacenter.digest_of(vmid));
        life.tally.changes();
        let what = "was made by an early castle, whose marks have no format";
        let words = [what, "take it down with the castle that raised it"];
        for is_forgotten in [false, true] {
            if is_forgotten {
                forget(life);
            }
            for verb in [["up"].as_slice(), &["up", "--deep"], &["plan"], &["plan", "--deep"]] {
                hold(&life.run(verb).await, Exit::Refused, &words);
            }
            hold(&life.run(&["down", "--yes"]).await, Exit::Refused, &words);
            hold(&life.run(&["rebirth", "--yes"]).await, Exit::Refused, &words);
            // What may be left is told, and that nothing is left is not.
            let wiped = life.run(&["wipe", "--yes"]).await;
            hold(&wiped, if is_forgotten { Exit::Refused } else { Exit::Failed }, &words);
            assert!(!wiped.printed.text.contains("Nothing that bears"), "{}", wiped.printed.text);
            // Without a memory nobody knows which castle it is.
            let (quiet, named) = if is_forgotten { (Exit::Refused, &words[..]) } else { (Exit::Done, &words[..1]) };
            hold(&life.run(&["status"]).await, quiet, named);
            hold(&life.run(&["status", "--deep"]).await, quiet, named);
            hold(&life.run(&["doctor"]).await, Exit::Failed, &words[..1]);
            hold(&life.run(&["adopt"]).await, Exit::Refused, &words);
        }
        assert_eq!(NODES.map(|vmid| life.datacenter.digest_of(vmid)), before);
    });
}
