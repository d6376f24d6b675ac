//! What runs: deployments, daemons, jobs, services, and what goes wrong with them.

use serde_json::{Value, json};

use super::{Bench, deployment};
use crate::kubernetes::workloads::PodFault;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn condition(object: &Value, kind: &str) -> (String, String) {
    let all = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|it| it["type"] == kind).cloned().unwrap_or_default();
    let text = |key: &str| found[key].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn pods(bench: &mut Bench) -> Vec<Value> {
    bench.get(PODS).1["items"].as_array().unwrap().clone()
}

#[test]
fn a_deployment_becomes_available_in_its_time() {
    let mut bench = Bench::with_factor(1.0);
    bench.pass(1.0);
    bench.node("n1");
    bench.post(DEPLOYMENTS, &deployment("d", 2));
    bench.pass(1.0);
    let waiting = pods(&mut bench);
    assert_eq!(waiting.len(), 2);
    assert_eq!(waiting[0]["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    assert_eq!(
        condition(&bench.get(&format!("{DEPLOYMENTS}/d")).1, "Available"),
        ("False".into(), "MinimumReplicasUnavailable".into())
    );
    bench.pass(300.0);
    let (_, object) = bench.get(&format!("{DEPLOYMENTS}/d"));
    let numbers = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "observedGeneration"]
        .map(|key| object["status"][key].as_i64());
    assert_eq!(numbers, [Some(2), Some(2), Some(2), Some(2), Some(1)]);
    assert_eq!(condition(&object, "Available"), ("True".into(), "MinimumReplicasAvailable".into()));
    assert_eq!(condition(&object, "Progressing"), ("True".into(), "NewReplicaSetAvailable".into()));
    let pod = &pods(&mut bench)[0];
    assert_eq!((pod["status"]["phase"].as_str(), pod["spec"]["nodeName"].as_str()), (Some("Running"), Some("n1")));
    let (_, events) = bench.get("/api/v1/namespaces/default/events");
    let reasons: Vec<&str> =
        events["items"].as_array().unwrap().iter().map(|it| it["reason"].as_str().unwrap()).collect();
    for reason in ["ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Pulling", "Pulled", "Created", "Started"] {
        assert!(reasons.contains(&reason), "{reason} is not among {reasons:?}");
    }
}

#[test]
fn pods_of_a_node_that_is_not_there_any_more_are_collected_and_begin_elsewhere() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post(DEPLOYMENTS, &deployment("d", 2));
    bench.pass(5.0);
    bench.node("n2");
    let places = |bench: &mut Bench| {
        let all = pods(bench).into_iter();
        all.map(|pod| pod["spec"]["nodeName"].as_str().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(bench.delete("/api/v1/nodes/n1").0, 200);
    bench.pass(30.0);
    assert_eq!(places(&mut bench), ["n1", "n1"], "it might come back");
    bench.pass(30.0);
    assert_eq!(places(&mut bench), ["n2", "n2"]);
    let (_, object) = bench.get(&format!("{DEPLOYMENTS}/d"));
    assert_eq!(object["status"]["availableReplicas"], 2);
}

#[test]
fn a_new_template_replaces_the_old_pods() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post(DEPLOYMENTS, &deployment("d", 3));
    let before: Vec<Value> = pods(&mut bench).iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "main", "image": "example.com/app:2" }] } } } });
    bench.told("PATCH", &format!("{DEPLOYMENTS}/d"), "application/strategic-merge-patch+json", &image.to_string());
    bench.pass(60.0);
    let after = pods(&mut bench);
    assert_eq!(after.len(), 3);
    assert!(after.iter().all(|pod| !before.contains(&pod["metadata"]["name"])
        && pod["spec"]["containers"][0]["image"] == "example.com/app:2"));
    let (_, object) = bench.get(&format!("{DEPLOYMENTS}/d"));
    assert_eq!(condition(&object, "Progressing").1, "NewReplicaSetAvailable");
    assert_eq!(object["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
}

#[test]
fn services_lead_to_pods_that_are_ready() {
    let mut bench = Bench::new();
    bench.node("n1");
    bench.post("/api/v1/namespaces/default/services", &json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": "s" }, "spec": { "ports": [{ "port": 80, "targetPort": 8080 }], "selector": { "app": "d" } },
    }));
    bench.post(DEPLOYMENTS, &deployment("d", 1));
    let slices =
        "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Ds";
    let (_, list) = bench.get(slices);
    let slice = &list["items"][0];
    assert_eq!(slice["endpoints"][0]["conditions"], json!({ "ready": true, "serving": true, "terminating": false }));
    assert_eq!(slice["ports"][0]["port"], 8080);
    bench.kube.set_fault("default", "d-", Some(PodFault::NotReady));
    bench.settle();
    let (_, list) = bench.get(slices);
    assert_eq!(list["items"][0]["endpoints"][0]["conditions"]["ready"], json!(false));
    bench.kube.set_fault("default", "d-", None);
    bench.settle();
    assert_eq!(bench.get(slices).1["items"][0]["endpoints"][0]["conditions"]["ready"], json!(true));
}

#[test]
fn what_goes_wrong_is_told_by_the_pods() {
    for (fault, reason) in [(PodFault::ImagePull, "ImagePullBackOff"), (PodFault::CrashLoop, "CrashLoopBackOff")] {
        let mut bench = Bench::new();
        bench.node("n1");
        bench.kube.set_fault("default", "d-", Some(fault));
        bench.post(DEPLOYMENTS, &deployment("d", 1));
        let pod = &pods(&mut bench)[0];
        assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], reason);
        assert_eq!(condition(&bench.get(&format!("{DEPLOYMENTS}/d")).1, "Available").0, "False");
    }
    let mut bench = Bench::new();
    bench.post(DEPLOYMENTS, &deployment("d", 1));
    assert_eq!(condition(&pods(&mut bench)[0], "PodScheduled"), ("False".into(), "Unschedulable".into()));
    bench.node("n1");
    assert_eq!(pods(&mut bench)[0]["status"]["phase"], "Running", "it is placed once there is a node");
}

#[test]
fn daemons_run_on_every_node_and_wait_for_what_they_mount() {
    let mut bench = Bench::new();
    bench.node("n1");
    let mount = json!({ "volumes": [{ "name": "key", "secret": { "secretName": "key" } }],
        "containers": [{ "name": "a", "image": "x:1", "volumeMounts": [{ "name": "key", "mountPath": "/key" }] }] });
    bench.post("/apis/apps/v1/namespaces/default/daemonsets", &json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": { "name": "d" },
        "spec": { "selector": { "matchLabels": { "a": "b" } }, "template": { "metadata": { "labels": { "a": "b" } }, "spec": mount } },
    }));
    bench.node("node2");
    let status = |bench: &mut Bench| bench.get("/apis/apps/v1/namespaces/default/daemonsets/d").1["status"].clone();
    assert_eq!(
        (&status(&mut bench)["desiredNumberScheduled"], &status(&mut bench)["numberReady"]),
        (&json!(2), &json!(0))
    );
    let (_, events) = bench.get("/api/v1/namespaces/default/events?fieldSelector=reason%3DFailedMount");
    assert_eq!(events["items"][0]["message"], "MountVolume.SetUp failed for volume \"key\" : secret \"key\" not found");
    bench.post(
        "/api/v1/namespaces/default/secrets",
        &json!({ "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "key" } }),
    );
    assert_eq!(status(&mut bench)["numberReady"], 2);
}

#[test]
fn jobs_run_to_their_end() {
    let mut bench = Bench::new();
    bench.node("n1");
    let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "a", "image": "x:1" }] });
    bench.post("/apis/batch/v1/namespaces/default/jobs", &json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": { "name": "j" }, "spec": { "template": { "spec": spec } },
    }));
    let (_, job) = bench.get("/apis/batch/v1/namespaces/default/jobs/j");
    assert_eq!(condition(&job, "Complete"), ("True".into(), "CompletionsReached".into()));
    assert_eq!(job["status"]["succeeded"], 1);
}

#[test]
fn sets_with_an_identity_begin_one_after_the_other() {
    let mut bench = Bench::new();
    bench.node("n1");
    let mut set = deployment("s", 3);
    set["kind"] = json!("StatefulSet");
    set["spec"]["serviceName"] = json!("s");
    bench.post("/apis/apps/v1/namespaces/default/statefulsets", &set);
    let names: Vec<Value> = pods(&mut bench).iter().map(|pod| pod["metadata"]["name"].clone()).collect();
    assert_eq!(names, ["s-0", "s-1", "s-2"]);
    let (_, object) = bench.get("/apis/apps/v1/namespaces/default/statefulsets/s");
    assert_eq!(
        (&object["status"]["readyReplicas"], &object["status"]["currentRevision"]),
        (&json!(3), &object["status"]["updateRevision"])
    );
}

#[test]
fn a_refused_pod_is_told_by_its_set() {
    let mut bench = Bench::new();
    bench.node("n1");
    let mut wanted = deployment("d", 1);
    wanted["spec"]["template"]["spec"]["hostNetwork"] = json!(true);
    bench.post(DEPLOYMENTS, &wanted);
    let (_, object) = bench.get(&format!("{DEPLOYMENTS}/d"));
    assert_eq!(condition(&object, "ReplicaFailure"), ("True".into(), "FailedCreate".into()));
    bench.merge(
        "/api/v1/namespaces/default",
        &json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "privileged" } } }),
    );
    let (_, object) = bench.get(&format!("{DEPLOYMENTS}/d"));
    assert_eq!(condition(&object, "Available").0, "True");
}

#[test]
fn pods_are_spread_as_they_ask() {
    let mut bench = Bench::new();
    for node in ["n1", "n22"] {
        bench.node(node);
    }
    let spread = |bench: &mut Bench, name: &str, more: &Value| {
        let labels = json!({ "app": name });
        let mut constraint = json!({
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": { "matchLabels": labels },
        });
        for (key, value) in more.as_object().unwrap() {
            constraint[key.as_str()] = value.clone();
        }
        let mut wanted = deployment(name, 3);
        wanted["spec"]["selector"]["matchLabels"] = labels.clone();
        wanted["spec"]["template"]["metadata"]["labels"] = labels;
        wanted["spec"]["template"]["spec"]["topologySpreadConstraints"] = json!([constraint]);
        assert_eq!(bench.post(DEPLOYMENTS, &wanted).0, 201);
        bench.pass(5.0);
        let own: Vec<Value> = pods(bench).into_iter().filter(|pod| pod["metadata"]["labels"]["app"] == name).collect();
        let on = |node: &str| own.iter().filter(|pod| pod["spec"]["nodeName"] == node).count();
        let why: Vec<String> =
            own.iter().map(|pod| condition(pod, "PodScheduled").1).filter(|it| !it.is_empty()).collect();
        let mut counts = [on("n1"), on("n22")];
        counts.sort_unstable();
        (counts, why)
    };
    assert_eq!(spread(&mut bench, "even", &json!({})), ([1, 2], Vec::new()));
    let waits = vec!["Unschedulable".to_owned()];
    assert_eq!(spread(&mut bench, "apart", &json!({ "minDomains": 3 })), ([1, 1], waits), "there are but two");
    let (counts, why) =
        spread(&mut bench, "loose", &json!({ "minDomains": null, "whenUnsatisfiable": "ScheduleAnyway" }));
    assert_eq!((counts.iter().sum::<usize>(), why), (3, Vec::new()));
}
