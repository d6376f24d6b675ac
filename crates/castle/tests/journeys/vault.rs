//! What a castle keeps in its vault: saved before its first machine exists, found again without the state, taken away with it.

use crate::room::{BLUE, Room};

fn with_vault() -> String {
    format!("{BLUE}secrets: embedded\n")
}

#[test]
fn who_loses_the_state_finds_the_secrets_in_the_vault() {
    let room = Room::new(400);
    room.write("castle.yaml", &with_vault());
    let doctor = room.castle(&["doctor"]);
    assert!(doctor.stdout.contains("project castle, environment embedded: lets castle in"), "{}", doctor.transcript());
    let up = room.castle(&["up"]);
    assert_eq!(up.code, Some(0), "{}", up.transcript());
    let saved = up.stdout.find("secrets/vault/blue  save").unwrap_or_else(|| panic!("{}", up.transcript()));
    let first = up.stdout.find("platform/vm/").unwrap_or_else(|| panic!("{}", up.transcript()));
    assert!(saved < first, "machines come after: {}", up.transcript());
    assert_eq!(room.castle(&["up", "--json"]).result()["result"], "unchanged", "what is saved stays as it is");
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));

    // Another machine, as it were: the vault and the key to the seal are all it has.
    let state = room.world.path(".local/state/castle/blue");
    std::fs::remove_dir_all(&state).unwrap();
    let adopted = room.castle(&["adopt"]);
    assert!(adopted.code == Some(0) && adopted.stdout.contains("is known again"), "{}", adopted.transcript());
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0), "and nothing is to do");
    assert_eq!(room.castle(&["adopt", "--json"]).result()["result"], "adopted", "twice is as good as once");

    // Whoever just goes on comes to the same.
    std::fs::remove_dir_all(&state).unwrap();
    let up = room.castle(&["up"]);
    let imported =
        up.stdout.contains("secrets/bundle/blue  import") && up.stdout.contains(" 1 of them changed something");
    assert!(up.code == Some(0) && imported, "{}", up.transcript());

    assert_eq!(room.castle(&["state", "show"]).code, Some(0));

    // The next life begins with secrets of its own.
    let down = room.castle(&["down", "--yes"]);
    assert!(down.code == Some(0) && down.stdout.contains("secrets/vault/blue  remove"), "{}", down.transcript());
    let up = room.castle(&["up"]);
    assert!(up.code == Some(0) && up.stdout.contains("secrets/bundle/blue  mint"), "{}", up.transcript());
}

#[test]
fn entries_of_a_castle_whose_machines_are_elsewhere_are_left_alone() {
    let room = Room::new(400);
    room.write("castle.yaml", &with_vault());
    assert_eq!(room.castle(&["up"]).code, Some(0));
    // The same name and folder, and nothing known of the one that stands: its machines are where the file does not have them.
    std::fs::remove_dir_all(room.world.path(".local/state/castle/blue")).unwrap();
    let elsewhere = with_vault().replace("platform: embedded", "platform: {embedded: {vmids: 20000-20100}}");
    room.write("castle.yaml", &elsewhere);
    let refused = room.castle(&["up"]);
    let words = "has machines outside of its vmids 20000-20100: VM 1000 (blue-cp-1)";
    assert!(refused.code == Some(3) && refused.stderr.contains(words), "{}", refused.transcript());
    room.write("castle.yaml", &with_vault());
    let adopted = room.castle(&["adopt"]);
    assert_eq!(adopted.code, Some(0), "{}", adopted.transcript());
    assert_eq!(room.castle(&["plan", "--exit-code"]).code, Some(0));
}
