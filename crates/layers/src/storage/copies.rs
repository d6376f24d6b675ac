//! Copies of volumes on nodes that leave, and on those that stay.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use castle_components::namespace;
use castle_kubernetes::client::Scope;
use castle_kubernetes::model::{Key, Kind, Object, condition};
use castle_kubernetes::steps::{Expect, Test, Unmet};

use super::{COMPONENT, GROUP, VERSION, not_so};

/// How long a volume may take until it has its copies again: longer than Longhorn waits for a copy that it lost to come back (ten minutes)
/// before it makes another.
pub(crate) const REBUILDING: Duration = Duration::from_secs(15 * 60);

/// How many volumes are told by name at most: whoever mends these sees the rest then.
const NAMED: usize = 10;

/// Nodes that leave a castle together, one after the other, and those that stay.
#[derive(Clone, Debug)]
pub(crate) struct Departure {
    leaving: BTreeSet<String>,
    /// Those that castle.yaml names. The machine of any other may be gone, or out of sight, long before Kubernetes misses it.
    staying: BTreeSet<String>,
    /// Those of them whose machines are only made in this run: what is known of their copies is of machines that are gone.
    blank: BTreeSet<String>,
    /// Nodes that are not well, and about to change: what they have nobody has now, and it is theirs again when they are back.
    ailing: BTreeSet<String>,
}

impl Departure {
    /// How long a sound copy on a node that stays is waited for before a machine goes: making one may take hours, and `up` can be run again.
    pub(crate) const COPYING: Duration = Duration::from_secs(2 * 60);

    /// The departure of these nodes from among those that castle.yaml names, and some that it does not.
    pub(crate) fn of(leaving: impl IntoIterator<Item = String>, named: impl IntoIterator<Item = String>) -> Self {
        let leaving: BTreeSet<String> = leaving.into_iter().collect();
        let staying = named.into_iter().filter(|node| !leaving.contains(node)).collect();
        Self { leaving, staying, blank: BTreeSet::new(), ailing: BTreeSet::new() }
    }

    /// No departure: all of these stay for now.
    pub(crate) fn of_none(nodes: impl IntoIterator<Item = String>) -> Self {
        Self::of([], nodes)
    }

    /// The same, where copies on these are counted, whatever is said of them.
    pub(crate) fn with_ailing(self, ailing: BTreeSet<String>) -> Self {
        Self { ailing, ..self }
    }

    /// The same, where the machines of these are only made in this run.
    pub(crate) fn with_blank(self, blank: impl IntoIterator<Item = String>) -> Self {
        Self { blank: blank.into_iter().collect(), ..self }
    }

    /// Every volume with data on one of them has a sound copy on a node that stays and is ready.
    pub(crate) fn loses_nothing(&self) -> Vec<Expect> {
        let leaving = self.clone();
        let test = Test::new(move |objects| {
            is_told_of(objects)?;
            leaving.lost(objects)
        });
        seen_by(&["Node", "Replica"], test)
    }

    /// Every volume that is in use has as many sound copies on the nodes that stay as it wants, or as these can have.
    pub(crate) fn is_made_up_for(&self) -> Vec<Expect> {
        let leaving = self.clone();
        seen_by(&["Node", "Replica", "Volume"], Test::new(move |objects| leaving.missed(objects)))
    }

    fn lost(&self, objects: &[Object]) -> Result<(), Unmet> {
        let footing = Footing::of(objects);
        let mut sound: BTreeSet<&str> = BTreeSet::new();
        let mut here: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        let mut doubtful: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        // A copy that failed still counts as data: Longhorn can save it if all others are lost.
        for replica in of_kind(objects, "Replica").filter(|replica| holds_data(replica)) {
            let (volume, node) = (replica.text("/spec/volumeName"), replica.text("/spec/nodeID"));
            if self.leaving.contains(node) {
                here.entry(volume).or_default().insert(node);
                continue;
            }
            if !is_sound(replica) {
                continue;
            }
            let blank = self.blank.contains(node).then_some("whose machine is only made now");
            match blank.or_else(|| self.doubt(&footing, replica)) {
                None => {
                    sound.insert(volume);
                }
                Some(why) => {
                    doubtful.entry(volume).or_default().insert(format!("there is one on {node}, {why}"));
                }
            }
        }
        here.retain(|volume, _| !sound.contains(volume));
        let Some((volume, nodes)) = here.pop_first() else { return Ok(()) };
        let doubts = doubtful.get(volume).map(|doubts| format!(" ({})", listed(doubts, "; "))).unwrap_or_default();
        let (others, them) = match here.len() {
            0 => (String::new(), "it"),
            _ => {
                let others = here.iter().map(|(volume, nodes)| format!("{volume} (only on {})", listed(nodes, ", ")));
                (format!("; nor have {}", bounded(others)), "them")
            }
        };
        let evidence = format!(
            "has no sound copy on a node that stays, only on {}{doubts}{others}: let Longhorn keep more copies of {them}, or remove {them}",
            listed(&nodes, ", ")
        );
        Err(Unmet { evidence, ..Unmet::absent(volume_key(volume)) })
    }

    fn missed(&self, objects: &[Object]) -> Result<(), Unmet> {
        let (footing, usable) = (Footing::of(objects), usable(objects));
        let room = usable.iter().filter(|node| self.staying.contains(**node) && footing.alive.contains(*node));
        let room: BTreeSet<&str> = room.copied().collect();
        let mut short: Vec<(&Object, String)> = Vec::new();
        for volume in of_kind(objects, "Volume").filter(|volume| volume.text("/status/state") == "attached") {
            let is_its = |replica: &&Object| replica.text("/spec/volumeName") == volume.name() && holds_data(replica);
            let counts = |replica: &&Object| {
                let is_ailing = self.ailing.contains(replica.text("/spec/nodeID"));
                is_ailing || (is_sound(replica) && self.doubt(&footing, replica).is_none())
            };
            let copies = of_kind(objects, "Replica").filter(is_its).filter(counts);
            let copies: BTreeSet<&str> = copies.map(|replica| replica.text("/spec/nodeID")).collect();
            let absent = copies.iter().filter(|node| self.ailing.contains(**node) && !room.contains(*node)).count();
            let (room, copies) = (room.len() + absent, copies.len());
            let wanted = volume.at("/spec/numberOfReplicas").as_u64().unwrap_or(1);
            let wanted = usize::try_from(wanted).unwrap_or(room).min(room);
            if copies < wanted {
                short.push((volume, format!("{copies} of {wanted}")));
            }
        }
        short.sort_by_key(|(volume, _)| volume.name().to_owned());
        let Some(((volume, has), others)) = short.split_first() else { return Ok(()) };
        let others = match others {
            [] => String::new(),
            others => format!(
                "; so it is with {}",
                bounded(others.iter().map(|(volume, has)| format!("{} ({has})", volume.name())))
            ),
        };
        Err(Unmet::of(volume, format!("has {has} sound copies on the nodes that stay{others}")))
    }

    /// Why a copy that is called sound is not counted on. Of a volume that nobody uses, Longhorn calls any copy sound.
    fn doubt(&self, footing: &Footing<'_>, replica: &Object) -> Option<&'static str> {
        let (node, disk) = (replica.text("/spec/nodeID"), replica.text("/spec/diskID"));
        match () {
            () if !self.staying.contains(node) => Some("which castle.yaml does not name"),
            () if !footing.alive.contains(node) => Some("which is not ready"),
            () if !footing.managed.contains(node) => Some("which Longhorn does not call ready"),
            () if !footing.disks.contains(&(node, disk)) => Some("whose disk Longhorn does not call ready"),
            () => None,
        }
    }
}

/// What copies stand on.
struct Footing<'o> {
    /// The nodes that Kubernetes calls ready.
    alive: BTreeSet<&'o str>,
    /// Those that Longhorn does.
    managed: BTreeSet<&'o str>,
    /// Their disks that are, by node and id.
    disks: BTreeSet<(&'o str, &'o str)>,
}

impl<'o> Footing<'o> {
    fn of(objects: &'o [Object]) -> Self {
        let disks = of_kind(objects, "Node").flat_map(|node| {
            let all = node.at("/status/diskStatus").as_object().into_iter().flatten();
            let ready = all.filter(|(_, disk)| not_so(disk, "Ready").is_none());
            ready.filter_map(|(_, disk)| Some((node.name(), disk["diskUUID"].as_str()?)))
        });
        Self { alive: ready(objects, ""), managed: ready(objects, GROUP), disks: disks.collect() }
    }
}

/// One of Longhorn's own kinds, and what its definition is called.
pub(crate) fn defined(kind: &str) -> (String, Kind) {
    (format!("{}s.{GROUP}", kind.to_lowercase()), Kind::new(VERSION, kind))
}

/// What nodes and these of Longhorn's own objects pass, where all of them can be seen: of a kind that is defined and not served just now, a list would show
/// none, and whoever counts copies would find that nobody has any.
fn seen_by(kinds: &[&str], test: Test) -> Vec<Expect> {
    vec![Expect::Visible(kinds.iter().map(|kind| defined(kind)).collect()), Expect::Together(places(kinds), test)]
}

/// Where nodes are, these of Longhorn's own objects, and its namespace.
fn places(kinds: &[&str]) -> Vec<(Kind, Scope)> {
    let own = kinds.iter().map(|kind| (Kind::new(VERSION, kind), Scope::within(namespace(COMPONENT))));
    let space = (Kind::new("v1", "Namespace"), Scope::named("", namespace(COMPONENT)));
    [(Kind::new("v1", "Node"), Scope::default()), space].into_iter().chain(own).collect()
}

/// Where Longhorn has been put into the cluster, it knows of a node at least; as long as it knows of none, it tells of no volume either.
fn is_told_of(objects: &[Object]) -> Result<(), Unmet> {
    let Some(space) = objects.iter().find(|object| object.kind().kind == "Namespace") else { return Ok(()) };
    if of_kind(objects, "Node").next().is_some() {
        return Ok(());
    }
    let evidence = "is there, and Longhorn knows of no node: which volumes there are cannot be told, and a worker may have the last copy of one. If \
                    Longhorn is only being installed, put the worker back into castle.yaml and run castle up first; if it was removed, remove its namespace, too";
    Err(Unmet::of(space, evidence))
}

fn volume_key(volume: &str) -> Key {
    Key::new(GROUP, "Volume", namespace(COMPONENT), volume)
}

fn listed(names: &BTreeSet<impl AsRef<str>>, between: &str) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(between)
}

/// The first of the others that come after the one that is told anyway, and how many more there are.
fn bounded(others: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = others.collect();
    let (first, rest) = all.split_at(all.len().min(NAMED - 1));
    let more = if rest.is_empty() { String::new() } else { format!(", and {} more", rest.len()) };
    format!("{}{more}", first.join(", "))
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
    use serde_json::{Value, json};

    use super::*;

    const SINCE: &str = "2026-01-01T00:00:00Z";

    fn replica(volume: &str, node: &str, healthy: &str, failed: &str) -> Object {
        let spec = json!({"volumeName": volume, "nodeID": node, "diskID": format!("disk of {node}"), "healthyAt": healthy, "failedAt": failed});
        let metadata = json!({"name": format!("{volume}-{node}"), "namespace": "longhorn-system"});
        Object::new(json!({"apiVersion": VERSION, "kind": "Replica", "metadata": metadata, "spec": spec})).unwrap()
    }

    /// What is wrong with a node.
    #[derive(Clone, Copy, PartialEq)]
    enum Ill {
        Kubernetes,
        Longhorn,
        Disk,
        OtherDisk,
        UnknownDisk,
    }

    /// A node as Kubernetes and Longhorn know it.
    fn node(name: &str, ill: Option<Ill>) -> [Object; 2] {
        let word = |is_so: bool| if is_so { "True" } else { "False" };
        let conditions = |is_ready: bool| json!([{"type": "Ready", "status": word(is_ready)}, {"type": "Schedulable", "status": word(is_ready)}]);
        let (is_alive, is_managed) =
            (ill != Some(Ill::Kubernetes), ![Some(Ill::Kubernetes), Some(Ill::Longhorn)].contains(&ill));
        let id = if ill == Some(Ill::OtherDisk) { "another" } else { "disk of" };
        let said = if ill == Some(Ill::UnknownDisk) { Value::Null } else { conditions(ill != Some(Ill::Disk)) };
        let disks = json!({"default": {"diskUUID": format!("{id} {name}"), "conditions": said}});
        let own = json!({"conditions": conditions(is_managed), "diskStatus": disks});
        [
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"conditions": conditions(is_alive)}}),
            json!({"apiVersion": VERSION, "kind": "Node", "metadata": {"name": name, "namespace": "longhorn-system"}, "status": own}),
        ]
        .map(|node| Object::new(node).unwrap())
    }

    fn departure(leaving: &[&str]) -> Departure {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        Departure::of(owned(leaving), owned(&["a", "b", "c", "d"]))
    }

    /// What is told of these copies where all nodes are well, except these.
    fn told(departure: &Departure, replicas: impl IntoIterator<Item = Object>, ill: &[(&str, Ill)]) -> Option<String> {
        let ill = |name: &str| ill.iter().find(|(node, _)| *node == name).map(|(_, ill)| *ill);
        let nodes = ["a", "b", "c", "d", "gone"].into_iter().flat_map(|name| node(name, ill(name)));
        let objects: Vec<Object> = nodes.chain(replicas).collect();
        departure.lost(&objects).err().map(|unmet| format!("{} {}", unmet.key.name, unmet.evidence))
    }

    /// Goal: whoever sees nothing of Longhorn does not take that for a castle without volumes. Method: its namespace with and without its nodes; and no trace of it.
    #[test]
    fn where_longhorn_tells_of_nothing_nobody_knows_that_there_is_nothing() {
        let space = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "longhorn-system"}});
        let space = || Object::new(space.clone()).unwrap();
        let [kubernetes, longhorn] = node("a", None);
        assert!(is_told_of(std::slice::from_ref(&kubernetes)).is_ok(), "there is no Longhorn");
        let untold = is_told_of(&[kubernetes.clone(), space()]).unwrap_err();
        assert!(untold.evidence.contains("Longhorn knows of no node"), "{}", untold.evidence);
        assert!(is_told_of(&[kubernetes, space(), longhorn]).is_ok());
        let departure = departure(&["a"]);
        for (expects, kinds) in [
            (departure.loses_nothing(), &["nodes.longhorn.io", "replicas.longhorn.io"][..]),
            (departure.is_made_up_for(), &["nodes.longhorn.io", "replicas.longhorn.io", "volumes.longhorn.io"][..]),
        ] {
            // What is asked first is told first.
            let Some(Expect::Visible(all)) = expects.first() else { panic!("{expects:?}") };
            assert_eq!(all.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), kinds);
        }
    }

    fn lost(leaving: &[&str], replicas: impl IntoIterator<Item = Object>, off: &[&str]) -> Option<String> {
        let off: Vec<(&str, Ill)> = off.iter().map(|name| (*name, Ill::Kubernetes)).collect();
        told(&departure(leaving), replicas, &off)
    }

    fn copies(volume: &str, nodes: &[&str]) -> Vec<Object> {
        nodes.iter().map(|node| replica(volume, node, SINCE, "")).collect()
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
        let copies = |nodes: &[&str]| copies("v", nodes);
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

    /// Kubernetes calls a machine ready for most of a minute after it is gone, and castle does not see all of them.
    #[test]
    fn a_copy_counts_only_on_a_node_that_the_file_names() {
        let gone = lost(&["c"], copies("v", &["c", "gone"]), &[]).unwrap();
        assert!(gone.contains("only on c (there is one on gone, which castle.yaml does not name)"), "{gone}");
        assert_eq!(lost(&["c"], copies("v", &["gone"]), &[]), None, "whoever leaves takes nothing of it along");
    }

    #[test]
    fn a_machine_that_is_made_anew_has_no_copy() {
        let departure = departure(&["c"]).with_blank(["b".to_owned()]);
        let blank = told(&departure, copies("v", &["b", "c"]), &[]).unwrap();
        assert!(blank.contains("only on c (there is one on b, whose machine is only made now)"), "{blank}");
        assert_eq!(told(&departure, copies("v", &["a", "b", "c"]), &[]), None);
    }

    /// Of a volume that nobody uses, no copy ever fails: only Longhorn's node tells that its disk is broken, or another one.
    #[test]
    fn a_copy_counts_only_on_a_disk_that_longhorn_calls_ready() {
        for (ill, why) in [
            (Ill::Longhorn, "which Longhorn does not call ready"),
            (Ill::Disk, "whose disk Longhorn does not call ready"),
            (Ill::OtherDisk, "whose disk Longhorn does not call ready"),
            (Ill::UnknownDisk, "whose disk Longhorn does not call ready"),
        ] {
            let broken = told(&departure(&["c"]), copies("v", &["b", "c"]), &[("b", ill)]).unwrap();
            assert!(broken.contains(&format!("only on c (there is one on b, {why})")), "{broken}");
        }
    }

    #[test]
    fn all_volumes_that_would_be_lost_are_named() {
        let volumes = |count: u32| (1..=count).rev().flat_map(|number| copies(&format!("v{number:02}"), &["c"]));
        assert_eq!(
            lost(&["c"], volumes(3), &[]).as_deref(),
            Some(
                "v01 has no sound copy on a node that stays, only on c; nor have v02 (only on c), v03 (only on c): let Longhorn keep more copies of \
                 them, or remove them"
            )
        );
        let many = lost(&["c"], volumes(25), &[]).unwrap();
        assert!(many.contains("v10 (only on c), and 15 more: ") && !many.contains("v11"), "{many}");
    }

    #[test]
    fn what_leaves_is_made_up_for_as_far_as_there_is_room() {
        let held = |copies: &[&str], wanted: u32, state: &str, ill: &[(&str, Ill)]| {
            let volume = |name: &str| {
                let metadata = json!({"name": name, "namespace": "longhorn-system"});
                let volume = json!({"apiVersion": VERSION, "kind": "Volume", "metadata": metadata, "spec": {"numberOfReplicas": wanted},
                    "status": {"state": state}});
                Object::new(volume).unwrap()
            };
            let ill = |name: &str| ill.iter().find(|(node, _)| *node == name).map(|(_, ill)| *ill);
            let objects = ["a", "b", "c", "d", "gone"].into_iter().flat_map(|name| node(name, ill(name)));
            let objects = objects.chain(copies.iter().map(|node| replica("v", node, SINCE, "")));
            let objects: Vec<Object> = objects.chain([volume("v")]).collect();
            departure(&["c", "d"]).missed(&objects).err().map(|unmet| unmet.evidence)
        };
        let short = |has: u32| Some(format!("has {has} of 2 sound copies on the nodes that stay"));
        let off = |name| [(name, Ill::Kubernetes)];
        assert_eq!(held(&["a", "c", "d"], 3, "attached", &[]), short(1));
        assert_eq!(
            held(&["a", "gone"], 3, "attached", &[]),
            short(1),
            "nobody counts on whoever the file does not name"
        );
        assert_eq!(held(&["a", "b"], 3, "attached", &[("b", Ill::Disk)]), short(1));
        assert_eq!(held(&["a", "b"], 3, "attached", &[]), None, "two nodes can have no more");
        assert_eq!(held(&["a"], 3, "attached", &off("b")), None, "nor can one");
        assert_eq!(held(&["a"], 1, "attached", &[]), None);
        assert_eq!(held(&["a", "c"], 3, "detached", &[]), None, "of a volume that nobody uses, no copies are made");
    }
}
