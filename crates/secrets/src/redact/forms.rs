//! The forms in which a value turns up elsewhere.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use zeroize::Zeroizing;

use super::{LONGEST_ENCODED, SHORTEST};

/// Runs of base64 in text with several lines that are shorter are ordinary words.
const SHORTEST_RUN: usize = 32;
/// Inside of a PEM block everything is the secret; the last line may be short.
const SHORTEST_PEM_LINE: usize = 16;
/// A value with fewer different bytes is a filler.
const FEWEST_DIFFERENT: usize = 4;

/// One form, wiped when dropped, in the order of its bytes.
#[derive(PartialEq, Eq)]
pub(super) struct Form(Zeroizing<String>);

impl Form {
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Borrow<[u8]> for Form {
    fn borrow(&self) -> &[u8] {
        self.bytes()
    }
}

impl Ord for Form {
    fn cmp(&self, other: &Self) -> Ordering {
        self.bytes().cmp(other.bytes())
    }
}

impl PartialOrd for Form {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

type Text = Zeroizing<String>;

/// All forms of a value; none if it is too short or too plain to be masked without blanking everything.
pub(super) fn of(value: &str) -> Vec<Form> {
    let core = value.trim();
    let mut forms = Vec::new();
    if is_fit(core) {
        forms.push(Zeroizing::new(core.to_owned()));
    }
    if is_fit(core) && core.len() <= LONGEST_ENCODED {
        for text in [value, core] {
            forms.extend([STANDARD, STANDARD_NO_PAD].map(|engine| Zeroizing::new(engine.encode(text))));
            forms.extend([URL_SAFE, URL_SAFE_NO_PAD].map(|engine| Zeroizing::new(engine.encode(text))));
        }
        forms.extend(inside(core));
        forms.extend([hex(core, false), hex(core, true)]);
        forms.extend([percent(core, true, ""), percent(core, false, ""), percent(core, true, "!'()*")]);
        forms.push(Zeroizing::new(percent(core, true, "").replace("%20", "+")));
        forms.push(escaped(core, |letter| matches!(letter, '<' | '>' | '&')));
        forms.push(escaped(core, |_| false));
        forms.push(Zeroizing::new(escaped(core, |_| false).replace('/', "\\/")));
        forms.push(Zeroizing::new(core.escape_debug().to_string()));
    }
    forms.extend(parts(core));
    forms.into_iter().filter(|form| is_fit(form)).map(Form).collect()
}

pub(super) fn is_fit(text: &str) -> bool {
    let mut different = [false; 256];
    text.bytes().for_each(|byte| different[usize::from(byte)] = true);
    text.len() >= SHORTEST && different.into_iter().filter(|seen| *seen).count() >= FEWEST_DIFFERENT
}

/// What base64 makes of a value in the middle of something else: the letters that depend on nothing but the value, for each
/// of the three places in a group of letters where it can begin.
fn inside(core: &str) -> Vec<Text> {
    let mut forms = Vec::new();
    for (before, cut) in [(0, 0), (1, 2), (2, 3)] {
        let mut text = Zeroizing::new(vec![0; before]);
        text.extend_from_slice(core.as_bytes());
        let whole = text.len() * 8 / 6;
        for engine in [STANDARD_NO_PAD, URL_SAFE_NO_PAD] {
            let encoded = Zeroizing::new(engine.encode(&text[..]));
            forms.push(Zeroizing::new(encoded.get(cut..whole).unwrap_or_default().to_owned()));
        }
    }
    forms
}

fn hex(core: &str, upper: bool) -> Text {
    let mut text = Zeroizing::new(String::with_capacity(core.len() * 2));
    for byte in core.bytes() {
        // Writing into a text never fails.
        let _ = if upper { write!(text, "{byte:02X}") } else { write!(text, "{byte:02x}") };
    }
    text
}

fn percent(core: &str, upper: bool, kept: &str) -> Text {
    let mut text = Zeroizing::new(String::with_capacity(core.len() * 3));
    for byte in core.bytes() {
        let letter = char::from(byte);
        let _ = match (letter.is_ascii_alphanumeric() || "-._~".contains(letter) || kept.contains(letter), upper) {
            (true, _) => write!(text, "{letter}"),
            (false, true) => write!(text, "%{byte:02X}"),
            (false, false) => write!(text, "%{byte:02x}"),
        };
    }
    text
}

/// As in a JSON text, without its quotes; with some letters as numbers, as some writers do.
fn escaped(core: &str, as_number: impl Fn(char) -> bool) -> Text {
    let mut text = Zeroizing::new(String::with_capacity(core.len() + 16));
    for letter in core.chars() {
        let _ = match letter {
            '"' => text.write_str("\\\""),
            '\\' => text.write_str("\\\\"),
            '\n' => text.write_str("\\n"),
            '\r' => text.write_str("\\r"),
            '\t' => text.write_str("\\t"),
            letter if letter < ' ' || as_number(letter) => write!(text, "\\u{:04x}", u32::from(letter)),
            letter => text.write_char(letter),
        };
    }
    text
}

/// What is secret by itself in a text with several lines: the lines of PEM blocks, and long runs of base64.
fn parts(core: &str) -> Vec<Text> {
    let mut parts = Vec::new();
    if !core.contains('\n') {
        return parts;
    }
    let mut is_pem = false;
    for line in core.lines().map(str::trim) {
        if line.starts_with("-----") {
            is_pem = line.starts_with("-----BEGIN ");
            continue;
        }
        let shortest = if is_pem { SHORTEST_PEM_LINE } else { SHORTEST_RUN };
        let is_base64 = |letter: char| letter.is_ascii_alphanumeric() || "+/-_=".contains(letter);
        let runs = line.split(|letter| !is_base64(letter)).filter(|run| run.len() >= shortest);
        parts.extend(runs.map(|run| Zeroizing::new(run.to_owned())));
    }
    parts
}
