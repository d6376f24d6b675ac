//! MetalLB as its vendor ships it.

use castle_datacenter::{Blueprint, Component, ComponentFault};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::stand::{Stand, manifest};

const FILE: &str = "metallb-native-v0.16.1.yaml";
const API: &str = "/apis/metallb.io/v1beta1/namespaces/metallb-system";
const HOOKS: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";

fn object(kind: &str, name: &str, spec: &Value) -> Value {
    json!({ "apiVersion": "metallb.io/v1beta1", "kind": kind, "metadata": { "name": name }, "spec": spec })
}

async fn pool(stand: &Stand, name: &str, addresses: &[&str]) -> (u16, String) {
    let pool = object("IPAddressPool", name, &json!({ "addresses": addresses }));
    stand.apply(&format!("{API}/ipaddresspools/{name}"), &pool).await
}

async fn advertisement(stand: &Stand) -> (u16, String) {
    let advertisement = object("L2Advertisement", "all", &json!({ "ipAddressPools": ["lan"] }));
    stand.apply(&format!("{API}/l2advertisements/all"), &advertisement).await
}

fn address(stand: &Stand, service: &str) -> String {
    let service = stand.object("services", "default", service);
    service["status"]["loadBalancer"]["ingress"][0]["ip"].as_str().unwrap_or_default().to_owned()
}

/// The service that a node announces, and the node.
fn announced(stand: &Stand) -> Vec<(String, String)> {
    let names = stand.names("servicel2statuses.metallb.io");
    let all = names.iter().filter_map(|place| place.split_once('/'));
    let all = all.map(|(namespace, name)| stand.object("servicel2statuses.metallb.io", namespace, name));
    let text = |status: &Value, key: &str| status["status"][key].as_str().unwrap_or_default().to_owned();
    all.map(|status| (text(&status, "serviceName"), text(&status, "node"))).collect()
}

#[test]
fn the_webhook_listens_last_and_its_first_path_is_that_of_pools() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::raise(clock, Blueprint::embedded(&[]), 4).await;
        stand.install(&text).await;
        let mut told: Vec<(u16, String)> = Vec::new();
        let begun = clock.monotonic();
        let mut first_advertisement = None;
        while clock.monotonic() - begun < std::time::Duration::from_secs(400) {
            let answer = pool(&stand, "lan", &["10.0.0.200-10.0.0.209"]).await;
            let is_in = answer.0 < 300;
            told.push(answer);
            if is_in {
                first_advertisement = Some(advertisement(&stand).await);
                break;
            }
            stand.pause(0.01).await;
        }
        let seen = |why: &str| told.iter().position(|(_, message)| message.contains(why));
        let (absent, refused) = (seen("no endpoints available"), seen("connection refused"));
        assert!(absent < refused && refused.is_some(), "{:?}", told.last());
        let (status, message) = first_advertisement.unwrap();
        assert!(status < 300 || message.contains("could not find the requested resource"), "{status} {message}");
        stand.until("a path", |stand| !stand.names("configurationstates.metallb.io").is_empty()).await;
        let configuration = stand.object(HOOKS, "", "metallb-webhook-configuration");
        let hooks = configuration["webhooks"].as_array().unwrap();
        assert!(hooks.len() == 6 && hooks.iter().all(|hook| hook["clientConfig"]["caBundle"].is_string()));
        let managers = configuration["metadata"]["managedFields"].as_array().unwrap();
        assert!(managers.iter().any(|it| it["manager"] == "MetalLB" && it["operation"] == "Update"));
        let peers = stand.object("customresourcedefinitions.apiextensions.k8s.io", "", "bgppeers.metallb.io");
        assert!(peers["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].is_string());
        assert!(stand.object("secrets", "metallb-system", "memberlist")["data"]["secretkey"].is_string());
    });
}

#[test]
fn services_get_addresses_and_workers_announce_them() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        stand.install(&text).await;
        stand.pause(1.0).await;
        assert_eq!(pool(&stand, "lan", &["10.0.0.200-10.0.0.201"]).await.0, 201);
        let (status, why) = pool(&stand, "other", &["10.0.0.201/32"]).await;
        assert!(status == 403 && why.contains("overlaps"), "{status} {why}");
        assert_eq!(pool(&stand, "wrong", &["10.0.0.9-10.0.0.1"]).await.0, 403);
        for node in 1..=3 {
            let label =
                json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
            stand.merge(&format!("/api/v1/nodes/node-{node}"), &label).await;
        }
        stand.app("web", "LoadBalancer", &json!({})).await;
        stand.app("fixed", "LoadBalancer", &json!({ "metallb.io/loadBalancerIPs": "10.0.0.201" })).await;
        stand.app("late", "LoadBalancer", &json!({})).await;
        stand.app("inner", "ClusterIP", &json!({})).await;
        stand.pause(1.0).await;
        let all = ["web", "fixed", "late", "inner"].map(|name| address(&stand, name));
        assert_eq!(all, ["10.0.0.200", "10.0.0.201", "", ""]);
        assert!(announced(&stand).is_empty(), "nothing is announced without an advertisement");
        assert_eq!(advertisement(&stand).await.0, 201);
        stand.pause(1.0).await;
        let both = [("fixed", "node-4"), ("web", "node-4")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        let mut told = announced(&stand);
        told.sort();
        assert_eq!(told, both);
        let status = stand.object("ipaddresspools.metallb.io", "metallb-system", "lan")["status"].clone();
        assert_eq!((&status["assignedIPv4"], &status["availableIPv4"]), (&json!(2), &json!(0)));
        for name in ["controller", "speaker-node-4"] {
            let state = stand.object("configurationstates.metallb.io", "metallb-system", name);
            assert_eq!(state["status"]["result"], "Valid", "{name}");
        }
        let label =
            json!({ "metadata": { "labels": { "node.kubernetes.io/exclude-from-external-load-balancers": "" } } });
        stand.merge("/api/v1/nodes/node-4", &label).await;
        stand.pause(1.0).await;
        assert!(announced(&stand).is_empty(), "nobody is left to announce");
    });
}

#[test]
fn it_goes_wrong_as_it_is_told() {
    let Some(text) = manifest(FILE) else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        let fail = |fault: ComponentFault, holds: bool| {
            assert!(stand.nodes.datacenter().fail_component("blue", Component::MetalLb, fault, holds));
        };
        fail(ComponentFault::NeverInjects, true);
        stand.install(&text).await;
        stand.pause(5.0).await;
        let (status, why) = pool(&stand, "lan", &["10.0.0.200/32"]).await;
        assert!(status == 500 && why.contains("connection refused"), "{why}");
        fail(ComponentFault::NeverInjects, false);
        stand.pause(1.0).await;
        assert_eq!(pool(&stand, "lan", &["10.0.0.200/32"]).await.0, 201);
        fail(ComponentFault::DeadWebhook, true);
        stand.pause(1.0).await;
        let (status, why) = pool(&stand, "lan", &["10.0.0.200/31"]).await;
        assert!(status == 500 && why.contains("connection refused"), "{why}");
        fail(ComponentFault::DeadWebhook, false);
        stand.pause(1.0).await;
        assert_eq!(pool(&stand, "lan", &["10.0.0.200/31"]).await.0, 200);
    });
}
