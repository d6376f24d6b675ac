//! Steps and gates without their types, as the scheduler handles them.

use std::any::Any;
use std::time::Duration;

use castle_seams::BoxFuture;

use crate::change::{Change, Decision};
use crate::fault::Fault;
use crate::step::{Closed, Gate, Operation, Step, Verdict};
use crate::value::{Needs, Outputs, Value};

/// What a look at a step's part of the world came to.
pub(crate) struct Seen {
    /// What comes next, if anything does.
    pub(crate) change: Option<Change>,
    /// What the step gives, if there is nothing left to do; otherwise what it will give, if that is known.
    pub(crate) output: Option<Value>,
    /// What was observed, and the action that was decided on: of the step's own types.
    decided: Box<dyn Any + Send + Sync>,
}

pub(crate) trait AnyStep: Send + Sync {
    fn foresee(&self) -> Option<Change>;
    /// Whether all values that it needs have been given.
    fn is_fed(&self, outputs: &Outputs) -> bool;
    fn observe<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Result<Seen, Fault>>;
    /// What a look that goes on waits for.
    fn awaits(&self) -> Option<Closed>;
    fn act<'a>(
        &'a self,
        outputs: &'a Outputs,
        seen: &'a Seen,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>>;
}

pub(crate) trait AnyGate: Send + Sync {
    fn check<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Result<Result<Value, Closed>, Fault>>;
    fn detour<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Option<Value>>;
    /// Completes when asking again is worth while; nothing if the gate cannot watch.
    fn changed<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Option<()>>;
    fn period(&self) -> Duration;
    fn deadline(&self) -> Duration;
}

/// Something and its needs.
pub(crate) struct With<N, S> {
    pub(crate) needs: N,
    pub(crate) inner: S,
}

impl<N: Needs, S> With<N, S> {
    /// The scheduler starts nothing before its needs are met, so this does not fail.
    fn needs(&self, outputs: &Outputs) -> Result<N::Values, Fault> {
        outputs.fetch(&self.needs).ok_or_else(|| Fault::defect("a step was started before its needs were met"))
    }
}

impl<N: Needs, S: Step<Needs = N::Values>> AnyStep for With<N, S> {
    fn foresee(&self) -> Option<Change> {
        self.inner.foresee()
    }

    fn is_fed(&self, outputs: &Outputs) -> bool {
        outputs.fetch(&self.needs).is_some()
    }

    fn awaits(&self) -> Option<Closed> {
        self.inner.awaits()
    }

    fn observe<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move {
            let needs = self.needs(outputs)?;
            let observed = self.inner.observe(&needs).await?;
            let (action, change, output) = match self.inner.decide(&needs, &observed) {
                Decision::Nothing => (None, None, Some(self.inner.output(&needs, &observed))),
                Decision::Act(action, change) => (Some(action), Some(change), self.inner.expect(&needs, &observed)),
            };
            let output = output.map(|output| outputs.value(output));
            Ok(Seen { change, output, decided: Box::new((observed, action)) })
        })
    }

    fn act<'a>(
        &'a self,
        outputs: &'a Outputs,
        seen: &'a Seen,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let needs = self.needs(outputs)?;
            match seen.decided.downcast_ref::<(S::Observed, Option<S::Action>)>() {
                Some((observed, Some(action))) => self.inner.act(&needs, observed, action, operation).await,
                _ => Err(Fault::defect("a step was to act that had not decided on anything")),
            }
        })
    }
}

impl<N: Needs, G: Gate<Needs = N::Values>> AnyGate for With<N, G> {
    fn check<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Result<Result<Value, Closed>, Fault>> {
        Box::pin(async move {
            let needs = self.needs(outputs)?;
            Ok(match self.inner.check(&needs).await? {
                Verdict::Open(output) => Ok(outputs.value(output)),
                Verdict::Closed(closed) => Err(closed),
            })
        })
    }

    fn detour<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Option<Value>> {
        Box::pin(async move {
            let needs = self.needs(outputs).ok()?;
            self.inner.detour(&needs).await.map(|output| outputs.value(output))
        })
    }

    fn changed<'a>(&'a self, outputs: &'a Outputs) -> BoxFuture<'a, Option<()>> {
        Box::pin(async move {
            let needs = self.needs(outputs).ok()?;
            self.inner.changed(&needs)?.await;
            Some(())
        })
    }

    fn period(&self) -> Duration {
        self.inner.period()
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }
}
