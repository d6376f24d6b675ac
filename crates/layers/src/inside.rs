//! What the layers inside the cluster share: its API, the castle, and the manifests of its components.

use std::collections::BTreeMap;
use std::time::Duration;

use castle_components::namespace;
use castle_engine::{GraphBuilder, Handle, Place, StepId};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Key, Kind, Mark, Object, Stage, Status, status};
use castle_kubernetes::steps::{Expect, Present, Ready, Test, Unmet, install_unless, record_step, stage_step};
use castle_spec::{Castle, ComponentName, Node, Role};
use serde_json::Value;

use crate::components::layer_of;
use crate::names::id;
use crate::owners;

/// How long the images of a component and its Pods may take: a slow line, and a node that pulls one image after the other.
pub(crate) const SERVING: Duration = Duration::from_secs(15 * 60);
/// How long a controller may take that runs.
pub(crate) const DECIDED: Duration = Duration::from_secs(5 * 60);

/// A cluster to install components in.
pub struct Inside<'a> {
    pub(crate) castle: &'a Castle,
    pub(crate) nodes: &'a [Node],
    /// The API, once it serves.
    pub(crate) api: &'a Handle<Api>,
    /// The objects of each component that castle installs.
    pub(crate) manifests: &'a BTreeMap<ComponentName, Vec<Object>>,
    /// The components that Flux is to bring, each once it is settled that it is Flux's.
    left: BTreeMap<String, Handle<Present>>,
    /// Gates that are taken for open without being asked. There are none, except where a test shows what a gate is for.
    pub(crate) open: &'a [StepId],
}

impl<'a> Inside<'a> {
    /// A cluster to install components in, each behind the question whose it is.
    pub fn enter(
        graph: &mut GraphBuilder,
        castle: &'a Castle,
        nodes: &'a [Node],
        api: &'a Handle<Api>,
        manifests: &'a BTreeMap<ComponentName, Vec<Object>>,
    ) -> Self {
        let left = owners::arbitrate(graph, castle, api);
        Self { castle, nodes, api, manifests, left, open: &[] }
    }

    /// The same with these gates taken for open: so a test shows what each is for.
    #[must_use]
    pub fn taking_for_open(self, open: &'a [StepId]) -> Self {
        Self { open, ..self }
    }

    /// The mark of a component.
    #[must_use]
    pub fn mark(&self, layer: &str, component: &str) -> Mark {
        Mark::new(self.castle.castle.as_str(), layer, component)
    }

    /// Wants the objects of a component's manifest, if castle installs it.
    pub(crate) fn component(
        &self,
        graph: &mut GraphBuilder,
        component: ComponentName,
    ) -> Option<(Mark, Handle<Present>)> {
        let objects = self.manifests.get(&component)?;
        let mark = self.mark(layer_of(component), component.word());
        let present = install_unless(graph, self.api, objects, &mark, self.open);
        graph.after(record_step(&mark), owners::settled(&mark));
        Some((mark, present))
    }

    /// Waits until Flux has brought a component that is left to it, if it is: its namespace is there, and its Pods run. By which names is up to
    /// the Git repository.
    pub(crate) fn brought(&self, graph: &mut GraphBuilder, component: ComponentName) -> Option<Handle<Present>> {
        let settled = self.left.get(component.word())?;
        let gate = id(layer_of(component), component.word(), "brought");
        let space = namespace(component);
        let waits = format!("Flux is to bring {component} with the Git repository, and has not yet");
        let there = Test::new(move |spaces| match spaces {
            [] => Err(Unmet { evidence: waits.clone(), ..Unmet::absent(Key::new("", "Namespace", "", space)) }),
            _ => Ok(()),
        });
        let mut expects = vec![Expect::Holds(Kind::new("v1", "Namespace"), Scope::named("", space), there)];
        for (kind, needs_one) in [("Deployment", true), ("DaemonSet", false)] {
            let running = Test::new(move |workloads| {
                if needs_one && workloads.is_empty() {
                    return Err(Unmet::absent(Key::new("apps", kind, space, "(any)")));
                }
                workloads.iter().try_for_each(|workload| match status(workload, 0) {
                    Status::Current => Ok(()),
                    Status::InProgress(why) | Status::Failed(why) => Err(Unmet::of(workload, why)),
                    Status::Terminating => Err(Unmet::of(workload, "is on its way out")),
                })
            });
            expects.push(Expect::Holds(Kind::new("apps/v1", kind), Scope::within(space), running));
        }
        let brought = self.gate(graph, (gate.clone(), SERVING), settled, expects);
        if self.manifests.contains_key(&ComponentName::Flux) {
            // Before Flux has been told what to follow it brings nothing.
            graph.after(gate, stage_step(&self.mark(layer_of(ComponentName::Flux), "sync"), Stage::Rest));
        }
        Some(brought)
    }

    /// Wants these objects beside a component, once it is settled whose that is.
    pub(crate) fn beside(
        &self,
        graph: &mut GraphBuilder,
        component: ComponentName,
        mark: &Mark,
        objects: &[Object],
    ) -> Handle<Present> {
        let present = install_unless(graph, self.api, objects, mark, self.open);
        graph.after(record_step(mark), owners::settled(&self.mark(layer_of(component), component.word())));
        present
    }

    /// Adds a gate of a layer: all this, once that is present.
    pub(crate) fn gate(
        &self,
        graph: &mut GraphBuilder,
        gate: (StepId, Duration),
        present: &Handle<Present>,
        expects: Vec<Expect>,
    ) -> Handle<Present> {
        let (id, deadline) = gate;
        let predicted = if deadline == SERVING { Duration::from_secs(30) } else { Duration::from_secs(5) };
        let place = Place { lane: None, predicted };
        let expects = if self.open.contains(&id) { Vec::new() } else { expects };
        graph.gate(id, place, (self.api.clone(), present.clone()), Ready::new(expects, deadline))
    }

    /// The nodes that run the workload.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Node> {
        let has_workers = self.nodes.iter().any(|node| node.role == Role::Worker);
        self.nodes.iter().filter(move |node| !has_workers || node.role == Role::Worker)
    }
}

/// Whether no taint of castle.yaml keeps Pods off a node.
pub(crate) fn takes_work(node: &Node) -> bool {
    !node.taints.iter().any(|taint| taint.parts().2 != "PreferNoSchedule")
}

/// An object of castle's own making. One without a name would be a mistake in this program, and is left out.
pub(crate) fn objects<const N: usize>(values: [Value; N]) -> Vec<Object> {
    values.into_iter().filter_map(Object::new).collect()
}

/// That these Deployments of a component have Pods that are available.
pub(crate) fn deployments(component: ComponentName, names: &[&str]) -> Vec<Expect> {
    workloads(component, "Deployment", names)
}

/// That these DaemonSets of a component have a Pod on every node that wants one.
pub(crate) fn daemon_sets(component: ComponentName, names: &[&str]) -> Vec<Expect> {
    workloads(component, "DaemonSet", names)
}

fn workloads(component: ComponentName, kind: &str, names: &[&str]) -> Vec<Expect> {
    let kind = Kind::new("apps/v1", kind);
    let serving = |name: &&str| Expect::Serving(kind.clone(), namespace(component).to_owned(), (*name).to_owned());
    names.iter().map(serving).collect()
}
