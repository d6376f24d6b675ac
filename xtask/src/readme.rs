//! The README's commands, run exactly as written by a new user: an empty home, and a fresh copy of the sources.
//!
//! A `sh` block is run and must succeed. In a `console` block, lines after `$ ` are run and what they print is compared with
//! the lines below; `...` stands for any lines, or for the rest of one. `console fails` is a block whose last command must not succeed.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::shell;

/// What runs this very program; everything else is run.
const CI: &str = "cargo xtask ci";

#[derive(Debug)]
struct Command {
    line: usize,
    text: String,
    /// What it must print; nothing if that does not matter.
    expected: Option<String>,
    fails: bool,
}

pub(crate) fn run() -> Result<()> {
    let text = std::fs::read_to_string(shell::root().join("README.md"))?;
    let commands = commands(&text);
    if !commands.iter().any(|command| command.text == CI) {
        bail!("README.md does not name `{CI}`, the way to run the tests");
    }
    let commands: Vec<Command> = commands.into_iter().filter(|command| command.text != CI).collect();
    let home = tempfile::tempdir()?;
    let sources = home.path().join("castle");
    copy_sources(&sources)?;
    let results = run_all(&commands, home.path(), &sources)?;
    let mut problems = String::new();
    for (command, (printed, code)) in commands.iter().zip(&results) {
        let as_expected = command.expected.as_ref().is_none_or(|expected| matches(expected, printed));
        if command.fails == (*code == 0) || !as_expected {
            let _ = writeln!(
                problems,
                "README.md:{}: $ {}\nended with {code} and printed:\n{printed}",
                command.line, command.text
            );
            if let Some(expected) = command.expected.as_ref().filter(|_| !as_expected) {
                let _ = writeln!(problems, "where the README says:\n{expected}");
            }
        }
    }
    if results.len() < commands.len() {
        let _ = writeln!(problems, "the shell ended after {} of {} commands", results.len(), commands.len());
    }
    if !problems.is_empty() {
        bail!("{problems}");
    }
    println!("{} commands of the README do what it says", commands.len());
    Ok(())
}

fn commands(text: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut block: Option<&str> = None;
    for (number, line) in text.lines().enumerate() {
        match (block, line.strip_prefix("```")) {
            (None, Some(kind)) => block = Some(kind),
            (Some(kind), Some(_)) => {
                if let Some(last) = commands.last_mut().filter(|_| kind == "console fails") {
                    last.fails = true;
                }
                block = None;
            }
            (Some("sh"), None) => {
                let text = line.to_owned();
                commands.push(Command { line: number + 1, text, expected: None, fails: false });
            }
            (Some(kind), None) if kind.starts_with("console") => match line.strip_prefix("$ ") {
                Some(text) => {
                    let (text, expected) = (text.to_owned(), Some(String::new()));
                    commands.push(Command { line: number + 1, text, expected, fails: false });
                }
                None => {
                    if let Some(expected) = commands.last_mut().and_then(|command| command.expected.as_mut()) {
                        *expected += &format!("{line}\n");
                    }
                }
            },
            _ => {}
        }
    }
    commands
}

/// The sources as someone who just got them has them.
fn copy_sources(to: &Path) -> Result<()> {
    let listed = shell::output(shell::program("git").args(["ls-files", "--cached", "--others", "--exclude-standard"]))?;
    for name in listed.lines() {
        let (from, to) = (shell::root().join(name), to.join(name));
        if from.is_file() {
            std::fs::create_dir_all(to.parent().context("a file without a folder")?)?;
            std::fs::copy(from, to)?;
        }
    }
    Ok(())
}

/// Runs all commands in one shell, as someone who reads on does. Returns what each printed and how it ended.
fn run_all(commands: &[Command], home: &Path, sources: &Path) -> Result<Vec<(String, i32)>> {
    const MARK: &str = "\u{1}ended ";
    let mut script = String::from("exec 2>&1\n");
    for command in commands {
        let _ = writeln!(script, "{}\nprintf '{MARK}%s\\n' \"$?\"", command.text);
    }
    let cargo_home = std::env::var_os("CARGO_HOME").unwrap_or_else(|| home_folder(".cargo"));
    let rustup_home = std::env::var_os("RUSTUP_HOME").unwrap_or_else(|| home_folder(".rustup"));
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = shell::program("bash");
    bash.args(["-c", &script])
        .current_dir(sources)
        .env("HOME", home)
        .env("CARGO_HOME", cargo_home)
        .env("RUSTUP_HOME", rustup_home)
        .env("CARGO_TARGET_DIR", shell::target())
        .env("CARGO_INSTALL_ROOT", home.join("installed"))
        .env("PATH", format!("{}:{path}", home.join("installed/bin").display()))
        .env_remove("XDG_STATE_HOME")
        .env_remove("CASTLE_STATE_DIR");
    let output = bash.output().context("cannot start bash")?;
    let printed = String::from_utf8(output.stdout)?;
    let mut results = Vec::new();
    let mut rest = printed.as_str();
    while let Some((before, after)) = rest.split_once(MARK) {
        let (code, after) = after.split_once('\n').unwrap_or((after, ""));
        results.push((before.to_owned(), code.parse().unwrap_or(-1)));
        rest = after;
    }
    Ok(results)
}

fn home_folder(name: &str) -> std::ffi::OsString {
    std::env::home_dir().unwrap_or_default().join(name).into()
}

/// Whether `printed` is as expected, line by line; `...` stands for any lines, or for the rest of one.
fn matches(expected: &str, printed: &str) -> bool {
    fn rest(expected: &[&str], printed: &[&str]) -> bool {
        match expected {
            [] => printed.is_empty(),
            ["...", later @ ..] => (0..=printed.len()).any(|skipped| rest(later, &printed[skipped..])),
            [line, later @ ..] => {
                let line = line.trim_end();
                let is_as_said = |first: &&str| match line.strip_suffix("...") {
                    Some(begin) => first.starts_with(begin),
                    None => first.trim_end() == line,
                };
                printed.first().is_some_and(is_as_said) && rest(later, &printed[1..])
            }
        }
    }
    let expected: Vec<&str> = expected.trim_end().lines().collect();
    let printed: Vec<&str> = printed.trim_end().lines().collect();
    rest(&expected, &printed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_commands_with_what_they_print() {
        let text =
            "x\n```sh\na\nb\n```\n```console\n$ c\nd\n$ e\n```\n```console fails\n$ f\n```\n```yaml\n$ no\n```\n";
        let found: Vec<_> = commands(text)
            .into_iter()
            .map(|command| (command.line, command.text, command.expected, command.fails))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            (3, "a".to_owned(), None, false),
            (4, "b".to_owned(), None, false),
            (7, "c".to_owned(), some("d\n"), false),
            (9, "e".to_owned(), some(""), false),
            (12, "f".to_owned(), some(""), true),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn dots_stand_for_anything() {
        assert!(matches("a\n...\nd\n", "a\nb\nc\nd\n"));
        assert!(matches("...\n", ""));
        assert!(matches("at port ...\nb\n", "at port 8006\nb\n") && !matches("at port ...\n", "at 8006\n"));
        assert!(!matches("a\n", "b\n"));
        assert!(!matches("a\n...\nd\n", "a\nb\n"));
    }
}
