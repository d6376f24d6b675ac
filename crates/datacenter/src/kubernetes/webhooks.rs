//! Admission webhooks: which are asked, how they are reached, and how that fails.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::admission::Operation;
use super::api::Call;
use super::kube::Kube;
use super::patch::json_patch;
use super::selectors::Labels;
use super::status::Failure;
use super::value;

/// Why a webhook could not be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookFault {
    /// Nothing listens at its port.
    Refused,
    /// It does not answer in time.
    Timeout,
    /// There is no way to it.
    NoRoute,
    /// It shows a certificate that the configuration's authority has not signed.
    UnknownAuthority,
}

/// Something that serves admission webhooks inside of this process.
pub trait Webhook: Send + Sync {
    /// Answers an `AdmissionReview` at a path; the answer is the whole review, with its `response`.
    ///
    /// # Errors
    ///
    /// [`WebhookFault`] where no answer comes.
    fn review(&self, path: &str, review: &Value) -> Result<Value, WebhookFault>;

    /// The certificate, as PEM, of the authority that signed what it shows. Nothing if any will do.
    fn authority(&self) -> Option<String> {
        None
    }
}

/// The webhooks that are served: by `namespace/service`, or by the beginning of an address.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) served: BTreeMap<String, Arc<dyn Webhook>>,
}

const VALIDATING: &str = "validatingwebhookconfigurations.admissionregistration.k8s.io";
const MUTATING: &str = "mutatingwebhookconfigurations.admissionregistration.k8s.io";

/// What became of a question.
enum Answer {
    Response(Value),
    Failed(String),
}

impl Kube {
    pub(crate) fn call_mutating(
        &mut self,
        call: &mut Call<'_>,
        operation: Operation,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Failure> {
        for hook in self.hooks_for(MUTATING, call, operation, old, object) {
            let Some(response) = self.consult(call, &hook, operation, old, object)? else { continue };
            let Some(patch) = response.get("patch").and_then(Value::as_str) else { continue };
            let name = value::text(&hook, "name");
            let read = STANDARD.decode(patch).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
            let patched = read.and_then(|patch| json_patch(object, &patch).ok());
            let Some(patched) = patched else {
                return Err(Failure::internal(&format!("failed calling webhook {name:?}: invalid patch")));
            };
            *object = patched;
            self.complete(&call.resource.clone(), object);
        }
        Ok(())
    }

    pub(crate) fn call_validating(
        &mut self,
        call: &mut Call<'_>,
        operation: Operation,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<(), Failure> {
        for hook in self.hooks_for(VALIDATING, call, operation, old, object) {
            self.consult(call, &hook, operation, old, object)?;
        }
        Ok(())
    }

    /// The webhooks that are to be asked, in the order of their configurations.
    fn hooks_for(
        &self,
        collection: &str,
        call: &Call<'_>,
        operation: Operation,
        old: Option<&Value>,
        object: &Value,
    ) -> Vec<Value> {
        // Nobody is asked about who is asked.
        if call.resource.group == "admissionregistration.k8s.io" {
            return Vec::new();
        }
        let subject = if object.is_null() { old.unwrap_or(object) } else { object };
        let configurations = self.store.all(collection, "");
        let hooks = configurations.flat_map(|configuration| value::items(configuration, "webhooks"));
        hooks.filter(|hook| self.is_asked(hook, call, operation, old, subject)).cloned().collect()
    }

    fn is_asked(
        &self,
        hook: &Value,
        call: &Call<'_>,
        operation: Operation,
        old: Option<&Value>,
        subject: &Value,
    ) -> bool {
        let resource = &call.resource;
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
            holds(rule, "operations", operation.word())
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
        is_here && (of_object.chooses(subject) || old.is_some_and(|old| of_object.chooses(old)))
    }

    /// Asks one webhook. Nothing if its failure is to be ignored.
    fn consult(
        &mut self,
        call: &mut Call<'_>,
        hook: &Value,
        operation: Operation,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<Option<Value>, Failure> {
        let name = value::text(hook, "name").to_owned();
        if call.is_dry_run && !["None", "NoneOnDryRun"].contains(&value::text(hook, "sideEffects")) {
            return Err(Failure::bad_request(format!("admission webhook {name:?} does not support dry run")));
        }
        match self.ask(call, hook, operation, old, object) {
            Answer::Failed(_) if value::text(hook, "failurePolicy") == "Ignore" => Ok(None),
            Answer::Failed(why) => Err(Failure::internal(&format!("failed calling webhook {name:?}: {why}"))),
            Answer::Response(response) => {
                for warning in value::items(&response, "warnings").iter().filter_map(Value::as_str) {
                    call.warnings.push(warning.to_owned());
                }
                if response.get("allowed") == Some(&Value::Bool(true)) {
                    Ok(Some(response))
                } else {
                    Err(denial(&name, &response))
                }
            }
        }
    }

    fn ask(
        &mut self,
        call: &Call<'_>,
        hook: &Value,
        operation: Operation,
        old: Option<&Value>,
        object: &Value,
    ) -> Answer {
        let seconds = value::number(hook, "timeoutSeconds").unwrap_or(10);
        let (target, address, path) = match value::at(hook, "clientConfig.service") {
            Some(service) => {
                let (namespace, name) = (value::text(service, "namespace"), value::text(service, "name"));
                let port = value::number(service, "port").unwrap_or(443);
                let path = value::text(service, "path").to_owned();
                let path = if path.is_empty() { "/".to_owned() } else { path };
                let url = format!("https://{name}.{namespace}.svc:{port}{path}?timeout={seconds}s");
                let failed = |why: &str| Answer::Failed(format!("failed to call webhook: Post {url:?}: {why}"));
                let Some(known) = self.get("services", namespace, name) else {
                    return failed(&format!("service {name:?} not found"));
                };
                if !self.has_endpoints(namespace, name) {
                    return failed(&format!("no endpoints available for service {name:?}"));
                }
                let address = format!("{}:{port}", value::text(&known, "spec.clusterIP"));
                (format!("{namespace}/{name}"), (url, address), path)
            }
            None => {
                let url = value::text(hook, "clientConfig.url");
                let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
                let (host, path) =
                    rest.split_once('/').map_or((rest, "/".to_owned()), |(host, path)| (host, format!("/{path}")));
                let host = if host.contains(':') { host.to_owned() } else { format!("{host}:443") };
                let full = format!("{url}?timeout={seconds}s");
                (format!("https://{host}"), (full, host), path)
            }
        };
        let (url, address) = address;
        let failed = |why: &str| Answer::Failed(format!("failed to call webhook: Post {url:?}: {why}"));
        let told = |fault: WebhookFault| match fault {
            WebhookFault::Refused => failed(&format!("dial tcp {address}: connect: connection refused")),
            WebhookFault::Timeout => failed("context deadline exceeded"),
            WebhookFault::NoRoute => failed(&format!("dial tcp {address}: connect: no route to host")),
            WebhookFault::UnknownAuthority => {
                failed("tls: failed to verify certificate: x509: certificate signed by unknown authority")
            }
        };
        let Some(server) = self.hooks.served.get(&target).cloned() else { return told(WebhookFault::Refused) };
        let bundle = STANDARD.decode(value::text(hook, "clientConfig.caBundle")).unwrap_or_default();
        if let Some(authority) = server.authority()
            && !String::from_utf8_lossy(&bundle).contains(authority.trim())
        {
            return told(WebhookFault::UnknownAuthority);
        }
        let review = self.question(call, operation, old, object);
        match server.review(&path, &review) {
            Err(fault) => told(fault),
            Ok(answer) => match answer.get("response") {
                Some(response) => Answer::Response(response.clone()),
                None => Answer::Failed("failed to call webhook: webhook response is missing".to_owned()),
            },
        }
    }

    /// Whether a service leads to anything that is ready.
    fn has_endpoints(&self, namespace: &str, service: &str) -> bool {
        let slices = self.store.all("endpointslices.discovery.k8s.io", namespace);
        let mut own = slices.filter(|slice| {
            value::at(slice, "metadata.labels")
                .and_then(|labels| labels.get("kubernetes.io/service-name"))
                .is_some_and(|name| name == service)
        });
        own.any(|slice| {
            value::items(slice, "endpoints")
                .iter()
                .any(|endpoint| value::at(endpoint, "conditions.ready") != Some(&Value::Bool(false)))
        })
    }

    fn question(&mut self, call: &Call<'_>, operation: Operation, old: Option<&Value>, object: &Value) -> Value {
        let resource = &call.resource;
        let kind = json!({ "group": resource.group, "version": resource.version, "kind": resource.kind });
        let of = json!({ "group": resource.group, "version": resource.version, "resource": resource.plural });
        let subject = if object.is_null() { old.unwrap_or(object) } else { object };
        let uid = self.new_uid();
        let user = &call.ask.user;
        let mut request = json!({
            "uid": uid, "kind": kind, "resource": of, "requestKind": kind, "requestResource": of,
            "name": value::name(subject), "namespace": value::namespace(subject), "operation": operation.word(),
            "userInfo": { "username": user.name, "groups": user.groups },
            "object": object, "oldObject": old, "dryRun": call.is_dry_run,
        });
        if !call.target.subresource.is_empty() {
            value::set(&mut request, "subResource", call.target.subresource.as_str());
        }
        json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request })
    }
}

fn denial(name: &str, response: &Value) -> Failure {
    let (code, message, reason) = (
        value::number(response, "status.code"),
        value::text(response, "status.message"),
        value::text(response, "status.reason"),
    );
    let told = match (message, reason) {
        ("", "") => format!("admission webhook {name:?} denied the request without explanation"),
        ("", reason) => format!("admission webhook {name:?} denied the request: {reason}"),
        (message, _) => format!("admission webhook {name:?} denied the request: {message}"),
    };
    let code = code.and_then(|code| u16::try_from(code).ok()).filter(|code| *code >= 400).unwrap_or(400);
    let known = [
        "Forbidden",
        "Invalid",
        "BadRequest",
        "Conflict",
        "NotFound",
        "AlreadyExists",
        "InternalError",
        "Unauthorized",
    ];
    let reason = known.into_iter().find(|known| *known == reason).unwrap_or_default();
    Failure::new(code, reason, told)
}
