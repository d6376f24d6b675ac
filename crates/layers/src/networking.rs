//! The networking layer: MetalLB, the castle's pool of addresses, and their announcement.
//!
//! MetalLB's Pod is ready before its webhook serves, and its webhook serves one kind before the other. So each object waits until the
//! API accepts that very object.

use castle_components::namespace;
use castle_engine::{GraphBuilder, Handle};
use castle_kubernetes::client::Scope;
use castle_kubernetes::model::{Key, Kind, Object, Stage};
use castle_kubernetes::steps::{Expect, Present, Test, Unmet, stage_step};
use castle_spec::ComponentName;
use serde_json::{Value, json};

use crate::inside::{DECIDED, Inside, SERVING, daemon_sets, deployments, objects, takes_work};
use crate::names::POOL;
use crate::names::id;

const LAYER: &str = "networking";
const COMPONENT: ComponentName = ComponentName::Metallb;
const GROUP: &str = "metallb.io";
const VERSION: &str = "metallb.io/v1beta1";

/// Adds the layer; returns the promise of addresses that are announced. The pool is castle's, whoever installs MetalLB.
pub fn raise(graph: &mut GraphBuilder, inside: &Inside<'_>) -> Option<Handle<Present>> {
    let range = inside.castle.network.load_balancers.as_ref()?;
    let own = inside.component(graph, COMPONENT);
    // How long its webhook may take once its Pods run: those of somebody else's manifest may wait for more.
    let (serving, patience) = match &own {
        Some((_, present)) => (serving(graph, inside, present), DECIDED),
        None => (inside.brought(graph, COMPONENT)?, SERVING),
    };
    let pool = json!({"addresses": [range.value.to_string()], "autoAssign": true});
    let advertisement = json!({"ipAddressPools": [POOL]});
    let mut configured = serving.clone();
    for (word, kind, spec) in [("pool", "IPAddressPool", pool), ("advertisement", "L2Advertisement", advertisement)] {
        let mark = inside.mark(LAYER, word);
        let wanted = objects([object(kind, &spec)]);
        let accepted = wanted.iter().map(|object| Expect::Accepted(Box::new(mark.on(object.clone())))).collect();
        let gate = id(LAYER, word, "accepted");
        inside.gate(graph, (gate.clone(), patience), &serving, accepted);
        configured = inside.beside(graph, COMPONENT, &mark, &wanted);
        graph.after(stage_step(&mark, Stage::Rest), gate);
    }
    if own.is_none() {
        // What it says of its configuration depends on its version, which castle does not know.
        return Some(configured);
    }
    // Where patches or taints say otherwise there are fewer speakers, and each of those there are counts.
    let is_patched = inside.castle.wanted_components().iter().any(|it| it.name == COMPONENT && !it.patches.is_empty());
    let speaking = inside.nodes.iter().filter(|node| !is_patched && takes_work(node));
    let names = speaking.map(|node| format!("speaker-{}", node.name.value));
    let names: Vec<String> = std::iter::once("controller".to_owned()).chain(names).collect();
    let valid = Test::new(move |states| {
        names.iter().try_for_each(|name| is_valid(states, name))?;
        states.iter().try_for_each(|state| is_valid(states, state.name()))
    });
    let (kind, scope) = (Kind::new(VERSION, "ConfigurationState"), Scope::within(namespace(COMPONENT)));
    let gate = id(LAYER, COMPONENT.word(), "valid");
    let valid = inside.gate(graph, (gate.clone(), DECIDED), &configured, vec![Expect::Holds(kind, scope, valid)]);
    // The states of a moment before the pool was there say nothing about it. Those of before it was changed may still be shown: that the whole
    // configuration can be is what the webhook has said of the very object.
    graph.after(gate, stage_step(&inside.mark(LAYER, "pool"), Stage::Rest));
    Some(valid)
}

/// Adds the gate behind which MetalLB runs.
fn serving(graph: &mut GraphBuilder, inside: &Inside<'_>, present: &Handle<Present>) -> Handle<Present> {
    let mut expects = deployments(COMPONENT, &["controller"]);
    expects.extend(daemon_sets(COMPONENT, &["speaker"]));
    expects.push(Expect::Injected {
        kind: "ValidatingWebhookConfiguration".to_owned(),
        name: "metallb-webhook-configuration".to_owned(),
        authority: None,
    });
    inside.gate(graph, (id(LAYER, COMPONENT.word(), "serving"), SERVING), present, expects)
}

fn object(kind: &str, spec: &Value) -> Value {
    let metadata = json!({"name": POOL, "namespace": namespace(COMPONENT)});
    json!({"apiVersion": VERSION, "kind": kind, "metadata": metadata, "spec": spec})
}

/// Whether a part of MetalLB has taken the configuration.
fn is_valid(states: &[Object], name: &str) -> Result<(), Unmet> {
    let Some(state) = states.iter().find(|state| state.name() == name) else {
        return Err(Unmet::absent(Key::new(GROUP, "ConfigurationState", namespace(COMPONENT), name)));
    };
    match state.text("/status/result") {
        "Valid" => Ok(()),
        "" => Err(Unmet::of(state, "has no result yet")),
        other => Err(Unmet::of(state, format!("is {other}: {}", state.text("/status/errorSummary")))),
    }
}
