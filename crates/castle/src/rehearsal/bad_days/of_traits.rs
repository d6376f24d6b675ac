//! Labels, annotations and taints of nodes, through the verbs: the file and its patches give them, what a person changes of them is told and mended, and what
//! others give a node is theirs.

use castle_kubernetes::model::Kind;
use serde_json::{Map, Value, json};

use super::super::fixture::{person, written_with};
use super::*;

const WORKER: &str = "blue-gpu-1";

fn traits() -> Arc<Script> {
    let pool = "  pools:
    gpu:
      count: 1
      firstAddress: 127.42.0.31
      labels: {castle.dev/pool: main, node-role.kubernetes.io/worker: ''}
      taints: ['dedicated=storage:NoSchedule']
      patches: [workers.yaml]
storage: none";
    let patch = "machine: {nodeAnnotations: {castle.dev/note: x}, nodeLabels: {castle.dev/zone: a}}\n";
    written_with(&SMALL.replace("storage: none", pool), "workers.yaml", patch)
}

fn worker(life: &Life) -> Value {
    life.datacenter.object("blue", "nodes", "", WORKER).unwrap()
}

/// Changes the worker as somebody with kubectl does, or a controller.
async fn by_hand(life: &Life, labels: &Value, annotations: &Value, taints: &Value) {
    let api = person(life).await;
    let node = api.get(&Kind::new("v1", "Node"), "", WORKER).await.unwrap().unwrap();
    let metadata = [("labels".to_owned(), labels.clone()), ("annotations".to_owned(), annotations.clone())];
    let metadata: Map<String, Value> = metadata.into_iter().collect();
    api.amend(&node, metadata, &json!({ "taints": taints })).await.unwrap();
}

#[test]
fn what_is_changed_by_hand_is_told_and_mended_and_what_others_give_stays() {
    in_worlds(&traits(), &SEEDS[..2], async |life| {
        hold(&life.run(&["up"]).await, Exit::Done, &[]);
        let node = worker(&life);
        let labels = &node["metadata"]["labels"];
        assert_eq!((&labels["castle.dev/pool"], &labels["castle.dev/zone"]), (&json!("main"), &json!("a")));
        assert_eq!(node["metadata"]["annotations"]["castle.dev/note"], "x");
        hold(&life.run(&["drift"]).await, Exit::Done, &[]);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Done, &[]);

        // Somebody takes away and changes what castle gave; a controller gives something of its own.
        let labels = json!({"node-role.kubernetes.io/worker": null, "example.com/rack": "7"});
        let annotations = json!({"example.com/seen": "today"});
        let taints = json!([{"key": "example.com/maintenance", "effect": "NoSchedule"}]);
        by_hand(&life, &labels, &annotations, &taints).await;
        let told =
            [format!("{WORKER} label node-role.kubernetes.io/worker"), format!("{WORKER} taint dedicated:NoSchedule")];
        let told = told.each_ref().map(String::as_str);
        let drift = life.run(&["drift"]).await;
        hold(&drift, Exit::Differs, &told);
        assert!(!drift.printed.text.contains("example.com/"), "{}", drift.printed.text);
        hold(&life.run(&["plan", "--exit-code"]).await, Exit::Differs, &told);
        let up = life.run(&["up"]).await;
        hold(&up, Exit::Done, &[]);

        let node = worker(&life);
        let (labels, annotations) = (&node["metadata"]["labels"], &node["metadata"]["annotations"]);
        assert_eq!(labels["node-role.kubernetes.io/worker"], "");
        assert_eq!((&labels["example.com/rack"], &annotations["example.com/seen"]), (&json!("7"), &json!("today")));
        let taints: Vec<&str> =
            node["spec"]["taints"].as_array().unwrap().iter().filter_map(|taint| taint["key"].as_str()).collect();
        assert!(taints.contains(&"dedicated") && taints.contains(&"example.com/maintenance"), "{taints:?}");
        hold(&life.run(&["drift"]).await, Exit::Done, &[]);
        let again = life.run(&["up"]).await;
        assert_eq!(again.printed.result["result"], "unchanged", "{}", again.printed.text);
    });
}
