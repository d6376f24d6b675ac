//! Gathers the words that castle's own sentences are made of, from the sources of what is shipped: a secret that is one of them is not masked
//! in them. And what its sentences say that castle does or can be told to do: a test holds it against the command line.
#![allow(clippy::disallowed_methods, reason = "what is built is on this machine's disk")]

use std::collections::BTreeSet;
use std::error::Error;
use std::path::Path;
use std::{env, fs};

/// What is in no release.
const NOT_SHIPPED: [&str; 2] = ["tests.rs", "trap.rs"];
/// Shorter ones are never masked.
const SHORTEST: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let crates = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("..");
    let (mut words, mut phrases) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(crates)? {
        let source = entry?.path().join("src");
        if source.is_dir() {
            println!("cargo::rerun-if-changed={}", source.display());
            gather(&source, &mut |text| of_source(text, &mut words, &mut phrases))?;
        }
    }
    for (file, gathered) in [("words.txt", words), ("phrases.txt", phrases)] {
        let all: Vec<String> = gathered.into_iter().collect();
        fs::write(Path::new(&env::var("OUT_DIR")?).join(file), all.join("\n"))?;
    }
    Ok(())
}

fn gather(folder: &Path, found: &mut impl FnMut(&str)) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            gather(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && !NOT_SHIPPED.iter().any(|file| path.ends_with(file))
        {
            let text = fs::read_to_string(&path)?;
            let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            found(shipped);
        }
    }
    Ok(())
}

/// The words on lines with texts, and names of fields and variants, which are keys and words of objects; and what follows castle's name in texts.
fn of_source(text: &str, words: &mut BTreeSet<String>, phrases: &mut BTreeSet<String>) {
    let mut goes_on = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with("//")) {
        let is_text = goes_on || line.contains('"');
        goes_on = line.ends_with('\\');
        if is_text {
            phrases.extend(after_the_name(line));
        }
        let is_field = line.starts_with("pub ") && line.contains(": ");
        let is_variant = line.starts_with(|letter: char| letter.is_ascii_uppercase());
        if is_text || is_field || is_variant {
            let letters = |letter: char| !(letter.is_ascii_alphabetic() || letter == '-' || letter == '_');
            for word in line.split(letters).map(|word| word.trim_matches(['-', '_'])) {
                words.extend([word.to_owned(), kebab(word)].into_iter().filter(|word| word.len() >= SHORTEST));
            }
        }
    }
}

/// What follows castle's name on a line, up to the end of a clause: `castle down --yes`.
fn after_the_name(line: &str) -> impl Iterator<Item = String> {
    let ends = |letter: char| !(letter.is_ascii_alphanumeric() || "-_ =".contains(letter));
    line.match_indices("castle ").filter_map(move |(at, _)| {
        let is_name = !line[..at].ends_with(|letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter));
        let phrase = line[at..].split(ends).next().unwrap_or_default().trim();
        (is_name && phrase != "castle").then(|| phrase.to_owned())
    })
}

/// `RunStarted` as `run-started`.
fn kebab(word: &str) -> String {
    let mut told = String::new();
    for letter in word.chars() {
        if letter.is_ascii_uppercase() && !told.is_empty() {
            told.push('-');
        }
        told.push(letter.to_ascii_lowercase());
    }
    told
}
