//! The model, held against the vendor's own schema and its own configurations.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

mod spoilt;

use self::spoilt::{mutants, takes, typed};
use super::decode::decode;
use super::shapes::{Kind, SHAPES, Shape};
use super::yaml::documents;
use super::{Cni, Config, Role, rules};

/// A file of the vendor's; nothing and a word about it where it is absent.
fn vendors(name: &str) -> Option<String> {
    castle_testbed::oracle_text(&format!("data/talos/{name}"))
}

fn schema() -> Option<Value> {
    vendors("config.schema.json").map(|text| serde_json::from_str(&text).unwrap())
}

/// The six configurations that the vendor's own generator makes: version, role, text.
fn golden() -> Vec<(u32, Role, String)> {
    let mut all = Vec::new();
    for minor in [12, 13, 14] {
        for role in [Role::ControlPlane, Role::Worker] {
            let text = vendors(&format!("golden/v1.{minor}/base-{}.yaml", role.word()));
            all.extend(text.map(|text| (minor, role, text)));
        }
    }
    all
}

/// Where the schema calls a kind otherwise than the program.
fn called(kind: &str) -> &str {
    match kind {
        "UnattendedInstall" => "UnattendedInstallConfig",
        "KubeSpanEndpoints" => "KubeSpanEndpointsConfig",
        kind => kind,
    }
}

/// Where the schema is wrong about its own program: it takes a list there, or a word.
const MISTAKEN: [&str; 5] = [
    "MachineConfig.acceptedCAs",
    "RoutingRuleConfig.action",
    "ContainerDependsOn.networks",
    "UserVolumeMount.options",
    "LoggingDestination.endpoint",
];

/// The documents of the schema: by kind, what it says of each; the first document has none.
fn described(schema: &Value) -> BTreeMap<String, &Value> {
    let all = schema["oneOf"].as_array().unwrap().iter().map(|reference| resolved(schema, reference));
    let name = |value: &Value| {
        value["properties"]["kind"]["enum"][0].as_str().map_or("Config".to_owned(), |it| called(it).to_owned())
    };
    all.map(|value| (name(value), value)).collect()
}

pub(super) fn resolved<'a>(schema: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(path) => &schema["$defs"][path.strip_prefix("#/$defs/").unwrap()],
        None => value,
    }
}

#[test]
fn the_documents_are_those_of_the_schema() {
    let Some(schema) = schema() else { return };
    let known: BTreeSet<&str> =
        SHAPES.values().filter(|shape| shape.is_document).map(|shape| shape.name.as_str()).collect();
    let described = described(&schema);
    let described: BTreeSet<&str> = described.keys().map(String::as_str).filter(|kind| *kind != "Config").collect();
    assert_eq!(described.difference(&known).collect::<Vec<_>>(), Vec::<&&str>::new());
    // The schema leaves this one out.
    assert_eq!(known.difference(&described).collect::<Vec<_>>(), [&"ImageVerificationConfig"]);
}

/// Goal: what the model knows of every document, down to its last field, is what the schema says. Method: both are walked
/// side by side.
#[test]
fn fields_and_types_are_those_of_the_schema() {
    let Some(schema) = schema() else { return };
    let mut problems = Vec::new();
    let mut seen = BTreeSet::new();
    for (kind, value) in described(&schema) {
        compare(&schema, &SHAPES[&kind], value, &mut seen, &mut problems);
    }
    assert!(seen.len() > 120, "{}", seen.len());
    assert_eq!(problems, Vec::<String>::new());
}

fn compare(schema: &Value, shape: &Shape, value: &Value, seen: &mut BTreeSet<String>, problems: &mut Vec<String>) {
    if !seen.insert(shape.name.clone()) {
        return;
    }
    let none = Map::new();
    let properties = value["properties"].as_object().unwrap_or(&none);
    let is_own = |name: &&String| !(shape.is_document && ["apiVersion", "kind"].contains(&name.as_str()));
    let theirs: BTreeSet<&str> = properties.keys().filter(is_own).map(String::as_str).collect();
    let ours: BTreeSet<&str> = shape
        .fields
        .iter()
        .filter(|field| !field.is_old && field.until > 14)
        .map(|field| field.name.as_str())
        .collect();
    if theirs != ours {
        problems.push(format!("{}: {:?}", shape.name, theirs.symmetric_difference(&ours).collect::<Vec<_>>()));
    }
    let required: BTreeSet<&str> =
        value["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    for field in shape.fields.iter().filter(|field| !field.is_old) {
        let path = format!("{}.{}", shape.name, field.name);
        let Some(described) = properties.get(&field.name) else { continue };
        if field.is_required != required.contains(field.name.as_str()) {
            problems.push(format!("{path}: required {}", field.is_required));
        }
        if !MISTAKEN.contains(&path.as_str()) && !is_same(schema, &field.kind, described, seen, problems) {
            problems.push(format!("{path}: {:?} is not {described}", field.kind));
        }
    }
}

fn is_same(
    schema: &Value,
    kind: &Kind,
    value: &Value,
    seen: &mut BTreeSet<String>,
    problems: &mut Vec<String>,
) -> bool {
    let inner = resolved(schema, value);
    let is = |word: &str| inner["type"] == word && inner.get("enum").is_none();
    match kind {
        Kind::Choice(words) => {
            let theirs: Vec<&str> = inner["enum"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            theirs == *words
        }
        Kind::Bool => is("boolean"),
        Kind::Int | Kind::Uint => is("integer"),
        Kind::Float => is("number"),
        Kind::Object => is("object") && inner.get("properties").is_none(),
        Kind::List(item) => {
            is("array")
                && (inner["items"].get("type").is_none() && inner["items"].get("$ref").is_none()
                    || is_same(schema, item, &inner["items"], seen, problems))
        }
        Kind::Map(item) => {
            let pattern = inner["patternProperties"].get(".*").or(inner.get("additionalProperties"));
            is("object") && pattern.is_some_and(|pattern| is_same(schema, item, pattern, seen, problems))
        }
        // Of some the schema only says that they are maps.
        Kind::Shape(_) if inner.get("properties").is_none() && inner.get("additionalProperties").is_none() => {
            is("object")
        }
        Kind::Shape(name) => {
            compare(schema, &SHAPES[name], inner, seen, problems);
            is("object")
        }
        Kind::Pair => is("object") && inner["properties"].get("crt").is_some(),
        Kind::Args => true,
        _ => is("string"),
    }
}

#[test]
fn the_vendors_own_configurations_are_accepted() {
    for (minor, role, text) in golden() {
        let documents = decode(minor, &text).unwrap();
        assert_eq!(rules::judge(minor, &documents), Ok(Vec::new()), "{minor} {role:?}");
        let config = Config::of(&text, documents).unwrap();
        assert_eq!((config.role, config.cluster_name.as_str()), (role, "base"));
        assert_eq!((config.endpoint_host(), config.kubernetes_version.as_str()), ("base", "v1.28.0"));
        assert_eq!(config.os.can_issue(), role == Role::ControlPlane);
        assert!(config.is_discovered());
        let kubernetes = config.kubernetes.as_ref().unwrap();
        assert_eq!(kubernetes.can_issue(), role == Role::ControlPlane);
        if role == Role::ControlPlane {
            assert_eq!((config.cni(), config.has_dns()), (Cni::Flannel, true));
            let (labels, taints) = config.labels_and_taints();
            assert!(labels.contains_key("node-role.kubernetes.io/control-plane"), "{labels:?}");
            assert_eq!(taints.values().collect::<Vec<_>>(), ["NoSchedule"]);
        }
        // A node of this version does not run so old a Kubernetes.
        let refused = Config::accept(minor, "1.13.9", &text).unwrap_err();
        assert!(refused.contains("version of Kubernetes 1.28.0 is too old to be used with Talos"), "{refused}");
        let newer = text.replace("v1.28.0", "v1.35.0");
        assert!(Config::accept(minor, "1.13.9", &newer).is_ok());
        assert_eq!(Config::accept(minor, "1.13.9", &newer).unwrap().config.key, config.key);
    }
}

/// What the documents of 1.14 are to those of 1.13: the same cluster.
#[test]
fn one_bundle_makes_one_cluster_in_every_version() {
    let keys: BTreeSet<String> = golden()
        .into_iter()
        .map(|(minor, _, text)| {
            Config::accept(minor, "1.13.9", &text.replace("v1.28.0", "v1.35.0")).unwrap().config.key.clone()
        })
        .collect();
    assert!(keys.len() <= 1, "{keys:?}");
}

/// A document with everything that it can have.
fn example(shape: &Shape) -> Value {
    let fields = shape.fields.iter().filter(|field| !field.is_old && field.until > 14);
    let fields = fields.map(|field| {
        let path = format!("{}.{}", shape.name, field.name);
        let value = match path.as_str() {
            // What the schema wants of these it does not want of their kind.
            "KmsgLogConfig.url" => json!("tcp://10.0.0.1:514"),
            _ => sample(&field.kind),
        };
        (field.name.clone(), value)
    });
    let mut all: Map<String, Value> =
        fields.filter(|(name, _)| !MISTAKEN.contains(&format!("{}.{name}", shape.name).as_str())).collect();
    if shape.is_document {
        all.insert("apiVersion".to_owned(), json!("v1alpha1"));
        all.insert("kind".to_owned(), json!(shape.name));
    }
    Value::Object(all)
}

fn sample(kind: &Kind) -> Value {
    match kind {
        Kind::Text | Kind::Args => json!("x"),
        Kind::Bool => json!(true),
        Kind::Int | Kind::Uint | Kind::Ports => json!(7),
        Kind::Float => json!(1.5),
        Kind::Duration => json!("10s"),
        Kind::Address => json!("10.0.0.1"),
        Kind::Prefix => json!("10.0.0.0/24"),
        Kind::Socket => json!("10.0.0.1:51820"),
        Kind::Url => json!("https://example.com:6443"),
        Kind::Cel => json!("disk.size > 6u"),
        Kind::Mac => json!("aa:bb:cc:dd:ee:ff"),
        Kind::Size => json!("10GiB"),
        Kind::Base64 => json!("eA=="),
        Kind::Pair => json!({ "crt": "eA==", "key": "eA==" }),
        Kind::Certificate => json!({ "crt": "eA==" }),
        Kind::Key => json!({ "key": "eA==" }),
        Kind::Object => json!({ "free": { "as": ["air"] } }),
        Kind::Any => json!(1),
        Kind::Choice(words) => json!(words[0]),
        Kind::List(inner) => json!([sample(inner)]),
        Kind::Map(inner) => json!({ "a": sample(inner) }),
        Kind::Shape(name) => example(&SHAPES[name]),
    }
}

/// Goal: a document with one mistake is refused exactly if the schema refuses it. Method: every place of a document of every
/// kind, and of the vendor's own configurations, is spoilt in every way, and both are asked.
#[test]
fn what_is_spoilt_is_refused_exactly_where_the_schema_refuses_it() {
    let Some(schema) = schema() else { return };
    let described = described(&schema);
    let whole = described.keys().map(|kind| example(&SHAPES[kind]));
    let vendors =
        golden().into_iter().filter(|(minor, ..)| *minor == 14).flat_map(|(.., text)| documents(&text).unwrap());
    let vendors = vendors.map(|document| {
        let mut document = typed(&document);
        if let Some(members) = document.as_object_mut() {
            // The vendor's generator still writes what its schema no longer names.
            members.remove("persist");
        }
        document
    });
    let (mut taken, mut refused, mut problems) = (0, 0, Vec::new());
    for document in whole.chain(vendors) {
        let name = document["kind"].as_str().unwrap_or("Config").to_owned();
        let rule = described[&name];
        // Two kinds have other names in the schema.
        let as_described = |document: &Value| {
            let mut document = document.clone();
            if rule["properties"].get("kind").is_some() {
                document["kind"] = rule["properties"]["kind"]["enum"][0].clone();
            }
            document
        };
        assert!(takes(&schema, rule, &as_described(&document)), "{document}");
        assert!(is_taken(&name, &document), "{document}: {:?}", decode(14, &document.to_string()));
        for (what, mutant) in mutants(&document) {
            // Without these nobody knows what it is.
            let is_same = |key: &&str| document.get(key) == mutant.get(key);
            let is_there = |key: &&str| document.get(key).is_some() == mutant.get(key).is_some();
            let is_known = ["kind", "apiVersion"].iter().all(is_same) && ["machine", "cluster"].iter().all(is_there);
            if !mutant.is_object() || !is_known {
                continue;
            }
            let theirs = takes(&schema, rule, &as_described(&mutant));
            taken += usize::from(theirs);
            refused += usize::from(!theirs);
            if theirs != is_taken(&name, &mutant) && !is_lenient(&what) {
                problems.push(format!("{name}: {what}: the schema takes it: {theirs}"));
            }
        }
    }
    assert_eq!(problems, Vec::<String>::new());
    assert!(taken > 500 && refused > 2_000, "{taken} {refused}");
}

/// Where the schema says only that there is a map or a text, and the program knows what is in it.
fn is_lenient(what: &str) -> bool {
    what.contains("at \"/resources") || what.contains("at \"/portSelector/ports/0\"")
}

/// Whether the model takes a document of 1.14, the rules between its values left out.
fn is_taken(name: &str, document: &Value) -> bool {
    // JSON is YAML.
    let Ok(read) = decode(14, &document.to_string()) else { return false };
    let shape = &SHAPES[name];
    read.iter().all(|document| rules::lacking(14, shape, &document.value).is_empty())
}
