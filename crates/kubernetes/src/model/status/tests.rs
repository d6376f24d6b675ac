use serde_json::json;

use super::*;

/// Noon of the first day of 2026.
const NOW: u64 = 1_767_268_800;

fn of(api_version: &str, kind: &str, body: &Value) -> Status {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "x", "generation": 2}});
    for (key, value) in body.as_object().unwrap() {
        match key.as_str() {
            "metadata" => {
                for (key, value) in value.as_object().unwrap() {
                    object["metadata"][key] = value.clone();
                }
            }
            _ => object[key] = value.clone(),
        }
    }
    status(&Object::new(object).unwrap(), NOW)
}

#[track_caller]
fn current(api_version: &str, kind: &str, body: &Value) {
    assert_eq!(of(api_version, kind, body), Status::Current);
}

#[track_caller]
fn waits(api_version: &str, kind: &str, body: &Value) {
    let found = of(api_version, kind, body);
    assert!(matches!(found, Status::InProgress(_)), "{found:?}");
}

#[track_caller]
fn fails(api_version: &str, kind: &str, body: &Value) {
    let found = of(api_version, kind, body);
    assert!(matches!(found, Status::Failed(_)), "{found:?}");
}

fn conditions(list: &[(&str, &str, &str)]) -> Value {
    list.iter().map(|(name, status, reason)| json!({"type": name, "status": status, "reason": reason})).collect()
}

#[test]
fn what_holds_for_every_kind_comes_first() {
    let ending = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
    assert_eq!(of("v1", "ConfigMap", &ending), Status::Terminating);
    waits("x.dev/v1", "Thing", &json!({"status": {"observedGeneration": 1}}));
    waits("x.dev/v1", "Thing", &json!({"status": {"conditions": conditions(&[("Reconciling", "True", "")])}}));
    fails("x.dev/v1", "Thing", &json!({"status": {"conditions": conditions(&[("Stalled", "True", "No")])}}));
}

#[test]
fn a_custom_resource_is_known_by_its_ready_condition_alone() {
    current("x.dev/v1", "Thing", &json!({}));
    current("x.dev/v1", "Thing", &json!({"status": {"conditions": conditions(&[("Ready", "True", "")])}}));
    waits("x.dev/v1", "Thing", &json!({"status": {"conditions": conditions(&[("Ready", "False", "")])}}));
    waits("x.dev/v1", "Thing", &json!({"status": {"conditions": conditions(&[("Ready", "Unknown", "")])}}));
}

fn deployment_of(replicas: &[i64; 4], list: &[(&str, &str, &str)]) -> Value {
    let [all, updated, available, ready] = replicas;
    json!({
        "spec": {"replicas": 2, "progressDeadlineSeconds": 600},
        "status": {
            "observedGeneration": 2, "replicas": all, "updatedReplicas": updated, "availableReplicas": available,
            "readyReplicas": ready, "conditions": conditions(list),
        },
    })
}

#[test]
fn a_deployment_needs_every_count_and_both_conditions() {
    let well = [("Progressing", "True", "NewReplicaSetAvailable"), ("Available", "True", "")];
    current("apps/v1", "Deployment", &deployment_of(&[2, 2, 2, 2], &well));
    for counts in [[1, 1, 1, 1], [2, 1, 2, 2], [3, 2, 2, 2], [2, 2, 1, 2], [2, 2, 2, 1]] {
        waits("apps/v1", "Deployment", &deployment_of(&counts, &well));
    }
    waits("apps/v1", "Deployment", &deployment_of(&[2, 2, 2, 2], &well[..1]));
    waits("apps/v1", "Deployment", &deployment_of(&[2, 2, 2, 2], &well[1..]));
    fails(
        "apps/v1",
        "Deployment",
        &deployment_of(&[2, 2, 0, 0], &[("Progressing", "False", "ProgressDeadlineExceeded")]),
    );
    let mut patient = deployment_of(&[2, 2, 2, 2], &well[1..]);
    patient["spec"] = json!({"replicas": 2});
    current("apps/v1", "Deployment", &patient);
}

#[test]
fn a_daemon_set_on_no_node_is_current_once_somebody_looked() {
    waits("apps/v1", "DaemonSet", &json!({}));
    waits("apps/v1", "DaemonSet", &json!({"status": {"desiredNumberScheduled": 0}}));
    current("apps/v1", "DaemonSet", &json!({"status": {"observedGeneration": 2, "desiredNumberScheduled": 0}}));
    let counts = |ready: i64| {
        json!({"status": {
            "observedGeneration": 2, "desiredNumberScheduled": 3, "currentNumberScheduled": 3,
            "updatedNumberScheduled": 3, "numberAvailable": 3, "numberReady": ready,
        }})
    };
    waits("apps/v1", "DaemonSet", &counts(2));
    current("apps/v1", "DaemonSet", &counts(3));
}

#[test]
fn stateful_sets_and_replica_sets_count_too() {
    let set = |revision: &str| {
        json!({"spec": {"replicas": 1}, "status": {
            "observedGeneration": 2, "replicas": 1, "readyReplicas": 1, "currentReplicas": 1, "updatedReplicas": 0,
            "currentRevision": "a", "updateRevision": revision,
        }})
    };
    current("apps/v1", "StatefulSet", &set("a"));
    waits("apps/v1", "StatefulSet", &set("b"));
    let mut split = set("b");
    split["spec"]["updateStrategy"] = json!({"rollingUpdate": {"partition": 1}});
    current("apps/v1", "StatefulSet", &split);
    current("apps/v1", "StatefulSet", &json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
    let replicas = |ready: i64| {
        json!({"spec": {"replicas": 1}, "status": {
            "observedGeneration": 2, "replicas": 1, "fullyLabeledReplicas": 1, "availableReplicas": 1, "readyReplicas": ready,
        }})
    };
    current("apps/v1", "ReplicaSet", &replicas(1));
    waits("apps/v1", "ReplicaSet", &replicas(0));
}

#[test]
fn a_pod_may_end_but_not_loop_or_be_homeless_for_long() {
    for phase in ["Succeeded", "Failed"] {
        current("v1", "Pod", &json!({"status": {"phase": phase}}));
    }
    let running =
        |ready: &str| json!({"status": {"phase": "Running", "conditions": conditions(&[("Ready", ready, "")])}});
    current("v1", "Pod", &running("True"));
    waits("v1", "Pod", &running("False"));
    let mut looping = running("False");
    looping["status"]["containerStatuses"] =
        json!([{"name": "web", "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]);
    fails("v1", "Pod", &looping);
    let homeless = |since: &str| {
        let conditions = conditions(&[("PodScheduled", "False", "Unschedulable")]);
        json!({"metadata": {"creationTimestamp": since}, "status": {"phase": "Pending", "conditions": conditions}})
    };
    waits("v1", "Pod", &homeless("2026-01-01T11:59:50Z"));
    fails("v1", "Pod", &homeless("2026-01-01T11:59:40Z"));
}

#[test]
fn a_job_that_has_begun_counts_as_current() {
    waits("batch/v1", "Job", &json!({}));
    current("batch/v1", "Job", &json!({"status": {"startTime": "2026-01-01T00:00:00Z"}}));
    current("batch/v1", "Job", &json!({"status": {"conditions": conditions(&[("Complete", "True", "")])}}));
    fails(
        "batch/v1",
        "Job",
        &json!({"status": {"conditions": conditions(&[("Failed", "True", "BackoffLimitExceeded")])}}),
    );
}

#[test]
fn the_rest_of_the_known_kinds() {
    waits("v1", "PersistentVolumeClaim", &json!({"status": {"phase": "Pending"}}));
    current("v1", "PersistentVolumeClaim", &json!({"status": {"phase": "Bound"}}));
    waits("v1", "Service", &json!({"spec": {"type": "LoadBalancer"}}));
    current("v1", "Service", &json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1"}}));
    current("v1", "Service", &json!({"spec": {"type": "ClusterIP"}}));
    let definition = |list: &[(&str, &str, &str)]| json!({"status": {"conditions": conditions(list)}});
    let (version, kind) = ("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    waits(version, kind, &json!({}));
    waits(version, kind, &definition(&[("Established", "False", "Installing")]));
    fails(version, kind, &definition(&[("NamesAccepted", "False", "Conflict")]));
    current(version, kind, &definition(&[("NamesAccepted", "True", ""), ("Established", "True", "")]));
    current("v1", "Namespace", &json!({}));
    current("v1", "Secret", &json!({}));
}
