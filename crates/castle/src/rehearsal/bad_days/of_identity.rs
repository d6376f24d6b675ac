//! Which castle it is, in which life, and whose secrets these are: after the file has changed, a machine is not to be seen, the state is lost or an
//! old copy of it is back. However it goes, nobody loses the secrets of what stands, and nothing of a later life is touched.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use castle_rehearsal::{Loss, Moment};

use super::super::fixture::{HOME, SMALL as TWO_HOSTS};
use super::super::life::{At, Kill};
use super::super::promises::forget;
use super::super::script::STATE;
use super::of_etcd::{bootstraps, control_planes, identity, lose, three};
use super::of_sight::blind;
use super::*;

fn two_hosts() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(TWO_HOSTS));
    SCRIPT.clone()
}

/// The castle on two hosts has these numbers from now on.
fn renumber(life: &Life, vmids: &str) {
    let file = Path::new(HOME).join("castle.yaml");
    let text = String::from_utf8(life.disk().contents()[&file].clone()).unwrap();
    let line = |line: &str| match line.split_once("vmids: ") {
        Some((before, _)) => format!("{before}vmids: {vmids}\n"),
        None => format!("{line}\n"),
    };
    life.disk().tamper(&file, text.lines().map(line).collect::<String>().into_bytes());
}

fn guests_called(life: &Life, prefix: &str) -> Vec<u32> {
    let guests = life.datacenter.look().guests;
    let is_it = |name: Option<&String>| name.is_some_and(|name| name.starts_with(prefix));
    guests.iter().filter(|(_, guest)| is_it(guest.config.get("name"))).map(|(vmid, _)| *vmid).collect()
}

fn marked(life: &Life) -> usize {
    let guests = life.datacenter.look().guests;
    guests.values().filter(|guest| guest.config.get("tags").is_some_and(|tags| tags.contains("castle"))).count()
}

/// What the vault has of the castle.
pub(super) fn vaulted(life: &Life) -> BTreeMap<String, String> {
    let place = life.script.vault.as_ref().unwrap();
    let kept = ["KUBECONFIG", "TALOSCONFIG", "TALOS_BUNDLE"];
    let secrets =
        life.datacenter.vault(&place.host).secrets.into_iter().map(|(name, value)| (format!("{name:?}"), value));
    secrets.filter(|(name, _)| kept.iter().any(|kept| name.contains(kept))).collect()
}

/// The number of the newest record of a layer.
pub(super) fn newest_record(life: &Life, layer: &str) -> String {
    let (all, folder) = (state(life), format!("/state/{layer}/"));
    let record = all.keys().rfind(|path| path.to_string_lossy().contains(&folder));
    record.unwrap().file_name().unwrap().to_string_lossy().trim_start_matches('0').to_owned()
}

fn state(life: &Life) -> BTreeMap<PathBuf, Vec<u8>> {
    life.disk().contents().into_iter().filter(|(path, _)| path.starts_with(STATE)).collect()
}

#[test]
fn numbers_that_moved_hide_no_machine() {
    in_worlds(&two_hosts(), &SEEDS[..1], async |life| {
        let others = Others::of(&life);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        for vmids in ["521-532", "425-432"] {
            renumber(&life, vmids);
            life.tally.changes();
            let words = ["has machines outside of its vmids", "(green-cp-1)", "castle moves no machine"];
            hold(&life.run(&["plan"]).await, Exit::Refused, &words);
            hold(&life.run(&["up"]).await, Exit::Refused, &words);
            assert_eq!(life.tally.changes(), Vec::<String>::new());
        }
        // Castle has written down that it made them, so it takes them down, wherever they are; and their image.
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of green on proxmox is left"]);
        assert_eq!((marked(&life), others.touched(&life)), (0, Vec::new()));
    });
}

/// An image is in no record: the mark tells whose it is, wherever it is, and castle knows that it makes some.
#[test]
fn an_image_outside_of_a_narrowed_range_goes_with_its_castle() {
    in_worlds(&two_hosts(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let templates = |life: &Life| -> Vec<u32> {
            let guests = life.datacenter.look().guests;
            guests.iter().filter(|(_, guest)| guest.config.contains_key("template")).map(|(vmid, _)| *vmid).collect()
        };
        let (ours, last) = (templates(&life), 430);
        let within: Vec<u32> = guests_called(&life, "green-");
        assert!(ours.iter().any(|vmid| *vmid > last) && within.iter().all(|vmid| *vmid <= last), "{ours:?} {within:?}");
        renumber(&life, &format!("421-{last}"));
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of green on proxmox is left"]);
        assert_eq!((marked(&life), vaulted(&life)), (0, BTreeMap::new()));
        assert!(ours.iter().all(|vmid| !life.datacenter.look().guests.contains_key(vmid)), "{ours:?}");
    });
}

/// What is on a host that is away may run there: the secrets that it was made with stay until it is back and gone.
#[test]
fn a_host_that_is_away_keeps_the_secrets() {
    in_worlds(&two_hosts(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let secrets: Vec<String> = vaulted(&life).into_keys().collect();
        let worker = life.script.nodes.iter().find(|node| node.name.value == "green-worker-1").unwrap().vmid.0;
        // The other host is the one that castle asks.
        let host = "pve2".to_owned();
        assert!(life.datacenter.look().guests[&worker].host == host || life.datacenter.move_guest(worker, &host));
        life.datacenter.host_down(&host);
        life.clock().sleep(Duration::from_secs(60)).await;
        let told = life.run(&["down", "--yes"]).await;
        hold(&told, Exit::Failed, &[&format!("({}) on {host}", "green-worker-1"), &format!("once {host} answers")]);
        assert!(!secrets.is_empty() && vaulted(&life).into_keys().eq(secrets), "{}", told.printed.text);
        life.datacenter.host_up(&host);
        life.clock().sleep(Duration::from_secs(60)).await;
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of green on proxmox is left"]);
        assert_eq!((marked(&life), vaulted(&life)), (0, BTreeMap::new()));
    });
}

/// Goal: another hypervisor proves nothing, also where castle was about to remove what it does not have. Method: a `down` is cut off before its first
/// removal, and the file leads elsewhere: there is no guest of the castle there, and all of its numbers are free.
#[test]
fn another_hypervisor_ends_no_life() {
    in_worlds(&two_hosts(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let at = At::Change(Box::new(|change| change.ends_with("/status/stop")));
        let told = life.run_killed(&["down", "--yes"], Kill { at, moment: Moment::Before, loss: Loss::None }).await;
        assert_eq!(told.exit, None, "{}", told.printed.text);
        let secrets: Vec<String> = vaulted(&life).into_keys().collect();
        for vmid in guests_called(&life, "green-").into_iter().chain(guests_called(&life, "talos-")) {
            assert!(life.datacenter.remove_guest(vmid));
        }
        let file = Path::new(HOME).join("castle.yaml");
        let text = life.disk().contents()[&file].clone();
        let elsewhere = String::from_utf8(text.clone()).unwrap().replace("https://pve.lan:8006", "https://pve2:8006");
        life.disk().tamper(&file, elsewhere.into_bytes());
        let told = life.run(&["down", "--yes"]).await;
        hold(&told, Exit::Failed, &["may still be there: ", "did not see at pve2:8006"]);
        assert!(!secrets.is_empty() && vaulted(&life).into_keys().eq(secrets), "{}", told.printed.text);
        life.disk().tamper(&file, text);
        // Where castle was about to remove them, that no guest has their numbers is proof.
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of green on proxmox is left"]);
        assert_eq!(vaulted(&life), BTreeMap::new());
    });
}

#[test]
fn numbers_that_moved_and_a_lost_state_leave_the_secrets() {
    in_worlds(&two_hosts(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let (before, secrets) = (marked(&life), vaulted(&life));
        forget(&life);
        renumber(&life, "521-532");
        let words = ["(green-cp-1)", "with this castle's mark, outside of its vmids 521-532"];
        let told = life.run(&["down", "--yes"]).await;
        hold(&told, Exit::Failed, &words);
        assert_eq!((marked(&life), vaulted(&life)), (before, secrets), "{}", told.printed.text);
        hold(&life.run(&["up"]).await, Exit::Refused, &["has machines outside of its vmids"]);
        renumber(&life, "421-432");
        hold(&life.run(&["adopt"]).await, Exit::Done, &["life 1"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// What the vault has besides the sealed bundle, in which stands whether etcd is to begin.
fn unsealed(all: BTreeMap<String, String>) -> BTreeMap<String, Option<String>> {
    all.into_iter().map(|(name, value)| (name.clone(), (!name.contains("BUNDLE")).then_some(value))).collect()
}

/// A machine that is not to be seen may run elsewhere: what is seen goes, the secrets and the life stay.
#[test]
fn a_machine_that_is_not_seen_keeps_the_secrets() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let secrets = vaulted(&life);
        assert!(!secrets.is_empty());
        lose(&life, "blue-worker-1");
        let words =
            ["may still be there: blue-worker-1 (VM 1010 on pve)", "the secrets and the life of the castle are kept"];
        let told = life.run(&["down", "--yes"]).await;
        hold(&told, Exit::Failed, &words);
        assert_eq!(told.printed.result["leftovers"][0]["name"], "blue-worker-1");
        // That etcd may begin once more is written into the sealed bundle; all else is as it was.
        assert_eq!((marked(&life), unsealed(vaulted(&life))), (0, unsealed(secrets)));
        hold(&life.run(&["status"]).await, Exit::Done, &["blue-worker-1"]);
        // The others are gone by castle's own hand, and nobody asks for them again.
        let again = life.run(&["down", "--yes"]).await;
        hold(&again, Exit::Failed, &["may still be there: blue-worker-1 (VM 1010 on pve), which"]);
        hold(&life.run(&["down", "--forget-secrets", "blue"]).await, Exit::Done, &["taken for gone: blue-worker-1"]);
        assert_eq!(vaulted(&life), BTreeMap::new());
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 2)"]);
    });
}

/// Castle itself has removed all control planes, so nobody has their etcd: `up` goes on in the same life, also after it was cut off in that.
#[test]
fn what_is_left_without_control_planes_is_raised_again_in_the_same_life() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let secrets = vaulted(&life);
        lose(&life, "blue-worker-1");
        hold(
            &life.run(&["down", "--yes"]).await,
            Exit::Failed,
            &["may still be there: blue-worker-1 (VM 1010 on pve)"],
        );
        bootstraps(&life);
        for part in ["/clone", "Bootstrap"] {
            let at = At::Change(Box::new(move |change| change.contains(part)));
            let told = life.run_killed(&["up"], Kill { at, moment: Moment::Before, loss: Loss::None }).await;
            assert_eq!(told.exit, None, "{}", told.printed.text);
        }
        bootstraps(&life);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        assert_eq!((bootstraps(&life), life.datacenter.cluster("blue").unwrap().etcds.len()), (1, 1));
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says (life 1)"]);
        assert_eq!(unsealed(vaulted(&life)), unsealed(secrets));
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// The same where a control plane is missing: it may run elsewhere with all that is in etcd, and no other is begun in its life.
#[test]
fn what_is_left_of_a_castle_waits_for_its_control_plane() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        lose(&life, "blue-cp-2");
        hold(&life.run(&["down", "--yes"]).await, Exit::Failed, &["may still be there: blue-cp-2 (VM 1001 on pve)"]);
        let secrets = vaulted(&life);
        life.tally.changes();
        let words =
            ["none of its machines is to be seen: blue-cp-2 (VM 1001 on pve)", "--forget-secrets blue ends this life"];
        for verb in ["plan", "up"] {
            hold(&life.run(&[verb]).await, Exit::Refused, &words);
        }
        assert_eq!((life.tally.changes(), vaulted(&life)), (Vec::new(), secrets));
    });
}

/// Goal: that the etcd of a life has begun is taken back by nobody but who has seen all its control planes go by castle's own hand. Method: they are lost, and the
/// state with them; what is adopted has none, and is taken down.
#[test]
fn who_knows_of_no_control_plane_takes_no_proof_back() {
    for (verb, words) in [
        (&["down", "--yes"][..], "may still be there: blue-worker-1"),
        (&["rebirth", "--yes", "--keep-identity"], "castle knows of no control plane that has it"),
    ] {
        in_worlds(&three(), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            let secrets = vaulted(&life);
            for vmid in control_planes(&life) {
                assert!(life.datacenter.remove_guest(vmid));
            }
            forget(&life);
            hold(&life.run(&["adopt"]).await, Exit::Refused, &["has lost its quorum"]);
            if verb[0] == "down" {
                lose(&life, "blue-worker-1");
            }
            hold(&life.run(verb).await, Exit::Failed, &[words]);
            assert_eq!(vaulted(&life), secrets, "that it has begun stands in the sealed bundle");
        });
    }
}

/// A life that was ended by mistake is brought back with its secrets, as long as its machines are there.
#[test]
fn a_record_of_an_earlier_life_brings_the_castle_back() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let before = state(&life);
        let serial = newest_record(&life, "secrets");
        // Nothing is to be seen, and somebody says that all is gone.
        blind(&life, true);
        hold(&life.run(&["down", "--forget-secrets", "blue"]).await, Exit::Done, &["taken for gone"]);
        blind(&life, false);
        assert_ne!(state(&life), before);
        hold(
            &life.run(&["plan"]).await,
            Exit::Refused,
            &["the Talos bundle: is not in the state", "castle state restore secrets"],
        );
        let told = life.run(&["state", "restore", "secrets", &serial, "--yes"]).await;
        hold(&told, Exit::Done, &["is in life 1 again"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says (life 1)"]);
    });
}

#[test]
fn an_old_copy_of_the_state_touches_nothing_of_the_life_that_came_after() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let old = state(&life);
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &[]);
        let (secrets, cluster) = (vaulted(&life), identity(&life));
        let bring_back = |life: &Life| {
            forget(life);
            old.iter().for_each(|(path, bytes)| life.disk().tamper(path, bytes.clone()));
        };
        bring_back(&life);
        life.tally.changes();
        for verb in [&["plan"][..], &["up"], &["adopt"], &["down", "--yes"], &["rebirth", "--yes"]] {
            let told = life.run(verb).await;
            hold(&told, Exit::Refused, &["life 2", "move it away and run castle adopt"]);
            assert!(!told.printed.text.contains("castle wipe"), "{}", told.printed.text);
        }
        hold(
            &life.run(&["wipe", "--yes"]).await,
            Exit::Failed,
            &["left alone: VM 1000 (blue-cp-1) on pve, this castle's in life 2", "still there: VM 1000 (blue-cp-1)"],
        );
        for (verb, exit) in [("status", Exit::Done), ("drift", Exit::Differs), ("doctor", Exit::Failed)] {
            let told = life.run(&[verb]).await;
            hold(&told, exit, &["life 2", "the state is older than the castle"]);
            let is_well = ["stands as its file says", "Nothing has drifted", "Nothing found in the way"];
            assert!(is_well.iter().all(|words| !told.printed.text.contains(words)), "{}", told.printed.text);
        }
        assert_eq!((vaulted(&life), identity(&life)), (secrets, cluster));
        let changes = life.tally.changes();
        assert!(changes.is_empty(), "{changes:#?}");
        forget(&life);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["life 2"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// The same where the machines of the later life are not to be seen: the vault alone tells of it, and what it has is neither written over nor removed.
#[test]
fn an_old_copy_of_the_state_touches_nothing_in_the_vault_of_a_later_life() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let old = state(&life);
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &[]);
        let secrets = vaulted(&life);
        forget(&life);
        old.iter().for_each(|(path, bytes)| life.disk().tamper(path, bytes.clone()));
        blind(&life, true);
        life.tally.changes();
        for (verb, exit) in [
            (&["up"][..], Exit::Refused),
            (&["adopt"], Exit::Refused),
            (&["down", "--yes"], Exit::Failed),
            (&["down", "--yes", "--forget-secrets", "blue"], Exit::Refused),
        ] {
            let told = life.run(verb).await;
            hold(&told, exit, &[]);
            assert!(
                verb.len() < 3 || told.printed.text.contains("is of life 2 of this castle"),
                "{}",
                told.printed.text
            );
            assert_eq!((vaulted(&life), life.tally.changes()), (secrets.clone(), Vec::new()), "{}", told.printed.text);
        }
        blind(&life, false);
        forget(&life);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["life 2"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// Goal: `adopt` mends nothing where the life that it knows has ended. Method: a record of the old copy is damaged, and only the vault tells of the later life.
#[test]
fn what_only_the_vault_tells_of_a_later_life_keeps_adopt_from_mending() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let old = state(&life);
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &[]);
        let secrets = vaulted(&life);
        forget(&life);
        old.iter().for_each(|(path, bytes)| life.disk().tamper(path, bytes.clone()));
        let newest = |layer: &str| {
            let folder = format!("/state/{layer}/");
            old.keys().rfind(|path| path.to_string_lossy().contains(&folder)).unwrap()
        };
        for file in [newest("platform"), newest("secrets")] {
            life.disk().tamper(file, old[file][..old[file].len() / 2].to_vec());
        }
        let lease = old.keys().find(|path| path.ends_with("lease")).unwrap();
        life.disk().tamper(lease, b"{".to_vec());
        blind(&life, true);
        let before = state(&life);
        life.tally.changes();
        let words = ["in the vault", "is of life 2 of this castle", "move it away and run castle adopt"];
        let told = life.run(&["adopt"]).await;
        hold(&told, Exit::Refused, &words);
        assert_eq!((vaulted(&life), life.tally.changes()), (secrets, Vec::new()), "{}", told.printed.text);
        let after = state(&life);
        let differing: Vec<_> =
            after.keys().chain(before.keys()).filter(|path| after.get(*path) != before.get(*path)).collect();
        assert_eq!(differing, Vec::<&PathBuf>::new(), "{}", told.printed.text);
    });
}

/// An image outlives lives: its mark does not tell in which one the castle is.
#[test]
fn an_image_of_an_earlier_life_does_not_tell_the_life() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["rebirth", "--yes", "--keep-image"]).await, Exit::Done, &[]);
        let (secrets, guests) = (vaulted(&life), life.datacenter.look().guests);
        let nodes = guests_called(&life, "blue-");
        forget(&life);
        for vmid in &nodes {
            assert!(life.datacenter.change_guest(*vmid, &[("description", None), ("tags", None)]));
        }
        let told = life.run(&["adopt"]).await;
        assert_eq!(vaulted(&life), secrets, "{}", told.printed.text);
        assert!(!told.printed.text.contains("mint"), "{}", told.printed.text);
        for vmid in &nodes {
            let config = &guests[vmid].config;
            let options = ["description", "tags"].map(|option| (option, config.get(option).map(String::as_str)));
            assert!(life.datacenter.change_guest(*vmid, &options));
        }
        forget(&life);
        hold(&life.run(&["adopt"]).await, Exit::Done, &["life 2"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);

        // All of it is gone but the image and the vault: whatever was in etcd is lost, and nothing begins in a life that has ended.
        forget(&life);
        nodes.iter().for_each(|vmid| assert!(life.datacenter.remove_guest(*vmid)));
        hold(&life.run(&["up"]).await, Exit::Refused, &["etcd: is lost: the vault says that it began on blue-cp-1"]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Failed, &["only its vault knows of blue"]);
        assert_eq!(vaulted(&life), secrets);
        hold(&life.run(&["down", "--yes", "--forget-secrets", "blue"]).await, Exit::Done, &[]);
        assert_eq!(vaulted(&life), BTreeMap::new());
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 3)"]);
    });
}

/// The life of a castle of which only the vault knows goes on, or ends.
#[test]
fn a_vault_tells_which_castle_it_was() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        guests_called(&life, "").into_iter().filter(|vmid| *vmid >= 1000).for_each(|vmid| {
            life.datacenter.remove_guest(vmid);
        });
        forget(&life);
        hold(&life.run(&["up"]).await, Exit::Refused, &["etcd: is lost"]);
        hold(
            &life.run(&["down", "--yes"]).await,
            Exit::Failed,
            &["only its vault knows of blue", "--forget-secrets blue"],
        );
        hold(&life.run(&["down", "--yes", "--forget-secrets", "blue"]).await, Exit::Done, &[]);
        assert_eq!(vaulted(&life), BTreeMap::new());
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
    });
}

#[test]
fn a_down_that_was_cut_off_is_told_as_that() {
    in_worlds(&three(), &SEEDS, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let at = At::Change(Box::new(|change| change.starts_with("DELETE /nodes/pve/qemu/9998")));
        let told = life.run_killed(&["down", "--yes"], Kill { at, moment: Moment::Before, loss: Loss::None }).await;
        assert_eq!(told.exit, None);
        let words = ["castle itself has removed its machines, and was cut off", "castle down ends this life"];
        hold(&life.run(&["status"]).await, Exit::Done, &words);
        hold(&life.run(&["up"]).await, Exit::Refused, &words);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 2)"]);
    });
}
