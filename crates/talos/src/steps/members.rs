//! Every control plane a voter; and the end of a member whose machine is gone.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Class, Closed, Decision, Fault, Gate, Impact, Operation, Step, Verdict, pace};
use castle_seams::BoxFuture;
use castle_talos_api::machine::EtcdMember;
use futures_util::StreamExt as _;
use futures_util::future::{join, join_all};
use futures_util::stream::FuturesUnordered;

use super::awaited::Awaited;
use super::etcd::{ControlPlanes, Etcd, Silence};
use super::{Keys, Quorum, Whom, Wire};
use crate::client::{Contact, EtcdData, Presence, is_at};

/// How long an etcd that has no quorum yet is left alone at most.
const PERIOD: Duration = Duration::from_secs(1);

/// Open when every control plane is a member of etcd that votes.
pub struct Members {
    wire: Arc<Wire>,
    control_planes: ControlPlanes,
    /// Those that nobody waits for: they are not well, and are still to change.
    ailing: BTreeSet<String>,
    /// Whether one more, which is none of them, is to be away for a while.
    spares_one: bool,
}

/// An etcd in which every control plane votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined;

impl Members {
    /// The gate for these control planes.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>) -> Self {
        Self { wire, control_planes: ControlPlanes::new(control_planes), ailing: BTreeSet::new(), spares_one: false }
    }

    /// The same, which waits for none of these.
    #[must_use]
    pub fn without(self, ailing: BTreeSet<String>) -> Self {
        Self { ailing, ..self }
    }

    /// The same, where this one is about to be away for a while, if it is one of them: all others vote, and are a quorum without it.
    #[must_use]
    pub fn sparing(self, name: &str) -> Self {
        let all = self.control_planes.all();
        let others: Vec<Whom> = all.iter().filter(|whom| whom.name != name).cloned().collect();
        let spares_one = others.len() < all.len();
        Self { control_planes: ControlPlanes::new(others), spares_one, ..self }
    }

    /// Why one that is to be away is missed: whoever else has a vote, and is no control plane of the castle, gives none; nor does one that is away.
    fn missed(&self, members: &[EtcdMember], missing: &[(Whom, String)]) -> Option<Closed> {
        let (others, voters) = (self.control_planes.all(), members.iter().filter(|member| !member.is_learner).count());
        let gives = |whom: &&Whom| votes(whom, members) && missing.iter().all(|(away, _)| away.name != whom.name);
        let left = others.iter().filter(gives).count();
        // Of two castle knows no better: neither of them can ever be spared.
        let is_held = others.len() < 2 || is_quorum(left, voters);
        let first = others.first().filter(|_| self.spares_one && !is_held)?;
        Some(Closed {
            subject: "etcd".to_owned(),
            evidence: format!("would lose its quorum: {voters} vote, and {left} of them would be left"),
            next: format!("talosctl --nodes {} etcd members", first.address),
        })
    }

    async fn ask(&self, keys: &Keys) -> Result<Verdict<Joined>, Fault> {
        let all = self.control_planes.all();
        let Some(first) = all.first() else { return Ok(Verdict::Open(Joined)) };
        let (members, missing) = match self.control_planes.ask(&self.wire, keys).await? {
            Etcd::Quorate { members, missing, .. } => (members, missing),
            Etcd::Silent(silence) => return Ok(Verdict::Closed(silence.closed(&[]))),
        };
        let is_awaited = |whom: &&Whom| !self.ailing.contains(&whom.name);
        let votes = |whom: &Whom| votes(whom, &members);
        let Some(late) = all.iter().filter(is_awaited).find(|whom| !votes(whom)) else {
            let missed = self.missed(&members, &missing);
            // A member that is away has its vote, and does not give it.
            let Some((away, how)) = missing.into_iter().find(|(whom, _)| is_awaited(&whom)) else {
                return Ok(missed.map_or(Verdict::Open(Joined), Verdict::Closed));
            };
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

/// Whether a control plane has a vote. Told by the address: a member that is left of an earlier machine has the same name.
fn votes(whom: &Whom, members: &[EtcdMember]) -> bool {
    members.iter().any(|member| !member.is_learner && is_at(member, whom.address))
}

/// Whether so many of these voters decide without the others.
fn is_quorum(some: usize, voters: usize) -> bool {
    some > voters / 2
}

/// Which of these control planes give no vote, as far as anybody says.
///
/// # Errors
///
/// If there is no way to one of them.
pub async fn voiceless(wire: &Wire, keys: &Keys, control_planes: Vec<Whom>) -> Result<Vec<String>, Fault> {
    let control_planes = ControlPlanes::new(control_planes);
    let gives = match control_planes.ask(wire, keys).await? {
        Etcd::Silent(_) => return Ok(control_planes.all().iter().map(|whom| whom.name.clone()).collect()),
        Etcd::Quorate { members, missing, .. } => {
            let is_away = move |whom: &Whom| missing.iter().any(|(away, _)| away.name == whom.name);
            move |whom: &Whom| votes(whom, &members) && !is_away(whom)
        }
    };
    Ok(control_planes.all().iter().filter(|whom| !gives(whom)).map(|whom| whom.name.clone()).collect())
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

/// Holds that there is no machine of a node now, whoever makes machines.
pub type Vanished = Box<dyn Fn() -> BoxFuture<'static, Result<(), Fault>> + Send + Sync>;

/// Takes the member of a control plane out of etcd whose machine is gone, through those that are left.
///
/// Nothing is made in its place before that: without a quorum of the others nothing is made and nothing removed. That its machine is gone is proved
/// again right before the removal: those that are left may have been waited for since.
pub struct ForgetMember {
    wire: Arc<Wire>,
    lost: Whom,
    /// All that are gone, this one among them.
    gone: Vec<String>,
    survivors: ControlPlanes,
    vanished: Vanished,
    /// Whether etcd is known to have begun. If not, those that are left are asked first.
    has_begun: bool,
    /// Whether machines of those that are left were off before this run: it starts them, and they have to find each other.
    wakes: bool,
    awaited: Awaited,
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

impl ForgetMember {
    /// The step for this control plane of all that are gone, and those that are left.
    #[must_use]
    pub fn new(wire: Arc<Wire>, (lost, vanished): (Whom, Vanished), gone: Vec<String>, survivors: Vec<Whom>) -> Self {
        let (survivors, awaited) = (ControlPlanes::new(survivors), Awaited::default());
        Self { wire, lost, gone, survivors, vanished, has_begun: true, wakes: false, awaited }
    }

    /// The same where nobody can say yet that etcd has begun.
    #[must_use]
    pub fn knowing(self, has_begun: bool) -> Self {
        Self { has_begun, ..self }
    }

    /// The same where machines of those that are left were off, and are started before.
    #[must_use]
    pub fn waking(self, wakes: bool) -> Self {
        Self { wakes, ..self }
    }

    /// Holds that it is gone: its machine is not there, and nobody answers in its stead.
    async fn hold_gone(&self, keys: &Keys) -> Result<(), Fault> {
        let contact = self.wire.contact(&self.lost, keys)?;
        let (presence, vanished) = join(contact.probe(), (self.vanished)()).await;
        vanished?;
        if let Presence::Running(_) = presence {
            let evidence = format!("answers at {}, and the hypervisor shows no machine for it", self.lost.address);
            let next = "may the token see that machine? castle doctor; or is it on another hypervisor?";
            return Err(Fault::guard(&self.lost.name, evidence).next(next));
        }
        Ok(())
    }

    /// Whether etcd has begun on one of those that are left, as they say themselves.
    async fn have_begun(&self, keys: &Keys) -> Result<bool, Fault> {
        let contacts = self.survivors.contacts(&self.wire, keys)?;
        let all = self.survivors.all().iter().zip(contacts);
        let mut asked: FuturesUnordered<_> = all.map(|(whom, contact)| self.has_data(whom, contact)).collect();
        let mut silent = None;
        while let Some(answer) = asked.next().await {
            match answer {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(fault) => silent = silent.or(Some(fault)),
            }
        }
        silent.map_or(Ok(false), Err)
    }

    /// Whether one of those that are left has data of etcd. While it starts it cannot tell, and is waited for; whoever only looks takes silence for a no,
    /// for it makes nothing.
    async fn has_data(&self, whom: &Whom, contact: &Contact) -> Result<bool, Fault> {
        let clock = self.wire.clock.as_ref();
        let begun = clock.monotonic();
        loop {
            let refusal = match contact.probe().await {
                // It is to get its configuration first, and takes part in nothing before.
                Presence::Maintenance(_) => return Ok(false),
                Presence::Stranger(refusal) => return Err(refusal.into()),
                Presence::Unreachable(refusal) => refusal,
                Presence::Running(_) => match contact.running().etcd_data().await {
                    Ok(data) => return Ok(data == EtcdData::There),
                    Err(refusal) => refusal,
                },
            };
            let waited = clock.monotonic().saturating_sub(begun);
            if self.wire.is_looking() {
                return Ok(false);
            }
            let untold = format!("does not tell whether it has data of etcd: {}", refusal.sentence);
            if waited >= self.wire.patience {
                let evidence =
                    format!("{untold}; {} may have a voice in it, and is not made anew before", self.lost.name);
                return Err(Fault::new(Class::Final, &whom.name, evidence)
                    .next(format!("talosctl --nodes {0} service etcd; talosctl --nodes {0} dmesg", whom.address)));
            }
            self.awaited.wait_for(&whom.name, &untold);
            clock.sleep(pace(waited, PERIOD)).await;
        }
    }

    async fn look(&self, keys: &Keys) -> Result<Left, Fault> {
        self.awaited.end();
        if !self.has_begun && !self.have_begun(keys).await? {
            return Ok(Left::Nothing);
        }
        self.awaited.end();
        self.hold_gone(keys).await?;
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
            self.awaited.wait_for("etcd", &silence.closed(&[]).evidence);
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

/// What is to be forgotten.
#[derive(Clone, Copy, Debug)]
pub enum Forgetting {
    /// A member.
    Member {
        /// Its number.
        id: u64,
        /// Which of the others told it.
        told_by: usize,
    },
    /// One that nobody could be asked about: planned by whoever only looks, and never done.
    Unknown,
}

impl Step for ForgetMember {
    type Needs = (Arc<Keys>,);
    type Observed = Left;
    type Action = Forgetting;
    type Output = ();

    fn observe<'a>(&'a self, (keys,): &'a Self::Needs) -> BoxFuture<'a, Result<Left, Fault>> {
        Box::pin(self.look(keys))
    }

    fn awaits(&self) -> Option<Closed> {
        self.awaited.told()
    }

    fn decide(&self, _: &Self::Needs, left: &Left) -> Decision<Forgetting> {
        let member = |action, is: String| {
            let forget = Change::new("forget", Impact::Destroy);
            Decision::Act(action, forget.differing("member of etcd", Some(is), None))
        };
        match left {
            Left::Nothing => Decision::Nothing,
            Left::Member { id, told_by } => member(
                Forgetting::Member { id: *id, told_by: *told_by },
                format!("{} at {}", self.lost.name, self.lost.address),
            ),
            Left::Unknown(why) => member(Forgetting::Unknown, format!("cannot be asked: {why}")),
        }
    }

    fn act<'a>(
        &'a self,
        (keys,): &'a Self::Needs,
        _: &'a Left,
        action: &'a Forgetting,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Forgetting::Member { id, told_by } = action else {
                return Err(Fault::new(Class::RefusedBeforeEffect, "etcd", "cannot be asked who its members are"));
            };
            let contacts = self.survivors.contacts(&self.wire, keys)?;
            let Some(survivor) = contacts.get(*told_by) else {
                return Err(Fault::defect("a member was told of by a control plane that is none of the others"));
            };
            self.hold_gone(keys).await?;
            Ok(survivor.running().remove_etcd_member(*id).await?)
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Left) -> Option<()> {
        Some(())
    }

    fn output(&self, _: &Self::Needs, _: &Left) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever has a vote, and is no control plane of the castle any more, counts in the number that is to be reached, and not in the one that reaches it.
    #[test]
    fn one_can_be_spared_if_the_others_are_a_quorum_of_all_that_vote() {
        assert!(is_quorum(2, 3) && is_quorum(4, 5) && is_quorum(3, 5));
        assert!(!is_quorum(2, 4) && !is_quorum(2, 5) && !is_quorum(4, 8));
        assert!(!is_quorum(1, 2) && !is_quorum(1, 3), "one that is left is none of two, nor of three");
    }
}
