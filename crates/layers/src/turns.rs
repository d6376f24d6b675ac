//! Which nodes change one after the other in a run, in which order, and how.

use std::collections::BTreeSet;

use castle_engine::Restarts;
use castle_spec::{Node, Role};

/// How a node changes in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    /// It takes up its configuration as it runs.
    InPlace {
        /// Whether its API server may be started again for that.
        starts_api: bool,
        /// Whether its kubelet or its network may be: it has to say once more that it lives.
        is_felt: bool,
    },
    /// It restarts, once.
    Restart(For),
}

/// What a node restarts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum For {
    /// Its machine: memory, cores.
    Machine,
    /// Its machine, and it has another configuration from then on.
    Both,
    /// Its configuration.
    Configuration,
}

/// How a castle is before any of its nodes change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The nodes that are missed as they are: not ready, or control planes that do not vote or do not serve.
    pub ailing: BTreeSet<String>,
    /// Whether no control plane serves, so that the cluster can be asked nothing.
    pub is_mute: bool,
}

/// One node that changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    pub(crate) node: String,
    pub(crate) manner: Manner,
    /// Whether it is missed already: its own change may be what mends it, and takes away no other.
    pub(crate) is_ailing: bool,
    /// Whether it comes without a cluster that could be asked.
    pub(crate) is_blind: bool,
}

/// Which nodes change one after the other in a run, and what holds for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rolling {
    turns: Vec<Turn>,
    otherwise: Restarts,
}

impl Rolling {
    /// Whatever has to restart does so at once: nobody builds on this castle yet, or it is only looked at.
    #[must_use]
    pub fn at_once() -> Self {
        Self::default()
    }

    /// These nodes change one after the other, and no other restarts. First those that are not well, control planes before workers: nobody has them now. Then
    /// those that stay up, for that may mend what ails the cluster, and again control planes before workers, which may need what those bring. Then workers, for they are missed the least; then control planes, the one that leads etcd
    /// last, so that it is handed on once.
    #[must_use]
    pub fn of(
        nodes: &[Node],
        mut manner: impl FnMut(&Node) -> Option<Manner>,
        leader: Option<&str>,
        health: &Health,
    ) -> Self {
        let turn = |node: &Node| {
            let (is_control_plane, name) = (node.role == Role::ControlPlane, &node.name.value);
            let is_ailing = health.ailing.contains(name);
            let turn = Turn {
                node: name.clone(),
                manner: manner(node)?,
                is_ailing,
                is_blind: is_ailing && is_control_plane && health.is_mute,
            };
            let goes_away = !is_ailing && matches!(turn.manner, Manner::Restart(_));
            let place = (!is_ailing, goes_away, is_control_plane == goes_away, leader == Some(name));
            Some((place, turn))
        };
        let mut turns: Vec<_> = nodes.iter().filter_map(turn).collect();
        turns.sort_by_key(|(place, _)| *place);
        Self { turns: turns.into_iter().map(|(_, turn)| turn).collect(), otherwise: Restarts::Never }
    }

    /// Whether no node has a turn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    /// Whether some of them come without a cluster that could be asked.
    pub(crate) fn is_blind(&self) -> bool {
        self.turns.iter().any(|turn| turn.is_blind)
    }

    /// Who changes, in the order of their turns, and how.
    pub(crate) fn turns(&self) -> &[Turn] {
        &self.turns
    }

    fn manner(&self, node: &Node) -> Option<Manner> {
        self.turns.iter().find(|turn| turn.node == node.name.value).map(|turn| turn.manner)
    }

    /// Whether this node restarts in a turn.
    pub(crate) fn has(&self, node: &Node) -> bool {
        matches!(self.manner(node), Some(Manner::Restart(_)))
    }

    /// Whether the hypervisor may restart this node in its turn.
    pub(crate) fn restarts_machine(&self, node: &Node) -> Restarts {
        match self.manner(node) {
            Some(Manner::Restart(For::Machine | For::Both)) => Restarts::AtOnce,
            _ => Restarts::Never,
        }
    }

    /// Whether the steps that make this node may restart it.
    pub(crate) fn restarts(&self, node: &Node) -> Restarts {
        if self.has(node) { Restarts::InTurn } else { self.otherwise }
    }

    /// Whether the step that gives this node its configuration may do so as it runs.
    pub(crate) fn changes(&self, node: &Node) -> Restarts {
        if self.manner(node).is_some() { Restarts::InTurn } else { self.otherwise }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "castle: blue
platform: embedded
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3}
network: {cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10}
nodes:
  controlPlanes: {count: 3, firstAddress: 127.42.0.11}
  workers: {count: 2, firstAddress: 127.42.0.21}
secrets: embedded
";

    #[test]
    fn workers_come_first_and_the_leader_of_etcd_last() {
        let nodes = castle_spec::read(FILE.as_bytes()).nodes;
        let restart = |is_so: bool| is_so.then_some(Manner::Restart(For::Machine));
        let names = |rolling: Rolling| rolling.turns.into_iter().map(|turn| turn.node).collect::<Vec<_>>();
        let well = Health::default();
        let turns =
            |leader| names(Rolling::of(&nodes, |node| restart(node.name.value != "blue-worker-1"), leader, &well));
        assert_eq!(turns(Some("blue-cp-1")), ["blue-worker-2", "blue-cp-2", "blue-cp-3", "blue-cp-1"]);
        assert_eq!(turns(None), ["blue-worker-2", "blue-cp-1", "blue-cp-2", "blue-cp-3"]);
        let rolling = Rolling::of(&nodes, |node| restart(node.name.value == "blue-cp-1"), None, &well);
        let restarts: Vec<Restarts> = nodes.iter().map(|node| rolling.restarts(node)).collect();
        assert_eq!((restarts[0], &restarts[1..]), (Restarts::InTurn, [Restarts::Never; 4].as_slice()));
    }

    #[test]
    fn those_that_stay_up_come_before_those_that_restart() {
        let nodes = castle_spec::read(FILE.as_bytes()).nodes;
        let manner = |node: &Node| match node.name.value.as_str() {
            "blue-cp-2" => Some(Manner::InPlace { starts_api: true, is_felt: true }),
            "blue-cp-1" | "blue-worker-1" => Some(Manner::Restart(For::Configuration)),
            _ => None,
        };
        let rolling = Rolling::of(&nodes, manner, None, &Health::default());
        let turns: Vec<&str> = rolling.turns.iter().map(|turn| turn.node.as_str()).collect();
        assert_eq!(turns, ["blue-cp-2", "blue-worker-1", "blue-cp-1"]);
        // Its machine is not touched, and its configuration waits for its turn.
        assert_eq!((rolling.restarts(&nodes[1]), rolling.changes(&nodes[1])), (Restarts::Never, Restarts::InTurn));
    }
    #[test]
    fn those_that_are_not_well_come_first() {
        let nodes = castle_spec::read(FILE.as_bytes()).nodes;
        let health =
            |ailing: &[&str], is_mute| Health { ailing: ailing.iter().map(|&name| name.to_owned()).collect(), is_mute };
        let turns = |health: &Health| {
            let rolling = Rolling::of(&nodes, |_| Some(Manner::Restart(For::Machine)), Some("blue-cp-2"), health);
            let told = rolling.turns.iter().map(|turn| (turn.node.clone(), turn.is_ailing, turn.is_blind));
            told.collect::<Vec<_>>()
        };
        let told = |names: [(&str, bool, bool); 5]| names.map(|(name, ails, blind)| (name.to_owned(), ails, blind));
        let one = [
            ("blue-cp-2", true, false),
            ("blue-worker-2", true, false),
            ("blue-worker-1", false, false),
            ("blue-cp-1", false, false),
            ("blue-cp-3", false, false),
        ];
        assert_eq!(turns(&health(&["blue-worker-2", "blue-cp-2"], false)), told(one));
        let all = [
            ("blue-cp-1", true, true),
            ("blue-cp-3", true, true),
            ("blue-cp-2", true, true),
            ("blue-worker-1", false, false),
            ("blue-worker-2", false, false),
        ];
        assert_eq!(turns(&health(&["blue-cp-1", "blue-cp-2", "blue-cp-3"], true)), told(all));
    }
}
