//! One file a verb: its arguments, whose comments are its help, and one `run`.

pub(crate) mod adopt;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod datacenter;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod drift;
pub(crate) mod gitops;
pub(crate) mod kubeconfig;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod man;
pub(crate) mod mirror;
pub(crate) mod new;
pub(crate) mod owners;
pub(crate) mod plan;
pub(crate) mod rebirth;
pub(crate) mod schema;
pub(crate) mod secrets;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod talosconfig;
pub(crate) mod timeline;
pub(crate) mod up;
pub(crate) mod wipe;
