//! A castle that comes to rest before its machines go: its cluster is calmed, then workers and control planes go down by themselves.
//!
//! All of it has one bound, and nothing of it is in the way: what was not done by then is told, and the machines go all the same.

use std::time::Duration;

use castle_engine::{Fault, Graph, GraphError, Lease, Outcome, Report};
use castle_layers::graceful::{self, Way};
use castle_layers::platform::Doomed;
use castle_spec::Role;
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::commands::owners::api_access;
use crate::output::Printer;
use crate::stand::{Bounds, Identity, REACHING, Stand, Trouble};

/// The part of the time that the cluster has; the rest is for its machines.
const CLUSTER: (u32, u32) = (3, 4);
/// The part of each share that is waited in; the rest is for what is under way when a wait has run out.
const WAITING: (u32, u32) = (9, 10);
/// The most that a machine is given to go down.
const MOST: Duration = Duration::from_secs(60);

/// How many machines are asked about at once.
const AT_ONCE: usize = 16;

const LATE: &str = "was not done in time";
const MORE: &str = "another time: --graceful --within 15m";

/// How long to wait of this share.
fn waiting(share: Duration) -> Duration {
    share * WAITING.0 / WAITING.1
}

/// How a castle came to rest.
#[derive(Default)]
pub(crate) struct Calm {
    /// What was done, for people.
    done: Vec<String>,
    /// What was not.
    left: Vec<Undone>,
    /// Whether the operator wants no more.
    pub(crate) is_interrupted: bool,
    /// The run that was interrupted.
    took: Duration,
}

/// What did not come to be before the machines went.
struct Undone {
    what: String,
    why: String,
    next: String,
}

/// What is to come to rest, and who does it.
pub(crate) struct Rest<'r> {
    pub(crate) verb: &'r str,
    pub(crate) stand: &'r Stand,
    pub(crate) identity: &'r Identity,
    pub(crate) doomed: &'r [Doomed],
    pub(crate) within: Duration,
    pub(crate) lease: &'r Lease,
}

impl Rest<'_> {
    /// Brings the castle to rest, as far as there is time.
    pub(crate) async fn come(&self, printer: &mut Printer) -> Result<Calm, Trouble> {
        let (clock, mut calm) = (self.stand.kept.clock(), Calm::default());
        let begun = clock.monotonic();
        let running = self.running().await;
        if running.is_empty() {
            return Ok(calm);
        }
        let share = self.within * CLUSTER.0 / CLUSTER.1;
        match self.way().await {
            Ok(way) => self.drive(graceful::quiet(way, waiting(share)), share, &mut calm, printer).await?,
            Err(trouble) => calm.left.push(Undone {
                what: "the cluster".to_owned(),
                why: trouble.told().to_owned(),
                next: "castle state show".to_owned(),
            }),
        }
        let is_control_plane = |guest: &&Doomed| {
            let node = self.stand.kept.nodes.iter().find(|node| node.vmid.0 == guest.vmid);
            node.is_some_and(|node| node.role == Role::ControlPlane)
        };
        // Workers first: what ends on them still has an API to tell.
        let (last, first): (Vec<&Doomed>, Vec<&Doomed>) = running.into_iter().partition(is_control_plane);
        for (guests, turns) in [(first, 2), (last, 1)] {
            if guests.is_empty() || calm.is_interrupted {
                continue;
            }
            let left = self.within.saturating_sub(clock.monotonic().saturating_sub(begun));
            let share = (left / turns).min(MOST);
            // Whole seconds are what Proxmox takes.
            let each = Duration::from_secs(waiting(share).as_secs());
            if each.is_zero() {
                let what = guests.iter().map(|guest| guest.name.as_str()).collect::<Vec<_>>().join(", ");
                calm.left.push(Undone { what, why: LATE.to_owned(), next: MORE.to_owned() });
                continue;
            }
            let ground = self.stand.ground(&self.identity.castle, false);
            self.drive(graceful::shut(&ground, &guests, each), share, &mut calm, printer).await?;
        }
        calm.took = clock.monotonic().saturating_sub(begun);
        Ok(calm)
    }

    /// The machines that run. Where nobody knows, there are none: they are switched off as they are.
    async fn running(&self) -> Vec<&Doomed> {
        let client = &self.stand.client;
        let machines = self.doomed.iter().filter(|guest| !guest.is_template);
        let runs = async |guest: &Doomed| client.is_running(&guest.host, guest.vmid).await.ok().flatten() == Some(true);
        let asked =
            futures_util::stream::iter(machines).map(async |guest| (guest, runs(guest).await)).buffered(AT_ONCE);
        asked.filter_map(|(guest, runs)| std::future::ready(runs.then_some(guest))).collect().await
    }

    async fn way(&self) -> Result<Way, Trouble> {
        let access = api_access(&self.stand.kept).await?;
        let doors = &self.stand.kept.doors;
        Ok(Way { access, dial: doors.dial(REACHING), clock: doors.clock.clone() })
    }

    async fn drive(
        &self,
        graph: Result<Graph, GraphError>,
        within: Duration,
        calm: &mut Calm,
        printer: &mut Printer,
    ) -> Result<(), Trouble> {
        let graph = graph.map_err(|error| Trouble::of(&error))?;
        let castle = &self.identity.castle;
        let goes_on = !calm.done.is_empty() || !calm.left.is_empty();
        let bounds = Bounds { within: Some(within), goes_on, ..Bounds::default() };
        let driven = self.stand.drive_with(self.verb, graph, castle, bounds, self.lease, printer).await?;
        calm.is_interrupted = driven.report.interrupted;
        calm.take(&driven.report);
        Ok(())
    }
}

impl Calm {
    fn take(&mut self, report: &Report) {
        for (step, outcome) in &report.outcomes {
            let what = format!("{} {}", step.kind, step.name.trim());
            let undone = |why: String, next: String| Undone { what: what.clone(), why, next };
            match outcome {
                Outcome::Done { .. } if &*step.kind == "api" => {}
                Outcome::Done { .. } => self.done.push(what),
                Outcome::Failed { fault } => {
                    let Fault { subject, evidence, next, .. } = fault;
                    self.left.push(undone(format!("{subject}: {evidence}"), next.clone()));
                }
                Outcome::Remaining if !report.interrupted => {
                    self.left.push(undone(LATE.to_owned(), MORE.to_owned()));
                }
                _ => {}
            }
        }
    }

    /// How it came to rest, for people.
    pub(crate) fn tell(&self, printer: &mut Printer) {
        if !self.done.is_empty() {
            let seconds = self.took.as_secs_f64();
            printer.say(&format!("At rest after {seconds:.1} s: {}", self.done.join(", ")));
        }
        for Undone { what, why, next } in &self.left {
            let next = if next.is_empty() { String::new() } else { format!("\n  next: {next}") };
            printer.complain_to_people(&format!("not graceful: {what}: {why}{next}"));
        }
        if !self.left.is_empty() && !self.is_interrupted {
            printer.complain_to_people("Going on all the same.");
        }
    }

    /// The same for programs.
    pub(crate) fn object(&self) -> Value {
        let left = self.left.iter().map(|left| json!({"what": left.what, "evidence": left.why, "hint": left.next}));
        json!({"seconds": self.took.as_secs_f64(), "done": self.done, "left": left.collect::<Vec<_>>()})
    }
}
