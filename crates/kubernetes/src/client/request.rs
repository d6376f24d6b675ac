//! A request as the API wants it: where, what for, and in which format.

use castle_http::header::{ACCEPT, CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Bytes, Method};
use form_urlencoded::byte_serialize;
use serde_json::Value;

use super::{Mode, Resource, Trouble};
use crate::model::MANAGER;

/// The format of what is told in full.
const JSON: &str = "application/json";
/// The format of what castle wants of an object. JSON is YAML, too.
const APPLY: &str = "application/apply-patch+yaml";
/// The format of a change of some fields.
const MERGE: &str = "application/merge-patch+json";

/// A request that is being put together.
#[derive(Debug)]
pub(super) struct Request {
    method: Method,
    path: String,
    query: String,
    content: Option<(&'static str, Bytes)>,
}

impl Request {
    fn to(method: Method, path: String) -> Self {
        Self { method, path, query: String::new(), content: None }
    }

    /// About all objects of a kind, in one namespace if they are in any.
    pub(super) fn about_all(resource: &Resource, namespace: &str) -> Self {
        Self::to(Method::GET, resource.path(namespace))
    }

    /// About one object, or what is below it. A name is never empty: the request would be about all objects.
    fn about(method: Method, resource: &Resource, namespace: &str, name: &str) -> Result<Self, Trouble> {
        let is_plain = |letter: char| letter.is_ascii_graphic() && !"/?#%".contains(letter);
        if name.is_empty() || !name.chars().all(is_plain) {
            return Err(Trouble::Unfit(format!("{name:?} is no name of an object")));
        }
        Ok(Self::to(method, format!("{}/{name}", resource.path(namespace))))
    }

    /// The object of this name.
    pub(super) fn get(resource: &Resource, namespace: &str, name: &str) -> Result<Self, Trouble> {
        Self::about(Method::GET, resource, namespace, name)
    }

    /// Says all that castle wants of an object.
    pub(super) fn apply(resource: &Resource, namespace: &str, name: &str, wanted: &Value) -> Result<Self, Trouble> {
        Ok(Self::about(Method::PATCH, resource, namespace, name)?.saying(APPLY, wanted))
    }

    /// Changes some fields of an object.
    pub(super) fn merge(resource: &Resource, namespace: &str, name: &str, fields: &Value) -> Result<Self, Trouble> {
        Ok(Self::about(Method::PATCH, resource, namespace, name)?.saying(MERGE, fields).by_castle())
    }

    /// Makes something below an object.
    pub(super) fn create_below(
        resource: &Resource,
        (namespace, name): (&str, &str),
        below: &str,
        what: &Value,
    ) -> Result<Self, Trouble> {
        let mut request = Self::about(Method::POST, resource, namespace, name)?.saying(JSON, what);
        request.path = format!("{}/{below}", request.path);
        Ok(request)
    }

    /// Removes an object, as far as these options say.
    pub(super) fn delete(resource: &Resource, namespace: &str, name: &str, options: &Value) -> Result<Self, Trouble> {
        Ok(Self::about(Method::DELETE, resource, namespace, name)?.saying(JSON, options))
    }

    fn saying(self, format: &'static str, what: &Value) -> Self {
        Self { content: Some((format, Bytes::from(what.to_string()))), ..self }
    }

    /// In castle's name.
    pub(super) fn by_castle(self) -> Self {
        self.with("fieldManager", MANAGER)
    }

    /// Only supposed, if that is how it is meant.
    pub(super) fn meant(self, mode: Mode) -> Self {
        if mode == Mode::Real { self } else { self.with("dryRun", "All") }
    }

    /// With a parameter; an empty one is none.
    pub(super) fn with(mut self, name: &str, value: &str) -> Self {
        if !value.is_empty() {
            self.query.push(if self.query.is_empty() { '?' } else { '&' });
            self.query.push_str(name);
            self.query.push('=');
            self.query.extend(byte_serialize(value.as_bytes()));
        }
        self
    }

    /// As it is sent.
    pub(super) fn ask(self) -> Ask {
        let mut ask = Ask::new(self.method, &format!("{}{}", self.path, self.query));
        ask.headers.insert(ACCEPT, HeaderValue::from_static(JSON));
        if let Some((format, body)) = self.content {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static(format));
            ask.body = body;
        }
        ask
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::Kind;

    fn pods() -> Resource {
        let kind = Kind { group: String::new(), version: "v1".to_owned(), kind: "Pod".to_owned() };
        Resource { kind, plural: "pods".to_owned(), names: Vec::new(), is_namespaced: true, verbs: Vec::new() }
    }

    #[test]
    fn what_is_asked_is_written_as_the_api_reads_it() {
        let list = Request::about_all(&pods(), "a").with("limit", "500").with("labelSelector", "app in (b, c)");
        assert_eq!(list.ask().path_and_query, "/api/v1/namespaces/a/pods?limit=500&labelSelector=app+in+%28b%2C+c%29");
        assert_eq!(Request::about_all(&pods(), "").with("fieldSelector", "").ask().path_and_query, "/api/v1/pods");
        let apply = Request::apply(&pods(), "a", "b", &json!({"kind": "Pod"})).unwrap();
        let apply = apply.meant(Mode::Suppose).by_castle().ask();
        assert_eq!(apply.path_and_query, "/api/v1/namespaces/a/pods/b?dryRun=All&fieldManager=castle");
        assert_eq!((apply.method, &apply.headers[CONTENT_TYPE]), (Method::PATCH, &HeaderValue::from_static(APPLY)));
        let evict = Request::create_below(&pods(), ("a", "b"), "eviction", &json!({})).unwrap().meant(Mode::Real).ask();
        assert_eq!(
            (evict.method, evict.path_and_query.as_str()),
            (Method::POST, "/api/v1/namespaces/a/pods/b/eviction")
        );
    }

    #[test]
    fn a_name_that_would_lead_elsewhere_is_none() {
        for name in ["", "a/b", "a?b", "a b", "a%2fb", "a\u{e4}"] {
            let options = json!({});
            assert!(matches!(Request::delete(&pods(), "n", name, &options), Err(Trouble::Unfit(_))), "{name:?}");
        }
        assert!(Request::get(&pods(), "n", "system:controller.1-a_b").is_ok());
    }
}
