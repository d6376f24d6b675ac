//! What can be said of one parameter, or of one key of a property string.

use super::Version;

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// 0 or 1; in property strings also words.
    Flag,
    /// A whole number.
    Whole,
    /// A number.
    Number,
}

impl Kind {
    /// The vendor's word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Flag => "boolean",
            Self::Whole => "integer",
            Self::Number => "number",
        }
    }
}

/// What a value must be one of.
#[derive(Debug, Clone, Copy)]
pub enum Choices {
    /// Anything goes.
    Free,
    /// One of these words.
    Words(&'static [&'static str]),
    /// One of these devices: each name with every index up to its highest, or without.
    Devices(&'static [(&'static str, Option<u16>)]),
}

impl Choices {
    /// All there are, in the vendor's order; none if anything goes.
    pub fn list(self) -> Vec<String> {
        match self {
            Self::Free => Vec::new(),
            Self::Words(words) => words.iter().map(ToString::to_string).collect(),
            Self::Devices(devices) => devices
                .iter()
                .flat_map(|&(name, highest)| match highest {
                    Some(highest) => (0..=highest).map(|index| format!("{name}{index}")).collect(),
                    None => vec![name.to_owned()],
                })
                .collect(),
        }
    }
}

/// What a text must look like.
#[derive(Debug, Clone, Copy)]
pub enum Format {
    /// Like anything.
    Free,
    /// As the vendor's format of this name wants it.
    Named(&'static str),
    /// A property string of these keys.
    Keys(&'static [&'static [Field]]),
}

/// One parameter, or one key of a property string.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    /// Without its index, if it has one.
    pub name: &'static str,
    /// There are as many of it, counted from 0.
    pub highest_index: Option<u16>,
    /// Its type.
    pub kind: Kind,
    /// Whether it may be absent.
    pub optional: bool,
    /// What must be given along with it.
    pub requires: Option<&'static str>,
    /// The least number.
    pub minimum: Option<i64>,
    /// The greatest number.
    pub maximum: Option<i64>,
    /// The most characters.
    pub longest: Option<usize>,
    /// The regular expression of the whole value.
    pub pattern: Option<&'static str>,
    /// The words it can be.
    pub choices: Choices,
    /// What it must look like.
    pub format: Format,
    /// Whether a value without a key is this one's.
    pub is_default_key: bool,
    /// The key it is another name of.
    pub alias: Option<&'static str>,
    /// The key whose value is the name of this alias.
    pub names: Option<&'static str>,
    only: Option<Version>,
}

/// The fields of a release among these.
pub(super) fn of(groups: &'static [&'static [Field]], version: Version) -> impl Iterator<Item = &'static Field> {
    groups.iter().flat_map(|group| group.iter()).filter(move |field| field.only.is_none_or(|only| only == version))
}

const fn optional(name: &'static str, kind: Kind) -> Field {
    Field {
        name,
        highest_index: None,
        kind,
        optional: true,
        requires: None,
        minimum: None,
        maximum: None,
        longest: None,
        pattern: None,
        choices: Choices::Free,
        format: Format::Free,
        is_default_key: false,
        alias: None,
        names: None,
        only: None,
    }
}

pub(super) const fn text(name: &'static str) -> Field {
    optional(name, Kind::Text)
}

pub(super) const fn flag(name: &'static str) -> Field {
    optional(name, Kind::Flag)
}

pub(super) const fn whole(name: &'static str) -> Field {
    optional(name, Kind::Whole)
}

pub(super) const fn number(name: &'static str) -> Field {
    optional(name, Kind::Number)
}

pub(super) const fn alias(name: &'static str, of: &'static str) -> Field {
    Field { alias: Some(of), ..optional(name, Kind::Text) }
}

impl Field {
    pub(super) const fn required(self) -> Self {
        Self { optional: false, ..self }
    }

    pub(super) const fn default_key(self) -> Self {
        Self { is_default_key: true, ..self }
    }

    pub(super) const fn only(self, version: Version) -> Self {
        Self { only: Some(version), ..self }
    }

    pub(super) const fn up_to(self, highest_index: u16) -> Self {
        Self { highest_index: Some(highest_index), ..self }
    }

    pub(super) const fn with(self, requires: &'static str) -> Self {
        Self { requires: Some(requires), ..self }
    }

    pub(super) const fn at_least(self, minimum: i64) -> Self {
        Self { minimum: Some(minimum), ..self }
    }

    pub(super) const fn between(self, minimum: i64, maximum: i64) -> Self {
        Self { minimum: Some(minimum), maximum: Some(maximum), ..self }
    }

    pub(super) const fn longest(self, longest: usize) -> Self {
        Self { longest: Some(longest), ..self }
    }

    pub(super) const fn pattern(self, pattern: &'static str) -> Self {
        Self { pattern: Some(pattern), ..self }
    }

    pub(super) const fn words(self, words: &'static [&'static str]) -> Self {
        Self { choices: Choices::Words(words), ..self }
    }

    pub(super) const fn devices(self, devices: &'static [(&'static str, Option<u16>)]) -> Self {
        Self { choices: Choices::Devices(devices), ..self }
    }

    pub(super) const fn format(self, name: &'static str) -> Self {
        Self { format: Format::Named(name), ..self }
    }

    pub(super) const fn keys(self, keys: &'static [&'static [Field]]) -> Self {
        Self { format: Format::Keys(keys), ..self }
    }

    pub(super) const fn naming(self, key: &'static str) -> Self {
        Self { names: Some(key), ..self }
    }

    /// The keys of its property string in a release, if it is one.
    pub fn keys_in(&self, version: Version) -> impl Iterator<Item = &'static Field> {
        let Format::Keys(keys) = self.format else { return of(&[], version) };
        of(keys, version)
    }

    /// Whether a name given in a request is this field's.
    pub(super) fn is_called(&self, name: &str) -> bool {
        let Some(highest) = self.highest_index else { return name == self.name };
        let Some(index) = name.strip_prefix(self.name) else { return false };
        index.parse::<u16>().is_ok_and(|number| number <= highest && number.to_string() == index)
    }
}
