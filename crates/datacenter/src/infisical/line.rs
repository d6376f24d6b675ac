//! One connection to an Infisical.

use std::io;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, IF_NONE_MATCH};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::reply::{VaultAsked, VaultReply};
use super::{Request, answer};
use crate::datacenter::Datacenter;
use crate::witness::witnessed_vault;

/// The bytes that a body may have: the framework's default.
const BODY_BYTES: usize = 1 << 20;

/// Serves one connection until either end is gone.
pub(crate) async fn serve<S>(datacenter: Datacenter, host: String, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let (datacenter, host) = (datacenter.clone(), host.clone());
        async move { respond(&datacenter, &host, request).await }
    });
    let mut builder = http1::Builder::new();
    builder.auto_date_header(false);
    // The client is gone, or spoke no HTTP: nobody is left to be told.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

fn dropped() -> io::Error {
    io::ErrorKind::ConnectionAborted.into()
}

async fn respond(
    datacenter: &Datacenter,
    host: &str,
    request: hyper::Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES).collect().await.ok().map(http_body_util::Collected::to_bytes);
    let is_json = text(&head.headers, &CONTENT_TYPE).is_some_and(|kind| kind.starts_with("application/json"));
    let body = match body {
        Some(bytes) if bytes.is_empty() => Some(Value::Null),
        Some(bytes) if is_json => serde_json::from_slice(&bytes).ok(),
        _ => None,
    };
    let request = Request {
        method: head.method.as_str().to_owned(),
        target: head.uri.path_and_query().map_or("/", hyper::http::uri::PathAndQuery::as_str).to_owned(),
        authorization: text(&head.headers, &AUTHORIZATION),
        if_none_match: text(&head.headers, &IF_NONE_MATCH),
        body,
    };
    let latency = {
        let mut world = datacenter.world();
        let span = world.latencies.rest;
        world.draw(&format!("vault call {host}"), span)
    };
    datacenter.shared.clock.sleep(latency / 2).await;
    if !datacenter.world().is_vault_up(host) {
        return Err(dropped());
    }
    let asked = VaultAsked {
        number: datacenter.number(),
        host: host.to_owned(),
        method: request.method.clone(),
        target: request.target.clone(),
        is_change: request.is_change(),
    };
    let mut handle = || answer(&mut datacenter.world(), host, &request);
    let reply = witnessed_vault(&datacenter.witnesses(), &asked, &mut handle).ok_or_else(dropped)?;
    datacenter.shared.clock.sleep(latency - latency / 2).await;
    if datacenter.world().is_vault_up(host) { Ok(response(reply)) } else { Err(dropped()) }
}

fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(Into::into)
}

fn response(reply: VaultReply) -> Response<Full<Bytes>> {
    let VaultReply { status, headers, body } = reply;
    let bytes = body.map(|body| Bytes::from(body.to_string())).unwrap_or_default();
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json; charset=utf-8"));
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(HeaderName::from_static(name), value);
        }
    }
    response
}
