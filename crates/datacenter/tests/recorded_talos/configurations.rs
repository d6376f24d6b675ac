//! Configurations that are wrong in one place, judged by a configured control plane as the recorded one judged them.

use castle_talos_api::machine::ApplyConfigurationRequest;
use castle_talos_api::machine::apply_configuration_request::Mode;
use castle_testbed::in_virtual_time;
use regex::Regex;

use crate::wire::Node;
use crate::{base, told};

/// What a configured control plane said of them.
const SAID: &str = include_str!("../recordings/talos-1.13.9-bad.txt");
/// The script that made them of a right one.
const SCRIPT: &str = include_str!("../recordings/talos-bad-configurations.py");

/// Where the words are another reader's: what was asked, how ours begins, and why.
const OTHER_WORDS: [(&str, &str, &str); 3] = [
    (
        "03-not-yaml",
        "decode error: yaml: line ",
        "an open list: the vendor's reader tells what it was reading, and no place; ours tells the line",
    ),
    (
        "31-bad-ca-base64",
        "decode error: yaml: line ",
        "a value that begins with @: the vendor's reader tells line and column, in other words than ours",
    ),
    (
        "75-tab",
        "decode error: yaml: line ",
        "a tab before a key: the vendor's reader and ours name other places, for they find it at other moments",
    ),
];

/// The texts of a call in the script that makes the configurations: `m('a','b\n')`.
fn quoted(call: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut letters = call.chars();
    while letters.by_ref().any(|letter| letter == '\'') {
        let mut text = String::new();
        while let Some(letter) = letters.next().filter(|letter| *letter != '\'') {
            match letter {
                '\\' => text.push(match letters.next() {
                    Some('n') => '\n',
                    Some('t') => '\t',
                    other => other.unwrap_or('\\'),
                }),
                letter => text.push(letter),
            }
        }
        texts.push(text);
    }
    texts
}

/// The configurations that the script makes of a right one, in its order: what it replaces and adds is read from it, what it
/// computes is computed here.
fn made(script: &str, base: &str) -> Vec<(String, String)> {
    let documents: Vec<&str> = base.split("\n---\n").collect();
    let (main, rest) = (documents[0], &documents[1..]);
    let without = |pattern: &str, stands: &str| Regex::new(pattern).unwrap().replacen(base, 1, stands).into_owned();
    let found = |pattern: &str| Regex::new(pattern).unwrap().find(base).unwrap().as_str().to_owned();
    let computed = |name: &str| -> String {
        match name {
            "good" => base.to_owned(),
            "empty" => String::new(),
            "not-yaml" => "a: [b\n".to_owned(),
            "scalar" => "hello".to_owned(),
            "list" => "- a\n- b\n".to_owned(),
            "no-kind" => "foo: bar\n".to_owned(),
            "no-version" => base.replacen("version: v1alpha1\n", "", 1),
            "two-v1alpha1" => format!("{base}\n---\n{main}\n"),
            "only-docs" => rest.join("\n---\n"),
            "only-hostname" => "apiVersion: v1alpha1\nkind: HostnameConfig\nhostname: x\nauto: \"off\"\n".to_owned(),
            "endpoint-garbage" => base.replacen(&found(r"endpoint: \S+"), "endpoint: garbage", 1),
            "endpoint-nohttps" => base.replacen(&found(r"endpoint: \S+"), "endpoint: http://1.2.3.4:6443", 1),
            "no-endpoint" => without(r"    controlPlane:\n        endpoint: \S+\n", ""),
            "no-token" => without(r"    token: \S+\n", ""),
            "no-cluster-token" => without(r"(?s)(cluster:.*?)    token: \S+\n", "$1"),
            "no-ca" => without(r"    ca:\n        crt: \S+\n        key: \S+\n", ""),
            "no-ca-key" => without(r"(    ca:\n        crt: \S+\n)        key: \S+\n", "$1"),
            "bad-ca-base64" => without(r"(    ca:\n        crt: )\S+\n", "$1@@@\n"),
            "no-cluster-ca" => {
                without(r"(secretboxEncryptionSecret: \S+\n)    ca:\n        crt: \S+\n        key: \S+\n", "$1")
            }
            "no-etcd-ca" => without(r"    etcd:\n        ca:\n            crt: \S+\n            key: \S+\n", ""),
            "no-cluster" => {
                let head = main.split("\ncluster:").next().unwrap().to_owned();
                let parts = std::iter::once(head).chain(rest.iter().map(|document| format!("---\n{document}")));
                parts.collect::<Vec<_>>().join("\n")
            }
            "bad-pod-subnet" => base.replace("- 10.244.0.0/16", "- 10.244.0.0/99"),
            "bad-service-subnet" => base.replace("- 10.96.0.0/12", "- hello"),
            "old-kubelet" => {
                let image = found(r"image: ghcr.io/siderolabs/kubelet:\S+");
                base.replacen(&image, "image: ghcr.io/siderolabs/kubelet:v1.20.0", 1)
            }
            "resolver-bad" => without(r"- address: (\d+\.\d+\.\d+\.\d+)\n", "- address: x\n"),
            "worker-with-cp-secrets" => base.replacen("    type: controlplane\n", "    type: worker\n", 1),
            other => panic!("nobody knows how {other} is made"),
        }
    };
    let mut made: Vec<(String, String)> = Vec::new();
    let lines = script.lines().skip_while(|line| !line.starts_with("w('good'"));
    for call in
        lines.flat_map(|line| if line.starts_with("w('good'") { line.split("; ").collect() } else { vec![line] })
    {
        let Some((verb, arguments)) = call.split_once('(').filter(|(verb, _)| ["w", "m", "add"].contains(verb)) else {
            continue;
        };
        let texts = quoted(arguments);
        let text = match (verb, texts.as_slice()) {
            ("m", [_, before, after]) if !arguments.contains("re.search") => {
                assert!(base.contains(before.as_str()), "{call}");
                base.replacen(before, after, 1)
            }
            ("add", [_, document]) => format!("{}\n---\n{document}", base.trim_end_matches('\n')),
            _ => computed(&texts[0]),
        };
        made.push((format!("{:02}-{}", made.len() + 1, texts[0]), text));
    }
    made
}

/// What a node says of a configuration that it is only shown.
async fn judged(node: &Node, text: &str) -> Result<String, tonic::Status> {
    let data = text.as_bytes().to_vec();
    // As it was recorded. What a node takes up as it runs is asked with another mode, and no recording tells it.
    let mode = Mode::Reboot.into();
    let request = ApplyConfigurationRequest { data, dry_run: true, mode, ..ApplyConfigurationRequest::default() };
    let answer = node.machine().apply_configuration(request).await?.into_inner();
    Ok(answer.messages[0].mode_details.clone())
}

#[test]
fn configurations_are_judged_as_recorded() {
    in_virtual_time(async |clock| {
        let nodes = base::control_plane(clock).await;
        let node = nodes.admin(0);
        let all = made(SCRIPT, &base::configuration(&nodes.castle));
        assert_eq!(all.len(), SAID.lines().count());
        let mut problems = Vec::new();
        for ((name, text), line) in all.iter().zip(SAID.lines()) {
            let line = line.strip_prefix("dry-run ").unwrap();
            let (known, expected) = line.split_once(' ').unwrap();
            assert_eq!(name, known);
            let said = match judged(&node, text).await {
                Ok(details) => format!("{{\"messages\":[{{\"modeDetails\":{details:?}"),
                Err(status) => told::refused(&status),
            };
            let other = OTHER_WORDS.iter().find(|(known, ..)| known == name);
            // What is shown of a difference is cut.
            let expected = expected.trim_start().trim_end_matches(" ...\"");
            let is_same = if expected.starts_with("ERR") { said == expected } else { said.starts_with(expected) };
            match (is_same, other) {
                (true, None) => {}
                (true, Some(_)) => problems.push(format!("{name}: the same again: take it from the list")),
                (false, Some((_, words, _))) if said.starts_with(&format!("ERR InvalidArgument: \"{words}")) => {}
                (false, _) => problems.push(format!("{name}\n  real {expected}\n  ours {said}")),
            }
        }
        assert!(problems.is_empty(), "{}", problems.join("\n"));
        // In maintenance, documents without a machine are taken.
        let (name, documents) = &all[16];
        assert_eq!(name, "17-only-docs");
        let nodes = base::machine(clock).await;
        let said = judged(&nodes.stranger(0), documents).await.unwrap();
        assert!(
            said.starts_with("Dry run summary:\nApplied configuration without a reboot (skipped in dry-run)."),
            "{said}"
        );
    });
}
