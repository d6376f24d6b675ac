//! Figures: how long castle takes, and how that grows. Nothing fails here; a person judges.

use std::fmt::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::shell;

mod life;

const RUNS: usize = 200;

pub(crate) fn run() -> Result<()> {
    let castle = shell::castle()?;
    let folder = tempfile::tempdir()?;
    let of = |nodes: usize| -> Result<Duration> {
        let file = folder.path().join(format!("{nodes}.yaml"));
        std::fs::write(&file, castle_of(nodes))?;
        median(&castle, &file)
    };
    let example = median(&castle, &shell::root().join("examples/blue"))?;
    let (hundred, thousand) = (of(100)?, of(1000)?);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let ratio = ms(thousand) / ms(hundred);
    println!("castle check, whole process, release build, median of {RUNS} runs");
    println!("  examples/blue    {:7.2} ms   wanted: at most 15", ms(example));
    println!("  100 nodes        {:7.2} ms", ms(hundred));
    println!("  1,000 nodes      {:7.2} ms   {ratio:.1} times 100 nodes; wanted: at most 10", ms(thousand));
    life::run(&castle)?;
    engine()?;
    shell::run(&mut shell::program(&shell::measured_example("castle-secrets", "open")?))?;
    shell::run(&mut shell::program(&shell::measured_example("castle-layers", "configurations")?))?;
    let mirror = shell::oracles().join("mirror");
    if mirror.is_dir() {
        shell::run(shell::program(&shell::measured_example("castle-kubernetes", "speed")?).arg(&mirror))?;
        shell::run(shell::program(&shell::measured_example("castle-datacenter", "kubernetes")?).arg(mirror))?;
    } else {
        println!("skipped: the embedded API server, for there are no manifests to apply");
    }
    shell::run(&mut shell::program(&shell::measured_example("castle-layers", "handover")?))?;
    shell::run(&mut shell::program(&shell::measured_example("castle-layers", "fleet")?))
}

/// The engine's own cost: in memory, where syncing costs nothing, and on the disk of the sources.
fn engine() -> Result<()> {
    let program = shell::measured_example("castle-engine", "overhead")?;
    let shared_memory = Path::new("/dev/shm");
    let memory = if shared_memory.is_dir() { tempfile::tempdir_in(shared_memory)? } else { tempfile::tempdir()? };
    println!("the engine, release build");
    shell::run(shell::program(&program).arg(memory.path()))?;
    let disk = tempfile::tempdir_in(shell::target())?;
    shell::run(shell::program(&program).arg(disk.path()).arg("real"))
}

fn median(castle: &Path, file: &Path) -> Result<Duration> {
    let mut times = Vec::with_capacity(RUNS);
    for _ in 0..RUNS {
        let start = Instant::now();
        let output = shell::program(castle).arg("check").arg(file).output()?;
        times.push(start.elapsed());
        ensure!(output.status.success(), "castle check failed:\n{}", String::from_utf8_lossy(&output.stderr));
    }
    times.sort();
    Ok(times[RUNS / 2])
}

/// A castle of that many nodes in which every worker has an override.
fn castle_of(nodes: usize) -> String {
    let workers = nodes - 3;
    let mut text = format!(
        "castle: blue\nplatform:\n  embedded: {{vmids: 1000-19999}}\ntalos: {{version: v1.13.9}}\nkubernetes: {{version: v1.36.3, \
         podSubnets: [10.128.0.0/10], serviceSubnets: [10.96.0.0/12]}}\nnetwork: {{cidr: 10.0.0.0/16, gateway: 10.0.0.1, nameservers: \
         [10.0.0.1], vip: 10.0.0.10}}\nnodes:\n  controlPlanes: {{count: 3, firstAddress: 10.0.0.11}}\n  workers: {{count: {workers}, \
         firstAddress: 10.0.1.0, dataDisk: 100GiB}}\n  overrides:\n"
    );
    for number in 1..=workers {
        let _ = writeln!(text, "    blue-worker-{number}: {{cores: 8, memory: 16GiB}}");
    }
    text
}
