//! The charts that are known here: of each the objects that others see or use.

use serde_json::{Value, json};

use crate::kubernetes::value;

/// The objects of a release; nothing if its chart is not known here.
pub(super) fn objects(release: &Value) -> Option<Vec<Value>> {
    let values = value::at(release, "spec.values").cloned().unwrap_or_default();
    let mut objects = match value::text(release, "spec.chart.spec.chart") {
        "traefik" => traefik(&values),
        "cert-manager" => cert_manager(&values),
        _ => return None,
    };
    for object in &mut objects {
        let is_bare = ["CustomResourceDefinition", "IngressClass"].contains(&value::text(object, "kind"));
        if !is_bare {
            value::set(object, "metadata.namespace", target(release));
        }
        let labels = value::place(object, "metadata.labels");
        labels["app.kubernetes.io/managed-by"] = json!("Helm");
        labels["helm.toolkit.fluxcd.io/name"] = json!(value::name(release));
        labels["helm.toolkit.fluxcd.io/namespace"] = json!(value::namespace(release));
        let annotations = value::place(object, "metadata.annotations");
        annotations["meta.helm.sh/release-name"] = json!(name(release));
        annotations["meta.helm.sh/release-namespace"] = json!(target(release));
    }
    Some(objects)
}

/// Whether an object stays when its release ends.
pub(super) fn is_kept(object: &Value) -> bool {
    value::text(object, "kind") == "CustomResourceDefinition"
}

/// The namespace that a release is in.
pub(super) fn target(release: &Value) -> &str {
    let own = value::text(release, "spec.targetNamespace");
    if own.is_empty() { value::namespace(release) } else { own }
}

/// The name that Helm knows a release by.
pub(super) fn name(release: &Value) -> &str {
    let own = value::text(release, "spec.releaseName");
    if own.is_empty() { value::name(release) } else { own }
}

fn deployment(name: &str, replicas: i64) -> Value {
    let selector = json!({ "app.kubernetes.io/name": name });
    let spec = json!({ "containers": [{ "name": "main", "image": format!("example.com/charts/{name}:1") }] });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name, "labels": selector },
        "spec": {
            "replicas": replicas, "selector": { "matchLabels": selector },
            "template": { "metadata": { "labels": selector }, "spec": spec },
        },
    })
}

fn traefik(values: &Value) -> Vec<Value> {
    let kind = Some(value::text(values, "service.type")).filter(|kind| !kind.is_empty()).unwrap_or("LoadBalancer");
    let ports = json!([{ "name": "web", "port": 80 }, { "name": "websecure", "port": 443 }]);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "traefik" },
        "spec": { "type": kind, "selector": { "app.kubernetes.io/name": "traefik" }, "ports": ports },
    });
    let mut all = vec![deployment("traefik", value::number(values, "deployment.replicas").unwrap_or(1)), service];
    if value::at(values, "ingressClass.enabled") != Some(&Value::Bool(false)) {
        let is_default = value::at(values, "ingressClass.isDefaultClass") != Some(&Value::Bool(false));
        let annotations = json!({ "ingressclass.kubernetes.io/is-default-class": is_default.to_string() });
        all.push(json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "IngressClass",
            "metadata": { "name": "traefik", "annotations": annotations },
            "spec": { "controller": "traefik.io/ingress-controller" },
        }));
    }
    all
}

fn cert_manager(values: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    if value::is_true(values, "crds.enabled") || value::is_true(values, "installCRDs") {
        all.extend([
            definition("cert-manager.io", "Certificate", "certificates", "Namespaced"),
            definition("cert-manager.io", "CertificateRequest", "certificaterequests", "Namespaced"),
            definition("cert-manager.io", "Issuer", "issuers", "Namespaced"),
            definition("cert-manager.io", "ClusterIssuer", "clusterissuers", "Cluster"),
            definition("acme.cert-manager.io", "Challenge", "challenges", "Namespaced"),
            definition("acme.cert-manager.io", "Order", "orders", "Namespaced"),
        ]);
    }
    all.extend(["cert-manager", "cert-manager-cainjector", "cert-manager-webhook"].map(|name| deployment(name, 1)));
    all
}

/// A definition of a kind whose objects may hold anything.
fn definition(group: &str, kind: &str, plural: &str, scope: &str) -> Value {
    let wide = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    let schema = json!({ "type": "object", "properties": { "spec": wide, "status": wide } });
    let names =
        json!({ "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_lowercase() });
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": schema }, "subresources": { "status": {} },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": format!("{plural}.{group}") },
        "spec": { "group": group, "names": names, "scope": scope, "versions": [version] },
    })
}
