//! How the Kustomizations of a castle stand: those that it waits for, those that nobody waits for, and all others.

use std::time::{Duration, UNIX_EPOCH};

use castle_engine::Fault;
use castle_kubernetes::client::{Api, Scope};
use castle_kubernetes::model::{Key, Kind, Object, age};
use castle_spec::Castle;

use super::KUSTOMIZE;
use super::handover::stands;
use crate::names::FLUX_SYSTEM;

/// Whether anybody waits for a Kustomization.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// The castle does not stand without it.
    Critical,
    /// Nobody waits for it; after this time it is late.
    Background(Duration),
    /// castle.yaml does not name it.
    Other,
}

/// A Kustomization, as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Following {
    /// Its name.
    pub name: String,
    /// Whether anybody waits for it.
    pub weight: Weight,
    /// The revision it has applied, or why it is not ready: the last in the chain of those it waits for.
    pub state: Result<String, String>,
    /// Whether it should have been ready by now.
    pub is_late: bool,
}

/// All Kustomizations of the castle, and those that its file names and that are not there.
///
/// # Errors
///
/// [`Fault`] if the API does not tell.
pub async fn following(api: &Api, castle: &Castle) -> Result<Vec<Following>, Fault> {
    let kind = Kind::new(KUSTOMIZE, "Kustomization");
    let subject = Key::new(&kind.group, &kind.kind, FLUX_SYSTEM, "(all)");
    let listed = api.list(&kind, &Scope::within(FLUX_SYSTEM)).await.map_err(|trouble| trouble.fault(&subject))?;
    let now = api.clock().wall().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    Ok(judge(&listed.objects, castle, now))
}

fn judge(objects: &[Object], castle: &Castle, now: u64) -> Vec<Following> {
    let gitops = castle.gitops.as_ref();
    let critical = gitops.into_iter().flat_map(|gitops| gitops.critical.iter());
    let critical = critical.map(|(name, _)| (name.value.as_str(), Weight::Critical));
    let background = gitops.into_iter().flat_map(|gitops| gitops.background.iter());
    let background =
        background.map(|(name, within)| (name.value.as_str(), Weight::Background(within.value.duration())));
    let mut named: Vec<(&str, Weight)> = vec![(FLUX_SYSTEM, Weight::Critical)];
    named.extend(critical.chain(background));
    let is_named = |name: &str| named.iter().any(|(known, _)| *known == name);
    let others: Vec<(&str, Weight)> =
        objects.iter().map(Object::name).filter(|name| !is_named(name)).map(|name| (name, Weight::Other)).collect();
    let stand = |(name, weight): (&str, Weight)| {
        let state = match stands(objects, name, "") {
            Ok(object) => Ok(object.text("/status/lastAppliedRevision").to_owned()),
            Err(why) => Err(why.evidence),
        };
        // One that is not there is missed since there is anything at all.
        let aged = |name: &str| objects.iter().find(|object| object.name() == name).map(|object| age(object, now));
        let made = aged(name).or_else(|| aged(FLUX_SYSTEM));
        let is_late = match weight {
            Weight::Background(within) => state.is_err() && made.is_some_and(|made| made > within),
            _ => false,
        };
        Following { name: name.to_owned(), weight, state, is_late }
    };
    named.into_iter().chain(others).map(stand).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn kustomization(name: &str, needs: &[&str], ready: Option<&str>) -> Object {
        let condition = match ready {
            None => json!({"type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": ""}),
            Some(why) => json!({"type": "Ready", "status": "False", "reason": "HealthCheckFailed", "message": why}),
        };
        let needs: Vec<Value> = needs.iter().map(|name| json!({"name": name})).collect();
        Object::new(json!({
            "apiVersion": KUSTOMIZE, "kind": "Kustomization",
            "metadata": {"name": name, "namespace": FLUX_SYSTEM, "generation": 1, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"dependsOn": needs},
            "status": {"observedGeneration": 1, "conditions": [condition], "lastAppliedRevision": "main@sha1:1"},
        }))
        .unwrap()
    }

    fn castle() -> Castle {
        let text = "castle: blue\nplatform: embedded\ntalos: {version: v1.13.9}\nkubernetes: {version: v1.36.3}\n\
            network: {cidr: 10.0.0.0/24, gateway: 10.0.0.1, nameservers: [10.0.0.1], vip: 10.0.0.9}\n\
            nodes: {controlPlanes: {count: 1, firstAddress: 10.0.0.11}}\nstorage: none\n\
            gitops: {repository: embedded, critical: {apps: 5m}, background: {charts: 10m, absent: 1h}}\n";
        let reading = castle_spec::read(text.as_bytes());
        reading.castle.unwrap_or_else(|| panic!("{:?}", reading.problems))
    }

    #[test]
    fn each_stands_by_itself_and_is_late_by_its_own_time() {
        let objects = [
            kustomization(FLUX_SYSTEM, &[], None),
            kustomization("apps", &["config"], Some("dependency is not ready")),
            kustomization("config", &["charts"], Some("dependency is not ready")),
            kustomization("charts", &[], Some("Deployment web: 0 of 1 available")),
        ];
        let made = 1_767_225_600;
        let told = |now: u64| {
            let lines = judge(&objects, &castle(), now).into_iter().map(|one| {
                let late = if one.is_late { ", late" } else { "" };
                format!("{}: {}{late}", one.name, one.state.unwrap_or_else(|why| why))
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        insta::assert_snapshot!(told(made + 60));
        assert!(
            told(made + 700)
                .contains("charts: is not ready (HealthCheckFailed): Deployment web: 0 of 1 available, late")
        );
        assert!(!told(made + 60).contains("available, late"));
    }
}
