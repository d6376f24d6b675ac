//! `castle adopt`: the state, rebuilt from the marks of what stands.

use std::path::PathBuf;

use castle_engine::{Layer, Outcome, Taking};
use clap::Args;
use serde_json::{Map, json};

use crate::doors::Doors;
use crate::drive::{conclude, problems};
use crate::output::{Exit, Printer};
use crate::stand::{LOOKING, Stand, Trouble, while_held};

/// Rebuild what castle remembers of a castle whose state is lost
///
/// Reads the marks on its machines, and takes its secrets from the vault, or from `talos.bundle`. Nothing that stands is touched.
#[derive(Debug, Args)]
pub(crate) struct AdoptArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
}

pub(crate) async fn adopt(args: &AdoptArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(doors, &args.path, printer).await?;
    let kept = &stand.kept;
    kept.seal().map_err(Trouble::Failed)?;
    stand.knock().await?;
    let identity = stand.identify().await?;
    if !identity.is_born {
        return Err(Trouble::Failed(format!(
            "nothing on the hypervisor bears the mark of {}: there is nothing to adopt\n  next: castle up {}",
            kept.name(),
            args.path.display()
        )));
    }
    let held = kept.lease(Taking::Politely, identity.seen_epoch).await?;
    let work = async {
        let castle = stand.settle(&identity, printer).await?;
        let ground = stand.ground(&castle, false);
        let (survey, placed) = stand.lay_out(&ground).await?;
        let room = kept.strongroom(&castle, Some(kept.state(castle.clone()).map_err(Trouble::Failed)?));
        let graph = stand.raise(&ground, &room, &survey, &placed, LOOKING).await?;
        let driven = stand.drive("adopt", graph, &castle, Some(Layer::new("secrets")), &held.lease, printer).await?;
        stand.remember(&room, Some(&placed), held.lease.epoch()).await?;
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
    let exit = while_held(&held.lease, work).await;
    let _ = held.lease.release().await;
    exit
}
