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

    /// Whether a group is of Kubernetes itself.
    pub(crate) fn is_own(group: &str) -> bool {
        KUBERNETES.iter().chain(GONE.iter().map(|(kinds, _)| kinds)).any(|kinds| kinds.group == group)
    }

    /// Whether it may serve a kind of a group of its own, though not for certain.
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
        let is_enabled = self.enabled.iter().any(|entry| {
            let whole = format!("{group}/{version}");
            entry == "api/all"
                || stage.is_some_and(|stage| *entry == format!("api/{stage}"))
                || entry.strip_prefix(whole.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        });
        let is_younger = SINCE.iter().any(|(kinds, since)| is(kinds) && self.minor < *since);
        is_enabled || (self.minor != MINOR && !is_younger)
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
        assert!(!server(33, &["api/all"]).may_serve("extensions", "v1beta1", "Ingress"), "gone for ever");
    }
}
