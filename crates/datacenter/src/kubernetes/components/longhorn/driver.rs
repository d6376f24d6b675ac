//! The storage driver: what deploys it, where it is registered, and the volumes that it makes.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{DRIVER, NAMESPACE, NODES, STATUS, WRITER};
use crate::kubernetes::crd::is;
use crate::kubernetes::kube::{KUBELET, Kube, Writer};
use crate::kubernetes::value;
use crate::kubernetes::workloads::is_ready;
use crate::kubernetes::workloads::volumes::{ProvisionedVolume, Provisioner, VOLUMES, VolumeAsked};

const PLUGIN: &str = "longhorn-csi-plugin";
const DEPLOYER: &str = "longhorn-driver-deployer";
const CSI_NODES: &str = "csinodes.storage.k8s.io";
const REGISTRAR: Writer<'_> = Writer { name: KUBELET.name, subresource: "" };
pub(super) const OWN_VOLUMES: &str = "volumes.longhorn.io";
/// How many there are of each part of the driver where nothing else is said.
const COPIES: u32 = 3;
pub(super) const REPLICAS: &str = "replicas.longhorn.io";

impl Kube {
    /// Deploys the driver once its deployer and a manager are ready.
    pub(super) fn deploy_driver(&mut self) {
        let deployers = self.pods_of("deployments.apps", NAMESPACE, DEPLOYER);
        let managers = self.pods_of("daemonsets.apps", NAMESPACE, super::MANAGER);
        let any = |pods: &[Arc<Value>]| pods.iter().any(|pod| is_ready(pod));
        if any(&deployers) && any(&managers) {
            for name in ["attacher", "provisioner", "resizer", "snapshotter"] {
                let part = name.to_uppercase();
                let image = self.told_deployer(&format!("CSI_{part}_IMAGE"));
                let copies = self.told_deployer(&format!("CSI_{part}_REPLICA_COUNT")).parse().unwrap_or(COPIES);
                self.make_sidecar(&format!("csi-{name}"), &image, copies);
            }
            let image = self.told_deployer("CSI_NODE_DRIVER_REGISTRAR_IMAGE");
            self.make_daemons(PLUGIN, &image);
            let spec =
                json!({ "attachRequired": true, "podInfoOnMount": true, "volumeLifecycleModes": ["Persistent"] });
            self.make(&WRITER, "csidrivers.storage.k8s.io", json!({ "metadata": { "name": DRIVER }, "spec": spec }));
        }
        self.register_driver();
        let provisioners = self.pods_of("deployments.apps", NAMESPACE, "csi-provisioner");
        if any(&provisioners) && !self.provisioners.contains_key(DRIVER) {
            self.provisioners.insert(DRIVER.to_owned(), Provisioner::new(provision));
            self.note_claims();
        }
        self.note_volumes();
        self.attach_volumes();
    }

    /// What a variable of the deployer says.
    fn told_deployer(&self, variable: &str) -> String {
        let Some(deployer) = self.get("deployments.apps", NAMESPACE, DEPLOYER) else { return String::new() };
        let containers = value::items(&deployer, "spec.template.spec.containers").iter();
        let mut all = containers.flat_map(|it| value::items(it, "env"));
        all.find(|it| value::text(it, "name") == variable)
            .map(|it| value::text(it, "value").to_owned())
            .unwrap_or_default()
    }

    fn make_sidecar(&mut self, name: &str, image: &str, copies: u32) {
        let labels = json!({ "app": name });
        let metadata = json!({ "name": name, "namespace": NAMESPACE });
        let spec = json!({ "containers": [{ "name": name, "image": image }] });
        let template = json!({ "metadata": { "labels": labels }, "spec": spec });
        let spec = json!({ "replicas": copies, "selector": { "matchLabels": labels }, "template": template });
        self.make(&WRITER, "deployments.apps", json!({ "metadata": metadata, "spec": spec }));
    }

    /// The nodes say that they have the driver.
    fn register_driver(&mut self) {
        let plugins = self.pods_of("daemonsets.apps", NAMESPACE, PLUGIN);
        for pod in plugins.iter().filter(|pod| is_ready(pod)) {
            let node = value::text(pod, "spec.nodeName");
            let object = json!({ "metadata": { "name": node }, "spec": { "drivers": [] } });
            self.ensure(&REGISTRAR, CSI_NODES, &object, |object| {
                let mut drivers = value::items(object, "spec.drivers").to_vec();
                if !drivers.iter().any(|it| value::text(it, "name") == DRIVER) {
                    drivers.push(json!({ "name": DRIVER, "nodeID": node, "topologyKeys": [] }));
                    value::set(object, "spec.drivers", drivers);
                }
            });
        }
    }

    /// Tells of each volume where its replicas are.
    fn note_volumes(&mut self) {
        let volumes: Vec<Arc<Value>> = self.store.all(VOLUMES, "").cloned().collect();
        for volume in volumes.iter().filter(|it| value::text(it, "spec.csi.driver") == DRIVER) {
            let name = value::text(volume, "spec.csi.volumeHandle");
            if let Some(own) = self.get(OWN_VOLUMES, NAMESPACE, name) {
                self.rebuild(&own);
                continue;
            }
            let attributes = value::at(volume, "spec.csi.volumeAttributes").cloned().unwrap_or_default();
            let wanted = value::text(&attributes, "numberOfReplicas").parse::<usize>().unwrap_or(3);
            let nodes = usable(self.store.all(NODES, NAMESPACE).map(|node| &**node));
            let placed: Vec<&String> = nodes.iter().take(wanted).collect();
            let robustness = if placed.len() < wanted { "degraded" } else { "healthy" };
            let size = value::text(volume, "spec.capacity.storage");
            let spec = json!({ "numberOfReplicas": wanted, "size": crate::kubernetes::quantity::whole(size).to_string(), "dataEngine": "v1" });
            let object = json!({ "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec });
            self.ensure(&STATUS, OWN_VOLUMES, &object, |object| {
                value::set(object, "status", json!({ "state": "detached", "robustness": robustness }));
            });
            for node in placed {
                self.make_replica(name, node);
            }
        }
        let known: Vec<Arc<Value>> = self.store.all(OWN_VOLUMES, NAMESPACE).cloned().collect();
        for own in known {
            let name = value::name(&own);
            if volumes.iter().any(|volume| value::text(volume, "spec.csi.volumeHandle") == name) {
                continue;
            }
            for replica in self.keys(REPLICAS, NAMESPACE) {
                if replica.2.starts_with(&format!("{name}-r-")) {
                    self.erase(REPLICAS, NAMESPACE, &replica.2);
                }
            }
            self.erase(OWN_VOLUMES, NAMESPACE, name);
        }
    }

    fn make_replica(&mut self, volume: &str, node: &str) {
        let name = format!("{volume}-r-{}", self.suffix(8));
        let own = self.get(NODES, NAMESPACE, node).unwrap_or_default();
        let disk = value::members(&own, "status.diskStatus").next().map(|(_, disk)| disk["diskUUID"].clone());
        let spec = json!({
            "volumeName": volume, "nodeID": node, "diskID": disk.unwrap_or_default(), "dataEngine": "v1", "healthyAt": self.stamp(),
            "failedAt": "",
        });
        let labels = json!({ "longhornvolume": volume, "longhornnode": node });
        let metadata = json!({ "name": name, "namespace": NAMESPACE, "labels": labels });
        self.make(&WRITER, REPLICAS, json!({ "metadata": metadata, "spec": spec }));
    }

    /// Copies a volume to where replicas of it are missing. Of one that is not attached nobody makes copies.
    fn rebuild(&mut self, volume: &Value) {
        if value::text(volume, "status.state") != "attached" {
            return;
        }
        let name = value::name(volume);
        let wanted =
            value::number(volume, "spec.numberOfReplicas").and_then(|it| usize::try_from(it).ok()).unwrap_or(3);
        self.fail_lost_replicas(name);
        let is_sound = |it: &&Arc<Value>| {
            value::text(it, "spec.volumeName") == name && value::text(it, "spec.failedAt").is_empty()
        };
        let sound = self.store.all(REPLICAS, NAMESPACE).filter(is_sound);
        let there: Vec<String> = sound.map(|it| value::text(it, "spec.nodeID").to_owned()).collect();
        let usable = usable(self.store.all(NODES, NAMESPACE).map(|node| &**node));
        let missing = wanted.saturating_sub(there.len());
        let places: Vec<&String> = usable.iter().filter(|node| !there.contains(node)).take(missing).collect();
        for node in &places {
            self.make_replica(name, node);
        }
        let robustness = if places.len() < missing { "degraded" } else { "healthy" };
        if value::text(volume, "status.robustness") != robustness {
            self.amend(&STATUS, (OWN_VOLUMES, NAMESPACE, name), |it| value::set(it, "status.robustness", robustness));
        }
    }
}

impl Kube {
    /// Whoever uses a volume sees which of its replicas answer no more.
    fn fail_lost_replicas(&mut self, volume: &str) {
        let is_silent = |it: &&Arc<Value>| {
            let node = self.store.get("nodes", "", value::text(it, "spec.nodeID"));
            let is_its = value::text(it, "spec.volumeName") == volume && value::text(it, "spec.failedAt").is_empty();
            is_its && node.is_none_or(|node| !is(node, "Ready"))
        };
        let silent = self.store.all(REPLICAS, NAMESPACE).filter(is_silent);
        let now = self.stamp();
        for name in silent.map(|it| value::name(it).to_owned()).collect::<Vec<String>>() {
            self.amend(&WRITER, (REPLICAS, NAMESPACE, &name), |it| value::set(it, "spec.failedAt", now.clone()));
        }
    }
}

/// The nodes with a disk that a replica may be on: one of each volume on every node.
fn usable<'a>(nodes: impl Iterator<Item = &'a Value>) -> Vec<String> {
    let has_disk = |node: &Value| {
        let mut disks = value::members(node, "status.diskStatus");
        disks.any(|(_, disk)| {
            let whole = json!({ "status": { "conditions": disk["conditions"] } });
            is(&whole, "Ready") && is(&whole, "Schedulable")
        })
    };
    nodes
        .filter(|node| is(node, "Ready") && is(node, "Schedulable") && has_disk(node))
        .map(|node| value::name(node).to_owned())
        .collect()
}

/// Makes a volume, if a replica of it has a place.
fn provision(asked: &VolumeAsked<'_>) -> Result<ProvisionedVolume, String> {
    if usable(asked.objects(NODES, NAMESPACE)).is_empty() {
        return Err(
            "rpc error: code = DeadlineExceeded desc = no node has a disk that is ready and schedulable".to_owned()
        );
    }
    let wanted = value::text(asked.class, "parameters.numberOfReplicas");
    let wanted = if wanted.is_empty() { "3" } else { wanted };
    let attributes = BTreeMap::from([("numberOfReplicas".to_owned(), wanted.to_owned())]);
    Ok(ProvisionedVolume { handle: format!("pvc-{}", value::uid(asked.claim)), attributes })
}
