//! Opening what castle has closed, while a webhook that must be asked first is not there.
//!
//! Its Pods may be waiting for the very node that castle wants to open: nodes are closed by castle, a Node is changed only with the webhook's
//! consent, and the webhook runs on nodes. No other way leads to `spec.unschedulable` (`nodes/status` leaves the rest of a Node as it is), and the
//! webhook is not castle's to change. What Kubernetes does have is a toleration of closed nodes, the one that Pods of DaemonSets are made with, and
//! tolerations may be added to a Pod that exists. So the Pods that wait get it, and the scheduler finds each a place as it does for all others.

use std::collections::BTreeSet;
use std::time::Duration;

use castle_engine::{Class, Fault};
use serde_json::{Map, Value, json};

use crate::client::{Api, Scope, Trouble};
use crate::model::{Kind, Object};

/// The taint of a closed node.
pub(super) const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// How long a webhook may take to come to itself before it is asked again.
const WAKING: Duration = Duration::from_secs(45);
/// Where things are that webhooks may need: names are resolved there.
const SYSTEM: &str = "kube-system";

/// What came of opening `object`, which was refused: where it is because a webhook cannot be asked, the Pods of such webhooks are let onto closed
/// nodes, and it is to be tried again.
pub async fn unopened(api: &Api, object: &Object, trouble: &Trouble) -> Fault {
    let fault = trouble.fault(&object.key());
    if !trouble.is_deaf_webhook() {
        return fault;
    }
    let Err(also) = let_in(api).await else { return Fault { class: Class::RetryableAfter(Some(WAKING)), ..fault } };
    let evidence = format!("{}; its Pods could not be let onto closed nodes: {also}", fault.evidence);
    Fault { class: Class::RetryableAfter(Some(WAKING)), evidence, ..fault }
}

/// Lets the Pods onto closed nodes that wait for a node and stand behind webhooks that must be asked.
async fn let_in(api: &Api) -> Result<(), Trouble> {
    let mut namespaces = BTreeSet::from([SYSTEM.to_owned()]);
    for kind in ["ValidatingWebhookConfiguration", "MutatingWebhookConfiguration"] {
        let kind = Kind::new("admissionregistration.k8s.io/v1", kind);
        let listed = api.list(&kind, &Scope::default()).await?.objects;
        namespaces.extend(listed.iter().flat_map(behind));
    }
    for namespace in namespaces {
        let listed = api.list(&Kind::new("v1", "Pod"), &Scope::within(&namespace)).await?.objects;
        for pod in listed.iter().filter(|pod| is_kept_out(pod)) {
            let mut tolerations = pod.list("/spec/tolerations").to_vec();
            tolerations.push(json!({"key": UNSCHEDULABLE, "operator": "Exists", "effect": "NoSchedule"}));
            match api.amend(pod, Map::new(), &json!({"tolerations": tolerations})).await {
                // Another one since, or with a node by now. Or a webhook has a say in Pods, too: that of the next may have none.
                Err(trouble) if trouble.is_conflict() || trouble.is_absent() || trouble.is_deaf_webhook() => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// The namespaces of the Services whose webhooks must be asked. What else is there may be what they need to come up.
fn behind(configuration: &Object) -> impl Iterator<Item = String> {
    let is_asked = |hook: &&Value| hook["failurePolicy"] != "Ignore";
    let hooks = configuration.list("/webhooks").iter().filter(is_asked);
    hooks.filter_map(|hook| Some(hook.pointer("/clientConfig/service/namespace")?.as_str()?.to_owned()))
}

/// Whether a Pod waits for a node, and does not go onto a closed one.
fn is_kept_out(pod: &Object) -> bool {
    let tolerates = |it: &Value| it["operator"] == "Exists" && (it.get("key").is_none() || it["key"] == UNSCHEDULABLE);
    pod.text("/spec/nodeName").is_empty() && !pod.is_ending() && !pod.list("/spec/tolerations").iter().any(tolerates)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pods_that_wait_and_would_not_go_onto_a_closed_node_are_let_in() {
        let pod = |spec: Value| {
            let metadata = json!({"name": "guard", "namespace": "default"});
            Object::new(json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})).unwrap()
        };
        let control_plane = json!({"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"});
        assert!(is_kept_out(&pod(json!({}))));
        assert!(is_kept_out(&pod(json!({"tolerations": [control_plane]}))));
        assert!(!is_kept_out(&pod(json!({"nodeName": "blue-worker-1"}))));
        assert!(!is_kept_out(&pod(json!({"tolerations": [{"operator": "Exists"}]}))));
        assert!(!is_kept_out(&pod(json!({"tolerations": [{"key": UNSCHEDULABLE, "operator": "Exists"}]}))));
    }

    #[test]
    fn whoever_is_asked_only_if_there_stands_in_nobodys_way() {
        let hook = |policy: &str, namespace: &str| json!({"failurePolicy": policy, "clientConfig": {"service": {"namespace": namespace, "name": "hook"}}});
        let outside = json!({"failurePolicy": "Fail", "clientConfig": {"url": "https://10.0.0.1/"}});
        let configuration = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "hooks"}, "webhooks": [hook("Fail", "storage"), hook("Ignore", "policy"), outside]});
        let configuration = Object::new(configuration).unwrap();
        assert_eq!(behind(&configuration).collect::<Vec<_>>(), ["storage"]);
    }
}
