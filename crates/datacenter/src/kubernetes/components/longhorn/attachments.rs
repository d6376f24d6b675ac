//! Where volumes are attached: on the node of a pod that uses one, as long as there is such a pod.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::driver::OWN_VOLUMES;
use super::{Component, ComponentFault, DRIVER, NAMESPACE, STATUS};
use crate::kubernetes::kube::{CONTROLLER, CONTROLLER_STATUS, Key, Kube};
use crate::kubernetes::value;
use crate::kubernetes::workloads::volumes::{CLAIMS, VOLUMES};

const ATTACHMENTS: &str = "volumeattachments.storage.k8s.io";

fn claims_of(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = value::items(pod, "spec.volumes").iter();
    volumes.map(|volume| value::text(volume, "persistentVolumeClaim.claimName")).filter(|claim| !claim.is_empty())
}

/// The name of an attachment, which tells nobody anything.
fn name_of(volume: &str, node: &str) -> String {
    let digest = Sha256::digest(format!("{volume}{DRIVER}{node}"));
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("csi-{digits}")
}

impl Kube {
    /// Whether a change is one of a pod that may use a volume of the driver.
    pub(in super::super) fn uses_driver(&self, key: &Key) -> bool {
        &*key.0 == "pods"
            && self.provisioners.contains_key(DRIVER)
            && self.get(&key.0, &key.1, &key.2).is_some_and(|pod| claims_of(&pod).next().is_some())
    }

    /// A pod that used a claim is gone.
    pub(crate) fn claim_let_go(&mut self) {
        if self.provisioners.contains_key(DRIVER) {
            self.wake(Component::Longhorn);
        }
    }

    /// Attaches volumes where pods use them, and lets go of those that nobody uses any more.
    pub(super) fn attach_volumes(&mut self) {
        let used = self.used_volumes();
        let there: Vec<Arc<Value>> = self.store.all(ATTACHMENTS, "").cloned().collect();
        let is_stuck = self.suffers(Component::Longhorn, ComponentFault::StuckVolume);
        for attachment in there.iter().filter(|it| value::text(it, "spec.attacher") == DRIVER) {
            let volume = value::text(attachment, "spec.source.persistentVolumeName");
            let is_used = used.get(volume).is_some_and(|(_, node)| *node == value::text(attachment, "spec.nodeName"));
            if is_used || is_stuck {
                continue;
            }
            let handle = self.get(VOLUMES, "", volume).map(|it| value::text(&it, "spec.csi.volumeHandle").to_owned());
            self.erase(ATTACHMENTS, "", value::name(attachment));
            self.tell_state(&handle.unwrap_or_else(|| volume.to_owned()), "detached", "");
        }
        for (volume, (handle, node)) in used {
            let name = name_of(&handle, &node);
            if self.get(ATTACHMENTS, "", &name).is_some() {
                continue;
            }
            let spec = json!({ "attacher": DRIVER, "nodeName": node, "source": { "persistentVolumeName": volume } });
            self.make(&CONTROLLER, ATTACHMENTS, json!({ "metadata": { "name": name }, "spec": spec }));
            self.amend(&CONTROLLER_STATUS, (ATTACHMENTS, "", &name), |object| {
                value::set(object, "status.attached", true);
            });
            self.tell_state(&handle, "attached", &node);
        }
    }

    /// The volumes of the driver that pods on nodes use: their handle, and on which node. One that has ended uses nothing.
    fn used_volumes(&self) -> BTreeMap<String, (String, String)> {
        let mut used = BTreeMap::new();
        for pod in self.store.all("pods", "") {
            let node = value::text(pod, "spec.nodeName");
            if node.is_empty() || ["Succeeded", "Failed"].contains(&value::text(pod, "status.phase")) {
                continue;
            }
            for claim in claims_of(pod) {
                let claim = self.get(CLAIMS, value::namespace(pod), claim);
                let volume = claim.and_then(|claim| self.get(VOLUMES, "", value::text(&claim, "spec.volumeName")));
                let Some(volume) = volume.filter(|it| value::text(it, "spec.csi.driver") == DRIVER) else { continue };
                let handle = value::text(&volume, "spec.csi.volumeHandle").to_owned();
                used.entry(value::name(&volume).to_owned()).or_insert((handle, node.to_owned()));
            }
        }
        used
    }

    fn tell_state(&mut self, volume: &str, state: &str, node: &str) {
        self.amend(&STATUS, (OWN_VOLUMES, NAMESPACE, volume), |object| {
            value::set(object, "status.state", state);
            value::set(object, "status.currentNodeID", node);
        });
    }
}
