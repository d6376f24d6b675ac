use std::path::PathBuf;

use castle_secrets::sops::KeyPath;
use clap::Args;

use super::at_hand::Taken;
use super::refuse_objects;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Print one value of a SOPS file, with nothing added
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle secrets get secrets.enc.yaml proxmox.token\n  castle secrets get secrets.enc.yaml '[\"with.dots\"][0]'"
)]
pub(crate) struct GetArgs {
    /// The SOPS file
    file: PathBuf,
    /// The key path: `a.b[0]`, or `["a"]["b"][0]` as sops writes it
    path: KeyPath,
}

pub(super) fn run(args: &GetArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    refuse_objects(printer)?;
    let taken = Taken::open(&args.file, doors)?;
    Ok(printer.bytes(taken.opened.get(&args.path)?.expose().as_bytes()))
}
