//! What every cluster has from its beginning: namespaces, roles, priorities, the API's own service; and what Talos adds.

use serde_json::json;

use super::kube::{Kube, SERVER, TALOS};
use super::value;

impl Kube {
    /// Makes what the server itself makes.
    pub(crate) fn bootstrap(&mut self) {
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            self.make(
                &SERVER,
                "namespaces",
                json!({ "metadata": { "name": name }, "spec": { "finalizers": ["kubernetes"] } }),
            );
        }
        self.bootstrap_roles();
        for (name, number) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
            let description = if name.contains("node") {
                "Used for system critical pods that must not be moved from their current node."
            } else {
                "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
            };
            let class = json!({ "metadata": { "name": name }, "value": number, "description": description });
            self.make(&SERVER, "priorityclasses.scheduling.k8s.io", class);
        }
        let first = std::net::Ipv4Addr::from(u32::from(self.setup.services.0).wrapping_add(1)).to_string();
        let ports = json!([{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }]);
        let spec = json!({
            "clusterIP": first, "clusterIPs": [first], "type": "ClusterIP", "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "ports": ports,
        });
        let labels = json!({ "component": "apiserver", "provider": "kubernetes" });
        let metadata = json!({ "name": "kubernetes", "namespace": "default", "labels": labels });
        self.make(&SERVER, "services", json!({ "metadata": metadata, "spec": spec }));
    }

    /// Makes what Talos brings along: the network, the proxy, and (if wanted) the names.
    pub(crate) fn bootstrap_talos(&mut self, has_network: bool, has_names: bool) {
        self.daemon("kube-proxy", &format!("registry.k8s.io/kube-proxy:{}", self.setup.version.clone()));
        if has_network {
            self.daemon("kube-flannel", "ghcr.io/siderolabs/flannel:v0.28.8");
        }
        if has_names {
            self.names();
        }
    }

    fn account(&mut self, name: &str) {
        self.make(&TALOS, "serviceaccounts", json!({ "metadata": { "name": name, "namespace": "kube-system" } }));
    }

    fn daemon(&mut self, name: &str, image: &str) {
        let app = name.trim_start_matches("kube-");
        let account = if name == "kube-flannel" { "flannel" } else { name };
        self.account(account);
        let labels = json!({ "tier": "node", "k8s-app": name });
        let tolerations =
            json!([{ "operator": "Exists", "effect": "NoSchedule" }, { "operator": "Exists", "effect": "NoExecute" }]);
        let container =
            json!({ "name": name, "image": image, "securityContext": { "privileged": name == "kube-proxy" } });
        let pod = json!({
            "hostNetwork": true, "priorityClassName": "system-node-critical", "serviceAccountName": account, "tolerations": tolerations,
            "containers": [container],
        });
        let template = json!({ "metadata": { "labels": labels }, "spec": pod });
        let spec = json!({ "selector": { "matchLabels": { "tier": "node", "k8s-app": name } }, "template": template });
        let metadata = json!({ "name": name, "namespace": "kube-system", "labels": { "tier": "node", "k8s-app": name, "app": app } });
        self.make(&TALOS, "daemonsets.apps", json!({ "metadata": metadata, "spec": spec }));
    }

    fn names(&mut self) {
        self.account("coredns");
        let corefile = ".:53 {\n    errors\n    health\n    ready\n    kubernetes cluster.local in-addr.arpa ip6.arpa\n    forward . /etc/resolv.conf\n    cache 30\n}\n";
        let metadata = json!({ "name": "coredns", "namespace": "kube-system" });
        self.make(&TALOS, "configmaps", json!({ "metadata": metadata, "data": { "Corefile": corefile } }));
        let control_plane =
            json!({ "key": "node-role.kubernetes.io/control-plane", "operator": "Exists", "effect": "NoSchedule" });
        let probe = json!({ "httpGet": { "path": "/ready", "port": 8_181 } });
        let ports = json!([{ "name": "dns", "containerPort": 53, "protocol": "UDP" }, { "name": "dns-tcp", "containerPort": 53 }, { "name": "metrics", "containerPort": 9_153 }]);
        let container = json!({
            "name": "coredns", "image": "registry.k8s.io/coredns/coredns:v1.14.6", "args": ["-conf", "/etc/coredns/Corefile"], "ports": ports,
            "readinessProbe": probe, "resources": { "limits": { "memory": "170Mi" }, "requests": { "cpu": "100m", "memory": "70Mi" } },
            "volumeMounts": [{ "name": "config-volume", "mountPath": "/etc/coredns", "readOnly": true }],
        });
        let volume = json!({ "name": "config-volume", "configMap": { "name": "coredns", "items": [{ "key": "Corefile", "path": "Corefile" }] } });
        let pod = json!({
            "serviceAccountName": "coredns", "priorityClassName": "system-cluster-critical", "tolerations": [control_plane], "dnsPolicy": "Default",
            "containers": [container], "volumes": [volume],
        });
        let labels = json!({ "k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS" });
        let template = json!({ "metadata": { "labels": { "k8s-app": "kube-dns" } }, "spec": pod });
        let strategy = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 1 } });
        let spec = json!({ "replicas": 2, "selector": { "matchLabels": { "k8s-app": "kube-dns" } }, "strategy": strategy, "template": template });
        let metadata = json!({ "name": "coredns", "namespace": "kube-system", "labels": labels });
        self.make(&TALOS, "deployments.apps", json!({ "metadata": metadata, "spec": spec }));
        let tenth = std::net::Ipv4Addr::from(u32::from(self.setup.services.0).wrapping_add(10)).to_string();
        let ports = json!([
            { "name": "dns", "port": 53, "protocol": "UDP", "targetPort": 53 },
            { "name": "dns-tcp", "port": 53, "protocol": "TCP", "targetPort": 53 },
            { "name": "metrics", "port": 9_153, "protocol": "TCP", "targetPort": 9_153 },
        ]);
        let spec = json!({
            "selector": { "k8s-app": "kube-dns" }, "clusterIP": tenth, "clusterIPs": [tenth], "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
            "ports": ports,
        });
        let metadata = json!({ "name": "kube-dns", "namespace": "kube-system", "labels": labels });
        self.make(&TALOS, "services", json!({ "metadata": metadata, "spec": spec }));
    }

    /// Whether names resolve: all of CoreDNS is available.
    pub(crate) fn has_names(&self) -> bool {
        let deployment = self.get("deployments.apps", "kube-system", "coredns");
        deployment.is_some_and(|it| {
            let count = |path: &str| value::number(&it, path).unwrap_or(0);
            count("status.availableReplicas") > 0 && count("status.availableReplicas") == count("spec.replicas")
        })
    }
}
