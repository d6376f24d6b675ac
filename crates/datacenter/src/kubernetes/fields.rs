//! Who owns which field: sets of fields, how objects are compared and merged by their schema, and what managers there are.
//!
//! [`set`] are the sets and their written form, [`node`] what a schema says of a value, [`walk`] the walks over objects,
//! [`managers`] the entries of `metadata.managedFields`.

pub(crate) mod managers;
pub(crate) mod node;
pub(crate) mod set;
pub(crate) mod walk;
