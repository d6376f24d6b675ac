//! Against an independent validator: what the schema says of a file and what castle says must agree.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{castle, check, errors};
use crate::peers::Bench;
use crate::shell;

/// Reads a list of YAML texts and says for each whether the schema accepts it; first checks the schema itself.
const VALIDATE: &str = "
import json, sys, yaml, jsonschema
given = json.load(sys.stdin)
kind = jsonschema.validators.validator_for(given['schema'])
assert kind is jsonschema.Draft202012Validator, kind
kind.check_schema(given['schema'])
validator = kind(given['schema'])
print(json.dumps([validator.is_valid(yaml.load(text, yaml.CSafeLoader if hasattr(yaml, 'CSafeLoader') else yaml.SafeLoader)) for text in given['texts']]))
";

/// Codes of problems that a schema can see; what spans values is castle's alone.
const VISIBLE: [&str; 4] = ["unknown-key", "missing-key", "wrong-type", "bad-value"];

pub(super) fn schema(bench: &Bench) -> Result<usize> {
    let good = castle("{version: v1.13.9}", "v1.36.3", "env:TOKEN");
    let mut texts = vec![good.clone(), std::fs::read_to_string(shell::root().join("examples/blue/castle.yaml"))?];
    for platform in ["proxmox", "embedded"] {
        let folder = tempfile::tempdir()?;
        shell::output(
            Command::new(&bench.castle).args(["new", "green", "--platform", platform]).current_dir(folder.path()),
        )?;
        texts.push(std::fs::read_to_string(folder.path().join(format!("clusters/green/{platform}/castle.yaml")))?);
    }
    let changes = [
        ("castle: blue", "castle: Blue"),
        ("castle: blue", "castle: [blue]"),
        ("castle: blue\n", ""),
        ("castle: blue", "castle: blue\ncolour: red"),
        ("{version: v1.13.9}", "{version: '1.13.9'}"),
        ("{version: v1.13.9}", "{version: v1.13.9, extensions: iscsi-tools}"),
        ("{version: v1.13.9}", "{version: v1.13.9, extensions: [iscsi_tools]}"),
        ("{version: v1.13.9}", "{version: v1.13.9, kernelArgs: [' x']}"),
        ("{version: v1.13.9}", "{version: v1.13.9, kernelArgs: ['net.ifnames=0']}"),
        ("https://pve.lan:8006", "http://pve.lan:8006"),
        ("env:TOKEN", "hunter2"),
        ("env:TOKEN", "sops:a.yaml"),
        ("vmids: 421-432", "vmids: '421'"),
        ("vmids: 421-432", "vmids: 421-432\n    vlan: 5000"),
        ("vmids: 421-432", "vmids: 421-432\n    hardware: {iothread: maybe}"),
        ("vmids: 421-432", "vmids: 421-432\n    hardware: {cloudInitDrive: ide9}"),
        ("vmids: 421-432", "vmids: 421-432\n    hardware: {cloudInitDrive: sata1}"),
        ("count: 3", "count: three"),
        ("count: 3", "count: 3, memory: 4GB"),
        ("count: 3", "count: 3, memory: 4 GiB"),
        ("count: 3", "count: 3, memroy: 4GiB"),
        ("storage: none", "storage: ceph"),
        ("storage: none", "storage: {longhorn: {replicas: 2}}"),
        ("storage: none", "storage: {longhorn: {replicas: 0}}"),
        ("storage: none", "storage: longhorn"),
        ("cidr: 192.168.1.0/24", "cidr: 192.168.1.0"),
        ("nameservers: [192.168.1.1]", "nameservers:"),
        ("proxmox:", "vmware:"),
    ];
    for (from, to) in changes {
        ensure!(good.contains(from), "the castle to change has no {from}");
        texts.push(good.replacen(from, to, 1));
    }
    let told = validate(bench, &texts)?;
    for (text, theirs) in texts.iter().zip(&told) {
        let codes = errors(&check(bench, text)?);
        let mine = !codes.iter().any(|code| VISIBLE.contains(&code.as_str()) || code == "secret-value");
        ensure!(mine == *theirs, "castle says {codes:?}, the schema says {theirs}, of\n{text}");
    }
    Ok(texts.len())
}

fn validate(bench: &Bench, texts: &[String]) -> Result<Vec<bool>> {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(shell::root().join("schemas/castle.schema.json"))?)?;
    let input = tempfile::NamedTempFile::new()?;
    std::fs::write(input.path(), serde_json::json!({"schema": schema, "texts": texts}).to_string())?;
    let mut python = Command::new(bench.peer("python")?.join("bin/python"));
    let told = shell::output(python.args(["-c", VALIDATE]).stdin(std::fs::File::open(input.path())?))?;
    serde_json::from_str(&told).context("the validator printed no verdicts")
}
