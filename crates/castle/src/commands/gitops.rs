//! `castle gitops`: the repository that Flux follows, judged before a cluster sees it.

use std::path::PathBuf;

use castle_gitops::Severity;
use clap::{Args, Subcommand};
use serde_json::json;

use crate::doors::Doors;
use crate::keeping::Kept;
use crate::output::{Exit, Printer};
use crate::preflight::{self, Judged};
use crate::repository::{Repository, Unread};
use crate::stand::{self, Trouble, with_next};

/// What documents the findings, for `--explain`.
const FINDINGS: &str = include_str!("../../../../docs/gitops.md");

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

pub(crate) async fn run(args: &GitopsArgs, doors: &Doors, printer: &mut Printer) -> Exit {
    let What::Check(args) = &args.what;
    let ended = match &args.explain {
        Some(code) => explain(code, printer),
        None => check(args, doors, printer).await,
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

async fn check(args: &CheckArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let kept = Kept::open(doors, &args.path).map_err(Trouble::Invalid)?;
    let own = kept.castle.gitops.as_ref().map(|gitops| gitops.repository.as_str());
    let repository = match &args.source {
        Some(source) if Some(source.as_str()) != own => Repository::at(&kept, source).map(Some),
        _ => Repository::of(&kept).await,
    };
    let manifests = preflight::at_hand(&kept).await;
    let judged = match repository {
        Ok(Some(repository)) => preflight::judged(&kept, &repository, args.entry.as_deref(), &manifests).await,
        Ok(None) => {
            let file = kept.file.display();
            return Err(Trouble::Invalid(format!("{file} names no gitops.repository: name a folder or an address")));
        }
        Err(unread) => Err(unread),
    };
    match judged {
        Ok(judged) => Ok(tell(&kept, &judged, printer)),
        Err(Unread::NotFromHere(why)) => Ok(unread(&kept, &why, printer)),
        Err(Unread::Invalid(fault)) => Err(Trouble::Invalid(with_next(&fault))),
        Err(Unread::Failed(fault)) => Err(Trouble::Failed(with_next(&fault))),
    }
}

/// What is told of a repository that cannot be read from here.
fn unread(kept: &Kept, why: &str, printer: &mut Printer) -> Exit {
    printer.say(&format!("{why}.\nWith a clone of it: castle gitops check FOLDER {}", kept.file.display()));
    printer.result(&json!({
        "verb": "gitops", "castle": kept.castle.castle.as_str(), "result": "unread", "problems": [preflight::unread(why)],
    }));
    Exit::Done
}

fn tell(kept: &Kept, judged: &Judged, printer: &mut Printer) -> Exit {
    let verdict = &judged.verdict;
    for finding in &verdict.findings {
        if finding.code.severity() == Severity::Error {
            printer.complain_to_people(&preflight::shown(finding));
        } else {
            printer.say(&preflight::shown(finding));
        }
    }
    let (result, exit) = if verdict.has_errors() { ("invalid", Exit::Invalid) } else { ("valid", Exit::Done) };
    if verdict.has_errors() {
        let sums = judged.sums();
        printer.complain_to_people(&format!("{sums}. `castle gitops check --explain CODE` tells more."));
    } else {
        printer.say(&judged.sums());
    }
    printer.result(&json!({
        "verb": "gitops", "castle": kept.castle.castle.as_str(), "result": result, "commit": judged.commit,
        "kustomizations": verdict.forest.groups.len(), "objects": verdict.forest.objects().count(),
        "problems": judged.problems(),
    }));
    exit
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
