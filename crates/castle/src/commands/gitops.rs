//! `castle gitops`: the repository that Flux follows, judged before a cluster sees it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use castle_gitops::git::{self, GitError, Remote};
use castle_gitops::{EXTERNAL_SECRETS, FLUX, Finding, LONGHORN, METALLB, Severity, Tree, Verdict, World, judge};
use castle_http::Trust;
use castle_seams::TcpDial;
use castle_secrets::Secret;
use castle_spec::Castle;
use castle_spec::model::Storage;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::keeping::{Doors, Kept};
use crate::output::{Exit, Printer};
use crate::stand::{self, Trouble};

/// A host that does not answer the first packet for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What documents the findings, for `--explain`.
const FINDINGS: &str = include_str!("../../../../docs/gitops.md");
/// The ConfigMap with the values of `gitops.vars`.
const VARIABLES: &str = "cluster-vars";
/// The store that castle makes for the castle's vault.
const STORE: &str = "infisical";
/// Where Flux stands, and the name of all that castle makes for it.
const FLUX_SYSTEM: &str = "flux-system";

/// Judge the Git repository that Flux follows, before a cluster does
#[derive(Debug, Args)]
pub(crate) struct GitopsArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Check(CheckArgs),
}

/// Build the repository as Flux would, and tell all that is wrong with it
///
/// Every Kustomization is built, variables substituted, and the result held against what castle will install: kinds that nobody serves,
/// variables, secrets and namespaces that nobody makes, circles, second owners, and more. Each finding has its file and line, why, and what to
/// do (docs/gitops.md). Nothing is changed, and no cluster is asked.
#[derive(Debug, Args)]
#[command(
    after_help = "Ends with 4 if something must be mended first.\n\nExamples:\n  castle gitops check gitops clusters/blue/proxmox\n  castle gitops check https://github.com/me/blue.git clusters/blue/proxmox\n  castle gitops check --explain kind-not-served"
)]
struct CheckArgs {
    /// A folder, or the address of a repository; by default gitops.repository of castle.yaml
    #[arg(value_name = "FOLDER|ADDRESS")]
    source: Option<String>,
    /// A castle.yaml, or the folder it is in
    #[arg(value_name = "PATH", default_value = ".")]
    path: PathBuf,
    /// The folder of the repository that Flux enters; by default gitops.path of castle.yaml, or clusters/CASTLE
    #[arg(long, value_name = "FOLDER")]
    entry: Option<String>,
    /// Explain a kind of finding
    #[arg(long, value_name = "CODE", conflicts_with_all = ["source", "path", "entry"])]
    explain: Option<String>,
}

pub(crate) async fn run(args: &GitopsArgs, printer: &mut Printer) -> Exit {
    let What::Check(args) = &args.what;
    let ended = match &args.explain {
        Some(code) => explain(code, printer),
        None => check(args, printer).await,
    };
    stand::end("gitops", ended, printer)
}

fn explain(code: &str, printer: &mut Printer) -> Result<Exit, Trouble> {
    let section = FINDINGS.split("\n### ").skip(1).find(|section| section.lines().next() == Some(code));
    let body = section.map(|section| section.split("\n## ").next().unwrap_or(section).trim_end());
    match body {
        Some(body) => Ok(printer.data(&format!("{body}\n"))),
        None => {
            let codes: Vec<String> = castle_gitops::Code::ALL.iter().map(|code| code.text().to_owned()).collect();
            let hint = match castle_spec::nearest(code, &codes) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the codes are {}", codes.join(", ")),
            };
            Err(Trouble::Invalid(format!("no finding has the code `{code}`; {hint}")))
        }
    }
}

/// The files to judge, and the commit they are of.
struct Source {
    tree: Tree,
    commit: Option<String>,
}

async fn check(args: &CheckArgs, printer: &mut Printer) -> Result<Exit, Trouble> {
    let kept = Kept::open(Doors::system(), &args.path).map_err(Trouble::Invalid)?;
    let repository = kept.castle.gitops.as_ref().map(|gitops| gitops.repository.as_str());
    let source = args.source.as_deref().or(repository).ok_or_else(|| {
        Trouble::Invalid(format!("{} names no gitops.repository: name a folder or an address", kept.file.display()))
    })?;
    let source = if source.contains("://") || git::is_ssh(source) {
        match fetched(&kept, source).await {
            Err(GitError::Ssh) => return Ok(unread(&kept, printer)),
            Err(error @ (GitError::BranchMissing { .. } | GitError::Empty | GitError::Address(_))) => {
                return Err(Trouble::Invalid(error.to_string()));
            }
            Err(error) => return Err(Trouble::Failed(error.to_string())),
            Ok(source) => source,
        }
    } else {
        let tree = Tree::of_folder(kept.doors.disk.as_ref(), Path::new(source));
        Source { tree: tree.map_err(|error| Trouble::Invalid(error.to_string()))?, commit: None }
    };
    let world = world(&kept.castle, args.entry.as_deref());
    let verdict = judge(&source.tree, &world);
    Ok(tell(&kept, &source, &verdict, printer))
}

async fn fetched(kept: &Kept, address: &str) -> Result<Source, GitError> {
    let gitops = kept.castle.gitops.as_ref();
    let branch = gitops.map_or("main", |gitops| gitops.branch.as_str());
    let credential = gitops.and_then(|gitops| gitops.credential.as_ref());
    // A credential is for the repository that the file names, and goes nowhere else.
    let is_own = gitops.is_some_and(|gitops| gitops.repository.as_str() == address);
    let token = match credential.filter(|_| is_own && !git::is_ssh(address)) {
        Some(reference) => Some(
            kept.secret(reference).await.map_err(|why| GitError::Unreachable(format!("gitops.credential: {why}")))?,
        ),
        None => None,
    };
    let dial = Arc::new(TcpDial { timeout: CONNECT_TIMEOUT });
    let remote = Remote { address, branch, token: token.as_ref().map(Secret::expose) };
    let commit = git::fetch(remote, &Trust::PublicRoots, dial, kept.doors.clock.clone()).await?;
    Ok(Source { tree: commit.tree, commit: Some(commit.id) })
}

/// What castle will have made by the time Flux begins.
fn world(castle: &Castle, entry: Option<&str>) -> World {
    let gitops = castle.gitops.as_ref();
    let named = gitops.and_then(|gitops| gitops.path.as_ref()).map(|path| path.as_str().to_owned());
    let default = || format!("clusters/{}", castle.castle.as_str());
    let mut world = World::new(&entry.map(str::to_owned).or(named).unwrap_or_else(default));
    world.install(&FLUX);
    if castle.network.load_balancers.is_some() {
        world.install(&METALLB);
    }
    if matches!(castle.storage.value, Storage::Longhorn(_)) {
        world.install(&LONGHORN);
    }
    if castle.secrets.is_some() {
        world.install(&EXTERNAL_SECRETS);
        world.stores.insert(STORE.to_owned());
        world.own("castle", "external-secrets.io", "ClusterSecretStore", "", STORE);
    }
    if gitops.is_some_and(|gitops| gitops.credential.is_some()) {
        world.secrets.insert((FLUX_SYSTEM.to_owned(), FLUX_SYSTEM.to_owned()));
    }
    let vars = gitops.into_iter().flat_map(|gitops| gitops.vars.iter());
    let vars: BTreeMap<String, String> =
        vars.map(|(key, value)| (key.as_str().to_owned(), value.as_str().to_owned())).collect();
    world.give_variables(VARIABLES, vars);
    world
}

/// What is told of a repository that cannot be read from here.
fn unread(kept: &Kept, printer: &mut Printer) -> Exit {
    let why = GitError::Ssh.to_string();
    printer.say(&format!("{why}.\nWith a clone of it: castle gitops check FOLDER {}", kept.file.display()));
    let problem = json!({"code": "not-judged", "severity": "note", "summary": why, "hint": "check a clone of it"});
    printer.result(&json!({
        "verb": "gitops", "castle": kept.castle.castle.as_str(), "result": "unread", "problems": [problem],
    }));
    Exit::Done
}

fn tell(kept: &Kept, source: &Source, verdict: &Verdict, printer: &mut Printer) -> Exit {
    for finding in &verdict.findings {
        if finding.code.severity() == Severity::Error {
            printer.complain_to_people(&shown(finding));
        } else {
            printer.say(&shown(finding));
        }
    }
    let count = |severity| verdict.findings.iter().filter(|finding| finding.code.severity() == severity).count();
    let (errors, warnings, notes) = (count(Severity::Error), count(Severity::Warning), count(Severity::Note));
    let (groups, objects) = (verdict.forest.groups.len(), verdict.forest.objects().count());
    let at =
        source.commit.as_ref().map_or_else(String::new, |commit| format!(" at {}", &commit[..12.min(commit.len())]));
    let [errors, warnings, notes] =
        [(errors, "error"), (warnings, "warning"), (notes, "note")].map(|(count, what)| plural(count, what));
    let (groups_told, objects_told) = (plural(groups, "Kustomization"), plural(objects, "object"));
    let sums = format!("{groups_told} with {objects_told}{at}: {errors}, {warnings}, {notes}");
    let problems: Vec<Value> = verdict.findings.iter().map(object).collect();
    let result = if verdict.has_errors() { "invalid" } else { "valid" };
    if verdict.has_errors() {
        printer.complain_to_people(&format!("{sums}. `castle gitops check --explain CODE` tells more."));
    } else {
        printer.say(&sums);
    }
    printer.result(&json!({
        "verb": "gitops", "castle": kept.castle.castle.as_str(), "result": result, "commit": source.commit,
        "kustomizations": groups, "objects": objects, "problems": problems,
    }));
    if verdict.has_errors() { Exit::Invalid } else { Exit::Done }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// A finding for people: what and where, why, and what to do.
fn shown(finding: &Finding) -> String {
    let mark = match finding.code.severity() {
        Severity::Error => "\u{1b}[1;31merror\u{1b}[0m",
        Severity::Warning => "\u{1b}[33mwarning\u{1b}[0m",
        Severity::Note => "\u{1b}[36mnote\u{1b}[0m",
    };
    let Finding { code, file, line, subject, why, fix } = finding;
    format!("{mark}[{}]: {subject}\n  at {file}:{line}\n  {why}\n  fix: {fix}\n", code.text())
}

fn object(finding: &Finding) -> Value {
    let Finding { code, file, line, subject, why, fix } = finding;
    json!({
        "code": code.text(), "severity": code.severity().word(), "file": file, "line": line, "subject": subject,
        "summary": why, "hint": fix, "docs": format!("docs/gitops.md#{}", code.text()),
    })
}

#[cfg(test)]
mod tests {
    use castle_gitops::Code;

    use super::*;

    #[test]
    fn every_kind_of_finding_is_documented_with_its_weight() {
        let sections: Vec<&str> = FINDINGS.split("\n### ").skip(1).filter_map(|it| it.lines().next()).collect();
        let codes: Vec<&str> = Code::ALL.iter().map(|code| code.text()).collect();
        assert_eq!(sections, codes, "in the same order");
        for code in Code::ALL {
            let heading = format!("\n### {}\n\n{}.", code.text(), code.severity().word());
            let told = FINDINGS.to_lowercase().contains(&heading);
            assert!(told, "{} must begin with its weight", code.text());
        }
    }
}
