//! From a request to an answer.

use std::sync::Arc;

use serde_json::{Value, json};

use super::kinds::Resource;
use super::kube::Kube;
use super::read::Watch;
use super::request::{Ask, Target};
use super::status::Failure;
use super::trial::Trial;
use super::{openapi, table, value};

/// What people ask for that real clusters mostly have, and this one has not: groups with their versions,
const LEFT_OUT: [(&str, &str); 4] = [
    ("autoscaling", "v1"),
    ("flowcontrol.apiserver.k8s.io", "v1"),
    ("metrics.k8s.io", "v1beta1"),
    ("resource.k8s.io", "v1"),
];

/// and single kinds of groups that it has.
const LEFT_OUT_KINDS: [(&str, &str); 11] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "podtemplates"),
    ("", "replicationcontrollers"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("admissionregistration.k8s.io", "validatingadmissionpolicybindings"),
    ("networking.k8s.io", "ipaddresses"),
    ("networking.k8s.io", "servicecidrs"),
    ("storage.k8s.io", "volumeattributesclasses"),
];

/// What is said of a version of a group that real clusters have, and this one has not.
pub(super) fn left_out(group: &str, version: &str) -> Option<Failure> {
    let is_left_out = LEFT_OUT.iter().any(|it| it.0 == group && (version.is_empty() || it.1 == version));
    let what = if version.is_empty() { group.to_owned() } else { format!("{group}/{version}") };
    is_left_out.then(|| not_served(&what))
}

fn not_served(what: &str) -> Failure {
    Failure::new(404, "NotFound", format!("this cluster is simulated, and does not serve {what}"))
}

/// An answer.
#[derive(Debug)]
pub(crate) enum Reply {
    Object {
        code: u16,
        object: Value,
        warnings: Vec<String>,
    },
    /// Bytes of another kind: the code, the kind, the bytes.
    Raw(u16, &'static str, Vec<u8>),
    Watch(Box<Watch>),
}

impl Reply {
    pub(crate) fn object(code: u16, object: Value) -> Self {
        Self::Object { code, object, warnings: Vec::new() }
    }

    pub(crate) fn code(&self) -> u16 {
        match self {
            Self::Object { code, .. } | Self::Raw(code, ..) => *code,
            Self::Watch(_) => 200,
        }
    }

    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self::Raw(code, "text/plain; charset=utf-8", text.into().into_bytes())
    }

    pub(crate) fn failure(failure: &Failure) -> Self {
        Self::object(failure.code, failure.status())
    }

    fn missing() -> Self {
        Self::text(404, "404 page not found\n")
    }
}

/// A request for a resource, on its way.
pub(crate) struct Call<'a> {
    pub(crate) ask: &'a Ask,
    pub(crate) resource: Arc<Resource>,
    pub(crate) target: Target,
    pub(crate) is_dry_run: bool,
    /// Whether the path itself asks to watch, as it did in old times.
    pub(crate) is_watch: bool,
    pub(crate) warnings: Vec<String>,
}

impl Kube {
    /// Tries to answer a request of somebody who is known. Nothing if somebody has to be asked first: what there is to ask is in
    /// the trial.
    pub(crate) fn attempt(&mut self, ask: &Ask, trial: &mut Trial) -> Option<Reply> {
        trial.begin(self.now);
        self.trial = Some(std::mem::take(trial));
        let reply = self.handle(ask);
        *trial = self.trial.take().unwrap_or_default();
        trial.asks.is_empty().then_some(reply)
    }

    /// Answers a request without waiting for anybody.
    pub(crate) fn handle(&mut self, ask: &Ask) -> Reply {
        if let Err(failure) = self.authorize(ask) {
            return Reply::failure(&failure);
        }
        let is_described = ask.path == "/openapi/v2" && openapi::old::is_asked_for(&ask.accept);
        if !is_acceptable(&ask.accept) && !is_described {
            let text = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Reply::failure(&Failure::new(406, "NotAcceptable", text).with_details(json!({})));
        }
        if !is_form_known(&ask.accept) {
            let text = "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf";
            return Reply::failure(&Failure::new(406, "NotAcceptable", text));
        }
        if let Some(reply) = self.general(ask) {
            return reply;
        }
        let is_watch = ask.path.contains("/watch/");
        let Some(target) = Target::parse(&ask.path.replacen("/watch/", "/", 1)) else { return Reply::missing() };
        let is_served = self.resources().any(|it| it.group == target.group && it.version == target.version);
        if !is_served {
            let left_out = left_out(&target.group, &target.version);
            return left_out.map_or_else(Reply::missing, |failure| Reply::failure(&failure));
        }
        let Some(resource) = self.resource(&target.group, &target.version, &target.plural) else {
            if LEFT_OUT_KINDS.contains(&(target.group.as_str(), target.plural.as_str())) {
                let version = format!("{}/{}", target.group, target.version);
                let what = format!("{} of {}", target.plural, version.trim_start_matches('/'));
                return Reply::failure(&not_served(&what));
            }
            let is_built = super::kinds::built_in().iter().any(|it| it.group == target.group);
            return if is_built { Reply::failure(&Failure::unknown_resource()) } else { Reply::missing() };
        };
        if resource.is_namespaced != target.is_in_namespace
            && !(resource.is_namespaced && target.name.is_empty() && ask.method == "GET")
        {
            let is_list = resource.is_namespaced && target.name.is_empty();
            return Reply::failure(&if is_list { Failure::not_allowed() } else { Failure::unknown_resource() });
        }
        if target.is_in_namespace && target.namespace.is_empty() {
            return Reply::failure(&Failure::bad_request("Namespace parameter required."));
        }
        let mut call = Call { ask, resource, target, is_dry_run: false, is_watch, warnings: Vec::new() };
        let reply = self.dispatch(&mut call);
        let is_old = call.resource.is("endpoints");
        let replaced =
            is_old.then(|| "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned());
        let deprecation = call.resource.custom().and_then(|custom| custom.deprecation.clone()).or(replaced);
        call.warnings.extend(deprecation);
        match reply {
            Ok(Reply::Object { code, object, .. }) => {
                let object = table::for_client(self, &call, object);
                Reply::Object { code, object, warnings: call.warnings }
            }
            Ok(other) => other,
            Err(failure) => Reply::Object { code: failure.code, object: failure.status(), warnings: call.warnings },
        }
    }

    fn dispatch(&mut self, call: &mut Call<'_>) -> Result<Reply, Failure> {
        let resource = call.resource.clone();
        let (method, subresource) = (call.ask.method.as_str(), call.target.subresource.clone());
        if !subresource.is_empty() {
            return self.subresource(call, &subresource);
        }
        let version = |object: Arc<Value>| self_version(&resource, &object);
        if !resource.can("get") {
            return if method == "POST" {
                self.questions(call).map(|object| Reply::object(201, object))
            } else {
                Err(Failure::not_allowed())
            };
        }
        if method == "GET" {
            self.catch_up(&resource.collection());
        }
        match (method, call.target.name.is_empty()) {
            ("GET", true) if call.ask.query.is_true("watch") || call.is_watch => {
                self.watch(call).map(|watch| Reply::Watch(Box::new(watch)))
            }
            ("GET", true) => self.list(call).map(|object| Reply::object(200, object)),
            ("GET", false) => self.read(call).map(|object| Reply::object(200, version(object))),
            ("POST", true) => self.create(call).map(|object| Reply::object(201, version(object))),
            ("PUT", false) => self.replace(call).map(|object| Reply::object(200, version(object))),
            ("PATCH", false) => self.patch(call).map(|(code, object)| Reply::object(code, version(object))),
            ("DELETE", false) => self.delete(call).map(|(code, object)| Reply::object(code, object)),
            ("DELETE", true) if resource.can("deletecollection") => {
                self.delete_all(call).map(|object| Reply::object(200, object))
            }
            _ => Err(Failure::not_allowed()),
        }
    }

    fn subresource(&mut self, call: &mut Call<'_>, subresource: &str) -> Result<Reply, Failure> {
        let resource = call.resource.clone();
        if !resource.has(subresource) {
            return Err(Failure::unknown_resource());
        }
        let version = |object: Arc<Value>| self_version(&resource, &object);
        match (subresource, call.ask.method.as_str()) {
            ("status" | "approval", "GET") => self.read(call).map(|object| Reply::object(200, version(object))),
            ("status" | "approval", "PUT") => self.replace(call).map(|object| Reply::object(200, version(object))),
            ("status" | "approval", "PATCH") => {
                self.patch(call).map(|(code, object)| Reply::object(code, version(object)))
            }
            ("scale", "GET") => {
                let object = self.read(call)?;
                Ok(Reply::object(200, self.scale_of(&resource, &object)?))
            }
            ("scale", "PUT") => self.replace_scale(call).map(|object| Reply::object(200, Value::clone(&object))),
            ("scale", "PATCH") => self.patch(call).map(|(code, object)| Reply::object(code, Value::clone(&object))),
            ("finalize", "PUT") => self.finalize(call).map(|object| Reply::object(200, version(object))),
            ("eviction", "POST") => self.evict(call).map(|object| Reply::object(201, object)),
            ("binding", "POST") => self.bind(call).map(|object| Reply::object(201, object)),
            ("token", "POST") => self.token(call).map(|object| Reply::object(201, object)),
            ("log", "GET") => self.log(call).map(|text| Reply::text(200, text)),
            ("exec" | "attach" | "portforward" | "ephemeralcontainers" | "proxy", _) => {
                let object = self.read(call)?;
                if resource.is("pods") && value::text(&object, "spec.nodeName").is_empty() {
                    let text = format!("pod {} does not have a host assigned", value::name(&object));
                    return Err(Failure::bad_request(text));
                }
                let text = "this cluster is simulated: its containers run no process that could be reached";
                Err(Failure::new(501, "NotImplemented", text))
            }
            ("resize", "GET" | "PUT" | "PATCH") => {
                self.read(call)?;
                let text = "this cluster is simulated: what containers may use is not changed while they run";
                Err(Failure::new(501, "NotImplemented", text))
            }
            _ => Err(Failure::not_allowed()),
        }
    }
}

/// Whether a client takes JSON, which is all that is spoken here.
fn is_acceptable(accept: &str) -> bool {
    let kinds = ["application/json", "application/*", "*/*", "text/plain", "text/*"];
    accept.is_empty()
        || accept.split(',').filter_map(|kind| kind.split(';').next()).any(|kind| kinds.contains(&kind.trim()))
}

/// Whether one of the forms that a client takes is one that objects have.
fn is_form_known(accept: &str) -> bool {
    let known = ["Table", "PartialObjectMetadata", "PartialObjectMetadataList", "APIGroupDiscoveryList"];
    let mut kinds = accept.split(',').filter(|kind| !kind.trim().is_empty()).peekable();
    kinds.peek().is_none()
        || kinds.any(|kind| {
            let form = kind.split(';').find_map(|part| part.trim().strip_prefix("as="));
            form.is_none_or(|form| known.contains(&form))
        })
}

/// An object in the version that it is asked for in.
pub(crate) fn self_version(resource: &Resource, object: &Value) -> Value {
    let mut object = super::events::seen(resource, object).into_owned();
    value::set(&mut object, "apiVersion", resource.api_version());
    value::set(&mut object, "kind", resource.kind.as_str());
    object
}
