//! One store behind every control plane.

use std::time::Duration;

use castle_datacenter::blueprint::FaultyPods;
use castle_datacenter::{Blueprint, PodFault, Stage};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::castle::Wanted;
use crate::client::Client;
use crate::wire::Nodes;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config(name: &str) -> Value {
    json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name, "labels": { "of": "test" } } })
}

fn client<'a>(nodes: &'a Nodes, address: &'a str, certificate: &'a str) -> Client<'a> {
    Client { datacenter: nodes.datacenter(), address, certificate }
}

#[test]
fn what_one_control_plane_is_told_all_of_them_know() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let admin = nodes.castle.kubernetes_admin();
        let (vip, third) = (client(&nodes, "10.0.0.50", &admin), client(&nodes, "10.0.0.3", &admin));
        assert_eq!(vip.apply(&format!("{MAPS}/a"), &config("a")).await.unwrap().0, 201);
        assert_eq!(third.get(&format!("{MAPS}/a")).await.unwrap().1["metadata"]["name"], "a");
        assert!(nodes.datacenter().look().to_string().contains("object configmaps default/a of "));
        nodes.datacenter().switch(421, false);
        nodes.until("another holder", async || vip.get("/readyz").await.is_ok_and(|(code, _)| code == 200)).await;
        assert_eq!(vip.get(&format!("{MAPS}/a")).await.unwrap().0, 200, "the store outlives a control plane");
    });
}

#[test]
fn a_watch_is_woken_by_changes_and_ends_with_its_server() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let admin = nodes.castle.kubernetes_admin();
        let api = client(&nodes, "10.0.0.1", &admin);
        let (_, list) = api.get(MAPS).await.unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let path = format!("{MAPS}?watch=1&resourceVersion={version}&allowWatchBookmarks=true&labelSelector=of%3Dtest");
        let mut stream = api.watch(&path).await.unwrap();
        let before = clock.monotonic();
        let (made, told) = tokio::join!(
            async {
                clock.sleep(Duration::from_secs(5)).await;
                api.apply(&format!("{MAPS}/a"), &config("a")).await.unwrap().0
            },
            stream.next()
        );
        let told = told.unwrap();
        assert_eq!(
            (made, told["type"].as_str(), told["object"]["metadata"]["name"].as_str()),
            (201, Some("ADDED"), Some("a"))
        );
        assert!(clock.monotonic() - before < Duration::from_secs(6), "it is told at once");
        assert_eq!(stream.next().await.unwrap()["type"], "BOOKMARK");
        nodes.datacenter().switch(421, false);
        assert_eq!(stream.next().await, None);
    });
}

#[test]
fn the_same_seed_gives_the_same_cluster() {
    let run = || {
        in_virtual_time(async |clock| {
            let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
            nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
            (nodes.datacenter().look().to_string(), clock.monotonic())
        })
    };
    assert_eq!(run(), run());
}

#[test]
fn pods_go_wrong_when_they_are_told_to() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let has_dns = || nodes.datacenter().cluster("blue").unwrap().has_dns;
        assert!(has_dns());
        assert!(nodes.datacenter().fail_pods("blue", "kube-system", "coredns-", Some(PodFault::CrashLoop)));
        clock.sleep(Duration::from_secs(1)).await;
        assert!(!has_dns(), "names do not resolve without their pods");
        assert!(nodes.datacenter().fail_pods("blue", "kube-system", "coredns-", None));
        nodes.until("names", async || has_dns()).await;
        assert!(!nodes.datacenter().fail_pods("green", "kube-system", "coredns-", None), "there is no such cluster");
    });
}

#[test]
fn addresses_are_of_the_ranges_that_the_configuration_names() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.until("maintenance", async || nodes.stage(0) == Some(Stage::Maintenance)).await;
        let plain = nodes.castle.config(true, &Wanted { vip: None, ..Wanted::default() });
        let network = "  network:\n    podSubnets: [10.128.0.0/10]\n    serviceSubnets: [10.112.64.0/18]\n";
        let config = plain.replace("  clusterName: blue\n", &format!("  clusterName: blue\n{network}"));
        nodes.datacenter().configure_node(421, &config).unwrap();
        nodes.bring_up_configured().await;
        let object = |collection: &str, namespace: &str, name: &str| {
            nodes.datacenter().object("blue", collection, namespace, name).unwrap()
        };
        assert_eq!(object("services", "default", "kubernetes")["spec"]["clusterIP"], "10.112.64.1");
        assert_eq!(object("nodes", "", "node-1")["spec"]["podCIDR"], "10.128.0.0/24");
        let names = nodes.datacenter().object_names("blue", "pods");
        let dns = names.iter().find_map(|place| place.strip_prefix("kube-system/coredns")).unwrap();
        let pod = object("pods", "kube-system", &format!("coredns{dns}"));
        assert!(pod["status"]["podIP"].as_str().unwrap().starts_with("10.128.0."), "{pod}");
    });
}

#[test]
fn a_blueprint_may_ask_for_pods_that_go_wrong() {
    in_virtual_time(async |clock| {
        let (namespace, prefix) = ("default".to_owned(), "bad-".to_owned());
        let mut blueprint = crate::site::quick();
        blueprint.faulty_pods = vec![FaultyPods { namespace, prefix, fault: PodFault::ImagePull }];
        let nodes = Nodes::raise(clock, blueprint, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let admin = nodes.castle.kubernetes_admin();
        let api = client(&nodes, "10.0.0.1", &admin);
        let container = json!({ "name": "x", "image": "example.com/x:1" });
        let spec = json!({ "containers": [container], "tolerations": [{ "operator": "Exists" }] });
        let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "bad-one" }, "spec": spec });
        let path = "/api/v1/namespaces/default/pods/bad-one";
        nodes.until("an account", async || api.apply(path, &pod).await.unwrap().0 < 300).await;
        nodes
            .until("a refusal", async || {
                let pod = api.get(path).await.unwrap().1;
                pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
            })
            .await;
    });
}

#[test]
fn a_watch_may_stall_and_a_token_may_expire() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let admin = nodes.castle.kubernetes_admin();
        let api = client(&nodes, "10.0.0.1", &admin);
        let (_, list) = api.get(MAPS).await.unwrap();
        let version = list["metadata"]["resourceVersion"].as_str().unwrap();
        let mut stream = api.watch(&format!("{MAPS}?watch=1&resourceVersion={version}")).await.unwrap();
        assert!(nodes.datacenter().stall_watches("blue", true));
        assert_eq!(api.apply(&format!("{MAPS}/a"), &config("a")).await.unwrap().0, 201);
        tokio::select! {
            told = stream.next() => panic!("{told:?}"),
            () = clock.sleep(Duration::from_secs(300)) => {}
        }
        assert!(nodes.datacenter().stall_watches("blue", false));
        assert_eq!(stream.next().await.unwrap()["type"], "ADDED");
        let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
        let wanted = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 600 } });
        let (status, made) = api.ask("POST", path, "application/json", &wanted.to_string()).await.unwrap();
        let token = made["status"]["token"].as_str().unwrap();
        let review =
            json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": { "token": token } });
        let authenticated = async || {
            let path = "/apis/authentication.k8s.io/v1/tokenreviews";
            let (_, told) = api.ask("POST", path, "application/json", &review.to_string()).await.unwrap();
            told["status"]["authenticated"] == true
        };
        assert_eq!((status, authenticated().await), (201, true));
        clock.sleep(Duration::from_secs(601)).await;
        assert!(!authenticated().await, "its time is over");
    });
}
