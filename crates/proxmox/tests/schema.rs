//! What this crate believes about Proxmox, held against the vendor's own description of its interface, 8.4 and 9.
#![allow(clippy::disallowed_methods, reason = "the description is on disk")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on should say so and stop")]

use castle_proxmox::model::NETWORK_MODELS;
use serde_json::Value;

/// The descriptions, where they are; they are not part of the project.
fn schemas() -> Vec<(&'static str, Value)> {
    let read =
        |name| Some((name, serde_json::from_str(&castle_testbed::oracle_text(&format!("data/{name}"))?).unwrap()));
    ["pve-api-schema.json", "pve-api-schema-8.json"].into_iter().filter_map(read).collect()
}

/// The keys of the property string of a guest's parameter.
fn keys(schema: &Value, parameter: &str) -> serde_json::Map<String, Value> {
    let parameters = &schema["paths"]["/nodes/{node}/qemu/{vmid}/config"]["POST"]["parameters"]["properties"];
    let format = &parameters[parameter]["format"];
    let format = format.as_str().map_or(format, |name| &schema["_formats"][name]);
    let keys = if format["properties"].is_object() { &format["properties"] } else { format };
    keys.as_object().unwrap_or_else(|| panic!("{parameter} is no property string: {format}")).clone()
}

#[test]
fn default_keys_are_the_vendors() {
    for (name, schema) in schemas() {
        for (parameter, default_key) in [
            ("net[n]", Some("model")),
            ("scsi[n]", Some("file")),
            ("ide[n]", Some("file")),
            ("agent", Some("enabled")),
            ("ipconfig[n]", None),
        ] {
            let keys = keys(&schema, parameter);
            let found = keys.iter().find(|(_, key)| key["default_key"] == 1).map(|(key, _)| key.as_str());
            assert_eq!(found, default_key, "{name}: {parameter}");
        }
    }
}

#[test]
fn network_models_are_the_vendors() {
    for (name, schema) in schemas() {
        let keys = keys(&schema, "net[n]");
        let models: Vec<&str> =
            keys.iter().filter(|(_, key)| key["keyAlias"] == "model").map(|(key, _)| key.as_str()).collect();
        assert_eq!(models, NETWORK_MODELS, "{name}");
    }
}
