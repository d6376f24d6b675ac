//! What is true of a castle that stands, read from the world and not from what castle says. Each is nothing if it is so, or why not.

use castle_datacenter::Datacenter;
use castle_spec::model::Storage;
use castle_spec::{ComponentName, Role};
use serde_json::Value;

use crate::keep::{BLUE, Keep};

const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const CRDS: &str = "customresourcedefinitions.apiextensions.k8s.io";

fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// That a workload has all its Pods, of its newest generation, and at least one.
pub(crate) fn current(world: &Datacenter, collection: &str, namespace: &str, name: &str) -> Option<String> {
    let Some(object) = world.object(BLUE, collection, namespace, name) else {
        return Some(format!("there is no {collection} {namespace}/{name}"));
    };
    let number = |path: &str| object.pointer(path).and_then(Value::as_i64).unwrap_or(0);
    let (wanted, there) = match collection {
        "daemonsets.apps" => (number("/status/desiredNumberScheduled"), number("/status/numberReady")),
        _ => (number("/spec/replicas"), number("/status/availableReplicas")),
    };
    let is_seen = number("/status/observedGeneration") == number("/metadata/generation");
    let is_so = is_seen && wanted > 0 && there >= wanted;
    (!is_so).then(|| format!("{collection} {namespace}/{name} has {there} of {wanted} Pods"))
}

/// That an object is there.
pub(crate) fn written(world: &Datacenter, collection: &str, namespace: &str, name: &str) -> Option<String> {
    let is_there = world.object(BLUE, collection, namespace, name).is_some();
    (!is_there).then(|| format!("there is no {collection} {namespace}/{name}"))
}

/// That all definitions whose names end so are established, and that there is one.
pub(crate) fn definitions(world: &Datacenter, ending: &str) -> Option<String> {
    let names = world.object_names(BLUE, CRDS);
    let own: Vec<&str> =
        names.iter().filter_map(|name| name.strip_prefix('/')).filter(|name| name.ends_with(ending)).collect();
    let is_established = |name: &str| {
        let found = world.object(BLUE, CRDS, "", name);
        found.is_some_and(|found| condition(&found, "Established").is_some_and(|it| it["status"] == "True"))
    };
    match own.iter().find(|name| !is_established(name)) {
        Some(name) => Some(format!("{name} is not established")),
        None => own.is_empty().then(|| format!("no definition ends with {ending}")),
    }
}

/// That every webhook of a configuration has an authority: that of a Secret, if one is named.
pub(crate) fn missing_authority(world: &Datacenter, name: &str, secret: Option<(&str, &str)>) -> Option<String> {
    let found = [VALIDATING, MUTATING].iter().find_map(|collection| world.object(BLUE, collection, "", name));
    let Some(found) = found else { return Some(format!("there is no configuration {name}")) };
    let told = secret.map(|(namespace, name)| {
        let secret = world.object(BLUE, "secrets", namespace, name).unwrap_or_default();
        secret["data"]["ca.crt"].as_str().unwrap_or("nothing").to_owned()
    });
    let is_known = |webhook: &Value| {
        let bundle = webhook["clientConfig"]["caBundle"].as_str().unwrap_or_default();
        !bundle.is_empty() && told.as_ref().is_none_or(|told| told == bundle)
    };
    let all = found["webhooks"].as_array().is_some_and(|webhooks| webhooks.iter().all(is_known));
    (!all).then(|| format!("a webhook of {name} does not have its authority"))
}

/// That the vault was logged in to.
pub(crate) fn is_valid_store(world: &Datacenter) -> Option<String> {
    let store = world.object(BLUE, "clustersecretstores.external-secrets.io", "", "infisical").unwrap_or_default();
    let is_valid = condition(&store, "Ready").is_some_and(|it| it["status"] == "True" && it["reason"] == "Valid");
    (!is_valid).then(|| "the store is not valid".to_owned())
}

/// That volumes can be had on every node that Longhorn knows.
pub(crate) fn storage_stands(world: &Datacenter) -> Option<String> {
    let is_true = |object: &Value, kind: &str| condition(object, kind).is_some_and(|it| it["status"] == "True");
    let nodes = world.object_names(BLUE, "nodes.longhorn.io");
    if nodes.is_empty() {
        return Some("Longhorn knows no node".to_owned());
    }
    for name in nodes.iter().filter_map(|name| name.split_once('/')).map(|(_, name)| name) {
        let node = world.object(BLUE, "nodes.longhorn.io", "longhorn-system", name).unwrap_or_default();
        let disks = node["status"]["diskStatus"].as_object().cloned().unwrap_or_default();
        let is_usable = |disk: &Value| {
            let disk = serde_json::json!({ "status": { "conditions": disk["conditions"] } });
            is_true(&disk, "Ready") && is_true(&disk, "Schedulable")
        };
        if !is_true(&node, "Ready") || !is_true(&node, "Schedulable") || !disks.values().any(is_usable) {
            return Some(format!("Longhorn has no disk on {name}"));
        }
        let csi = world.object(BLUE, "csinodes.storage.k8s.io", "", name).unwrap_or_default();
        let drivers = csi["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        if !drivers.iter().any(|driver| driver["name"] == "driver.longhorn.io") {
            return Some(format!("{name} has not registered the driver"));
        }
    }
    let images = world.object_names(BLUE, "engineimages.longhorn.io");
    let is_deployed = |name: &&str| {
        let image = world.object(BLUE, "engineimages.longhorn.io", "longhorn-system", name);
        image.is_some_and(|image| image["status"]["state"] == "deployed")
    };
    if images.is_empty() || !images.iter().filter_map(|name| name.split_once('/')).all(|(_, name)| is_deployed(&name)) {
        return Some("no engine is deployed".to_owned());
    }
    let parts = ["csi-attacher", "csi-provisioner", "csi-resizer", "csi-snapshotter"];
    let sets = ["longhorn-manager", "longhorn-csi-plugin"];
    (sets.iter().find_map(|name| current(world, "daemonsets.apps", "longhorn-system", name)))
        .or_else(|| parts.iter().find_map(|name| current(world, "deployments.apps", "longhorn-system", name)))
        .or_else(|| missing_authority(world, "longhorn-webhook-validator", None))
        .or_else(|| missing_authority(world, "longhorn-webhook-mutator", None))
        .or_else(|| written(world, "csidrivers.storage.k8s.io", "", "driver.longhorn.io"))
        .or_else(|| written(world, "storageclasses.storage.k8s.io", "", "longhorn"))
}

/// That addresses are announced from every node.
fn networking_stands(keep: &Keep) -> Option<String> {
    let world = keep.datacenter();
    let nodes = keep.castle.room.nodes.iter().map(|node| format!("speaker-{}", node.name.value));
    let state = |name: String| {
        let state = world.object(BLUE, "configurationstates.metallb.io", "metallb-system", &name).unwrap_or_default();
        (state["status"]["result"] != "Valid").then(|| format!("{name} is not valid: {state}"))
    };
    current(world, "deployments.apps", "metallb-system", "controller")
        .or_else(|| current(world, "daemonsets.apps", "metallb-system", "speaker"))
        .or_else(|| written(world, "ipaddresspools.metallb.io", "metallb-system", "castle"))
        .or_else(|| written(world, "l2advertisements.metallb.io", "metallb-system", "castle"))
        .or_else(|| std::iter::once("controller".to_owned()).chain(nodes).find_map(state))
}

/// That the cluster is Flux's: the newest commit is applied.
fn gitops_stands(keep: &Keep) -> Option<String> {
    let (world, castle) = (keep.datacenter(), &keep.castle.room.castle);
    let gitops = castle.gitops.as_ref()?;
    let mut names = vec!["source", "kustomize", "helm", "notification"];
    if gitops.image_automation.value {
        names.extend(["image-reflector", "image-automation"]);
    }
    let pods = |name: &&str| current(world, "deployments.apps", "flux-system", &format!("{name}-controller"));
    if let Some(why) = names.iter().find_map(pods) {
        return Some(why);
    }
    let newest = format!("{}@sha1:{}", gitops.branch.as_str(), keep.head.lock().unwrap());
    let source = "gitrepositories.source.toolkit.fluxcd.io";
    let fetched = world.object(BLUE, source, "flux-system", "flux-system").unwrap_or_default();
    if fetched["status"]["artifact"]["revision"] != newest {
        return Some(format!("{newest} is not fetched"));
    }
    let critical = gitops.critical.iter().map(|(name, _)| name.value.as_str().to_owned());
    let mut all = std::iter::once("flux-system".to_owned()).chain(critical);
    all.find_map(|name| {
        let kustomizations = "kustomizations.kustomize.toolkit.fluxcd.io";
        let applied = world.object(BLUE, kustomizations, "flux-system", &name).unwrap_or_default();
        let is_so = applied["status"]["lastAppliedRevision"] == newest
            && condition(&applied, "Ready").is_some_and(|it| it["status"] == "True");
        (!is_so).then(|| format!("{name} has not applied {newest}"))
    })
}

/// Why a castle does not stand; nothing if it does.
pub(crate) fn fallen(keep: &Keep) -> Option<String> {
    let (world, has) = (keep.datacenter(), |name: ComponentName| keep.manifests.contains_key(&name));
    let engine = || {
        let parts = ["", "-cert-controller", "-webhook"];
        let secret = Some(("external-secrets", "external-secrets-webhook"));
        (parts.iter().find_map(|part| {
            current(world, "deployments.apps", "external-secrets", &format!("external-secrets{part}"))
        }))
        .or_else(|| missing_authority(world, "secretstore-validate", secret))
        .or_else(|| missing_authority(world, "externalsecret-validate", secret))
        .or_else(|| is_valid_store(world))
    };
    let storage = || {
        let Storage::Longhorn(_) = &keep.castle.room.castle.storage.value else { return None };
        let known = world.object_names(BLUE, "nodes.longhorn.io").len();
        let nodes = &keep.castle.room.nodes;
        let workers = nodes.iter().filter(|node| node.role == Role::Worker).count();
        let wanted = if workers == 0 { nodes.len() } else { workers };
        (known < wanted).then(|| format!("Longhorn knows {known} of {wanted} nodes")).or_else(|| storage_stands(world))
    };
    (has(ComponentName::ExternalSecrets).then(engine).flatten())
        .or_else(|| has(ComponentName::Metallb).then(|| networking_stands(keep)).flatten())
        .or_else(|| has(ComponentName::Longhorn).then(storage).flatten())
        .or_else(|| has(ComponentName::Flux).then(|| gitops_stands(keep)).flatten())
}
