//! Walks over objects by their schema: which fields there are, how two objects differ, what both make together.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::node::{Form, Node};
use super::set::{Set, Step};
use crate::kubernetes::schema::Relation;

/// How two objects differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    pub(crate) added: Set,
    pub(crate) modified: Set,
    pub(crate) removed: Set,
}

/// The step to an item of a list, or what is wrong with the item.
fn step(node: Node<'_>, relation: &Relation, item: &Value) -> Result<Step, String> {
    let Relation::Keys(names) = relation else { return Ok(Step::Item(item.clone())) };
    let Some(members) = item.as_object() else {
        return Err("associative list with keys has an element that can't be a map type".to_owned());
    };
    let mut keys = Vec::new();
    for name in names {
        if let Some(value) = members.get(name).or_else(|| node.item().default_of(name)) {
            keys.push((name.clone(), value.clone()));
        }
    }
    if keys.is_empty() {
        let lacking = if names.len() == 1 { names[0].as_str() } else { "" };
        return Err(match lacking {
            "" => "associative list with keys has an element that omits all key fields".to_owned(),
            name => format!(
                "associative list with keys has an element that omits key field {name:?} (and doesn't have default value)"
            ),
        });
    }
    keys.sort_by(|left, right| left.0.cmp(&right.0));
    Ok(Step::Keys(keys))
}

/// How messages name an item of a list: by its keys where it has any, else by its place.
pub(crate) fn shown_step(node: Node<'_>, list: &Value, at: usize, item: &Value) -> String {
    match node.form(list) {
        Form::List(relation) => step(node, &relation, item).map_or_else(|_| format!("[{at}]"), |step| step.to_string()),
        _ => format!("[{at}]"),
    }
}

/// The items of a list with their steps. An item without keys is left out.
fn steps<'a>(node: Node<'_>, relation: &Relation, list: Option<&'a Value>) -> Vec<(Step, &'a Value)> {
    let items = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(|item| Some((step(node, relation, item).ok()?, item))).collect()
}

/// The fields of an object.
pub(crate) fn fields(node: Node<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    match node.form(value) {
        Form::Map if value.is_object() => {
            for (name, member) in value.as_object().into_iter().flatten() {
                let (child, is_named) = node.field(name);
                let mut below = fields(child, member);
                let is_empty = member.is_null() || member.as_object().is_some_and(Map::is_empty);
                below.is_member |= is_empty || !is_named;
                if !below.is_empty() {
                    set.children.insert(Step::Field(name.clone()), below);
                }
            }
        }
        Form::List(relation) if value.is_array() => {
            for (step, item) in steps(node, &relation, Some(value)) {
                let mut below = fields(node.item(), item);
                below.is_member = true;
                set.below(step).add(&below);
            }
        }
        Form::Map | Form::List(_) if value.is_null() => {}
        _ => set.is_member = true,
    }
    set
}

/// What is wrong with the lists of an object that somebody applies: items without their keys, or twice the same.
pub(crate) fn list_faults(node: Node<'_>, value: &Value, path: &str, faults: &mut Vec<String>) {
    match node.form(value) {
        Form::Map => {
            for (name, member) in value.as_object().into_iter().flatten() {
                list_faults(node.field(name).0, member, &format!("{path}.{name}"), faults);
            }
        }
        Form::List(relation) => {
            let mut seen = BTreeSet::new();
            for (at, item) in value.as_array().into_iter().flatten().enumerate() {
                match step(node, &relation, item) {
                    Err(text) => faults.push(format!("{path}: element {at}: {text}")),
                    Ok(step) => {
                        list_faults(node.item(), item, &format!("{path}{step}"), faults);
                        let text = step.to_string();
                        if !seen.insert(step) {
                            faults.push(format!("{path}: duplicate entries for key {text}"));
                        }
                    }
                }
            }
        }
        Form::Leaf => {}
    }
}

/// How one object differs from an older one.
pub(crate) fn compare(node: Node<'_>, old: &Value, new: &Value) -> Difference {
    let mut difference = Difference::default();
    compare_at(node, Some(old), Some(new), (&mut difference.added, &mut difference.modified, &mut difference.removed));
    difference
}

type Sets<'a> = (&'a mut Set, &'a mut Set, &'a mut Set);

fn compare_at(node: Node<'_>, old: Option<&Value>, new: Option<&Value>, sets: Sets<'_>) {
    let (was_there, is_there) = (old.is_some(), new.is_some());
    let (old, new) = (old.filter(|value| !value.is_null()), new.filter(|value| !value.is_null()));
    let (added, modified, removed) = sets;
    let Some(sample) = new.or(old) else { return };
    if old == new {
        return;
    }
    let form = node.form(sample);
    let is_alike = match (old, new) {
        (Some(old), Some(new)) => {
            std::mem::discriminant(old) == std::mem::discriminant(new)
                && std::mem::discriminant(&node.form(old)) == std::mem::discriminant(&node.form(new))
        }
        _ => true,
    };
    let mut descend = |child: Node<'_>, step: &Step, old: Option<&Value>, new: Option<&Value>| {
        let mut sets = (Set::default(), Set::default(), Set::default());
        compare_at(child, old, new, (&mut sets.0, &mut sets.1, &mut sets.2));
        for (into, from) in [(&mut *added, sets.0), (&mut *modified, sets.1), (&mut *removed, sets.2)] {
            if !from.is_empty() {
                into.below(step.clone()).add(&from);
            }
        }
    };
    match form {
        Form::Map if is_alike && sample.is_object() => {
            let (olds, news) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
            let names: BTreeSet<&String> =
                olds.into_iter().flatten().chain(news.into_iter().flatten()).map(|(name, _)| name).collect();
            for name in names {
                let pick =
                    |members: Option<&'_ Map<String, Value>>| members.and_then(|members| members.get(name)).cloned();
                let (old, new) = (pick(olds), pick(news));
                descend(node.field(name).0, &Step::Field(name.clone()), old.as_ref(), new.as_ref());
            }
        }
        Form::List(relation) if is_alike && sample.is_array() => {
            let grouped = |list| {
                let mut groups: BTreeMap<Step, Vec<&Value>> = BTreeMap::new();
                for (step, item) in steps(node, &relation, list) {
                    groups.entry(step).or_default().push(item);
                }
                groups
            };
            let (olds, news) = (grouped(old), grouped(new));
            let all: BTreeSet<&Step> = olds.keys().chain(news.keys()).collect();
            for step in all {
                let first = |groups: &BTreeMap<Step, Vec<&Value>>| groups.get(step).map(|group| group[0].clone());
                let count = |groups: &BTreeMap<Step, Vec<&Value>>| groups.get(step).map_or(0, Vec::len);
                if count(&olds) > 1 || count(&news) > 1 {
                    if olds.get(step) != news.get(step) {
                        descend(
                            Node::Built(&crate::kubernetes::schema::Type::String, None),
                            step,
                            first(&olds).as_ref(),
                            first(&news).as_ref(),
                        );
                    }
                    continue;
                }
                descend(node.item(), step, first(&olds).as_ref(), first(&news).as_ref());
            }
        }
        _ => {
            match (old, new) {
                (None, _) => added.is_member = true,
                (_, None) => removed.is_member = true,
                _ => modified.is_member = true,
            }
            return;
        }
    }
    if !was_there {
        added.is_member = true;
    } else if !is_there {
        removed.is_member = true;
    }
}

/// What an object is once another is laid over it.
pub(crate) fn merge(node: Node<'_>, under: &Value, over: &Value) -> Value {
    match node.form(over) {
        Form::Map if under.is_object() && over.is_object() => {
            let mut merged = under.as_object().cloned().unwrap_or_default();
            for (name, value) in over.as_object().into_iter().flatten() {
                let known = merged.get(name).filter(|known| !known.is_null());
                let value = known.map_or_else(|| value.clone(), |known| merge(node.field(name).0, known, value));
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        Form::List(relation) if under.is_array() && over.is_array() => {
            Value::Array(merge_lists(node, &relation, under, over))
        }
        _ => over.clone(),
    }
}

/// The items of both: in the order of the upper list, and those of the lower one alone where they stood among the others.
fn merge_lists(node: Node<'_>, relation: &Relation, under: &Value, over: &Value) -> Vec<Value> {
    let (lower, upper) = (steps(node, relation, Some(under)), steps(node, relation, Some(over)));
    let known: BTreeMap<&Step, &Value> = lower.iter().map(|(step, item)| (step, *item)).collect();
    let wanted: BTreeSet<&Step> = upper.iter().map(|(step, _)| step).collect();
    let mut taken: BTreeSet<&Step> = BTreeSet::new();
    let (mut merged, mut below) = (Vec::new(), lower.iter().peekable());
    for (step, item) in &upper {
        while let Some((own, value)) = below.peek() {
            if taken.contains(own) {
                below.next();
            } else if !wanted.contains(own) {
                merged.push((*value).clone());
                below.next();
            } else {
                break;
            }
        }
        let value = known.get(step).map_or_else(|| (*item).clone(), |known| merge(node.item(), known, item));
        merged.push(value);
        taken.insert(step);
    }
    merged.extend(below.filter(|(own, _)| !wanted.contains(own)).map(|(_, value)| (*value).clone()));
    merged
}

/// An object without some of its fields; nothing if none is left.
pub(crate) fn without(node: Node<'_>, value: &Value, gone: &Set) -> Option<Value> {
    match node.form(value) {
        Form::Map if value.is_object() => {
            let mut left = Map::new();
            for (name, member) in value.as_object().into_iter().flatten() {
                let step = Step::Field(name.clone());
                match gone.children.get(&step) {
                    Some(below) if below.is_member => {}
                    Some(below) => {
                        if let Some(member) = without(node.field(name).0, member, below) {
                            left.insert(name.clone(), member);
                        }
                    }
                    None => drop(left.insert(name.clone(), member.clone())),
                }
            }
            (!left.is_empty()).then_some(Value::Object(left))
        }
        Form::List(relation) if value.is_array() => {
            let mut left = Vec::new();
            for (step, item) in steps(node, &relation, Some(value)) {
                match gone.children.get(&step) {
                    Some(below) if below.is_member => {}
                    Some(below) => left.extend(without(node.item(), item, below)),
                    None => left.push(item.clone()),
                }
            }
            (!left.is_empty()).then_some(Value::Array(left))
        }
        _ => Some(value.clone()),
    }
}

/// The set, with every field that the schema names and that has something below it as a member too.
pub(crate) fn with_named(node: Node<'_>, set: &Set) -> Set {
    let mut all = Set { is_member: set.is_member, children: BTreeMap::new() };
    for (step, child) in &set.children {
        let (below, is_named) = match step {
            Step::Field(name) => node.field(name),
            _ => (node.item(), false),
        };
        let mut child = with_named(below, child);
        child.is_member |= is_named && !child.children.is_empty();
        all.children.insert(step.clone(), child);
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kubernetes::kinds;

    fn deployment() -> Node<'static> {
        Node::root(kinds::named("deployments.apps").unwrap())
    }

    fn with_containers(containers: &Value) -> Value {
        json!({ "spec": { "template": { "spec": { "containers": containers } } } })
    }

    #[test]
    fn items_are_told_apart_by_their_keys() {
        let object =
            with_containers(&json!([{ "name": "a", "image": "x", "args": ["1"], "ports": [{ "containerPort": 80 }] }]));
        let paths = fields(deployment(), &object).paths();
        let prefix = ".spec.template.spec.containers[name=\"a\"]";
        let port = format!("{prefix}.ports[containerPort=80,protocol=\"TCP\"]");
        let expected =
            [String::new(), ".args".into(), ".image".into(), ".name".into()].map(|end| format!("{prefix}{end}"));
        assert_eq!(paths[..4], expected);
        assert_eq!(paths[4..], [port.clone(), format!("{port}.containerPort")]);
    }

    #[test]
    fn a_new_structure_is_added_with_all_above() {
        let difference = compare(deployment(), &json!({}), &json!({ "metadata": { "labels": { "a": "b" } } }));
        assert_eq!(difference.added.paths(), [".metadata", ".metadata.labels", ".metadata.labels.a"]);
        let difference =
            compare(deployment(), &json!({ "spec": { "replicas": 1 } }), &json!({ "spec": { "replicas": 2 } }));
        assert_eq!(difference.modified.paths(), [".spec.replicas"]);
        assert!(difference.added.is_empty() && difference.removed.is_empty());
    }

    #[test]
    fn lists_are_merged_in_the_order_of_the_upper_one() {
        let list = |names: &[&str]| with_containers(&names.iter().map(|name| json!({ "name": name })).collect());
        let merged = merge(deployment(), &list(&["a", "b", "c"]), &list(&["c", "x", "b"]));
        let names: Vec<&str> = crate::kubernetes::value::items(&merged, "spec.template.spec.containers")
            .iter()
            .map(|item| item["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["a", "c", "x", "b"]);
    }

    #[test]
    fn what_is_owned_as_a_whole_is_compared_as_a_whole() {
        let selector = |app: &str| json!({ "spec": { "selector": { "matchLabels": { "app": app } } } });
        let difference = compare(deployment(), &selector("a"), &selector("b"));
        assert_eq!(difference.modified.paths(), [".spec.selector"]);
    }

    #[test]
    fn an_item_twice_is_a_fault() {
        let mut faults = Vec::new();
        let object = with_containers(&json!([{ "name": "a" }, { "name": "a" }, { "image": "x" }]));
        list_faults(deployment(), &object, "", &mut faults);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].contains("duplicate entries for key [name=\"a\"]"), "{faults:?}");
    }
}
