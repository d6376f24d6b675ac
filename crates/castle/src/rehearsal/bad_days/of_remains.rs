//! What an end must neither leave behind nor forget: what Proxmox still makes for a castle that was killed, what lies where the file led before, and
//! that etcd has begun, whatever somebody says is gone or brings back.

use std::path::Path;

use castle_datacenter::{Asked, Reply, Witness};
use castle_rehearsal::{Loss, Moment};

use super::super::fixture::{HOME, SMALL as TWO_HOSTS};
use super::super::life::{At, Kill};
use super::super::script::STATE;
use super::of_etcd::{bootstraps, control_planes, lose, three, vmid};
use super::of_identity::vaulted;
use super::of_sight::blind;
use super::*;

async fn killed_after(life: &Life, words: &[&str], change: &'static str) {
    let at = At::Change(Box::new(move |made| made.contains(change)));
    let told = life.run_killed(words, Kill { at, moment: Moment::After, loss: Loss::None }).await;
    assert_eq!(told.exit, None, "{}", told.printed.text);
}

fn edit(life: &Life, from: &str, to: &str) {
    let file = Path::new(HOME).join("castle.yaml");
    let text = String::from_utf8(life.disk().contents()[&file].clone()).unwrap();
    assert!(text.contains(from));
    life.disk().tamper(&file, text.replace(from, to).into_bytes());
}

/// Proxmox goes on making what castle asked for: while it does, nobody sees whose that is.
#[test]
fn what_is_still_being_made_goes_with_its_castle() {
    for change in ["POST /nodes/pve/qemu/9998/clone", "POST /nodes/pve/qemu"] {
        in_worlds(&three(), &SEEDS, async |life| {
            let others = Others::of(&life);
            killed_after(&life, &["up"], change).await;
            hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
            life.clock().sleep(Duration::from_secs(600)).await;
            assert_eq!(others.left(&life), Vec::<String>::new(), "{change}");
        });
    }
}

/// What was downloaded where the file led before, on another host or into another storage, is looked for there.
#[test]
fn a_download_goes_though_the_file_leads_elsewhere() {
    let edits = [("nodes: [pve1, pve2]", "nodes: [pve2]"), ("images: local", "images: shelf")];
    for (from, to) in edits {
        in_worlds(&written(TWO_HOSTS), &SEEDS[..1], async |life| {
            let others = Others::of(&life);
            killed_after(&life, &["up"], "/download-url").await;
            edit(&life, from, to);
            hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of green on proxmox is left"]);
            assert_eq!(others.left(&life), Vec::<String>::new(), "{to}");
        });
    }
}

/// A host that does not tell what it keeps, and a storage that is not there just now: the castle goes all the same, and what nobody looked at is told.
#[test]
fn what_cannot_be_looked_at_keeps_no_castle_from_its_end() {
    struct Silent(&'static str);
    impl Witness for Silent {
        fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            let is_silent = asked.method == "GET" && asked.path.ends_with(self.0);
            Some(if is_silent { Reply::failure(596, "Connection timed out") } else { handle() })
        }
    }
    let cases = [
        ("/nodes/pve2/storage", "images: local", "pve2: "),
        ("/storage/local/content", "images: shelf", "pve1 (local): "),
    ];
    for (silent, images, told) in cases {
        in_worlds(&written(TWO_HOSTS), &SEEDS[..1], async |life| {
            hold(&life.run(&["up"]).await, Exit::Done, &[]);
            edit(&life, "images: local", images);
            life.datacenter.watch(Arc::new(Silent(silent)));
            let down = life.run(&["down", "--yes"]).await;
            let text = &down.printed.text;
            hold(&down, Exit::Done, &["whether something that castle downloaded is left on", told]);
            assert!(!text.contains("is left on its hypervisor"), "{text}");
            assert_ne!(down.printed.result["unseen"], Value::Null, "{}", down.printed.result);
            assert_eq!(Others::of(&life).left(&life), Vec::<String>::new());
        });
    }
}

/// A storage that is not active just now may hold what castle has downloaded, where the file led before.
#[test]
fn a_storage_that_is_not_active_is_told_as_not_looked_at() {
    in_worlds(&written(TWO_HOSTS), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        edit(&life, "images: local", "images: shelf");
        let silence = |is| ["pve1", "pve2"].map(|host| life.datacenter.silence_storage(host, "local", is));
        silence(true);
        let down = life.run(&["down", "--yes"]).await;
        hold(&down, Exit::Done, &["is left on pve1 (local): it is not active"]);
        assert_eq!(down.printed.result["unseen"], serde_json::json!(["pve1 (local)", "pve2 (local)"]));
        silence(false);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of green on proxmox is left"]);
    });
}

/// A rebirth that could not be brought to its end is not begun: nothing goes while a machine may not.
#[test]
fn a_rebirth_removes_nothing_while_a_machine_is_protected() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let (worker, before) = (vmid(&life, "blue-worker-1"), life.datacenter.look().guests.len());
        assert!(life.datacenter.change_guest(worker, &[("protection", Some("1"))]));
        let told = life.run(&["rebirth", "--yes"]).await;
        hold(
            &told,
            Exit::Refused,
            &["VM 1010 (blue-worker-1): is protected from removal", "qm set 1010 --protection 0"],
        );
        assert_eq!(life.datacenter.look().guests.len(), before);
        assert!(life.datacenter.change_guest(worker, &[("protection", None)]));
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &["Reborn in"]);
    });
}

/// A life whose etcd has begun, of whose machines nothing is written down, and of which none is seen: nobody knows what runs.
#[test]
fn a_life_without_a_record_of_its_machines_is_not_ended_by_who_sees_none() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let secrets = vaulted(&life);
        life.disk().lose(&Path::new(STATE).join("blue/embedded/state/platform"));
        life.disk().lose(&Path::new(STATE).join("blue/embedded/.seen.json"));
        blind(&life, true);
        let words = ["the state has no record of the machines of blue on embedded", "--forget-secrets blue"];
        let told = life.run(&["down", "--yes"]).await;
        hold(&told, Exit::Failed, &words);
        assert!(!secrets.is_empty() && vaulted(&life) == secrets, "{}", told.printed.text);
        blind(&life, false);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// Goal: somebody's word that machines are gone begins no second etcd in a life that goes on. Method: the control planes are out of sight, and a worker
/// that nobody may remove keeps the life; the control planes turn up again afterwards.
#[test]
fn a_word_that_ends_no_life_begins_no_other_etcd() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let worker = vmid(&life, "blue-worker-1");
        assert!(life.datacenter.change_guest(worker, &[("protection", Some("1"))]));
        for name in ["blue-cp-1", "blue-cp-2", "blue-cp-3"] {
            lose(&life, name);
        }
        bootstraps(&life);
        let down = ["down", "--yes", "--forget-secrets", "blue"];
        hold(&life.run(&down).await, Exit::Failed, &["which is protected from removal"]);
        assert!(life.datacenter.change_guest(worker, &[("protection", None)]));
        hold(&life.run(&["up"]).await, Exit::Refused, &["blue-cp-1"]);
        let guests = life.datacenter.look().guests;
        assert!(control_planes(&life).iter().all(|vmid| !guests.contains_key(vmid)) && bootstraps(&life) == 0);
        hold(&life.run(&down).await, Exit::Done, &["taken for gone"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["(life 2)"]);
    });
}

/// The first record of a life's secrets is from before its etcd began: brought back, it does not say so again.
#[test]
fn an_older_record_of_secrets_takes_back_no_beginning() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["state", "restore", "secrets", "1", "--yes"]).await, Exit::Done, &["is now its newest"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}
