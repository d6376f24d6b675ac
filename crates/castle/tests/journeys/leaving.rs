//! Castles that are taken down on bad days: half made, forgotten, with hosts that are away. Nothing of them stays, or it is named.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};

use castle_datacenter::EMBEDDED_VAULT;

use crate::room::BLUE;
use crate::within::{CLIENT_ID, CLIENT_SECRET, VAULT, Within};
use crate::world::{Ran, identity};

/// All guests and volumes of the datacenter, whosoever's.
fn inventory(within: &Within) -> (BTreeSet<u32>, BTreeSet<String>) {
    let all = within.datacenter.look();
    (all.guests.into_keys().collect(), all.volumes.into_keys().map(|(host, name)| format!("{host} {name}")).collect())
}

/// A machine with a castle.yaml.
fn within(speed: u32, hosts: &[&str], castle: &str) -> Within {
    let within = Within::with_hosts(speed, hosts);
    within.room.write("castle.yaml", castle);
    within
}

fn hold(ran: &Ran, code: i32, words: &[&str]) {
    assert_eq!(ran.code, Some(code), "{}", ran.transcript());
    for word in words {
        assert!(ran.transcript().contains(word), "{word:?}: {}", ran.transcript());
    }
}

#[test]
fn half_made_nothing_of_it_stays() {
    let within = within(60, &["pve"], BLUE);
    let before = inventory(&within);
    for word in ["mint", "download", "create", "convert", "clone", "resize", "start", "apply", "bootstrap"] {
        let mut running = within.room.start(&["up", "--json"]);
        let lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        let acting = format!("\"verb\":\"{word}\"");
        assert!(lines.take_while(|line| !line.contains(&acting)).count() > 0);
        running.kill().unwrap();
        running.wait().unwrap();
        let down = within.room.castle(&["down", "--yes", "--json"]);
        assert_eq!((down.code, &down.result()["result"]), (Some(0), &"gone".into()), "{word}: {}", down.transcript());
        assert_eq!(inventory(&within), before, "{word}: {}", down.transcript());
    }
}

#[test]
fn nobody_inside_is_asked_and_a_lost_state_does_not_matter() {
    let within = within(400, &["pve"], &(BLUE.to_owned() + "secrets: embedded\n"));
    let before = inventory(&within);
    hold(&within.room.castle(&["up"]), 0, &[]);
    std::fs::remove_dir_all(within.room.world.path(".local/state/castle/blue")).unwrap();
    let _ = within.seen.vault_requests();
    let down = within.room.castle(&["down", "--yes"]);
    hold(&down, 0, &["what it kept in its vault, in /castle/blue/embedded", "Nothing of blue on embedded is left"]);
    let asked = within.seen.targets();
    let outside =
        |target: &&String| !["GET /", "POST /", "DELETE /", "vault "].iter().any(|begin| target.starts_with(begin));
    assert_eq!(asked.iter().find(outside), None, "neither nodes nor their API are asked");
    assert_eq!(inventory(&within), before);
    assert_eq!(within.datacenter.vault(EMBEDDED_VAULT).secrets.len(), 0);
    let twice = within.room.castle(&["down", "--yes", "--json"]).result();
    assert_eq!((&twice["result"], &twice["gone"]), (&"gone".into(), &serde_json::json!([])));
}

#[test]
fn a_lost_key_to_the_state_does_not_matter() {
    let within = within(400, &["pve"], BLUE);
    let before = inventory(&within);
    hold(&within.room.castle(&["up"]), 0, &[]);
    std::fs::remove_file(within.room.world.path(".local/state/castle/embedded.agekey")).unwrap();
    hold(&within.room.castle(&["down", "--yes"]), 0, &["Nothing of blue on embedded is left"]);
    assert_eq!(inventory(&within), before);
}

#[test]
fn what_is_on_a_host_that_is_away_is_named_and_goes_when_it_is_back() {
    let spread = BLUE.replace("platform: embedded", "platform: {embedded: {nodes: [pve, pve2]}}");
    let within = within(400, &["pve", "pve2"], &spread);
    let before = inventory(&within);
    hold(&within.room.castle(&["up"]), 0, &[]);
    let there = || {
        let guests = within.datacenter.look().guests;
        guests.values().filter(|guest| guest.host == "pve2").map(|guest| guest.vmid).collect::<BTreeSet<u32>>()
    };
    assert!(!there().is_empty(), "some are on the second host");
    within.datacenter.host_down("pve2");
    // A state that is lost on top of it is no trouble, as long as one guest can be asked.
    std::fs::remove_dir_all(within.room.world.path(".local/state/castle/blue")).unwrap();
    let down = within.room.castle(&["down", "--yes"]);
    hold(&down, 1, &["is left on pve2: it is not there", "next: once pve2 answers, run the same command again"]);
    for vmid in there() {
        assert!(down.stderr.contains(&format!("still there: VM {vmid}")), "{vmid}: {}", down.transcript());
    }
    assert!(down.stderr.contains("(blue-worker-2) on pve2") && !down.stdout.contains("Nothing of"), "{}", down.stderr);
    within.datacenter.host_up("pve2");
    hold(&within.room.castle(&["down", "--yes"]), 0, &["Nothing of blue on embedded is left"]);
    assert_eq!(inventory(&within), before);
}

#[test]
fn what_the_vault_keeps_is_named_if_it_cannot_be_removed() {
    let within = Within::new(400);
    let world = &within.room.world;
    world.write(".config/sops/age/keys.txt", &identity().private);
    world.write(".sops.yaml", format!("creation_rules:\n- age: {}\n", identity().public));
    world.write("s.enc.yaml", format!("vault:\n  clientId: {CLIENT_ID}\n  clientSecret: {CLIENT_SECRET}\n"));
    hold(&world.castle(&["secrets", "encrypt", "--in-place", "s.enc.yaml"]), 0, &[]);
    within.room.write("castle.yaml", &(BLUE.to_owned() + &within.secrets()));
    let before = inventory(&within);
    hold(&within.room.castle(&["up"]), 0, &[]);
    let sealed = world.read("s.enc.yaml");
    std::fs::remove_file(world.path("s.enc.yaml")).unwrap();
    let down = within.room.castle(&["down", "--yes", "--json"]);
    let result = down.result();
    assert_eq!((down.code, &result["result"]), (Some(1), &"failed".into()), "{}", down.transcript());
    assert_eq!((inventory(&within), &result["leftovers"][0]["what"]), (before, &"vault".into()), "{result}");
    world.write("s.enc.yaml", sealed);
    hold(&within.room.castle(&["down", "--yes"]), 0, &["what it kept in its vault, in /blue"]);
    assert_eq!(within.datacenter.vault(VAULT).secrets.len(), 0);
}
