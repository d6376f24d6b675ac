//! Every control plane a voter.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;
use castle_talos_api::machine::EtcdMember;

use super::{Keys, Quorum, Whom, Wire};
use crate::client::{Contact, Refusal};

/// Open when every control plane is a member of etcd that votes.
pub struct Members {
    wire: Arc<Wire>,
    control_planes: Vec<Whom>,
    contacts: OnceLock<Vec<Contact>>,
}

/// An etcd in which every control plane votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined;

impl Members {
    /// The gate for these control planes.
    #[must_use]
    pub fn new(wire: Arc<Wire>, control_planes: Vec<Whom>) -> Self {
        Self { wire, control_planes, contacts: OnceLock::new() }
    }

    async fn ask(&self, keys: &Keys) -> Result<Verdict<Joined>, Fault> {
        let Some(first) = self.control_planes.first() else { return Ok(Verdict::Open(Joined)) };
        let members = match self.members(keys).await? {
            Ok(members) => members,
            Err(refusal) => return Ok(Verdict::Closed(self.without_quorum(keys, refusal).await?)),
        };
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

impl Members {
    /// The ways to the control planes, kept as long as it is asked.
    fn contacts(&self, keys: &Keys) -> Result<&[Contact], Fault> {
        if let Some(contacts) = self.contacts.get() {
            return Ok(contacts);
        }
        let made =
            self.control_planes.iter().map(|whom| self.wire.contact(whom, keys)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.contacts.get_or_init(|| made))
    }

    /// The members as the first control plane knows them that answers; else why the first does not.
    async fn members(&self, keys: &Keys) -> Result<Result<Vec<EtcdMember>, Refusal>, Fault> {
        let mut refused = None;
        for contact in self.contacts(keys)? {
            match contact.running().etcd_members().await {
                Ok(members) => return Ok(Ok(members)),
                Err(refusal) => refused = refused.or(Some(refusal)),
            }
        }
        Ok(refused.map_or_else(|| Ok(Vec::new()), Err))
    }

    /// What there is to say of an etcd that answers nobody: on which of its control planes it does not run.
    async fn without_quorum(&self, keys: &Keys, refusal: Refusal) -> Result<Closed, Fault> {
        let (mut fallen, mut addresses) = (Vec::new(), Vec::new());
        for (whom, contact) in self.control_planes.iter().zip(self.contacts(keys)?) {
            let how = match contact.running().services().await {
                Ok(services) => match services.into_iter().find(|service| service.id == "etcd") {
                    Some(etcd) if etcd.state == "Running" => continue,
                    Some(etcd) => etcd.state,
                    None => "no such service".to_owned(),
                },
                Err(refusal) => refusal.sentence,
            };
            fallen.push(format!("{} ({how})", whom.name));
            addresses.push(whom.address.to_string());
        }
        if fallen.is_empty() {
            let Fault { subject, evidence, next, .. } = refusal.into();
            return Ok(Closed { subject, evidence, next });
        }
        let (fallen, addresses) = (fallen.join(", "), addresses.join(","));
        Ok(Closed {
            subject: "etcd".to_owned(),
            evidence: format!("answers nobody: {}; it does not run on {fallen}", refusal.sentence),
            next: format!("talosctl --nodes {addresses} service etcd; talosctl --nodes {addresses} logs etcd"),
        })
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
