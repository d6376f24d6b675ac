//! `castle down`: the hypervisor first, bounded, and a receipt of what is gone.

use std::path::PathBuf;
use std::sync::Arc;

use castle_engine::{CastleId, GraphBuilder, Outcome, Taking, lineage};
use castle_layers::platform::{self, Doomed, Whose};
use castle_layers::vault;
use castle_proxmox::steps::{Ground, Reach};
use clap::Args;
use serde_json::{Map, Value, json};

use crate::commands::confirm::confirmed;
use crate::drive::{Driven, conclude, journal_of};
use crate::output::{Exit, Printer, table};
use crate::stand::{Stand, Trouble, while_held};

/// Take a castle down: remove every guest and image it made, and prove that nothing of it is left
///
/// Asks the hypervisor alone, so it works whatever inside the castle is dead. Everything is looked at once more before it is
/// removed; what is not this castle's is never touched.
#[derive(Debug, Args)]
pub(crate) struct DownArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Keep the Talos image, so that the next `up` need not download it
    #[arg(long)]
    keep_image: bool,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(crate) async fn down(args: &DownArgs, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(&args.path, printer).await?;
    let identity = stand.identify().await?;
    let ground = stand.ground(&identity.castle, false);
    let doomed: Vec<Doomed> =
        platform::within(&ground).await?.into_iter().filter(|guest| goes(guest, args.keep_image)).collect();
    printer.say(&listed(&doomed));
    let question = format!("Remove {} of {} for good?", counted(&doomed), stand.kept.name());
    if !doomed.is_empty() && !confirmed(&question, args.yes, printer) {
        return Err(Trouble::Refused("nothing was removed: answer yes, or give --yes".to_owned()));
    }
    let removal = Removal { verb: "down", stand: &stand, doomed, reach: Reach::Marked, keep_image: args.keep_image };
    removal.run(&identity, printer).await
}

fn goes(guest: &Doomed, keep_image: bool) -> bool {
    guest.whose == Whose::Ours && !(keep_image && guest.is_template)
}

fn counted(doomed: &[Doomed]) -> String {
    match doomed.len() {
        1 => "1 guest".to_owned(),
        count => format!("{count} guests"),
    }
}

/// What is to go, for people.
pub(crate) fn listed(doomed: &[Doomed]) -> String {
    if doomed.is_empty() {
        return "There is no guest of this castle.".to_owned();
    }
    let mut rows = vec![["vmid", "name", "host", "what"].map(str::to_owned)];
    rows.extend(doomed.iter().map(|guest| {
        let what = if guest.is_template { "image" } else { "node" };
        [guest.vmid.to_string(), guest.name.clone(), guest.host.clone(), what.to_owned()]
    }));
    table(&rows)
}

/// Guests that are to go, for a verb.
pub(crate) struct Removal<'r> {
    pub(crate) verb: &'r str,
    pub(crate) stand: &'r Stand,
    pub(crate) doomed: Vec<Doomed>,
    pub(crate) reach: Reach,
    pub(crate) keep_image: bool,
}

impl Removal<'_> {
    /// Removes them, looks again, and prints the receipt.
    pub(crate) async fn run(self, identity: &crate::stand::Identity, printer: &mut Printer) -> Result<Exit, Trouble> {
        let kept = &self.stand.kept;
        let held = kept.lease(Taking::Politely, identity.seen_epoch).await?;
        let work = async {
            let castle = &identity.castle;
            let ground = self.stand.ground(castle, false);
            let hosts = self.hosts_with_images().await?;
            let mut graph = GraphBuilder::new();
            platform::raze(&mut graph, &ground, &self.stand.site, &self.doomed, self.reach, &hosts);
            // A vault that cannot be opened keeps nobody from taking the machines away.
            let chamber = if self.verb == "down" { kept.chamber() } else { Ok(None) };
            if let Ok(Some(chamber)) = &chamber {
                vault::clear(&mut graph, chamber.shelf(castle), &kept.castle);
            }
            let graph = graph.build().map_err(|error| Trouble::Failed(error.to_string()))?;
            let driven = self.stand.drive(self.verb, graph, castle, None, &held.lease, printer).await?;
            let leftovers = self.leftovers(&ground).await?;
            if leftovers.is_empty() && driven.report.is_done() && identity.is_born && self.verb == "down" {
                self.end_of_life(castle, identity.is_stored, held.lease.epoch()).await?;
            }
            let exit = self.receipt(&driven, &leftovers, printer);
            let Err(why) = chamber else { return Ok(exit) };
            printer.complain_to_people(&format!("what the castle keeps in its vault is still there: {why}"));
            Ok(Exit::Failed)
        };
        let exit = while_held(&held.lease, work).await;
        let _ = held.lease.release().await;
        exit
    }

    /// The hosts whose downloads are looked at: those that are there and have the storage.
    async fn hosts_with_images(&self) -> Result<Vec<String>, Trouble> {
        if self.keep_image {
            return Ok(Vec::new());
        }
        let online = self.stand.client.hosts().await?;
        let is_there = |host: &&String| online.iter().any(|row| row.name == **host && row.is_online);
        Ok(self.stand.site.hosts.iter().filter(is_there).cloned().collect())
    }

    /// What is still there of what was to go, asked afresh.
    async fn leftovers(&self, ground: &Arc<Ground>) -> Result<Vec<Doomed>, Trouble> {
        ground.guests(ground.client.clock().monotonic()).await?;
        let now = platform::within(ground).await?;
        let still = |guest: &&Doomed| {
            self.doomed.iter().any(|doomed| doomed.vmid == guest.vmid) || goes(guest, self.keep_image)
        };
        Ok(now.iter().filter(still).cloned().collect())
    }

    /// The castle is gone: what is raised next is another life.
    async fn end_of_life(&self, castle: &CastleId, is_stored: bool, epoch: u64) -> Result<(), Trouble> {
        let failed = |error: String| Trouble::Failed(error);
        let store = self.stand.kept.store.as_ref();
        if !is_stored {
            lineage::adopt(store, castle).await.map_err(|error| failed(error.to_string()))?;
        }
        let (kept, layer) = (&self.stand.kept, platform::layer());
        let mut state = kept.state(castle.clone()).map_err(failed)?;
        let known = state.latest(&layer).await.map_err(|error| failed(error.to_string()))?;
        let payload = json!({"generation": castle.generation, "nodes": []});
        let was_raised = known.is_some_and(|record| record.payload != payload && record.payload["nodes"] != json!([]));
        // A castle that never stood has not died.
        if !was_raised && self.doomed.is_empty() {
            return Ok(());
        }
        if was_raised {
            state.write(&layer, payload, epoch).await.map_err(|error| failed(error.to_string()))?;
        }
        kept.remember(&state).map_err(failed)?;
        lineage::next_life(store, castle).await.map_err(|error| failed(error.to_string()))?;
        // What it noted is of no use to the next one; that it stays would do no harm.
        let _ = kept.doors.disk.remove_file(&journal_of(&kept.own_folder(), castle));
        Ok(())
    }

    fn receipt(&self, driven: &Driven, leftovers: &[Doomed], printer: &mut Printer) -> Exit {
        let is_left = |guest: &Doomed| leftovers.iter().any(|left| left.vmid == guest.vmid);
        let gone: Vec<&Doomed> = self.doomed.iter().filter(|guest| !is_left(guest)).collect();
        let object = |guest: &Doomed| json!({"vmid": guest.vmid, "name": guest.name, "host": guest.host});
        if !gone.is_empty() {
            let rows: Vec<[String; 4]> = gone
                .iter()
                .map(|guest| ["gone".to_owned(), guest.vmid.to_string(), guest.name.clone(), guest.host.clone()])
                .collect();
            printer.say(&table(&rows));
        }
        for left in leftovers {
            printer.complain_to_people(&format!("still there: VM {} ({}) on {}", left.vmid, left.name, left.host));
        }
        let mut more = Map::new();
        more.insert("gone".to_owned(), gone.iter().map(|guest| object(guest)).collect());
        more.insert("leftovers".to_owned(), leftovers.iter().map(object).collect::<Value>());
        let name = self.stand.kept.castle.castle.as_str();
        let exit = conclude(self.verb, "gone", name, driven, more, printer);
        let all_well = driven.report.outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Done { .. }));
        if leftovers.is_empty() && all_well {
            printer.say(&format!("Nothing of {} is left on its hypervisor.", self.stand.kept.name()));
        }
        exit
    }
}
