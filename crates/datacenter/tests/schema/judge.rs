//! Requests judged twice: by the tables, and by the vendor's description.
//!
//! What costs is a request, not a value in it. So values of many parameters go into one request, and of a family one into each of its
//! members; complaints have names, which tells them apart. And what the description says of many parameters alike is put through all
//! values once: that each table says the same as the description is shown elsewhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use castle_datacenter::proxmox::api::{Operation, Version, find};
use castle_testbed::vendor::Vendor;
use serde_json::{Map, Value};

use crate::{described, keys_of, operations, theirs};

/// Values of every form the interface knows, and of some it does not.
const POOL: &str = "\
    0|1|2|-1|+5|1.5|.5|1e3|16|99|100|421|0421|999999999|1000000000|true|on|x|ab|a-b|a-|-a|a_b.c|node-1.lab|a..b|A1|\
    é| |a b|a;b|a:b|:|a,b|=|a=b|a=|?|!|%20|local|local:1|local:iso/a.iso|l:1|/|/dev/ttyS0|/dev/parport0|/dev/null,x|\
    none|cdrom|socket|iso|iso,images|scsi0|scsi31|net0|net0;scsi1|efidisk0|unused7|network,disk|order=1,up=5|up|\
    0-3;5|0-3,5|0x1234|0x0123456789abcdef|10.0.0.1|10.0.0.256|10.0.0.0/24|10.0.0.0/7|fe80::1|fe80::/64|dhcp|auto|\
    32G|+32G|1.5TiB|32X|host|64|65|BC:24:11:00:00:01|BD:24:11:00:00:01|pool/a/b|pool/a/b/c|root@pam|root@pam!a1|\
    https://a.b/c|ftp://a.b|VM.Audit|VM.Monitor|VM.Audit,VM.Nothing|OK,error|q35|pc-q35-9.2+pve1|kvm64|+aes;-pcid|\
    dGFsb3M=|now|2026-01-02T03:04:05|net0=1500,net1=9000|acd|01234567-89ab-cdef-0123-456789abcdef|1234:abcd|1-1.2|\
    spice";

/// The pool, and the values at the edges of what a property says.
fn candidates(property: &Value) -> Vec<String> {
    edges(property).into_iter().chain(POOL.split('|').map(ToOwned::to_owned)).collect()
}

fn edges(property: &Value) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for word in property["enum"].as_array().into_iter().flatten().take(3) {
        values.extend([word.as_str().unwrap().to_owned(), word.as_str().unwrap().to_uppercase()]);
    }
    for name in ["minimum", "maximum"] {
        let bound = &property[name];
        if let Some(bound) = bound.as_i64().or_else(|| bound.as_str()?.parse().ok()) {
            values.extend([bound - 1, bound, bound + 1].map(|number| number.to_string()));
        }
    }
    if let Some(longest) = property["maxLength"].as_u64().and_then(|longest| usize::try_from(longest).ok()) {
        values.extend(["a".repeat(longest), "a".repeat(longest + 1)]);
    }
    values
}

fn join(before: &str, key: &str, value: &str) -> String {
    if before.is_empty() { format!("{key}={value}") } else { format!("{before},{key}={value}") }
}

/// How a value is given.
#[derive(Clone)]
enum Frame<'a> {
    /// As the whole parameter.
    Whole,
    /// After this, with its key.
    Key(String, &'a str),
    /// Before this, without its key.
    Unnamed(String),
}

/// Somewhere that the description says something of a value.
struct Place<'a> {
    /// The parameter; `scsi[n]` for a family.
    parameter: &'a str,
    property: &'a Value,
    frame: Frame<'a>,
    /// Places of another way are no others of the same rule.
    way: String,
}

impl Place<'_> {
    fn framed(&self, value: &str) -> String {
        match &self.frame {
            Frame::Whole => value.to_owned(),
            Frame::Key(before, key) => join(before, key, value),
            Frame::Unnamed(after) => format!("{value},{after}"),
        }
    }

    /// What the description says of a value here, wherever it says so. Whether it must be given is another matter.
    fn rule(&self, vendor: &Vendor) -> String {
        let mut rule = theirs(vendor, self.property);
        if let Some(said) = rule.as_object_mut() {
            said.retain(|name, _| !["optional", "requires", "default_key"].contains(&name.as_str()));
        }
        format!("{} {rule}", self.way)
    }
}

/// What has been found out about one release.
#[derive(Default)]
struct Known {
    /// The rules that were put through all values, each with one that passes, if any does.
    judged: BTreeMap<String, Option<String>>,
    /// A parameter that passes, by what the description says of it.
    acceptable: BTreeMap<String, String>,
}

/// One release, one operation, and a request for it that is acceptable and has no more than it must.
struct Subject<'a> {
    version: Version,
    vendor: &'a Vendor,
    operation: &'static Operation,
    properties: &'a Map<String, Value>,
    least: BTreeMap<String, String>,
    judged: usize,
}

impl<'a> Subject<'a> {
    fn new(
        (version, vendor): (Version, &'a Vendor),
        operation: &'static Operation,
        none: &'a Map<String, Value>,
        known: &mut Known,
    ) -> Self {
        let properties = described(vendor, operation)["parameters"]["properties"].as_object().unwrap_or(none);
        let mut subject = Self { version, vendor, operation, properties, least: BTreeMap::new(), judged: 0 };
        let needed: Vec<&String> =
            properties.keys().filter(|name| properties[*name]["optional"] != 1 || subject.is_in_path(name)).collect();
        // Something must stand in the path before anything else can be judged.
        subject.least = needed.iter().map(|name| ((*name).clone(), "?".to_owned())).collect();
        for name in needed {
            let value = subject.acceptable(name, known);
            subject.least.insert(name.clone(), value);
        }
        subject
    }

    fn is_in_path(&self, name: &str) -> bool {
        self.operation.path.contains(&format!("{{{name}}}"))
    }

    /// The names the vendor complains about.
    fn refused(&self, request: &BTreeMap<String, String>) -> BTreeSet<String> {
        let (path, given) = self.spoken(request);
        let complaints = self.vendor.check(self.operation.method, &path, &given).err().unwrap_or_default();
        complaints.iter().map(|complaint| complaint.split_once(": ").unwrap().0.to_owned()).collect()
    }

    fn spoken(&self, request: &BTreeMap<String, String>) -> (String, Vec<(String, String)>) {
        let (in_path, given): (Vec<_>, Vec<_>) = request.iter().partition(|(name, _)| self.is_in_path(name));
        let path = in_path
            .into_iter()
            .fold(self.operation.path.to_owned(), |path, (name, value)| path.replace(&format!("{{{name}}}"), value));
        (path, given.into_iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Judges a request both ways; what is refused must be refused for the same parameters, and these are returned.
    fn judge(&mut self, request: &BTreeMap<String, String>) -> BTreeSet<String> {
        let (path, given) = self.spoken(request);
        let (found, from_path) = find(self.version, self.operation.method, &path).unwrap();
        assert_eq!(found.call, self.operation.call, "{path}");
        let ours = found.verify(self.version, &from_path, &given).err().unwrap_or_default();
        let names: BTreeSet<String> = ours.keys().cloned().collect();
        let refused = self.refused(request);
        let differing: Vec<_> =
            names.symmetric_difference(&refused).map(|name| (name, request.get(name), ours.get(name))).collect();
        let here = format!("{:?}: {} {path}", self.version, self.operation.method);
        assert!(differing.is_empty(), "{here} {given:?}: judged differently: {differing:#?}");
        self.judged += 1;
        refused
    }

    fn with(&self, changes: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut request = self.least.clone();
        request.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        request
    }

    /// The names under which a parameter can be given.
    fn slots(&self, parameter: &str) -> Vec<String> {
        let Some(family) = parameter.strip_suffix("[n]") else { return vec![parameter.to_owned()] };
        let highest = self.vendor.description()["_index_bounds"][family][1].as_u64().unwrap();
        (0..=highest).map(|index| format!("{family}{index}")).collect()
    }

    /// Judges values of parameters, as many in one request as find room there. Says of each whether it passes; what cannot be said
    /// does not.
    fn judge_each(&mut self, claims: &[(&str, String)]) -> Vec<bool> {
        let mut waiting: BTreeMap<&str, VecDeque<usize>> = BTreeMap::new();
        for (at, (parameter, value)) in claims.iter().enumerate() {
            if self.can_stand(parameter, value) {
                waiting.entry(parameter).or_default().push_back(at);
            }
        }
        let mut passes = vec![false; claims.len()];
        while !waiting.is_empty() {
            let mut request = self.least.clone();
            let mut placed = Vec::new();
            for (parameter, left) in &mut waiting {
                let slots = self.slots(parameter);
                let fitting = left.len().min(slots.len());
                for (slot, at) in slots.into_iter().zip(left.drain(..fitting)) {
                    request.insert(slot.clone(), claims[at].1.clone());
                    placed.push((slot, at));
                }
            }
            waiting.retain(|_, left| !left.is_empty());
            let refused = self.judge(&request);
            self.judged += placed.len();
            for (slot, at) in placed {
                passes[at] = !refused.contains(&slot);
            }
        }
        passes
    }

    /// Judges all values that one rule can be shown by, and at its other places some, among them one that passes.
    fn judge_places(&mut self, places: &[Place<'_>], known: &mut Known) {
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for place in places {
            let rule = place.rule(self.vendor);
            let is_new = !known.judged.contains_key(&rule);
            known.judged.entry(rule.clone()).or_default();
            if is_new { &mut new } else { &mut old }.push((place, rule));
        }
        let (mut claims, mut values) = (Vec::new(), Vec::new());
        for (place, rule) in &new {
            for value in candidates(place.property) {
                claims.push((place.parameter, place.framed(&value)));
                values.push((rule, value));
            }
        }
        for ((rule, value), passes) in values.into_iter().zip(self.judge_each(&claims)) {
            if let Some(example) = known.judged.get_mut(rule).filter(|example| passes && example.is_none()) {
                *example = Some(value);
            }
        }
        let mut claims = Vec::new();
        for (place, rule) in &old {
            let some = edges(place.property).into_iter().chain(POOL.split('|').take(12).map(ToOwned::to_owned));
            let some = some.chain(known.judged[rule].clone());
            claims.extend(some.map(|value| (place.parameter, place.framed(&value))));
        }
        self.judge_each(&claims);
    }

    /// A value of a parameter that the vendor has nothing against.
    fn acceptable(&self, parameter: &str, known: &mut Known) -> String {
        let property = &self.properties[parameter];
        let slot = self.slots(parameter).swap_remove(0);
        let fits = |value: &&String| {
            self.can_stand(parameter, value) && !self.refused(&self.with(&[(&slot, value)])).contains(&slot)
        };
        let rule = theirs(self.vendor, property).to_string();
        if let Some(value) = known.acceptable.get(&rule).filter(fits) {
            return value.clone();
        }
        let keys = keys_of(self.vendor, &property["format"]).map(|(keys, _)| keys);
        let values = keys.map_or_else(|| candidates(property), property_strings);
        let value = values.iter().find(fits);
        let value = value.unwrap_or_else(|| panic!("no value for {} {parameter}", self.operation.path));
        known.acceptable.insert(rule, value.clone());
        value.clone()
    }

    /// A path has no room for some values.
    fn can_stand(&self, parameter: &str, value: &str) -> bool {
        !self.is_in_path(parameter) || !(value.contains(['/', '%', '?']) || value.trim().is_empty())
    }

    /// Judges a parameter by itself: with what it requires it is accepted, without that it is not.
    fn judge_alone(&mut self, parameter: &str, good: &str, known: &mut Known) {
        let slot = self.slots(parameter).swap_remove(0);
        let mut request = self.with(&[(&slot, good)]);
        if let Some(other) = self.properties[parameter]["requires"].as_str() {
            assert_eq!(self.judge(&request).into_iter().collect::<Vec<_>>(), [other], "{parameter} alone");
            request.insert(other.to_owned(), self.acceptable(other, known));
        }
        assert!(self.judge(&request).is_empty(), "{} {parameter}={good}", self.operation.path);
        if self.least.contains_key(parameter) && !self.is_in_path(parameter) {
            request.remove(parameter);
            assert!(self.judge(&request).contains(parameter), "{} without {parameter}", self.operation.path);
        }
    }

    /// The places inside of a parameter that is a property string, and strings that are none.
    fn keys(&self, parameter: &'a str, good: &str) -> (Vec<Place<'a>>, Vec<String>) {
        let Some((keys, _)) = keys_of(self.vendor, &self.properties[parameter]["format"]) else {
            return Default::default();
        };
        let mut places = Vec::new();
        let mut broken: Vec<String> =
            ["nonsense=1", "nonsense", "=", "a=,", good].iter().map(|broken| format!("{good},{broken}")).collect();
        for (key, property) in keys {
            let without = |names: &[&str]| {
                let is_kept = |part: &&str| names.iter().all(|name| !part.starts_with(&format!("{name}=")));
                good.split(',').filter(is_kept).collect::<Vec<_>>().join(",")
            };
            let mut add = |way: &str, property, frame| {
                places.push(Place { parameter, property, frame, way: way.to_owned() });
            };
            let rest = without(&[key]);
            broken.push(join(&rest, key, ""));
            if let Some(real) = property["alias"].as_str() {
                let named = property["keyAlias"].as_str().unwrap_or(real);
                add(&format!("alias {key}"), &keys[real], Frame::Key(without(&[key, real, named]), key));
                add(&format!("alias {key} twice"), &keys[real], Frame::Key(rest, key));
            } else {
                if property["default_key"] == 1 {
                    add("unnamed", property, Frame::Unnamed(rest.clone()));
                }
                add("key", property, Frame::Key(rest, key));
            }
        }
        (places, broken)
    }
}

/// Property strings of no more keys than must be there, or of one if none must.
fn property_strings(keys: &Map<String, Value>) -> Vec<String> {
    let needed = keys.iter().filter(|(_, key)| key["optional"] != 1 && key["alias"].is_null());
    let mut strings = vec![String::new()];
    for (key, property) in needed {
        let values = candidates(property);
        strings = strings.iter().flat_map(|s| values.iter().map(move |v| join(s, key, v))).collect();
    }
    if strings == [""] {
        strings = keys.iter().flat_map(|(key, p)| candidates(p).into_iter().map(move |v| join("", key, &v))).collect();
    }
    strings
}

/// Judges every operation of a release.
pub(crate) fn judge_all(version: Version, vendor: &Vendor) {
    let none = Map::new();
    let mut known = Known::default();
    for operation in operations(version) {
        let mut subject = Subject::new((version, vendor), operation, &none, &mut known);
        let least = subject.least.clone();
        assert!(subject.judge(&least).is_empty(), "{} {}: {least:?}", operation.method, operation.path);
        assert!(!subject.judge(&subject.with(&[("nonsense", "1")])).is_empty(), "{}", operation.path);

        let properties = subject.properties;
        let whole = |(parameter, property)| Place { parameter, property, frame: Frame::Whole, way: "whole".to_owned() };
        let mut places: Vec<Place<'_>> =
            properties.iter().map(|(name, property)| whole((name.as_str(), property))).collect();
        let (mut broken, mut empty, mut indexed) = (Vec::new(), least.clone(), least.clone());
        for parameter in properties.keys() {
            let good = subject.acceptable(parameter, &mut known);
            subject.judge_alone(parameter, &good, &mut known);
            // The options of a guest have the same keys wherever they are set.
            if operation.method == "POST" && operation.path == "/nodes/{node}/qemu" {
                let (keys, strings) = subject.keys(parameter, &good);
                places.extend(keys);
                broken.extend(strings.into_iter().map(|string| (parameter.as_str(), string)));
            }
            if !subject.is_in_path(parameter) {
                empty.insert(subject.slots(parameter).swap_remove(0), String::new());
            }
            if let Some(family) = parameter.strip_suffix("[n]") {
                let names = ["", "00", "1", "4", "16", "31", "32", "256"].map(|index| format!("{family}{index}"));
                indexed.extend(names.into_iter().map(|name| (name, good.clone())));
            }
        }
        // Where there is most room, a rule takes the fewest requests.
        places.sort_by_key(|place| Reverse(subject.slots(place.parameter).len()));
        subject.judge_places(&places, &mut known);
        subject.judge_each(&broken);
        subject.judge(&empty);
        subject.judge(&indexed);
        assert!(subject.judged >= 2 + properties.len() * 12, "{}: {}", operation.path, subject.judged);
    }
}
