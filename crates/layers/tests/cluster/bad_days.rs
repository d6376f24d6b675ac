//! Bad inputs and bad days: each ends in a word about the thing, the evidence and what to do; and once the cause is gone, the same
//! command goes on.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_datacenter::blueprint::Stranger;
use castle_datacenter::{Asked, Called, Datacenter, Fate, Latencies, Reply, Version, Witness};
use castle_engine::{Fault, Impact, Outcome};
use castle_layers::cluster::{Referred, configuration};
use castle_layers::secrets;
use castle_seams::Clock;
use castle_secrets::Secret;
use castle_testbed::{VirtualClock, in_virtual_time};

use crate::castle::{Castle, bundle, faults, quick};
use crate::room::{Room, blueprint, done, door};

fn castle(clock: &VirtualClock, control_planes: u32, latencies: Latencies) -> Castle {
    let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(latencies);
    Castle::new(Room::new(blueprint, &quick(control_planes, 0), door(clock)))
}

/// A fault as people read it: what it is about, what was seen, what to do.
fn said(fault: &Fault) -> [&str; 3] {
    [&fault.subject, &fault.evidence, &fault.next]
}

/// Raises a castle whose state holds this bundle, and returns what is said.
fn raised_with(spoil: impl Fn(String, &VirtualClock) -> String, later: Duration) -> Vec<[String; 3]> {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        let (mine, other) = (bundle(clock).await, bundle(clock).await);
        let text = spoil(mine.save().expose().to_owned(), clock);
        let key = |text: &str| text.split("os:\n").nth(1).unwrap().lines().nth(1).unwrap().to_owned();
        let text = text.replace("THE KEY OF ANOTHER", key(other.save().expose()).trim().trim_start_matches("key: "));
        castle.keep_bundle(&text).await;
        clock.sleep(later).await;
        let report = castle.up().await;
        let made = castle.room.datacenter.effects();
        assert!(
            made.keys().all(|effect| effect.starts_with("download")),
            "nothing is made with such a bundle: {made:?}"
        );
        faults(&report).into_iter().map(|fault| said(fault).map(str::to_owned)).collect()
    })
}

/// The bundle with another value behind the key of its Talos authority.
fn with_key(text: &str, value: &str) -> String {
    let (before, after) = text.split_once("    os:\n").unwrap();
    let lines: Vec<String> = after
        .lines()
        .map(
            |line| {
                if line.trim_start().starts_with("key: ") { format!("        key: {value}") } else { line.to_owned() }
            },
        )
        .collect();
    format!("{before}    os:\n{}\n", lines.join("\n"))
}

const BUNDLE: &str = "the Talos bundle in the state";
const HISTORY: &str = "castle state history secrets";

#[test]
fn a_bundle_whose_key_is_anothers_is_not_used() {
    let said = raised_with(|text, _| with_key(&text, "THE KEY OF ANOTHER"), Duration::ZERO);
    let evidence = "the secrets cannot be used: certs.os.key does not belong to the certificate";
    assert_eq!(said, [[BUNDLE, evidence, HISTORY].map(str::to_owned)]);
}

#[test]
fn a_bundle_with_a_redacted_secret_is_not_used() {
    let said = raised_with(|text, _| with_key(&text, "'******'"), Duration::ZERO);
    let evidence =
        "the secrets cannot be used: certs.os.key is the marker that stands for a hidden secret, not the secret";
    assert_eq!(said, [[BUNDLE, evidence, HISTORY].map(str::to_owned)]);
}

#[test]
fn a_bundle_whose_authorities_are_expired_is_not_used() {
    let eleven_years = Duration::from_secs(11 * 366 * 24 * 3600);
    let said = raised_with(|text, _| text, eleven_years);
    let evidence = "the secrets cannot be used: certs.etcd.crt expired on 2036-09-18 14:13:20 UTC; certs.k8s.crt expired on 2036-09-18 14:13:20 UTC; \
                    certs.k8saggregator.crt expired on 2036-09-18 14:13:20 UTC; certs.os.crt expired on 2036-09-18 14:13:20 UTC";
    assert_eq!(said, [[BUNDLE, evidence, HISTORY].map(str::to_owned)]);
}

/// A record of the secrets that says nothing of etcd gets the proof that it has begun all the same.
#[test]
fn what_the_state_did_not_say_of_etcd_is_written_down_once_it_is_seen() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        done(&castle.up().await);
        let record = castle.state().latest(&secrets::layer()).await.unwrap().unwrap();
        assert_eq!(record.payload["etcd"], serde_json::json!({"first": "blue-cp-1", "begun": true}));
    });
}

/// What a node can take up only as it starts is planned as a restart, as the node itself says.
#[test]
fn a_configuration_that_restarts_a_node_is_planned_so() {
    in_virtual_time(async |clock| {
        let mut castle = castle(clock, 1, Latencies::none());
        done(&castle.up().await);
        castle
            .room
            .rewrite(&quick(1, 0).replace("serviceAccountKey: p256", "serviceAccountKey: p256, patches: [all.yaml]"));
        for (patch, impact) in [
            ("machine: {sysctls: {a.b: '1'}}\n", Impact::InPlace),
            ("machine: {udev: {rules: ['# none']}}\n", Impact::Reboot),
        ] {
            let patches = [("all.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
            castle.referred = Arc::new(Referred { patches, ..Referred::default() });
            let report = castle.plan().await;
            let planned = report.outcomes.iter().filter_map(|(step, outcome)| match outcome {
                Outcome::Planned { change } if &*step.kind == "config" => Some((step.to_string(), change.impact)),
                _ => None,
            });
            assert_eq!(planned.collect::<Vec<_>>(), [("platform/config/blue-cp-1".to_owned(), impact)], "{patch}");
        }
    });
}

#[test]
fn a_configuration_that_a_node_refuses_is_named_without_its_values() {
    in_virtual_time(async |clock| {
        let mut castle = castle(clock, 1, Latencies::none());
        let file = quick(1, 0).replace("serviceAccountKey: p256", "serviceAccountKey: p256, patches: [all.yaml]");
        castle.room.rewrite(&file);
        let with = |patch: &str| {
            let patches = [("all.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
            Arc::new(Referred { patches, ..Referred::default() })
        };
        castle.referred = with("machine: {colour: planted}\n");
        let report = castle.up().await;
        let found = faults(&report);
        assert_eq!(
            found.iter().map(|fault| said(fault)).collect::<Vec<_>>(),
            [[
                "blue-cp-1",
                "ApplyConfiguration: error decoding document /v1alpha1/ (line 1): unknown keys found during decoding: machine: colour: …",
                "correct what is named: castle check"
            ]]
        );
        assert!(found[0].is_final());
        castle.referred = with("machine: {certSANs: [castle.lan]}\n");
        done(&castle.up().await);
    });
}

/// Whoever answers in maintenance mode at a node's address is given nothing unless it is the machine that castle made.
#[test]
fn another_machine_that_waits_at_a_nodes_address_gets_no_configuration() {
    const OTHER: &str = "02:00:00:00:00:99";
    /// Gives the machine another network device just before it starts, and sees whether anybody is given a configuration.
    struct Swap(Datacenter, Mutex<u32>);
    impl Witness for Swap {
        fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            if asked.path.ends_with("/qemu/421/status/start") {
                let device = format!("virtio={OTHER},bridge=vmbr0");
                assert!(self.0.change_guest(421, &[("net0", Some(&device))]));
            }
            Some(handle())
        }

        fn call(&self, called: &Called) -> Fate {
            *self.1.lock().unwrap() += u32::from(called.method.contains("ApplyConfiguration"));
            Fate::Handled
        }
    }
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        let swap = Arc::new(Swap(castle.room.datacenter.clone(), Mutex::default()));
        castle.room.datacenter.watch(swap.clone());
        let given = castle.room.nodes[0].mac.value.to_string().to_lowercase();
        let report = castle.up().await;
        let found = faults(&report);
        let [fault] = found.as_slice() else { panic!("{found:#?}") };
        assert!(fault.guarded, "{fault:#?}");
        for word in ["another machine answers at 10.0.1.1", OTHER, &given, "nothing was sent"] {
            assert!(fault.evidence.contains(word), "{word}: {fault:#?}");
        }
        assert!(fault.next.contains("talosctl get links --insecure --nodes 10.0.1.1"), "{fault:#?}");
        assert_eq!(*swap.1.lock().unwrap(), 0, "no secret left this machine");
        castle.room.datacenter.unwatch();
        let device = format!("virtio={given},bridge=vmbr0");
        assert!(castle.room.datacenter.change_guest(421, &[("net0", Some(&device))]));
        castle.room.datacenter.switch(421, false);
        done(&castle.up().await);
    });
}

/// Whoever copies a machine, and the hardware address with it, gets other firmware.
#[test]
fn a_copy_with_the_same_hardware_address_gets_no_configuration() {
    const GIVEN: &str = "5f0e0d0c-1122-3344-5566-778899aabbcc";
    in_virtual_time(async |clock| {
        let mut castle = castle(clock, 1, Latencies::none());
        castle.uuids = Some(Arc::new(|_| Box::pin(async { Ok(Some(GIVEN.to_owned())) })));
        let report = castle.up().await;
        let found = faults(&report);
        let [fault] = found.as_slice() else { panic!("{found:#?}") };
        assert!(fault.guarded, "{fault:#?}");
        for word in ["another machine answers at 10.0.1.1", GIVEN, "nothing was sent"] {
            assert!(fault.evidence.contains(word), "{word}: {fault:#?}");
        }
        assert!(castle.room.datacenter.machine_configuration(421).is_none());
        castle.uuids = None;
        done(&castle.up().await);
    });
}

/// A copy by hand that starts first at the address that both have, with the hardware address of the first.
struct Copyist(Datacenter);

impl Witness for Copyist {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        if asked.path.ends_with("/qemu/421/status/start") && self.0.clone_guest(421, 400) {
            let device = self.0.look().guests[&421].config["net0"].clone();
            assert!(self.0.change_guest(400, &[("net0", Some(&device))]));
            self.0.switch(400, true);
        }
        Some(handle())
    }

    fn call(&self, _: &Called) -> Fate {
        Fate::Handled
    }
}

/// The same, as Proxmox itself tells the two apart.
#[test]
fn a_copy_of_a_machine_that_answers_at_its_address_gets_no_configuration() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        let datacenter = castle.room.datacenter.clone();
        datacenter.watch(Arc::new(Copyist(datacenter.clone())));
        let report = castle.up().await;
        let uuid = |vmid: u32| datacenter.look().guests[&vmid].config["smbios1"].trim_start_matches("uuid=").to_owned();
        let found = faults(&report);
        let [fault] = found.as_slice() else { panic!("{found:#?}") };
        assert!(fault.guarded, "{fault:#?}");
        for word in ["another machine answers at 10.0.1.1", &uuid(400), &uuid(421), "nothing was sent"] {
            assert!(fault.evidence.contains(word), "{word}: {fault:#?}");
        }
        assert!(datacenter.machine_configuration(400).is_none() && datacenter.machine_configuration(421).is_none());
        datacenter.unwatch();
        assert!(datacenter.remove_guest(400));
        done(&castle.up().await);
    });
}

#[test]
fn without_a_time_server_the_wait_for_it_is_named() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        castle.room.datacenter.set_time_servers(false);
        let report = castle.up().await;
        let next = "blue-cp-1 needs a time server that it can reach (network.timeServers): talosctl --nodes 10.0.1.1 get timestatus; \
                    talosctl --nodes 10.0.1.1 dmesg";
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        assert_eq!(found, [["blue-cp-1", "Bootstrap: time is not in sync yet", next]]);
        castle.room.datacenter.set_time_servers(true);
        done(&castle.up().await);
    });
}

#[test]
fn a_node_of_another_castle_is_left_alone() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        done(&castle.room.up().await);
        let (room, foreign) = (&castle.room, bundle(clock).await);
        let made = configuration(&room.castle, &room.nodes, &room.nodes[0], &foreign, &Referred::default()).unwrap();
        room.datacenter.configure_node(room.nodes[0].vmid.0, made.text().expose()).unwrap();
        let report = castle.up().await;
        let found = faults(&report);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].guarded && found[0].is_final(), "{found:#?}");
        assert_eq!(found[0].subject, "blue-cp-1");
        assert!(found[0].evidence.contains("unknown certificate authority"), "{found:#?}");
        assert_eq!(found[0].next, "find out who has 10.0.1.1: talosctl version --insecure --nodes 10.0.1.1");
        assert!(!room.datacenter.effects().keys().any(|effect| effect.starts_with("apply")));
    });
}

/// Whoever only looks is told, too: it is not that nobody answers.
#[test]
fn a_node_of_another_castle_is_told_by_a_plan() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        done(&castle.room.up().await);
        let (room, foreign) = (&castle.room, bundle(clock).await);
        let made = configuration(&room.castle, &room.nodes, &room.nodes[0], &foreign, &Referred::default()).unwrap();
        room.datacenter.configure_node(room.nodes[0].vmid.0, made.text().expose()).unwrap();
        let report = castle.plan().await;
        let found = faults(&report);
        let strangers = found.iter().filter(|fault| fault.guarded && fault.evidence.contains("unknown certificate"));
        assert_eq!(strangers.count(), found.len(), "{found:#?}");
        assert!(found.iter().any(|fault| fault.subject == "blue-cp-1"), "{found:#?}");
    });
}

/// Goal: a control plane that is gone is made anew only once the others have told whether etcd has begun, and nobody tells for one of them but itself. Method: a
/// castle of three whose etcd nobody has seen begin; one is gone, one waits for its first configuration, and a node of another castle is where the third was.
#[test]
fn a_node_of_another_castle_does_not_tell_that_etcd_has_not_begun() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 3, Latencies::none());
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        done(&castle.room.up().await);
        let (room, foreign) = (&castle.room, bundle(clock).await);
        let made = configuration(&room.castle, &room.nodes, &room.nodes[1], &foreign, &Referred::default()).unwrap();
        room.datacenter.configure_node(room.nodes[1].vmid.0, made.text().expose()).unwrap();
        let gone = room.nodes[2].vmid.0;
        assert!(room.datacenter.remove_guest(gone));
        clock.sleep(Duration::from_secs(60)).await;
        let report = castle.up().await;
        let found = faults(&report);
        let strangers = found.iter().filter(|fault| fault.guarded && fault.evidence.contains("unknown certificate"));
        assert!(strangers.count() > 0, "{found:#?}");
        assert!(!room.datacenter.look().guests.contains_key(&gone), "it was made anew: {found:#?}");
    });
}

/// Keeps a member of etcd from ever voting, as soon as there is an etcd.
struct Slow {
    datacenter: Datacenter,
    vmid: u32,
}

impl Witness for Slow {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        if called.method.ends_with("Bootstrap") {
            assert!(self.datacenter.freeze_learner(self.vmid, true));
        }
        Fate::Handled
    }
}

/// A member that only learns has no vote: a quorum that counts on it is none.
#[test]
fn a_learner_is_no_voter() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 3, Latencies::default());
        let (datacenter, vmid) = (castle.room.datacenter.clone(), castle.room.nodes[1].vmid.0);
        datacenter.watch(Arc::new(Slow { datacenter: datacenter.clone(), vmid }));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "is a learner, and does not vote yet (2 of 3 vote)";
        assert!(found.iter().any(|[who, how, _]| *who == "blue-cp-2" && how.starts_with(evidence)), "{found:#?}");
        datacenter.freeze_learner(vmid, false);
        done(&castle.up().await);
        datacenter.unwatch();
    });
}

/// What an earlier machine of the same name has left in etcd votes for nobody.
#[test]
fn a_member_of_the_same_name_at_another_address_does_not_vote() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 3, Latencies::default());
        done(&castle.up().await);
        let (datacenter, vmid) = (castle.room.datacenter.clone(), castle.room.nodes[1].vmid.0);
        assert!(datacenter.readdress_etcd_member(vmid, "192.168.1.99".parse().unwrap()));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "is no member of etcd yet; the member of its name is at https://192.168.1.99:2380 (2 of 3 vote)";
        assert!(found.iter().any(|[who, how, _]| *who == "blue-cp-2" && how.starts_with(evidence)), "{found:#?}");
    });
}

/// Restores a machine under its own number, which nobody has started yet, as soon as the others are asked who is a member.
struct Restorer {
    datacenter: Datacenter,
    vmid: u32,
}

impl Witness for Restorer {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        if called.method.ends_with("EtcdMemberList") && !self.datacenter.look().guests.contains_key(&self.vmid) {
            self.datacenter.add_guest(Stranger::new(self.vmid, "pve", "blue-cp-2", "local-lvm", 8));
        }
        Fate::Handled
    }
}

fn members(castle: &Castle) -> Vec<String> {
    let etcds = castle.room.datacenter.cluster("blue").unwrap().etcds;
    etcds.into_iter().flatten().map(|member| member.hostname).collect()
}

/// That its machine is gone is proved right before its member is removed, not minutes before.
#[test]
fn a_machine_that_is_restored_meanwhile_keeps_its_member() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 3, Latencies::default());
        done(&castle.up().await);
        let (datacenter, vmid) = (castle.room.datacenter.clone(), castle.room.nodes[1].vmid.0);
        assert!(datacenter.remove_guest(vmid));
        datacenter.watch(Arc::new(Restorer { datacenter: datacenter.clone(), vmid }));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        assert_eq!(found, [["blue-cp-2", "is there: VM 422 on pve", "run the same command again"]]);
        assert_eq!(members(&castle).len(), 3, "its member was removed");
        datacenter.unwatch();
    });
}

/// The hypervisor that castle asks has no such machine, and still it answers: it may be on another one.
#[test]
fn a_control_plane_that_answers_keeps_its_member_though_no_machine_of_it_is_seen() {
    in_virtual_time(async |clock| {
        let mut castle = castle(clock, 3, Latencies::default());
        done(&castle.up().await);
        let vmid = castle.room.nodes[1].vmid.0;
        // By its name castle would know it.
        let renamed = [("description", None), ("tags", None), ("name", Some("spare"))];
        assert!(castle.room.datacenter.change_guest(vmid, &renamed));
        castle
            .room
            .rewrite(&quick(3, 0).replace("storage: none", "  overrides: {blue-cp-2: {vmid: 600}}\nstorage: none"));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "answers at 10.0.1.2, and the hypervisor shows no machine for it";
        let next = "may the token see that machine? castle doctor; or is it on another hypervisor?";
        assert_eq!(found, [["blue-cp-2", evidence, next]]);
        assert_eq!(members(&castle).len(), 3, "its member was removed");
    });
}

/// Takes a guest for his own right before castle writes into its mark that etcd has begun.
struct Taker {
    datacenter: Datacenter,
    vmid: u32,
}

impl Witness for Taker {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        let is_guests = asked.method == "POST" && asked.path.ends_with(&format!("/qemu/{}/config", self.vmid));
        if is_guests && asked.parameters.iter().any(|(name, _)| name == "description") {
            self.datacenter.change_guest(self.vmid, &[("description", Some("mine, ask Ann"))]);
        }
        Some(handle())
    }
}

#[test]
fn a_guest_that_becomes_anothers_before_its_mark_is_written_is_left_to_him() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        let (datacenter, vmid) = (castle.room.datacenter.clone(), castle.room.nodes[0].vmid.0);
        datacenter.watch(Arc::new(Taker { datacenter: datacenter.clone(), vmid }));
        let report = castle.up().await;
        let found = faults(&report);
        assert!(found.iter().any(|fault| fault.guarded), "{found:#?}");
        assert_eq!(datacenter.look().guests[&vmid].config["description"], "mine, ask Ann");
        datacenter.unwatch();
    });
}

#[test]
fn nodes_whose_secrets_are_lost_are_left_alone() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        done(&castle.room.up().await);
        let report = castle.up().await;
        let found = faults(&report);
        assert!(found.len() == 1 && found[0].guarded, "{found:#?}");
        let evidence = "is not in the state, and there are nodes that were made with it: blue-cp-1";
        assert_eq!(said(found[0])[..2], ["the Talos bundle", evidence]);
        assert!(castle.state().latest(&secrets::layer()).await.unwrap().is_none(), "none is minted");
    });
}

#[test]
fn old_data_of_an_etcd_is_named() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        done(&castle.room.up().await);
        assert!(castle.room.datacenter.plant_etcd_data(castle.room.nodes[0].vmid.0));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let [subject, evidence, next] = found[0];
        let lost = "has lost its quorum, for 15 min; its members do not find each other (waited 15 min)";
        assert_eq!((subject, evidence), ("etcd", lost), "{found:#?}");
        assert!(next.contains("talosctl --nodes 10.0.1.1 copy /var/lib/etcd") && !next.contains("reset"), "{next}");
        assert!(castle.room.datacenter.cluster("blue").unwrap().etcds.is_empty(), "nothing was begun over it");
    });
}

#[test]
fn nothing_begins_while_a_control_plane_does_not_tell_whether_it_has_an_etcd() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 3, Latencies::none());
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        done(&castle.room.up().await);
        assert!(castle.room.datacenter.plant_etcd_data(castle.room.nodes[1].vmid.0));
        castle.room.datacenter.spoil_etcd_data(castle.room.nodes[1].vmid.0);
        let begun = clock.monotonic();
        let report = castle.up().await;
        let took = clock.monotonic().saturating_sub(begun);
        assert!(took < Duration::from_secs(11 * 60), "waited for once, not at every attempt: {took:?}");
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let is_told = |[_, evidence, _]: &[&str; 3]| evidence.contains("does not tell whether it has data of etcd");
        assert!(found.iter().any(is_told), "{found:#?}");
        assert!(castle.room.datacenter.cluster("blue").unwrap().etcds.is_empty(), "a second one was begun");
    });
}

/// What says that it has begun is enough, whatever its nodes have.
#[test]
fn an_etcd_that_is_lost_does_not_begin_again() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        done(&castle.up().await);
        assert!(castle.room.datacenter.lose_etcd_member(421));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "is lost: the state says that it began on blue-cp-1, and none of its control planes has its data: blue-cp-1";
        assert!(found.iter().any(|[who, how, _]| (*who, *how) == ("etcd", evidence)), "{found:#?}");
        assert_eq!(castle.room.datacenter.effects().get("bootstrap 421"), Some(&1), "it began again");
    });
}

#[test]
fn nothing_begins_while_a_control_plane_may_have_an_etcd_that_nobody_asks() {
    in_virtual_time(async |clock| {
        let mut castle = castle(clock, 1, Latencies::none());
        castle.others = vec!["blue-cp-2 (VM 422)".to_owned()];
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "may have begun on control planes that nobody can ask: blue-cp-2 (VM 422)";
        assert!(found.iter().any(|[who, how, _]| (*who, *how) == ("etcd", evidence)), "{found:#?}");
        assert!(castle.room.datacenter.cluster("blue").is_none_or(|cluster| cluster.etcds.is_empty()), "it began");
        castle.others.clear();
        done(&castle.up().await);
    });
}

/// Restarts the node that has just been told to begin, once: what it was told is in its memory alone.
struct Stumble {
    datacenter: Datacenter,
    has_struck: Mutex<bool>,
}

impl Witness for Stumble {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        let mut has_struck = self.has_struck.lock().unwrap();
        // Whoever asks for its data has had the answer that it was begun.
        let is_asked = called.method == "List";
        if is_asked && !*has_struck && self.datacenter.is_about_to_begin(421) {
            *has_struck = self.datacenter.reboot_node(421);
        }
        Fate::Handled
    }
}

#[test]
fn a_restart_right_after_the_bootstrap_is_noticed_and_the_next_run_goes_on() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::default());
        let (datacenter, has_struck) = (castle.room.datacenter.clone(), Mutex::default());
        castle.room.datacenter.watch(Arc::new(Stumble { datacenter, has_struck }));
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "bootstrap was done and does not show";
        assert_eq!(found, [["platform/etcd/bootstrap", evidence, "look at it; then run the same command again"]]);
        done(&castle.up().await);
        assert_eq!(castle.room.datacenter.cluster("blue").unwrap().etcds.len(), 1);
    });
}

/// Destroys the etcd of the second voter as soon as there are two.
struct Misfortune {
    datacenter: Datacenter,
    struck: Mutex<Option<u32>>,
}

impl Witness for Misfortune {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, _: &Called) -> Fate {
        let etcd = self.datacenter.cluster("blue").and_then(|cluster| cluster.etcds.into_iter().next());
        let voters: Vec<u32> = etcd.iter().flatten().filter(|it| !it.is_learner).map(|it| it.vmid).collect();
        let mut struck = self.struck.lock().unwrap();
        if let (None, 2, Some(second)) = (*struck, voters.len(), voters.into_iter().find(|vmid| *vmid != 421)) {
            *struck = Some(second);
            assert!(self.datacenter.lose_etcd_member(second));
        }
        Fate::Handled
    }
}

#[test]
fn a_member_that_is_lost_on_the_way_is_named() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 3, Latencies::default());
        let datacenter = castle.room.datacenter.clone();
        let misfortune = Arc::new(Misfortune { datacenter: datacenter.clone(), struck: Mutex::default() });
        datacenter.watch(misfortune.clone());
        let report = castle.up().await;
        assert!(misfortune.struck.lock().unwrap().is_some());
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        let evidence = "has lost its quorum, for 14 min; missing: blue-cp-2 (its etcd is Preparing, for 15 min), blue-cp-3 (its etcd is Preparing, for 14 min) (waited 15 min)";
        let next = "before anything else is tried, keep a copy of what blue-cp-1 has: talosctl --nodes 10.0.1.1 copy /var/lib/etcd FOLDER; then bring back the \
                    machines that are missing, with their disks: castle up starts those that are off; then restore one whose disk is lost from a backup, under \
                    its own VMID. What begins anew (castle down, then castle up) begins without what was in it";
        assert!(found.contains(&["etcd", evidence, next]), "{found:#?}");
    });
}

#[test]
fn a_shared_address_that_someone_else_has_is_told_from_one_that_nobody_holds() {
    in_virtual_time(async |clock| {
        let castle = castle(clock, 1, Latencies::none());
        let vip: IpAddr = "10.0.255.1".parse().unwrap();
        castle.room.datacenter.occupy_address(vip, true);
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        let [subject, evidence, next] = found[0];
        assert_eq!(subject, "10.0.255.1");
        assert_eq!(next, "find out whose it is: arping 10.0.255.1; or choose a free one for network.vip");
        let expected = "blue-cp-1 holds it and serves at its own address, but here: ";
        assert!(
            evidence.starts_with(expected) && evidence.contains("Another device may have this address"),
            "{evidence}"
        );
        castle.room.datacenter.occupy_address(vip, false);
        done(&castle.up().await);
    });
}

#[test]
fn a_volume_that_finds_no_disk_is_named() {
    in_virtual_time(async |clock| {
        let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
        let patched = |patches: &str| {
            let file = quick(1, 1).replace("storage: none", "storage: {longhorn: {replicas: 1}}");
            file.replace("dataDisk: 20GiB", &format!("dataDisk: 20GiB, patches: [{patches}]"))
        };
        let mut castle = Castle::new(Room::new(blueprint, &patched("disk.yaml"), door(clock)));
        // Talos forgets the least size when it merges anything into this section: it has to be said again.
        let patch = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: longhorn\nprovisioning:\n    minSize: 1GiB\n    \
                     diskSelector:\n        match: disk.serial == 'another'\n";
        let patches = [("disk.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
        castle.referred = Arc::new(Referred { patches, ..Referred::default() });
        let report = castle.up().await;
        let found: Vec<_> = faults(&report).into_iter().map(said).collect();
        assert_eq!(
            found,
            [[
                "blue-worker-1",
                "its volume longhorn is failed: no disks matched selector for volume (waited 5 min)",
                "talosctl --nodes 10.0.1.8 get disks; talosctl --nodes 10.0.1.8 get volumestatus u-longhorn"
            ]]
        );
        castle.room.rewrite(&patched(""));
        done(&castle.up().await);
    });
}
