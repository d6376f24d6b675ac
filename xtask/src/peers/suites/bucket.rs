//! A bucket of a server nobody here wrote, and signatures of the vendor's own library.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::castle;
use crate::peers::Bench;
use crate::peers::server::Server;
use crate::shell;

const KEYS: [(&str, &str); 2] = [("AWS_ACCESS_KEY_ID", "testing"), ("AWS_SECRET_ACCESS_KEY", "testing")];
const WRITERS: usize = 16;
const ROUNDS: usize = 5;

fn python(bench: &Bench, script: &str) -> Result<Command> {
    let mut python = Command::new(bench.peer("moto")?.join("bin/python"));
    python.arg(shell::root().join("peers/bucket").join(script));
    Ok(python)
}

pub(super) fn bucket(bench: &Bench) -> Result<usize> {
    let race = shell::example("race")?;
    let server = Server::start(&mut python(bench, "serve.py")?, |line| line.starts_with("ready http://127.0.0.1:"))?;
    let endpoint = server.ready.trim_start_matches("ready ").to_owned();
    for round in 0..ROUNDS {
        let key = format!("team/lease-{round}");
        let records = if round == 0 { "1200" } else { "3" };
        let args = [endpoint.as_str(), "castles", &key, &WRITERS.to_string(), records];
        let said = shell::output(Command::new(&race).args(args).envs(KEYS))?;
        let wanted = format!("won 1 of {WRITERS}, then 1 of {WRITERS}; round trip ok");
        ensure!(said.trim() == wanted, "round {round}: {said}");
    }
    commands(bench, &endpoint)?;
    Ok(ROUNDS * 2 + 3)
}

/// castle's own verbs on the bucket, as two machines with nothing in common but the file.
fn commands(bench: &Bench, endpoint: &str) -> Result<()> {
    let state = format!(
        "state:\n  store:\n    s3: {{bucket: castles, endpoint: '{endpoint}', accessKey: env:AWS_ACCESS_KEY_ID, secretKey: env:AWS_SECRET_ACCESS_KEY}}\n"
    );
    let text = castle("{version: v1.13.9}", "v1.36.3", "env:TOKEN") + &state;
    let machine = || -> Result<tempfile::TempDir> {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("castle.yaml"), &text)?;
        Ok(folder)
    };
    let run = |folder: &Path, args: &[&str]| -> Result<Value> {
        let mut command = Command::new(&bench.castle);
        command.args(args).arg("--json").current_dir(folder).env("HOME", folder).envs(KEYS);
        Ok(serde_json::from_str(&shell::output(&mut command)?)?)
    };
    let (one, two) = (machine()?, machine()?);
    let taken = run(one.path(), &["lease", "take", "--yes"])?;
    ensure!(taken["epoch"] == 1, "{taken}");
    let seen = run(two.path(), &["lease", "show"])?;
    ensure!(seen["holder"]["epoch"] == 1 && seen["alive"] == false, "{seen}");
    let taken = run(two.path(), &["lease", "take", "--yes"])?;
    ensure!(taken["epoch"] == 2, "{taken}");
    let shown = run(one.path(), &["state", "show"])?;
    ensure!(shown["place"] == format!("bucket castles at {endpoint}") && shown["records"] == json!([]), "{shown}");
    Ok(())
}

pub(super) fn signatures(bench: &Bench) -> Result<usize> {
    let sign = shell::example("sign")?;
    let request = |method: &str, key: &str, query: Value, headers: Value, body: &str, token: Option<&str>| {
        let digest: String = Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect();
        let mut request = json!({
            "method": method, "host": "castles.s3.eu-central-1.amazonaws.com", "key": key, "query": query, "headers": headers,
            "body": body, "body_sha256": digest, "region": "eu-central-1", "access_key_id": "AKIDEXAMPLE",
            "secret_access_key": "not/a+real=secret", "time": "20260102T030405Z",
        });
        if let (Some(token), Some(request)) = (token, request.as_object_mut()) {
            request.insert("session_token".to_owned(), token.into());
        }
        request
    };
    let none = json!({});
    let requests = [
        request("GET", "castles/a/lease", json!([]), none.clone(), "", None),
        request("GET", "a b/c d", json!([]), none.clone(), "", None),
        request("GET", "wächter/日本語/🏰", json!([]), none.clone(), "", None),
        request("GET", "plus+plus/tilde~/star*/quote'()!$&=@:,;", json!([]), none.clone(), "", None),
        request("GET", "percent%20/%/100%25", json!([]), none.clone(), "", None),
        request("GET", "", json!([["list-type", "2"], ["prefix", ""]]), none.clone(), "", None),
        request(
            "GET",
            "",
            json!([["prefix", "castles/a b+ü~/"], ["list-type", "2"], ["continuation-token", "1ue/LP+X==&x=y"]]),
            none.clone(),
            "",
            None,
        ),
        request(
            "PUT",
            "castles/a/state/1",
            json!([]),
            json!({"if-none-match": "*", "content-type": "application/octet-stream"}),
            "sealed",
            None,
        ),
        request(
            "PUT",
            "castles/a/state/1",
            json!([]),
            json!({"if-match": "\"fba9dede5f27731c9771645a39863328\""}),
            "sealed again",
            None,
        ),
        request("DELETE", "castles/a/lease", json!([]), none, "", Some("IQoJb3JpZ2luX2VjEXAMPLE//wEa+LWVhc3Q==")),
    ];
    let ask = |command: &mut Command, input: &Value| -> Result<String> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        child.stdin.take().context("no input")?.write_all(input.to_string().as_bytes())?;
        let output = child.wait_with_output()?;
        ensure!(output.status.success(), "a signer failed");
        Ok(String::from_utf8(output.stdout)?)
    };
    let theirs: Vec<String> = serde_json::from_str(&ask(&mut python(bench, "sign.py")?, &json!(requests))?)?;
    for (request, theirs) in requests.iter().zip(&theirs) {
        let mine = ask(&mut Command::new(&sign), request)?;
        ensure!(mine.trim() == theirs, "{request}\ncastle signs {mine}\nthe vendor  {theirs}");
    }
    Ok(requests.len())
}
