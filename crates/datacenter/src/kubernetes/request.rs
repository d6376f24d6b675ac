//! What is asked: the path and the query, taken apart.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::status::{Cause, Failure};

/// A request as it comes in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: Query,
    pub(crate) content_type: String,
    pub(crate) accept: String,
    pub(crate) user_agent: String,
    pub(crate) body: Vec<u8>,
    pub(crate) user: User,
    /// Who asks, where he does so in the name of another.
    pub(crate) behind: Option<User>,
    /// The version of the API server that is asked.
    pub(crate) version: String,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
    pub(crate) uid: String,
    /// What else is known of him, by key.
    pub(crate) extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Somebody who may do everything.
    pub(crate) fn master(name: &str) -> Self {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        Self { name: name.to_owned(), groups, ..Self::default() }
    }

    /// Who he is, as the server tells others.
    pub(crate) fn info(&self) -> Value {
        let mut info = json!({ "username": self.name });
        for (key, is_there, value) in [
            ("uid", !self.uid.is_empty(), json!(self.uid)),
            ("groups", !self.groups.is_empty(), json!(self.groups)),
            ("extra", !self.extra.is_empty(), json!(self.extra)),
        ] {
            if is_there {
                info[key] = value;
            }
        }
        info
    }

    pub(crate) fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

/// The parameters of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Self(
            pairs
                .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
                .map(|(key, value)| (decoded(key), decoded(value)))
                .collect(),
        )
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == key).map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.get(key).is_some_and(|value| matches!(value, "true" | "1" | "True" | "TRUE" | "t" | "T"))
    }

    /// Whether a parameter is there, even without a value.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(own, _)| own == key)
    }

    pub(crate) fn number(&self, key: &str) -> Option<u64> {
        self.get(key)?.parse().ok()
    }

    /// Whether nothing is to be changed. `options` is the kind of the options that say so.
    pub(crate) fn is_dry_run(&self, options: &str) -> Result<bool, Failure> {
        match self.get("dryRun") {
            None => Ok(false),
            Some("All") => Ok(true),
            Some(other) => {
                let cause = Cause::unsupported("dryRun", &json!([other]), &["All"]);
                Err(Failure::invalid_kind("meta.k8s.io", options, "", &[cause]))
            }
        }
    }
}

/// `%2F` and `+` as what they stand for.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => bytes.push(b' '),
            b'%' => {
                let ahead: Vec<u8> = rest.clone().take(2).collect();
                let hex = std::str::from_utf8(&ahead).ok().filter(|hex| hex.len() == 2);
                match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(value) => {
                        bytes.push(value);
                        rest.by_ref().take(2).for_each(drop);
                    }
                    None => bytes.push(byte),
                }
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// What a path below a version names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) subresource: String,
    /// Whether the path has a namespace, even an empty one.
    pub(crate) is_in_namespace: bool,
}

impl Target {
    /// Reads a path; nothing if it is none of a resource.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let parts: Vec<String> =
            path.trim_matches('/').split('/').map(|part| decoded(&part.replace('+', "%2B"))).collect();
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let mut target = Self { group: group.to_owned(), version: version.to_owned(), ..Self::default() };
        let rest = match rest {
            ["namespaces", namespace, plural, rest @ ..]
                if !["status", "finalize"].contains(plural) || !group.is_empty() =>
            {
                target.namespace = (*namespace).to_owned();
                target.is_in_namespace = true;
                target.plural = (*plural).to_owned();
                rest
            }
            [plural, rest @ ..] => {
                target.plural = (*plural).to_owned();
                rest
            }
            [] => return None,
        };
        match rest {
            [] => {}
            [name] => target.name = (*name).to_owned(),
            [name, subresource @ ..] => {
                target.name = (*name).to_owned();
                target.subresource = subresource.join("/");
            }
        }
        Some(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(path: &str) -> [String; 5] {
        let target = Target::parse(path).unwrap();
        [target.group, target.plural, target.namespace, target.name, target.subresource]
    }

    #[test]
    fn paths_are_taken_apart() {
        assert_eq!(parts("/api/v1/pods"), ["", "pods", "", "", ""]);
        assert_eq!(parts("/api/v1/namespaces/a"), ["", "namespaces", "", "a", ""]);
        assert_eq!(parts("/api/v1/namespaces/a/finalize"), ["", "namespaces", "", "a", "finalize"]);
        assert_eq!(parts("/apis/apps/v1/namespaces/a/deployments/b/scale"), ["apps", "deployments", "a", "b", "scale"]);
        assert_eq!(parts("/api/v1/nodes/n/proxy/x/y"), ["", "nodes", "", "n", "proxy/x/y"]);
        assert_eq!(parts("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode")[3], "system:node");
        assert_eq!(Target::parse("/api/v1"), None);
        assert_eq!(Target::parse("/version"), None);
    }

    #[test]
    fn queries_are_decoded() {
        let query = Query::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch=1&empty=");
        assert_eq!(query.get("labelSelector"), Some("a=b,c in (d)"));
        assert!(query.is_true("watch"));
        assert_eq!(query.get("empty"), None);
    }
}
