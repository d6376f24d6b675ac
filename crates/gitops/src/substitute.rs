//! Variables in a text, as Flux substitutes them: `${name}`, `${name:=default}`, and what else a shell can do to a value.
//!
//! `$$` is a dollar sign. A variable without a value and without a default is missing: Flux 2.9 refuses to go on, so all
//! that are missing are told at once.

mod change;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use change::Change;

/// How deep defaults may nest in defaults.
const MAX_DEPTH: usize = 32;

/// What stands for a value that only the cluster will know.
pub(crate) const UNKNOWN: &str = "castle-does-not-know";

/// Whether a text holds a value that only the cluster will know: nobody can tell from here what it names.
pub(crate) fn is_unknown(text: &str) -> bool {
    text.contains(UNKNOWN)
}

/// Why a text cannot be substituted.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum SubstituteError {
    /// Something after `${` is not understood; at this byte.
    #[error("`${{` without an expression that Flux understands: write `$${{` for a dollar sign and a brace")]
    Expression(usize),
    /// Variables that have neither a value nor a default.
    #[error("no value for {}", .0.iter().map(String::as_str).collect::<Vec<_>>().join(", "))]
    Missing(BTreeSet<String>),
}

/// Substitutes all variables of a text.
///
/// # Errors
///
/// [`SubstituteError`] if an expression is not understood or a variable is missing.
pub fn substitute(text: &str, variables: &BTreeMap<String, String>) -> Result<String, SubstituteError> {
    let mut reader = Reader { text, at: 0, variables, missing: BTreeSet::new() };
    let mut out = String::new();
    while let Some(c) = reader.next() {
        match c {
            '$' if reader.peek() == Some('$') => {
                reader.next();
                out.push('$');
            }
            '$' if reader.peek() == Some('{') => {
                reader.next();
                out += &reader.expression(0)?;
            }
            c => out.push(c),
        }
    }
    if reader.missing.is_empty() { Ok(out) } else { Err(SubstituteError::Missing(reader.missing)) }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    variables: &'t BTreeMap<String, String>,
    missing: BTreeSet<String>,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    /// Takes what comes next if it is this.
    fn takes(&mut self, wanted: &str) -> bool {
        let is_next = self.text[self.at..].starts_with(wanted);
        if is_next {
            self.at += wanted.len();
        }
        is_next
    }

    fn wrong<T>(&self) -> Result<T, SubstituteError> {
        Err(SubstituteError::Expression(self.at))
    }

    fn name(&mut self) -> Result<String, SubstituteError> {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let name = rest[..end].to_owned();
        self.at += end;
        if name.is_empty() { self.wrong() } else { Ok(name) }
    }

    /// What is between `${` and `}`, substituted.
    fn expression(&mut self, depth: usize) -> Result<String, SubstituteError> {
        if depth > MAX_DEPTH {
            return self.wrong();
        }
        if self.takes("#") {
            let name = self.name()?;
            let value = self.value(&name, true);
            return if self.takes("}") { Ok(value.len().to_string()) } else { self.wrong() };
        }
        let name = self.name()?;
        for operator in [":=", ":-", ":?", ":+", "="] {
            if self.takes(operator) {
                let default = self.words(depth)?;
                let value = self.value(&name, false);
                return Ok(if value.is_empty() { default } else { value });
            }
        }
        let change = self.change(depth)?;
        let value = self.value(&name, true);
        if self.takes("}") { Ok(change.apply(&value)) } else { self.wrong() }
    }

    fn value(&mut self, name: &str, is_needed: bool) -> String {
        match self.variables.get(name) {
            Some(value) => value.clone(),
            None => {
                if is_needed {
                    self.missing.insert(name.to_owned());
                }
                String::new()
            }
        }
    }

    /// A default: texts and expressions up to the brace, which is taken.
    fn words(&mut self, depth: usize) -> Result<String, SubstituteError> {
        let mut out = String::new();
        loop {
            match self.next() {
                Some('}') => return Ok(out),
                Some('$') if self.takes("{") => out += &self.expression(depth + 1)?,
                Some(c) => out.push(c),
                None => return self.wrong(),
            }
        }
    }

    /// What is done to the value, up to the brace.
    fn change(&mut self, depth: usize) -> Result<Change, SubstituteError> {
        // Two that contradict each other do nothing.
        if self.takes("^,") || self.takes(",^") {
            return Ok(Change::None);
        }
        const CASES: [(&str, Change); 4] =
            [(",,", Change::Lower), ("^^", Change::Upper), (",", Change::LowerFirst), ("^", Change::UpperFirst)];
        if let Some((_, change)) = CASES.iter().find(|(operator, _)| self.text[self.at..].starts_with(operator)) {
            self.at += if matches!(change, Change::Lower | Change::Upper) { 2 } else { 1 };
            return Ok(change.clone());
        }
        type Trim = fn(String) -> Change;
        const TRIMS: [(&str, Trim); 4] = [
            ("##", Change::LongestPrefix),
            ("#", Change::ShortestPrefix),
            ("%%", Change::LongestSuffix),
            ("%", Change::ShortestSuffix),
        ];
        for (operator, trim) in TRIMS {
            if self.takes(operator) {
                return Ok(trim(self.word(depth, &['}'], false)?));
            }
        }
        if self.takes(":") {
            let from = self.word(depth, &[':', '}'], false)?;
            let length = if self.takes(":") { Some(self.word(depth, &['}'], false)?) } else { None };
            return Ok(Change::Part(from, length));
        }
        type Replace = fn(String, Option<String>) -> Change;
        const REPLACES: [(&str, Replace); 4] = [
            ("//", Change::ReplaceAll),
            ("/#", Change::ReplacePrefix),
            ("/%", Change::ReplaceSuffix),
            ("/", Change::ReplaceFirst),
        ];
        for (operator, replace) in REPLACES {
            if self.takes(operator) {
                let what = self.word(depth, &['/'], true)?;
                if !self.takes("/") {
                    return self.wrong();
                }
                let by = if self.peek() == Some('}') { None } else { Some(self.word(depth, &['}'], true)?) };
                return Ok(replace(what, by));
            }
        }
        Ok(Change::None)
    }

    /// One word: an expression, or a text up to one of the ends, which is left. Escaped slashes are slashes where said.
    fn word(&mut self, depth: usize, ends: &[char], escapes: bool) -> Result<String, SubstituteError> {
        if self.takes("${") {
            return self.expression(depth + 1);
        }
        let mut out = String::new();
        while let Some(c) = self.peek().filter(|c| !ends.contains(c)) {
            if self.text[self.at..].starts_with("${") {
                break;
            }
            self.next();
            let escaped = self
                .peek()
                .filter(|next| escapes && ((c == '\\' && matches!(next, '/' | '\\')) || (c == '$' && *next == '$')));
            match escaped {
                Some(next) => {
                    self.next();
                    out.push(next);
                }
                None => out.push(c),
            }
        }
        if out.is_empty() { self.wrong() } else { Ok(out) }
    }
}

#[cfg(test)]
mod tests;
