//! Workloads that cannot come up as they are written, or keep others waiting.

use std::time::Duration;

use serde_json::Value;

use super::{Case, Code, Finding};
use crate::flux::Group;
use crate::object::Object;

/// Charts that take many minutes on a new cluster: large images, many Pods, or databases that must be made first.
const SLOW: &[&str] = &[
    "argo-cd",
    "elasticsearch",
    "gitlab",
    "harbor",
    "kube-prometheus-stack",
    "loki",
    "mastodon",
    "nextcloud",
    "opensearch",
    "rook-ceph",
    "rook-ceph-cluster",
    "sentry",
];
/// How long Helm waits for a release unless told otherwise.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(300);
/// What kustomize-controller leaves of an interval for its own work.
const RESERVED: Duration = Duration::from_secs(30);

pub(super) fn judge(case: &mut Case<'_>) {
    let mut found = Vec::new();
    for (group, release) in case.forest.releases() {
        found.extend(slow(case, group, release));
    }
    for (_, object) in case.forest.objects() {
        if object.is("apps", "Deployment") || object.is("apps", "ReplicaSet") {
            found.extend(shared_volume(case, object));
        }
    }
    case.findings.extend(found);
}

fn slow(case: &Case<'_>, group: &Group, release: &Object) -> Option<Finding> {
    let own = &group.kustomization;
    if own.value["spec"]["wait"] != true || own.value["spec"]["suspend"] == true {
        return None;
    }
    let chart = case.forest.chart(release)?;
    if SLOW.contains(&chart.as_str()) {
        return Some(Finding::of(
            Code::SlowChartWaited,
            release,
            "/spec",
            format!(
                "the chart {chart} takes many minutes, and {} waits for all it applies: so does whatever depends on it",
                group.name()
            ),
            "move it to a Kustomization of its own without wait: true, that nothing critical depends on",
        )
        .because(format!("{chart} in {}", group.name())));
    }
    let of_release = duration(release.text("/spec/timeout")).unwrap_or(RELEASE_TIMEOUT);
    let interval = duration(own.text("/spec/interval")).unwrap_or(Duration::MAX);
    let of_group = duration(own.text("/spec/timeout")).unwrap_or(interval.saturating_sub(RESERVED).max(RESERVED));
    (of_release > of_group).then(|| {
        Finding::of(
            Code::SlowChartWaited,
            release,
            "/spec/timeout",
            format!(
                "may take {} s, and {} gives up after {} s: it fails while the chart still installs",
                of_release.as_secs(),
                group.name(),
                of_group.as_secs()
            ),
            format!("set spec.timeout of {} above that of the release", group.name()),
        )
        .because(group.name())
    })
}

/// A duration as Go writes it: `1h30m`.
fn duration(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut number = String::new();
    let mut letters = text.chars().peekable();
    if text.is_empty() {
        return None;
    }
    while let Some(c) = letters.next() {
        let unit = match c {
            '0'..='9' | '.' => {
                number.push(c);
                continue;
            }
            'h' => 3600.0,
            'm' if letters.next_if_eq(&'s').is_some() => 0.001,
            'm' => 60.0,
            's' => 1.0,
            _ => return None,
        };
        total = total.checked_add(Duration::try_from_secs_f64(number.parse::<f64>().ok()? * unit).ok()?)?;
        number.clear();
    }
    number.is_empty().then_some(total)
}

/// Several Pods on a claim that one node alone can mount.
fn shared_volume(case: &Case<'_>, workload: &Object) -> Option<Finding> {
    let replicas = workload.value.pointer("/spec/replicas").and_then(Value::as_u64).unwrap_or(1);
    let scaled = case.forest.objects().map(|(_, object)| object).any(|object| {
        object.kind() == "HorizontalPodAutoscaler"
            && object.namespace() == workload.namespace()
            && object.text("/spec/scaleTargetRef/name") == workload.name()
            && object.value["spec"]["maxReplicas"].as_u64().unwrap_or(1) > 1
    });
    if replicas < 2 && !scaled {
        return None;
    }
    workload.list("/spec/template/spec/volumes").enumerate().find_map(|(index, volume)| {
        let name = volume["persistentVolumeClaim"]["claimName"].as_str()?;
        let claim = case.forest.objects().map(|(_, object)| object).find(|object| {
            object.is("", "PersistentVolumeClaim")
                && object.name() == name
                && object.reference().namespace == workload.reference().namespace
        })?;
        let modes: Vec<&str> = claim.list("/spec/accessModes").filter_map(Value::as_str).collect();
        if modes.is_empty() || modes.iter().any(|mode| mode.ends_with("Many")) {
            return None;
        }
        Some(Finding::of(
            Code::ReplicasOnOneVolume,
            workload,
            &format!("/spec/template/spec/volumes/{index}"),
            format!("several Pods mount the claim {name}, which is {}: those on other nodes stay in ContainerCreating (Multi-Attach)", modes.join(", ")),
            "if every Pod can fetch the content itself, mount an emptyDir and let a side-car fill it (git-sync); else ReadWriteMany, or a StatefulSet with a claim for each",
        )
        .because(format!("{}/{name}", workload.reference().namespace)))
    })
}
