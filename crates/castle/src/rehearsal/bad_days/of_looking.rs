//! Looking: what castle did not look at is never told as fine, and whoever only looks leaves nothing behind.

use std::path::Path;

use super::super::fixture::{HOME, SMALL as TWO_HOSTS};
use super::of_castle::full;
use super::*;

/// Goal: `status` calls fine only what it saw. Method: the castle stands, and what its manifests are told by cannot be read.
#[test]
fn what_status_did_not_look_at_is_told_as_such() {
    let full = written(&full());
    in_worlds(&full, &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let lock = Path::new(HOME).join("castle.lock");
        life.disk().tamper(&lock, b"not a lock".to_vec());
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &["was not looked at: ", "castle.lock", "running"]);
        let (text, told) = (&status.printed.text, &status.printed.result);
        assert!(!text.contains("stands as its file says"), "{text}");
        assert_eq!(told["standing"], false);
        assert!(told["unseen"].as_str().is_some_and(|why| why.contains("castle.lock")), "{told:#}");
        for component in told["components"].as_array().unwrap() {
            assert_eq!(component["as_wanted"], serde_json::Value::Null, "{component:#}");
            assert_eq!(component["evidence"], "not looked at", "{component:#}");
        }
        for layer in told["layers"].as_array().unwrap().iter().filter(|layer| layer["as_wanted"] == true) {
            assert!(layer["layer"] == "secrets" || layer["layer"] == "platform", "{layer:#}");
        }
        life.disk().lose(&lock);
        hold(&life.run(&["status"]).await, Exit::Done, &["stands as its file says"]);
    });
}

/// Goal: a file that is edited is planned by what is in the cluster, also where the way there is what changes. Method: another shared address,
/// at which nobody answers before it is given to the control planes.
#[test]
fn a_plan_for_another_shared_address_creates_nothing() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let edited = full().replace("vip: 127.42.0.10,", "vip: 127.42.0.19,");
        assert_ne!(edited, full());
        life.disk().tamper(&Path::new(HOME).join("castle.yaml"), edited.into_bytes());
        let plan = life.run(&["plan"]).await;
        hold(&plan, Exit::Done, &[]);
        let actions = plan.printed.result["actions"].as_array().unwrap();
        let created: Vec<_> = actions.iter().filter(|action| action["impact"] == "create").collect();
        assert!(!actions.is_empty() && created.is_empty(), "{}", plan.printed.text);
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);
    });
}

/// Goal: whatever lies behind something that could not be asked is told as not looked at, not as ill. Method: the only control plane is off.
#[test]
fn what_is_behind_a_silent_control_plane_was_not_looked_at() {
    in_worlds(&written(&full()), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let first = *life.datacenter.cluster("blue").unwrap().api_servers.keys().next().unwrap();
        life.datacenter.switch(first, false);
        let status = life.run(&["status"]).await;
        hold(&status, Exit::Done, &["is not as its file says", "not looked at: it cannot be asked before"]);
        assert!(!status.printed.text.contains("votes in etcd: yes"), "{}", status.printed.text);
        let told = &status.printed.result;
        for gate in told["gates"].as_array().unwrap() {
            assert_ne!(gate["open"], true, "{gate:#}");
        }
        let flux =
            told["components"].as_array().unwrap().iter().find(|component| component["component"] == "flux").unwrap();
        assert_eq!(flux["as_wanted"], serde_json::Value::Null, "{flux:#}");
        assert!(flux["evidence"].as_str().unwrap().starts_with("not looked at"), "{flux:#}");
    });
}

/// Goal: the doctor calls nothing fine that it could not open, and says what it does not know. Method: a damaged record, a key that is not there, and
/// no token to ask Proxmox with.
#[test]
fn the_doctor_names_what_it_cannot_open_and_what_it_does_not_know() {
    in_worlds(&small(), &SEEDS[..1], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        hold(
            &life.run(&["doctor"]).await,
            Exit::Done,
            &["Nothing found in the way of blue on embedded (", "can be opened, and read"],
        );
        let keyless = life.run_with("SOPS_AGE_KEY", None, &["doctor"]).await;
        hold(&keyless, Exit::Failed, &["WRONG", "state", "next: "]);
        assert!(!keyless.printed.text.contains("can be opened, and read"), "{}", keyless.printed.text);
        let records =
            life.disk().contents().into_keys().filter(|path| path.to_string_lossy().contains("/state/platform/"));
        let newest = records.max().unwrap();
        let whole = life.disk().contents()[&newest].clone();
        life.disk().tamper(&newest, whole[..whole.len() / 2].to_vec());
        let damaged = life.run(&["doctor"]).await;
        hold(&damaged, Exit::Failed, &["WRONG", "/state/platform/", "castle adopt"]);
        assert!(!damaged.printed.text.contains("can be opened, and read"), "{}", damaged.printed.text);
    });
    in_worlds(&written(TWO_HOSTS), &SEEDS[..1], async |life| {
        life.disk().lose(&Path::new(HOME).join("secrets.enc.yaml"));
        let told = life.run(&["doctor"]).await;
        hold(&told, Exit::Failed, &["WRONG", "token", "secrets.enc.yaml"]);
        let findings = told.printed.result["findings"].as_array().unwrap();
        let reachable = findings.iter().find(|finding| finding["check"] == "reachable").unwrap();
        assert_ne!(reachable["verdict"], "unknown", "the way there is tried without a token: {reachable:#}");
        let unknown = told.printed.result["unknown"].as_array().unwrap();
        assert!(unknown.iter().any(|check| check == "machines"), "{unknown:?}");
    });
}
