//! Against Talos' own code: its tables, the Image Factory's schematics, and `talosctl`.

mod node;
mod raised;

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{castle, check, errors};
use crate::peers::Bench;

pub(super) use node::node;
pub(super) use raised::raised;

/// Asks the wrapper around Talos' libraries.
fn ask(bench: &Bench, question: &Value) -> Result<Value> {
    let program = bench.peer("talos-tables")?.join("talos-tables");
    let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    child.stdin.take().context("no standard input")?.write_all(question.to_string().as_bytes())?;
    let output = child.wait_with_output()?;
    ensure!(output.status.success(), "talos-tables did not understand the question");
    Ok(serde_json::from_slice(&output.stdout)?)
}

pub(super) fn schematics(bench: &Bench) -> Result<usize> {
    let extensions: [&[&str]; 4] = [
        &[],
        &["iscsi-tools"],
        &["iscsi-tools", "util-linux-tools", "qemu-guest-agent"],
        &["qemu-guest-agent", "iscsi-tools"],
    ];
    let arguments: [&[&str]; 6] = [
        &[],
        &["net.ifnames=0", "console=ttyS0,115200"],
        &["-quiet", "a: b", "it's: c", "key=va:lue", "a #b", "a#b", "end:"],
        &[
            "ip=192.168.1.10::192.168.1.1:255.255.255.0:host:eth0:off",
            "talos.config=https://x.lan/?h=${hostname}&m=${mac}",
        ],
        &[
            "x=\"a b\"",
            "y='a b'",
            "z=[1,2]",
            "w={a: b}",
            "v=*x",
            "u=&x",
            "t=!x",
            "s=%x",
            "r=@x",
            "q=`x`",
            "p=>x",
            "o=|x",
            "n=a\\b",
        ],
        &[
            "a-very-long-argument=with words that would have to be folded if there were any folding at all, which there is not, however far it goes on and on",
        ],
    ];
    let mut questions = Vec::new();
    let mut mine = Vec::new();
    for extensions in extensions {
        for arguments in arguments {
            let talos = json!({"version": "v1.13.9", "extensions": extensions, "kernelArgs": arguments});
            let result = check(bench, &castle(&talos.to_string(), "v1.36.3", "env:TOKEN"))?;
            ensure!(errors(&result).is_empty(), "castle refuses {talos}: {result:#}");
            mine.push(result["schematic"].clone());
            let names: Vec<String> = extensions.iter().map(|name| format!("siderolabs/{name}")).collect();
            questions.push(json!({"extensions": names, "extraKernelArgs": arguments}));
        }
    }
    let answer = ask(bench, &json!({"schematics": questions, "pairs": []}))?;
    for (index, mine) in mine.iter().enumerate() {
        let theirs = &answer["schematics"][index];
        ensure!(mine == theirs, "for {}\ncastle says {mine:#}\nthe factory {theirs:#}", questions[index]);
    }
    Ok(mine.len())
}

pub(super) fn versions(bench: &Bench) -> Result<usize> {
    let mut pairs = Vec::new();
    for talos in ["v1.12.0", "v1.12.6", "v1.13.0", "v1.13.9", "v1.14.0", "v1.14.1"] {
        for minor in 27..=40 {
            for patch in ["0", "3", "98", "99", "0-rc.1"] {
                pairs.push((talos, format!("v1.{minor}.{patch}")));
            }
        }
    }
    let asked: Vec<Value> =
        pairs.iter().map(|(talos, kubernetes)| json!({"talos": talos, "kubernetes": kubernetes})).collect();
    let answer = ask(bench, &json!({"schematics": [], "pairs": asked}))?;
    for (index, (talos, kubernetes)) in pairs.iter().enumerate() {
        let result = check(bench, &castle(&format!("{{version: {talos}}}"), kubernetes, "env:TOKEN"))?;
        let (mine, theirs) = (errors(&result).is_empty(), answer["pairs"][index]["supported"] == true);
        ensure!(
            mine == theirs,
            "Talos {talos} with Kubernetes {kubernetes}: castle says {mine}, Talos {}",
            answer["pairs"][index]
        );
    }
    Ok(pairs.len())
}

/// talosctl neither computes schematics nor refuses pairs of versions; what it stands for, castle must accept.
pub(super) fn talosctl(bench: &Bench) -> Result<usize> {
    let folder = tempfile::tempdir()?;
    let run = |args: &[&str]| -> Result<String> {
        let program = bench.peer("talosctl")?.join("talosctl");
        let output = Command::new(program).args(args).current_dir(folder.path()).env("HOME", folder.path()).output()?;
        ensure!(output.status.success(), "talosctl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?)
    };
    let version = run(&["version", "--client"])?;
    let talos =
        version.lines().find_map(|line| line.trim().strip_prefix("Tag:")).context("talosctl names no version")?.trim();
    let images = run(&["image", "k8s-bundle"])?;
    let kubelet =
        images.lines().find_map(|line| line.trim().rsplit_once("/kubelet:")).context("talosctl names no kubelet")?;
    let kubernetes = kubelet.1.trim();

    let result = check(bench, &castle(&format!("{{version: {talos}}}"), kubernetes, "env:TOKEN"))?;
    ensure!(
        result["result"] == "valid",
        "castle refuses Talos {talos} with its own default, Kubernetes {kubernetes}: {result:#}"
    );
    let untested = result["problems"].to_string().contains("version-untested");
    ensure!(!untested, "castle's table of tested versions is behind talosctl {talos}");

    // The contract castle derives is one that this talosctl generates a valid configuration for.
    let contract = result["contract"].as_str().context("castle names no contract")?;
    let number = kubernetes.trim_start_matches('v');
    run(&[
        "gen",
        "config",
        "--talos-version",
        contract,
        "--kubernetes-version",
        number,
        "blue",
        "https://192.168.1.210:6443",
    ])?;
    run(&["validate", "--strict", "--mode", "metal", "--config", "controlplane.yaml"])?;
    Ok(3)
}

/// castle's own tests of bundles and configurations, with Talos' own programs to hold them against.
pub(super) fn configuration(bench: &Bench) -> Result<usize> {
    let own = tests(bench, &["--package", "castle-talos", "--lib", "--test", "oracles"])?;
    Ok(own + tests(bench, &["--package", "castle-layers", "--test", "cluster", "configurations::"])?)
}

/// Runs tests of castle's with the vendor's programs at hand, and counts them.
fn tests(bench: &Bench, which: &[&str]) -> Result<usize> {
    let mut tests = crate::shell::cargo();
    tests.args(["test", "--locked"]).args(which);
    tests.env("TALOSCTL", bench.peer("talosctl")?.join("talosctl"));
    tests.env("TALOS_CONFIG", bench.peer("talos-config")?.join("talos-config"));
    let output = tests.output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    let passed = said
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. ")?.split(' ').next()?.parse::<usize>().ok());
    Ok(passed.sum())
}
