//! The mark that says whose an object is.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Object;

/// The castle an object belongs to.
pub(super) const CASTLE: &str = "castle.dev/castle";
/// The layer of the castle.
pub(super) const LAYER: &str = "castle.dev/layer";
/// The component of the layer.
pub(super) const COMPONENT: &str = "castle.dev/component";

/// Castle's mark on an object: three labels.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark {
    /// The castle.
    pub castle: String,
    /// The layer.
    pub layer: String,
    /// The component.
    pub component: String,
}

impl Mark {
    /// Of a component in a layer of a castle.
    #[must_use]
    pub fn new(castle: &str, layer: &str, component: &str) -> Self {
        Self { castle: castle.to_owned(), layer: layer.to_owned(), component: component.to_owned() }
    }

    /// The labels that a mark consists of.
    pub(super) const LABELS: [&str; 3] = [CASTLE, LAYER, COMPONENT];

    /// The mark that an object has.
    #[must_use]
    pub fn of(object: &Object) -> Option<Self> {
        Some(Self::new(object.label(CASTLE)?, object.label(LAYER)?, object.label(COMPONENT)?))
    }

    /// What selects the objects that have it.
    #[must_use]
    pub fn selector(&self) -> String {
        format!("{CASTLE}={},{LAYER}={},{COMPONENT}={}", self.castle, self.layer, self.component)
    }

    /// What selects the objects of all components of these castles.
    #[must_use]
    pub(crate) fn any_of(castles: &BTreeSet<&str>) -> String {
        format!("{CASTLE} in ({})", castles.iter().copied().collect::<Vec<_>>().join(","))
    }

    /// The object with the mark.
    #[must_use]
    pub fn on(&self, mut object: Object) -> Object {
        if let Value::Object(metadata) = &mut object.value_mut()["metadata"] {
            let labels = metadata.entry("labels").or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(labels) = labels {
                for (name, value) in [(CASTLE, &self.castle), (LAYER, &self.layer), (COMPONENT, &self.component)] {
                    labels.insert(name.to_owned(), value.clone().into());
                }
            }
        }
        object
    }

    /// The name of the inventory of what has it.
    #[must_use]
    pub fn inventory(&self) -> String {
        format!("castle-{}-{}", self.layer, self.component)
    }
}
