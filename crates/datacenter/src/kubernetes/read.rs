//! Objects that are looked at: one, many, and as they change.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use super::api::{Call, self_version};
use super::kinds::Resource;
use super::kube::Kube;
use super::selectors::{Fields, Labels};
use super::status::{Cause, Failure};
use super::store::{Place, Turn};
use super::workloads::nodes::heartbeats::rhythm;
use super::{table, value};

/// How long a watch lasts at least where nobody says; at most it is twice as long.
const WATCH: Duration = Duration::from_secs(1_800);
/// How often a watch is told how far it has come.
const BOOKMARK: Duration = Duration::from_secs(60);

/// The revision of a list that goes on with whatever there is.
const ANY_REVISION: u64 = u64::MAX;

/// What a client shows to get what comes after a place.
fn continued(revision: u64, (namespace, name): &Place) -> String {
    let token = json!({ "v": "meta.k8s.io/v1", "rv": revision, "start": format!("{namespace}/{name}\u{0}") });
    URL_SAFE_NO_PAD.encode(token.to_string())
}

/// A choice among the objects of a collection.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub(crate) collection: String,
    pub(crate) namespace: String,
    labels: Labels,
    fields: Fields,
}

impl Choice {
    pub(crate) fn chooses(&self, object: &Value) -> bool {
        (self.namespace.is_empty() || value::namespace(object) == self.namespace)
            && self.labels.chooses(object)
            && self.fields.chooses(object)
    }
}

/// A stream of changes. Its times are those of whoever watches, since he began: he waits on another clock than the world's.
#[derive(Debug)]
pub(crate) struct Watch {
    resource: Arc<Resource>,
    choice: Choice,
    /// All up to this change was told.
    seen: u64,
    /// What is told before anything else.
    first: Vec<Value>,
    lasts: Duration,
    bookmark: Option<Duration>,
    /// When to look for what nobody tells, and how often.
    rhythm: Option<(Duration, Duration)>,
    table: Option<table::Form>,
    is_over: bool,
}

impl Kube {
    pub(crate) fn choice(&self, call: &Call<'_>) -> Result<Choice, Failure> {
        let (resource, query) = (&call.resource, &call.ask.query);
        let collection = resource.collection();
        let custom = resource.custom().map(|custom| custom.selectable.as_slice());
        let of = resource.qualified();
        let mut fields = Fields::parse(&of, custom, query.get("fieldSelector").unwrap_or_default())?;
        if !call.target.name.is_empty() {
            fields = Fields::parse(&of, custom, &format!("metadata.name={}", call.target.name))?;
        }
        Ok(Choice {
            collection,
            namespace: call.target.namespace.clone(),
            labels: Labels::parse(query.get("labelSelector").unwrap_or_default())?,
            fields,
        })
    }

    /// `GET` of one object.
    pub(crate) fn read(&self, call: &Call<'_>) -> Result<Arc<Value>, Failure> {
        self.check_version(call)?;
        let found = self.get(&call.resource.collection(), &call.target.namespace, &call.target.name);
        found.ok_or_else(|| Failure::not_found(&call.resource, &call.target.name))
    }

    /// `GET` of many.
    pub(crate) fn list(&self, call: &Call<'_>) -> Result<Value, Failure> {
        let query = &call.ask.query;
        let choice = self.choice(call)?;
        self.check_version(call)?;
        if let Some(limit) = query.get("limit").filter(|limit| limit.parse::<i64>().is_err()) {
            return Err(Failure::bad_request(format!("strconv.ParseInt: parsing {limit:?}: invalid syntax")));
        }
        let limit =
            query.number("limit").filter(|limit| *limit > 0).map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let (from, revision) = match query.get("continue") {
            Some(token) => self.resume(token)?,
            None if query.get("resourceVersionMatch") == Some("Exact") => {
                (None, query.number("resourceVersion").unwrap_or(0))
            }
            None => (None, self.store.revision()),
        };
        let known: Vec<Arc<Value>> = if revision == self.store.revision() {
            self.store.all(&choice.collection, &choice.namespace).cloned().collect()
        } else {
            self.store.at(&choice.collection, revision).into_values().collect()
        };
        let is_ahead = |object: &Arc<Value>| {
            let place = (value::namespace(object), value::name(object));
            from.as_ref().is_none_or(|(namespace, name)| place > (namespace.as_str(), name.as_str()))
        };
        let mut objects = known.iter().filter(|object| is_ahead(object) && choice.chooses(object));
        let page: Vec<&Arc<Value>> = objects.by_ref().take(limit.unwrap_or(usize::MAX)).collect();
        let rest = limit.map_or(0, |_| objects.count());
        let custom = call.resource.custom().is_some();
        let mut metadata = json!({ "resourceVersion": revision.to_string() });
        if custom {
            value::set(&mut metadata, "continue", "");
        }
        if rest > 0
            && let Some(last) = page.last()
        {
            let place = (value::namespace(last).to_owned(), value::name(last).to_owned());
            value::set(&mut metadata, "continue", continued(revision, &place));
            if choice.labels.is_empty() && choice.fields.is_empty() {
                value::set(&mut metadata, "remainingItemCount", rest);
            }
        }
        let items: Vec<Value> = page
            .into_iter()
            .map(|object| {
                let mut object = self_version(&call.resource, object);
                if !custom {
                    value::remove(&mut object, "kind");
                    value::remove(&mut object, "apiVersion");
                }
                object
            })
            .collect();
        Ok(
            json!({ "kind": call.resource.list_kind, "apiVersion": call.resource.api_version(), "metadata": metadata, "items": items }),
        )
    }

    /// Judges what version of the collection is asked for.
    fn check_version(&self, call: &Call<'_>) -> Result<(), Failure> {
        let query = &call.ask.query;
        let invalid = |cause| Failure::invalid_kind("meta.k8s.io", "ListOptions", "", &[cause]);
        let given = query.get("resourceVersion");
        let matching = query.get("resourceVersionMatch");
        if matching.is_some() && given.is_none() && !query.is_true("sendInitialEvents") {
            let text = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(invalid(Cause::forbidden("resourceVersionMatch", text)));
        }
        if let Some(word) = matching.filter(|word| !["Exact", "NotOlderThan"].contains(word)) {
            return Err(invalid(Cause::unsupported(
                "resourceVersionMatch",
                &json!(word),
                &["Exact", "NotOlderThan", ""],
            )));
        }
        if given.is_some() && query.get("continue").is_some() {
            let text = "specifying resource version is not allowed when using continue";
            return Err(Failure::bad_request(text));
        }
        if matching == Some("Exact") && given == Some("0") {
            let text = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            return Err(invalid(Cause::forbidden("resourceVersionMatch", text)));
        }
        let Some(given) = given else { return Ok(()) };
        let Ok(version) = given.parse::<u64>() else {
            let text = format!(
                "invalid resource version: resourceVersion: Invalid value: {given:?}: strconv.ParseUint: parsing {given:?}: invalid syntax"
            );
            return Err(Failure::bad_request(text));
        };
        let current = self.store.revision();
        if version > current {
            let details = json!({ "causes": [{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }], "retryAfterSeconds": 1 });
            let text = format!("Timeout: Too large resource version: {version}, current: {current}");
            return Err(Failure::new(504, "Timeout", text).with_details(details));
        }
        if matching == Some("Exact") && version != 0 && version < self.store.compacted() {
            return Err(Failure::expired("The resourceVersion for the provided list is too old."));
        }
        Ok(())
    }

    fn resume(&self, token: &str) -> Result<(Option<Place>, u64), Failure> {
        let read = || -> Option<(Place, u64)> {
            let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
            let token: Value = serde_json::from_slice(&bytes).ok()?;
            let (namespace, name) = value::text(&token, "start").split_once('/')?;
            Some(((namespace.to_owned(), name.trim_end_matches('\u{0}').to_owned()), token.get("rv")?.as_u64()?))
        };
        let Some((place, revision)) = read() else {
            let why = match URL_SAFE_NO_PAD.decode(token) {
                Err(_) => "illegal base64 data at input byte 0".to_owned(),
                Ok(bytes) => {
                    let first = bytes.first().map(|byte| char::from(*byte)).unwrap_or_default();
                    let shown =
                        if first.is_control() { format!("\\u{:04x}", u32::from(first)) } else { first.to_string() };
                    format!("invalid character '{shown}' looking for beginning of value")
                }
            };
            return Err(Failure::bad_request(format!("invalid continue token: continue key is not valid: {why}")));
        };
        if revision < self.store.compacted() && revision != ANY_REVISION {
            let text = "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
                        the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
                        Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
                        deleted between the time the first chunk was returned and now may show up in the list.";
            let token = continued(ANY_REVISION, &place);
            return Err(Failure { resumes: Some(token), ..Failure::expired(text) });
        }
        // Whoever goes on after that takes what there is.
        let revision = if revision == ANY_REVISION { self.store.revision() } else { revision };
        Ok((Some(place), revision))
    }

    /// `GET` of many as they change.
    pub(crate) fn watch(&mut self, call: &Call<'_>) -> Result<Watch, Failure> {
        let query = &call.ask.query;
        let choice = self.choice(call)?;
        let given = query.get("resourceVersion").unwrap_or_default();
        let Ok(version) = (if given.is_empty() { Ok(0) } else { given.parse::<u64>() }) else {
            let text = format!(
                "resourceVersion: Invalid value: {given:?}: strconv.ParseUint: parsing {given:?}: invalid syntax"
            );
            return Err(Failure::new(500, "", text));
        };
        let wants_bookmarks = query.is_true("allowWatchBookmarks");
        if query.get("sendInitialEvents").is_some() && query.get("resourceVersionMatch") != Some("NotOlderThan") {
            let text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            let cause = Cause::forbidden("resourceVersionMatch", text);
            return Err(Failure::invalid_kind("meta.k8s.io", "ListOptions", "", &[cause]));
        }
        if let Some(word) = query.get("resourceVersionMatch").filter(|_| query.get("sendInitialEvents").is_none()) {
            let path = "resourceVersionMatch";
            let mut causes = vec![Cause::forbidden(
                path,
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )];
            if word != "NotOlderThan" {
                causes.push(Cause::unsupported(path, &json!(word), &["NotOlderThan"]));
            }
            return Err(Failure::invalid_kind("meta.k8s.io", "ListOptions", "", &causes));
        }
        let sends_state =
            query.is_true("sendInitialEvents") || query.get("sendInitialEvents").is_none() && version == 0;
        let seconds = query.number("timeoutSeconds").filter(|seconds| *seconds > 0);
        let lasts = match seconds {
            Some(seconds) => Duration::from_secs(seconds),
            None => WATCH + Duration::from_secs(self.number("kubernetes watch") % WATCH.as_secs()),
        };
        let mut watch = Watch {
            resource: call.resource.clone(),
            choice,
            seen: version,
            first: Vec::new(),
            lasts,
            bookmark: wants_bookmarks.then_some(BOOKMARK),
            rhythm: rhythm(&call.resource.qualified()).map(|rhythm| (rhythm, rhythm)),
            table: table::Form::of(&call.ask.accept, query),
            is_over: false,
        };
        if sends_state || query.get("sendInitialEvents").is_some() {
            watch.seen = self.store.revision();
            if sends_state {
                let known = self.store.all(&watch.choice.collection, &watch.choice.namespace);
                let known: Vec<Arc<Value>> = known.filter(|object| watch.choice.chooses(object)).cloned().collect();
                watch.first = known.iter().map(|object| watch.event(self, "ADDED", object)).collect();
            }
            if (query.is_true("sendInitialEvents") || given.is_empty()) && wants_bookmarks {
                let annotations = json!({ "k8s.io/initial-events-end": "true" });
                let event = watch.bookmark_at(self.store.revision(), Some(annotations));
                watch.first.push(event);
            }
        } else if version < self.store.compacted() {
            let text = format!("too old resource version: {version} ({})", self.store.compacted());
            watch.first.push(json!({ "type": "ERROR", "object": Failure::expired(text).status() }));
            watch.is_over = true;
        }
        Ok(watch)
    }
}

impl Watch {
    fn event(&self, kube: &Kube, turn: &str, object: &Value) -> Value {
        let object = self_version(&self.resource, object);
        let object = match &self.table {
            Some(form) => table::of_one(kube, &self.resource, form, &object),
            None => object,
        };
        json!({ "type": turn, "object": object })
    }

    fn bookmark_at(&self, revision: u64, annotations: Option<Value>) -> Value {
        let mut object = json!({
            "kind": self.resource.kind, "apiVersion": self.resource.api_version(),
            "metadata": { "resourceVersion": revision.to_string() },
        });
        if let Some(annotations) = annotations {
            value::set(&mut object, "metadata.annotations", annotations);
        }
        json!({ "type": "BOOKMARK", "object": object })
    }

    /// Whether nothing more is told.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over && self.first.is_empty()
    }

    /// What there is to tell after this time.
    pub(crate) fn next(&mut self, kube: &Kube, passed: Duration) -> Vec<Value> {
        if let Some((at, rhythm)) = &mut self.rhythm
            && passed >= *at
        {
            *at = passed + *rhythm;
        }
        let mut told = std::mem::take(&mut self.first);
        if self.is_over {
            return told;
        }
        let revision = kube.store.revision();
        if self.seen < revision {
            if self.seen < kube.store.compacted() {
                let text = format!("too old resource version: {} ({})", self.seen, kube.store.compacted());
                told.push(json!({ "type": "ERROR", "object": Failure::expired(text).status() }));
                self.is_over = true;
                return told;
            }
            for change in kube.store.since(&self.choice.collection, self.seen) {
                let was = change.previous.as_ref().is_some_and(|old| self.choice.chooses(old));
                let is = change.turn != Turn::Deleted && self.choice.chooses(&change.object);
                let turn = match (was, is) {
                    (false, true) => "ADDED",
                    (true, true) => "MODIFIED",
                    (true, false) => "DELETED",
                    (false, false) => continue,
                };
                // What no longer is chosen is told as it last was.
                let mut object = Value::clone(match &change.previous {
                    Some(previous) if turn == "DELETED" => previous,
                    _ => &change.object,
                });
                value::set(&mut object, "metadata.resourceVersion", change.revision.to_string());
                told.push(self.event(kube, turn, &object));
            }
            self.seen = revision;
        }
        // A resource that is served no more ends its watches.
        let is_served = kube.resource(&self.resource.group, &self.resource.version, &self.resource.plural).is_some();
        if passed >= self.lasts || !is_served {
            self.is_over = true;
        }
        if self.bookmark.is_some_and(|at| passed >= at) {
            self.bookmark = Some(passed + BOOKMARK);
            told.push(self.bookmark_at(revision, None));
        }
        told
    }

    /// When there is something to tell even if nothing happens.
    pub(crate) fn wakes(&self) -> Duration {
        let looks = [self.bookmark, self.rhythm.map(|(at, _)| at)];
        looks.into_iter().flatten().min().map_or(self.lasts, |at| at.min(self.lasts))
    }

    /// The collection that is watched.
    pub(crate) fn collection(&self) -> &str {
        &self.choice.collection
    }
}
