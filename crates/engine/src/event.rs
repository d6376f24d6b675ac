//! What happens, as it happens: one stream that feeds the terminal, `--json` and the timeline.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::change::Change;
use crate::fault::Fault;
use crate::id::StepId;

/// The version of the stream: a reader that knows it understands every event of it.
pub const EVENT_VERSION: u32 = 1;

/// One thing that happened, and when.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The version of the stream.
    pub version: u32,
    /// Since the run began.
    pub at: Duration,
    /// What happened.
    #[serde(flatten)]
    pub what: What,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum What {
    /// The run began.
    RunStarted {
        /// How many steps and gates there are.
        steps: usize,
        /// How long the longest chain will probably take.
        predicted: Duration,
    },
    /// All that a step needs is there.
    StepReady {
        /// The step.
        step: StepId,
    },
    /// A step began.
    StepStarted {
        /// The step.
        step: StepId,
    },
    /// A step is about to do something; that is on disk.
    StepActing {
        /// The step.
        step: StepId,
        /// What it does.
        change: Change,
    },
    /// A step met something that may pass.
    StepRetrying {
        /// The step.
        step: StepId,
        /// What it met.
        fault: Fault,
        /// When it looks again.
        after: Duration,
    },
    /// A gate is closed, for another reason than before.
    GateClosed {
        /// The gate.
        step: StepId,
        /// What it waits for.
        subject: String,
        /// What was seen instead.
        evidence: String,
    },
    /// Nothing has happened for a while: what has run the longest, and how many others run.
    StillRunning {
        /// The step or gate.
        step: StepId,
        /// For how long.
        running: Duration,
        /// What it does or waits for, in words.
        doing: String,
        /// How many others run.
        others: usize,
    },
    /// A step ended.
    StepEnded {
        /// The step.
        step: StepId,
        /// How.
        outcome: Outcome,
    },
    /// A lane got wider or narrower.
    LaneChanged {
        /// The lane.
        lane: String,
        /// How many fit now.
        width: usize,
    },
    /// Someone asked to stop: nothing new is begun.
    Interrupted,
    /// The run ended.
    RunEnded,
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "kebab-case")]
pub enum Outcome {
    /// All is as wanted.
    Done {
        /// How many effects that took.
        effects: u32,
    },
    /// This would be done, were it allowed.
    Planned {
        /// What.
        change: Change,
    },
    /// It would be waited for, were that allowed.
    Waiting {
        /// What it waits for.
        subject: String,
        /// What was seen instead.
        evidence: String,
    },
    /// It did not work.
    Failed {
        /// Why.
        fault: Fault,
    },
    /// It was not begun, because something it needs did not come to be.
    Skipped {
        /// What it needs.
        because: StepId,
    },
    /// It was not finished, because the run was asked to stop.
    Remaining,
}

impl Outcome {
    /// Whether what comes next can build on it.
    #[must_use]
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done { .. })
    }
}

/// Takes events.
pub trait Listener: Send + Sync {
    /// Takes one. It must not wait.
    fn hear(&self, event: &Event);

    /// Whether it takes any: for whoever takes none, none are made.
    fn listens(&self) -> bool {
        true
    }
}

/// Takes events and forgets them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deaf;

impl Listener for Deaf {
    fn hear(&self, _: &Event) {}

    fn listens(&self) -> bool {
        false
    }
}
