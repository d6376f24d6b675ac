//! What the layers inside the cluster share: its API, the castle, and the manifests of its components.

use std::collections::BTreeMap;
use std::time::Duration;

use castle_components::patches::namespace;
use castle_engine::{GraphBuilder, Handle, Layer, Place, StepId};
use castle_kubernetes::client::Api;
use castle_kubernetes::model::{Kind, Mark, Object};
use castle_kubernetes::steps::{Expect, Present, Ready, install_unless, record_step};
use castle_spec::{Castle, ComponentName, Node, Role};
use serde_json::Value;

use crate::owners;

/// How long the images of a component and its Pods may take: a slow line, and a node that pulls one image after the other.
pub(crate) const SERVING: Duration = Duration::from_secs(15 * 60);
/// How long a controller may take that runs.
pub(crate) const DECIDED: Duration = Duration::from_secs(5 * 60);

/// The layer that a component belongs to.
#[must_use]
pub fn layer_of(component: ComponentName) -> &'static str {
    match component {
        ComponentName::ExternalSecrets => "engine",
        ComponentName::Metallb => "networking",
        ComponentName::Longhorn => "storage",
        ComponentName::Flux => "gitops",
    }
}

/// A cluster to install components in.
pub struct Inside<'a> {
    pub(crate) castle: &'a Castle,
    pub(crate) nodes: &'a [Node],
    /// The API, once it serves.
    pub(crate) api: &'a Handle<Api>,
    /// The objects of each component that castle installs.
    pub(crate) manifests: &'a BTreeMap<ComponentName, Vec<Object>>,
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
        owners::arbitrate(graph, castle, api);
        Self { castle, nodes, api, manifests, open: &[] }
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

/// The name of a step or gate.
pub(crate) fn id(layer: &str, kind: &str, name: &str) -> StepId {
    StepId::new(&Layer::new(layer), kind, name)
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
