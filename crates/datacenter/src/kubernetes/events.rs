//! Events, of which there are two views: that of the core, in which they are kept, and that of `events.k8s.io`.

use std::borrow::Cow;

use serde_json::{Map, Value, json};

use super::decode;
use super::kinds::{Resource, Shape};
use super::status::Cause;
use super::validate::names;
use super::value;

/// The newer view.
pub(crate) const NEW: &str = "events.events.k8s.io";
/// Where events are kept.
pub(crate) const KEPT: &str = "events";

/// What is called otherwise in the newer view: there, and in the core.
const NAMES: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("reportingController", "reportingComponent"),
];

/// An event in the view that is asked for; anything else as it is.
pub(crate) fn seen<'a>(resource: &Resource, object: &'a Value) -> Cow<'a, Value> {
    if !resource.is(NEW) || value::text(object, "apiVersion") == resource.api_version() {
        return Cow::Borrowed(object);
    }
    let mut seen = renamed(object, |name| NAMES.iter().find(|(_, core)| core == &name).map(|(new, _)| *new));
    written(resource, &mut seen);
    Cow::Owned(seen)
}

/// An event as it is kept; anything else as it is.
pub(crate) fn kept(resource: &Resource, object: Value) -> Value {
    let Some(core) = super::kinds::named(KEPT).filter(|_| resource.is(NEW)) else { return object };
    let mut kept = renamed(&object, |name| NAMES.iter().find(|(new, _)| new == &name).map(|(_, core)| *core));
    written(core, &mut kept);
    kept
}

/// The field that is kept by the name that somebody chooses events by.
pub(crate) fn kept_path(path: &str) -> Cow<'_, str> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    match (NAMES.iter().find(|(new, _)| *new == first), rest) {
        (Some((_, core)), Some(rest)) => Cow::Owned(format!("{core}.{rest}")),
        (Some((_, core)), None) => Cow::Borrowed(core),
        (None, _) => Cow::Borrowed(path),
    }
}

fn renamed(object: &Value, other: impl Fn(&str) -> Option<&'static str>) -> Value {
    let members = object.as_object().into_iter().flatten();
    let members: Map<String, Value> =
        members.map(|(name, member)| (other(name).unwrap_or(name).to_owned(), member.clone())).collect();
    Value::Object(members)
}

fn written(resource: &Resource, object: &mut Value) {
    value::set(object, "apiVersion", resource.api_version());
    if let Shape::Built(definition) = &resource.shape {
        decode::normalise(definition, object);
    }
}

/// What is wrong with an event in the newer view, whoever made it.
pub(crate) fn faults(event: &Value) -> Vec<Cause> {
    const SHORT: usize = 128;
    const NOTE: usize = 1_024;
    let mut causes = Vec::new();
    let text = |key: &str| value::text(event, key);
    let (own, about) = (value::namespace(event), text("regarding.namespace"));
    let is_timed = !text("eventTime").is_empty();
    let is_at_home = match (about, is_timed) {
        ("", true) => ["default", "kube-system"].contains(&own),
        ("", false) => own == "default",
        (about, _) => own == about || is_timed,
    };
    if !is_at_home {
        let detail = "does not match event.namespace";
        causes.push(Cause::invalid("involvedObject.namespace", &json!(about), detail));
    }
    if is_timed {
        for key in ["reportingController", "reportingInstance", "action", "reason"] {
            if text(key).is_empty() {
                causes.push(Cause::required(key, ""));
            }
            if key == "reportingController" {
                let named = names::qualified(text(key)).into_iter();
                causes.extend(named.map(|fault| Cause::invalid(key, &json!(text(key)), &fault)));
            } else if text(key).len() > SHORT {
                causes.push(Cause::invalid(key, &json!(""), &format!("can have at most {SHORT} characters")));
            }
        }
        if text("note").len() > NOTE {
            causes.push(Cause::invalid("message", &json!(""), &format!("can have at most {NOTE} characters")));
        }
    }
    causes
}

/// What is wrong with an event that is made in the newer view: there nothing of the older one is left.
pub(crate) fn faults_of_new(event: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |key: &str| value::text(event, key);
    if event.get("series").is_some_and(|series| value::number(series, "count").unwrap_or(0) < 2) {
        causes.push(Cause::invalid("series.count", &json!(""), "should be at least 2"));
    }
    if text("eventTime").is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    if !["Normal", "Warning"].contains(&text("type")) {
        causes.push(Cause::invalid("type", &json!(""), &format!("has invalid value: {}", text("type"))));
    }
    for (key, core) in &NAMES[2..6] {
        let given = event.get(*key).filter(|it| !it.is_null() && *it != &json!({}) && *it != &json!(0));
        if given.is_some() {
            causes.push(Cause::invalid(core, &json!(""), "needs to be unset"));
        }
    }
    causes
}

/// What of an event may not be changed in the newer view.
pub(crate) const FIXED: [&str; 12] = [
    "regarding",
    "reason",
    "note",
    "deprecatedSource",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedCount",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingController",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::kinds;

    #[test]
    fn an_event_is_the_same_in_both_views() {
        let new = kinds::named(NEW).unwrap();
        let given = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": { "name": "e" }, "regarding": { "kind": "Pod", "name": "p" },
            "note": "n", "reason": "R", "type": "Normal", "eventTime": "2026-01-02T03:04:05.000000Z", "reportingController": "a/b",
        });
        let core = kept(new, given);
        assert_eq!((&core["message"], &core["reportingComponent"]), (&json!("n"), &json!("a/b")));
        assert_eq!((&core["involvedObject"]["name"], &core["apiVersion"]), (&json!("p"), &json!("v1")));
        let back = seen(new, &core).into_owned();
        assert_eq!(
            (&back["note"], &back["regarding"]["kind"], back.get("message")),
            (&json!("n"), &json!("Pod"), None)
        );
        assert_eq!(kept_path("regarding.name"), "involvedObject.name");
    }
}
