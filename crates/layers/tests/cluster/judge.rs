//! Who judges configurations and was not written here: Talos' own schema, `talosctl`, and Talos' library behind `peers/talos-config`.
//!
//! None of it is part of the project. What is absent is skipped and said so; the schema may not be absent in CI.
#![allow(clippy::disallowed_methods, reason = "the data is on disk, and programs read files")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

/// Talos' own schema.
pub(crate) struct Schema(jsonschema::Validator);

/// What Talos reads and its schema of 1.14 does not know, because documents of their own took its place.
const MOVED: [(&str, &[&str]); 3] = [
    ("/machine", &["install", "kernel", "kubelet", "network", "nodeLabels", "nodeTaints", "sysctls"]),
    ("/machine/features", &["hostDNS", "kubePrism"]),
    (
        "/cluster",
        &[
            "aggregatorCA",
            "allowSchedulingOnControlPlanes",
            "apiServer",
            "ca",
            "clusterName",
            "controlPlane",
            "controllerManager",
            "discovery",
            "id",
            "network",
            "proxy",
            "scheduler",
            "secret",
            "secretboxEncryptionSecret",
            "serviceAccount",
        ],
    ),
];

impl Schema {
    pub(crate) fn load() -> Option<Self> {
        let schema: Value =
            serde_json::from_str(&castle_testbed::oracle_text("data/talos/config.schema.json")?).unwrap();
        Some(Self(jsonschema::validator_for(&schema).unwrap()))
    }

    /// What is wrong with a document, if anything is. Up to 1.13 what has moved since is left to Talos' own programs.
    pub(crate) fn judge(&self, is_moved: bool, document: &Value) -> Result<(), String> {
        let mut document = document.clone();
        let moved: &[(&str, &[&str])] = if is_moved { &[] } else { &MOVED };
        for (section, keys) in moved.iter().copied().chain([("", ["persist"].as_slice())]) {
            if let Some(Value::Object(section)) = document.pointer_mut(section) {
                section.retain(|key, _| !keys.contains(&key.as_str()));
            }
        }
        self.0.validate(&document).map_err(|error| format!("{error} at {}", error.instance_path()))
    }
}

/// A program of somebody else's, which `cargo xtask peers` names by a variable; without it there is nobody to ask.
fn program(variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        castle_testbed::left_to_peers(&format!("{variable} names no program to compare with"));
    }
    program
}

/// What `talosctl` says against a configuration; nothing where there is no `talosctl`.
pub(crate) fn talosctl(text: &str) -> Option<Result<(), String>> {
    let program = program("TALOSCTL")?;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, text).unwrap();
    // Nodes start from disks that Talos is installed on, as in a cloud; `metal` demands to be told where to install it.
    let arguments = ["validate", "--strict", "--mode", "cloud", "--config"];
    let output = Command::new(program).args(arguments).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    Some(if output.status.success() { Ok(()) } else { Err(said) })
}

/// What Talos' library says against each configuration, empty where nothing; nothing where there is no library.
pub(crate) fn library(texts: &[String]) -> Option<Vec<String>> {
    let program = program("TALOS_CONFIG")?;
    let questions: Vec<Value> = texts.iter().map(|text| json!({"config": text, "mode": "cloud"})).collect();
    let question = json!({ "validate": questions }).to_string();
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // Answers can fill the pipe before all is asked.
    let writer = std::thread::spawn(move || input.write_all(question.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let verdicts = answer["validate"].as_array().unwrap().iter();
    Some(verdicts.map(|verdict| verdict["error"].as_str().unwrap().to_owned()).collect())
}
