//! How long castle takes from an API that serves to the handover, held against what the drawn latencies allow: the same draws, with
//! questions that take no time and gates that nothing wakes asked five times a second. Counts and ratios of virtual time: the
//! machine that this runs on has no say.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "an example speaks, and stops where it cannot go on")]
#![allow(dead_code, reason = "the keep has more than is measured")]

#[path = "../tests/cluster/castle.rs"]
mod castle;
#[path = "../tests/inside/keep.rs"]
mod keep;
#[path = "../tests/platform/room.rs"]
mod room;
#[path = "../tests/inside/scribe.rs"]
mod scribe;
#[path = "../tests/inside/stands.rs"]
mod stands;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use castle_datacenter::blueprint::{ComponentLatencies, Span, WorkloadLatencies};
use castle_engine::{Alone, Deaf, Journal, Report, Tools, Wanted, run};
use castle_seams::{BoxFuture, Clock, Disk, Entropy};
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};

use crate::keep::{Keep, full, inside_only};
use crate::room::done;

const SEEDS: u64 = 20;
/// How often a gate is asked at most that nothing wakes,
const PROBE: Duration = Duration::from_secs(1);
/// and how often by one who knows all.
const OFTEN: Duration = Duration::from_millis(200);

/// A clock by which nobody waits long before asking again.
struct Hasty(VirtualClock);

impl Clock for Hasty {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn wall(&self) -> SystemTime {
        self.0.wall()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        // Whoever waits longer has a watch that wakes him.
        self.0.sleep(if duration <= PROBE { duration.min(OFTEN) } else { duration })
    }
}

/// Draws how long each kind of thing takes inside of the cluster, for the whole of a run: between half of what is usual and what 95 of
/// 100 stay under. So it does not matter in which order things happen.
fn drawn(seed: u64, workloads: &mut WorkloadLatencies) {
    let chance = Chance::new(seed);
    let fix = |span: &mut Span| {
        let mut byte = [0];
        chance.fill(&mut byte).unwrap();
        let least = span.mean / 2.0;
        let seconds = least + (span.p95 - least) * f64::from(byte[0]) / 255.0;
        *span = Span::new(seconds, seconds);
    };
    let WorkloadLatencies { reconcile, establish, pull, pulls, start, ready, stop, job, provision, components } =
        workloads;
    [reconcile, establish, pull, start, ready, stop, job, provision].into_iter().for_each(fix);
    pulls.iter_mut().map(|(_, span)| span).for_each(fix);
    let ComponentLatencies { look, certificate, mount, path, inject, errand, chart, lease } = components;
    [look, certificate, mount, path, inject, errand, chart, lease].into_iter().for_each(fix);
}

/// The run of one seed, and how long it took; as castle does it, or as one would who knows all at once.
fn raised(seed: u64, knows_all: bool) -> (Report, f64) {
    in_virtual_time(async |clock| {
        let mut blueprint = inside_only(seed);
        drawn(seed, &mut blueprint.latencies.talos.workloads);
        if knows_all {
            blueprint.latencies.talos.kubernetes_call = Span::new(0.0, 0.0);
        }
        let keep = Keep::new(blueprint, &full(3, 2), Arc::new(*clock));
        keep.found().await;
        let graph = keep.inner(keep.access().await);
        let hasty = Hasty(*clock);
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let id = keep.castle.room.id.clone();
        let journal = Mutex::new(Journal::open(&disk, Path::new("/journal"), &id).unwrap().0);
        let tools = Tools {
            clock: if knows_all { &hasty } else { clock },
            entropy: &Chance::new(seed),
            fence: &Alone { epoch: 1 },
            listener: &Deaf,
            signals: None,
            journal: Some(&journal),
        };
        let begun = clock.monotonic();
        let report = run(&graph, tools, &Wanted::all(id)).await;
        let took = (clock.monotonic() - begun).as_secs_f64();
        done(&report);
        (report, took)
    })
}

/// From when to when a layer worked, in seconds.
fn window(report: &Report, layer: &str) -> (f64, f64) {
    let own = report.timeline.spans.iter().filter(|span| span.step.layer.to_string() == layer);
    own.fold((f64::MAX, 0.0), |(first, last), span| {
        let begun = (span.ready + span.waited).as_secs_f64();
        (first.min(begun), last.max(begun + span.worked.as_secs_f64()))
    })
}

/// How long both of two layers worked, in seconds.
fn overlap(report: &Report) -> f64 {
    let (storage, gitops) = (window(report, "storage"), window(report, "gitops"));
    (storage.1.min(gitops.1) - storage.0.max(gitops.0)).max(0.0)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn main() {
    println!(
        "from an API that serves to the handover, three control planes and two workers, {SEEDS} seeds, virtual time"
    );
    let (mut ratios, mut times, mut overlaps) = (Vec::new(), Vec::new(), Vec::new());
    let seeds = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    for seed in 0..seeds {
        let ((report, took), (_, least)) = (raised(seed, false), raised(seed, true));
        let path: Vec<String> = report.timeline.critical_path.iter().map(|span| span.step.to_string()).collect();
        let last = path.last().cloned().unwrap_or_default();
        println!("  seed {seed:<2} {took:7.1} s of {least:7.1} s, {:.3}; the last to end was {last}", took / least);
        ratios.push(took / least);
        times.push(took);
        overlaps.push(overlap(&report));
    }
    let worst = ratios.iter().copied().fold(0.0, f64::max);
    println!("  time        {:7.1} s in the middle", median(times));
    println!("  to the least {:.3} in the middle, {worst:.3} at worst; wanted: at most 1.05", median(ratios));
    println!("  storage and gitops work at the same time for {:.1} s in the middle", median(overlaps));
}
