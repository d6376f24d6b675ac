//! What is written down of a castle's machines: one leaves the record only once it is proved to be gone. Whatever else is done meanwhile (adopt, an
//! `up` of another file, an old record brought back), as long as one of them may run, the secrets it was made with stay.

use super::of_etcd::{THREE, edit, lose, three, vmid};
use super::of_identity::vaulted;
use super::*;

const TWO_WORKERS: &str = "workers: {count: 2";

/// The castle of three control planes, with two workers.
fn five() -> Arc<Script> {
    static SCRIPT: LazyLock<Arc<Script>> = LazyLock::new(|| written(&THREE.replace("workers: {count: 1", TWO_WORKERS)));
    SCRIPT.clone()
}

/// Somebody takes the mark of a machine away; returns what gives it back.
fn strip(life: &Life, name: &str) -> impl Fn(&Life) + use<> {
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
        life.run(&["adopt"]).await;
        let words = ["still there: VM 1001 (blue-cp-2) on pve, which is this castle's by its state and has no mark"];
        down_keeps_the_secrets(&life, &words).await;
        // Nor is it taken for gone where it is seen.
        let told = life.run(&["down", "--yes", "--forget-secrets", "blue"]).await;
        hold(&told, Exit::Failed, &words);
        assert!(!vaulted(&life).is_empty(), "{}", told.printed.text);
        let wiped = life.run(&["wipe", "--yes"]).await;
        assert!(!wiped.printed.text.contains("Nothing of blue"), "{}", wiped.printed.text);
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
        life.run(&["adopt"]).await;
        down_keeps_the_secrets(&life, &["may still be there: blue-cp-1 (VM 1000 on pve)"]).await;
        life.run(&["adopt"]).await;
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
        let objects = life.datacenter.objects();
        let nodes = objects.keys().filter(|(_, collection, _)| collection == "nodes").count();
        assert_eq!(nodes, 4, "{}", up.printed.text);
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
