//! Where a webhook is: at an address, or behind a Service; and those that are served in this process.

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::reach::{self, Told, Way};
use super::served::{Asked, Verdict};
use super::trust::Trust;
use crate::kubernetes::kube::Kube;
use crate::kubernetes::value;

const SLICES: &str = "endpointslices.discovery.k8s.io";

/// Where a webhook is.
pub(super) struct Place {
    pub(super) url: String,
    path: String,
    /// The name of its certificate.
    host: String,
    /// What is dialled, as messages name it.
    pub(super) address: String,
    /// Where one may be served in this process.
    keys: Vec<String>,
    /// Whether the address is one of the cluster: a pod or a node is there, or nobody.
    pub(super) is_inside: Option<bool>,
}

impl Kube {
    /// Where a webhook is, or why it is nowhere.
    pub(super) fn place(&self, hook: &Value, seconds: i64) -> Result<Place, (String, String)> {
        let Some(service) = value::at(hook, "clientConfig.service") else {
            let given = value::text(hook, "clientConfig.url");
            let (_, rest) = given.split_once("://").unwrap_or(("", given));
            let (authority, path) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
            let address = if authority.contains(':') { authority.to_owned() } else { format!("{authority}:443") };
            let host = address.rsplit_once(':').map_or(authority, |(host, _)| host).to_owned();
            let (url, path) = (format!("{given}?timeout={seconds}s"), path.to_owned());
            return Ok(Place { url, path, host, keys: vec![address.clone()], address, is_inside: None });
        };
        let (namespace, name) = (value::text(service, "namespace"), value::text(service, "name"));
        let port = value::number(service, "port").unwrap_or(443);
        let path = Some(value::text(service, "path")).filter(|path| !path.is_empty()).unwrap_or("/").to_owned();
        let host = format!("{name}.{namespace}.svc");
        let url = format!("https://{host}:{port}{path}?timeout={seconds}s");
        let Some(known) = self.get("services", namespace, name) else {
            return Err((url, format!("service {name:?} not found")));
        };
        let Some(own) = value::items(&known, "spec.ports").iter().find(|own| own["port"] == port).cloned() else {
            return Err((url, format!("no service port {port} found for service {name:?}")));
        };
        let endpoints = self.endpoints(namespace, name, &own);
        if endpoints.is_empty() {
            return Err((url, format!("no endpoints available for service {name:?}")));
        }
        let is_inside = endpoints.iter().any(|endpoint| self.is_address_known(endpoint));
        let mut keys = vec![format!("{namespace}/{name}")];
        keys.extend(endpoints);
        let address = format!("{}:{port}", value::text(&known, "spec.clusterIP"));
        Ok(Place { url, path, host, address, keys, is_inside: Some(is_inside) })
    }

    /// Where a port of a service leads to, as far as it is ready: `address:port`.
    fn endpoints(&self, namespace: &str, service: &str, port: &Value) -> Vec<String> {
        let slices = self.store.all(SLICES, namespace).filter(|slice| {
            let labels = value::at(slice, "metadata.labels");
            labels.and_then(|labels| labels.get("kubernetes.io/service-name")).is_some_and(|name| name == service)
        });
        let mut found = Vec::new();
        for slice in slices {
            let own =
                value::items(slice, "ports").iter().find(|own| value::text(own, "name") == value::text(port, "name"));
            let Some(number) = own.and_then(|own| value::number(own, "port")) else { continue };
            let ready = value::items(slice, "endpoints")
                .iter()
                .filter(|endpoint| value::at(endpoint, "conditions.ready") != Some(&Value::Bool(false)));
            let addresses = ready.flat_map(|endpoint| value::items(endpoint, "addresses")).filter_map(Value::as_str);
            found.extend(addresses.map(|address| format!("{address}:{number}")));
        }
        found
    }

    /// Whether a pod or a node has the address of an endpoint.
    fn is_address_known(&self, endpoint: &str) -> bool {
        let address = endpoint.rsplit_once(':').map_or(endpoint, |(address, _)| address);
        let is_pod = self.store.all("pods", "").any(|pod| value::text(pod, "status.podIP") == address);
        let is_node = |node: &Value| {
            value::items(node, "status.addresses").iter().any(|own| value::text(own, "address") == address)
        };
        is_pod || self.store.all("nodes", "").any(|node| is_node(node))
    }

    /// What one says that is served in this process; or how it is waited for. Nothing if none is.
    pub(super) fn served(&self, place: &Place, bundle: &str, review: &Value) -> Option<Result<Told, Way>> {
        let webhook = place.keys.iter().find_map(|key| self.hooks.get(key))?;
        let Some(chain) = webhook.chain() else { return Some(Ok(reach::refused(&place.address))) };
        let now = SystemTime::UNIX_EPOCH + self.calendar + self.now;
        if let Err(why) = (Trust { bundle: bundle.to_owned(), name: place.host.clone(), now }).judge(&chain) {
            return Some(Ok(Told::Unreached(why)));
        }
        let request = &review["request"];
        let mut response = json!({ "uid": request["uid"], "allowed": true });
        match webhook.judge(&Asked { path: &place.path, request, kube: self }) {
            Verdict::Allow => {}
            Verdict::Warn(text) => value::set(&mut response, "warnings", json!([text])),
            Verdict::Patch(patch) => {
                value::set(&mut response, "patchType", "JSONPatch");
                value::set(&mut response, "patch", STANDARD.encode(patch.to_string()));
            }
            Verdict::Deny { code, message } => {
                value::set(&mut response, "allowed", false);
                value::set(&mut response, "status", json!({ "code": code, "message": message }));
            }
            Verdict::Fail(status) => return Some(Ok(Told::Said { status, body: Vec::new() })),
            Verdict::Silence => return Some(Err(Way::Silence)),
        }
        let review = json!({ "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response });
        Some(Ok(Told::Said { status: 200, body: review.to_string().into_bytes() }))
    }
}
