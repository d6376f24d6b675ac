//! One bootstrap, however often it is tried.

use std::sync::Arc;

use castle_engine::{Change, Class, Closed, Decision, Fault, Impact, Operation, Step};
use castle_seams::BoxFuture;

use super::{Configured, How, Keys, Whom, Wire};

/// Starts etcd on the first control plane, once in the life of a cluster.
///
/// Every control plane is asked first: a cluster that any of them knows of is not begun a second time. So all of them must answer
/// before it is done.
pub struct Bootstrap {
    wire: Arc<Wire>,
    control_planes: Vec<Whom>,
}

/// Whether an etcd has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// One of the control planes is a member.
    Yes,
    /// All that are there wait for it.
    No,
    /// Those that could tell do not answer, and nobody waits for them.
    Unknown,
}

/// An etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// Whether it has been seen; whoever only looks may be told of one that is yet to come.
    pub is_seen: bool,
}

impl Quorum {
    /// Why a gate is closed behind an etcd that nobody has seen.
    #[must_use]
    pub fn unseen(self) -> Option<Closed> {
        (!self.is_seen).then(|| Closed {
            subject: "etcd".to_owned(),
            evidence: "has not begun, or its nodes do not answer".to_owned(),
            next: "castle up".to_owned(),
        })
    }
}

impl Bootstrap {
    /// The step for these control planes; the first of them begins.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>) -> Self {
        Self { wire, control_planes }
    }

    async fn look(&self, keys: &Keys, configured: &[Arc<Configured>]) -> Result<Begun, Fault> {
        let (mut is_anyone_seen, mut silent) = (false, None);
        for node in configured {
            match node.how {
                How::Expected => continue,
                How::Silent => silent = silent.or(Some(self.silence(&node.whom))),
                How::Seen => {
                    is_anyone_seen = true;
                    match self.ask(&node.whom, keys).await {
                        Ok(true) => return Ok(Begun::Yes),
                        Ok(false) => {}
                        Err(fault) => silent = silent.or(Some(fault)),
                    }
                }
            }
        }
        match silent {
            Some(_) if self.wire.is_looking() => Ok(Begun::Unknown),
            Some(fault) => Err(fault),
            None if is_anyone_seen || self.wire.is_looking() => Ok(Begun::No),
            None => Err(Fault::new(Class::Final, "etcd", "there is no control plane to begin on")),
        }
    }

    fn silence(&self, whom: &Whom) -> Fault {
        Fault::new(Class::RefusedBeforeEffect, &whom.name, "does not answer, and may know of an etcd")
    }

    /// Whether a control plane knows of members, or runs an etcd of its own.
    ///
    /// A list of members alone would not do: an etcd that is starting gives none, and one that never began gives none either.
    async fn ask(&self, whom: &Whom, keys: &Keys) -> Result<bool, Fault> {
        let contact = self.wire.contact(whom, keys)?;
        let members = contact.running().etcd_members().await;
        if members.is_ok_and(|members| !members.is_empty()) {
            return Ok(true);
        }
        let services = contact.running().services().await?;
        let runs = services.iter().any(|service| service.id == "etcd" && service.state == "Running");
        if !runs {
            return Ok(false);
        }
        let evidence =
            "runs an etcd that knows of no members: it is starting, or its disk has the data of an earlier cluster";
        let next = format!(
            "talosctl --nodes {address} logs etcd; if the data are of an earlier cluster: \
             talosctl --nodes {address} reset --system-labels-to-wipe EPHEMERAL --reboot",
            address = whom.address
        );
        Err(Fault::new(Class::RetryableAfter(None), &whom.name, evidence).next(next))
    }
}

impl Step for Bootstrap {
    type Needs = (Arc<Keys>, Vec<Arc<Configured>>);
    type Observed = Begun;
    type Output = Quorum;

    fn observe<'a>(&'a self, (keys, configured): &'a Self::Needs) -> BoxFuture<'a, Result<Begun, Fault>> {
        Box::pin(self.look(keys, configured))
    }

    fn decide(&self, _: &Self::Needs, begun: &Begun) -> Decision {
        match begun {
            Begun::Yes | Begun::Unknown => Decision::Nothing,
            Begun::No => {
                let first = self.control_planes.first().map(|whom| whom.name.clone());
                Decision::Change(Change::new("bootstrap", Impact::Create).differing("etcd", None, first))
            }
        }
    }

    fn act<'a>(
        &'a self,
        (keys, _): &'a Self::Needs,
        _: &'a Begun,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some(first) = self.control_planes.first() else { return Ok(()) };
            self.wire.contact(first, keys)?.running().bootstrap().await?;
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Begun, _: &Change) -> Option<Quorum> {
        Some(Quorum { is_seen: false })
    }

    fn output(&self, _: &Self::Needs, begun: &Begun) -> Quorum {
        Quorum { is_seen: *begun == Begun::Yes }
    }
}
