//! Nothing that is shown holds a secret, whatever the other end says.

use castle_engine::{Expect, Store, StoreError, StoreErrorKind};
use castle_testbed::in_virtual_time;

use crate::server::{Asked, ID, Reply, SECRET, Server, TOKEN, answer, complaint_body, credentials};

/// A server that says everything it was told, and the secret besides, wherever it can.
fn tell_all(status: u16) -> impl Fn(&Asked) -> Reply + Send + Sync + 'static {
    move |asked| {
        let told: String = asked.headers.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let signature = asked.headers["authorization"].rsplit('=').next().unwrap();
        let message = format!("{signature} {SECRET} {told}\u{9b}31m\ntwo");
        let region = format!("<Region>{ID}</Region></Error>");
        let body = complaint_body(&format!("{ID}-{SECRET}"), &message).replace("</Error>", &region);
        answer(status, &[("x-amz-bucket-region", ID), ("x-amz-id-2", SECRET)], body.as_bytes())
    }
}

fn check(error: &StoreError, signature: &str) {
    let told = format!("{error} {error:?}");
    for secret in [ID, SECRET, TOKEN, signature, "planted"] {
        assert!(!told.contains(secret), "{told}");
    }
    assert!(!error.evidence.chars().any(char::is_control), "{told}");
    assert!(error.evidence.len() < 800, "{told}");
}

#[test]
fn no_error_holds_a_secret() {
    for status in [301, 400, 403, 404, 409, 412, 429, 500, 503] {
        in_virtual_time(async |clock| {
            let server = Server::new(clock, tell_all(status));
            let store = server.store();
            let errors = [
                store.get("a").await.unwrap_err(),
                store.put("a", b"x", Expect::Nothing).await.unwrap_err(),
                store.list("").await.unwrap_err(),
                store.delete("a").await.unwrap_err(),
            ];
            let asked = server.asked.lock().unwrap();
            for (error, asked) in errors.iter().zip(asked.iter()) {
                check(error, asked.headers["authorization"].rsplit('=').next().unwrap());
            }
        });
    }
}

#[test]
fn nothing_shows_the_credentials() {
    in_virtual_time(async |clock| {
        let store = Server::new(clock, |_| answer(200, &[], b"")).store();
        let shown = format!("{store:?} {:?}", credentials());
        assert!(!shown.to_lowercase().contains("planted"), "{shown}");
        assert!(shown.contains("castles"), "{shown}");
    });
}

#[test]
fn what_servers_say_is_shortened() {
    in_virtual_time(async |clock| {
        let long = complaint_body("AccessDenied", &"ä".repeat(10_000));
        let error = Server::new(clock, move |_| answer(403, &[], long.as_bytes())).store().get("a").await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused);
        assert!(error.evidence.contains(&format!("AccessDenied: {}…; ", "ä".repeat(200))), "{error}");
    });
}
