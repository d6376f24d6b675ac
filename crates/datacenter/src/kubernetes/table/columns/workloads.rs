//! What makes pods.

use serde_json::{Value, json};

use super::{Column, Row, age, age_column, at, integer, of, or_none, text};
use crate::kubernetes::kube::unstamp;
use crate::kubernetes::{crd, scale, value};

/// The columns of what makes pods.
pub(super) fn workloads(collection: &str) -> Vec<Column> {
    fn containers(row: &Row<'_>, key: &str) -> Value {
        let path = if row.text("kind") == "CronJob" { "spec.jobTemplate.spec.template" } else { "spec.template" };
        row.listed(&format!("{path}.spec.containers"), key)
    }
    fn replicas(row: &Row<'_>) -> Value {
        json!(format!("{}/{}", row.number("status.readyReplicas"), row.number("spec.replicas")))
    }
    let names = || text("Containers", |row| containers(row, "name")).wide();
    let images = || text("Images", |row| containers(row, "image")).wide();
    let selector = || {
        let column = text("Selector", |row| or_none(&scale::written(&row.object["spec"]["selector"])));
        column.wide()
    };
    match collection {
        "deployments.apps" => vec![
            text("Ready", replicas),
            text("Up-to-date", |row| json!(row.number("status.updatedReplicas"))),
            text("Available", |row| json!(row.number("status.availableReplicas"))),
            age_column(),
            names(),
            images(),
            selector(),
        ],
        "replicasets.apps" => vec![
            integer("Desired", |row| json!(row.number("spec.replicas"))),
            integer("Current", |row| json!(row.number("status.replicas"))),
            integer("Ready", |row| json!(row.number("status.readyReplicas"))),
            age_column(),
            names(),
            images(),
            selector(),
        ],
        "statefulsets.apps" => vec![text("Ready", replicas), age_column(), names(), images()],
        "daemonsets.apps" => vec![
            integer("Desired", |row| json!(row.number("status.desiredNumberScheduled"))),
            integer("Current", |row| json!(row.number("status.currentNumberScheduled"))),
            integer("Ready", |row| json!(row.number("status.numberReady"))),
            integer("Up-to-date", |row| json!(row.number("status.updatedNumberScheduled"))),
            integer("Available", |row| json!(row.number("status.numberAvailable"))),
            text("Node Selector", |row| {
                let labels = value::members(row.object, "spec.template.spec.nodeSelector");
                let labels = labels.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
                or_none(&labels.collect::<Vec<_>>().join(","))
            }),
            age_column(),
            names(),
            images(),
            selector(),
        ],
        "jobs.batch" => vec![
            text("Status", |row| {
                let known = ["Complete", "Failed", "Suspended"];
                json!(known.into_iter().find(|kind| crd::is(row.object, kind)).unwrap_or("Running"))
            }),
            text("Completions", |row| {
                json!(format!("{}/{}", row.number("status.succeeded"), row.number("spec.completions")))
            }),
            text("Duration", |row| {
                let moment = |path: &str| unstamp(row.text(path));
                let Some(start) = moment("status.startTime") else { return json!("") };
                let end = moment("status.completionTime").unwrap_or(row.kube.calendar + row.kube.now);
                json!(age(end.saturating_sub(start)))
            }),
            age_column(),
            names(),
            images(),
            selector(),
        ],
        "cronjobs.batch" => vec![
            at("Schedule", "spec.schedule"),
            text("Timezone", |row| or_none(row.text("spec.timeZone"))),
            of("Suspend", "boolean", |row| {
                json!(if value::is_true(row.object, "spec.suspend") { "True" } else { "False" })
            }),
            integer("Active", |row| json!(row.count("status.active"))),
            text("Last Schedule", |row| match row.text("status.lastScheduleTime") {
                "" => json!("<none>"),
                _ => row.since("status.lastScheduleTime"),
            }),
            age_column(),
            names(),
            images(),
            selector(),
        ],
        _ => vec![
            text("Controller", |row| {
                let owner = value::controller(row.object);
                or_none(&owner.map_or_else(String::new, |owner| {
                    format!("{}/{}", value::text(owner, "kind").to_lowercase(), value::text(owner, "name"))
                }))
            }),
            text("Revision", |row| json!(row.number("revision").to_string())),
            age_column(),
        ],
    }
}
