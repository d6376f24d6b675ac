//! What nobody here wrote, as a judge: Talos' own schema and golden files, `talosctl`, and Talos' library behind `peers/talos-config`.
//!
//! None of it is part of the project. What is absent is skipped and said so; the data may not be absent in CI.
#![allow(clippy::disallowed_methods, reason = "the data is on disk")]

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_yaml as yaml;
use serde_json::{Value, json};

use super::{Authority, Configuration, Contract, Secrets};

/// A file of Talos' own.
pub(crate) fn data(name: &str) -> Option<String> {
    castle_testbed::oracle_text(&format!("data/talos/{name}"))
}

/// The golden files' secrets.
pub(crate) struct Bundle(Value);

impl Bundle {
    pub(crate) fn load() -> Option<Self> {
        let mut bundle = yaml::parse(&data("secrets.yaml")?).unwrap().remove(0);
        for authority in bundle["certs"].as_object_mut().unwrap().values_mut() {
            for part in authority.as_object_mut().unwrap().values_mut() {
                *part = String::from_utf8(STANDARD.decode(part.as_str().unwrap()).unwrap()).unwrap().into();
            }
        }
        Some(Self(bundle))
    }

    pub(crate) fn secrets(&self) -> Secrets<'_> {
        let text = |pointer: &str| self.0.pointer(pointer).and_then(Value::as_str).unwrap();
        let authority = |name: &str| Authority {
            certificate: text(&format!("/certs/{name}/crt")),
            key: text(&format!("/certs/{name}/key")),
        };
        Secrets {
            cluster_id: text("/cluster/id"),
            cluster_secret: text("/cluster/secret"),
            token: text("/secrets/bootstraptoken"),
            trustd_token: text("/trustdinfo/token"),
            secretbox: text("/secrets/secretboxencryptionsecret"),
            etcd: authority("etcd"),
            k8s: authority("k8s"),
            aggregator: authority("k8saggregator"),
            os: authority("os"),
            service_account_key: text("/certs/k8sserviceaccount/key"),
        }
    }
}

/// Talos' own schema.
pub(crate) struct Schema(jsonschema::Validator);

impl Schema {
    pub(crate) fn load() -> Option<Self> {
        let mut schema: Value = serde_json::from_str(&data("config.schema.json")?).unwrap();
        // The schema misnames this kind; Talos itself reads only the longer name.
        let kind = &mut schema["$defs"]["runtime.UnattendedInstallConfigV1Alpha1"]["properties"]["kind"]["enum"];
        assert_eq!(*kind, json!(["UnattendedInstall"]), "the schema names it right now: drop this");
        *kind = json!(["UnattendedInstallConfig"]);
        Some(Self(jsonschema::validator_for(&schema).unwrap()))
    }

    pub(crate) fn judge(&self, contract: Contract, configuration: &Configuration) {
        for document in configuration.documents() {
            let mut document = document.clone();
            let unknown = if contract.has_documents() { &UNKNOWN[..1] } else { UNKNOWN };
            for (section, keys) in unknown {
                if let Some(Value::Object(section)) = document.pointer_mut(section) {
                    section.retain(|key, _| !keys.contains(&key.as_str()));
                }
            }
            if let Err(error) = self.0.validate(&document) {
                panic!("{error} in {document:#}");
            }
        }
    }
}

/// What Talos reads and the schema does not know, in Talos' own golden files neither: what was deprecated by 1.14. Only the
/// first is still written for 1.14. Talos' validators judge all of it.
const UNKNOWN: &[(&str, &[&str])] = &[
    ("", &["persist"]),
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

/// A program of somebody else's, which `cargo xtask peers` names by a variable; without it there is nobody to ask.
fn program(variable: &str) -> Option<PathBuf> {
    let program = std::env::var_os(variable).map(PathBuf::from);
    if program.is_none() {
        castle_testbed::left_to_peers(&format!("{variable} names no program to compare with"));
    }
    program
}

/// Runs `talosctl` on files with these contents, whose paths take the place of `{}` in the arguments.
pub(crate) fn talosctl(arguments: &[&str], files: &[&str]) -> Option<Result<String, String>> {
    let program = program("TALOSCTL")?;
    let folder = tempfile::tempdir().unwrap();
    let mut names = files.iter().enumerate().map(|(index, text)| {
        let name = folder.path().join(format!("{index}.yaml"));
        std::fs::write(&name, text).unwrap();
        name.to_str().unwrap().to_owned()
    });
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| {
            if argument.contains("{}") {
                argument.replace("{}", &names.next().unwrap())
            } else {
                (*argument).to_owned()
            }
        })
        .collect();
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Some(if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) })
}

/// Asks Talos' library; see `peers/talos-config` for questions and answers.
pub(crate) fn library(question: &Value) -> Option<Value> {
    let program = program("TALOS_CONFIG")?;
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let question = question.to_string();
    // Answers can fill the pipe before all is asked.
    let writer = std::thread::spawn(move || input.write_all(question.as_bytes()).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "talos-config did not understand the question");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// Without what Talos writes out or leaves out as it likes: nothing, empty texts, empty collections.
pub(crate) fn bare(value: &Value) -> Value {
    let is_something = |value: &Value| !super::shared::is_blank(value);
    match value {
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| (key.clone(), bare(value)));
            Value::Object(entries.filter(|(_, value)| is_something(value)).collect())
        }
        Value::Array(items) => items.iter().map(bare).collect(),
        other => other.clone(),
    }
}
