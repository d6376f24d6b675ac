//! Who may do what: roles and their bindings, and the questions about them.

use serde_json::{Value, json};

use super::api::Call;
use super::kinds;
use super::kube::{Kube, stamp};
use super::request::{Ask, Target, User};
use super::selectors::Labels;
use super::status::Failure;
use super::value;

/// What somebody wants to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wish {
    pub(crate) verb: String,
    pub(crate) group: String,
    /// With its subresource: `pods/log`.
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// The path, where no resource is meant.
    pub(crate) path: Option<String>,
}

const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLE_BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";

impl Wish {
    fn of(ask: &Ask, target: Option<&Target>) -> Self {
        let Some(target) = target else {
            return Self { verb: ask.method.to_lowercase(), path: Some(ask.path.clone()), ..Self::default() };
        };
        let is_many = target.name.is_empty();
        let verb = match ask.method.as_str() {
            "GET" | "HEAD" if ask.query.is_true("watch") => "watch",
            "GET" | "HEAD" if is_many => "list",
            "GET" | "HEAD" => "get",
            "POST" => "create",
            "PUT" => "update",
            "PATCH" => "patch",
            _ if is_many => "deletecollection",
            _ => "delete",
        };
        let sub = target.subresource.split('/').next().unwrap_or_default();
        let resource = if sub.is_empty() { target.plural.clone() } else { format!("{}/{sub}", target.plural) };
        let namespace = if target.plural == "namespaces" { target.name.clone() } else { target.namespace.clone() };
        Self {
            verb: verb.to_owned(),
            group: target.group.clone(),
            resource,
            namespace,
            name: target.name.clone(),
            path: None,
        }
    }
}

impl Kube {
    /// Refuses what the roles of somebody do not allow.
    pub(crate) fn authorize(&self, ask: &Ask) -> Result<(), Failure> {
        let target = Target::parse(&ask.path);
        let wish = Wish::of(ask, target.as_ref());
        if self.may(&ask.user, &wish) {
            return Ok(());
        }
        let user = &ask.user.name;
        let Some(target) = target else {
            let text = format!("forbidden: User {user:?} cannot {} path {:?}", wish.verb, ask.path);
            return Err(Failure { details: Some(json!({})), ..Failure::new(403, "Forbidden", text) });
        };
        let place = if wish.namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {:?}", wish.namespace)
        };
        let why = format!(
            "User {user:?} cannot {} resource {:?} in API group {:?} {place}",
            wish.verb, wish.resource, wish.group
        );
        let of =
            if target.group.is_empty() { target.plural.clone() } else { format!("{}.{}", target.plural, target.group) };
        let name = if target.name.is_empty() { String::new() } else { format!(" {:?}", target.name) };
        let mut details = json!({});
        for (key, text) in [("name", &target.name), ("group", &target.group), ("kind", &target.plural)] {
            if !text.is_empty() {
                value::set(&mut details, key, text.as_str());
            }
        }
        Err(Failure {
            details: Some(details),
            ..Failure::new(403, "Forbidden", format!("{of}{name} is forbidden: {why}"))
        })
    }

    /// Whether somebody may do something.
    pub(crate) fn may(&self, user: &User, wish: &Wish) -> bool {
        user.is_in("system:masters") || self.rules_for(user, &wish.namespace).iter().any(|rule| allows(rule, wish))
    }

    /// The rules that hold for somebody in a namespace.
    fn rules_for(&self, user: &User, namespace: &str) -> Vec<Value> {
        let mut rules = Vec::new();
        for binding in self.store.all(BINDINGS, "").filter(|binding| is_bound(binding, user)) {
            rules.extend(self.rules_of(CLUSTER_ROLES, "", value::text(binding, "roleRef.name")));
        }
        if namespace.is_empty() {
            return rules;
        }
        for binding in self.store.all(ROLE_BINDINGS, namespace).filter(|binding| is_bound(binding, user)) {
            let name = value::text(binding, "roleRef.name");
            match value::text(binding, "roleRef.kind") {
                "ClusterRole" => rules.extend(self.rules_of(CLUSTER_ROLES, "", name)),
                _ => rules.extend(self.rules_of(ROLES, namespace, name)),
            }
        }
        rules
    }

    fn rules_of(&self, collection: &str, namespace: &str, name: &str) -> Vec<Value> {
        let Some(role) = self.get(collection, namespace, name) else { return Vec::new() };
        let mut rules = value::items(&role, "rules").to_vec();
        for selector in value::items(&role, "aggregationRule.clusterRoleSelectors") {
            let chosen = Labels::of(selector);
            let parts =
                self.store.all(CLUSTER_ROLES, "").filter(|part| value::name(part) != name && chosen.chooses(part));
            rules.extend(parts.flat_map(|part| value::items(part, "rules").to_vec()));
        }
        rules
    }

    /// Questions that are answered and not kept: reviews of access and of who one is.
    pub(crate) fn questions(&mut self, call: &mut Call<'_>) -> Result<Value, Failure> {
        let body = call.body()?;
        let mut object = call.decode(body)?;
        self.complete(&call.resource.clone(), &mut object);
        let user = call.ask.user.clone();
        match call.resource.plural.as_str() {
            "selfsubjectreviews" => {
                value::set(&mut object, "metadata.creationTimestamp", self.stamp());
                value::set(&mut object, "status.userInfo", user.info());
            }
            "tokenreviews" => {
                let token = value::text(&object, "spec.token").to_owned();
                let status = match self.token_user(&token) {
                    Some(user) => {
                        json!({ "authenticated": true, "user": user.info() })
                    }
                    None => json!({ "user": {}, "error": "invalid bearer token" }),
                };
                value::set(&mut object, "status", status);
            }
            "selfsubjectrulesreviews" => {
                let namespace = value::text(&object, "spec.namespace").to_owned();
                let mut rules = self.rules_for(&user, &namespace);
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
                let status = json!({ "allowed": self.may(&who, &wished(&object)) });
                value::set(&mut object, "status", status);
            }
        }
        Ok(object)
    }

    /// Whom a token is of.
    pub(crate) fn token_user(&self, token: &str) -> Option<User> {
        let user = self.tokens.get(token)?;
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
            let cause = super::status::Cause::invalid(
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
        self.tokens.insert(token.clone(), user);
        let until = self.calendar + self.now + std::time::Duration::from_secs(seconds.unsigned_abs());
        let audiences = value::at(&given, "spec.audiences").cloned().unwrap_or_else(|| json!([self.setup.endpoint]));
        Ok(json!({
            "kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1",
            "metadata": { "name": name, "namespace": namespace, "uid": value::uid(&account), "creationTimestamp": self.stamp() },
            "spec": { "audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": Value::Null },
            "status": { "token": token, "expirationTimestamp": stamp(until) },
        }))
    }

    /// The roles that every cluster has.
    pub(crate) fn bootstrap_roles(&mut self) {
        let labels = json!({ "kubernetes.io/bootstrapping": "rbac-defaults" });
        let annotations = json!({ "rbac.authorization.kubernetes.io/autoupdate": "true" });
        for (name, rules) in roles() {
            let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
            self.make(&super::kube::SERVER, CLUSTER_ROLES, json!({ "metadata": metadata, "rules": rules }));
        }
        for (name, group) in [
            ("cluster-admin", "system:masters"),
            ("system:discovery", "system:authenticated"),
            ("system:basic-user", "system:authenticated"),
            ("system:public-info-viewer", "system:authenticated"),
        ] {
            let metadata = json!({ "name": name, "labels": labels, "annotations": annotations });
            let role = json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name });
            let subjects = json!([{ "kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group }]);
            self.make(
                &super::kube::SERVER,
                BINDINGS,
                json!({ "metadata": metadata, "roleRef": role, "subjects": subjects }),
            );
        }
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

fn is_bound(binding: &Value, user: &User) -> bool {
    value::items(binding, "subjects").iter().any(|subject| {
        let name = value::text(subject, "name");
        match value::text(subject, "kind") {
            "User" => name == user.name,
            "Group" => user.is_in(name),
            "ServiceAccount" => {
                user.name == format!("system:serviceaccount:{}:{name}", value::text(subject, "namespace"))
            }
            _ => false,
        }
    })
}

fn allows(rule: &Value, wish: &Wish) -> bool {
    let list = |key: &str| value::items(rule, key).iter().filter_map(Value::as_str);
    if !list("verbs").any(|verb| verb == "*" || verb == wish.verb) {
        return false;
    }
    if let Some(path) = &wish.path {
        return list("nonResourceURLs").any(|own| {
            own == "*" || own == path || own.strip_suffix('*').is_some_and(|prefix| path.starts_with(prefix))
        });
    }
    let sub = wish.resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
    list("apiGroups").any(|group| group == "*" || group == wish.group)
        && list("resources").any(|own| own == "*" || own == wish.resource || sub.as_deref() == Some(own))
        && (list("resourceNames").next().is_none() || list("resourceNames").any(|own| own == wish.name))
}

/// The rules of the roles that every cluster has.
fn roles() -> Vec<(&'static str, Value)> {
    let info = json!(["/healthz", "/livez", "/readyz", "/version", "/version/"]);
    let discovery = json!([
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
        "/version/"
    ]);
    let read = ["get", "list", "watch"];
    let write = ["create", "delete", "deletecollection", "patch", "update"];
    // All that is in namespaces, but for who may do what.
    let of_namespaces = |verbs: &[&str], has_secrets: bool| -> Value {
        let mut groups: std::collections::BTreeMap<&str, Vec<String>> = std::collections::BTreeMap::new();
        let kinds = kinds::built_in()
            .iter()
            .filter(|it| it.is_namespaced && it.group != "rbac.authorization.k8s.io" && it.can("get"));
        for kind in kinds.filter(|kind| has_secrets || kind.plural != "secrets") {
            let list = groups.entry(&kind.group).or_default();
            list.push(kind.plural.clone());
            list.extend(kind.subresources.iter().map(|sub| format!("{}/{sub}", kind.plural)));
        }
        groups
            .into_iter()
            .map(|(group, resources)| json!({ "apiGroups": [group], "resources": resources, "verbs": verbs }))
            .collect()
    };
    let both: Vec<&str> = read.iter().chain(&write).copied().collect();
    vec![
        (
            "cluster-admin",
            json!([{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }, { "nonResourceURLs": ["*"], "verbs": ["*"] }]),
        ),
        ("system:discovery", json!([{ "nonResourceURLs": discovery, "verbs": ["get"] }])),
        ("system:public-info-viewer", json!([{ "nonResourceURLs": info, "verbs": ["get"] }])),
        (
            "system:basic-user",
            json!([
                { "apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"] },
                { "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"] },
            ]),
        ),
        ("view", of_namespaces(&read, false)),
        ("edit", of_namespaces(&both, true)),
        ("admin", of_namespaces(&both, true)),
    ]
}
