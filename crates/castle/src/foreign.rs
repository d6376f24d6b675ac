//! A castle that somebody else has raised, and that becomes this one's: shown first, then marked, and nothing else of it changed.

#[cfg(test)]
mod tests;

use std::path::Path;

use castle_engine::{Chosen, Difference, Fault, GraphBuilder, Impact, Outcome, Taking};
use castle_layers::foreign::{self, SECRETS, Sight};
use castle_proxmox::steps::Candidate;
use serde_json::{Map, Value, json};

use crate::commands::confirm::confirmed;
use crate::drive::conclude;
use crate::output::{Exit, Printer, table};
use crate::stand::{Identity, LOOKING, Stand, Trouble, while_held, with_next};

/// Longer values are cut for people.
const SHOWN: usize = 48;

/// A castle that is to be adopted.
pub(crate) struct Foreign<'f> {
    pub(crate) path: &'f Path,
    pub(crate) yes: bool,
    pub(crate) stand: &'f Stand,
    pub(crate) identity: &'f Identity,
}

impl Foreign<'_> {
    /// Shows what would be adopted, holds that it is what the file means, asks, and marks it.
    pub(crate) async fn adopt(&self, printer: &mut Printer) -> Result<Exit, Trouble> {
        let (stand, kept) = (self.stand, &self.stand.kept);
        let ground = stand.ground(&self.identity.castle, true);
        let sight = foreign::look(&ground, &stand.site, &kept.castle, &kept.nodes).await?;
        show(&sight, printer);
        if !sight.obstacles.is_empty() {
            return Ok(self.refuse(&sight, &sight.obstacles, printer));
        }
        let Some(keys) = stand.window(&self.identity.castle).keys().await? else {
            let lost = Fault::guard(
                "talos.bundle",
                "is not in castle.yaml, and without the secrets of their cluster castle cannot speak with these nodes",
            );
            return Ok(self.refuse(&sight, &[lost.next(SECRETS)], printer));
        };
        let strangers = foreign::strangers(&stand.wire(LOOKING), &keys, &kept.nodes, &sight.candidates).await;
        if !strangers.is_empty() {
            return Ok(self.refuse(&sight, &strangers, printer));
        }
        let unmarked = sight.candidates.iter().filter(|candidate| !candidate.is_marked).count();
        let question = format!(
            "Mark {unmarked} guests as nodes of {}? From then on castle up changes them, and castle down removes them.",
            kept.name()
        );
        if unmarked > 0 && !confirmed(&question, self.yes, printer) {
            return Err(Trouble::Refused("nothing was marked: answer yes, or give --yes".to_owned()));
        }
        self.mark(&sight, printer).await
    }

    async fn mark(&self, sight: &Sight, printer: &mut Printer) -> Result<Exit, Trouble> {
        let (stand, kept) = (self.stand, &self.stand.kept);
        let held = kept.lease(Taking::Politely, self.identity.seen_epoch).await?;
        let work = async {
            let castle = stand.settle(self.identity, printer).await?;
            let ground = stand.ground(&castle, true);
            let (survey, placed) = stand.lay_out(&ground).await?;
            let room = kept.strongroom(&castle, Some(kept.state(castle.clone()).map_err(Trouble::Failed)?));
            let mut graph = GraphBuilder::new();
            let after = stand.keep_secrets(&mut graph, &ground, &room, &survey).await?.after;
            foreign::mark(&mut graph, &ground, &stand.site, &kept.castle, &kept.nodes, &after);
            let graph = graph.build().map_err(|error| Trouble::Failed(error.to_string()))?;
            let driven = stand.drive("adopt", graph, &castle, Chosen::default(), &held.lease, printer).await?;
            let is_done = driven.report.is_done();
            stand.remember(&room, is_done.then_some(placed.as_slice()), held.lease.epoch()).await?;
            let mut more = Map::new();
            more.insert("nodes".to_owned(), sight.candidates.iter().map(object).collect());
            more.insert("lineage".to_owned(), castle.lineage.clone().into());
            more.insert("generation".to_owned(), castle.generation.into());
            let exit = conclude("adopt", "adopted", kept.castle.castle.as_str(), &driven, more, printer);
            if driven.report.ended(|outcome| matches!(outcome, Outcome::Done { .. })).count() > 0 && is_done {
                let (name, path) = (kept.name(), self.path.display());
                printer.say(&format!(
                    "{name} is this castle's now, as it stands. castle plan {path} tells what castle up would change."
                ));
            }
            Ok(exit)
        };
        let exit = while_held(&held.lease, work).await;
        let _ = held.lease.release().await;
        exit
    }

    fn refuse(&self, sight: &Sight, why: &[Fault], printer: &mut Printer) -> Exit {
        for fault in why {
            printer.complain_to_people(&with_next(fault));
        }
        printer.say("Nothing was changed.");
        let problem = |fault: &Fault| json!({"severity": "error", "summary": fault.to_string(), "hint": fault.next, "seen": fault.evidence});
        let problems: Vec<Value> = why.iter().map(problem).collect();
        let nodes: Vec<Value> = sight.candidates.iter().map(object).collect();
        let castle = self.stand.kept.castle.castle.as_str();
        printer.result(
            &json!({"verb": "adopt", "castle": castle, "result": "refused", "nodes": nodes, "problems": problems}),
        );
        Exit::Refused
    }
}

/// What stands where the nodes should be, and how it differs from the file.
fn show(sight: &Sight, printer: &mut Printer) {
    for candidate in &sight.candidates {
        let Candidate { vmid, name, host, is_marked, differences, .. } = candidate;
        let marked = if *is_marked { ", marked already" } else { "" };
        if differences.is_empty() {
            printer.say(&format!("VM {vmid} ({name}) on {host}{marked}: as the file says"));
            continue;
        }
        printer.say(&format!("VM {vmid} ({name}) on {host}{marked}:"));
        let row = |(difference, impact): &(Difference, Impact)| {
            let Difference { field, is, wanted } = difference;
            let short = |text: &Option<String>| shortened(text.as_deref().unwrap_or("nothing"));
            let up = if *impact == Impact::Replace { "castle will not" } else { impact.word() };
            [format!("  {field}"), short(is), format!("the file: {}", short(wanted)), up.to_owned()]
        };
        let rows: Vec<[String; 4]> = differences.iter().map(row).collect();
        printer.say(&table(&rows));
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= SHOWN {
        return text.to_owned();
    }
    text.chars().take(SHOWN - 1).chain(['…']).collect()
}

fn object(candidate: &Candidate) -> Value {
    let Candidate { vmid, name, host, is_marked, differences, .. } = candidate;
    let differences: Vec<Value> = differences
        .iter()
        .map(|(difference, impact)| json!({"field": difference.field, "is": difference.is, "wanted": difference.wanted, "impact": impact.word()}))
        .collect();
    json!({"vmid": vmid, "name": name, "host": host, "marked": is_marked, "differences": differences})
}
