//! What a configuration says about network, names and scheduling, wherever its version writes it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::yaml::Yaml;
use super::{Cni, Config, Network, Role, prefix};
use crate::kubernetes::workloads::specs::NodeSpecs;

/// The label of a node that is a control plane.
pub(crate) const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

impl Config {
    /// The name that the machine is given.
    pub(crate) fn hostname(&self) -> Option<&str> {
        let new = self.documents_of("HostnameConfig").find_map(|document| document.value.text_at("hostname"));
        new.or_else(|| self.machine()?.text_at("machine.network.hostname")).filter(|name| !name.is_empty())
    }

    /// The addresses that the machine is given besides those of its platform.
    pub(crate) fn addresses(&self) -> Vec<Network> {
        let linked = ["LinkConfig", "BondConfig", "BridgeConfig", "VLANConfig"].into_iter().flat_map(|kind| {
            self.documents_of(kind).flat_map(|document| {
                let listed = document.value.at("addresses").and_then(Yaml::list).unwrap_or_default();
                listed.iter().filter_map(|item| prefix(item.text_at("address")?)).collect::<Vec<_>>()
            })
        });
        let devices = self.devices().iter().flat_map(|device| {
            let old = device.text_at("cidr").into_iter().chain(device.texts_at("addresses"));
            old.filter_map(prefix).collect::<Vec<_>>()
        });
        linked.chain(devices).collect()
    }

    /// The addresses that control planes share.
    pub(crate) fn vips(&self) -> Vec<IpAddr> {
        if self.role == Role::Worker {
            return Vec::new();
        }
        let new = self.documents_of("Layer2VIPConfig").filter_map(|document| document.name.parse().ok());
        let old = self.devices().iter().filter_map(|device| device.text_at("vip.ip")?.parse().ok());
        new.chain(old).collect()
    }

    fn devices(&self) -> &[Yaml] {
        self.machine()
            .and_then(|machine| machine.at("machine.network.interfaces"))
            .and_then(Yaml::list)
            .unwrap_or_default()
    }

    /// The names that the certificate of the Talos API has besides those of the machine.
    pub(crate) fn talos_sans(&self) -> Vec<String> {
        self.machine().map(|machine| owned(&machine.texts_at("machine.certSANs"))).unwrap_or_default()
    }

    /// The names that the certificate of the Kubernetes API has besides those of the machine.
    pub(crate) fn kubernetes_sans(&self) -> Vec<String> {
        let new =
            self.documents_of("KubeAPIServerConfig").flat_map(|document| document.value.texts_at("certExtraSANs"));
        let old = self.machine().map(|machine| machine.texts_at("cluster.apiServer.certSANs")).unwrap_or_default();
        owned(&new.chain(old).collect::<Vec<_>>())
    }

    /// Whether machines of the cluster find each other through the discovery service.
    pub(crate) fn is_discovered(&self) -> bool {
        if self.documents_of("DiscoveryServiceConfig").next().is_some() {
            return true;
        }
        let Some(machine) = self.machine() else { return false };
        machine.bool_at("cluster.discovery.enabled").unwrap_or(false)
            && !machine.bool_at("cluster.discovery.registries.service.disabled").unwrap_or(false)
    }

    /// The network plugin.
    pub(crate) fn cni(&self) -> Cni {
        let is_new = self.documents_of("KubeClusterConfig").next().is_some();
        let has_new = self.documents_of("KubeFlannelCNIConfig").next().is_some();
        let old = self.machine().and_then(|machine| machine.text_at("cluster.network.cni.name"));
        match (is_new, has_new, old) {
            (_, true, _) | (false, _, None | Some("flannel")) => Cni::Flannel,
            _ => Cni::None,
        }
    }

    /// Whether Pods get a network: from the plugin, or from manifests that come with the configuration. What is in those nobody asks here.
    pub(crate) fn has_network(&self) -> bool {
        let documents = ["KubeInlineManifestConfig", "KubeExternalManifestConfig"];
        let has_list = |path: &str| {
            let list = self.machine().and_then(|machine| machine.at(path)).and_then(|list| list.list());
            list.is_some_and(|items| !items.is_empty())
        };
        self.cni() == Cni::Flannel
            || documents.iter().any(|kind| self.documents_of(kind).next().is_some())
            || ["cluster.inlineManifests", "cluster.extraManifests", "cluster.network.cni.urls"]
                .iter()
                .any(|path| has_list(path))
    }

    /// The images of the API server, of the controllers and of the scheduler. Where none is named, they are as old as the kubelet.
    pub(crate) fn static_images(&self) -> [String; 3] {
        let parts = [
            ("KubeAPIServerConfig", "apiServer", "kube-apiserver"),
            ("KubeControllerManagerConfig", "controllerManager", "kube-controller-manager"),
            ("KubeSchedulerConfig", "scheduler", "kube-scheduler"),
        ];
        parts.map(|(kind, key, name)| {
            let new = self.documents_of(kind).find_map(|document| document.value.text_at("image"));
            let named = new.or_else(|| self.machine()?.text_at(&format!("cluster.{key}.image")));
            let named = named.filter(|image| !image.is_empty()).map(str::to_owned);
            named.unwrap_or_else(|| format!("registry.k8s.io/{name}:{}", self.kubernetes_version))
        })
    }

    /// The first ranges of IPv4 that Pods and Services have their addresses from; Talos' own where none is named.
    pub(crate) fn kubernetes_ranges(&self) -> [(Ipv4Addr, u8); 2] {
        let named = |key: &str, otherwise: (Ipv4Addr, u8)| {
            let new = self.documents_of("KubeNetworkConfig").next().map(|document| document.value.texts_at(key));
            let old = || self.machine().map(|machine| machine.texts_at(&format!("cluster.network.{key}")));
            let mut read = new.or_else(old).unwrap_or_default().into_iter().filter_map(|text| {
                let (address, length) = text.split_once('/')?;
                let (address, length) = (address.parse::<Ipv4Addr>().ok()?, length.parse::<u8>().ok()?);
                let mask = u32::MAX.checked_shl(32_u32.checked_sub(length.into())?).unwrap_or(0);
                Some((Ipv4Addr::from(u32::from(address) & mask), length))
            });
            read.next().unwrap_or(otherwise)
        };
        let (pods, services) = (Ipv4Addr::new(10, 244, 0, 0), Ipv4Addr::new(10, 96, 0, 0));
        [named("podSubnets", (pods, 16)), named("serviceSubnets", (services, 12))]
    }

    /// Whether CoreDNS comes with the cluster.
    pub(crate) fn has_dns(&self) -> bool {
        let new = self.documents_of("KubeCoreDNSConfig").next();
        if self.documents_of("KubeClusterConfig").next().is_some() {
            return new.is_some_and(|document| document.value.bool_at("enabled") != Some(false));
        }
        self.machine().and_then(|machine| machine.bool_at("cluster.coreDNS.disabled")) != Some(true)
    }

    /// What is written into the node of Kubernetes.
    pub(crate) fn node_specs(&self) -> NodeSpecs {
        let (labels, taints) = self.labels_and_taints();
        let new = self.documents_of("KubeNodeConfig").next().map(|document| document.value.at("annotations"));
        let old = || self.machine().and_then(|machine| machine.at("machine.nodeAnnotations"));
        let annotations = texts(new.unwrap_or_else(old));
        NodeSpecs { labels, annotations, taints, is_administrator: self.role == Role::ControlPlane }
    }

    /// The taints that the kubelet registers its node with: those it was told to, and that of a control plane.
    pub(crate) fn registered_taints(&self) -> BTreeMap<String, String> {
        let new = self.documents_of("KubeletConfig").next().and_then(|it| it.value.at("config.registerWithTaints"));
        let old = || self.machine().and_then(|machine| machine.at("machine.kubelet.extraConfig.registerWithTaints"));
        let told = new.or_else(old).and_then(Yaml::list).unwrap_or_default();
        let mut taints: BTreeMap<String, String> = (told.iter())
            .filter_map(|taint| {
                let text = |key: &str| taint.text_at(key).unwrap_or_default();
                Some((taint.text_at("key")?.to_owned(), format!("{}:{}", text("value"), text("effect"))))
            })
            .collect();
        let own = self.labels_and_taints().1.remove_entry(CONTROL_PLANE);
        taints.extend(own.filter(|_| self.role == Role::ControlPlane));
        taints
    }

    /// The labels and taints of the node.
    pub(crate) fn labels_and_taints(&self) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        if let Some(document) = self.documents_of("KubeNodeConfig").next() {
            return (texts(document.value.at("labels")), texts(document.value.at("taints")));
        }
        let Some(machine) = self.machine() else { return Default::default() };
        let mut labels = texts(machine.at("machine.nodeLabels"));
        let mut taints = texts(machine.at("machine.nodeTaints"));
        if self.role == Role::ControlPlane {
            labels.insert(CONTROL_PLANE.to_owned(), String::new());
            if machine.bool_at("cluster.allowSchedulingOnControlPlanes") != Some(true) {
                taints.insert(CONTROL_PLANE.to_owned(), "NoSchedule".to_owned());
            }
        }
        (labels, taints)
    }

    /// The paths of the Kubernetes API that need no certificate.
    pub(crate) fn anonymous_paths(&self) -> Vec<String> {
        let Some(document) = self.documents_of("KubeAuthenticationConfig").next() else { return Vec::new() };
        if document.value.bool_at("configuration.anonymous.enabled") != Some(true) {
            return Vec::new();
        }
        let listed = document.value.at("configuration.anonymous.conditions").and_then(Yaml::list).unwrap_or_default();
        listed.iter().filter_map(|item| item.text_at("path")).map(Into::into).collect()
    }

    /// The time servers; the vendor's own if none is named.
    pub(crate) fn time_servers(&self) -> Vec<String> {
        let named = self.named_time_servers();
        if named.is_empty() { vec!["time.cloudflare.com".to_owned()] } else { named }
    }

    /// Whether it has time servers of its own.
    pub(crate) fn names_time_servers(&self) -> bool {
        !self.named_time_servers().is_empty()
    }

    fn named_time_servers(&self) -> Vec<String> {
        let new = self.documents_of("TimeSyncConfig").flat_map(|document| document.value.texts_at("ntp.servers"));
        let old = self.machine().map(|machine| machine.texts_at("machine.time.servers")).unwrap_or_default();
        owned(&new.chain(old).collect::<Vec<_>>())
    }

    /// Whether time is to be in sync at all.
    pub(crate) fn syncs_time(&self) -> bool {
        let is_off =
            self.documents_of("TimeSyncConfig").any(|document| document.value.bool_at("enabled") == Some(false));
        let was_off = self.machine().and_then(|machine| machine.bool_at("machine.time.disabled")) == Some(true);
        !is_off && !was_off
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|&text| text.to_owned()).collect()
}

fn texts(value: Option<&Yaml>) -> BTreeMap<String, String> {
    let entries = value.and_then(Yaml::map).unwrap_or_default().iter();
    entries.map(|(key, value)| (key.clone(), value.text().unwrap_or_default().to_owned())).collect()
}
