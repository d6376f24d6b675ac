//! How many there should be, and how many there are: the scale of a resource.

use std::sync::Arc;

use serde_json::{Value, json};

use super::api::Call;
use super::fields::managers::{Managers, bare};
use super::fields::node::Node;
use super::kinds::Resource;
use super::kube::Kube;
use super::status::{Cause, Failure};
use super::structural::at_path;
use super::value;

impl Kube {
    /// The scale of an object.
    pub(crate) fn scale_of(&self, resource: &Resource, object: &Value) -> Result<Value, Failure> {
        let (spec, status, selector) = match resource.custom().and_then(|custom| custom.scale.as_ref()) {
            Some(paths) => {
                let number = |path: &str| at_path(object, path).and_then(Value::as_i64);
                let selector = paths.selector.as_ref().and_then(|path| at_path(object, path)).and_then(Value::as_str);
                (number(&paths.spec), number(&paths.status), selector.map(Into::into))
            }
            None => {
                let selector = value::at(object, "spec.selector").map(written);
                (value::number(object, "spec.replicas"), value::number(object, "status.replicas"), selector)
            }
        };
        let Some(spec) = spec else {
            let path = resource
                .custom()
                .and_then(|custom| custom.scale.as_ref())
                .map(|paths| paths.spec.clone())
                .unwrap_or_default();
            return Err(Failure::internal(&format!("the spec replicas field {path:?} does not exist")));
        };
        let mut metadata = json!({});
        for key in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
            if let Some(known) = value::at(object, "metadata").and_then(|metadata| metadata.get(key)) {
                value::set(&mut metadata, key, known.clone());
            }
        }
        let mut scale = json!({
            "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": metadata,
            "spec": { "replicas": spec }, "status": { "replicas": status.unwrap_or(0) },
        });
        if spec == 0 {
            value::set(&mut scale, "spec", json!({}));
        }
        if let Some(selector) = selector.filter(|text: &String| !text.is_empty()) {
            value::set(&mut scale, "status.selector", selector);
        }
        Ok(scale)
    }

    /// `PUT .../scale`.
    pub(crate) fn replace_scale(&mut self, call: &mut Call<'_>) -> Result<Arc<Value>, Failure> {
        call.is_dry_run = call.ask.query.is_dry_run("UpdateOptions")?;
        let body = call.body()?;
        let resource = call.resource.clone();
        let Some(old) = self.get(&resource.qualified(), &call.target.namespace, &call.target.name) else {
            return Err(Failure::not_found(&resource, &call.target.name));
        };
        self.set_scale(call, &old, &body.value)
    }

    /// Writes the number that a scale wants, and answers with the scale.
    pub(crate) fn set_scale(
        &mut self,
        call: &mut Call<'_>,
        old: &Arc<Value>,
        scale: &Value,
    ) -> Result<Arc<Value>, Failure> {
        let resource = call.resource.clone();
        let (given, own) = (value::name(scale), call.target.name.as_str());
        if !given.is_empty() && given != own {
            return Err(Failure::bad_request(format!(
                "the name of the object ({given}) does not match the name on the URL ({own})"
            )));
        }
        let wanted = value::number(scale, "spec.replicas").unwrap_or(0);
        if wanted < 0 {
            let cause = Cause::invalid("spec.replicas", &json!(wanted), "must be greater than or equal to 0");
            return Err(Failure::invalid_kind("autoscaling", "Scale", &call.target.name, &[cause]));
        }
        let version = value::text(scale, "metadata.resourceVersion");
        if !version.is_empty() && version != value::text(old, "metadata.resourceVersion") {
            return Err(Failure::modified(&resource, &call.target.name));
        }
        let path = resource
            .custom()
            .and_then(|custom| custom.scale.as_ref())
            .map_or("spec.replicas", |paths| paths.spec.as_str());
        let mut new = Value::clone(old);
        value::set(&mut new, path.trim_start_matches('.'), wanted);
        let mut managers = Managers::read(old).unwrap_or_default();
        let (bare_old, bare_new) = (bare(old), bare(&new));
        managers.update(Node::root(&resource), (&bare_old, &bare_new), &call.manager(false), &[], &self.stamp());
        let object = self.finish_update(call, old, new, Some(managers))?;
        self.scale_of(&resource, &object).map(Arc::new)
    }
}

/// A selector as requests write it.
pub(crate) fn written(selector: &Value) -> String {
    let mut parts: Vec<String> = value::members(selector, "matchLabels")
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    for item in value::items(selector, "matchExpressions") {
        let key = value::text(item, "key");
        let values: Vec<&str> = value::items(item, "values").iter().filter_map(Value::as_str).collect();
        parts.push(match value::text(item, "operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.sort();
    parts.join(",")
}
