//! The clusters of Kubernetes in the world: each begins with its etcd, and its objects are gone with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::components::longhorn::Machine;
use super::components::{Component, ComponentFault};
use super::kube::{Due, Kube, Setup};
use super::value;
use super::webhooks::certificate::ServingCertificate;
use super::webhooks::served::Webhook;
use super::workloads::PodFault;
use super::workloads::nodes::Told;
use super::workloads::volumes::Provisioner;
use crate::datacenter::Datacenter;
use crate::talos::cluster::KubeNode;
use crate::talos::volumes;
use crate::world::World;
use crate::world::events::Event;

/// All clusters, by what identifies them, with the etcd that holds their objects.
#[derive(Default)]
pub(crate) struct Clusters {
    all: BTreeMap<String, (u64, Kube)>,
}

impl Clusters {
    pub(crate) fn get(&self, key: &str) -> Option<&Kube> {
        self.all.get(key).map(|(_, kube)| kube)
    }

    /// Its objects are gone with its etcd.
    pub(crate) fn forget(&mut self, key: &str) {
        self.all.remove(key);
    }

    /// Every object: its cluster's key, its collection and its place.
    pub(crate) fn everything(&self) -> impl Iterator<Item = ((String, String, String), &Arc<Value>)> {
        self.all.iter().flat_map(|(key, (_, kube))| {
            kube.store.everything().map(move |(collection, object)| {
                let place = format!("{}/{}", value::namespace(object), value::name(object));
                ((key.clone(), collection.to_string(), place), object)
            })
        })
    }

    /// The same, with the revision of their last change.
    pub(crate) fn objects(&self) -> impl Iterator<Item = ((String, String, String), String)> {
        self.everything().map(|(at, object)| (at, value::text(object, "metadata.resourceVersion").to_owned()))
    }
}

impl World {
    /// The API of a cluster, at the world's time; what it plans and changes is noted.
    pub(crate) fn kubernetes<T>(&mut self, key: &str, act: impl FnOnce(&mut Kube) -> T) -> Option<T> {
        let now = self.now;
        let (etcd, kube) = self.kubernetes.all.get_mut(key)?;
        kube.now = kube.now.max(now);
        let (before, etcd) = (kube.store.revision(), *etcd);
        let result = act(kube);
        let (plans, after) = (kube.take_plans(), kube.store.revision());
        for (at, due) in plans {
            self.events.plan(at, Event::Kubernetes(key.to_owned(), etcd, due));
        }
        if after != before {
            self.touch();
        }
        Some(result)
    }

    /// Lets happen what was planned in a cluster.
    pub(crate) fn kubernetes_happens(&mut self, key: &str, etcd: u64, due: &Due) {
        if self.kubernetes.all.get(key).is_none_or(|(own, _)| *own != etcd) {
            return;
        }
        // Nothing is written while etcd has no quorum: it happens as soon as it has.
        if self.etcd_of(key).is_none() {
            let again = self.now + std::time::Duration::from_secs(1);
            self.events.plan(again, Event::Kubernetes(key.to_owned(), etcd, due.clone()));
            return;
        }
        if let Due::Errand(component, of) = due {
            self.run_errand(key, *component, of);
        }
        let has_dns = self.kubernetes(key, |kube| {
            kube.happens(due);
            kube.has_names()
        });
        if let (Some(cluster), Some(has_dns)) = (self.talos.clusters.get_mut(key), has_dns) {
            cluster.has_dns = has_dns;
        }
    }

    /// Tells a cluster what its machines are; it begins if it has not.
    pub(crate) fn kubernetes_nodes(&mut self, key: &str) {
        let Some(etcd) = self.etcd_of(key) else { return };
        self.kubernetes_begin(key, etcd);
        let Some(cluster) = self.talos.clusters.get(key) else { return };
        let told: Vec<(Told, Machine)> =
            cluster.nodes.iter().map(|(name, node)| (self.told(name, node), self.machine_of(node))).collect();
        let configs: Vec<_> =
            cluster.nodes.values().map(|node| self.talos.nodes.get(&node.vmid)?.shown().cloned()).collect();
        self.kubernetes(key, |kube| {
            for ((node, machine), config) in told.iter().zip(&configs) {
                let is_new = kube.get("nodes", "", &node.name).is_none();
                kube.tell_machine(&node.name, machine.clone());
                // A machine that is off does not register again.
                if node.is_up || kube.get("nodes", "", &node.name).is_some() {
                    kube.tell_node(node);
                }
                let Some(config) = config else { continue };
                if is_new {
                    kube.register_taints(&node.name, &config.registered_taints());
                }
                // One that is refused asks again for ever, and tells nobody but its log.
                let _ = kube.apply_node(&node.name, &config.node_specs());
            }
        });
    }

    fn kubernetes_begin(&mut self, key: &str, etcd: u64) {
        if self.kubernetes.all.get(key).is_some_and(|(own, _)| *own == etcd) {
            return;
        }
        let nodes = self.nodes_of(key);
        let config = nodes
            .iter()
            .filter_map(|vmid| self.talos.nodes.get(vmid))
            .filter(|node| node.is_control_plane())
            .find_map(|node| node.config().cloned());
        let Some(config) = config else { return };
        let seed = self.chance.seed("kubernetes cluster");
        let [pods, services] = config.kubernetes_ranges();
        let mut latencies = self.latencies.talos.workloads.clone();
        latencies.pulls.insert(0, ("coredns".to_owned(), self.latencies.talos.dns));
        let setup = Setup {
            seed,
            version: config.kubernetes_version.clone(),
            services: (services.0, u32::MAX.checked_shr(services.1.into()).unwrap_or(0).saturating_sub(1)),
            pods,
            authority: config.kubernetes.as_ref().map(|authority| authority.pem.clone()).unwrap_or_default(),
            signer: config.kubernetes.clone(),
            endpoint: config.endpoint.clone(),
            latencies,
            factor: self.latencies.factor,
        };
        let mut kube = Kube::new(setup, self.now, self.calendar);
        for faulty in &self.faulty_pods {
            kube.set_fault(&faulty.namespace, &faulty.prefix, Some(faulty.fault));
        }
        let is_new_etcd = self.kubernetes.all.insert(key.to_owned(), (etcd, kube)).is_some();
        if is_new_etcd && let Some(cluster) = self.talos.clusters.get_mut(key) {
            // Whoever was registered with the old one has to do so again.
            cluster.nodes.clear();
        }
        let (network, names) =
            self.talos.clusters.get(key).map_or((true, true), |cluster| (cluster.has_network, cluster.wants_dns));
        self.kubernetes(key, |kube| kube.bootstrap_talos(network, names));
    }

    /// What a machine has for Longhorn: an image with extensions, and the volume that its configuration asks for.
    fn machine_of(&self, node: &KubeNode) -> Machine {
        let talos = self.talos.nodes.get(&node.vmid);
        let disks = self.block_devices(node.vmid);
        let config = talos.and_then(|node| node.config());
        let system = disks.iter().find(|disk| disk.is_system).map_or(0, |disk| disk.size);
        let volumes = config.map(|config| volumes::statuses(config, &disks)).into_iter().flatten();
        let own = volumes.into_iter().find(|(name, _)| name == "u-longhorn");
        let volume = own.map(|(_, said)| match said["phase"].as_str() {
            // A folder has as much as the disk of the system.
            Some("ready") => Ok(said["size"].as_u64().unwrap_or(system)),
            _ => Err(said["errorMessage"].as_str().unwrap_or("it is not ready").to_owned()),
        });
        let mounts = config.and_then(|config| config.machine()?.at("machine.kubelet.extraMounts"));
        let mounts = mounts.into_iter().flat_map(|mounts| mounts.list().unwrap_or_default());
        let mounts = mounts.filter_map(|mount| mount.text_at("destination")).map(str::to_owned).collect();
        Machine { has_iscsi: talos.is_none_or(|node| node.image.has_extensions()), system, volume, mounts }
    }

    fn told(&self, name: &str, node: &KubeNode) -> Told {
        let config = self.guests.get(&node.vmid).map(|guest| &guest.config);
        let number = |key: &str, otherwise: u64| {
            config
                .and_then(|config| config.get(key))
                .and_then(|text| text.split(',').next())
                .and_then(|text| text.parse().ok())
                .unwrap_or(otherwise)
        };
        let boot = self.talos.boot(node.vmid);
        Told {
            name: name.to_owned(),
            is_ready: node.is_ready,
            is_up: boot.is_some_and(|boot| boot.runs_kubelet),
            is_silent: node.is_silent,
            runs_control_plane: boot.is_some_and(|boot| boot.runs_apiserver),
            is_unschedulable: node.is_unschedulable,
            addresses: node.addresses.clone(),
            images: self.static_images(node.vmid),
            // What its configuration says is written by Talos, not by its agent.
            labels: BTreeMap::new(),
            taints: BTreeMap::new(),
            version: node.version.clone(),
            cores: number("cores", 1) * number("sockets", 1),
            memory_mib: number("memory", 512),
            boot_id: boot.map_or_else(String::new, |boot| boot.boot_id.clone()),
        }
    }

    /// The images that a control plane runs: that of the API server as it was started last, the others as its configuration says.
    fn static_images(&self, vmid: u32) -> [String; 3] {
        let boot = self.talos.boot(vmid);
        let Some(config) = boot.and_then(|boot| boot.config.as_ref()) else { return Default::default() };
        let [configured, controllers, scheduler] = config.static_images();
        let started = boot.map(|boot| boot.api_image.clone()).filter(|image| !image.is_empty());
        [started.unwrap_or(configured), controllers, scheduler]
    }

    /// The key of the cluster of that name.
    fn cluster_key(&self, name: &str) -> Option<String> {
        self.talos.clusters.iter().find(|(_, cluster)| cluster.name == name).map(|(key, _)| key.clone())
    }
}

/// What bad luck and other people do to clusters of Kubernetes, and what may be looked at without asking.
impl Datacenter {
    fn in_cluster<T>(&self, name: &str, act: impl FnOnce(&mut Kube) -> T) -> Option<T> {
        let mut world = self.world();
        let key = world.cluster_key(name)?;
        world.kubernetes(&key, act)
    }

    /// Lets the pods of a namespace whose names begin so go wrong, or (with nothing) run well again. Says whether there is
    /// such a cluster.
    pub fn fail_pods(&self, cluster: &str, namespace: &str, prefix: &str, fault: Option<PodFault>) -> bool {
        self.in_cluster(cluster, |kube| kube.set_fault(namespace, prefix, fault)).is_some()
    }

    /// Lets something go wrong with a component of a cluster, or (if it does not hold) go well again.
    pub fn fail_component(&self, cluster: &str, component: Component, fault: ComponentFault, holds: bool) -> bool {
        self.in_cluster(cluster, |kube| kube.set_component_fault(component, fault, holds)).is_some()
    }

    /// Serves admission webhooks inside of this process: behind a Service (`namespace/service`, as far as it has endpoints), or
    /// at an address (`host:port`). Nothing ends what was served there.
    pub fn serve_webhook(&self, cluster: &str, target: &str, webhook: Option<Webhook>) -> bool {
        let serve = |kube: &mut Kube| match webhook {
            Some(webhook) => drop(kube.hooks.insert(target.to_owned(), webhook)),
            None => drop(kube.hooks.remove(target)),
        };
        self.in_cluster(cluster, serve).is_some()
    }

    /// Makes volumes for claims of StorageClasses with this provisioner (`driver.longhorn.io`). Nothing ends that: who claims then
    /// waits.
    pub fn serve_provisioner(&self, cluster: &str, driver: &str, provisioner: Option<Provisioner>) -> bool {
        let serve = |kube: &mut Kube| {
            match provisioner {
                Some(provisioner) => drop(kube.provisioners.insert(driver.to_owned(), provisioner)),
                None => drop(kube.provisioners.remove(driver)),
            }
            kube.note_claims();
        };
        self.in_cluster(cluster, serve).is_some()
    }

    /// Makes an authority, and a certificate by it for these names (`webhook.space.svc`). Nothing if there is no such cluster, or a
    /// name is none.
    #[must_use]
    pub fn issue_certificate(&self, cluster: &str, names: &[&str]) -> Option<ServingCertificate> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        self.in_cluster(cluster, |kube| kube.issue_certificate(&names).ok()).flatten()
    }

    /// Keeps a definition from ever being established, or lets it.
    pub fn freeze_definition(&self, cluster: &str, name: &str, is_frozen: bool) -> bool {
        let freeze = |kube: &mut Kube| {
            if is_frozen {
                kube.stuck_definitions.insert(name.to_owned());
            } else if kube.stuck_definitions.remove(name) {
                kube.definition_changed(name);
            }
        };
        self.in_cluster(cluster, freeze).is_some()
    }

    /// Lets watches tell nothing, though they stay open, or tell all that they kept to themselves.
    pub fn stall_watches(&self, cluster: &str, is_stalled: bool) -> bool {
        let mut world = self.world();
        let Some(key) = world.cluster_key(cluster) else { return false };
        world.kubernetes(&key, |kube| kube.is_stalled = is_stalled);
        world.touch();
        true
    }

    /// Lets a cluster forget all changes that are over: a watch from before must begin anew.
    pub fn compact_objects(&self, cluster: &str) -> bool {
        self.in_cluster(cluster, |kube| kube.store.compact()).is_some()
    }

    /// Lets a bearer token stand for somebody, or for nobody any more.
    pub fn set_token(&self, cluster: &str, token: &str, user: Option<(&str, &[&str])>) -> bool {
        let set = |kube: &mut Kube| match user {
            Some((name, groups)) => {
                let mut groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
                groups.push("system:authenticated".to_owned());
                let user = super::request::User { name: name.to_owned(), groups, ..Default::default() };
                kube.tokens.insert(token.to_owned(), (user, None));
            }
            None => drop(kube.tokens.remove(token)),
        };
        self.in_cluster(cluster, set).is_some()
    }

    /// An object of a cluster, by its collection (`deployments.apps`, `pods`), namespace and name.
    #[must_use]
    pub fn object(&self, cluster: &str, collection: &str, namespace: &str, name: &str) -> Option<Value> {
        self.in_cluster(cluster, |kube| kube.get(collection, namespace, name).map(|object| Value::clone(&object)))
            .flatten()
    }

    /// Every object of every cluster, by its cluster, its collection and its place (`namespace/name`).
    #[must_use]
    pub fn objects(&self) -> BTreeMap<(String, String, String), Arc<Value>> {
        self.world().kubernetes.everything().map(|(at, object)| (at, object.clone())).collect()
    }

    /// The names of the objects of a collection, as `namespace/name`.
    #[must_use]
    pub fn object_names(&self, cluster: &str, collection: &str) -> Vec<String> {
        let names = |kube: &mut Kube| {
            kube.store
                .all(collection, "")
                .map(|object| format!("{}/{}", value::namespace(object), value::name(object)))
                .collect()
        };
        self.in_cluster(cluster, names).unwrap_or_default()
    }
}
