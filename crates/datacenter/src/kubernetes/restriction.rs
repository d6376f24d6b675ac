//! What a node may do to itself: the authority that the API gives to kubelets, and what it keeps from them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::access::Wish;
use super::admission::{Deed, Operation};
use super::api::Call;
use super::request::User;
use super::status::Failure;
use super::value;

/// The name of the node that somebody is.
fn node(user: &User) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|_| user.is_in("system:nodes"))
}

/// Whether somebody may do something because he is a node. Which node it may do that to is for [`judge`] to say.
pub(super) fn allows(user: &User, wish: &Wish) -> bool {
    let is_node = wish.group.is_empty() && ["nodes", "nodes/status"].contains(&wish.resource.as_str());
    let verbs = ["get", "list", "watch", "create", "update", "patch"];
    node(user).is_some() && is_node && verbs.contains(&wish.verb.as_str())
}

/// Holds a node to what it may write of nodes.
pub(super) fn judge(call: &Call<'_>, deed: &Deed<'_>, object: &Value) -> Result<(), Failure> {
    let Some(own) = node(&call.ask.user).filter(|_| call.resource.qualified() == "nodes") else { return Ok(()) };
    let name = value::name(object);
    let why = match deed.old {
        _ if name != own => Some(format!("node {own:?} is not allowed to modify node {name:?}")),
        Some(old) if deed.operation == Operation::Update => objection(own, old, object),
        None if deed.operation == Operation::Create => {
            let refused = refused_labels(&Value::Null, object);
            refused.map(|keys| format!("node {own:?} is not allowed to set the following labels: {keys}"))
        }
        _ => None,
    };
    why.map_or(Ok(()), |why| Err(Failure::forbidden(&call.resource, name, &why)))
}

/// Why a node may not change itself like this.
pub(super) fn objection(name: &str, old: &Value, new: &Value) -> Option<String> {
    if value::items(old, "spec.taints") != value::items(new, "spec.taints") {
        return Some(format!("node {name:?} is not allowed to modify taints"));
    }
    if value::items(old, "metadata.ownerReferences") != value::items(new, "metadata.ownerReferences") {
        return Some(format!("node {name:?} is not allowed to modify ownerReferences"));
    }
    refused_labels(old, new).map(|keys| format!("is not allowed to modify labels: {keys}"))
}

/// The labels that differ and may not, if there are any.
fn refused_labels(old: &Value, new: &Value) -> Option<String> {
    let changed = changed_labels(old, new);
    let refused: Vec<&str> = changed.iter().map(String::as_str).filter(|key| !may_label_itself(key)).collect();
    (!refused.is_empty()).then(|| refused.join(", "))
}

/// The labels that differ.
fn changed_labels(old: &Value, new: &Value) -> BTreeSet<String> {
    let labels = |node: &Value| -> BTreeSet<(String, String)> {
        let all = value::members(node, "metadata.labels");
        all.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect()
    };
    labels(old).symmetric_difference(&labels(new)).map(|(key, _)| key.clone()).collect()
}

/// Whether the API lets a node set a label on itself.
#[must_use]
pub fn may_label_itself(key: &str) -> bool {
    const FREE: [&str; 11] = [
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    ];
    let Some((domain, _)) = key.split_once('/') else { return true };
    let is_in = |parent: &str| domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
    let is_free = is_in("kubelet.kubernetes.io") || is_in("node.kubernetes.io");
    FREE.contains(&key) || is_free || !(is_in("kubernetes.io") || is_in("k8s.io"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_labels_are_not_for_nodes() {
        for key in
            ["a", "castle.dev/a", "node.kubernetes.io/a", "x.node.kubernetes.io/a", "topology.kubernetes.io/zone"]
        {
            assert!(may_label_itself(key), "{key}");
        }
        for key in [
            "node-role.kubernetes.io/a",
            "topology.kubernetes.io/rack",
            "k8s.io/a",
            "x.node-restriction.kubernetes.io/a",
        ] {
            assert!(!may_label_itself(key), "{key}");
        }
    }
}
