//! The Kubernetes API of control planes.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Blueprint, CERTIFICATE_HEADER, Latencies};
use castle_http::header::{HeaderName, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::Clock;
use castle_talos_api::common::Data;
use castle_testbed::in_virtual_time;
use futures_util::StreamExt;
use serde_json::Value;

use crate::castle::Wanted;
use crate::site::said;
use crate::wire::{AUTO, Nodes};

async fn get(nodes: &Nodes, address: &str, path: &str, certificate: Option<&str>) -> Result<(u16, Value), String> {
    let endpoint = Endpoint::parse(&format!("http://{address}:6443")).unwrap();
    let dial = nodes.datacenter().dial();
    let client = Client::new(endpoint, &Trust::PublicRoots, dial, Arc::new(nodes.clock)).unwrap();
    let mut ask = Ask::new(Method::GET, path);
    if let Some(certificate) = certificate {
        ask.headers.insert(HeaderName::from_static(CERTIFICATE_HEADER), HeaderValue::from_str(certificate).unwrap());
    }
    let answer = client.ask(&ask).await.map_err(|error| error.to_string())?;
    let text = Value::String(String::from_utf8_lossy(&answer.body).into_owned());
    let said = said(&answer);
    Ok((said.status, if said.body.is_null() { text } else { said.body }))
}

#[test]
fn it_comes_with_etcd_and_tells_the_nodes() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 4).await;
        let admin = nodes.castle.kubernetes_admin();
        nodes.configure(&Wanted::default()).await;
        assert!(get(&nodes, "10.0.0.50", "/readyz", Some(&admin)).await.is_err(), "nobody has the address yet");
        assert!(get(&nodes, "10.0.0.1", "/readyz", Some(&admin)).await.is_err(), "nothing listens yet");
        nodes.bring_up_configured().await;
        let through_vip = get(&nodes, "10.0.0.50", "/readyz", Some(&admin)).await.unwrap();
        assert_eq!(through_vip, (200, "ok".into()));
        let (_, version) = get(&nodes, "10.0.0.2", "/version", Some(&admin)).await.unwrap();
        assert_eq!(version["gitVersion"], "v1.36.3");
        let (_, list) = get(&nodes, "10.0.0.50", "/api/v1/nodes", Some(&admin)).await.unwrap();
        let items = list["items"].as_array().unwrap();
        let names: Vec<&str> = items.iter().map(|node| node["metadata"]["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["node-1", "node-2", "node-3", "node-4"]);
        assert!(items.iter().all(|node| node["status"]["conditions"][0]["status"] == "True"));
        assert_eq!(items[0]["status"]["conditions"][0]["type"], "Ready");
        assert_eq!(items[0]["spec"]["taints"][0]["effect"], "NoSchedule");
        assert_eq!(items[3]["status"]["addresses"][0]["address"], "10.0.0.4");
        let (_, node) = get(&nodes, "10.0.0.1", "/api/v1/nodes/node-4", Some(&admin)).await.unwrap();
        assert_eq!(node["kind"], "Node");
        let coredns = "/apis/apps/v1/namespaces/kube-system/deployments/coredns";
        let (_, coredns) = get(&nodes, "10.0.0.1", coredns, Some(&admin)).await.unwrap();
        assert_eq!(coredns["status"]["availableReplicas"], 2);
        assert!(get(&nodes, "10.0.0.4", "/readyz", Some(&admin)).await.is_err(), "a worker has none");
        let (status, pods) =
            get(&nodes, "10.0.0.1", "/api/v1/namespaces/kube-system/pods", Some(&admin)).await.unwrap();
        assert_eq!((status, pods["kind"].as_str()), (200, Some("PodList")));
        assert_eq!(get(&nodes, "10.0.0.1", "/api/v1/nothings", Some(&admin)).await.unwrap().0, 404);
    });
}

#[test]
fn only_the_castles_own_certificates_open_it() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let status = async |certificate: Option<&str>| get(&nodes, "10.0.0.1", "/readyz", certificate).await.unwrap().0;
        assert_eq!(status(None).await, 401);
        assert_eq!(status(Some(&nodes.castle.admin())).await, 401, "that is of another authority");
        let nobody = nodes.castle.kubernetes.client("system:nobody", |_| {});
        assert_eq!(status(Some(&nobody)).await, 401, "a certificate without a name is nobody's");
        let somebody = nodes.castle.kubernetes.client("strangers", |params| {
            params.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
        });
        assert_eq!(status(Some(&somebody)).await, 200, "whoever is known may ask whether it is ready");
        let (code, refused) = get(&nodes, "10.0.0.1", "/api/v1/nodes", Some(&somebody)).await.unwrap();
        let told = "nodes is forbidden: User \"stranger\" cannot list resource \"nodes\" in API group \"\" at the cluster scope";
        assert_eq!((code, refused["message"].as_str()), (403, Some(told)));
        assert_eq!(status(Some(&nodes.castle.kubernetes_admin())).await, 200);
    });
}

#[test]
fn without_a_quorum_it_is_not_ready() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let admin = nodes.castle.kubernetes_admin();
        for vmid in [422, 423] {
            nodes.datacenter().switch(vmid, false);
        }
        let (status, text) = get(&nodes, "10.0.0.1", "/readyz", Some(&admin)).await.unwrap();
        assert_eq!(status, 500);
        assert!(text.as_str().unwrap().contains("etcd failed"), "{text}");
        assert_eq!(get(&nodes, "10.0.0.1", "/livez", Some(&admin)).await.unwrap().0, 200);
        assert_eq!(get(&nodes, "10.0.0.1", "/api/v1/nodes", Some(&admin)).await.unwrap().0, 503);
        assert!(nodes.datacenter().cluster("blue").unwrap().vips.values().all(Option::is_none), "it dies with etcd");
    });
}

#[test]
fn a_control_plane_hands_out_the_way_in() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let stream = nodes.admin(0).machine().kubeconfig(()).await.unwrap().into_inner();
        let parts: Vec<Data> = stream.map(Result::unwrap).collect().await;
        let packed: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
        // One stored block behind the header of gzip, in which the archive begins with the name of its file.
        assert_eq!(packed[..4], [0x1f, 0x8b, 8, 0]);
        assert_eq!(&packed[15..25], b"kubeconfig");
        let text = String::from_utf8_lossy(&packed[15 + 512..]).into_owned();
        assert!(text.starts_with("apiVersion: v1\nkind: Config\n"), "{text}");
        assert!(
            text.contains("current-context: admin@blue") && text.contains("server: https://10.0.0.50:6443"),
            "{text}"
        );
    });
}

#[test]
fn the_next_version_lets_anybody_ask_whether_it_is_ready() {
    in_virtual_time(async |clock| {
        let wanted = Wanted { vip: None, ..Wanted::default() };
        let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none());
        let nodes = Nodes::raise_version(clock, blueprint, 1, "v1.14.1").await;
        nodes.stranger(0).apply(&nodes.castle.config_14(true, &wanted), AUTO).await.unwrap();
        nodes.bring_up_configured().await;
        assert_eq!(get(&nodes, "10.0.0.1", "/readyz", None).await.unwrap().0, 200);
        assert_eq!(get(&nodes, "10.0.0.1", "/version", None).await.unwrap().0, 401);
    });
}

/// Goal: what a configuration says of its node is written into the node of Kubernetes as it changes, not at its birth alone;
/// and a worker cannot taint itself.
#[test]
fn nodes_follow_their_configurations() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 4).await;
        let wanted = Wanted::default();
        let worker = nodes.castle.config(false, &wanted);
        let born = "    extraConfig:\n      registerWithTaints:\n        - key: castle.dev/only\n          value: mine\n          \
                    effect: NoSchedule\n";
        let born = worker.replace("cluster:\n", &format!("{born}cluster:\n"));
        for index in 0..3 {
            nodes.until("maintenance", async || nodes.stranger(index).version().await.is_ok()).await;
            nodes.stranger(index).apply(&nodes.castle.config(true, &wanted), AUTO).await.unwrap();
        }
        nodes.until("maintenance", async || nodes.stranger(3).version().await.is_ok()).await;
        nodes.stranger(3).apply(&born, AUTO).await.unwrap();
        nodes.bring_up_configured().await;
        let admin = nodes.castle.kubernetes_admin();
        let node =
            async |name: &str| get(&nodes, "10.0.0.1", &format!("/api/v1/nodes/{name}"), Some(&admin)).await.unwrap().1;
        let taints = |node: &Value| -> Vec<String> {
            let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
            all.iter().map(|it| format!("{}={}", it["key"].as_str().unwrap(), it["effect"].as_str().unwrap())).collect()
        };
        assert_eq!(taints(&node("node-4").await), ["castle.dev/only=NoSchedule"]);
        assert_eq!(node("node-1").await["metadata"]["labels"]["node-role.kubernetes.io/control-plane"], "");

        let with = |text: &str, more: &str| text.replace("  kubelet:\n", &format!("{more}  kubelet:\n"));
        let labelled = with(&born, "  nodeLabels: {castle.dev/rack: a}\n  nodeAnnotations: {castle.dev/note: b}\n");
        nodes.admin(3).apply(&labelled, AUTO).await.unwrap();
        assert!(node("node-4").await["metadata"]["labels"].get("castle.dev/rack").is_none(), "it takes its time");
        clock.sleep(Duration::from_secs(1)).await;
        let changed = node("node-4").await;
        assert_eq!(changed["metadata"]["labels"]["castle.dev/rack"], "a");
        assert_eq!(changed["metadata"]["annotations"]["castle.dev/note"], "b");
        let tainted =
            with(&born, "  nodeLabels: {castle.dev/rack: c}\n  nodeTaints: {castle.dev/more: \"x:NoExecute\"}\n");
        nodes.admin(3).apply(&tainted, AUTO).await.unwrap();
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(
            node("node-4").await["metadata"]["labels"]["castle.dev/rack"],
            "a",
            "the label is lost with the taint"
        );
        assert_eq!(taints(&node("node-4").await), ["castle.dev/only=NoSchedule"]);

        let tainted = with(&nodes.castle.config(true, &wanted), "  nodeTaints: {castle.dev/more: \"x:NoExecute\"}\n");
        nodes.admin(0).apply(&tainted, AUTO).await.unwrap();
        clock.sleep(Duration::from_secs(1)).await;
        let expected = ["node-role.kubernetes.io/control-plane=NoSchedule", "castle.dev/more=NoExecute"];
        assert_eq!(taints(&node("node-1").await), expected, "a control plane does it as an administrator");
        nodes.admin(0).apply(&nodes.castle.config(true, &wanted), AUTO).await.unwrap();
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(taints(&node("node-1").await).len(), 1);

        let newer = labelled.replace("kubelet:v1.36.3", "kubelet:v1.36.4");
        nodes.admin(3).apply(&newer, AUTO).await.unwrap();
        let version = async || node("node-4").await["status"]["nodeInfo"]["kubeletVersion"].clone();
        assert_eq!(version().await, "v1.36.3", "the kubelet is started anew first");
        nodes.until("the new kubelet", async || version().await == "v1.36.4").await;
    });
}
