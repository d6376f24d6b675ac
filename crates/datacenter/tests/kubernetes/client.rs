//! A client of the API: requests, and streams of changes.

use castle_datacenter::{CERTIFICATE_HEADER, Datacenter};
use castle_seams::Target;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;

/// Somebody who asks at one address.
pub(crate) struct Client<'a> {
    pub(crate) datacenter: &'a Datacenter,
    pub(crate) address: &'a str,
    pub(crate) certificate: &'a str,
}

/// Changes as they come.
pub(crate) struct Stream {
    body: Incoming,
    rest: String,
}

impl Client<'_> {
    async fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<Response<Incoming>, String> {
        let failed = |error: &dyn std::fmt::Display| error.to_string();
        let target = Target::new(self.address, 6443);
        let stream = self.datacenter.dial().dial(&target).await.map_err(|error| failed(&error))?;
        let shaken = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| failed(&error))?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", self.address)
            .header("user-agent", "test/1")
            .header("content-type", kind)
            .header(CERTIFICATE_HEADER, self.certificate)
            .body(Full::new(Bytes::from(body.to_owned())))
            .unwrap();
        sender.send_request(request).await.map_err(|error| failed(&error))
    }

    /// The status and the object of an answer.
    pub(crate) async fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> Result<(u16, Value), String> {
        let response = self.send(method, path, kind, body).await?;
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok((status, serde_json::from_slice(&bytes).unwrap_or_else(|_| String::from_utf8_lossy(&bytes).into())))
    }

    pub(crate) async fn get(&self, path: &str) -> Result<(u16, Value), String> {
        self.ask("GET", path, "", "").await
    }

    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Result<(u16, Value), String> {
        let path = format!("{path}?fieldManager=test");
        self.ask("PATCH", &path, "application/apply-patch+yaml", &object.to_string()).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Result<Stream, String> {
        let body = self.send("GET", path, "", "").await?.into_body();
        Ok(Stream { body, rest: String::new() })
    }
}

impl Stream {
    /// The next event; nothing once the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((line, rest)) = self.rest.split_once('\n') {
                let event = serde_json::from_str(line).unwrap();
                self.rest = rest.to_owned();
                return Some(event);
            }
            let frame = self.body.frame().await?.ok()?;
            self.rest.push_str(&String::from_utf8_lossy(frame.data_ref()?));
        }
    }
}
