//! `.sops.yaml`: for whom new files are encrypted, and by which rule.

use std::path::{Path, PathBuf};

use castle_seams::{Disk, DiskErrorKind};

use super::error::Problem;
use super::recipient;
use super::rule::{Rule, pattern};
use super::tree::Node;
use super::yaml;

const NAME: &str = ".sops.yaml";
/// How far up sops looks.
const MAX_LEVELS: usize = 100;
/// No configuration is longer.
const MAX_BYTES: u64 = 1 << 20;
/// Keys of a rule that name keys of other services.
const FOREIGN: [&str; 8] =
    ["kms", "pgp", "gcp_kms", "hckms", "azure_keyvault", "hc_vault_transit_uri", "hc_vault", "azure_kv"];

/// How files are indented.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Layout {
    /// Spaces a level of YAML.
    pub yaml: usize,
    /// Spaces a level of JSON; none for tabs.
    pub json: Option<usize>,
}

impl Default for Layout {
    fn default() -> Self {
        Self { yaml: 4, json: None }
    }
}

/// For whom a file is encrypted, and how.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Recipients of age, in groups. Of one group anyone can read; of several, shares are needed.
    pub groups: Vec<Vec<String>>,
    /// How many groups it takes; 0 for all.
    pub shamir_threshold: usize,
    /// The rule; none for the default.
    pub rule: Option<Rule>,
    /// Whether the MAC leaves out what is in clear.
    pub mac_only_encrypted: bool,
    /// How it is indented.
    pub layout: Layout,
}

impl Policy {
    /// For these recipients, each of whom can read.
    #[must_use]
    pub fn for_recipients(recipients: Vec<String>) -> Self {
        Self { groups: vec![recipients], ..Self::default() }
    }

    /// How many groups it takes.
    pub(super) fn threshold(&self) -> Result<u8, Problem> {
        let groups = self.groups.len();
        let wanted = if self.shamir_threshold == 0 { groups } else { self.shamir_threshold };
        match u8::try_from(wanted) {
            Ok(threshold) if groups <= 1 || (2..=groups.min(255)).contains(&wanted) => Ok(threshold),
            _ => Err(Problem::Metadata(format!("{wanted} of {groups} key groups cannot be: write 2 to {groups}"))),
        }
    }
}

/// A configuration that was found.
#[derive(Clone, Debug)]
pub struct Config {
    file: PathBuf,
    root: Node,
}

impl Config {
    /// The nearest `.sops.yaml` above `file`, which need not exist but must be absolute; none if there is none.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn above(file: &Path, disk: &dyn Disk) -> Result<Option<Self>, Problem> {
        for folder in file.ancestors().skip(1).take(MAX_LEVELS) {
            let candidate = folder.join(NAME);
            match disk.read(&candidate, MAX_BYTES) {
                Ok(bytes) => return Self::read(&candidate, &bytes).map(Some),
                Err(error) if error.kind == DiskErrorKind::NotFound => {}
                Err(error) => return Err(Problem::Disk(error)),
            }
        }
        Ok(None)
    }

    /// Reads one that is in memory.
    ///
    /// # Errors
    /// It is no YAML.
    pub fn read(file: &Path, bytes: &[u8]) -> Result<Self, Problem> {
        let refuse = |why: String| Problem::Config { file: file.display().to_string(), why };
        let text = std::str::from_utf8(bytes).map_err(|_| refuse("it is not text".to_owned()))?;
        let documents = yaml::read(text).map_err(|problem| refuse(problem.to_string()))?;
        let root = documents.into_iter().next().unwrap_or(Node::Map(Vec::new()));
        Ok(Self { file: file.to_owned(), root })
    }

    /// Where it is.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// What the first rule that matches says of `file`; none if there are no rules at all.
    ///
    /// # Errors
    /// No rule matches, or the one that does cannot be used.
    pub fn policy(&self, file: &Path) -> Result<Option<Policy>, Problem> {
        let refuse = |why: String| Problem::Config { file: self.file.display().to_string(), why };
        let Some(rules) = self.root.get("creation_rules") else { return Ok(None) };
        let folder = self.file.parent().unwrap_or(Path::new(""));
        let relative = file.strip_prefix(folder).unwrap_or(file).to_string_lossy();
        for (number, rule) in rules.list().enumerate() {
            let expression = text(rule, "path_regex");
            let regex = pattern(&expression)
                .map_err(|_| refuse(format!("`path_regex` of rule {} is not a regular expression", number + 1)))?;
            if expression.is_empty() || regex.is_match(relative.as_bytes()) {
                let policy = self.rule(rule).map_err(|why| refuse(format!("rule {}: {why}", number + 1)))?;
                return Ok(Some(policy));
            }
        }
        Err(refuse(format!("none of its creation rules matches {relative}: add one, or name recipients with --age")))
    }

    /// How files are indented.
    #[must_use]
    pub fn layout(&self) -> Layout {
        let indent = |store: &str| -> Option<usize> {
            let value = self.root.get("stores")?.get(store)?.get("indent")?.value()?;
            value.clear().parse().ok()
        };
        let usual = Layout::default();
        let yaml = indent("yaml").filter(|indent| (1..=16).contains(indent)).unwrap_or(usual.yaml);
        Layout { yaml: yaml.max(2), json: indent("json").filter(|indent| *indent <= 16) }
    }

    fn rule(&self, rule: &Node) -> Result<Policy, String> {
        let mut groups = Vec::new();
        for group in rule.get("key_groups").into_iter().flat_map(Node::list) {
            let mut names = Vec::new();
            members(group, &mut names, 0)?;
            groups.push(names);
        }
        if groups.is_empty() {
            let mut names = Vec::new();
            members(rule, &mut names, 0)?;
            groups.push(names);
        }
        for name in groups.iter().flatten() {
            recipient::parse(name).map_err(|why| match name.starts_with("AGE-SECRET-KEY-") {
                true => why.to_owned(),
                false => format!("`{name}`: {why}"),
            })?;
        }
        let threshold = text(rule, "shamir_threshold");
        Ok(Policy {
            groups,
            shamir_threshold: if threshold.is_empty() {
                0
            } else {
                threshold.parse().map_err(|_| "`shamir_threshold` is no number".to_owned())?
            },
            rule: Rule::read(rule)?,
            mac_only_encrypted: text(rule, "mac_only_encrypted").eq_ignore_ascii_case("true"),
            layout: self.layout(),
        })
    }
}

/// The recipients of age in a rule or a group, each once, in order.
fn members(node: &Node, names: &mut Vec<String>, depth: usize) -> Result<(), String> {
    if depth > 8 {
        return Err("`merge` nests too deeply".to_owned());
    }
    for merged in node.get("merge").into_iter().flat_map(Node::list) {
        members(merged, names, depth + 1)?;
    }
    for service in FOREIGN {
        let named = node.get(service).is_some_and(|keys| keys.at(0).is_some() || !text(node, service).is_empty());
        if named {
            return Err(format!(
                "it names keys of `{service}`, which castle cannot wrap for: use sops itself for this"
            ));
        }
    }
    let Some(age) = node.get("age") else { return Ok(()) };
    let listed = age.list().filter_map(Node::value).chain(age.value());
    for name in listed.flat_map(|value| value.clear().split(',')).map(str::trim).filter(|name| !name.is_empty()) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    Ok(())
}

fn text(map: &Node, key: &str) -> String {
    map.get(key).and_then(Node::value).map(|value| value.clear().to_owned()).unwrap_or_default()
}

#[cfg(test)]
mod tests;
