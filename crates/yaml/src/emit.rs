//! Values to text, as Talos' own programs print them.

use std::borrow::Cow;

use serde_json::{Map, Number, Value};

use super::plain::{Plain, misread_elsewhere, resolve};

/// How far things are indented.
#[derive(Clone, Copy)]
struct Layout {
    /// Columns a level.
    level: usize,
    /// Whether the dashes of a list stand one level right of its key.
    dashes: bool,
}

const TALOS: Layout = Layout { level: 4, dashes: true };
const KUBERNETES: Layout = Layout { level: 2, dashes: false };

/// Writes one document as Talos does.
#[must_use]
pub fn emit(value: &Value) -> String {
    emit_all([value])
}

/// Writes several documents as Talos does, a line `---` between each two.
#[must_use]
pub fn emit_all<'v>(documents: impl IntoIterator<Item = &'v Value>) -> String {
    let documents: Vec<&Value> = documents.into_iter().collect();
    let mut writer = Writer::with_room_for(&documents, TALOS);
    for (index, document) in documents.into_iter().enumerate() {
        if index > 0 {
            writer.text.push_str("---\n");
        }
        writer.document(document);
    }
    writer.text
}

/// Writes one document as Kubernetes' own programs do.
#[must_use]
pub fn emit_for_kubernetes(value: &Value) -> String {
    let mut writer = Writer::with_room_for(&[value], KUBERNETES);
    writer.document(value);
    writer.text
}

/// Roughly what a value takes once it is written.
fn room(value: &Value) -> usize {
    32 + match value {
        Value::String(text) => 2 * text.len(),
        Value::Array(items) => items.iter().map(room).sum(),
        Value::Object(entries) => entries.iter().map(|(key, value)| 32 + key.len() + room(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    }
}

struct Writer {
    text: String,
    layout: Layout,
}

impl Writer {
    /// A text that grows is copied, and the copies are not wiped: there may be secrets in it.
    fn with_room_for(documents: &[&Value], layout: Layout) -> Self {
        let room = documents.iter().map(|document| room(document)).sum();
        Self { text: String::with_capacity(room), layout }
    }

    fn document(&mut self, value: &Value) {
        match value {
            Value::Object(entries) if !entries.is_empty() => self.mapping(entries, 0, false),
            Value::Array(items) if !items.is_empty() => self.sequence(items, 0, false),
            leaf => self.leaf(leaf, 0, self.layout.level),
        }
    }

    /// The keys of a mapping at a column. The first may follow a dash on the same line.
    fn mapping(&mut self, entries: &Map<String, Value>, column: usize, after_dash: bool) {
        for (index, (key, value)) in entries.iter().enumerate() {
            if index > 0 || !after_dash {
                self.indent(column);
            }
            self.text.push_str(&key_text(key));
            self.text.push(':');
            // What is below a key starts at the next full level, also where a dash has shifted the key itself.
            let below = self.layout.level * (column / self.layout.level + 1);
            match value {
                Value::Object(entries) if !entries.is_empty() => {
                    self.text.push('\n');
                    self.mapping(entries, below, false);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.text.push('\n');
                    self.sequence(items, if self.layout.dashes { below } else { column }, false);
                }
                leaf => {
                    self.text.push(' ');
                    self.leaf(leaf, column, below);
                }
            }
        }
    }

    /// The items of a list, their dashes at a column.
    fn sequence(&mut self, items: &[Value], column: usize, after_dash: bool) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 || !after_dash {
                self.indent(column);
            }
            self.text.push_str("- ");
            let inside = column + 2;
            match item {
                Value::Object(entries) if !entries.is_empty() => self.mapping(entries, inside, true),
                Value::Array(items) if !items.is_empty() => self.sequence(items, inside, true),
                leaf => self.leaf(leaf, column, inside),
            }
        }
    }

    fn indent(&mut self, columns: usize) {
        self.text.extend(std::iter::repeat_n(' ', columns));
    }

    /// What has nothing inside, to the end of its line: on this one, or as a block of lines at the column `below`.
    fn leaf(&mut self, value: &Value, column: usize, below: usize) {
        match value {
            Value::Null => self.text.push_str("null"),
            Value::Bool(value) => self.text.push_str(if *value { "true" } else { "false" }),
            Value::Number(number) => self.text.push_str(&number_text(number)),
            Value::String(value) if fits_block(value) => self.block(value, column, below),
            Value::String(value) => self.text.push_str(&line_text(value)),
            Value::Array(_) => self.text.push_str("[]"),
            Value::Object(_) => self.text.push_str("{}"),
        }
        self.text.push('\n');
    }

    fn block(&mut self, value: &str, column: usize, below: usize) {
        self.text.push('|');
        if value.starts_with(' ') {
            self.text.push_str(&(below - column).to_string());
        }
        let content = value.strip_suffix('\n');
        self.text.push_str(match content {
            None => "-",
            Some(content) if content.ends_with('\n') => "+",
            Some(_) => "",
        });
        for line in content.unwrap_or(value).split('\n') {
            self.text.push('\n');
            if !line.is_empty() {
                self.indent(below);
                self.text.push_str(line);
            }
        }
    }
}

/// Go writes out numbers from a ten-thousandth to six digits, and the others as powers of ten.
fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else { return number.to_string() };
    let scientific = format!("{float:e}");
    match scientific.split_once('e').and_then(|(mantissa, power)| Some((mantissa, power.parse::<i32>().ok()?))) {
        Some((mantissa, power)) if !(-4..6).contains(&power) => {
            format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.abs())
        }
        _ => float.to_string(),
    }
}

/// A key: a text of one line, whatever it takes.
fn key_text(key: &str) -> Cow<'_, str> {
    if key.contains('\n') { quoted(key).into() } else { line_text(key) }
}

/// A text on one line: plain if it cannot be mistaken, in double quotes if it would mean something else, in single ones if it
/// would break the line's grammar.
fn line_text(text: &str) -> Cow<'_, str> {
    let unwritable = text.contains(['\n', '\t']) || text.chars().any(is_special);
    if unwritable || resolve(text) != Plain::Text || misread_elsewhere(text) {
        quoted(text).into()
    } else if breaks_grammar(text) {
        format!("'{}'", text.replace('\'', "''")).into()
    } else {
        text.into()
    }
}

fn breaks_grammar(text: &str) -> bool {
    const FIRST: [char; 16] = ['#', ',', '[', ']', '{', '}', '&', '*', '!', '|', '>', '\'', '"', '%', '@', '`'];
    let is_mark = |mark| text == mark || text.starts_with(&format!("{mark} "));
    text.starts_with(' ')
        || text.ends_with([' ', ':'])
        || text.starts_with(FIRST)
        || text.starts_with("---")
        || text.starts_with("...")
        || is_mark("-")
        || is_mark("?")
        || text.contains(": ")
        || text.contains(" #")
}

/// Whether a text is written as a block of lines: it has several, and nothing that a block would lose.
fn fits_block(text: &str) -> bool {
    let first = text.trim_start_matches('\n').chars().next();
    text.contains('\n')
        && text.chars().any(|c| !c.is_whitespace())
        && !text.ends_with(' ')
        && !text.contains(" \n")
        && !text.chars().any(is_special)
        // A first line that is indented further can only be told with a hint, and not behind empty lines.
        && (first != Some(' ') || text.starts_with(' '))
}

/// What is only written as an escape: control characters, other line breaks, and what lies beyond 16 bits.
fn is_special(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' => true,
        _ => c.is_control() || u32::from(c) > 0xffff,
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        let escape = match c {
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '"' | '\\' => c,
            '\u{85}' => 'N',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            _ if !is_special(c) => {
                quoted.push(c);
                continue;
            }
            _ => {
                quoted.push_str(&match u32::from(c) {
                    code @ ..=0xff => format!("\\x{code:02X}"),
                    code @ ..=0xffff => format!("\\u{code:04X}"),
                    code => format!("\\U{code:08X}"),
                });
                continue;
            }
        };
        quoted.extend(['\\', escape]);
    }
    quoted.push('"');
    quoted
}
