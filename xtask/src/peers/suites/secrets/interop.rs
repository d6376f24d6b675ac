//! castle and real sops on the same files, both ways and in turn.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, bail, ensure};

use super::corpus::{Case, cases};
use super::identity;
use crate::peers::Bench;
use crate::shell;

/// Exit codes: castle refuses for safety, sops finds another MAC.
const REFUSED: i32 = 3;
const MAC_MISMATCH: i32 = 51;

pub(crate) fn interop(bench: &Bench) -> Result<usize> {
    let mut count = 0;
    for (peer, program, is_next) in [("sops-next", "sops", true), ("sops", "bin/sops", false)] {
        let pair = Pair::new(bench, bench.peer(peer)?.join(program), is_next)?;
        for case in cases() {
            // Comments in lists: see the case.
            if is_next && case.comments_in_lists {
                continue;
            }
            count += pair.case(&case).with_context(|| format!("{peer}, {}", case.name))?;
        }
        count += pair.recipients(bench).with_context(|| format!("{peer}, recipients"))?;
        count += pair.sources().with_context(|| format!("{peer}, identities"))?;
    }
    Ok(count)
}

/// castle and one sops, with one identity, in a folder.
struct Pair {
    castle: PathBuf,
    sops: PathBuf,
    is_next: bool,
    folder: tempfile::TempDir,
    secret: String,
    public: String,
}

impl Pair {
    fn new(bench: &Bench, sops: PathBuf, is_next: bool) -> Result<Self> {
        let identity = identity(bench)?;
        let folder = tempfile::tempdir()?;
        std::fs::create_dir(folder.path().join("home"))?;
        let (secret, public) = (identity.secret, identity.public);
        Ok(Self { castle: bench.castle.clone(), sops, is_next, folder, secret, public })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, program: &Path, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).current_dir(self.folder.path()).env_clear();
        command.env("HOME", self.path("home")).env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("SOPS_AGE_KEY", &self.secret).env("SOPS_DISABLE_VERSION_CHECK", "1");
        command
    }

    fn castle(&self, args: &[&str]) -> Result<Vec<u8>> {
        printed(&mut self.command(&self.castle, &[&["secrets"], args].concat()))
    }

    fn sops(&self, args: &[&str]) -> Result<Vec<u8>> {
        printed(&mut self.command(&self.sops, args))
    }

    fn config(&self, recipients: &str, rule: &str) -> Result<()> {
        let lines = rule.lines().filter(|line| !line.is_empty()).map(|line| format!("  {line}\n"));
        let text = format!("creation_rules:\n- {recipients}\n{}", lines.collect::<String>());
        Ok(std::fs::write(self.path(".sops.yaml"), text)?)
    }

    /// What sops reads, once it has been through sops itself: so are both sides written alike.
    fn settled(&self, clear: &[u8], ending: &str) -> Result<Vec<u8>> {
        let file = format!("settled.{ending}");
        std::fs::write(self.path(&file), clear)?;
        self.sops(&["encrypt", "--in-place", &file])?;
        self.sops(&["decrypt", &file])
    }

    fn case(&self, case: &Case) -> Result<usize> {
        let Case { name, ending, clear, rule, .. } = case;
        self.config(&format!("age: {}", self.public), rule)?;
        let (theirs, ours) = (format!("{name}-theirs.{ending}"), format!("{name}-ours.{ending}"));
        for file in [&theirs, &ours] {
            std::fs::write(self.path(file), clear)?;
        }
        self.sops(&["encrypt", "--in-place", &theirs])?;
        self.castle(&["encrypt", "--in-place", &ours])?;
        let expected = self.sops(&["decrypt", &theirs]).context("sops does not read its own file")?;
        let seen = self.castle(&["view", &theirs]).context("castle does not read the file of sops")?;
        // 3.13 keeps comments beside values, castle writes them above as 3.11 does.
        let compared =
            |clear: Vec<u8>| if self.is_next && *ending == "yaml" { without_comments(&clear) } else { clear };
        let alike = |clear: &[u8]| Ok::<_, anyhow::Error>(compared(self.settled(clear, ending)?));
        same("castle reads the file of sops", &alike(&seen)?, &compared(expected.clone()))?;
        let seen = self.sops(&["decrypt", &ours]).context("sops does not read the file of castle")?;
        same("sops reads the file of castle", &alike(&seen)?, &alike(&expected)?)?;
        same("which values are encrypted", &self.skeleton(&ours)?, &self.skeleton(&theirs)?)?;
        self.in_turn(&theirs, ending)?;
        // What follows does not depend on the rule.
        if rule.is_empty() {
            self.in_turn(&ours, ending)?;
            self.tampered(&theirs)?;
        }
        Ok(if rule.is_empty() { 6 } else { 4 })
    }

    /// The types of the encrypted values, in order: without what differs from one encryption to the next.
    fn skeleton(&self, file: &str) -> Result<Vec<u8>> {
        let text = std::fs::read_to_string(self.path(file))?;
        let own = text.lines().take_while(|line| !line.contains("sops"));
        let values = own.flat_map(|line| line.split("ENC[").skip(1)).filter_map(|value| value.split_once("type:"));
        let mut kinds: Vec<&str> = values.filter_map(|(_, rest)| rest.split(']').next()).collect();
        // 3.13 writes comments beside values, 3.11 above them.
        kinds.retain(|kind| !self.is_next || *kind != "comment");
        // 3.11 takes every number of JSON for a float.
        if !self.is_next && file.ends_with(".json") {
            kinds.iter_mut().filter(|kind| **kind == "int").for_each(|kind| *kind = "float");
        }
        Ok(kinds.join(" ").into_bytes())
    }

    /// Each changes what the other wrote; what was not changed keeps its ciphertext.
    fn in_turn(&self, file: &str, ending: &str) -> Result<()> {
        if ending == "bin" {
            self.castle(&["rotate", file])?;
            self.sops(&["decrypt", file]).context("after castle's rotation")?;
            return Ok(());
        }
        let ciphertexts = || -> Result<Vec<String>> {
            let text = std::fs::read_to_string(self.path(file))?;
            let lines = text.lines().filter(|line| !line.contains("mac"));
            let values = lines.flat_map(|line| line.split("ENC[").skip(1)).filter_map(|value| value.split(']').next());
            Ok(values.map(str::to_owned).collect())
        };
        let before = ciphertexts()?;
        let value = self.path("value");
        std::fs::write(&value, "planted by castle\n")?;
        self.castle(&["set", file, "added", "--from", "value"])?;
        let after = ciphertexts()?;
        let kept = before.iter().filter(|line| after.contains(line)).count();
        ensure!(kept == before.len(), "castle's set changed {} other ciphertexts", before.len() - kept);
        let seen = self.sops(&["decrypt", "--extract", "[\"added\"]", file]).context("after castle's set")?;
        ensure!(seen.trim_ascii() == b"planted by castle", "sops reads another value than castle set");
        self.sops(&["set", file, "[\"added\"]", "\"planted by sops\""])?;
        let seen = self.castle(&["get", file, "added"]).context("after sops' set")?;
        ensure!(seen == b"planted by sops", "castle reads another value than sops set");
        self.castle(&["rotate", file])?;
        let seen = self.sops(&["decrypt", "--extract", "[\"added\"]", file]).context("after castle's rotation")?;
        ensure!(seen.trim_ascii() == b"planted by sops", "rotation changed a value");
        self.sops(&["rotate", "--in-place", file])?;
        self.castle(&["view", file]).context("after sops' rotation")?;
        Ok(())
    }

    /// A changed MAC is refused by both.
    fn tampered(&self, file: &str) -> Result<()> {
        let text = std::fs::read_to_string(self.path(file))?;
        // Another moment of modification, of the same length: the MAC is bound to it.
        let at = text.find("lastmodified").context("there is no lastmodified")?;
        let (head, tail) = text.split_at(at);
        let broken = format!("{head}{}", tail.replacen("20", "19", 1));
        ensure!(broken != text, "nothing was changed");
        std::fs::write(self.path(file), broken)?;
        let ran = self.command(&self.castle, &["secrets", "view", file]).output()?;
        ensure!(ran.status.code() == Some(REFUSED), "castle reads a file with a wrong MAC");
        let ran = self.command(&self.sops, &["decrypt", file]).output()?;
        ensure!(ran.status.code().is_some_and(|code| code != 0), "sops reads a file with a wrong MAC");
        ensure!(ran.status.code() == Some(MAC_MISMATCH) || !ran.stdout.contains(&b'='), "sops fails in another way");
        Ok(())
    }

    /// Every kind of recipient, and groups of them.
    fn recipients(&self, bench: &Bench) -> Result<usize> {
        let other = identity(bench)?;
        let keygen = bench.peer("openssh")?.join("usr/bin/ssh-keygen");
        for (name, kind) in [("ed25519", "ed25519"), ("rsa", "rsa")] {
            let file = self.path(name);
            shell::output(Command::new(&keygen).args(["-q", "-N", "", "-C", "test", "-t", kind, "-f"]).arg(&file))?;
        }
        let public = |name: &str| -> Result<String> {
            Ok(std::fs::read_to_string(self.path(&format!("{name}.pub")))?.trim().to_owned())
        };
        let (ed25519, rsa) = (public("ed25519")?, public("rsa")?);
        let (own, other) = (&self.public, &other.public);
        let groups = |threshold: &str, groups: &[&str]| {
            let listed = groups.iter().map(|group| format!("{{age: [{group}]}}")).collect::<Vec<_>>().join(", ");
            format!("key_groups: [{listed}]{threshold}")
        };
        let mut count = 0;
        for (name, recipients, ssh) in [
            ("one", format!("age: {own}"), None),
            ("two", format!("age: '{other}, {own}'"), None),
            ("list", format!("age: [{own}, {other}]"), None),
            ("ed25519", format!("age: '{ed25519}'"), Some("ed25519")),
            ("rsa", format!("age: '{rsa}'"), Some("rsa")),
            ("mixed", format!("age: '{ed25519},{other},{rsa}'"), Some("rsa")),
            ("two-groups", groups("", &[own, own]), None),
            ("two-of-three", groups("\n  shamir_threshold: 2", &[own, other, own]), None),
            ("merged", format!("key_groups: [{{merge: [{{age: [{own}]}}], age: [{other}]}}]"), None),
        ] {
            self.config(&recipients, "")?;
            for ending in ["yaml", "json", "env"] {
                let clear = if ending == "env" { "a=hunter2\n" } else { "{\"a\": \"hunter2\"}\n" };
                let (theirs, ours) = (format!("{name}-theirs.{ending}"), format!("{name}-ours.{ending}"));
                for file in [&theirs, &ours] {
                    std::fs::write(self.path(file), clear)?;
                }
                let with_ssh = |program: &Path, args: &[&str]| {
                    let mut command = self.command(program, args);
                    if let Some(key) = ssh {
                        command.env("SOPS_AGE_SSH_PRIVATE_KEY_FILE", self.path(key));
                    }
                    printed(&mut command)
                };
                with_ssh(&self.sops, &["encrypt", "--in-place", &theirs])?;
                with_ssh(&self.castle, &["secrets", "encrypt", "--in-place", &ours])?;
                for file in [&theirs, &ours] {
                    let read = with_ssh(&self.castle, &["secrets", "get", file, "a"]);
                    ensure!(read.with_context(|| format!("castle, {file}"))? == b"hunter2", "{file}: another value");
                    with_ssh(&self.sops, &["decrypt", file]).with_context(|| format!("sops, {file}"))?;
                    with_ssh(&self.castle, &["secrets", "rotate", file])
                        .with_context(|| format!("castle rotates {file}"))?;
                    with_ssh(&self.sops, &["decrypt", file]).with_context(|| format!("sops, rotated {file}"))?;
                }
                count += 4;
            }
        }
        Ok(count + self.update(own, other)?)
    }

    /// Keys are changed by both; those who are taken out cannot read any more.
    fn update(&self, own: &str, other: &str) -> Result<usize> {
        for (updating, name) in [(&self.castle, "castle"), (&self.sops, "sops")] {
            let file = format!("update-{name}.yaml");
            self.config(&format!("age: {own}"), "")?;
            std::fs::write(self.path(&file), "a: hunter2\n")?;
            self.sops(&["encrypt", "--in-place", &file])?;
            self.config(&format!("age: '{other},{own}'"), "")?;
            let args: &[&str] = if name == "castle" {
                &["secrets", "updatekeys", "--yes", &file]
            } else {
                &["updatekeys", "--yes", &file]
            };
            printed(&mut self.command(updating, args))?;
            let text = std::fs::read_to_string(self.path(&file))?;
            ensure!(text.contains(own) && text.contains(other), "{name} did not add the recipient");
            self.sops(&["decrypt", &file])?;
            self.castle(&["view", &file])?;
            self.config(&format!("age: {other}"), "")?;
            printed(&mut self.command(updating, args))?;
            for program in [&self.castle, &self.sops] {
                let args: &[&str] =
                    if program == &self.castle { &["secrets", "view", &file] } else { &["decrypt", &file] };
                ensure!(
                    !self.command(program, args).output()?.status.success(),
                    "{} still reads it",
                    program.display()
                );
            }
        }
        Ok(2)
    }

    /// Every place where identities are looked for.
    fn sources(&self) -> Result<usize> {
        self.config(&format!("age: {}", self.public), "")?;
        std::fs::write(self.path("source.yaml"), "a: hunter2\n")?;
        self.sops(&["encrypt", "--in-place", "source.yaml"])?;
        std::fs::write(self.path("keys"), format!("# created: now\n{}\n", self.secret))?;
        let keys = self.path("keys").display().to_string();
        let command = format!("cat '{keys}'");
        let usual = self.path("home/.config/sops/age");
        let elsewhere = self.path("xdg/sops/age");
        let sources: [(&str, &str, Option<&Path>); 5] = [
            ("SOPS_AGE_KEY", &self.secret, None),
            ("SOPS_AGE_KEY_FILE", &keys, None),
            ("SOPS_AGE_KEY_CMD", &command, None),
            ("UNUSED", "", Some(&usual)),
            ("XDG_CONFIG_HOME", &self.path("xdg").display().to_string(), Some(&elsewhere)),
        ];
        for (variable, value, folder) in sources {
            if let Some(folder) = folder {
                std::fs::create_dir_all(folder)?;
                std::fs::copy(self.path("keys"), folder.join("keys.txt"))?;
            }
            for (program, args) in
                [(&self.sops, &["decrypt", "source.yaml"][..]), (&self.castle, &["secrets", "view", "source.yaml"])]
            {
                let mut command = self.command(program, args);
                let seen = printed(command.env_remove("SOPS_AGE_KEY").env(variable, value));
                let seen = seen.with_context(|| format!("identity from {variable} {}", program.display()))?;
                ensure!(seen == b"a: hunter2\n", "{variable}: another value");
            }
            if let Some(folder) = folder {
                std::fs::remove_dir_all(folder)?;
            }
        }
        Ok(sources.len())
    }
}

/// What a program prints, if it ends well.
fn printed(command: &mut Command) -> Result<Vec<u8>> {
    let Output { status, stdout, stderr } = command.output()?;
    if !status.success() {
        bail!("{} ended with {status}: {}", command.get_program().display(), String::from_utf8_lossy(&stderr));
    }
    Ok(stdout)
}

fn without_comments(yaml: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(yaml);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines
        .map(|line| line.split(" #").next().unwrap_or_default().trim_end().to_owned() + "\n")
        .collect::<String>()
        .into_bytes()
}

fn same(what: &str, one: &[u8], other: &[u8]) -> Result<()> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(one == other, "{what}: they differ\n{}\nfrom\n{}", text(one), text(other));
    Ok(())
}
