//! One connection: HTTP/1.1 within the vendor's limits.

use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use castle_seams::Clock;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::ext::ReasonPhrase;
use hyper::header::{
    AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, DATE, HeaderMap, HeaderValue, SERVER,
    TRANSFER_ENCODING,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::form;
use crate::datacenter::Datacenter;
use crate::proxmox::{self, Raw};
use crate::witness::{Asked, Reply, witnessed};
use crate::world::World;

/// Header lines that are too many.
const HEADERS: usize = 64;
/// Bytes of header lines that are too many.
const HEADER_BYTES: usize = 8 << 10;
/// The bytes that a body may have.
const BODY_BYTES: usize = 512 << 10;
/// How long a connection may be idle.
const IDLE: Duration = Duration::from_secs(5);
/// The requests that one connection may carry.
const REQUESTS: u64 = 100;
/// How long the outer of the two servers waits for the inner.
const PROXY_PATIENCE: Duration = Duration::from_secs(30);

/// Serves one connection to its end. `clock` tells how long it is idle: the datacenter's own, or that of the machine where
/// the other end lives in real time.
pub(crate) async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    datacenter: Datacenter,
    host: String,
    stream: S,
    clock: Arc<dyn Clock>,
) {
    let (served, busy) = (AtomicU64::new(0), Mutex::default());
    let line = Arc::new(Line { datacenter, host, served, clock: clock.clone(), busy });
    line.touch(false);
    let service = service_fn(|request| {
        let line = line.clone();
        async move {
            line.touch(true);
            let answer = line.answer(request).await;
            line.touch(false);
            answer
        }
    });
    let mut builder = http1::Builder::new();
    builder.auto_date_header(false).max_headers(2 * HEADERS);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    loop {
        let wait = line.time_left(clock.monotonic());
        match select(connection.as_mut(), clock.sleep(wait)).await {
            // The client is gone, or spoke no HTTP: nobody is left to be told.
            Either::Left(_) => return,
            Either::Right(((), _)) => {
                if line.time_left(clock.monotonic()).is_zero() {
                    connection.as_mut().graceful_shutdown();
                    // Whether it ends well or ill, it ends.
                    let _ = connection.await;
                    return;
                }
            }
        }
    }
}

/// What is known of one connection.
struct Line {
    datacenter: Datacenter,
    host: String,
    served: AtomicU64,
    clock: Arc<dyn Clock>,
    /// Whether a request is being answered, and since when that is so.
    busy: Mutex<(bool, Duration)>,
}

/// Nothing is answered, and the connection ends.
type Dropped = io::Error;

fn dropped() -> Dropped {
    io::ErrorKind::ConnectionAborted.into()
}

impl Line {
    fn touch(&self, is_busy: bool) {
        *self.busy.lock().unwrap_or_else(PoisonError::into_inner) = (is_busy, self.clock.monotonic());
    }

    /// How long it may still be idle.
    fn time_left(&self, now: Duration) -> Duration {
        match *self.busy.lock().unwrap_or_else(PoisonError::into_inner) {
            (true, _) => IDLE,
            (false, since) => IDLE.saturating_sub(now.saturating_sub(since)),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Dropped> {
        let is_last = self.served.fetch_add(1, Ordering::Relaxed) + 1 >= REQUESTS;
        let reply = match read(request).await {
            Err(refused) => refused,
            Ok(raw) => self.handle(raw).await?,
        };
        if !reply.delay.is_zero() {
            self.datacenter.shared.clock.sleep(reply.delay).await;
        }
        if !self.datacenter.world().is_up(&self.host) {
            return Err(dropped());
        }
        let date = self.datacenter.world().hypervisor_date();
        Ok(response(&reply, is_last, &date))
    }

    async fn handle(&self, raw: Raw) -> Result<Reply, Dropped> {
        let clock = &self.datacenter.shared.clock;
        let latency = {
            let mut world = self.datacenter.world();
            let purpose = proxmox::purpose(&world, &raw);
            let span = world.latencies.rest;
            world.draw(&purpose, span)
        };
        clock.sleep(latency / 2).await;
        let has_waited = self.wait_for_lock(&raw).await;
        if !self.datacenter.world().is_up(&self.host) {
            return Err(dropped());
        }
        let asked = Asked {
            number: self.datacenter.number(),
            host: self.host.clone(),
            method: raw.method.clone(),
            path: raw.path.clone(),
            parameters: raw.parameters.clone(),
            is_change: raw.method != "GET",
        };
        let mut handle = || proxmox::answer(&mut self.datacenter.world(), &self.host, &raw, has_waited);
        let mut reply = witnessed(&self.datacenter.witnesses(), &asked, &mut handle).ok_or_else(dropped)?;
        let awaited = proxmox::awaited(&self.datacenter.world(), &raw, &reply);
        if let Some((upid, patience)) = awaited {
            reply = self.wait_for_task(&upid, patience, reply).await;
        }
        if reply.delay > PROXY_PATIENCE {
            // What takes this long has its effect, but nobody waits for it.
            reply = Reply { delay: PROXY_PATIENCE, ..Reply::failure(596, "Connection timed out") };
        }
        reply.delay += latency - latency / 2;
        Ok(reply)
    }

    /// Waits for a task that the client would rather see finished; gives `reply` if it takes too long.
    async fn wait_for_task(&self, upid: &str, patience: Duration, reply: Reply) -> Reply {
        let clock = &self.datacenter.shared.clock;
        let end = clock.monotonic() + patience;
        loop {
            let wait = {
                let (world, now) = (self.datacenter.world(), clock.monotonic());
                match world.tasks.find(upid).and_then(|(_, record)| record.exit.clone()) {
                    Some(exit) => return proxmox::finished(&exit, upid),
                    None if now >= end => return reply,
                    None => until_next(&world, now, end - now),
                }
            };
            clock.sleep(wait).await;
        }
    }

    /// Waits until the lock is free that the request needs, or as long as the vendor does. Says whether it was in vain.
    async fn wait_for_lock(&self, raw: &Raw) -> bool {
        let clock = &self.datacenter.shared.clock;
        let begun = clock.monotonic();
        loop {
            let now = clock.monotonic();
            let wait = {
                let world = self.datacenter.world();
                let Some((name, patience)) = proxmox::needed_lock(&world, raw) else { return false };
                if !world.locks.is_held(&name) {
                    return false;
                }
                let left = (begun + patience).saturating_sub(now);
                if left.is_zero() {
                    return true;
                }
                until_next(&world, now, left)
            };
            clock.sleep(wait).await;
        }
    }
}

/// How long nothing can change, at most `limit`. An event that is due this very moment is taken by the next look.
fn until_next(world: &World, now: Duration, limit: Duration) -> Duration {
    let next = world.events.next().map_or(limit, |next| next.saturating_sub(now));
    limit.min(next.max(Duration::from_millis(1)))
}

/// Reads a request, or refuses it as the vendor does before looking at what it asks for.
async fn read(request: Request<Incoming>) -> Result<Raw, Reply> {
    let (head, body) = request.into_parts();
    let refuse = |message: &str| Reply::failure(501, message);
    if head.headers.len() >= HEADERS {
        return Err(refuse("too many http header lines (> 64)"));
    }
    let bytes: usize = head.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes >= HEADER_BYTES {
        return Err(refuse("http header too large"));
    }
    let method = head.method.as_str().to_owned();
    if !["GET", "POST", "PUT", "DELETE"].contains(&method.as_str()) {
        return Err(refuse(&format!("method '{method}' not available")));
    }
    if head.headers.contains_key(TRANSFER_ENCODING) {
        return Err(refuse("chunked transfer encoding not supported"));
    }
    let takes_body = method == "POST" || method == "PUT";
    let length = head.headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if !takes_body && length.unwrap_or(0) > 0 {
        return Err(refuse(&format!("Unexpected content for method '{method}'")));
    }
    if length.unwrap_or(0) > BODY_BYTES || body.size_hint().lower() > BODY_BYTES as u64 {
        return Err(refuse("for data too large"));
    }
    let body = Limited::new(body, BODY_BYTES).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() { refuse("for data too large") } else { refuse("broken request") }
    })?;
    let body = body.to_bytes();

    let path = form::percent_decoded(head.uri.path());
    let Some(path) = path.strip_prefix("/api2/json").filter(|rest| rest.is_empty() || rest.starts_with('/')) else {
        return Err(Reply::failure(404, "Not Found"));
    };
    let mut parameters = Vec::new();
    if takes_body && !body.is_empty() {
        let kind = text(&head.headers, CONTENT_TYPE.as_str()).unwrap_or_default();
        let is_json = kind.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
        parameters = if is_json {
            form::json(&body).ok_or_else(|| Reply::failure(400, "Bad Request"))?
        } else {
            form::form(&String::from_utf8_lossy(&body))
        };
    }
    let query = form::form(head.uri.query().unwrap_or_default());
    parameters.retain(|(name, _)| !query.iter().any(|(other, _)| other == name));
    parameters.extend(query);

    let cookies = text(&head.headers, COOKIE.as_str()).unwrap_or_default();
    let ticket = cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix("PVEAuthCookie="));
    Ok(Raw {
        method,
        path: path.to_owned(),
        parameters,
        authorization: text(&head.headers, AUTHORIZATION.as_str()),
        ticket: ticket.map(form::percent_decoded),
        csrf: text(&head.headers, "CSRFPreventionToken"),
    })
}

fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(Into::into)
}

fn response(reply: &Reply, is_last: bool, date: &str) -> Response<Full<Bytes>> {
    let body = reply.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(SERVER, HeaderValue::from_static("pve-api-daemon/3.0"));
    if let Ok(date) = HeaderValue::from_str(date) {
        headers.insert(DATE, date);
    }
    if reply.body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json;charset=UTF-8"));
    }
    if is_last || reply.status >= 400 {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(reason) = reply.reason.as_ref().and_then(|reason| ReasonPhrase::try_from(reason.as_bytes()).ok()) {
        response.extensions_mut().insert(reason);
    }
    response
}
