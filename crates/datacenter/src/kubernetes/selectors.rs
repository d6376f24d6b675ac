//! Choices of objects: by labels and by fields.

use serde_json::Value;

use super::status::Failure;
use super::value;

mod parse;

/// What a label must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
    Above(String, i64),
    Below(String, i64),
}

/// A choice by labels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Labels(Vec<Demand>);

impl Labels {
    /// Reads a choice as requests write it: `a=b,c in (d, e),!f`.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        parse::parse(text).map(Self).map_err(Failure::bad_request)
    }

    /// The choice that a selector of an object makes; nothing if there is none.
    pub(crate) fn of(selector: &Value) -> Self {
        let mut demands: Vec<Demand> = value::members(selector, "matchLabels")
            .map(|(key, value)| Demand::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()]))
            .collect();
        for item in value::items(selector, "matchExpressions") {
            let key = value::text(item, "key").to_owned();
            let values: Vec<String> =
                value::items(item, "values").iter().filter_map(Value::as_str).map(Into::into).collect();
            let first = values.first().and_then(|value| value.parse().ok()).unwrap_or_default();
            demands.push(match value::text(item, "operator") {
                "In" => Demand::In(key, values),
                "NotIn" => Demand::NotIn(key, values),
                "DoesNotExist" => Demand::Absent(key),
                "Gt" => Demand::Above(key, first),
                "Lt" => Demand::Below(key, first),
                _ => Demand::Exists(key),
            });
        }
        Self(demands)
    }

    /// A choice by equal labels.
    pub(crate) fn equal(labels: &Value) -> Self {
        let pairs = labels.as_object().into_iter().flatten();
        Self(
            pairs
                .map(|(key, value)| Demand::In(key.clone(), vec![value.as_str().unwrap_or_default().to_owned()]))
                .collect(),
        )
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is chosen.
    pub(crate) fn chooses(&self, object: &Value) -> bool {
        self.fits(value::at(object, "metadata.labels").unwrap_or(&Value::Null))
    }

    /// Whether labels fit.
    pub(crate) fn fits(&self, labels: &Value) -> bool {
        let of = |key: &str| labels.get(key).and_then(Value::as_str);
        self.0.iter().all(|demand| match demand {
            Demand::In(key, values) => of(key).is_some_and(|own| values.iter().any(|value| value == own)),
            Demand::NotIn(key, values) => of(key).is_none_or(|own| values.iter().all(|value| value != own)),
            Demand::Exists(key) => of(key).is_some(),
            Demand::Absent(key) => of(key).is_none(),
            Demand::Above(key, bound) => {
                of(key).and_then(|own| own.parse::<i64>().ok()).is_some_and(|own| own > *bound)
            }
            Demand::Below(key, bound) => {
                of(key).and_then(|own| own.parse::<i64>().ok()).is_some_and(|own| own < *bound)
            }
        })
    }
}

/// A choice by fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, bool, String)>);

/// The fields that kinds can be chosen by, besides name and namespace.
fn selectable(collection: &str) -> &'static [&'static str] {
    match collection {
        "pods" => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ],
        "nodes" => &["spec.unschedulable"],
        "namespaces" => &["status.phase"],
        "services" => &["spec.clusterIP", "spec.type"],
        "secrets" => &["type"],
        "jobs.batch" => &["status.successful"],
        "replicasets.apps" => &["status.replicas"],
        "events" => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        super::events::NEW => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        "certificatesigningrequests.certificates.k8s.io" => &["spec.signerName"],
        _ => &[],
    }
}

impl Fields {
    /// Reads a choice: `metadata.name=a,status.phase!=Running`.
    ///
    /// Objects of definitions can be chosen by what these say.
    pub(crate) fn parse(collection: &str, custom: Option<&[String]>, text: &str) -> Result<Self, Failure> {
        let mut all = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (key, is_equal, value) = if let Some((key, value)) = part.split_once("!=") {
                (key, false, value)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (key, true, value)
            } else {
                let message = format!("invalid selector: '{text}'; can't understand '{part}'");
                return Err(Failure::bad_request(message));
            };
            let is_known = ["metadata.name", "metadata.namespace"].contains(&key)
                || selectable(collection).contains(&key)
                || custom.unwrap_or_default().iter().any(|own| own == key);
            if !is_known {
                let is_told = custom.is_some() || !selectable(collection).is_empty();
                let message = if is_told {
                    format!("field label not supported: {key}")
                } else {
                    format!("{key:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
                };
                return Err(Failure::bad_request(message));
            }
            let key = if collection == super::events::NEW { super::events::kept_path(key) } else { key.into() };
            all.push((key.into_owned(), is_equal, value.to_owned()));
        }
        Ok(Self(all))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object is chosen.
    pub(crate) fn chooses(&self, object: &Value) -> bool {
        self.0.iter().all(|(key, is_equal, wanted)| {
            let path = if key == "source" { "source.component" } else { key };
            let own = match value::at(object, path) {
                Some(Value::String(text)) => text.clone(),
                Some(Value::Null) | None if key == "spec.unschedulable" || key == "spec.hostNetwork" => {
                    "false".to_owned()
                }
                Some(Value::Null) | None if key == "status.successful" => "0".to_owned(),
                Some(Value::Null) | None => String::new(),
                Some(other) => other.to_string(),
            };
            (own == *wanted) == *is_equal
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_choose() {
        let object = json!({ "metadata": { "labels": { "a": "b", "n": "5" } } });
        for (text, fits) in [
            ("a=b", true),
            ("a==b,n", true),
            ("a!=b", false),
            ("x!=b", true),
            ("a in (b, c)", true),
            ("a notin (b,c)", false),
            ("!x", true),
            ("!a", false),
            ("n>4", true),
            ("n<4", false),
            ("", true),
        ] {
            assert_eq!(Labels::parse(text).unwrap().chooses(&object), fits, "{text}");
        }
        assert!(Labels::parse("a b").is_err());
    }

    #[test]
    fn fields_choose_where_they_can() {
        let pod = json!({ "metadata": { "name": "x" }, "status": { "phase": "Running" } });
        let fields = Fields::parse("pods", None, "metadata.name=x,status.phase!=Failed").unwrap();
        assert!(fields.chooses(&pod));
        let error = Fields::parse("pods", None, "spec.foo=1").unwrap_err();
        assert_eq!(error.message, "field label not supported: spec.foo");
    }
}
