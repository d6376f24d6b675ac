//! Why a request had no good answer, and what may follow.

use std::time::Duration;

use castle_engine::{Class, Fault};
use castle_http::Failure;
use castle_http::header::{HeaderMap, RETRY_AFTER};
use serde::Deserialize;
use thiserror::Error;

use super::words::given_or_default;
use crate::model::{Key, Kind, Operation, Owner};

/// Why a request had no good answer.
#[derive(Clone, Debug, Error)]
pub enum Trouble {
    /// There was none.
    #[error("{0}")]
    Unanswered(#[from] Failure),
    /// It was a refusal.
    #[error("{} ({})", .0.message, .0.code)]
    Refused(Box<Status>),
    /// Nobody serves that kind.
    #[error("the API does not serve {0}")]
    NotServed(Kind),
    /// The answer is none that the API gives.
    #[error("the answer is not {0}")]
    Nonsense(String),
    /// The request cannot even be written.
    #[error("the request cannot be sent: {0}")]
    Unfit(String),
}

/// How the API refuses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Status {
    /// The number of the answer.
    pub code: u16,
    /// For people.
    #[serde(deserialize_with = "given_or_default")]
    pub message: String,
    /// For programs, in a word.
    #[serde(deserialize_with = "given_or_default")]
    pub reason: String,
    #[serde(deserialize_with = "given_or_default")]
    details: Details,
}

/// What a refusal tells besides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    #[serde(deserialize_with = "given_or_default")]
    causes: Vec<Cause>,
    retry_after_seconds: u32,
}

/// One of several reasons of a refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Cause {
    reason: String,
    message: String,
    field: String,
}

/// Somebody else who wants something else of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rival {
    /// Who: the name of a manager of fields.
    pub manager: String,
    /// The field.
    pub field: String,
}

/// For these the API has no better number: a field that no schema knows, a value that is none, more than its store can hold.
const UNREADABLE: [&str; 3] =
    ["failed to create typed patch object", "failed to convert new object", "request is too large"];

impl Trouble {
    pub(super) fn nonsense(what: &str) -> Self {
        Self::Nonsense(what.to_owned())
    }

    /// What an answer other than a success means.
    pub(super) fn refused(code: u16, headers: &HeaderMap, body: &[u8]) -> Self {
        let mut status: Status = serde_json::from_slice(body).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(body.get(..300).unwrap_or(body)).into_owned();
            let text = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect::<String>();
            Status { message: text.trim().to_owned(), ..Status::default() }
        });
        status.code = code;
        let after = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        status.details.retry_after_seconds = status.details.retry_after_seconds.max(after.unwrap_or(0));
        Self::Refused(Box::new(status))
    }

    fn status(&self) -> Option<&Status> {
        match self {
            Self::Refused(status) => Some(status),
            _ => None,
        }
    }

    fn causes(&self) -> &[Cause] {
        self.status().map(|status| status.details.causes.as_slice()).unwrap_or_default()
    }

    fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    fn says(&self, words: &str) -> bool {
        self.status().is_some_and(|status| status.message.contains(words))
    }

    /// Whether the object, or the place it would be at, is not there.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.code() == 404
    }

    /// Whether the object is another than was thought.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == 409
    }

    /// Whether what a watch was to go on from is forgotten.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.code() == 410
    }

    /// Whether a webhook could not be asked.
    #[must_use]
    pub fn is_deaf_webhook(&self) -> bool {
        self.code() == 500 && self.says("failed calling webhook")
    }

    /// Whether a webhook was asked and said no.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        self.says("admission webhook") && self.says("denied the request")
    }

    /// Who else wants something else of the object.
    #[must_use]
    pub fn rivals(&self) -> Vec<Rival> {
        let conflicts = self.causes().iter().filter(|cause| cause.reason == "FieldManagerConflict");
        let rival = |cause: &Cause| {
            let manager = cause.message.split('"').nth(1).unwrap_or("somebody").to_owned();
            Rival { manager, field: cause.field.clone() }
        };
        conflicts.map(rival).collect()
    }

    fn is_namespace_ending(&self) -> bool {
        self.causes().iter().any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// What may follow.
    #[must_use]
    pub fn class(&self) -> Class {
        let status = match self {
            Self::Unanswered(Failure::NotSent(_)) => return Class::RefusedBeforeEffect,
            Self::Unanswered(Failure::Lost(_) | Failure::TooLarge) | Self::Nonsense(_) => return Class::EffectUnknown,
            Self::Unanswered(Failure::Untrusted(_)) | Self::Unfit(_) => return Class::Final,
            // A definition that was established a moment ago is not served by every control plane yet.
            Self::NotServed(_) => return Class::RetryableAfter(None),
            Self::Refused(status) => status,
        };
        let seconds = status.details.retry_after_seconds;
        let after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        match status.code {
            404 if status.message.contains("could not find the requested resource") => Class::RetryableAfter(None),
            409 if self.rivals().is_empty() && status.reason == "Conflict" => Class::RefusedBeforeEffect,
            403 if self.is_namespace_ending() => Class::RetryableAfter(after),
            410 => Class::RefusedBeforeEffect,
            429 | 503 => Class::RetryableAfter(after),
            500 if self.is_deaf_webhook() => Class::RetryableAfter(after),
            500 if UNREADABLE.iter().any(|words| self.says(words)) => Class::Final,
            code if code >= 500 => Class::EffectUnknown,
            _ => Class::Final,
        }
    }

    /// The trouble as the engine wants it, about an object.
    #[must_use]
    pub fn fault(&self, key: &Key) -> Fault {
        let rivals = self.rivals();
        let (evidence, next) = match rivals.as_slice() {
            [] => (self.evidence(key), self.next(key)),
            [first, others @ ..] => {
                let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
                let evidence = format!("{} is managed by {}{more}", first.field, first.manager);
                let object = key.for_kubectl();
                let next = match Owner::of_manager(&first.manager, Operation::Update) {
                    Some(Owner::Person(_)) => format!(
                        "kubectl edit {object}, and set it back; or have castle.yaml want the same, by patches of the component; \
                         other layers can go on meanwhile: castle up --layer LAYER"
                    ),
                    _ => format!("kubectl get {object} --output yaml --show-managed-fields"),
                };
                (evidence, next)
            }
        };
        let fault = match rivals.is_empty() {
            true => Fault::new(self.class(), key.to_string(), evidence),
            // Castle does not fight over what somebody else wants otherwise.
            false => Fault::guard(key.to_string(), evidence),
        };
        let fault = fault.next(next);
        if self.code() == 429 { fault.contended() } else { fault }
    }

    /// What was seen. What the API says of a Secret may hold what is in it.
    fn evidence(&self, key: &Key) -> String {
        match self {
            Self::Refused(status) if key.kind == "Secret" && key.group.is_empty() && !self.is_deaf_webhook() => {
                let fields: Vec<&str> = self.causes().iter().map(|cause| cause.field.as_str()).collect();
                let of = if fields.is_empty() { String::new() } else { format!(" of {}", fields.join(", ")) };
                format!("the API answers {} {}{of}", status.code, status.reason)
            }
            Self::Refused(status) if status.message.is_empty() => format!("the API answers {}", status.code),
            Self::Refused(status) => status.message.clone(),
            other => other.to_string(),
        }
    }

    /// What somebody could do about it.
    fn next(&self, key: &Key) -> String {
        let namespace = &key.namespace;
        match self.code() {
            401 => "castle's certificate is not accepted: castle kubeconfig; then kubectl auth whoami".to_owned(),
            403 if self.is_namespace_ending() => format!("kubectl get namespace {namespace} --output yaml"),
            403 if self.says("violates PodSecurity") => {
                format!("kubectl label namespace {namespace} pod-security.kubernetes.io/enforce=privileged, if that is meant")
            }
            403 if !self.is_denial() => "kubectl auth whoami; kubectl auth can-i --list".to_owned(),
            404 | 0 => "kubectl get --raw /readyz?verbose".to_owned(),
            500 if self.class() == Class::Final => format!("kubectl explain {}", key.kind.to_lowercase()),
            500 if self.is_deaf_webhook() => {
                "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations; kubectl get endpointslices --all-namespaces".to_owned()
            }
            code if code >= 429 => "kubectl get --raw /readyz?verbose".to_owned(),
            _ => format!("kubectl describe {}", key.for_kubectl()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn trouble(code: u16, body: &Value) -> Trouble {
        Trouble::refused(code, &HeaderMap::new(), body.to_string().as_bytes())
    }

    fn key() -> Key {
        Key::new("metallb.io", "IPAddressPool", "metallb-system", "first")
    }

    #[test]
    fn a_webhook_that_cannot_be_asked_is_asked_again_and_one_that_denies_is_not() {
        let message =
            "Internal error occurred: failed calling webhook \"a.b\": failed to call webhook: connection refused";
        let deaf = trouble(500, &json!({"reason": "InternalError", "message": message}));
        assert!(deaf.is_deaf_webhook());
        assert_eq!(deaf.class(), Class::RetryableAfter(None));
        let denial = trouble(
            403,
            &json!({"reason": "Forbidden", "message": "admission webhook \"a.b\" denied the request: no"}),
        );
        assert!(denial.is_denial());
        assert_eq!(denial.class(), Class::Final);
    }

    #[test]
    fn a_conflict_names_the_rival_and_its_field_and_castle_does_not_fight() {
        let cause = json!({"reason": "FieldManagerConflict", "field": ".spec.replicas", "message": "conflict with \"helm\" using apps/v1"});
        let found =
            trouble(409, &json!({"reason": "Conflict", "message": "Apply failed", "details": {"causes": [cause]}}));
        assert_eq!(found.rivals(), [Rival { manager: "helm".to_owned(), field: ".spec.replicas".to_owned() }]);
        let fault = found.fault(&key());
        assert!(fault.guarded && fault.is_final());
        assert_eq!(fault.evidence, ".spec.replicas is managed by helm");
    }

    #[test]
    fn every_refusal_has_its_class() {
        let cases = [
            (400, "BadRequest", Class::Final),
            (401, "Unauthorized", Class::Final),
            (403, "Forbidden", Class::Final),
            (409, "Conflict", Class::RefusedBeforeEffect),
            (410, "Expired", Class::RefusedBeforeEffect),
            (413, "RequestEntityTooLarge", Class::Final),
            (422, "Invalid", Class::Final),
            (429, "TooManyRequests", Class::RetryableAfter(None)),
            (500, "InternalError", Class::EffectUnknown),
            (503, "ServiceUnavailable", Class::RetryableAfter(None)),
            (504, "Timeout", Class::EffectUnknown),
        ];
        for (code, reason, class) in cases {
            assert_eq!(trouble(code, &json!({"reason": reason, "message": "m"})).class(), class, "{code}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, 7.into());
        let busy = Trouble::refused(429, &headers, b"too many requests");
        assert_eq!(busy.class(), Class::RetryableAfter(Some(Duration::from_secs(7))));
        assert!(busy.fault(&key()).contention);
        let ending =
            json!({"reason": "Forbidden", "message": "m", "details": {"causes": [{"reason": "NamespaceTerminating"}]}});
        assert_eq!(trouble(403, &ending).class(), Class::RetryableAfter(None));
        let unknown =
            "failed to create typed patch object (n/a; /v1, Kind=ConfigMap): .dota: field not declared in schema";
        assert_eq!(trouble(500, &json!({"message": unknown})).class(), Class::Final);
        assert_eq!(trouble(500, &json!({"message": "etcdserver: request is too large"})).class(), Class::Final);
        assert_eq!(Trouble::from(Failure::Untrusted("x".to_owned())).class(), Class::Final);
        assert_eq!(Trouble::from(Failure::NotSent("x".to_owned())).class(), Class::RefusedBeforeEffect);
        assert_eq!(Trouble::from(Failure::Lost("x".to_owned())).class(), Class::EffectUnknown);
    }

    #[test]
    fn what_is_said_of_a_secret_is_not_repeated() {
        let found = trouble(
            422,
            &json!({"reason": "Invalid", "message": "planted is wrong", "details": {"causes": [{"field": "data[a]"}]}}),
        );
        let fault = found.fault(&Key::new("", "Secret", "n", "a"));
        assert!(!format!("{fault:?}").contains("planted"));
        assert_eq!(fault.evidence, "the API answers 422 Invalid of data[a]");
    }
}
