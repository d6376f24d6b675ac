//! The resources that a node keeps about itself: as a client reads them.

use castle_talos_api::cosi::resource::{Metadata, Resource, Spec};
use prost::Message;
use serde_json::{Value, json};

use super::yaml;
use crate::world::World;

mod kinds;

use kinds::{KINDS, Kind};
pub(crate) use kinds::{current_addresses, unmet};

/// The kind that tells which kinds there are.
pub(crate) const DEFINITIONS: &str = "ResourceDefinitions.meta.cosi.dev";

/// What a definition says to programs.
#[derive(Clone, PartialEq, Message)]
struct Definition {
    #[prost(string, tag = "1")]
    resource_type: String,
    #[prost(string, tag = "2")]
    display_type: String,
    #[prost(string, tag = "3")]
    default_namespace: String,
    #[prost(string, repeated, tag = "4")]
    aliases: Vec<String>,
    #[prost(string, repeated, tag = "5")]
    all_aliases: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    print_columns: Vec<Column>,
    #[prost(int32, tag = "7")]
    sensitivity: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Column {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    json_path: String,
}

fn definition(kind: &Kind) -> (String, Value, Vec<u8>) {
    let plural = kind.name.split('.').next().unwrap_or_default();
    let singular = match plural.strip_suffix("uses").map(|stem| format!("{stem}us")) {
        Some(singular) => singular,
        None => match plural.strip_suffix("sses") {
            Some(stem) => format!("{stem}ss"),
            None => plural.trim_end_matches('s').to_owned(),
        },
    };
    let aliases: Vec<String> = kind.aliases.iter().map(|&alias| alias.to_owned()).collect();
    let suffixes: Vec<&str> = kind.name.split('.').collect();
    let longer = (1..suffixes.len()).map(|count| suffixes[..count].join(".").to_lowercase());
    let all_aliases: Vec<String> = longer.chain(aliases.iter().cloned()).collect();
    let columns: Vec<Value> =
        kind.columns.iter().map(|(name, path)| json!({ "name": name, "jsonPath": path })).collect();
    let mut said = json!({
        "type": kind.name,
        "displayType": singular,
        "defaultNamespace": kind.namespace,
        "aliases": aliases,
        "allAliases": all_aliases,
        "printColumns": columns,
    });
    if let Some(parts) = said.as_object_mut().filter(|_| kind.is_secret) {
        parts.insert("sensitivity".to_owned(), json!("sensitive"));
    }
    let column = |(name, path): &(&str, &str)| Column { name: (*name).to_owned(), json_path: (*path).to_owned() };
    let message = Definition {
        resource_type: kind.name.to_owned(),
        display_type: singular,
        default_namespace: kind.namespace.to_owned(),
        aliases,
        all_aliases,
        print_columns: kind.columns.iter().map(column).collect(),
        sensitivity: i32::from(kind.is_secret),
    };
    (kind.name.to_lowercase(), said, message.encode_to_vec())
}

impl World {
    /// The kind of this name that a node knows.
    pub(crate) fn resource_kind(&self, vmid: u32, name: &str) -> Option<&'static Kind> {
        let minor = self.talos.nodes.get(&vmid)?.image.minor();
        KINDS.iter().find(|kind| kind.name == name && kind.since <= minor)
    }

    /// The resources of a kind, in the order of their ids.
    pub(crate) fn resources(&mut self, vmid: u32, name: &str) -> Vec<Resource> {
        let Some(node) = self.talos.nodes.get(&vmid) else { return Vec::new() };
        let Some(boot) = &node.boot else { return Vec::new() };
        let minor = node.image.minor();
        let mut said: Vec<(String, Value, Vec<u8>)> = if name == DEFINITIONS {
            KINDS.iter().filter(|kind| kind.since <= minor).map(definition).collect()
        } else {
            let Some(kind) = self.resource_kind(vmid, name) else { return Vec::new() };
            (kind.say)(self, node, boot).into_iter().map(|(id, value)| (id, value, Vec::new())).collect()
        };
        said.sort_by(|one, other| one.0.cmp(&other.0));
        let namespace = self.resource_kind(vmid, name).map_or("meta", |kind| kind.namespace);
        let (now, calendar) = (self.now, self.calendar);
        let Some(boot) = self.talos.boot_mut(vmid) else { return Vec::new() };
        let made = said.into_iter().map(|(id, value, proto_spec)| {
            let yaml_spec = yaml::text(&value);
            let entry = boot.ledger.note(now, name, &id, &yaml_spec);
            let stamp = |at: std::time::Duration| {
                let since = calendar + at;
                castle_talos_api::Timestamp { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() as i32 }
            };
            let is_config = name.starts_with("MachineConfigs.");
            let note = is_config.then(|| ("talos.dev/yaml-spec".to_owned(), "1".to_owned()));
            Resource {
                metadata: Some(Metadata {
                    namespace: namespace.to_owned(),
                    r#type: name.to_owned(),
                    id,
                    version: entry.version.to_string(),
                    owner: String::new(),
                    phase: "running".to_owned(),
                    created: Some(stamp(entry.created)),
                    updated: Some(stamp(entry.updated)),
                    finalizers: Vec::new(),
                    labels: Default::default(),
                    annotations: note.into_iter().collect(),
                }),
                spec: Some(Spec { proto_spec, yaml_spec }),
            }
        });
        made.collect()
    }
}
