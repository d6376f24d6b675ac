//! YAML as SOPS files have it: several documents, comments kept, values resolved as go-yaml resolves them.

mod read;
mod resolve;
mod write;

pub(super) use read::read;
pub(super) use write::write;
