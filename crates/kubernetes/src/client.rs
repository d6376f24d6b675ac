//! The client of one API: one request, one answer, or one trouble with its class.

mod discovery;
mod request;
mod trouble;
mod watch;
mod words;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use castle_http::header::{HeaderMap, HeaderName, HeaderValue};
use castle_http::{Ask, Bytes, Client, Endpoint, Identity, Method, Trust};
use castle_seams::{Clock, Dial};
use futures_util::stream::{self, StreamExt};
use serde_json::{Map, Value, json};

use crate::model::{Kind, Object};

use request::Request;

pub use discovery::{Resource, Served};
pub use trouble::{Rival, Trouble};
pub use watch::{Event, Watch};
pub use words::{Access, AccessError, Applied, Listed, Mode, Scope};

/// What one request may take: a webhook behind it may take thirty seconds.
pub const DEADLINE: Duration = Duration::from_secs(60);
/// The longest answer: a page of the largest objects there are.
const LIMIT: usize = 256 << 20;
/// How many objects a page has. Definitions of kinds are up to half a megabyte each.
const PAGE: u32 = 500;
/// How many pages a list may have: beyond it somebody goes round in circles.
const PAGES: usize = 1000;
/// How long the API keeps a watch open before it is opened anew.
const WATCH: Duration = Duration::from_secs(240);

/// How many requests are under way at once, at most.
pub const CONCURRENCY: usize = 8;

/// How many idle connections are kept: several components are looked at at the same time.
const IDLE_CONNECTIONS: usize = 4 * CONCURRENCY;

/// What all these come to, in their order, so many of them at once.
pub(crate) async fn together<F: Future>(questions: Vec<F>) -> Vec<F::Output> {
    stream::iter(questions).buffered(CONCURRENCY).collect().await
}

/// One API.
pub struct Api {
    http: Client,
    headers: HeaderMap,
    clock: Arc<dyn Clock>,
    served: Mutex<Option<Arc<Served>>>,
    /// Held by whoever finds out first what is served: the others wait for him.
    finding_out: tokio::sync::Mutex<()>,
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("endpoint", &self.http.endpoint().host).finish_non_exhaustive()
    }
}

impl Api {
    /// The API behind this address. Asks nothing yet.
    ///
    /// # Errors
    ///
    /// [`AccessError`] if the address is none, or certificate and key do not belong together.
    pub fn new(access: &Access, dial: Arc<dyn Dial>, clock: Arc<dyn Clock>) -> Result<Self, AccessError> {
        let unfit = |why: &dyn fmt::Display| AccessError(why.to_string());
        let address = match access.is_plain {
            true => access.address.replace("https://", "http://"),
            false => access.address.clone(),
        };
        let endpoint = Endpoint::parse(&address).map_err(|error| unfit(&error))?;
        let trust = Trust::Only(access.authority.clone());
        let http = Client::new(endpoint, &trust, dial, clock.clone()).map_err(|error| unfit(&error))?;
        let mut http = http.with_deadline(DEADLINE).with_limit(LIMIT).with_idle_connections(IDLE_CONNECTIONS);
        let mut headers = HeaderMap::new();
        if access.is_plain {
            let inside: String = access.certificate.lines().filter(|line| !line.starts_with("-----")).collect();
            let value = HeaderValue::from_str(&inside).map_err(|error| unfit(&error))?;
            headers.insert(HeaderName::from_static(CERTIFICATE), value);
        } else {
            let identity =
                Identity::from_pem(&access.certificate, access.key.expose()).map_err(|error| unfit(&error))?;
            http = http.with_identity(&identity).map_err(|error| unfit(&error))?;
        }
        Ok(Self { http, headers, clock, served: Mutex::default(), finding_out: tokio::sync::Mutex::default() })
    }

    /// The time, for what depends on it.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    /// Allows each request this time, and not [`DEADLINE`].
    #[must_use]
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { http: self.http.with_deadline(deadline), ..self }
    }

    /// What a path answers, whatever it is: a status and a body.
    ///
    /// # Errors
    ///
    /// [`Trouble::Unanswered`] if there is no answer.
    pub async fn raw(&self, path: &str) -> Result<(u16, Bytes), Trouble> {
        let mut ask = Ask::new(Method::GET, path);
        ask.headers.extend(self.headers.clone());
        let answer = self.http.ask(&ask).await?;
        Ok((answer.status.as_u16(), answer.body))
    }

    /// The object of this name, if there is one.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if the API does not say.
    pub async fn get(&self, kind: &Kind, namespace: &str, name: &str) -> Result<Option<Object>, Trouble> {
        let Some(resource) = self.resource(kind).await? else { return Ok(None) };
        match self.send(Request::get(&resource, namespace, name)?).await {
            Ok(value) => Object::told(value, kind).map(Some).ok_or_else(|| Trouble::nonsense("an object")),
            Err(trouble) if trouble.is_absent() => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// The objects of a kind within a scope. A kind that is not served has none.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if the API does not say.
    pub async fn list(&self, kind: &Kind, scope: &Scope) -> Result<Listed, Trouble> {
        let Some(resource) = self.resource(kind).await? else {
            return Ok(Listed { objects: Vec::new(), version: String::new() });
        };
        let (mut objects, mut after) = (Vec::new(), String::new());
        for _ in 0..PAGES {
            let request = Request::about_all(&resource, &scope.namespace).with("limit", &PAGE.to_string());
            let request = request.with("labelSelector", &scope.labels).with("fieldSelector", &scope.fields);
            let mut page = self.send(request.with("continue", &after)).await?;
            let Value::Array(items) = page["items"].take() else { return Err(Trouble::nonsense("a list")) };
            objects.extend(items.into_iter().filter_map(|item| Object::told(item, kind)));
            let text = |key: &str| page["metadata"][key].as_str().unwrap_or_default().to_owned();
            match text("continue") {
                token if token.is_empty() => return Ok(Listed { objects, version: text("resourceVersion") }),
                token => after = token,
            }
        }
        Err(Trouble::nonsense("a list that ends"))
    }

    /// Says what castle wants of an object, never by force.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if it is not accepted; [`Trouble::rivals`] tells who else wants something else.
    pub async fn apply(&self, object: &Object, mode: Mode) -> Result<Applied, Trouble> {
        let kind = object.kind();
        let resource = self.resource(&kind).await?.ok_or_else(|| Trouble::NotServed(kind.clone()))?;
        let request = Request::apply(&resource, object.namespace(), object.name(), object.value())?;
        // What is kept is never had by force.
        let force = if mode == Mode::Suppose { "true" } else { "" };
        let request = request.meant(mode).with("force", force).by_castle().with("fieldValidation", "Strict");
        let (status, value) = self.exchange(request.ask()).await?;
        let object = Object::told(value, &kind).ok_or_else(|| Trouble::nonsense("an object"))?;
        Ok(Applied { object, is_new: status == 201 })
    }

    /// Changes labels and managers of the very object that was seen. If it has changed since, it is a conflict.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if it is not accepted.
    pub async fn relabel(&self, seen: &Object, metadata: Map<String, Value>) -> Result<(), Trouble> {
        self.amend(seen, metadata, &Value::Object(Map::new())).await
    }

    /// Changes fields of the very object that was seen. If it has changed since, it is a conflict, and nothing is changed.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if it is not accepted.
    pub async fn amend(&self, seen: &Object, metadata: Map<String, Value>, spec: &Value) -> Result<(), Trouble> {
        let kind = seen.kind();
        let resource = self.resource(&kind).await?.ok_or_else(|| Trouble::NotServed(kind.clone()))?;
        let mut metadata = metadata;
        for precondition in ["uid", "resourceVersion"] {
            metadata.insert(precondition.to_owned(), seen.at(&format!("/metadata/{precondition}")).clone());
        }
        let mut patch = json!({ "metadata": metadata });
        if spec.as_object().is_some_and(|spec| !spec.is_empty()) {
            patch["spec"] = spec.clone();
        }
        self.send(Request::merge(&resource, seen.namespace(), seen.name(), &patch)?).await.map(drop)
    }

    /// Changes these fields of the very object that was seen, whatever else has changed in it since.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if it is not accepted. One that is gone already, or is another by now, is none.
    pub async fn alter(&self, seen: &Object, labels: &Value, spec: &Value) -> Result<(), Trouble> {
        let Some(resource) = self.resource(&seen.kind()).await? else { return Ok(()) };
        let patch = json!({"metadata": {"uid": seen.at("/metadata/uid"), "labels": labels}, "spec": spec});
        match self.send(Request::merge(&resource, seen.namespace(), seen.name(), &patch)?).await {
            Err(trouble) if !trouble.is_absent() && !trouble.is_conflict() => Err(trouble),
            _ => Ok(()),
        }
    }

    /// Asks the very Pod that was seen to leave its node, as far as its budget allows.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if that is refused. One that is another by now is none.
    pub async fn evict(&self, pod: &Object, mode: Mode) -> Result<(), Trouble> {
        let kind = pod.kind();
        let resource = self.resource(&kind).await?.ok_or_else(|| Trouble::NotServed(kind.clone()))?;
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": pod.name(), "namespace": pod.namespace()},
            "deleteOptions": {"preconditions": {"uid": pod.at("/metadata/uid")}},
        });
        let request = Request::create_below(&resource, (pod.namespace(), pod.name()), "eviction", &eviction)?;
        match self.send(request.meant(mode)).await {
            Err(trouble) if !trouble.is_conflict() => Err(trouble),
            _ => Ok(()),
        }
    }

    /// Removes the very object that was seen, and what it owns after it.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if that is refused. One that is gone already, or is another by now, is none.
    pub async fn delete(&self, seen: &Object) -> Result<(), Trouble> {
        let Some(resource) = self.resource(&seen.kind()).await? else { return Ok(()) };
        let mut options = json!({"propagationPolicy": "Background"});
        if let uid @ Value::String(_) = seen.at("/metadata/uid") {
            options["preconditions"] = json!({ "uid": uid });
        }
        match self.send(Request::delete(&resource, seen.namespace(), seen.name(), &options)?).await {
            Err(trouble) if !trouble.is_absent() && !trouble.is_conflict() => Err(trouble),
            _ => Ok(()),
        }
    }

    /// What happens to objects of a kind within a scope, from a version on.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if there is nothing to be seen.
    pub async fn watch(&self, kind: &Kind, scope: &Scope, version: &str) -> Result<Watch, Trouble> {
        let resource = self.resource(kind).await?.ok_or_else(|| Trouble::NotServed(kind.clone()))?;
        let request = Request::about_all(&resource, &scope.namespace).with("watch", "true");
        let request = request.with("timeoutSeconds", &WATCH.as_secs().to_string());
        let request = request.with("fieldSelector", &scope.fields).with("labelSelector", &scope.labels);
        let request = request.with("allowWatchBookmarks", "true").with("resourceVersion", version);
        let mut ask = request.ask();
        ask.headers.extend(self.headers.clone());
        let mut stream = self.http.open(&ask).await?;
        if stream.status.is_success() {
            return Ok(Watch::new(stream, kind.clone()));
        }
        let mut body = Vec::new();
        while let Some(piece) = stream.next().await? {
            body.extend_from_slice(&piece);
            if body.len() > LIMIT {
                break;
            }
        }
        Err(Trouble::refused(stream.status.as_u16(), &stream.headers, &body))
    }

    /// What is served, as last heard.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if nothing was heard yet and nothing is.
    pub async fn served(&self) -> Result<Arc<Served>, Trouble> {
        let known = || self.served.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(served) = known() {
            return Ok(served);
        }
        let _turn = self.finding_out.lock().await;
        match known() {
            Some(served) => Ok(served),
            None => self.discover().await,
        }
    }

    /// Asks anew what is served.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if the API does not say.
    pub async fn discover(&self) -> Result<Arc<Served>, Trouble> {
        let mut served = Served::default();
        let asks = ["/api", "/apis"].map(|path| {
            let mut ask = Ask::new(Method::GET, path);
            ask.headers.insert(castle_http::header::ACCEPT, HeaderValue::from_static(discovery::ACCEPT));
            self.told(ask)
        });
        for told in together(asks.into()).await {
            served.add(told?)?;
        }
        let served = Arc::new(served);
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some(served.clone());
        Ok(served)
    }

    /// Where objects of a kind are. Kinds come into being while castle works: one that is not known is looked for once more.
    async fn resource(&self, kind: &Kind) -> Result<Option<Resource>, Trouble> {
        if let Some(resource) = self.served().await?.resource(kind) {
            return Ok(Some(resource.clone()));
        }
        Ok(self.discover().await?.resource(kind).cloned())
    }

    async fn send(&self, request: Request) -> Result<Value, Trouble> {
        self.told(request.ask()).await
    }

    async fn told(&self, ask: Ask) -> Result<Value, Trouble> {
        Ok(self.exchange(ask).await?.1)
    }

    async fn exchange(&self, mut ask: Ask) -> Result<(u16, Value), Trouble> {
        ask.headers.extend(self.headers.clone());
        let answer = self.http.ask(&ask).await?;
        let status = answer.status.as_u16();
        if !answer.status.is_success() {
            return Err(Trouble::refused(status, &answer.headers, &answer.body));
        }
        let value = serde_json::from_slice(&answer.body).map_err(|_| Trouble::nonsense("JSON"))?;
        Ok((status, value))
    }
}

/// Under this name an API in memory is told the certificate, as base64, where there is no TLS to say it.
const CERTIFICATE: &str = "castle-client-certificate";
