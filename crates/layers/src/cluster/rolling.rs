//! Nodes that change one after the other, while the castle goes on. One that restarts is sent away, restarts, and is back in every respect before the
//! next one's turn. A control plane that takes up its configuration as it runs serves again before the next one does. The first that does not come back is
//! the last that went.

use std::time::Duration;

use castle_engine::{GraphBuilder, Handle, Place, Restarts, StepId};
use castle_kubernetes::client::Api as Kubernetes;
use castle_kubernetes::steps::{Back, Drain, Empty, Left, Others, Ready};
use castle_spec::Role;
use castle_talos::steps::{Keys, Members, Quorum};

use super::gates::{Api, Rest, Serves, Site as ApiSite, Spare};
use super::{Plan, configure, endpoint, id, url, whom};
use crate::platform::{self, waits_for_nodes};
use crate::storage::{Departure, REBUILDING};
use crate::turns::{For, Manner};

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
    for (node, machine, manner) in rolling.turns().iter().filter_map(turn) {
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
    if rolling.turns().iter().any(|(_, manner)| matches!(manner, Manner::Restart(_))) {
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
    let nobody_leaves = Departure::of([], nodes.iter().map(|node| node.name.value.clone()));
    // One that an earlier run has restarted, and did not come to open again.
    let opened = id("nodes", "back");
    let rest = nodes.iter().filter(|node| !rolling.has(node)).map(|node| node.name.value.clone());
    graph.step(opened.clone(), place(1), (api.clone(),), Left::new(name, rest, Vec::new()).only_these());
    let sound = id("volumes", "sound");
    graph.gate(
        sound.clone(),
        place(1),
        (api.clone(), begun.clone()),
        Ready::<Quorum>::new(nobody_leaves.is_made_up_for(), REBUILDING),
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
    let turn = |(turn, manner): &(String, Manner)| {
        let Manner::Restart(reason) = manner else { return None };
        let (node, machine) = nodes.iter().zip(&plan.machines).find(|(node, _)| node.name.value == *turn)?;
        Some((node, machine, *reason))
    };
    for (node, machine, reason) in rolling.turns().iter().filter_map(turn) {
        let own = &node.name.value;
        let (drain, restart, configured, open) =
            (id("drain", own), platform::restart_step(node), id("configure", own), id("open", own));
        let step = Drain::new(name, own, None).for_a_while(others);
        let drained = graph.step(drain.clone(), place(1), (api.clone(),), step);
        earlier.drain(..).for_each(|earlier| graph.after(drain.clone(), earlier));
        graph.after(restart.clone(), drain.clone());
        let staged = (reason == For::Both).then(|| id("stage", own));
        if let Some(staged) = &staged {
            let step = configure(plan, node, *machine, Restarts::Never).for_next_start();
            graph.step(staged.clone(), place(1), (keys.clone(),), step);
            graph.after(staged.clone(), drain.clone());
            graph.after(restart.clone(), staged.clone());
        }
        if others == Others::There {
            let (empty, rest) = (id("empty", own), id("rest", own));
            graph.gate(empty.clone(), place(30), (api.clone(), drained.clone()), Empty::new(own));
            let gate = Rest::of(wire, node, nodes, waits_for_nodes(castle));
            let needs = (api.clone(), keys.clone(), begun.clone(), drained.clone());
            graph.gate(rest.clone(), place(1), needs, gate);
            if let Some(staged) = staged {
                graph.after(staged.clone(), empty.clone());
                graph.after(rest.clone(), staged);
            }
            graph.after(rest.clone(), empty);
            graph.after(restart, rest);
        }
        // Once a turn: what is back after the first restart would be taken for what is back after the second.
        let restarts = match reason {
            For::Configuration => Restarts::AtOnce,
            For::Both if wire.is_looking() => Restarts::InTurn,
            For::Both | For::Machine => Restarts::Never,
        };
        graph.step(configured.clone(), place(30), (keys.clone(),), configure(plan, node, *machine, restarts));
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
        let gate = Ready::<Quorum>::new(nobody_leaves.is_made_up_for(), REBUILDING);
        graph.gate(rebuilt.clone(), place(10), (api.clone(), begun.clone()), gate);
        graph.after(rebuilt.clone(), open);
        earlier.push(rebuilt);
    }
}
