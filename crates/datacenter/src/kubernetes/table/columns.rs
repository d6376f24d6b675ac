//! What `kubectl get` shows of each kind.

use std::time::Duration;

use serde_json::{Value, json};

use crate::kubernetes::kinds::{Resource, Shape};
use crate::kubernetes::kube::{Kube, unstamp};
use crate::kubernetes::{crd, value};

mod others;
mod volumes;
mod workloads;
use others::others;
use volumes::volumes;
use workloads::workloads;

/// What a cell is made of: an object, and the time.
pub(super) struct Row<'a> {
    pub(super) kube: &'a Kube,
    pub(super) object: &'a Value,
}

impl Row<'_> {
    fn text(&self, path: &str) -> &str {
        value::text(self.object, path)
    }

    fn number(&self, path: &str) -> i64 {
        value::number(self.object, path).unwrap_or(0)
    }

    fn count(&self, path: &str) -> usize {
        value::members(self.object, path).count() + value::items(self.object, path).len()
    }

    /// How long something is ago.
    fn since(&self, path: &str) -> Value {
        match value::at(self.object, path).and_then(Value::as_str).and_then(unstamp) {
            Some(since) => json!(age((self.kube.calendar + self.kube.now).saturating_sub(since))),
            None => json!("<unknown>"),
        }
    }

    /// The texts of a list, with commas.
    fn listed(&self, path: &str, key: &str) -> Value {
        or_none(&value::items(self.object, path).iter().map(|it| value::text(it, key)).collect::<Vec<_>>().join(","))
    }
}

/// How a cell is found.
enum Source {
    Path(String),
    Since(String),
    Of(fn(&Row<'_>) -> Value),
}

/// A column.
pub(super) struct Column {
    pub(super) name: String,
    pub(super) kind: String,
    pub(super) priority: i64,
    source: Source,
}

impl Column {
    fn new(name: &str, kind: &str, source: Source) -> Self {
        Self { name: name.to_owned(), kind: kind.to_owned(), priority: 0, source }
    }

    /// One that is only shown where there is room.
    fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    pub(super) fn cell(&self, row: &Row<'_>) -> Value {
        match &self.source {
            Source::Path(path) => value::at(row.object, path).cloned().unwrap_or(Value::Null),
            Source::Since(path) => row.since(path),
            Source::Of(of) => of(row),
        }
    }
}

fn of(name: &str, kind: &str, cell: fn(&Row<'_>) -> Value) -> Column {
    Column::new(name, kind, Source::Of(cell))
}

fn text(name: &str, cell: fn(&Row<'_>) -> Value) -> Column {
    of(name, "string", cell)
}

fn integer(name: &str, cell: fn(&Row<'_>) -> Value) -> Column {
    of(name, "integer", cell)
}

fn at(name: &str, path: &str) -> Column {
    Column::new(name, "string", Source::Path(path.to_owned()))
}

fn age_column() -> Column {
    Column::new("Age", "string", Source::Since("metadata.creationTimestamp".to_owned()))
}

fn created() -> Column {
    Column::new("Created At", "date", Source::Path("metadata.creationTimestamp".to_owned()))
}

fn or_none(text: &str) -> Value {
    json!(if text.is_empty() { "<none>" } else { text })
}

/// A time as people read it: `5m30s`, `3h`, `12d`.
pub(super) fn age(time: Duration) -> String {
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

/// The columns of a kind.
pub(super) fn columns(resource: &Resource) -> Vec<Column> {
    let mut all = vec![at("Name", "metadata.name")];
    if let Shape::Custom(custom) = &resource.shape {
        all.extend(custom_columns(&custom.columns));
        return all;
    }
    match resource.qualified().as_str() {
        "events" | super::super::events::NEW => all = events(),
        "storageclasses.storage.k8s.io" => all = storage_classes(),
        "pods" => all.extend(pods()),
        "nodes" => all.extend(nodes()),
        "services" => all.extend(services()),
        "persistentvolumeclaims" | "persistentvolumes" => all.extend(volumes(resource.is("persistentvolumes"))),
        collection if collection.ends_with(".apps") || collection.ends_with(".batch") => {
            all.extend(workloads(collection));
        }
        collection => all.extend(others(collection)),
    }
    all
}

fn pods() -> Vec<Column> {
    vec![
        text("Ready", |row| {
            let statuses = value::items(row.object, "status.containerStatuses");
            let ready = statuses.iter().filter(|it| value::is_true(it, "ready")).count();
            json!(format!("{ready}/{}", row.count("spec.containers")))
        }),
        text("Status", pod_status),
        text("Restarts", |row| {
            let statuses = value::items(row.object, "status.containerStatuses").iter();
            let restarts: i64 = statuses.clone().filter_map(|it| value::number(it, "restartCount")).sum();
            let last = statuses.filter_map(|it| unstamp(value::text(it, "lastState.terminated.finishedAt"))).max();
            json!(match last.filter(|_| restarts > 0) {
                Some(last) => {
                    let ago = (row.kube.calendar + row.kube.now).saturating_sub(last);
                    format!("{restarts} ({} ago)", age(ago))
                }
                None => restarts.to_string(),
            })
        }),
        age_column(),
        text("IP", |row| or_none(row.text("status.podIP"))).wide(),
        text("Node", |row| or_none(row.text("spec.nodeName"))).wide(),
        text("Nominated Node", |row| or_none(row.text("status.nominatedNodeName"))).wide(),
        text("Readiness Gates", |_| json!("<none>")).wide(),
    ]
}

fn pod_status(row: &Row<'_>) -> Value {
    if value::is_deleting(row.object) {
        return json!("Terminating");
    }
    let statuses = value::items(row.object, "status.containerStatuses").iter();
    let reasons = statuses.map(|it| match value::text(it, "state.waiting.reason") {
        "" => value::text(it, "state.terminated.reason"),
        waiting => waiting,
    });
    let reason = reasons.into_iter().find(|reason| !reason.is_empty()).unwrap_or_default();
    json!(if reason.is_empty() { row.text("status.phase") } else { reason })
}

fn nodes() -> Vec<Column> {
    fn address(row: &Row<'_>, kind: &str) -> Value {
        let all = value::items(row.object, "status.addresses").iter();
        let found = all.filter(|it| value::text(it, "type") == kind).map(|it| value::text(it, "address")).next();
        or_none(found.unwrap_or_default())
    }
    vec![
        text("Status", |row| {
            let word = if crd::is(row.object, "Ready") { "Ready" } else { "NotReady" };
            let is_closed = value::is_true(row.object, "spec.unschedulable");
            json!(if is_closed { format!("{word},SchedulingDisabled") } else { word.to_owned() })
        }),
        text("Roles", |row| {
            let labels = value::members(row.object, "metadata.labels");
            let roles: Vec<&str> = labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
            or_none(&roles.join(","))
        }),
        age_column(),
        at("Version", "status.nodeInfo.kubeletVersion"),
        text("Internal-IP", |row| address(row, "InternalIP")).wide(),
        text("External-IP", |row| address(row, "ExternalIP")).wide(),
        at("OS-Image", "status.nodeInfo.osImage").wide(),
        at("Kernel-Version", "status.nodeInfo.kernelVersion").wide(),
        at("Container-Runtime", "status.nodeInfo.containerRuntimeVersion").wide(),
    ]
}

fn services() -> Vec<Column> {
    vec![
        at("Type", "spec.type"),
        text("Cluster-IP", |row| or_none(row.text("spec.clusterIP"))),
        text("External-IP", |row| {
            let ingress: Vec<&str> = value::items(row.object, "status.loadBalancer.ingress")
                .iter()
                .map(|way| match value::text(way, "ip") {
                    "" => value::text(way, "hostname"),
                    ip => ip,
                })
                .collect();
            match row.text("spec.type") {
                "ExternalName" => json!(row.text("spec.externalName")),
                "LoadBalancer" if ingress.is_empty() => json!("<pending>"),
                _ => or_none(&ingress.join(",")),
            }
        }),
        text("Port(s)", |row| {
            let ports = value::items(row.object, "spec.ports").iter().map(|port| {
                let node = value::number(port, "nodePort").map(|node| format!(":{node}")).unwrap_or_default();
                format!("{}{node}/{}", value::number(port, "port").unwrap_or(0), value::text(port, "protocol"))
            });
            or_none(&ports.collect::<Vec<_>>().join(","))
        }),
        age_column(),
        text("Selector", |row| {
            let pairs = value::members(row.object, "spec.selector");
            let pairs = pairs.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            or_none(&pairs.collect::<Vec<_>>().join(","))
        })
        .wide(),
    ]
}

fn events() -> Vec<Column> {
    vec![
        Column::new("Last Seen", "string", Source::Since("lastTimestamp".to_owned())),
        at("Type", "type"),
        at("Reason", "reason"),
        text("Object", |row| {
            let kind = row.text("involvedObject.kind").to_lowercase();
            json!(format!("{kind}/{}", row.text("involvedObject.name")))
        }),
        text("Subobject", |row| json!(row.text("involvedObject.fieldPath"))).wide(),
        text("Source", |row| {
            let parts = [row.text("source.component"), row.text("source.host")];
            json!(parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", "))
        })
        .wide(),
        text("Message", |row| json!(row.text("message").trim())),
        Column::new("First Seen", "string", Source::Since("firstTimestamp".to_owned())).wide(),
        text("Count", |row| json!(row.number("count").max(1))).wide(),
        at("Name", "metadata.name").wide(),
    ]
}

fn storage_classes() -> Vec<Column> {
    vec![
        text("Name", |row| {
            let annotations = value::at(row.object, "metadata.annotations");
            let is_default = annotations
                .and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"))
                .is_some_and(|word| word == "true");
            let name = row.text("metadata.name");
            json!(if is_default { format!("{name} (default)") } else { name.to_owned() })
        }),
        at("Provisioner", "provisioner"),
        at("ReclaimPolicy", "reclaimPolicy"),
        at("VolumeBindingMode", "volumeBindingMode"),
        text("AllowVolumeExpansion", |row| json!(value::is_true(row.object, "allowVolumeExpansion"))),
        age_column(),
    ]
}

fn custom_columns(wanted: &[Value]) -> Vec<Column> {
    if wanted.is_empty() {
        return vec![age_column()];
    }
    let columns = wanted.iter().map(|column| {
        let path = value::text(column, "jsonPath").trim_start_matches('.').to_owned();
        let kind = value::text(column, "type");
        // Paths with choices in them are shown as empty.
        let source = match kind {
            "date" => Source::Since(path),
            _ if path.contains(['[', '?', '\\']) => condition_path(&path),
            _ => Source::Path(path),
        };
        let priority = value::number(column, "priority").unwrap_or(0);
        Column { priority, ..Column::new(value::text(column, "name"), kind, source) }
    });
    columns.collect()
}

/// `.status.conditions[?(@.type=="Ready")].status`, which is what nearly all such paths are.
fn condition_path(path: &str) -> Source {
    fn ready(row: &Row<'_>, part: &str) -> Value {
        let conditions = value::items(row.object, "status.conditions").iter();
        let ready = conditions.into_iter().find(|it| value::text(it, "type") == "Ready");
        ready.and_then(|it| it.get(part)).cloned().unwrap_or(Value::Null)
    }
    match path {
        r#"status.conditions[?(@.type=="Ready")].status"# => Source::Of(|row| ready(row, "status")),
        r#"status.conditions[?(@.type=="Ready")].message"# => Source::Of(|row| ready(row, "message")),
        r#"status.conditions[?(@.type=="Ready")].reason"# => Source::Of(|row| ready(row, "reason")),
        _ => Source::Of(|_| Value::Null),
    }
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
}
