//! Questions that are answered and not kept: who one is, what one may, and tokens.

use std::time::Duration;

use serde_json::{Value, json};

use super::Wish;
use crate::kubernetes::api::Call;
use crate::kubernetes::fields::managers::{Managers, bare};
use crate::kubernetes::fields::node::Node;
use crate::kubernetes::kube::{Kube, stamp};
use crate::kubernetes::request::User;
use crate::kubernetes::status::{Cause, Failure};
use crate::kubernetes::{value, write};

impl Kube {
    /// Questions that are answered and not kept: reviews of access and of who one is.
    pub(crate) fn questions(&mut self, call: &mut Call<'_>) -> Result<Value, Failure> {
        let body = call.body()?;
        let mut object = call.decode(body)?;
        self.complete(&call.resource.clone(), &mut object);
        let mut managers = Managers::default();
        let empty = write::empty(&call.resource);
        let node = Node::root(&call.resource);
        managers.update(node, (&empty, &bare(&object)), &call.manager(false), &[], &self.stamp());
        managers.write(&mut object);
        let user = call.ask.user.clone();
        match call.resource.plural.as_str() {
            "selfsubjectreviews" => {
                value::set(&mut object, "metadata.creationTimestamp", self.stamp());
                value::set(&mut object, "status.userInfo", user.info());
            }
            "tokenreviews" => {
                let token = value::text(&object, "spec.token").to_owned();
                let status = match self.token_user(&token, self.now) {
                    Some(user) => {
                        json!({ "authenticated": true, "user": user.info() })
                    }
                    None => json!({ "user": {}, "error": "invalid bearer token" }),
                };
                value::set(&mut object, "status", status);
            }
            "selfsubjectrulesreviews" => {
                let namespace = value::text(&object, "spec.namespace").to_owned();
                let mut rules: Vec<Value> =
                    self.grants(&user, &namespace).into_iter().map(|grant| grant.rule).collect();
                if user.is_in("system:masters") {
                    rules.push(json!({ "verbs": ["*"], "apiGroups": ["*"], "resources": ["*"] }));
                    rules.push(json!({ "verbs": ["*"], "nonResourceURLs": ["*"] }));
                }
                let (paths, resources): (Vec<Value>, Vec<Value>) =
                    rules.into_iter().partition(|rule| rule.get("nonResourceURLs").is_some());
                value::set(
                    &mut object,
                    "status",
                    json!({ "resourceRules": resources, "nonResourceRules": paths, "incomplete": false }),
                );
            }
            plural => {
                let asks_for_self = plural == "selfsubjectaccessreviews";
                let other = || User {
                    name: value::text(&object, "spec.user").to_owned(),
                    groups: value::items(&object, "spec.groups")
                        .iter()
                        .filter_map(Value::as_str)
                        .map(Into::into)
                        .collect(),
                    ..User::default()
                };
                let who = if asks_for_self { user } else { other() };
                let why = self.why(&who, &wished(&object));
                let mut status = json!({ "allowed": why.is_some() });
                if let Some(why) = why.filter(|why| !why.is_empty()) {
                    value::set(&mut status, "reason", why);
                }
                value::set(&mut object, "status", status);
            }
        }
        Ok(object)
    }

    /// Whom a token is of at a moment.
    pub(crate) fn token_user(&self, token: &str, now: Duration) -> Option<User> {
        let (user, until) = self.tokens.get(token)?;
        if until.is_some_and(|until| now >= until) {
            return None;
        }
        // The token of an account ends with it.
        let account = user.name.strip_prefix("system:serviceaccount:").and_then(|place| place.split_once(':'));
        let is_gone = account.is_some_and(|(namespace, name)| {
            self.get("serviceaccounts", namespace, name)
                .is_none_or(|it| !user.uid.is_empty() && value::uid(&it) != user.uid)
        });
        (!is_gone).then(|| user.clone())
    }

    /// `POST .../token`: a token of a service account.
    pub(crate) fn token(&mut self, call: &mut Call<'_>) -> Result<Value, Failure> {
        let (namespace, name) = (call.target.namespace.clone(), call.target.name.clone());
        let Some(account) = self.get("serviceaccounts", &namespace, &name) else {
            return Err(Failure::not_found(&call.resource, &name));
        };
        let given = call.body()?.value;
        let seconds = value::number(&given, "spec.expirationSeconds").unwrap_or(3_600);
        if seconds < 600 {
            let cause = Cause::invalid(
                "spec.expirationSeconds",
                &json!(seconds),
                "may not specify a duration less than 10 minutes",
            );
            return Err(Failure::invalid_kind("authentication.k8s.io", "TokenRequest", "", &[cause]));
        }
        let token = format!("castle-{}{}", self.suffix(27), self.suffix(5));
        let groups = [
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ];
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: groups.to_vec(),
            uid: value::uid(&account).to_owned(),
            ..User::default()
        };
        let until = self.now + Duration::from_secs(seconds.unsigned_abs());
        self.tokens.insert(token.clone(), (user, Some(until)));
        let audiences = value::at(&given, "spec.audiences").cloned().unwrap_or_else(|| json!([self.setup.endpoint]));
        Ok(json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": { "name": name, "namespace": namespace, "uid": value::uid(&account), "creationTimestamp": self.stamp() },
            "spec": { "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": Value::Null },
            "status": { "token": token, "expirationTimestamp": stamp(self.calendar + until) },
        }))
    }
}

fn wished(review: &Value) -> Wish {
    let spec = &review["spec"];
    if let Some(path) = spec.get("nonResourceAttributes") {
        let path_of = value::text(path, "path").to_owned();
        return Wish { verb: value::text(path, "verb").to_owned(), path: Some(path_of), ..Wish::default() };
    }
    let of = &spec["resourceAttributes"];
    let text = |key: &str| value::text(of, key).to_owned();
    let sub = text("subresource");
    let resource = if sub.is_empty() { text("resource") } else { format!("{}/{sub}", text("resource")) };
    Wish {
        verb: text("verb"),
        group: text("group"),
        resource,
        namespace: text("namespace"),
        name: text("name"),
        path: None,
    }
}
