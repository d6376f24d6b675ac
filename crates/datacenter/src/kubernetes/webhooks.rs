//! Admission webhooks: which are asked, where they are, and what becomes of their answers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission::{Deed, Operation};
use super::api::Call;
use super::kube::Kube;
use super::selectors::Labels;
use super::status::Failure;
use super::{body, patch, value};

pub(crate) mod certificate;
pub(crate) mod reach;
pub(crate) mod served;
pub(crate) mod trust;

use reach::{Question, Told, Way};
use served::{Asked, Verdict, Webhook};
use trust::Trust;

/// The webhooks that are served in this process: by `namespace/service`, or by `host:port`.
pub(crate) type Hooks = BTreeMap<String, Webhook>;

const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";
const SLICES: &str = "endpointslices.discovery.k8s.io";

/// Where a webhook is.
struct Place {
    url: String,
    path: String,
    /// The name of its certificate.
    host: String,
    /// What is dialled, as messages name it.
    address: String,
    /// Where one may be served in this process.
    keys: Vec<String>,
    /// Whether the address is one of the cluster: a pod or a node is there, or nobody.
    is_inside: Option<bool>,
}

impl Kube {
    /// Lets those webhooks have their say that change objects.
    pub(crate) fn call_mutating(
        &mut self,
        call: &mut Call<'_>,
        deed: &Deed<'_>,
        object: &mut Value,
    ) -> Result<(), Failure> {
        let hooks = self.hooks_for(MUTATING, call, deed, object);
        // The last of them that changed anything.
        let mut last = None;
        for (at, hook) in hooks.iter().enumerate() {
            if self.let_change(call, deed, hook, object)? {
                last = Some(at);
            }
        }
        let mut is_changed = last.is_some();
        // One that wants to is asked again if those after it changed anything.
        for hook in hooks.iter().take(last.unwrap_or(0)) {
            if value::text(hook, "reinvocationPolicy") == "IfNeeded" {
                is_changed |= self.let_change(call, deed, hook, object)?;
            }
        }
        if is_changed {
            self.complete(&call.resource.clone(), object);
        }
        Ok(())
    }

    /// Lets one webhook change an object, and says whether it did.
    fn let_change(
        &mut self,
        call: &mut Call<'_>,
        deed: &Deed<'_>,
        hook: &Value,
        object: &mut Value,
    ) -> Result<bool, Failure> {
        let Some(response) = self.consult(call, deed, hook, object)? else { return Err(waiting()) };
        let Some(given) = response.get("patch").and_then(Value::as_str) else { return Ok(false) };
        let read = STANDARD.decode(given).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let Some(read) = read else { return Err(Failure::internal("invalid character in JSON patch")) };
        let patched = patch::hooked(object, &read).map_err(|why| Failure::internal(&why))?;
        let is_changed = patched != *object;
        *object = patched;
        Ok(is_changed)
    }

    /// Lets those webhooks have their say that only judge. They are all asked at once.
    pub(crate) fn call_validating(
        &mut self,
        call: &mut Call<'_>,
        deed: &Deed<'_>,
        object: &Value,
    ) -> Result<(), Failure> {
        let mut is_waiting = false;
        for hook in self.hooks_for(VALIDATING, call, deed, object) {
            is_waiting |= self.consult(call, deed, &hook, object)?.is_none();
        }
        if is_waiting { Err(waiting()) } else { Ok(()) }
    }

    /// The webhooks that are to be asked, in the order of their configurations.
    fn hooks_for(&self, collection: &str, call: &Call<'_>, deed: &Deed<'_>, object: &Value) -> Vec<Value> {
        // Nobody is asked about who is asked.
        if call.resource.group == "admissionregistration.k8s.io" {
            return Vec::new();
        }
        let configurations = self.store.all(collection, "");
        let hooks = configurations.flat_map(|configuration| value::items(configuration, "webhooks"));
        hooks.filter(|hook| self.is_asked(hook, call, deed, object)).cloned().collect()
    }

    fn is_asked(&self, hook: &Value, call: &Call<'_>, deed: &Deed<'_>, object: &Value) -> bool {
        let (resource, subject) = (&call.resource, deed.subject(object));
        let path = match call.target.subresource.as_str() {
            "" => resource.plural.clone(),
            sub => format!("{}/{sub}", resource.plural),
        };
        let holds = |rule: &Value, key: &str, own: &str| {
            value::items(rule, key).iter().filter_map(Value::as_str).any(|word| word == "*" || word == own)
        };
        let named = |rule: &Value| {
            value::items(rule, "resources").iter().filter_map(Value::as_str).any(|word| {
                word == "*/*"
                    || word == path
                    || word == "*" && !path.contains('/')
                    || word.strip_suffix("/*").is_some_and(|of| of == resource.plural && path.contains('/'))
            })
        };
        let is_ruled = value::items(hook, "rules").iter().any(|rule| {
            let scope = value::text(rule, "scope");
            holds(rule, "operations", deed.operation.word())
                && holds(rule, "apiGroups", &resource.group)
                && holds(rule, "apiVersions", &resource.version)
                && named(rule)
                && (scope.is_empty() || scope == "*" || (scope == "Namespaced") == resource.is_namespaced)
        });
        if !is_ruled {
            return false;
        }
        let namespace = if resource.is("namespaces") { value::name(subject) } else { value::namespace(subject) };
        let of_namespace = Labels::of(&hook["namespaceSelector"]);
        let is_here = namespace.is_empty()
            || self
                .get("namespaces", "", namespace)
                .map_or_else(|| of_namespace.is_empty(), |namespace| of_namespace.chooses(&namespace));
        let of_object = Labels::of(&hook["objectSelector"]);
        is_here && (of_object.chooses(subject) || deed.old.is_some_and(|old| of_object.chooses(old)))
    }

    /// Asks one webhook; nothing if its answer has yet to come. One whose failure is to be ignored has said nothing.
    fn consult(
        &mut self,
        call: &mut Call<'_>,
        deed: &Deed<'_>,
        hook: &Value,
        object: &Value,
    ) -> Result<Option<Value>, Failure> {
        let name = value::text(hook, "name").to_owned();
        if call.is_dry_run && !["None", "NoneOnDryRun"].contains(&value::text(hook, "sideEffects")) {
            return Err(Failure::bad_request(format!("admission webhook {name:?} does not support dry run")));
        }
        let review = self.question(call, deed, object);
        let uid = value::text(&review, "request.uid").to_owned();
        let Some((url, told)) = self.ask(hook, review) else { return Ok(None) };
        match response(&url, &uid, told) {
            Err(_) if value::text(hook, "failurePolicy") == "Ignore" => Ok(Some(json!({}))),
            Err(why) => Err(Failure::internal(&format!("failed calling webhook {name:?}: {why}"))),
            Ok(response) => {
                for warning in value::items(&response, "warnings").iter().filter_map(Value::as_str) {
                    call.warnings.push(warning.to_owned());
                }
                if value::is_true(&response, "allowed") { Ok(Some(response)) } else { Err(denial(&name, &response)) }
            }
        }
    }

    /// Puts a question, and tells under which address; nothing if the answer has yet to come.
    fn ask(&mut self, hook: &Value, review: Value) -> Option<(String, Told)> {
        let seconds = value::number(hook, "timeoutSeconds").unwrap_or(10);
        let place = match self.place(hook, seconds) {
            Ok(place) => place,
            Err((url, why)) => return Some((url, Told::Unreached(why))),
        };
        let bundle = value::text(hook, "clientConfig.caBundle").to_owned();
        let url = place.url.clone();
        let way = match self.served(&place, &bundle, &review) {
            Some(Ok(told)) => return Some((url, told)),
            Some(Err(way)) => way,
            None => {
                let (host, port) = place.address.rsplit_once(':').unwrap_or((&place.address, "443"));
                match place.is_inside {
                    Some(true) => return Some((url, reach::refused(&place.address))),
                    Some(false) => Way::Nowhere(place.address.clone()),
                    None => Way::Dial { host: host.to_owned(), port: port.parse().unwrap_or(443), bundle },
                }
            }
        };
        let patience = Duration::from_secs(seconds.unsigned_abs());
        let question = Question { url: url.clone(), way, review, patience };
        let Some(trial) = &mut self.trial else { return Some((url, question.at_once())) };
        if let Some(told) = trial.answer(&question) {
            return Some((url, told.clone()));
        }
        trial.asks.push(question);
        None
    }

    /// Where a webhook is, or why it is nowhere.
    fn place(&self, hook: &Value, seconds: i64) -> Result<Place, (String, String)> {
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
    fn served(&self, place: &Place, bundle: &str, review: &Value) -> Option<Result<Told, Way>> {
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

    fn question(&mut self, call: &Call<'_>, deed: &Deed<'_>, object: &Value) -> Value {
        let resource = &call.resource;
        let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
        let of = json!({ "group": resource.group, "version": resource.version, "resource": resource.plural });
        let subject = deed.subject(object);
        let version = |object: &Value| super::api::self_version(resource, object);
        let (object, old) = (Some(object).filter(|object| !object.is_null()).map(version), deed.old.map(version));
        let mut request = json!({
            "uid": self.new_uid(), "kind": kind, "resource": of, "requestKind": kind, "requestResource": of,
            "name": value::name(subject), "namespace": value::namespace(subject), "operation": deed.operation.word(),
            "userInfo": call.ask.user.info(), "object": object, "oldObject": old, "dryRun": call.is_dry_run,
            "options": options(call, deed.operation),
        });
        for key in ["name", "namespace"] {
            if value::text(&request, key).is_empty() {
                value::remove(&mut request, key);
            }
        }
        if !call.target.subresource.is_empty() {
            value::set(&mut request, "subResource", call.target.subresource.as_str());
            value::set(&mut request, "requestSubResource", call.target.subresource.as_str());
        }
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request })
    }
}

/// The options of a request as a webhook is told them.
fn options(call: &Call<'_>, operation: Operation) -> Value {
    let kind = match operation {
        Operation::Create => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    let mut options = json!({ "kind": kind, "apiVersion": "meta.k8s.io/v1" });
    if call.is_dry_run {
        value::set(&mut options, "dryRun", json!(["All"]));
    }
    for key in ["fieldManager", "fieldValidation", "propagationPolicy"] {
        if let Some(given) = call.ask.query.get(key) {
            value::set(&mut options, key, given);
        }
    }
    options
}

/// What is answered to nobody: the request is tried again.
fn waiting() -> Failure {
    Failure::new(500, "", "a webhook has yet to answer")
}

/// What a webhook answered; or how it failed, in the words of the real server.
fn response(url: &str, uid: &str, told: Told) -> Result<Value, String> {
    let failed = |why: &str| format!("failed to call webhook: {why}");
    let (status, body) = match told {
        Told::Unreached(why) => return Err(failed(&format!("Post {url:?}: {why}"))),
        Told::Said { status, body } => (status, body),
    };
    match status {
        200..=299 => {}
        400 => return Err(failed("the server rejected our request for an unknown reason")),
        401 => return Err(failed("the server has asked for the client to provide credentials")),
        403 => return Err(failed("unknown")),
        404 => return Err(failed("the server could not find the requested resource")),
        405 => return Err(failed("the server does not allow this method on the requested resource")),
        429 => return Err(failed("the server has received too many requests and has asked us to try again later")),
        503 => return Err(failed("the server is currently unable to handle the request")),
        500.. => return Err(failed("an error on the server (\"unknown\") has prevented the request from succeeding")),
        other => {
            return Err(failed(&format!(
                "the server responded with the status code {other} but did not return more information"
            )));
        }
    }
    let read = body::yaml(&body)
        .map_err(|error| failed(&format!("couldn't get version/kind; json parse error: {error}")))?
        .value;
    if !read.is_object() {
        let what = match read {
            Value::Array(_) => "array",
            Value::Number(_) => "number",
            Value::Bool(_) => "bool",
            _ => "string",
        };
        return Err(failed(&format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }}"
        )));
    }
    let invalid = |why: &str| format!("received invalid webhook response: {why}");
    let Some(response) = read.get("response").filter(|response| !response.is_null()) else {
        return Err(invalid("webhook response was absent"));
    };
    let given = value::text(response, "uid");
    if given != uid {
        return Err(invalid(&format!("expected response.uid={uid:?}, got {given:?}")));
    }
    let has_patch = !value::text(response, "patch").is_empty();
    match value::text(response, "patchType") {
        "" if has_patch => Err(invalid("webhook returned response.patch but not response.patchType")),
        "" | "JSONPatch" => Ok(response.clone()),
        other => Err(invalid(&format!("unexpected response.patchType: {other:?}"))),
    }
}

fn denial(name: &str, response: &Value) -> Failure {
    let (message, reason) = (value::text(response, "status.message"), value::text(response, "status.reason"));
    let told = match (message, reason) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let code = value::number(response, "status.code").and_then(|code| u16::try_from(code).ok());
    let failure = Failure::new(code.filter(|code| *code >= 400).unwrap_or(400), "", told);
    Failure { reason: reason.to_owned().into(), ..failure }
}
