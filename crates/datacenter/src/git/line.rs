//! One connection to a host of repositories.

use std::io;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::{Shown, plain, wire};
use crate::datacenter::Datacenter;

/// The most bytes of a request.
const BODY_BYTES: usize = 1 << 20;

/// Serves one connection until either end is gone.
pub(crate) async fn serve<S>(datacenter: Datacenter, host: String, stream: S)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(|request| {
        let (datacenter, host) = (datacenter.clone(), host.clone());
        async move { respond(&datacenter, &host.to_ascii_lowercase(), request).await }
    });
    let mut builder = http1::Builder::new();
    builder.auto_date_header(false);
    // The client is gone, or spoke no HTTP: nobody is left to be told.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}

async fn respond(
    datacenter: &Datacenter,
    host: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, io::Error> {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, BODY_BYTES).collect().await;
    let latency = {
        let mut world = datacenter.world();
        let span = world.latencies.rest;
        world.draw(&format!("git call {host}"), span)
    };
    datacenter.shared.clock.sleep(latency).await;
    let mut world = datacenter.world();
    if world.git.state(host) != Some(true) {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let path = head.uri.path();
    let asked = [("/info/refs", "GET"), ("/git-upload-pack", "POST")].into_iter().find_map(|(ending, method)| {
        let path = path.strip_suffix(ending).filter(|_| head.method == method)?;
        Some((plain(path), ending))
    });
    let (place, service) = asked.unwrap_or_default();
    let authorization = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let token = authorization.and_then(token);
    if !world.git.lets_in(host, token.as_deref()) {
        return Ok(unauthorized());
    }
    if let Err(why) = world.git.refresh(host, &place) {
        return Ok(told(503, "text/plain", format!("{why}\n").into_bytes()));
    }
    let repository = world.git.repository(host, &place);
    let Some(repository) = repository else { return Ok(told(404, "text/plain", b"Not Found\n".to_vec())) };
    if repository.lets_in(&token.as_deref().map_or(Shown::Nothing, Shown::Token)).is_err() {
        return Ok(unauthorized());
    }
    if service == "/info/refs" {
        return Ok(match head.uri.query() {
            Some("service=git-upload-pack") => {
                told(200, "application/x-git-upload-pack-advertisement", wire::greeting())
            }
            _ => told(403, "text/plain", b"this service is not offered\n".to_vec()),
        });
    }
    let bytes = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Ok(match wire::answer(repository, &bytes) {
        Some(answer) => told(200, "application/x-git-upload-pack-result", answer),
        None => told(400, "text/plain", b"this is no command of protocol version 2\n".to_vec()),
    })
}

fn unauthorized() -> Response<Full<Bytes>> {
    let mut refused = told(401, "text/plain", b"Unauthorized\n".to_vec());
    refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"git\""));
    refused
}

/// The token of a header: a password of anybody's, or a bearer token.
fn token(header: &str) -> Option<String> {
    if let Some(token) = header.strip_prefix("Bearer ") {
        return Some(token.trim().to_owned());
    }
    let decoded = STANDARD.decode(header.strip_prefix("Basic ")?.trim()).ok()?;
    let text = String::from_utf8(decoded).ok()?;
    text.split_once(':').map(|(_, password)| password.to_owned())
}

fn told(status: u16, kind: &'static str, body: Vec<u8>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
