//! What is said: objects, the order they come in, how they fare, whose they are.

mod fields;
mod handover;
mod manifest;
mod mark;
mod object;
mod owners;
mod path;
mod stage;
mod status;

pub use fields::{Managed, Operation, agrees, leaves, same_of_castle};
pub use handover::{Pause, sole, unshared};
pub use manifest::{ManifestError, manifest};
pub use mark::Mark;
pub use object::{Key, Kind, Object};
pub use owners::{Claim, Owner, Ownership, owners};
pub(crate) use owners::{KUSTOMIZE, OF_TALOS};
pub(crate) use path::{at_path, at_path_mut};
pub use stage::Stage;
pub use status::{Condition, Status, age, condition, status};

/// Who castle is to the API: the manager of every field it applies.
pub const MANAGER: &str = "castle";
