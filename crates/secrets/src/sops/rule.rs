//! Which values of a file are encrypted.

use regex::bytes::Regex;

use super::error::Problem;
use super::path::{KeyPath, Part};
use super::tree::{Item, Node, Position};

/// The rule of a file. A match on any key of the way to a value decides, so what is below inherits.
#[derive(Clone, Debug)]
pub struct Rule {
    key: Key,
    text: String,
    pattern: Option<Regex>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Key {
    UnencryptedSuffix,
    EncryptedSuffix,
    UnencryptedRegex,
    EncryptedRegex,
    UnencryptedCommentRegex,
    EncryptedCommentRegex,
}

const KEYS: [(&str, Key); 6] = [
    ("unencrypted_suffix", Key::UnencryptedSuffix),
    ("encrypted_suffix", Key::EncryptedSuffix),
    ("unencrypted_regex", Key::UnencryptedRegex),
    ("encrypted_regex", Key::EncryptedRegex),
    ("unencrypted_comment_regex", Key::UnencryptedCommentRegex),
    ("encrypted_comment_regex", Key::EncryptedCommentRegex),
];

impl Default for Rule {
    fn default() -> Self {
        Self { key: Key::UnencryptedSuffix, text: "_unencrypted".to_owned(), pattern: None }
    }
}

impl Rule {
    /// The one rule that `map` has, if it has one: a file's metadata, or a creation rule.
    pub(super) fn read(map: &Node) -> Result<Option<Self>, String> {
        let mut found: Option<Self> = None;
        for (name, _) in KEYS {
            let text = map.get(name).and_then(Node::value).map(|value| value.clear().to_owned()).unwrap_or_default();
            if text.is_empty() {
                continue;
            }
            if let Some(before) = &found {
                return Err(format!("it has both `{}` and `{name}`, and at most one rule is allowed", before.name()));
            }
            found = Some(Self::new(name, &text)?);
        }
        Ok(found)
    }

    /// The rule that is called `name` in the metadata of a file, such as `encrypted_regex`.
    ///
    /// # Errors
    /// There is no such rule, or `text` is no regular expression.
    pub fn new(name: &str, text: &str) -> Result<Self, String> {
        let (_, key) =
            KEYS.into_iter().find(|(known, _)| *known == name).ok_or_else(|| format!("there is no rule `{name}`"))?;
        let pattern = match key {
            Key::UnencryptedSuffix | Key::EncryptedSuffix => None,
            _ => Some(pattern(text).map_err(|_| format!("`{name}` is not a regular expression"))?),
        };
        Ok(Self { key, text: text.to_owned(), pattern })
    }

    /// What the rule is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        KEYS.iter().find(|(_, key)| *key == self.key).map_or("", |(name, _)| name)
    }

    /// What it says.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn matches(&self, text: &str) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.is_match(text.as_bytes()))
    }

    /// Whether a comment that is encrypted would be taken for one that says otherwise.
    pub(super) fn is_misled_by(&self, ciphertext: &str) -> bool {
        self.key == Key::UnencryptedCommentRegex && self.matches(ciphertext)
    }

    fn matches_key(&self, key: &str) -> bool {
        match self.key {
            Key::UnencryptedSuffix | Key::EncryptedSuffix => key.ends_with(&self.text),
            Key::UnencryptedRegex | Key::EncryptedRegex => self.matches(key),
            Key::UnencryptedCommentRegex | Key::EncryptedCommentRegex => false,
        }
    }

    fn matches_comment(&self, comment: &str) -> bool {
        matches!(self.key, Key::UnencryptedCommentRegex | Key::EncryptedCommentRegex) && self.matches(comment)
    }

    fn encrypts(&self, key_matched: bool, comments: &[Vec<bool>], is_comment: bool) -> bool {
        match self.key {
            Key::UnencryptedSuffix | Key::UnencryptedRegex => !key_matched,
            Key::EncryptedSuffix | Key::EncryptedRegex => key_matched,
            Key::UnencryptedCommentRegex => !comments.iter().flatten().any(|matched| *matched),
            Key::EncryptedCommentRegex => {
                // The comment that matches is itself not encrypted.
                let skipped = usize::from(is_comment);
                let (last, above) =
                    comments.split_last().map_or((&[][..], &[][..]), |(last, above)| (&last[..], above));
                let last = &last[..last.len().saturating_sub(skipped)];
                above.iter().flatten().chain(last).any(|matched| *matched)
            }
        }
    }
}

/// A regular expression as Go reads it.
pub(super) fn pattern(go: &str) -> Result<Regex, regex::Error> {
    Regex::new(&translated(go))
}

/// Where Go and the `regex` crate differ: classes are of ASCII, a bracket inside of brackets is itself, `\Q` quotes.
fn translated(go: &str) -> String {
    let mut out = String::with_capacity(go.len() + 16);
    let mut characters = go.chars().peekable();
    let mut in_class = false;
    while let Some(character) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some('Q') => {
                    let rest: String = characters.by_ref().collect();
                    let (literal, after) = rest.split_once("\\E").unwrap_or((&rest, ""));
                    out.push_str(&regex::escape(literal));
                    out.push_str(&translated(after));
                }
                Some(class) => out.push_str(&match class {
                    'd' => "[0-9]".to_owned(),
                    'D' => "[^0-9]".to_owned(),
                    'w' => "[0-9A-Za-z_]".to_owned(),
                    'W' => "[^0-9A-Za-z_]".to_owned(),
                    's' => "[\\t\\n\\f\\r ]".to_owned(),
                    'S' => "[^\\t\\n\\f\\r ]".to_owned(),
                    'b' if !in_class => "(?-u:\\b)".to_owned(),
                    'B' if !in_class => "(?-u:\\B)".to_owned(),
                    other => format!("\\{other}"),
                }),
                None => out.push('\\'),
            },
            '[' if in_class && characters.peek() != Some(&':') => out.push_str("\\["),
            '[' if in_class => {
                // A named class, up to its own end.
                out.push('[');
                for named in characters.by_ref() {
                    out.push(named);
                    if named == ']' {
                        break;
                    }
                }
            }
            '[' => {
                in_class = true;
                out.push('[');
                if characters.peek() == Some(&'^') {
                    out.extend(characters.next());
                }
                if characters.peek() == Some(&']') {
                    characters.next();
                    out.push_str("\\]");
                }
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            '&' | '~' if in_class => {
                out.push('\\');
                out.push(character);
            }
            _ => out.push(character),
        }
    }
    out
}

/// A value or a comment, and what decides about it.
pub(super) struct Spot<'t> {
    pub(super) item: &'t mut Item,
    /// The keys on the way, as they are authenticated with the value.
    pub(super) context: &'t str,
    pub(super) is_encrypted: bool,
    pub(super) in_list: bool,
    pub(super) way: Way<'t>,
}

/// The way to a value: told only of the few that something is wrong with.
#[derive(Clone, Copy)]
pub(super) struct Way<'t>(&'t [Part]);

impl Way<'_> {
    /// In words for people.
    pub(super) fn told(self) -> String {
        KeyPath::from(self.0.to_vec()).to_string()
    }
}

impl Spot<'_> {
    pub(super) fn at(&self) -> Option<Position> {
        if let Item::Entry { at, .. } = &*self.item { *at } else { None }
    }
}

/// Visits every comment and every value but nothings, in order.
pub(super) fn walk(
    document: &mut Node,
    rule: &Rule,
    visit: &mut dyn FnMut(Spot<'_>) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let mut walk = Walk { rule, visit, context: String::new(), path: Vec::new(), comments: Vec::new() };
    walk.items(document, false)
}

struct Walk<'w> {
    rule: &'w Rule,
    visit: &'w mut dyn FnMut(Spot<'_>) -> Result<(), Problem>,
    context: String,
    path: Vec<Part>,
    /// For each level: which of the comments before the present item match.
    comments: Vec<Vec<bool>>,
}

impl Walk<'_> {
    fn items(&mut self, node: &mut Node, matched: bool) -> Result<(), Problem> {
        let (items, in_list) = match node {
            Node::Map(items) => (items, false),
            Node::List(items) => (items, true),
            Node::Value(_) => return Ok(()),
        };
        self.comments.push(Vec::new());
        let mut index = 0;
        for item in items {
            match item {
                Item::Comment(text) => {
                    let says = self.rule.matches_comment(text);
                    if let Some(active) = self.comments.last_mut() {
                        active.push(says);
                    }
                    self.spot(item, matched, in_list, true)?;
                }
                Item::Entry { key, node, .. } => {
                    let (length, matched) = (self.context.len(), matched || (!in_list && self.rule.matches_key(key)));
                    self.path.push(if in_list { Part::Index(index) } else { Part::Key(key.clone()) });
                    if !in_list {
                        self.context.push_str(key);
                        self.context.push(':');
                    }
                    match node {
                        Node::Value(value) if value.kind == super::tree::Kind::Null => {}
                        Node::Value(_) => self.spot(item, matched, in_list, false)?,
                        node => self.items(node, matched)?,
                    }
                    self.context.truncate(length);
                    self.path.pop();
                    index += 1;
                    if let Some(active) = self.comments.last_mut() {
                        active.clear();
                    }
                }
            }
        }
        self.comments.pop();
        Ok(())
    }

    fn spot(&mut self, item: &mut Item, matched: bool, in_list: bool, is_comment: bool) -> Result<(), Problem> {
        let is_encrypted = self.rule.encrypts(matched, &self.comments, is_comment);
        let context = if self.context.is_empty() { ":" } else { &self.context };
        (self.visit)(Spot { item, context, is_encrypted, in_list, way: Way(&self.path) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sops::yaml;

    fn encrypted(rule: &Rule, text: &str) -> Vec<String> {
        let mut document = yaml::read(text).unwrap().remove(0);
        let mut found = Vec::new();
        walk(&mut document, rule, &mut |spot| {
            if spot.is_encrypted {
                let comment = if let Item::Comment(text) = &*spot.item { text.to_string() } else { String::new() };
                found.push(format!("{}{}", spot.context, comment));
            }
            Ok(())
        })
        .unwrap();
        found
    }

    #[test]
    fn each_rule_decides() {
        let text = "a: 1\n# c\nb_unencrypted: {c: 2}\nd: {e_x: 3, l: [4, [5]]}\nn: null\n";
        let rule = |name: &str, text: &str| Rule::new(name, text).unwrap();
        assert_eq!(encrypted(&Rule::default(), text), ["a:", ": c", "d:e_x:", "d:l:", "d:l:"]);
        assert_eq!(encrypted(&rule("encrypted_suffix", "_x"), text), ["d:e_x:"]);
        assert_eq!(encrypted(&rule("encrypted_regex", "^d$"), text), ["d:e_x:", "d:l:", "d:l:"]);
        assert_eq!(encrypted(&rule("unencrypted_regex", "^(a|d)$"), text), [": c", "b_unencrypted:c:"]);
        let text = "# sec\na: 1\nb: 2 # sec\n# plain\n# sec\n# more\nc: {d: 3}\ne: 4\n";
        assert_eq!(encrypted(&rule("encrypted_comment_regex", "sec"), text), ["a:", "b:", ": more", "c:d:"]);
        assert_eq!(encrypted(&rule("unencrypted_comment_regex", "sec"), text), [": plain", "e:"]);
    }

    #[test]
    fn patterns_are_those_of_go() {
        for (go, yes, no) in [
            ("^a", "ab", "ba"),
            (r"^\w+$", "abc", "é"),
            (r"^\d$", "1", "٣"),
            ("[[]", "[", "]"),
            ("[]a]", "]", "["),
            ("[a&&b]", "&", "c"),
            ("[[:upper:]x]", "A", "a"),
            (r"^\Qa.b\E.$", "a.bc", "axbc"),
            ("(?i)^PASS", "password", "xpass"),
            (r"[\w-]+\.x", "a-b.x", "é.x"),
        ] {
            let regex = pattern(go).unwrap();
            assert!(regex.is_match(yes.as_bytes()), "{go} {yes}");
            assert!(!regex.is_match(no.as_bytes()), "{go} {no}");
        }
        assert!(pattern("(").is_err());
        assert!(Rule::new("encrypted_regex", "(").is_err());
    }
}
