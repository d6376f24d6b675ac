//! How an object fares, by the rules that `kstatus` has made common.

use std::time::Duration;

use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::Object;

/// How long a Pod may find no node before that is a failure.
const SCHEDULING: Duration = Duration::from_secs(15);

/// How an object fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// As it should be, as far as its kind lets one tell.
    Current,
    /// On its way.
    InProgress(String),
    /// It will not get there by itself.
    Failed(String),
    /// On its way out.
    Terminating,
}

/// One condition of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// `True`, `False` or `Unknown`.
    pub status: &'a str,
    /// Why, in a word.
    pub reason: &'a str,
    /// Why, in a sentence.
    pub message: &'a str,
    /// The generation it was seen at, if it says so.
    pub generation: Option<i64>,
}

/// The condition of this type.
#[must_use]
pub fn condition<'a>(object: &'a Object, name: &str) -> Option<Condition<'a>> {
    let found = object.list("/status/conditions").iter().find(|condition| condition["type"] == name)?;
    let text = |key: &str| found[key].as_str().unwrap_or_default();
    Some(Condition {
        status: text("status"),
        reason: text("reason"),
        message: text("message"),
        generation: found["observedGeneration"].as_i64(),
    })
}

fn is_true(object: &Object, name: &str) -> bool {
    condition(object, name).is_some_and(|condition| condition.status == "True")
}

/// How an object fares at a time: seconds since 1970.
#[must_use]
pub fn status(object: &Object, now: u64) -> Status {
    if object.is_ending() {
        return Status::Terminating;
    }
    let observed = object.number("/status/observedGeneration");
    let generation = object.number("/metadata/generation");
    if let (Some(observed), Some(generation)) = (observed, generation)
        && observed != generation
    {
        return Status::InProgress(format!("generation {generation} is not seen yet, only {observed}"));
    }
    if let Some(reconciling) = condition(object, "Reconciling").filter(|condition| condition.status == "True") {
        return Status::InProgress(told(reconciling));
    }
    if let Some(stalled) = condition(object, "Stalled").filter(|condition| condition.status == "True") {
        return Status::Failed(told(stalled));
    }
    let kind = object.kind();
    let found = match (kind.group.as_str(), kind.kind.as_str()) {
        ("apps", "Deployment") => deployment(object),
        ("apps", "DaemonSet") => daemon_set(object),
        ("apps", "StatefulSet") => stateful_set(object),
        ("apps", "ReplicaSet") => replica_set(object),
        ("", "Pod") => pod(object, now),
        ("batch", "Job") => job(object),
        ("", "PersistentVolumeClaim") => phase(object, "Bound"),
        ("", "Service") => service(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("", "Secret" | "ConfigMap") | ("batch", "CronJob") | ("policy", "PodDisruptionBudget") => Ok(()),
        _ => match condition(object, "Ready") {
            Some(ready) if ready.status != "True" => Err(Status::InProgress(told(ready))),
            _ => Ok(()),
        },
    };
    found.err().unwrap_or(Status::Current)
}

/// What a condition says, fit to be shown.
fn told(condition: Condition<'_>) -> String {
    match (condition.reason, condition.message) {
        ("", "") => "no reason is given".to_owned(),
        (reason, "") => reason.to_owned(),
        ("", message) => message.to_owned(),
        (reason, message) => format!("{reason}: {message}"),
    }
}

type Found = Result<(), Status>;

/// So many of them are there, at least.
fn at_least(wanted: i64, is: i64, what: &str) -> Found {
    if is >= wanted { Ok(()) } else { Err(Status::InProgress(format!("{is} of {wanted} {what}"))) }
}

fn no_more(wanted: i64, is: i64) -> Found {
    if is <= wanted { Ok(()) } else { Err(Status::InProgress(format!("{} more than wanted", is - wanted))) }
}

fn deployment(object: &Object) -> Found {
    let progressing = condition(object, "Progressing");
    if let Some(exceeded) = progressing.filter(|condition| condition.reason == "ProgressDeadlineExceeded") {
        return Err(Status::Failed(told(exceeded)));
    }
    let count = |name: &str| object.number(&format!("/status/{name}")).unwrap_or(0);
    let wanted = object.number("/spec/replicas").unwrap_or(1);
    at_least(wanted, count("replicas"), "there")?;
    at_least(wanted, count("updatedReplicas"), "updated")?;
    no_more(wanted, count("replicas"))?;
    at_least(count("updatedReplicas"), count("availableReplicas"), "available")?;
    at_least(wanted, count("readyReplicas"), "ready")?;
    let has_deadline = object.number("/spec/progressDeadlineSeconds").is_some_and(|seconds| seconds < i32::MAX.into());
    let is_new =
        progressing.is_some_and(|condition| condition.status == "True" && condition.reason == "NewReplicaSetAvailable");
    if has_deadline && !is_new {
        return Err(Status::InProgress("its new ReplicaSet is not available".to_owned()));
    }
    if !is_true(object, "Available") {
        return Err(Status::InProgress("it is not available".to_owned()));
    }
    Ok(())
}

fn daemon_set(object: &Object) -> Found {
    let seen = object.number("/metadata/generation").and(object.number("/status/observedGeneration"));
    let desired = object.number("/status/desiredNumberScheduled");
    let (Some(_), Some(desired)) = (seen, desired) else {
        return Err(Status::InProgress("nobody has looked at it yet".to_owned()));
    };
    let count = |name: &str| object.number(&format!("/status/{name}")).unwrap_or(0);
    at_least(desired, count("currentNumberScheduled"), "scheduled")?;
    at_least(desired, count("updatedNumberScheduled"), "updated")?;
    at_least(desired, count("numberAvailable"), "available")?;
    at_least(desired, count("numberReady"), "ready")
}

fn stateful_set(object: &Object) -> Found {
    if object.text("/spec/updateStrategy/type") == "OnDelete" {
        return Ok(());
    }
    let count = |name: &str| object.number(&format!("/status/{name}")).unwrap_or(0);
    let wanted = object.number("/spec/replicas").unwrap_or(1);
    at_least(wanted, count("replicas"), "there")?;
    at_least(wanted, count("readyReplicas"), "ready")?;
    no_more(wanted, count("replicas"))?;
    if let Some(partition) = object.number("/spec/updateStrategy/rollingUpdate/partition") {
        return at_least(wanted - partition, count("updatedReplicas"), "updated");
    }
    at_least(wanted, count("currentReplicas"), "current")?;
    if object.text("/status/currentRevision") != object.text("/status/updateRevision") {
        return Err(Status::InProgress("it is between two revisions".to_owned()));
    }
    Ok(())
}

fn replica_set(object: &Object) -> Found {
    if let Some(failure) = condition(object, "ReplicaFailure").filter(|condition| condition.status == "True") {
        return Err(Status::InProgress(told(failure)));
    }
    let count = |name: &str| object.number(&format!("/status/{name}")).unwrap_or(0);
    let wanted = object.number("/spec/replicas").unwrap_or(1);
    at_least(wanted, count("fullyLabeledReplicas"), "labelled")?;
    at_least(wanted, count("availableReplicas"), "available")?;
    at_least(wanted, count("readyReplicas"), "ready")?;
    no_more(wanted, count("replicas"))
}

fn pod(object: &Object, now: u64) -> Found {
    match object.text("/status/phase") {
        "Succeeded" | "Failed" => Ok(()),
        "Running" if is_true(object, "Ready") => Ok(()),
        "Running" => Err(looping(object).unwrap_or_else(|| Status::InProgress("it is not ready".to_owned()))),
        "Pending" => {
            let scheduled = condition(object, "PodScheduled");
            match scheduled.filter(|condition| condition.status == "False" && condition.reason == "Unschedulable") {
                Some(homeless) if age(object, now) >= SCHEDULING => Err(Status::Failed(told(homeless))),
                Some(homeless) => Err(Status::InProgress(told(homeless))),
                None => Err(Status::InProgress("it is pending".to_owned())),
            }
        }
        _ => Err(Status::InProgress("it has no phase yet".to_owned())),
    }
}

/// A container that ends again and again.
fn looping(pod: &Object) -> Option<Status> {
    let looping = pod.list("/status/containerStatuses").iter().find(|container| {
        container.pointer("/state/waiting/reason").and_then(Value::as_str) == Some("CrashLoopBackOff")
    })?;
    let name = looping["name"].as_str().unwrap_or_default();
    Some(Status::Failed(format!("CrashLoopBackOff: container {name} ends again and again")))
}

/// How old an object is, so many seconds after 1970. Nobody knows when what has no date was made: long ago.
#[must_use]
pub fn age(object: &Object, now: u64) -> Duration {
    let made = OffsetDateTime::parse(object.text("/metadata/creationTimestamp"), &Rfc3339).ok();
    let made = made.and_then(|made| u64::try_from(made.unix_timestamp()).ok()).unwrap_or(0);
    Duration::from_secs(now.saturating_sub(made))
}

fn job(object: &Object) -> Found {
    if is_true(object, "Complete") {
        return Ok(());
    }
    if let Some(failed) = condition(object, "Failed").filter(|condition| condition.status == "True") {
        return Err(Status::Failed(told(failed)));
    }
    // One that has begun counts, strange as that is.
    if object.text("/status/startTime").is_empty() {
        return Err(Status::InProgress("it has not begun".to_owned()));
    }
    Ok(())
}

fn phase(object: &Object, wanted: &str) -> Found {
    match object.text("/status/phase") {
        phase if phase == wanted => Ok(()),
        "" => Err(Status::InProgress("it has no phase yet".to_owned())),
        phase => Err(Status::InProgress(format!("it is {phase}"))),
    }
}

fn service(object: &Object) -> Found {
    if object.text("/spec/type") == "LoadBalancer" && object.text("/spec/clusterIP").is_empty() {
        return Err(Status::InProgress("it has no address in the cluster".to_owned()));
    }
    Ok(())
}

fn definition(object: &Object) -> Found {
    if let Some(names) = condition(object, "NamesAccepted").filter(|condition| condition.status == "False") {
        return Err(Status::Failed(told(names)));
    }
    match condition(object, "Established") {
        Some(established) if established.status == "True" => Ok(()),
        Some(established) if established.status == "False" && established.reason != "Installing" => {
            Err(Status::Failed(told(established)))
        }
        _ => Err(Status::InProgress("it is not established".to_owned())),
    }
}

#[cfg(test)]
mod tests;
