//! What the engine itself costs: steps that do nothing, and steps that do next to nothing, in a folder given as argument.
//! `cargo xtask bench` runs it once where syncing costs nothing (memory) and once on the real disk.
//!
//! Each figure in memory is the median of several runs, each in a process of its own, as every run of castle is: a process that
//! measured before would lend its memory to small graphs and not to large ones.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this measures real time on a real disk")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example speaks, and stops where it cannot go on")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use castle_engine::{
    Alone, CastleId, Change, Deaf, Decision, Fault, GraphBuilder, Handle, Impact, Journal, Lane, Layer, Operation,
    Place, Step, StepId, Tools, Wanted, run,
};
use castle_seams::{BoxFuture, Disk, SystemClock, SystemDisk, SystemEntropy};

/// A switch that is to be on.
struct Switch {
    on: AtomicBool,
}

impl Step for Switch {
    type Needs = (Vec<Arc<()>>,);
    type Observed = bool;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(self.on.load(Ordering::Relaxed))))
    }

    fn decide(&self, _: &Self::Needs, on: &bool) -> Decision {
        if *on { Decision::Nothing } else { Decision::Act((), Change::new("switch-on", Impact::Create)) }
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        _: &'a bool,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        self.on.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(Ok(())))
    }

    fn output(&self, _: &Self::Needs, _: &bool) {}
}

/// How long `count` steps take, a tenth of them needing others, in lanes.
fn measure(folder: &Path, count: usize, on: bool) -> Duration {
    let mut builder = GraphBuilder::new();
    let layer = Layer::new("bench");
    let mut handles: Vec<Handle<()>> = Vec::with_capacity(count);
    for index in 0..count {
        let needs: Vec<Handle<()>> = if index % 10 == 9 { handles[index - 9..].to_vec() } else { Vec::new() };
        let place = Place {
            lane: Some(Lane::new(&format!("lane {}", index % 7), 8)),
            predicted: Duration::from_millis(index as u64 % 50),
        };
        let id = StepId::new(&layer, "switch", &index.to_string());
        handles.push(builder.step(id, place, (needs,), Switch { on: AtomicBool::new(on) }));
    }
    let graph = builder.build().unwrap();
    let castle = CastleId { name: "bench".into(), lineage: "x".into(), generation: 1 };
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let path: PathBuf = folder.join(format!("journal-{count}-{on}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let start = Instant::now();
    let journal = Mutex::new(Journal::open(&disk, &path, &castle).unwrap().0);
    let clock = SystemClock::new();
    let tools = Tools {
        clock: &clock,
        entropy: &SystemEntropy,
        fence: &Alone { epoch: 1 },
        listener: &Deaf,
        signals: None,
        journal: Some(&journal),
    };
    let report = runtime.block_on(run(&graph, tools, &Wanted::all(castle)));
    let took = start.elapsed();
    assert!(report.is_done() && report.effects() as usize == if on { 0 } else { count });
    std::fs::remove_file(path).unwrap();
    took
}

/// The most memory this process had, in MB.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}

/// How often each figure is taken.
const ROUNDS: usize = 9;

/// What one process measured.
struct Figure {
    took: Duration,
    peak_mb: u64,
}

/// Measures in a process of its own.
fn apart(folder: &Path, count: usize, on: bool) -> Figure {
    let this = std::env::current_exe().unwrap();
    let output = Command::new(this).arg(folder).args([count.to_string(), on.to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8(output.stdout).unwrap();
    let (nanoseconds, peak_mb) = printed.trim().split_once(' ').unwrap();
    Figure { took: Duration::from_nanos(nanoseconds.parse().unwrap()), peak_mb: peak_mb.parse().unwrap() }
}

fn median(mut figures: Vec<Figure>) -> Figure {
    figures.sort_by_key(|figure| figure.took);
    figures.swap_remove(figures.len() / 2)
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(arguments.first().map_or(".", String::as_str));
    match arguments.get(1..).unwrap_or_default() {
        [] => tell_all(&folder),
        [count, on] => {
            let took = measure(&folder, count.parse().unwrap(), on.parse().unwrap());
            println!("{} {}", took.as_nanos(), peak_mb());
        }
        _ => {
            let took = measure(&folder, 500, false);
            println!("  500 effects, each synced to this disk: {:.2} ms an effect", took.as_secs_f64() * 2.0);
        }
    }
}

fn tell_all(folder: &Path) {
    let (mut ten, mut effects, mut hundred) = (Vec::new(), Vec::new(), Vec::new());
    // By turns, so that whatever else the machine does troubles all alike.
    for _ in 0..ROUNDS {
        ten.push(apart(folder, 10_000, true));
        effects.push(apart(folder, 10_000, false));
        hundred.push(apart(folder, 100_000, true));
    }
    let [ten, effects, hundred] = [ten, effects, hundred].map(median);
    let ms = |figure: &Figure| figure.took.as_secs_f64() * 1e3;
    println!(
        "  10,000 steps with nothing to do  {:7.1} ms, {} MB   wanted: at most 1000 ms, 64 MB",
        ms(&ten),
        ten.peak_mb
    );
    println!("  10,000 steps with an effect each {:7.1} ms, {} MB", ms(&effects), effects.peak_mb);
    println!(
        "  100,000 steps                    {:7.1} ms, {} MB   {:.1} times 10,000; wanted: at most 11",
        ms(&hundred),
        hundred.peak_mb,
        ms(&hundred) / ms(&ten)
    );
}
