//! Every control plane a voter.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;

use super::{Keys, Quorum, Whom, Wire};

/// Open when every control plane is a member of etcd that votes.
pub struct Members {
    wire: Arc<Wire>,
    control_planes: Vec<Whom>,
}

/// An etcd in which every control plane votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined;

impl Members {
    /// The gate for these control planes.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>) -> Self {
        Self { wire, control_planes }
    }

    async fn ask(&self, keys: &Keys) -> Result<Verdict<Joined>, Fault> {
        let Some(first) = self.control_planes.first() else { return Ok(Verdict::Open(Joined)) };
        let members = self.wire.contact(first, keys)?.running().etcd_members().await?;
        let votes: BTreeSet<&str> =
            members.iter().filter(|member| !member.is_learner).map(|member| member.hostname.as_str()).collect();
        let learns = |name: &str| members.iter().any(|member| member.is_learner && member.hostname == name);
        let Some(late) = self.control_planes.iter().find(|whom| !votes.contains(whom.name.as_str())) else {
            return Ok(Verdict::Open(Joined));
        };
        let how = if learns(&late.name) { "is a learner, and does not vote yet" } else { "is no member of etcd yet" };
        Ok(Verdict::Closed(Closed {
            subject: late.name.clone(),
            evidence: format!("{how} ({} of {} vote)", votes.len(), self.control_planes.len()),
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
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(15 * 60)
    }
}
