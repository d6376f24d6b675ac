//! Copies of volumes on nodes that leave, and on those that stay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use castle_components::patches::namespace;
use castle_kubernetes::client::Scope;
use castle_kubernetes::model::{Key, Kind, Object, condition};
use castle_kubernetes::steps::{Expect, Test, Unmet};

use super::{COMPONENT, GROUP, VERSION};

/// How long a volume may take until it has its copies again: longer than Longhorn waits for a copy that it lost to come back (ten minutes)
/// before it makes another.
pub(crate) const REBUILDING: Duration = Duration::from_secs(15 * 60);

/// Nodes that leave a castle together, one after the other.
#[derive(Clone, Debug)]
pub(crate) struct Departure(BTreeSet<String>);

impl Departure {
    /// How long a sound copy on a node that stays is waited for before a machine goes: making one may take hours, and `up` can be run again.
    pub(crate) const COPYING: Duration = Duration::from_secs(2 * 60);

    /// The departure of the nodes of these names.
    pub(crate) fn of(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Every volume with data on one of them has a sound copy on a node that stays and is ready.
    pub(crate) fn loses_nothing(&self) -> Expect {
        let leaving = self.clone();
        let places = vec![
            (Kind::new("v1", "Node"), Scope::default()),
            (Kind::new(VERSION, "Replica"), Scope::within(namespace(COMPONENT))),
        ];
        Expect::Together(places, Test::new(move |objects| leaving.lost(objects)))
    }

    /// Every volume that is in use has as many sound copies on the nodes that stay as it wants, or as these can have.
    pub(crate) fn is_made_up_for(&self) -> Expect {
        let leaving = self.clone();
        let own = |kind: &str| (Kind::new(VERSION, kind), Scope::within(namespace(COMPONENT)));
        let places = vec![(Kind::new("v1", "Node"), Scope::default()), own("Node"), own("Replica"), own("Volume")];
        Expect::Together(places, Test::new(move |objects| leaving.missed(objects)))
    }

    fn stays(&self, node: &str) -> bool {
        !self.0.contains(node)
    }

    fn lost(&self, objects: &[Object]) -> Result<(), Unmet> {
        let ready = ready(objects, "");
        let mut sound: BTreeSet<&str> = BTreeSet::new();
        let mut here: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut silent: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        // A copy that failed still counts as data: Longhorn can save it if all others are lost.
        for replica in of_kind(objects, "Replica").filter(|replica| holds_data(replica)) {
            let (volume, node) = (replica.text("/spec/volumeName"), replica.text("/spec/nodeID"));
            match () {
                () if !self.stays(node) => here.entry(volume).or_default().insert(node),
                () if !is_sound(replica) => continue,
                () if ready.contains(node) => sound.insert(volume),
                () => silent.entry(volume).or_default().insert(node),
            };
        }
        let Some((volume, nodes)) = here.into_iter().find(|(volume, _)| !sound.contains(volume)) else { return Ok(()) };
        let unheard = match silent.get(volume) {
            Some(nodes) => format!(" (there is one on {}, which is not ready)", listed(nodes)),
            None => String::new(),
        };
        let evidence = format!(
            "has no sound copy on a node that stays, only on {}{unheard}: let Longhorn keep more copies of it, or remove it",
            listed(&nodes)
        );
        Err(Unmet { evidence, ..Unmet::absent(volume_key(volume)) })
    }

    fn missed(&self, objects: &[Object]) -> Result<(), Unmet> {
        let (alive, usable) = (ready(objects, ""), usable(objects));
        let room = usable.iter().filter(|node| self.stays(node) && alive.contains(*node)).count();
        for volume in of_kind(objects, "Volume").filter(|volume| volume.text("/status/state") == "attached") {
            let wanted = volume.at("/spec/numberOfReplicas").as_u64().unwrap_or(1);
            let wanted = usize::try_from(wanted).unwrap_or(room).min(room);
            let is_its = |replica: &&Object| {
                replica.text("/spec/volumeName") == volume.name() && holds_data(replica) && is_sound(replica)
            };
            let copies = of_kind(objects, "Replica").filter(is_its).map(|replica| replica.text("/spec/nodeID"));
            let copies: BTreeSet<&str> = copies.filter(|node| self.stays(node) && alive.contains(*node)).collect();
            if copies.len() < wanted {
                let evidence = format!("has {} of {wanted} sound copies on the nodes that stay", copies.len());
                return Err(Unmet::of(volume, evidence));
            }
        }
        Ok(())
    }
}

fn volume_key(volume: &str) -> Key {
    Key::new(GROUP, "Volume", namespace(COMPONENT), volume)
}

fn listed(names: &BTreeSet<&str>) -> String {
    names.iter().copied().collect::<Vec<_>>().join(", ")
}

/// Longhorn's own objects of a kind.
fn of_kind<'o>(objects: &'o [Object], kind: &str) -> impl Iterator<Item = &'o Object> {
    objects.iter().filter(move |object| object.kind().group == GROUP && object.kind().kind == kind)
}

fn is_so(node: &Object, name: &str) -> bool {
    condition(node, name).is_some_and(|found| found.status == "True")
}

/// The nodes of the group that are ready.
fn ready<'o>(objects: &'o [Object], group: &str) -> BTreeSet<&'o str> {
    let nodes = objects.iter().filter(|object| object.kind().group == group && object.kind().kind == "Node");
    nodes.filter(|node| is_so(node, "Ready")).map(Object::name).collect()
}

/// The nodes that take copies.
fn usable(objects: &[Object]) -> BTreeSet<&str> {
    of_kind(objects, "Node")
        .filter(|node| is_so(node, "Ready") && is_so(node, "Schedulable"))
        .map(Object::name)
        .collect()
}

/// Whether somebody has ever written to a copy.
fn holds_data(replica: &Object) -> bool {
    !replica.text("/spec/healthyAt").is_empty()
}

fn is_sound(replica: &Object) -> bool {
    replica.text("/spec/failedAt").is_empty()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SINCE: &str = "2026-01-01T00:00:00Z";

    fn replica(volume: &str, node: &str, healthy: &str, failed: &str) -> Object {
        let spec = json!({"volumeName": volume, "nodeID": node, "healthyAt": healthy, "failedAt": failed});
        let metadata = json!({"name": format!("{volume}-{node}"), "namespace": "longhorn-system"});
        Object::new(json!({"apiVersion": VERSION, "kind": "Replica", "metadata": metadata, "spec": spec})).unwrap()
    }

    fn node(version: &str, name: &str, is_ready: bool) -> Object {
        let status = if is_ready { "True" } else { "Unknown" };
        let conditions = json!([{"type": "Ready", "status": status}, {"type": "Schedulable", "status": status}]);
        let metadata = json!({"name": name, "namespace": if version == "v1" { "" } else { "longhorn-system" }});
        let node =
            json!({"apiVersion": version, "kind": "Node", "metadata": metadata, "status": {"conditions": conditions}});
        Object::new(node).unwrap()
    }

    fn lost(leaving: &[&str], replicas: impl IntoIterator<Item = Object>, off: &[&str]) -> Option<String> {
        let nodes = ["a", "b", "c", "d"].map(|name| node("v1", name, !off.contains(&name)));
        let objects: Vec<Object> = nodes.into_iter().chain(replicas).collect();
        let departure = Departure::of(leaving.iter().map(|name| (*name).to_owned()));
        departure.lost(&objects).err().map(|unmet| format!("{} {}", unmet.key.name, unmet.evidence))
    }

    #[test]
    fn a_node_does_not_take_the_last_copy_of_a_volume_along() {
        let others = [("b", SINCE, "", false), ("b", SINCE, SINCE, true), ("b", "", "", true), ("a", SINCE, "", true)];
        for (node, healthy, failed, is_lost) in others {
            for own in ["", SINCE] {
                let replicas =
                    [replica("v", "a", SINCE, own), replica("v", node, healthy, failed), replica("w", "b", SINCE, "")];
                let told = lost(&["a"], replicas, &[]);
                assert_eq!(told.is_some_and(|told| told.starts_with("v ")), is_lost, "{node} {healthy} {failed} {own}");
            }
        }
        assert_eq!(lost(&["a"], [replica("v", "a", "", "")], &[]), None, "nobody has written to it yet");
    }

    #[test]
    fn a_copy_counts_only_on_a_node_that_stays_and_is_ready() {
        let copies = |nodes: &[&str]| nodes.iter().map(|node| replica("v", node, SINCE, "")).collect::<Vec<_>>();
        assert_eq!(
            lost(&["c", "d"], copies(&["c", "d"]), &[]).as_deref(),
            Some(
                "v has no sound copy on a node that stays, only on c, d: let Longhorn keep more copies of it, or remove it"
            )
        );
        assert_eq!(lost(&["c", "d"], copies(&["b", "c", "d"]), &[]), None);
        let off = lost(&["c"], copies(&["b", "c"]), &["b"]).unwrap();
        assert!(off.contains("only on c (there is one on b, which is not ready)"), "{off}");
        assert_eq!(lost(&["c"], copies(&["b", "c"]), &["c"]), None, "whoever leaves may be off");
    }

    #[test]
    fn what_leaves_is_made_up_for_as_far_as_there_is_room() {
        let held = |copies: &[&str], wanted: u32, state: &str, off: &[&str]| {
            let metadata = json!({"name": "v", "namespace": "longhorn-system"});
            let volume = json!({"apiVersion": VERSION, "kind": "Volume", "metadata": metadata, "spec": {"numberOfReplicas": wanted},
                "status": {"state": state}});
            let names = ["a", "b", "c", "d"];
            let objects =
                names.iter().flat_map(|name| ["v1", VERSION].map(|version| node(version, name, !off.contains(name))));
            let objects = objects.chain(copies.iter().map(|node| replica("v", node, SINCE, "")));
            let objects: Vec<Object> = objects.chain([Object::new(volume).unwrap()]).collect();
            Departure::of(["c".to_owned(), "d".to_owned()]).missed(&objects).err().map(|unmet| unmet.evidence)
        };
        let short = |has: u32| Some(format!("has {has} of 2 sound copies on the nodes that stay"));
        assert_eq!(held(&["a", "c", "d"], 3, "attached", &[]), short(1));
        assert_eq!(held(&["a", "b"], 3, "attached", &[]), None, "two nodes can have no more");
        assert_eq!(held(&["a"], 3, "attached", &["b"]), None, "nor can one");
        assert_eq!(held(&["a"], 1, "attached", &[]), None);
        assert_eq!(held(&["a", "c"], 3, "detached", &[]), None, "of a volume that nobody uses, no copies are made");
    }
}
