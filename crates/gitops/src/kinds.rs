//! Which kinds are served by whom.

pub(crate) mod fields;
mod kubernetes;

use std::collections::{BTreeMap, BTreeSet};

pub(crate) use kubernetes::{ApiServer, KUBERNETES};

/// Kinds of one version of one group, by their names; a `*` behind one says that it has no namespace.
#[derive(Clone, Copy, Debug)]
pub struct Kinds {
    /// The group, empty for the core.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The names.
    pub names: &'static str,
}

const fn kinds(group: &'static str, version: &'static str, names: &'static str) -> Kinds {
    Kinds { group, version, names }
}

/// A component that castle can install, as far as a repository can collide with it or rely on it.
#[derive(Clone, Copy, Debug)]
pub struct Component {
    /// Its name.
    pub name: &'static str,
    /// The namespace it stands in.
    pub namespace: &'static str,
    /// Charts that install it.
    pub charts: &'static [&'static str],
    /// The Deployment or DaemonSet that it is nothing without, by its usual name.
    pub workload: &'static str,
    /// All its Deployments, by their usual names.
    pub deployments: &'static [&'static str],
    /// All its DaemonSets.
    pub daemon_sets: &'static [&'static str],
    /// Secrets that it makes itself once it runs, beside its workload.
    pub secrets: &'static [&'static str],
    /// What it serves.
    pub kinds: &'static [Kinds],
}

/// External Secrets Operator 2.x.
pub const EXTERNAL_SECRETS: Component = Component {
    name: "external-secrets",
    namespace: "external-secrets",
    charts: &["external-secrets"],
    workload: "external-secrets",
    deployments: &["external-secrets", "external-secrets-cert-controller", "external-secrets-webhook"],
    daemon_sets: &[],
    // Made by the cert-controller. Upstream's manifest has it, empty; charts may not.
    secrets: &["external-secrets-webhook"],
    kinds: &[
        kinds("external-secrets.io", "v1", "ClusterExternalSecret* ClusterSecretStore* ExternalSecret SecretStore"),
        kinds("external-secrets.io", "v1alpha1", "ClusterPushSecret* PushSecret"),
        kinds(
            "generators.external-secrets.io",
            "v1alpha1",
            "ACRAccessToken BeyondtrustWorkloadCredentialsDynamicSecret CloudsmithAccessToken ClusterGenerator* ECRAuthorizationToken \
             Fake GCRAccessToken GeneratorState GithubAccessToken GitlabDeployToken Grafana MFA Password QuayAccessToken SSHKey \
             STSSessionToken UUID VaultDynamicSecret Webhook",
        ),
    ],
};

/// MetalLB 0.16.
pub const METALLB: Component = Component {
    name: "metallb",
    namespace: "metallb-system",
    charts: &["metallb"],
    workload: "speaker",
    deployments: &["controller"],
    daemon_sets: &["speaker"],
    // The speakers stay in ContainerCreating until the controller has made the first.
    secrets: &["memberlist", "metallb-webhook-cert"],
    kinds: &[
        kinds(
            "metallb.io",
            "v1beta1",
            "BFDProfile BGPAdvertisement BGPPeer Community ConfigurationState IPAddressPool L2Advertisement ServiceBGPStatus \
             ServiceL2Status",
        ),
        kinds("metallb.io", "v1beta2", "BGPPeer"),
    ],
};

/// Longhorn 1.12.
pub const LONGHORN: Component = Component {
    name: "longhorn",
    namespace: "longhorn-system",
    charts: &["longhorn"],
    workload: "longhorn-manager",
    deployments: &["longhorn-driver-deployer", "longhorn-ui"],
    daemon_sets: &["longhorn-manager"],
    secrets: &["longhorn-webhook-ca", "longhorn-webhook-tls"],
    kinds: &[kinds(
        "longhorn.io",
        "v1beta2",
        "BackingImage BackingImageDataSource BackingImageManager Backup BackupBackingImage BackupTarget BackupVolume Engine \
         EngineFrontend EngineImage InstanceManager Node Orphan RecurringJob Replica Setting Shard ShardGroup ShareManager Snapshot \
         SupportBundle SystemBackup SystemRestore Volume VolumeAttachment",
    )],
};

/// Flux 2.9 with its four usual controllers.
pub const FLUX: Component = Component {
    name: "flux",
    namespace: "flux-system",
    charts: &["flux2", "flux-operator"],
    workload: "kustomize-controller",
    deployments: &["helm-controller", "kustomize-controller", "notification-controller", "source-controller"],
    daemon_sets: &[],
    secrets: &[],
    kinds: &[
        kinds("helm.toolkit.fluxcd.io", "v2", "HelmRelease"),
        kinds("kustomize.toolkit.fluxcd.io", "v1", "Kustomization"),
        kinds("notification.toolkit.fluxcd.io", "v1", "Receiver"),
        kinds("notification.toolkit.fluxcd.io", "v1beta3", "Alert Provider"),
        kinds(
            "source.toolkit.fluxcd.io",
            "v1",
            "Bucket ExternalArtifact GitRepository HelmChart HelmRepository OCIRepository",
        ),
    ],
};

/// All that castle can install.
pub(crate) const COMPONENTS: [Component; 4] = [EXTERNAL_SECRETS, METALLB, LONGHORN, FLUX];

/// What Flux 2.8 serves, too, and 2.9 no more.
pub(crate) const FLUX_2_8: &[Kinds] = &[kinds("notification.toolkit.fluxcd.io", "v1beta2", "Alert Provider Receiver")];

/// What Flux serves with its source-watcher.
pub const SOURCE_WATCHER: &[Kinds] = &[kinds("source.extensions.fluxcd.io", "v1beta1", "ArtifactGenerator")];

/// What Flux serves, too, with its controllers for image tags.
pub(crate) const IMAGE_AUTOMATION: &[Kinds] =
    &[kinds("image.toolkit.fluxcd.io", "v1", "ImagePolicy ImageRepository ImageUpdateAutomation")];

/// What these serve in Flux 2.8, too, and in 2.9 no more.
pub(crate) const IMAGE_AUTOMATION_2_8: &[Kinds] =
    &[kinds("image.toolkit.fluxcd.io", "v1beta2", "ImagePolicy ImageRepository ImageUpdateAutomation")];

/// Charts that bring kinds of their own: the chart, and what it serves.
const CHARTS: &[(&str, &[Kinds])] = &[
    (
        "traefik",
        &[kinds(
            "traefik.io",
            "v1alpha1",
            "IngressRoute IngressRouteTCP IngressRouteUDP Middleware MiddlewareTCP ServersTransport ServersTransportTCP TLSOption TLSStore \
         TraefikService",
        )],
    ),
    (
        "cert-manager",
        &[
            kinds("cert-manager.io", "v1", "Certificate CertificateRequest ClusterIssuer* Issuer"),
            kinds("acme.cert-manager.io", "v1", "Challenge Order"),
        ],
    ),
    (
        "kube-prometheus-stack",
        &[
            kinds(
                "monitoring.coreos.com",
                "v1",
                "Alertmanager PodMonitor Probe Prometheus PrometheusRule ServiceMonitor ThanosRuler",
            ),
            kinds("monitoring.coreos.com", "v1alpha1", "AlertmanagerConfig PrometheusAgent ScrapeConfig"),
        ],
    ),
    (
        "prometheus-operator-crds",
        &[
            kinds(
                "monitoring.coreos.com",
                "v1",
                "Alertmanager PodMonitor Probe Prometheus PrometheusRule ServiceMonitor ThanosRuler",
            ),
            kinds("monitoring.coreos.com", "v1alpha1", "AlertmanagerConfig PrometheusAgent ScrapeConfig"),
        ],
    ),
];

/// What a chart serves, if that is known.
pub(crate) fn of_chart(chart: &str) -> Option<&'static [Kinds]> {
    let own = CHARTS.iter().find(|(name, _)| *name == chart).map(|(_, kinds)| *kinds);
    let component = || [EXTERNAL_SECRETS, METALLB, LONGHORN].into_iter().find(|it| it.charts.contains(&chart));
    own.or_else(|| component().map(|component| component.kinds))
}

/// Groups that some versions of a chart bring beside those of the table: Traefik's had the Gateway API up to 40.1, and its old group up to 27.
const OTHER_GROUPS: &[(&str, &[&str])] = &[("traefik", &["gateway.networking.k8s.io", "traefik.containo.us"])];

/// Whether some version of a known chart may serve kinds of a group.
pub(crate) fn may_serve(chart: &str, group: &str) -> bool {
    let others = OTHER_GROUPS.iter().filter(|(name, _)| *name == chart).flat_map(|(_, groups)| *groups);
    others.into_iter().any(|other| *other == group) || of_chart(chart).is_some_and(|kinds| has_to_do_with(kinds, group))
}

/// Whether a group is one of these, or within the domain of one.
pub(crate) fn has_to_do_with(kinds: &[Kinds], group: &str) -> bool {
    kinds.iter().any(|kinds| group.strip_suffix(kinds.group).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Whether a group is one that a known chart brings.
pub(crate) fn is_of_chart(group: &str) -> bool {
    CHARTS.iter().any(|(_, kinds)| has_to_do_with(kinds, group))
}

/// What is known of one kind.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Known {
    pub(crate) versions: BTreeSet<String>,
    pub(crate) is_cluster_scoped: bool,
}

/// Kinds that are served, by group and name.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Served(BTreeMap<(String, String), Known>);

impl Served {
    /// Adds a kind.
    pub fn add(&mut self, group: &str, version: &str, kind: &str, is_cluster_scoped: bool) {
        let known = self.0.entry((group.to_owned(), kind.to_owned())).or_default();
        known.versions.insert(version.to_owned());
        known.is_cluster_scoped = is_cluster_scoped;
    }

    /// Adds kinds by their table.
    pub fn add_all(&mut self, all: &[Kinds]) {
        for kinds in all {
            for name in kinds.names.split_whitespace() {
                self.add(kinds.group, kinds.version, name.trim_end_matches('*'), name.ends_with('*'));
            }
        }
    }

    /// Takes the version of these kinds away.
    pub(crate) fn remove_all(&mut self, kinds: &Kinds) {
        for name in kinds.names.split_whitespace() {
            let key = (kinds.group.to_owned(), name.trim_end_matches('*').to_owned());
            if let Some(known) = self.0.get_mut(&key) {
                known.versions.remove(kinds.version);
                if known.versions.is_empty() {
                    self.0.remove(&key);
                }
            }
        }
    }

    pub(crate) fn get(&self, group: &str, kind: &str) -> Option<&Known> {
        self.0.get(&(group.to_owned(), kind.to_owned()))
    }

    pub(crate) fn has_group(&self, group: &str) -> bool {
        self.0.keys().any(|(known, _)| known == group)
    }
}

/// Whether objects of this kind have no namespace, as far as it is known.
pub(crate) fn is_cluster_scoped(group: &str, kind: &str) -> bool {
    let charts = CHARTS.iter().map(|(_, kinds)| *kinds);
    let all = [KUBERNETES, EXTERNAL_SECRETS.kinds].into_iter().chain(charts).flatten();
    all.filter(|kinds| kinds.group == group)
        .any(|kinds| kinds.names.split_whitespace().any(|name| name.strip_suffix('*') == Some(kind)))
}
