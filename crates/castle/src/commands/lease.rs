use std::path::{Path, PathBuf};

use castle_engine::{Holder, LeaseError, Taking, look};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::commands::confirm::confirmed;
use crate::doors::Doors;
use crate::keeping::Kept;
use crate::masking;
use crate::output::{Exit, Printer, ago};
use crate::stand::{Stand, Trouble, end};

/// See who works on a castle, and take over from someone who is gone
#[derive(Debug, Args)]
pub(crate) struct LeaseArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Show who works on the castle, and whether they live
    Show {
        /// A castle.yaml, or the folder it is in
        #[arg(default_value = ".")]
        path: PathBuf,
    },
    /// Take the lease from whoever has it; they stop before their next effect
    Take {
        /// A castle.yaml, or the folder it is in
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

pub(crate) async fn run(args: &LeaseArgs, doors: &Doors, printer: &mut Printer) -> Exit {
    let (What::Show { path } | What::Take { path, .. }) = &args.what;
    let kept = match Kept::open(doors, path) {
        Ok(kept) => kept,
        Err(why) => return printer.invalid("lease", &why),
    };
    let holder = match (look(kept.store.as_ref(), &kept.key()).await, &args.what) {
        (Ok(found), _) => found.map(|(holder, _)| holder),
        (Err(LeaseError::Damaged(_)), What::Take { yes, .. }) => {
            let taken = take_damaged(doors, path, *yes, printer).await;
            return end("lease", taken, printer);
        }
        (Err(error @ LeaseError::Damaged(_)), What::Show { .. }) => {
            return printer.failed("lease", &format!("{error}\n  next: castle lease take {}", path.display()));
        }
        (Err(error), _) => return printer.failed("lease", &masking::text(&error.to_string())),
    };
    match &args.what {
        What::Show { .. } => show(&kept, holder.as_ref(), printer),
        What::Take { yes, .. } => take(&kept, holder.as_ref(), *yes, printer).await,
    }
}

fn said(kept: &Kept, holder: Option<&Holder>) -> String {
    let now = kept.clock().wall();
    match holder {
        Some(holder) if !holder.released => {
            let state = if holder.is_alive(now) { "alive" } else { "probably dead" };
            let silent = ago(holder.silent_for(now));
            format!(
                "{} works on {} under epoch {}; last sign of life {silent} ({state})",
                masking::text(&holder.owner),
                kept.name(),
                holder.epoch
            )
        }
        _ => format!("Nobody works on {}", kept.name()),
    }
}

fn show(kept: &Kept, holder: Option<&Holder>, printer: &mut Printer) -> Exit {
    printer.say(&said(kept, holder));
    let alive = holder.is_some_and(|holder| holder.is_alive(kept.clock().wall()));
    printer
        .result(&json!({"verb": "lease", "castle": kept.name(), "result": "shown", "holder": masking::value(json!(holder)), "alive": alive}));
    Exit::Done
}

async fn take(kept: &Kept, holder: Option<&Holder>, yes: bool, printer: &mut Printer) -> Exit {
    let question = format!("{}. Take the lease from them?", said(kept, holder));
    if holder.is_some_and(|holder| !holder.released) && !confirmed(&question, yes, printer) {
        return printer.refused("lease", "the lease was left where it is: answer yes, or give --yes");
    }
    release(kept, 0, printer).await
}

/// Takes a lease of which nobody knows who holds it: marks in the world tell after which epoch.
async fn take_damaged(doors: &Doors, path: &Path, yes: bool, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(doors, path, printer).await?;
    let question = format!("The lease of {} is damaged: nobody knows who holds it. Take it?", stand.kept.name());
    if !confirmed(&question, yes, printer) {
        return Err(Trouble::Refused("the lease was left where it is: answer yes, or give --yes".to_owned()));
    }
    let seen_epoch = stand.mend(printer).await?;
    Ok(release(&stand.kept, seen_epoch, printer).await)
}

/// Takes the lease from whoever has it, and gives it back.
async fn release(kept: &Kept, seen_epoch: u64, printer: &mut Printer) -> Exit {
    let held = match kept.lease(Taking::ByForce, seen_epoch).await {
        Ok(held) => held,
        Err(why) => return printer.failed("lease", &why.to_string()),
    };
    let epoch = held.lease.epoch();
    if let Err(fault) = held.lease.release().await {
        return printer.failed("lease", &fault.to_string());
    }
    printer.say(&format!(
        "The lease of {} is free, at epoch {epoch}: whoever had it stops before their next effect.",
        kept.name()
    ));
    printer.result(&json!({"verb": "lease", "castle": kept.name(), "result": "taken", "epoch": epoch}));
    Exit::Done
}
