//! Who may do what: roles and their bindings, and the questions about them.

use serde_json::{Value, json};

use super::kube::Kube;
use super::request::{Ask, Target, User};
use super::selectors::Labels;
use super::status::Failure;
use super::{restriction, value};

mod escalation;
mod reviews;
mod roles;

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
        if let Some(real) = &ask.behind
            && !self.may_impersonate(real, &ask.user, &wish)
        {
            let verb = format!("impersonate-on:user-info:{}", wish.verb);
            return Err(refused(ask, target, real, &Wish { verb, ..wish }));
        }
        if self.may(&ask.user, &wish) { Ok(()) } else { Err(refused(ask, target, &ask.user, &wish)) }
    }

    /// Whether somebody may act in the name of another, here or everywhere.
    fn may_impersonate(&self, real: &User, other: &User, wish: &Wish) -> bool {
        let core = |verb: &str, resource: &str, name: &str| Wish {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            name: name.to_owned(),
            ..Wish::default()
        };
        let groups = other.groups.iter().filter(|group| *group != "system:authenticated");
        let everywhere = self.may(real, &core("impersonate", "users", &other.name))
            && groups.clone().all(|group| self.may(real, &core("impersonate", "groups", group)));
        let of = |resource: &str, name: &str| Wish {
            group: "authentication.k8s.io".to_owned(),
            ..core("impersonate:user-info", resource, name)
        };
        let here = Wish { verb: format!("impersonate-on:user-info:{}", wish.verb), ..wish.clone() };
        everywhere
            || self.may(real, &here)
                && self.may(real, &of("users", &other.name))
                && groups.clone().all(|group| self.may(real, &of("groups", group)))
    }

    /// Whether somebody may do something.
    pub(crate) fn may(&self, user: &User, wish: &Wish) -> bool {
        self.why(user, wish).is_some()
    }

    /// Why somebody may do something, which may go without saying; nothing if not.
    pub(crate) fn why(&self, user: &User, wish: &Wish) -> Option<String> {
        if user.is_in("system:masters") || restriction::allows(user, wish) {
            return Some(String::new());
        }
        self.grants(user, &wish.namespace).into_iter().find(|grant| allows(&grant.rule, wish)).map(|grant| grant.why)
    }

    /// What is granted to somebody in a namespace.
    pub(super) fn grants(&self, user: &User, namespace: &str) -> Vec<Grant> {
        let mut grants = Vec::new();
        let mut add = |binding: &Value, rules: Vec<Value>| {
            let Some(why) = reason(binding, user) else { return };
            grants.extend(rules.into_iter().map(|rule| Grant { rule, why: why.clone() }));
        };
        for binding in self.store.all(BINDINGS, "") {
            add(binding, self.rules_of(CLUSTER_ROLES, "", value::text(binding, "roleRef.name")));
        }
        if namespace.is_empty() {
            return grants;
        }
        for binding in self.store.all(ROLE_BINDINGS, namespace) {
            let name = value::text(binding, "roleRef.name");
            match value::text(binding, "roleRef.kind") {
                "ClusterRole" => add(binding, self.rules_of(CLUSTER_ROLES, "", name)),
                _ => add(binding, self.rules_of(ROLES, namespace, name)),
            }
        }
        grants
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
}

/// A rule that holds for somebody, and why it does.
pub(super) struct Grant {
    pub(super) rule: Value,
    pub(super) why: String,
}

/// What is told of somebody who may not.
fn refused(ask: &Ask, target: Option<Target>, user: &User, wish: &Wish) -> Failure {
    let user = &user.name;
    let Some(target) = target else {
        let text = format!("forbidden: User {user:?} cannot {} path {:?}", wish.verb, ask.path);
        return Failure::new(403, "Forbidden", text).with_details(json!({}));
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
    Failure::new(403, "Forbidden", format!("{of}{name} is forbidden: {why}")).with_details(details)
}

/// Why a binding is for somebody; nothing if it is not.
fn reason(binding: &Value, user: &User) -> Option<String> {
    let subject = value::items(binding, "subjects").iter().find(|subject| is_subject(subject, user))?;
    let (own, name, namespace) = (value::name(binding), value::text(subject, "name"), value::namespace(binding));
    let binding_told = if namespace.is_empty() {
        format!("ClusterRoleBinding {own:?}")
    } else {
        format!("RoleBinding \"{own}/{namespace}\"")
    };
    let role = format!("{} {:?}", value::text(binding, "roleRef.kind"), value::text(binding, "roleRef.name"));
    let subject_told = match value::text(subject, "kind") {
        "ServiceAccount" => format!("ServiceAccount \"{name}/{}\"", value::text(subject, "namespace")),
        kind => format!("{kind} {name:?}"),
    };
    Some(format!("RBAC: allowed by {binding_told} of {role} to {subject_told}"))
}

fn is_subject(subject: &Value, user: &User) -> bool {
    let name = value::text(subject, "name");
    match value::text(subject, "kind") {
        "User" => name == user.name,
        "Group" => user.is_in(name),
        "ServiceAccount" => user.name == format!("system:serviceaccount:{}:{name}", value::text(subject, "namespace")),
        _ => false,
    }
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
