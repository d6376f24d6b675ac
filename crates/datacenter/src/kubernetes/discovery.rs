//! What is not an object: health, version, and which resources there are.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::api::{Reply, left_out};
use super::kinds::{Resource, Shape};
use super::kube::Kube;
use super::request::Ask;
use super::status::Failure;
use super::{openapi, value};

/// What `/readyz?verbose` looks at.
const CHECKS: [&str; 8] = [
    "ping",
    "log",
    "etcd",
    "etcd-readiness",
    "informer-sync",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "shutdown",
];

/// The groups in the order in which the real server tells them; those of definitions come after.
const PRIORITIES: [&str; 17] = [
    "apiregistration.k8s.io",
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
];

impl Kube {
    /// Answers what is asked of the server itself; nothing if it is about objects.
    pub(crate) fn general(&self, ask: &Ask) -> Option<Reply> {
        let path = ask.path.trim_end_matches('/');
        if ask.method != "GET" {
            let is_general = ["/version", "/healthz", "/livez", "/readyz", "/api", "/apis"].contains(&path);
            return is_general.then(|| Reply::failure(&Failure::not_allowed()));
        }
        let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
        match parts.as_slice() {
            [word @ ("healthz" | "livez" | "readyz")] => Some(health(word, ask)),
            [word @ ("healthz" | "livez" | "readyz"), rest @ ..] if CHECKS.contains(&rest.join("/").as_str()) => {
                Some(health(word, ask))
            }
            ["version"] => Some(Reply::object(
                200,
                version(if ask.version.is_empty() { &self.setup.version } else { &ask.version }),
            )),
            ["api"] if is_aggregated(ask) => Some(self.aggregated(true)),
            ["apis"] if is_aggregated(ask) => Some(self.aggregated(false)),
            ["api"] => {
                let address = self.setup.endpoint.trim_start_matches("https://");
                let servers = json!([{ "clientCIDR": "0.0.0.0/0", "serverAddress": address }]);
                Some(Reply::object(
                    200,
                    json!({ "kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": servers }),
                ))
            }
            ["apis"] => {
                let groups: Vec<Value> =
                    self.groups().iter().map(|(name, versions)| group(name, versions, false)).collect();
                Some(Reply::object(200, json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })))
            }
            ["apis", name] => {
                let groups = self.groups();
                match groups.iter().find(|(own, _)| own == name) {
                    Some((_, versions)) => Some(Reply::object(200, group(name, versions, true))),
                    None => left_out(name, "").map(|failure| Reply::failure(&failure)),
                }
            }
            ["api", version] => {
                self.resource_list("", version).or_else(|| Some(Reply::failure(&Failure::unknown_resource())))
            }
            ["apis", group, version] => {
                let is_built = super::kinds::built_in().iter().any(|it| it.group == *group);
                self.resource_list(group, version)
                    .or_else(|| left_out(group, version).map(|failure| Reply::failure(&failure)))
                    .or_else(|| is_built.then(|| Reply::failure(&Failure::unknown_resource())))
            }
            ["openapi", "v3"] => Some(Reply::text(200, openapi::index(self).to_string())),
            ["openapi", "v3", rest @ ..] => Some(match openapi::document(self, rest) {
                Some(document) => Reply::object(200, document),
                None => Reply::Raw(404, "", Vec::new()),
            }),
            ["openapi", "v2"] => Some(openapi::old::reply(self, ask)),
            _ => None,
        }
    }

    /// The groups besides the core, with their versions, the preferred first.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut groups: Vec<(String, Vec<String>)> = Vec::new();
        let built = super::kinds::built_in().iter();
        for resource in built.chain(self.customs.values()).filter(|resource| !resource.group.is_empty()) {
            match groups.iter_mut().find(|(name, _)| *name == resource.group) {
                Some((_, versions)) if versions.contains(&resource.version) => {}
                Some((_, versions)) => versions.push(resource.version.clone()),
                None => groups.push((resource.group.clone(), vec![resource.version.clone()])),
            }
        }
        groups.sort_by_key(|(name, _)| PRIORITIES.iter().position(|own| own == name).unwrap_or(PRIORITIES.len()));
        for (_, versions) in &mut groups {
            versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        }
        groups
    }

    fn resource_list(&self, group: &str, version: &str) -> Option<Reply> {
        let mut resources = Vec::new();
        for resource in self.resources().filter(|it| it.group == group && it.version == version) {
            resources.push(listed(resource));
            resources.extend(resource.subresources.iter().map(|sub| listed_sub(resource, sub)));
        }
        if resources.is_empty() {
            return None;
        }
        if self.customs.values().all(|custom| custom.group != group) {
            resources.sort_by_key(|resource| value::text(resource, "name").to_owned());
        }
        let of = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        let mut list =
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": of, "resources": resources });
        if group.is_empty() {
            value::remove(&mut list, "apiVersion");
        }
        Some(Reply::object(200, list))
    }

    /// Everything at once, for clients that know how to ask for it.
    fn aggregated(&self, is_core: bool) -> Reply {
        let groups = if is_core { vec![(String::new(), vec!["v1".to_owned()])] } else { self.groups() };
        let items: Vec<Value> = groups
            .iter()
            .map(|(name, versions)| {
                let versions: Vec<Value> = versions
                    .iter()
                    .map(|version| {
                        let own = self.resources().filter(|it| it.group == *name && it.version == *version);
                        let mut resources: Vec<Value> = own.map(|resource| described(resource)).collect();
                        resources.sort_by_key(|resource| value::text(resource, "resource").to_owned());
                        json!({ "version": version, "resources": resources, "freshness": "Current" })
                    })
                    .collect();
                let metadata = if name.is_empty() {
                    json!({ "creationTimestamp": null })
                } else {
                    json!({ "name": name, "creationTimestamp": null })
                };
                json!({ "metadata": metadata, "versions": versions })
            })
            .collect();
        let object = json!({ "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items });
        Reply::Raw(
            200,
            "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            object.to_string().into_bytes(),
        )
    }
}

fn is_aggregated(ask: &Ask) -> bool {
    ask.accept
        .split(',')
        .any(|kind| kind.contains("as=APIGroupDiscoveryList") && kind.contains("v=v2") && !kind.contains("v=v2beta1"))
}

/// How a version ranks: `v2` before `v1`, both before `v1beta1`.
fn priority(version: &str) -> (u8, u32, u32) {
    let rest = version.strip_prefix('v').unwrap_or_default();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let Ok(major) = rest[..end].parse::<u32>() else { return (0, 0, 0) };
    match &rest[end..] {
        "" => (3, major, 0),
        tail if tail.starts_with("beta") => (2, major, tail[4..].parse().unwrap_or(0)),
        tail if tail.starts_with("alpha") => (1, major, tail[5..].parse().unwrap_or(0)),
        _ => (0, 0, 0),
    }
}

fn group(name: &str, versions: &[String], is_alone: bool) -> Value {
    let all: Vec<Value> = versions
        .iter()
        .map(|version| json!({ "groupVersion": format!("{name}/{version}"), "version": version }))
        .collect();
    let preferred = all.first().cloned().unwrap_or_default();
    if is_alone {
        return json!({ "kind": "APIGroup", "apiVersion": "v1", "name": name, "versions": all, "preferredVersion": preferred });
    }
    json!({ "name": name, "versions": all, "preferredVersion": preferred })
}

/// The verbs of a subresource.
fn sub_verbs(resource: &Resource, sub: &str) -> Vec<&'static str> {
    match sub {
        "status" | "scale" | "ephemeralcontainers" | "resize" | "approval" => vec!["get", "patch", "update"],
        "finalize" => vec!["update"],
        "log" => vec!["get"],
        "exec" | "attach" | "portforward" => vec!["create", "get"],
        "proxy" => vec!["create", "delete", "get", "patch", "update"],
        _ if resource.has(sub) => vec!["create"],
        _ => Vec::new(),
    }
}

/// The kind that a subresource speaks of: its group, version and name.
fn sub_kind(resource: &Resource, sub: &str) -> (String, String, String) {
    match sub {
        "scale" => ("autoscaling".into(), "v1".into(), "Scale".into()),
        "eviction" => ("policy".into(), "v1".into(), "Eviction".into()),
        "token" => ("authentication.k8s.io".into(), "v1".into(), "TokenRequest".into()),
        "binding" => (String::new(), "v1".into(), "Binding".into()),
        "exec" => (String::new(), "v1".into(), "PodExecOptions".into()),
        "attach" => (String::new(), "v1".into(), "PodAttachOptions".into()),
        "portforward" => (String::new(), "v1".into(), "PodPortForwardOptions".into()),
        "proxy" => (String::new(), "v1".into(), format!("{}ProxyOptions", resource.kind)),
        _ => (resource.group.clone(), resource.version.clone(), resource.kind.clone()),
    }
}

fn listed(resource: &Resource) -> Value {
    let mut entry = json!({
        "name": resource.plural, "singularName": resource.singular, "namespaced": resource.is_namespaced, "kind": resource.kind,
        "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value::set(&mut entry, "shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        value::set(&mut entry, "categories", json!(resource.categories));
    }
    if resource.can("get") {
        value::set(&mut entry, "storageVersionHash", storage_hash(resource));
    }
    if resource.custom().is_some() {
        // Go writes them in the order of the definition's machinery.
        value::set(
            &mut entry,
            "verbs",
            json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]),
        );
    }
    entry
}

fn listed_sub(resource: &Resource, sub: &str) -> Value {
    let (group, version, kind) = sub_kind(resource, sub);
    let mut entry = json!({
        "name": format!("{}/{sub}", resource.plural), "singularName": "", "namespaced": resource.is_namespaced, "kind": kind,
        "verbs": sub_verbs(resource, sub),
    });
    if (group.as_str(), version.as_str()) != (resource.group.as_str(), resource.version.as_str()) {
        value::set(&mut entry, "group", group);
        value::set(&mut entry, "version", version);
    }
    entry
}

fn described(resource: &Resource) -> Value {
    let kind =
        |(group, version, kind): (String, String, String)| json!({ "group": group, "version": version, "kind": kind });
    // What is of the version itself is not said again.
    let own = (String::new(), String::new(), resource.kind.clone());
    let mut entry = json!({
        "resource": resource.plural, "responseKind": kind(own), "scope": if resource.is_namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular, "verbs": resource.verbs,
    });
    if !resource.short_names.is_empty() {
        value::set(&mut entry, "shortNames", json!(resource.short_names));
    }
    if !resource.categories.is_empty() {
        value::set(&mut entry, "categories", json!(resource.categories));
    }
    let subs: Vec<Value> = (resource.subresources.iter())
        .map(|sub| {
            let (group, version, name) = sub_kind(resource, sub);
            let is_own = group == resource.group && version == resource.version;
            let of = if is_own { (String::new(), String::new(), name) } else { (group, version, name) };
            json!({ "subresource": sub, "responseKind": kind(of), "verbs": sub_verbs(resource, sub) })
        })
        .collect();
    if !subs.is_empty() {
        value::set(&mut entry, "subresources", subs);
    }
    entry
}

/// What changes with the version that objects are stored in.
fn storage_hash(resource: &Resource) -> String {
    use base64::Engine;
    let version = match &resource.shape {
        // Definitions are still stored as their first beta.
        Shape::Built(_) if resource.kind == "CustomResourceDefinition" => "v1beta1",
        Shape::Built(_) => &resource.version,
        Shape::Custom(custom) => &custom.storage_version,
    };
    let digest = Sha256::digest(format!("{}/{version}/{}", resource.group, resource.kind));
    base64::engine::general_purpose::STANDARD.encode(&digest[..8])
}

pub(crate) fn version(version: &str) -> Value {
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let before = minor.parse::<u32>().map(|minor| minor.saturating_sub(1).to_string()).unwrap_or_default();
    json!({
        "major": major, "minor": minor, "emulationMajor": major, "emulationMinor": minor, "minCompatibilityMajor": major,
        "minCompatibilityMinor": before, "gitVersion": version, "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "gc", "platform": "linux/amd64",
    })
}

/// That all is well; where something is not, the server says so before it comes here.
fn health(word: &str, ask: &Ask) -> Reply {
    if !ask.query.has("verbose") {
        return Reply::text(200, "ok");
    }
    let mut text: String = CHECKS.iter().map(|check| format!("[+]{check} ok\n")).collect();
    text += &format!("{word} check passed\n");
    Reply::text(200, text)
}

/// The resources of a group and version by their kind, for descriptions.
pub(crate) fn by_kind(kube: &Kube, group: &str, version: &str) -> BTreeMap<String, std::sync::Arc<Resource>> {
    let own = kube.resources().filter(|it| it.group == group && it.version == version);
    own.map(|resource| (resource.kind.clone(), resource.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubernetes::kinds;

    #[test]
    fn stable_versions_come_first() {
        let mut versions = vec!["v1beta1", "v2", "v1", "v1alpha1", "foo", "v2beta2"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v2", "v1", "v2beta2", "v1beta1", "v1alpha1", "foo"]);
    }

    #[test]
    fn the_hash_is_that_of_the_real_server() {
        assert_eq!(storage_hash(kinds::named("configmaps").unwrap()), "qFsyl6wFWjQ=");
        assert_eq!(storage_hash(kinds::named("deployments.apps").unwrap()), "8aSe+NMegvE=");
        assert_eq!(
            storage_hash(kinds::named("customresourcedefinitions.apiextensions.k8s.io").unwrap()),
            "jfWCUB31mvA="
        );
    }
}
