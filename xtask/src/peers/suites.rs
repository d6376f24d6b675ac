//! What castle and its peers must agree on.

mod bucket;
mod dial;
mod flux;
mod gitops;
mod helm;
mod hypervisor;
mod kubernetes;
mod program;
mod schema;
mod secrets;
mod state;
mod talos;
mod terraform;
mod vault;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Bench;

/// A set of cases.
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    /// The peers it works with.
    pub(crate) needs: &'static [&'static str],
    /// What it holds, in a sentence.
    pub(crate) holds: &'static str,
    /// Runs it and counts the cases.
    pub(crate) run: fn(&Bench) -> Result<usize>,
}

pub(crate) const SUITES: &[Suite] = &[
    Suite {
        name: "dial",
        needs: &["python"],
        holds: "bytes pass the door to the network as a real server sends them",
        run: dial::dial,
    },
    Suite {
        name: "age",
        needs: &["age"],
        holds: "a real age identity in castle.yaml is refused and never printed",
        run: secrets::age,
    },
    Suite {
        name: "sops",
        needs: &["age", "sops"],
        holds: "keys are found in files that real sops wrote, without decrypting",
        run: secrets::sops,
    },
    Suite {
        name: "interop",
        needs: &["age", "sops", "sops-next", "openssh"],
        holds: "castle and real sops, 3.11 and 3.13, read, write, edit and rotate each other's files",
        run: secrets::interop,
    },
    Suite {
        name: "state",
        needs: &["age"],
        holds: "sealed state is opened by real age, and of several writers exactly one wins",
        run: state::state,
    },
    Suite {
        name: "bucket",
        needs: &["moto"],
        holds: "of several writers to a real bucket server exactly one wins, and castle's verbs work on it",
        run: bucket::bucket,
    },
    Suite {
        name: "signatures",
        needs: &["moto"],
        holds: "requests to a bucket are signed as the vendor's own library signs them",
        run: bucket::signatures,
    },
    Suite {
        name: "hypervisor",
        needs: &["proxmoxer"],
        holds: "the embedded datacenter is a Proxmox to proxmoxer, from login to deletion",
        run: hypervisor::hypervisor,
    },
    Suite {
        name: "vault",
        needs: &["infisicalsdk", "vault-batch"],
        holds: "the embedded vault is an Infisical to the vendor's own clients, one by one and in batches",
        run: vault::vault,
    },
    Suite {
        name: "kubernetes",
        needs: &["etcd", "kubernetes-1.36", "kubectl"],
        holds: "a real control plane answers as recorded, kubectl and the components' manifests included",
        run: kubernetes::recorded,
    },
    Suite {
        name: "kubectl",
        needs: &["kubectl"],
        holds: "kubectl does to the embedded API server what it does to a real one, and is told the same",
        run: kubernetes::kubectl,
    },
    Suite {
        name: "kubernetes-next",
        needs: &["etcd", "kubernetes-1.37", "kubectl"],
        holds: "the next minor version of Kubernetes answers as recorded, but for what is listed",
        run: kubernetes::next,
    },
    Suite {
        name: "apply",
        needs: &["etcd", "kubernetes-1.36", "kubernetes-1.37"],
        holds: "castle applies, waits, refuses and prunes on real control planes as on its own",
        run: kubernetes::client,
    },
    Suite {
        name: "kstatus",
        needs: &["kstatus"],
        holds: "castle and kstatus itself say the same of objects of every kind that has a rule",
        run: kubernetes::statuses,
    },
    Suite {
        name: "kustomize",
        needs: &["flux-build"],
        holds: "trees are built and variables substituted as Flux's own libraries do it",
        run: gitops::kustomize,
    },
    Suite {
        name: "schema",
        needs: &["python"],
        holds: "the schema is valid draft 2020-12 and judges files as castle does",
        run: schema::schema,
    },
    Suite {
        name: "configuration",
        needs: &["talosctl", "talos-config"],
        holds: "bundles, configurations and merges are those of talosctl and of Talos' own library",
        run: talos::configuration,
    },
    Suite {
        name: "talos-node",
        needs: &["talosctl"],
        holds: "the datacenter's nodes are Talos to talosctl, from maintenance mode to a healthy cluster",
        run: talos::node,
    },
    Suite {
        name: "raised",
        needs: &["talosctl", "kubectl"],
        holds: "a castle that castle raised is a cluster to talosctl and kubectl, with the files castle issues",
        run: talos::raised,
    },
    Suite {
        name: "helm",
        needs: &["helm"],
        holds: "Helm installs, tests, changes and removes a chart on a castle that castle raised",
        run: helm::helm,
    },
    Suite {
        name: "schematics",
        needs: &["talos-tables"],
        holds: "schematic ids are those of the Image Factory's own code",
        run: talos::schematics,
    },
    Suite {
        name: "versions",
        needs: &["talos-tables"],
        holds: "Talos and Kubernetes go together as Talos' own code says",
        run: talos::versions,
    },
    Suite {
        name: "talosctl",
        needs: &["talosctl"],
        holds: "castle accepts the versions a real talosctl stands for",
        run: talos::talosctl,
    },
    Suite {
        name: "terraform",
        needs: &["terraform", "bpg-proxmox"],
        holds: "Terraform makes, changes and removes guests, pools and images, and plans nothing after itself",
        run: terraform::terraform,
    },
    // Last, for its peer takes longest: where it is not in the cache, the others have their share of the time first.
    Suite {
        name: "flux-check",
        needs: &["flux"],
        holds: "flux finds a healthy Flux on a castle that castle raised, and works with it",
        run: flux::flux,
    },
];

/// `castle check --json` of a text.
fn check(bench: &Bench, text: &str) -> Result<Value> {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("castle.yaml"), text)?;
    check_in(bench, folder.path())
}

/// `castle check --json` in a folder.
fn check_in(bench: &Bench, folder: &Path) -> Result<Value> {
    let output =
        Command::new(&bench.castle).args(["check", "--json"]).current_dir(folder).env("HOME", folder).output()?;
    serde_json::from_slice(&output.stdout).context("castle check printed no result object")
}

/// The codes of the errors in a result.
fn errors(result: &Value) -> Vec<String> {
    let problems = result["problems"].as_array().into_iter().flatten();
    let errors = problems.filter(|problem| problem["severity"] == "error");
    errors.filter_map(|problem| problem["code"].as_str()).map(str::to_owned).collect()
}

/// A castle with this Talos, Kubernetes and whatever else is said of Talos.
fn castle(talos: &str, kubernetes: &str, token: &str) -> String {
    format!(
        "castle: blue\nplatform:\n  proxmox:\n    endpoint: https://pve.lan:8006\n    token: {token}\n    nodes: [pve]\n    vmids: \
         421-432\ntalos: {talos}\nkubernetes: {{version: {kubernetes}}}\nnetwork:\n  cidr: 192.168.1.0/24\n  gateway: 192.168.1.1\n  \
         nameservers: [192.168.1.1]\n  vip: 192.168.1.210\nnodes:\n  controlPlanes: {{count: 3, firstAddress: 192.168.1.211}}\n\
         storage: none\n"
    )
}
