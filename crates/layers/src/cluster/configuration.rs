//! The configuration of a node: castle.yaml and the bundle in, Talos' documents out. Pure: what castle.yaml refers to was read before.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use castle_engine::{Class, Fault};
use castle_secrets::Secret;
use castle_spec::model::{Cni, Storage};
use castle_spec::values::SecretReference;
use castle_spec::{Castle, Node, Role};
use castle_talos::model::bundle::{Bundle, EncryptionSecret};
use castle_talos::model::config::{
    self, Authority, Cluster, ConfigError, Configuration, Disk, Input, Link, Mirror, RegistryLogin, Route, Secrets,
    Vip, Volume,
};
use castle_talos::model::merge::MergeError;
use castle_talos::model::pki::Credential;
use castle_yaml::{self as yaml, YamlError};
use serde_json::Value;
use thiserror::Error;

use super::api_address;
use super::traits::{self, TaintId, Traits};

/// The name of the one link that a node has.
const LINK: &str = "net0";

/// What castle.yaml refers to and configurations are made of, read once by whoever has files and vaults.
#[derive(Clone, Debug, Default)]
pub struct Referred {
    /// The texts of the files with patches, by the names that castle.yaml calls them. Patches may hold secrets.
    pub patches: BTreeMap<String, Secret>,
    /// What the nodes are known by at mirrors: `USERNAME:PASSWORD`, or a mapping with `username` and `password`.
    pub credentials: BTreeMap<SecretReference, Secret>,
}

/// Why there is no configuration. Names things and places, never values.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ConfigurationError {
    /// The bundle cannot be written in any contract that castle knows.
    #[error("the bundle is of Talos 1.2 or older: its encryption secret has no place in today's configuration")]
    OldBundle,
    /// Nobody knows what such a Talos reads.
    #[error("castle does not know the configuration of Talos {0}")]
    UnknownTalos(String),
    /// The contract has no words for what castle.yaml asks for.
    #[error(transparent)]
    Wordless(#[from] ConfigError),
    /// A file with patches was not read.
    #[error("the patch {0} was not read")]
    PatchMissing(String),
    /// A file with patches is no YAML.
    #[error("the patch {file}: {error}")]
    PatchUnreadable {
        /// The file.
        file: String,
        /// What is wrong with it, and where.
        error: YamlError,
    },
    /// Talos would not merge a patch either.
    #[error("the patch {file} cannot be merged: {error}")]
    PatchRefused {
        /// The file.
        file: String,
        /// Why not.
        error: Box<MergeError>,
    },
    /// What a mirror's credential refers to was not read.
    #[error("the credential of the mirror for {registry} was not read from {reference}")]
    CredentialMissing {
        /// The registry.
        registry: String,
        /// Where the credential is kept.
        reference: SecretReference,
    },
    /// It was read, and is none.
    #[error(
        "the credential of the mirror for {registry}, from {reference}, is neither USERNAME:PASSWORD nor a mapping with username and password"
    )]
    CredentialForm {
        /// The registry.
        registry: String,
        /// Where the credential is kept.
        reference: SecretReference,
    },
    /// Talos keeps one login for a host, and castle.yaml has two.
    #[error("two mirrors have different credentials for the same host, {0}: Talos keeps one login a host")]
    CredentialTwice(String),
}

impl ConfigurationError {
    /// The fault of a node that cannot be configured.
    #[must_use]
    pub fn fault(&self, node: &str) -> Fault {
        let next = match self {
            Self::OldBundle => "castle state history secrets".to_owned(),
            Self::UnknownTalos(_) | Self::Wordless(_) => "castle check".to_owned(),
            Self::PatchMissing(file) | Self::PatchUnreadable { file, .. } | Self::PatchRefused { file, .. } => {
                format!("correct {file}, then: castle check")
            }
            Self::CredentialMissing { reference, .. } | Self::CredentialForm { reference, .. } => {
                format!("correct what {reference} holds, then run the same command again")
            }
            Self::CredentialTwice(_) => "give both mirrors in castle.yaml the same credential".to_owned(),
        };
        Fault::new(Class::Final, node, self.to_string()).next(next)
    }
}

/// The configuration of a node.
///
/// # Errors
///
/// What is wrong with what it is made of.
pub fn configuration(
    castle: &Castle,
    nodes: &[Node],
    node: &Node,
    bundle: &Bundle,
    referred: &Referred,
) -> Result<Configuration, ConfigurationError> {
    Ok(sent(node, composed(castle, nodes, node, bundle, referred)?))
}

/// What a node gets of a configuration.
fn sent(node: &Node, composed: Configuration) -> Configuration {
    if node.role == Role::Worker { traits::of_worker(&composed) } else { composed }
}

/// What a node is to be in Kubernetes, and all taints that it is to have by its configuration.
pub(super) fn traits(
    castle: &Castle,
    nodes: &[Node],
    node: &Node,
    bundle: &Bundle,
    referred: &Referred,
) -> Result<(Traits, BTreeSet<TaintId>), ConfigurationError> {
    let composed = composed(castle, nodes, node, bundle, referred)?;
    let traits = Traits::of(&composed);
    Ok((traits, traits::taints_by(&sent(node, composed))))
}

/// What the file and its patches say of a node.
fn composed(
    castle: &Castle,
    nodes: &[Node],
    node: &Node,
    bundle: &Bundle,
    referred: &Referred,
) -> Result<Configuration, ConfigurationError> {
    let EncryptionSecret::Secretbox(secretbox) = &bundle.encryption else {
        return Err(ConfigurationError::OldBundle);
    };
    let secrets = Secrets {
        cluster_id: &bundle.cluster_id,
        cluster_secret: bundle.cluster_secret.expose(),
        token: bundle.bootstrap_token.expose(),
        trustd_token: bundle.trustd_token.expose(),
        secretbox: secretbox.expose(),
        etcd: authority(&bundle.etcd),
        k8s: authority(&bundle.kubernetes),
        aggregator: authority(&bundle.aggregator),
        os: authority(&bundle.talos),
        service_account_key: bundle.service_account.expose(),
    };
    assembled(castle, nodes, node, secrets, logins(castle, referred)?, &referred.patches)
}

/// The configuration of a node with some secrets or other in it, for whoever only asks whether it can be made: nothing of it is fit to be
/// sent.
///
/// # Errors
///
/// What is wrong with what it is made of.
pub fn supposed(
    castle: &Castle,
    nodes: &[Node],
    node: &Node,
    patches: &BTreeMap<String, Secret>,
) -> Result<Configuration, ConfigurationError> {
    const NONE: &str = "none";
    let authority = || Authority { certificate: NONE, key: NONE };
    let secrets = Secrets {
        cluster_id: NONE,
        cluster_secret: NONE,
        token: NONE,
        trustd_token: NONE,
        secretbox: NONE,
        etcd: authority(),
        k8s: authority(),
        aggregator: authority(),
        os: authority(),
        service_account_key: NONE,
    };
    assembled(castle, nodes, node, secrets, Vec::new(), patches).map(|composed| sent(node, composed))
}

/// Holds that nodes can be known at the mirrors by what was read for them.
///
/// # Errors
///
/// What is wrong with a credential.
pub fn recognised(castle: &Castle, referred: &Referred) -> Result<(), ConfigurationError> {
    logins(castle, referred).map(|_| ())
}

/// Whether Pods would get a network of a configuration: flannel's, or one from manifests that come with it.
#[must_use]
pub fn brings_network(configuration: &Configuration) -> bool {
    let has = |document: &Value, pointer: &str| {
        document.pointer(pointer).and_then(Value::as_array).is_some_and(|items| !items.is_empty())
    };
    configuration.documents().iter().any(|document| match document["kind"].as_str() {
        Some("KubeFlannelCNIConfig" | "KubeInlineManifestConfig" | "KubeExternalManifestConfig") => true,
        Some(_) => false,
        None => ["/cluster/inlineManifests", "/cluster/extraManifests", "/cluster/network/cni/urls"]
            .iter()
            .any(|pointer| has(document, pointer)),
    })
}

fn assembled(
    castle: &Castle,
    nodes: &[Node],
    node: &Node,
    secrets: Secrets<'_>,
    logins: Vec<RegistryLogin>,
    patches: &BTreeMap<String, Secret>,
) -> Result<Configuration, ConfigurationError> {
    let role = match node.role {
        Role::ControlPlane => config::Role::ControlPlane,
        Role::Worker => config::Role::Worker,
    };
    let version = castle.talos.version.value.to_string();
    let contract = config::Contract::of(&version).ok_or(ConfigurationError::UnknownTalos(version))?;
    let input = Input { secrets, cluster: cluster(castle, nodes), node: own(castle, node, logins) };
    let generated = config::generate(contract, role, &input)?;
    node.patches.iter().try_fold(generated, |configuration, file| patched(&configuration, file, patches))
}

/// A configuration with one more patch in it.
fn patched(
    configuration: &Configuration,
    file: &str,
    patches: &BTreeMap<String, Secret>,
) -> Result<Configuration, ConfigurationError> {
    let owned = || file.to_owned();
    let text = patches.get(file).ok_or_else(|| ConfigurationError::PatchMissing(owned()))?;
    let patch = Configuration::parse(text.expose())
        .map_err(|error| ConfigurationError::PatchUnreadable { file: owned(), error })?;
    configuration
        .merged(&patch)
        .map_err(|error| ConfigurationError::PatchRefused { file: owned(), error: Box::new(error) })
}

fn authority(credential: &Credential) -> Authority<'_> {
    Authority { certificate: &credential.certificate, key: credential.key.expose() }
}

/// What all nodes share.
fn cluster(castle: &Castle, nodes: &[Node]) -> Cluster {
    let kubernetes = &castle.kubernetes;
    let has_workers = nodes.iter().any(|node| node.role == Role::Worker);
    let schedules = kubernetes.schedule_on_control_planes.as_ref().map_or(!has_workers, |schedules| schedules.value);
    Cluster {
        pod_subnets: kubernetes.pod_subnets.iter().map(|subnet| subnet.to_string()).collect(),
        service_subnets: kubernetes.service_subnets.iter().map(|subnet| subnet.to_string()).collect(),
        cni: match kubernetes.cni.value {
            Cni::Flannel => config::Cni::Flannel,
            Cni::None => config::Cni::None,
        },
        kube_proxy: kubernetes.kube_proxy.value,
        schedule_on_control_planes: schedules,
        balance_to_control_planes: !has_workers,
        ..Cluster::new(castle.castle.as_str(), &api_address(castle, nodes), &kubernetes.version.value.to_string())
    }
}

/// The volume that Longhorn keeps data on.
pub(super) const LONGHORN: &str = "longhorn";

/// Whether a node has a disk of Longhorn's own.
pub(super) fn has_longhorn(castle: &Castle, node: &Node) -> bool {
    matches!(castle.storage.value, Storage::Longhorn(_)) && node.data_disk.is_some()
}

/// What is a node's own.
fn own(castle: &Castle, node: &Node, registry_logins: Vec<RegistryLogin>) -> config::Node {
    let network = &castle.network;
    let taints = node.taints.iter().map(|taint| {
        let (key, value, effect) = taint.parts();
        (key.to_owned(), if value.is_empty() { effect.to_owned() } else { format!("{value}:{effect}") })
    });
    config::Node {
        hostname: Some(node.name.value.clone()),
        certificate_sans: vec![node.address.value.to_string()],
        links: vec![Link {
            name: LINK.to_owned(),
            mac: Some(node.mac.to_string().to_lowercase()),
            mtu: None,
            addresses: vec![format!("{}/{}", node.address.value, network.cidr.prefix_len())],
            routes: vec![Route { destination: None, gateway: network.gateway.value.to_string() }],
        }],
        vip: network.vip.as_ref().map(|vip| Vip { address: vip.value.to_string(), link: LINK.to_owned() }),
        nameservers: network.nameservers.iter().map(|server| server.value.to_string()).collect(),
        time_servers: network.time_servers.iter().map(|server| server.to_string()).collect(),
        install: None,
        volumes: has_longhorn(castle, node).then(|| Volume::longhorn(Disk::NotSystem)).into_iter().collect(),
        labels: node.labels.clone(),
        taints: taints.collect(),
        mirrors: mirrors(castle),
        registry_logins,
        kernel_modules: castle.talos.kernel_modules.iter().map(|module| (module.to_string(), Vec::new())).collect(),
        sysctls: BTreeMap::new(),
        kubelet_args: BTreeMap::new(),
    }
}

fn mirrors(castle: &Castle) -> Vec<Mirror> {
    let mirrors = castle.talos.mirrors.iter().map(|(registry, mirror)| Mirror {
        registry: registry.to_string(),
        endpoints: mirror.endpoints.iter().map(|endpoint| (endpoint.to_string(), false)).collect(),
        skip_fallback: false,
    });
    mirrors.collect()
}

/// Who nodes are at mirrors. Talos keeps logins by the host of an endpoint, not by the registry that is mirrored.
fn logins(castle: &Castle, referred: &Referred) -> Result<Vec<RegistryLogin>, ConfigurationError> {
    let mut by_host: BTreeMap<String, (&SecretReference, config::Credential)> = BTreeMap::new();
    for (registry, mirror) in castle.talos.mirrors.iter() {
        let Some(reference) = mirror.credential.as_ref().map(|reference| &reference.value) else { continue };
        let missing =
            || ConfigurationError::CredentialMissing { registry: registry.to_string(), reference: reference.clone() };
        let told = referred.credentials.get(reference).ok_or_else(missing)?;
        let credential = credential(told).ok_or_else(|| ConfigurationError::CredentialForm {
            registry: registry.to_string(),
            reference: reference.clone(),
        })?;
        for endpoint in mirror.endpoints.iter() {
            let host = host(&endpoint.to_string());
            match by_host.get(&host) {
                Some((other, _)) if *other != reference => return Err(ConfigurationError::CredentialTwice(host)),
                _ => by_host.insert(host, (reference, credential.clone())),
            };
        }
    }
    Ok(by_host.into_iter().map(|(registry, (_, credential))| RegistryLogin { registry, credential }).collect())
}

/// The host of an address, with its port if it has one.
fn host(address: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default().to_owned()
}

/// The password of a mirror's credential, which nodes get by itself.
#[must_use]
pub fn password(told: &Secret) -> Option<Secret> {
    match credential(told)? {
        config::Credential::Password { password, .. } => Some(password),
        _ => None,
    }
}

/// Reads a name and its password.
fn credential(told: &Secret) -> Option<config::Credential> {
    let text = told.expose().trim();
    let mut documents = yaml::parse(text).unwrap_or_default();
    let entry = |key: &str| documents.first()?.get(key)?.as_str().map(str::to_owned);
    let mapped = entry("username").zip(entry("password").map(Secret::from));
    // Half a mapping would read as a name and a password, too.
    let is_mapping = documents.first().is_some_and(Value::is_object);
    documents.iter_mut().for_each(yaml::wipe);
    let joined = || {
        let (username, password) = text.split_once(':').filter(|_| !is_mapping && !text.contains('\n'))?;
        Some((username.to_owned(), Secret::from(password.to_owned())))
    };
    let (username, password) = mapped.or_else(joined)?;
    let is_whole = !username.is_empty() && !password.is_empty() && !username.contains(char::is_whitespace);
    let password = Secret::registered(password);
    is_whole.then_some(config::Credential::Password { username, password })
}
