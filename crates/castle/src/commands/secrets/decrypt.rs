use std::path::PathBuf;

use clap::Args;

use super::at_hand::{Taken, refuse_tracked};
use super::{done, refuse_objects};
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;
use crate::writing::{Place, Readers};

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
    let found = match place {
        None => {
            refuse_objects(printer)?;
            None
        }
        Some(place) => {
            let found = Place::judge(doors, place)?;
            refuse_tracked(disk, place)?;
            refuse_tracked(disk, found.target())?;
            Some(found)
        }
    };
    let taken = Taken::open(&args.file, doors)?;
    let clear = taken.opened.clear(taken.opened.format())?;
    let (Some(place), Some(found)) = (place, found) else { return Ok(printer.bytes(&clear)) };
    found.write(disk, &clear, Readers::Owner)?;
    Ok(done(printer, "decrypt", place, &format!("wrote {}, in clear", place.display())))
}
