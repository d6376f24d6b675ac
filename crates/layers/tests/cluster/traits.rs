//! Labels, annotations and taints: nodes have what the file and its patches say, however a worker may not say it of itself; what is
//! taken away comes back, what others put there stays, and what the file wants no more goes.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::Span;
use castle_datacenter::{Latencies, Version};
use castle_engine::{Outcome, Report};
use castle_kubernetes::client::Api;
use castle_kubernetes::model::{Kind, Object};
use castle_layers::cluster::{Referred, access};
use castle_seams::Clock;
use castle_secrets::Secret;
use castle_testbed::in_virtual_time;
use serde_json::{Map, Value, json};

use crate::castle::{Castle, quick};
use crate::room::{Room, blueprint, done, door};

const WORKER: &str = "blue-worker-1";
const TRAITS: &str = "dataDisk: 20GiB, labels: {castle.dev/pool: main, node-role.kubernetes.io/worker: ''}, taints: ['dedicated=storage:NoSchedule'], patches: [workers.yaml]";

/// What nodes say of themselves stands elsewhere in the newer one: the release, and the same patch for it.
const RELEASES: [(&str, &str); 2] = [
    ("v1.13.9", "machine: {nodeAnnotations: {castle.dev/note: x}, nodeTaints: {lonely: NoExecute}}\n"),
    (
        "v1.14.1",
        "apiVersion: v1alpha1\nkind: KubeNodeConfig\nannotations: {castle.dev/note: x}\ntaints: {lonely: NoExecute}\n",
    ),
];

fn file(talos: &str, traits: &str) -> String {
    quick(1, 1).replace("dataDisk: 20GiB", traits).replace("version: v1.13.9", &format!("version: {talos}"))
}

fn node(castle: &Castle, name: &str) -> Value {
    castle.room.datacenter.object("blue", "nodes", "", name).unwrap()
}

fn worker(castle: &Castle) -> Value {
    node(castle, WORKER)
}

/// The taints of the worker, without those of Kubernetes itself.
fn taints(castle: &Castle) -> Vec<String> {
    taints_of(castle, WORKER)
}

fn taints_of(castle: &Castle, name: &str) -> Vec<String> {
    let node = node(castle, name);
    let text = |taint: &Value, key: &str| taint[key].as_str().unwrap_or_default().to_owned();
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut told: Vec<String> = all
        .iter()
        .map(|taint| format!("{}={}:{}", text(taint, "key"), text(taint, "value"), text(taint, "effect")))
        .filter(|taint| !taint.starts_with("node.kubernetes.io/"))
        .collect();
    told.sort();
    told
}

/// What would be changed, by its field.
fn planned(report: &Report) -> Vec<String> {
    let changes = report.outcomes.iter().filter_map(|(_, outcome)| match outcome {
        Outcome::Planned { change } => Some(change),
        _ => None,
    });
    changes.flat_map(|change| &change.differences).map(|one| one.field.clone()).collect()
}

/// Changes the worker as a person with kubectl does.
async fn by_hand(castle: &Castle, labels: &Value, taints: Value) {
    amended(castle, WORKER, ("labels", labels.clone()), &json!({ "taints": taints })).await;
}

async fn amended(castle: &Castle, name: &str, (what, entries): (&str, Value), spec: &Value) {
    let (room, keys) = (&castle.room, castle.keys().await);
    let access = access(&room.castle, &room.nodes, &keys, true);
    let api = Api::new(&access, room.datacenter.dial(), room.clock.clone()).unwrap();
    let node: Object = api.get(&Kind::new("v1", "Node"), "", name).await.unwrap().unwrap();
    let metadata: Map<String, Value> = [(what.to_owned(), entries)].into_iter().collect();
    api.amend(&node, metadata, spec).await.unwrap();
}

#[test]
fn nodes_have_what_the_file_says_and_keep_what_others_gave_them() {
    RELEASES.into_iter().for_each(nodes_of_a_release);
}

fn nodes_of_a_release((talos, patch): (&'static str, &'static str)) {
    in_virtual_time(async |clock| {
        let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none());
        let mut castle = Castle::new(Room::new(blueprint, &file(talos, TRAITS), door(clock)));
        let patches = [("workers.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
        castle.referred = Arc::new(Referred { patches, ..Referred::default() });
        done(&castle.up().await);
        let label = |castle: &Castle, key: &str| worker(castle)["metadata"]["labels"][key].as_str().map(str::to_owned);
        let note = |castle: &Castle| worker(castle)["metadata"]["annotations"]["castle.dev/note"].clone();
        assert_eq!(taints(&castle), ["dedicated=storage:NoSchedule", "lonely=:NoExecute"]);
        assert_eq!(label(&castle, "castle.dev/pool").as_deref(), Some("main"));
        assert_eq!(
            label(&castle, "node-role.kubernetes.io/worker").as_deref(),
            Some(""),
            "which it may not give itself"
        );
        assert_eq!(note(&castle), "x", "one update takes all with it, or none");
        clock.sleep(Duration::from_secs(60)).await;
        done(&castle.plan().await);
        assert_eq!(castle.up().await.effects(), 0);

        // Somebody takes a taint and a label away, and adds others.
        let labels = json!({"node-role.kubernetes.io/worker": null, "mine": "1"});
        by_hand(
            &castle,
            &labels,
            json!([{"key": "mine", "effect": "NoSchedule"}, {"key": "lonely", "effect": "NoExecute"}]),
        )
        .await;
        let plan = castle.plan().await;
        let told =
            [format!("{WORKER} label node-role.kubernetes.io/worker"), format!("{WORKER} taint dedicated:NoSchedule")];
        assert_eq!(planned(&plan), told);
        done(&castle.up().await);
        let own = ["dedicated=storage:NoSchedule", "lonely=:NoExecute", "mine=:NoSchedule"];
        assert_eq!(taints(&castle), own);
        assert_eq!(label(&castle, "node-role.kubernetes.io/worker").as_deref(), Some(""));
        assert_eq!(label(&castle, "mine").as_deref(), Some("1"));

        // The file wants other things now.
        castle.room.rewrite(&file(talos, "dataDisk: 20GiB, taints: ['dedicated=other:NoSchedule']"));
        done(&castle.up().await);
        clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(taints(&castle), ["dedicated=other:NoSchedule", "mine=:NoSchedule"]);
        assert_eq!(label(&castle, "node-role.kubernetes.io/worker"), None);
        assert_eq!(label(&castle, "castle.dev/pool"), None, "that one Talos takes away itself");
        assert_eq!(label(&castle, "mine").as_deref(), Some("1"));
        done(&castle.plan().await);
    });
}

/// Goal: one `up` is enough for nodes that nobody waits for to be ready. Method: a castle without a network for Pods and without components, whose worker registers a
/// minute after the API serves.
#[test]
fn nodes_without_a_network_have_what_the_file_says_after_one_up() {
    for (talos, _) in RELEASES {
        in_virtual_time(async |clock| {
            let mut latencies = Latencies::none();
            latencies.talos.register = Span::new(60.0, 60.0);
            let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(latencies);
            let file = file(talos, "labels: {castle.dev/pool: main}, taints: ['dedicated=storage:NoSchedule']");
            let file = file.replace("{version: v1.36.3}", "{version: v1.36.3, cni: none}");
            assert!(file.contains("cni: none"));
            let castle = Castle::new(Room::new(blueprint, &file, door(clock)));
            done(&castle.up().await);
            assert_eq!(taints(&castle), ["dedicated=storage:NoSchedule"]);
            assert_eq!(worker(&castle)["metadata"]["labels"]["castle.dev/pool"], "main");
            let again = castle.up().await;
            done(&again);
            assert_eq!(again.effects(), 0);
        });
    }
}

/// Goal: what a node was born with is castle's to take away, also where castle was cut off before it could write down that it had given it. Method: a control plane
/// and a worker whose notes are gone; then the file wants other taints, and a patch goes on to have the kubelet register with one of its own.
#[test]
fn taints_that_a_node_was_born_with_go_without_a_note() {
    for (talos, _) in RELEASES {
        in_virtual_time(async |clock| {
            let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::default());
            let with = |taints: &str| {
                let both = format!("dataDisk: 20GiB, {taints}, patches: [workers.yaml]");
                file(talos, &both).replace("memory: 4GiB", &format!("memory: 4GiB, {taints}"))
            };
            let born = with("taints: ['dedicated=storage:PreferNoSchedule']");
            let mut castle = Castle::new(Room::new(blueprint, &born, door(clock)));
            let patch = "machine: {kubelet: {extraConfig: {registerWithTaints: [{key: own, effect: NoSchedule}]}}}\n";
            let patch = if talos.starts_with("v1.14") {
                "apiVersion: v1alpha1\nkind: KubeletConfig\nconfig: {registerWithTaints: [{key: own, effect: NoSchedule}]}\n"
            } else {
                patch
            };
            let patches = [("workers.yaml".to_owned(), Secret::from(patch.to_owned()))].into();
            castle.referred = Arc::new(Referred { patches, ..Referred::default() });
            done(&castle.up().await);
            assert_eq!(taints(&castle), ["dedicated=storage:PreferNoSchedule", "own=:NoSchedule"]);
            for name in ["blue-cp-1", WORKER] {
                amended(&castle, name, ("annotations", json!({"castle.dev/given": null})), &json!({})).await;
            }
            castle.room.rewrite(&with("taints: ['other:PreferNoSchedule']"));
            done(&castle.up().await);
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(taints(&castle), ["other=:PreferNoSchedule", "own=:NoSchedule"]);
            let own = |taint: &String| !taint.starts_with("node-role.kubernetes.io/");
            let of_first: Vec<String> = taints_of(&castle, "blue-cp-1").into_iter().filter(own).collect();
            assert_eq!(of_first, ["other=:PreferNoSchedule"]);
            done(&castle.plan().await);
            assert_eq!(castle.up().await.effects(), 0);
        });
    }
}

/// Goal: control planes have what the file says, too, whoever comes first: castle, or Talos, which tells taints apart by their keys alone and takes its time.
#[test]
fn control_planes_have_what_the_file_says() {
    for (talos, _) in RELEASES {
        in_virtual_time(async |clock| {
            let blueprint = blueprint(&["pve"], Version::Nine).with_latencies(Latencies::default());
            let with = |traits: &str| {
                file(talos, "dataDisk: 20GiB").replace("memory: 4GiB", &format!("memory: 4GiB, {traits}"))
            };
            let before = with("labels: {castle.dev/rack: a}, taints: ['dedicated=cp:PreferNoSchedule']");
            let mut castle = Castle::new(Room::new(blueprint, &before, door(clock)));
            done(&castle.up().await);
            let first = |castle: &Castle| {
                let own = |taint: &String| !taint.starts_with("node-role.kubernetes.io/");
                let taints: Vec<String> = taints_of(castle, "blue-cp-1").into_iter().filter(own).collect();
                (node(castle, "blue-cp-1")["metadata"]["labels"]["castle.dev/rack"].clone(), taints)
            };
            assert_eq!(first(&castle), (json!("a"), vec!["dedicated=cp:PreferNoSchedule".to_owned()]));
            // A person takes away what castle gave, and gives something else.
            let own =
                |taint: &&Value| taint["key"].as_str().is_some_and(|key| key.starts_with("node-role.kubernetes.io/"));
            let stays = node(&castle, "blue-cp-1")["spec"]["taints"].as_array().cloned().unwrap_or_default();
            let stays: Vec<Value> = stays.iter().filter(own).cloned().collect();
            let mine = json!({"key": "mine", "effect": "PreferNoSchedule"});
            let all = [stays, vec![mine]].concat();
            let taints = json!({ "taints": all });
            amended(&castle, "blue-cp-1", ("labels", json!({"castle.dev/rack": "b"})), &taints).await;
            assert_eq!(
                planned(&castle.plan().await),
                ["blue-cp-1 label castle.dev/rack", "blue-cp-1 taint dedicated:PreferNoSchedule"]
            );
            done(&castle.up().await);
            let mine = "mine=:PreferNoSchedule".to_owned();
            assert_eq!(first(&castle), (json!("a"), vec!["dedicated=cp:PreferNoSchedule".to_owned(), mine.clone()]));
            // Another effect of the same key, and another value.
            castle.room.rewrite(&with("labels: {castle.dev/rack: c}, taints: ['dedicated=cp:NoSchedule']"));
            done(&castle.up().await);
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(first(&castle), (json!("c"), vec!["dedicated=cp:NoSchedule".to_owned(), mine.clone()]));
            done(&castle.plan().await);
            castle.room.rewrite(&file(talos, "dataDisk: 20GiB"));
            done(&castle.up().await);
            clock.sleep(Duration::from_secs(60)).await;
            assert_eq!(first(&castle), (Value::Null, vec![mine]));
            assert_eq!(castle.up().await.effects(), 0);
        });
    }
}
