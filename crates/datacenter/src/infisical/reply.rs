//! What is asked, what is answered, and how refusals look.

use serde_json::{Value, json};

/// A request to an Infisical, before it is judged. Holds nothing of its body and its credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaultAsked {
    /// Its number, counted with all other requests.
    pub number: u64,
    /// Which Infisical.
    pub host: String,
    /// The method.
    pub method: String,
    /// Path and query, as they were sent.
    pub target: String,
    /// Whether it asks for more than to look.
    pub is_change: bool,
}

/// An answer of an Infisical.
#[derive(Clone, Debug, PartialEq)]
pub struct VaultReply {
    /// The status.
    pub status: u16,
    /// Headers besides the usual.
    pub headers: Vec<(&'static str, String)>,
    /// The body; none for an empty one.
    pub body: Option<Value>,
}

impl VaultReply {
    /// A success with this body.
    #[must_use]
    pub fn of(body: Value) -> Self {
        Self { status: 200, headers: Vec::new(), body: Some(body) }
    }

    /// A failure as the vendor words it: its name and its message.
    #[must_use]
    pub fn failure(status: u16, error: &str, message: impl Into<Value>) -> Self {
        let message: Value = message.into();
        let body = json!({ "reqId": "req-castle", "statusCode": status, "message": message, "error": error });
        Self { status, headers: Vec::new(), body: Some(body) }
    }

    pub(super) fn with(mut self, header: &'static str, value: &impl ToString) -> Self {
        self.headers.push((header, value.to_string()));
        self
    }

    /// More about a failure.
    pub(super) fn with_details(mut self, details: Value) -> Self {
        if let Some(body) = self.body.as_mut().and_then(Value::as_object_mut) {
            body.insert("details".to_owned(), details);
        }
        self
    }
}

pub(super) fn bad_request(message: impl Into<String>) -> VaultReply {
    VaultReply::failure(400, "BadRequest", message.into())
}

pub(super) fn not_found(error: &str, message: impl Into<String>) -> VaultReply {
    VaultReply::failure(404, error, message.into())
}

pub(super) fn unauthorized(message: &str) -> VaultReply {
    VaultReply::failure(401, "UnauthorizedError", message)
}

/// What a token that is none of this Infisical's earns. Not a 401.
pub(super) fn token_error(message: &str) -> VaultReply {
    VaultReply::failure(403, "TokenError", message)
}

/// Whatever the error handler has no case for, a body that is too large among it.
pub(super) fn internal() -> VaultReply {
    VaultReply::failure(500, "InternalServerError", "Something went wrong")
}
