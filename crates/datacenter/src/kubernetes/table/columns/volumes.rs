//! Volumes and claims.

use serde_json::{Value, json};

use super::{Column, Row, age_column, at, text};
use crate::kubernetes::value;

fn access_modes(row: &Row<'_>, path: &str) -> Value {
    let short = value::items(row.object, path).iter().map(|mode| match mode.as_str().unwrap_or_default() {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        "ReadWriteOncePod" => "RWOP",
        other => other,
    });
    json!(short.collect::<Vec<_>>().join(","))
}

/// The columns of volumes, or of claims.
pub(super) fn volumes(is_volume: bool) -> Vec<Column> {
    let class = || {
        [
            text("StorageClass", |row| json!(row.text("spec.storageClassName"))),
            text("VolumeAttributesClass", |row| match row.text("spec.volumeAttributesClassName") {
                "" => json!("<unset>"),
                class => json!(class),
            }),
        ]
    };
    let mut all = if is_volume {
        vec![
            at("Capacity", "spec.capacity.storage"),
            text("Access Modes", |row| access_modes(row, "spec.accessModes")),
            at("Reclaim Policy", "spec.persistentVolumeReclaimPolicy"),
            text("Status", |row| match value::is_deleting(row.object) {
                true => json!("Terminating"),
                false => json!(row.text("status.phase")),
            }),
            text("Claim", |row| match row.text("spec.claimRef.name") {
                "" => json!(""),
                name => json!(format!("{}/{name}", row.text("spec.claimRef.namespace"))),
            }),
        ]
    } else {
        vec![
            text("Status", |row| match value::is_deleting(row.object) {
                true => json!("Terminating"),
                false => json!(row.text("status.phase")),
            }),
            text("Volume", |row| json!(row.text("spec.volumeName"))),
            text("Capacity", |row| json!(row.text("status.capacity.storage"))),
            text("Access Modes", |row| access_modes(row, "status.accessModes")),
        ]
    };
    all.extend(class());
    if is_volume {
        all.push(text("Reason", |row| json!(row.text("status.reason"))));
    }
    all.push(age_column());
    all.push(text("VolumeMode", |row| json!(row.text("spec.volumeMode"))).wide());
    all
}
