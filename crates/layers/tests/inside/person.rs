//! Somebody else who works in the cluster, with tools of his own.

use castle_http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use castle_http::{Ask, Bytes, Client, Endpoint, Method, Trust};
use serde_json::{Value, json};

use crate::keep::Keep;

/// Somebody who may do everything.
pub(crate) struct Person {
    http: Client,
    certificate: HeaderValue,
}

impl Person {
    pub(crate) async fn at(keep: &Keep) -> Self {
        let access = keep.access().await;
        let endpoint = Endpoint::parse(&access.address.replace("https://", "http://")).unwrap();
        let room = &keep.castle.room;
        let http = Client::new(endpoint, &Trust::PublicRoots, room.datacenter.dial(), room.clock.clone()).unwrap();
        let certificate: String = access.certificate.lines().filter(|line| !line.starts_with("-----")).collect();
        Self { http, certificate: HeaderValue::from_str(&certificate).unwrap() }
    }

    async fn ask(&self, method: Method, path: &str, kind: &'static str, body: &Value) {
        let mut ask = Ask::new(method, path);
        ask.headers.insert(HeaderName::from_static(castle_datacenter::CERTIFICATE_HEADER), self.certificate.clone());
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        ask.body = Bytes::from(body.to_string());
        let answer = self.http.ask(&ask).await.unwrap();
        assert!(answer.status.is_success(), "{path}: {}", String::from_utf8_lossy(&answer.body));
    }

    /// Makes an object, as `kubectl create` does.
    pub(crate) async fn create(&self, collection: &str, object: &Value) {
        self.create_by("kubectl-create", collection, object).await;
    }

    /// Has a program make an object.
    pub(crate) async fn create_by(&self, program: &str, collection: &str, object: &Value) {
        self.ask(Method::POST, &format!("{collection}?fieldManager={program}"), "application/json", object).await;
    }

    /// Changes an object, as `kubectl edit` does.
    pub(crate) async fn edit(&self, path: &str, change: &Value) {
        self.ask(Method::PATCH, &format!("{path}?fieldManager=kubectl-edit"), "application/merge-patch+json", change)
            .await;
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, path: &str) {
        self.ask(Method::DELETE, path, "application/json", &json!({"propagationPolicy": "Background"})).await;
    }
}
