//! What castle changes in manifests, and what the castle's owner wants changed.
//!
//! Every patch asserts that it found what it changes: a manifest that has become another is an error that names what is missing.

mod edit;
pub(crate) mod external_secrets;
pub(crate) mod flux;
pub(crate) mod longhorn;
mod merge;
pub(crate) mod metallb;
mod user;

use castle_kubernetes::model::Object;
use castle_spec::ComponentName;
use thiserror::Error;

pub(crate) use edit::Objects;

pub use longhorn::DATA_PATH;
pub use user::apply_file;

/// Why a manifest cannot be adapted.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PatchError {
    /// What castle changes is not there.
    #[error(
        "{component}: its manifest has no {what}, which castle needs to {purpose}; versions {} are known to be good: \
         set `components.{}.version`, or take it to castle's authors", .component.good_range(), .component.key()
    )]
    Missing {
        /// Of which component.
        component: ComponentName,
        /// What is missing.
        what: String,
        /// What it is needed for.
        purpose: &'static str,
    },
    /// A patch of the owner's cannot be applied.
    #[error("{component}: the patch {file}, document {document}: {why}")]
    User {
        /// Of which component.
        component: ComponentName,
        /// The file.
        file: String,
        /// Which document of it, counted from 1.
        document: usize,
        /// Why.
        why: String,
    },
}

/// The objects of a component's manifest after a change of castle's.
pub(crate) fn adapted(
    component: ComponentName,
    namespace: &'static str,
    objects: &[Object],
    change: impl FnOnce(&mut Objects) -> Result<(), PatchError>,
) -> Result<Vec<Object>, PatchError> {
    let mut objects = Objects::new(component, namespace, objects);
    objects.without_helm();
    change(&mut objects)?;
    objects.finish()
}

#[cfg(test)]
pub(crate) mod tests;
