//! Objects as the tables that `kubectl get` prints, or as no more than their metadata.

use serde_json::{Value, json};

use super::api::Call;
use super::kinds::Resource;
use super::kube::Kube;
use super::request::Query;
use super::{events, value};

mod columns;
use columns::{Row, columns};

/// In which form objects are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A table; with the whole objects, their metadata, or nothing of them.
    Table(Include),
    /// Their metadata alone.
    Metadata,
}

/// What of its object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    None,
    Metadata,
    Object,
}

impl Form {
    /// What a client accepts first; nothing if it wants plain objects.
    pub(crate) fn of(accept: &str, query: &Query) -> Option<Self> {
        let first =
            accept.split(',').map(str::trim).find(|kind| kind.starts_with("application/json") || *kind == "*/*")?;
        if first.contains("as=Table") {
            return Some(Self::Table(match query.get("includeObject") {
                Some("None") => Include::None,
                Some("Object") => Include::Object,
                _ => Include::Metadata,
            }));
        }
        first.contains("as=PartialObjectMetadata").then_some(Self::Metadata)
    }
}

/// An answer in the form that the client wants.
pub(crate) fn for_client(kube: &Kube, call: &Call<'_>, object: Value) -> Value {
    let Some(form) = Form::of(&call.ask.accept, &call.ask.query) else { return object };
    let kind = value::text(&object, "kind");
    if kind == "Status" || call.ask.method != "GET" {
        return object;
    }
    if kind != call.resource.list_kind {
        return of_one(kube, &call.resource, &form, &object);
    }
    let items = value::items(&object, "items");
    match form {
        Form::Metadata => {
            let items: Vec<Value> = items.iter().map(partial).collect();
            json!({ "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"], "items": items })
        }
        Form::Table(include) => {
            let mut metadata = object["metadata"].clone();
            if value::text(&metadata, "continue").is_empty() {
                value::remove(&mut metadata, "continue");
            }
            table(kube, &call.resource, items, include, &metadata)
        }
    }
}

/// One object in a form.
pub(crate) fn of_one(kube: &Kube, resource: &Resource, form: &Form, object: &Value) -> Value {
    match form {
        Form::Metadata => partial(object),
        Form::Table(include) => {
            let metadata = json!({ "resourceVersion": value::text(object, "metadata.resourceVersion") });
            table(kube, resource, std::slice::from_ref(object), *include, &metadata)
        }
    }
}

fn partial(object: &Value) -> Value {
    json!({ "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"] })
}

fn table(kube: &Kube, resource: &Resource, items: &[Value], include: Include, metadata: &Value) -> Value {
    let columns = columns(resource);
    let definitions: Vec<Value> = (columns.iter())
        .map(|column| {
            let format = if column.name == "Name" { "name" } else { "" };
            json!({ "name": column.name, "type": column.kind, "format": format, "description": "", "priority": column.priority })
        })
        .collect();
    let rows: Vec<Value> = items
        .iter()
        .map(|item| {
            // The columns of events know them as they are kept.
            let kept = resource.is(events::NEW).then(|| events::kept(resource, item.clone()));
            let object = kept.as_ref().unwrap_or(item);
            let cells: Vec<Value> = columns.iter().map(|column| column.cell(&Row { kube, object })).collect();
            let mut row = json!({ "cells": cells });
            match include {
                Include::None => value::set(&mut row, "object", Value::Null),
                Include::Metadata => value::set(&mut row, "object", partial(item)),
                Include::Object => value::set(&mut row, "object", super::api::self_version(resource, item)),
            }
            row
        })
        .collect();
    json!({ "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_says_what_it_wants() {
        let query = Query::default();
        let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(Form::of(table, &query), Some(Form::Table(Include::Metadata)));
        assert_eq!(
            Form::of("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", &query),
            Some(Form::Metadata)
        );
        assert_eq!(Form::of("application/json", &query), None);
        assert_eq!(Form::of("", &query), None);
    }
}
