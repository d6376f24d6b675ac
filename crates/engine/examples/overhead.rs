//! What the engine itself costs: steps that do nothing, and steps that do next to nothing, in a folder given as argument.
//! `cargo xtask bench` runs it once where syncing costs nothing (memory) and once on the real disk.
#![allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "this measures real time on a real disk")]
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example speaks, and stops where it cannot go on")]

use std::path::{Path, PathBuf};
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
    type Output = ();

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(std::future::ready(Ok(self.on.load(Ordering::Relaxed))))
    }

    fn decide(&self, _: &Self::Needs, on: &bool) -> Decision {
        if *on { Decision::Nothing } else { Decision::Change(Change::new("switch-on", Impact::Create)) }
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        _: &'a bool,
        _: &'a Change,
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
    assert!(report.is_done() && report.effects() as usize == if on { 0 } else { count });
    start.elapsed()
}

/// The most memory this process had, in MB.
fn peak_mb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) / 1024
}

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    let real = std::env::args().nth(2).is_some();
    if real {
        let took = measure(&folder, 500, false);
        println!("  500 effects, each synced to this disk: {:.2} ms an effect", took.as_secs_f64() * 2.0);
        return;
    }
    let ten = measure(&folder, 10_000, true);
    println!(
        "  10,000 steps with nothing to do  {:7.0} ms, {} MB   wanted: at most 1000 ms, 64 MB",
        ten.as_secs_f64() * 1e3,
        peak_mb()
    );
    let effects = measure(&folder, 10_000, false);
    println!("  10,000 steps with an effect each {:7.0} ms, {} MB", effects.as_secs_f64() * 1e3, peak_mb());
    let hundred = measure(&folder, 100_000, true);
    let each = |took: Duration, count: f64| took.as_secs_f64() * 1e6 / count;
    let (few, many) = (each(ten, 1e4), each(hundred, 1e5));
    println!(
        "  100,000 steps                    {:7.0} ms: {many:.1} µs a step, where of 10,000 each takes {few:.1}",
        hundred.as_secs_f64() * 1e3
    );
}
