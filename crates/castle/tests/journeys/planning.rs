//! A plan that is kept: done as it is, or not at all.

use std::os::unix::fs::PermissionsExt;

use crate::room::{BLUE, Room};

#[test]
fn a_kept_plan_is_done_once_and_only_as_it_is() {
    let room = Room::new(400);
    let planned = room.castle(&["plan", "--out", "blue.plan"]);
    assert!(
        planned.code == Some(0) && planned.stdout.contains("castle up . --plan blue.plan"),
        "{}",
        planned.transcript()
    );
    let file = room.world.path("blue.plan");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = room.world.read("blue.plan");
    assert!(text.contains("\"platform/vm/blue-cp-1\"") && !text.contains("PRIVATE"), "{text}");
    assert_eq!(room.castle(&["plan", "--out", "again.plan"]).code, Some(0));
    assert_eq!(room.world.read("again.plan"), text, "the same world gives the same plan");

    // The file moved.
    room.write("castle.yaml", &BLUE.replace("cores: 4, memory: 8GiB", "cores: 6, memory: 8GiB"));
    let refused = room.castle(&["up", "--plan", "blue.plan"]);
    assert_eq!(refused.code, Some(3), "{}", refused.transcript());
    assert!(refused.stderr.contains("castle.yaml has changed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("platform/vm/blue-worker-1: planned was clone"), "{}", refused.stderr);
    room.write("castle.yaml", BLUE);
    assert_eq!(room.states(), ["absent"; 3], "nothing was changed");

    // Nothing moved: it is done. Then it is no longer what there is to do.
    let up = room.castle(&["up", "--plan", "blue.plan", "--json"]);
    assert_eq!((up.code, &up.result()["result"]), (Some(0), &"raised".into()), "{}", up.transcript());
    let twice = room.castle(&["up", "--plan", "blue.plan", "--json"]);
    assert_eq!((twice.code, &twice.result()["result"]), (Some(3), &"refused".into()), "{}", twice.transcript());
    assert!(
        twice.result().to_string().contains("before blue/embedded was raised for the first time"),
        "it has been born since: {}",
        twice.result()
    );

    // The world moved: a machine is otherwise than it was when it was planned.
    let empty = room.castle(&["plan", "--out", "empty.plan"]);
    assert!(empty.stdout.contains("Nothing to do"), "{}", empty.transcript());
    assert_eq!(room.castle(&["up", "--plan", "empty.plan", "--json"]).result()["result"], "unchanged");
    let more = BLUE.replace("storage: none", "  overrides: {blue-worker-1: {memory: 6GiB}}\nstorage: none");
    room.write("other/castle.yaml", &more);
    assert_eq!(room.castle(&["up", "other"]).code, Some(0));
    let moved = room.castle(&["up", "--plan", "empty.plan"]);
    assert_eq!(moved.code, Some(3), "{}", moved.transcript());
    assert!(
        moved
            .stderr
            .contains("platform/restart/blue-worker-1: configure (reboot: memory: 6144 -> 8192) was not planned"),
        "{}",
        moved.stderr
    );

    // Another castle, another version, no plan at all.
    room.world.write("old.plan", text.replace("\"version\": \"0.1.0\"", "\"version\": \"0.0.1\""));
    let old = room.castle(&["up", "--plan", "old.plan"]);
    assert!(old.code == Some(3) && old.stderr.contains("planned by castle 0.0.1"), "{}", old.transcript());
    room.world.write("bad.plan", "{}");
    assert_eq!(room.castle(&["up", "--plan", "bad.plan"]).code, Some(4));
    assert_eq!(room.castle(&["up", "--plan", "none.plan"]).code, Some(4));
    assert_eq!(room.castle(&["up", "--plan", "empty.plan", "--layer", "secrets"]).code, Some(4));
    assert_eq!(room.castle(&["up"]).code, Some(0), "without a plan it is as ever");
}
