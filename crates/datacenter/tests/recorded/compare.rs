//! What differs between a recorded answer and the one that is given here.
//!
//! Everything counts, sentences and numbers too, but for what is another in every run: times, numbers of processes, hardware
//! addresses, checksums of files, speeds, and how much of the host is in use.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::probes::Probe;

/// Something that is not as it was recorded.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    pub(crate) probe: String,
    /// Where: `json.data.name`, `task.exitstatus`, `log`.
    pub(crate) place: String,
    pub(crate) recorded: Value,
    pub(crate) here: Value,
}

/// Numbers that are another on every host and in every run. That they are there counts, and whether they are nothing, for what does
/// not run uses nothing.
const NUMBERS: &[&str] = &[
    "avail",
    "cpu",
    "ctime",
    "disk",
    "maxdisk of node",
    "maxmem of node",
    "mem",
    "memhost",
    "netin",
    "netout",
    "pid",
    "pstart",
    "starttime",
    "uptime",
    "used",
    "used_fraction",
];

/// Those of them that are measured between two looks: of what runs they are nothing at the first, or where the host does not count.
const MEASURED: &[&str] = &["cpu", "mem", "memhost"];

/// Texts that are another on every host and in every run; that they are there counts.
const TEXTS: &[&str] = &["address", "bridge_ports", "cidr", "digest", "ip", "ssl_fingerprint"];

/// What is replaced in texts before they are compared, and what by.
static VEILED: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    let pairs = [
        (r"UPID:pve1:[0-9A-F]{8}:[0-9A-F]{8}:[0-9A-F]{8}:", "UPID:pve1:*:*:*:"),
        (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<uuid>"),
        (r"BC:24:11(:[0-9A-F]{2}){3}", "<mac>"),
        (r"creation-qemu=[0-9.]+,ctime=[0-9]+", "creation-qemu=*,ctime=*"),
        (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "<time>"),
        (r"tmp_dwnl\.\d+", "tmp_dwnl.*"),
        (r"\([0-9.]+ [KMG]?B/s\)", "(*)"),
        (r" +[0-9.]+[KMG]=[0-9.]+s", " *"),
        (r"got '[0-9a-f]{64}'", "got '*'"),
    ];
    pairs.into_iter().map(|(pattern, by)| (Regex::new(pattern).unwrap(), by)).collect()
});

fn veiled(text: &str) -> String {
    VEILED.iter().fold(text.to_owned(), |text, (pattern, by)| pattern.replace_all(&text, *by).into_owned())
}

/// All differences of one request.
pub(crate) fn differences(recorded: &Probe, here: &Probe) -> Vec<Difference> {
    let mut found = Found { probe: recorded.name.clone(), all: Vec::new() };
    found.texts("status", &json!(recorded.status), &json!(here.status));
    found.texts("reason", &json!(recorded.reason), &json!(here.reason));
    found.texts("content-type", &json!(recorded.ctype), &json!(here.ctype));
    found.values("json", &json!(recorded.json), &json!(here.json));
    found.values("task", &json!(recorded.task), &json!(here.task));
    found.texts("log", &json!(recorded.log), &json!(here.log));
    found.all
}

/// Of lines, those that differ: without the first and the last ones that are the same.
fn apart(recorded: Value, here: Value) -> (Value, Value) {
    match (recorded, here) {
        (Value::Array(mut one), Value::Array(mut other)) => {
            let head = one.iter().zip(&other).take_while(|(one, other)| one == other).count();
            (one, other) = (one.split_off(head), other.split_off(head));
            while one.last().is_some() && one.last() == other.last() {
                one.pop();
                other.pop();
            }
            (Value::Array(one), Value::Array(other))
        }
        pair => pair,
    }
}

struct Found {
    probe: String,
    all: Vec<Difference>,
}

impl Found {
    fn add(&mut self, place: &str, recorded: &Value, here: &Value) {
        let (probe, place) = (self.probe.clone(), place.to_owned());
        self.all.push(Difference { probe, place, recorded: recorded.clone(), here: here.clone() });
    }

    /// Compares what is told in words, or in lines of words.
    fn texts(&mut self, place: &str, recorded: &Value, here: &Value) {
        let plain = |value: &Value| match value {
            Value::String(text) => json!(veiled(text)),
            Value::Array(lines) => lines.iter().map(|line| json!(veiled(line.as_str().unwrap_or_default()))).collect(),
            other => other.clone(),
        };
        let (recorded, here) = (plain(recorded), plain(here));
        if recorded != here {
            let (recorded, here) = apart(recorded, here);
            self.add(place, &recorded, &here);
        }
    }

    fn values(&mut self, place: &str, recorded: &Value, here: &Value) {
        match (recorded, here) {
            (Value::Object(recorded), Value::Object(here)) => self.members(place, recorded, here),
            (Value::Array(recorded), Value::Array(here)) => {
                // The vendor's lists have no order: they come out of hashes.
                let (recorded, here) = (sorted(recorded), sorted(here));
                for at in 0..recorded.len().max(here.len()) {
                    let none = Value::Null;
                    let (one, other) = (recorded.get(at).unwrap_or(&none), here.get(at).unwrap_or(&none));
                    self.values(&format!("{place}[{at}]"), one, other);
                }
            }
            (Value::String(_), Value::String(_)) => self.texts(place, recorded, here),
            (Value::Number(one), Value::Number(other)) if one.as_f64() == other.as_f64() => {}
            _ if recorded == here => {}
            _ => self.add(place, recorded, here),
        }
    }

    fn members(&mut self, place: &str, recorded: &Map<String, Value>, here: &Map<String, Value>) {
        let is_node = recorded.get("type") == Some(&json!("node"));
        let runs = recorded.get("status").is_some_and(|status| ["running", "online"].map(Value::from).contains(status));
        // What a request is refused for bears the names of parameters, not of loads.
        let is_refusal = place.ends_with(".errors");
        for (name, value) in recorded {
            let inner = format!("{place}.{name}");
            match here.get(name) {
                None => self.add(&inner, value, &json!("absent")),
                Some(other) if !is_refusal && is_its_own(name, (is_node, runs), value, other) => {}
                Some(other) => self.values(&inner, value, other),
            }
        }
        for (name, value) in here.iter().filter(|(name, _)| !recorded.contains_key(*name)) {
            self.add(&format!("{place}.{name}"), &json!("absent"), value);
        }
        let key = |of: &Map<String, Value>| of.get("key") == Some(&json!("digest"));
        if key(recorded) && key(here) {
            self.all.retain(|difference| difference.place != format!("{place}.value"));
        }
    }
}

/// Whether a value may be another than the recorded one, of a node or not, of something that runs or not.
fn is_its_own(name: &str, (is_node, runs): (bool, bool), recorded: &Value, here: &Value) -> bool {
    match (recorded, here) {
        (Value::Number(recorded), Value::Number(here)) => {
            let is_named =
                NUMBERS.contains(&name) || (is_node && NUMBERS.contains(&format!("{name} of node").as_str()));
            let is_nothing = recorded.as_f64() == Some(0.0) && !(runs && MEASURED.contains(&name));
            is_named && (!is_nothing || here.as_f64() == Some(0.0))
        }
        (Value::String(_), Value::String(_)) => TEXTS.contains(&name),
        _ => false,
    }
}

/// A list in the order of what its members are about.
fn sorted(list: &[Value]) -> Vec<Value> {
    let about = |value: &Value| {
        let named = ["key", "volid", "id", "storage", "poolid", "iface"].iter().find_map(|name| value.get(name));
        named.map_or_else(|| value.to_string(), Value::to_string)
    };
    let mut list = list.to_vec();
    list.sort_by_key(about);
    list
}
