//! How a field is merged.

pub(super) mod fields;

use serde_json::Value;

use fields::{
    ALWAYS_THERE, CLEARED, CLEARED_WITHIN, ENTRIES_REPLACED, FREE, KEYED, MAPPINGS, PAIRED, REPLACED, SETTLED, SIZES,
    URLS, ZERO_COUNTS, ZERO_WORDS,
};

/// How a field is merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Rule {
    /// As most are.
    Common,
    /// Taken whole from the patch.
    Replaced,
    /// A mapping whose entries are taken whole from the patch.
    EntriesReplaced,
    /// A mapping of anything, all the way down.
    Free,
    /// A list whose entries are told apart.
    Keyed(Key),
    /// A number for which 0 is a value like others.
    ZeroCounts,
    /// This word is as good as nothing.
    ZeroIs(&'static str),
    /// Part by part.
    Url,
    /// In bytes or in percent.
    Size,
    /// Cannot be merged once it is set.
    Settled,
}

/// What tells the entries of a list apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Key {
    /// A field of theirs.
    Field(&'static str),
    /// The name of the interface or, where the patch has none, all that selects it.
    Interface,
    /// The pattern of images; such entries are replaced, not merged.
    ImageReplaced,
}

impl Key {
    pub(super) fn is_same(self, old: &Value, new: &Value) -> bool {
        let same =
            |field| old.get(field).filter(|value| !value.is_null()) == new.get(field).filter(|value| !value.is_null());
        match self {
            Self::Field(field) => same(field),
            Self::ImageReplaced => same("image"),
            Self::Interface => {
                let said = |field| new.get(field).is_some_and(|value| !super::is_zero(value));
                if said("interface") { same("interface") } else { said("deviceSelector") && same("deviceSelector") }
            }
        }
    }
}

/// How the field at this path is merged.
pub(super) fn of(kind: &str, path: &[String]) -> Rule {
    let is_in = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, kind, path));
    if let Some((_, key)) = KEYED.iter().find(|(pattern, _)| matches(pattern, kind, path)) {
        return Rule::Keyed(*key);
    }
    if let Some((_, word)) = ZERO_WORDS.iter().find(|(pattern, _)| matches(pattern, kind, path)) {
        return Rule::ZeroIs(word);
    }
    let rules = [
        (REPLACED, Rule::Replaced),
        (ENTRIES_REPLACED, Rule::EntriesReplaced),
        (FREE, Rule::Free),
        (ZERO_COUNTS, Rule::ZeroCounts),
        (URLS, Rule::Url),
        (SIZES, Rule::Size),
        (SETTLED, Rule::Settled),
    ];
    rules.into_iter().find(|(patterns, _)| is_in(patterns)).map_or(Rule::Common, |(_, rule)| rule)
}

/// Paths that are cleared unless a patch repeats them, and whether that takes a patch of the section they are in.
pub(super) fn cleared_by_absence(kind: &str) -> impl Iterator<Item = (&'static str, bool)> {
    let of_kind = move |pattern: &&'static str| pattern.strip_prefix(kind).and_then(|rest| rest.strip_prefix('.'));
    let always = CLEARED.iter().filter_map(of_kind).map(|path| (path, false));
    let within = CLEARED_WITHIN.iter().chain(PAIRED).filter_map(of_kind).map(|path| (path, true));
    always.chain(within)
}

/// Whether the field at this path can be deleted by itself.
pub(super) fn is_deletable(kind: &str, path: &[String]) -> bool {
    !PAIRED.iter().any(|pattern| matches(pattern, kind, path))
}

/// Whether the keys at this path are the user's own.
pub(super) fn is_mapping(kind: &str, path: &[String]) -> bool {
    let is_below = |patterns: &[&str]| {
        (1..=path.len()).any(|depth| patterns.iter().any(|pattern| matches(pattern, kind, &path[..depth])))
    };
    let is_at = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, kind, path));
    is_below(FREE) || is_below(REPLACED) || is_at(MAPPINGS) || is_at(ENTRIES_REPLACED)
}

/// Whether Talos has the section at this path even where it is not written.
pub(super) fn is_always_there(kind: &str, path: &[String]) -> bool {
    ALWAYS_THERE.iter().any(|pattern| matches(pattern, kind, path))
}

fn matches(pattern: &str, kind: &str, path: &[String]) -> bool {
    let mut steps = pattern.split('.');
    steps.next() == Some(kind)
        && path.iter().all(|key| steps.next().is_some_and(|step| step == "*" || step == key))
        && steps.next().is_none()
}
