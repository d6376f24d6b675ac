//! Why something is not as it should be: the Pod behind it, what that Pod says, and what was last said of it.

use serde_json::Value;

use crate::client::{Api, Scope};
use crate::model::{Kind, Object, condition};

/// The longest word of an event that is repeated.
const WORDS: usize = 200;

/// What is known, and of the first Pod that is not ready why. Whoever cannot be asked adds nothing.
pub(super) async fn with_pods(api: &Api, workload: &Object, why: String) -> String {
    let Some(labels) = selector(workload) else { return with_events(api, workload, why).await };
    let scope = Scope { labels, ..Scope::within(workload.namespace()) };
    let pods = api.list(&Kind::new("v1", "Pod"), &scope).await.map(|listed| listed.objects).unwrap_or_default();
    let Some((pod, trouble)) = pods.iter().find_map(|pod| Some((pod, trouble(pod)?))) else {
        return with_events(api, workload, why).await;
    };
    with_events(api, pod, format!("{why}; Pod {}: {trouble}", pod.name())).await
}

/// What is known, and what was last said of an object by way of warning.
pub(super) async fn with_events(api: &Api, object: &Object, why: String) -> String {
    let fields = format!("involvedObject.name={},involvedObject.kind={}", object.name(), object.kind().kind);
    let scope = Scope { fields, ..Scope::within(object.namespace()) };
    let events = api.list(&Kind::new("v1", "Event"), &scope).await.map(|listed| listed.objects).unwrap_or_default();
    let time = |event: &Object| {
        let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        times.iter().map(|time| event.text(time)).find(|time| !time.is_empty()).unwrap_or_default().to_owned()
    };
    let warnings = events.iter().filter(|event| event.text("/type") == "Warning");
    match warnings.max_by_key(|event| time(event)) {
        Some(event) => {
            let message: String = event.text("/message").chars().take(WORDS).collect();
            format!("{why}; event {}: {message}", event.text("/reason"))
        }
        None => why,
    }
}

/// The labels by which a workload knows its Pods.
fn selector(workload: &Object) -> Option<String> {
    let labels = workload.at("/spec/selector/matchLabels").as_object()?;
    let pairs: Option<Vec<String>> =
        labels.iter().map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    pairs.map(|pairs| pairs.join(",")).filter(|pairs| !pairs.is_empty())
}

/// Why a Pod is not ready.
fn trouble(pod: &Object) -> Option<String> {
    if condition(pod, "Ready").is_some_and(|ready| ready.status == "True") || pod.text("/status/phase") == "Succeeded" {
        return None;
    }
    let lists = ["/status/initContainerStatuses", "/status/containerStatuses"];
    let containers = lists.iter().flat_map(|list| pod.list(list));
    let said = |state: &Value| {
        let text = |key: &str| state[key].as_str().unwrap_or_default();
        match (text("reason"), text("message")) {
            ("", _) => None,
            (reason, "") => Some(reason.to_owned()),
            (reason, message) => Some(format!("{reason}: {message}")),
        }
    };
    // What everybody goes through is no reason.
    let is_usual = |words: &String| ["ContainerCreating", "PodInitializing", "Completed"].contains(&words.as_str());
    let of_container = containers.flat_map(|container| {
        let states = ["/state/waiting", "/state/terminated", "/lastState/terminated"];
        let name = container["name"].as_str().unwrap_or_default();
        let said = states.iter().filter_map(|state| said(container.pointer(state)?)).find(|words| !is_usual(words));
        said.map(|said| format!("container {name}: {said}"))
    });
    let scheduled = condition(pod, "PodScheduled").filter(|condition| condition.status == "False");
    let homeless = scheduled.map(|condition| format!("{}: {}", condition.reason, condition.message));
    let phase = pod.text("/status/phase");
    let plain = || format!("is {}", if phase.is_empty() { "not begun" } else { phase });
    Some(homeless.or_else(|| of_container.into_iter().next()).unwrap_or_else(plain))
}
