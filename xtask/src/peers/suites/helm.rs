//! A castle raised by castle, on which Helm installs a chart and runs its test.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::peers::Bench;
use crate::peers::suites::program::Program;

const CASTLE: &str = "castle: helm
platform: embedded
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3}
network: {cidr: 127.43.201.0/24, gateway: 127.43.201.1, nameservers: [127.43.201.1], vip: 127.43.201.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.43.201.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.43.201.21, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
";

/// A chart of one deployment, and a Pod that tests it.
const CHART: [(&str, &str); 3] = [
    ("Chart.yaml", "apiVersion: v2\nname: small\nversion: 1.0.0\n"),
    (
        "templates/deployment.yaml",
        "apiVersion: apps/v1
kind: Deployment
metadata: {name: '{{ .Release.Name }}'}
spec:
  replicas: {{ .Values.replicas | default 1 }}
  selector: {matchLabels: {app: '{{ .Release.Name }}'}}
  template:
    metadata: {labels: {app: '{{ .Release.Name }}'}}
    spec: {containers: [{name: main, image: example.test/small}]}
",
    ),
    (
        "templates/tests/answers.yaml",
        "apiVersion: v1
kind: Pod
metadata:
  name: '{{ .Release.Name }}-answers'
  annotations: {helm.sh/hook: test, helm.sh/hook-delete-policy: before-hook-creation}
spec:
  restartPolicy: Never
  containers: [{name: ask, image: example.test/ask}]
",
    ),
];

pub(crate) fn helm(bench: &Bench) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("castle.yaml"), CASTLE)?;
    let castle = Program::new(bench.castle.clone(), folder.path());
    let held = tested(bench, &castle, folder.path());
    // Whatever was held: the datacenter ends with its suite.
    castle.well(&["datacenter", "stop"])?;
    Ok(held? + castle.held())
}

fn tested(bench: &Bench, castle: &Program, folder: &Path) -> Result<usize> {
    for (file, text) in CHART {
        let file = folder.join("chart").join(file);
        std::fs::create_dir_all(file.parent().unwrap_or(folder))?;
        std::fs::write(file, text)?;
    }
    castle.well(&["up"])?;
    castle.well(&["kubeconfig", "--out", "kubeconfig"])?;
    let helm = Program::new(bench.peer("helm")?.join("helm"), folder);
    let installed = helm.well(&["install", "small", "chart", "--wait", "--timeout", "50s"])?;
    ensure!(installed.contains("STATUS: deployed"), "not deployed: {installed}");
    // Twice: the Pod of the first time is deleted before the second.
    for _ in 0..2 {
        let told = helm.well(&["test", "small", "--timeout", "50s"])?;
        ensure!(told.contains("TEST SUITE:     small-answers") && told.contains("Phase:          Succeeded"), "{told}");
    }
    let changed = helm.well(&["upgrade", "small", "chart", "--set", "replicas=2", "--wait", "--timeout", "50s"])?;
    ensure!(changed.contains("REVISION: 2"), "not changed: {changed}");
    ensure!(helm.well(&["list"])?.contains("small-1.0.0"), "the release is not listed");
    helm.well(&["uninstall", "small", "--wait", "--timeout", "50s"])?;
    helm.refused(&["status", "small"], "release: not found")?;
    Ok(helm.held())
}
