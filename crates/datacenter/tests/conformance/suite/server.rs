//! An API server under test, and how it is asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use castle_http::header::{HeaderName, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Identity, Method, Trust};
use castle_seams::{BoxFuture, Clock, SystemClock, TcpDial};
use serde_json::Value;

use super::authority::Issued;

/// Where a server is, whom to trust there, and who may show himself to it.
pub(crate) struct Server {
    /// What it is called in [`super::exceptions`]: `1.36`, `1.37`, `embedded`.
    pub(crate) name: String,
    /// `https://127.0.0.1:6443`.
    pub(crate) url: String,
    /// The authority of its certificate, as PEM.
    pub(crate) authority: String,
    /// One of `system:masters`.
    pub(crate) admin: Issued,
    /// `stranger` of the group `strangers`, to whom nothing is granted.
    pub(crate) stranger: Issued,
    /// The node `kubelet`.
    pub(crate) node: Issued,
    /// Makes its store forget what was before now.
    pub(crate) compact: Box<dyn Fn() -> BoxFuture<'static, ()>>,
}

/// What came back.
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Those that are told, in order.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// The JSON in the body: one document, or the events of a watch one after another.
    pub(crate) fn documents(&self) -> Option<Vec<Value>> {
        serde_json::Deserializer::from_str(&self.body).into_iter().collect::<Result<_, _>>().ok()
    }
}

/// Loopback answers at once or not at all.
const DIAL: Duration = Duration::from_secs(5);

/// The headers that are part of what a server promises.
const TOLD_HEADERS: [&str; 5] = ["content-type", "warning", "retry-after", "location", "allow"];

/// The clients of one server.
pub(crate) struct Clients {
    by_name: BTreeMap<&'static str, Client>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl Clients {
    pub(crate) fn new(server: &Server) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let client = |who: Option<&Issued>| {
            let endpoint = Endpoint::parse(&server.url).unwrap();
            let trust = Trust::Only(server.authority.clone());
            let client = Client::new(endpoint, &trust, Arc::new(TcpDial { timeout: DIAL }), clock.clone()).unwrap();
            match who {
                None => client,
                Some(who) => client.with_identity(&Identity::from_pem(&who.certificate, &who.key).unwrap()).unwrap(),
            }
        };
        let by_name = BTreeMap::from([
            ("admin", client(Some(&server.admin))),
            ("stranger", client(Some(&server.stranger))),
            ("node", client(Some(&server.node))),
            ("nobody", client(None)),
        ]);
        Self { by_name, clock }
    }

    /// Asks as somebody: by certificate, or by `bearer TOKEN`.
    pub(crate) async fn ask(
        &self,
        who: &str,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: &str,
    ) -> Result<Answer, String> {
        let mut ask = Ask::new(Method::from_bytes(method.as_bytes()).unwrap(), path);
        let header = |name: &str, value: &str| -> Result<(HeaderName, HeaderValue), String> {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
            Ok((name, HeaderValue::from_str(value).map_err(|error| error.to_string())?))
        };
        ask.headers.extend([header("accept", "application/json")?]);
        for (name, value) in headers {
            let (name, value) = header(name, value)?;
            ask.headers.insert(name, value);
        }
        let client = match who.strip_prefix("bearer ") {
            Some(token) => {
                ask.headers.extend([header("authorization", &format!("Bearer {token}"))?]);
                &self.by_name["nobody"]
            }
            None => self.by_name.get(who).ok_or_else(|| format!("nobody is called {who}"))?,
        };
        ask.body = body.to_owned().into();
        let answer = client.ask(&ask).await.map_err(|failure| failure.to_string())?;
        let mut told = Vec::new();
        for name in TOLD_HEADERS {
            let values = answer.headers.get_all(name).iter();
            told.extend(values.map(|value| (name.to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())));
        }
        let body = String::from_utf8_lossy(&answer.body).into_owned();
        Ok(Answer { status: answer.status.as_u16(), headers: told, body })
    }
}
