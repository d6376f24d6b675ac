//! The records of a castle in a bucket.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Expect, Found, Store, StoreError, StoreErrorKind, Stored, Tag};
use castle_http::header::{CONTENT_LENGTH, ETAG, TRANSFER_ENCODING};
use castle_http::{Failure, Method, StatusCode};
use castle_seams::{Clock, Dial};

use self::verdict::Deed;
use crate::client::{Answer, Ask, Client, MAX_BYTES};
use crate::model::{ConfigError, Credentials, S3Config, xml};

mod verdict;

/// No list has more pages; each has at most a thousand keys.
const MOST_PAGES: usize = 1_000;

/// A bucket. Of several writers who expect the same, the bucket lets exactly one write.
pub struct S3Store {
    client: Client,
    bucket: String,
    region: String,
    /// Empty, or ends in a slash.
    prefix: String,
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Store")
            .field("endpoint", &self.client.endpoint.http.target)
            .field("region", &self.region)
            .field("bucket", &self.bucket)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl S3Store {
    /// The store in this bucket. Asks nothing yet.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] if the configuration cannot be.
    pub fn new(
        config: &S3Config,
        credentials: Credentials,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        let client = Client::new(config, credentials, dial, clock)?;
        let prefix = match config.prefix.trim_matches('/') {
            "" => String::new(),
            prefix => format!("{prefix}/"),
        };
        Ok(Self { client, bucket: config.bucket.clone(), region: config.region.clone(), prefix })
    }

    /// Allows each request this time, from dialling to the last byte of the answer, and not [`crate::DEADLINE`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { client: self.client.with_deadline(deadline), ..self }
    }

    async fn read(&self, key: &str) -> Result<Option<Found>, StoreError> {
        let path = self.object(key)?;
        let ask = Ask { method: Method::GET, path, query: &[], headers: &[], body: b"" };
        let answer = self.ask(Deed::Get, key, &ask).await?;
        if verdict::is_absent(answer.status, &answer.body) {
            return Ok(None);
        }
        if answer.status != StatusCode::OK {
            return Err(self.judge(Deed::Get, key, &answer));
        }
        // Without either, an answer that was cut off looks like a whole one.
        if !answer.headers.contains_key(CONTENT_LENGTH) && !answer.headers.contains_key(TRANSFER_ENCODING) {
            return Err(self.refused(key, "the answer does not tell how long it is"));
        }
        let Some(tag) = tag(&answer) else {
            return Err(
                self.refused(key, "the answer names no version (ETag), without which nothing is written safely")
            );
        };
        Ok(Some(Found { bytes: answer.body.to_vec(), tag }))
    }

    async fn write(&self, key: &str, bytes: &[u8], expect: Expect<'_>) -> Result<Tag, StoreError> {
        let path = self.object(key)?;
        if bytes.len() > MAX_BYTES {
            return Err(self.refused(key, &format!("{} bytes are more than a record may have", bytes.len())));
        }
        let (deed, condition) = match expect {
            Expect::Nothing => (Deed::PutNew, ("if-none-match", "*")),
            Expect::Version(tag) if is_entity_tag(&tag.0) => (Deed::PutOver, ("if-match", tag.0.as_str())),
            // `*` would match whatever is there, and a list any of its members.
            Expect::Version(_) => {
                return Err(self.failure(StoreErrorKind::Conflict, key, "the version expected is none of this store"));
            }
        };
        let headers = [condition, ("content-type", "application/octet-stream")];
        let ask = Ask { method: Method::PUT, path, query: &[], headers: &headers, body: bytes };
        let answer = self.ask(deed, key, &ask).await?;
        if !answer.status.is_success() {
            return Err(self.judge(deed, key, &answer));
        }
        tag(&answer).ok_or_else(|| {
            self.failure(StoreErrorKind::Unknown, key, "it was written, but the answer names no version (ETag)")
        })
    }

    async fn keys(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let whole_prefix = format!("{}{prefix}", self.prefix);
        let mut keys = Vec::new();
        let mut next: Option<String> = None;
        for _ in 0..MOST_PAGES {
            let page = self.page(prefix, &whole_prefix, next.as_deref()).await?;
            let ours = page.keys.iter().filter_map(|key| key.strip_prefix(&self.prefix));
            // What else lies there, such as the empty objects that stand for folders, is no record.
            keys.extend(ours.filter(|key| is_key(key) && key.starts_with(prefix)).map(str::to_owned));
            if !page.is_truncated {
                keys.sort_unstable();
                keys.dedup();
                return Ok(keys);
            }
            match page.next {
                Some(token) if !token.is_empty() && next.as_ref() != Some(&token) => next = Some(token),
                _ => return Err(self.refused(prefix, "the list goes on, but the answer does not say where")),
            }
        }
        Err(self.refused(prefix, &format!("the list has more than {MOST_PAGES} pages")))
    }

    async fn page(&self, key: &str, prefix: &str, next: Option<&str>) -> Result<xml::Page, StoreError> {
        let mut query = vec![("list-type", "2"), ("prefix", prefix)];
        query.extend(next.map(|token| ("continuation-token", token)));
        let path = self.client.endpoint.bucket();
        let ask = Ask { method: Method::GET, path, query: &query, headers: &[], body: b"" };
        let answer = self.ask(Deed::List, key, &ask).await?;
        if answer.status != StatusCode::OK {
            return Err(self.judge(Deed::List, key, &answer));
        }
        xml::page(&answer.body).map_err(|error| match error {
            xml::XmlError::Malformed => self.failure(StoreErrorKind::Unavailable, key, &error.to_string()),
            xml::XmlError::Foreign => self.refused(key, &format!("{error}: correct the endpoint")),
        })
    }

    async fn remove(&self, key: &str) -> Result<(), StoreError> {
        let path = self.object(key)?;
        let ask = Ask { method: Method::DELETE, path, query: &[], headers: &[], body: b"" };
        let answer = self.ask(Deed::Delete, key, &ask).await?;
        let is_silent = answer.status == StatusCode::NOT_FOUND && answer.body.is_empty();
        if answer.status.is_success() || is_silent || verdict::is_absent(answer.status, &answer.body) {
            return Ok(());
        }
        Err(self.judge(Deed::Delete, key, &answer))
    }

    /// The path of a record.
    fn object(&self, key: &str) -> Result<String, StoreError> {
        if is_key(key) {
            Ok(self.client.endpoint.object(&format!("{}{key}", self.prefix)))
        } else {
            Err(self.refused(key, "a key is made of a-z, 0-9 and hyphens, with single slashes between"))
        }
    }

    async fn ask(&self, deed: Deed, key: &str, ask: &Ask<'_>) -> Result<Answer, StoreError> {
        self.client.ask(ask).await.map_err(|failure| match failure {
            Failure::NotSent(why) => self.failure(StoreErrorKind::Unavailable, key, &why),
            Failure::Untrusted(why) => {
                let advice = "correct the endpoint, or name the authority of its certificate in ca_pem";
                self.refused(key, &format!("{why}; {advice}"))
            }
            Failure::Lost(why) => {
                let why = format!("{why} (asked {})", self.client.endpoint.http.target);
                self.failure(deed.unanswered(), key, &why)
            }
            Failure::TooLarge if deed.unanswered() == StoreErrorKind::Unknown => {
                self.failure(StoreErrorKind::Unknown, key, "the answer is too large")
            }
            Failure::TooLarge => self.refused(key, &format!("it is larger than {} MiB", MAX_BYTES >> 20)),
        })
    }

    /// The error that an answer stands for which is no success.
    fn judge(&self, deed: Deed, key: &str, answer: &Answer) -> StoreError {
        let status = answer.status;
        let complaint = xml::complaint(&answer.body);
        let header = answer.headers.get("x-amz-bucket-region").and_then(|value| value.to_str().ok());
        let is_region = |name: &&str| name.len() < 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        let actual =
            header.or(complaint.region.as_deref()).filter(is_region).map(|name| self.client.tellable(answer, name));

        let mut evidence = match complaint.code.as_str() {
            "" => status.to_string(),
            code => format!("{} {}", status.as_u16(), self.client.tellable(answer, code)),
        };
        let message = complaint.message.trim_end_matches('.');
        if !message.is_empty() {
            evidence = format!("{evidence}: {}", self.client.tellable(answer, message));
        }
        let advice = verdict::advice(deed, status, &complaint, &self.bucket, &self.region, actual.as_deref());
        if let Some(advice) = advice {
            evidence = format!("{evidence}; {advice}");
        }
        self.failure(verdict::kind(deed, status, &complaint.code), key, &evidence)
    }

    fn refused(&self, key: &str, evidence: &str) -> StoreError {
        self.failure(StoreErrorKind::Refused, key, evidence)
    }

    fn failure(&self, kind: StoreErrorKind, key: &str, evidence: &str) -> StoreError {
        let subject = format!("s3://{}/{}{key}", self.bucket, self.prefix);
        StoreError { kind, subject, evidence: evidence.to_owned() }
    }
}

/// What the engine calls a key: words of `[a-z0-9-]` with slashes between.
fn is_key(key: &str) -> bool {
    let is_word =
        |word: &str| !word.is_empty() && word.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
    key.split('/').all(is_word)
}

/// The version that an answer names. A weak one stands for more than one sequence of bytes, so it names none.
fn tag(answer: &Answer) -> Option<Tag> {
    let text = answer.headers.get(ETAG)?.to_str().ok()?.trim();
    // Some stores forget the quotation marks, and want them all the same.
    let text = if text.contains(['"', '/']) { text.to_owned() } else { format!("\"{text}\"") };
    is_entity_tag(&text).then_some(Tag(text))
}

/// Whether it is one strong entity tag, and neither several nor `*`.
fn is_entity_tag(text: &str) -> bool {
    let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inside.is_some_and(|inside| !inside.is_empty() && inside.bytes().all(|b| b.is_ascii_graphic() && b != b'"'))
}

impl Store for S3Store {
    fn get<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Found>> {
        Box::pin(self.read(key))
    }

    fn put<'a>(&'a self, key: &'a str, bytes: &'a [u8], expect: Expect<'a>) -> Stored<'a, Tag> {
        Box::pin(self.write(key, bytes, expect))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<String>> {
        Box::pin(self.keys(prefix))
    }

    fn delete<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        Box::pin(self.remove(key))
    }
}
