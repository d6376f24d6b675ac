//! One request over one connection: signed, sent, answered. Bounded in time and size, and never repeated.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use castle_http::header::{HeaderMap, HeaderName, HeaderValue};
use castle_http::{Bytes, Failure, Method, StatusCode, Trust};
use castle_seams::{Clock, Dial};

use self::endpoint::Endpoint;
use crate::model::{ConfigError, Credentials, S3Config};
use crate::sign::{Parts, Signed, Stamp, encode_query, sha256_hex, sign};

mod endpoint;

/// The time allowed for a request, from dialling to the last byte of the answer.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// No record and no answer is larger.
pub(crate) const MAX_BYTES: usize = 64 << 20;

/// Asks one bucket.
pub(crate) struct Client {
    pub endpoint: Endpoint,
    region: String,
    credentials: Credentials,
    http: castle_http::Client,
    clock: Arc<dyn Clock>,
}

/// What is asked.
pub(crate) struct Ask<'a> {
    pub method: Method,
    /// The path as it is sent.
    pub path: String,
    pub query: &'a [(&'a str, &'a str)],
    /// Headers besides those that every request has; names in lower case. All are signed.
    pub headers: &'a [(&'static str, &'a str)],
    pub body: &'a [u8],
}

/// What was answered, whatever the status.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// The request's, so that it can be kept out of whatever is told.
    signature: String,
}

impl Client {
    /// The client of the bucket, with the default deadline.
    pub(crate) fn new(
        config: &S3Config,
        credentials: Credentials,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        config.check()?;
        credentials.check()?;
        let endpoint = Endpoint::new(config)?;
        let trust = config.ca_pem.clone().map_or(Trust::PublicRoots, Trust::Authorities);
        let http = castle_http::Client::new(endpoint.http.clone(), &trust, dial, clock.clone())
            .map_err(|error| ConfigError::Certificate(error.why))?
            .with_deadline(DEADLINE)
            .with_limit(MAX_BYTES)
            .without_reuse();
        Ok(Self { endpoint, region: config.region.clone(), credentials, http, clock })
    }

    /// Allows each request this time.
    pub(crate) fn with_deadline(self, deadline: Duration) -> Self {
        Self { http: self.http.with_deadline(deadline), ..self }
    }

    /// Asks once.
    pub(crate) async fn ask(&self, ask: &Ask<'_>) -> Result<Answer, Failure> {
        let (ask, signature) = self.signed(ask)?;
        let castle_http::Answer { status, headers, body, .. } = self.http.ask(&ask).await?;
        Ok(Answer { status, headers, body, signature })
    }

    /// The text as it may be told: without credentials, without the signature, on one line and not long.
    pub(crate) fn tellable(&self, answer: &Answer, text: &str) -> String {
        const LONGEST: usize = 200;
        let text = self.credentials.scrub(&text.replace(&answer.signature, "(redacted)"));
        let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        match text.char_indices().nth(LONGEST) {
            Some((end, _)) => format!("{}…", &text[..end]),
            None => text,
        }
    }

    /// The signed request, and its signature.
    fn signed(&self, ask: &Ask<'_>) -> Result<(castle_http::Ask, String), Failure> {
        let query = encode_query(ask.query);
        let parts = Parts {
            method: ask.method.as_str(),
            host: &self.endpoint.http.host,
            path: &ask.path,
            query: &query,
            headers: ask.headers,
            body_sha256: &sha256_hex(ask.body),
        };
        // A calendar before 1970 is as good as none.
        let stamp = Stamp::since_epoch(self.clock.wall().duration_since(UNIX_EPOCH).unwrap_or_default());
        let Signed { headers: added, signature } = sign(&parts, &self.credentials, &self.region, &stamp);
        let mut headers = HeaderMap::new();
        for (name, value) in ask.headers {
            headers.insert(HeaderName::from_static(name), header(value)?);
        }
        for (name, value) in added {
            let mut value = header(&value)?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        let path_and_query = if query.is_empty() { ask.path.clone() } else { format!("{}?{query}", ask.path) };
        let body = Bytes::copy_from_slice(ask.body);
        Ok((castle_http::Ask { method: ask.method.clone(), path_and_query, headers, body, fresh: false }, signature))
    }
}

fn header(value: &str) -> Result<HeaderValue, Failure> {
    HeaderValue::from_str(value).map_err(|error| Failure::NotSent(error.to_string()))
}
