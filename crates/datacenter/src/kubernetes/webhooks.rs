//! Admission webhooks: which are asked, where they are, and what becomes of their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission::{Deed, Operation};
use super::api::Call;
use super::kube::Kube;
use super::selectors::Labels;
use super::status::Failure;
use super::{cel, patch, value};

mod answer;
pub(crate) mod certificate;
mod place;
pub(crate) mod reach;
pub(crate) mod served;
pub(crate) mod trust;

use answer::{denial, response};
use reach::{Question, Told, Way};
use served::Webhook;

/// The webhooks that are served in this process: by `namespace/service`, or by `host:port`.
pub(crate) type Hooks = BTreeMap<String, Webhook>;

const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";

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
        is_here
            && (of_object.chooses(subject) || deed.old.is_some_and(|old| of_object.chooses(old)))
            && value::items(hook, "matchConditions").iter().all(|condition| {
                let request = json!({ "operation": deed.operation.word(), "userInfo": call.ask.user.info() });
                let names =
                    [("object", object), ("oldObject", deed.old.unwrap_or(&Value::Null)), ("request", &request)];
                // A condition that says more than is understood here asks rather than not.
                cel::holds(value::text(condition, "expression"), &names).unwrap_or(true)
            })
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
