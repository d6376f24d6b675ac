//! What is said to Proxmox, and what it says.

mod error;
mod form;
mod mark;
mod privileges;
mod property;
mod rows;
mod since;
mod upid;

pub use error::{ErrorClass, Refusal};
pub use form::Form;
pub(crate) use form::encode;
pub use mark::{Etcd, Format, Mark, Owner, Place, Role};
pub use privileges::{Needs, Privileges, Requirement, missing, pveum, requirements};
pub(crate) use property::mib_of;
pub use property::{NETWORK_MODELS, Properties, PropertyError};
pub use rows::{Config, Guest, Host, Release, Storage, Task, Volume};
pub(crate) use rows::{each, vmid};
pub(crate) use since::{is_since, since_tag, tells_since};
pub use upid::{TaskEnd, Upid, UpidError};
