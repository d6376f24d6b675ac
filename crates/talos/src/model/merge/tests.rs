//! Patches, against what Talos makes of them. `cases.yaml` keeps its answers, so that most of this runs without Talos; where
//! `talosctl` and Talos' library are at hand, they are asked again.

use std::collections::{BTreeMap, BTreeSet};

use castle_yaml::{emit_all, parse};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};

use super::rules::fields;
use super::*;
use crate::model::config::oracles::{bare, data, library, talosctl};

fn cases() -> Vec<Value> {
    let cases = parse(include_str!("cases.yaml")).unwrap();
    assert!(cases.len() >= 60, "only {} cases", cases.len());
    cases
}

fn text<'c>(case: &'c Value, key: &str) -> &'c str {
    case[key].as_str().unwrap_or_default()
}

fn bared(documents: &[Value]) -> Vec<Value> {
    documents.iter().map(bare).collect()
}

fn merged(config: &str, patch: &str) -> Result<Vec<Value>, MergeError> {
    merge(&parse(config).unwrap(), &parse(patch).unwrap())
}

#[test]
fn patches_give_what_talos_gives() {
    for case in cases() {
        let name = text(&case, "name");
        match merged(text(&case, "config"), text(&case, "patch")) {
            Ok(merged) => {
                assert_eq!(case.get("refused"), None, "{name}: Talos refuses it");
                assert_eq!(bared(&merged), bared(&parse(text(&case, "expected")).unwrap()), "{name}");
            }
            Err(error) => assert_eq!(case["refused"], true, "{name}: {error}"),
        }
    }
}

/// The answers that are kept are those of `talosctl`, and it reads what is merged here.
#[test]
fn talosctl_gives_the_same() {
    for case in cases().iter().filter(|case| text(case, "only") != "1.14") {
        let name = text(case, "name");
        let patch =
            |config: &str, patch: &str| talosctl(&["machineconfig", "patch", "{}", "--patch", "@{}"], &[config, patch]);
        let Some(theirs) = patch(text(case, "config"), text(case, "patch")) else { return };
        assert_eq!(theirs.is_err(), case.get("refused").is_some(), "{name}: {theirs:?}");
        let (Ok(theirs), Ok(mine)) = (theirs, merged(text(case, "config"), text(case, "patch"))) else { continue };
        assert_eq!(bared(&parse(&theirs).unwrap()), bared(&parse(text(case, "expected")).unwrap()), "{name}");
        // Deprecated keys are not written by an empty patch, nor is anything else.
        let again = patch(&emit_all(&mine), "debug: null\n").unwrap();
        assert_eq!(again.as_deref(), Ok(theirs.as_str()), "{name}");
    }
}

#[test]
fn talos_library_gives_the_same() {
    let cases: Vec<_> = cases().into_iter().filter(|case| text(case, "only") != "1.13").collect();
    let questions: Vec<_> =
        cases.iter().map(|case| json!({"config": text(case, "config"), "patch": text(case, "patch")})).collect();
    let Some(answer) = library(&json!({"patch": questions})) else { return };
    for (case, theirs) in cases.iter().zip(answer["patch"].as_array().unwrap()) {
        assert_eq!(theirs["error"] != "", case.get("refused").is_some(), "{}: {theirs}", text(case, "name"));
        assert_eq!(text(theirs, "config"), text(case, "expected"), "{}", text(case, "name"));
    }
}

/// Chance without a seed from outside: the same patches every time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    /// A patch out of a configuration: parts of it, some of them emptied, negated or marked to be deleted.
    fn part(&mut self, value: &Value, depth: u32) -> Value {
        match value {
            Value::Object(entries) => {
                let mut part = Map::new();
                for (key, value) in entries {
                    let is_name = depth == 0 && ["apiVersion", "kind", "name", "version"].contains(&key.as_str());
                    if is_name {
                        part.insert(key.clone(), value.clone());
                    } else if key != "machine" && self.roll(15) == 0 {
                        part.insert(key.clone(), json!({"$patch": "delete"}));
                    } else if self.roll(2) == 0 {
                        part.insert(key.clone(), self.part(value, depth + 1));
                    }
                }
                Value::Object(part)
            }
            Value::Array(items) => items.iter().filter(|_| self.roll(2) == 0).cloned().collect(),
            Value::Bool(truth) => Value::Bool(truth ^ (self.roll(2) == 0)),
            Value::String(_) if self.roll(6) == 0 => "".into(),
            Value::Number(_) if self.roll(3) == 0 => self.roll(3).into(),
            other => other.clone(),
        }
    }
}

/// Patches made of configurations: whatever Talos accepts is merged here, to the same.
#[test]
fn talos_library_gives_the_same_for_many_patches() {
    let sources = [data("golden/v1.13/base-controlplane.yaml"), data("golden/v1.14/base-controlplane.yaml")];
    let mut dice = Dice(7);
    let mut cases = Vec::new();
    // Of the cases those that name the fields with rules of their own.
    let own = cases_by_config();
    for source in sources.iter().flatten().chain(&own) {
        let config = parse(source).unwrap();
        for _ in 0..if own.contains(source) { 60 } else { 400 } {
            let part = |document| (dice.roll(3) > 0).then(|| dice.part(document, 0));
            let patch: Vec<Value> = config.iter().filter_map(part).collect();
            cases.push((config.clone(), patch));
        }
    }
    let question =
        |(config, patch): &(Vec<Value>, Vec<Value>)| json!({"config": emit_all(config), "patch": emit_all(patch)});
    let Some(theirs) = library(&json!({"patch": cases.iter().map(question).collect::<Vec<_>>()})) else { return };
    let answers = cases.iter().zip(theirs["patch"].as_array().unwrap());
    for ((config, patch), theirs) in answers.clone() {
        // Other refusals are about values, which are not judged here.
        if ["patch delete", "cannot delete", "merge "].iter().any(|reason| text(theirs, "error").contains(reason)) {
            assert!(merge(config, patch).is_err(), "{theirs}: {}\n--- with\n{}", emit_all(config), emit_all(patch));
        }
    }
    let accepted: Vec<_> = answers.filter(|(_, theirs)| theirs["error"] == "").collect();
    assert!(accepted.len() * 3 > cases.len(), "Talos accepts only {} of {}", accepted.len(), cases.len());
    // Talos itself brings what is merged here into its form.
    let mine = accepted.iter().map(|((config, patch), _)| {
        let merged = merge(config, patch).unwrap_or_else(|error| panic!("{error}: {}", emit_all(patch)));
        json!({"config": emit_all(&merged), "patch": "debug: null\n"})
    });
    let mine = library(&json!({"patch": mine.collect::<Vec<_>>()})).unwrap();
    for (((config, patch), theirs), mine) in accepted.iter().zip(mine["patch"].as_array().unwrap()) {
        let (theirs, mine) = (text(theirs, "config"), text(mine, "config"));
        let line = mine.lines().zip(theirs.lines()).find(|(mine, theirs)| mine != theirs);
        assert!(mine == theirs, "{line:?}: {}\n--- with\n{}", emit_all(config), emit_all(patch));
    }
}

/// The different configurations of the cases.
fn cases_by_config() -> BTreeSet<String> {
    cases().iter().map(|case| text(case, "config").to_owned()).collect()
}

/// Which table a field of Talos' types belongs in, by what the library says of it.
fn table(path: &str, how: &str) -> Option<&'static str> {
    let number =
        |how: &str| how.strip_prefix("pointer ").is_some_and(|kind| kind.trim_start_matches('u').starts_with("int"));
    match how {
        "map of interface {}" => Some("free"),
        "own meta.Args" => Some("entries replaced"),
        "own cel.Expression" | "own block.ByteSize" if !path.contains(".xfs.") => Some("cleared"),
        "own block.ByteSize" => Some("cleared within"),
        "list of uint8" => Some("paired"),
        // A truth value that is not optional is always said.
        "bool" if !path.ends_with(".*") => Some("cleared within"),
        "custom meta.URL struct" | "pointer custom v1alpha1.Endpoint struct" => Some("urls"),
        "text block.Size struct" => Some("sizes"),
        "pointer custom v1alpha1.InstallDiskSizeMatcher struct" => Some("settled"),
        "struct" if path.contains('.') && !path.ends_with(".matchdata") => Some("always there"),
        how if how.starts_with("replace ") => Some("replaced"),
        how if how.starts_with("map of ") => Some("mappings"),
        how if how.starts_with("own ") && !how.starts_with("own meta.") => Some("keyed"),
        how if number(how) => Some("zero counts"),
        how if how.starts_with("text ") && !how.ends_with("slice") && !how.ends_with("struct") => Some("zero words"),
        _ => None,
    }
}

/// The rules are those that follow from Talos' own types.
#[test]
fn rules_are_those_of_talos_types() {
    let Some(schema) = data("config.schema.json") else { return };
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let kinds = schema["oneOf"].as_array().unwrap().iter().map(|choice| {
        let name = choice["$ref"].as_str().unwrap().rsplit('/').next().unwrap();
        let kind = schema["$defs"][name]["properties"]["kind"]["enum"][0].as_str();
        match kind.unwrap_or("v1alpha1") {
            // Misnamed in the schema.
            "KubeSpanEndpoints" => "KubeSpanEndpointsConfig",
            "UnattendedInstall" => "UnattendedInstallConfig",
            kind => kind,
        }
    });
    let kinds: Vec<_> = kinds.chain(["ImageVerificationConfig"]).collect();
    let Some(answer) = library(&json!({"kinds": kinds})) else { return };
    let merged_lists = ["interfaces[].vlans[]", "interfaces[]", "admissionControl[]", "configFiles[]"];
    let mut theirs: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, how) in answer["fields"].as_object().unwrap() {
        let outside = merged_lists.iter().fold(path.clone(), |path, list| path.replace(list, ""));
        // Entries of lists that only grow are never merged.
        if !outside.contains("[]")
            && let Some(table) = table(path, how.as_str().unwrap())
        {
            theirs.entry(table).or_default().insert(path.replace("[]", ".[]"));
        }
    }
    // No word of it is 0.
    theirs.get_mut("zero words").unwrap().remove("NetworkRuleConfig.portSelector.protocol");
    theirs.get_mut("always there").unwrap().remove("ExtensionServiceConfig.configFiles.[]");
    let set = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<BTreeSet<_>>();
    let mine = BTreeMap::from([
        ("always there", set(fields::ALWAYS_THERE)),
        ("cleared", set(fields::CLEARED)),
        ("cleared within", set(fields::CLEARED_WITHIN)),
        ("entries replaced", set(fields::ENTRIES_REPLACED)),
        ("free", set(fields::FREE)),
        ("keyed", fields::KEYED.iter().map(|(path, _)| (*path).to_owned()).collect()),
        ("mappings", set(fields::MAPPINGS)),
        ("paired", set(fields::PAIRED)),
        ("replaced", set(fields::REPLACED)),
        ("settled", set(fields::SETTLED)),
        ("sizes", set(fields::SIZES)),
        ("urls", set(fields::URLS)),
        ("zero counts", set(fields::ZERO_COUNTS)),
        ("zero words", fields::ZERO_WORDS.iter().map(|(path, _)| (*path).to_owned()).collect()),
    ]);
    for (table, mine) in &mine {
        assert_eq!(mine, &theirs[table], "{table}");
    }
    assert_eq!(mine.len(), theirs.len());
}

#[test]
fn rules_of_images_are_replaced_by_pattern() {
    let config = "apiVersion: v1alpha1\nkind: ImageVerificationConfig\nrules:\n    - image: a\n      skip: true\n    - image: b\n";
    let patch = "apiVersion: v1alpha1\nkind: ImageVerificationConfig\nrules:\n    - image: a\n    - image: c\n";
    let merged = merged(config, patch).unwrap();
    assert_eq!(merged[0]["rules"], json!([{"image": "a"}, {"image": "b"}, {"image": "c"}]));
}

#[test]
fn what_is_wrong_is_named_without_values() {
    let main = "machine:\n    token: secret-value\n    certSANs: [secret-value]\n    nodeLabels: {a: secret-value}\n";
    let says = |patch: &str| {
        let error = merged(main, patch).unwrap_err().to_string();
        assert!(!error.contains("secret-value"), "{error}");
        error
    };
    assert_eq!(
        says("machine:\n    certSANs: secret-value\n"),
        "v1alpha1: machine.certSANs is of another type than in the configuration"
    );
    assert_eq!(
        says("machine:\n    nodeLabels:\n        b:\n            $patch: delete\n"),
        "v1alpha1: there is no machine.nodeLabels.b to delete"
    );
    assert_eq!(says("machine:\n    token:\n        $patch: secret-value\n"), "machine.token: $patch knows only delete");
    assert_eq!(
        says("machine:\n    files:\n        - $patch: delete\n"),
        "machine.files.[]: $patch: delete removes fields, whole entries of a list told by their first key, and documents"
    );
    assert_eq!(says("kind: LinkConfig\n$patch: delete\n"), "the document LinkConfig has no apiVersion");
    assert_eq!(says("[secret-value]\n"), "a document is no mapping");
    assert_eq!(
        says("machine: {debug: secret-value}\n---\ncluster: {token: secret-value}\n"),
        "the patch has the document v1alpha1 twice"
    );
}

#[test]
fn documents_that_say_nothing_change_nothing() {
    let config = parse("machine:\n    type: worker\n").unwrap();
    for patch in ["", "---\n", "version: v1alpha1\n", "null\n"] {
        assert_eq!(merge(&config, &parse(patch).unwrap()).unwrap(), config, "{patch:?}");
    }
}

fn tree() -> impl Strategy<Value = Value> {
    let keys = prop::sample::select(vec![
        "machine",
        "network",
        "interfaces",
        "nodeLabels",
        "$patch",
        "install",
        "kind",
        "name",
    ]);
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_u8..3).prop_map(Value::from),
        prop::sample::select(vec!["", "delete", "a", "v1alpha1"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(keys.clone().prop_map(str::to_owned), inner, 0..4)
                .prop_map(|entries| Value::Object(entries.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, rng_seed: RngSeed::Fixed(2026), ..ProptestConfig::default() })]

    /// Whatever comes, an answer: and one that does not depend on how often it is asked.
    #[test]
    fn never_panics(config in prop::collection::vec(tree(), 0..3), patch in prop::collection::vec(tree(), 0..3)) {
        prop_assert_eq!(merge(&config, &patch), merge(&config, &patch));
    }
}
