//! `castle owners`: whose the objects of the cluster are.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use castle_kubernetes::client::{Access, Api, Resource};
use castle_kubernetes::model::Ownership;
use castle_kubernetes::steps::{Tenure, survey, tenures};
use castle_layers::cluster::access;
use castle_layers::owners::known;
use castle_talos::steps::Keys;
use clap::Args;
use serde_json::{Value, json};

use crate::doors::Doors;
use crate::issuing::{bundle, doors};
use crate::keeping::Kept;
use crate::masking::{self, text as masked};
use crate::output::{Exit, Printer, table};
use crate::stand::{REACHING, Trouble, with_next};

/// The owner of what controllers make: nobody decides what that should be.
const NOBODY: &str = "nobody (made by controllers)";
/// So many fields are named, of those that two owners want.
const NAMED: usize = 3;

/// Show who owns the objects of the cluster: castle, Flux, Helm, Talos, or a person
///
/// Known by labels, by inventories, and by who manages which fields. An object with two owners is one that two will fight over.
#[derive(Debug, Args)]
pub(crate) struct OwnersArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// One object, in full: `deployment/coredns`, `ipaddresspools.metallb.io/first`
    #[arg(value_name = "KIND/NAME")]
    object: Option<String>,
    /// Only objects in this namespace
    #[arg(long, short)]
    namespace: Option<String>,
}

impl OwnersArgs {
    /// What was meant: an object alone may be named, without a path before it.
    fn meant(&self, is_there: impl Fn(&Path) -> bool) -> (PathBuf, Option<(String, String)>) {
        let split = |text: &str| text.split_once('/').map(|(kind, name)| (kind.to_owned(), name.to_owned()));
        match (&self.object, self.path.to_str().and_then(split)) {
            (None, Some(object)) if !is_there(&self.path) => (PathBuf::from("."), Some(object)),
            (None, _) => (self.path.clone(), None),
            (Some(object), _) => (self.path.clone(), Some(split(object).unwrap_or((object.clone(), String::new())))),
        }
    }
}

pub(crate) async fn owners(args: &OwnersArgs, outside: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let (path, object) = args.meant(|path| outside.disk.metadata(path).is_ok());
    if object.as_ref().is_some_and(|(_, name)| name.is_empty()) {
        return Err(Trouble::Invalid("name an object as KIND/NAME: deployment/coredns".to_owned()));
    }
    let kept = Kept::open(outside, &path).map_err(Trouble::Invalid)?;
    let _at = outside.at("asking the cluster's API");
    let api = connect(&kept).await?;
    let served = api.discover().await.map_err(|trouble| unreached(&kept, &trouble))?;
    let is_in = |ownership: &Ownership| args.namespace.as_ref().is_none_or(|own| *own == ownership.key.namespace);
    match object {
        None => {
            let resources: Vec<Resource> = served.resources().cloned().collect();
            let found = survey(&api, &resources).await?;
            let tenures = tenures(&api, &known(&kept.castle)).await?;
            Ok(all(&kept, found.iter().filter(|ownership| is_in(ownership)), &tenures, printer))
        }
        Some((kind, name)) => {
            let Some(resource) = served.called(&kind) else {
                return Err(Trouble::Invalid(format!("the cluster serves no kind {kind}: kubectl api-resources")));
            };
            let found = survey(&api, std::slice::from_ref(resource)).await?;
            let found: Vec<&Ownership> =
                found.iter().filter(|ownership| ownership.key.name == name && is_in(ownership)).collect();
            if found.is_empty() {
                let within = args.namespace.as_ref().map_or_else(String::new, |space| format!(" in {space}"));
                return Err(Trouble::Failed(format!("there is no {} {name}{within}", resource.kind.kind)));
            }
            Ok(one(&kept, &found, printer))
        }
    }
}

/// How castle reaches the castle's API.
pub(crate) async fn api_access(kept: &Kept) -> Result<Access, Trouble> {
    let keys = Keys::issue(bundle(kept).await?, doors(kept)).await?;
    Ok(access(&kept.castle, &kept.nodes, &keys, kept.doors.is_plain()))
}

/// Castle's client of the castle's API.
pub(crate) async fn connect(kept: &Kept) -> Result<Api, Trouble> {
    let api = Api::new(&api_access(kept).await?, kept.doors.dial(REACHING), kept.doors.clock.clone());
    api.map_err(|error| Trouble::of(&error))
}

fn unreached(kept: &Kept, trouble: &dyn std::fmt::Display) -> Trouble {
    Trouble::Failed(format!("the API of {} does not answer: {trouble}\n  next: castle status", kept.name()))
}

fn names(ownership: &Ownership) -> Vec<String> {
    ownership.claims.iter().map(|claim| masked(&claim.owner.to_string())).collect()
}

/// Everything, in short.
fn all<'a>(kept: &Kept, found: impl Iterator<Item = &'a Ownership>, tenures: &[Tenure], printer: &mut Printer) -> Exit {
    let mut owners: BTreeMap<String, (usize, BTreeSet<&str>)> = BTreeMap::new();
    let mut contested = Vec::new();
    for ownership in found {
        let whose = if ownership.claims.is_empty() { vec![NOBODY.to_owned()] } else { names(ownership) };
        for owner in whose {
            let (count, kinds) = owners.entry(owner).or_default();
            *count += 1;
            kinds.insert(&ownership.key.kind);
        }
        if ownership.is_contested() {
            contested.push(ownership);
        }
    }
    let mut rows = vec![["owner", "objects", "kinds"].map(str::to_owned)];
    let kinds = |kinds: &BTreeSet<&str>| match kinds.len() {
        0..=4 => kinds.iter().map(|kind| masked(kind)).collect::<Vec<_>>().join(", "),
        more => format!("{more} kinds"),
    };
    rows.extend(owners.iter().map(|(owner, (count, of))| [owner.clone(), count.to_string(), kinds(of)]));
    printer.say(&table(&rows));
    if !tenures.is_empty() {
        let mut rows = vec![["component", "castle.yaml says", "the cluster says"].map(str::to_owned)];
        rows.extend(tenures.iter().map(|tenure| {
            [tenure.known.mark.component.clone(), tenure.known.keeper.word().to_owned(), masked(&tenure.told())]
        }));
        printer.say(&format!("\n{}", table(&rows)));
    }
    if contested.is_empty() {
        printer.say("\nNo object has two owners.");
    } else {
        printer.say(&format!("\n{} with two owners, who may undo what the other does:", count(contested.len())));
        for ownership in &contested {
            let key = masked(&ownership.key.to_string());
            printer.say(&format!("  {key}: {}{}", names(ownership).join(" and "), both(ownership)));
        }
    }
    for tenure in tenures {
        if let Err(fault) = tenure.settled() {
            printer.say(&with_next(&fault));
        }
    }
    let component = |tenure: &Tenure| {
        let holders: Vec<String> = tenure.holders.iter().map(|holder| masked(&holder.to_string())).collect();
        let (what, next) = tenure.quarrel.clone().map(|(what, next)| (masked(&what), next)).unzip();
        json!({"component": tenure.known.mark.component, "owner": tenure.known.keeper.word(), "holders": holders,
            "quarrel": what, "next": next})
    };
    printer.result(&json!({
        "verb": "owners", "castle": kept.castle.castle.as_str(), "result": "shown",
        "components": tenures.iter().map(component).collect::<Vec<_>>(),
        "owners": owners.iter().map(|(owner, (count, _))| json!({"owner": owner, "objects": count})).collect::<Vec<_>>(),
        "contested": contested.iter().map(|ownership| told(ownership)).collect::<Vec<_>>(),
    }));
    Exit::Done
}

fn count(number: usize) -> String {
    if number == 1 { "One object".to_owned() } else { format!("{number} objects") }
}

/// What more than one owner wants.
fn both(ownership: &Ownership) -> String {
    let fields: Vec<String> = ownership.shared.iter().take(NAMED).map(|field| masked(field)).collect();
    match ownership.shared.len().saturating_sub(NAMED) {
        _ if fields.is_empty() => String::new(),
        0 => format!("; both want {}", fields.join(", ")),
        more => format!("; both want {} and {more} more fields", fields.join(", ")),
    }
}

/// One name, in full.
fn one(kept: &Kept, found: &[&Ownership], printer: &mut Printer) -> Exit {
    for ownership in found {
        printer.say(&masked(&ownership.key.to_string()));
        if ownership.claims.is_empty() {
            printer.say(&format!("  {NOBODY}"));
        }
        for claim in &ownership.claims {
            let evidence: Vec<String> = claim.evidence.iter().map(|by| masked(by)).collect();
            printer.say(&format!("  {}, by {}", masked(&claim.owner.to_string()), evidence.join(", ")));
            for field in &claim.fields {
                let shared = if ownership.shared.contains(field) { "  (another wants it too)" } else { "" };
                printer.say(&format!("    {}{shared}", masked(field)));
            }
        }
        if ownership.is_contested() {
            printer.say("  It has two owners, who may undo what the other does.");
        }
    }
    printer.result(&json!({
        "verb": "owners", "castle": kept.castle.castle.as_str(), "result": "shown",
        "objects": found.iter().map(|ownership| told(ownership)).collect::<Vec<_>>(),
    }));
    Exit::Done
}

fn told(ownership: &Ownership) -> Value {
    let claims = ownership
        .claims
        .iter()
        .map(|claim| json!({"owner": claim.owner.to_string(), "evidence": claim.evidence, "fields": claim.fields}));
    masking::value(json!({
        "object": ownership.key.to_string(), "group": ownership.key.group, "contested": ownership.is_contested(),
        "claims": claims.collect::<Vec<_>>(), "shared": ownership.shared,
    }))
}
