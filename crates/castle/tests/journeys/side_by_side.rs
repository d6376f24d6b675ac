//! Castles beside each other: two on one hypervisor, and one project on two platforms.

use serde_json::Value;

use crate::room::{BLUE, Room};
use crate::world::identity;

/// A second castle for the same network: other numbers, other addresses.
fn green() -> String {
    BLUE.replace("castle: blue", "castle: green")
        .replace("platform: embedded", "platform: {embedded: {vmids: 2000-2999}}")
        .replace("vip: 127.42.0.10", "vip: 127.42.0.30")
        .replace("firstAddress: 127.42.0.11", "firstAddress: 127.42.0.31")
        .replace("firstAddress: 127.42.0.21", "firstAddress: 127.42.0.41")
}

/// A castle that stands in this room's datacenter as it would on anybody's Proxmox.
pub(crate) fn on_proxmox(room: &Room) -> String {
    let platform = format!(
        "platform:\n  proxmox:\n    endpoint: {}\n    fingerprint: \"{}\"\n    token: file:token\n    nodes: [pve]\n    vmids: 421-450\n",
        room.address, room.fingerprint
    );
    BLUE.replace("platform: embedded\n", &platform)
}

fn standing(room: &Room, castle: &str) -> Value {
    room.castle(&["status", castle, "--deep", "--json"]).result()["standing"].clone()
}

#[test]
fn two_castles_on_one_hypervisor_come_and_go_at_the_same_time() {
    let room = Room::new(100);
    room.write("blue/castle.yaml", BLUE);
    room.write("green/castle.yaml", &green());
    let both = |verb: &[&str]| {
        let started = ["blue", "green"].map(|castle| room.start(&[verb, &[castle]].concat()));
        for process in started {
            let ended = process.wait_with_output().unwrap();
            let [said, wrong] = [&ended.stdout, &ended.stderr].map(|bytes| String::from_utf8_lossy(bytes));
            assert!(ended.status.success(), "{verb:?}: {}\n{said}{wrong}", ended.status);
        }
    };
    both(&["up"]);
    for castle in ["blue", "green"] {
        assert_eq!(standing(&room, castle), true, "{castle}");
        assert_eq!(room.castle(&["plan", castle, "--exit-code"]).code, Some(0), "{castle}");
    }
    // One goes, and the other does not notice.
    let down = room.castle(&["down", "green", "--yes", "--json"]).result();
    let gone: Vec<&str> = down["gone"].as_array().unwrap().iter().filter_map(|gone| gone["name"].as_str()).collect();
    assert!(gone.len() == 4 && gone.iter().all(|name| !name.starts_with("blue")), "{gone:?}");
    assert_eq!((standing(&room, "blue"), standing(&room, "green")), (true.into(), false.into()));
    assert_eq!(room.castle(&["up", "green"]).code, Some(0));
    both(&["down", "--yes"]);
    for castle in ["blue", "green"] {
        let left = room.castle(&["down", castle, "--yes", "--json"]).result();
        assert_eq!(left["gone"].as_array().unwrap().len(), 0, "{castle}: {left}");
    }
}

#[test]
fn addresses_of_another_castle_are_refused_before_a_machine_is_made() {
    let room = Room::new(400);
    assert_eq!(room.castle(&["up"]).code, Some(0));
    let same = BLUE.replace("castle: blue", "castle: green");
    room.write("green/castle.yaml", &same.replace("platform: embedded", "platform: {embedded: {vmids: 2000-2999}}"));
    let refused = room.castle(&["up", "green"]);
    insta::assert_snapshot!("addresses_of_another_castle", refused.transcript());
    // What up refuses is no plan.
    let plan = room.castle(&["plan", "green", "--out", "kept.json", "--json"]);
    assert_eq!((plan.code, &plan.result()["result"]), (Some(3), &"refused".into()));
    let summaries = plan.result()["problems"].to_string();
    assert!(summaries.contains("port 50000 answers") && !room.world.path("kept.json").exists(), "{summaries}");
    let doctor = room.castle(&["doctor", "green", "--json"]).result();
    let wrong = doctor["findings"].as_array().unwrap().iter().filter(|finding| finding["verdict"] == "wrong");
    let checks: Vec<&str> = wrong.map(|finding| finding["check"].as_str().unwrap()).collect();
    assert_eq!(checks, ["addresses"; 4], "three nodes and the shared address");
    let nothing = room.castle(&["down", "green", "--yes", "--json"]).result();
    assert_eq!(nothing["gone"].as_array().unwrap().len(), 0, "{nothing}");
    assert_eq!(room.states(), ["running"; 3]);
}

#[test]
fn one_project_stands_on_two_platforms_apart_from_itself() {
    let (home, elsewhere) = (Room::new(400), Room::new(400));
    home.write("clusters/blue/embedded/castle.yaml", BLUE);
    let real = on_proxmox(&elsewhere).replace("127.42.0", &elsewhere.network);
    home.world.write("clusters/blue/proxmox/castle.yaml", real);
    home.world.write("clusters/blue/proxmox/token", elsewhere.token());
    home.world.write(".config/sops/age/keys.txt", &identity().private);
    let (embedded, proxmox) = ("clusters/blue/embedded", "clusters/blue/proxmox");
    for castle in [embedded, proxmox] {
        let up = home.castle(&["up", castle]);
        assert_eq!(up.code, Some(0), "{}", up.transcript());
    }
    let kept = home.world.files();
    for key in ["blue/embedded", "blue/proxmox"] {
        let own = format!(".local/state/castle/{key}/state/");
        assert!(kept.iter().any(|file| file.starts_with(&own)), "{kept:?}");
    }
    let lineage = |castle: &str| home.castle(&["adopt", castle, "--json"]).result()["lineage"].clone();
    assert_ne!(lineage(embedded), lineage(proxmox));
    let down = home.castle(&["down", embedded, "--yes", "--json"]).result();
    assert_eq!(down["gone"].as_array().unwrap().len(), 4, "{down}");
    assert_eq!((standing(&home, embedded), standing(&home, proxmox)), (false.into(), true.into()));
    assert_eq!(home.castle(&["plan", proxmox, "--exit-code"]).code, Some(0));
    assert_eq!(home.castle(&["up", embedded]).code, Some(0));
    assert_eq!(home.castle(&["down", proxmox, "--yes"]).code, Some(0));
    assert_eq!((standing(&home, embedded), standing(&home, proxmox)), (true.into(), false.into()));
}
