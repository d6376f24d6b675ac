//! A node is sent away: what runs on it is asked to go, budgets are kept, and a node that is wanted again is taken back.

use castle_engine::{GraphBuilder, Handle, Place, Report};
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Kind, Object};
use castle_kubernetes::steps::{Drain, Empty, Left};
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
    let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
    room.run(|graph, api| {
        graph.step(id("left"), Place::default(), (api.clone(),), Left::new("blue", wanted, Vec::new()));
    })
    .await
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
