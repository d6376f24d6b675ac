//! What Kubernetes tells of its machines follows their configurations.

use castle_testbed::in_virtual_time;
use serde_json::Value;

use crate::castle::Wanted;
use crate::client::Client;
use crate::stand::Stand;
use crate::wire::AUTO;

/// Goal: each API server tells its own version, and what runs is shown as it runs. Method: another image on one control plane.
#[test]
fn another_image_of_the_api_server_is_told_by_its_node_alone() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        let admin = stand.nodes.castle.kubernetes_admin();
        let version = async |address: &str| {
            let client = Client { datacenter: stand.nodes.datacenter(), address, certificate: &admin };
            let told = client.get("/version").await.map(|(_, told)| told).unwrap_or_default();
            told["gitVersion"].as_str().unwrap_or_default().to_owned()
        };
        let pod = |part: &str, node: u32| stand.object("pods", "kube-system", &format!("{part}-node-{node}"));
        let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned();
        let before = pod("kube-apiserver", 1);
        assert_eq!(
            (version("10.0.0.1").await.as_str(), image(&before)),
            ("v1.36.3", "registry.k8s.io/kube-apiserver:v1.36.3".to_owned())
        );

        let name = "  clusterName: blue\n";
        let newer = format!("{name}  apiServer:\n    image: registry.k8s.io/kube-apiserver:v1.36.4\n");
        let config = stand.nodes.castle.config(true, &Wanted::default()).replace(name, &newer);
        stand.nodes.admin(0).apply(&config, AUTO).await.unwrap();
        stand.nodes.until("the new one", async || version("10.0.0.1").await == "v1.36.4").await;
        stand.pause(5.0).await;
        let after = pod("kube-apiserver", 1);
        assert_eq!(image(&after), "registry.k8s.io/kube-apiserver:v1.36.4");
        assert_ne!(after["metadata"]["uid"], before["metadata"]["uid"]);
        assert_eq!(after["metadata"]["labels"]["app.kubernetes.io/version"], "v1.36.4");
        assert_eq!(version("10.0.0.2").await, "v1.36.3");
        assert_eq!(image(&pod("kube-scheduler", 1)), "registry.k8s.io/kube-scheduler:v1.36.3");
        assert_eq!(image(&pod("kube-apiserver", 2)), "registry.k8s.io/kube-apiserver:v1.36.3");
    });
}

#[test]
fn another_address_of_a_machine_is_told_by_its_node() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        let addresses = || {
            let node = stand.object("nodes", "", "node-4");
            let all = node["status"]["addresses"].as_array().cloned().unwrap_or_default();
            let internal = all.into_iter().filter(|it| it["type"] == "InternalIP");
            internal.map(|it| it["address"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(addresses(), ["10.0.0.4"]);
        let more = "---\napiVersion: v1alpha1\nkind: LinkConfig\nname: eth0\naddresses:\n  - address: 10.0.1.4/24\n";
        let config = stand.nodes.castle.config(false, &Wanted::default()) + more;
        stand.nodes.admin(3).apply(&config, AUTO).await.unwrap();
        stand.until("the other address", |_| addresses() == ["10.0.0.4", "10.0.1.4"]).await;
    });
}

/// Goal: what real clusters have and this one has not says so. Method: each of them.
#[test]
fn what_is_not_simulated_says_so() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        let simulated = |what: &str| format!("this cluster is simulated, and does not serve {what}");
        for (path, what) in [
            ("/apis/autoscaling/v1", "autoscaling/v1"),
            ("/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", "autoscaling/v1"),
            ("/apis/flowcontrol.apiserver.k8s.io", "flowcontrol.apiserver.k8s.io"),
            ("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "flowcontrol.apiserver.k8s.io/v1"),
            ("/apis/metrics.k8s.io/v1beta1/nodes", "metrics.k8s.io/v1beta1"),
            ("/apis/resource.k8s.io/v1/deviceclasses", "resource.k8s.io/v1"),
            ("/api/v1/componentstatuses", "componentstatuses of v1"),
            ("/api/v1/namespaces/default/podtemplates", "podtemplates of v1"),
            ("/api/v1/namespaces/default/replicationcontrollers", "replicationcontrollers of v1"),
            (
                "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
                "validatingadmissionpolicies of admissionregistration.k8s.io/v1",
            ),
            (
                "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
                "mutatingadmissionpolicybindings of admissionregistration.k8s.io/v1",
            ),
            ("/apis/networking.k8s.io/v1/servicecidrs", "servicecidrs of networking.k8s.io/v1"),
            ("/apis/storage.k8s.io/v1/volumeattributesclasses", "volumeattributesclasses of storage.k8s.io/v1"),
        ] {
            let (status, told) = stand.api().get(path).await.unwrap();
            assert_eq!(
                (status, told["message"].as_str().unwrap_or_default()),
                (404, simulated(what).as_str()),
                "{path}"
            );
        }
        // What nobody has is not found as it is everywhere.
        let (status, told) = stand.api().get("/api/v1/nonsense").await.unwrap();
        assert_eq!((status, told["message"].as_str()), (404, Some("the server could not find the requested resource")));
        for sub in ["exec", "attach", "portforward"] {
            let pod = stand
                .names("pods")
                .into_iter()
                .find_map(|it| it.strip_prefix("kube-system/coredns").map(str::to_owned));
            let path = format!("/api/v1/namespaces/kube-system/pods/coredns{}/{sub}", pod.unwrap());
            let (status, told) = stand.api().ask("POST", &path, "", "").await.unwrap();
            let why = "this cluster is simulated: its containers run no process that could be reached";
            assert_eq!((status, told["message"].as_str()), (501, Some(why)), "{sub}");
        }
        let path = "/api/v1/namespaces/kube-system/pods/kube-apiserver-node-1/resize";
        let why = "this cluster is simulated: what containers may use is not changed while they run";
        for (method, kind) in [("GET", ""), ("PATCH", "application/merge-patch+json")] {
            let (status, told) = stand.api().ask(method, path, kind, "{}").await.unwrap();
            assert_eq!((status, told["message"].as_str()), (501, Some(why)), "{method}");
        }
    });
}
