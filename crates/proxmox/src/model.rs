//! What is said to Proxmox, and what it says.

mod error;
mod form;
mod mark;
mod property;
mod upid;

pub use error::{ErrorClass, Refusal};
pub use form::Form;
pub use mark::{Mark, Owner};
pub use property::{NETWORK_MODELS, Properties, PropertyError};
pub use upid::{TaskEnd, Upid, UpidError};
