//! Names: of layers, of steps, of operations.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A layer of a castle. The engine knows that there are layers, not which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Layer(Arc<str>);

impl Layer {
    /// The layer of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a step or gate: `layer/kind/name`. One pointer: every event carries one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct StepId(Arc<StepName>);

/// The parts of a [`StepId`].
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct StepName {
    /// The layer it belongs to.
    pub layer: Layer,
    /// What it makes or asks: `vm`, `quorum`.
    pub kind: Box<str>,
    /// Which one.
    pub name: Box<str>,
}

impl StepId {
    /// The step of this layer, kind and name.
    #[must_use]
    pub fn new(layer: &Layer, kind: &str, name: &str) -> Self {
        Self(Arc::new(StepName { layer: layer.clone(), kind: kind.into(), name: name.into() }))
    }
}

impl Deref for StepId {
    type Target = StepName;

    fn deref(&self) -> &StepName {
        &self.0
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StepName { layer, kind, name } = &**self;
        f.debug_struct("StepId").field("layer", layer).field("kind", kind).field("name", name).finish()
    }
}

impl fmt::Display for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.layer, self.kind, self.name)
    }
}

/// Which castle, and which of its lives: a castle that was taken down and raised anew is another generation.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CastleId {
    /// The castle's name.
    pub name: String,
    /// Drawn when the castle was first raised: tells two castles of one name apart.
    pub lineage: String,
    /// Counts its lives.
    pub generation: u64,
}

/// The name of an effect. It follows from what is done to what, so it is the same after any crash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(String);

impl OperationId {
    /// The operation that does `verb` to what `step` is about.
    #[must_use]
    pub fn of(castle: &CastleId, step: &StepId, verb: &str) -> Self {
        let CastleId { name, lineage, generation } = castle;
        let text = format!("{name}\n{lineage}\n{generation}\n{step}\n{verb}");
        Self(hex(&Sha256::digest(text)[..10]))
    }

    /// The id as text, fit for a mark.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_told_apart_by_everything_that_matters_and_nothing_else() {
        let castle = CastleId { name: "blue".into(), lineage: "x".into(), generation: 1 };
        let step = StepId::new(&Layer::new("platform"), "vm", "blue-cp-1");
        let id = OperationId::of(&castle, &step, "create");
        assert_eq!(id, OperationId::of(&castle.clone(), &step.clone(), "create"));
        let others = [
            OperationId::of(&castle, &step, "destroy"),
            OperationId::of(&CastleId { generation: 2, ..castle.clone() }, &step, "create"),
            OperationId::of(&CastleId { lineage: "y".into(), ..castle.clone() }, &step, "create"),
            OperationId::of(&castle, &StepId::new(&Layer::new("platform"), "vm", "blue-cp-2"), "create"),
        ];
        assert!(!others.contains(&id));
    }
}
