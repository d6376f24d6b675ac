//! Dotenv: one `KEY=value` a line, and the metadata flattened into keys of its own.

use std::collections::BTreeMap;

use zeroize::Zeroizing;

use super::MAX_VALUES;
use super::error::Problem;
use super::tree::{Item, Kind, Node, Position, Value};

const FORMAT: &str = "dotenv";
pub(super) const PREFIX: &str = "sops_";
const MAP: &str = "__map_";
const LIST: &str = "__list_";

/// The lines of `text` as a map. Line ends of Windows are taken for line ends if all lines have them.
///
/// # Errors
/// A line without `=`.
pub(super) fn read(text: &str) -> Result<Node, Problem> {
    let lines = text.split('\n').collect::<Vec<_>>();
    let is_crlf = lines.iter().all(|line| line.is_empty() || line.ends_with('\r'));
    let mut items = Vec::new();
    for (number, line) in lines.into_iter().enumerate() {
        let line = if is_crlf { line.strip_suffix('\r').unwrap_or(line) } else { line };
        let at = Position { line: number + 1, column: 1 };
        let refuse = |why: &str| Problem::Unreadable { format: FORMAT, at: Some(at), why: why.to_owned() };
        if items.len() >= MAX_VALUES {
            return Err(refuse("it has too many lines"));
        }
        if line.is_empty() {
            continue;
        }
        if let Some(comment) = line.strip_prefix('#') {
            items.push(Item::Comment(Zeroizing::new(comment.to_owned())));
            continue;
        }
        let (key, value) = line.split_once('=').ok_or_else(|| refuse("a line has no `=`"))?;
        let value = Zeroizing::new(value.replace("\\n", "\n"));
        items.push(Item::Entry { key: key.to_owned(), at: Some(at), node: Node::Value(Value::text(&value)) });
    }
    Ok(Node::Map(items))
}

/// A flat map as lines.
///
/// # Errors
/// What is not flat, and bytes that are not text.
pub(super) fn write(node: &Node) -> Result<Zeroizing<Vec<u8>>, Problem> {
    let Node::Map(items) = node else { return Ok(Zeroizing::default()) };
    let mut out = Zeroizing::new(Vec::with_capacity(4096));
    for item in items {
        match item {
            Item::Comment(text) => {
                out.push(b'#');
                out.extend_from_slice(text.as_bytes());
            }
            Item::Entry { key, node, .. } => {
                let unwritable = |why| Problem::Unwritable { path: key.clone(), format: FORMAT, why };
                let value = node.value().ok_or_else(|| unwritable("dotenv has neither maps nor lists"))?;
                let text = value.str().ok_or_else(|| unwritable("it holds bytes that are not text"))?;
                if key.is_empty() || key.contains(['=', '\n']) || key.starts_with('#') {
                    return Err(unwritable("dotenv has no such keys"));
                }
                out.extend_from_slice(key.as_bytes());
                out.push(b'=');
                match value.kind {
                    Kind::Bool => out.extend_from_slice(text.to_ascii_lowercase().as_bytes()),
                    _ => out.extend_from_slice(Zeroizing::new(text.replace('\n', "\\n")).as_bytes()),
                }
            }
        }
        out.push(b'\n');
    }
    Ok(out)
}

/// Takes the flattened metadata out of a map, as a tree.
pub(super) fn take_metadata(node: &mut Node) -> Option<Node> {
    let Node::Map(items) = node else { return None };
    let is_metadata = |item: &Item| matches!(item, Item::Entry { key, .. } if key.starts_with(PREFIX));
    let (flat, rest): (Vec<Item>, Vec<Item>) = std::mem::take(items).into_iter().partition(is_metadata);
    *items = rest;
    if flat.is_empty() {
        return None;
    }
    let mut tree = Branch::default();
    for item in flat {
        if let Item::Entry { key, node: Node::Value(value), .. } = item {
            tree.place(&steps(key.strip_prefix(PREFIX)?), value);
        }
    }
    Some(tree.into_node())
}

/// The metadata as flat entries.
pub(super) fn flatten(metadata: &Node) -> Vec<Item> {
    fn descend(node: &Node, key: &str, out: &mut Vec<Item>) {
        match node {
            Node::Value(_) => out.push(Item::entry(key, node.clone())),
            Node::Map(items) => {
                for item in items {
                    if let Item::Entry { key: name, node, .. } = item {
                        let joint = if key == PREFIX { "" } else { MAP };
                        descend(node, &format!("{key}{joint}{name}"), out);
                    }
                }
            }
            Node::List(_) => {
                for (index, node) in node.list().enumerate() {
                    descend(node, &format!("{key}{LIST}{index}"), out);
                }
            }
        }
    }
    let mut out = Vec::new();
    descend(metadata, PREFIX, &mut out);
    out
}

#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Step {
    Key(String),
    Index(usize),
}

fn steps(key: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let (mut rest, mut is_index) = (key, false);
    loop {
        let end = [rest.find(MAP), rest.find(LIST)].into_iter().flatten().min().unwrap_or(rest.len());
        let (step, after) = rest.split_at(end);
        steps.push(match step.parse() {
            Ok(index) if is_index => Step::Index(index),
            _ => Step::Key(step.to_owned()),
        });
        is_index = after.starts_with(LIST);
        rest = match after.strip_prefix(MAP).or_else(|| after.strip_prefix(LIST)) {
            Some(rest) => rest,
            None => return steps,
        };
    }
}

#[derive(Default)]
struct Branch {
    value: Option<Value>,
    below: BTreeMap<Step, Branch>,
}

impl Branch {
    fn place(&mut self, steps: &[Step], value: Value) {
        match steps.split_first() {
            None => self.value = Some(value),
            Some((first, rest)) => self.below.entry(first.clone()).or_default().place(rest, value),
        }
    }

    fn into_node(self) -> Node {
        if let Some(value) = self.value {
            return Node::Value(value);
        }
        let is_list = matches!(self.below.keys().next(), Some(Step::Index(_)));
        let items = self.below.into_iter().map(|(step, branch)| {
            let key = if let Step::Key(key) = step { key } else { String::new() };
            Item::entry(key, branch.into_node())
        });
        if is_list { Node::List(items.collect()) } else { Node::Map(items.collect()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_and_written() {
        let text = "#top\nA=1\nexport B=\"x=y\"\nC=one\\ntwo\nD=\n";
        let node = read(text).unwrap();
        assert_eq!(node.get("export B").unwrap().value().unwrap().clear(), "\"x=y\"", "quotes are part of the value");
        assert_eq!(node.get("C").unwrap().value().unwrap().clear(), "one\ntwo");
        assert_eq!(String::from_utf8_lossy(&write(&node).unwrap()), text);
        assert_eq!(read("A=1\r\nB=2\r\n").unwrap().get("A").unwrap().value().unwrap().clear(), "1");
        assert_eq!(read("A=1\r\nB=2\n").unwrap().get("A").unwrap().value().unwrap().clear(), "1\r");
        assert!(read("planted\n").is_err_and(|problem| !problem.to_string().contains("planted")));
    }

    #[test]
    fn metadata_is_flattened_and_back() {
        let mut node = read("A=x\nsops_mac=m\nsops_age__list_1__map_enc=e\\nf\nsops_age__list_0__map_enc=d\n").unwrap();
        let metadata = take_metadata(&mut node).unwrap();
        assert_eq!(node.paths().len(), 1);
        assert_eq!(metadata.get("age").unwrap().at(1).unwrap().get("enc").unwrap().value().unwrap().clear(), "e\nf");
        let mut again = Node::Map(flatten(&metadata));
        assert_eq!(take_metadata(&mut again).unwrap(), metadata);
        assert!(take_metadata(&mut node).is_none());
    }
}
