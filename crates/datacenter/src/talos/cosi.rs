//! The resources that a node keeps about itself: as a client reads them.

use castle_talos_api::cosi::resource::{Metadata, Resource, Spec};
use prost::Message;
use serde_json::{Value, json};

use super::yaml;
use crate::world::World;

mod kinds;
mod kubernetes;
mod network;
mod proto;
mod status;

use kinds::{Form, KINDS, Kind};
pub(crate) use kubernetes::static_pod_names;
pub(crate) use network::{current_addresses, overlap};
pub(crate) use status::{pretty, unmet};

/// A kind that nodes of Talos have and this one does not.
pub(crate) struct Absent {
    /// Whether only administrators would see it.
    pub(crate) is_secret: bool,
}

/// The kind that tells which kinds there are.
pub(crate) const DEFINITIONS: &str = "ResourceDefinitions.meta.cosi.dev";

/// The kind that tells which namespaces there are.
pub(crate) const NAMESPACE_KIND: &str = "Namespaces.meta.cosi.dev";

/// The kind that is counted anew again and again.
const CPU_STATS: &str = "CPUStats.perf.talos.dev";

/// The namespaces, and what they are for.
pub(crate) const NAMESPACES: [(&str, &str); 17] = [
    ("cluster", "Cluster configuration and discovery resources."),
    ("cluster-raw", "Cluster unmerged raw resources."),
    ("config", "Talos node configuration."),
    ("controlplane", "Kubernetes control plane resources."),
    ("cri", "CRI Seccomp resources."),
    ("etcd", "etcd resources."),
    ("files", "Files and file-like resources."),
    ("hardware", "Hardware resources."),
    ("k8s", "Kubernetes all node types resources."),
    ("kubespan", "KubeSpan resources."),
    ("meta", "Metadata namespace which contains resource and namespace definitions."),
    ("network", "Networking resources."),
    ("network-config", "Networking configuration resources."),
    ("perf", "Stats resources."),
    ("runtime", "Talos v1alpha1 subsystems glue resources."),
    ("secrets", "Resources with secret material."),
    ("security", "Security resources."),
];

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
    let mut aliases: Vec<String> = kind.aliases.iter().map(|&alias| alias.to_owned()).collect();
    // Every kind goes by its name for one, and by its first letters.
    let letters: String = singular.chars().filter(char::is_ascii_uppercase).collect::<String>().to_lowercase();
    let short = if letters.len() > 1 { letters.as_str() } else { "" };
    let plural_short = if short.ends_with('s') { String::new() } else { format!("{short}s") };
    for alias in [singular.to_lowercase(), short.to_owned(), plural_short] {
        if alias.len() > 1 && !aliases.contains(&alias) {
            aliases.push(alias);
        }
    }
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

/// What is told to programs.
fn bytes(form: Form, value: &Value) -> Vec<u8> {
    match form {
        // The text leaves out that an address is its own.
        Form::Message("AddressStatus") => {
            let mut value = value.clone();
            let own = value["address"].as_str().and_then(|text| text.split('/').next()).map(str::to_owned);
            value["local"] = json!(own);
            proto::encode("AddressStatus", &value)
        }
        Form::Message(name) => proto::encode(name, value),
        Form::Text => proto::text(value.as_str().unwrap_or_default()),
        Form::Word(words) => proto::word(words, value.as_str().unwrap_or_default()),
        Form::Free => proto::free(value),
    }
}

/// Finds a kind among those that a version of Talos has and that are not here.
fn absent(name: &str, minor: u32) -> Option<Absent> {
    let mut lines = include_str!("cosi/absent.txt").lines().filter(|line| !line.starts_with('#'));
    lines.find_map(|line| {
        let mut words = line.split(' ');
        let is_meant = words.next() == Some(name) && words.next()?.parse::<u32>().ok()? <= minor;
        is_meant.then(|| Absent { is_secret: words.next().is_some() })
    })
}

impl World {
    /// The kind of this name that a real node would know, and this one does not.
    pub(crate) fn absent_kind(&self, vmid: u32, name: &str) -> Option<Absent> {
        absent(name, self.talos.nodes.get(&vmid)?.image.minor())
    }

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
        let known = self.resource_kind(vmid, name);
        let mut said: Vec<(String, Value, Vec<u8>)> = match (name, known) {
            (DEFINITIONS, _) => KINDS.iter().filter(|kind| kind.since <= minor).map(definition).collect(),
            (NAMESPACE_KIND, _) => {
                let say = |(name, what): &(&str, &str)| {
                    ((*name).to_owned(), json!({ "description": what }), proto::text(what))
                };
                NAMESPACES.iter().map(say).collect()
            }
            (_, Some(kind)) => (kind.say)(self, node, boot)
                .into_iter()
                .map(|(id, value)| {
                    let bytes = bytes(kind.form, &value);
                    (id, value, bytes)
                })
                .collect(),
            (_, None) => return Vec::new(),
        };
        said.sort_by(|one, other| one.0.cmp(&other.0));
        let (namespace, owner) = known.map_or(("meta", "meta"), |kind| (kind.namespace, kind.owner));
        let is_mounted = boot.has_ephemeral;
        let now = if name == CPU_STATS { self.now - status::since_counted(self.now, boot) } else { self.now };
        let Some(boot) = self.talos.boot_mut(vmid) else { return Vec::new() };
        let noted: Vec<_> = (said.into_iter())
            .map(|(id, value, proto_spec)| {
                let yaml_spec = yaml::text(&value);
                (boot.ledger.note(now, name, &id, &yaml_spec), id, Spec { proto_spec, yaml_spec })
            })
            .collect();
        let made = noted.into_iter().map(|(entry, id, spec)| {
            let is_volume = name.starts_with("VolumeStatuses.") && !id.starts_with("u-");
            let is_held = is_volume && is_mounted && id.starts_with('/');
            let label = is_volume.then(|| ("talos.dev/system-volume".to_owned(), String::new()));
            let is_config = name.starts_with("MachineConfigs.");
            let note = is_config.then(|| ("talos.dev/yaml-spec".to_owned(), "1".to_owned()));
            Resource {
                metadata: Some(Metadata {
                    namespace: namespace.to_owned(),
                    r#type: name.to_owned(),
                    id,
                    version: entry.version.to_string(),
                    owner: owner.to_owned(),
                    phase: "running".to_owned(),
                    created: Some(self.node_timestamp(vmid, entry.created)),
                    updated: Some(self.node_timestamp(vmid, entry.updated)),
                    finalizers: is_held.then(|| "block.MountController".to_owned()).into_iter().collect(),
                    labels: label.into_iter().collect(),
                    annotations: note.into_iter().collect(),
                }),
                spec: Some(spec),
            }
        });
        made.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_here_is_not_told_as_absent() {
        for kind in KINDS {
            assert!(absent(kind.name, u32::MAX).is_none(), "{}", kind.name);
        }
    }

    #[test]
    fn every_absent_kind_has_its_version() {
        let lines: Vec<&str> = include_str!("cosi/absent.txt").lines().filter(|line| !line.starts_with('#')).collect();
        assert!(lines.is_sorted() && lines.len() > 100, "{}", lines.len());
        for line in lines {
            let (name, rest) = line.split_once(' ').unwrap();
            let (since, is_secret) =
                rest.split_once(' ').map_or((rest, false), |(since, word)| (since, word == "secret"));
            let since: u32 = since.parse().unwrap();
            assert_eq!(absent(name, since).map(|it| it.is_secret), Some(is_secret), "{line}");
            assert!(absent(name, since - 1).is_none(), "{line}");
        }
    }
}
