//! Nodes that change one after the other, while the castle goes on. One that restarts is sent away, restarts, and is back in every respect before the
//! next one's turn. One that takes up its configuration as it runs says once more that it lives before the next one does, and serves again if it is a control
//! plane. The first that does not come back is the last that went.
//!
//! Whoever is not well and changes goes first, for that may be what mends it: nobody waits for it before, nor for others of its kind that are still to
//! change, and all that are well wait until it is back.

use std::collections::BTreeSet;
use std::time::Duration;

use castle_engine::{GraphBuilder, Handle, Place, Restarts, StepId};
use castle_kubernetes::client::Api as Kubernetes;
use castle_kubernetes::steps::{Back, Drain, Empty, Expect, Left, Others, Ready};
use castle_spec::{Node, Role};
use castle_talos::steps::{Keys, Machine, Members, Quorum, Whom};

use super::gates::{Api, Blind, Lives, Rest, Serves, Site as ApiSite, Spare};
use super::{Plan, configuration, configure, endpoint, id, url, whom};
use crate::platform::{self, waits_for_nodes};
use crate::storage::{Departure, REBUILDING};
use crate::turns::{For, Manner, Turn};

fn place(seconds: u64) -> Place {
    Place { lane: None, predicted: Duration::from_secs(seconds) }
}

/// Adds the steps of each turn. What is returned is the API once all are back: whoever is put into the cluster is not disturbed before.
pub(super) fn roll(
    graph: &mut GraphBuilder,
    plan: &Plan,
    keys: &Handle<Keys>,
    api: &Handle<Kubernetes>,
    begun: &Handle<Quorum>,
) -> Handle<Kubernetes> {
    let turns: Vec<&Turn> = plan.rolling.turns().iter().collect();
    let ailing = turns.iter().filter(|turn| turn.is_ailing).map(|turn| turn.node.clone()).collect();
    let control_planes = plan.nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect();
    let mut roll =
        Roll { plan, keys, api, begun, control_planes, ailing, opened: None, is_held: false, earlier: Vec::new() };
    let is_well = |turn: &&&Turn| !turn.is_ailing;
    let (blind, seeing): (Vec<&Turn>, Vec<&Turn>) = turns.iter().partition(|turn| turn.is_blind);
    for turn in blind {
        roll.change(graph, turn);
    }
    // Who can be asked only once they are back is not asked before.
    for gate in [id("api", "endpoint")].into_iter().filter(|_| plan.rolling.is_blind()) {
        roll.earlier.iter().for_each(|earlier| graph.after(gate.clone(), earlier.clone()));
    }
    for turn in seeing.iter().filter(|turn| turn.is_ailing) {
        roll.change(graph, turn);
    }
    roll.mended(graph);
    for turn in seeing.iter().filter(is_well) {
        roll.change(graph, turn);
    }
    let again = id("api", "again");
    let api = endpoint(graph, plan, (again.clone(), place(1)), (keys.clone(), begun.clone()));
    roll.earlier.into_iter().chain(roll.opened).for_each(|earlier| graph.after(again.clone(), earlier));
    api
}

/// Turns that are added one after the other.
struct Roll<'r> {
    plan: &'r Plan,
    keys: &'r Handle<Keys>,
    api: &'r Handle<Kubernetes>,
    begun: &'r Handle<Quorum>,
    control_planes: Vec<Whom>,
    /// Those that are not well, and have not had their turns yet.
    ailing: BTreeSet<String>,
    /// The step that opens those that an earlier run has restarted, and did not come to open again.
    opened: Option<StepId>,
    /// Whether the next turn comes after the gates that ask for all nodes.
    is_held: bool,
    /// What the next turn comes after.
    earlier: Vec<StepId>,
}

impl Roll<'_> {
    fn at(&self, address: String) -> ApiSite {
        ApiSite { wire: self.plan.wire.clone(), address }
    }

    fn own_api(&self, node: &Node) -> Api {
        Api::new(self.at(url(node.address.value)), &node.name.value)
    }

    /// That volumes have their copies, but for those of nodes that are not well and have not changed yet.
    fn copies(&self) -> Ready<Quorum> {
        Ready::new(self.all().is_made_up_for(), REBUILDING)
    }

    /// All nodes, which stay: those that the file does not name any more go only when nobody changes.
    fn all(&self) -> Departure {
        let named = self.plan.nodes.iter().map(|node| node.name.value.clone());
        Departure::of_none(named.chain(self.plan.leaving.iter().cloned())).with_ailing(self.ailing.clone())
    }

    /// That all others are well, but for those that are not and have not changed yet, and this, too.
    fn rest(&self, own: &Node, more: Vec<Expect>) -> Rest {
        Rest::of(&self.plan.wire, (own, &self.plan.nodes), &self.ailing, waits_for_nodes(&self.plan.castle), more)
    }

    /// Adds the turn of a node.
    fn change(&mut self, graph: &mut GraphBuilder, turn: &Turn) {
        let Plan { nodes, machines, .. } = self.plan;
        let Some((node, machine)) = nodes.iter().zip(machines).find(|(node, _)| node.name.value == turn.node) else {
            return;
        };
        match turn.manner {
            Manner::InPlace { starts_api, is_felt } => {
                self.amend(graph, (node, *machine), starts_api, is_felt && !turn.is_blind);
            }
            Manner::Restart(reason) if turn.is_blind => self.revive(graph, (node, *machine), reason),
            Manner::Restart(reason) => self.restart(graph, (node, *machine), (reason, turn.is_ailing)),
        }
        self.ailing.remove(&turn.node);
        if turn.is_ailing {
            self.asked_later(graph, node);
        }
    }

    /// Lets the gates of this node alone wait until its turn is over.
    fn asked_later(&self, graph: &mut GraphBuilder, node: &Node) {
        let own = &node.name.value;
        let is_first = self.control_planes.first().is_some_and(|first| first.name == *own);
        let has_volume = configuration::has_longhorn(&self.plan.castle, node);
        let gates = [(is_first, id("api", own)), (has_volume, id("volume", own))];
        for (_, gate) in gates.into_iter().filter(|(is_there, _)| *is_there) {
            self.earlier.iter().for_each(|earlier| graph.after(gate.clone(), earlier.clone()));
        }
    }

    /// Lets the gates that ask for all nodes wait until those are back that were not well.
    fn mended(&mut self, graph: &mut GraphBuilder) {
        let mut gates = vec![id("etcd", "members")];
        if waits_for_nodes(&self.plan.castle) {
            gates.push(id("nodes", "ready"));
        }
        for gate in gates {
            self.earlier.iter().for_each(|earlier| graph.after(gate.clone(), earlier.clone()));
        }
    }

    /// A node takes up its configuration as it runs.
    fn amend(&mut self, graph: &mut GraphBuilder, (node, machine): (&Node, Machine), starts_api: bool, is_felt: bool) {
        let own = &node.name.value;
        let (spare, configured) = (id("spare", own), id("configure", own));
        let needs = || (self.keys.clone(), self.begun.clone());
        if node.role == Role::ControlPlane {
            let rest = self.control_planes.iter().filter(|whom| whom.name != *own);
            let rest = rest.map(|whom| (whom.name.clone(), self.at(url(whom.address)))).collect();
            let gate = Spare::new(self.at(url(node.address.value)), rest);
            graph.gate(spare.clone(), place(1), needs(), gate);
        } else {
            // It stays up, and so do its copies.
            let inside = (self.api.clone(), self.keys.clone(), self.begun.clone());
            graph.gate(spare.clone(), place(1), inside, self.rest(node, Vec::new()));
        }
        let step = configure(self.plan, node, machine, Restarts::Never);
        graph.step(configured.clone(), place(2), (self.keys.clone(),), step);
        self.earlier.drain(..).for_each(|earlier| graph.after(spare.clone(), earlier));
        graph.after(configured.clone(), spare);
        self.earlier.push(configured.clone());
        if node.role == Role::ControlPlane {
            let serves = id("serves", own);
            let gate = Serves::new(self.at(url(node.address.value)), own, starts_api);
            graph.gate(serves.clone(), place(if starts_api { 30 } else { 1 }), needs(), gate);
            graph.after(serves.clone(), configured.clone());
            self.earlier.push(serves);
        }
        if is_felt {
            let lives = id("lives", own);
            let gate = Lives::new(&self.plan.wire, own, waits_for_nodes(&self.plan.castle));
            graph.gate(lives.clone(), place(15), (self.api.clone(), self.begun.clone()), gate);
            graph.after(lives.clone(), configured);
            self.earlier.push(lives);
        }
    }

    /// A control plane restarts, and no API server of the castle serves: there is nobody to move anything, and nothing that would be missed.
    fn revive(&mut self, graph: &mut GraphBuilder, (node, machine): (&Node, Machine), reason: For) {
        let own = &node.name.value;
        let (blind, restart) = (id("blind", own), platform::restart_step(node));
        let members = Members::new(self.plan.wire.clone(), self.control_planes.clone());
        let members = members.sparing(own).without(self.ailing.clone());
        let gate = Blind::new(self.at(url(node.address.value)), own, members);
        graph.gate(blind.clone(), place(1), (self.keys.clone(), self.begun.clone()), gate);
        self.earlier.drain(..).for_each(|earlier| graph.after(blind.clone(), earlier));
        graph.after(restart.clone(), blind.clone());
        if let Some(staged) = self.stage(graph, (node, machine), reason) {
            graph.after(staged.clone(), blind);
            graph.after(restart, staged);
        }
        let configured = self.take_up(graph, (node, machine), reason);
        for gate in self.voice(graph, node) {
            graph.after(gate.clone(), configured.clone());
            self.earlier.push(gate);
        }
    }

    /// Adds what lays down the configuration of a node that restarts for its machine, too.
    fn stage(&self, graph: &mut GraphBuilder, (node, machine): (&Node, Machine), reason: For) -> Option<StepId> {
        let staged = (reason == For::Both).then(|| id("stage", &node.name.value))?;
        let step = configure(self.plan, node, machine, Restarts::Never).for_next_start();
        graph.step(staged.clone(), place(1), (self.keys.clone(),), step);
        Some(staged)
    }

    /// Adds what gives a node its configuration, once its machine has restarted, or by restarting it.
    fn take_up(&self, graph: &mut GraphBuilder, (node, machine): (&Node, Machine), reason: For) -> StepId {
        let configured = id("configure", &node.name.value);
        // Once a turn: what is back after the first restart would be taken for what is back after the second.
        let restarts = match reason {
            For::Configuration => Restarts::AtOnce,
            For::Both if self.plan.wire.is_looking() => Restarts::InTurn,
            For::Both | For::Machine => Restarts::Never,
        };
        let step = configure(self.plan, node, machine, restarts);
        graph.step(configured.clone(), place(30), (self.keys.clone(),), step);
        graph.after(configured.clone(), platform::start_step(node));
        configured
    }

    /// Adds the gates behind which a control plane votes and serves.
    fn voice(&self, graph: &mut GraphBuilder, node: &Node) -> [StepId; 2] {
        let own = &node.name.value;
        let (votes, serves) = (id("votes", own), id("serves", own));
        let mut ailing = self.ailing.clone();
        ailing.remove(own);
        let members = Members::new(self.plan.wire.clone(), self.control_planes.clone()).without(ailing);
        let needs = || (self.keys.clone(), self.begun.clone());
        graph.gate(votes.clone(), place(10), needs(), members);
        graph.gate(serves.clone(), place(10), needs(), self.own_api(node));
        [votes, serves]
    }

    /// Adds what comes before the first restart, and before the first of a node that is well: nobody goes while another is away.
    fn hold(&mut self, graph: &mut GraphBuilder, is_ailing: bool) {
        let Plan { castle, nodes, rolling, .. } = self.plan;
        if self.opened.is_none() {
            let opened = id("nodes", "back");
            let rest = nodes.iter().filter(|node| !rolling.has(node)).map(|node| node.name.value.clone());
            let step = Left::new(castle.castle.as_str(), rest, Vec::new()).only_these();
            graph.step(opened.clone(), place(1), (self.api.clone(),), step);
            self.earlier.extend([opened.clone(), id("nodes", "open")]);
            self.opened = Some(opened);
        }
        if is_ailing || self.is_held {
            return;
        }
        self.is_held = true;
        let sound = id("volumes", "sound");
        graph.gate(sound.clone(), place(1), (self.api.clone(), self.begun.clone()), self.copies());
        self.earlier.extend([sound, id("etcd", "members")]);
        if waits_for_nodes(castle) {
            self.earlier.push(id("nodes", "ready"));
        }
        // One that was just made may vote long before it serves.
        for node in nodes.iter().filter(|node| node.role == Role::ControlPlane) {
            let serving = id("serving", &node.name.value);
            graph.gate(serving.clone(), place(1), (self.keys.clone(), self.begun.clone()), self.own_api(node));
            self.earlier.push(serving);
        }
    }

    /// A node restarts.
    fn restart(
        &mut self,
        graph: &mut GraphBuilder,
        (node, machine): (&Node, Machine),
        (reason, is_ailing): (For, bool),
    ) {
        self.hold(graph, is_ailing);
        let Plan { castle, nodes, .. } = self.plan;
        let (name, own) = (castle.castle.as_str(), &node.name.value);
        let others = if nodes.len() > 1 { Others::There } else { Others::None };
        let (drain, restart, open) = (id("drain", own), platform::restart_step(node), id("open", own));
        let inside = (self.api.clone(), self.keys.clone(), self.begun.clone());
        if is_ailing {
            // Those that are well are asked for as a whole.
            let spare = id("spare", own);
            graph.gate(spare.clone(), place(1), inside.clone(), self.rest(node, self.all().is_made_up_for()));
            self.earlier.drain(..).for_each(|earlier| graph.after(spare.clone(), earlier));
            self.earlier.push(spare);
        }
        let step = Drain::new(name, own, None).for_a_while(others);
        let drained = graph.step(drain.clone(), place(1), (self.api.clone(),), step);
        self.earlier.drain(..).for_each(|earlier| graph.after(drain.clone(), earlier));
        graph.after(restart.clone(), drain.clone());
        let staged = self.stage(graph, (node, machine), reason);
        if let Some(staged) = &staged {
            graph.after(staged.clone(), drain.clone());
            graph.after(restart.clone(), staged.clone());
        }
        if others == Others::There {
            let (empty, rest) = (id("empty", own), id("rest", own));
            graph.gate(empty.clone(), place(30), (self.api.clone(), drained.clone()), Empty::new(own));
            graph.gate(rest.clone(), place(1), inside, self.rest(node, self.all().is_made_up_for()));
            if let Some(staged) = staged {
                graph.after(staged.clone(), empty.clone());
                graph.after(rest.clone(), staged);
            }
            graph.after(rest.clone(), empty);
            graph.after(restart, rest);
        }
        let configured = self.take_up(graph, (node, machine), reason);
        let back = id("back", own);
        graph.gate(back.clone(), place(60), (self.api.clone(), drained), Back::new(own));
        graph.after(back.clone(), configured);
        let step = Left::new(name, [own.clone()], Vec::new()).only_these();
        graph.step(open.clone(), place(1), (self.api.clone(),), step);
        graph.after(open.clone(), back.clone());
        if node.role == Role::ControlPlane {
            for gate in self.voice(graph, node) {
                graph.after(gate.clone(), back.clone());
                graph.after(open.clone(), gate);
            }
        }
        let rebuilt = id("rebuilt", own);
        self.ailing.remove(own);
        graph.gate(rebuilt.clone(), place(10), (self.api.clone(), self.begun.clone()), self.copies());
        graph.after(rebuilt.clone(), open);
        self.earlier.push(rebuilt);
    }
}
