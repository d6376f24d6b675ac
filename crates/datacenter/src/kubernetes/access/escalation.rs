//! Nobody grants more than he has.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{CLUSTER_ROLES, ROLES, Wish};
use crate::kubernetes::api::Call;
use crate::kubernetes::kube::Kube;
use crate::kubernetes::request::User;
use crate::kubernetes::status::Failure;
use crate::kubernetes::value;

impl Kube {
    /// Refuses a role or a binding that gives what its author does not have.
    pub(crate) fn check_escalation(&self, call: &Call<'_>, object: &Value) -> Result<(), Failure> {
        let (user, namespace) = (&call.ask.user, value::namespace(object));
        let of = |verb: &str, resource: &str, name: &str| Wish {
            verb: verb.to_owned(),
            group: call.resource.group.clone(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            path: None,
        };
        let (plural, name) = (call.resource.plural.as_str(), value::name(object));
        let rules = match (call.resource.group.as_str(), plural) {
            ("rbac.authorization.k8s.io", "roles" | "clusterroles") => {
                if self.may(user, &of("escalate", plural, name)) {
                    return Ok(());
                }
                value::items(object, "rules").to_vec()
            }
            ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
                let role = value::text(object, "roleRef.name");
                let is_of_cluster = value::text(object, "roleRef.kind") == "ClusterRole";
                let kind = if is_of_cluster { "clusterroles" } else { "roles" };
                if self.may(user, &of("bind", kind, role)) {
                    return Ok(());
                }
                if is_of_cluster {
                    self.rules_of(CLUSTER_ROLES, "", role)
                } else {
                    self.rules_of(ROLES, namespace, role)
                }
            }
            _ => return Ok(()),
        };
        let lacking = self.lacking(user, namespace, &rules);
        if lacking.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
        let why = format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            groups.join(" "),
            lacking.join("\n")
        );
        Err(Failure::forbidden(&call.resource, name, &why))
    }

    /// What somebody does not have of these rules, as the real server tells it: one line for a resource, with all its verbs.
    fn lacking(&self, user: &User, namespace: &str, rules: &[Value]) -> Vec<String> {
        let mut lacking: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for rule in rules {
            let list = |key: &str| value::items(rule, key).iter().filter_map(Value::as_str);
            for verb in list("verbs") {
                let wish = |path: Option<String>| Wish { verb: verb.to_owned(), path, ..Wish::default() };
                for path in list("nonResourceURLs") {
                    if !self.may(user, &wish(Some(path.to_owned()))) {
                        lacking.entry(format!("NonResourceURLs:[{path:?}]")).or_default().push(verb.to_owned());
                    }
                }
                for (group, resource) in
                    list("apiGroups").flat_map(|group| list("resources").map(move |it| (group, it)))
                {
                    let mut names: Vec<&str> = list("resourceNames").collect();
                    if names.is_empty() {
                        names.push("");
                    }
                    for name in names {
                        let wanted = Wish {
                            group: group.to_owned(),
                            resource: resource.to_owned(),
                            namespace: namespace.to_owned(),
                            name: name.to_owned(),
                            ..wish(None)
                        };
                        if self.may(user, &wanted) {
                            continue;
                        }
                        let mut told = format!("APIGroups:[{group:?}], Resources:[{resource:?}]");
                        if !name.is_empty() {
                            told += &format!(", ResourceNames:[{name:?}]");
                        }
                        lacking.entry(told).or_default().push(verb.to_owned());
                    }
                }
            }
        }
        let told = lacking.into_iter().map(|(what, verbs)| {
            let verbs: Vec<String> = verbs.iter().map(|verb| format!("{verb:?}")).collect();
            format!("{{{what}, Verbs:[{}]}}", verbs.join(" "))
        });
        told.collect()
    }
}
