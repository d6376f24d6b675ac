//! The embedded datacenter, kept by Terraform with the provider that most people use.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::hypervisor::Datacenter;
use crate::peers::Bench;
use crate::shell;

/// The image that the datacenter gives out under this address: nothing is fetched from there.
const IMAGE: &str = "https://factory.talos.dev/image/abababababababababababababababababababababababababababababababab/v1.13.9/nocloud-amd64.qcow2";

/// How `terraform plan -detailed-exitcode` ends where nothing is to be done.
const UNCHANGED: i32 = 0;

/// Terraform in a folder with what it is to make.
struct Terraform<'a> {
    folder: &'a Path,
    variables: Vec<(&'static str, String)>,
}

impl Terraform<'_> {
    /// Runs it; returns how it ended and what it printed.
    fn run(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let mut command = Command::new("terraform");
        command.args(words).current_dir(self.folder);
        // No registry, no check for updates, no proxy: nothing but loopback is spoken to.
        for proxy in ["http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env_remove(proxy);
        }
        command.envs([
            ("CHECKPOINT_DISABLE", "1"),
            ("TF_INPUT", "0"),
            ("TF_IN_AUTOMATION", "1"),
            ("TF_VAR_image", IMAGE),
        ]);
        command.env("HOME", self.folder).env("TF_CLI_CONFIG_FILE", self.folder.join("cli.tfrc"));
        let output = command.envs(self.variables.iter().cloned()).output().context("cannot start terraform")?;
        let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
        Ok((output.status.code(), said))
    }

    fn well(&self, words: &[&str]) -> Result<String> {
        let (code, said) = self.run(words)?;
        ensure!(code == Some(0), "terraform {} ended with {code:?}:\n{said}", words.join(" "));
        Ok(said)
    }

    /// Brings it about, and holds that nothing is left to be done.
    fn settle(&self, more: &[&str]) -> Result<()> {
        self.well(&[&["apply", "-auto-approve", "-no-color"], more].concat())?;
        let (code, said) = self.run(&[&["plan", "-detailed-exitcode", "-no-color"], more].concat())?;
        ensure!(code == Some(UNCHANGED), "a plan after it is not empty ({code:?}):\n{said}");
        Ok(())
    }

    /// What it has told at the end.
    fn told(&self) -> Result<Value> {
        serde_json::from_str(&self.well(&["output", "-json", "told"])?).context("no object was told")
    }
}

pub(super) fn terraform(bench: &Bench) -> Result<usize> {
    let home = tempfile::tempdir()?;
    let datacenter = Datacenter::serve(bench, home.path())?;
    let folder = home.path().join("terraform");
    std::fs::create_dir(&folder)?;
    std::fs::copy(shell::root().join("peers/terraform/main.tf"), folder.join("main.tf"))?;
    let provider = serde_json::to_string(bench.peer("bpg-proxmox")?)?;
    // Whoever overrides a provider and allows no other way asks no registry.
    let overrides =
        format!("provider_installation {{\n  dev_overrides {{\n    \"bpg/proxmox\" = {provider}\n  }}\n}}\n");
    std::fs::write(folder.join("cli.tfrc"), format!("disable_checkpoint = true\n{overrides}"))?;
    let variables = vec![
        ("PROXMOX_VE_ENDPOINT", datacenter.told("address")?),
        ("PROXMOX_VE_USERNAME", "root@pam".to_owned()),
        ("PROXMOX_VE_PASSWORD", datacenter.kept("password_file")?),
    ];
    let terraform = Terraform { folder: &folder, variables };

    terraform.settle(&[])?;
    let mut told = terraform.told()?;
    let size = told["size"].take().as_u64().unwrap_or_default();
    ensure!(size > 0, "the image has no size");
    let mut expected = json!({
        "release": "9.2", "nodes": ["pve"], "online": [true], "cores": 64, "datastores": ["local", "local-lvm"],
        "pools": ["terraform"], "members": ["qemu/431"], "roles": true, "users": true, "clone": "terraform-clone",
        "ours": ["terraform-clone", "terraform-template"], "addresses": [["127.0.0.1"], ["192.168.1.231"]],
        "size": null, "given": 2,
    });
    ensure!(told == expected, "told {told}, not {expected}");

    // Changed in place, which takes a start anew.
    terraform.settle(&["-var", "cores=4"])?;
    told = terraform.told()?;
    told["size"].take();
    expected["given"] = json!(4);
    ensure!(told == expected, "after the change {told}, not {expected}");

    terraform.well(&["destroy", "-auto-approve", "-no-color"])?;
    let left = terraform.well(&["state", "list"])?;
    ensure!(left.trim().is_empty(), "something is left:\n{left}");
    // Two plans, what was told twice, and the end.
    Ok(5)
}
