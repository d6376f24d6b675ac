//! The `sops` map of a file: who can read it, by which rule, and its MAC.

use super::error::Problem;
use super::moment;
use super::rule::Rule;
use super::tree::{Item, Kind, Node, Value};

/// Keys of other services that may wrap the data key beside age.
const FOREIGN: [(&str, &str); 6] = [
    ("kms", "arn"),
    ("gcp_kms", "resource_id"),
    ("hckms", "key_id"),
    ("azure_kv", "vault_url"),
    ("hc_vault", "vault_address"),
    ("pgp", "fp"),
];

/// What is written where no sops has written before.
const VERSION: &str = "3.11.0";

/// The data key, or a share of it, wrapped for one recipient.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Wrapped {
    pub(super) recipient: String,
    pub(super) armored: String,
}

/// Recipients of whom any one will do.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) age: Vec<Wrapped>,
    /// Lists of other services' keys, kept as they are.
    pub(super) foreign: Vec<(String, Node)>,
}

#[derive(Clone, Debug)]
pub(super) struct Metadata {
    /// One group, or several whose shares make the key.
    pub(super) groups: Vec<Group>,
    pub(super) threshold: usize,
    /// None for a file that names none, for which the default holds.
    pub(super) rule: Option<Rule>,
    pub(super) mac_only_encrypted: bool,
    pub(super) modified: String,
    pub(super) mac: String,
    pub(super) version: String,
}

impl Group {
    fn read(map: &Node) -> Result<Self, Problem> {
        let mut group = Self::default();
        for entry in map.get("age").into_iter().flat_map(Node::list) {
            let (recipient, armored) = (text(entry, "recipient"), text(entry, "enc"));
            if recipient.is_empty() || armored.is_empty() {
                return Err(unusable("an entry of `age` lacks its `recipient` or its `enc`"));
            }
            group.age.push(Wrapped { recipient, armored });
        }
        for (name, _) in FOREIGN {
            if let Some(list) = map.get(name).filter(|list| list.at(0).is_some()) {
                group.foreign.push((name.to_owned(), list.clone()));
            }
        }
        Ok(group)
    }

    fn write(&self) -> Vec<Item> {
        let mut items: Vec<Item> = self.foreign.iter().map(|(name, list)| Item::entry(name, list.clone())).collect();
        if !self.age.is_empty() {
            let entries = self.age.iter().map(|wrapped| {
                let entry = [("recipient", &wrapped.recipient), ("enc", &wrapped.armored)];
                Item::entry("", Node::Map(entry.iter().map(|(key, text)| Item::text(key, text)).collect()))
            });
            items.push(Item::entry("age", Node::List(entries.collect())));
        }
        items
    }

    /// Everyone in it, in public words.
    pub(super) fn recipients(&self) -> impl Iterator<Item = String> {
        let foreign = self.foreign.iter().flat_map(|(service, list)| {
            let name = FOREIGN.iter().find(|(known, _)| known == service).map_or("", |(_, name)| name);
            list.list().map(move |key| format!("{service} {}", text(key, name)))
        });
        self.age.iter().map(|wrapped| wrapped.recipient.clone()).chain(foreign)
    }
}

impl Metadata {
    pub(super) fn new(groups: Vec<Group>, threshold: usize, rule: Option<Rule>, mac_only_encrypted: bool) -> Self {
        let (modified, mac, version) = (String::new(), String::new(), VERSION.to_owned());
        Self { groups, threshold, rule, mac_only_encrypted, modified, mac, version }
    }

    /// Reads the `sops` map.
    pub(super) fn read(map: &Node) -> Result<Self, Problem> {
        if !matches!(map, Node::Map(_)) {
            return Err(unusable("`sops` is no map"));
        }
        let version = text(map, "version");
        if version.is_empty() {
            return Err(Problem::NoVersion);
        }
        let alone = Group::read(map)?;
        let mut groups = Vec::new();
        if alone.age.is_empty() && alone.foreign.is_empty() {
            for group in map.get("key_groups").into_iter().flat_map(Node::list) {
                groups.push(Group::read(group)?);
            }
        } else {
            groups.push(alone);
        }
        if groups.is_empty() {
            return Err(unusable("it names nobody who could read the file"));
        }
        let threshold = text(map, "shamir_threshold");
        let threshold = if threshold.is_empty() {
            0
        } else {
            threshold.parse().map_err(|_| unusable("`shamir_threshold` is no number"))?
        };
        Ok(Self {
            groups,
            threshold,
            rule: Rule::read(map).map_err(Problem::Metadata)?,
            mac_only_encrypted: text(map, "mac_only_encrypted").eq_ignore_ascii_case("true"),
            modified: text(map, "lastmodified"),
            mac: text(map, "mac"),
            version,
        })
    }

    /// How many groups it takes.
    pub(super) fn needed(&self) -> usize {
        if self.threshold == 0 { self.groups.len() } else { self.threshold.min(self.groups.len()) }
    }

    /// `lastmodified` as it is authenticated with the MAC.
    pub(super) fn mac_context(&self) -> Result<String, Problem> {
        moment::modified(&self.modified).ok_or_else(|| unusable("`lastmodified` is no moment in RFC 3339"))
    }

    /// The `sops` map. `rule` is left out where the format has none.
    pub(super) fn write(&self, with_rule: bool) -> Node {
        let mut items = Vec::new();
        if self.threshold > 0 {
            let threshold = Value::new(Kind::Integer, self.threshold.to_string());
            items.push(Item::entry("shamir_threshold", Node::Value(threshold)));
        }
        match self.groups.as_slice() {
            [alone] => items.extend(alone.write()),
            several => {
                let groups = several.iter().map(|group| Item::entry("", Node::Map(group.write())));
                items.push(Item::entry("key_groups", Node::List(groups.collect())));
            }
        }
        items.push(Item::text("lastmodified", &self.modified));
        items.push(Item::text("mac", &self.mac));
        if with_rule || self.rule.is_some() {
            let rule = self.rule.clone().unwrap_or_default();
            items.push(Item::text(rule.name(), rule.text()));
        }
        if self.mac_only_encrypted {
            items.push(Item::entry("mac_only_encrypted", Node::Value(Value::bool(true))));
        }
        items.push(Item::text("version", &self.version));
        Node::Map(items)
    }

    /// Everyone who can read the file, in public words.
    pub(super) fn recipients(&self) -> Vec<String> {
        self.groups.iter().flat_map(Group::recipients).collect()
    }

    /// The services beside age that take part.
    pub(super) fn foreign(&self) -> Option<String> {
        let mut names: Vec<&str> =
            self.groups.iter().flat_map(|group| &group.foreign).map(|(name, _)| name.as_str()).collect();
        names.dedup();
        (!names.is_empty()).then(|| names.join(", "))
    }
}

fn unusable(why: &str) -> Problem {
    Problem::Metadata(why.to_owned())
}

/// The text at a key; empty if there is none.
fn text(map: &Node, key: &str) -> String {
    map.get(key).and_then(Node::value).map(|value| value.clear().to_owned()).unwrap_or_default()
}
