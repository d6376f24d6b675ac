//! `castle down --graceful`: castles that come to rest before they go, or are said not to have; and ends that are called off.

use std::io::{BufRead, BufReader};

use serde_json::json;

use crate::room::BLUE;
use crate::within::Within;
use crate::world::Ran;

/// A machine with a castle that stands.
fn standing(speed: u32) -> Within {
    let within = Within::new(speed);
    within.room.write("castle.yaml", BLUE);
    hold(&within.room.castle(&["up"]), 0, &[]);
    within
}

fn hold(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.transcript());
    for word in words {
        assert!(ran.transcript().contains(word), "{word:?}: {}", ran.transcript());
    }
}

/// The nodes that take no Pods.
fn closed(within: &Within) -> usize {
    let names = within.datacenter.object_names("blue", "nodes");
    let node = |name: &String| within.datacenter.object("blue", "nodes", "", name.trim_start_matches('/')).unwrap();
    names.iter().filter(|name| node(name)["spec"]["unschedulable"] == true).count()
}

#[test]
fn machines_go_down_by_themselves_workers_first() {
    let within = standing(400);
    let down = within.room.castle(&["down", "--graceful", "--yes", "--json"]);
    let result = down.result();
    assert_eq!((down.code, &result["result"]), (Some(0), &"gone".into()), "{}", down.transcript());
    let done = ["nodes closed", "flux suspended", "pods ended", "volumes detached"];
    let done: Vec<String> = done.iter().map(|word| (*word).to_owned()).collect();
    let told: Vec<String> = serde_json::from_value(result["graceful"]["done"].clone()).unwrap();
    assert_eq!((&told[..4], told.len(), &result["graceful"]["left"]), (&done[..], 7, &json!([])));
    let power: Vec<String> = within.seen.targets().into_iter().filter(|target| target.contains("/status/")).collect();
    let shut: Vec<usize> = (0..power.len()).filter(|&place| power[place].contains("/status/shutdown")).collect();
    assert_eq!(shut.len(), 3, "{power:?}");
    assert!(
        power[shut[2]].contains(&format!("/{}/", result["gone"][0]["vmid"])),
        "the control plane goes last: {power:?}"
    );
    assert!(!power.iter().any(|target| target.contains("/status/stop")), "nothing was switched off: {power:?}");
}

#[test]
fn a_castle_that_is_reborn_can_come_to_rest_first() {
    let within = standing(400);
    let reborn = within.room.castle(&["rebirth", "--graceful", "--within", "4m", "--yes", "--json"]);
    let result = reborn.result();
    assert_eq!((reborn.code, &result["result"]), (Some(0), &"raised".into()), "{}", reborn.transcript());
    let done: Vec<String> = serde_json::from_value(result["graceful"]["done"].clone()).unwrap();
    assert_eq!(
        (done.len(), &result["graceful"]["left"], &result["generation"]),
        (7, &json!([]), &json!(2)),
        "{result}"
    );
    let stopped = within.seen.targets().into_iter().find(|target| target.contains("/status/stop"));
    assert_eq!(stopped, None, "nothing was switched off");
    assert_eq!(closed(&within), 0);
    hold(&within.room.castle(&["rebirth", "--within", "5m"]), 4, &["--graceful"]);
}

#[test]
fn a_dead_api_and_a_lost_state_are_told_and_the_castle_goes() {
    let within = standing(400);
    let control_plane = within
        .datacenter
        .look()
        .guests
        .into_values()
        .find(|guest| guest.config.get("name").is_some_and(|name| name == "blue-cp-1"));
    within.datacenter.switch(control_plane.unwrap().vmid, false);
    let down = within.room.castle(&["down", "--graceful", "--within", "40s", "--yes"]);
    hold(
        &down,
        0,
        &["not graceful: api endpoint: https://127.42.0.10:6443: does not answer: ", "Going on all the same."],
    );
    hold(&down, 0, &["At rest after ", "Nothing of blue on embedded is left on its hypervisor."]);

    hold(&within.room.castle(&["up"]), 0, &[]);
    std::fs::remove_dir_all(within.room.world.path(".local/state/castle/blue")).unwrap();
    let down = within.room.castle(&["down", "--graceful", "--yes"]);
    hold(&down, 0, &["not graceful: the cluster: ", "Nothing of blue on embedded is left on its hypervisor."]);
}

#[test]
fn killed_in_between_it_goes_on_or_is_called_off_by_up() {
    let within = standing(60);
    let cut = || {
        let mut running = within.room.start(&["down", "--graceful", "--yes", "--json"]);
        let lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.take_while(|line| !line.contains("\"verb\":\"shut down\"")).count() > 0);
        running.kill().unwrap();
        running.wait().unwrap();
        assert_eq!(closed(&within), 3);
    };
    cut();
    let plan = within.room.castle(&["plan"]);
    hold(&plan, 0, &["platform/nodes/open"]);
    hold(&within.room.castle(&["up"]), 0, &["platform/nodes/open  open", "stands."]);
    assert_eq!((closed(&within), &within.room.castle(&["up", "--json"]).result()["result"]), (0, &json!("unchanged")));
    cut();
    hold(&within.room.castle(&["down", "--graceful", "--yes"]), 0, &["An earlier run was cut off", "Nothing of blue"]);
}

#[test]
fn the_time_is_held_to_reason() {
    let world = crate::world::World::with_castle(BLUE);
    for time in ["5", "9s", "2h", "m", "99999999999999999999m", "5µ"] {
        let ran = world.castle(&["down", "--graceful", "--within", time]);
        hold(&ran, 4, &["write a number and a unit, from 10s to 1h: 90s, 10m"]);
    }
    hold(&world.castle(&["down", "--within", "5m"]), 4, &["--graceful"]);
}
