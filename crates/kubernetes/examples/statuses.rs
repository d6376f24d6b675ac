//! Objects drawn by lot, each with the status that castle gives it: `STATUS` and the object as JSON, one pair a line. What
//! `kstatus` itself says of them is asked elsewhere.
#![allow(clippy::print_stdout, reason = "it prints what it drew")]

use std::time::UNIX_EPOCH;

use castle_kubernetes::model::{Object, Status, status};
use castle_seams::{Clock, SystemClock};
use serde_json::{Map, Value, json};

/// How many objects of each kind.
const EACH: usize = 1500;

/// The same lots in every run.
struct Lots(u64);

impl Lots {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % bound
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// Small numbers, mostly the same one, under some of these names.
    fn counts(&mut self, into: &mut Map<String, Value>, names: &[&str]) {
        let usual = self.below(3);
        for name in names {
            match self.below(12) {
                0 => {}
                1 => drop(into.insert((*name).to_owned(), self.below(3).into())),
                _ => drop(into.insert((*name).to_owned(), usual.into())),
            }
        }
    }

    fn conditions(&mut self, into: &mut Map<String, Value>, names: &[&str], reasons: &[&str]) {
        let mut list = Vec::new();
        for name in names {
            if self.below(3) > 0 {
                let status = self.one(&["True", "True", "False", "Unknown"]);
                list.push(json!({
                    "type": name, "status": status, "reason": self.one(reasons), "message": "m",
                    "lastTransitionTime": "2020-01-01T00:00:00Z",
                }));
            }
        }
        if self.below(6) > 0 {
            into.insert("conditions".to_owned(), list.into());
        }
    }
}

const KINDS: [(&str, &str); 14] = [
    ("apps/v1", "Deployment"),
    ("apps/v1", "DaemonSet"),
    ("apps/v1", "StatefulSet"),
    ("apps/v1", "ReplicaSet"),
    ("v1", "Pod"),
    ("batch/v1", "Job"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Service"),
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ("policy/v1", "PodDisruptionBudget"),
    ("batch/v1", "CronJob"),
    ("v1", "ConfigMap"),
    ("v1", "Namespace"),
    ("example.com/v1", "Thing"),
];

fn draw(lots: &mut Lots, api_version: &str, kind: &str) -> Value {
    let mut metadata = json!({"name": "x", "namespace": "n"});
    if lots.below(8) > 0 {
        metadata["generation"] = lots.one(&[1, 2, 2]).into();
    }
    if lots.below(30) == 0 {
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    }
    let (mut spec, mut told) = (Map::new(), Map::new());
    if lots.below(8) > 0 {
        told.insert("observedGeneration".to_owned(), lots.one(&[1, 2, 2, 2]).into());
    }
    match kind {
        "Deployment" => {
            lots.counts(&mut spec, &["replicas"]);
            if lots.below(2) == 0 {
                spec.insert("progressDeadlineSeconds".to_owned(), 600.into());
            }
            lots.counts(&mut told, &["replicas", "updatedReplicas", "availableReplicas", "readyReplicas"]);
            let reasons = ["NewReplicaSetAvailable", "NewReplicaSetAvailable", "ProgressDeadlineExceeded", "Other"];
            lots.conditions(&mut told, &["Progressing", "Available"], &reasons);
        }
        "DaemonSet" => lots.counts(
            &mut told,
            &[
                "desiredNumberScheduled",
                "currentNumberScheduled",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberReady",
            ],
        ),
        "StatefulSet" => {
            lots.counts(&mut spec, &["replicas"]);
            match lots.below(6) {
                0 => drop(spec.insert("updateStrategy".to_owned(), json!({"type": "OnDelete"}))),
                1 => {
                    let partition = lots.below(3);
                    let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": partition}});
                    spec.insert("updateStrategy".to_owned(), strategy);
                }
                _ => {}
            }
            lots.counts(&mut told, &["replicas", "readyReplicas", "currentReplicas", "updatedReplicas"]);
            for revision in ["currentRevision", "updateRevision"] {
                told.insert(revision.to_owned(), lots.one(&["a", "a", "b"]).into());
            }
        }
        "ReplicaSet" => {
            lots.counts(&mut spec, &["replicas"]);
            lots.counts(&mut told, &["replicas", "fullyLabeledReplicas", "availableReplicas", "readyReplicas"]);
            lots.conditions(&mut told, &["ReplicaFailure"], &["Other"]);
        }
        "Pod" => {
            told.insert("phase".to_owned(), lots.one(&["Pending", "Running", "Succeeded", "Failed", ""]).into());
            lots.conditions(&mut told, &["Ready", "PodScheduled"], &["Unschedulable", "Other"]);
            let reason = lots.one(&["CrashLoopBackOff", "ContainerCreating"]);
            let container = json!([{"name": "web", "state": {"waiting": {"reason": reason}}}]);
            if lots.below(3) == 0 {
                told.insert("containerStatuses".to_owned(), container);
            }
        }
        "Job" => {
            lots.conditions(&mut told, &["Complete", "Failed"], &["Other"]);
            if lots.below(2) == 0 {
                told.insert("startTime".to_owned(), "2026-01-01T00:00:00Z".into());
            }
        }
        "PersistentVolumeClaim" => {
            told.insert("phase".to_owned(), lots.one(&["Pending", "Bound", "Lost"]).into());
        }
        "Service" => {
            spec.insert("type".to_owned(), lots.one(&["LoadBalancer", "ClusterIP"]).into());
            if lots.below(2) == 0 {
                spec.insert("clusterIP".to_owned(), "10.0.0.1".into());
            }
        }
        "CustomResourceDefinition" => {
            lots.conditions(&mut told, &["NamesAccepted", "Established"], &["Installing", "Other"]);
        }
        _ => lots.conditions(&mut told, &["Ready", "Reconciling", "Stalled"], &["Other"]),
    }
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": told})
}

fn main() {
    let now = SystemClock::new().wall().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    let mut lots = Lots(1);
    for (api_version, kind) in KINDS {
        for _ in 0..EACH {
            let value = draw(&mut lots, api_version, kind);
            let Some(object) = Object::new(value.clone()) else { continue };
            let word = match status(&object, now) {
                Status::Current => "Current",
                Status::InProgress(_) => "InProgress",
                Status::Failed(_) => "Failed",
                Status::Terminating => "Terminating",
            };
            println!("{word}\t{value}");
        }
    }
}
