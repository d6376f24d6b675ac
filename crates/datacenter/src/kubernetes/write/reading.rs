//! From the body of a request to an object of its kind.

use serde_json::{Value, json};

use crate::kubernetes::api::Call;
use crate::kubernetes::body::{self, Body};
use crate::kubernetes::fields::managers::Manager;
use crate::kubernetes::kinds::Shape;
use crate::kubernetes::status::{Cause, Failure};
use crate::kubernetes::{decode, protobuf, structural, value};

/// How a body is to be judged.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Strictness {
    Ignore,
    Warn,
    Strict,
}

impl Call<'_> {
    fn strictness(&self) -> Result<Strictness, Failure> {
        match self.ask.query.get("fieldValidation") {
            None | Some("Warn") => Ok(Strictness::Warn),
            Some("Strict") => Ok(Strictness::Strict),
            Some("Ignore") => Ok(Strictness::Ignore),
            Some(other) => {
                let cause = Cause::unsupported("fieldValidation", &json!(other), &["", "Ignore", "Strict", "Warn"]);
                Err(Failure::invalid_kind("meta.k8s.io", self.options(), "", &[cause]))
            }
        }
    }

    /// The kind of the options that the query holds.
    pub(crate) fn options(&self) -> &'static str {
        match self.ask.method.as_str() {
            "POST" => "CreateOptions",
            "PUT" => "UpdateOptions",
            "PATCH" => "PatchOptions",
            _ => "DeleteOptions",
        }
    }

    /// Who writes.
    pub(crate) fn manager(&self, applies: bool) -> Manager {
        let agent = self.ask.user_agent.split('/').next().unwrap_or_default();
        let name = self.ask.query.get("fieldManager").unwrap_or(if agent.is_empty() { "unknown" } else { agent });
        Manager {
            name: name.chars().take(128).collect(),
            applies,
            api_version: self.resource.api_version(),
            subresource: self.target.subresource.clone(),
        }
    }

    /// Reads the body of a request that is an object.
    pub(crate) fn body(&self) -> Result<Body, Failure> {
        let kind = self.ask.content_type.split(';').next().unwrap_or_default().trim();
        let is_custom = self.resource.custom().is_some();
        let read = match kind {
            "" | "application/json" => body::json(&self.ask.body),
            protobuf::KIND if !is_custom => {
                let read = protobuf::read(&self.ask.body).map(|value| Body { value, twice: Vec::new() });
                return read
                    .map_err(|why| Failure { message: format!("{why}; send JSON"), ..Failure::media_type(&[]) });
            }
            "application/yaml" => body::yaml(&self.ask.body),
            _ => {
                let accepted = ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
                return Err(Failure::media_type(&accepted));
            }
        };
        read.map_err(|error| self.unrecognized(&error))
    }

    /// The beginning of the body, for messages.
    fn summary(&self) -> String {
        const SHOWN: usize = 30;
        let body = &self.ask.body;
        let (first, rest) = body.split_at(body.len().min(SHOWN));
        let text = match first.first() {
            Some(b'{') => String::from_utf8_lossy(first).into_owned(),
            _ => first.iter().map(|byte| format!("{byte:02x}")).collect(),
        };
        if rest.is_empty() { text } else { format!("{text} ...") }
    }

    /// What is told of a body that is no object.
    fn unrecognized(&self, error: &str) -> Failure {
        let shown = self.summary();
        let of = &self.resource.kind;
        let text = format!(
            "the object provided is unrecognized (must be of type {of}): couldn't get version/kind; json parse error: {error} ({shown})"
        );
        Failure::bad_request(text)
    }

    /// Judges an object by its kind: types, unknown fields, fields given twice.
    pub(crate) fn decode(&mut self, body: Body) -> Result<Value, Failure> {
        let mut object = body.value;
        let resource = self.resource.clone();
        let (kind, api_version) =
            (value::text(&object, "kind").to_owned(), value::text(&object, "apiVersion").to_owned());
        let version = &resource.version;
        let refuse = |why: &str| {
            Failure::bad_request(format!(
                "{} in version {version:?} cannot be handled as a {}: {why}",
                resource.kind, resource.kind
            ))
        };
        self.strictness()?;
        if !object.is_object() {
            let what = if object.is_array() { "array" } else { "string" };
            let error = format!(
                "json: cannot unmarshal {what} into Go value of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
                 \"json:\\\"kind,omitempty\\\"\" }}"
            );
            return Err(self.unrecognized(&error));
        }
        if resource.custom().is_some() && kind.is_empty() {
            let body = String::from_utf8_lossy(&self.ask.body);
            let text = format!(
                "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{body}' ({})",
                resource.kind,
                self.summary()
            );
            return Err(Failure::bad_request(text));
        }
        if !kind.is_empty() && kind != resource.kind || !api_version.is_empty() && api_version != resource.api_version()
        {
            let given = if api_version.is_empty() { resource.api_version() } else { api_version };
            let own = given.rsplit('/').next().unwrap_or_default().to_owned();
            let group =
                if resource.group.is_empty() { "core" } else { resource.group.split('.').next().unwrap_or_default() };
            return Err(match &resource.shape {
                Shape::Built(_) if given == resource.api_version() => Failure::bad_request(format!(
                    "{kind} in version {own:?} cannot be handled as a {}: converting ({own}.{kind}) to ({group}.{}): unknown conversion",
                    resource.kind, resource.kind
                )),
                Shape::Built(_) => Failure::bad_request(format!(
                    "{} in version {own:?} cannot be handled as a {}: no kind {:?} is registered for version {given:?} in scheme \"pkg/runtime/scheme.go:111\"",
                    resource.kind,
                    resource.kind,
                    if kind.is_empty() { &resource.kind } else { &kind }
                )),
                Shape::Custom(_) => Failure::bad_request(format!(
                    "the object provided is unrecognized (must be of type {}): no kind {kind:?} is registered for version {given:?}",
                    resource.kind
                )),
            });
        }
        value::set(&mut object, "kind", resource.kind.as_str());
        value::set(&mut object, "apiVersion", resource.api_version());
        let findings = match &resource.shape {
            Shape::Built(definition) => decode::check(definition, &object, &body.twice),
            Shape::Custom(custom) => structural::check(custom, &object, &body.twice),
        };
        if let Some(mismatch) = findings.mismatch {
            return Err(refuse(&mismatch));
        }
        self.judge(&findings.strict, |texts| refuse(&format!("strict decoding error: {texts}")))?;
        Ok(object)
    }

    /// Warns of what is unknown or given twice, or refuses it.
    pub(crate) fn judge(&mut self, findings: &[String], refuse: impl Fn(&str) -> Failure) -> Result<(), Failure> {
        if findings.is_empty() {
            return Ok(());
        }
        match self.strictness()? {
            Strictness::Ignore => {}
            Strictness::Warn => self.warnings.extend(findings.iter().cloned()),
            Strictness::Strict => return Err(refuse(&findings.join(", "))),
        }
        Ok(())
    }
}
