//! A node is sent away: what runs on it is asked to go, budgets are kept, and a node that is wanted again is taken back.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Verdict, Webhook};
use castle_engine::{GraphBuilder, Handle, Place, Report};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Kind, Object};
use castle_kubernetes::steps::{Drain, Empty, Left, Missed};
use serde_json::json;

use crate::room::{Room, fault, faults, id, in_hall, object, well};

fn deployment() -> Object {
    let labels = json!({"app": "shop"});
    object(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shop", "namespace": "default"},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "shop", "image": "shop:1"}]}},
        },
    }))
}

fn budget(least: u32) -> Object {
    object(json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"minAvailable": least, "selector": {"matchLabels": {"app": "shop"}}},
    }))
}

/// The only worker.
async fn worker(room: &Room) -> String {
    let nodes = room.api.list(&Kind::new("v1", "Node"), &Scope::default()).await.unwrap().objects;
    let worker = nodes.iter().find(|node| node.label("node-role.kubernetes.io/control-plane").is_none()).unwrap();
    worker.name().to_owned()
}

/// The Pods of the shop that are on a node.
async fn open_for_business(room: &Room, node: &str) -> usize {
    let scope = Scope { fields: format!("spec.nodeName={node}"), ..Scope::labelled("app=shop") };
    room.api.list(&Kind::new("v1", "Pod"), &scope).await.unwrap().objects.len()
}

fn send_away(graph: &mut GraphBuilder, api: &Handle<Api>, node: &str) {
    let drained = graph.step(id("drain"), Place::default(), (api.clone(),), Drain::new("blue", node, None));
    graph.gate(id("empty"), Place::default(), (api.clone(), drained), Empty::new(node));
}

/// As a castle does that names these nodes.
async fn settle(room: &Room, wanted: &[&str]) -> Report {
    settled(room, Left::new("blue", wanted.iter().map(|&name| name.to_owned()), Vec::new())).await
}

async fn settled(room: &Room, left: Left) -> Report {
    room.run(|graph, api| {
        graph.step(id("left"), Place::default(), (api.clone(),), left);
    })
    .await
}

/// Whether a node takes no Pods, and the labels on it that are about its leaving.
async fn state(room: &Room, node: &str) -> (bool, Vec<String>) {
    let node = room.get("v1", "Node", "", node).await.unwrap();
    let labels = ["castle.dev/leaving", "castle.dev/closed-before"].into_iter();
    let labels = labels.filter_map(|name| Some(format!("{name}={}", node.label(name)?)));
    (node.at("/spec/unschedulable") == true, labels.collect())
}

/// Somebody closes a node, or opens it.
async fn cordon(room: &Room, node: &str, is_closed: bool) {
    let seen = room.get("v1", "Node", "", node).await.unwrap();
    let closed = if is_closed { json!(true) } else { json!(null) };
    room.api.alter(&seen, &json!({}), &json!({"unschedulable": closed})).await.unwrap();
}

#[test]
fn a_node_is_emptied_and_forgotten_or_taken_back() {
    in_hall(async |room| {
        let node = worker(room).await;
        well(&room.apply("shop", &[deployment()]).await);
        well(&room.expect(vec![serving()], std::time::Duration::from_secs(300)).await);
        assert_eq!(open_for_business(room, &node).await, 2);
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        assert_eq!(open_for_business(room, &node).await, 0, "they wait until somebody takes them");
        room.seen.take();
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        let asked = room.seen.take();
        assert!(asked.iter().all(|method| method.starts_with("GET") || method.starts_with("TRY")), "{asked:?}");

        // The file names it again.
        well(&settle(room, &[&node]).await);
        let back = room.get("v1", "Node", "", &node).await.unwrap();
        assert!(back.at("/spec/unschedulable").is_null() && back.label("castle.dev/leaving").is_none());
        room.seen.take();
        well(&settle(room, &[]).await);
        let asked = room.seen.take();
        assert!(asked.iter().all(|method| method.starts_with("GET")), "nobody sent it away: {asked:?}");

        // It is sent away once more, and whoever did that died before its machine was gone for good.
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        well(&settle(room, &[]).await);
        assert!(room.seen.take().iter().any(|asked| asked.contains("DELETE") && asked.contains(&node)));
    });
}

/// Whoever has a say in what becomes of nodes ran on the node that was emptied, and waits for one that is open.
#[test]
fn a_node_is_taken_back_though_the_webhook_that_has_a_say_waits_for_it() {
    in_hall(async |room| {
        let node = worker(room).await;
        let issued = room.datacenter().issue_certificate("blue", &["shop.default.svc"]).unwrap();
        let webhook = Webhook::new(|_| Verdict::Allow);
        webhook.listen(&issued.certificate);
        assert!(room.datacenter().serve_webhook("blue", "default/shop", Some(webhook)));
        let service = json!({"namespace": "default", "name": "shop", "path": "/", "port": 443});
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"]});
        let hook = json!({
            "name": "nodes.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "rules": [rule], "clientConfig": {"service": service, "caBundle": STANDARD.encode(&issued.authority)},
        });
        let shop = [
            deployment(),
            object(json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "shop", "namespace": "default"},
                "spec": {"selector": {"app": "shop"}, "ports": [{"port": 443}]}})),
        ];
        well(&room.apply("shop", &shop).await);
        well(&room.expect(vec![serving()], std::time::Duration::from_secs(300)).await);
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "shop"}, "webhooks": [hook]});
        well(&room.apply("hooks", &[object(configuration)]).await);
        for other in room.api.list(&Kind::new("v1", "Node"), &Scope::default()).await.unwrap().objects {
            if other.name() != node {
                cordon(room, other.name(), true).await;
            }
        }
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        assert_eq!(open_for_business(room, "").await, 2, "they wait");
        let seen = room.get("v1", "Node", "", &node).await.unwrap();
        let opened = room.api.alter(&seen, &json!({}), &json!({"unschedulable": null})).await;
        assert!(opened.is_err_and(|trouble| trouble.is_deaf_webhook()), "nobody can open it");
        well(&settle(room, &[&node]).await);
        assert_eq!(state(room, &node).await, (false, Vec::new()));
    });
}

/// A removal that is called off gives back what castle took, and nothing that a person had closed.
#[test]
fn what_a_person_closed_stays_closed_when_a_removal_is_called_off() {
    in_hall(async |room| {
        let node = worker(room).await;
        let away = async || well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        let (leaving, before) = ("castle.dev/leaving=blue".to_owned(), "castle.dev/closed-before=yes".to_owned());
        cordon(room, &node, true).await;
        away().await;
        assert_eq!(state(room, &node).await, (true, vec![leaving.clone(), before.clone()]));
        // Whoever comes after somebody else died knows as much.
        away().await;
        assert_eq!(state(room, &node).await, (true, vec![leaving.clone(), before]));
        well(&settle(room, &[&node]).await);
        assert_eq!(state(room, &node).await, (true, Vec::new()), "it is closed as it was");

        away().await;
        cordon(room, &node, false).await;
        away().await;
        assert_eq!(state(room, &node).await, (true, vec![leaving]), "a person had opened it meanwhile");
        well(&settle(room, &[&node]).await);
        assert_eq!(state(room, &node).await, (false, Vec::new()));
    });
}

/// The labels as nodes bear them that another castle program has sent away. They have no version: their names say all, and one of another castle is left alone.
#[test]
fn the_recorded_labels_are_read() {
    in_hall(async |room| {
        let node = worker(room).await;
        let yes = "castle.dev/closed-before=yes".to_owned();
        let cases = [
            ("blue", json!(null), (false, vec![])),
            ("blue", json!("yes"), (true, vec![])),
            ("green", json!("yes"), (true, vec!["castle.dev/leaving=green".to_owned(), yes])),
        ];
        for (castle, before, after) in cases {
            let seen = room.get("v1", "Node", "", &node).await.unwrap();
            let labels = json!({"castle.dev/leaving": castle, "castle.dev/closed-before": before});
            room.api.alter(&seen, &labels, &json!({"unschedulable": true})).await.unwrap();
            well(&settle(room, &[&node]).await);
            assert_eq!(state(room, &node).await, after);
        }
    });
}

/// A node that was sent away earlier is not forgotten while nobody knows whether its machine is gone; one that is wanted is taken back all the same.
#[test]
fn a_node_whose_machine_may_be_there_is_not_forgotten() {
    in_hall(async |room| {
        let node = worker(room).await;
        let left = |wanted: &[&String], leaving: &[&String]| {
            let names = |all: &[&String]| all.iter().map(|&name| name.clone()).collect::<Vec<String>>();
            Left::new("blue", names(wanted), names(leaving)).only_these()
        };
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        let report = settled(room, left(&[], &[])).await;
        well(&report);
        let leaving = vec!["castle.dev/leaving=blue".to_owned()];
        assert_eq!((report.effects(), state(room, &node).await), (0, (true, leaving)));
        well(&settled(room, left(&[&node], &[])).await);
        assert_eq!(state(room, &node).await, (false, Vec::new()));
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        room.seen.take();
        well(&settled(room, left(&[], &[&node])).await);
        assert!(room.seen.take().iter().any(|asked| asked.contains("DELETE") && asked.contains(&node)));
    });
}

#[test]
fn a_budget_keeps_a_pod_where_it_is_and_is_told() {
    in_hall(async |room| {
        let node = worker(room).await;
        well(&room.apply("shop", &[deployment(), budget(2)]).await);
        well(&room.expect(vec![serving()], std::time::Duration::from_secs(300)).await);
        let report = room.run(|graph, api| send_away(graph, api, &node)).await;
        let fault = fault(&report);
        assert!(fault.subject.starts_with("Pod default/shop-"), "{fault:?}");
        assert!(
            fault.evidence.contains("disruption budget") && fault.next.contains("poddisruptionbudgets"),
            "{fault:?}"
        );
        assert_eq!(open_for_business(room, &node).await, 2);
        well(&room.apply("shop", &[budget(0)]).await);
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        assert_eq!(open_for_business(room, &node).await, 0);
    });
}

/// Pods that do not mind a closed node are not asked to go, for they would be back; but their budgets are asked before the machine goes.
#[test]
fn what_would_come_back_is_only_asked_for() {
    in_hall(async |room| {
        let node = worker(room).await;
        let mut stubborn = deployment().value().clone();
        stubborn["spec"]["template"]["spec"]["tolerations"] = json!([{"operator": "Exists"}]);
        well(&room.apply("shop", &[object(stubborn), budget(2)]).await);
        well(&room.expect(vec![serving()], std::time::Duration::from_secs(300)).await);
        let on_it = open_for_business(room, &node).await;
        let report = room.run(|graph, api| send_away(graph, api, &node)).await;
        assert_eq!((faults(&report).len(), on_it > 0), (1, true), "{report:?}");
        assert!(fault(&report).evidence.contains("disruption budget"), "{:?}", fault(&report));
        well(&room.apply("shop", &[budget(0)]).await);
        well(&room.run(|graph, api| send_away(graph, api, &node)).await);
        assert_eq!(open_for_business(room, &node).await, on_it);
    });
}

#[test]
fn a_control_plane_is_not_sent_away() {
    in_hall(async |room| {
        let nodes = room.api.list(&Kind::new("v1", "Node"), &Scope::default()).await.unwrap().objects;
        let worker = worker(room).await;
        let voter = nodes.iter().find(|node| node.name() != worker).unwrap();
        let report = room.run(|graph, api| send_away(graph, api, voter.name())).await;
        let fault = fault(&report);
        assert!(fault.guarded && fault.evidence.contains("control plane"), "{fault:?}");
        assert!(room.get("v1", "Node", "", voter.name()).await.unwrap().at("/spec/unschedulable").is_null());
    });
}

fn serving() -> castle_kubernetes::steps::Expect {
    castle_kubernetes::steps::Expect::Serving(
        Kind::new("apps/v1", "Deployment"),
        "default".to_owned(),
        "shop".to_owned(),
    )
}

/// A node that Kubernetes calls ready is alive, whatever the hypervisor shows: it is forgotten once it is missed, and not before.
#[test]
fn a_node_that_is_ready_is_not_forgotten() {
    in_hall(async |room| {
        let node = worker(room).await;
        let forget = || {
            room.run(|graph, api| {
                graph.gate(id("missed"), Place::default(), (api.clone(),), Missed::new(&node));
                graph.step(id("left"), Place::default(), (api.clone(),), Left::new("blue", [], vec![node.clone()]));
                graph.after(id("left"), id("missed"));
            })
        };
        let fault = fault(&forget().await);
        assert!(fault.subject == node && fault.evidence.starts_with("is ready, and its machine is gone"), "{fault:?}");
        assert!(fault.next.contains(&format!("kubectl delete node {node}")), "{fault:?}");
        assert!(room.get("v1", "Node", "", &node).await.is_some());
        let vmid = room.datacenter().talos_nodes().iter().map(|node| node.vmid).max().unwrap();
        room.datacenter().switch(vmid, false);
        well(&forget().await);
        assert!(room.get("v1", "Node", "", &node).await.is_none());
    });
}
