//! What Kubernetes serves by itself, by its minor version and by what its API server is told.

use std::collections::BTreeSet;

use super::{Kinds, Served, kinds};

/// What Kubernetes 1.36 serves by itself, as its API server tells.
pub(crate) const KUBERNETES: &[Kinds] = &[
    kinds(
        "",
        "v1",
        "Binding ComponentStatus* ConfigMap Endpoints Event LimitRange Namespace* Node* PersistentVolume* PersistentVolumeClaim Pod \
         PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount",
    ),
    kinds("apiregistration.k8s.io", "v1", "APIService*"),
    kinds("apps", "v1", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
    kinds("events.k8s.io", "v1", "Event"),
    kinds("authentication.k8s.io", "v1", "SelfSubjectReview* TokenReview*"),
    kinds(
        "authorization.k8s.io",
        "v1",
        "LocalSubjectAccessReview SelfSubjectAccessReview* SelfSubjectRulesReview* SubjectAccessReview*",
    ),
    kinds("autoscaling", "v2", "HorizontalPodAutoscaler"),
    kinds("autoscaling", "v1", "HorizontalPodAutoscaler"),
    kinds("batch", "v1", "CronJob Job"),
    kinds("certificates.k8s.io", "v1", "CertificateSigningRequest*"),
    kinds("networking.k8s.io", "v1", "IPAddress* Ingress IngressClass* NetworkPolicy ServiceCIDR*"),
    kinds("policy", "v1", "PodDisruptionBudget"),
    kinds("rbac.authorization.k8s.io", "v1", "ClusterRole* ClusterRoleBinding* Role RoleBinding"),
    kinds(
        "storage.k8s.io",
        "v1",
        "CSIDriver* CSINode* CSIStorageCapacity StorageClass* VolumeAttachment* VolumeAttributesClass*",
    ),
    kinds(
        "admissionregistration.k8s.io",
        "v1",
        "MutatingAdmissionPolicy* MutatingAdmissionPolicyBinding* MutatingWebhookConfiguration* ValidatingAdmissionPolicy* \
         ValidatingAdmissionPolicyBinding* ValidatingWebhookConfiguration*",
    ),
    kinds("apiextensions.k8s.io", "v1", "CustomResourceDefinition*"),
    kinds("scheduling.k8s.io", "v1", "PriorityClass*"),
    kinds("coordination.k8s.io", "v1", "Lease"),
    kinds("node.k8s.io", "v1", "RuntimeClass*"),
    kinds("discovery.k8s.io", "v1", "EndpointSlice"),
    kinds("resource.k8s.io", "v1", "DeviceClass* ResourceClaim ResourceClaimTemplate ResourceSlice*"),
    kinds("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema* PriorityLevelConfiguration*"),
];

/// The minor version that the table is of.
pub(crate) const MINOR: u64 = 36;

/// What came late: the kinds, and the first minor version that serves them.
const SINCE: &[(Kinds, u64)] = &[
    (kinds("networking.k8s.io", "v1", "IPAddress* ServiceCIDR*"), 33),
    (kinds("resource.k8s.io", "v1", "DeviceClass* ResourceClaim ResourceClaimTemplate ResourceSlice*"), 34),
    (kinds("storage.k8s.io", "v1", "VolumeAttributesClass*"), 34),
    (kinds("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy* MutatingAdmissionPolicyBinding*"), 36),
];

/// What went: the group and version, the kinds, and the first minor version without them.
const GONE: &[(Kinds, u64)] = &[
    (kinds("extensions", "v1beta1", "DaemonSet Deployment Ingress NetworkPolicy PodSecurityPolicy ReplicaSet"), 22),
    (kinds("apps", "v1beta1", "ControllerRevision Deployment StatefulSet"), 16),
    (kinds("apps", "v1beta2", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"), 16),
    (kinds("networking.k8s.io", "v1beta1", "Ingress IngressClass"), 22),
    (kinds("rbac.authorization.k8s.io", "v1beta1", "ClusterRole ClusterRoleBinding Role RoleBinding"), 22),
    (kinds("apiextensions.k8s.io", "v1beta1", "CustomResourceDefinition"), 22),
    (kinds("apiregistration.k8s.io", "v1beta1", "APIService"), 22),
    (
        kinds("admissionregistration.k8s.io", "v1beta1", "MutatingWebhookConfiguration ValidatingWebhookConfiguration"),
        22,
    ),
    (kinds("certificates.k8s.io", "v1beta1", "CertificateSigningRequest"), 22),
    (kinds("coordination.k8s.io", "v1beta1", "Lease"), 22),
    (kinds("scheduling.k8s.io", "v1beta1", "PriorityClass"), 22),
    (kinds("storage.k8s.io", "v1beta1", "CSIDriver CSINode StorageClass VolumeAttachment"), 22),
    (kinds("batch", "v1beta1", "CronJob"), 25),
    (kinds("discovery.k8s.io", "v1beta1", "EndpointSlice"), 25),
    (kinds("events.k8s.io", "v1beta1", "Event"), 25),
    (kinds("autoscaling", "v2beta1", "HorizontalPodAutoscaler"), 25),
    (kinds("policy", "v1beta1", "PodDisruptionBudget PodSecurityPolicy"), 25),
    (kinds("node.k8s.io", "v1beta1", "RuntimeClass"), 25),
    (kinds("autoscaling", "v2beta2", "HorizontalPodAutoscaler"), 26),
    (kinds("flowcontrol.apiserver.k8s.io", "v1beta1", "FlowSchema PriorityLevelConfiguration"), 26),
    (kinds("storage.k8s.io", "v1beta1", "CSIStorageCapacity"), 27),
    (kinds("flowcontrol.apiserver.k8s.io", "v1beta2", "FlowSchema PriorityLevelConfiguration"), 29),
    (kinds("flowcontrol.apiserver.k8s.io", "v1beta3", "FlowSchema PriorityLevelConfiguration"), 32),
];

/// Groups of Kubernetes itself that are served only if its API server is told to.
const ON_DEMAND: &[&str] = &["internal.apiserver.k8s.io", "storagemigration.k8s.io"];
/// Groups of one word before `.k8s.io` that others serve.
const OF_OTHERS: &[&str] = &["metrics.k8s.io"];

/// The API server of a cluster.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct ApiServer {
    pub(crate) minor: u64,
    /// What its `runtime-config` switches on, as it is written there: `GROUP/VERSION`, `GROUP/VERSION/RESOURCE`, `api/beta`.
    pub(crate) enabled: BTreeSet<String>,
}

impl Default for ApiServer {
    fn default() -> Self {
        Self { minor: MINOR, enabled: BTreeSet::new() }
    }
}

impl ApiServer {
    /// What it serves for certain.
    pub(crate) fn served(&self) -> Served {
        let mut served = Served::default();
        served.add_all(KUBERNETES);
        for (kinds, _) in SINCE.iter().filter(|(_, since)| self.minor < *since) {
            served.remove_all(kinds);
        }
        served
    }

    /// Whether a group is of Kubernetes itself, as far as that is known: a later version may have new ones.
    pub(crate) fn is_own(&self, group: &str) -> bool {
        let is_known = KUBERNETES.iter().chain(GONE.iter().map(|(kinds, _)| kinds)).any(|kinds| kinds.group == group);
        let is_like_one = group.strip_suffix(".k8s.io").is_some_and(|word| !word.contains('.'));
        let may_be_new = self.minor > MINOR && is_like_one && !OF_OTHERS.contains(&group);
        is_known || may_be_new || ON_DEMAND.contains(&group)
    }

    /// Whether it may serve a kind, though not for certain: of a group of its own, or of one that it is told by name to serve.
    pub(crate) fn may_serve(&self, group: &str, version: &str, kind: &str) -> bool {
        let is = |kinds: &Kinds| {
            kinds.group == group
                && kinds.version == version
                && kinds.names.split_whitespace().any(|name| name.trim_end_matches('*') == kind)
        };
        if GONE.iter().any(|(kinds, end)| is(kinds) && self.minor >= *end) {
            return false;
        }
        let stage = ["alpha", "beta"].into_iter().find(|stage| version.contains(stage));
        let is_own = self.is_own(group);
        let is_enabled = self.enabled.iter().any(|entry| {
            let whole = format!("{group}/{version}");
            let is_its_stage = || stage.is_some_and(|stage| *entry == format!("api/{stage}"));
            (is_own && (entry == "api/all" || is_its_stage()))
                || entry.strip_prefix(whole.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let is_younger = SINCE.iter().any(|(kinds, since)| is(kinds) && self.minor < *since);
        is_enabled || (is_own && self.minor != MINOR && !is_younger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_served_depends_on_the_version_and_on_what_it_is_told() {
        let server = |minor, enabled: &[&str]| ApiServer {
            minor,
            enabled: enabled.iter().map(|entry| (*entry).to_owned()).collect(),
        };
        let policy = ("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy");
        assert!(server(36, &[]).served().get(policy.0, policy.2).is_some());
        assert!(server(35, &[]).served().get(policy.0, policy.2).is_none());
        assert!(!server(35, &[]).may_serve(policy.0, policy.1, policy.2), "it came later");
        let claim = |server: &ApiServer| server.may_serve("resource.k8s.io", "v1beta2", "ResourceClaim");
        assert!(!claim(&server(36, &[])), "the table is whole");
        assert!(claim(&server(35, &[])), "nobody knows here");
        for entry in ["resource.k8s.io/v1beta2", "resource.k8s.io/v1beta2/resourceclaims", "api/beta", "api/all"] {
            assert!(claim(&server(36, &[entry])), "{entry}");
        }
        for entry in ["resource.k8s.io/v1beta1", "resource.k8s.io/v1beta22", "api/alpha"] {
            assert!(!claim(&server(36, &[entry])), "{entry}");
        }
        let migration = |server: &ApiServer, version| {
            server.may_serve("storagemigration.k8s.io", version, "StorageVersionMigration")
        };
        assert!(!migration(&server(36, &[]), "v1beta1"), "nobody has told it to");
        assert!(migration(&server(35, &[]), "v1alpha1"), "nobody knows here");
        for entry in ["storagemigration.k8s.io/v1beta1", "api/beta", "api/all"] {
            assert!(migration(&server(36, &[entry]), "v1beta1"), "{entry}");
        }
        let other = |minor, entry: &str, group: &str| server(minor, &[entry]).may_serve(group, "v1beta1", "Thing");
        assert!(other(37, "", "young.k8s.io") && other(36, "young.k8s.io/v1beta1", "young.k8s.io"));
        for group in ["gateway.networking.k8s.io", "metrics.k8s.io", "acme.example"] {
            assert!(!other(37, "api/all", group), "{group} is none of Kubernetes' own");
        }
        assert!(!server(33, &["api/all"]).may_serve("extensions", "v1beta1", "Ingress"), "gone for ever");
    }
}
