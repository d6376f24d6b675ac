//! Nodes: how they say that they live, what follows when they do not, and what they show of themselves.

use serde_json::{Value, json};

use super::{Bench, deployment, told};
use crate::kubernetes::workloads::nodes::Told;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SYSTEM: &str = "/api/v1/namespaces/kube-system/pods";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";

fn silent(name: &str) -> Told {
    Told { is_up: false, is_silent: true, is_ready: false, ..told(name) }
}

fn taints(bench: &mut Bench, node: &str) -> Vec<String> {
    let (_, node) = bench.get(&format!("/api/v1/nodes/{node}"));
    let all = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    all.iter().map(|it| format!("{}:{}", it["key"].as_str().unwrap(), it["effect"].as_str().unwrap())).collect()
}

fn condition(object: &Value, kind: &str) -> Value {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["type"] == kind).unwrap_or_default()
}

fn pods(bench: &mut Bench, path: &str) -> Vec<Value> {
    bench.get(path).1["items"].as_array().unwrap().clone()
}

#[test]
fn a_lease_is_renewed_as_long_as_the_node_lives() {
    let mut bench = Bench::new();
    bench.node("n1");
    let (_, lease) = bench.get(LEASE);
    assert_eq!(lease["spec"]["renewTime"], "2026-09-21T14:13:20.000000Z");
    assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]), (&json!("n1"), &json!(40)));
    let (_, node) = bench.get("/api/v1/nodes/n1");
    let owner = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": node["metadata"]["uid"] }]);
    assert_eq!(lease["metadata"]["ownerReferences"], owner);
    bench.pass(25.0);
    let (_, renewed) = bench.get(LEASE);
    assert_eq!(renewed["spec"]["renewTime"], "2026-09-21T14:13:40.000000Z");
    assert_ne!(renewed["metadata"]["resourceVersion"], lease["metadata"]["resourceVersion"]);
    bench.tell(&Told { is_up: false, ..told("n1") });
    bench.pass(600.0);
    assert_eq!(bench.get(LEASE).1["spec"], renewed["spec"], "nobody renews it");
    bench.node("n1");
    assert_eq!(bench.get(LEASE).1["spec"]["renewTime"], "2026-09-21T14:23:45.000000Z");
    bench.delete("/api/v1/nodes/n1");
    assert_eq!(bench.get(LEASE).0, 404, "it goes with its node");
}

#[test]
fn a_node_posts_its_status_every_five_minutes_and_nobody_is_bothered_by_it() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.pass(60.0);
    let (_, before) = bench.get("/api/v1/nodes/n1");
    assert_eq!(condition(&before, "Ready")["lastHeartbeatTime"], "2026-09-21T14:13:20Z");
    bench.pass(250.0);
    let (_, after) = bench.get("/api/v1/nodes/n1");
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        assert_eq!(condition(&after, kind)["lastHeartbeatTime"], "2026-09-21T14:18:20Z", "{kind}");
        assert_eq!(condition(&after, kind)["lastTransitionTime"], "2026-09-21T14:13:20Z", "{kind}");
    }
    assert!(bench.kube.take_plans().is_empty() && bench.kube.dirty.is_empty());
}

#[test]
fn a_silent_node_is_unreachable_and_its_pods_begin_elsewhere_after_five_minutes() {
    let mut bench = Bench::new();
    for node in ["n1", "n22", "n333"] {
        bench.node(node);
    }
    bench.post(DEPLOYMENTS, &deployment("d", 3));
    bench.pass(5.0);
    let on = |bench: &mut Bench, node: &str| {
        let all = pods(bench, PODS).into_iter();
        all.filter(|pod| pod["spec"]["nodeName"] == node).collect::<Vec<_>>()
    };
    assert_eq!(on(&mut bench, "n1").len(), 1);
    bench.tell(&silent("n1"));
    let (_, node) = bench.get("/api/v1/nodes/n1");
    for kind in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let said = condition(&node, kind);
        assert_eq!((&said["status"], &said["reason"]), (&json!("Unknown"), &json!("NodeStatusUnknown")), "{kind}");
    }
    let unreachable = ["NoSchedule", "NoExecute"].map(|effect| format!("node.kubernetes.io/unreachable:{effect}"));
    assert_eq!(taints(&mut bench, "n1"), unreachable);
    assert_eq!(condition(&on(&mut bench, "n1")[0], "Ready")["status"], "False");
    bench.pass(290.0);
    assert!(on(&mut bench, "n1")[0]["metadata"].get("deletionTimestamp").is_none(), "it is borne for five minutes");
    bench.pass(20.0);
    let lost = on(&mut bench, "n1");
    assert!(lost[0]["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(condition(&lost[0], "DisruptionTarget")["reason"], "DeletionByTaintManager");
    bench.pass(600.0);
    assert_eq!(on(&mut bench, "n1").len(), 1, "nobody is there who would end it");
    assert_eq!(on(&mut bench, "n22").len() + on(&mut bench, "n333").len(), 3);
    bench.node("n1");
    bench.pass(60.0);
    assert_eq!(
        (on(&mut bench, "n1").len(), taints(&mut bench, "n1")),
        (0, Vec::new()),
        "its node is back, and ends it"
    );
}

#[test]
fn where_every_node_is_silent_no_pod_is_evicted() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post(DEPLOYMENTS, &deployment("d", 1));
    bench.tell(&silent("n1"));
    assert_eq!(taints(&mut bench, "n1"), ["node.kubernetes.io/unreachable:NoSchedule"]);
    bench.pass(600.0);
    assert!(pods(&mut bench, PODS)[0]["metadata"].get("deletionTimestamp").is_none());
}

#[test]
fn a_control_plane_shows_what_it_runs() {
    let mut bench = Bench::new();
    let control_plane = Told { runs_control_plane: true, ..told("n1") };
    bench.tell(&control_plane);
    bench.node("worker");
    let names = |bench: &mut Bench| {
        let all = pods(bench, SYSTEM).into_iter();
        all.map(|pod| pod["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&mut bench), ["kube-apiserver-n1", "kube-controller-manager-n1", "kube-scheduler-n1"]);
    let (_, pod) = bench.get(&format!("{SYSTEM}/kube-apiserver-n1"));
    let (labels, annotations) = (&pod["metadata"]["labels"], &pod["metadata"]["annotations"]);
    assert_eq!((&labels["k8s-app"], &labels["tier"]), (&json!("kube-apiserver"), &json!("control-plane")));
    assert_eq!(annotations["kubernetes.io/config.source"], "http");
    assert!(annotations["kubernetes.io/config.mirror"].is_string());
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!((&pod["status"]["phase"], &condition(&pod, "Ready")["status"]), (&json!("Running"), &json!("True")));
    bench.delete(&format!("{SYSTEM}/kube-apiserver-n1"));
    bench.pass(60.0);
    let (_, again) = bench.get(&format!("{SYSTEM}/kube-apiserver-n1"));
    assert_ne!(again["metadata"]["uid"], pod["metadata"]["uid"], "it is shown again");
    bench.tell(&told("n1"));
    let (_, stopped) = bench.get(&format!("{SYSTEM}/kube-apiserver-n1"));
    assert_eq!(condition(&stopped, "Ready")["reason"], "ContainersNotReady");
    bench.tell(&control_plane);
    bench.delete("/api/v1/nodes/n1");
    bench.pass(60.0);
    assert_eq!(names(&mut bench), Vec::<String>::new());
}

#[test]
fn daemons_are_put_onto_a_closed_node_and_stay_there_while_others_wait() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.merge("/api/v1/nodes/n1", &json!({ "spec": { "unschedulable": true } }));
    assert_eq!(taints(&mut bench, "n1"), ["node.kubernetes.io/unschedulable:NoSchedule"]);
    bench.post(
        "/apis/apps/v1/namespaces/default/daemonsets",
        &json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "d" },
            "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } },
                "spec": { "containers": [{ "name": "a", "image": "x:1" }] } } },
        }),
    );
    bench.post(DEPLOYMENTS, &deployment("e", 1));
    let all = pods(&mut bench, PODS);
    let [daemon, other] = all.as_slice() else { panic!("{all:?}") };
    assert_eq!((&daemon["spec"]["nodeName"], &daemon["status"]["phase"]), (&json!("n1"), &json!("Running")));
    let said = condition(other, "PodScheduled");
    assert_eq!(said["message"], "0/1 nodes are available: 1 node(s) were unschedulable.");
    bench.merge("/api/v1/nodes/n1", &json!({ "spec": { "unschedulable": null } }));
    assert_eq!(taints(&mut bench, "n1"), Vec::<String>::new());
    assert!(pods(&mut bench, PODS).iter().all(|pod| pod["status"]["phase"] == "Running"));
    let taint = json!([{ "key": "k", "effect": "NoSchedule" }]);
    bench.merge("/api/v1/nodes/n1", &json!({ "spec": { "taints": taint } }));
    let (_, set) = bench.get("/apis/apps/v1/namespaces/default/daemonsets/d");
    assert_eq!((&set["status"]["numberMisscheduled"], pods(&mut bench, PODS).len()), (&json!(1), 2), "it stays");
    let taint = json!([{ "key": "k", "effect": "NoExecute" }]);
    bench.merge("/api/v1/nodes/n1", &json!({ "spec": { "taints": taint } }));
    bench.pass(60.0);
    assert!(pods(&mut bench, PODS).iter().all(|pod| pod["spec"].get("nodeName").is_none()), "nothing bears that");
}
