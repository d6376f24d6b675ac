//! The suite against a real control plane: it answers as was recorded, and the embedded one is held against the same recordings.
//!
//! `conformance VERSION ETCD KUBERNETES KUBECTL [record] [THEME…]`, where KUBERNETES is a folder with `kube-apiserver` and
//! `kube-controller-manager`. With `record`, what the real one answers is what is expected from then on. The programs
//! are those that `cargo xtask peers kubernetes` keeps in its cache.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "it starts programs and keeps their files")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::exit,
    reason = "a run that cannot go on should say so and stop"
)]

mod kubectl;
mod real;
mod suite;

use std::path::Path;

use kubectl::Kubectl;
use real::{Programs, Real};
use suite::compare::compare;
use suite::script::Script;
use suite::server::Server;
use suite::transcript::{Told, read, write};
use suite::{JOURNEYS, MIRROR, THEMES, Theme, mirror, play};

#[tokio::main(worker_threads = 2)]
async fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [version, etcd, kubernetes, kubectl, rest @ ..] = words.as_slice() else {
        println!("usage: conformance VERSION ETCD KUBERNETES KUBECTL [record] [THEME…]");
        std::process::exit(2);
    };
    let records = rest.first().is_some_and(|word| word == "record");
    let wanted = if records { &rest[1..] } else { rest };
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let real = Real::start(version, &Programs { etcd: etcd.into(), kubernetes: kubernetes.into() }).await;
    let mut count = Count::default();
    for theme in THEMES.iter().chain(JOURNEYS).filter(|theme| is_wanted(theme.name)) {
        let told = of(&real.server, theme, Path::new(kubectl)).await;
        if records {
            record(theme.name, &told);
            continue;
        }
        count.hold(&real.server.name, theme.name, &read(theme.recorded), &told);
    }
    if is_wanted("mirror")
        && let Some(told) = mirror::play(&real.server).await
    {
        if records {
            record("mirror", &mirror::digests(&told));
        } else {
            count.hold(&real.server.name, "mirror", &read(MIRROR), &mirror::digests(&told));
        }
    }
    println!("{} answers agree, {} are excepted, {} differ", count.agreed, count.excepted, count.differences);
    drop(real);
    std::process::exit(i32::from(count.differences > 0));
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
