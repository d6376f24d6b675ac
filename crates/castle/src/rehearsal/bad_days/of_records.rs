//! What is written down of a castle's machines: one leaves the record only once it is proved to be gone. Whatever else is done meanwhile (adopt, an
//! `up` of another file, an old record brought back), as long as one of them may run, the secrets it was made with stay.

use castle_datacenter::blueprint::Stranger;

use super::of_etcd::{THREE, edit, lose, three, vmid};
use super::of_identity::{newest_record, vaulted};
use super::of_sight::blind;
use super::*;

const TWO_WORKERS: &str = "workers: {count: 2";

/// The castle of three control planes, with two workers.
fn five() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(&THREE.replace("workers: {count: 1", TWO_WORKERS)));
    SCRIPT.clone()
}

/// Somebody takes the mark of a machine away; returns what gives it back.
pub(super) fn strip(life: &Life, name: &str) -> impl Fn(&Life) + use<> {
    let vmid = vmid(life, name);
    let config = life.datacenter.look().guests[&vmid].config.clone();
    assert!(life.datacenter.change_guest(vmid, &[("description", None), ("tags", None)]));
    move |life: &Life| {
        let options = ["description", "tags"].map(|option| (option, config.get(option).map(String::as_str)));
        assert!(life.datacenter.change_guest(vmid, &options));
    }
}

/// Holds that `down` tells this, and keeps the secrets.
async fn down_keeps_the_secrets(life: &Life, words: &[&str]) {
    let secrets: Vec<String> = vaulted(life).into_keys().collect();
    let told = life.run(&["down", "--yes"]).await;
    hold(&told, Exit::Failed, words);
    assert!(!secrets.is_empty() && vaulted(life).into_keys().eq(secrets), "{}", told.printed.text);
}

#[test]
fn adopt_forgets_no_machine_that_has_lost_its_mark() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let give_back = strip(&life, "blue-cp-2");
        hold(&life.run(&["adopt"]).await, Exit::Refused, &["it is called `blue-cp-2` and has no mark"]);
        let words = ["still there: VM 1001 (blue-cp-2) on pve, which is this castle's by its state and has no mark"];
        down_keeps_the_secrets(&life, &words).await;
        // Nor is it taken for gone where it is seen.
        let told = life.run(&["down", "--yes", "--forget-secrets", "blue"]).await;
        hold(&told, Exit::Failed, &words);
        assert!(!vaulted(&life).is_empty(), "{}", told.printed.text);
        let wiped = life.run(&["wipe", "--yes"]).await;
        hold(&wiped, Exit::Done, &["Nothing that bears the mark of blue on embedded is left within 1000-"]);
        assert!(has_guest(&life, "blue-cp-2") && !vaulted(&life).is_empty(), "{}", wiped.printed.text);
        give_back(&life);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        assert!(vaulted(&life).is_empty());
    });
}

#[test]
fn adopt_forgets_no_machine_that_is_not_seen() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        ["blue-cp-1", "blue-cp-2", "blue-cp-3"].iter().for_each(|name| lose(&life, name));
        let adopt = life.run(&["adopt"]).await;
        hold(&adopt, Exit::Refused, &["missing: blue-cp-1 (its machine is not to be seen, since when is not known)"]);
        down_keeps_the_secrets(&life, &["may still be there: blue-cp-1 (VM 1000 on pve)"]).await;
        // The last of what bore a mark is gone by now.
        let adopt = life.run(&["adopt"]).await;
        hold(&adopt, Exit::Refused, &["missing: blue-cp-1 (its machine is not to be seen, since when is not known)"]);
        down_keeps_the_secrets(&life, &["may still be there: blue-cp-1 (VM 1000 on pve)"]).await;
        let told = life.run(&["down", "--yes", "--forget-secrets", "blue"]).await;
        hold(&told, Exit::Done, &["Not to be seen, and taken for gone: blue-cp-1"]);
        assert!(vaulted(&life).is_empty());
    });
}

/// A worker that the file does not name any more, and whose mark is gone, is nobody's to remove; and it runs.
#[test]
fn a_worker_without_a_mark_is_not_forgotten_when_the_file_names_it_no_more() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let give_back = strip(&life, "blue-worker-2");
        edit(&life, "blue", "blue");
        let words = ["VM 1011 (blue-worker-2) on pve", "is this castle's by its state and has no mark"];
        for verb in [["plan"].as_slice(), &["up", "--yes"]] {
            hold(&life.run(verb).await, Exit::Refused, &words);
        }
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &words);
        assert!(!status.printed.text.contains("stands as its file says"), "{}", status.printed.text);
        hold(&life.run(&["drift"]).await, Exit::Differs, &words);
        down_keeps_the_secrets(&life, &words).await;
        give_back(&life);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// Its machine was deleted by hand, and then its line: what is left of it in the cluster goes, and the state misses nobody.
#[test]
fn a_worker_that_was_lost_and_then_left_out_is_forgotten_everywhere() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        lose(&life, "blue-worker-2");
        edit(&life, "blue", "blue");
        let drift = life.run(&["drift"]).await;
        hold(&drift, Exit::Differs, &["blue-worker-2"]);
        let up = life.run(&["up", "--yes"]).await;
        hold(&up, Exit::Done, &[]);
        assert_eq!(nodes(&life), 4, "{}", up.printed.text);
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
        hold(&life.run(&["drift"]).await, Exit::Done, &[]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        assert!(vaulted(&life).is_empty());
    });
}

#[test]
fn an_old_record_that_is_brought_back_forgets_no_machine() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let _ = strip(&life, "blue-cp-2");
        let history = life.run(&["state", "history", "platform"]).await;
        let records = history.printed.result["records"].as_array().unwrap().clone();
        let oldest = records.iter().filter_map(|record| record["serial"].as_u64()).min().unwrap().to_string();
        hold(&life.run(&["state", "restore", "platform", &oldest, "--yes"]).await, Exit::Done, &[]);
        down_keeps_the_secrets(&life, &["VM 1001 (blue-cp-2)"]).await;
    });
}

/// The machines of each life have a record of their own.
#[test]
fn a_record_of_an_earlier_life_is_not_brought_back_alone() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["rebirth", "--yes"]).await, Exit::Done, &[]);
        let told = life.run(&["state", "restore", "platform", "1", "--yes"]).await;
        hold(&told, Exit::Refused, &["record 1 of platform is of life 1", "castle state restore secrets"]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// Goal: a number that another guest has by now is no machine of the castle's, and a stranger is never called one. Method: the worker is deleted by
/// hand, and somebody else makes a guest with its number at once: the list still shows the dead one's name for it.
#[test]
fn a_stranger_with_the_number_of_a_lost_worker_is_left_alone_and_proves_that_it_is_gone() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let number = vmid(&life, "blue-worker-2");
        lose(&life, "blue-worker-2");
        life.datacenter.add_guest(Stranger::new(number, "pve", "database", "local-lvm", 8));
        edit(&life, "blue", "blue");
        let others = Others::of_strangers(&life);
        let up = life.run(&["up", "--yes"]).await;
        hold(&up, Exit::Done, &[]);
        assert!(!up.printed.text.contains(&format!("qm destroy {number}")), "{}", up.printed.text);
        assert_eq!((nodes(&life), others.touched(&life)), (4, Vec::new()));
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        assert_eq!(others.touched(&life), Vec::<String>::new());
    });
}

/// A machine that somebody renamed, and whose mark is gone, is the same machine: it has the hardware address that it was made with.
#[test]
fn a_machine_that_was_renamed_and_has_lost_its_mark_is_not_gone() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let number = vmid(&life, "blue-worker-2");
        let give_back = strip(&life, "blue-worker-2");
        assert!(life.datacenter.change_guest(number, &[("name", Some("spare"))]));
        // The list shows the new name a moment later.
        life.clock().sleep(Duration::from_secs(20)).await;
        edit(&life, "blue", "blue");
        let words = ["VM 1011 (blue-worker-2) on pve", "is this castle's by its state and has no mark"];
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &words);
        assert_eq!(nodes(&life), 5);
        down_keeps_the_secrets(&life, &words).await;
        give_back(&life);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// What is advised where a machine has no mark: it works.
#[test]
fn a_machine_that_has_lost_its_mark_gets_it_back_by_adopt() {
    in_worlds(&five(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let _ = strip(&life, "blue-worker-2");
        edit(&life, "blue", "blue");
        hold(&life.run(&["up", "--yes"]).await, Exit::Refused, &["castle adopt --foreign gives it its mark back"]);
        life.disk().tamper(&life.script.file, THREE.replace("workers: {count: 1", TWO_WORKERS).into_bytes());
        hold(&life.run(&["up"]).await, Exit::Refused, &["castle adopt --foreign"]);
        hold(&life.run(&["adopt", "--foreign", "--yes"]).await, Exit::Done, &["is this castle's now"]);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["drift"]).await, Exit::Done, &[]);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
    });
}

/// Goal: what castle loses sight of while it takes a castle down is not taken for removed. Method: the token shows no guest any more as soon as the
/// first machine is gone.
#[test]
fn machines_that_are_lost_sight_of_in_the_middle_of_a_down_are_not_gone() {
    in_worlds(&three(), &SEEDS, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let names = ["blue-cp-1", "blue-cp-2", "blue-cp-3", "blue-worker-1"];
        let one_is_gone = |life: &Life| names.iter().any(|name| !has_guest(life, name));
        let down = meanwhile(&life, &["down", "--yes"], one_is_gone, async |life| blind(life, true)).await;
        assert_eq!(down.exit, Some(Exit::Failed), "{}", down.printed.text);
        assert!(!vaulted(&life).is_empty(), "{}", down.printed.text);
        down_keeps_the_secrets(&life, &["may still be there: "]).await;
        blind(&life, false);
        hold(&life.run(&["down", "--yes"]).await, Exit::Done, &["Nothing of blue on embedded is left"]);
        assert!(vaulted(&life).is_empty());
    });
}

/// Goal: where nobody can say what is left, nothing is forgotten. Method: a worker is not to be seen, and the hypervisor lets nobody in any more once
/// the first machine is gone; then it does again.
#[test]
fn a_hypervisor_that_is_lost_in_the_middle_of_a_down_is_no_proof() {
    in_worlds(&three(), &SEEDS, async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        lose(&life, "blue-worker-1");
        let names = ["blue-cp-1", "blue-cp-2", "blue-cp-3"];
        let one_is_gone = |life: &Life| names.iter().any(|name| !has_guest(life, name));
        let expire = async |life: &Life| life.datacenter.expire_token(castle_datacenter::EMBEDDED_TOKEN_ID);
        let down = meanwhile(&life, &["down", "--yes"], one_is_gone, expire).await;
        assert_eq!(down.exit, Some(Exit::Failed), "{}", down.printed.text);
        life.datacenter.renew_token(castle_datacenter::EMBEDDED_TOKEN_ID);
        let left: Vec<&str> = names.into_iter().filter(|name| has_guest(&life, name)).collect();
        blind(&life, true);
        for name in left {
            down_keeps_the_secrets(&life, &["may still be there: ", name]).await;
        }
        blind(&life, false);
        hold(
            &life.run(&["down", "--forget-secrets", "blue", "--yes"]).await,
            Exit::Done,
            &["taken for gone: blue-worker-1"],
        );
    });
}

/// A life that is brought back knows its machines at once, not only after the next `up`.
#[test]
fn a_life_that_is_brought_back_knows_its_machines() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let serial = newest_record(&life, "secrets");
        blind(&life, true);
        hold(&life.run(&["down", "--forget-secrets", "blue"]).await, Exit::Done, &["taken for gone"]);
        hold(&life.run(&["state", "restore", "secrets", &serial, "--yes"]).await, Exit::Done, &["is in life 1 again"]);
        // What was in the vault went with that end; that its machines may run is known all the same.
        let told = life.run(&["down", "--yes"]).await;
        hold(&told, Exit::Failed, &["may still be there: blue-cp-1 (VM 1000 on pve)"]);
        blind(&life, false);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says (life 1)"]);
    });
}

/// What castle knows of its machines cannot be read: that is told, and the rest is looked at all the same.
#[test]
fn whoever_looks_is_told_that_the_record_of_machines_was_not_looked_at() {
    in_worlds(&three(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let records =
            life.disk().contents().into_keys().filter(|path| path.to_string_lossy().contains("/state/platform/"));
        let newest = records.max().unwrap();
        life.disk().tamper(&newest, b"damaged".to_vec());
        let words = ["what the state knows of machines was not held against them"];
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &words);
        assert_eq!(status.printed.result["standing"], false, "{}", status.printed.result);
        assert_eq!(status.printed.result["nodes"].as_array().map(Vec::len), Some(4));
        let problem = &status.printed.result["problems"][0];
        assert!(problem["summary"].as_str().is_some_and(|it| it.contains(words[0])), "{}", status.printed.result);
        assert!(!status.printed.text.contains("stands as its file says"), "{}", status.printed.text);
        let drift = life.run(&["drift"]).await;
        hold(&drift, Exit::Failed, &words);
        assert!(!drift.printed.text.contains("Nothing has drifted"), "{}", drift.printed.text);
    });
}

/// How many nodes Kubernetes knows.
fn nodes(life: &Life) -> usize {
    life.datacenter.objects().keys().filter(|(_, collection, _)| collection == "nodes").count()
}
