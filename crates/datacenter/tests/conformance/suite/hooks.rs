//! Servers of admission webhooks on loopback, each in one of the moods that real ones are found in.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::authority::Authority;

/// One webhook's server. Its port stays the same while its moods change.
pub(crate) struct Hook {
    port: u16,
    authority: Authority,
    serving: Option<JoinHandle<()>>,
    seen: Arc<Mutex<Vec<Value>>>,
}

impl Hook {
    /// One that refuses connections.
    pub(crate) async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        Self { port, authority: Authority::new("hooks"), serving: None, seen: Arc::default() }
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// What a `caBundle` is.
    pub(crate) fn authority(&self) -> String {
        STANDARD.encode(self.authority.pem())
    }

    /// Serves in this mood from now on, and forgets what it was asked.
    pub(crate) async fn be(&mut self, mood: &str) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
        self.seen.lock().unwrap().clear();
        if mood == "refused" {
            return;
        }
        let issued =
            if mood == "wrong-authority" { Authority::new("others").server() } else { self.authority.server() };
        let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let acceptor = TlsAcceptor::from(Arc::new(config.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind(("127.0.0.1", self.port)).await.unwrap();
        let (mood, seen) = (mood.to_owned(), self.seen.clone());
        self.serving = Some(tokio::spawn(async move {
            // Connections live in the set: they end with this task.
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, mood, seen) = (acceptor.clone(), mood.clone(), seen.clone());
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answer = service_fn(|request| answer(request, &mood, &seen));
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), answer).await;
                });
            }
        }));
    }

    /// What it was asked since it was last put into a mood.
    pub(crate) fn seen(&self) -> Vec<Value> {
        self.seen.lock().unwrap().clone()
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
        }
    }
}

async fn answer(
    request: Request<Incoming>,
    mood: &str,
    seen: &Mutex<Vec<Value>>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let bytes = request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    seen.lock().unwrap().push(review.clone());
    if mood == "hangs" {
        std::future::pending::<()>().await;
    }
    let mut answer = json!({"uid": review["request"]["uid"], "allowed": true});
    match mood {
        "denies" => {
            answer["allowed"] = false.into();
            answer["status"] = json!({"message": "not in this house"});
        }
        "denies-with-code" => {
            answer["allowed"] = false.into();
            answer["status"] = json!({"message": "too much", "reason": "TooMany", "code": 422});
        }
        "denies-silently" => answer["allowed"] = false.into(),
        "warns" => answer["warnings"] = json!(["mind the gap"]),
        "labels" => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"hooked": "yes"}}]).to_string();
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = STANDARD.encode(patch).into();
        }
        "patches-nowhere" => {
            let patch = json!([{"op": "remove", "path": "/spec/nothing"}]).to_string();
            answer["patchType"] = "JSONPatch".into();
            answer["patch"] = STANDARD.encode(patch).into();
        }
        "answers-another" => answer["uid"] = "another".into(),
        _ => {}
    }
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": answer});
    let (status, body) = match mood {
        "fails" => (500, "out of order".to_owned()),
        "babbles" => (200, "no document".to_owned()),
        "says-nothing" => (200, json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}).to_string()),
        _ => (200, review.to_string()),
    };
    let made = Response::builder().status(status).header("content-type", "application/json");
    // A connection that is used again may be of the mood before.
    let made = made.header("connection", "close");
    Ok(made.body(Full::new(body.into())).unwrap_or_default())
}
