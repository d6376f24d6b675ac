//! Nodes that change one after the other, while the castle goes on. One that restarts is sent away, restarts, and is back in every respect before the
//! next one's turn. A control plane that takes up its configuration as it runs serves again before the next one does. The first that does not come back is
//! the last that went.

use std::time::Duration;

use castle_engine::{GraphBuilder, Handle, Place, Restarts, StepId};
use castle_kubernetes::client::Api as Kubernetes;
use castle_kubernetes::steps::{Back, Drain, Empty, Left, Others, Ready};
use castle_spec::{Node, Role};
use castle_talos::steps::{Keys, Members, Quorum};

use super::gates::{Api, Serves, Site as ApiSite, Spare};
use super::{Plan, configure, endpoint, id, url, waits_for_nodes, whom};
use crate::platform;
use crate::storage::{Departure, REBUILDING};

/// How a node changes in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Manner {
    /// It takes up its configuration as it runs.
    InPlace {
        /// Whether its API server may be started again for that.
        starts_api: bool,
    },
    /// It restarts.
    Restart,
}

/// Which nodes change one after the other in a run, and what holds for the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rolling {
    turns: Vec<(String, Manner)>,
    otherwise: Restarts,
}

impl Rolling {
    /// Whatever has to restart does so at once: nobody builds on this castle yet, or it is only looked at.
    #[must_use]
    pub fn at_once() -> Self {
        Self::default()
    }

    /// These nodes change one after the other, and no other restarts. First those that stay up, for that may mend what ails the cluster. Then workers, for
    /// they are missed the least; then control planes, the one that leads etcd last, so that it is handed on once.
    #[must_use]
    pub fn of(nodes: &[Node], mut manner: impl FnMut(&Node) -> Option<Manner>, leader: Option<&str>) -> Self {
        let mut turns: Vec<(&Node, Manner)> =
            nodes.iter().filter_map(|node| manner(node).map(|manner| (node, manner))).collect();
        turns.sort_by_key(|(node, manner)| {
            (*manner == Manner::Restart, node.role == Role::ControlPlane, leader == Some(node.name.value.as_str()))
        });
        let turns = turns.into_iter().map(|(node, manner)| (node.name.value.clone(), manner)).collect();
        Self { turns, otherwise: Restarts::Never }
    }

    /// Whether no node has a turn.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }

    fn manner(&self, node: &Node) -> Option<Manner> {
        self.turns.iter().find(|(name, _)| *name == node.name.value).map(|(_, manner)| *manner)
    }

    /// Whether this node restarts in a turn.
    pub(crate) fn has(&self, node: &Node) -> bool {
        self.manner(node) == Some(Manner::Restart)
    }

    /// Whether the steps that make this node may restart it.
    pub(crate) fn restarts(&self, node: &Node) -> Restarts {
        if self.has(node) { Restarts::InTurn } else { self.otherwise }
    }

    /// Whether the step that gives this node its configuration may do so as it runs.
    pub(super) fn changes(&self, node: &Node) -> Restarts {
        if self.manner(node).is_some() { Restarts::InTurn } else { self.otherwise }
    }
}

/// Adds the steps of each turn. What is returned is the API once all are back: whoever is put into the cluster is not disturbed before.
pub(super) fn roll(
    graph: &mut GraphBuilder,
    plan: &Plan,
    keys: &Handle<Keys>,
    api: &Handle<Kubernetes>,
    begun: &Handle<Quorum>,
) -> Handle<Kubernetes> {
    let Plan { nodes, wire, rolling, .. } = plan;
    let place = |seconds| Place { lane: None, predicted: Duration::from_secs(seconds) };
    let at = |address: String| ApiSite { wire: wire.clone(), address };
    let control_planes: Vec<_> = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect();
    let turn = |(turn, manner): &(String, Manner)| {
        let (node, machine) = nodes.iter().zip(&plan.machines).find(|(node, _)| node.name.value == *turn)?;
        Some((node, machine, *manner))
    };
    let mut earlier: Vec<StepId> = Vec::new();
    for (node, machine, manner) in rolling.turns.iter().filter_map(turn) {
        let Manner::InPlace { starts_api } = manner else { continue };
        let own = &node.name.value;
        let (spare, configured, serves) = (id("spare", own), id("configure", own), id("serves", own));
        let rest = control_planes.iter().filter(|whom| whom.name != *own);
        let rest = rest.map(|whom| (whom.name.clone(), at(url(whom.address)))).collect();
        let gate = Spare::new(at(url(node.address.value)), rest);
        graph.gate(spare.clone(), place(1), (keys.clone(), begun.clone()), gate);
        earlier.drain(..).for_each(|earlier| graph.after(spare.clone(), earlier));
        graph.step(configured.clone(), place(2), (keys.clone(),), configure(plan, node, *machine, Restarts::Never));
        graph.after(configured.clone(), spare);
        let gate = Serves::new(at(url(node.address.value)), own, starts_api);
        graph.gate(serves.clone(), place(if starts_api { 30 } else { 1 }), (keys.clone(), begun.clone()), gate);
        graph.after(serves.clone(), configured);
        earlier.push(serves);
    }
    if rolling.turns.iter().any(|(_, manner)| *manner == Manner::Restart) {
        restart(graph, plan, keys, (api, begun), &mut earlier);
    }
    let again = id("api", "again");
    let api = endpoint(graph, plan, (again.clone(), place(1)), (keys.clone(), begun.clone()));
    earlier.into_iter().for_each(|earlier| graph.after(again.clone(), earlier));
    api
}

/// Adds the turns of nodes that restart. The first comes after what is in `earlier`, which then holds what the last one ends with.
fn restart(
    graph: &mut GraphBuilder,
    plan: &Plan,
    keys: &Handle<Keys>,
    (api, begun): (&Handle<Kubernetes>, &Handle<Quorum>),
    earlier: &mut Vec<StepId>,
) {
    let Plan { castle, nodes, wire, rolling, .. } = plan;
    let name = castle.castle.as_str();
    let place = |seconds| Place { lane: None, predicted: Duration::from_secs(seconds) };
    let at = |address: String| ApiSite { wire: wire.clone(), address };
    let control_planes: Vec<_> = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect();
    let others = if nodes.len() > 1 { Others::There } else { Others::None };
    let nobody_leaves = Departure::of([]);
    // One that an earlier run has restarted, and did not come to open again.
    let opened = id("nodes", "back");
    let rest = nodes.iter().filter(|node| !rolling.has(node)).map(|node| node.name.value.clone());
    graph.step(opened.clone(), place(1), (api.clone(),), Left::new(name, rest, Vec::new()).only_these());
    let sound = id("volumes", "sound");
    graph.gate(
        sound.clone(),
        place(1),
        (api.clone(), begun.clone()),
        Ready::<Quorum>::new(vec![nobody_leaves.is_made_up_for()], REBUILDING),
    );
    // Nobody goes while another is away.
    earlier.extend([opened, sound, id("etcd", "members"), id("nodes", "open")]);
    if waits_for_nodes(castle) {
        earlier.push(id("nodes", "ready"));
    }
    // One that was just made may vote long before it serves.
    for whom in &control_planes {
        let serving = id("serving", &whom.name);
        graph.gate(
            serving.clone(),
            place(1),
            (keys.clone(), begun.clone()),
            Api::new(at(url(whom.address)), &whom.name),
        );
        earlier.push(serving);
    }
    let restarting = rolling.turns.iter().filter(|(_, manner)| *manner == Manner::Restart);
    let turn = |turn: &String| nodes.iter().zip(&plan.machines).find(|(node, _)| node.name.value == *turn);
    for (node, machine) in restarting.filter_map(|(name, _)| turn(name)) {
        let own = &node.name.value;
        let (drain, restart, configured, open) =
            (id("drain", own), platform::restart_step(node), id("configure", own), id("open", own));
        let step = Drain::new(name, own, None).for_a_while(others);
        let drained = graph.step(drain.clone(), place(1), (api.clone(),), step);
        earlier.drain(..).for_each(|earlier| graph.after(drain.clone(), earlier));
        graph.after(restart.clone(), drain);
        if others == Others::There {
            let empty = id("empty", own);
            graph.gate(empty.clone(), place(30), (api.clone(), drained.clone()), Empty::new(own));
            graph.after(restart, empty);
        }
        graph.step(configured.clone(), place(30), (keys.clone(),), configure(plan, node, *machine, Restarts::AtOnce));
        graph.after(configured.clone(), platform::start_step(node));
        let back = id("back", own);
        graph.gate(back.clone(), place(60), (api.clone(), drained), Back::new(own));
        graph.after(back.clone(), configured);
        let step = Left::new(name, [own.clone()], Vec::new()).only_these();
        graph.step(open.clone(), place(1), (api.clone(),), step);
        graph.after(open.clone(), back.clone());
        if node.role == Role::ControlPlane {
            let (votes, serves) = (id("votes", own), id("serves", own));
            let members = Members::new(wire.clone(), control_planes.clone());
            graph.gate(votes.clone(), place(10), (keys.clone(), begun.clone()), members);
            let gate = Api::new(at(url(node.address.value)), own);
            graph.gate(serves.clone(), place(10), (keys.clone(), begun.clone()), gate);
            for gate in [votes, serves] {
                graph.after(gate.clone(), back.clone());
                graph.after(open.clone(), gate);
            }
        }
        let rebuilt = id("rebuilt", own);
        let gate = Ready::<Quorum>::new(vec![nobody_leaves.is_made_up_for()], REBUILDING);
        graph.gate(rebuilt.clone(), place(10), (api.clone(), begun.clone()), gate);
        graph.after(rebuilt.clone(), open);
        earlier.push(rebuilt);
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
        let restart = |is_so: bool| is_so.then_some(Manner::Restart);
        let names = |rolling: Rolling| rolling.turns.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        let turns = |leader| names(Rolling::of(&nodes, |node| restart(node.name.value != "blue-worker-1"), leader));
        assert_eq!(turns(Some("blue-cp-1")), ["blue-worker-2", "blue-cp-2", "blue-cp-3", "blue-cp-1"]);
        assert_eq!(turns(None), ["blue-worker-2", "blue-cp-1", "blue-cp-2", "blue-cp-3"]);
        let rolling = Rolling::of(&nodes, |node| restart(node.name.value == "blue-cp-1"), None);
        let restarts: Vec<Restarts> = nodes.iter().map(|node| rolling.restarts(node)).collect();
        assert_eq!((restarts[0], &restarts[1..]), (Restarts::InTurn, [Restarts::Never; 4].as_slice()));
    }

    #[test]
    fn those_that_stay_up_come_before_those_that_restart() {
        let nodes = castle_spec::read(FILE.as_bytes()).nodes;
        let manner = |node: &Node| match node.name.value.as_str() {
            "blue-cp-2" => Some(Manner::InPlace { starts_api: true }),
            "blue-cp-1" | "blue-worker-1" => Some(Manner::Restart),
            _ => None,
        };
        let rolling = Rolling::of(&nodes, manner, None);
        let turns: Vec<&str> = rolling.turns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(turns, ["blue-cp-2", "blue-worker-1", "blue-cp-1"]);
        // Its machine is not touched, and its configuration waits for its turn.
        assert_eq!((rolling.restarts(&nodes[1]), rolling.changes(&nodes[1])), (Restarts::Never, Restarts::InTurn));
    }
}
