//! What a panic shows. A process of its own: the hook is everybody's.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

use std::panic::{catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex};

use castle_secrets::redact::panic_text;
use castle_secrets::{Secret, redact};

/// Goal: a panic tells where, and nothing of what it said. Method: one that says a secret, before a hook that keeps its text.
#[test]
fn a_panic_tells_where_and_no_more() {
    let secret = Secret::registered("planted-in-a-panic".to_owned());
    let told = Arc::new(Mutex::new(String::new()));
    let kept = told.clone();
    set_hook(Box::new(move |panic| *kept.lock().unwrap() = panic_text(panic)));
    let ended = catch_unwind(|| panic!("cannot use {}", secret.expose()));
    drop(take_hook());
    let told = told.lock().unwrap().clone();
    assert!(told.contains("tests/panic.rs:") && !told.contains("planted") && !told.contains("cannot use"), "{told}");
    let said = ended.unwrap_err().downcast::<String>().unwrap();
    assert_eq!(redact(&said), "cannot use [secret]", "what is caught can be shown, too");
}
