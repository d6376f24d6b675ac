//! The rest of a castle, right before one of its nodes is away for a while.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, Gate, Verdict};
use castle_kubernetes::steps::{Expect, Ready};
use castle_seams::BoxFuture;
use castle_spec::{Node, Role};
use castle_talos::steps::{Keys, Members, Quorum, Wire};

use super::{Api, Kubernetes, Site, all_ready};
use crate::cluster::{url, whom};
use crate::storage::REBUILDING;

/// Open when a node can be away: all others are ready, vote and serve, and volumes have their copies. All of it is seen in one look: what was so before
/// its Pods moved, or while something else was waited for, may be so no longer. Nobody waits for others that are not well, and whose turns are still to come.
pub(in super::super) struct Rest {
    wire: Arc<Wire>,
    members: Members,
    apis: Vec<Api>,
    inside: Ready<Quorum>,
}

impl Rest {
    /// The gate for this one of these nodes, which are waited for until they are ready where castle waits for that at all, but for those that are
    /// `ailing`; and this, too.
    pub(in super::super) fn of(
        wire: &Arc<Wire>,
        (own, nodes): (&Node, &[Node]),
        ailing: &BTreeSet<String>,
        waits_for_nodes: bool,
        more: Vec<Expect>,
    ) -> Self {
        let others = || {
            let is_meant = |node: &&Node| node.name.value != own.name.value && !ailing.contains(&node.name.value);
            nodes.iter().filter(is_meant)
        };
        let members =
            Members::new(wire.clone(), nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect());
        let api = |node: &Node| {
            let site = Site { wire: wire.clone(), address: url(node.address.value) };
            Api::new(site, &node.name.value)
        };
        let names = others().filter(|_| waits_for_nodes).map(|node| node.name.value.clone()).collect();
        let expects: Vec<Expect> = std::iter::once(all_ready(names, None)).chain(more).collect();
        Self {
            wire: wire.clone(),
            members: members.sparing(&own.name.value).without(ailing.clone()),
            apis: others().filter(|node| node.role == Role::ControlPlane).map(api).collect(),
            inside: Ready::new(expects, REBUILDING),
        }
    }
}

impl Gate for Rest {
    type Needs = (Arc<Kubernetes>, Arc<Keys>, Arc<Quorum>);
    type Output = ();

    fn check<'a>(&'a self, (kubernetes, keys, quorum): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            // A plan tells what is to be done, also where it has to wait.
            if self.wire.is_looking() {
                return Ok(Verdict::Open(()));
            }
            let needs = (keys.clone(), quorum.clone());
            if let Verdict::Closed(closed) = self.members.check(&needs).await? {
                return Ok(Verdict::Closed(closed));
            }
            for api in &self.apis {
                if let Verdict::Closed(closed) = api.check(&needs).await? {
                    return Ok(Verdict::Closed(closed));
                }
            }
            Ok(match self.inside.check(&(kubernetes.clone(), quorum.clone())).await? {
                Verdict::Closed(closed) => Verdict::Closed(closed),
                Verdict::Open(_) => Verdict::Open(()),
            })
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        REBUILDING
    }
}

/// Open when a control plane that does not serve can restart though nobody can be asked what else is well: the others vote, and are a quorum without it.
pub(in super::super) struct Blind {
    own: Site,
    whose: String,
    members: Members,
}

impl Blind {
    pub(in super::super) fn new(own: Site, whose: &str, members: Members) -> Self {
        Self { own, whose: whose.to_owned(), members }
    }
}

impl Gate for Blind {
    type Needs = (Arc<Keys>, Arc<Quorum>);
    type Output = ();

    fn check<'a>(&'a self, needs: &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            if self.own.wire.is_looking() {
                return Ok(Verdict::Open(()));
            }
            if self.own.ask(&needs.0, "/readyz").await.is_ok_and(|(status, ..)| status == 200) {
                let evidence = "serves again, and did not when castle looked: it restarts like any other";
                return Err(Fault::guard(&self.whose, evidence).next("run the same command again"));
            }
            Ok(match self.members.check(needs).await? {
                Verdict::Closed(closed) => Verdict::Closed(closed),
                Verdict::Open(_) => Verdict::Open(()),
            })
        })
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn deadline(&self) -> Duration {
        REBUILDING
    }
}
