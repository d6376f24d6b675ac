//! What is wrong with the repository that Flux will follow, told before anything is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use castle_components::{Fit, choose};
use castle_engine::Fault;
use castle_gitops::git::GitError;
use castle_gitops::{Code, Finding, Severity, Verdict, judge};
use castle_kubernetes::model::Object;
use castle_layers::{doctor, preflight as layer};
use castle_seams::deadline;
use castle_secrets::Secret;
use castle_spec::ComponentName;
use serde_json::{Value, json};

use crate::components::Manifests as Pinned;
use crate::keeping::Kept;
use crate::masking;
use crate::output::Printer;
use crate::repository::{Repository, Unread};
use crate::stand::with_next;

/// How long a repository may take for those who only look in passing.
const LOOKING: Duration = Duration::from_secs(10);
/// Beyond this nobody reads on; the rest is counted.
const MOST_SHOWN: usize = 20;
/// So many other places of one cause are shown.
const MOST_PLACES: usize = 5;
/// The check's name for the doctor.
const CHECK: &str = "git-tree";
/// What shows all that is found.
const MORE: &str = "castle gitops check shows all";

/// The objects of components that castle installs.
pub(crate) type Manifests = BTreeMap<ComponentName, Vec<Object>>;

/// A repository that was read and judged.
pub(crate) struct Judged {
    url: String,
    pub(crate) commit: Option<String>,
    pub(crate) verdict: Verdict,
}

/// What became of looking at the repository that castle.yaml names.
pub(crate) enum Preflight {
    /// It names none.
    Nothing,
    /// It cannot be read from here: why.
    NotFromHere(String),
    /// It was not read.
    Unread(Fault),
    /// It was.
    Judged(Judged),
}

/// Reads a repository, and holds it against what castle will make.
pub(crate) async fn judged(
    kept: &Kept,
    repository: &Repository,
    entry: Option<&str>,
    manifests: &Manifests,
) -> Result<Judged, Unread> {
    let found = repository.tree().await?;
    let patches = patches(kept);
    let given = layer::Given { nodes: &kept.nodes, entry, manifests, patches: &patches };
    let mut verdict = judge(&found.tree, &layer::world(&kept.castle, &given));
    let forest = &verdict.forest;
    let is_from_there = |word: &str| {
        let mut files = found.tree.below("");
        files.any(|(path, bytes)| path.contains(word) || String::from_utf8_lossy(bytes).contains(word))
            || forest.objects().any(|(_, object)| object.value.to_string().contains(word))
    };
    verdict.findings.iter_mut().for_each(|finding| masking::found(finding, &is_from_there));
    Ok(Judged { url: repository.url.clone(), commit: found.commit, verdict })
}

/// The patches of configurations, as far as they can be read: what is wrong with them is told elsewhere.
fn patches(kept: &Kept) -> Vec<Secret> {
    let files: BTreeSet<&String> = kept.nodes.iter().flat_map(|node| &node.patches).collect();
    let folder = kept.file.parent().unwrap_or(Path::new(""));
    let read = |file: &&String| kept.doors.disk.read(&folder.join(file), castle_spec::MAX_BYTES).ok();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok().map(Secret::from);
    files.iter().filter_map(read).filter_map(text).collect()
}

/// Looks at the repository that castle.yaml names, by what is at hand of the manifests.
pub(crate) async fn look(kept: &Kept) -> Preflight {
    let _at = kept.doors.at("judging the Git repository");
    match kept.castle.gitops {
        Some(_) => preflight(kept, &at_hand(kept).await).await,
        None => Preflight::Nothing,
    }
}

/// Looks at the repository that castle.yaml names, for a short while. Changes nothing.
pub(crate) async fn preflight(kept: &Kept, manifests: &Manifests) -> Preflight {
    let _at = kept.doors.at("judging the Git repository");
    let looking = async {
        match Repository::of(kept).await? {
            Some(repository) => judged(kept, &repository, None, manifests).await.map(Preflight::Judged),
            None => Ok(Preflight::Nothing),
        }
    };
    match deadline(kept.clock(), LOOKING, looking).await {
        Ok(Ok(preflight)) => preflight,
        Ok(Err(Unread::NotFromHere(why))) => Preflight::NotFromHere(why),
        Ok(Err(Unread::Invalid(fault) | Unread::Failed(fault))) => Preflight::Unread(masking::fault(&fault)),
        Err(_) => {
            let gitops = kept.castle.gitops.as_ref();
            let (url, branch) = gitops.map_or(("", ""), |it| (it.repository.as_str(), it.branch.as_str()));
            let late = GitError::Unreachable(format!("it was not read within {} s", LOOKING.as_secs()));
            Preflight::Unread(masking::fault(&layer::fault(url, branch, &late)))
        }
    }
}

/// The objects of components as far as they are at hand: nothing is downloaded only to be compared with.
pub(crate) async fn at_hand(kept: &Kept) -> Manifests {
    let mut manifests = Manifests::new();
    // Whoever installs them says what is wrong with them.
    let Ok(pinned) = Pinned::open(&kept.doors, &kept.file, None) else { return manifests };
    let has_mirror = pinned.supply.mirror().is_some();
    let chosen = choose(&pinned.castle, pinned.lock.as_ref(), has_mirror).unwrap_or_default();
    let fit = Fit::of(&pinned.castle, &pinned.nodes);
    for chosen in chosen.iter().filter(|it| pinned.supply.is_at_hand(&it.entry)) {
        if let Ok(objects) = pinned.supply.objects(chosen, &fit).await {
            manifests.insert(chosen.wanted.name, objects);
        }
    }
    manifests
}

impl Preflight {
    /// Whether a castle should not be raised like this: something is wrong that no waiting will mend.
    pub(crate) fn is_in_the_way(&self) -> bool {
        match self {
            Self::Nothing | Self::NotFromHere(_) => false,
            Self::Unread(fault) => fault.is_final(),
            Self::Judged(judged) => judged.verdict.has_errors(),
        }
    }

    /// What is in the way, in a line or two.
    pub(crate) fn told(&self) -> String {
        match self {
            Self::Nothing => String::new(),
            Self::NotFromHere(why) => why.clone(),
            Self::Unread(fault) => with_next(fault),
            Self::Judged(judged) => {
                let first = judged.errors().next().map_or_else(String::new, |first| format!(": {}", shown(first)));
                format!("the Git tree has errors{first}\n  next: castle gitops check")
            }
        }
    }

    /// Tells people what must be mended, and returns all that was found for programs.
    pub(crate) fn tell(&self, printer: &mut Printer) -> Vec<Value> {
        match self {
            Self::Nothing => Vec::new(),
            Self::NotFromHere(why) => {
                printer.say(&format!("\n{}: the Git tree: {why}", mark(Severity::Note)));
                vec![unread(why)]
            }
            Self::Unread(fault) => {
                let severity = if fault.is_final() { Severity::Error } else { Severity::Warning };
                printer.complain_to_people(&format!("\n{}: the Git tree: {}", mark(severity), with_next(fault)));
                vec![json!({
                    "code": "repository-unread", "severity": severity.word(), "subject": fault.subject,
                    "summary": fault.evidence, "hint": fault.next,
                })]
            }
            Self::Judged(judged) => {
                let errors: Vec<&Finding> = judged.errors().collect();
                for error in errors.iter().take(MOST_SHOWN) {
                    printer.complain_to_people(&format!("\n{}", shown(error).trim_end()));
                }
                if !errors.is_empty() {
                    printer.complain_to_people(&format!("\nThe Git tree: {}; {MORE}", judged.sums()));
                } else if !judged.verdict.findings.is_empty() {
                    printer.say(&format!("\nThe Git tree: {}; {MORE}", judged.sums()));
                }
                judged.problems()
            }
        }
    }

    /// The same for the doctor.
    pub(crate) fn findings(&self) -> Vec<doctor::Finding> {
        match self {
            Self::Nothing => Vec::new(),
            Self::NotFromHere(why) => {
                vec![doctor::Finding::not_asked(CHECK, why).next("with a clone of it: castle gitops check FOLDER")]
            }
            Self::Unread(fault) => {
                let Fault { subject, evidence, next, .. } = fault;
                vec![doctor::Finding::wrong(CHECK, subject, evidence).next(next)]
            }
            Self::Judged(judged) => judged.examined(),
        }
    }
}

impl Judged {
    fn errors(&self) -> impl Iterator<Item = &Finding> {
        self.verdict.findings.iter().filter(|finding| finding.code.severity() == Severity::Error)
    }

    fn examined(&self) -> Vec<doctor::Finding> {
        let wrong = |finding: &Finding| {
            let Finding { code, file, line, subject, why, fix, .. } = finding;
            let evidence = format!("{subject}: {why} ({})", code.text());
            doctor::Finding::wrong(CHECK, format!("{file}:{line}"), evidence).next(fix)
        };
        let mut findings: Vec<doctor::Finding> = self.errors().take(MOST_SHOWN).map(wrong).collect();
        // Errors may hide behind what was not judged.
        let unseen = self.verdict.findings.iter().filter(|it| it.code == Code::NotJudged);
        let not_judged = |note: &Finding| {
            let Finding { file, line, why, fix, .. } = note;
            // What a note says of castle.yaml is of the whole.
            let subject = if file == "castle.yaml" { String::new() } else { format!("{file}:{line}") };
            doctor::Finding { subject, ..doctor::Finding::not_asked(CHECK, why).next(fix) }
        };
        findings.extend(unseen.take(MOST_SHOWN).map(not_judged));
        let is_spotless = self.verdict.findings.iter().all(|finding| finding.code.severity() == Severity::Note);
        findings.push(if is_spotless {
            doctor::Finding::well(CHECK, &self.url, self.sums())
        } else {
            doctor::Finding::warning(CHECK, &self.url, self.sums()).next(MORE)
        });
        findings
    }

    /// How much was built, and how much was found.
    pub(crate) fn sums(&self) -> String {
        let count = |severity| self.verdict.findings.iter().filter(|it| it.code.severity() == severity).count();
        let [errors, warnings, notes] =
            [(Severity::Error, "error"), (Severity::Warning, "warning"), (Severity::Note, "note")]
                .map(|(severity, what)| plural(count(severity), what));
        let groups = plural(self.verdict.forest.groups.len(), "Kustomization");
        let objects = plural(self.verdict.forest.objects().count(), "object");
        let at = self.commit.as_ref().map_or_else(String::new, |id| format!(" at {}", &id[..12.min(id.len())]));
        format!("{groups} with {objects}{at}: {errors}, {warnings}, {notes}")
    }

    /// All that was found, for programs.
    pub(crate) fn problems(&self) -> Vec<Value> {
        let object = |finding: &Finding| {
            let Finding { code, file, line, subject, why, fix, also, .. } = finding;
            let also: Vec<Value> = also.iter().map(|(file, line)| json!({"file": file, "line": line})).collect();
            json!({
                "code": code.text(), "severity": code.severity().word(), "file": file, "line": line, "subject": subject,
                "summary": why, "hint": fix, "docs": format!("docs/gitops.md#{}", code.text()), "also": also,
            })
        };
        self.verdict.findings.iter().map(object).collect()
    }
}

/// What is told programs of a repository that cannot be read from here.
pub(crate) fn unread(why: &str) -> Value {
    json!({"code": "not-judged", "severity": "note", "summary": why, "hint": "check a clone of it"})
}

/// A finding for people: what and where, why, and what to do.
pub(crate) fn shown(finding: &Finding) -> String {
    let Finding { code, file, line, subject, why, fix, also, .. } = finding;
    let more = match (also.len(), also.iter().take(MOST_PLACES).map(|(file, line)| format!("{file}:{line}"))) {
        (0, _) => String::new(),
        (count, places) => {
            let rest = if count > MOST_PLACES { ", ..." } else { "" };
            format!("\n  also at {}{rest}", places.collect::<Vec<_>>().join(", "))
        }
    };
    let (mark, code) = (mark(code.severity()), code.text());
    format!("{mark}[{code}]: {subject}\n  at {file}:{line}\n  {why}{more}\n  fix: {fix}\n")
}

fn mark(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "\u{1b}[1;31merror\u{1b}[0m",
        Severity::Warning => "\u{1b}[33mwarning\u{1b}[0m",
        Severity::Note => "\u{1b}[36mnote\u{1b}[0m",
    }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
