//! `castle adopt --foreign`: a castle that somebody else's scripts have raised becomes this one's, as it stands.

use crate::raising::secrets_yaml;
use crate::room::BLUE;
use crate::within::Within;
use crate::world::{Ran, identity};

const TALOS: &str = "{version: v1.13.9}";

fn hold(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.transcript());
    for word in words {
        assert!(ran.transcript().contains(word), "{word:?}: {}", ran.transcript());
    }
}

/// Keeps secrets of a cluster in a file that the castle can name.
fn seal(within: &Within, file: &str) {
    within.room.world.write(file, secrets_yaml());
    let sealed = within.room.castle(&["secrets", "encrypt", "--age", &identity().public, "--in-place", file]);
    hold(&sealed, 0, &[]);
}

/// Names the file with the secrets.
fn named(file: &str) -> String {
    BLUE.replace(TALOS, &format!("{{version: v1.13.9, bundle: 'sops:{file}#.'}}"))
}

/// Guests as somebody's scripts have made them: nothing tells of castle but their names, numbers and addresses.
fn scripted() -> Within {
    let within = Within::new(400);
    within.room.world.write(".config/sops/age/keys.txt", &identity().private);
    seal(&within, "secrets.yaml");
    within.room.write("castle.yaml", &named("secrets.yaml"));
    hold(&within.room.castle(&["up"]), 0, &[]);
    for guest in within.datacenter.look().guests.into_values() {
        let is_image = guest.config.get("template").is_some_and(|template| template == "1");
        let is_ours = guest.config.get("tags").is_some_and(|tags| tags.contains("castle"));
        if is_ours && is_image {
            assert!(within.datacenter.remove_guest(guest.vmid));
        } else if is_ours {
            let notes = [("description", Some("the lab, ask Ann")), ("tags", Some("lab"))];
            assert!(within.datacenter.change_guest(guest.vmid, &notes));
        }
    }
    std::fs::remove_dir_all(within.room.world.path(".local/state/castle/blue")).unwrap();
    within
}

/// The guests of the castle, without what is counted.
fn guests(within: &Within) -> Vec<String> {
    let all = within.datacenter.look().guests.into_values();
    all.map(|guest| format!("{} {} {:?}", guest.vmid, guest.running, guest.config)).collect()
}

#[test]
fn what_scripts_have_raised_is_shown_proven_and_marked() {
    let within = scripted();
    let castle = |args: &[&str]| within.room.castle(args);
    let worker = within.datacenter.look().guests.into_values();
    let worker = worker.filter(|guest| guest.config.get("name").is_some_and(|name| name == "blue-worker-2"));
    let worker = worker.map(|guest| guest.vmid).next().unwrap();
    assert!(within.datacenter.change_guest(worker, &[("onboot", None)]));
    let before = guests(&within);

    hold(&castle(&["adopt"]), 3, &["made by somebody else: VM ", "next: castle adopt . --foreign"]);
    hold(
        &castle(&["up"]),
        3,
        &["has no mark", "if it is this node, and somebody else made it: castle adopt --foreign"],
    );
    within.room.write("castle.yaml", BLUE);
    let unknown = castle(&["adopt", "--foreign", "--yes"]);
    hold(&unknown, 3, &["talos.bundle: is not in castle.yaml", "talosctl gen secrets --from-controlplane-config"]);
    seal(&within, "wrong.yaml");
    within.room.write("castle.yaml", &named("wrong.yaml"));
    let wrong = castle(&["adopt", "--foreign", "--yes"]);
    hold(&wrong, 3, &["blue-cp-1: is not of the cluster whose secrets talos.bundle names", "Nothing was changed."]);
    within.room.write("castle.yaml", &named("secrets.yaml"));
    let shown = castle(&["adopt", "--foreign"]);
    hold(&shown, 3, &["onboot", "the file: 1", "as the file says", "nothing was marked: answer yes, or give --yes"]);
    assert_eq!(guests(&within), before, "whoever only looks changes nothing");

    let adopted = castle(&["adopt", "--foreign", "--yes", "--json"]);
    let result = adopted.result();
    assert_eq!((adopted.code, &result["result"]), (Some(0), &"adopted".into()), "{}", adopted.transcript());
    assert_eq!(result["nodes"].as_array().unwrap().len(), 3, "{result}");
    let guest = within.datacenter.look().guests[&worker].clone();
    assert!(
        guest.running && guest.config["description"].starts_with("the lab, ask Ann\n\nMade by castle"),
        "{guest:?}"
    );
    let power =
        |target: &&String| target.starts_with("POST") && (target.contains("/status/") || target.contains("/clone"));
    within.seen.vault_requests();
    assert_eq!(castle(&["adopt", "--foreign", "--yes", "--json"]).result()["result"], "unchanged");
    // What differs is planned, and done in place; nothing is made anew.
    hold(&castle(&["plan"]), 0, &["platform/vm/blue-worker-2", "onboot"]);
    let up = castle(&["up"]);
    hold(&up, 0, &["platform/vm/blue-worker-2  configure", "stands."]);
    assert_eq!(within.seen.targets().iter().find(power), None, "no machine is started, stopped or made");
    assert_eq!(castle(&["up", "--json"]).result()["result"], "unchanged");
    hold(&castle(&["state", "show", "--json"]), 0, &["blue-worker-2"]);
    hold(&castle(&["down", "--yes"]), 0, &["Nothing of blue on embedded is left"]);
    assert!(!within.datacenter.look().guests.contains_key(&worker));
}

#[test]
fn half_of_it_is_refused_and_nothing_is_marked() {
    let within = scripted();
    within.room.write("castle.yaml", &named("secrets.yaml").replace("count: 2", "count: 3"));
    let before = guests(&within);
    let half = within.room.castle(&["adopt", "--foreign", "--yes"]);
    hold(&half, 3, &["(blue-worker-3): is not there", "next: name the nodes that are there", "Nothing was changed."]);
    assert_eq!(guests(&within), before);
    let nothing = Within::new(400);
    nothing.room.write("castle.yaml", BLUE);
    hold(&nothing.room.castle(&["adopt"]), 1, &["there is nothing to adopt"]);
    hold(&nothing.room.castle(&["adopt", "--foreign"]), 3, &["(blue-cp-1): is not there"]);
}
