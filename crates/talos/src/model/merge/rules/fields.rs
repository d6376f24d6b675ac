//! The fields that Talos merges in a way of their own, by kind and path. `*` is any key, `[]` an entry of a list.
//!
//! They follow from the types of Talos' library: whether a field is optional there, whether its type brings a merge of its own.
//! Entries of lists are left out where the list only grows: they are never merged.

use super::Key;

/// Taken whole from the patch.
pub(in crate::model::merge) const REPLACED: &[&str] = &[
    "BGPInstanceConfig.advertise",
    "BGPInstanceConfig.importRoutes",
    "BGPInstanceConfig.neighbors",
    "CRIBaseRuntimeSpecConfig.overrides",
    "KubeAuditPolicyConfig.configuration",
    "KubeAuthenticationConfig.configuration",
    "KubeCredentialProviderConfig.configuration",
    "KubeNetworkConfig.podSubnets",
    "KubeNetworkConfig.serviceSubnets",
    "KubeStaticPodConfig.pod",
    "NetworkRuleConfig.ingress",
    "NetworkRuleConfig.portSelector.ports",
    "ResolverConfig.searchDomains.domains",
    "v1alpha1.cluster.apiServer.auditPolicy",
    "v1alpha1.cluster.network.podSubnets",
    "v1alpha1.cluster.network.serviceSubnets",
];

/// Mappings whose entries are taken whole from the patch.
pub(in crate::model::merge) const ENTRIES_REPLACED: &[&str] = &[
    "KubeAPIServerConfig.extraArgs",
    "KubeControllerManagerConfig.extraArgs",
    "KubeProxyConfig.extraArgs",
    "KubeSchedulerConfig.extraArgs",
    "KubeletConfig.extraArgs",
    "v1alpha1.cluster.apiServer.extraArgs",
    "v1alpha1.cluster.controllerManager.extraArgs",
    "v1alpha1.cluster.etcd.extraArgs",
    "v1alpha1.cluster.proxy.extraArgs",
    "v1alpha1.cluster.scheduler.extraArgs",
    "v1alpha1.machine.kubelet.extraArgs",
];

/// Mappings that Talos gives no types.
pub(in crate::model::merge) const FREE: &[&str] = &[
    "KubeAPIServerConfig.resources.limits",
    "KubeAPIServerConfig.resources.requests",
    "KubeAdmissionControlConfig.configuration",
    "KubeAuthorizerConfig.webhook",
    "KubeControllerManagerConfig.resources.limits",
    "KubeControllerManagerConfig.resources.requests",
    "KubeEtcdEncryptionConfig.config",
    "KubeFlannelCNIConfig.backendExtraConfig",
    "KubeFlannelCNIConfig.resources.limits",
    "KubeFlannelCNIConfig.resources.requests",
    "KubeProxyConfig.config",
    "KubeProxyConfig.resources.limits",
    "KubeProxyConfig.resources.requests",
    "KubeSchedulerConfig.config",
    "KubeSchedulerConfig.resources.limits",
    "KubeSchedulerConfig.resources.requests",
    "KubeletConfig.config",
    "v1alpha1.cluster.apiServer.admissionControl.[].configuration",
    "v1alpha1.cluster.apiServer.resources.limits",
    "v1alpha1.cluster.apiServer.resources.requests",
    "v1alpha1.cluster.controllerManager.resources.limits",
    "v1alpha1.cluster.controllerManager.resources.requests",
    "v1alpha1.cluster.scheduler.config",
    "v1alpha1.cluster.scheduler.resources.limits",
    "v1alpha1.cluster.scheduler.resources.requests",
    "v1alpha1.machine.baseRuntimeSpecOverrides",
    "v1alpha1.machine.kubelet.credentialProviderConfig",
    "v1alpha1.machine.kubelet.extraConfig",
];

/// Other mappings whose keys are the user's.
pub(in crate::model::merge) const MAPPINGS: &[&str] = &[
    "EnvironmentConfig.variables",
    "EthernetConfig.features",
    "KubeAPIServerConfig.env",
    "KubeControllerManagerConfig.env",
    "KubeExternalManifestConfig.headers",
    "KubeNodeConfig.annotations",
    "KubeNodeConfig.labels",
    "KubeNodeConfig.taints",
    "KubeSchedulerConfig.env",
    "SysctlConfig.params",
    "SysfsConfig.params",
    "v1alpha1.cluster.apiServer.env",
    "v1alpha1.cluster.controllerManager.env",
    "v1alpha1.cluster.extraManifestHeaders",
    "v1alpha1.cluster.scheduler.env",
    "v1alpha1.machine.env",
    "v1alpha1.machine.nodeAnnotations",
    "v1alpha1.machine.nodeLabels",
    "v1alpha1.machine.nodeTaints",
    "v1alpha1.machine.registries.config",
    "v1alpha1.machine.registries.mirrors",
    "v1alpha1.machine.sysctls",
    "v1alpha1.machine.sysfs",
];

/// Numbers for which 0 is a value like others.
pub(in crate::model::merge) const ZERO_COUNTS: &[&str] = &[
    "BondConfig.adActorSysPrio",
    "BondConfig.adUserPortKey",
    "BondConfig.allSlavesActive",
    "BondConfig.arpInterval",
    "BondConfig.downdelay",
    "BondConfig.lpInterval",
    "BondConfig.miimon",
    "BondConfig.minLinks",
    "BondConfig.missedMax",
    "BondConfig.numPeerNotif",
    "BondConfig.packetsPerSlave",
    "BondConfig.peerNotifDelay",
    "BondConfig.resendIGMP",
    "BondConfig.tlbLogicalLb",
    "BondConfig.updelay",
    "ContainerConfig.runAs.gid",
    "ContainerConfig.runAs.uid",
    "EthernetConfig.channels.combined",
    "EthernetConfig.channels.other",
    "EthernetConfig.channels.rx",
    "EthernetConfig.channels.tx",
    "EthernetConfig.rings.cqe-size",
    "EthernetConfig.rings.rx",
    "EthernetConfig.rings.rx-buf-len",
    "EthernetConfig.rings.rx-jumbo",
    "EthernetConfig.rings.rx-mini",
    "EthernetConfig.rings.tx",
    "EthernetConfig.rings.tx-push-buf-len",
    "KubeAPIServerConfig.apiPort",
    "KubeSpanConfig.mtu",
    "LVMLogicalVolumeConfig.mirrors",
    "LVMLogicalVolumeConfig.stripes",
    "ZswapConfig.maxPoolPercent",
    "v1alpha1.machine.network.kubespan.mtu",
];

/// URLs, merged part by part.
pub(in crate::model::merge) const URLS: &[&str] = &[
    "DiscoveryServiceConfig.endpoint",
    "HTTPProbeConfig.url",
    "KmsgLogConfig.url",
    "KubeClusterConfig.endpoint",
    "KubeExternalManifestConfig.url",
    "KubeServiceAccountConfig.issuer.issuerURL",
    "SideroLinkConfig.apiUrl",
    "v1alpha1.cluster.controlPlane.endpoint",
];

/// Sizes in bytes or in percent; once in bytes, percents are not taken.
pub(in crate::model::merge) const SIZES: &[&str] = &[
    "LVMLogicalVolumeConfig.provisioning.maxSize",
    "RawVolumeConfig.provisioning.maxSize",
    "SwapVolumeConfig.provisioning.maxSize",
    "UserVolumeConfig.provisioning.maxSize",
    "VolumeConfig.provisioning.maxSize",
];

/// Sections that Talos has even where they are not written.
pub(in crate::model::merge) const ALWAYS_THERE: &[&str] = &[
    "BridgeConfig.stp",
    "BridgeConfig.vlan",
    "ExistingVolumeConfig.discovery",
    "ExistingVolumeConfig.discovery.volumeSelector",
    "ExistingVolumeConfig.mount",
    "ExternalVolumeConfig.mount",
    "ImageCacheConfig.local",
    "KubeAPIServerConfig.resources",
    "KubeControllerManagerConfig.resources",
    "KubeFlannelCNIConfig.resources",
    "KubeNodeConfig.nodeIP",
    "KubeProxyConfig.resources",
    "KubeSchedulerConfig.resources",
    "KubeServiceAccountConfig.accepted",
    "KubeServiceAccountConfig.issuer",
    "LVMLogicalVolumeConfig.provisioning",
    "LVMVolumeGroupConfig.provisioning",
    "LVMVolumeGroupConfig.provisioning.volumeSelector",
    "LinkAliasConfig.selector",
    "NetworkRuleConfig.portSelector",
    "RAIDArrayConfig.provisioning",
    "RAIDArrayConfig.provisioning.volumeSelector",
    "RawVolumeConfig.encryption",
    "RawVolumeConfig.provisioning",
    "RawVolumeConfig.provisioning.diskSelector",
    "ResolverConfig.hostDNS",
    "ResolverConfig.searchDomains",
    "SwapVolumeConfig.encryption",
    "SwapVolumeConfig.provisioning",
    "SwapVolumeConfig.provisioning.diskSelector",
    "UnattendedInstallConfig.installer",
    "UnattendedInstallConfig.provisioning",
    "UnattendedInstallConfig.provisioning.diskSelector",
    "UserVolumeConfig.encryption",
    "UserVolumeConfig.filesystem",
    "UserVolumeConfig.mount",
    "UserVolumeConfig.provisioning",
    "UserVolumeConfig.provisioning.diskSelector",
    "VethConfig.peer",
    "VolumeConfig.encryption",
    "VolumeConfig.filesystem",
    "VolumeConfig.mount",
    "VolumeConfig.provisioning",
    "VolumeConfig.provisioning.diskSelector",
    "v1alpha1.cluster.discovery.registries",
    "v1alpha1.cluster.discovery.registries.kubernetes",
    "v1alpha1.cluster.discovery.registries.service",
    "v1alpha1.machine.registries",
];

/// Gone from the document if a patch of the document does not repeat it.
pub(in crate::model::merge) const CLEARED: &[&str] = &[
    "ExistingVolumeConfig.discovery.volumeSelector.match",
    "LVMLogicalVolumeConfig.provisioning.minSize",
    "LVMVolumeGroupConfig.provisioning.volumeSelector.match",
    "LinkAliasConfig.selector.match",
    "OOMConfig.cgroupRankingExpression",
    "OOMConfig.triggerExpression",
    "RAIDArrayConfig.provisioning.volumeSelector.match",
    "RawVolumeConfig.provisioning.diskSelector.match",
    "RawVolumeConfig.provisioning.minSize",
    "SwapVolumeConfig.provisioning.diskSelector.match",
    "SwapVolumeConfig.provisioning.minSize",
    "UnattendedInstallConfig.provisioning.diskSelector.match",
    "UserVolumeConfig.provisioning.diskSelector.match",
    "UserVolumeConfig.provisioning.minSize",
    "VolumeConfig.provisioning.diskSelector.match",
    "VolumeConfig.provisioning.minSize",
];

/// Gone from the document if a patch has the section it is in and does not repeat it.
pub(in crate::model::merge) const CLEARED_WITHIN: &[&str] = &[
    "ContainerConfig.security.machinedAccess",
    "UserVolumeConfig.filesystem.xfs.minAllocationGroupSize",
    "VolumeConfig.filesystem.xfs.minAllocationGroupSize",
];

/// Certificates and keys of the main document: gone like those before, and not to be deleted apart from each other.
pub(in crate::model::merge) const PAIRED: &[&str] = &[
    "v1alpha1.cluster.aggregatorCA.crt",
    "v1alpha1.cluster.aggregatorCA.key",
    "v1alpha1.cluster.ca.crt",
    "v1alpha1.cluster.ca.key",
    "v1alpha1.cluster.etcd.ca.crt",
    "v1alpha1.cluster.etcd.ca.key",
    "v1alpha1.cluster.serviceAccount.key",
    "v1alpha1.machine.ca.crt",
    "v1alpha1.machine.ca.key",
    "v1alpha1.machine.registries.config.*.tls.clientIdentity.crt",
    "v1alpha1.machine.registries.config.*.tls.clientIdentity.key",
];

/// Fields that Talos cannot merge once they are set.
pub(in crate::model::merge) const SETTLED: &[&str] = &["v1alpha1.machine.install.diskSelector.size"];

/// Lists whose entries are merged with the one of the same key.
pub(in crate::model::merge) const KEYED: &[(&str, Key)] = &[
    ("ExtensionServiceConfig.configFiles", Key::Field("mountPath")),
    ("ImageVerificationConfig.rules", Key::ImageReplaced),
    ("v1alpha1.cluster.apiServer.admissionControl", Key::Field("name")),
    ("v1alpha1.machine.network.interfaces", Key::Interface),
    ("v1alpha1.machine.network.interfaces.[].vlans", Key::Field("vlanId")),
];

/// Words that stand for nothing said.
pub(in crate::model::merge) const ZERO_WORDS: &[(&str, &str)] = &[
    ("ExternalVolumeConfig.filesystemType", "none"),
    ("LVMLogicalVolumeConfig.type", "linear"),
    ("NetworkDefaultActionConfig.ingress", "accept"),
    ("RAIDArrayConfig.level", "raid1"),
    ("RAIDArrayConfig.metadata", "1.0"),
    ("RawVolumeConfig.encryption.provider", "none"),
    ("RoutingRuleConfig.action", "unspec"),
    ("RoutingRuleConfig.table", "unspec"),
    ("SwapVolumeConfig.encryption.provider", "none"),
    ("UserVolumeConfig.encryption.provider", "none"),
    ("UserVolumeConfig.filesystem.type", "none"),
    ("VRFConfig.table", "unspec"),
    ("VolumeConfig.encryption.provider", "none"),
];
