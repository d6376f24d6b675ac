//! The storage layer: Longhorn on the nodes' disks.
//!
//! Its manifest holds no webhook, no driver and no class: its managers make them one after the other, once they run. So ready means
//! what they have made, down to a disk on every node that takes volumes.

mod copies;
mod proof;

use castle_components::namespace;
use castle_engine::{GraphBuilder, Handle, StepId};
use castle_kubernetes::client::Scope;
use castle_kubernetes::model::{Key, Kind, Object, Stage, Status, condition, status};
use castle_kubernetes::steps::{Expect, Present, Test, Unmet, stage_step};
use castle_spec::ComponentName;
use castle_spec::model::Storage;
use serde_json::{Value, json};

pub(crate) use copies::{Departure, REBUILDING, defined};

use crate::inside::{DECIDED, Inside, SERVING, daemon_sets, deployments, objects, takes_work};
use crate::names::id;

const LAYER: &str = "storage";
const COMPONENT: ComponentName = ComponentName::Longhorn;
const GROUP: &str = "longhorn.io";
const VERSION: &str = "longhorn.io/v1beta2";
/// The driver by which volumes get to Pods.
const DRIVER: &str = "driver.longhorn.io";
/// A setting that there always is.
const SETTING: &str = "default-replica-count";
/// The class of its volumes.
const CLASS: &str = "longhorn";

/// Adds the layer, which begins when the nodes' own volumes are there; returns the promise of storage that works, unless somebody else
/// installs Longhorn.
pub fn raise(graph: &mut GraphBuilder, inside: &Inside<'_>, volumes: &[StepId]) -> Option<Handle<Present>> {
    let Storage::Longhorn(longhorn) = &inside.castle.storage.value else { return None };
    let (mark, present) = inside.component(graph, COMPONENT)?;
    // A manager that finds no volume at its path takes the system disk.
    for volume in volumes {
        graph.after(stage_step(&mark, Stage::Rest), volume.clone());
    }
    let nodes: Vec<String> =
        inside.workers().filter(|node| takes_work(node)).map(|node| node.name.value.clone()).collect();
    let mut managers = daemon_sets(COMPONENT, &["longhorn-manager"]);
    managers.extend(
        [
            ("ValidatingWebhookConfiguration", "longhorn-webhook-validator"),
            ("MutatingWebhookConfiguration", "longhorn-webhook-mutator"),
        ]
        .map(|(kind, name)| Expect::Injected { kind: kind.to_owned(), name: name.to_owned(), authority: None }),
    );
    // Nothing of it is changed: only whether its webhook answers is asked.
    let setting = json!({
        "apiVersion": VERSION, "kind": "Setting",
        "metadata": {"name": SETTING, "namespace": namespace(COMPONENT)},
    });
    let there = Test::new(|settings| match settings {
        [] => Err(Unmet::absent(Key::new(GROUP, "Setting", namespace(COMPONENT), SETTING))),
        _ => Ok(()),
    });
    let scope = Scope::named(namespace(COMPONENT), SETTING);
    managers.push(Expect::Holds(Kind::new(VERSION, "Setting"), scope, there));
    managers.extend(objects([setting]).into_iter().map(|setting| Expect::Accepted(Box::new(mark.on(setting)))));
    let managed = inside.gate(graph, (id(LAYER, COMPONENT.word(), "managers"), SERVING), &present, managers);
    let has_disks = id(LAYER, COMPONENT.word(), "disks");
    // Its engine is an image of its own, which the nodes pull only now.
    inside.gate(graph, (has_disks.clone(), SERVING), &managed, disks(&nodes));
    let driver = inside.gate(graph, (id(LAYER, COMPONENT.word(), "driver"), SERVING), &managed, driver(nodes));
    let ready = inside.gate(graph, (id(LAYER, "class", "ready"), DECIDED), &driver, vec![class()]);
    graph.after(id(LAYER, "class", "ready"), has_disks);
    if !longhorn.proof.value {
        return Some(ready);
    }
    Some(proof::prove(graph, inside, &ready))
}

/// That every node is known to Longhorn, takes replicas, and has a disk for them; and that its engine is on them.
fn disks(nodes: &[String]) -> Vec<Expect> {
    let nodes = nodes.to_vec();
    let known = Test::new(move |found| nodes.iter().try_for_each(|name| has_disk(found, name)));
    let engines = Test::new(|images| {
        if images.is_empty() {
            return Err(Unmet::absent(Key::new(GROUP, "EngineImage", namespace(COMPONENT), "(any)")));
        }
        images.iter().try_for_each(|image| match image.text("/status/state") {
            "deployed" => Ok(()),
            other => Err(Unmet::of(image, format!("is {}", if other.is_empty() { "not deployed yet" } else { other }))),
        })
    });
    let scope = || Scope::within(namespace(COMPONENT));
    vec![
        Expect::Holds(Kind::new(VERSION, "Node"), scope(), known),
        Expect::Holds(Kind::new(VERSION, "EngineImage"), scope(), engines),
    ]
}

fn has_disk(nodes: &[Object], name: &str) -> Result<(), Unmet> {
    let Some(node) = nodes.iter().find(|node| node.name() == name) else {
        return Err(Unmet::absent(Key::new(GROUP, "Node", namespace(COMPONENT), name)));
    };
    for wanted in ["Ready", "Schedulable"] {
        match condition(node, wanted) {
            Some(found) if found.status == "True" => {}
            Some(found) => {
                return Err(Unmet::of(
                    node,
                    format!("{wanted} is {} ({}): {}", found.status, found.reason, found.message),
                ));
            }
            None => return Err(Unmet::of(node, format!("has no condition {wanted} yet"))),
        }
    }
    let disks = node.at("/status/diskStatus").as_object();
    let mut why = "has no disk: its data path is not there, or not usable".to_owned();
    for (disk, status) in disks.into_iter().flatten() {
        match ["Ready", "Schedulable"].into_iter().find_map(|wanted| not_so(status, wanted)) {
            None => return Ok(()),
            Some(reason) => why = format!("disk {disk}: {reason}"),
        }
    }
    Err(Unmet::of(node, why))
}

/// Why a condition of a disk is not true.
fn not_so(disk: &Value, wanted: &str) -> Option<String> {
    let found = disk["conditions"].as_array().into_iter().flatten().find(|condition| condition["type"] == wanted);
    let text = |key: &str| found.and_then(|found| found[key].as_str()).unwrap_or_default();
    match found {
        Some(found) if found["status"] == "True" => None,
        Some(_) => Some(format!("{wanted} is {} ({}): {}", text("status"), text("reason"), text("message"))),
        None => Some(format!("has no condition {wanted} yet")),
    }
}

/// That volumes get to Pods: the parts of the driver run, and every node has registered it.
fn driver(nodes: Vec<String>) -> Vec<Expect> {
    let mut expects = deployments(COMPONENT, &["csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"]);
    expects.extend(daemon_sets(COMPONENT, &["longhorn-csi-plugin"]));
    let engines = Test::new(|sets| {
        let mut engines = sets.iter().filter(|set| set.name().starts_with("engine-image-")).peekable();
        if engines.peek().is_none() {
            return Err(Unmet::absent(Key::new("apps", "DaemonSet", namespace(COMPONENT), "engine-image-*")));
        }
        engines.try_for_each(|set| match status(set, 0) {
            Status::Current => Ok(()),
            Status::InProgress(why) | Status::Failed(why) => Err(Unmet::of(set, why)),
            Status::Terminating => Err(Unmet::of(set, "is on its way out")),
        })
    });
    expects.push(Expect::Holds(Kind::new("apps/v1", "DaemonSet"), Scope::within(namespace(COMPONENT)), engines));
    let known = Test::new(|drivers| match drivers {
        [] => Err(Unmet::absent(Key::new("storage.k8s.io", "CSIDriver", "", DRIVER))),
        _ => Ok(()),
    });
    expects.push(Expect::Holds(Kind::new("storage.k8s.io/v1", "CSIDriver"), Scope::named("", DRIVER), known));
    let registered = Test::new(move |found| {
        nodes.iter().try_for_each(|name| {
            let Some(node) = found.iter().find(|node| node.name() == name) else {
                return Err(Unmet::absent(Key::new("storage.k8s.io", "CSINode", "", name)));
            };
            let is_there = node.list("/spec/drivers").iter().any(|driver| driver["name"] == DRIVER);
            if is_there { Ok(()) } else { Err(Unmet::of(node, format!("{DRIVER} is not registered yet"))) }
        })
    });
    expects.push(Expect::Holds(Kind::new("storage.k8s.io/v1", "CSINode"), Scope::default(), registered));
    expects
}

/// That claims find the class.
fn class() -> Expect {
    let there = Test::new(|classes| match classes {
        [] => Err(Unmet::absent(Key::new("storage.k8s.io", "StorageClass", "", CLASS))),
        _ => Ok(()),
    });
    Expect::Holds(Kind::new("storage.k8s.io/v1", "StorageClass"), Scope::named("", CLASS), there)
}
