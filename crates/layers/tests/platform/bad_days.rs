//! Bad days: each ends in a clear word about the thing and the remedy, with nothing lost and nothing foreign touched; and once the
//! cause is gone, the same command goes on.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{Span, Storage, StorageKind};
use castle_datacenter::{Asked, Ending, Latencies, Reply, Version, Witness};
use castle_engine::{Fault, Outcome, Report};
use castle_http::Method;
use castle_layers::graceful;
use castle_layers::platform::{self, Whose};
use castle_proxmox::model::ErrorClass;
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::json;

use crate::room::{Room, blueprint, done, door, file};

fn small() -> String {
    file(1, 1, "nodes: [pve]")
}

fn faults(report: &Report) -> Vec<&Fault> {
    report
        .outcomes
        .iter()
        .filter_map(|(_, outcome)| match outcome {
            Outcome::Failed { fault } => Some(fault),
            _ => None,
        })
        .collect()
}

#[test]
fn a_wrong_token_is_said_once_and_not_repeated() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        let client = room.client_with("castle@pve!embedded=00000000-planted");
        let refusal = client.guests().await.unwrap_err();
        assert_eq!(refusal.class, ErrorClass::Unauthenticated);
        let fault = Fault::from(refusal);
        assert!(fault.is_final() && fault.next.contains("token"), "{fault:?}");
        assert!(!format!("{fault:?}{client:?}").contains("planted"));
    });
}

#[test]
fn a_privilege_removed_mid_run_is_named_and_the_rest_goes_on_later() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.revoke("castle@pve!embedded", "VM.PowerMgmt");
        let report = room.up().await;
        let faults = faults(&report);
        assert_eq!(faults.len(), 2, "both starts fail: {faults:#?}");
        assert!(faults.iter().all(|fault| fault.evidence.contains("VM.PowerMgmt") && fault.is_final()), "{faults:#?}");
        room.datacenter.grant("castle@pve!embedded", "VM.PowerMgmt");
        let report = room.up().await;
        done(&report);
        assert_eq!(report.effects(), 2, "what was made is not made again");
    });
}

#[test]
fn a_storage_that_fills_up_mid_clone_leaves_nothing_half_made() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.fail_storage("local-lvm", "no space left: thin pool is full (not enough space)");
        let report = room.up().await;
        let found = faults(&report);
        assert!(found.iter().any(|fault| fault.next.contains("make room")), "{found:#?}");
        let look = room.datacenter.look();
        assert!(look.guests.values().all(|guest| guest.lock.is_none()), "{look}");
        done(&room.up().await);
    });
}

#[test]
fn a_template_that_someone_deleted_is_made_again_only_if_needed() {
    in_virtual_time(async |clock| {
        let mut room = Room::plain(&small(), clock);
        done(&room.up().await);
        room.datacenter.remove_guest(998);
        let report = room.up().await;
        done(&report);
        assert_eq!(report.effects(), 0, "nothing is to be cloned");
        room.rewrite(&file(1, 2, "nodes: [pve]"));
        done(&room.up().await);
        assert!(room.datacenter.look().guests[&429].running);
    });
}

#[test]
fn a_vmid_taken_by_a_stranger_at_the_last_moment_is_left_to_him() {
    /// Puts a guest where castle is about to clone to.
    struct Thief(castle_datacenter::Datacenter);
    impl Witness for Thief {
        fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            let is_clone = asked.path.ends_with("/clone") && asked.parameters.iter().any(|(_, value)| value == "421");
            if is_clone && self.0.digest_of(421).is_none() {
                return Some(Reply::failure(500, "unable to create VM 421: config file already exists"));
            }
            Some(handle())
        }
    }
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.watch(Arc::new(Thief(room.datacenter.clone())));
        let report = room.up().await;
        let found = faults(&report);
        assert_eq!(found.len(), 1, "the other node is made: {found:#?}");
        assert!(found[0].evidence.contains("already exists"), "{found:#?}");
        assert!(room.datacenter.look().guests[&428].running);
    });
}

#[test]
fn without_a_quorum_nothing_is_begun_and_it_is_said() {
    in_virtual_time(async |clock| {
        let blueprint = blueprint(&["pve1", "pve2"], Version::Nine).with_latencies(Latencies::none());
        let room = Room::new(blueprint, &file(1, 0, "nodes: [pve1, pve2]"), door(clock));
        room.datacenter.set_quorum(false);
        let report = room.up().await;
        let found = faults(&report);
        assert!(
            found.iter().any(|fault| fault.evidence.contains("no quorum") && fault.next.contains("pvecm")),
            "{found:#?}"
        );
        room.datacenter.set_quorum(true);
        done(&room.up().await);
    });
}

#[test]
fn an_answer_that_is_not_json_and_one_of_50_mb_are_refused() {
    /// Answers all with the same.
    struct Odd(Reply);
    impl Witness for Odd {
        fn request(&self, _: &Asked, _: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            Some(self.0.clone())
        }
    }
    in_virtual_time(async |clock| {
        let huge = json!({"data": ["x".repeat(50 << 20)]});
        let odd = Reply { body: Some(json!("<html>a proxy</html>")), ..Reply::data(&json!(null)) };
        for reply in [odd, Reply { body: Some(huge), ..Reply::data(&json!(null)) }, Reply::data(&json!({"no": "list"}))]
        {
            let room = Room::plain(&small(), clock);
            room.datacenter.watch(Arc::new(Odd(reply)));
            let refusal = room.client().guests().await.unwrap_err();
            assert_eq!(refusal.class, ErrorClass::Unreadable, "{refusal:?}");
            assert!(Fault::from(refusal).is_final());
        }
    });
}

#[test]
fn a_task_that_fails_for_a_lock_is_tried_again() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        let busy = "can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout";
        room.datacenter.end_next_task("qmclone", Ending::Fails(busy.to_owned()));
        done(&room.up().await);
    });
}

#[test]
fn twenty_clones_on_one_storage_all_succeed() {
    in_virtual_time(async |clock| {
        let room = Room::new(blueprint(&["pve"], Version::Nine), &file(3, 17, "nodes: [pve]"), door(clock));
        done(&room.up().await);
        let running = room.datacenter.look().guests.values().filter(|guest| guest.vmid >= 421 && guest.running).count();
        assert_eq!(running, 20);
        done(&room.plan(true).await);
    });
}

#[test]
fn down_ends_whatever_is_stuck_and_names_it() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&file(3, 0, "nodes: [pve]"), clock);
        done(&room.up().await);
        room.datacenter.set_lock(422, Some("backup"));
        assert!(room.datacenter.change_guest(423, &[("protection", Some("1"))]));
        let report = room.down().await;
        assert!(room.datacenter.look().guests[&423].running, "what is protected is not even stopped");
        let found = faults(&report);
        assert!(
            found.iter().any(|fault| fault.subject.contains("422") && fault.next.contains("qm unlock")),
            "{found:#?}"
        );
        assert!(
            found.iter().any(|fault| fault.subject.contains("423") && fault.next.contains("protection")),
            "{found:#?}"
        );
        let left: Vec<u32> = room.datacenter.look().guests.into_keys().filter(|vmid| *vmid >= 421).collect();
        assert_eq!(left, [422, 423, 998], "the image waits for its clones");
        room.datacenter.set_lock(422, None);
        assert!(room.datacenter.change_guest(423, &[("protection", None)]));
        done(&room.down().await);
        assert!(room.datacenter.look().guests.keys().all(|vmid| *vmid < 421));
    });
}

/// Has the next task of a kind fail with this sentence, and tells this log of it.
struct Teller {
    log: Vec<&'static str>,
}

impl Witness for Teller {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        if asked.path.ends_with("/log") {
            let lines = self.log.iter().enumerate().map(|(n, line)| json!({"n": n + 1, "t": line}));
            return Some(Reply::data(&lines.collect()));
        }
        Some(handle())
    }
}

/// As Proxmox and the programs it runs have said it.
#[test]
fn an_image_that_is_not_there_is_the_end_and_is_told_in_the_words_of_the_log() {
    let said = |status: &'static str| {
        vec![
            "downloading http://factory/x.qcow2 to /var/lib/vz/import/x.qcow2",
            "--2026-11-16 13:30:40--  http://factory/x.qcow2",
            "HTTP request sent, awaiting response... 404 File not found",
            status,
            "",
            "TASK ERROR: download failed: exit code 8",
        ]
    };
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.end_next_task("download", Ending::Fails("download failed: exit code 8".to_owned()));
        room.datacenter.watch(Arc::new(Teller { log: said("2026-11-16 13:30:40 ERROR 404: File not found.") }));
        let report = room.up().await;
        let found = faults(&report);
        let [fault] = found.as_slice() else { panic!("{found:#?}") };
        assert!(fault.is_final() && fault.evidence.contains("ERROR 404: File not found."), "{fault:#?}");
        assert!(fault.next.contains("talos.version") && !fault.evidence.contains("awaiting"), "{fault:#?}");
        assert!(room.requests().keys().all(|request| !request.ends_with("/status/start")));
    });
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.end_next_task("download", Ending::Fails("download failed: exit code 8".to_owned()));
        room.datacenter.watch(Arc::new(Teller { log: said("2026-11-16 13:30:40 ERROR 503: Service Unavailable.") }));
        done(&room.up().await);
    });
}

#[test]
fn what_a_program_said_is_told_with_the_task_that_failed() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.end_next_task("qmstart", Ending::Fails("start failed: QEMU exited with code 1".to_owned()));
        let log = vec![
            "kvm: -drive file=/var/lib/vz/images/421/vm-421-disk-0.qcow2: Could not open it: Permission denied",
            "TASK ERROR: start failed: QEMU exited with code 1",
        ];
        room.datacenter.watch(Arc::new(Teller { log }));
        let report = room.up().await;
        let found = faults(&report);
        assert!(found.len() == 1 && found[0].evidence.contains("Could not open it: Permission denied"), "{found:#?}");
    });
}

/// A busy host says that a storage is not active, with zeros for sizes.
#[test]
fn a_storage_that_is_not_active_is_not_full() {
    struct Busy;
    impl Witness for Busy {
        fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            let mut reply = handle();
            let rows = reply.body.as_mut().filter(|_| asked.path == "/nodes/pve/storage");
            for row in rows.and_then(|body| body["data"].as_array_mut()).into_iter().flatten() {
                for key in ["active", "total", "avail", "used"] {
                    row[key] = json!(0);
                }
            }
            Some(reply)
        }
    }
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        room.datacenter.watch(Arc::new(Busy));
        done(&room.up().await);
    });
}

/// Where castle may have downloaded something, and nobody can look now, is told: what all hosts share, once.
#[test]
fn storages_that_are_not_active_are_told_as_unseen() {
    in_virtual_time(async |clock| {
        let mut hosts = blueprint(&["pve", "pve2"], Version::Nine).with_latencies(Latencies::none());
        let dir = |name, content: &[&str]| Storage::new(name, StorageKind::Dir, content, 64 << 30);
        let nas = Storage { shared: true, ..dir("nas", &["import"]) };
        hosts.storages.extend([nas, dir("shelf", &["import"]), dir("isos", &["iso"])]);
        let room = Room::new(hosts, &small(), door(clock));
        let unseen = async || {
            let downloads = platform::downloads(&room.ground(false), &room.site).await.unwrap();
            downloads.unseen.iter().map(ToString::to_string).collect::<Vec<String>>()
        };
        assert_eq!(unseen().await, [""; 0]);
        for (host, storage) in [("pve", "nas"), ("pve", "shelf"), ("pve2", "local"), ("pve", "isos")] {
            room.datacenter.silence_storage(host, storage, true);
        }
        assert_eq!(unseen().await, ["pve (nas)", "pve (shelf)", "pve2 (local)"]);
    });
}

#[test]
fn no_field_of_a_guest_holds_a_secret() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&small(), clock);
        done(&room.up().await);
        let secret = castle_datacenter::EMBEDDED_TOKEN;
        assert!(!room.datacenter.look().to_string().contains(secret));
        let guest = &room.datacenter.look().guests[&421];
        let unexpected = ["cipassword", "sshkeys", "cicustom", "ciuser", "args", "hookscript"];
        assert!(guest.config.keys().all(|key| !unexpected.contains(&key.as_str())), "{:?}", guest.config);
    });
}

#[test]
fn a_host_that_is_down_is_named_and_the_rest_goes_on() {
    in_virtual_time(async |clock| {
        let blueprint = blueprint(&["pve1", "pve2", "pve3"], Version::Nine).with_latencies(Latencies::none());
        let room = Room::new(blueprint, &file(3, 0, "nodes: [pve1, pve2, pve3]"), door(clock));
        done(&room.up().await);
        room.datacenter.host_down("pve2");
        let report = room.up().await;
        let found = faults(&report);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].subject.contains("422") && found[0].next.contains("pvecm status"), "{found:#?}");
        // Taken down meanwhile, all that can go is gone, and what cannot is named.
        let report = room.down().await;
        assert!(faults(&report).iter().all(|fault| fault.next.contains("pvecm status")), "{:#?}", faults(&report));
        let left: Vec<u32> = room.datacenter.look().guests.into_keys().filter(|vmid| *vmid >= 421).collect();
        assert!(left.contains(&422) && !left.contains(&421) && !left.contains(&423), "{left:?}");
        room.datacenter.host_up("pve2");
        done(&room.down().await);
        assert!(room.datacenter.look().guests.keys().all(|vmid| *vmid < 421));
    });
}

#[test]
fn an_image_that_is_not_what_the_file_says_is_not_used() {
    in_virtual_time(async |clock| {
        let with_sum = |sum: &str| {
            small().replace("{version: v1.13.9}", &format!("{{version: v1.13.9, image: {{sha256: {sum}}}}}"))
        };
        let mut room = Room::plain(&with_sum(&"0".repeat(64)), clock);
        let report = room.up().await;
        let found = faults(&report);
        assert!(found.len() == 1 && found[0].evidence.contains("checksum"), "{found:#?}");
        assert!(room.datacenter.look().guests.keys().all(|vmid| *vmid < 421));
        let true_sum = castle_datacenter::checksum(&room.castle.image_url(), "sha256").unwrap();
        room.rewrite(&with_sum(&true_sum));
        done(&room.up().await);
    });
}

#[test]
fn guests_go_down_by_themselves_and_one_that_does_not_is_named() {
    for (seconds, quick) in [(8.0, true), (100.0, false)] {
        in_virtual_time(async |clock| {
            let slow = Latencies { shutdown: Span::new(seconds, seconds), ..Latencies::default() };
            let room = Room::new(blueprint(&["pve"], Version::Nine).with_latencies(slow), &small(), door(clock));
            done(&room.up().await);
            room.clock.sleep(Duration::from_secs(120)).await;
            let ground = room.ground(false);
            let doomed = platform::found(&ground).await.unwrap();
            let ours: Vec<_> = doomed.iter().filter(|it| it.whose == Whose::Ours && !it.is_template).collect();
            let report = room.run(&graceful::shut(&ground, &ours, Duration::from_secs(20)).unwrap(), true).await;
            if quick {
                done(&report);
                assert!(ours.iter().all(|it| !room.datacenter.look().guests[&it.vmid].running));
            } else {
                let faults = faults(&report);
                assert_eq!(faults.len(), ours.len(), "{faults:#?}");
                assert!(
                    faults.iter().all(|it| it.evidence == "did not go down by itself within 20 s" && it.is_final())
                );
                assert!(ours.iter().all(|it| room.datacenter.look().guests[&it.vmid].running));
            }
            room.check_strangers();
            // Whatever they did: the end comes.
            done(&room.down().await);
        });
    }
}

/// A guest that is just being destroyed has lost its mark before it is gone: it is waited for, by whoever removes and by whoever raises.
#[test]
fn a_guest_in_the_middle_of_its_end_is_waited_for() {
    in_virtual_time(async |clock| {
        for raises in [false, true] {
            let room = Room::new(blueprint(&["pve"], Version::Nine), &small(), door(clock));
            done(&room.up().await);
            let (client, vmid) = (room.client(), room.nodes[0].vmid.0);
            let path = format!("/nodes/pve/qemu/{vmid}");
            let form = castle_proxmox::model::Form::new();
            for (method, path) in [(Method::POST, format!("{path}/status/stop")), (Method::DELETE, path.clone())] {
                client.change("by hand", method, &path, &form).await.unwrap();
                let stopped = |room: &Room| !room.datacenter.look().guests[&vmid].running;
                while !stopped(&room) {
                    clock.sleep(Duration::from_millis(10)).await;
                }
            }
            let lock = |room: &Room| room.datacenter.look().guests[&vmid].lock.clone();
            while lock(&room).as_deref() != Some("destroyed") {
                clock.sleep(Duration::from_millis(10)).await;
            }
            if raises {
                done(&room.up().await);
            }
            done(&room.down().await);
            assert!(!room.datacenter.look().guests.contains_key(&vmid));
        }
    });
}
