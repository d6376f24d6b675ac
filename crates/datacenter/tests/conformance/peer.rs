//! The suite against a real control plane: it answers as was recorded, and the embedded one is held against the same recordings.
//!
//! `conformance VERSION ETCD KUBERNETES KUBECTL [record] [THEME…]`, where KUBERNETES is a folder with `kube-apiserver` and
//! `kube-controller-manager`. With `record`, what the real one answers is what is expected from then on.
//! `conformance embedded KUBECTL [THEME…]` plays what is played with `kubectl` to the embedded one. The programs
//! are those that `cargo xtask peers kubernetes` keeps in its cache.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it starts programs and keeps their files")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::exit,
    reason = "a run that cannot go on should say so and stop"
)]

#[allow(dead_code, reason = "the castle has more than a cluster of one needs")]
#[path = "../talos/castle.rs"]
mod castle;
mod embedded;
mod kubectl;
mod real;
#[allow(dead_code, reason = "the site has more than a node needs")]
#[path = "../behaviour/site.rs"]
mod site;
mod suite;
#[allow(dead_code, reason = "the wire has more than a bootstrap needs")]
#[path = "../talos/wire.rs"]
mod wire;

use std::path::Path;

use kubectl::Kubectl;
use real::{Programs, Real};
use suite::compare::compare;
use suite::script::Script;
use suite::server::Server;
use suite::transcript::{Told, read, write};
use suite::{JOURNEYS, MIRROR, THEMES, Theme, mirror, play};

/// The journey for which a real control plane has controllers of workloads.
const WITH_WORKLOADS: &str = "rollouts";

#[tokio::main(worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = match words.as_slice() {
        [word, kubectl, wanted @ ..] if word == "embedded" => of_embedded(Path::new(kubectl), wanted).await,
        [version, etcd, kubernetes, kubectl, rest @ ..] => {
            let programs = Programs { etcd: etcd.into(), kubernetes: kubernetes.into() };
            of_real(version, &programs, Path::new(kubectl), rest).await
        }
        _ => {
            println!("usage: conformance VERSION ETCD KUBERNETES KUBECTL [record] [THEME…]");
            println!("       conformance embedded KUBECTL [THEME…]");
            std::process::exit(2);
        }
    };
    println!("{} answers agree, {} are excepted, {} differ", count.agreed, count.excepted, count.differences);
    std::process::exit(i32::from(count.differences > 0));
}

/// What people do with `kubectl`, done to the embedded server.
async fn of_embedded(kubectl: &Path, wanted: &[String]) -> Count {
    let server = embedded::start().await;
    let mut count = Count::default();
    for theme in JOURNEYS.iter().filter(|theme| is_wanted(theme.name, wanted)) {
        let told = of(&server, theme, kubectl).await;
        count.hold(&server.name, theme.name, &read(theme.recorded), &told);
    }
    count
}

/// Everything, asked of a real control plane.
async fn of_real(version: &str, programs: &Programs, kubectl: &Path, rest: &[String]) -> Count {
    let records = rest.first().is_some_and(|word| word == "record");
    let wanted = if records { &rest[1..] } else { rest };
    let mut count = Count::default();
    for has_workloads in [false, true] {
        let of_this = |theme: &&Theme| is_wanted(theme.name, wanted) && (theme.name == WITH_WORKLOADS) == has_workloads;
        let themes: Vec<&Theme> = THEMES.iter().chain(JOURNEYS).filter(of_this).collect();
        let has_mirror = !has_workloads && is_wanted("mirror", wanted);
        if themes.is_empty() && !has_mirror {
            continue;
        }
        let real = Real::start(version, programs, has_workloads).await;
        let mut hold = |name: &str, expected: &str, told: &[Told]| {
            if records {
                record(name, told);
            } else {
                count.hold(&real.server.name, name, &read(expected), told);
            }
        };
        for theme in themes {
            hold(theme.name, theme.recorded, &of(&real.server, theme, kubectl).await);
        }
        if has_mirror && let Some(told) = mirror::play(&real.server).await {
            hold("mirror", MIRROR, &mirror::digests(&told));
        }
    }
    count
}

fn is_wanted(name: &str, wanted: &[String]) -> bool {
    wanted.is_empty() || wanted.iter().any(|wanted| wanted == name)
}

async fn of(server: &Server, theme: &Theme, kubectl: &Path) -> Vec<Told> {
    let kubectl = Kubectl::new(kubectl, server);
    play::play(
        server,
        theme.name,
        &Script::parse(theme.scenarios).unwrap(),
        Some(&|words, input| kubectl.run(words, input)),
    )
    .await
}

fn record(name: &str, told: &[Told]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/conformance/recorded");
    std::fs::write(folder.join(format!("{name}.txt")), write(told)).unwrap();
    println!("recorded {} answers of {name}", told.iter().map(|told| told.blocks.len()).sum::<usize>());
}

#[derive(Default)]
struct Count {
    agreed: usize,
    excepted: usize,
    differences: usize,
}

impl Count {
    /// Holds what came against what is expected, and prints what differs.
    fn hold(&mut self, server: &str, theme: &str, expected: &[Told], came: &[Told]) {
        let verdict = compare(server, theme, expected, came);
        self.agreed += verdict.agreed;
        self.excepted += verdict.excepted.len();
        self.differences += verdict.differences.len();
        verdict.excepted.iter().for_each(|told| println!("{server} excepted: {told}"));
        verdict.differences.iter().for_each(|told| println!("{server} differs: {told}"));
    }
}
