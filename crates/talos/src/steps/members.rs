//! Every control plane a voter; and the end of a member whose machine is gone.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Class, Closed, Decision, Fault, Gate, Impact, Operation, Step, Verdict, pace};
use castle_seams::BoxFuture;
use castle_talos_api::machine::EtcdMember;
use futures_util::future::join_all;

use super::etcd::{ControlPlanes, Etcd, Silence};
use super::{Keys, Quorum, Whom, Wire};
use crate::client::{Presence, is_at};

/// How long an etcd that has no quorum yet is left alone at most.
const PERIOD: Duration = Duration::from_secs(1);

/// Open when every control plane is a member of etcd that votes.
pub struct Members {
    wire: Arc<Wire>,
    control_planes: ControlPlanes,
}

/// An etcd in which every control plane votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined;

impl Members {
    /// The gate for these control planes.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>) -> Self {
        Self { wire, control_planes: ControlPlanes::new(control_planes) }
    }

    async fn ask(&self, keys: &Keys) -> Result<Verdict<Joined>, Fault> {
        let all = self.control_planes.all();
        let Some(first) = all.first() else { return Ok(Verdict::Open(Joined)) };
        let (members, missing) = match self.control_planes.ask(&self.wire, keys).await? {
            Etcd::Quorate { members, missing, .. } => (members, missing),
            Etcd::Silent(silence) => return Ok(Verdict::Closed(silence.closed(&[]))),
        };
        // Who votes is told by the address: a member that is left of an earlier machine has the same name.
        let votes = |whom: &Whom| members.iter().any(|member| !member.is_learner && is_at(member, whom.address));
        let Some(late) = all.iter().find(|whom| !votes(whom)) else {
            // A member that is away has its vote, and does not give it.
            let Some((away, how)) = missing.into_iter().next() else { return Ok(Verdict::Open(Joined)) };
            return Ok(Verdict::Closed(Closed {
                subject: away.name,
                evidence: format!("is a member of etcd, and away: {how}"),
                next: format!("talosctl --nodes {} service etcd", away.address),
            }));
        };
        let learns = members.iter().any(|member| member.is_learner && is_at(member, late.address));
        let namesake = members.iter().find(|member| member.hostname == late.name && !is_at(member, late.address));
        let how = match namesake {
            _ if learns => "is a learner, and does not vote yet".to_owned(),
            None => "is no member of etcd yet".to_owned(),
            Some(member) => {
                let url = member.peer_urls.first().map_or("nowhere", String::as_str);
                format!("is no member of etcd yet; the member of its name is at {url}")
            }
        };
        Ok(Verdict::Closed(Closed {
            subject: late.name.clone(),
            evidence: format!("{how} ({} of {} vote)", all.iter().filter(|whom| votes(whom)).count(), all.len()),
            next: format!(
                "talosctl --nodes {} etcd members; talosctl --nodes {} logs etcd",
                first.address, late.address
            ),
        }))
    }
}

impl Gate for Members {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = Joined;

    fn check<'a>(&'a self, (keys, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Joined>, Fault>> {
        Box::pin(async move {
            match quorum.unseen() {
                Some(closed) => Ok(Verdict::Closed(closed)),
                None => self.ask(keys).await,
            }
        })
    }

    fn period(&self) -> Duration {
        PERIOD
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }
}

/// Which of these control planes leads etcd, if one of them says so.
pub async fn leader(wire: &Wire, keys: &Keys, control_planes: Vec<Whom>) -> Option<String> {
    let control_planes = ControlPlanes::new(control_planes);
    let contacts = control_planes.contacts(wire, keys).ok()?;
    let said = join_all(contacts.iter().map(|contact| contact.running().etcd_status())).await;
    let mut all = control_planes.all().iter().zip(said);
    let leads = all.find(|(_, said)| said.as_ref().is_ok_and(|status| status.leader == status.member_id));
    leads.map(|(whom, _)| whom.name.clone())
}

/// Takes the member of a control plane out of etcd whose machine is gone, through those that are left.
///
/// Nothing is made in its place before that: without a quorum of the others nothing is made and nothing removed. `P` is the proof that
/// there is no such machine.
pub struct ForgetMember<P> {
    wire: Arc<Wire>,
    lost: Whom,
    /// All that are gone, this one among them.
    gone: Vec<String>,
    survivors: ControlPlanes,
    /// Whether machines of those that are left were off before this run: it starts them, and they have to find each other.
    wakes: bool,
    proof: std::marker::PhantomData<fn() -> P>,
}

/// What the others know of a control plane that is gone.
#[derive(Debug)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// A member.
    Member {
        /// Its number.
        id: u64,
        /// Which of the others told it.
        told_by: usize,
    },
    /// They cannot be asked at the moment, and nobody waits for them.
    Unknown(String),
}

impl<P> ForgetMember<P> {
    /// The step for this control plane of all that are gone, and those that are left.
    #[must_use]
    pub fn new(wire: Arc<Wire>, lost: Whom, gone: Vec<String>, survivors: Vec<Whom>) -> Self {
        let survivors = ControlPlanes::new(survivors);
        Self { wire, lost, gone, survivors, wakes: false, proof: std::marker::PhantomData }
    }

    /// The same where machines of those that are left were off, and are started before.
    #[must_use]
    pub fn waking(self, wakes: bool) -> Self {
        Self { wakes, ..self }
    }

    async fn look(&self, keys: &Keys) -> Result<Left, Fault> {
        if let Presence::Running(_) = self.wire.contact(&self.lost, keys)?.probe().await {
            let evidence = format!("answers at {}, and the hypervisor shows no machine for it", self.lost.address);
            let next = "may the token see that machine? castle doctor; or is it on another hypervisor?";
            return Err(Fault::guard(&self.lost.name, evidence).next(next));
        }
        let clock = self.wire.clock.as_ref();
        let begun = clock.monotonic();
        loop {
            let silence = match self.survivors.ask(&self.wire, keys).await? {
                Etcd::Quorate { members, told_by, .. } => {
                    let id = members.iter().find(|member| self.is_it(member)).map(|member| member.id);
                    return Ok(id.map_or(Left::Nothing, |id| Left::Member { id, told_by }));
                }
                Etcd::Silent(silence) => silence,
            };
            let waited = clock.monotonic().saturating_sub(begun);
            let is_starting = silence.is_starting || (self.wakes && silence.misses_any());
            if !is_starting || (waited >= self.wire.patience && !self.wire.is_looking()) {
                return Err(self.without_quorum(&silence));
            }
            if self.wire.is_looking() {
                return Ok(Left::Unknown(silence.closed(&[]).evidence));
            }
            clock.sleep(pace(waited, PERIOD)).await;
        }
    }

    fn without_quorum(&self, silence: &Silence) -> Fault {
        silence.fault(&self.gone.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Whether a member is the one that is gone: at its address, or of its name and not at that of anybody else.
    fn is_it(&self, member: &EtcdMember) -> bool {
        let is_others = self.survivors.all().iter().any(|whom| is_at(member, whom.address));
        is_at(member, self.lost.address) || (member.hostname == self.lost.name && !is_others)
    }
}

impl<P: Send + Sync + 'static> Step for ForgetMember<P> {
    type Needs = (Arc<Keys>, Arc<P>);
    type Observed = Left;
    type Output = ();

    fn observe<'a>(&'a self, (keys, _): &'a Self::Needs) -> BoxFuture<'a, Result<Left, Fault>> {
        Box::pin(self.look(keys))
    }

    fn decide(&self, _: &Self::Needs, left: &Left) -> Decision {
        let member = |is: String| {
            let forget = Change::new("forget", Impact::Destroy);
            Decision::Change(forget.differing("member of etcd", Some(is), None))
        };
        match left {
            Left::Nothing => Decision::Nothing,
            Left::Member { .. } => member(format!("{} at {}", self.lost.name, self.lost.address)),
            Left::Unknown(why) => member(format!("cannot be asked: {why}")),
        }
    }

    fn act<'a>(
        &'a self,
        (keys, _): &'a Self::Needs,
        left: &'a Left,
        _: &'a Change,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Left::Member { id, told_by } = left else {
                return Err(Fault::new(Class::RefusedBeforeEffect, "etcd", "cannot be asked who its members are"));
            };
            let contacts = self.survivors.contacts(&self.wire, keys)?;
            let Some(survivor) = contacts.get(*told_by) else { return Ok(()) };
            Ok(survivor.running().remove_etcd_member(*id).await?)
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Left, _: &Change) -> Option<()> {
        Some(())
    }

    fn output(&self, _: &Self::Needs, _: &Left) {}
}
