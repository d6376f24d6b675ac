//! What is said the same way under every contract.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::input::{Credential, Disk, Input, Link, Mirror, RegistryLogin, Role, Volume};
use super::{ConfigError, Node};

/// Control planes wear it so that load balancers leave them out.
pub(super) const EXCLUDED_FROM_BALANCING: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// A document of a kind, with these entries.
pub(super) fn document(kind: &str, entries: Value) -> Value {
    let mut document = Map::new();
    document.insert("apiVersion".to_owned(), "v1alpha1".into());
    document.insert("kind".to_owned(), kind.into());
    if let Value::Object(entries) = entries {
        document.extend(entries);
    }
    Value::Object(document)
}

/// Writes an entry unless there is nothing in it.
pub(super) fn put(object: &mut Value, key: &str, value: impl Into<Value>) {
    let value = value.into();
    if let Value::Object(entries) = object
        && !is_blank(&value)
    {
        entries.insert(key.to_owned(), value);
    }
}

/// Whether Talos takes it for nothing.
pub(super) fn is_blank(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
    }
}

pub(super) fn texts(entries: &BTreeMap<String, String>) -> Map<String, Value> {
    entries.iter().map(|(key, text)| (key.clone(), text.as_str().into())).collect()
}

pub(super) fn kubelet_image(input: &Input<'_>) -> String {
    format!("ghcr.io/siderolabs/kubelet:v{}", input.cluster.kubernetes)
}

pub(super) fn component_image(input: &Input<'_>, component: &str) -> String {
    format!("registry.k8s.io/{component}:v{}", input.cluster.kubernetes)
}

/// What pods may do: enforced as baseline, warned about where they would not pass as restricted.
pub(super) fn pod_security() -> Value {
    json!({
        "apiVersion": "pod-security.admission.config.k8s.io/v1alpha1",
        "defaults": {
            "audit": "restricted",
            "audit-version": "latest",
            "enforce": "baseline",
            "enforce-version": "latest",
            "warn": "restricted",
            "warn-version": "latest",
        },
        "exemptions": {"namespaces": ["kube-system"], "runtimeClasses": [], "usernames": []},
        "kind": "PodSecurityConfiguration",
    })
}

/// Who did what, without the contents.
pub(super) fn audit_policy() -> Value {
    json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]})
}

impl Disk {
    /// As an expression.
    pub(super) fn expression(&self) -> String {
        match self {
            Self::Serial(serial) => format!("disk.serial == {}", quoted(serial)),
            Self::Wwid(wwid) => format!("disk.wwid == {}", quoted(wwid)),
            Self::Bytes(bytes) => format!("disk.size == {bytes}u"),
            Self::NotSystem => "!system_disk".to_owned(),
            Self::Matching(expression) => expression.clone(),
        }
    }
}

/// A text inside an expression.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

pub(super) fn volumes(node: &Node) -> impl Iterator<Item = Value> {
    node.volumes.iter().map(volume)
}

fn volume(volume: &Volume) -> Value {
    let mut provisioning =
        json!({"diskSelector": {"match": volume.disk.expression()}, "grow": true, "minSize": volume.min_size});
    put(&mut provisioning, "maxSize", volume.max_size.clone());
    document("UserVolumeConfig", json!({"name": volume.name, "provisioning": provisioning}))
}

pub(super) fn registries(node: &Node) -> impl Iterator<Item = Value> {
    node.mirrors.iter().map(mirror).chain(node.registry_logins.iter().map(login))
}

fn mirror(mirror: &Mirror) -> Value {
    let endpoint = |(url, is_whole): &(String, bool)| {
        let mut endpoint = json!({"url": url});
        if *is_whole {
            put(&mut endpoint, "overridePath", true);
        }
        endpoint
    };
    let mut entries = json!({"name": mirror.registry});
    put(&mut entries, "endpoints", mirror.endpoints.iter().map(endpoint).collect::<Vec<_>>());
    if mirror.skip_fallback {
        put(&mut entries, "skipFallback", true);
    }
    document("RegistryMirrorConfig", entries)
}

fn login(login: &RegistryLogin) -> Value {
    let mut entries = json!({"name": login.registry});
    match &login.credential {
        Credential::Password { username, password } => {
            put(&mut entries, "username", username.as_str());
            put(&mut entries, "password", password.expose());
        }
        Credential::Basic(joined) => put(&mut entries, "auth", joined.expose()),
        Credential::Token(token) => put(&mut entries, "identityToken", token.expose()),
    }
    document("RegistryAuthConfig", entries)
}

/// Links, addresses, time and name, in this order.
pub(super) fn network(role: Role, node: &Node) -> Result<Vec<Value>, ConfigError> {
    let mut documents: Vec<Value> = node.links.iter().filter_map(alias).collect();
    documents.extend(node.links.iter().map(link));
    if let (Role::ControlPlane, Some(vip)) = (role, &node.vip) {
        documents.push(document("Layer2VIPConfig", json!({"name": vip.address, "link": vip.link})));
    }
    documents.extend(clock(node)?);
    documents.push(match &node.hostname {
        // Both keys: Talos refuses a name beside the `stable` of its own generator.
        Some(hostname) => document("HostnameConfig", json!({"auto": "off", "hostname": hostname})),
        None => document("HostnameConfig", json!({"auto": "stable"})),
    });
    Ok(documents)
}

fn alias(link: &Link) -> Option<Value> {
    let expression = format!("mac(link.permanent_addr) == {}", quoted(&link.mac.as_ref()?.to_lowercase()));
    Some(document("LinkAliasConfig", json!({"name": link.name, "selector": {"match": expression}})))
}

fn link(link: &Link) -> Value {
    let address = |address: &String| json!({"address": address});
    let routes = link.routes.iter().map(|route| {
        let mut entries = json!({});
        put(&mut entries, "destination", route.destination.clone());
        put(&mut entries, "gateway", route.gateway.as_str());
        entries
    });
    let mut entries = json!({"name": link.name, "up": true});
    put(&mut entries, "mtu", link.mtu);
    put(&mut entries, "addresses", link.addresses.iter().map(address).collect::<Vec<_>>());
    put(&mut entries, "routes", routes.collect::<Vec<_>>());
    document("LinkConfig", entries)
}

fn clock(node: &Node) -> Result<Option<Value>, ConfigError> {
    let devices = node.time_servers.iter().filter(|server| server.starts_with("/dev/")).count();
    Ok(match (devices, node.time_servers.len()) {
        (_, 0) => None,
        (0, _) => Some(document("TimeSyncConfig", json!({"ntp": {"servers": node.time_servers}}))),
        (some, all) if some == all => Some(document("TimeSyncConfig", json!({"ptp": {"devices": node.time_servers}}))),
        _ => return Err(ConfigError::MixedClocks),
    })
}

pub(super) fn nameservers(node: &Node) -> Vec<Value> {
    node.nameservers.iter().map(|address| json!({"address": address})).collect()
}
