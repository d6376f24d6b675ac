//! The arrows that ARCHITECTURE.md draws between crates, held against what their manifests say.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use super::imports::Uses;
use crate::shell;

/// What the line of ARCHITECTURE.md begins with.
const BEGINNING: &str = "Arrows point one way:";

/// What is drawn and is not so, or is so and is not drawn.
pub(super) fn wrong() -> Result<Vec<String>> {
    let text = std::fs::read_to_string(shell::root().join("ARCHITECTURE.md"))?;
    let line = text.lines().find(|line| line.starts_with(BEGINNING)).context("ARCHITECTURE.md draws no arrows")?;
    Ok(compared(&drawn(line), &real()?))
}

/// The arrows of a line: `a -> {b, c} -> d`, each in backticks.
fn drawn(line: &str) -> Uses {
    let mut drawn = Uses::new();
    for chain in line.split('`').skip(1).step_by(2).filter(|chain| chain.contains("->")) {
        let groups: Vec<Vec<&str>> = chain
            .split("->")
            .map(|group| group.split(['{', '}', ',', ' ']).filter(|name| !name.is_empty()).collect())
            .collect();
        for (from, to) in groups.iter().zip(groups.iter().skip(1)) {
            for from in from {
                drawn.entry((*from).to_owned()).or_default().extend(to.iter().map(|to| (*to).to_owned()));
            }
        }
    }
    drawn
}

/// Which of our crates need which others to be built. What only tests need is not drawn.
fn real() -> Result<Uses> {
    let mut real = Uses::new();
    for entry in std::fs::read_dir(shell::root().join("crates"))? {
        let folder = entry?.path();
        let Ok(text) = std::fs::read_to_string(folder.join("Cargo.toml")) else { continue };
        let manifest: toml::Table = text.parse().with_context(|| folder.display().to_string())?;
        let needed =
            manifest.get("dependencies").and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        real.insert(name, needed.filter_map(|name| name.strip_prefix("castle-").map(str::to_owned)).collect());
    }
    Ok(real)
}

fn compared(drawn: &Uses, real: &Uses) -> Vec<String> {
    let reached = |from: &str| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(next) = open.pop() {
            open.extend(drawn.get(&next).into_iter().flatten().filter(|one| reached.insert((*one).clone())).cloned());
        }
        reached
    };
    let mut wrong = Vec::new();
    for (from, needed) in real {
        let reached = reached(from);
        let missing = needed.iter().filter(|to| !reached.contains(*to));
        wrong.extend(missing.map(|to| format!("ARCHITECTURE.md: {from} needs {to}, and no arrow leads there")));
    }
    for (from, to) in drawn.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to))) {
        if !real.get(from).is_some_and(|needed| needed.contains(to)) {
            wrong.push(format!("ARCHITECTURE.md: the arrow {from} -> {to} is not so"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_are_held_against_what_is_so() {
        let drawn = drawn("Arrows point one way: `a -> {b, c} -> d`, `e -> a`.");
        let real: Uses =
            [("a", vec!["b", "c", "d"]), ("b", vec!["d"]), ("c", vec![]), ("d", vec!["e"]), ("e", vec!["a", "d"])]
                .map(|(from, to)| (from.to_owned(), to.into_iter().map(str::to_owned).collect()))
                .into();
        let wrong = compared(&drawn, &real);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].contains("d needs e") && wrong[1].contains("c -> d is not so"), "{wrong:?}");
    }
}
