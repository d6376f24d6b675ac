//! The commands of the README and of the tutorial, run exactly as written by a new user: each in an empty home. The README begins with a
//! fresh copy of the sources, the tutorial with castle installed and nothing else.
//!
//! A `sh` block is run and must succeed. In a `console` block, lines after `$ ` are run and what they print is compared with
//! the lines below; `...` stands for any lines, or for the rest of one. Words after `console` say more: `fails` that the last command
//! must not succeed, `exits N` how it ends, `needs PROGRAM` that the block is left out where that program is not to be had.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::peers::obtain::{Budget, Obtained, PEERS};
use crate::shell;

/// What runs the tests, which whoever runs this has run already; everything else is run.
const TESTS: &str = "cargo xtask test";
const README: &str = "README.md";
const TUTORIAL: &str = "docs/life.md";

/// How a command should end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Well,
    Badly,
    With(i32),
}

impl End {
    fn is(self, code: i32) -> bool {
        match self {
            Self::Well => code == 0,
            Self::Badly => code != 0,
            Self::With(wanted) => code == wanted,
        }
    }
}

#[derive(Debug)]
struct Command {
    line: usize,
    text: String,
    /// What it must print; nothing if that does not matter.
    expected: Option<String>,
    end: End,
    /// The program it is left out without.
    needs: Option<String>,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Args {
    /// Run the tutorial alone, with the castle in this folder
    #[arg(long, value_name = "FOLDER")]
    castle: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    run_within(args, &Budget::unlimited()).map(|_| ())
}

/// Runs them; returns what was left out because the budget for building the programs they need was used up.
pub(crate) fn run_within(args: &Args, budget: &Budget) -> Result<Vec<String>> {
    if let Some(folder) = &args.castle {
        return tutorial(&std::path::absolute(folder)?, budget);
    }
    let commands = read(README)?;
    if !commands.iter().any(|command| command.text == TESTS) {
        bail!("{README} does not name `{TESTS}`, the way to run the tests");
    }
    let commands: Vec<Command> = commands.into_iter().filter(|command| command.text != TESTS).collect();
    let home = tempfile::tempdir()?;
    let sources = home.path().join("castle");
    copy_sources(&sources)?;
    let installed = home.path().join("installed/bin");
    hold(README, &commands, home.path(), &sources, std::slice::from_ref(&installed))?;
    tutorial(&installed, budget)
}

/// Runs the tutorial with the castle in this folder.
fn tutorial(castle: &Path, budget: &Budget) -> Result<Vec<String>> {
    let mut folders = vec![castle.to_owned()];
    let mut is_late = false;
    let kubectl = PEERS.iter().find(|peer| peer.name == "kubectl").context("there is no peer kubectl")?;
    match kubectl.obtain(budget)? {
        Obtained::At(folder) => folders.push(folder),
        Obtained::Unavailable(why) | Obtained::Absent(why) => println!("{why}"),
        Obtained::Late(why) => {
            println!("{why}");
            is_late = true;
        }
    }
    let there = |program: &String| shell::exists(program) || folders.iter().any(|it| it.join(program).is_file());
    let (commands, left_out): (Vec<Command>, Vec<Command>) =
        read(TUTORIAL)?.into_iter().partition(|command| command.needs.as_ref().is_none_or(there));
    let left_out: Vec<String> = left_out
        .iter()
        .map(|command| {
            let needs = command.needs.as_deref().unwrap_or_default();
            format!("{TUTORIAL}:{}: $ {} (there is no {needs})", command.line, command.text)
        })
        .collect();
    left_out.iter().for_each(|command| println!("NOT RUN: {command}"));
    if !left_out.is_empty() && !is_late && std::env::var_os("CI").is_some() {
        bail!("in CI nothing of {TUTORIAL} may be left out");
    }
    let home = tempfile::tempdir()?;
    hold(TUTORIAL, &commands, home.path(), home.path(), &folders)?;
    Ok(left_out)
}

fn read(document: &str) -> Result<Vec<Command>> {
    Ok(commands(&std::fs::read_to_string(shell::root().join(document))?))
}

/// Runs the commands of a document, and holds them to what it says.
fn hold(document: &str, commands: &[Command], home: &Path, folder: &Path, programs: &[PathBuf]) -> Result<()> {
    let results = run_all(commands, home, folder, programs)?;
    let mut problems = String::new();
    for (command, (printed, code)) in commands.iter().zip(&results) {
        let as_expected = command.expected.as_ref().is_none_or(|expected| matches(expected, printed));
        if !command.end.is(*code) || !as_expected {
            let _ = writeln!(
                problems,
                "{document}:{}: $ {}\nended with {code} and printed:\n{printed}",
                command.line, command.text
            );
            if let Some(expected) = command.expected.as_ref().filter(|_| !as_expected) {
                let _ = writeln!(problems, "where {document} says:\n{expected}");
            }
        }
    }
    if results.len() < commands.len() {
        let _ = writeln!(problems, "the shell ended after {} of {} commands", results.len(), commands.len());
    }
    if !problems.is_empty() {
        bail!("{problems}");
    }
    println!("{} commands of {document} do what it says", commands.len());
    Ok(())
}

fn commands(text: &str) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let mut block: Option<Vec<&str>> = None;
    for (number, line) in text.lines().enumerate() {
        match (&block, line.strip_prefix("```")) {
            (None, Some(kind)) => block = Some(kind.split(' ').collect()),
            (Some(kind), Some(_)) => {
                let end = match kind[1..] {
                    [.., "fails"] => End::Badly,
                    [.., "exits", code] => End::With(code.parse().unwrap_or(-1)),
                    _ => End::Well,
                };
                if let Some(last) = commands.last_mut().filter(|_| end != End::Well) {
                    last.end = end;
                }
                block = None;
            }
            (Some(kind), None) => {
                let needs = kind.iter().position(|word| *word == "needs").and_then(|at| kind.get(at + 1));
                let needs = needs.map(|program| (*program).to_owned());
                let mut add = |text: &str, expected| {
                    let (line, text) = (number + 1, text.to_owned());
                    commands.push(Command { line, text, expected, end: End::Well, needs: needs.clone() });
                };
                match (kind[0], line.strip_prefix("$ ")) {
                    ("sh", _) => add(line, None),
                    ("console", Some(text)) => add(text, Some(String::new())),
                    ("console", None) => {
                        if let Some(expected) = commands.last_mut().and_then(|command| command.expected.as_mut()) {
                            *expected += &format!("{line}\n");
                        }
                    }
                    _ => {}
                }
            }
            (None, None) => {}
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
            std::fs::copy(&from, &to)?;
            // cargo knows by it what is built already.
            let since = std::fs::metadata(from)?.modified()?;
            std::fs::File::options().write(true).open(to)?.set_modified(since)?;
        }
    }
    Ok(())
}

/// Runs all commands in one shell, as someone who reads on does. Returns what each printed and how it ended.
fn run_all(commands: &[Command], home: &Path, folder: &Path, programs: &[PathBuf]) -> Result<Vec<(String, i32)>> {
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
        .current_dir(folder)
        .env("HOME", home)
        .env("CARGO_HOME", cargo_home)
        .env("RUSTUP_HOME", rustup_home)
        .env("CARGO_TARGET_DIR", shell::target())
        .env("CARGO_INSTALL_ROOT", home.join("installed"))
        .env("PATH", programs.iter().map(|folder| format!("{}:", folder.display())).collect::<String>() + &path)
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
        let text = "x\n```sh\na\nb\n```\n```console\n$ c\nd\n$ e\n```\n```console fails\n$ f\n```\n```yaml\n$ no\n```\n\
                    ```console needs curl exits 2\n$ g\n$ h\n```\n";
        let found: Vec<_> = commands(text)
            .into_iter()
            .map(|command| (command.line, command.text, command.expected, command.end, command.needs))
            .collect();
        let some = |text: &str| Some(text.to_owned());
        let expected = [
            (3, "a".to_owned(), None, End::Well, None),
            (4, "b".to_owned(), None, End::Well, None),
            (7, "c".to_owned(), some("d\n"), End::Well, None),
            (9, "e".to_owned(), some(""), End::Well, None),
            (12, "f".to_owned(), some(""), End::Badly, None),
            (18, "g".to_owned(), some(""), End::Well, some("curl")),
            (19, "h".to_owned(), some(""), End::With(2), some("curl")),
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
