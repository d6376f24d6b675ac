//! What others have published and tests are held against: descriptions of interfaces, golden files, manifests. It is not part of the project.

use std::path::{Path, PathBuf};

use crate::skipped;

/// Names the folder with what others have published. CONTRIBUTING.md tells what belongs there, and where to get it.
pub const ORACLES: &str = "CASTLE_ORACLES";

/// The folder with what others have published: beside the checkout, if nothing else is named.
#[must_use]
pub fn oracles() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    std::env::var_os(ORACLES).filter(|folder| !folder.is_empty()).map_or_else(beside, PathBuf::from)
}

/// A file or folder of what others have published; where it is absent, the test is skipped ([`skipped`]).
///
/// # Panics
///
/// In CI, if it is absent.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "what others have published is on disk")]
pub fn oracle(path: &str) -> Option<PathBuf> {
    let found = oracles().join(path);
    if found.exists() {
        return Some(found);
    }
    skipped(&format!("{} is not there: {ORACLES} names the folder it is in", found.display()));
    None
}

/// The text of such a file.
///
/// # Panics
///
/// In CI, if it is absent; and if it cannot be read.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "what others have published is on disk")]
pub fn oracle_text(path: &str) -> Option<String> {
    let file = oracle(path)?;
    Some(std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())))
}
