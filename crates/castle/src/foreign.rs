//! A castle that somebody else has raised, and that becomes this one's: shown first, then marked, and nothing else of it changed.

#[cfg(test)]
mod tests;

use std::path::Path;

use castle_engine::{Chosen, Difference, Fault, GraphBuilder, Impact, Outcome, Taking};
use castle_layers::cluster::whom;
use castle_layers::foreign::{self, SECRETS, Sight};
use castle_proxmox::steps::Candidate;
use castle_spec::Role;
use castle_talos::steps::holder;
use serde_json::{Map, Value, json};

use crate::commands::confirm::confirmed;
use crate::drive::conclude;
use crate::keeping::ANOTHER_LIFE;
use crate::masking;
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
        let at = stand.looking_at("what stands where the nodes should be");
        let sight = foreign::look(&ground, &stand.site, &kept.castle, &kept.nodes).await?;
        drop(at);
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
        // What stands mostly has an etcd, which castle did not begin. It must never begin another.
        let control_planes = kept.nodes.iter().filter(|node| node.role == Role::ControlPlane).map(whom).collect();
        let has_begun = holder(&stand.wire(LOOKING), &keys, control_planes).await.is_some();
        self.mark(&sight, has_begun, printer).await
    }

    async fn mark(&self, sight: &Sight, has_begun: bool, printer: &mut Printer) -> Result<Exit, Trouble> {
        let (stand, kept) = (self.stand, &self.stand.kept);
        kept.seal_anew().await.map_err(Trouble::Failed)?;
        let held = kept.lease(Taking::Politely, self.identity.seen_epoch).await?;
        let work = async {
            // Whatever decides is read once more, now that nobody else writes.
            let identity = stand.identify().await?;
            if identity.castle != self.identity.castle {
                return Err(Trouble::Refused(kept.moved_on(ANOTHER_LIFE)));
            }
            let castle = stand.settle(&identity, printer).await?;
            let ground = stand.ground(&castle, true);
            let room = kept.strongroom(&castle, Some(kept.state(castle.clone()).map_err(Trouble::Failed)?));
            let (survey, placed) = stand.lay_out(&ground, &room).await?;
            let mut graph = GraphBuilder::new();
            let after = stand.keep_secrets(&mut graph, &ground, &room, &survey).await?.after;
            foreign::mark(&mut graph, &ground, &stand.site, &kept.castle, &kept.nodes, (&after, has_begun));
            let graph = graph.build().map_err(|error| Trouble::of(&error))?;
            let driven = stand.drive("adopt", graph, &castle, Chosen::default(), &held.lease, printer).await?;
            let is_done = driven.report.is_done();
            if is_done && has_begun {
                room.note_begun(true, held.lease.epoch()).await?;
            }
            stand.remember(&room, is_done.then(|| (stand.nodes(&placed), &*ground)), held.lease.epoch()).await?;
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
        let exit = while_held(&kept.doors, &held.lease, work).await;
        let _ = held.lease.release().await;
        exit
    }

    fn refuse(&self, sight: &Sight, why: &[Fault], printer: &mut Printer) -> Exit {
        let why: Vec<Fault> = why.iter().map(masking::fault).collect();
        for fault in &why {
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
        let Candidate { vmid, is_marked, differences, .. } = candidate;
        let [name, host] = [&candidate.name, &candidate.host].map(|seen| masking::text(seen));
        let marked = if *is_marked { ", marked already" } else { "" };
        if differences.is_empty() {
            printer.say(&format!("VM {vmid} ({name}) on {host}{marked}: as the file says"));
            continue;
        }
        printer.say(&format!("VM {vmid} ({name}) on {host}{marked}:"));
        let row = |(difference, impact): &(Difference, Impact)| {
            let Difference { field, is, wanted } = &masking::difference(difference);
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
        .map(|(difference, impact)| (masking::difference(difference), impact))
        .map(|(difference, impact)| json!({"field": difference.field, "is": difference.is, "wanted": difference.wanted, "impact": impact.word()}))
        .collect();
    let [name, host] = [name, host].map(|seen| masking::text(seen));
    json!({"vmid": vmid, "name": name, "host": host, "marked": is_marked, "differences": differences})
}
