//! Which nodes change in turns: those that looking says have to restart, and those that take up another configuration as they run.

use std::sync::Arc;

use castle_engine::{Graph, Impact, Outcome, Report, StepId};
use castle_layers::cluster::{self, For, Health, Manner, Rolling, whom};
use castle_layers::secrets::Strongroom;
use castle_layers::{Placed, Survey, platform};
use castle_proxmox::steps::Ground;
use castle_spec::{Node, Role};
use castle_talos::steps::{APPLY, leader};

use super::{LOOKING, Stand, Trouble};

/// What a node takes up without its kubelet or its network being touched: Talos writes it to the cluster.
const UNFELT: [&str; 6] = [
    "machine.nodeLabels",
    "machine.nodeAnnotations",
    "machine.nodeTaints",
    "KubeNodeConfig.labels",
    "KubeNodeConfig.annotations",
    "KubeNodeConfig.taints",
];

/// What a run would do, asked of the world.
pub(crate) struct Foreseen {
    /// Its steps.
    pub(crate) graph: Graph,
    /// What looking at them told.
    pub(crate) report: Report,
    /// The nodes that change, in the order of their turns.
    pub(crate) rolling: Rolling,
}

impl Stand {
    /// What raising the castle would do. Where nodes change one after the other, that is planned in turns, and looked at once more.
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
        let planned =
            |node: &Node, kind: &str| match report.outcome(&StepId::new(&platform::layer(), kind, &node.name.value)) {
                Some(Outcome::Planned { change }) => Some(change),
                _ => None,
            };
        let manner = |node: &Node| {
            let restarts = |kind: &str| planned(node, kind).is_some_and(|change| change.impact == Impact::Reboot);
            let config = planned(node, "config").filter(|change| change.verb == APPLY);
            let has_configuration = config.is_some_and(|change| change.impact != Impact::Create);
            match (restarts("vm"), restarts("config")) {
                (true, _) if has_configuration => return Some(Manner::Restart(For::Both)),
                (true, _) => return Some(Manner::Restart(For::Machine)),
                (false, true) => return Some(Manner::Restart(For::Configuration)),
                (false, false) => {}
            }
            let change = config.filter(|change| change.impact == Impact::InPlace)?;
            let is_control_plane = node.role == Role::ControlPlane;
            let has = |is_meant: &dyn Fn(&str) -> bool| change.differences.iter().any(|it| is_meant(&it.field));
            let starts_api = is_control_plane && has(&|field| !field.starts_with("machine."));
            let is_felt = has(&|field| !UNFELT.iter().any(|part| field.starts_with(part)));
            (is_control_plane || is_felt).then_some(Manner::InPlace { starts_api, is_felt })
        };
        let nodes = &self.kept.nodes;
        if nodes.iter().all(|node| manner(node).is_none()) {
            return Ok(Rolling::of(nodes, |_| None, None, &Health::default()));
        }
        let restarts = |node: &Node| matches!(manner(node), Some(Manner::Restart(_)));
        let control_planes: Vec<_> = nodes.iter().filter(|node| node.role == Role::ControlPlane).collect();
        let (mut leads, mut health) = (None, Health::default());
        if let Some(keys) = room.keys().await? {
            let wire = Arc::new(self.wire(LOOKING));
            health = cluster::health(&self.kept.castle, nodes, &wire, &keys).await;
            if control_planes.iter().filter(|node| restarts(node)).count() > 1 {
                leads = leader(&wire, &keys, control_planes.iter().map(|node| whom(node)).collect()).await;
            }
        }
        Ok(Rolling::of(nodes, manner, leads.as_deref(), &health))
    }
}
