//! What castle knows of each component as upstream publishes it: one row each.

use castle_kubernetes::model::Object;
use castle_spec::ComponentName;
use castle_spec::values::ComponentVersion;

use crate::fit::Fit;
use crate::patches::{Objects, PatchError, adapted, external_secrets, flux, longhorn, metallb};

/// A component, from upstream to what castle applies of it.
pub(crate) struct Row {
    /// The namespace that it lives in.
    pub(crate) namespace: &'static str,
    /// Where upstream publishes the manifest of a version.
    pub(crate) upstream: fn(&ComponentVersion) -> String,
    /// What castle changes in it.
    pub(crate) adapt: fn(&mut Objects, &Fit) -> Result<(), PatchError>,
    /// The small manifest for the embedded datacenter.
    pub(crate) stand_in: &'static str,
}

static EXTERNAL_SECRETS: Row = Row {
    namespace: "external-secrets",
    upstream: |version| {
        let releases = "https://github.com/external-secrets/external-secrets/releases/download";
        format!("{releases}/{version}/external-secrets.yaml")
    },
    adapt: |objects, _| external_secrets::adapt(objects),
    stand_in: include_str!("standin/external-secrets.yaml"),
};

static METALLB: Row = Row {
    namespace: "metallb-system",
    upstream: |version| {
        let sources = "https://raw.githubusercontent.com/metallb/metallb";
        format!("{sources}/{version}/config/manifests/metallb-native.yaml")
    },
    adapt: metallb::adapt,
    stand_in: include_str!("standin/metallb.yaml"),
};

static LONGHORN: Row = Row {
    namespace: "longhorn-system",
    upstream: |version| format!("https://raw.githubusercontent.com/longhorn/longhorn/{version}/deploy/longhorn.yaml"),
    adapt: longhorn::adapt,
    stand_in: include_str!("standin/longhorn.yaml"),
};

static FLUX: Row = Row {
    namespace: "flux-system",
    upstream: |version| format!("https://github.com/fluxcd/flux2/releases/download/{version}/install.yaml"),
    adapt: flux::adapt,
    stand_in: include_str!("standin/flux.yaml"),
};

pub(crate) fn row(component: ComponentName) -> &'static Row {
    match component {
        ComponentName::ExternalSecrets => &EXTERNAL_SECRETS,
        ComponentName::Metallb => &METALLB,
        ComponentName::Longhorn => &LONGHORN,
        ComponentName::Flux => &FLUX,
    }
}

/// The namespace that a component lives in.
#[must_use]
pub fn namespace(component: ComponentName) -> &'static str {
    row(component).namespace
}

/// The objects of a component's manifest, as a castle needs them.
///
/// # Errors
///
/// [`PatchError::Missing`] if the manifest lacks what has to be changed.
pub fn adapt(component: ComponentName, objects: &[Object], fit: &Fit) -> Result<Vec<Object>, PatchError> {
    let row = row(component);
    adapted(component, row.namespace, objects, |objects| (row.adapt)(objects, fit))
}
