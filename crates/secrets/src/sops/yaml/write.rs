//! From documents to YAML that go-yaml reads back as the same values.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use zeroize::Zeroizing;

use super::resolve::resolve;
use crate::sops::tree::{Item, Kind, Node, Value};

/// The documents as text.
pub(in crate::sops) fn write(documents: &[Node], indent: usize) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(String::with_capacity(4096));
    for (number, document) in documents.iter().enumerate() {
        if number > 0 {
            out.push_str("---\n");
        }
        Writer { out: &mut out, indent }.block(document, 0);
    }
    Zeroizing::new(std::mem::take(&mut *out).into_bytes())
}

struct Writer<'o> {
    out: &'o mut String,
    indent: usize,
}

impl Writer<'_> {
    /// The items of a collection, each on lines of its own.
    fn block(&mut self, node: &Node, depth: usize) {
        let (items, is_list) = match node {
            Node::Map(items) => (items, false),
            Node::List(items) => (items, true),
            Node::Value(_) => return,
        };
        if depth == 0 && !has_entries(items) {
            self.comments(items, depth);
            self.out.push_str("{}\n");
            return;
        }
        for item in items {
            match item {
                Item::Comment(text) => self.comment(text, depth),
                Item::Entry { key, node, .. } => {
                    self.pad(depth);
                    if is_list {
                        self.out.push('-');
                    } else {
                        self.scalar(&Value::text(key), depth, true);
                        self.out.push(':');
                    }
                    self.node(node, depth, is_list);
                }
            }
        }
    }

    /// What stands after `key:` or `-`.
    fn node(&mut self, node: &Node, depth: usize, in_list: bool) {
        match node {
            Node::Value(value) => {
                self.out.push(' ');
                self.scalar(value, self.below(depth), false);
                self.out.push('\n');
            }
            Node::Map(items) | Node::List(items) if !has_entries(items) => {
                self.out.push_str(if matches!(node, Node::Map(_)) { " {}\n" } else { " []\n" });
                self.comments(items, depth);
            }
            Node::Map(items) | Node::List(items) if in_list && matches!(items.first(), Some(Item::Entry { .. })) => {
                // The first item stands beside the dash, the others below it.
                let start = self.out.len();
                self.block(node, depth + 2);
                self.out.replace_range(start..start + depth + 2, " ");
            }
            _ => {
                self.out.push('\n');
                self.block(node, self.below(depth));
            }
        }
    }

    /// The next step of the indentation, as go-yaml takes it: beside a dash steps are shorter.
    fn below(&self, depth: usize) -> usize {
        (depth / self.indent + 1) * self.indent
    }

    fn pad(&mut self, depth: usize) {
        self.out.extend(std::iter::repeat_n(' ', depth));
    }

    fn comment(&mut self, text: &str, depth: usize) {
        self.pad(depth);
        self.out.push('#');
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn comments(&mut self, items: &[Item], depth: usize) {
        for item in items {
            if let Item::Comment(text) = item {
                self.comment(text, depth);
            }
        }
    }

    fn scalar(&mut self, value: &Value, depth: usize, is_key: bool) {
        let Some(text) = value.str() else {
            self.out.push_str("!!binary ");
            self.out.push_str(&Zeroizing::new(BASE64_STANDARD.encode(&*value.bytes)));
            return;
        };
        match value.kind {
            Kind::Null => self.out.push_str("null"),
            Kind::Bool => self.out.push_str(if text == "True" { "true" } else { "false" }),
            Kind::Integer | Kind::Time => self.out.push_str(text),
            Kind::Float => self.out.push_str(&float(text)),
            // What was merged in stays so for whoever reads the file in clear.
            Kind::Text if is_key && text == "<<" => self.out.push_str("!!merge <<"),
            Kind::Text if is_plain(text) => self.out.push_str(text),
            Kind::Text if !is_key && is_literal(text) => self.literal(text, depth),
            Kind::Text => self.quoted(text),
        }
    }

    fn literal(&mut self, text: &str, depth: usize) {
        let body = text.trim_end_matches('\n');
        let chomping = match text.len() - body.len() {
            0 => "|-",
            1 => "|",
            _ => "|+",
        };
        self.out.push_str(chomping);
        let lines = text.strip_suffix('\n').unwrap_or(text).split('\n');
        for line in lines {
            self.out.push('\n');
            if !line.is_empty() {
                self.pad(depth);
                self.out.push_str(line);
            }
        }
    }

    fn quoted(&mut self, text: &str) {
        self.out.push('"');
        for character in text.chars() {
            match character {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\t' => self.out.push_str("\\t"),
                '\r' => self.out.push_str("\\r"),
                _ if is_shown(character) => self.out.push(character),
                _ if u32::from(character) < 0x100 => self.out.push_str(&format!("\\x{:02X}", u32::from(character))),
                _ if u32::from(character) < 0x1_0000 => self.out.push_str(&format!("\\u{:04X}", u32::from(character))),
                _ => self.out.push_str(&format!("\\U{:08X}", u32::from(character))),
            }
        }
        self.out.push('"');
    }
}

fn has_entries(items: &[Item]) -> bool {
    items.iter().any(|item| matches!(item, Item::Entry { .. }))
}

/// A number that stays a float when it is read back.
fn float(text: &str) -> String {
    match text {
        "+Inf" => ".inf".to_owned(),
        "-Inf" => "-.inf".to_owned(),
        "NaN" => ".nan".to_owned(),
        _ if text.contains('.') => text.to_owned(),
        _ => format!("{text}.0"),
    }
}

/// Whether a character may stand in YAML as it is.
fn is_shown(character: char) -> bool {
    matches!(character, ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..='\u{10ffff}')
        && !matches!(character, '\u{2028}' | '\u{2029}' | '\u{feff}')
}

/// Whether a text can stand without quotes, for go-yaml and for readers of YAML 1.1.
fn is_plain(text: &str) -> bool {
    const WORDS_OF_1_1: [&str; 8] = ["y", "n", "yes", "no", "on", "off", "=", "<<"];
    let first = text.chars().next();
    let starts_well = first.is_some_and(|first| {
        first.is_alphanumeric() || matches!(first, '_' | '/' | '.' | '+' | '$' | '(' | ';' | '^' | '~')
    });
    starts_well
        && text.chars().all(is_shown)
        && !text.ends_with([' ', ':', '\u{a0}'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("...")
        && !WORDS_OF_1_1.contains(&text.to_ascii_lowercase().as_str())
        && !is_base_60(text)
        && resolve(text, true, None).is_ok_and(|value| value.kind == Kind::Text)
}

/// What readers of YAML 1.1 take for a number to the base of 60.
fn is_base_60(text: &str) -> bool {
    text.contains(':') && text.bytes().all(|byte| byte.is_ascii_digit() || b":+-._".contains(&byte))
}

/// Whether a text can stand as a literal block.
fn is_literal(text: &str) -> bool {
    text.contains('\n')
        && !text.starts_with([' ', '\n', '\t'])
        && text.chars().all(|character| character == '\n' || is_shown(character))
        && text.split('\n').all(|line| !line.ends_with(' ') && !line.starts_with('\u{a0}'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sops::yaml::read;

    fn written(text: &str) -> String {
        String::from_utf8(write(&read(text).unwrap(), 4).to_vec()).unwrap()
    }

    #[test]
    fn documents_are_written_as_sops_writes_them() {
        let text = "# top\na: ENC[AES256_GCM,data:x==,iv:y,tag:z,type:str]\nb:\n    # in b\n    c:\n        - d: 1\n          e: x\n        - f\n        - - 1\n          - 2\ng: |\n    one\n    two\nh: {}\ni: []\nj: null\n---\nk: 2024-01-01T00:00:00Z\nl: 1.0\nm: true\n";
        assert_eq!(written(text), text);
    }

    #[test]
    fn what_would_be_read_as_something_else_is_quoted() {
        for text in [
            "yes",
            "1",
            "1.5",
            "~",
            "null",
            "a: b",
            "a #b",
            "- a",
            "2024-01-01",
            "1:20",
            "<<",
            "",
            " a",
            "a ",
            "#a",
            "*a",
            "&a",
            "!a",
            "a:",
            "0x1",
            "...",
            "%a",
            "@a",
        ] {
            let document = [Node::Map(vec![Item::text("k", text)])];
            let out = write(&document, 4);
            assert_eq!(String::from_utf8_lossy(&out), format!("k: \"{text}\"\n"));
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            any::<String>().prop_map(|text| Value::text(&text)),
            "[ -~\n\t]{0,40}".prop_map(|text| Value::text(&text)),
            "[-+0-9._:eExXoOa-f ]{0,12}".prop_map(|text| Value::text(&text)),
            any::<i64>().prop_map(|number| Value::new(Kind::Integer, number.to_string())),
            any::<f64>().prop_map(Value::float),
            any::<bool>().prop_map(Value::bool),
            proptest::collection::vec(any::<u8>(), 0..12).prop_map(|bytes| Value::new(Kind::Text, bytes)),
            Just(Value::null()),
        ]
    }

    fn node() -> impl Strategy<Value = Node> {
        value().prop_map(Node::Value).prop_recursive(4, 32, 5, |inner| {
            let entries = proptest::collection::btree_map(any::<String>(), inner.clone(), 0..5);
            prop_oneof![
                entries.prop_map(|map| Node::Map(map.into_iter().map(|(key, node)| Item::entry(key, node)).collect())),
                proptest::collection::vec(inner, 0..5)
                    .prop_map(|list| Node::List(list.into_iter().map(|node| Item::entry("", node)).collect())),
            ]
        })
    }

    fn without_places(node: Node) -> Node {
        let strip = |items: Vec<Item>| {
            items
                .into_iter()
                .map(|item| match item {
                    Item::Entry { key, node, .. } => Item::entry(key, without_places(node)),
                    comment @ Item::Comment(_) => comment,
                })
                .collect()
        };
        match node {
            Node::Map(items) => Node::Map(strip(items)),
            Node::List(items) => Node::List(strip(items)),
            value @ Node::Value(_) => value,
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(map in proptest::collection::btree_map(any::<String>(), node(), 0..5), indent in 2_usize..6) {
            let document = Node::Map(map.into_iter().map(|(key, node)| Item::entry(key, node)).collect());
            let out = write(std::slice::from_ref(&document), indent);
            let text = std::str::from_utf8(&out).unwrap();
            let back = read(text).map_err(|problem| TestCaseError::fail(format!("{problem}\n{text}")))?;
            prop_assert_eq!(back.into_iter().map(without_places).collect::<Vec<_>>(), vec![document], "{}", text);
        }
    }
}
