//! Plays scenarios to a server and tells what it answered.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use regex::Regex;
use serde_json::Value;

use super::hooks::Hook;
use super::normal::Names;
use super::path;
use super::script::{Act, Request, Scenario, Script};
use super::server::{Answer, Clients, Server};
use super::transcript::{Told, pretty};

/// How often something is asked again until it holds, and how long between.
const TRIES: usize = 150;
const PAUSE: Duration = Duration::from_millis(100);

/// What is told where nothing came, or not what was waited for.
pub(crate) const NO_ANSWER: &str = "no answer";
pub(crate) const IN_VAIN: &str = "waited in vain";

/// Runs `kubectl` with words and an input, and gives its status and what it said.
pub(crate) type Kubectl<'a> = &'a dyn Fn(&str, &str) -> String;

/// Plays a whole theme; each scenario has the namespace `THEME-NUMBER`.
pub(crate) async fn play(server: &Server, theme: &str, script: &Script, kubectl: Option<Kubectl<'_>>) -> Vec<Told> {
    let clients = Clients::new(server);
    let mut told = Vec::new();
    for (at, scenario) in script.scenarios.iter().enumerate() {
        let namespace = format!("{theme}-{}", at + 1);
        told.push(Stage::new(server, &clients, kubectl, &namespace).await.play(scenario).await);
    }
    told
}

/// One scenario being played.
struct Stage<'a> {
    server: &'a Server,
    clients: &'a Clients,
    kubectl: Option<Kubectl<'a>>,
    names: Names,
    hooks: BTreeMap<String, Hook>,
}

impl<'a> Stage<'a> {
    async fn new(server: &'a Server, clients: &'a Clients, kubectl: Option<Kubectl<'a>>, namespace: &str) -> Self {
        let mut names = Names::new();
        names.set("ns", namespace);
        let json = ("content-type".to_owned(), "application/json".to_owned());
        let body = format!(r#"{{"metadata": {{"name": "{namespace}"}}}}"#);
        let made = clients.ask("admin", "POST", "/api/v1/namespaces", &[json], &body).await;
        assert_eq!(made.map(|answer| answer.status), Ok(201), "the namespace {namespace}");
        Self { server, clients, kubectl, names, hooks: BTreeMap::new() }
    }

    async fn play(mut self, scenario: &Scenario) -> Told {
        let mut blocks = Vec::new();
        for act in &scenario.acts {
            match act {
                Act::Compact => (self.server.compact)().await,
                Act::Hook { name, mood } => self.hook(name, mood).await,
                Act::Seen { name } => blocks.push(self.seen(name)),
                Act::Kubectl { line, words, input, only } => {
                    blocks.push(self.kubectl(line, words, input, only.as_deref()));
                }
                Act::Request(request) => blocks.push(self.request(request).await),
            }
        }
        Told { title: scenario.title.clone(), blocks }
    }

    async fn hook(&mut self, name: &str, mood: &str) {
        if !self.hooks.contains_key(name) {
            let hook = Hook::new().await;
            self.names.set(&format!("{name}.url"), &format!("https://{}", hook.address()));
            self.names.set(&format!("{name}.address"), &hook.address());
            self.names.set(&format!("{name}.ca"), &hook.authority());
            self.hooks.insert(name.to_owned(), hook);
        }
        if let Some(hook) = self.hooks.get_mut(name) {
            hook.be(mood).await;
        }
    }

    fn seen(&mut self, name: &str) -> String {
        let mut text = format!("SEEN {name}\n");
        for review in self.hooks.get(name).map(Hook::seen).unwrap_or_default() {
            let _ = writeln!(text, "{}", pretty(&self.names.value(&review)));
        }
        text.trim_end().to_owned()
    }

    fn kubectl(&mut self, line: &str, words: &str, input: &str, only: Option<&str>) -> String {
        let kubectl = self.kubectl.expect("this theme is played with kubectl");
        let said = kubectl(&self.names.fill(words), &self.names.fill(input));
        let only = only.map(|pattern| Regex::new(pattern).unwrap());
        let mut text = line.to_owned();
        for said in said.lines().filter(|line| !line.trim().is_empty()) {
            if only.as_ref().is_none_or(|only| only.is_match(said)) {
                let _ = write!(text, "\n{}", self.names.printed(said));
            }
        }
        text
    }

    async fn request(&mut self, request: &Request) -> String {
        let (path, body) = (self.names.fill(&request.path), self.names.fill(&request.body));
        let who = self.names.fill(&request.who);
        let headers: Vec<(String, String)> =
            request.headers.iter().map(|(name, value)| (name.clone(), self.names.fill(value))).collect();
        let mut tries = 0;
        loop {
            let answer = self.clients.ask(&who, &request.method, &path, &headers, &body).await;
            tries += 1;
            match answer {
                Ok(answer) if holds(&answer, &request.until) => return self.told(request, &answer),
                Ok(answer) if tries == TRIES => return format!("{}\n{IN_VAIN}", self.told(request, &answer)),
                Err(failure) if request.until.is_empty() || tries == TRIES => {
                    return format!("{}\n{NO_ANSWER}: {}", request.line, self.names.text(&failure));
                }
                _ => self.clients.clock.sleep(PAUSE).await,
            }
        }
    }

    fn told(&mut self, request: &Request, answer: &Answer) -> String {
        let documents = answer.documents();
        for (name, place) in &request.takes {
            let value = documents.iter().flatten().find_map(|document| path::text(document, place));
            self.names.set(name, &value.unwrap_or_default());
        }
        let mut text = format!("{}\n{}", request.line, answer.status);
        for (name, value) in &answer.headers {
            match (name.as_str(), value.as_str()) {
                ("content-type", "application/json") => {}
                ("content-type", other) => {
                    let _ = write!(text, " {other}");
                }
                (name, value) => {
                    let _ = write!(text, "\n{name}: {}", self.names.text(value));
                }
            }
        }
        match documents {
            None => {
                let _ = write!(text, "\n{}", self.names.text(answer.body.trim()).replace("\n\n", "\n"));
            }
            Some(documents) => {
                for document in &documents {
                    self.document(request, document, &mut text);
                }
            }
        }
        text
    }

    fn document(&mut self, request: &Request, document: &Value, text: &mut String) {
        // An error is told whole whatever was to be shown: it is shorter than it would be to guess.
        if request.shows.is_empty() || document["kind"] == "Status" {
            let mut told = self.names.value(document);
            if request.unordered {
                order_causes(&mut told);
            }
            let _ = write!(text, "\n{}", pretty(&told));
            return;
        }
        for place in &request.shows {
            let found: Vec<Value> =
                path::find(document, place).into_iter().map(|value| self.names.value(value)).collect();
            let found = if place.contains("[*]") {
                Value::Array(found)
            } else {
                found.into_iter().next().unwrap_or(Value::Null)
            };
            let _ = write!(text, "\n{place} = {}", pretty(&found));
        }
    }
}

/// Puts causes in order; the message, which holds them all once more, is told up to the first.
fn order_causes(status: &mut Value) {
    if let Some(causes) = status["details"]["causes"].as_array_mut() {
        causes.sort_by_key(Value::to_string);
    }
    let message = status["message"].as_str().and_then(|message| message.split_once('['));
    if let Some(message) = message.map(|(start, _)| format!("{start}[<causes>]")) {
        status["message"] = message.into();
    }
}

fn holds(answer: &Answer, until: &[(String, String)]) -> bool {
    let documents = answer.documents().unwrap_or_default();
    until.iter().all(|(place, wanted)| match place.as_str() {
        "status" => answer.status.to_string() == *wanted,
        place if wanted == "absent" => documents.iter().all(|document| path::text(document, place).is_none()),
        place => documents.iter().any(|document| path::text(document, place).as_deref() == Some(wanted)),
    })
}
