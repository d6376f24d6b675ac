//! External Secrets Operator: a namespace of its own, whatever upstream rendered it into.

use serde_json::{Value, json};

use super::PatchError;
use super::edit::Objects;

const PURPOSE: &str = "move it into a namespace of its own";
const IN_NAMESPACES: [&str; 6] = ["ServiceAccount", "Secret", "Role", "RoleBinding", "Service", "Deployment"];
const DEPLOYMENTS: [&str; 3] = ["external-secrets", "external-secrets-cert-controller", "external-secrets-webhook"];
const WEBHOOKS: [&str; 2] = ["secretstore-validate", "externalsecret-validate"];

pub(crate) fn adapt(objects: &mut Objects) -> Result<(), PatchError> {
    let new = objects.namespace;
    let told = &objects.one("Deployment", DEPLOYMENTS[0], PURPOSE)?["metadata"]["namespace"];
    let old = told.as_str().unwrap_or("default").to_owned();
    move_objects(objects, &old, new);
    move_subjects(objects, &old, new)?;
    move_webhooks(objects, &old, new)?;
    move_arguments(objects, &old, new)?;
    if objects.of_kind("Namespace").all(|object| object["metadata"]["name"] != new) {
        objects.all.insert(0, json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": new}}));
    }
    Ok(())
}

/// An object without a namespace would be in the one that whoever applies it happens to be in.
fn move_objects(objects: &mut Objects, old: &str, new: &str) {
    for object in &mut objects.all {
        let is_in_one = IN_NAMESPACES.iter().any(|kind| object["kind"] == *kind);
        let place = &mut object["metadata"]["namespace"];
        if is_in_one && (place.is_null() || place == old) {
            *place = new.into();
        } else if place.is_null()
            && let Some(metadata) = object["metadata"].as_object_mut()
        {
            metadata.shift_remove("namespace");
        }
    }
}

fn move_subjects(objects: &mut Objects, old: &str, new: &str) -> Result<(), PatchError> {
    for (kind, name) in [
        ("ClusterRoleBinding", "external-secrets-cert-controller"),
        ("ClusterRoleBinding", "external-secrets-controller"),
        ("RoleBinding", "external-secrets-leaderelection"),
    ] {
        let missing = objects.missing(format!("subject in namespace {old} of {kind} {name}"), PURPOSE);
        let subjects = objects.one(kind, name, PURPOSE)?["subjects"].as_array_mut();
        let mut moved = 0;
        for subject in subjects.into_iter().flatten().filter(|subject| subject["namespace"] == old) {
            subject["namespace"] = new.into();
            moved += 1;
        }
        if moved == 0 {
            return Err(missing);
        }
    }
    Ok(())
}

fn move_webhooks(objects: &mut Objects, old: &str, new: &str) -> Result<(), PatchError> {
    for name in WEBHOOKS {
        let kind = "ValidatingWebhookConfiguration";
        let missing = objects.missing(format!("service in namespace {old} of {kind} {name}"), PURPOSE);
        let webhooks = objects.one(kind, name, PURPOSE)?["webhooks"].as_array_mut();
        let mut moved = 0;
        for webhook in webhooks.into_iter().flatten() {
            let place = webhook.pointer_mut("/clientConfig/service/namespace").filter(|place| **place == old);
            *place.ok_or_else(|| missing.clone())? = new.into();
            moved += 1;
        }
        if moved == 0 {
            return Err(missing);
        }
    }
    for definition in objects.of_kind("CustomResourceDefinition") {
        let place = definition.pointer_mut("/spec/conversion/webhook/clientConfig/service/namespace");
        if let Some(place) = place.filter(|place| **place == old) {
            *place = new.into();
        }
    }
    Ok(())
}

/// The arguments that name the namespace.
fn move_arguments(objects: &mut Objects, old: &str, new: &str) -> Result<(), PatchError> {
    let service = DEPLOYMENTS[2];
    for (deployment, container, flag, from, to) in [
        (DEPLOYMENTS[1], "cert-controller", "--service-namespace=", old.to_owned(), new.to_owned()),
        (DEPLOYMENTS[1], "cert-controller", "--secret-namespace=", old.to_owned(), new.to_owned()),
        (DEPLOYMENTS[2], "webhook", "--dns-name=", format!("{service}.{old}.svc"), format!("{service}.{new}.svc")),
    ] {
        let missing = objects.missing(format!("argument {flag}{from} of Deployment {deployment}"), PURPOSE);
        let container = objects.container(("Deployment", deployment), container, PURPOSE)?;
        let arguments = container.get_mut("args").and_then(Value::as_array_mut);
        let argument = arguments.into_iter().flatten().find(|argument| **argument == format!("{flag}{from}"));
        *argument.ok_or(missing)? = format!("{flag}{to}").into();
    }
    Ok(())
}
