//! What Flux's own libraries make of the trees and texts of the corpus, and what castle makes of them.
//!
//! What they answered is recorded beside the corpus and held at every run. Where the program itself is at hand
//! (`FLUX_BUILD`), it is asked again: it must still answer as recorded. With `CASTLE_RECORD` its answers are recorded anew.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use castle_gitops::{Object, Tree, build, substitute};
use serde_json::{Value, json};
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
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let question = json!({"Builds": builds, "Texts": texts}).to_string();
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
    json!({"builds": builds, "texts": texts})
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
        castle_testkit::left_to_peers("FLUX_BUILD is not set: what Flux answers was not asked again");
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
