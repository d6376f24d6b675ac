//! A component that castle.yaml wants no more: named wherever one looks, and removed only if that is said.

use serde_json::json;

use crate::room::{BLUE, Room};

#[test]
fn metallb_is_named_and_goes_only_if_that_is_said() {
    let room = Room::new(400);
    room.write(
        "castle.yaml",
        &BLUE.replace("vip: 127.42.0.10}", "vip: 127.42.0.10, loadBalancers: 127.42.0.200-127.42.0.220}"),
    );
    let up = room.castle(&["up"]);
    assert!(up.code == Some(0) && !up.stdout.contains("no longer wanted"), "{}", up.transcript());
    let still = room.castle(&["up", "--remove", "metallb"]);
    assert!(still.code == Some(4) && still.stderr.contains("still wants metallb"), "{}", still.transcript());

    room.write("castle.yaml", BLUE);
    for verb in ["plan", "up", "status"] {
        let ran = room.castle(&[verb]);
        let told = ran.stdout.contains("metallb is no longer wanted, and still there (");
        assert!(
            ran.code == Some(0) && told && ran.stdout.contains("castle up --remove metallb"),
            "{}",
            ran.transcript()
        );
        let object = &room.castle(&[verb, "--json"]).result()["unwanted"][0];
        assert_eq!((&object["component"], &object["next"]), (&json!("metallb"), &json!("castle up --remove metallb")));
    }
    let drift = room.castle(&["drift"]);
    assert!(drift.code == Some(2) && drift.stdout.contains("metallb is no longer wanted"), "{}", drift.transcript());

    let plan = room.castle(&["plan", "--remove", "metallb"]);
    assert!(plan.stdout.contains("destroy") && !plan.stdout.contains("no longer wanted"), "{}", plan.transcript());
    let gone = room.castle(&["up", "--remove", "metallb"]);
    assert_eq!(gone.code, Some(0), "{}", gone.transcript());
    let status = room.castle(&["status", "--json"]).result();
    assert_eq!((&status["standing"], &status["unwanted"]), (&json!(true), &json!(null)), "{status}");
    assert_eq!(room.castle(&["drift"]).code, Some(0));
}
