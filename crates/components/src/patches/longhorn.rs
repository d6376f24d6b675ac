//! Longhorn: what Talos needs, and copies, disks and requests as the castle has them.

use serde_json::{Value, json};

use super::PatchError;
use super::edit::Objects;
use crate::fit::Fit;

/// Where Talos mounts the volume that castle's configurations call `longhorn`.
pub const DATA_PATH: &str = "/var/mnt/longhorn";

/// A disk of Longhorn's own may be filled further than one that a system lives on.
const MINIMAL_AVAILABLE: &str = "10";

/// The share of a node's cores that is kept for instance managers in a small castle; Longhorn itself says 12.
const SMALL_CPU: &str = "5";

const SETTINGS: &str = "set copies, data path and reserves";
const CLASS: &str = "set the copies of volumes that Pods claim";
const SMALL: &str = "fit it into a small castle";

pub(crate) fn adapt(objects: &mut Objects, fit: &Fit) -> Result<(), PatchError> {
    objects.privilege()?;
    let replicas = fit.replicas.to_string();
    let engines = |value: &str| Value::String(json!({"v1": value, "v2": value}).to_string());

    change(objects, ("longhorn-default-setting", "default-setting.yaml"), SETTINGS, |settings| {
        settings["default-replica-count"] = engines(&replicas);
        settings["default-data-path"] = DATA_PATH.into();
        if fit.has_data_disks {
            settings["storage-minimal-available-percentage"] = MINIMAL_AVAILABLE.into();
        }
        if fit.is_small {
            settings["guaranteed-instance-manager-cpu"] = engines(SMALL_CPU);
        }
        Some(())
    })?;
    change(objects, ("longhorn-storageclass", "storageclass.yaml"), CLASS, |class| {
        // By its path, so that a class without it is noticed.
        *class.pointer_mut("/parameters/numberOfReplicas")? = replicas.clone().into();
        Some(())
    })?;
    if fit.is_small { make_small(objects) } else { Ok(()) }
}

/// One of everything that Longhorn runs in threes and twos for safety.
fn make_small(objects: &mut Objects) -> Result<(), PatchError> {
    let missing = objects.missing("spec.replicas of Deployment longhorn-ui", SMALL);
    *objects.one("Deployment", "longhorn-ui", SMALL)?.pointer_mut("/spec/replicas").ok_or(missing)? = json!(1);
    let missing = objects.missing("environment of Deployment longhorn-driver-deployer", SMALL);
    let deployer = ("Deployment", "longhorn-driver-deployer");
    let deployer = objects.container(deployer, "longhorn-driver-deployer", SMALL)?;
    let variables = deployer.get_mut("env").and_then(Value::as_array_mut).ok_or(missing)?;
    for part in ["ATTACHER", "PROVISIONER", "RESIZER", "SNAPSHOTTER"] {
        let name = format!("CSI_{part}_REPLICA_COUNT");
        variables.retain(|variable| variable["name"] != name);
        variables.push(json!({"name": name, "value": "1"}));
    }
    Ok(())
}

/// Changes the YAML that an entry of a ConfigMap holds.
fn change(
    objects: &mut Objects,
    (map, entry): (&str, &str),
    purpose: &'static str,
    change: impl FnOnce(&mut Value) -> Option<()>,
) -> Result<(), PatchError> {
    let missing = objects.missing(format!("{entry} of its usual shape in ConfigMap {map}"), purpose);
    let map = objects.one("ConfigMap", map, purpose)?;
    let changed = map["data"].get_mut(entry).and_then(|text| {
        let mut documents = castle_yaml::parse(text.as_str()?).ok()?;
        let [document] = documents.as_mut_slice() else { return None };
        if !document.is_object() {
            return None;
        }
        change(document)?;
        *text = castle_yaml::emit_for_kubernetes(document).into();
        Some(())
    });
    changed.ok_or(missing)
}
