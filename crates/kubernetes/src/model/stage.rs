//! The order in which objects are applied, and, backwards, removed.

use super::Object;

/// What must be there before the next can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Namespaces: everything else lives in them.
    Namespaces,
    /// Definitions of kinds: served before objects of these kinds are sent.
    Definitions,
    /// Classes, which other objects name: priorities, storage, runtimes.
    Classes,
    /// Everything else.
    Rest,
    /// Configurations of webhooks, last: from then on others have a say in what is applied.
    Webhooks,
}

impl Stage {
    /// All of them, in order.
    pub const ALL: [Self; 5] = [Self::Namespaces, Self::Definitions, Self::Classes, Self::Rest, Self::Webhooks];

    /// Where an object belongs.
    #[must_use]
    pub fn of(object: &Object) -> Self {
        let kind = object.kind();
        Self::of_kind(&kind.group, &kind.kind)
    }

    /// Where a kind belongs.
    #[must_use]
    pub fn of_kind(group: &str, kind: &str) -> Self {
        match (group, kind) {
            ("", "Namespace") => Self::Namespaces,
            ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Definitions,
            ("admissionregistration.k8s.io", _) => Self::Webhooks,
            (_, kind) if kind.ends_with("Class") => Self::Classes,
            _ => Self::Rest,
        }
    }

    /// The word for a step's name.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Namespaces => "namespaces",
            Self::Definitions => "definitions",
            Self::Classes => "classes",
            Self::Rest => "objects",
            Self::Webhooks => "webhooks",
        }
    }
}
