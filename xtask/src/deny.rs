//! Licences, bans and sources of all dependencies, by the rules in deny.toml.
//!
//! `cargo deny check` reads the same file and says more (advisories); building it takes longer than all of CI.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::shell;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub(crate) fn run() -> Result<()> {
    let rules: toml::Table = std::fs::read_to_string(shell::root().join("deny.toml"))?.parse()?;
    let allowed = names(&rules, "licenses", "allow")?;
    let banned = names(&rules, "bans", "deny")?;
    let built = built()?;
    let packages: Vec<Value> = packages()?
        .into_iter()
        .filter(|package| built.contains(package["name"].as_str().unwrap_or_default()))
        .collect();
    let mut problems = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in &packages {
        let field = |name: &str| package[name].as_str();
        let (name, version) = (field("name").unwrap_or_default(), field("version").unwrap_or_default());
        versions.entry(name).or_default().insert(version);
        match field("license") {
            None => problems.push(format!("{name} {version} names no licence")),
            Some(licence) => {
                let expression = spdx::Expression::parse_mode(licence, spdx::ParseMode::LAX)
                    .with_context(|| format!("the licence of {name}: {licence}"))?;
                if !expression.evaluate(|wanted| allowed.contains(&wanted.license.to_string())) {
                    problems.push(format!("{name} {version} has a licence that deny.toml does not allow: {licence}"));
                }
            }
        }
        if banned.contains(name) {
            problems.push(format!("{name} {version} is banned by deny.toml"));
        }
        if field("source").is_some_and(|source| source != REGISTRY) {
            problems.push(format!("{name} {version} does not come from the registry"));
        }
    }
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    let twice = versions.values().filter(|versions| versions.len() > 1).count();
    println!(
        "{} packages, {twice} of them in more than one version: licences, bans and sources are as deny.toml wants",
        packages.len()
    );
    Ok(())
}

fn packages() -> Result<Vec<Value>> {
    let metadata = shell::output(shell::cargo().args(["metadata", "--locked", "--format-version", "1"]))?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    metadata["packages"].as_array().cloned().context("cargo metadata lists no packages")
}

/// The names of what is really built, on whatever target: the metadata also lists what weak features only mention.
fn built() -> Result<BTreeSet<String>> {
    let args = [
        "tree",
        "--locked",
        "--workspace",
        "--target",
        "all",
        "--edges",
        "normal,build,dev",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let tree = shell::output(shell::cargo().args(args))?;
    Ok(tree.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

fn names(rules: &toml::Table, section: &str, key: &str) -> Result<BTreeSet<String>> {
    let list = rules.get(section).and_then(|section| section.get(key)).and_then(toml::Value::as_array);
    let list = list.with_context(|| format!("deny.toml has no list {section}.{key}"))?;
    let name = |item: &toml::Value| {
        let item = item.get("crate").unwrap_or(item);
        item.as_str().map(str::to_owned).with_context(|| format!("deny.toml: {section}.{key} holds something odd"))
    };
    list.iter().map(name).collect()
}
