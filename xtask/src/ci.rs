//! What CI does: the quick things first.

use std::time::Instant;

use anyhow::{Context, Result};

use crate::shell::{self, cargo};
use crate::{deny, peers, readme, tidy};

type Step = (&'static str, fn() -> Result<()>);

const STEPS: [Step; 9] = [
    ("format", || shell::run(cargo().args(["fmt", "--all", "--check"]))),
    ("tidy", tidy::run),
    ("licences", deny::run),
    ("clippy", || {
        shell::run(cargo().args(["clippy", "--locked", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    }),
    ("build", || shell::run(cargo().args(["build", "--locked", "--workspace"]))),
    ("test", || shell::run(cargo().args(["test", "--locked", "--workspace"]))),
    ("doc", || {
        let mut doc = cargo();
        shell::run(doc.args(["doc", "--locked", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "--deny warnings"))
    }),
    ("readme", || readme::run(&readme::Args::default())),
    ("peers", || peers::run(&peers::Args::default())),
];

pub(crate) fn run() -> Result<()> {
    let mut times = Vec::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        step().with_context(|| format!("CI stopped at: {name}"))?;
        times.push(format!("{name} {:.0} s", start.elapsed().as_secs_f64()));
    }
    println!("\nCI passed: {}", times.join(", "));
    Ok(())
}
