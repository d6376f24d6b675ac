//! What the managers make: settings, classes, nodes with their disks, engine images and instance managers.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{MANAGER, NAMESPACE, NODES, SETTINGS, STATUS, WRITER};
use crate::kubernetes::components::{Component, ComponentFault};
use crate::kubernetes::crd::{condition, is};
use crate::kubernetes::kube::Kube;
use crate::kubernetes::{body, value};

const ENGINE_IMAGES: &str = "engineimages.longhorn.io";
const INSTANCE_MANAGERS: &str = "instancemanagers.longhorn.io";
/// The version in which Longhorn refers to its own objects.
const VERSION: &str = "longhorn.io/v1beta2";
const CLASSES: &str = "storageclasses.storage.k8s.io";

/// The settings that matter here, and their defaults.
const DEFAULTS: [(&str, &str); 12] = [
    ("create-default-disk-labeled-nodes", "false"),
    ("default-data-path", "/var/lib/longhorn/"),
    ("default-replica-count", "{\"v1\":\"3\",\"v2\":\"3\"}"),
    ("deleting-confirmation-flag", "false"),
    ("disable-revision-counter", "{\"v1\":\"true\"}"),
    ("guaranteed-instance-manager-cpu", "{\"v1\":\"12\",\"v2\":\"12\"}"),
    ("node-down-pod-deletion-policy", "do-nothing"),
    ("node-drain-policy", "block-if-contains-last-replica"),
    ("replica-soft-anti-affinity", "false"),
    ("storage-minimal-available-percentage", "25"),
    ("storage-over-provisioning-percentage", "100"),
    ("storage-reserved-percentage-for-default-disk", "30"),
];

fn short(text: &str) -> String {
    Sha256::digest(text).iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// What Longhorn calls the disk of a node for good.
fn disk_id(node: &str) -> String {
    let digits =
        [short(node), short(&format!("{node} 1")), short(&format!("{node} 2")), short(&format!("{node} 3"))].concat();
    format!("{}-{}-4{}-8{}-{}", &digits[..8], &digits[8..12], &digits[13..16], &digits[17..20], &digits[20..])
}

pub(super) fn instance_manager(node: &str) -> String {
    format!("instance-manager-{}", short(&format!("{node} instance manager")))
}

fn placed(name: &str) -> Value {
    json!({ "name": name, "namespace": NAMESPACE })
}

impl Kube {
    pub(super) fn make_longhorn_objects(&mut self, nodes: &[String]) {
        self.make_settings();
        self.make_classes();
        let is_gone = |node: &&Arc<Value>| self.store.get("nodes", "", value::name(node)).is_none();
        let gone: Vec<Arc<Value>> = self.store.all(NODES, NAMESPACE).filter(is_gone).cloned().collect();
        for node in &gone {
            self.dismiss(NODES, node);
            self.dismiss_budget(&instance_manager(value::name(node)));
        }
        // One whose own manager says nothing is judged by the others.
        let silent =
            self.keys(NODES, NAMESPACE).into_iter().map(|key| key.2.clone()).filter(|node| !nodes.contains(node));
        for node in silent.collect::<Vec<String>>() {
            self.make_longhorn_node(&node);
        }
        for node in nodes {
            self.make_longhorn_node(node);
            self.make_instance_manager(node);
        }
        self.make_engine_image(nodes);
        let target = json!({ "metadata": placed("default"), "spec": {} });
        self.make(&WRITER, "backuptargets.longhorn.io", target);
    }

    fn configured(&self, map: &str, key: &str) -> Option<Value> {
        let map = self.get("configmaps", NAMESPACE, map)?;
        let text = value::at(&map, "data")?.get(key)?.as_str()?.to_owned();
        body::yaml(format!("{text}\n").as_bytes()).ok().map(|read| read.value)
    }

    fn make_settings(&mut self) {
        let own = self.configured("longhorn-default-setting", "default-setting.yaml").unwrap_or_default();
        let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let given = own.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), plain(value)));
        let usual = DEFAULTS.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned()));
        let all: std::collections::BTreeMap<String, String> = usual.chain(given).collect();
        for (name, text) in all {
            if self.get(SETTINGS, NAMESPACE, &name).is_none() {
                let setting = json!({ "metadata": placed(&name), "value": text, "status": { "applied": true } });
                self.make(&WRITER, SETTINGS, setting);
            }
        }
    }

    pub(super) fn setting(&self, name: &str) -> String {
        self.get(SETTINGS, NAMESPACE, name).map(|it| value::text(&it, "value").to_owned()).unwrap_or_default()
    }

    fn make_classes(&mut self) {
        let own = self.configured("longhorn-storageclass", "storageclass.yaml").filter(Value::is_object);
        let fixed = json!({
            "metadata": { "name": "longhorn-static" }, "provisioner": super::DRIVER, "allowVolumeExpansion": true,
            "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate", "parameters": { "staleReplicaTimeout": "30", "dataEngine": "v1" },
        });
        for class in own.into_iter().chain([fixed]) {
            if self.get(CLASSES, "", value::name(&class)).is_none() {
                self.make(&WRITER, CLASSES, class);
            }
        }
    }

    /// A node, with the disk that it has for Longhorn.
    fn make_longhorn_node(&mut self, node: &str) {
        let path = self.setting("default-data-path");
        let disk = format!("default-disk-{}", short(node));
        let Some(kubernetes) = self.get("nodes", "", node) else { return };
        let label = "node.longhorn.io/create-default-disk";
        let is_labelled =
            value::at(&kubernetes, "metadata.labels").is_some_and(|labels| labels.get(label) == Some(&json!("true")));
        let has_disk = is_labelled || self.setting("create-default-disk-labeled-nodes") != "true";
        let size = if self.suffers(Component::Longhorn, ComponentFault::NoUsableDisk) {
            Err("no such file or directory".to_owned())
        } else {
            self.machine(node).room(&path)
        };
        let reserved = self.setting("storage-reserved-percentage-for-default-disk").parse::<u64>().unwrap_or(30);
        let whole = size.clone().unwrap_or(0);
        let disks = if has_disk {
            json!({ &disk: { "allowScheduling": true, "diskType": "filesystem", "path": path, "storageReserved": whole / 100 * reserved, "tags": [] } })
        } else {
            json!({})
        };
        if self.get(NODES, NAMESPACE, node).is_none() {
            let spec = json!({ "name": node, "allowScheduling": true, "disks": disks, "tags": [] });
            self.make(&WRITER, NODES, json!({ "metadata": placed(node), "spec": spec }));
        }
        let (now, is_up) = (self.stamp(), is(&kubernetes, "Ready"));
        let is_open = value::at(&kubernetes, "spec.unschedulable") != Some(&Value::Bool(true));
        self.amend(&STATUS, (NODES, NAMESPACE, node), |object| {
            let word = |holds: bool| if holds { "True" } else { "False" };
            condition(object, &now, "Ready", word(is_up), ("", ""));
            condition(object, &now, "Schedulable", word(is_open), (if is_open { "" } else { "KubernetesNodeCordoned" }, ""));
            let known: Vec<(String, Value)> =
                value::members(object, "spec.disks").map(|(name, disk)| (name.clone(), disk.clone())).collect();
            for (name, disk) in known {
                let place = value::place(object, "status.diskStatus");
                if place.is_null() {
                    *place = json!({});
                }
                let mut said = json!({ "status": { "conditions": place[&name]["conditions"].clone() } });
                let (ready, schedulable) = match &size {
                    Ok(_) => (("True", "", String::new()), ("True", "", String::new())),
                    Err(why) => {
                        let path = value::text(&disk, "path");
                        let text = format!("Disk {name}({path}) on node {node} is not ready: failed to get disk config: {why}");
                        let other = format!("Disk {name} ({path}) on the node {node} is not ready");
                        (("False", "NoDiskInfo", text), ("False", "DiskNotReady", other))
                    }
                };
                condition(&mut said, &now, "Ready", ready.0, (ready.1, &ready.2));
                condition(&mut said, &now, "Schedulable", schedulable.0, (schedulable.1, &schedulable.2));
                place[&name] = json!({
                    "conditions": said["status"]["conditions"], "diskName": name, "diskPath": disk["path"], "diskType": "filesystem",
                    "diskUUID": disk_id(node),
                    "storageMaximum": whole, "storageAvailable": whole, "storageScheduled": 0,
                });
            }
        });
    }

    /// The pod that runs the instances of a node, and the budget that keeps it there.
    fn make_instance_manager(&mut self, node: &str) {
        let name = instance_manager(node);
        let labels = json!({ "longhorn.io/component": "instance-manager", "longhorn.io/node": node, "longhorn.io/instance-manager": name });
        self.keep_budget(&name, node, &labels);
        let owner = self.keep_instance_manager(&name, node, &labels);
        let is_closed = |it: Arc<Value>| value::at(&it, "spec.unschedulable") == Some(&Value::Bool(true));
        if self.get("nodes", "", node).is_none_or(is_closed) || self.get("pods", NAMESPACE, &name).is_some() {
            return;
        }
        let image = self.argument("--instance-manager-image");
        let spec = json!({
            "nodeName": node, "containers": [{ "name": "instance-manager", "image": image }], "tolerations": [{ "operator": "Exists" }],
            "restartPolicy": "Never",
        });
        let mut metadata = placed(&name);
        value::set(&mut metadata, "labels", labels);
        if let Some(owner) = owner {
            // Whoever drains the node sees by it that somebody makes the pod anew.
            let reference = json!([{
                "apiVersion": VERSION, "kind": "InstanceManager", "name": name, "uid": value::uid(&owner), "controller": true,
                "blockOwnerDeletion": true,
            }]);
            value::set(&mut metadata, "ownerReferences", reference);
        }
        self.make(&WRITER, "pods", json!({ "metadata": metadata, "spec": spec, "status": { "phase": "Pending" } }));
    }

    /// What owns the pod that runs the instances of a node; nothing where Longhorn's kinds are not there.
    fn keep_instance_manager(&mut self, name: &str, node: &str, labels: &Value) -> Option<Arc<Value>> {
        if self.get(INSTANCE_MANAGERS, NAMESPACE, name).is_none() {
            let mut metadata = placed(name);
            value::set(&mut metadata, "labels", labels.clone());
            if let Some(own) = self.get(NODES, NAMESPACE, node) {
                let reference =
                    json!([{ "apiVersion": VERSION, "kind": "Node", "name": node, "uid": value::uid(&own) }]);
                value::set(&mut metadata, "ownerReferences", reference);
            }
            let spec = json!({ "dataEngine": "v1", "image": self.argument("--instance-manager-image"), "nodeID": node, "type": "aio" });
            self.make(&WRITER, INSTANCE_MANAGERS, json!({ "metadata": metadata, "spec": spec }));
        }
        let is_running = self.get("pods", NAMESPACE, name).is_some_and(|pod| is(&pod, "Ready"));
        self.amend(&STATUS, (INSTANCE_MANAGERS, NAMESPACE, name), |object| {
            value::set(object, "status.currentState", if is_running { "running" } else { "starting" });
            value::set(object, "status.ownerID", node);
        });
        self.get(INSTANCE_MANAGERS, NAMESPACE, name)
    }

    /// What follows a word on the command line of the managers.
    pub(super) fn argument(&self, word: &str) -> String {
        let Some(set) = self.get("daemonsets.apps", NAMESPACE, MANAGER) else { return String::new() };
        let containers = value::items(&set, "spec.template.spec.containers").iter();
        let words: Vec<&str> =
            containers.flat_map(|it| value::items(it, "command")).filter_map(Value::as_str).collect();
        words.windows(2).find(|pair| pair[0] == word).map(|pair| pair[1].to_owned()).unwrap_or_default()
    }

    fn make_engine_image(&mut self, nodes: &[String]) {
        let image = self.argument("--engine-image");
        let name = format!("ei-{}", short(&image));
        let set = format!("engine-image-{name}");
        self.make_daemons(&set, &image);
        if self.get(ENGINE_IMAGES, NAMESPACE, &name).is_none() {
            self.make(&WRITER, ENGINE_IMAGES, json!({ "metadata": placed(&name), "spec": { "image": image } }));
        }
        let daemons = self.get("daemonsets.apps", NAMESPACE, &set);
        let number =
            |key: &str| daemons.as_ref().and_then(|it| value::number(it, &format!("status.{key}"))).unwrap_or(0);
        let is_there =
            number("desiredNumberScheduled") > 0 && number("numberReady") >= number("desiredNumberScheduled");
        let map: serde_json::Map<String, Value> = nodes.iter().map(|node| (node.clone(), json!(is_there))).collect();
        self.amend(&STATUS, (ENGINE_IMAGES, NAMESPACE, &name), |object| {
            value::set(object, "status.state", if is_there { "deployed" } else { "deploying" });
            value::set(object, "status.nodeDeploymentMap", Value::Object(map));
        });
    }

    /// A DaemonSet of one container, on the nodes of the managers.
    pub(super) fn make_daemons(&mut self, name: &str, image: &str) {
        if self.get("daemonsets.apps", NAMESPACE, name).is_some() {
            return;
        }
        let manager = self.get("daemonsets.apps", NAMESPACE, MANAGER);
        let of = |key: &str| manager.as_ref().and_then(|set| set["spec"]["template"]["spec"].get(key).cloned());
        let labels = json!({ "app": name });
        let mut spec = json!({ "containers": [{ "name": name, "image": image }] });
        for key in ["tolerations", "nodeSelector"] {
            if let Some(own) = of(key) {
                value::set(&mut spec, key, own);
            }
        }
        let template = json!({ "metadata": { "labels": labels }, "spec": spec });
        let set = json!({ "metadata": placed(name), "spec": { "selector": { "matchLabels": labels }, "template": template } });
        self.make(&WRITER, "daemonsets.apps", set);
    }
}
