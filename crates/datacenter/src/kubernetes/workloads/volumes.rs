//! Claims and their volumes: bound to one that is there, or to one that somebody makes for them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::kubernetes::delete::Options;
use crate::kubernetes::kube::{CONTROLLER, CONTROLLER_STATUS, Due, Key, Kube, Writer};
use crate::kubernetes::quantity;
use crate::kubernetes::value;

pub(crate) const CLAIMS: &str = "persistentvolumeclaims";
pub(crate) const VOLUMES: &str = "persistentvolumes";
const CLASSES: &str = "storageclasses.storage.k8s.io";

/// The node that a pod which waits for its claim will go to.
const SELECTED: &str = "volume.kubernetes.io/selected-node";
/// When whoever failed to make a volume tries again.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(15);

const SOURCE: &str = "persistentvolume-controller";
/// Whoever makes volumes.
const PROVISIONER: Writer<'_> = Writer { name: "csi-provisioner", subresource: "" };

/// A volume that is wanted, and the cluster that wants it.
pub struct VolumeAsked<'a> {
    /// The claim.
    pub claim: &'a Value,
    /// Its StorageClass.
    pub class: &'a Value,
    kube: &'a Kube,
}

impl VolumeAsked<'_> {
    /// The objects of a collection (`nodes`, `nodes.longhorn.io`), in one namespace or (if it is empty) in all.
    pub fn objects<'a>(&'a self, collection: &str, namespace: &'a str) -> impl Iterator<Item = &'a Value> {
        self.kube.store.all(collection, namespace).map(|object| &**object)
    }
}

/// A volume that was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvisionedVolume {
    /// How its maker calls it.
    pub handle: String,
    /// What else its maker wants remembered of it.
    pub attributes: BTreeMap<String, String>,
}

type Handler = dyn Fn(&VolumeAsked<'_>) -> Result<ProvisionedVolume, String> + Send + Sync;

/// Somebody who makes volumes for StorageClasses that name him as their provisioner. Clones are the same one.
///
/// The handler is called while the world stands still: it may look at the cluster's objects ([`VolumeAsked::objects`]), but must
/// not ask the datacenter. What it refuses is told in an Event and asked again.
#[derive(Clone)]
pub struct Provisioner(Arc<Handler>);

impl fmt::Debug for Provisioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provisioner").finish_non_exhaustive()
    }
}

impl Provisioner {
    /// One that makes volumes so.
    pub fn new(
        handler: impl Fn(&VolumeAsked<'_>) -> Result<ProvisionedVolume, String> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(handler))
    }
}

/// Whether a claim waits until a pod that uses it has a node.
fn waits_for_pod(class: &Value) -> bool {
    value::text(class, "volumeBindingMode") == "WaitForFirstConsumer"
}

fn requested(claim: &Value) -> i64 {
    quantity::whole(value::text(claim, "spec.resources.requests.storage"))
}

fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    let all = value::at(object, "metadata.annotations");
    all.and_then(|all| all.get(key)).and_then(Value::as_str).unwrap_or_default()
}

impl Kube {
    /// Looks after a claim that has no volume yet.
    pub(super) fn sync_claim(&mut self, claim: &Arc<Value>) {
        if value::is_deleting(claim) {
            return;
        }
        if !value::text(claim, "spec.volumeName").is_empty() && value::text(claim, "status.phase") == "Bound" {
            self.grow(claim);
            return;
        }
        if let Some(volume) = self.volume_for(claim) {
            self.bind_claim(claim, &volume);
            return;
        }
        let name = value::text(claim, "spec.storageClassName").to_owned();
        if name.is_empty() {
            let message = "no persistent volumes available for this claim and no storage class is set";
            self.tell(SOURCE, claim, true, "FailedBinding", message);
            return;
        }
        let Some(class) = self.get(CLASSES, "", &name) else {
            let message = format!("storageclass.storage.k8s.io {name:?} not found");
            self.tell(SOURCE, claim, false, "ProvisioningFailed", &message);
            return;
        };
        if waits_for_pod(&class) && annotation(claim, SELECTED).is_empty() {
            let message = "waiting for first consumer to be created before binding";
            self.tell(SOURCE, claim, true, "WaitForFirstConsumer", message);
            return;
        }
        self.order(claim, value::text(&class, "provisioner"));
    }

    /// Asks for a volume, once.
    fn order(&mut self, claim: &Value, driver: &str) {
        let (namespace, name) = (value::namespace(claim).to_owned(), value::name(claim).to_owned());
        if annotation(claim, "volume.kubernetes.io/storage-provisioner") != driver {
            self.amend(&CONTROLLER, (CLAIMS, &namespace, &name), |object| {
                let annotations = value::place(object, "metadata.annotations");
                for key in ["volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner"]
                {
                    annotations[key] = json!(driver);
                }
            });
            let message = format!(
                "Waiting for a volume to be created either by the external provisioner '{driver}' or manually by the system administrator. If \
                 volume creation is delayed, please verify that the provisioner is running and correctly registered."
            );
            self.tell(SOURCE, claim, true, "ExternalProvisioning", &message);
        }
        if self.provisioners.contains_key(driver) && self.workloads.ordered.insert(value::uid(claim).to_owned()) {
            let wait = self.draw("kubernetes provision", self.setup.latencies.provision);
            self.plan(wait, Due::Provision((Arc::from(CLAIMS), namespace, name)));
        }
    }

    /// Makes a volume for a claim, if it still wants one.
    pub(crate) fn provision(&mut self, key: &Key) {
        let Some(claim) = self.get(&key.0, &key.1, &key.2) else { return };
        self.workloads.ordered.remove(value::uid(&claim));
        if value::is_deleting(&claim) || value::text(&claim, "status.phase") == "Bound" {
            return;
        }
        let Some(class) = self.get(CLASSES, "", value::text(&claim, "spec.storageClassName")) else { return };
        let driver = value::text(&class, "provisioner").to_owned();
        let Some(provisioner) = self.provisioners.get(&driver).cloned() else { return };
        match (provisioner.0)(&VolumeAsked { claim: &claim, class: &class, kube: self }) {
            Ok(made) => {
                let name = format!("pvc-{}", value::uid(&claim));
                self.make(&PROVISIONER, VOLUMES, volume(&name, &claim, &class, &made));
                let message = format!("Successfully provisioned volume {name}");
                self.tell(&driver, &claim, true, "ProvisioningSucceeded", &message);
                if let Some(volume) = self.get(VOLUMES, "", &name) {
                    self.bind_claim(&claim, &volume);
                }
            }
            Err(why) => {
                let message = format!("failed to provision volume with StorageClass {:?}: {why}", value::name(&class));
                self.tell(&driver, &claim, false, "ProvisioningFailed", &message);
                self.plan(AGAIN, Due::Look(key.clone()));
            }
        }
    }

    /// A volume that is there and fits: the one that is named, or the smallest that is large enough.
    fn volume_for(&self, claim: &Value) -> Option<Arc<Value>> {
        let named = value::text(claim, "spec.volumeName");
        let is_free = |volume: &Value| {
            let of = value::text(volume, "spec.claimRef.uid");
            let is_meant = value::text(volume, "spec.claimRef.name") == value::name(claim)
                && value::text(volume, "spec.claimRef.namespace") == value::namespace(claim);
            !value::is_deleting(volume)
                && if of.is_empty() {
                    value::text(volume, "spec.claimRef.name").is_empty() || is_meant
                } else {
                    of == value::uid(claim)
                }
        };
        if !named.is_empty() {
            return self.get(VOLUMES, "", named).filter(|volume| is_free(volume));
        }
        let modes = value::items(claim, "spec.accessModes");
        let fits = |volume: &&Arc<Value>| {
            is_free(volume)
                && value::text(volume, "spec.storageClassName") == value::text(claim, "spec.storageClassName")
                && modes.iter().all(|mode| value::items(volume, "spec.accessModes").contains(mode))
                && quantity::whole(value::text(volume, "spec.capacity.storage")) >= requested(claim)
        };
        let fitting = self.store.all(VOLUMES, "").filter(fits);
        fitting.min_by_key(|volume| quantity::whole(value::text(volume, "spec.capacity.storage"))).cloned()
    }

    fn bind_claim(&mut self, claim: &Value, volume: &Value) {
        let (namespace, name) = (value::namespace(claim), value::name(claim));
        let reference = json!({
            "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": namespace, "name": name, "uid": value::uid(claim),
        });
        let place = (VOLUMES, "", value::name(volume));
        self.amend(&CONTROLLER, place, |object| value::set(object, "spec.claimRef", reference));
        self.amend(&CONTROLLER_STATUS, place, |object| value::set(object, "status.phase", "Bound"));
        let place = (CLAIMS, namespace, name);
        self.amend(&CONTROLLER, place, |object| {
            value::set(object, "spec.volumeName", value::name(volume));
            let annotations = value::place(object, "metadata.annotations");
            annotations["pv.kubernetes.io/bind-completed"] = json!("yes");
            annotations["pv.kubernetes.io/bound-by-controller"] = json!("yes");
        });
        self.amend(&CONTROLLER_STATUS, place, |object| {
            let (modes, capacity) = (&volume["spec"]["accessModes"], &volume["spec"]["capacity"]);
            value::set(object, "status", json!({ "phase": "Bound", "accessModes": modes, "capacity": capacity }));
        });
    }

    /// Gives a claim that asks for more what it asks for, where its class allows that.
    fn grow(&mut self, claim: &Value) {
        let has = quantity::whole(value::text(claim, "status.capacity.storage"));
        let class = self.get(CLASSES, "", value::text(claim, "spec.storageClassName"));
        if requested(claim) <= has || class.is_none_or(|class| !value::is_true(&class, "allowVolumeExpansion")) {
            return;
        }
        let wanted = value::text(claim, "spec.resources.requests.storage").to_owned();
        self.amend(&CONTROLLER, (VOLUMES, "", value::text(claim, "spec.volumeName")), |object| {
            value::set(object, "spec.capacity.storage", wanted.as_str());
        });
        let place = (CLAIMS, value::namespace(claim), value::name(claim));
        self.amend(&CONTROLLER_STATUS, place, |object| value::set(object, "status.capacity.storage", wanted.as_str()));
    }

    /// A claim is gone: its volume goes too, or stays for whoever wants to look at it.
    pub(crate) fn claim_gone(&mut self, claim: &Value) {
        let of = value::uid(claim);
        let own = self.store.all(VOLUMES, "").find(|volume| value::text(volume, "spec.claimRef.uid") == of).cloned();
        let Some(volume) = own else { return };
        let name = value::name(&volume).to_owned();
        self.amend(&CONTROLLER_STATUS, (VOLUMES, "", &name), |object| value::set(object, "status.phase", "Released"));
        if value::text(&volume, "spec.persistentVolumeReclaimPolicy") != "Delete" {
            return;
        }
        if let Some(volume) = self.get(VOLUMES, "", &name)
            && self.dismiss_as("persistent-volume-binder", &volume, VOLUMES, &Options::default()).is_err()
        {
            self.plan(AGAIN, Due::Look((Arc::from(VOLUMES), String::new(), name)));
        }
    }

    /// The first claim of a pod that has no volume, and that no node would change that of.
    pub(super) fn unbound_claim(&self, pod: &Value) -> Option<String> {
        self.claims_of(pod)
            .into_iter()
            .find(|(_, claim)| {
                claim.as_ref().is_none_or(|claim| value::text(claim, "status.phase") != "Bound" && !self.waits(claim))
            })
            .map(|(name, _)| name)
    }

    /// Lets the claims of a pod know where it will go. Says whether it has to wait for them.
    pub(super) fn select_node(&mut self, pod: &Value, node: &str) -> bool {
        let claims = self.claims_of(pod).into_iter().filter_map(|(_, claim)| claim);
        let waiting: Vec<Arc<Value>> =
            claims.filter(|claim| value::text(claim, "status.phase") != "Bound" && self.waits(claim)).collect();
        for claim in &waiting {
            let scheduler = Writer { name: "kube-scheduler", subresource: "" };
            self.amend(&scheduler, (CLAIMS, value::namespace(claim), value::name(claim)), |object| {
                value::place(object, "metadata.annotations")[SELECTED] = json!(node);
            });
        }
        !waiting.is_empty()
    }

    fn waits(&self, claim: &Value) -> bool {
        self.get(CLASSES, "", value::text(claim, "spec.storageClassName")).is_some_and(|class| waits_for_pod(&class))
    }

    fn claims_of(&self, pod: &Value) -> Vec<(String, Option<Arc<Value>>)> {
        let volumes = value::items(pod, "spec.volumes").iter();
        let names = volumes.map(|volume| value::text(volume, "persistentVolumeClaim.claimName"));
        let names = names.filter(|name| !name.is_empty());
        names.map(|name| (name.to_owned(), self.get(CLAIMS, value::namespace(pod), name))).collect()
    }

    /// Claims that have no volume are to be looked at again.
    pub(crate) fn note_claims(&mut self) {
        let open = self.store.all(CLAIMS, "").filter(|claim| value::text(claim, "status.phase") != "Bound");
        let keys: Vec<Key> =
            open.map(|it| (Arc::from(CLAIMS), value::namespace(it).to_owned(), value::name(it).to_owned())).collect();
        keys.into_iter().for_each(|key| self.note(key));
    }
}

/// The object of a volume that was made for a claim.
fn volume(name: &str, claim: &Value, class: &Value, made: &ProvisionedVolume) -> Value {
    let driver = value::text(class, "provisioner");
    let filesystem = value::at(class, "parameters").and_then(|all| all.get("csi.storage.k8s.io/fstype"));
    let attributes: BTreeMap<&str, &str> =
        made.attributes.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let mut source = json!({ "driver": driver, "volumeHandle": made.handle });
    if let Some(filesystem) = filesystem {
        value::set(&mut source, "fsType", filesystem.clone());
    }
    if !attributes.is_empty() {
        value::set(&mut source, "volumeAttributes", json!(attributes));
    }
    let annotations = json!({ "pv.kubernetes.io/provisioned-by": driver });
    let metadata = json!({ "name": name, "annotations": annotations, "finalizers": ["kubernetes.io/pv-protection"] });
    json!({
        "metadata": metadata,
        "spec": {
            "capacity": { "storage": value::text(claim, "spec.resources.requests.storage") },
            "accessModes": claim["spec"]["accessModes"], "persistentVolumeReclaimPolicy": class["reclaimPolicy"],
            "storageClassName": value::name(class), "volumeMode": claim["spec"]["volumeMode"], "csi": source,
        },
        "status": { "phase": "Pending" },
    })
}
