//! The rest of a castle, right before one of its nodes is away for a while.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, Gate, Verdict};
use castle_kubernetes::steps::{Drained, Expect, Ready};
use castle_seams::BoxFuture;
use castle_spec::{Node, Role};
use castle_talos::steps::{Keys, Members, Quorum, Wire};

use super::{Api, Kubernetes, Site, all_ready};
use crate::cluster::{url, whom};
use crate::storage::{Departure, REBUILDING};

/// Open when a node can be away: all others are ready, vote and serve, and volumes have their copies. All of it is seen in one look: what was so before
/// its Pods moved, or while something else was waited for, may be so no longer.
pub(in super::super) struct Rest {
    wire: Arc<Wire>,
    members: Members,
    apis: Vec<Api>,
    inside: Ready<Quorum>,
}

impl Rest {
    /// The gate for this one of these nodes, which are waited for until they are ready where castle waits for that at all.
    pub(in super::super) fn of(wire: &Arc<Wire>, own: &Node, nodes: &[Node], waits_for_nodes: bool) -> Self {
        let others = || nodes.iter().filter(|node| node.name.value != own.name.value);
        let members =
            Members::new(wire.clone(), nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect());
        let api = |node: &Node| {
            let site = Site { wire: wire.clone(), address: url(node.address.value) };
            Api::new(site, &node.name.value)
        };
        let names = others().filter(|_| waits_for_nodes).map(|node| node.name.value.clone()).collect();
        let volumes = Departure::of([], nodes.iter().map(|node| node.name.value.clone())).is_made_up_for();
        let expects: Vec<Expect> = std::iter::once(all_ready(names, None)).chain(volumes).collect();
        Self {
            wire: wire.clone(),
            members: members.sparing(&own.name.value),
            apis: others().filter(|node| node.role == Role::ControlPlane).map(api).collect(),
            inside: Ready::new(expects, REBUILDING),
        }
    }
}

impl Gate for Rest {
    type Needs = (Arc<Kubernetes>, Arc<Keys>, Arc<Quorum>, Arc<Drained>);
    type Output = ();

    fn check<'a>(
        &'a self,
        (kubernetes, keys, quorum, _): &'a Self::Needs,
    ) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
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
