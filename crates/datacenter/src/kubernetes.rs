//! The Kubernetes API of control planes: one store a cluster, served by every control plane that is up and by whoever holds
//! the shared address.
//!
//! - [`store`] keeps objects with a revision for every change; [`kinds`] and [`schema`] say what is served and what it is
//!   made of, from tables of facts; [`crd`] adds what definitions say.
//! - [`callers`] finds out who asks; [`api`] takes a request apart and hands it to [`read`], [`write`], [`patch`] or [`delete`];
//!   [`fields`] knows who owns what.
//! - [`admission`], [`webhooks`] and [`podsecurity`] have a say before an object is kept, [`validate`] and [`structural`] judge
//!   it, [`access`] knows who may do what. A request that waits for a webhook is tried again ([`trial`]).
//! - [`collect`] and [`workloads`] are the controllers, the scheduler and the nodes' agents: events of the world.
//! - [`components`] are the controllers of what castles install.
//!
//! A real server is the measure: where this one differs, this one is wrong.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use castle_seams::Clock;
use futures_util::future::join_all;
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT, WARNING};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::datacenter::Datacenter;
use crate::talos::api::Session;
use crate::talos::credentials::CERTIFICATE_HEADER;
use crate::talos::route::Door;
use crate::witness::{Called, Fate};

mod access;
mod admission;
mod api;
mod body;
mod bootstrap;
mod callers;
mod cel;
mod certificates;
pub(crate) mod clusters;
mod collect;
pub(crate) mod components;
mod crd;
mod decode;
mod defaults;
mod delete;
mod discovery;
mod events;
mod fields;
mod kinds;
pub(crate) mod kube;
mod openapi;
mod patch;
mod podsecurity;
mod protobuf;
mod quantity;
mod read;
mod request;
pub(crate) mod restriction;
mod scale;
mod schema;
mod selectors;
mod services;
mod status;
pub(crate) mod store;
mod strategic;
mod structural;
mod table;
mod trial;
mod validate;
pub(crate) mod value;
pub(crate) mod webhooks;
pub(crate) mod workloads;
mod write;

#[cfg(test)]
mod tests;

use api::Reply;
use callers::{Credentials, impersonated};
use read::Watch;
use request::{Ask, Query, User};
use status::Failure;
use trial::Trial;

/// How long nobody looks at a watch that tells nothing.
const STALLED: Duration = Duration::from_secs(60);

/// Serves one connection until either end is gone.
pub(crate) async fn serve<S>(datacenter: Datacenter, vmid: u32, life: u64, stream: S, session: Session)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let door = Door::Kubernetes(vmid, life);
    let line = Arc::new(Line { datacenter: datacenter.clone(), vmid, door, session, cut: Notify::new() });
    let service = service_fn(|request: Request<Incoming>| {
        let line = line.clone();
        async move { Ok::<_, Infallible>(line.answer(request).await) }
    });
    let mut builder = http1::Builder::new();
    builder.auto_date_header(false);
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let gone = datacenter.until(|world| (!world.is_open(door)).then_some(()));
    tokio::select! {
        biased;
        () = line.cut.notified() => {}
        () = gone => {}
        // The client is gone, or spoke no HTTP: nobody is left to be told.
        _ = connection => {}
    }
}

/// What is known of one connection.
struct Line {
    datacenter: Datacenter,
    vmid: u32,
    door: Door,
    session: Session,
    cut: Notify,
}

type Answer = UnsyncBoxBody<Bytes, Infallible>;

impl Line {
    async fn answer(&self, request: Request<Incoming>) -> Response<Answer> {
        let clock = &self.datacenter.shared.clock;
        let latency = {
            let mut world = self.datacenter.world();
            let span = world.latencies.talos.kubernetes_call;
            world.draw(&format!("kubernetes call {}", self.vmid), span)
        };
        let (parts, body) = request.into_parts();
        let header = |name: &HeaderName| {
            parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
        };
        let certificate_header =
            parts.headers.get(CERTIFICATE_HEADER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut ask = Ask {
            method: parts.method.as_str().to_owned(),
            path: parts.uri.path().to_owned(),
            query: Query::parse(parts.uri.query().unwrap_or_default()),
            content_type: header(&CONTENT_TYPE),
            accept: header(&ACCEPT),
            user_agent: header(&USER_AGENT),
            body: Vec::new(),
            user: User::default(),
            behind: None,
            version: String::new(),
        };
        let impersonated = impersonated(&parts.headers);
        let token = header(&AUTHORIZATION).strip_prefix("Bearer ").map(|token| token.trim().to_owned());
        let read = Limited::new(body, write::REQUEST_LIMIT).collect().await;
        clock.sleep(latency / 2).await;
        let called = self.called(&ask);
        let witnesses = self.datacenter.witnesses();
        let mut fates = witnesses.iter().map(|witness| witness.call(&called));
        let fate = fates.find(|fate| *fate != Fate::Handled).unwrap_or(Fate::Handled);
        if fate == Fate::LostBefore || !self.datacenter.world().is_open(self.door) {
            return self.lost().await;
        }
        let reply = match (&fate, read) {
            (Fate::Refused(code, text), _) => Reply::failure(&refused(*code, text)),
            (_, Err(_)) => {
                let text = format!("Request entity too large: limit is {}", write::REQUEST_LIMIT);
                Reply::failure(&Failure::new(413, "RequestEntityTooLarge", text))
            }
            (_, Ok(read)) => {
                ask.body = read.to_bytes().to_vec();
                self.reply(&mut ask, &Credentials { certificate_header, token, impersonated }).await
            }
        };
        for witness in &witnesses {
            witness.answered(&called, reply.code());
        }
        clock.sleep(latency - latency / 2).await;
        if fate == Fate::LostAfter {
            return self.lost().await;
        }
        self.response(reply)
    }

    async fn lost<T>(&self) -> T {
        self.cut.notify_one();
        std::future::pending().await
    }

    fn called(&self, ask: &Ask) -> Called {
        let address = {
            let world = self.datacenter.world();
            let node = world.talos.nodes.get(&self.vmid);
            node.and_then(super::talos::node::Node::address).map(|ip| ip.to_string()).unwrap_or_default()
        };
        Called {
            number: self.datacenter.number(),
            vmid: self.vmid,
            address,
            method: format!("{} {}", ask.method, ask.path),
            is_change: !["GET", "HEAD"].contains(&ask.method.as_str()) && ask.query.get("dryRun").is_none(),
        }
    }

    /// Answers, and asks others for what has to be known before.
    async fn reply(&self, ask: &mut Ask, credentials: &Credentials) -> Reply {
        let mut trial = Trial::default();
        for _ in 0..trial::TRIES {
            if let Some(reply) = self.handle(ask, &mut trial, credentials) {
                return reply;
            }
            let told = join_all(trial.asks.iter().map(|question| question.put(&self.datacenter))).await;
            trial.learn(told);
        }
        let text = "Timeout: request did not complete within the allotted timeout";
        Reply::failure(&Failure::new(504, "Timeout", text))
    }

    /// Answers as far as that can be done at once; nothing if there is something to be asked.
    fn handle(&self, ask: &mut Ask, trial: &mut Trial, credentials: &Credentials) -> Option<Reply> {
        match self.identify(ask, credentials) {
            Ok(key) => {
                let reply = self.datacenter.world().kubernetes(&key, |kube| kube.attempt(ask, trial));
                reply.unwrap_or_else(|| Some(unavailable("etcdserver: no leader")))
            }
            Err(reply) => Some(*reply),
        }
    }

    fn response(&self, reply: Reply) -> Response<Answer> {
        let full = |bytes: Vec<u8>| Full::new(Bytes::from(bytes)).boxed_unsync();
        let retry = match &reply {
            Reply::Object { object, .. } => value::number(object, "details.retryAfterSeconds"),
            _ => None,
        };
        let (code, kind, body, warnings) = match reply {
            Reply::Object { code, object, warnings } => {
                (code, "application/json", full(object.to_string().into_bytes()), warnings)
            }
            Reply::Raw(code, kind, bytes) => (code, kind, full(bytes), Vec::new()),
            Reply::Watch(watch) => (200, "application/json", self.stream(*watch), Vec::new()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        if !kind.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        }
        if let Some(seconds) = retry {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        for warning in warnings {
            let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
            // A text that no header can hold warns nobody.
            if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{escaped}\"")) {
                headers.append(WARNING, value);
            }
        }
        response
    }

    /// The changes that somebody watches, as they come.
    fn stream(&self, watch: Watch) -> Answer {
        let key = {
            let world = self.datacenter.world();
            world
                .talos
                .nodes
                .get(&self.vmid)
                .and_then(|node| node.config())
                .map(|config| config.key.clone())
                .unwrap_or_default()
        };
        let clock = self.datacenter.clients_clock();
        let began = clock.monotonic();
        let state = Watching { datacenter: self.datacenter.clone(), key, door: self.door, clock, began, watch };
        let frames = stream::unfold(Some(state), |state| async move {
            let mut state = state?;
            let (text, is_over) = state.next().await;
            let frame = Ok::<_, Infallible>(Frame::data(Bytes::from(text)));
            Some((frame, (!is_over).then_some(state)))
        });
        StreamBody::new(frames).boxed_unsync()
    }
}

/// What a witness refuses with, by the code of gRPC that stands for it.
fn refused(code: i32, text: &str) -> Failure {
    match code {
        7 => Failure::new(403, "Forbidden", text),
        8 => Failure::new(429, "TooManyRequests", text).with_details(json!({ "retryAfterSeconds": 1 })),
        16 => Failure::unauthorized(),
        _ => Failure::new(503, "ServiceUnavailable", text),
    }
}

fn unavailable(why: &str) -> Reply {
    Reply::failure(&Failure::new(503, "ServiceUnavailable", why))
}

/// A watch that is served.
struct Watching {
    datacenter: Datacenter,
    key: String,
    door: Door,
    /// The clock of whoever watches.
    clock: Arc<dyn Clock>,
    began: Duration,
    watch: Watch,
}

impl Watching {
    /// The next events, one a line, and whether they are the last.
    async fn next(&mut self) -> (String, bool) {
        let (clock, began) = (self.clock.clone(), self.began);
        loop {
            let (key, door, watch) = (&self.key, self.door, &mut self.watch);
            let is_stalled = self.datacenter.world().kubernetes.get(key).is_some_and(|kube| kube.is_stalled);
            let due = watch.wakes().saturating_sub(clock.monotonic().saturating_sub(began));
            let wait = if is_stalled { STALLED } else { due };
            let look = self.datacenter.until(|world| {
                if !world.is_open(door) {
                    return Some((Vec::new(), true));
                }
                let told = world.kubernetes(key, |kube| match kube.is_stalled {
                    true => (Vec::new(), false),
                    false => {
                        kube.catch_up(watch.collection());
                        let passed = clock.monotonic().saturating_sub(began);
                        (watch.next(kube, passed), watch.is_over())
                    }
                });
                told.filter(|(events, is_over)| !events.is_empty() || *is_over)
            });
            let told = tokio::select! {
                biased;
                told = look => Some(told),
                () = clock.sleep(wait) => None,
            };
            if let Some((events, is_over)) = told {
                let lines: String = events.iter().map(|event| format!("{event}\n")).collect();
                return (lines, is_over);
            }
        }
    }
}
