//! A castle raised by castle, whose Flux is checked and used by the real `flux`.

use std::path::Path;

use anyhow::{Result, ensure};

use crate::peers::Bench;
use crate::peers::suites::program::Program;

const CASTLE: &str = "castle: flux
platform: embedded
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3}
network: {cidr: 127.43.202.0/24, gateway: 127.43.202.1, nameservers: [127.43.202.1], vip: 127.43.202.10}
nodes:
  controlPlanes: {count: 1, firstAddress: 127.43.202.11, cores: 4, memory: 4GiB, disk: 32GiB}
  workers: {count: 1, firstAddress: 127.43.202.21, cores: 4, memory: 8GiB, disk: 32GiB}
storage: none
gitops: {repository: embedded, folder: gitops}
";

/// The folder of the repository that Flux follows.
const FOLLOWED: &str = "gitops/clusters/flux";
const SHOP: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: shop, namespace: default}
";

/// What `flux check` says of a healthy Flux.
const HEALTHY: [&str; 9] = [
    "Kubernetes 1.36.3 >=",
    "distribution: flux-v2.9.0",
    "helm-controller: deployment ready",
    "kustomize-controller: deployment ready",
    "notification-controller: deployment ready",
    "source-controller: deployment ready",
    "gitrepositories.source.toolkit.fluxcd.io/v1",
    "kustomizations.kustomize.toolkit.fluxcd.io/v1",
    "all checks passed",
];

pub(crate) fn flux(bench: &Bench) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("castle.yaml"), CASTLE)?;
    let castle = Program::new(bench.castle.clone(), folder.path());
    let held = checked(bench, &castle, folder.path());
    // Whatever was held: the datacenter ends with its suite.
    castle.well(&["datacenter", "stop"])?;
    Ok(held? + castle.held())
}

fn checked(bench: &Bench, castle: &Program, folder: &Path) -> Result<usize> {
    let followed = folder.join(FOLLOWED);
    std::fs::create_dir_all(&followed)?;
    std::fs::write(followed.join("shop.yaml"), SHOP)?;
    castle.well(&["up"])?;
    castle.well(&["kubeconfig", "--out", "kubeconfig"])?;
    let flux = Program::new(bench.peer("flux")?.join("flux"), folder);
    let says = |arguments: &[&str], words: &[&str]| -> Result<()> {
        let told = flux.well(arguments)?;
        let missing: Vec<_> = words.iter().filter(|word| !told.contains(**word)).collect();
        ensure!(missing.is_empty(), "flux {arguments:?} does not say {missing:?}: {told}");
        Ok(())
    };
    says(&["check", "--timeout", "50s"], &HEALTHY)?;
    says(&["get", "all", "-A"], &["gitrepository/flux-system", "stored artifact", "kustomization/flux-system"])?;
    says(&["get", "kustomizations"], &["Applied revision: main@sha1:"])?;
    says(&["tree", "kustomization", "flux-system"], &["ConfigMap/default/shop"])?;
    let reconcile = ["reconcile", "kustomization", "flux-system", "--with-source", "--timeout", "50s"];
    says(&reconcile, &["fetched revision main@sha1:", "applied revision main@sha1:"])?;
    says(&["suspend", "kustomization", "flux-system"], &["kustomization suspended"])?;
    says(&["resume", "kustomization", "flux-system", "--timeout", "50s"], &["applied revision main@sha1:"])?;
    std::fs::write(followed.join("kustomization.yaml"), "resources: [absent.yaml]\n")?;
    says(&["reconcile", "source", "git", "flux-system"], &["fetched revision main@sha1:"])?;
    flux.until(&["get", "all", "-A", "--status-selector", "ready=false"], |said| said.text.contains("absent.yaml"))?;
    Ok(flux.held())
}
