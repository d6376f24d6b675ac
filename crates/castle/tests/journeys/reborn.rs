//! Castles that are taken down and raised anew in one go: also when that is cut off.

use std::io::{BufRead, BufReader};

use crate::room::Room;
use crate::within::Within;

/// The authority of the cluster: another castle has another.
fn authority(room: &Room) -> String {
    let config = room.castle(&["kubeconfig"]);
    let line = config.stdout.lines().find(|line| line.contains("certificate-authority-data"));
    line.unwrap_or_else(|| panic!("{}", config.transcript())).trim().to_owned()
}

fn generation(room: &Room) -> u64 {
    room.castle(&["status", "--json"]).result()["generation"].as_u64().unwrap()
}

#[test]
fn down_then_up_with_both_times() {
    let room = Room::new(400);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let first = authority(&room);
    let asked = room.castle(&["rebirth"]);
    assert!(asked.code == Some(3) && asked.stderr.contains("nothing was removed"), "{}", asked.transcript());
    assert_eq!(room.states(), ["running"; 3]);

    let reborn = room.castle(&["rebirth", "--yes"]);
    assert_eq!(reborn.code, Some(0), "{}", reborn.transcript());
    let last = reborn.stdout.lines().last().unwrap();
    assert!(last.starts_with("Reborn in ") && last.contains(" s: down ") && last.ends_with("(life 2)."), "{last}");
    assert!(
        reborn.stdout.contains("Nothing of blue on embedded is left")
            && reborn.stdout.contains("blue on embedded stands")
    );
    let second = authority(&room);
    assert!(generation(&room) == 2 && first != second, "new secrets");
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));

    let again = room.castle(&["rebirth", "--yes", "--keep-identity", "--keep-image", "--json"]);
    let result = again.result();
    assert_eq!(
        (again.code, &result["verb"], &result["result"]),
        (Some(0), &"rebirth".into(), &"raised".into()),
        "{result}"
    );
    assert_eq!(
        (&result["earlier"]["runs"], &result["resumed"], &result["generation"]),
        (&1.into(), &false.into(), &2.into())
    );
    let seconds = |of: &serde_json::Value| of["seconds"].as_f64().unwrap();
    let parts = seconds(&result["down"]) + seconds(&result["up"]);
    assert!(
        (seconds(&result) - parts).abs() < 1e-6 && seconds(&result["up"]) > seconds(&result["down"]) / 10.0,
        "{result}"
    );
    let results = again.stdout.lines().filter(|line| line.starts_with("{\"verb\"")).count();
    assert_eq!(results, 1, "one result object");
    assert!(!again.stdout.contains("\"verb\":\"download\""), "the image was kept");
    assert!(generation(&room) == 2 && second == authority(&room), "the same life, the same secrets");
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));
}

/// Goal: cut off anywhere, it ends where an undisturbed one does, and what is down is not taken down again. Method: killed when it is
/// about to do something, further on each time.
fn killed_on_the_way(keep: bool) {
    let room = Room::new(80);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let first = authority(&room);
    let mut args = vec!["rebirth", "--yes", "--json"];
    args.extend(keep.then_some("--keep-identity"));
    let mut is_down = false;
    let ways: &[&str] =
        if keep { &["stop", "destroy", "clone", "apply"] } else { &["stop", "destroy", "mint", "clone", "apply"] };
    for word in ways {
        let mut running = room.start(&args);
        let mut lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        let verb =
            |line: &str, verb: &str| line.contains("\"step-acting\"") && line.contains(&format!("\"verb\":\"{verb}\""));
        loop {
            let line = lines.next().unwrap_or_else(|| panic!("it ended before it came to {word}"));
            assert!(!(is_down && verb(&line, "destroy")), "it is down: {line}");
            if verb(&line, word) {
                break;
            }
        }
        running.kill().unwrap();
        running.wait().unwrap();
        is_down |= !["stop", "destroy"].contains(word);
    }
    if is_down {
        let mut otherwise = vec!["rebirth", "--yes"];
        otherwise.extend((!keep).then_some("--keep-identity"));
        let refused = room.castle(&otherwise);
        assert!(refused.code == Some(3) && refused.stderr.contains("was begun with"), "{}", refused.transcript());
    }
    let last = room.castle(&args);
    assert_eq!((last.code, &last.result()["resumed"]), (Some(0), &true.into()), "{}", last.transcript());
    assert_eq!(generation(&room), if keep { 1 } else { 2 });
    assert_eq!(first == authority(&room), keep);
    assert_eq!(room.states(), ["running"; 3]);
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));
    // It has ended: the next one is a new one.
    let next = room.castle(&["rebirth", "--yes", "--json"]).result();
    assert_eq!((&next["resumed"], &next["generation"]), (&false.into(), &(if keep { 2 } else { 3 }).into()), "{next}");
}

#[test]
fn killed_on_the_way_to_new_secrets() {
    killed_on_the_way(false);
}

#[test]
fn killed_on_the_way_with_the_old_secrets() {
    killed_on_the_way(true);
}

#[test]
fn one_that_was_cut_off_is_ended_by_up_or_down_too() {
    let room = Room::new(120);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let cut_off = || {
        let mut running = room.start(&["rebirth", "--yes", "--json"]);
        let lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.take_while(|line| !line.contains("\"verb\":\"clone\"")).count() > 3);
        running.kill().unwrap();
        running.wait().unwrap();
    };
    cut_off();
    assert_eq!(room.castle(&["up"]).code, Some(0));
    assert_eq!(room.castle(&["rebirth", "--yes", "--json"]).result()["resumed"], false);
    assert_eq!(generation(&room), 3);
    cut_off();
    assert_eq!(room.castle(&["down", "--yes"]).code, Some(0));
    let raised = room.castle(&["rebirth", "--json"]);
    assert_eq!(
        (raised.code, &raised.result()["resumed"]),
        (Some(0), &false.into()),
        "nothing is removed, so nobody is asked"
    );
}

#[test]
fn nothing_is_removed_if_it_could_not_be_raised_again() {
    let within = Within::new(400);
    within.room.write("castle.yaml", &(crate::room::BLUE.to_owned() + "secrets: embedded\n"));
    assert_eq!(within.room.castle(&["up"]).code, Some(0));
    let before = within.datacenter.effects();
    within.datacenter.vault_down(castle_datacenter::EMBEDDED_VAULT, true);
    let refused = within.room.castle(&["rebirth", "--yes"]);
    assert_eq!((refused.code, within.datacenter.effects()), (Some(1), before), "{}", refused.transcript());
    within.datacenter.vault_down(castle_datacenter::EMBEDDED_VAULT, false);
    // With the old secrets the vault keeps what it has, but for the word of whether etcd has begun, which is sealed with the bundle.
    let kept = || {
        let mut secrets = within.datacenter.vault(castle_datacenter::EMBEDDED_VAULT).secrets;
        secrets.retain(|name, _| !name.ends_with("TALOS_BUNDLE"));
        secrets
    };
    let secrets = kept();
    let reborn = within.room.castle(&["rebirth", "--yes", "--keep-identity"]);
    assert_eq!(reborn.code, Some(0), "{}", reborn.transcript());
    assert!(secrets == kept(), "nothing else in the vault was written");
    // Where the secrets are nowhere, they cannot be kept.
    within.room.write("castle.yaml", crate::room::BLUE);
    std::fs::remove_dir_all(within.room.world.path(".local/state/castle/blue")).unwrap();
    let refused = within.room.castle(&["rebirth", "--yes", "--keep-identity"]);
    assert!(refused.code == Some(3) && refused.stderr.contains("cannot be kept"), "{}", refused.transcript());
    assert_eq!(within.room.castle(&["rebirth", "--yes"]).code, Some(0), "new ones can be had");
}
