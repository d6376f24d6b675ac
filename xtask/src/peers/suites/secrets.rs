//! Against real age identities and files that real sops wrote.

mod corpus;
mod interop;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{castle, check_in, errors};
use crate::peers::Bench;
use crate::shell;

pub(super) use interop::interop;

/// An age identity and its public key, fresh from age-keygen.
pub(super) struct Identity {
    pub(super) secret: String,
    pub(super) public: String,
}

pub(super) fn identity(bench: &Bench) -> Result<Identity> {
    let text = shell::output(&mut Command::new(bench.peer("age")?.join("usr/bin/age-keygen")))?;
    let secret = text.lines().find(|line| line.starts_with("AGE-")).context("age-keygen printed no identity")?;
    let public = text
        .lines()
        .find_map(|line| line.strip_prefix("# public key: "))
        .context("age-keygen printed no public key")?;
    Ok(Identity { secret: secret.to_owned(), public: public.to_owned() })
}

pub(super) fn age(bench: &Bench) -> Result<usize> {
    let mut cases = 0;
    for _ in 0..10 {
        let Identity { secret, public } = identity(bench)?;
        let good = castle("{version: v1.13.9}", "v1.36.3", "env:TOKEN");
        let places = [
            good.replace("env:TOKEN", &secret),
            format!("# {secret}\n{good}"),
            good.replace("castle: blue", &format!("castle: {secret}")),
            good.replace("castle: blue", &format!("castle: blue\n{secret}: 1")),
            format!("{good}[broken: {secret}"),
        ];
        for (place, text) in places.iter().enumerate() {
            let folder = tempfile::tempdir()?;
            std::fs::write(folder.path().join("castle.yaml"), text)?;
            for args in [&["check"][..], &["check", "--json"]] {
                let output = Command::new(&bench.castle)
                    .args(args)
                    .current_dir(folder.path())
                    .env("HOME", folder.path())
                    .output()?;
                let printed = String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?;
                ensure!(output.status.code() == Some(4), "place {place}: an age identity was not refused");
                let shown = secret
                    .as_bytes()
                    .windows(12)
                    .skip(16)
                    .any(|part| printed.contains(&String::from_utf8_lossy(part).into_owned()));
                ensure!(!shown, "place {place}: a part of the identity was printed");
                ensure!(
                    place == 4 || printed.contains("secret-value"),
                    "place {place}: not reported as a secret:\n{printed}"
                );
                cases += 1;
            }
        }
        // The public key is no secret.
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("castle.yaml"), format!("# {public}\n{good}"))?;
        ensure!(errors(&check_in(bench, folder.path())?).is_empty(), "a public key was taken for a secret");
        cases += 1;
    }
    Ok(cases)
}

/// Files as sops writes them: name, content, a key that is there, and one that is not.
const FILES: [(&str, &str, &str, &str); 6] = [
    ("s.yaml", "proxmox:\n  token: hunter2\nlist:\n  - a: 1\n", "proxmox.token", "proxmox.nope"),
    ("s.yml", "a: 1\nb: {id: x, secret: y}\n", "b", "c"),
    ("m.yaml", "a: 1\n---\nb: 2\n", "b", "c"),
    ("s.json", "{\"a\": {\"b\": \"hunter2\"}}\n", "a.b", "a.c"),
    ("s.env", "TOKEN=hunter2\nOTHER=x\n", "TOKEN", "TOKE"),
    ("s.bin", "hunter2\n", "data", "date"),
];

pub(super) fn sops(bench: &Bench) -> Result<usize> {
    let Identity { public, .. } = identity(bench)?;
    let mut cases = 0;
    for (name, content, present, absent) in FILES {
        let folder = tempfile::tempdir()?;
        let codes = |path: &str| -> Result<Vec<String>> {
            let text = castle("{version: v1.13.9}", "v1.36.3", &format!("sops:{name}#{path}"));
            std::fs::write(folder.path().join("castle.yaml"), text)?;
            Ok(errors(&check_in(bench, folder.path())?))
        };
        let file = folder.path().join(name);
        std::fs::write(&file, content)?;
        ensure!(!codes(present)?.is_empty(), "{name} in clear was accepted");
        encrypt(bench, &public, &file)?;
        ensure!(codes(present)?.is_empty(), "{name}: {present} was not found: {:?}", codes(present)?);
        ensure!(codes(absent)? == ["sops-key-missing"], "{name}: {absent} was found: {:?}", codes(absent)?);
        cases += 3;
    }
    Ok(cases)
}

fn encrypt(bench: &Bench, public: &str, file: &Path) -> Result<()> {
    let mut sops = Command::new(bench.peer("sops")?.join("bin/sops"));
    sops.args(["--encrypt", "--in-place", "--age", public]).arg(file).env("SOPS_DISABLE_VERSION_CHECK", "1");
    shell::output(&mut sops).map(|_| ())
}
