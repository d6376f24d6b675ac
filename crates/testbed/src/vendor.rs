//! Proxmox's own description of its interface as a judge of requests: what it refuses, Proxmox would refuse.
//!
//! It reads the description alone, and shares nothing with the client that makes requests or the datacenter that answers them. The
//! description is not part of the project; where it is absent there is no judge.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};

use regex::Regex;
use serde_json::{Map, Value};

/// The description of one release.
#[derive(Debug)]
pub struct Vendor {
    description: Value,
    /// Reading an expression costs far more than using it.
    expressions: Mutex<BTreeMap<String, Regex>>,
}

impl Vendor {
    /// The description of 8 (8.4) or 9 (9.2), or none and a word about it where it is absent.
    ///
    /// # Panics
    /// In CI, where it must be there ([`crate::skipped`]); and if it cannot be read.
    pub fn load(which: u8) -> Option<Self> {
        let name = match which {
            8 => "pve-api-schema-8.json",
            9 => "pve-api-schema.json",
            other => panic!("there is no description of release {other}"),
        };
        let description = serde_json::from_str(&crate::oracle_text(&format!("data/{name}"))?);
        match description {
            Ok(description) => Some(Self { description, expressions: Mutex::default() }),
            Err(error) => panic!("{name}: {error}"),
        }
    }

    /// The description itself.
    pub fn description(&self) -> &Value {
        &self.description
    }

    /// Judges a request. The path may be encoded, and may begin with `/api2/json`.
    ///
    /// # Errors
    /// Every complaint as `parameter: complaint`; a request for something unknown has one about its path.
    pub fn check(&self, method: &str, path: &str, parameters: &[(String, String)]) -> Result<(), Vec<String>> {
        let path = decoded(path.strip_prefix("/api2/json").unwrap_or(path));
        let Some((operation, mut given)) = self.route(method, &path) else {
            return Err(vec![format!("path: there is no {method} {path}")]);
        };
        let schema = &operation["parameters"];
        let none = Map::new();
        let properties = schema["properties"].as_object().unwrap_or(&none);
        let mut complaints = Vec::new();
        let mut lists: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
            match given.get(name) {
                Some(inside) if inside != value => complaints.push(format!("{name}: differs from the path")),
                _ => lists.entry(name).or_default().push(value),
            }
        }
        for (name, list) in lists {
            let is_list = self
                .named(properties, name)
                .is_some_and(|property| property["format"].as_str().is_some_and(|format| format.ends_with("-list")));
            let value = if is_list { list.join(",") } else { list[0].to_owned() };
            if list.len() > 1 && !is_list {
                complaints.push(format!("{name}: given more than once"));
            }
            given.insert(name.to_owned(), value);
        }
        let closed = schema["additionalProperties"] != 1;
        complaints.extend(self.object(properties, &given, closed));
        if complaints.is_empty() { Ok(()) } else { Err(complaints) }
    }

    /// The operation of a path, and what its names in braces stand for. Plain segments go before names.
    fn route(&self, method: &str, path: &str) -> Option<(&Value, BTreeMap<String, String>)> {
        let found = self.description["paths"].as_object()?.iter().filter_map(|(template, methods)| {
            let operation = methods.get(method)?;
            Some((template.matches('{').count(), operation, captures(template, path)?))
        });
        found.min_by_key(|(names, ..)| *names).map(|(_, operation, captured)| (operation, captured))
    }

    /// The property of a name; `scsi3` is one of `scsi[n]`.
    fn named<'a>(&self, properties: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
        if let Some(property) = properties.get(name).filter(|_| !name.contains('[')) {
            return Some(property);
        }
        let family = name.trim_end_matches(|letter: char| letter.is_ascii_digit());
        let index = &name[family.len()..];
        let number: u64 = index.parse().ok().filter(|number: &u64| number.to_string() == index)?;
        let bounds = &self.description["_index_bounds"][family];
        let within = bounds[0].as_u64()? <= number && number <= bounds[1].as_u64()?;
        properties.get(&format!("{family}[n]")).filter(|_| within)
    }

    fn object(&self, properties: &Map<String, Value>, given: &BTreeMap<String, String>, closed: bool) -> Vec<String> {
        let mut complaints = Vec::new();
        for (name, property) in properties {
            let may_lack = is_set(&property["optional"]) || property["alias"].is_string() || name.contains('[');
            if !may_lack && !given.contains_key(name) {
                complaints.push(format!("{name}: is missing"));
            }
        }
        for (name, value) in given {
            let Some(property) = self.named(properties, name) else {
                if closed {
                    complaints.push(format!("{name}: is unknown"));
                }
                continue;
            };
            if let Err(complaint) = self.value(property, value) {
                complaints.push(format!("{name}: {complaint}"));
            }
            if let Some(other) = property["requires"].as_str().filter(|other| !given.contains_key(*other)) {
                complaints.push(format!("{other}: is missing, {name} requires it"));
            }
        }
        complaints
    }

    fn value(&self, property: &Value, value: &str) -> Result<(), String> {
        let kind = property["type"].as_str().unwrap_or("string");
        let has_type = match kind {
            "boolean" => value == "0" || value == "1",
            "integer" => is_integer(value),
            "number" => is_integer(value) || self.matches(NUMBER, value)?,
            _ => true,
        };
        if !has_type {
            return Err(format!("{value:?} is no {kind}"));
        }
        match &property["format"] {
            Value::String(name) => self.format(name, value)?,
            Value::Object(keys) => self.property_string(keys, value)?,
            _ => {}
        }
        self.shape(property, value)?;
        if self.matches(NUMBER, value)? || is_integer(value) {
            let number: f64 = value.parse().map_err(|_| format!("{value:?} is no number"))?;
            if bound(&property["minimum"]).is_some_and(|least| number < least) {
                return Err(format!("{value} is too small"));
            }
            if bound(&property["maximum"]).is_some_and(|most| number > most) {
                return Err(format!("{value} is too great"));
            }
        }
        match property["enum"].as_array() {
            Some(words) if !words.iter().any(|word| word == value) => Err(format!("{value:?} is not one of the words")),
            _ => Ok(()),
        }
    }

    /// Pattern and length, which parameters and formats both have.
    fn shape(&self, rule: &Value, value: &str) -> Result<(), String> {
        if let Some(pattern) = rule["pattern"].as_str()
            && !self.matches(pattern, value)?
        {
            return Err(format!("{value:?} does not match {pattern}"));
        }
        let length = u64::try_from(value.chars().count()).unwrap_or(u64::MAX);
        let fits = rule["minLength"].as_u64().is_none_or(|least| length >= least)
            && rule["maxLength"].as_u64().is_none_or(|most| length <= most);
        if fits { Ok(()) } else { Err(format!("{length} characters are too many or too few")) }
    }

    fn format(&self, name: &str, value: &str) -> Result<(), String> {
        let is_opaque = |opaque: &Vec<Value>| opaque.iter().any(|known| known == name);
        if self.description["_opaque_formats"].as_array().is_some_and(is_opaque) {
            return Ok(());
        }
        let rule = &self.description["_formats"][name];
        if rule.is_null() {
            if let Some(each) = name.strip_suffix("-list") {
                return items(value).try_for_each(|item| self.format(each, item));
            }
            if let Some(inner) = name.strip_suffix("-opt") {
                return if value.is_empty() { Ok(()) } else { self.format(inner, value) };
            }
        }
        let also = rule["also"].as_array().is_some_and(|also| also.iter().any(|word| word == value));
        let listed = |words: &Value, word: &str| words.as_array().is_some_and(|words| words.iter().any(|w| w == word));
        let fits = also
            || match rule["kind"].as_str().unwrap_or_default() {
                "regex" => return self.shape(rule, value),
                "property-string" => {
                    let none = Map::new();
                    return self.property_string(rule["properties"].as_object().unwrap_or(&none), value);
                }
                "same-as" => return self.same_as(rule["ref"].as_str().unwrap_or_default(), value),
                "any-of" => rule["of"].as_array().is_some_and(|formats| {
                    formats.iter().filter_map(Value::as_str).any(|format| self.format(format, value).is_ok())
                }),
                "enum" => listed(&rule["values"], value),
                "enum-ref" => listed(&self.description[rule["ref"].as_str().unwrap_or_default()], value),
                "list-enum" => items(value).all(|item| listed(&rule["values"], item)),
                "ip" => value.parse::<IpAddr>().is_ok(),
                "ipv6" => value.parse::<Ipv6Addr>().is_ok(),
                "ipv4-netmask" => value
                    .parse::<Ipv4Addr>()
                    .is_ok_and(|mask| mask.to_bits().leading_ones() == mask.to_bits().count_ones()),
                "cidr" => self.format("CIDRv4", value).is_ok() || self.format("CIDRv6", value).is_ok(),
                "cidrv4" => is_network::<Ipv4Addr>(&rule["prefix"], value),
                "cidrv6" => is_network::<Ipv6Addr>(&rule["prefix"], value),
                "ip-or-cidr" => value.parse::<IpAddr>().is_ok() || self.format("CIDR", value).is_ok(),
                kind => return Err(format!("the description has no format {name} of a known kind ({kind:?})")),
            };
        if fits { Ok(()) } else { Err(format!("{value:?} is no {name}")) }
    }

    /// A format that refers to a parameter, as `PATH METHOD PARAMETER without KEY`.
    fn same_as(&self, reference: &str, value: &str) -> Result<(), String> {
        let words: Vec<&str> = reference.split(' ').collect();
        let [path, method, parameter, "without", left_out] = words.as_slice() else {
            return Err(format!("the reference {reference:?} cannot be read"));
        };
        let property = &self.description["paths"][*path][*method]["parameters"]["properties"][*parameter];
        let mut keys = property["format"].as_object().cloned().unwrap_or_default();
        keys.retain(|key, _| key != left_out);
        self.property_string(&keys, value)
    }

    fn property_string(&self, keys: &Map<String, Value>, text: &str) -> Result<(), String> {
        let mut read: BTreeMap<String, String> = BTreeMap::new();
        let mut put = |key: &str, value: &str| match read.insert(key.to_owned(), value.to_owned()) {
            Some(_) => Err(format!("{key} is given twice")),
            None => Ok(()),
        };
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (key, value) = match part.split_once('=') {
                Some(("", _) | (_, "")) => return Err(format!("{part:?} lacks a key or a value")),
                Some((key, value)) => (key, value),
                None => {
                    let default = keys.iter().find(|(_, property)| is_set(&property["default_key"]));
                    (default.ok_or_else(|| format!("{part:?} has no key"))?.0.as_str(), part)
                }
            };
            let property = keys.get(key).ok_or_else(|| format!("there is no key {key}"))?;
            if let Some(named) = property["keyAlias"].as_str() {
                put(named, key)?;
            }
            let key = property["alias"].as_str().unwrap_or(key);
            let value = match value.to_ascii_lowercase().as_str() {
                "on" | "yes" | "true" if keys[key]["type"] == "boolean" => "1",
                "off" | "no" | "false" if keys[key]["type"] == "boolean" => "0",
                _ => value,
            };
            put(key, value)?;
        }
        let complaints = self.object(keys, &read, true);
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("; ")) }
    }

    /// Whether the whole of a value matches an expression.
    fn matches(&self, expression: &str, value: &str) -> Result<bool, String> {
        let mut known = self.expressions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = known.get(expression) {
            return Ok(regex.is_match(value));
        }
        // Perl lets the least count of a repetition out where it is none.
        let spelled_out = expression.replace("{,", "{0,");
        let regex = Regex::new(&format!(r"\A(?:{spelled_out})\z")).map_err(|error| error.to_string())?;
        let matches = regex.is_match(value);
        known.insert(expression.to_owned(), regex);
        Ok(matches)
    }
}

const NUMBER: &str = r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?";

fn is_integer(value: &str) -> bool {
    let digits = value.strip_prefix(['+', '-']).unwrap_or(value);
    !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
}

fn is_set(flag: &Value) -> bool {
    flag == 1 || flag == true
}

/// The description has some numbers as text.
fn bound(limit: &Value) -> Option<f64> {
    limit.as_f64().or_else(|| limit.as_str()?.parse().ok())
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ';', '\0', ' ', '\t', '\r', '\n']).filter(|item| !item.is_empty())
}

fn is_network<Address: std::str::FromStr>(prefix: &Value, value: &str) -> bool {
    let Some((address, length)) = value.split_once('/') else { return false };
    let (Some(least), Some(most)) = (prefix[0].as_u64(), prefix[1].as_u64()) else { return false };
    let is_length = length.bytes().all(|digit| digit.is_ascii_digit());
    address.parse::<Address>().is_ok() && is_length && length.parse().is_ok_and(|bits| (least..=most).contains(&bits))
}

/// What the names in a template stand for, if the path is of its form. A volume may have slashes.
fn captures(template: &str, path: &str) -> Option<BTreeMap<String, String>> {
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    let mut captured = BTreeMap::new();
    for expected in template.split('/').filter(|segment| !segment.is_empty()) {
        let first = segments.next()?;
        match expected.strip_prefix('{').and_then(|name| name.strip_suffix('}')) {
            Some("volume") => {
                let all = std::iter::once(first).chain(segments.by_ref()).collect::<Vec<_>>().join("/");
                captured.insert("volume".to_owned(), all);
            }
            Some(name) => drop(captured.insert(name.to_owned(), first.to_owned())),
            None if first == expected => {}
            None => return None,
        }
    }
    segments.next().is_none().then_some(captured)
}

fn decoded(path: &str) -> String {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let code = rest.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(code.unwrap_or(b'%'));
        rest = &rest[at + if code.is_some() { 3 } else { 1 }..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(which: u8, method: &str, path: &str, parameters: &[(&str, &str)]) -> Option<Vec<String>> {
        let given: Vec<_> = parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Some(Vendor::load(which)?.check(method, path, &given).err().unwrap_or_default())
    }

    /// Nothing is shown where the description is absent: `load` says so.
    fn check(which: u8, request: (&str, &str), parameters: &[(&str, &str)], expected: &[&str]) {
        if let Some(found) = complaints(which, request.0, request.1, parameters) {
            let names: Vec<&str> = found.iter().filter_map(|text| Some(text.split_once(':')?.0)).collect();
            assert_eq!(names, expected, "{request:?} {parameters:?}: {found:?}");
        }
    }

    const CREATE: (&str, &str) = ("POST", "/api2/json/nodes/pve/qemu");

    #[test]
    fn what_castle_would_send_passes() {
        for which in [8, 9] {
            check(
                which,
                CREATE,
                &[
                    ("vmid", "421"),
                    ("name", "node-1.lab"),
                    ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2,iothread=on"),
                    ("scsi30", "file=local-lvm:32"),
                    ("net0", "virtio=BC:24:11:00:00:01,bridge=vmbr0"),
                    ("ipconfig0", "ip=10.0.0.2/24,gw=10.0.0.1"),
                    ("tags", "castle;lab"),
                    ("boot", "order=scsi0;net0"),
                    ("agent", "enabled=1"),
                ],
                &[],
            );
            check(which, ("GET", "/nodes/pve/storage/local/content/local%3Aiso%2Fa.iso"), &[], &[]);
        }
    }

    #[test]
    fn what_proxmox_would_refuse_does_not() {
        for which in [8, 9] {
            check(which, CREATE, &[], &["vmid"]);
            check(which, CREATE, &[("vmid", "99")], &["vmid"]);
            check(which, CREATE, &[("vmid", "421"), ("scsi31", "local:1")], &["scsi31"]);
            check(which, CREATE, &[("vmid", "421"), ("scsi[n]", "local:1")], &["scsi[n]"]);
            check(which, CREATE, &[("vmid", "421"), ("net0", "bridge=vmbr0")], &["net0"]);
            check(which, CREATE, &[("vmid", "421"), ("net0", "virtio,model=e1000")], &["net0"]);
            check(which, CREATE, &[("vmid", "421"), ("ipconfig0", "gw=10.0.0.1")], &["ipconfig0"]);
            check(which, CREATE, &[("vmid", "421"), ("cdrom", "none,import-from=local:iso/a.iso")], &["cdrom"]);
            check(which, CREATE, &[("vmid", "421"), ("node", "other")], &["node"]);
            check(which, CREATE, &[("vmid", "421"), ("cores", "1"), ("cores", "2")], &["cores"]);
            check(which, ("GET", "/nodes/pve/nothing"), &[], &["path"]);
        }
        check(8, CREATE, &[("vmid", "421"), ("ha-managed", "1")], &["ha-managed"]);
        check(9, CREATE, &[("vmid", "421"), ("ha-managed", "1")], &[]);
    }
}
