//! Which nodes restart in a run: those that looking says have to.

use std::collections::BTreeSet;
use std::sync::Arc;

use castle_engine::{Graph, Impact, Outcome, Report};
use castle_layers::cluster::{Rolling, whom};
use castle_layers::secrets::Strongroom;
use castle_layers::{Placed, Survey};
use castle_proxmox::steps::Ground;
use castle_spec::{Node, Role};
use castle_talos::steps::leader;

use super::{LOOKING, Stand, Trouble};

/// The steps that may restart a node.
const RESTARTING: [&str; 2] = ["vm", "config"];

/// What a run would do, asked of the world.
pub(crate) struct Foreseen {
    /// Its steps.
    pub(crate) graph: Graph,
    /// What looking at them told.
    pub(crate) report: Report,
    /// The nodes that restart, in the order of their turns.
    pub(crate) rolling: Rolling,
}

impl Stand {
    /// What raising the castle would do. Where nodes have to restart, that is planned in turns, and looked at once more.
    pub(crate) async fn foresee(
        &self,
        ground: &Arc<Ground>,
        room: &Arc<Strongroom>,
        survey: &Survey,
        placed: &[Placed],
    ) -> Result<Foreseen, Trouble> {
        let graph = self.raise(ground, room, survey, placed, (LOOKING, &Rolling::at_once())).await?;
        let report = self.look(&graph, &ground.castle).await;
        let rolling = self.rolling(room, &report).await?;
        if rolling.is_empty() {
            return Ok(Foreseen { graph, report, rolling });
        }
        let graph = self.raise(ground, room, survey, placed, (LOOKING, &rolling)).await?;
        let report = self.look(&graph, &ground.castle).await;
        Ok(Foreseen { graph, report, rolling })
    }

    async fn rolling(&self, room: &Strongroom, report: &Report) -> Result<Rolling, Trouble> {
        let restarts: BTreeSet<&str> = report
            .outcomes
            .iter()
            .filter_map(|(step, outcome)| match outcome {
                Outcome::Planned { change } if change.impact == Impact::Reboot && RESTARTING.contains(&&*step.kind) => {
                    Some(&*step.name)
                }
                _ => None,
            })
            .collect();
        let restarts = |node: &Node| restarts.contains(node.name.value.as_str());
        let control_planes: Vec<_> = self.kept.nodes.iter().filter(|node| node.role == Role::ControlPlane).collect();
        let leader = match control_planes.iter().filter(|node| restarts(node)).count() {
            0 | 1 => None,
            _ => match room.keys().await? {
                Some(keys) => {
                    let all = control_planes.iter().map(|node| whom(node)).collect();
                    leader(&self.wire(LOOKING), &keys, all).await
                }
                None => None,
            },
        };
        Ok(Rolling::of(&self.kept.nodes, restarts, leader.as_deref()))
    }
}
