//! The Kubernetes API of control planes, as far as gates and `kubectl get nodes` need it.
//!
//! It only reads: what nodes there are, and whether names resolve, comes from [`crate::talos::cluster`]. A whole API takes
//! its place later.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::pki_types::CertificateDer;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use crate::datacenter::Datacenter;
use crate::talos::api::Session;
use crate::talos::credentials::{self, CERTIFICATE_HEADER};
use crate::talos::route::Door;
use crate::witness::{Called, Fate};
use crate::world::World;

mod objects;

/// Serves one connection until either end is gone.
pub(crate) async fn serve<S>(datacenter: Datacenter, vmid: u32, life: u64, stream: S, session: Session)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let door = Door::Kubernetes(vmid, life);
    let line = Arc::new(Line { datacenter: datacenter.clone(), vmid, door, session, cut: Notify::new() });
    let service = service_fn(|request: Request<Incoming>| {
        let line = line.clone();
        async move { Ok::<_, Infallible>(line.answer(&request).await) }
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

/// An answer: the status, and a text or an object.
struct Said(StatusCode, Body);

enum Body {
    Text(&'static str),
    Object(Value),
}

impl Line {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let clock = &self.datacenter.shared.clock;
        let latency = {
            let mut world = self.datacenter.world();
            let span = world.latencies.talos.kubernetes_call;
            world.draw(&format!("kubernetes call {}", self.vmid), span)
        };
        clock.sleep(latency / 2).await;
        let fate = self.fate(request);
        if fate == Fate::LostBefore || !self.datacenter.world().is_open(self.door) {
            return self.lost().await;
        }
        let said = match &fate {
            Fate::Refused(_, text) => failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text),
            _ => self.handle(request),
        };
        clock.sleep(latency - latency / 2).await;
        if fate == Fate::LostAfter {
            return self.lost().await;
        }
        response(said)
    }

    async fn lost<T>(&self) -> T {
        self.cut.notify_one();
        std::future::pending().await
    }

    fn fate(&self, request: &Request<Incoming>) -> Fate {
        let address = {
            let world = self.datacenter.world();
            world
                .talos
                .nodes
                .get(&self.vmid)
                .and_then(super::talos::node::Node::address)
                .map(|ip| ip.to_string())
                .unwrap_or_default()
        };
        let called = Called {
            number: self.datacenter.number(),
            vmid: self.vmid,
            address,
            method: format!("{} {}", request.method(), request.uri().path()),
            is_change: !["GET", "HEAD"].contains(&request.method().as_str()),
        };
        let witnesses = self.datacenter.witnesses();
        witnesses
            .iter()
            .map(|witness| witness.call(&called))
            .find(|fate| *fate != Fate::Handled)
            .unwrap_or(Fate::Handled)
    }

    fn handle(&self, request: &Request<Incoming>) -> Said {
        let header = request.headers().get(CERTIFICATE_HEADER).and_then(|value| value.to_str().ok());
        let certificate = match &self.session {
            Session::Tls(certificate) => certificate.clone(),
            Session::Plain => header.and_then(|text| STANDARD.decode(text).ok()).map(CertificateDer::from),
        };
        let now = self.datacenter.calendar();
        let world = self.datacenter.world();
        let config = world.talos.nodes.get(&self.vmid).and_then(|node| node.config()).cloned();
        let Some(config) = config else {
            return failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "stopping");
        };
        let authorities =
            config.kubernetes.as_ref().map(super::talos::config::Authority::certificates).unwrap_or_default();
        let path = request.uri().path();
        let named = certificate.as_ref().map(|certificate| credentials::judge(Some(certificate), &authorities, now));
        match named {
            Some(Err(_)) => failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized"),
            None if !config.anonymous_paths().iter().any(|open| path == open) => {
                failure(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
            }
            Some(Ok(named)) if !named.organizations.iter().any(|group| group == "system:masters") => {
                let user = named.common_name;
                failure(StatusCode::FORBIDDEN, "Forbidden", &format!("User {user:?} cannot get path {path:?}"))
            }
            _ => read(&world, self.vmid, &config.key, request.method().as_str(), path),
        }
    }
}

fn read(world: &World, vmid: u32, key: &str, method: &str, path: &str) -> Said {
    if method != "GET" {
        return failure(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", "nothing is changed here");
    }
    let is_ready = world.is_api_ready(vmid);
    let found = match path {
        "/livez" | "/healthz" => return Said(StatusCode::OK, Body::Text("ok")),
        "/readyz" if is_ready => return Said(StatusCode::OK, Body::Text("ok")),
        "/readyz" => {
            return Said(
                StatusCode::INTERNAL_SERVER_ERROR,
                Body::Text("[-]etcd failed: reason withheld\nreadyz check failed\n"),
            );
        }
        "/version" => Some(objects::version(world, vmid)),
        _ if !is_ready => {
            return failure(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", "etcdserver: no leader");
        }
        "/api" => Some(objects::api_versions()),
        "/apis" => Some(objects::api_groups()),
        "/api/v1" => Some(objects::core_resources()),
        "/apis/apps/v1" => Some(objects::apps_resources()),
        "/api/v1/nodes" => Some(objects::nodes(world, key)),
        "/apis/apps/v1/namespaces/kube-system/deployments/coredns" => objects::coredns(world, key),
        path => path.strip_prefix("/api/v1/nodes/").and_then(|name| objects::node(world, key, name)),
    };
    match found {
        Some(object) => Said(StatusCode::OK, Body::Object(object)),
        None => failure(StatusCode::NOT_FOUND, "NotFound", "the server could not find the requested resource"),
    }
}

fn failure(code: StatusCode, reason: &str, message: &str) -> Said {
    let object = json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code.as_u16(),
    });
    Said(code, Body::Object(object))
}

fn response(Said(status, body): Said) -> Response<Full<Bytes>> {
    let (kind, bytes) = match body {
        Body::Text(text) => ("text/plain; charset=utf-8", Bytes::from_static(text.as_bytes())),
        Body::Object(object) => ("application/json", Bytes::from(object.to_string())),
    };
    let mut response = Response::new(Full::new(bytes));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
