//! Objects as the tables that `kubectl get` prints, or as no more than their metadata.

use std::time::Duration;

use serde_json::{Value, json};

use super::api::Call;
use super::crd;
use super::kinds::{Resource, Shape};
use super::kube::{Kube, unstamp};
use super::request::Query;
use super::value;

/// In which form objects are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A table; with the whole objects, their metadata, or nothing of them.
    Table(Include),
    /// Their metadata alone.
    Metadata,
}

/// What of its object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Form {
    /// What a client accepts first; nothing if it wants plain objects.
    pub(crate) fn of(accept: &str, query: &Query) -> Option<Self> {
        let first =
            accept.split(',').map(str::trim).find(|kind| kind.starts_with("application/json") || *kind == "*/*")?;
        if first.contains("as=Table") {
            return Some(Self::Table(match query.get("includeObject") {
                Some("None") => Include::None,
                Some("Object") => Include::Object,
                _ => Include::Metadata,
            }));
        }
        first.contains("as=PartialObjectMetadata").then_some(Self::Metadata)
    }
}

/// An answer in the form that the client wants.
pub(crate) fn for_client(kube: &Kube, call: &Call<'_>, object: Value) -> Value {
    let Some(form) = Form::of(&call.ask.accept, &call.ask.query) else { return object };
    let kind = value::text(&object, "kind");
    if kind == "Status" || call.ask.method != "GET" {
        return object;
    }
    if kind != call.resource.list_kind {
        return of_one(kube, &call.resource, &form, &object);
    }
    let items = value::items(&object, "items");
    match form {
        Form::Metadata => {
            let items: Vec<Value> = items.iter().map(partial).collect();
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"], "items": items })
        }
        Form::Table(include) => {
            let mut metadata = object["metadata"].clone();
            if value::text(&metadata, "continue").is_empty() {
                value::remove(&mut metadata, "continue");
            }
            table(kube, &call.resource, items, include, &metadata)
        }
    }
}

/// One object in a form.
pub(crate) fn of_one(kube: &Kube, resource: &Resource, form: &Form, object: &Value) -> Value {
    match form {
        Form::Metadata => partial(object),
        Form::Table(include) => {
            let metadata = json!({ "resourceVersion": value::text(object, "metadata.resourceVersion") });
            table(kube, resource, std::slice::from_ref(object), *include, &metadata)
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn table(kube: &Kube, resource: &Resource, items: &[Value], include: Include, metadata: &Value) -> Value {
    let columns = columns(resource);
    let definitions: Vec<Value> = (columns.iter())
        .map(|column| {
            let format = if column.name == "Name" { "name" } else { "" };
            json!({ "name": column.name, "type": column.kind, "format": format, "description": "", "priority": column.priority })
        })
        .collect();
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            let cells: Vec<Value> = columns.iter().map(|column| column.cell(kube, item)).collect();
            let mut row = json!({ "cells": cells });
            match include {
                Include::None => value::set(&mut row, "object", Value::Null),
                Include::Metadata => value::set(&mut row, "object", partial(item)),
                Include::Object => value::set(&mut row, "object", super::api::self_version(resource, item)),
            }
            row
        })
        .collect();
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows })
}

/// How a cell is found.
enum Source {
    Path(String),
    Of(fn(&Value) -> Value),
    Age(String),
}

struct Column {
    name: String,
    kind: String,
    priority: i64,
    source: Source,
}

impl Column {
    fn cell(&self, kube: &Kube, object: &Value) -> Value {
        match &self.source {
            Source::Path(path) => value::at(object, path)
                .cloned()
                .unwrap_or_else(|| json!(if self.kind == "string" { "<none>" } else { "" })),
            Source::Of(of) => of(object),
            Source::Age(path) => match value::at(object, path).and_then(Value::as_str).and_then(unstamp) {
                Some(since) => json!(age((kube.calendar + kube.now).saturating_sub(since))),
                None => json!("<unknown>"),
            },
        }
    }
}

/// A time as people read it: `5m30s`, `3h`, `12d`.
fn age(time: Duration) -> String {
    let seconds = time.as_secs();
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |big: u64, unit: &str, small: u64, other: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{other}") }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => format!("{}y{}d", days / 365, days % 365),
    }
}

fn columns(resource: &Resource) -> Vec<Column> {
    let of = |name: &str, kind: &str, of: fn(&Value) -> Value| Column {
        name: name.into(),
        kind: kind.into(),
        priority: 0,
        source: Source::Of(of),
    };
    let at = |name: &str, path: &str| Column {
        name: name.into(),
        kind: "string".into(),
        priority: 0,
        source: Source::Path(path.into()),
    };
    let wide = |mut column: Column| {
        column.priority = 1;
        column
    };
    let mut all = vec![at("Name", "metadata.name")];
    if let Shape::Custom(custom) = &resource.shape {
        return custom_columns(&custom.columns, all);
    }
    let ready = |name: &str, path: fn(&Value) -> Value| of(name, "string", path);
    match resource.qualified().as_str() {
        "pods" => all.extend([
            ready("Ready", |pod| {
                let statuses = value::items(pod, "status.containerStatuses");
                let ready = statuses.iter().filter(|it| value::is_true(it, "ready")).count();
                json!(format!("{ready}/{}", value::items(pod, "spec.containers").len()))
            }),
            of("Status", "string", pod_status),
            of("Restarts", "string", |pod| {
                let restarts: i64 = value::items(pod, "status.containerStatuses")
                    .iter()
                    .filter_map(|it| value::number(it, "restartCount"))
                    .sum();
                json!(restarts.to_string())
            }),
            age_column(),
            wide(at("IP", "status.podIP")),
            wide(at("Node", "spec.nodeName")),
        ]),
        "deployments.apps" => all.extend([
            ready("Ready", |it| {
                json!(format!("{}/{}", number(it, "status.readyReplicas"), number(it, "spec.replicas")))
            }),
            of("Up-to-date", "string", |it| json!(number(it, "status.updatedReplicas"))),
            of("Available", "string", |it| json!(number(it, "status.availableReplicas"))),
            age_column(),
            wide(of("Containers", "string", |it| names(it, "name"))),
            wide(of("Images", "string", |it| names(it, "image"))),
            wide(of("Selector", "string", |it| json!(super::scale::written(&it["spec"]["selector"])))),
        ]),
        "replicasets.apps" => all.extend([
            of("Desired", "integer", |it| json!(number(it, "spec.replicas"))),
            of("Current", "integer", |it| json!(number(it, "status.replicas"))),
            of("Ready", "integer", |it| json!(number(it, "status.readyReplicas"))),
            age_column(),
        ]),
        "statefulsets.apps" => {
            all.extend([
                ready("Ready", |it| {
                    json!(format!("{}/{}", number(it, "status.readyReplicas"), number(it, "spec.replicas")))
                }),
                age_column(),
            ]);
        }
        "daemonsets.apps" => all.extend([
            of("Desired", "integer", |it| json!(number(it, "status.desiredNumberScheduled"))),
            of("Current", "integer", |it| json!(number(it, "status.currentNumberScheduled"))),
            of("Ready", "integer", |it| json!(number(it, "status.numberReady"))),
            of("Up-to-date", "integer", |it| json!(number(it, "status.updatedNumberScheduled"))),
            of("Available", "integer", |it| json!(number(it, "status.numberAvailable"))),
            of("Node Selector", "string", |it| {
                let labels: Vec<String> = value::members(it, "spec.template.spec.nodeSelector")
                    .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
                    .collect();
                json!(if labels.is_empty() { "<none>".to_owned() } else { labels.join(",") })
            }),
            age_column(),
        ]),
        "jobs.batch" => all.extend([
            of("Status", "string", |it| {
                json!(if crd::is(it, "Complete") {
                    "Complete"
                } else if crd::is(it, "Failed") {
                    "Failed"
                } else {
                    "Running"
                })
            }),
            of("Completions", "string", |it| {
                json!(format!("{}/{}", number(it, "status.succeeded"), number(it, "spec.completions")))
            }),
            age_column(),
        ]),
        "services" => all.extend([
            at("Type", "spec.type"),
            at("Cluster-IP", "spec.clusterIP"),
            of("External-IP", "string", |it| {
                let ingress: Vec<&str> =
                    value::items(it, "status.loadBalancer.ingress").iter().map(|way| value::text(way, "ip")).collect();
                let is_pending = ingress.is_empty() && value::text(it, "spec.type") == "LoadBalancer";
                json!(if is_pending {
                    "<pending>".to_owned()
                } else if ingress.is_empty() {
                    "<none>".to_owned()
                } else {
                    ingress.join(",")
                })
            }),
            of("Port(s)", "string", |it| {
                let ports: Vec<String> = value::items(it, "spec.ports")
                    .iter()
                    .map(|port| {
                        let node = value::number(port, "nodePort").map(|node| format!(":{node}")).unwrap_or_default();
                        format!("{}{node}/{}", number(port, "port"), value::text(port, "protocol"))
                    })
                    .collect();
                json!(if ports.is_empty() { "<none>".to_owned() } else { ports.join(",") })
            }),
            age_column(),
        ]),
        "nodes" => all.extend([
            of("Status", "string", |it| {
                let word = if crd::is(it, "Ready") { "Ready" } else { "NotReady" };
                json!(if value::is_true(it, "spec.unschedulable") {
                    format!("{word},SchedulingDisabled")
                } else {
                    word.to_owned()
                })
            }),
            of("Roles", "string", |it| {
                let roles: Vec<&str> = value::members(it, "metadata.labels")
                    .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
                    .collect();
                json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") })
            }),
            age_column(),
            at("Version", "status.nodeInfo.kubeletVersion"),
        ]),
        "namespaces" => all.extend([at("Status", "status.phase"), age_column()]),
        "configmaps" => {
            all.extend([of("Data", "string", |it| json!(count(it, "data") + count(it, "binaryData"))), age_column()]);
        }
        "secrets" => {
            all.extend([at("Type", "type"), of("Data", "string", |it| json!(count(it, "data"))), age_column()]);
        }
        "events" => {
            all = vec![
                Column {
                    name: "Last Seen".into(),
                    kind: "string".into(),
                    priority: 0,
                    source: Source::Age("lastTimestamp".into()),
                },
                at("Type", "type"),
                at("Reason", "reason"),
                of("Object", "string", |it| {
                    json!(format!(
                        "{}/{}",
                        value::text(it, "involvedObject.kind").to_lowercase(),
                        value::text(it, "involvedObject.name")
                    ))
                }),
                at("Message", "message"),
                wide(at("Name", "metadata.name")),
            ];
        }
        "persistentvolumeclaims" => all.extend([
            at("Status", "status.phase"),
            at("Volume", "spec.volumeName"),
            at("Capacity", "status.capacity.storage"),
            at("StorageClass", "spec.storageClassName"),
            age_column(),
        ]),
        "storageclasses.storage.k8s.io" => all.extend([
            at("Provisioner", "provisioner"),
            at("ReclaimPolicy", "reclaimPolicy"),
            at("VolumeBindingMode", "volumeBindingMode"),
            age_column(),
        ]),
        crd::DEFINITIONS => all.push(Column {
            name: "Created At".into(),
            kind: "date".into(),
            priority: 0,
            source: Source::Path("metadata.creationTimestamp".into()),
        }),
        _ => all.push(age_column()),
    }
    all
}

fn custom_columns(wanted: &[Value], mut all: Vec<Column>) -> Vec<Column> {
    if wanted.is_empty() {
        all.push(age_column());
        return all;
    }
    for column in wanted {
        let path = value::text(column, "jsonPath").trim_start_matches('.').to_owned();
        let kind = value::text(column, "type");
        // Paths with choices in them are shown as empty.
        let source = match kind {
            "date" => Source::Age(path),
            _ if path.contains(['[', '?', '\\']) => condition_path(&path),
            _ => Source::Path(path),
        };
        all.push(Column {
            name: value::text(column, "name").to_owned(),
            kind: kind.to_owned(),
            priority: value::number(column, "priority").unwrap_or(0),
            source,
        });
    }
    all
}

/// `.status.conditions[?(@.type=="Ready")].status`, which is what nearly all such paths are.
fn condition_path(path: &str) -> Source {
    match path {
        r#"status.conditions[?(@.type=="Ready")].status"# => Source::Of(|object| ready_part(object, "status")),
        r#"status.conditions[?(@.type=="Ready")].message"# => Source::Of(|object| ready_part(object, "message")),
        r#"status.conditions[?(@.type=="Ready")].reason"# => Source::Of(|object| ready_part(object, "reason")),
        _ => Source::Of(|_| json!("")),
    }
}

fn ready_part(object: &Value, part: &str) -> Value {
    let ready = value::items(object, "status.conditions").iter().find(|it| value::text(it, "type") == "Ready");
    ready.and_then(|it| it.get(part)).cloned().unwrap_or_else(|| json!(""))
}

fn age_column() -> Column {
    Column {
        name: "Age".into(),
        kind: "string".into(),
        priority: 0,
        source: Source::Age("metadata.creationTimestamp".into()),
    }
}

fn number(object: &Value, path: &str) -> i64 {
    value::number(object, path).unwrap_or(0)
}

fn count(object: &Value, path: &str) -> usize {
    value::members(object, path).count()
}

fn names(object: &Value, key: &str) -> Value {
    let names: Vec<&str> =
        value::items(object, "spec.template.spec.containers").iter().map(|it| value::text(it, key)).collect();
    json!(names.join(","))
}

fn pod_status(pod: &Value) -> Value {
    if value::is_deleting(pod) {
        return json!("Terminating");
    }
    let waiting =
        value::items(pod, "status.containerStatuses").iter().map(|it| value::text(it, "state.waiting.reason"));
    let reason = waiting.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default();
    json!(if reason.is_empty() { value::text(pod, "status.phase") } else { reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_read_them() {
        for (seconds, text) in [
            (5, "5s"),
            (119, "119s"),
            (120, "2m"),
            (330, "5m30s"),
            (7_200, "120m"),
            (14_400, "4h"),
            (90_000, "25h"),
            (900_000, "10d"),
        ] {
            assert_eq!(age(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn a_client_says_what_it_wants() {
        let query = Query::default();
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Form::of(table, &query), Some(Form::Table(Include::Metadata)));
        assert_eq!(
            Form::of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", &query),
            Some(Form::Metadata)
        );
        assert_eq!(Form::of("application/json", &query), None);
        assert_eq!(Form::of("", &query), None);
    }
}
