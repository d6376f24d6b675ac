//! Settings that are made twice: by an old key and by the document that took its place, or by two documents.

use super::decode::Document;
use super::yaml::Yaml;

/// A kind, the old key that it replaces, and what is said if both are there.
const REPLACED: &[(&str, &str, &str)] = &[
    ("HostnameConfig", "machine.network.hostname", "static hostname is already set in v1alpha1 config"),
    ("ResolverConfig", "machine.network.nameservers", ".machine.network.nameservers is already set in v1alpha1 config"),
    (
        "ResolverConfig",
        "machine.network.searchDomains",
        ".machine.network.searchDomains is already set in v1alpha1 config",
    ),
    ("TimeSyncConfig", "machine.time", "time sync configuration cannot be specified in both v1alpha1 and new-style"),
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

/// All conflicts.
pub(super) fn found(documents: &[Document], first: Option<&Yaml>) -> Vec<String> {
    let mut errors = Vec::new();
    for document in documents {
        let Some(kind) = document.kind.as_deref() else { continue };
        let old = REPLACED
            .iter()
            .find(|(replacing, old, _)| *replacing == kind && first.is_some_and(|first| first.at(old).is_some()));
        errors.extend(old.map(|(.., text)| (*text).to_owned()));
        let rivals = RIVALS.iter().find(|kinds| kinds.contains(&kind)).copied().unwrap_or_default();
        let other = documents.iter().find(|other| {
            other.kind.as_deref().is_some_and(|other| other < kind && rivals.contains(&other))
                && other.name == document.name
        });
        if let Some(other) = other.and_then(|other| other.kind.as_deref()) {
            errors.push(format!("conflicting documents: {other}/{0} and {kind}/{0}", document.name));
        }
    }
    errors
}
