//! What a step wants to do, before it does it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a change means for what exists, mildest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Impact {
    /// Something new comes to be.
    Create,
    /// Something changes while it goes on working.
    InPlace,
    /// Something changes and must restart.
    Reboot,
    /// Several change, one after the other, while the whole goes on working.
    Rolling,
    /// Something is destroyed and made anew.
    Replace,
    /// Something is gone afterwards.
    Destroy,
}

impl Impact {
    /// The word people and programs read.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::InPlace => "in-place",
            Self::Reboot => "reboot",
            Self::Rolling => "rolling",
            Self::Replace => "replace",
            Self::Destroy => "destroy",
        }
    }
}

/// Whether a step may do what restarts a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Restarts {
    /// At once: nobody builds on it yet, or it is the node's turn.
    #[default]
    AtOnce,
    /// Not here: what changes it as it runs is left to another step, for when its turn has come.
    InTurn,
    /// Not at all: nobody has foreseen a turn for it.
    Never,
}

/// One thing that is not as wanted. Never holds a secret: say that it differs, not how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// What differs: `memory`.
    pub field: String,
    /// How it is, if it is.
    pub is: Option<String>,
    /// How it is wanted, if it is wanted.
    pub wanted: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.is, &self.wanted) {
            (Some(is), Some(wanted)) => write!(f, "{}: {is} -> {wanted}", self.field),
            (None, Some(wanted)) => write!(f, "{}: {wanted}", self.field),
            (Some(is), None) => write!(f, "{}: {is} -> nothing", self.field),
            (None, None) => write!(f, "{} differs", self.field),
        }
    }
}

/// One effect that brings what is nearer to what is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What is done, in a word that tells it from the step's other effects: `clone`, `resize`, `start`. The name of the effect is made of it,
    /// so a word that has been used stays what it is.
    pub verb: String,
    /// What that means for what exists.
    pub impact: Impact,
    /// What is not as wanted.
    pub differences: Vec<Difference>,
}

impl Change {
    /// A change without differences yet.
    #[must_use]
    pub fn new(verb: &str, impact: Impact) -> Self {
        Self { verb: verb.to_owned(), impact, differences: Vec::new() }
    }

    /// Adds a difference.
    #[must_use]
    pub fn differing(mut self, field: &str, is: Option<String>, wanted: Option<String>) -> Self {
        self.differences.push(Difference { field: field.to_owned(), is, wanted });
        self
    }
}

/// What a step makes of what it observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<A = ()> {
    /// All is as wanted.
    Nothing,
    /// This comes next: what the step does, and what that is to others.
    Act(A, Change),
}
