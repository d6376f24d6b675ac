//! Steps and gates: what vendors' crates implement.

use std::time::Duration;

use castle_seams::BoxFuture;

use crate::change::{Change, Decision};
use crate::fault::Fault;
use crate::id::OperationId;

/// What an effect is done as.
#[derive(Clone, Debug)]
pub struct Operation {
    /// The name of the effect, the same after any crash.
    pub id: OperationId,
    /// Which writer does it: an effect is marked with it, and a writer that meets a higher one stops.
    pub epoch: u64,
}

/// Something wanted of the world, reached by looking, deciding, and doing one thing at a time.
///
/// What it needs of other steps comes as typed values. A value is never printed or stored by the engine, so a secret among
/// them stays where it is put.
pub trait Step: Send + Sync + 'static {
    /// What other steps must have given: a tuple of `Arc`s, see [`crate::Needs`].
    type Needs: Send + Sync + 'static;
    /// What looking tells.
    type Observed: Send + Sync + 'static;
    /// What it may do: one of its effects, with what doing it takes. Nothing to tell apart where there is only one.
    type Action: Send + Sync + 'static;
    /// What this step gives to others.
    type Output: Send + Sync + 'static;

    /// Looks. Never changes anything.
    fn observe<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Self::Observed, Fault>>;

    /// What a look waits for that has not come to its end: for the people who wait with it.
    fn awaits(&self) -> Option<Closed> {
        None
    }

    /// What comes next, from what was seen alone.
    fn decide(&self, needs: &Self::Needs, observed: &Self::Observed) -> Decision<Self::Action>;

    /// Does the one thing decided on. The engine has written down that it will, and looks again afterwards whatever this
    /// returns.
    fn act<'a>(
        &'a self,
        needs: &'a Self::Needs,
        observed: &'a Self::Observed,
        action: &'a Self::Action,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>>;

    /// What this step will give once it has done what there is to do, as far as that is known beforehand. A plan goes on from it; a
    /// run that changes things never does.
    fn expect(&self, _needs: &Self::Needs, _observed: &Self::Observed) -> Option<Self::Output> {
        None
    }

    /// What this step will do where nothing can be looked at yet, because what it needs is itself only planned. Nothing if that
    /// cannot be told beforehand.
    fn foresee(&self) -> Option<Change> {
        None
    }

    /// What this step gives, once there is nothing left to do.
    fn output(&self, needs: &Self::Needs, observed: &Self::Observed) -> Self::Output;
}

/// Why a gate is not open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// What it waits for: a node, an object.
    pub subject: String,
    /// What was seen instead.
    pub evidence: String,
    /// What someone could do to find out more.
    pub next: String,
}

/// What a gate says when asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    /// It is as it should be.
    Open(T),
    /// Not yet.
    Closed(Closed),
}

/// A question to the world whose yes proves that what comes next will work.
pub trait Gate: Send + Sync + 'static {
    /// What other steps must have given.
    type Needs: Send + Sync + 'static;
    /// What an open gate gives to others.
    type Output: Send + Sync + 'static;

    /// Asks. Never changes anything.
    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Self::Output>, Fault>>;

    /// What is given to whoever only looks, although the gate is closed: what lies behind it is there, and can be looked at by another way.
    fn detour<'a>(&'a self, _needs: &'a Self::Needs) -> BoxFuture<'a, Option<Self::Output>> {
        Box::pin(async { None })
    }

    /// Completes when asking again is worth while. A gate that cannot watch is asked again and again,
    /// the less often the longer it stays closed.
    fn changed<'a>(&'a self, _needs: &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        None
    }

    /// How often to ask, at the latest.
    fn period(&self) -> Duration {
        Duration::from_secs(2)
    }

    /// How long it may stay closed before that is a failure.
    fn deadline(&self) -> Duration;
}
