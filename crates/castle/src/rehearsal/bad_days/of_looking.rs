//! Looking: what castle did not look at is never told as fine, and whoever only looks leaves nothing behind.

use std::path::Path;

use super::super::fixture::HOME;
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
