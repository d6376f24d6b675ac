//! The recordings.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

/// A request and what was answered.
#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Probe {
    pub(crate) name: String,
    /// Method and path.
    pub(crate) req: String,
    pub(crate) form: Option<BTreeMap<String, Value>>,
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) ctype: Option<String>,
    pub(crate) json: Option<Value>,
    /// What was told of the task, once it had ended.
    pub(crate) task: Option<Value>,
    /// What the task had said.
    pub(crate) log: Option<Vec<String>>,
}
