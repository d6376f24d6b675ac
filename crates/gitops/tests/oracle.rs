//! What Flux's own libraries make of the trees and texts of the corpus and of the fixtures, and what castle makes of them.
//!
//! What they answered is recorded beside the corpus and held at every run. Where the program itself is at hand
//! (`FLUX_BUILD`), it is asked again: it must still answer as recorded. With `CASTLE_RECORD` its answers are recorded anew.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use castle_gitops::{Code, MAX_FILE_BYTES, Object, Tree, Verdict, build, judge, substitute};
use serde_json::{Value, json};
use support::fixtures::{Fixture, world};
use support::{folder, sections, text};

const RECORDED: &str = "tests/recorded.json";

struct Case {
    name: String,
    spec: Value,
    files: Vec<(String, String)>,
}

fn cases() -> Vec<Case> {
    folder("tests/corpus")
        .into_iter()
        .map(|file| {
            let mut files = sections(&text(&format!("tests/corpus/{file}")));
            let spec = files.iter().position(|(path, _)| path == "spec.json").map(|at| files.remove(at).1);
            let spec = spec.map_or_else(|| json!({"path": "app"}), |spec| serde_json::from_str(&spec).unwrap());
            Case { name: file.trim_end_matches(".txt").to_owned(), spec, files }
        })
        .collect()
}

fn kustomization(spec: &Value) -> Value {
    json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
        "metadata": {"name": "case", "namespace": "flux-system"}, "spec": spec,
    })
}

/// Texts with variables. All of them with the same variables; each once strictly.
const TEXTS: &[&str] = &[
    "",
    "plain",
    "${name}",
    "a ${name} b",
    "$name",
    "$",
    "$$",
    "$$$",
    "$${name}",
    "$$${name}",
    "a$$b",
    "${none}",
    "${}",
    "${",
    "${name",
    "${name }",
    "${ name}",
    "${name:=x}",
    "${none:=x}",
    "${none:-x}",
    "${none=x}",
    "${none-x}",
    "${none:?x}",
    "${none:+x}",
    "${name:+x}",
    "${empty:=x}",
    "${empty:-x}",
    "${empty}",
    "${none:=}",
    "${none:=a b}",
    "${none:=a:b}",
    "${none:=${name}}",
    "${none:=x${name}y}",
    "${none:=${none2:=deep}}",
    "${none:=$x}",
    "${none:=$$x}",
    "${none:=a/b}",
    "${#name}",
    "${#none}",
    "${#}",
    "${name^}",
    "${name^^}",
    "${name,}",
    "${upper,,}",
    "${upper,}",
    "${name^^^}",
    "${name^,}",
    "${name,^}",
    "${name:0}",
    "${name:1}",
    "${name:1:2}",
    "${name:-1}",
    "${name: -1}",
    "${name:9}",
    "${name:0:9}",
    "${name:1:-1}",
    "${name:x}",
    "${name:}",
    "${name:1:}",
    "${name:0:-9}",
    "${path#*/}",
    "${path##*/}",
    "${path%/*}",
    "${path%%/*}",
    "${path#}",
    "${path#x}",
    "${path%.yaml}",
    "${path%.?aml}",
    "${path#[a-c]}",
    "${path#[^a]}",
    "${name/b/B}",
    "${name//e/E}",
    "${name/#b/B}",
    "${name/%e/E}",
    "${name/x/y}",
    "${name/e/}",
    "${name//e/}",
    "${name/e}",
    "${path/\\//-}",
    "${path//\\//-}",
    "${name/#x/y}",
    "${name/#b/}",
    "${name/${name}/new}",
    "${name/b/${upper}}",
    "${none^^}",
    "${none/a/b}",
    "${none:1}",
    "é ${name} ü",
    "${naïve:=x}",
    "line ${name}\nline ${upper}\n",
    "}{",
    "${name}}",
    "{${name}}",
    "${{name}}",
    "${1}",
    "${1:=x}",
    "${a.b}",
    "${a-b}",
    "$(name)",
    "\\${name}",
    "${name:=a}b}",
    "${none:=\\}}",
    "`${name}`",
    "${name\n}",
    "${none:=a\nb}",
    "${none:=$}",
    "${none:=$$}",
];

fn variables() -> BTreeMap<String, String> {
    [("name", "blue"), ("upper", "BLUE"), ("empty", ""), ("path", "a/b/c.yaml")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// What the program answers to everything.
fn asked(program: &std::ffi::OsStr, cases: &[Case]) -> Value {
    let builds: Vec<Value> = cases
        .iter()
        .map(|case| {
            let files: BTreeMap<&str, &str> =
                case.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
            json!({"Files": files, "Kustomization": kustomization(&case.spec)})
        })
        .collect();
    let texts: Vec<Value> =
        TEXTS.iter().map(|text| json!({"Text": text, "Vars": variables(), "Strict": true})).collect();
    let fixtures = asked_of();
    let trees: Vec<Value> = fixtures.iter().map(|(name, fixture)| whole(name, fixture)).collect();
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let question = json!({"Builds": builds, "Texts": texts, "Trees": trees}).to_string();
    child.stdin.take().unwrap().write_all(question.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let built = |answer: &Value| {
        if answer["error"] != "" {
            return json!({"fails": true});
        }
        let mut objects = answer["objects"].clone();
        objects.as_array_mut().unwrap().iter_mut().for_each(without_origin);
        json!({ "objects": objects })
    };
    let builds: serde_json::Map<String, Value> = cases
        .iter()
        .zip(answer["builds"].as_array().unwrap())
        .map(|(case, answer)| (case.name.clone(), built(answer)))
        .collect();
    let texts: serde_json::Map<String, Value> = TEXTS
        .iter()
        .zip(answer["texts"].as_array().unwrap())
        .map(|(text, answer)| {
            let said = if answer["error"] == "" { answer["text"].clone() } else { Value::Null };
            ((*text).to_owned(), said)
        })
        .collect();
    let trees: serde_json::Map<String, Value> = fixtures
        .iter()
        .zip(answer["trees"].as_array().unwrap())
        .map(|((name, _), answer)| (name.clone(), answer.clone()))
        .collect();
    json!({"builds": builds, "texts": texts, "trees": trees})
}

/// Fixtures that the libraries are not asked about, and why.
const NOT_ASKED: &[(&str, &str)] = &[
    ("not-judged", "a remote base would be fetched"),
    ("not-judged-behind-a-remote-base", "a remote base would be fetched"),
    ("not-judged-changes-of-a-remote-base", "a remote base would be fetched"),
];

/// Fixtures of which castle says otherwise than the libraries by themselves, and why it is right.
const OTHERWISE: &[(&str, &str)] = &[
    ("clean-definitions-by-a-variable", "External Secrets makes the source, and does not run here"),
    ("clean-names-that-only-the-cluster-knows", "External Secrets makes the source, and does not run here"),
    ("clean-variables-of-an-optional-source-that-others-make", "a controller makes the source, and none runs here"),
    ("clean-variables-of-one-source-by-several", "controllers fill the sources, and none runs here"),
    ("clean-variables-of-sources-that-others-make", "controllers make the sources, and none runs here"),
    ("field-unknown-missing", "the types do not say what is required; the definitions do"),
    ("field-unknown-missing-many", "the types do not say what is required; the definitions do"),
    ("not-judged-behind-another-source", "the other source makes what variables come from, and is not there"),
    ("not-judged-path-that-only-the-cluster-knows", "External Secrets makes the source, and does not run here"),
    ("not-judged-field-of-flux-2-10", "the libraries are those of Flux 2.9"),
    ("not-judged-variables-of-a-chart", "a chart may make the source, and none is installed here"),
    ("not-judged-variables-of-an-operator", "an operator may make the source, and none runs here"),
];

/// The findings that Flux's libraries have a word on. All others are about what is in a cluster, which no library of Flux's knows: what is
/// served, owned, awaited or made there, and which addresses are free.
const SPOKEN_OF: &[Code] = &[
    Code::PathMissing,
    Code::BuildFailed,
    Code::LinkDropped,
    Code::VariableMissing,
    Code::VariableUnset,
    Code::SubstitutionSourceMissing,
    Code::DependsOnCycle,
    Code::FieldUnknown,
    Code::KeyDropped,
    Code::SopsWithoutDecryption,
];

fn asked_of() -> Vec<(String, Fixture)> {
    let names = folder("tests/fixtures").into_iter().map(|file| file.trim_end_matches(".txt").to_owned());
    let names = names.filter(|name| !NOT_ASKED.iter().any(|(left_out, _)| left_out == name));
    names.map(|name| (name.clone(), Fixture::read(&format!("{name}.txt")))).collect()
}

/// A whole repository as a question: what castle gives Flux besides it is what the fixtures' castle gives.
fn whole(name: &str, fixture: &Fixture) -> Value {
    let world = world(name);
    let files: BTreeMap<&str, &str> = fixture.files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    let given: Vec<Value> = world
        .config_maps
        .iter()
        .map(|((namespace, name), data)| {
            let metadata = json!({"name": name, "namespace": namespace});
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        })
        .collect();
    let is_strict = !name.contains("flux-2-8");
    let large: BTreeMap<&str, u64> = fixture.oversized.iter().map(|path| (path.as_str(), MAX_FILE_BYTES)).collect();
    json!({"Files": files, "Large": large, "Links": fixture.links, "Entry": world.entry.value, "Given": given, "Strict": is_strict})
}

/// Flux lets Kustomize note where objects come from if a kustomization names no resources. No cluster cares, nor does castle.
fn without_origin(object: &mut Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove("config.kubernetes.io/origin");
        if annotations.is_empty() {
            metadata.shift_remove("annotations");
        }
    }
}

fn recorded() -> Value {
    serde_json::from_str(&text(RECORDED)).unwrap()
}

#[test]
fn the_program_answers_as_recorded() {
    let cases = cases();
    assert!(cases.len() >= 40, "the corpus has {} trees", cases.len());
    let Some(program) = std::env::var_os("FLUX_BUILD") else {
        castle_testbed::left_to_peers("FLUX_BUILD is not set: what Flux answers was not asked again");
        return;
    };
    let answers = asked(&program, &cases);
    if std::env::var_os("CASTLE_RECORD").is_some() {
        support::write(RECORDED, &format!("{}\n", serde_json::to_string_pretty(&answers).unwrap()));
    }
    assert!(answers == recorded(), "Flux's libraries answer differently from what is recorded");
}

#[test]
fn trees_are_built_as_flux_builds_them() {
    let recorded = recorded();
    let mut wrong = Vec::new();
    for case in cases() {
        let theirs = &recorded["builds"][&case.name];
        let tree = Tree::new(case.files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes())));
        let mine = match build(&tree, &Object::written(kustomization(&case.spec), "case.yaml")) {
            Ok(objects) => json!({"objects": objects.into_iter().map(|object| object.value).collect::<Vec<_>>()}),
            Err(error) if theirs["fails"] == true => {
                assert!(!error.what.is_empty() && error.line > 0);
                continue;
            }
            Err(error) => json!({ "fails": error.to_string() }),
        };
        if mine != *theirs {
            wrong.push(format!("{}\ncastle: {mine:#}\nFlux: {theirs:#}", case.name));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n\n"));
}

#[test]
fn texts_are_substituted_as_flux_substitutes_them() {
    let recorded = recorded();
    let mut wrong = Vec::new();
    for text in TEXTS {
        let mine = substitute(text, &variables()).map_or(Value::Null, Value::String);
        let theirs = recorded["texts"].get(*text).unwrap();
        if mine != *theirs {
            wrong.push(format!("{text:?}: castle {mine}, Flux {theirs}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Whether castle found something of one of these kinds.
fn found(verdict: &Verdict, codes: &[Code]) -> bool {
    verdict.findings.iter().any(|finding| codes.contains(&finding.code))
}

/// How what castle says of a whole repository differs from what the libraries say.
fn differences(verdict: &Verdict, theirs: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut hold = |what: &str, mine: bool, said: &Value| {
        let is_said = said.as_array().is_some_and(|said| !said.is_empty());
        if mine != is_said {
            wrong.push(format!("{what}: castle {mine}, Flux {said}"));
        }
    };
    hold("circles", found(verdict, &[Code::DependsOnCycle]), &theirs["circles"]);
    hold("fields", found(verdict, &[Code::FieldUnknown]), &theirs["fields"]);
    let kustomizations = theirs["kustomizations"].as_object().unwrap();
    let of =
        |reason: &str| -> Value { kustomizations.values().filter(|said| said["reason"] == reason).cloned().collect() };
    hold("folders", found(verdict, &[Code::PathMissing]), &of("ArtifactFailed"));
    let unbuilt = [Code::BuildFailed, Code::VariableMissing, Code::SubstitutionSourceMissing];
    hold("builds", found(verdict, &unbuilt), &of("BuildFailed"));
    for (name, said) in kustomizations {
        let is_it = |group: &&castle_gitops::Group| {
            let own = group.reference();
            format!("{}/{}", own.namespace, own.name) == *name
        };
        let Some(group) = verdict.forest.groups.iter().find(is_it) else {
            wrong.push(format!("{name} is not followed"));
            continue;
        };
        let decrypts = group.kustomization.text("/spec/decryption/provider") == "sops";
        let is_sealed = said["sealed"].as_array().is_some_and(|sealed| !sealed.is_empty());
        if is_sealed && !decrypts && !found(verdict, &[Code::SopsWithoutDecryption]) {
            wrong.push(format!("{name} would hold what is encrypted"));
        }
        // Of what goes to another cluster castle keeps nothing.
        if said["reason"].is_string() || group.kustomization.value.pointer("/spec/kubeConfig").is_some() {
            continue;
        }
        let named = |object: &Object| format!("{} {}/{}", object.kind(), object.namespace(), object.name());
        let mut mine: Vec<String> = group.objects.iter().map(named).collect();
        mine.sort();
        let theirs: Vec<&str> = said["applies"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        // What castle says that it does not build, Flux has besides.
        let is_part = mine.iter().all(|one| theirs.contains(&one.as_str()));
        let is_told = verdict.findings.iter().any(|finding| finding.why.starts_with("castle does not build"));
        if mine != theirs && !(is_part && is_told) {
            wrong.push(format!("{name} applies {mine:?}, with Flux {theirs:?}"));
        }
    }
    wrong
}

/// Goal: a finding that Flux's own libraries have a word on is not castle's opinion. Method: what they said of each fixture, held against what
/// castle says of it; both ways, so that what castle calls clean is so, too.
#[test]
fn fixtures_are_judged_as_flux_judges_them() {
    let recorded = recorded();
    let (mut wrong, mut spoken_of) = (Vec::new(), Vec::new());
    for (name, fixture) in asked_of() {
        let verdict = judge(&fixture.tree(), &world(&name));
        let theirs = &recorded["trees"][&name];
        assert!(theirs["kustomizations"].is_object(), "{name} was never asked about");
        let differences = differences(&verdict, theirs);
        let is_known = OTHERWISE.iter().any(|(known, _)| *known == name);
        match (differences.is_empty(), is_known) {
            (false, false) => wrong.push(format!("{name}: {}", differences.join("; "))),
            (true, true) => wrong.push(format!("{name} is judged as Flux does: it must leave the list")),
            (true, false) => spoken_of.extend(verdict.findings.iter().map(|finding| finding.code)),
            (false, true) => {}
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
    let silent: Vec<&str> = SPOKEN_OF.iter().filter(|code| !spoken_of.contains(code)).map(|code| code.text()).collect();
    assert!(silent.is_empty(), "no fixture shows {silent:?}");
}
