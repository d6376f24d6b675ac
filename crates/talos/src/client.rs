//! Speaking with nodes: one call, one answer or one [`Refusal`].
//!
//! [`Node`] is one node asked in one way, [`Contact`] the same node asked in both: by mutual TLS once it runs, and by whatever TLS it
//! has in maintenance mode before.
//!
//! A call that is to change something is made at most once, over a connection of its own; a call that only looks is repeated
//! once if the connection it was made over turns out to be dead. Nothing waits longer than its bound, by the injected clock.

mod addresses;
mod archive;
mod calls;
mod clocks;
mod configuration;
mod contact;
mod etcd;
mod hush;
mod link;
mod machine;
mod refusal;
mod resources;
mod sentence;
mod time;
mod trust;
mod volumes;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use castle_seams::{Clock, Dial, Target, deadline};
use castle_talos_api::common::Metadata;
use tonic::{Code, Status};

use link::{Line, Link};
use refusal::{Call, Trouble};

pub use addresses::CURRENT;
pub use calls::{Applied, ApplyMode, Reset};
pub use clocks::Lead;
pub use configuration::Drift;
pub use contact::{Contact, Credentials, Presence};
pub use etcd::{EtcdData, is_at};
pub use hush::Hush;
pub use machine::{Machine, Stage, Unmet};
pub use refusal::{ErrorClass, Refusal};
pub use resources::{Happening, Kind, Resource, Watch, kinds};
pub use time::{Compared, TimeSync};
pub use trust::{Fingerprint, Identity, Trust, TrustError};
pub use volumes::Volume;

/// Where nodes listen.
pub const PORT: u16 = 50000;
/// What every call is bounded by that changes something, or has the node gather what it does not keep.
const BOUND: Duration = Duration::from_secs(30);
/// What a call of whoever only looks is bounded by, and everybody's for what a node keeps about itself or would do: one that does not answer by then is told
/// as silent, and asked again where somebody waits for it.
pub const GLANCE: Duration = Duration::from_secs(3);
/// What Talos itself takes for the longest message.
const LIMIT: usize = 32 << 20;

/// One node, asked in one way.
pub struct Node {
    name: String,
    target: Target,
    in_maintenance: bool,
    link: Link,
    clock: Arc<dyn Clock>,
    /// What a call that only asks may take.
    bound: Duration,
    /// Those that were silent, for whoever only looks.
    hush: Option<Hush>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name).field("target", &self.target).finish_non_exhaustive()
    }
}

impl Node {
    /// A node of this name, at this address; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if nobody can be judged by what is trusted.
    pub fn new(
        name: &str,
        target: Target,
        trust: &Trust,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, TrustError> {
        let link = Link::new(&target, trust, dial, clock.clone())?;
        let in_maintenance = matches!(trust, Trust::Maintenance(_) | Trust::FirstMet);
        Ok(Self { name: name.to_owned(), target, in_maintenance, link, clock, bound: BOUND, hush: None })
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is asked.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Asks for something.
    async fn look<T, F: Future<Output = Result<T, Status>>>(
        &self,
        name: &'static str,
        ask: impl Fn(Line) -> F,
    ) -> Result<T, Refusal> {
        self.look_within(name, BOUND, ask).await
    }

    /// Asks for something that a node knows by itself.
    async fn glance<T, F: Future<Output = Result<T, Status>>>(
        &self,
        name: &'static str,
        ask: impl Fn(Line) -> F,
    ) -> Result<T, Refusal> {
        self.look_within(name, GLANCE, ask).await
    }

    async fn look_within<T, F: Future<Output = Result<T, Status>>>(
        &self,
        name: &'static str,
        bound: Duration,
        ask: impl Fn(Line) -> F,
    ) -> Result<T, Refusal> {
        let answer = self.look_with(name, "", bound, ask).await;
        // Calls that wait for something else than the node have a bound of their own, and tell nothing of it.
        if let (Some(hush), Err(refusal)) = (&self.hush, &answer)
            && matches!(refusal.class, ErrorClass::Lost | ErrorClass::Unreachable)
        {
            hush.note(&self.target, &refusal.sentence);
        }
        answer
    }

    /// Asks for something within a bound. `sent` is what no refusal may tell again.
    async fn look_with<T, F: Future<Output = Result<T, Status>>>(
        &self,
        name: &'static str,
        sent: &str,
        bound: Duration,
        ask: impl Fn(Line) -> F,
    ) -> Result<T, Refusal> {
        if let Some(sentence) = self.hush.as_ref().and_then(|hush| hush.told(&self.target)) {
            let trouble = Trouble::new(ErrorClass::Unreachable, sentence);
            return Err(self.refusal(Call { name, changes: false }, trouble));
        }
        let until = self.clock.monotonic() + bound.min(self.bound);
        let mut fresh = false;
        loop {
            let (trouble, may_repeat) = match self.attempt(until, fresh, sent, &ask).await {
                Ok(answer) => return Ok(answer),
                Err(failed) => failed,
            };
            if !may_repeat {
                return Err(self.refusal(Call { name, changes: false }, trouble));
            }
            fresh = true;
        }
    }

    /// Asks for a change, once. `sent` is what no refusal may tell again.
    async fn change<T, F: Future<Output = Result<T, Status>>>(
        &self,
        name: &'static str,
        sent: &str,
        ask: impl Fn(Line) -> F,
    ) -> Result<T, Refusal> {
        let attempt = self.attempt(self.clock.monotonic() + BOUND, true, sent, &ask).await;
        attempt.map_err(|(trouble, _)| self.refusal(Call { name, changes: true }, trouble))
    }

    /// One attempt of a call that has until then. A failure comes with whether another connection may help.
    async fn attempt<T, F: Future<Output = Result<T, Status>>>(
        &self,
        until: Duration,
        fresh: bool,
        sent: &str,
        ask: &impl Fn(Line) -> F,
    ) -> Result<T, (Trouble, bool)> {
        let left = || until.saturating_sub(self.clock.monotonic());
        let lent = match deadline(&*self.clock, left(), self.link.lend(fresh)).await {
            Ok(Ok(lent)) => lent,
            Ok(Err(unconnected)) => return Err((unconnected.into(), false)),
            Err(elapsed) => {
                let told = format!("no connection to {}: {elapsed}", self.target);
                return Err((Trouble::new(ErrorClass::Unreachable, told), false));
            }
        };
        let (trouble, is_over) = match deadline(&*self.clock, left(), ask(lent.channel.clone())).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(status)) => (self.link.understood(Trouble::read(&status, sent)), false),
            Err(elapsed) => (Trouble::silence(elapsed), true),
        };
        if trouble.ends_connection {
            self.link.discard(&lent).await;
        }
        let may_repeat = trouble.ends_connection && lent.is_used && !is_over;
        Err((trouble, may_repeat))
    }

    fn refusal(&self, call: Call, trouble: Trouble) -> Refusal {
        let class = match trouble.class {
            // Whoever asks in this way is a reader to the node, whatever he may do once it runs.
            ErrorClass::Forbidden if self.in_maintenance => ErrorClass::InMaintenance,
            class => class,
        };
        Refusal {
            class,
            node: self.name.clone(),
            host: self.target.host.clone(),
            call: call.name,
            sentence: trouble.sentence,
            changes: call.changes,
            lead: trouble.lead,
        }
    }
}

/// An answer of which there is one for each node that was asked: here, always one.
trait OfNode {
    fn metadata(&self) -> Option<&Metadata>;
}

macro_rules! of_node {
    ($($message:path),* $(,)?) => {
        $(impl OfNode for $message {
            fn metadata(&self) -> Option<&Metadata> {
                self.metadata.as_ref()
            }
        })*
    };
}

of_node!(
    castle_talos_api::common::Data,
    castle_talos_api::machine::ApplyConfiguration,
    castle_talos_api::machine::Bootstrap,
    castle_talos_api::machine::EtcdMembers,
    castle_talos_api::machine::EtcdRemoveMemberById,
    castle_talos_api::machine::EtcdStatus,
    castle_talos_api::machine::FileInfo,
    castle_talos_api::machine::Reboot,
    castle_talos_api::machine::Reset,
    castle_talos_api::machine::ServiceList,
    castle_talos_api::machine::Version,
    castle_talos_api::storage::Disks,
    castle_talos_api::time::Time,
);

/// The answer of the node, or what it says went wrong in it.
fn only<T: OfNode>(messages: Vec<T>) -> Result<T, Status> {
    let answer = messages.into_iter().next().ok_or_else(|| Status::data_loss("the answer is empty"))?;
    checked(answer)
}

/// An answer in which nothing went wrong.
fn checked<T: OfNode>(answer: T) -> Result<T, Status> {
    match answer.metadata() {
        Some(Metadata { status: Some(status), .. }) if status.code != 0 => {
            Err(Status::new(Code::from_i32(status.code), status.message.clone()))
        }
        Some(Metadata { error, .. }) if !error.is_empty() => Err(Status::unknown(error.clone())),
        _ => Ok(answer),
    }
}
