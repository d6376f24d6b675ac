//! An Infisical, and somebody who asks it.

use std::sync::Arc;

use castle_datacenter::blueprint::{Import, Infisical, Placed};
use castle_datacenter::{Blueprint, Datacenter, Latencies};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::Clock;
use serde_json::{Value, json};

pub(crate) const HOST: &str = "eu.infisical.com";
pub(crate) const ID: &str = "client";
pub(crate) const SECRET: &str = "right";

pub(crate) struct Site {
    pub(crate) datacenter: Datacenter,
    client: Client,
    /// What is shown with each request.
    pub(crate) token: String,
    /// The id of the project.
    pub(crate) project: String,
}

/// An answer.
pub(crate) struct Told {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Value,
}

impl Told {
    /// Status, name of the error and sentence, as one text.
    pub(crate) fn refusal(&self) -> String {
        format!("{} {}: {}", self.status, self.body["error"].as_str().unwrap_or("-"), plain(&self.body["message"]))
    }
}

pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(crate) fn vault() -> Infisical {
    let mut vault = Infisical::new(HOST, "tazlab", &["prod", "dev"], ID, SECRET);
    let project = &mut vault.projects[0];
    project.secrets = vec![
        Placed::new("prod", "/", "ROOT", "top"),
        Placed::new("prod", "/a/b", "ONE", "1"),
        Placed::new("prod", "/a/b", "TWO", "<${ONE}${dev.c.THREE}${NOBODY}>"),
        Placed::new("dev", "/c", "THREE", "3"),
    ];
    project.imports = vec![Import { into: ("prod".into(), "/a/b".into()), from: ("dev".into(), "/c".into()) }];
    vault
}

impl Site {
    /// One that nobody has logged in to.
    pub(crate) fn closed(vault: Infisical, clock: Arc<dyn Clock>) -> Self {
        Self::of(Blueprint::embedded(&[]), vault, clock)
    }

    /// One in a datacenter of this blueprint.
    pub(crate) fn of(blueprint: Blueprint, vault: Infisical, clock: Arc<dyn Clock>) -> Self {
        let blueprint = blueprint.with_latencies(Latencies::none()).with_vault(vault);
        let datacenter = Datacenter::new(blueprint, clock.clone());
        let endpoint = Endpoint::parse(&format!("http://{HOST}/api")).unwrap();
        let client = Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), clock).unwrap();
        Self { datacenter, client, token: String::new(), project: String::new() }
    }

    pub(crate) async fn open(vault: Infisical, clock: Arc<dyn Clock>) -> Self {
        let mut site = Self::closed(vault, clock);
        site.token = plain(&site.login(ID, SECRET).await.body["accessToken"]);
        site.project = plain(&site.ask("GET", "/v1/projects/slug/tazlab", Value::Null).await.body["id"]);
        site
    }

    pub(crate) async fn login(&self, id: &str, secret: &str) -> Told {
        let body = json!({"clientId": id, "clientSecret": secret});
        self.ask("POST", "/v1/auth/universal-auth/login", body).await
    }

    pub(crate) async fn ask(&self, method: &str, target: &str, body: Value) -> Told {
        self.ask_with(method, target, body, &[]).await
    }

    pub(crate) async fn ask_with(
        &self,
        method: &str,
        target: &str,
        body: Value,
        headers: &[(&'static str, &str)],
    ) -> Told {
        let mut ask = Ask::new(Method::from_bytes(method.as_bytes()).unwrap(), target);
        if !self.token.is_empty() {
            ask.headers.insert(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {}", self.token)).unwrap());
        }
        for (name, value) in headers {
            ask.headers.insert(*name, HeaderValue::from_str(value).unwrap());
        }
        if !body.is_null() {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            ask.body = body.to_string().into();
        }
        let answer = self.client.ask(&ask).await.unwrap();
        let body = serde_json::from_slice(&answer.body).unwrap_or(Value::Null);
        Told { status: answer.status.as_u16(), headers: answer.headers, body }
    }

    /// A look at secrets of v4: what follows the path, and further parameters.
    pub(crate) async fn look(&self, rest: &str, path: &str, more: &str) -> Told {
        let project = &self.project;
        let target = format!("/v4/secrets{rest}?projectId={project}&environment=prod&secretPath={path}{more}");
        self.ask("GET", &target, Value::Null).await
    }

    /// A body for v4 with project, environment and folder.
    pub(crate) fn body(&self, path: &str, more: &Value) -> Value {
        let mut body = json!({"projectId": self.project, "environment": "prod", "secretPath": path, "path": path});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    }
}

/// Names and values of a list.
pub(crate) fn pairs(list: &Value) -> Vec<String> {
    let all = list.as_array().unwrap().iter();
    all.map(|secret| format!("{}={}", plain(&secret["secretKey"]), plain(&secret["secretValue"]))).collect()
}
