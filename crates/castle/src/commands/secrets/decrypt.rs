use std::path::PathBuf;

use clap::Args;

use super::at_hand::{Taken, refuse_tracked};
use super::{done, refuse_objects};
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Decrypt a SOPS file, to the terminal or to a file that its owner alone can read
///
/// A file that git would take along is refused.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  castle secrets decrypt secrets.enc.yaml --out /run/user/1000/secrets.yaml")]
pub(crate) struct DecryptArgs {
    /// The SOPS file
    file: PathBuf,
    /// Write it to this file, for its owner alone
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Put it in place of the encrypted file
    #[arg(long, conflicts_with = "out")]
    in_place: bool,
}

pub(super) fn run(args: &DecryptArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let disk = doors.disk.as_ref();
    let place = if args.in_place { Some(&args.file) } else { args.out.as_ref() };
    match place {
        None => refuse_objects(printer)?,
        Some(place) => refuse_tracked(disk, place)?,
    }
    let taken = Taken::open(&args.file, doors)?;
    let clear = taken.opened.clear(taken.opened.format())?;
    let Some(place) = place else { return Ok(printer.bytes(&clear)) };
    // What exists would keep its mode, which others may read by.
    if disk.metadata(place).is_ok_and(|found| found.mode & 0o077 != 0) {
        disk.remove_file(place).map_err(|error| Trouble::Failed(error.to_string()))?;
    }
    disk.replace(place, &clear, 0o600).map_err(|error| Trouble::Failed(error.to_string()))?;
    Ok(done(printer, "decrypt", place, &format!("wrote {}, in clear", place.display())))
}
