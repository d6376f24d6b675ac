//! Whether an object is what it is meant to be, as Flux reads it.

use serde_json::Value;

use crate::kubernetes::value;

/// What became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Current,
    InProgress,
    Failed,
    Terminating,
}

impl Health {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Current => "Current",
            Self::InProgress => "InProgress",
            Self::Failed => "Failed",
            Self::Terminating => "Terminating",
        }
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    value::items(object, "status.conditions").iter().find(|it| value::text(it, "type") == kind)
}

fn status(object: &Value, kind: &str) -> &'static str {
    match condition(object, kind).map(|it| value::text(it, "status")) {
        Some("True") => "True",
        Some(_) => "False",
        None => "",
    }
}

/// What an object says of itself.
pub(super) fn of(object: &Value) -> Health {
    use Health::{Current, Failed, InProgress, Terminating};
    if value::is_deleting(object) {
        return Terminating;
    }
    let generation = value::number(object, "metadata.generation");
    let observed = value::number(object, "status.observedGeneration");
    if observed.is_some() && observed != generation || status(object, "Reconciling") == "True" {
        return InProgress;
    }
    if status(object, "Stalled") == "True" {
        return Failed;
    }
    let number = |path: &str| value::number(object, path).unwrap_or(0);
    let when = |holds: bool| if holds { Current } else { InProgress };
    match value::text(object, "kind") {
        "Deployment" => {
            let wanted = value::number(object, "spec.replicas").unwrap_or(1);
            let progress = condition(object, "Progressing").map(|it| value::text(it, "reason")).unwrap_or_default();
            if progress == "ProgressDeadlineExceeded" {
                return Failed;
            }
            let (all, updated) = (number("status.replicas"), number("status.updatedReplicas"));
            let is_whole = updated == wanted && all == updated && number("status.availableReplicas") >= updated;
            let is_new =
                progress == "NewReplicaSetAvailable" || value::at(object, "spec.progressDeadlineSeconds").is_none();
            let is_ready = number("status.readyReplicas") >= wanted && status(object, "Available") == "True";
            when(is_whole && is_ready && is_new)
        }
        "DaemonSet" => {
            let desired = number("status.desiredNumberScheduled");
            let all = ["currentNumberScheduled", "updatedNumberScheduled", "numberAvailable", "numberReady"];
            when(observed.is_some() && all.iter().all(|key| number(&format!("status.{key}")) >= desired))
        }
        "StatefulSet" => {
            let wanted = value::number(object, "spec.replicas").unwrap_or(1);
            let is_ready = number("status.readyReplicas") >= wanted && number("status.currentReplicas") >= wanted;
            when(is_ready || value::text(object, "spec.updateStrategy.type") == "OnDelete")
        }
        "Pod" => match value::text(object, "status.phase") {
            "Succeeded" | "Failed" => Current,
            _ => {
                let statuses = value::items(object, "status.containerStatuses");
                let crashes = |it: &Value| value::text(it, "state.waiting.reason") == "CrashLoopBackOff";
                if statuses.iter().any(crashes) { Failed } else { when(status(object, "Ready") == "True") }
            }
        },
        // Flux waits for what a job does.
        "Job" if status(object, "Failed") == "True" => Failed,
        "Job" => when(status(object, "Complete") == "True"),
        "PersistentVolumeClaim" => when(value::text(object, "status.phase") == "Bound"),
        "CustomResourceDefinition"
            if condition(object, "NamesAccepted").is_some() && status(object, "NamesAccepted") == "False" =>
        {
            Failed
        }
        "CustomResourceDefinition" => when(status(object, "Established") == "True"),
        "Service" if value::text(object, "spec.type") == "LoadBalancer" => {
            when(!value::text(object, "spec.clusterIP").is_empty())
        }
        _ => when(status(object, "Ready") != "False"),
    }
}
