//! The roles that every cluster has.

use serde_json::{Value, json};

use super::{BINDINGS, CLUSTER_ROLES};
use crate::kubernetes::kinds;
use crate::kubernetes::kube::{Kube, SERVER};

impl Kube {
    /// The roles that every cluster has.
    pub(crate) fn bootstrap_roles(&mut self) {
        let labels = json!({ "kubernetes.io/bootstrapping": "rbac-defaults" });
        let annotations = json!({ "rbac.authorization.kubernetes.io/autoupdate": "true" });
        for (name, rules) in roles() {
            let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
            self.make(&SERVER, CLUSTER_ROLES, json!({ "metadata": metadata, "rules": rules }));
        }
        for (name, group) in [
            ("cluster-admin", "system:masters"),
            ("system:discovery", "system:authenticated"),
            ("system:basic-user", "system:authenticated"),
            ("system:public-info-viewer", "system:authenticated"),
        ] {
            let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
            let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
            let subjects = json!([{ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group }]);
            self.make(&SERVER, BINDINGS, json!({ "metadata": metadata, "roleRef": role, "subjects": subjects }));
        }
    }
}

/// The rules of the roles that every cluster has.
fn roles() -> Vec<(&'static str, Value)> {
    let info = json!(["/healthz", "/livez", "/readyz", "/version", "/version/"]);
    let discovery = json!([
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/"
    ]);
    let read = ["get", "list", "watch"];
    let write = ["create", "delete", "deletecollection", "patch", "update"];
    // All that is in namespaces, but for who may do what.
    let of_namespaces = |verbs: &[&str], has_secrets: bool| -> Value {
        let mut groups: std::collections::BTreeMap<&str, Vec<String>> = std::collections::BTreeMap::new();
        let kinds = kinds::built_in()
            .iter()
            .filter(|it| it.is_namespaced && it.group != "rbac.authorization.k8s.io" && it.can("get"));
        for kind in kinds.filter(|kind| has_secrets || kind.plural != "secrets") {
            let list = groups.entry(&kind.group).or_default();
            list.push(kind.plural.clone());
            list.extend(kind.subresources.iter().map(|sub| format!("{}/{sub}", kind.plural)));
        }
        groups
            .into_iter()
            .map(|(group, resources)| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs }))
            .collect()
    };
    let both: Vec<&str> = read.iter().chain(&write).copied().collect();
    vec![
        (
            "cluster-admin",
            json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }, { "nonResourceURLs": ["*"], "verbs": ["*"] }]),
        ),
        ("system:discovery", json!([{ "nonResourceURLs": discovery, "verbs": ["get"] }])),
        ("system:public-info-viewer", json!([{ "nonResourceURLs": info, "verbs": ["get"] }])),
        (
            "system:basic-user",
            json!([
                { "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"] },
                { "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"] },
            ]),
        ),
        ("view", of_namespaces(&read, false)),
        ("edit", of_namespaces(&both, true)),
        ("admin", of_namespaces(&both, true)),
    ]
}
