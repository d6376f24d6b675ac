//! Settings that are made twice: by an old key and by the document that took its place, or by two documents.

use super::decode::Document;
use super::objections::{Wrong, Wrongs};
use super::yaml::{Meaning, Yaml};

/// Refused beside a document only if that speaks of it, too.
const HOST_DNS: &str = "machine.features.hostDNS";

/// A kind, the old key that it replaces, and what is said if both are there.
const REPLACED: &[(&str, &str, &str)] = &[
    ("HostnameConfig", "machine.network.hostname", "static hostname is already set in v1alpha1 config"),
    ("HostnameConfig", "machine.features.stableHostname", "stable hostname is already set in v1alpha1 config"),
    (
        "ResolverConfig",
        "machine.network.searchDomains",
        ".machine.network.searchDomains is already set in v1alpha1 config",
    ),
    ("ResolverConfig", "machine.network.nameservers", ".machine.network.nameservers is already set in v1alpha1 config"),
    (
        "ResolverConfig",
        "machine.network.disableSearchDomain",
        ".machine.network.disableSearchDomain is already set in v1alpha1 config",
    ),
    ("ResolverConfig", HOST_DNS, ".machine.features.hostDNS is already set in v1alpha1 config"),
    (
        "TimeSyncConfig",
        "machine.time.disabled",
        "time sync cannot be disabled in both v1alpha1 and new-style configuration",
    ),
    (
        "TimeSyncConfig",
        "machine.time.servers",
        "time servers cannot be specified in both v1alpha1 and new-style configuration",
    ),
    (
        "TimeSyncConfig",
        "machine.time.bootTimeout",
        "boot timeout cannot be specified in both v1alpha1 and new-style configuration",
    ),
    (
        "KubeSpanConfig",
        "machine.network.kubespan",
        "kubespan is already configured in v1alpha1 machine.network.kubespan",
    ),
    (
        "DiscoveryIdentityConfig",
        "cluster.id",
        "cluster identity is already configured in .cluster.id/.cluster.secret of the v1alpha1 config",
    ),
    (
        "DiscoveryIdentityConfig",
        "cluster.secret",
        "cluster identity is already configured in .cluster.id/.cluster.secret of the v1alpha1 config",
    ),
    (
        "DiscoveryServiceConfig",
        "cluster.discovery",
        "cluster discovery is already set in v1alpha1 config (.cluster.discovery), please remove it",
    ),
    (
        "UnattendedInstallConfig",
        "machine.install",
        "install is already set in v1alpha1 config (.machine.install), please remove it",
    ),
    ("ImageCacheConfig", "machine.features.imageCache", "image cache config is already set in v1alpha1 config"),
    (
        "CRIBaseRuntimeSpecConfig",
        "machine.baseRuntimeSpecOverrides",
        "base runtime spec overrides are already set in v1alpha1 config",
    ),
    ("KubeletConfig", "machine.kubelet", "kubelet config is already set in v1alpha1 config (.machine.kubelet)"),
    ("KubeNodeConfig", "machine.nodeLabels", ".machine.nodeLabels is already set in v1alpha1 config"),
    ("KubeNodeConfig", "machine.nodeAnnotations", ".machine.nodeAnnotations is already set in v1alpha1 config"),
    ("KubeNodeConfig", "machine.nodeTaints", ".machine.nodeTaints is already set in v1alpha1 config"),
    (
        "KubeNodeConfig",
        "cluster.allowSchedulingOnControlPlanes",
        ".cluster.allowSchedulingOnControlPlanes is already set in v1alpha1 config",
    ),
    (
        "KubeClusterConfig",
        "cluster.clusterName",
        "cluster name is already set in the v1alpha1 config (.cluster.clusterName). \
         Please remove it and use only the new KubeClusterConfig document to avoid conflicts",
    ),
    (
        "KubeClusterConfig",
        "cluster.controlPlane.endpoint",
        "cluster endpoint is already set in the v1alpha1 config (.cluster.controlPlane.endpoint). \
         Please remove it and use only the new KubeClusterConfig document to avoid conflicts",
    ),
    (
        "KubeNetworkConfig",
        "cluster.network",
        "cluster network config is already set in the v1alpha1 config (.machine.cluster.network). \
         Please remove it and use only the new KubeNetworkConfig document to avoid conflicts",
    ),
    (
        "KubeFlannelCNIConfig",
        "cluster.network",
        "cluster network config in v1alpha1 config (.machine.cluster.network) can't be used with KubeFlannelCNIConfig \
         document, please remove it to avoid conflicts",
    ),
    ("KubeAPIServerCAConfig", "cluster.ca", "kube-apiserver CA is already set in v1alpha1 config (.cluster.ca)"),
    (
        "KubeAggregatorCAConfig",
        "cluster.aggregatorCA",
        "kube-apiserver aggregator CA is already set in v1alpha1 config (.cluster.aggregatorCA), please remove it and \
         use the new KubeAggregatorCAConfig document instead",
    ),
    (
        "KubeServiceAccountConfig",
        "cluster.serviceAccount",
        "service account is already set in v1alpha1 config (.cluster.serviceAccount)",
    ),
    (
        "KubeEtcdEncryptionConfig",
        "cluster.secretboxEncryptionSecret",
        "etcd encryption config is already set in v1alpha1 config",
    ),
    (
        "KubeAPIServerConfig",
        "cluster.apiServer",
        "kube-apiserver config is already set in v1alpha1 config (.cluster.apiServer)",
    ),
    (
        "KubeAPIServerConfig",
        "cluster.controlPlane.localAPIServerPort",
        "kube-apiserver API port is already set in v1alpha1 config (.cluster.controlPlane.localAPIServerPort)",
    ),
    ("KubeAuditPolicyConfig", "cluster.apiServer.auditPolicy", "audit policy config is already set in v1alpha1 config"),
    (
        "KubeAdmissionControlConfig",
        "cluster.apiServer.admissionControl",
        "admission control plugin config is already set in v1alpha1 config",
    ),
    (
        "KubeControllerManagerConfig",
        "cluster.controllerManager",
        "kube-controller-manager config is already set in v1alpha1 config (.cluster.controllerManager)",
    ),
    (
        "KubeSchedulerConfig",
        "cluster.scheduler",
        "kube-scheduler config is already set in v1alpha1 config (.cluster.scheduler)",
    ),
    (
        "KubeProxyConfig",
        "cluster.proxy",
        "cluster proxy config in v1alpha1 config (.machine.cluster.proxy) can't be used with KubeProxyConfig document, \
         please remove it to avoid conflicts",
    ),
    ("KubeCoreDNSConfig", "cluster.coreDNS", "CoreDNS config is already set in v1alpha1 config (.cluster.coreDNS)"),
    (
        "KubePrismConfig",
        "machine.features.kubePrism",
        "KubePrism config in v1alpha1 config (.machine.features.kubePrism) can't be used with KubePrismConfig document, \
         please remove it to avoid conflicts",
    ),
    (
        "KubeTalosAPIAccessConfig",
        "machine.features.kubernetesTalosAPIAccess",
        ".machine.features.kubernetesTalosAPIAccess is already set in v1alpha1 config",
    ),
];

/// Groups of kinds of which only one may have a name.
const RIVALS: [&[&str]; 3] = [
    &[
        "BondConfig",
        "BridgeConfig",
        "DummyLinkConfig",
        "LinkConfig",
        "VethConfig",
        "VLANConfig",
        "VRFConfig",
        "WireguardConfig",
    ],
    &["Layer2VIPConfig", "HCloudVIPConfig"],
    &["UserVolumeConfig", "ExistingVolumeConfig"],
];

/// Whether something is there by the old key: not what is nothing anyhow.
fn is_set(value: &Yaml) -> bool {
    let is_nothing = |text: &str| ["", "0", "0s"].contains(&text);
    match (value.meaning(), value.text(), value.list()) {
        (Meaning::Null, ..) => false,
        (_, Some(text), _) => !is_nothing(text),
        (_, _, Some(items)) => !items.is_empty(),
        _ => true,
    }
}

/// Whether what an old key says cannot stand beside a document.
fn is_rival(document: &Document, old: &str, first: &Yaml) -> bool {
    let Some(value) = first.at(old).filter(|value| is_set(value)) else { return false };
    match (old, value.meaning()) {
        (HOST_DNS, _) => document.value.at("hostDNS").is_some(),
        // A pointer, where `false` is something, too.
        ("cluster.allowSchedulingOnControlPlanes", _) => true,
        (_, Meaning::Bool(truth)) => truth,
        _ => true,
    }
}

/// All conflicts.
pub(super) fn found(documents: &[Document], first: Option<&Yaml>) -> Wrongs {
    let mut wrongs = Wrongs::default();
    for document in documents {
        let Some(kind) = document.kind.as_deref() else { continue };
        let old = REPLACED.iter().find(|(replacing, old, _)| {
            *replacing == kind && first.is_some_and(|first| is_rival(document, old, first))
        });
        wrongs.extend(old.map(|(kind, old, text)| Wrong::twice(old, kind, text)));
        let rivals = RIVALS.iter().find(|kinds| kinds.contains(&kind)).copied().unwrap_or_default();
        let other = documents.iter().find(|other| {
            other.kind.as_deref().is_some_and(|other| other < kind && rivals.contains(&other))
                && other.name == document.name
        });
        if let Some(other) = other.and_then(|other| other.kind.as_deref()) {
            let text = format!("conflicting documents: {other}/{0} and {kind}/{0}", document.name);
            wrongs.quote(true, text, Some("two documents whose kinds exclude each other have one name"));
        }
    }
    wrongs
}
