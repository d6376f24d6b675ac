//! The embedded API server answers as the real one did when it was recorded.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "webhooks listen on loopback")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on should say so and stop")]

#[allow(dead_code, reason = "the castle has more than a cluster of one needs")]
#[path = "../talos/castle.rs"]
mod castle;
mod embedded;
#[allow(dead_code, reason = "the site has more than a node needs")]
#[path = "../behaviour/site.rs"]
mod site;
mod suite;
#[allow(dead_code, reason = "the wire has more than a bootstrap needs")]
#[path = "../talos/wire.rs"]
mod wire;

use suite::compare::compare;
use suite::script::{Act, Script};
use suite::transcript::read;
use suite::{JOURNEYS, MIRROR, THEMES, mirror, play};

/// Fewer mean that a theme was lost.
const LEAST_REQUESTS: usize = 600;

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_as_the_real_one_did() {
    let server = embedded::start().await;
    let mut differences = Vec::new();
    for theme in THEMES {
        let told = play::play(&server, theme.name, &Script::parse(theme.scenarios).unwrap(), None).await;
        differences.extend(compare(&server.name, theme.name, &read(theme.recorded), &told).differences);
    }
    match mirror::play(&server).await {
        None => {
            castle_testbed::skipped("the components' manifests are not there");
        }
        Some(told) => {
            differences.extend(compare(&server.name, "mirror", &read(MIRROR), &mirror::digests(&told)).differences);
        }
    }
    assert!(differences.is_empty(), "{} answers differ:\n{}", differences.len(), differences.join("\n"));
}

/// A recording that is not of the scenarios beside it would prove nothing.
#[test]
fn the_recordings_are_of_these_scenarios() {
    let mut requests = 0;
    for theme in THEMES.iter().chain(JOURNEYS) {
        let (script, recorded) = (Script::parse(theme.scenarios).unwrap(), read(theme.recorded));
        let titles: Vec<&str> = script.scenarios.iter().map(|scenario| scenario.title.as_str()).collect();
        assert_eq!(titles, recorded.iter().map(|told| told.title.as_str()).collect::<Vec<_>>(), "{}", theme.name);
        for (scenario, told) in script.scenarios.iter().zip(&recorded) {
            let lines = scenario.acts.iter().filter_map(|act| match act {
                Act::Request(request) => Some(request.line.clone()),
                Act::Kubectl { line, .. } => Some(line.clone()),
                Act::Seen { name } => Some(format!("SEEN {name}")),
                Act::Hook { .. } | Act::Compact => None,
            });
            let answered = told.blocks.iter().filter_map(|block| block.lines().next()).map(str::to_owned);
            assert!(lines.eq(answered), "{}: {}", theme.name, scenario.title);
            requests += told.blocks.len();
        }
    }
    assert!(requests >= LEAST_REQUESTS, "only {requests} requests");
}

/// A request that was never answered, or that waited in vain, was recorded by mistake.
#[test]
fn every_request_was_answered() {
    for theme in THEMES.iter().chain(JOURNEYS) {
        let unanswered =
            theme.recorded.lines().find(|line| line.starts_with(play::NO_ANSWER) || *line == play::IN_VAIN);
        assert_eq!(unanswered, None, "{}", theme.name);
    }
}
