use std::path::PathBuf;

use clap::Args;

use super::at_hand::Taken;
use super::done;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Encrypt a SOPS file anew, with a new data key
///
/// Whoever could read the file before may know its values: replace those at their source too.
#[derive(Debug, Args)]
pub(crate) struct RotateArgs {
    /// The SOPS file
    file: PathBuf,
}

pub(super) fn run(args: &RotateArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let mut taken = Taken::open(&args.file, doors)?;
    taken.opened.rotate(doors.entropy.as_ref())?;
    taken.save(doors)?;
    Ok(done(printer, "rotate", &args.file, &format!("{} has a new data key", args.file.display())))
}
