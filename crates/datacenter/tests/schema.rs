//! The tables of the Proxmox interface, held against the vendor's own description of it, 8.4 and 9.2: first that they say the same,
//! then that they judge the same requests the same way as a validator which knows nothing but the description.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};

use castle_datacenter::proxmox::api::{
    Choices, Field, Format, Operation, Permission, Version, find, operations, privileges,
};
use castle_testkit::vendor::Vendor;
use serde_json::{Map, Value, json};

/// The releases whose description is here.
fn releases() -> Vec<(Version, Vendor)> {
    [(Version::Eight, 8), (Version::Nine, 9)]
        .into_iter()
        .filter_map(|(version, which)| Some((version, Vendor::load(which)?)))
        .collect()
}

fn described<'a>(vendor: &'a Vendor, operation: &Operation) -> &'a Value {
    let described = &vendor.description()["paths"][operation.path][operation.method];
    assert!(described.is_object(), "the vendor has no {} {}", operation.method, operation.path);
    described
}

/// The keys of a property string, whether the description has them in place, under a name, or as those of another parameter.
fn keys_of<'a>(vendor: &'a Vendor, format: &'a Value) -> Option<(&'a Map<String, Value>, Option<&'a str>)> {
    if let Some(keys) = format.as_object() {
        return Some((keys, None));
    }
    let named = &vendor.description()["_formats"][format.as_str()?];
    if let Some(keys) = named["properties"].as_object() {
        return Some((keys, None));
    }
    let [path, method, parameter, "without", left_out] =
        named["ref"].as_str().filter(|_| named["kind"] == "same-as")?.split(' ').collect::<Vec<_>>()[..]
    else {
        panic!("an unknown kind of reference: {named}")
    };
    let other = &vendor.description()["paths"][path][method]["parameters"]["properties"][parameter];
    Some((other["format"].as_object()?, Some(left_out)))
}

/// What the description says of a parameter or key, without defaults, and with numbers as numbers.
fn theirs(vendor: &Vendor, property: &Value) -> Value {
    let mut said = Map::new();
    for name in ["type", "requires", "maxLength", "pattern", "enum", "alias", "keyAlias"] {
        if let Some(value) = property.get(name).filter(|value| !value.is_null()) {
            said.insert(name.to_owned(), value.clone());
        }
    }
    for name in ["optional", "default_key"] {
        if property[name] == 1 {
            said.insert(name.to_owned(), json!(true));
        }
    }
    for name in ["minimum", "maximum"] {
        let value = &property[name];
        if let Some(number) = value.as_i64().or_else(|| value.as_str()?.parse().ok()) {
            said.insert(name.to_owned(), json!(number));
        }
    }
    if let Some((keys, left_out)) = keys_of(vendor, &property["format"]) {
        let kept = keys.iter().filter(|(key, _)| Some(key.as_str()) != left_out);
        let keys: BTreeMap<_, _> = kept.map(|(key, property)| (key, theirs(vendor, property))).collect();
        said.insert("format".to_owned(), json!(keys));
    } else if property["format"].is_string() {
        said.insert("format".to_owned(), property["format"].clone());
    }
    json!(said)
}

/// What a table says of a parameter or key, in the same words.
fn ours(version: Version, field: &Field) -> Value {
    let mut said = Map::new();
    let mut say = |name: &str, value: Value| drop(said.insert(name.to_owned(), value));
    if let Some(alias) = field.alias {
        say("alias", json!(alias));
        if let Some(names) = field.names {
            say("keyAlias", json!(names));
        }
        return json!(said);
    }
    say("type", json!(field.kind.name()));
    for (name, is_so) in [("optional", field.optional), ("default_key", field.is_default_key)] {
        if is_so {
            say(name, json!(true));
        }
    }
    for (name, bound) in [("minimum", field.minimum), ("maximum", field.maximum)] {
        if let Some(bound) = bound {
            say(name, json!(bound));
        }
    }
    for (name, word) in [("requires", field.requires), ("pattern", field.pattern)] {
        if let Some(word) = word {
            say(name, json!(word));
        }
    }
    if let Some(longest) = field.longest {
        say("maxLength", json!(longest));
    }
    if !matches!(field.choices, Choices::Free) {
        say("enum", json!(field.choices.list()));
    }
    match field.format {
        Format::Free => {}
        Format::Named(name) => say("format", json!(name)),
        Format::Keys(_) => say("format", json!(all_ours(version, field.keys_in(version)))),
    }
    json!(said)
}

fn all_ours(version: Version, fields: impl Iterator<Item = &'static Field>) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    for field in fields {
        let name = if field.highest_index.is_some() { format!("{}[n]", field.name) } else { field.name.to_owned() };
        assert!(all.insert(name, ours(version, field)).is_none(), "{} is there twice", field.name);
    }
    all
}

#[test]
fn every_parameter_is_the_vendors() {
    for (version, vendor) in releases() {
        for operation in operations(version) {
            let here = format!("{version:?}: {} {}", operation.method, operation.path);
            let schema = &described(&vendor, operation)["parameters"];
            assert_eq!(schema["additionalProperties"], 0, "{here}");
            let none = Map::new();
            let properties = schema["properties"].as_object().unwrap_or(&none);
            let ours = all_ours(version, operation.parameters(version));
            let names: BTreeSet<&String> = properties.keys().collect();
            assert_eq!(ours.keys().collect::<BTreeSet<_>>(), names, "{here}");
            for (name, property) in properties {
                assert_eq!(ours[name], theirs(&vendor, property), "{here}: {name}");
            }
        }
    }
}

#[test]
fn every_family_has_the_vendors_bounds() {
    for (version, vendor) in releases() {
        for field in operations(version).flat_map(|operation| operation.parameters(version)) {
            if let Some(highest) = field.highest_index {
                assert_eq!(vendor.description()["_index_bounds"][field.name], json!([0, highest]), "{}", field.name);
            }
        }
    }
}

fn checks(permission: Permission) -> Value {
    let each =
        |word: &str, of: &[Permission]| json!([vec![json!(word)], of.iter().copied().map(checks).collect()].concat());
    match permission {
        Permission::Any(of) => each("or", of),
        Permission::All(of) => each("and", of),
        Permission::Check { path, privileges, any, only_with } => {
            let mut check = vec![json!("perm"), json!(path), json!(privileges)];
            if any {
                check.extend([json!("any"), json!(1)]);
            }
            if let Some(parameter) = only_with {
                check.extend([json!("require_param"), json!(parameter)]);
            }
            json!(check)
        }
        Permission::World | Permission::Everyone | Permission::InHandler => panic!("{permission:?} is no check"),
    }
}

#[test]
fn who_may_ask_and_who_answers_is_the_vendors() {
    for (version, vendor) in releases() {
        for operation in operations(version) {
            let mut permissions = match operation.permission {
                Permission::World => json!({"user": "world"}),
                Permission::Everyone => json!({"user": "all"}),
                Permission::InHandler => json!({"user": "all", "checked_in_code": true}),
                check => json!({"check": checks(check)}),
            };
            if operation.checks_more {
                permissions["checked_in_code"] = json!(true);
            }
            let described = described(&vendor, operation);
            let here = format!("{version:?}: {} {}", operation.method, operation.path);
            assert_eq!(described["permissions"], permissions, "{here}");
            assert_eq!(described["protected"], operation.protected, "{here}");
            assert_eq!(described["allowtoken"], operation.allow_token, "{here}");
            let proxied_to = if operation.proxied_to_node { json!("node") } else { Value::Null };
            assert_eq!(described["proxyto"], proxied_to, "{here}");
        }
        assert_eq!(vendor.description()["_privileges"], json!(privileges(version)), "{version:?}");
    }
}

#[test]
fn every_call_is_one_operation() {
    for version in [Version::Eight, Version::Nine] {
        let calls: BTreeSet<_> = operations(version).map(|operation| operation.call).collect();
        let places: BTreeSet<_> = operations(version).map(|operation| (operation.method, operation.path)).collect();
        assert_eq!((calls.len(), places.len(), operations(version).count()), (44, 44, 44), "{version:?}");
    }
}

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

/// What has been judged with the whole pool before. The second time a dozen values show that the rule is in its place.
#[derive(Default)]
struct Seen(BTreeSet<String>);

impl Seen {
    fn candidates(&mut self, name: &str, property: &Value) -> Vec<String> {
        let is_new = self.0.insert(format!("{name} {property}"));
        let few = if is_new { usize::MAX } else { 12 };
        edges(property).into_iter().chain(POOL.split('|').take(few).map(ToOwned::to_owned)).collect()
    }
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
    fn new(version: Version, vendor: &'a Vendor, operation: &'static Operation, none: &'a Map<String, Value>) -> Self {
        let properties = described(vendor, operation)["parameters"]["properties"].as_object().unwrap_or(none);
        let mut subject = Self { version, vendor, operation, properties, least: BTreeMap::new(), judged: 0 };
        let in_path = |name: &str| operation.path.contains(&format!("{{{name}}}"));
        let needed: Vec<&String> =
            properties.keys().filter(|name| properties[*name]["optional"] != 1 || in_path(name)).collect();
        // Something must stand in the path before anything else can be judged.
        subject.least = needed.iter().map(|name| ((*name).clone(), "?".to_owned())).collect();
        for name in needed {
            let (_, value) = subject.acceptable(name);
            subject.least.insert(name.clone(), value);
        }
        subject
    }

    /// The names the vendor complains about.
    fn refused(&self, request: &BTreeMap<String, String>) -> BTreeSet<String> {
        let (path, given) = self.spoken(request);
        let complaints = self.vendor.check(self.operation.method, &path, &given).err().unwrap_or_default();
        complaints.iter().map(|complaint| complaint.split_once(": ").unwrap().0.to_owned()).collect()
    }

    fn spoken(&self, request: &BTreeMap<String, String>) -> (String, Vec<(String, String)>) {
        let mut path = self.operation.path.to_owned();
        let mut given = Vec::new();
        for (name, value) in request {
            let hole = format!("{{{name}}}");
            if path.contains(&hole) {
                path = path.replace(&hole, value);
            } else {
                given.push((name.clone(), value.clone()));
            }
        }
        (path, given)
    }

    /// Judges a request both ways; what is refused must be refused for the same parameters.
    fn judge(&mut self, request: &BTreeMap<String, String>) -> bool {
        let (path, given) = self.spoken(request);
        let (found, from_path) = find(self.version, self.operation.method, &path).unwrap();
        assert_eq!(found.call, self.operation.call, "{path}");
        let ours = found.verify(self.version, &from_path, &given).err().unwrap_or_default();
        let names: BTreeSet<String> = ours.keys().cloned().collect();
        let refused = self.refused(request);
        assert!(
            names == refused,
            "{:?}: {} {path} {given:?}: {ours:#?} {refused:?}",
            self.version,
            self.operation.method
        );
        self.judged += 1;
        names.is_empty()
    }

    fn with(&self, changes: &[(&str, &str)]) -> BTreeMap<String, String> {
        let mut request = self.least.clone();
        request.extend(changes.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        request
    }

    /// The first value of a parameter that the vendor has nothing against, and the parameter it requires, if any.
    fn acceptable(&self, name: &str) -> (Option<String>, String) {
        let property = &self.properties[name];
        let name = name.replace("[n]", "0");
        let keys = keys_of(self.vendor, &property["format"]).map(|(keys, _)| keys);
        let values = keys.map_or_else(|| candidates(property), |keys| self.property_strings(keys));
        let requires = property["requires"].as_str().map(ToOwned::to_owned);
        let fits = |value: &&String| !self.refused(&self.with(&[(&name, value)])).contains(&name);
        let value = values.iter().filter(|value| self.can_stand(&name, value)).find(fits);
        (requires, value.unwrap_or_else(|| panic!("no value for {} {name}", self.operation.path)).clone())
    }

    /// A path has no room for some values.
    fn can_stand(&self, name: &str, value: &str) -> bool {
        !self.operation.path.contains(&format!("{{{name}}}"))
            || !(value.contains(['/', '%', '?']) || value.trim().is_empty())
    }

    /// Property strings of no more keys than must be there, or of one if none must.
    fn property_strings(&self, keys: &Map<String, Value>) -> Vec<String> {
        let needed = keys.iter().filter(|(_, key)| key["optional"] != 1 && key["alias"].is_null());
        let mut strings = vec![String::new()];
        for (key, property) in needed {
            let values = candidates(property);
            strings = strings.iter().flat_map(|s| values.iter().map(move |v| join(s, key, v))).collect();
        }
        if strings == [""] {
            strings =
                keys.iter().flat_map(|(key, p)| candidates(p).into_iter().map(move |v| join("", key, &v))).collect();
        }
        strings
    }

    /// Judges every value of one parameter; some must pass, and the rest of the request stays acceptable.
    fn judge_parameter(&mut self, name: &str, seen: &mut Seen) -> String {
        let (requires, good) = self.acceptable(name);
        let property = &self.properties[name];
        let indexed = name.replace("[n]", "0");
        let mut base = self.least.clone();
        if let Some(other) = requires {
            let value = self.acceptable(&other).1;
            base.insert(other, value);
        }
        let mut passed = false;
        for value in seen.candidates(name, property).iter().chain([&good, &String::new()]) {
            if self.can_stand(&indexed, value) {
                let mut request = base.clone();
                request.insert(indexed.clone(), value.clone());
                passed |= self.judge(&request);
            }
        }
        assert!(passed, "nothing passes as {name} of {}", self.operation.path);
        self.judge(&self.with(&[(&indexed, &good)]));
        good
    }

    /// Judges every value of every key of a property string.
    fn judge_keys(&mut self, name: &str, good: &str, seen: &mut Seen) {
        let Some((keys, _)) = keys_of(self.vendor, &self.properties[name]["format"]) else { return };
        let name = name.replace("[n]", "0");
        for (key, property) in keys {
            let property = property["alias"].as_str().map_or(property, |alias| &keys[alias]);
            let rest: Vec<&str> = good.split(',').filter(|part| !part.starts_with(&format!("{key}="))).collect();
            for value in seen.candidates(key, property) {
                self.judge(&self.with(&[(&name, &join(&rest.join(","), key, &value))]));
                if property["default_key"] == 1 {
                    self.judge(&self.with(&[(&name, &format!("{value},{}", rest.join(",")))]));
                }
            }
        }
        for broken in ["nonsense=1", "nonsense", "=", "a=,", good] {
            self.judge(&self.with(&[(&name, &format!("{good},{broken}"))]));
        }
    }
}

fn join(before: &str, key: &str, value: &str) -> String {
    if before.is_empty() { format!("{key}={value}") } else { format!("{before},{key}={value}") }
}

#[test]
fn requests_to_8_are_judged_as_the_vendor_would() {
    judge_all(Version::Eight);
}

#[test]
fn requests_to_9_are_judged_as_the_vendor_would() {
    judge_all(Version::Nine);
}

fn judge_all(release: Version) {
    let none = Map::new();
    let mut seen = Seen::default();
    for (version, vendor) in releases().into_iter().filter(|(version, _)| *version == release) {
        for operation in operations(version) {
            let mut subject = Subject::new(version, &vendor, operation, &none);
            let least = subject.least.clone();
            assert!(subject.judge(&least), "{} {}: {least:?}", operation.method, operation.path);
            assert!(!subject.judge(&subject.with(&[("nonsense", "1")])), "{}", operation.path);
            for name in subject.properties.keys() {
                let good = subject.judge_parameter(name, &mut seen);
                // The options of a guest have the same keys wherever they are set.
                if operation.method == "POST" && operation.path == "/nodes/{node}/qemu" {
                    subject.judge_keys(name, &good, &mut seen);
                }
                for index in ["", "00", "1", "4", "16", "31", "32", "256"] {
                    if let Some(family) = name.strip_suffix("[n]") {
                        subject.judge(&subject.with(&[(&format!("{family}{index}"), &good)]));
                    }
                }
                if least.contains_key(name) && !operation.path.contains(&format!("{{{name}}}")) {
                    let mut lacking = least.clone();
                    lacking.remove(name);
                    assert!(!subject.judge(&lacking), "{} without {name}", operation.path);
                }
            }
            assert!(subject.judged >= 2 + subject.properties.len() * 12, "{}: {}", operation.path, subject.judged);
        }
    }
}
