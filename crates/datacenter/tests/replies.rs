//! What is answered has the shape that the vendor's description of the interface promises.
#![allow(clippy::disallowed_methods, reason = "the description is on disk")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on should say so and stop")]

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{Token, User};
use castle_datacenter::{Blueprint, Datacenter, Latencies, Version};
use castle_http::header::{AUTHORIZATION, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::Clock;
use castle_testbed::in_virtual_time;
use serde_json::Value;

/// The description of a generation; nothing where it is not at hand.
fn description(version: Version) -> Option<Value> {
    let name = if version == Version::Eight { "pve-api-schema-8.json" } else { "pve-api-schema.json" };
    castle_testbed::oracle_text(&format!("data/{name}")).map(|text| serde_json::from_str(&text).unwrap())
}

/// What is wrong with a value, by its place.
fn complaints(schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let is_number = |value: &Value| value.is_number() || value.as_str().is_some_and(|text| text.parse::<f64>().is_ok());
    let fits = match schema["type"].as_str() {
        Some("null") => value.is_null(),
        Some("array") => value.is_array(),
        Some("object") => value.is_object(),
        Some("boolean") => value.as_u64().is_some_and(|flag| flag <= 1) || value.is_boolean(),
        Some("integer" | "number") => is_number(value),
        Some("string") => value.is_string() || value.is_number(),
        _ => true,
    };
    if !fits {
        found.push(format!("{place}: {value} is no {}", schema["type"]));
    }
    if let Some(choices) = schema["enum"].as_array()
        && !choices.contains(value)
    {
        found.push(format!("{place}: {value} is none of {choices:?}"));
    }
    if let (Some(properties), Some(members)) = (schema["properties"].as_object(), value.as_object()) {
        for (name, property) in properties {
            match members.get(name) {
                Some(member) => complaints(property, member, &format!("{place}.{name}"), found),
                None if property["optional"] != 1 && !name.contains('[') => {
                    found.push(format!("{place}.{name} is missing"));
                }
                None => {}
            }
        }
    }
    if let Some(items) = value.as_array().filter(|_| schema["items"].is_object()) {
        for (at, item) in items.iter().enumerate() {
            complaints(&schema["items"], item, &format!("{place}[{at}]"), found);
        }
    }
}

/// An image, and a guest of it that answers its agent.
const IMAGE: &str = "/nodes/pve/storage/local/download-url?content=import&filename=talos.qcow2&url=https%3A%2F%2Ffactory.talos.dev\
                     %2Fimage%2Fabababababababababababababababababababababababababababababababab%2Fv1.13.9%2Fnocloud-amd64.qcow2";
const GUEST: &str = "/nodes/pve/qemu?vmid=421&name=cp-1&memory=2048&agent=1&net0=virtio%2Cbridge%3Dvmbr0&start=1\
                     &scsi0=local-lvm%3A0%2Cimport-from%3Dlocal%3Aimport%2Ftalos.qcow2&ide2=local-lvm%3Acloudinit";

/// Who asks: the administrator, for only he may everything.
const TOKEN: (&str, &str, &str) = ("root@pam", "shape", "11111111-1111-4111-8111-111111111111");

/// Everything that can be read, and some of what can be done, with the path in the description.
const ASKED: &[(&str, &str, &str)] = &[
    ("GET", "/version", "/version"),
    ("GET", "/access/permissions", "/access/permissions"),
    ("GET", "/nodes", "/nodes"),
    ("GET", "/nodes/{node}", "/nodes/pve"),
    ("GET", "/nodes/{node}/version", "/nodes/pve/version"),
    ("GET", "/nodes/{node}/status", "/nodes/pve/status"),
    ("GET", "/nodes/{node}/network", "/nodes/pve/network"),
    ("GET", "/cluster/status", "/cluster/status"),
    ("GET", "/cluster/resources", "/cluster/resources"),
    ("GET", "/cluster/nextid", "/cluster/nextid"),
    ("GET", "/cluster", "/cluster"),
    ("GET", "/cluster/options", "/cluster/options"),
    ("GET", "/cluster/ha", "/cluster/ha"),
    ("POST", "/cluster/ha/resources", "/cluster/ha/resources?sid=vm:100&comment=mine&max_restart=2"),
    ("GET", "/cluster/ha/resources", "/cluster/ha/resources"),
    ("GET", "/cluster/ha/resources/{sid}", "/cluster/ha/resources/vm:100"),
    ("GET", "/access", "/access"),
    ("GET", "/access/users", "/access/users?full=1"),
    ("GET", "/access/roles", "/access/roles"),
    ("GET", "/access/acl", "/access/acl"),
    ("GET", "/access/domains", "/access/domains"),
    (
        "GET",
        "/nodes/{node}/query-url-metadata",
        "/nodes/pve/query-url-metadata?url=https://cloud.debian.org/images/x.qcow2",
    ),
    ("GET", "/nodes/{node}/qemu/{vmid}/status", "/nodes/pve/qemu/100/status"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/reset", "/nodes/pve/qemu/100/status/reset"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/suspend", "/nodes/pve/qemu/100/status/suspend"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/resume", "/nodes/pve/qemu/100/status/resume"),
    ("PUT", "/nodes/{node}/qemu/{vmid}/unlink", "/nodes/pve/qemu/101/unlink?idlist=unused0"),
    ("GET", "/storage", "/storage"),
    ("GET", "/storage/{storage}", "/storage/local-lvm"),
    ("GET", "/nodes/{node}/storage", "/nodes/pve/storage"),
    ("GET", "/nodes/{node}/storage/{storage}/status", "/nodes/pve/storage/local-lvm/status"),
    ("GET", "/nodes/{node}/storage/{storage}/content", "/nodes/pve/storage/local-lvm/content"),
    (
        "GET",
        "/nodes/{node}/storage/{storage}/content/{volume}",
        "/nodes/pve/storage/local-lvm/content/local-lvm:vm-100-disk-0",
    ),
    ("GET", "/nodes/{node}/qemu", "/nodes/pve/qemu"),
    ("GET", "/nodes/{node}/lxc", "/nodes/pve/lxc"),
    ("GET", "/nodes/{node}/qemu/{vmid}", "/nodes/pve/qemu/100"),
    ("GET", "/nodes/{node}/qemu/{vmid}/snapshot", "/nodes/pve/qemu/100/snapshot"),
    ("POST", "/nodes/{node}/qemu/{vmid}/snapshot", "/nodes/pve/qemu/101/snapshot?snapname=one&description=before"),
    ("GET", "/nodes/{node}/qemu/{vmid}/snapshot", "/nodes/pve/qemu/101/snapshot"),
    ("GET", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}", "/nodes/pve/qemu/101/snapshot/one"),
    ("GET", "/nodes/{node}/qemu/{vmid}/snapshot/{snapname}/config", "/nodes/pve/qemu/101/snapshot/one/config"),
    ("GET", "/nodes/{node}/qemu/{vmid}/feature", "/nodes/pve/qemu/100/feature?feature=clone"),
    ("GET", "/nodes/{node}/qemu/{vmid}/config", "/nodes/pve/qemu/100/config"),
    ("GET", "/nodes/{node}/qemu/{vmid}/pending", "/nodes/pve/qemu/100/pending"),
    ("GET", "/nodes/{node}/qemu/{vmid}/status/current", "/nodes/pve/qemu/100/status/current"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/start", "/nodes/pve/qemu/101/status/start"),
    ("POST", "/nodes/{node}/qemu/{vmid}/status/stop", "/nodes/pve/qemu/101/status/stop"),
    ("POST", "/nodes/{node}/storage/{storage}/download-url", IMAGE),
    ("POST", "/nodes/{node}/qemu", GUEST),
    ("POST", "/nodes/{node}/qemu/{vmid}/agent/ping", "/nodes/pve/qemu/421/agent/ping"),
    ("GET", "/nodes/{node}/qemu/{vmid}/agent/info", "/nodes/pve/qemu/421/agent/info"),
    (
        "GET",
        "/nodes/{node}/qemu/{vmid}/agent/network-get-interfaces",
        "/nodes/pve/qemu/421/agent/network-get-interfaces",
    ),
    ("GET", "/cluster/tasks", "/cluster/tasks"),
    ("GET", "/nodes/{node}/tasks", "/nodes/pve/tasks?source=all"),
    ("GET", "/nodes/{node}/tasks/{upid}/status", "/nodes/pve/tasks/UPID/status"),
    ("GET", "/nodes/{node}/tasks/{upid}/log", "/nodes/pve/tasks/UPID/log"),
    ("GET", "/nodes/{node}/tasks/{upid}", "/nodes/pve/tasks/UPID"),
    ("GET", "/pools", "/pools"),
    ("GET", "/pools/{poolid}", "/pools/blue"),
    ("DELETE", "/nodes/{node}/qemu/{vmid}", "/nodes/pve/qemu/101"),
];

fn check(version: Version) {
    let Some(description) = description(version) else { return };
    in_virtual_time(async |clock| {
        let (user, name, secret) = TOKEN;
        let token = Token { name: name.to_owned(), secret: secret.to_owned(), privsep: false };
        let root = User { id: user.to_owned(), password: None, tokens: vec![token] };
        let embedded = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]).on(version);
        let blueprint = Blueprint { users: vec![root], acl: Vec::new(), ..embedded };
        let datacenter = Datacenter::new(blueprint.with_latencies(Latencies::none()), Arc::new(*clock));
        datacenter.add_pool("blue");
        let endpoint = Endpoint::parse("http://pve:8006/api2/json").unwrap();
        let client = Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), Arc::new(*clock)).unwrap();
        let token = HeaderValue::from_str(&format!("PVEAPIToken={user}!{name}={secret}")).unwrap();
        let mut found = Vec::new();
        for (method, described, path) in ASKED {
            let upid = datacenter.look().tasks.last().map(|task| task.upid.clone()).unwrap_or_default();
            let mut ask = Ask::new(Method::from_bytes(method.as_bytes()).unwrap(), &path.replace("UPID", &upid));
            ask.headers.insert(AUTHORIZATION, token.clone());
            let answer = client.ask(&ask).await.unwrap();
            assert_eq!(answer.status, 200, "{method} {path}: {answer:?}");
            let body: Value = serde_json::from_slice(&answer.body).unwrap();
            let schema = &description["paths"][described][method]["returns"];
            assert!(schema.is_object(), "{method} {described} is not described");
            complaints(schema, &body["data"], &format!("{method} {described}"), &mut found);
            clock.sleep(Duration::from_secs(1)).await;
        }
        assert!(found.is_empty(), "{}", found.join("\n"));
    });
}

#[test]
fn replies_of_generation_eight_have_their_shape() {
    check(Version::Eight);
}

#[test]
fn replies_of_generation_nine_have_their_shape() {
    check(Version::Nine);
}

#[test]
fn what_has_another_shape_is_found() {
    let schema = serde_json::json!({
        "type": "array",
        "items": { "type": "object", "properties": { "a": { "type": "integer" }, "b": { "type": "string", "enum": ["x"] } } },
    });
    let mut found = Vec::new();
    complaints(&schema, &serde_json::json!([{ "b": "y" }, "z"]), "here", &mut found);
    assert_eq!(found.len(), 3, "{found:?}");
}
