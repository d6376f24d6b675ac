//! The recordings.

use std::collections::BTreeMap;
use std::path::Path;

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

/// A recording; nothing, and a word about it, where it is absent.
pub(crate) fn load(name: &str) -> Option<Vec<Probe>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/recordings").join(name);
    let Ok(text) = std::fs::read(&path) else {
        castle_testkit::skipped(&format!("{} is not there, 179 requests are not held against it", path.display()));
        return None;
    };
    Some(serde_json::from_slice(&text).unwrap())
}
