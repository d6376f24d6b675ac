//! One bootstrap in the life of a cluster, however often it is tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use castle_engine::{Change, Class, Closed, Decision, Fault, Impact, Operation, Step, pace};
use castle_seams::BoxFuture;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;

use super::awaited::Awaited;
use super::etcd::{ControlPlanes, Remembered};
use super::{Configured, How, Keys, Whom, Wire};
use crate::client::{Contact, ErrorClass, EtcdData, Refusal};

/// How long a control plane that cannot tell yet is left alone at most.
const PERIOD: Duration = Duration::from_millis(500);

/// How long a control plane that has started may take until etcd can begin on it: longer than it takes to start the runtime.
const READY: Duration = Duration::from_secs(60);
/// How long an etcd that was told to begin may take until it has data: its image may have to be pulled first.
const PULLING: Duration = Duration::from_secs(5 * 60);

/// What to do about control planes that may have an etcd, and that nobody can ask.
const PUT_BACK: &str = "put them back into castle.yaml (nodes.controlPlanes), where they were made, and run this again";

/// Starts etcd on the control plane that was chosen for it, once in the life of a cluster.
///
/// That it has begun is remembered outside of the nodes; with that, this step never begins it. Without it every control plane that was made
/// in this life is asked first, and must show that it has no data of etcd: one that does not answer, or whose disk is not mounted yet, may have
/// some, and so may one that the file does not name any more.
pub struct Bootstrap {
    wire: Arc<Wire>,
    control_planes: ControlPlanes,
    remembered: Remembered,
    /// Whether it was told to begin in this run, and nobody has waited for that yet.
    is_told: AtomicBool,
    awaited: Awaited,
}

/// Whether an etcd has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begun {
    /// One of the control planes has its data.
    Yes,
    /// It is remembered; those that have its data were not seen, and nobody waits for them.
    Remembered,
    /// All that are there have shown that they have no data.
    No,
    /// Those that could tell do not answer, and nobody waits for them.
    Unknown,
}

/// What is waited for of the control plane that etcd begins on.
#[derive(Clone, Copy)]
enum Until {
    /// That it can begin, as its service says.
    Readiness,
    /// That it has begun, as its data say.
    Data,
}

impl Until {
    fn evidence(self) -> &'static str {
        match self {
            Self::Readiness => "its etcd is not ready to begin yet",
            Self::Data => "its etcd has begun and has no data yet: its image may have to be pulled first",
        }
    }
}

/// An etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    /// Whether it has begun; whoever only looks may be told of one that is yet to come.
    begun: Begun,
}

impl Quorum {
    /// Whether it has been seen.
    #[must_use]
    pub fn is_seen(self) -> bool {
        self.begun == Begun::Yes
    }

    /// Why a gate is closed behind an etcd that nobody has seen.
    #[must_use]
    pub fn unseen(self) -> Option<Closed> {
        let (evidence, next) = match self.begun {
            Begun::Yes => return None,
            Begun::Remembered => (
                "has begun, and no control plane that has its data answers",
                "castle up starts those that are off, and waits for the others",
            ),
            Begun::No => ("has not begun", "castle up"),
            Begun::Unknown => ("has not begun, or its control planes do not answer", "castle up"),
        };
        Some(Closed { subject: "etcd".to_owned(), evidence: evidence.to_owned(), next: next.to_owned() })
    }
}

impl Bootstrap {
    /// The step for these control planes, of whose etcd this is remembered.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>, remembered: Remembered) -> Self {
        let (is_told, awaited) = (AtomicBool::new(false), Awaited::default());
        Self { wire, control_planes: ControlPlanes::new(control_planes), remembered, is_told, awaited }
    }

    /// The control plane that etcd begins on.
    fn first(&self) -> Option<&Whom> {
        let all = self.control_planes.all();
        match &self.remembered.first {
            Some(name) => all.iter().find(|whom| whom.name == *name),
            None => all.first(),
        }
    }

    async fn look(&self, keys: &Keys, configured: &[Arc<Configured>]) -> Result<Begun, Fault> {
        self.awaited.end();
        let contacts = self.control_planes.contacts(&self.wire, keys)?;
        let mut asked: FuturesUnordered<_> = configured
            .iter()
            .zip(contacts)
            .filter(|(node, _)| node.how == How::Seen)
            .map(|(node, contact)| self.ask(&node.whom, contact))
            .collect();
        let is_anyone_seen = !asked.is_empty();
        let mut silent = configured
            .iter()
            .find(|node| node.how == How::Silent)
            .map(|node| unknown(&node.whom, Class::Final, "does not answer"));
        while let Some(answer) = asked.next().await {
            match answer {
                // Whatever the others say, it has begun.
                Ok(EtcdData::There) => return Ok(Begun::Yes),
                Ok(EtcdData::Empty) => {}
                Err(fault) => silent = silent.or(Some(fault)),
            }
        }
        if self.remembered.began.is_none()
            && let Some(fault) = self.objection()
        {
            return Err(fault);
        }
        let is_looking = self.wire.is_looking();
        let is_anyone_expected = configured.iter().any(|node| node.how == How::Expected);
        match (silent, &self.remembered.began) {
            (Some(_), Some(_)) if is_looking => Ok(Begun::Remembered),
            (Some(_), None) if is_looking => Ok(Begun::Unknown),
            (Some(fault), _) => Err(fault),
            (None, Some(_)) if is_anyone_expected => Ok(Begun::Remembered),
            (None, Some(evidence)) => Err(self.lost(evidence)),
            (None, None) if is_anyone_seen || is_looking => {
                let Some(first) = self.first_of(contacts) else { return Ok(Begun::No) };
                if self.is_told.swap(false, Ordering::Relaxed) {
                    let has_begun = self.until(first, Until::Data, PULLING).await;
                    return Ok(if has_begun { Begun::Yes } else { Begun::No });
                }
                // Asked before it is ready it refuses. Not for long: what it waits for it tells best by its refusal.
                self.until(first, Until::Readiness, READY).await;
                Ok(Begun::No)
            }
            (None, None) => Err(Fault::new(Class::Final, "etcd", "there is no control plane to begin on")),
        }
    }

    /// Whether a control plane has data of etcd. While it starts it cannot tell, and is waited for.
    async fn ask(&self, whom: &Whom, contact: &Contact) -> Result<EtcdData, Fault> {
        let clock = self.wire.clock.as_ref();
        let begun = clock.monotonic();
        loop {
            let refusal = match contact.running().etcd_data().await {
                Ok(data) => {
                    self.awaited.end_of(&whom.name);
                    return Ok(data);
                }
                Err(refusal) => refusal,
            };
            let waited = clock.monotonic().saturating_sub(begun);
            let untold = format!("does not tell whether it has data of etcd: {}", refusal.sentence);
            if waited >= self.wire.patience {
                // It was waited for as long as it may take: once more would be no different.
                return Err(unknown(whom, Class::Final, &untold));
            }
            if is_final(&refusal) {
                return Err(unknown(whom, Class::RefusedBeforeEffect, &untold));
            }
            self.awaited.wait_for(&whom.name, &untold);
            clock.sleep(pace(waited, PERIOD)).await;
        }
    }

    /// The way to the control plane that etcd begins on.
    fn first_of<'c>(&self, contacts: &'c [Contact]) -> Option<&'c Contact> {
        let first = &self.first()?.name;
        contacts.iter().find(|contact| contact.running().name() == first)
    }

    /// Waits within a bound until it is so of a control plane, and says whether it is.
    async fn until(&self, contact: &Contact, until: Until, bound: Duration) -> bool {
        let clock = self.wire.clock.as_ref();
        let begun = clock.monotonic();
        loop {
            let is_so = match until {
                Until::Readiness => {
                    let services = contact.running().services().await.unwrap_or_default();
                    services.iter().any(|service| service.id == "etcd" && service.state == "Preparing")
                }
                Until::Data => matches!(contact.running().etcd_data().await, Ok(EtcdData::There)),
            };
            let waited = clock.monotonic().saturating_sub(begun);
            if is_so || waited >= bound.min(self.wire.patience) {
                return is_so;
            }
            self.awaited.wait_for(contact.running().name(), until.evidence());
            clock.sleep(pace(waited, PERIOD)).await;
        }
    }

    /// Why it begins nowhere, whatever the control planes of the file say.
    fn objection(&self) -> Option<Fault> {
        if !self.remembered.others.is_empty() {
            let evidence = format!("may have begun on control planes that nobody can ask: {}", self.others());
            return Some(
                Fault::guard("etcd", evidence)
                    .next(format!("{PUT_BACK}; or begin anew, without what is on them: castle down, then castle up")),
            );
        }
        let name = self.remembered.first.as_deref()?;
        if self.first().is_some() {
            return None;
        }
        let evidence = format!("begins on {name} in this life of the castle, and the file does not name it");
        Some(Fault::guard("etcd", evidence).next(format!("name {name} in castle.yaml again")))
    }

    /// Control planes that nobody asks.
    fn others(&self) -> String {
        self.remembered.others.join(", ")
    }

    /// It has begun, and nobody has its data any more.
    fn lost(&self, evidence: &str) -> Fault {
        if !self.remembered.others.is_empty() {
            let evidence = format!(
                "is on none of the control planes that castle.yaml names: {evidence}, and others may have it: {}",
                self.others()
            );
            return Fault::guard("etcd", evidence).next(PUT_BACK);
        }
        let names: Vec<&str> = self.control_planes.all().iter().map(|whom| whom.name.as_str()).collect();
        let evidence =
            format!("is lost: {evidence}, and none of its control planes has its data: {}", names.join(", "));
        Fault::guard("etcd", evidence).next(
            "restore the disk of a control plane from a backup, under its own VMID; or begin a new life, without what was in etcd: castle down, then castle up",
        )
    }
}

/// Which of these control planes has data of etcd, if one of them says so at once. All are asked at the same time.
pub async fn holder(wire: &Wire, keys: &Keys, control_planes: Vec<Whom>) -> Option<String> {
    let control_planes = ControlPlanes::new(control_planes);
    let contacts = control_planes.contacts(wire, keys).ok()?;
    let ask = async |contact: &Contact| contact.running().etcd_data().await;
    let said = join_all(contacts.iter().map(ask)).await;
    let mut all = control_planes.all().iter().zip(said);
    all.find(|(_, said)| matches!(said, Ok(EtcdData::There))).map(|(whom, _)| whom.name.clone())
}

fn is_final(refusal: &Refusal) -> bool {
    matches!(
        refusal.class,
        ErrorClass::Forbidden | ErrorClass::Unsupported | ErrorClass::Unwelcome | ErrorClass::Stranger
    )
}

fn unknown(whom: &Whom, class: Class, how: &str) -> Fault {
    let evidence = format!("{how}; castle begins no etcd while it may have one");
    Fault::new(class, &whom.name, evidence)
        .next(format!("talosctl --nodes {0} service etcd; talosctl --nodes {0} dmesg", whom.address))
}

impl Step for Bootstrap {
    type Needs = (Arc<Keys>, Vec<Arc<Configured>>);
    type Observed = Begun;
    type Action = ();
    type Output = Quorum;

    fn observe<'a>(&'a self, (keys, configured): &'a Self::Needs) -> BoxFuture<'a, Result<Begun, Fault>> {
        Box::pin(self.look(keys, configured))
    }

    fn awaits(&self) -> Option<Closed> {
        self.awaited.told()
    }

    fn decide(&self, _: &Self::Needs, begun: &Begun) -> Decision {
        match begun {
            Begun::Yes | Begun::Remembered | Begun::Unknown => Decision::Nothing,
            Begun::No => {
                let first = self.first().map(|whom| whom.name.clone()).or_else(|| self.remembered.first.clone());
                Decision::Act((), Change::new("bootstrap", Impact::Create).differing("etcd", None, first))
            }
        }
    }

    fn act<'a>(
        &'a self,
        (keys, _): &'a Self::Needs,
        _: &'a Begun,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some(first) = self.first() else {
                return Err(Fault::guard("etcd", "there is no control plane to begin on"));
            };
            self.wire.contact(first, keys)?.running().bootstrap().await?;
            self.is_told.store(true, Ordering::Relaxed);
            Ok(())
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Begun) -> Option<Quorum> {
        Some(Quorum { begun: Begun::No })
    }

    fn output(&self, _: &Self::Needs, begun: &Begun) -> Quorum {
        Quorum { begun: *begun }
    }
}
