//! A panic on demand, with a secret in its payload: for the test that looks for secrets in what a panic leaves behind.
//!
//! It exists in builds with debug assertions alone, which no release is; `cargo xtask` refuses a release that knows the variable.

/// Panics if `CASTLE_TRAP` names this place.
#[cfg(debug_assertions)]
pub(crate) fn spring(place: &str, secret: &str) {
    let is_wanted = std::env::var("CASTLE_TRAP").is_ok_and(|wanted| wanted == place);
    assert!(!is_wanted, "trapped at {place}: {secret}");
}

/// Nothing: this is a release.
#[cfg(not(debug_assertions))]
pub(crate) fn spring(_: &str, _: &str) {}
