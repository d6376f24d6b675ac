//! Speaking with Proxmox: one request, one answer or one refusal, and tasks followed to their end.

mod look;
mod task;
mod token;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use castle_http::{Answer, Ask, Endpoint, Failure, Method, Trust, TrustError};
use castle_seams::{Clock, Dial};
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc2822;
use tokio::sync::OnceCell;

use crate::model::{ErrorClass, Form, Refusal};

pub use task::Bound;
pub use token::{Token, TokenError};

/// What every call is bounded by. Proxmox itself gives up on a host of its cluster after thirty seconds.
const DEADLINE: Duration = Duration::from_secs(35);
/// The list of ten thousand guests is some five megabytes; what is longer is no answer to anything asked here.
const LIMIT: usize = 16 << 20;
/// No sentence of Proxmox is longer; what follows is of no use to people.
const LONGEST_SENTENCE: usize = 400;

/// Where Proxmox is, and how castle shows who it is there.
pub struct Access {
    /// The address of any one host of it.
    pub endpoint: Endpoint,
    /// Which certificate is believed.
    pub trust: Trust,
    /// The API token.
    pub token: Token,
}

/// Asks one Proxmox VE, a single host or a cluster.
pub struct Client {
    http: castle_http::Client,
    authorization: HeaderValue,
    clock: Arc<dyn Clock>,
    cluster: OnceCell<Option<String>>,
    whereabouts: String,
    host: String,
    /// By how many seconds its clock was ahead when it last answered.
    ahead: Mutex<Option<i64>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("http", &self.http).finish_non_exhaustive()
    }
}

impl Client {
    /// A client; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if no certificate can be judged by what is trusted.
    pub fn new(access: Access, dial: Arc<dyn Dial>, clock: Arc<dyn Clock>) -> Result<Self, TrustError> {
        let Access { mut endpoint, trust, token } = access;
        let (host, whereabouts) = (endpoint.host.clone(), format!("{} as {}", endpoint.host, token.name()));
        endpoint.base = format!("{}/api2/json", endpoint.base);
        let http = castle_http::Client::new(endpoint, &trust, dial, clock.clone())?;
        let http = http.with_deadline(DEADLINE).with_limit(LIMIT);
        Ok(Self {
            http,
            authorization: token.header(),
            clock,
            cluster: OnceCell::new(),
            whereabouts,
            host,
            ahead: Mutex::default(),
        })
    }

    /// Asks for something. `subject` says for what, in the words that a person would use.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it is not given.
    pub async fn get(&self, subject: &str, path: &str, form: &Form) -> Result<Value, Refusal> {
        self.ask(subject, Method::GET, path, form).await.map(|mut body| body["data"].take())
    }

    /// Asks for some of many; how many there are comes back as the second, if that is told.
    async fn page(&self, subject: &str, path: &str, form: &Form) -> Result<(Value, Option<u64>), Refusal> {
        let mut body = self.ask(subject, Method::GET, path, form).await?;
        let total = body.get("total").and_then(Value::as_u64);
        Ok((body["data"].take(), total))
    }

    /// Asks for a change; what is answered is often the name of a task that has only begun ([`Client::run`]).
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it is refused, or if nobody knows.
    pub async fn change(&self, subject: &str, method: Method, path: &str, form: &Form) -> Result<Value, Refusal> {
        self.ask(subject, method, path, form).await.map(|mut body| body["data"].take())
    }

    /// The whole of what is answered, which has `data`.
    async fn ask(&self, subject: &str, method: Method, path: &str, form: &Form) -> Result<Map<String, Value>, Refusal> {
        let changes = method != Method::GET;
        let refusal = |class, sentence: String| Refusal { class, subject: subject.to_owned(), sentence, changes };
        let has_body = [Method::POST, Method::PUT].contains(&method);
        let encoded = form.encode();
        let mut ask = match encoded.is_empty() || has_body {
            true => Ask::new(method, path),
            false => Ask::new(method, &format!("{path}?{encoded}")),
        };
        ask.headers.insert(AUTHORIZATION, self.authorization.clone());
        if has_body {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            ask.body = encoded.into();
        }
        // What cannot be repeated is not sent over a connection that may be closing.
        ask.fresh = changes;
        let answer = self.http.ask(&ask).await.map_err(|failure| {
            let class = match failure {
                Failure::NotSent(_) => ErrorClass::Unreachable,
                Failure::Untrusted(_) => ErrorClass::Untrusted,
                Failure::Lost(_) => ErrorClass::Unknown,
                Failure::TooLarge => ErrorClass::Unreadable,
            };
            refusal(class, failure.to_string())
        })?;
        if let Some(ahead) = ahead(&answer.headers, self.clock.wall()) {
            *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = Some(ahead);
        }
        let body: Option<Value> = serde_json::from_slice(&answer.body).ok();
        let status = answer.status.as_u16();
        if !answer.status.is_success() {
            let sentence = sentence(&answer, body.as_ref());
            return Err(refusal(ErrorClass::of_answer(status, &sentence), sentence));
        }
        match body {
            Some(Value::Object(body)) if body.contains_key("data") => Ok(body),
            _ => Err(refusal(ErrorClass::Unreadable, "what answers is not the API of Proxmox".to_owned())),
        }
    }

    /// Where it asks and as whom, for people.
    #[must_use]
    pub fn whereabouts(&self) -> &str {
        &self.whereabouts
    }

    /// The host that it asks.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// By how many seconds that host's clock was ahead of the one here when it last answered, if it has. Every answer tells, to whomever.
    #[must_use]
    pub fn clock_ahead(&self) -> Option<i64> {
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What time it is by the clock of that host, or by the one here as long as it has not answered.
    pub(crate) fn wall(&self) -> SystemTime {
        let (here, ahead) = (self.clock.wall(), self.clock_ahead().unwrap_or(0));
        let by = Duration::from_secs(ahead.unsigned_abs());
        if ahead < 0 { here.checked_sub(by) } else { here.checked_add(by) }.unwrap_or(here)
    }

    /// What tells the time of this client.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }
}

/// By how many seconds the clock of whoever sent these is ahead of this moment.
fn ahead(headers: &HeaderMap, now: SystemTime) -> Option<i64> {
    let there = OffsetDateTime::parse(headers.get(DATE)?.to_str().ok()?, &Rfc2822).ok()?.unix_timestamp();
    let here = now.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs();
    there.checked_sub_unsigned(here)
}

/// What Proxmox says about a refusal: the whole message where the body has it, else the words after the status, and the
/// parameters that it does not accept.
fn sentence(answer: &Answer, body: Option<&Value>) -> String {
    let said = body.and_then(|body| body["message"].as_str()).or(answer.reason.as_deref()).unwrap_or_default().trim();
    let usual = answer.status.canonical_reason().unwrap_or("no reason given");
    let mut sentence = if said.is_empty() { format!("{} {usual}", answer.status.as_u16()) } else { said.to_owned() };
    if let Some(errors) = body.and_then(|body| body["errors"].as_object()) {
        for (parameter, why) in errors {
            let why = why.as_str().unwrap_or("not accepted").trim();
            sentence.push_str(&format!(" {parameter}: {why}."));
        }
    }
    let sentence = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    sentence.chars().filter(|letter| !letter.is_control()).take(LONGEST_SENTENCE).collect()
}

/// A part of a path, encoded: what comes from outside never becomes another path.
pub(crate) fn part(text: &str) -> String {
    let mut encoded = String::new();
    crate::model::encode(&mut encoded, text);
    // A part that means another folder is none of Proxmox' names.
    if encoded.chars().all(|letter| letter == '.') { encoded.replace('.', "%2E") } else { encoded }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_date_of_an_answer_tells_the_clock_of_who_sent_it() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let told = |date: &'static str| ahead(&[(DATE, HeaderValue::from_static(date))].into_iter().collect(), now);
        assert_eq!(told("Sun, 06 Nov 1994 08:49:37 GMT"), Some(0));
        assert_eq!(told("Sun, 06 Nov 1994 10:49:37 GMT"), Some(7200));
        assert_eq!(told("Sat, 05 Nov 1994 08:49:37 GMT"), Some(-86_400));
        assert_eq!((told("soon"), ahead(&HeaderMap::new(), now)), (None, None));
    }
}
