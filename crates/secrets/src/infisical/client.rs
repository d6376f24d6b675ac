//! Speaking with Infisical: one request, one answer or one failure that names the region.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use castle_http::{Answer, Ask, Failure, Method, Trust, TrustError};
use castle_seams::{Clock, Dial};
use serde_json::Value;
use tokio::sync::{Mutex, OnceCell};

use super::model::{self, Identity, Refusal, Region};
use crate::redact::redact;
use crate::vault::{VaultError, VaultErrorKind};

mod session;
mod vault;
mod wire;

use session::Session;

/// The bytes that a request may have: the default of the server's framework, which it does not change.
pub const LARGEST_BODY: usize = 1 << 20;

/// No request of castle's takes longer.
const DEADLINE: Duration = Duration::from_secs(30);
/// A folder of a thousand secrets with a megabyte each is no folder of a castle.
const LIMIT: usize = 32 << 20;
/// Limits are per minute: who has waited for two has waited enough.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// How long to wait where nobody says.
const USUAL_WAIT: Duration = Duration::from_secs(5);

/// Which secrets, and who castle is there.
pub struct Access {
    /// Where the project is.
    pub region: Region,
    /// Which certificate is believed.
    pub trust: Trust,
    /// Who castle is.
    pub identity: Identity,
    /// The slug of the project.
    pub project: String,
    /// The slug of the environment.
    pub environment: String,
}

/// Asks one Infisical for the secrets of one environment.
pub struct Client {
    http: castle_http::Client,
    region: Region,
    identity: Identity,
    project: String,
    environment: String,
    clock: Arc<dyn Clock>,
    session: Mutex<Session>,
    /// The id of the project, once it is known.
    project_id: OnceCell<String>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("http", &self.http).field("project", &self.project).finish_non_exhaustive()
    }
}

/// One request: what it is about, in words, and what is sent.
struct Request<'a> {
    subject: &'a str,
    method: Method,
    target: String,
    body: Option<String>,
}

impl Request<'_> {
    fn changes(&self) -> bool {
        self.method != Method::GET
    }
}

impl Client {
    /// A client; nothing is asked yet.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if no certificate can be judged by what is trusted.
    pub fn new(access: Access, dial: Arc<dyn Dial>, clock: Arc<dyn Clock>) -> Result<Self, TrustError> {
        let Access { region, trust, identity, project, environment } = access;
        let endpoint = region.endpoint().map_err(|error| TrustError { why: error.to_string() })?;
        let http = castle_http::Client::new(endpoint, &trust, dial, clock.clone())?;
        let http = http.with_deadline(DEADLINE).with_limit(LIMIT);
        let (session, project_id) = (Mutex::default(), OnceCell::new());
        Ok(Self { http, region, identity, project, environment, clock, session, project_id })
    }

    /// Which Infisical, in words.
    fn name(&self) -> String {
        format!("Infisical ({})", self.region)
    }

    fn failed(&self, request: &Request<'_>, kind: VaultErrorKind, evidence: impl Into<String>) -> VaultError {
        let subject = match request.subject {
            "" => self.name(),
            subject => format!("{}, {subject}", self.name()),
        };
        VaultError { changes: request.changes(), ..VaultError::new(kind, subject, evidence) }
    }

    /// Sends a request once, with a token if there is one.
    async fn send(&self, request: &Request<'_>, token: Option<&HeaderValue>) -> Result<Answer, VaultError> {
        let mut ask = Ask::new(request.method.clone(), &request.target);
        if let Some(token) = token {
            ask.headers.insert(AUTHORIZATION, token.clone());
        }
        if let Some(body) = &request.body {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            ask.body = body.clone().into();
        }
        // What cannot be repeated is not sent over a connection that may be closing.
        ask.fresh = request.changes();
        self.http.ask(&ask).await.map_err(|failure| {
            let kind = match failure {
                Failure::NotSent(_) => VaultErrorKind::Unreachable,
                Failure::Untrusted(_) => VaultErrorKind::Untrusted,
                Failure::Lost(_) => VaultErrorKind::Unknown,
                Failure::TooLarge => VaultErrorKind::Unreadable,
            };
            self.failed(request, kind, failure.to_string()).next("is it up, and is the region right? castle doctor")
        })
    }

    /// Sends a request until it is not told to wait any more, within a bound.
    async fn patiently(&self, request: &Request<'_>, token: Option<&HeaderValue>) -> Result<Heard, VaultError> {
        let mut waited = Duration::ZERO;
        loop {
            let answer = self.send(request, token).await?;
            if answer.status.is_success() {
                let read = serde_json::from_slice(&answer.body);
                return read.map(Heard::Told).map_err(|_| self.unreadable(request));
            }
            let refusal = Refusal::read(answer.status.as_u16(), &answer.body);
            let VaultErrorKind::Busy(told) = refusal.kind() else { return Ok(Heard::Refused(refusal)) };
            let header = answer.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
            let wait = header.map(Duration::from_secs).or(told);
            if token.is_none() && wait.is_none() {
                // A login that is turned away without a time was wrong, while others were wrong: one more would be, too.
                return Ok(Heard::Refused(Refusal { status: 401, ..refusal }));
            }
            let wait = wait.unwrap_or(USUAL_WAIT).max(Duration::from_secs(1));
            if waited + wait > LONGEST_WAIT {
                let next = "wait for as long as it says, then run the same again";
                return Err(self
                    .failed(request, VaultErrorKind::Busy(Some(wait)), &*redact(&refusal.message))
                    .next(next));
            }
            self.clock.sleep(wait).await;
            waited += wait;
        }
    }

    /// Asks as whoever castle is. A token that holds no more is replaced once.
    async fn ask(&self, request: &Request<'_>) -> Result<Value, Trouble> {
        let mut token = self.token(None).await?;
        let mut is_again = false;
        loop {
            let refusal = match self.patiently(request, Some(&token.header)).await? {
                Heard::Told(answer) => return Ok(answer),
                Heard::Refused(refusal) => refusal,
            };
            let kind = refusal.kind();
            if kind == VaultErrorKind::Unauthenticated && !is_again {
                is_again = true;
                token = self.token(Some(token.number)).await?;
                continue;
            }
            let mut error = self.failed(request, kind, &*redact(&refusal.message));
            error.next = self.advice(kind);
            return Err(Trouble { error, refused_as: refusal.error });
        }
    }

    fn advice(&self, kind: VaultErrorKind) -> String {
        let Self { project, environment, .. } = self;
        match kind {
            VaultErrorKind::Unauthenticated => format!("check the identity; {}", self.region.doubt()),
            VaultErrorKind::Forbidden | VaultErrorKind::Hidden => {
                format!(
                    "in Infisical, project {project}: give the identity what is named, in environment {environment}"
                )
            }
            VaultErrorKind::Unreadable => "is the address of the region right?".to_owned(),
            _ => String::new(),
        }
    }

    fn unreadable(&self, request: &Request<'_>) -> VaultError {
        self.failed(request, VaultErrorKind::Unreadable, "what answers is not the API of Infisical")
            .next(self.advice(VaultErrorKind::Unreadable))
    }

    /// The id of the project; looked up once, and then the environment is known to be there, too.
    async fn project_id(&self) -> Result<&str, VaultError> {
        let look = async || {
            let (project, environment) = (&self.project, &self.environment);
            let subject = format!("project {project}");
            let target = format!("/v1/projects/slug/{}", wire::encoded(project));
            let request = Request { subject: &subject, method: Method::GET, target, body: None };
            let answer = self.ask(&request).await.map_err(|trouble| match trouble.error.kind {
                VaultErrorKind::Missing => {
                    let next = format!("is the slug right? {}", self.region.doubt());
                    trouble.error.next(next)
                }
                _ => trouble.error,
            })?;
            let id = answer["id"].as_str().ok_or_else(|| self.unreadable(&request))?;
            let all = answer["environments"].as_array().map(Vec::as_slice).unwrap_or_default();
            let slugs: Vec<&str> = all.iter().filter_map(|environment| environment["slug"].as_str()).collect();
            if !slugs.contains(&environment.as_str()) {
                let evidence = format!("it has no environment {environment}: it has {}", slugs.join(", "));
                let next = "write the slug of one of them into `secrets:` of castle.yaml";
                return Err(self.failed(&request, VaultErrorKind::Missing, evidence).next(next));
            }
            Ok(id.to_owned())
        };
        self.project_id.get_or_try_init(look).await.map(String::as_str)
    }

    /// Where secrets are looked for; nothing is ever replaced or added on the way.
    async fn look(&self, subject: &str, name: Option<&str>, path: &str) -> Result<Option<Value>, VaultError> {
        wire::check_path(path)?;
        let id = self.project_id().await?;
        let is_secret = name.is_some();
        let name = name.map(|name| format!("/{}", wire::encoded(name))).unwrap_or_default();
        let target = format!(
            "/v4/secrets{name}?projectId={}&environment={}&secretPath={}&expandSecretReferences=false\
             &includeImports=false",
            wire::encoded(id),
            wire::encoded(&self.environment),
            wire::encoded(path),
        );
        let request = Request { subject, method: Method::GET, target, body: None };
        match self.ask(&request).await {
            Ok(answer) => Ok(Some(answer)),
            // Whether it is the project that is missing was found out before.
            Err(trouble) if trouble.is_absence(is_secret) => Ok(None),
            Err(trouble) => Err(trouble.error),
        }
    }

    /// Asks for a change of secrets, and proves that it was made.
    async fn change(&self, path: &str, method: Method, body: String) -> Result<(), VaultError> {
        let subject = format!("folder {path}");
        let request = Request { subject: &subject, method, target: "/v4/secrets/batch".to_owned(), body: Some(body) };
        let answer = self.ask(&request).await.map_err(|trouble| match trouble.error.kind {
            // Somebody else was here since castle looked: only another look tells.
            VaultErrorKind::Missing => VaultError { kind: VaultErrorKind::Unknown, ..trouble.error },
            _ => trouble.error,
        })?;
        if answer["approval"].is_object() {
            let evidence = "the change waits for approval and has not been made";
            let next = "approve it in Infisical, or exempt castle's folder from the policy; then run the same again";
            return Err(self.failed(&request, VaultErrorKind::Waiting, evidence).next(next));
        }
        if answer["secrets"].is_array() { Ok(()) } else { Err(self.unreadable(&request)) }
    }
}

/// What was heard.
enum Heard {
    Told(Value),
    Refused(Refusal),
}

/// A failure, and the name that Infisical has for it.
struct Trouble {
    error: VaultError,
    refused_as: String,
}

impl Trouble {
    /// Whether it says that a folder is not there, or a secret where that was asked for.
    fn is_absence(&self, is_secret: bool) -> bool {
        self.error.kind == VaultErrorKind::Missing
            && match self.refused_as.as_str() {
                "SecretPathNotFound" => true,
                "GetSecretByName" | "NotFound" => is_secret,
                _ => false,
            }
    }
}

impl From<VaultError> for Trouble {
    fn from(error: VaultError) -> Self {
        Self { error, refused_as: String::new() }
    }
}
