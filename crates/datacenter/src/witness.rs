//! Requests as a bystander sees them, and what he can do about them.

use std::time::Duration;

use serde_json::{Value, json};

use crate::infisical::reply::{VaultAsked, VaultReply};

/// A request, before it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its number, counted from zero in the order in which requests are handled.
    pub number: u64,
    /// The host that was asked.
    pub host: String,
    /// The method: `POST`.
    pub method: String,
    /// The path after `/api2/json`, decoded.
    pub path: String,
    /// The parameters of query and body, decoded, in their order.
    pub parameters: Vec<(String, String)>,
    /// Whether it asks for more than to look.
    pub is_change: bool,
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// What the first line says after the status.
    pub reason: Option<String>,
    /// The body; none for an empty one.
    pub body: Option<Value>,
    /// How long it is held back.
    pub delay: Duration,
}

impl Reply {
    /// A success with this data.
    #[must_use]
    pub fn data(data: &Value) -> Self {
        Self { status: 200, reason: None, body: Some(json!({ "data": data })), delay: Duration::ZERO }
    }

    /// A failure with these words, as the vendor puts them into status line and body.
    #[must_use]
    pub fn failure(status: u16, message: &str) -> Self {
        let reason = message.lines().next().unwrap_or_default().to_owned();
        let body = json!({ "data": null, "message": format!("{message}\n") });
        Self { status, reason: Some(reason), body: Some(body), delay: Duration::ZERO }
    }

    /// The data of a success.
    #[must_use]
    pub fn as_data(&self) -> Option<&Value> {
        self.body.as_ref().filter(|_| self.status < 400)?.get("data")
    }
}

/// Sees every request, and decides whether it is handled and what is answered.
pub trait Witness: Send + Sync {
    /// Calls `handle` to have the request handled, or does not; returns what is answered, or nothing to close the
    /// connection without an answer.
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply>;

    /// Sees a call of a node's Talos or Kubernetes API before it is judged, and says what becomes of it.
    fn call(&self, _: &Called) -> Fate {
        Fate::Handled
    }

    /// Sees the status with which a call of a Kubernetes API is answered, whether or not the answer arrives.
    fn answered(&self, _: &Called, _status: u16) {}

    /// Sees a request to an Infisical, as [`Witness::request`] sees those to a hypervisor.
    fn vault(&self, _: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        Some(handle())
    }
}

/// A call of the Talos or Kubernetes API of a node, before it is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// Its number, counted with all other requests.
    pub number: u64,
    /// The guest that the node is.
    pub vmid: u32,
    /// The first address of the node.
    pub address: String,
    /// The method: `Bootstrap`, or `GET /readyz`.
    pub method: String,
    /// Whether it asks for more than to look.
    pub is_change: bool,
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is handled and answered.
    Handled,
    /// It is refused with this code of gRPC and these words, without any effect: to Kubernetes 7 is 403, 8 is 429, 16 is 401, and all others 503.
    Refused(i32, String),
    /// The connection ends before it has any effect.
    LostBefore,
    /// It has its effect, and the connection ends before the answer.
    LostAfter,
}

/// Lets all witnesses see the request, the first of them from the outside.
pub(crate) fn witnessed(
    witnesses: &[std::sync::Arc<dyn Witness>],
    asked: &Asked,
    handle: &mut dyn FnMut() -> Reply,
) -> Option<Reply> {
    let Some((first, rest)) = witnesses.split_first() else { return Some(handle()) };
    let mut is_dropped = false;
    let reply = first.request(asked, &mut || {
        witnessed(rest, asked, handle).unwrap_or_else(|| {
            is_dropped = true;
            Reply::failure(596, "Broken pipe")
        })
    });
    reply.filter(|_| !is_dropped)
}

/// As [`witnessed`], for requests to an Infisical.
pub(crate) fn witnessed_vault(
    witnesses: &[std::sync::Arc<dyn Witness>],
    asked: &VaultAsked,
    handle: &mut dyn FnMut() -> VaultReply,
) -> Option<VaultReply> {
    let Some((first, rest)) = witnesses.split_first() else { return Some(handle()) };
    let mut is_dropped = false;
    let reply = first.vault(asked, &mut || {
        witnessed_vault(rest, asked, handle).unwrap_or_else(|| {
            is_dropped = true;
            VaultReply::failure(500, "InternalServerError", "Something went wrong")
        })
    });
    reply.filter(|_| !is_dropped)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Drops;

    impl Witness for Drops {
        fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            handle();
            None
        }
    }

    struct Passes;

    impl Witness for Passes {
        fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
            Some(handle())
        }
    }

    #[test]
    fn what_one_witness_drops_is_dropped() {
        let asked = Asked {
            number: 0,
            host: "pve".into(),
            method: "GET".into(),
            path: "/version".into(),
            parameters: Vec::new(),
            is_change: false,
        };
        let mut count = 0;
        let mut handle = || {
            count += 1;
            Reply::data(&Value::Null)
        };
        assert_eq!(witnessed(&[Arc::new(Passes), Arc::new(Drops)], &asked, &mut handle), None);
        assert!(witnessed(&[Arc::new(Passes)], &asked, &mut handle).is_some());
        assert_eq!(count, 2);
    }
}
