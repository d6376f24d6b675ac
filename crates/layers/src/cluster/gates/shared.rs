//! The API at the address that control planes share: held by one of them, and answering.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;
use castle_talos::client::{CURRENT, Contact, kinds};
use castle_talos::steps::{Keys, Quorum, Whom};
use futures_util::future::{join_all, select_all};

use super::{Api, Kubernetes, Site};

/// Open when the API is ready at the shared address. Closed, it tells whether nobody holds the address, or somebody else does.
pub(in super::super) struct SharedApi {
    api: Api,
    address: IpAddr,
    /// The control planes, and the API of each at its own address.
    own: Vec<(Whom, Site)>,
    contacts: OnceLock<Vec<Contact>>,
    /// Whether a control plane held the address when it was last asked.
    is_held: AtomicBool,
}

impl SharedApi {
    pub(in super::super) fn new(site: Site, address: IpAddr, own: Vec<(Whom, Site)>) -> Self {
        let api = Api::new(site, "the castle's endpoint");
        Self { api, address, own, contacts: OnceLock::new(), is_held: AtomicBool::new(false) }
    }

    fn contacts(&self, keys: &Keys) -> Result<&[Contact], Fault> {
        if let Some(contacts) = self.contacts.get() {
            return Ok(contacts);
        }
        let wire = &self.api.site.wire;
        let made = self.own.iter().map(|(whom, _)| wire.contact(whom, keys)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.contacts.get_or_init(|| made))
    }

    /// Why it is closed, by what the control planes say of the address.
    async fn explain(&self, keys: &Keys, closed: Closed) -> Result<Closed, Fault> {
        let asked = join_all(self.contacts(keys)?.iter().map(|contact| contact.running().addresses())).await;
        let holds = |told: &Result<Vec<IpAddr>, _>| told.as_ref().is_ok_and(|all| all.contains(&self.address));
        let (address, names) = (self.address, || self.own.iter().map(|(whom, _)| whom.address.to_string()));
        let holder = asked.iter().position(holds).and_then(|place| self.own.get(place));
        self.is_held.store(holder.is_some(), Ordering::Relaxed);
        let Some((holder, site)) = holder else {
            return Ok(Closed {
                subject: address.to_string(),
                evidence: format!("no control plane holds the shared address yet ({})", closed.evidence),
                next: format!("talosctl --nodes {} get addresses", names().collect::<Vec<_>>().join(",")),
            });
        };
        let is_ready = site.ask(keys, "/readyz").await.is_ok_and(|(status, ..)| status == 200);
        Ok(if is_ready {
            Closed {
                subject: address.to_string(),
                evidence: format!(
                    "{} holds it and serves at its own address, but here: {}. Another device may have this address",
                    holder.name, closed.evidence
                ),
                next: format!("find out whose it is: arping {address}; or choose a free one for network.vip"),
            }
        } else {
            Closed { evidence: format!("{}, held by {}", closed.evidence, holder.name), ..closed }
        })
    }

    /// Completes when the addresses of a control plane change.
    async fn moved(&self, keys: &Keys) {
        let mut watched: Vec<BoxFuture<'_, ()>> = vec![Box::pin(std::future::pending())];
        for contact in self.contacts(keys).unwrap_or_default() {
            watched.push(Box::pin(self.readdressed(contact)));
        }
        select_all(watched).await;
    }

    /// Completes when the addresses of this node change. Who cannot be watched is asked again after a while anyway.
    async fn readdressed(&self, contact: &Contact) {
        let node = contact.running();
        if let Ok(true) = node.until_changed(kinds::NODE_ADDRESSES, CURRENT, self.deadline()).await {
            return;
        }
        std::future::pending::<()>().await;
    }
}

impl Gate for SharedApi {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = Kubernetes;

    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Kubernetes>, Fault>> {
        Box::pin(async move {
            match self.api.check(needs).await? {
                // Whoever only looks has no time for an explanation.
                Verdict::Closed(closed) if !self.api.site.wire.patience.is_zero() => {
                    Ok(Verdict::Closed(self.explain(&needs.0, closed).await?))
                }
                verdict => Ok(verdict),
            }
        })
    }

    /// The API of a control plane at its own address: that the shared one does not answer (yet) tells nothing of what is in the cluster.
    fn detour<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Option<Kubernetes>> {
        Box::pin(async move {
            let apis: Vec<Api> = self.own.iter().map(|(whom, site)| Api::new(site.clone(), &whom.name)).collect();
            let asked = join_all(apis.iter().map(|api| api.check(needs))).await;
            asked.into_iter().find_map(|verdict| match verdict {
                Ok(Verdict::Open(api)) => Some(api),
                Ok(Verdict::Closed(_)) | Err(_) => None,
            })
        })
    }

    fn changed<'a>(&'a self, (keys, _): &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        // Once somebody holds it, no address moves when the API there is ready.
        (!self.is_held.load(Ordering::Relaxed)).then(|| Box::pin(self.moved(keys)) as BoxFuture<'a, ()>)
    }

    fn period(&self) -> Duration {
        self.api.period()
    }

    fn deadline(&self) -> Duration {
        self.api.deadline()
    }
}
