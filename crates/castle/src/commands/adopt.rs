//! `castle adopt`: the state, rebuilt from the marks of what stands; and castles that somebody else has raised.

use std::collections::BTreeSet;
use std::path::PathBuf;

use castle_engine::{Chosen, Fault, Outcome, Taking, lineage};
use castle_layers::cluster::Rolling;
use castle_layers::platform::{self, Whose};
use castle_layers::{Survey, foreign, secrets};
use castle_spec::Node;
use clap::Args;
use serde_json::{Map, json};

use crate::doors::Doors;
use crate::drive::{conclude, problems};
use crate::foreign::Foreign;
use crate::output::{Exit, Printer};
use crate::recorded::Recorded;
use crate::stand::{Identity, LOOKING, Stand, Trouble, while_held};
use crate::standing::{is_marked, let_go, taken};

/// Rebuild what castle remembers of a castle whose state is lost
///
/// Reads the marks on its machines, and takes its secrets from the vault, or from `talos.bundle`. Nothing that stands is touched. With `--foreign`
/// machines that somebody else made become this castle's: it shows how they differ from the file, asks, and writes its mark on them, and
/// changes nothing else.
#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Take machines that bear no mark, if the file names them by VMID, name and address, and they are of the cluster of talos.bundle
    #[arg(long)]
    foreign: bool,
    /// Do not ask
    #[arg(long, requires = "foreign")]
    yes: bool,
}

pub(crate) async fn adopt(args: &AdoptArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(doors, &args.path, printer).await?.without_minting();
    let kept = &stand.kept;
    stand.knock().await?;
    // Before anything is set aside: where a later life stands, the state here is none to be mended.
    let told = if stand.is_nameless().await { stand.identify_by_marks().await? } else { stand.identify().await? };
    not_later(&stand, &told).await?;
    // Who cannot read the lease cannot hold it either, so that much is mended without.
    let seen_epoch = stand.mend(printer).await?;
    let identity = stand.identify().await?;
    if args.foreign {
        return Foreign { path: &args.path, yes: args.yes, stand: &stand, identity: &identity }.adopt(printer).await;
    }
    if !identity.is_born {
        return Err(unmarked(args, &stand, &identity).await?);
    }
    let held = kept.lease(Taking::Politely, identity.seen_epoch.max(seen_epoch)).await?;
    let work = async {
        // Whatever decides is read once more, now that nobody else writes; and before anything is written anywhere.
        let identity = stand.identify().await?;
        not_later(&stand, &identity).await?;
        if kept.seal().is_ok() {
            stand.mend_state(&identity.castle, printer).await?;
        }
        if let Some(exit) = refused(&stand, &identity, printer).await? {
            return Ok(exit);
        }
        kept.seal_anew().await.map_err(Trouble::Failed)?;
        let castle = stand.settle(&identity, printer).await?;
        let ground = stand.ground(&castle, false);
        let room = kept.strongroom(&castle, Some(kept.state(castle.clone()).map_err(Trouble::Failed)?));
        let (survey, placed) = stand.lay_out(&ground, &room).await?;
        let graph = stand.raise(&ground, &room, &survey, &placed, (LOOKING, &Rolling::at_once())).await?;
        let driven = stand.drive("adopt", graph, &castle, Chosen::of([secrets::layer()]), &held.lease, printer).await?;
        // Secrets that were found elsewhere are sealed anew, and whatever was sealed with those before them is of no use any more.
        stand.mend_state(&castle, printer).await?;
        // Only what is there, and whole: whoever was cut off while it made a machine has none to miss. One that castle may not see is there.
        let hidden = hidden(&stand, &survey).await?;
        let is_there = |node: &Node| match survey.guests.get(&node.vmid.0) {
            Some(row) => is_marked(&ground, row),
            None => hidden.contains(&node.vmid.0),
        };
        let epoch = held.lease.epoch();
        let_go(&stand, &room, &ground, &survey, epoch).await?;
        Recorded::note_standing(&room, &stand.nodes_that(&placed, is_there), epoch).await?;
        stand.remember(&room, None, epoch).await?;
        let failed = driven.report.ended(|outcome| matches!(outcome, Outcome::Failed { .. })).count();
        if failed > 0 {
            return Ok(conclude("adopt", "adopted", kept.castle.castle.as_str(), &driven, Map::new(), printer));
        }
        let problems = problems(&driven.report, printer);
        let name = kept.castle.castle.as_str();
        let (lineage, generation) = (&castle.lineage, castle.generation);
        printer.say(&format!(
            "{} is known again: lineage {lineage}, life {generation}. castle plan {} tells whether it is as its file says.",
            kept.name(),
            args.path.display()
        ));
        printer.result(&json!({"verb": "adopt", "castle": name, "result": "adopted", "lineage": lineage,
            "generation": generation, "problems": problems}));
        Ok(Exit::Done)
    };
    let exit = while_held(&kept.doors, &held.lease, work).await;
    let _ = held.lease.release().await;
    exit
}

/// The nodes of the file whose numbers Proxmox shows nobody at, and calls taken all the same.
async fn hidden(stand: &Stand, survey: &Survey) -> Result<BTreeSet<u32>, Trouble> {
    let mut hidden = BTreeSet::new();
    for vmid in stand.kept.nodes.iter().map(|node| node.vmid.0).filter(|vmid| !survey.guests.contains_key(vmid)) {
        if !stand.client.is_free(vmid).await? {
            hidden.insert(vmid);
        }
    }
    Ok(hidden)
}

/// Holds that neither what stands nor what is in the vault is of a later life than the one that is known, and that marks can be read.
async fn not_later(stand: &Stand, identity: &Identity) -> Result<(), Trouble> {
    let ground = stand.ground(&identity.castle, false);
    let _at = stand.looking_at("guests");
    let found = platform::found(&ground).await?;
    if let Some((guest, format)) = found.iter().find_map(|guest| match guest.whose {
        Whose::Unreadable(format) => Some((guest, format)),
        _ => None,
    }) {
        let subject = format!("VM {} ({}) on {}", guest.vmid, guest.name, guest.host);
        return Err(Fault::guard(subject, format.to_string()).next(format.next()).into());
    }
    if let Some((guest, life)) = found.iter().find_map(|guest| match guest.whose {
        Whose::Later(life) => Some((guest, life)),
        _ => None,
    }) {
        let subject = format!("VM {} ({}) on {}", guest.vmid, guest.name, guest.host);
        let evidence =
            format!("is of life {life} of this castle, and its state knows of {}", identity.castle.generation);
        return Err(Fault::guard(subject, evidence).next(lineage::OUTDATED).into());
    }
    stand.later_in_vault(&identity.castle).await.map_or(Ok(()), |fault| Err(fault.into()))
}

/// Why nothing is written down: what is in the vault is of a later life, or the secrets of what stands are nowhere to be found. It is told.
async fn refused(stand: &Stand, identity: &Identity, printer: &mut Printer) -> Result<Option<Exit>, Trouble> {
    let ground = stand.ground(&identity.castle, false);
    let window = stand.window(&identity.castle);
    let (survey, placed) = stand.lay_out(&ground, &window).await?;
    let graph = stand.raise(&ground, &window, &survey, &placed, (LOOKING, &Rolling::at_once())).await?;
    let report = stand.look(&graph, &identity.castle).await;
    // Nothing is begun either, and no key made, where there is none for secrets that cannot be had without.
    let has_key = stand.kept.seal().is_ok();
    let is_in_the_way = |outcome: &Outcome| matches!(outcome, Outcome::Failed { fault } if fault.guarded || !has_key);
    if !report.ended(is_in_the_way).any(|(step, _)| step.layer == secrets::layer()) {
        return Ok(None);
    }
    if let Some(fault) = taken(stand, &ground, &survey).await? {
        return Err(fault.into());
    }
    let problems = problems(&report, printer);
    let name = stand.kept.castle.castle.as_str();
    printer.result(&json!({"verb": "adopt", "castle": name, "result": "refused", "problems": problems}));
    printer.say("Nothing was written down.");
    Ok(Some(Exit::Refused))
}

/// That there is no mark; and what stands where the nodes should be, which might be the castle all the same.
async fn unmarked(args: &AdoptArgs, stand: &Stand, identity: &Identity) -> Result<Trouble, Trouble> {
    let (kept, path) = (&stand.kept, args.path.display());
    let sight = foreign::look(&stand.ground(&identity.castle, false), &stand.site, &kept.castle, &kept.nodes).await?;
    let nothing = format!("nothing on the hypervisor bears the mark of {}", kept.name());
    if sight.candidates.is_empty() {
        return Ok(Trouble::Failed(format!("{nothing}: there is nothing to adopt\n  next: castle up {path}")));
    }
    let named: Vec<String> = sight.candidates.iter().map(|one| format!("VM {} ({})", one.vmid, one.name)).collect();
    Ok(Trouble::Refused(format!(
        "{nothing}; but there are guests where its nodes should be, made by somebody else: {}\n  next: castle adopt {path} --foreign, to see how they \
         differ from the file and to take them",
        named.join(", ")
    )))
}
