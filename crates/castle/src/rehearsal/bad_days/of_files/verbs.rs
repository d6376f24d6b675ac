//! The verbs of the tables of damaged files; and of every other one, why it is in none.

use std::collections::BTreeSet;

use clap::CommandFactory as _;

use crate::cli::Cli;

/// A verb with what it is given.
pub(super) type Verb = &'static [&'static str];

/// Where what is to do with the castle is kept, which is nothing.
pub(super) const PLAN: &str = "/castle/blue.plan";
/// A folder that Flux could follow.
pub(super) const TREE: &str = "/castle/gitops";
/// Stands for the number of the newest record of the layer that is named before it.
pub(super) const NEWEST: &str = "NEWEST";
/// What takes machines that bear no mark: it is given one.
pub(super) const FOREIGN: Verb = &["adopt", "--foreign", "--yes"];

/// The verbs that only look.
pub(super) const LOOKING: [Verb; 19] = [
    &["status"],
    &["status", "--deep"],
    &["plan"],
    &["plan", "--out", "/castle/second.plan"],
    &["drift"],
    &["doctor"],
    &["state", "show"],
    &["state", "history", "secrets"],
    &["state", "history", "platform"],
    &["lease", "show"],
    &["timeline"],
    &["timeline", "--html", "/castle/run.html"],
    &["kubeconfig"],
    &["kubeconfig", "--out", "/castle/kubeconfig"],
    &["talosconfig"],
    &["talosconfig", "--merge", "/castle/talosconfig"],
    &["owners"],
    &["check"],
    &["gitops", "check", TREE],
];

/// Those that change something, and leave the castle what it is.
pub(super) const CHANGING: [Verb; 8] = [
    &["state", "restore", "platform", NEWEST, "--yes"],
    &["state", "restore", "secrets", NEWEST, "--yes"],
    &["handover", "metallb", "--to", "castle", "--yes"],
    FOREIGN,
    &["lease", "take", "--yes"],
    &["up", "--remove", "flux"],
    &["up", "--plan", PLAN],
    &["up", "--layer", "platform"],
];

/// Those after which nothing, or another life, is to be there.
pub(super) const ENDING: [Verb; 8] = [
    &["down", "--yes"],
    &["rebirth", "--yes"],
    &["wipe", "--yes"],
    &["down", "--graceful", "--within", "2m", "--yes"],
    &["down", "--forget-secrets", "blue", "--yes"],
    &["rebirth", "--keep-identity", "--yes"],
    &["rebirth", "--graceful", "--within", "2m", "--yes"],
    &["wipe", "--force-range", "--confirm", "blue"],
];

/// What a castle needs that has a repository: for the file that announces it.
pub(super) const FOLLOWING: [Verb; 5] = [&["gitops", "check"], &["status"], &["plan"], &["drift"], &["doctor"]];

/// Those that change something there.
pub(super) const HANDING: [Verb; 2] = [&["handover", "metallb", "--to", "flux", "--yes"], &["up", "--layer", "gitops"]];

/// Verbs that end before they come to the file of this name, if that is damaged, and why.
pub(super) const UNNAMED: [(&str, &str, &str); 3] = [
    ("up --plan", ".seen.json", "what is to do is not what was planned; whoever plans again, as is said, is told"),
    ("rebirth --keep-identity", "rebirth", "what it still says is that another rebirth was begun"),
    ("handover metallb --to flux", "", "Flux has none of those objects here, whatever is damaged"),
];

/// Verbs that are in no table, and why.
const ELSEWHERE: [(&[&str], &str); 18] = [
    (&["new"], "writes a project, and reads nothing that castle keeps"),
    (&["rehearse"], "has worlds of its own: of this machine it reads castle.yaml and what that names"),
    (&["datacenter"], "is a process of its own: `embedded`, and the journeys of the datacenter damage its files"),
    (&["datacenter", "status"], "the same"),
    (&["datacenter", "stop"], "the same"),
    (&["lock"], "reads and writes castle.lock, which is not castle's memory"),
    (&["mirror", "pull"], "keeps manifests beside the state as `up` does: `manifests` damages those"),
    (&["mirror", "verify"], "reads a mirror alone"),
    (&["secrets", "view"], "SOPS files and the keys of people are no part of castle's memory"),
    (&["secrets", "edit"], "the same"),
    (&["secrets", "get"], "the same"),
    (&["secrets", "set"], "the same"),
    (&["secrets", "encrypt"], "the same"),
    (&["secrets", "decrypt"], "the same"),
    (&["secrets", "updatekeys"], "the same"),
    (&["secrets", "rotate"], "the same"),
    (&["secrets", "import-env"], "the same"),
    (&["schema"], "prints what the program knows, as `completions` and `man` do"),
];
/// Those that print what is part of the program.
const PRINTED: [&str; 2] = ["completions", "man"];

/// Every verb that can be run, with all its parts.
fn all(command: &clap::Command, before: &[String], found: &mut BTreeSet<Vec<String>>) {
    for part in command.get_subcommands().filter(|part| part.get_name() != "help") {
        let words: Vec<String> = before.iter().cloned().chain([part.get_name().to_owned()]).collect();
        if !part.is_subcommand_required_set() {
            found.insert(words.clone());
        }
        all(part, &words, found);
    }
}

#[test]
fn every_verb_is_in_a_table_or_has_a_reason() {
    let mut verbs = BTreeSet::new();
    all(&Cli::command(), &[], &mut verbs);
    let words = |verb: &[&str]| verb.iter().map(|word| (*word).to_owned()).collect::<Vec<String>>();
    let tables: Vec<Vec<String>> = LOOKING.iter().chain(&CHANGING).chain(&ENDING).map(|verb| words(verb)).collect();
    let elsewhere: BTreeSet<Vec<String>> =
        ELSEWHERE.iter().map(|(verb, _)| words(verb)).chain(PRINTED.iter().map(|verb| words(&[verb]))).collect();
    for verb in &verbs {
        let is_tried = tables.iter().any(|row| row.starts_with(verb));
        assert!(is_tried != elsewhere.contains(verb), "{verb:?} is {}", if is_tried { "in both" } else { "in none" });
    }
    for verb in &elsewhere {
        assert!(verbs.contains(verb), "there is no {verb:?}");
    }
    assert!(verbs.len() > 30, "{verbs:?}");
}
