//! One bootstrap, however often it is tried.

use std::sync::Arc;

use castle_engine::{Change, Decision, Fault, Impact, Operation, Step};
use castle_seams::BoxFuture;

use super::{Configured, Keys, Whom, Wire};
use crate::client::ErrorClass;

/// Starts etcd on the first control plane, once in the life of a cluster.
///
/// Every control plane is asked for members first: a cluster that any of them knows of is not begun a second time. So all of them must
/// answer before it is done.
pub struct Bootstrap {
    wire: Arc<Wire>,
    control_planes: Vec<Whom>,
}

/// An etcd that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum;

impl Bootstrap {
    /// The step for these control planes; the first of them begins.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>) -> Self {
        Self { wire, control_planes }
    }

    /// Whether any of them knows of a member.
    async fn has_begun(&self, keys: &Keys) -> Result<bool, Fault> {
        let mut silent = None;
        for whom in &self.control_planes {
            match self.wire.contact(whom, keys)?.running().etcd_members().await {
                Ok(members) if !members.is_empty() => return Ok(true),
                Ok(_) => {}
                // It has no etcd yet: that is an answer.
                Err(refusal)
                    if matches!(refusal.class, ErrorClass::NotYet | ErrorClass::Unavailable | ErrorClass::Missing) => {}
                Err(refusal) => silent = silent.or(Some(refusal)),
            }
        }
        match silent {
            // Whoever only looks takes a silent cluster for one that has not begun.
            Some(_) if self.wire.patience.is_zero() => Ok(false),
            Some(refusal) => Err(refusal.into()),
            None => Ok(false),
        }
    }
}

impl Step for Bootstrap {
    type Needs = (Arc<Keys>, Vec<Arc<Configured>>);
    type Observed = bool;
    type Output = Quorum;

    fn observe<'a>(&'a self, (keys, _): &'a Self::Needs) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(self.has_begun(keys))
    }

    fn decide(&self, _: &Self::Needs, has_begun: &bool) -> Decision {
        if *has_begun {
            return Decision::Nothing;
        }
        let first = self.control_planes.first().map(|whom| whom.name.clone());
        Decision::Change(Change::new("bootstrap", Impact::Create).differing("etcd", None, first))
    }

    fn act<'a>(
        &'a self,
        (keys, _): &'a Self::Needs,
        _: &'a bool,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some(first) = self.control_planes.first() else { return Ok(()) };
            self.wire.contact(first, keys)?.running().bootstrap().await?;
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &bool, _: &Change) -> Option<Quorum> {
        Some(Quorum)
    }

    fn output(&self, _: &Self::Needs, _: &bool) -> Quorum {
        Quorum
    }
}
