//! What a machine configuration is made of.

use std::collections::BTreeMap;
use std::fmt;

use castle_secrets::Secret;

/// What a node of some release understands. Each release reads the contracts before its own, too.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Contract {
    /// Talos 1.12.
    V1_12,
    /// Talos 1.13: mostly one document.
    V1_13,
    /// Talos 1.14: nearly everything in documents of its own.
    V1_14,
}

impl Contract {
    /// The contract of a release such as `v1.13.9`, if it is a known one.
    #[must_use]
    pub fn of(version: &str) -> Option<Self> {
        let (major, rest) = version.strip_prefix('v').unwrap_or(version).split_once('.')?;
        let minor = rest.split('.').next()?;
        match (major, minor) {
            ("1", "12") => Some(Self::V1_12),
            ("1", "13") => Some(Self::V1_13),
            ("1", "14") => Some(Self::V1_14),
            _ => None,
        }
    }

    /// Whether Kubernetes, discovery and installation are documents of their own.
    pub(super) fn has_documents(self) -> bool {
        self >= Self::V1_14
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V1_12 => "1.12",
            Self::V1_13 => "1.13",
            Self::V1_14 => "1.14",
        })
    }
}

/// What a node is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Role {
    /// Runs etcd and the Kubernetes API.
    ControlPlane,
    /// Runs what the cluster hosts.
    Worker,
}

/// A certificate and its key, both PEM.
#[derive(Clone, Copy)]
pub struct Authority<'a> {
    /// The certificate.
    pub certificate: &'a str,
    /// Its private key.
    pub key: &'a str,
}

/// The secrets of a cluster, as its bundle keeps them. Certificates and keys are PEM.
#[derive(Clone, Copy)]
pub struct Secrets<'a> {
    /// The name of the cluster in discovery.
    pub cluster_id: &'a str,
    /// What discovery data is encrypted with.
    pub cluster_secret: &'a str,
    /// With it kubelets join Kubernetes.
    pub token: &'a str,
    /// With it workers ask control planes for certificates.
    pub trustd_token: &'a str,
    /// What Kubernetes secrets are encrypted with in etcd.
    pub secretbox: &'a str,
    /// The authority of etcd.
    pub etcd: Authority<'a>,
    /// The authority of Kubernetes.
    pub k8s: Authority<'a>,
    /// The authority of aggregated APIs.
    pub aggregator: Authority<'a>,
    /// The authority of the Talos API.
    pub os: Authority<'a>,
    /// Signs the tokens of service accounts.
    pub service_account_key: &'a str,
}

impl fmt::Debug for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Authority(..)")
    }
}

impl fmt::Debug for Secrets<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secrets(..)")
    }
}

/// All that goes into the configuration of one node.
#[derive(Clone, Debug)]
pub struct Input<'a> {
    /// The secrets of the cluster.
    pub secrets: Secrets<'a>,
    /// What all its nodes share.
    pub cluster: Cluster,
    /// What is this node's own.
    pub node: Node,
}

/// What all nodes of a cluster share.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Where the Kubernetes API is reached: `https://HOST:6443`.
    pub endpoint: String,
    /// The Kubernetes version, without a `v`.
    pub kubernetes: String,
    /// The domain of services.
    pub dns_domain: String,
    /// Where the addresses of pods come from.
    pub pod_subnets: Vec<String>,
    /// Where the addresses of services come from.
    pub service_subnets: Vec<String>,
    /// What connects pods.
    pub cni: Cni,
    /// Whether kube-proxy runs.
    pub kube_proxy: bool,
    /// Whether nodes find each other through the public discovery service.
    pub discovery: bool,
    /// Whether control planes run what the cluster hosts.
    pub schedule_on_control_planes: bool,
    /// Whether load balancers may point at control planes. Without workers nothing else is left to announce an address.
    pub balance_to_control_planes: bool,
    /// Further names and addresses in the certificate of the Kubernetes API.
    pub api_server_sans: Vec<String>,
    /// 1.14 and later: whether pods are kept in process and mount namespaces apart from the system's.
    pub workload_isolation: bool,
}

impl Cluster {
    /// A cluster as Talos' own generator makes it.
    #[must_use]
    pub fn new(name: &str, endpoint: &str, kubernetes: &str) -> Self {
        Self {
            name: name.to_owned(),
            endpoint: endpoint.to_owned(),
            kubernetes: kubernetes.strip_prefix('v').unwrap_or(kubernetes).to_owned(),
            dns_domain: "cluster.local".to_owned(),
            pod_subnets: vec!["10.244.0.0/16".to_owned()],
            service_subnets: vec!["10.96.0.0/12".to_owned()],
            cni: Cni::Flannel,
            kube_proxy: true,
            discovery: true,
            schedule_on_control_planes: false,
            balance_to_control_planes: false,
            api_server_sans: Vec::new(),
            workload_isolation: true,
        }
    }
}

/// What connects pods.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cni {
    /// Flannel, which Talos brings along.
    Flannel,
    /// Nothing: something else installs it later, and nodes are not ready before.
    None,
}

/// What is a node's own.
#[derive(Clone, Debug, Default)]
pub struct Node {
    /// Its name; without one Talos derives a stable name.
    pub hostname: Option<String>,
    /// Further names and addresses in the certificate of its Talos API.
    pub certificate_sans: Vec<String>,
    /// Its network; where empty, DHCP on every interface. One link switches DHCP off on all of them.
    pub links: Vec<Link>,
    /// The shared address of the control planes. Workers have none: it is left out for them.
    pub vip: Option<Vip>,
    /// Its DNS servers; where empty, those that DHCP names or Talos' own.
    pub nameservers: Vec<String>,
    /// Its time servers, or a `/dev/ptp` device; where empty, Talos' own.
    pub time_servers: Vec<String>,
    /// How Talos is put on a disk; `None` for disks that come with it.
    pub install: Option<Install>,
    /// Volumes beside those of the system.
    pub volumes: Vec<Volume>,
    /// Labels of the Kubernetes node.
    pub labels: BTreeMap<String, String>,
    /// Taints of the Kubernetes node: `EFFECT` or `VALUE:EFFECT` by key.
    pub taints: BTreeMap<String, String>,
    /// Where images of a registry are fetched instead.
    pub mirrors: Vec<Mirror>,
    /// Who asks a registry.
    pub registry_logins: Vec<RegistryLogin>,
    /// Kernel modules to load, with their parameters.
    pub kernel_modules: BTreeMap<String, Vec<String>>,
    /// Kernel parameters.
    pub sysctls: BTreeMap<String, String>,
    /// Further arguments of the kubelet.
    pub kubelet_args: BTreeMap<String, String>,
}

/// One interface with fixed addresses.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// Its name; with a MAC address, the alias it gets.
    pub name: String,
    /// The interface is the one with this permanent address, whatever the kernel calls it.
    pub mac: Option<String>,
    /// The largest packet; the kernel's choice without it.
    pub mtu: Option<u32>,
    /// Its addresses, each with a prefix length.
    pub addresses: Vec<String>,
    /// Routes through it.
    pub routes: Vec<Route>,
}

/// A way to a network.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// Where to; without it, everywhere.
    pub destination: Option<String>,
    /// The next hop.
    pub gateway: String,
}

/// An address that one control plane holds at a time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Vip {
    /// The address.
    pub address: String,
    /// On which link.
    pub link: String,
}

/// How Talos is put on a disk.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Install {
    /// Onto which; without one there is nothing to install.
    pub disk: Option<Disk>,
    /// The installer's image. It must be the platform's own: another one would change what platform the node takes itself for.
    pub image: Option<String>,
    /// Whether the disk is emptied first.
    pub wipe: bool,
}

/// The installer of the image factory for a platform such as `nocloud`.
#[must_use]
pub fn factory_installer(host: &str, platform: &str, schematic: &str, version: &str) -> String {
    let version = version.strip_prefix('v').unwrap_or(version);
    format!("{host}/{platform}-installer/{schematic}:v{version}")
}

/// A disk, by what it is and never by its name: names change between boots.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Disk {
    /// The one with this serial number.
    Serial(String),
    /// The one with this world wide id.
    Wwid(String),
    /// One of exactly so many bytes.
    Bytes(u64),
    /// One that Talos does not run from. For volumes alone.
    NotSystem,
    /// One for which this expression (CEL) holds. For installing only from 1.14.
    Matching(String),
}

/// A volume, mounted at `/var/mnt/NAME`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Volume {
    /// Its name.
    pub name: String,
    /// The disk it is made on.
    pub disk: Disk,
    /// The least it needs, such as `10GiB`.
    pub min_size: String,
    /// The most it takes; without it, all there is.
    pub max_size: Option<String>,
}

impl Volume {
    /// Longhorn's volume: all of a data disk, and more when the disk grows.
    #[must_use]
    pub fn longhorn(disk: Disk) -> Self {
        Self { name: "longhorn".to_owned(), disk, min_size: "1GiB".to_owned(), max_size: None }
    }
}

/// Where images of a registry are fetched instead.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mirror {
    /// The registry: `docker.io`, or `*` for all.
    pub registry: String,
    /// In this order: each a URL, and whether its path is used as it stands.
    pub endpoints: Vec<(String, bool)>,
    /// Whether the registry itself is never asked.
    pub skip_fallback: bool,
}

/// Who asks a registry.
#[derive(Clone, Debug)]
pub struct RegistryLogin {
    /// The registry's host, with its port if it has one.
    pub registry: String,
    /// How it is shown.
    pub credential: Credential,
}

/// What a registry takes as proof.
#[derive(Clone, Debug)]
pub enum Credential {
    /// A name and its password.
    Password {
        /// The name.
        username: String,
        /// The password.
        password: Secret,
    },
    /// Both of them joined, in base64.
    Basic(Secret),
    /// A token.
    Token(Secret),
}
