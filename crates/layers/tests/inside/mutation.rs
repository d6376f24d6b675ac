//! Goal: every gate is needed. Method: each is taken for open in a world that needs it, and then something breaks: an object was written
//! too early or was refused, `up` failed where it need not, or said done of a castle that does not stand. In the same world with the gate
//! nothing of that happens.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::Span;
use castle_datacenter::{Blueprint, Component, ComponentFault};
use castle_engine::{Layer, Report, StepId};
use castle_kubernetes::model::Object;
use castle_layers::cluster::Referred;
use castle_secrets::Secret;
use castle_spec::ComponentName;
use castle_spec::model::ComponentOwner;
use castle_testbed::in_virtual_time;

use crate::castle::quick;
use crate::keep::{BLUE, Keep, Wishes, full, inside_only, only, with_gitops};
use crate::room::door;
use crate::stands::fallen;

/// A world that needs a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum World {
    /// With nothing special about it.
    Usual,
    /// Every image takes eight minutes to pull.
    Slow,
    /// A definition takes ten seconds until it is established.
    Late,
    /// Something goes wrong with a component, for good.
    Failing(Component, ComponentFault),
    /// Nobody has told Longhorn which class there is to be.
    Classless,
}

impl World {
    fn blueprint(self, seed: u64) -> Blueprint {
        let mut blueprint = inside_only(seed);
        let workloads = &mut blueprint.latencies.talos.workloads;
        if self == Self::Late {
            workloads.establish = Span::new(10.0, 10.0);
        }
        if self == Self::Slow {
            let slow = Span::new(480.0, 480.0);
            workloads.pull = slow;
            workloads.pulls.iter_mut().for_each(|(_, span)| *span = slow);
        }
        blueprint
    }

    /// Whether a castle can be raised in it.
    fn is_kind(self) -> bool {
        matches!(self, Self::Usual | Self::Slow | Self::Late)
    }
}

/// What breaks in a world while these gates are taken for open.
fn breaks(world: World, file: &str, seed: u64, open: &[StepId]) -> Option<String> {
    in_virtual_time(async |clock| {
        let wishes = Wishes { open: open.to_vec(), ..Wishes::default() };
        let mut keep = Keep::new(world.blueprint(seed), file, door(clock)).wishing(wishes);
        if world == World::Classless {
            let is_class = |object: &Object| object.name() == "longhorn-storageclass";
            keep.manifests.values_mut().for_each(|objects| objects.retain(|object| !is_class(object)));
        }
        let word = crate::keep::config("word", "${castle_name}");
        let mut files: Vec<(String, String)> =
            [("clusters/blue/apps.yaml", APPS), ("apps/web.yaml", WEB), ("clusters/blue/word.yaml", &word)]
                .map(|(path, text)| (path.to_owned(), text.to_owned()))
                .into();
        let wanted = keep.castle.room.castle.wanted_components().into_iter();
        let fluxs = wanted.filter(|wanted| wanted.owner == ComponentOwner::Flux);
        files.extend(fluxs.map(|wanted| crate::keep::brought(wanted.name)));
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        keep.push(&files);
        keep.found().await;
        if let World::Failing(component, fault) = world {
            assert!(keep.datacenter().fail_component(BLUE, component, fault, true));
        }
        keep.scribe.take();
        let report = keep.furnished().await;
        let broken = keep.scribe.take().broken().into_iter().next();
        broken.or_else(|| untrue(&keep, world, &report))
    })
}

/// Whether `up` said something that is not so.
fn untrue(keep: &Keep, world: World, report: &Report) -> Option<String> {
    match (report.is_done(), fallen(keep)) {
        (true, fallen) => fallen.map(|why| format!("`up` said done, but {why}")),
        (false, _) if world.is_kind() => Some(format!("`up` failed: {:?}", crate::castle::faults(report))),
        (false, _) => None,
    }
}

/// A Kustomization that is done when its Deployment is.
const APPS: &str = "apiVersion: kustomize.toolkit.fluxcd.io/v1
kind: Kustomization
metadata: {name: apps, namespace: flux-system}
spec: {interval: 10m, retryInterval: 30s, timeout: 5m, wait: true, prune: true, path: ./apps, sourceRef: {kind: GitRepository, name: flux-system}}
";
const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.com/web:1}]}
";

fn gate(name: &str) -> StepId {
    let [layer, kind, name] = name.split('/').collect::<Vec<_>>().try_into().unwrap();
    StepId::new(&Layer::new(layer), kind, name)
}

/// Holds that a world needs these gates, one by one, over a few seeds; and that nothing breaks in it with them.
fn needed(world: World, file: &str, gates: &[&str]) {
    assert_eq!(breaks(world, file, 0, &[]), None, "{world:?}, all gates");
    for name in gates {
        let found = (0..8).find_map(|seed| breaks(world, file, seed, &[gate(name)]));
        assert!(found.is_some(), "{world:?} does not need {name}");
    }
}

#[test]
fn every_gate_of_the_engine() {
    let file = only(&["engine"]);
    needed(World::Late, &file, &["engine/external-secrets/served"]);
    needed(World::Usual, &file, &["engine/external-secrets/serving", "engine/store/valid"]);
}

#[test]
fn every_gate_of_networking() {
    let file = only(&["networking"]);
    needed(World::Late, &file, &["networking/metallb/served"]);
    needed(World::Usual, &file, &["networking/pool/accepted", "networking/advertisement/accepted"]);
    needed(World::Slow, &file, &["networking/metallb/serving"]);
    let invalid = World::Failing(Component::MetalLb, ComponentFault::InvalidConfiguration);
    needed(invalid, &file, &["networking/metallb/valid"]);
}

#[test]
fn every_gate_of_storage() {
    let file = only(&["storage"]);
    needed(World::Late, &file, &["storage/longhorn/served"]);
    needed(World::Usual, &file, &["storage/longhorn/driver"]);
    needed(World::Slow, &file, &["storage/longhorn/managers"]);
    needed(World::Failing(Component::Longhorn, ComponentFault::NoUsableDisk), &file, &["storage/longhorn/disks"]);
    needed(World::Classless, &file, &["storage/class/ready"]);
    let proven = file + "storage: {longhorn: {proof: true}}\n";
    needed(World::Usual, &proven, &["storage/proof/written"]);
}

#[test]
fn every_gate_of_gitops() {
    let file = with_gitops(&only(&["gitops"]), "critical: {apps: 5m}");
    needed(World::Late, &file, &["gitops/flux/served"]);
    needed(World::Usual, &file, &["gitops/flux/serving", "gitops/kustomization/apps"]);
    needed(World::Usual, &only(&["gitops"]), &["gitops/handover/flux-system"]);
    let vaulted = only(&["gitops", "engine"]);
    needed(World::Usual, &vaulted, &["gitops/credential/synced", "engine/store/valid"]);
}

#[test]
fn every_gate_of_what_flux_brings() {
    let file = only(&["networking", "gitops"]) + "components: {metallb: {owner: flux}}\n";
    let gates = ["networking/metallb/brought", "networking/pool/accepted", "networking/advertisement/accepted"];
    needed(World::Usual, &file, &gates);
    let file = only(&["engine", "gitops"]) + "components: {externalSecrets: {owner: flux}}\n";
    needed(World::Usual, &file, &["engine/external-secrets/brought"]);
    let dead = World::Failing(Component::ExternalSecrets, ComponentFault::DeadWebhook);
    needed(dead, &file, &["engine/store/accepted"]);
}

/// No gate is left out above: whatever a graph has that is no step is one of them, or asks whose a component is, which the bad days
/// show.
#[test]
fn there_are_no_other_gates() {
    in_virtual_time(async |clock| {
        let file = with_gitops(&full(1, 1), "critical: {apps: 5m}") + "storage: {longhorn: {proof: true}}\n";
        let keep = Keep::new(inside_only(0), &file, door(clock));
        keep.found().await;
        let steps = [
            "record",
            "namespaces",
            "definitions",
            "classes",
            "objects",
            "webhooks",
            "prune",
            "volume",
            "end",
            "given",
            "owner",
        ];
        let graph = keep.inner(keep.access().await);
        let gates: Vec<String> = graph
            .ids()
            .map(ToString::to_string)
            .filter(|id| !steps.iter().any(|step| id.ends_with(&format!("/{step}"))))
            .collect();
        let mut gates: Vec<&str> = gates.iter().map(String::as_str).collect();
        gates.sort_unstable();
        assert_eq!(
            gates,
            [
                "engine/external-secrets/served",
                "engine/external-secrets/serving",
                "engine/store/valid",
                "gitops/credential/synced",
                "gitops/flux/served",
                "gitops/flux/serving",
                "gitops/handover/flux-system",
                "gitops/kustomization/apps",
                "networking/advertisement/accepted",
                "networking/metallb/served",
                "networking/metallb/serving",
                "networking/metallb/valid",
                "networking/pool/accepted",
                "storage/class/ready",
                "storage/longhorn/disks",
                "storage/longhorn/driver",
                "storage/longhorn/managers",
                "storage/longhorn/served",
                "storage/proof/written",
            ]
        );
    });
}

/// Without the edge from the nodes' volumes Longhorn would run where its disk is not there, and take the disk of the system.
#[test]
fn longhorn_waits_for_the_volumes_of_the_nodes() {
    let begins = |ignores_volumes: bool| {
        in_virtual_time(async |clock| {
            let file = quick(1, 1).replace("storage: none", "storage: {longhorn: {replicas: 1}}");
            let file = file.replace("dataDisk: 20GiB", "dataDisk: 20GiB, patches: [disk.yaml]");
            let wishes = Wishes { ignores_volumes, ..Wishes::default() };
            let mut keep = Keep::new(inside_only(0), &file, door(clock)).wishing(wishes);
            let patch = "apiVersion: v1alpha1\nkind: UserVolumeConfig\nname: longhorn\nprovisioning:\n    minSize: 1GiB\n    \
                         diskSelector:\n        match: disk.serial == 'another'\n";
            let patches = [("disk.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
            keep.castle.referred = Arc::new(Referred { patches, ..Referred::default() });
            let report = keep.up().await;
            assert!(!report.is_done(), "there is no disk for volumes");
            assert!(keep.manifests.contains_key(&ComponentName::Longhorn));
            keep.datacenter().object(BLUE, "daemonsets.apps", "longhorn-system", "longhorn-manager").is_some()
        })
    };
    assert_eq!([false, true].map(begins), [false, true]);
}

/// How long the images of [`World::Slow`] take is less than a gate that waits for images allows, and more than any other.
#[test]
fn slow_is_between_the_two_patiences() {
    let pull = World::Slow.blueprint(0).latencies.talos.workloads.pull;
    assert!(
        pull.mean > Duration::from_secs(5 * 60).as_secs_f64() && pull.mean < Duration::from_secs(15 * 60).as_secs_f64()
    );
}
