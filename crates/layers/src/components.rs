//! What castle does with each component in a cluster: one row each.

use castle_gitops::{Component, EXTERNAL_SECRETS, FLUX, LONGHORN, METALLB};
use castle_kubernetes::model::Key;
use castle_spec::ComponentName;

use crate::names::{POOL, STORE};

/// A component in a cluster.
pub(crate) struct Row {
    /// The layer that it belongs to.
    pub(crate) layer: &'static str,
    /// What castle makes beside it, in the order in which that is removed, before the component itself.
    pub(crate) beside: &'static [&'static str],
    /// How to be rid of it, where castle does not remove it.
    pub(crate) stays: Option<&'static str>,
    /// The definition that it is known by, whoever has installed it.
    definition: &'static str,
    /// The workload that it is known by: kind, namespace and name.
    workload: (&'static str, &'static str, &'static str),
    /// What a Git repository finds of it.
    pub(crate) offers: Component,
    /// The objects that castle makes of its kinds: group, kind, namespace and name.
    pub(crate) own: &'static [(&'static str, &'static str, &'static str, &'static str)],
    /// The store of secrets that comes with it, if one does.
    pub(crate) store: Option<&'static str>,
}

impl Row {
    /// What it is known by, whoever has installed it.
    pub(crate) fn signs(&self) -> [Key; 2] {
        let (kind, namespace, name) = self.workload;
        let definition = Key::new("apiextensions.k8s.io", "CustomResourceDefinition", "", self.definition);
        [definition, Key::new("apps", kind, namespace, name)]
    }
}

static OF_EXTERNAL_SECRETS: Row = Row {
    layer: "engine",
    beside: &["store"],
    stays: None,
    definition: "externalsecrets.external-secrets.io",
    workload: ("Deployment", "external-secrets", "external-secrets"),
    offers: EXTERNAL_SECRETS,
    own: &[("external-secrets.io", "ClusterSecretStore", "", STORE)],
    store: Some(STORE),
};

static OF_METALLB: Row = Row {
    layer: "networking",
    beside: &["advertisement", "pool"],
    stays: None,
    definition: "ipaddresspools.metallb.io",
    workload: ("Deployment", "metallb-system", "controller"),
    offers: METALLB,
    own: &[
        ("metallb.io", "IPAddressPool", METALLB.namespace, POOL),
        ("metallb.io", "L2Advertisement", METALLB.namespace, POOL),
    ],
    store: None,
};

static OF_LONGHORN: Row = Row {
    layer: "storage",
    beside: &[],
    stays: Some(
        "castle does not remove what holds volumes: move the data, then uninstall Longhorn as its own documentation says, and \
         kubectl delete configmap --namespace kube-system castle-storage-longhorn",
    ),
    definition: "volumes.longhorn.io",
    workload: ("DaemonSet", "longhorn-system", "longhorn-manager"),
    offers: LONGHORN,
    own: &[],
    store: None,
};

static OF_FLUX: Row = Row {
    layer: "gitops",
    beside: &["sync", "inputs"],
    stays: None,
    definition: "kustomizations.kustomize.toolkit.fluxcd.io",
    workload: ("Deployment", "flux-system", "kustomize-controller"),
    offers: FLUX,
    own: &[],
    store: None,
};

pub(crate) fn row(component: ComponentName) -> &'static Row {
    match component {
        ComponentName::ExternalSecrets => &OF_EXTERNAL_SECRETS,
        ComponentName::Metallb => &OF_METALLB,
        ComponentName::Longhorn => &OF_LONGHORN,
        ComponentName::Flux => &OF_FLUX,
    }
}

/// The layer that a component belongs to.
#[must_use]
pub fn layer_of(component: ComponentName) -> &'static str {
    row(component).layer
}

/// The components that castle removes if they are wanted no more.
pub fn removable() -> impl Iterator<Item = ComponentName> {
    ComponentName::ALL.into_iter().filter(|name| row(*name).stays.is_none())
}
