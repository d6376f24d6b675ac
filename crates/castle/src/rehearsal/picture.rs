//! A castle as it stands, without what is drawn, counted or timed: two of them are the same, or it is told what differs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use castle_datacenter::{GuestView, Snapshot};
use castle_kubernetes::model::MANAGER;
use castle_talos::model::config::Configuration;
use castle_talos::model::merge::DocumentId;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::life::Life;

/// Everything that there is, by what it is called: guests, volumes, machine configurations, objects of clusters, entries of the vault.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Picture(BTreeMap<String, Value>);

/// What stands for a value that is drawn.
const DRAWN: &str = "(drawn)";
/// Options of guests that are drawn when a guest is made.
const DRAWN_OPTIONS: [&str; 4] = ["smbios1", "vmgenid", "meta", "digest"];
/// Lines of castle's mark that are: who it is, and which of its runs wrote it.
const DRAWN_LINES: [&str; 3] = ["operation: ", "epoch: ", "lineage: "];
/// Collections whose objects have drawn names, or come and go by themselves.
const FLEETING: [&str; 7] =
    ["controllerrevisions", "endpoints", "endpointslices", "events", "leases", "pods", "replicasets"];
/// What the keys of taints begin with that tell of a node's state.
const OF_STATE: &str = "node.kubernetes.io/";
/// What the API server draws for each object, counts, or notes the time of.
const DRAWN_METADATA: [&str; 5] = ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];
/// Fields of objects that are given out in the order in which objects come, or drawn.
const GIVEN_OUT: [&str; 6] = ["caBundle", "clusterIP", "clusterIPs", "podCIDR", "podCIDRs", "uid"];
/// How certificates and keys begin: in PEM, and in PEM in Base64.
const PEM: [&str; 2] = ["-----BEGIN ", "LS0tLS1CRUdJTi"];
/// What is where nothing is.
static NONE: Value = Value::Null;
/// Controllers that have nothing left to do change nothing for so long.
const PAUSE: Duration = Duration::from_secs(5);
/// What still changes then is told as it is.
const MOST_LOOKS: usize = 12;
/// How much of a value is told.
const MOST_LETTERS: usize = 100;

impl Picture {
    /// What there is.
    pub(crate) fn of(life: &Life) -> Self {
        let Snapshot { guests, volumes, .. } = life.datacenter.look();
        let mut all = BTreeMap::new();
        for guest in guests.values() {
            all.insert(format!("VM {}", guest.vmid), guest_of(guest));
            if let Some(text) = life.datacenter.machine_configuration(guest.vmid) {
                all.insert(format!("the machine configuration of VM {}", guest.vmid), configuration(&text));
            }
        }
        for ((host, name), volume) in &volumes {
            all.insert(format!("the volume {name} on {host}"), json!({"bytes": volume.size}));
        }
        let objects = life.datacenter.objects();
        // Clusters have drawn names, too: the first, the second.
        let clusters: BTreeSet<&String> = objects.keys().map(|(cluster, ..)| cluster).collect();
        for ((cluster, collection, place), object) in &objects {
            let number = clusters.iter().position(|known| *known == cluster).unwrap_or_default();
            let plural = collection.split('.').next().unwrap_or(collection);
            if !FLEETING.contains(&plural) {
                let which = if number == 0 { String::new() } else { format!(" of cluster {number}") };
                all.insert(format!("{collection} {place}{which}"), object_of(object));
            }
        }
        if let Some(place) = &life.script.vault {
            let vault = life.datacenter.vault(&place.host);
            for name in vault.secrets.keys() {
                let note = vault.comments.get(name).map(String::as_str).unwrap_or_default();
                all.insert(format!("{name} in the vault"), json!({"note": lasting(note)}));
            }
        }
        Self(all)
    }

    /// What there is once controllers have done what they do by themselves, as giving a new namespace what every one has.
    pub(crate) async fn settled(life: &Life) -> Self {
        let mut seen = Self::of(life);
        for _ in 0..MOST_LOOKS {
            life.clock().sleep(PAUSE).await;
            let now = Self::of(life);
            if now == seen {
                break;
            }
            seen = now;
        }
        seen
    }

    /// What differs, each with the first field that does.
    pub(crate) fn against(&self, expected: &Self) -> Vec<String> {
        let mut differences = Vec::new();
        for (what, wanted) in &expected.0 {
            match self.0.get(what) {
                None => differences.push(format!("{what} is missing")),
                Some(is) => differences.extend(first(is, wanted, "").map(|differs| format!("{what}: {differs}"))),
            }
        }
        let surplus = self.0.keys().filter(|what| !expected.0.contains_key(*what));
        differences.extend(surplus.map(|what| format!("{what} is there as well")));
        differences
    }
}

/// The first field that is not as expected.
fn first(is: &Value, wanted: &Value, at: &str) -> Option<String> {
    let below = |key: &str| if at.is_empty() { key.to_owned() } else { format!("{at}.{key}") };
    match (is, wanted) {
        _ if is == wanted => None,
        (Value::Object(is), Value::Object(wanted)) => {
            let keys: BTreeSet<&String> = is.keys().chain(wanted.keys()).collect();
            let mut pairs =
                keys.into_iter().map(|key| (key, is.get(key).unwrap_or(&NONE), wanted.get(key).unwrap_or(&NONE)));
            pairs.find_map(|(key, is, wanted)| first(is, wanted, &below(key)))
        }
        (Value::Array(is), Value::Array(wanted)) if is.len() == wanted.len() => {
            let mut pairs = is.iter().zip(wanted).enumerate();
            pairs.find_map(|(index, (is, wanted))| first(is, wanted, &below(&index.to_string())))
        }
        _ => Some(format!("{at} is {}, not {}", told(is), told(wanted))),
    }
}

fn told(value: &Value) -> String {
    let whole = match value {
        Value::Null => return "absent".to_owned(),
        value => value.to_string(),
    };
    let mut short: String = whole.chars().take(MOST_LETTERS).collect();
    if short.len() < whole.len() {
        short += "…";
    }
    format!("`{short}`")
}

fn guest_of(guest: &GuestView) -> Value {
    let options = guest.config.iter().filter(|(key, _)| !DRAWN_OPTIONS.contains(&key.as_str()));
    let options: BTreeMap<&String, String> =
        options.map(|(key, value)| (key, without_digest(&lasting(value)))).collect();
    json!({"host": guest.host, "running": guest.running, "pool": guest.pool, "lock": guest.lock, "options": options, "pending": guest.pending})
}

/// A text without the lines that are drawn.
fn lasting(text: &str) -> String {
    let is_lasting = |line: &&str| !DRAWN_LINES.iter().any(|drawn| line.starts_with(drawn));
    let told: Vec<&str> = text.lines().filter(is_lasting).collect();
    let told = told.join("\n");
    // In notes of the vault it is among the last words.
    told.split_once(", lineage ").map_or(told.as_str(), |(before, _)| before).to_owned()
}

/// Tags without the digest, which depends on the lineage, and without the time; all else is told by the other options.
fn without_digest(value: &str) -> String {
    value
        .split(';')
        .filter(|tag| !tag.starts_with("castle-since-"))
        .map(|tag| tag.strip_prefix("castle-is-").map_or(tag, |_| "castle-is"))
        .collect::<Vec<_>>()
        .join(";")
}

fn configuration(text: &str) -> Value {
    let Ok(parsed) = Configuration::parse(text) else { return json!("cannot be read") };
    let mut documents = Map::new();
    for document in parsed.documents() {
        let name = DocumentId::of(document).map_or_else(|_| "?".to_owned(), |id| id.to_string());
        let mut document = document.clone();
        settle(&mut document, &[]);
        documents.insert(name, document);
    }
    Value::Object(documents)
}

fn object_of(object: &Value) -> Value {
    let managers = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let is_castles = managers.map(|entry| &entry["manager"]).any(|manager| manager == MANAGER);
    let is_secret = object["kind"] == "Secret";
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.retain(|name, _| !DRAWN_METADATA.contains(&name.as_str()));
        }
    }
    // Taints of a node's own state come and go with it.
    if object["kind"] == "Node"
        && let Some(taints) = object["spec"]["taints"].as_array_mut()
    {
        taints.retain(|taint| !taint["key"].as_str().is_some_and(|key| key.starts_with(OF_STATE)));
        if taints.is_empty()
            && let Some(spec) = object["spec"].as_object_mut()
        {
            spec.remove("taints");
        }
    }
    settle(&mut object, &GIVEN_OUT);
    if is_secret && let Some(data) = object.get_mut("data").and_then(Value::as_object_mut) {
        for value in data.values_mut() {
            // Controllers draw theirs; castle's are what it was given. None is shown.
            let digest = Sha256::digest(value.as_str().unwrap_or_default());
            *value =
                if is_castles { format!("({:02x}{:02x}…)", digest[0], digest[1]) } else { DRAWN.to_owned() }.into();
        }
    }
    object
}

/// Puts one word in the place of every text that is drawn: the values of these keys, and what has the shape of it.
fn settle(value: &mut Value, drawn: &[&str]) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if drawn.contains(&name.as_str()) && text != "None" => *field = DRAWN.into(),
                    Value::Array(_) if drawn.contains(&name.as_str()) => *field = DRAWN.into(),
                    field => settle(field, drawn),
                }
            }
        }
        Value::Array(all) => all.iter_mut().for_each(|one| settle(one, drawn)),
        Value::String(text) if is_drawn(text) => *value = DRAWN.into(),
        _ => {}
    }
}

/// Whether it is a certificate or a key in PEM, 32 bytes in Base64, or a token as Kubernetes has them: what a Talos bundle is made of, by
/// whatever names configurations have for it.
fn is_drawn(text: &str) -> bool {
    let is_base64 = |letter: char| letter.is_ascii_alphanumeric() || "+/-_".contains(letter);
    let is_secret = text.len() == 44 && text.strip_suffix('=').is_some_and(|rest| rest.chars().all(is_base64));
    let is_token = text.split_once('.').is_some_and(|(id, secret)| {
        let is_part =
            |part: &str, length| part.len() == length && part.chars().all(|letter| letter.is_ascii_alphanumeric());
        is_part(id, 6) && is_part(secret, 16)
    });
    is_secret || is_token || PEM.iter().any(|begin| text.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(replicas: u8, drawn: &str, image: &str) -> Value {
        object_of(&json!({
            "kind": "Deployment",
            "metadata": {"name": "web", "uid": drawn, "resourceVersion": drawn, "managedFields": [{"manager": drawn}]},
            "spec": {"replicas": replicas, "containers": [{"image": image}], "clusterIP": drawn},
            "status": {"replicas": drawn},
        }))
    }

    #[test]
    fn objects_are_compared_by_what_is_wanted_of_them() {
        assert_eq!(first(&object(2, "7", "a"), &object(2, "8", "a"), ""), None);
        let differing = first(&object(2, "7", "b"), &object(3, "8", "a"), "");
        assert_eq!(differing.as_deref(), Some("spec.containers.0.image is `\"b\"`, not `\"a\"`"));
        let differing = first(&object(2, "7", "a"), &object(3, "8", "a"), "");
        assert_eq!(differing.as_deref(), Some("spec.replicas is `2`, not `3`"));
        assert_eq!(object(1, "None", "a")["spec"]["clusterIP"], "None", "to have none is wanted, not given out");
    }

    #[test]
    fn a_secret_of_castles_own_is_compared_and_not_shown() {
        let secret = |manager: &str, value: &str| {
            object_of(&json!({
                "kind": "Secret", "metadata": {"managedFields": [{"manager": manager}]}, "data": {"token": value},
            }))
        };
        let differing = first(&secret(MANAGER, "b25l"), &secret(MANAGER, "dHdv"), "").unwrap();
        assert!(differing.starts_with("data.token is ") && !differing.contains("b25l"), "{differing}");
        assert_eq!(first(&secret("somebody", "b25l"), &secret("somebody", "dHdv"), ""), None, "a controller's");
        let without = object_of(&json!({"kind": "Secret", "metadata": {}, "data": {}}));
        assert!(first(&without, &secret("somebody", "b25l"), "").is_some_and(|told| told.contains("absent")));
    }
}
