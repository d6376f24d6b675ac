//! Sealed state: opened by real age, and raced for by real processes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::secrets::identity;
use crate::peers::Bench;
use crate::shell;

const WRITERS: usize = 8;
const ROUNDS: usize = 5;

pub(super) fn state(bench: &Bench) -> Result<usize> {
    let remember = shell::example("remember")?;
    let folder = tempfile::tempdir()?;
    let keys = folder.path().join("keys.txt");
    std::fs::write(&keys, format!("{}\n", identity(bench)?.secret))?;
    let store = folder.path().join("store");
    for round in 1..=ROUNDS {
        race(&remember, &store, &keys, round)?;
        let record = store.join(format!("blue/proxmox/state/platform/{round:012}"));
        opened_by_age(bench, &record, &keys, round)?;
    }
    Ok(ROUNDS * (WRITERS + 1))
}

/// Of several that have read the same, exactly one writes, and the others know.
fn race(remember: &Path, store: &Path, keys: &Path, round: usize) -> Result<()> {
    let start = |number: usize| -> Result<(Child, ChildStdin, BufReader<std::process::ChildStdout>)> {
        let mut command = Command::new(remember);
        command.arg(store).arg(keys).arg(format!("writer {number}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (input, output) = (child.stdin.take().context("no input")?, child.stdout.take().context("no output")?);
        Ok((child, input, BufReader::new(output)))
    };
    let mut writers = (0..WRITERS).map(start).collect::<Result<Vec<_>>>()?;
    let mut line = String::new();
    for (_, _, output) in &mut writers {
        line.clear();
        output.read_line(&mut line)?;
        ensure!(line == "ready\n", "a writer did not become ready: {line}");
    }
    for (_, input, _) in &mut writers {
        input.write_all(b"go\n")?;
    }
    let mut won = 0;
    for (mut child, _, mut output) in writers {
        line.clear();
        output.read_line(&mut line)?;
        ensure!(child.wait()?.success(), "a writer failed");
        match line.trim() {
            "overtaken" => {}
            wrote if wrote == format!("wrote {round}") => won += 1,
            other => anyhow::bail!("a writer said {other}"),
        }
    }
    ensure!(won == 1, "{won} of {WRITERS} writers won round {round}");
    Ok(())
}

/// As the documentation says: without its first line, a record is a plain age file.
fn opened_by_age(bench: &Bench, record: &Path, keys: &Path, round: usize) -> Result<()> {
    let sealed = std::fs::read(record)?;
    ensure!(!sealed.windows(7).any(|part| part == b"writer "), "the record is in clear");
    let line = sealed.iter().position(|&byte| byte == b'\n').context("the record has no first line")?;
    let body = record.with_extension("age");
    std::fs::write(&body, &sealed[line + 1..])?;
    let mut age = Command::new(bench.peer("age")?.join("usr/bin/age"));
    let plain = shell::output(age.arg("--decrypt").arg("--identity").arg(keys).arg(&body))?;
    std::fs::remove_file(body)?;
    let plain: Value = serde_json::from_str(&plain)?;
    let said = (&plain["castle"]["name"], &plain["layer"], &plain["serial"]);
    ensure!(said == (&"blue/proxmox".into(), &"platform".into(), &round.into()), "age opened something else: {plain}");
    Ok(())
}
