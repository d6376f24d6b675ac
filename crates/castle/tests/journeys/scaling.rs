//! Workers come and go with the count in the file, whatever happens meanwhile.

use std::io::{BufRead, BufReader};

use crate::room::{BLUE, Room};

fn with_workers(count: u32) -> String {
    BLUE.replace("workers: {count: 2", &format!("workers: {{count: {count}"))
}

const LEFT_OUT: &str = "not in the file any more";

#[test]
fn a_layer_waits_for_changes_in_those_that_are_only_looked_at() {
    let room = Room::new(400);
    let alone = room.castle(&["up", "--layer", "platform"]);
    let told =
        "for changes in layers that were only looked at: secrets\n  next: castle up --layer secrets --layer platform";
    assert!(alone.code == Some(1) && alone.stderr.contains(told), "{}", alone.transcript());
    assert_eq!(room.states(), ["absent"; 3], "nothing was made");
    let both = room.castle(&["up", "--layer", "secrets", "--layer", "platform"]);
    assert_eq!(both.code, Some(0), "{}", both.transcript());
    assert_eq!(room.states(), ["running"; 3]);
}

#[test]
fn a_worker_comes_and_goes_with_the_count() {
    let room = Room::new(400);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    room.write("castle.yaml", &with_workers(3));
    let more = room.castle(&["plan"]);
    let (actions, _) = more.stdout.split_once("\n\n").unwrap();
    insta::assert_snapshot!("a_worker_comes", actions);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    assert_eq!(room.states(), ["running"; 4]);

    room.write("castle.yaml", &with_workers(2));
    let less = room.castle(&["plan"]);
    // How long it will take is told by what earlier runs took.
    let (actions, _) = less.stdout.split_once("\n\n").unwrap();
    insta::assert_snapshot!("a_worker_leaves", actions);
    let asked = room.castle(&["up"]);
    assert!(asked.code == Some(3) && asked.stderr.contains("give --yes"), "{}", asked.transcript());
    assert!(asked.stdout.contains("1012  blue-worker-3"), "{}", asked.transcript());
    assert_eq!(room.states(), ["running", "running", "running", LEFT_OUT], "nothing was done");
    // A plan that was kept has been looked at.
    assert_eq!(room.castle(&["plan", "--out", "less.plan"]).code, Some(0));
    let less = room.castle(&["up", "--plan", "less.plan"]);
    assert_eq!(less.code, Some(0), "{}", less.transcript());
    assert_eq!(room.states(), ["running"; 3]);
    assert_eq!(room.castle(&["up", "--json"]).result()["result"], "unchanged");
    let down = room.castle(&["down", "--yes", "--json"]).result();
    assert_eq!(down["gone"].as_array().unwrap().len(), 4, "three nodes and the image: {down}");
}

/// Runs `castle up` until it tells of this action of this step, and kills it there. Whether it came to that.
fn killed_at(room: &Room, step: &str, action: &str) -> bool {
    let mut up = room.start(&["up", "--yes"]);
    let mut lines = BufReader::new(up.stdout.take().unwrap()).lines().map(Result::unwrap);
    let came = lines.any(|line| line.contains(step) && line.ends_with(action));
    up.kill().unwrap();
    up.wait().unwrap();
    came
}

#[test]
fn killed_while_a_worker_comes_or_goes_the_next_run_ends_it() {
    let room = Room::new(100);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    for (step, action) in
        [("drain/blue-worker-2", "cordon"), ("vm/1011 blue-worker-2", "stop"), ("forget/blue-worker-2", "forget")]
    {
        room.write("castle.yaml", &with_workers(1));
        assert!(killed_at(&room, step, action), "{step} {action}");
        let up = room.castle(&["up", "--yes"]);
        assert_eq!(up.code, Some(0), "{step}: {}", up.transcript());
        assert_eq!(room.states(), ["running"; 2], "{step}");
        assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0), "{step}");
        room.write("castle.yaml", &with_workers(2));
        assert!(killed_at(&room, "vm/blue-worker-2", "clone"), "{step}");
        let up = room.castle(&["up"]);
        assert_eq!(up.code, Some(0), "{step}: {}", up.transcript());
        assert_eq!(room.states(), ["running"; 3], "{step}");
    }
    // Sent away, and wanted again before its machine was gone.
    room.write("castle.yaml", &with_workers(1));
    assert!(killed_at(&room, "drain/blue-worker-2", "done"));
    room.write("castle.yaml", &with_workers(2));
    let back = room.castle(&["up"]);
    assert!(back.code == Some(0) && back.stdout.contains("platform/nodes/left  uncordon"), "{}", back.transcript());
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));
}

#[test]
fn control_planes_do_not_leave_and_nodes_are_not_moved() {
    let room = Room::new(400);
    let three = BLUE.replace("controlPlanes: {count: 1", "controlPlanes: {count: 3");
    room.write("castle.yaml", &three);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let refused = |castle: &str| {
        room.write("castle.yaml", castle);
        let ran = room.castle(&["up", "--yes"]);
        assert!(ran.code == Some(3) && ran.stdout.contains("Nothing was changed"), "{}", ran.transcript());
        ran.stderr
    };
    let fewer = refused(BLUE);
    assert!(fewer.contains("VM 1002 (blue-cp-3): is a control plane"), "{fewer}");
    let moved = refused(&three.replace("firstAddress: 127.42.0.21", "firstAddress: 127.42.0.31"));
    assert!(moved.contains("VM 1010 (blue-worker-1)") && moved.contains("castle moves no node"), "{moved}");
    room.write("castle.yaml", &three);
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));
}
