//! `castle status`: what there is, observed now.

use std::path::PathBuf;

use castle_engine::{Impact, Outcome, Report, StepId};
use castle_layers::{cluster, platform};
use clap::Args;
use serde_json::{Value, json};

use crate::output::{Exit, Printer, table};
use crate::stand::{LOOKING, Stand, Trouble};

/// Show the nodes of a castle and its cluster as they are now
#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Look at every guest in full, even where the list of all guests shows nothing wrong
    #[arg(long)]
    deep: bool,
}

pub(crate) async fn status(args: &StatusArgs, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(&args.path, printer).await?;
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, args.deep);
    let (survey, placed) = stand.lay_out(&ground).await?;
    let graph = stand.raise(&ground, &stand.window(&identity.castle), &survey, &placed, LOOKING).await?;
    let report = stand.look(&graph, &identity.castle).await;
    let mut rows = vec![["node", "role", "vmid", "host", "address", "state"].map(str::to_owned)];
    let mut objects: Vec<Value> = Vec::new();
    for node in &stand.kept.nodes {
        let name = &node.name.value;
        let row = survey.guests.get(&node.vmid.0);
        let host = row.map(|row| row.host.clone());
        let (state, is_as_wanted) = state(&report, name, row.is_some());
        rows.push([
            name.clone(),
            node.role.word().to_owned(),
            node.vmid.0.to_string(),
            host.clone().unwrap_or_else(|| "-".to_owned()),
            node.address.value.to_string(),
            state.clone(),
        ]);
        objects.push(json!({"name": name, "role": node.role.word(), "vmid": node.vmid.0, "host": host,
            "address": node.address.value.to_string(), "state": state, "as_wanted": is_as_wanted}));
    }
    printer.say(&table(&rows));
    let is_there = stand.kept.nodes.iter().any(|node| survey.guests.contains_key(&node.vmid.0));
    let gates = cluster::gates(&stand.kept.castle, &stand.kept.nodes);
    let gates: Vec<_> = gates.into_iter().map(|(step, claim)| (gate(&report, &step), step, claim)).collect();
    if is_there {
        let word =
            |open: &Result<(), String>| open.as_ref().map_or_else(|why| format!("no: {why}"), |()| "yes".to_owned());
        let rows: Vec<[String; 2]> = gates.iter().map(|(open, _, claim)| [claim.clone(), word(open)]).collect();
        printer.say(&format!("\n{}", table(&rows)));
    }
    let standing = report.is_done();
    let life = identity.castle.generation;
    let closing = match (standing, identity.is_born && is_there) {
        (true, _) => format!("\n{} stands as its file says (life {life}).", stand.kept.name()),
        (false, true) => format!(
            "\n{} is not as its file says: castle plan {} tells what is to do.",
            stand.kept.name(),
            args.path.display()
        ),
        (false, false) => format!("\n{} does not stand: castle up {}", stand.kept.name(), args.path.display()),
    };
    printer.say(&closing);
    printer.result(&json!({
        "verb": "status", "castle": stand.kept.castle.castle.as_str(), "result": "shown", "standing": standing,
        "generation": life, "nodes": objects,
        "gates": gates.iter().map(|(open, step, _)| json!({"gate": step.to_string(), "open": open.is_ok(),
            "evidence": open.as_ref().err()})).collect::<Vec<Value>>(),
    }));
    Ok(Exit::Done)
}

/// How a node is, in words, and whether that is as wanted.
fn state(report: &Report, name: &str, is_there: bool) -> (String, bool) {
    let outcome = |kind| report.outcome(&StepId::new(&platform::layer(), kind, name));
    let told = |outcome: &Outcome| match outcome {
        Outcome::Planned { change } => {
            let differences: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
            format!("differs: {}", differences.join(", "))
        }
        Outcome::Failed { fault } => fault.evidence.clone(),
        Outcome::Skipped { because } => format!("cannot be told: {because} failed"),
        _ => "cannot be told".to_owned(),
    };
    match (outcome("vm"), outcome("power"), outcome("config")) {
        _ if !is_there => ("absent".to_owned(), false),
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(Outcome::Done { .. })) => {
            ("running".to_owned(), true)
        }
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(Outcome::Planned { change }))
            if change.impact == Impact::Create =>
        {
            ("waits for its configuration".to_owned(), false)
        }
        (Some(Outcome::Done { .. }), Some(Outcome::Planned { .. }), _) => ("stopped".to_owned(), false),
        (Some(Outcome::Done { .. }), Some(Outcome::Done { .. }), Some(other))
        | (Some(Outcome::Done { .. }), Some(other), _)
        | (Some(other), _, _) => (told(other), false),
        (None, _, _) => ("cannot be told".to_owned(), false),
    }
}

/// Whether a gate is open, or why not.
fn gate(report: &Report, step: &StepId) -> Result<(), String> {
    match report.outcome(step) {
        Some(Outcome::Done { .. }) => Ok(()),
        Some(Outcome::Waiting { subject, evidence }) => Err(format!("{subject}: {evidence}")),
        Some(Outcome::Failed { fault }) => Err(fault.to_string()),
        _ => Err("cannot be asked yet".to_owned()),
    }
}
