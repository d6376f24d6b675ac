//! What is asked, what is answered, and what it means if nothing is.

use std::fmt;

use hyper::body::Bytes;
use hyper::header::HeaderMap;
use hyper::{Method, StatusCode};
use thiserror::Error;

/// What is asked. Its `Debug` shows neither the query nor the body, and of sensitive headers only the names.
#[derive(Clone)]
pub struct Ask {
    /// The method.
    pub method: Method,
    /// What follows the base path of the endpoint, encoded as it is sent: `/nodes?full=1`.
    pub path_and_query: String,
    /// Headers besides those that every request has. `Host`, `Connection` and whatever tells the length of the body are
    /// the client's own. Values that are secret are to be marked as such ([`header::HeaderValue::set_sensitive`]).
    ///
    /// [`header::HeaderValue::set_sensitive`]: crate::header::HeaderValue::set_sensitive
    pub headers: HeaderMap,
    /// The body; may be empty.
    pub body: Bytes,
    /// Whether it wants a connection that nothing was asked over before. A server may close an idle connection at the
    /// very moment something is sent, and then nobody knows whether it was read ([`Failure::Lost`]). A request that
    /// cannot be repeated is better off with a connection of its own.
    pub fresh: bool,
}

impl Ask {
    /// A request without headers and body, over any connection.
    #[must_use]
    pub fn new(method: Method, path_and_query: &str) -> Self {
        let path_and_query = path_and_query.to_owned();
        Self { method, path_and_query, headers: HeaderMap::new(), body: Bytes::new(), fresh: false }
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path_and_query.split('?').next().unwrap_or_default();
        f.debug_struct("Ask")
            .field("method", &self.method)
            .field("path", &path)
            .field("headers", &self.headers)
            .field("body_bytes", &self.body.len())
            .field("fresh", &self.fresh)
            .finish()
    }
}

/// What was answered, whatever the status. Its `Debug` shows nothing else that the other end said.
#[derive(Clone)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The words after the status, unless there are none or they are the usual ones for it. Words with letters outside
    /// ASCII are not read. Whoever shows them should remember that the other end may write there what it was told.
    pub reason: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, whole if the answer tells its length (`Content-Length` or `Transfer-Encoding`). If it tells none, the
    /// body is what came before the connection ended, and may have been cut.
    pub body: Bytes,
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("status", &self.status)
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// Why there is no answer. The texts are fit to be shown.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum Failure {
    /// Nothing of the request was sent: it has certainly had no effect.
    #[error("{0}")]
    NotSent(String),
    /// Nothing of the request was sent, nor will it be while the other end is as it is.
    #[error("{0}")]
    Untrusted(String),
    /// Some of it was sent, perhaps all; no or no whole answer came. It may have had its effect.
    #[error("{0}")]
    Lost(String),
    /// The answer is larger than the client's limit. The request may have had its effect.
    #[error("the answer is too large")]
    TooLarge,
}
