use std::path::{Path, PathBuf};

use castle_secrets::sops::{Format, MAX_FILE_BYTES, Opened, Rule};
use clap::Args;
use zeroize::Zeroizing;

use super::at_hand::For;
use super::done;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;
use crate::writing::{Place, Readers};

/// Encrypt a file as sops does
///
/// Printed unless a place for it is named. For whom, and which values, the creation rule of the nearest .sops.yaml above the file says,
/// or the options here.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle secrets encrypt --in-place secrets.enc.yaml\n  castle secrets encrypt plain.yaml --out secrets.enc.yaml --age age1..."
)]
pub(crate) struct EncryptArgs {
    /// The file in clear
    file: PathBuf,
    /// Put the encrypted file in its place
    #[arg(long)]
    in_place: bool,
    /// Write the encrypted file there; its ending tells the form, and its path the creation rule
    #[arg(long, value_name = "FILE", conflicts_with = "in_place")]
    out: Option<PathBuf>,
    #[command(flatten)]
    whom: For,
    /// Encrypt only what is below keys that match
    #[arg(long, value_name = "REGEX")]
    encrypted_regex: Option<String>,
    /// Encrypt all but what is below keys that match
    #[arg(long, value_name = "REGEX", conflicts_with = "encrypted_regex")]
    unencrypted_regex: Option<String>,
}

pub(super) fn run(args: &EncryptArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let disk = doors.disk.as_ref();
    let place: &Path = args.out.as_deref().unwrap_or(&args.file);
    let is_written = args.in_place || args.out.is_some();
    let found = is_written.then(|| Place::judge(doors, place)).transpose()?;
    let format = Format::of(place)?;
    let clear = disk.read(&args.file, MAX_FILE_BYTES).map_err(|error| Trouble::of(&error))?;
    let clear = Zeroizing::new(clear);
    let rule = match (&args.encrypted_regex, &args.unencrypted_regex) {
        (Some(regex), _) => Some(Rule::new("encrypted_regex", regex)),
        (_, Some(regex)) => Some(Rule::new("unencrypted_regex", regex)),
        _ => None,
    };
    let policy = args.whom.policy(place, rule.transpose().map_err(Trouble::Invalid)?, doors)?;
    let name = args.file.display().to_string();
    let mut fresh = Opened::fresh(&name, format, &clear, &policy, doors.entropy.as_ref())?;
    let sealed = fresh.seal(doors.clock.wall(), doors.entropy.as_ref())?;
    let Some(found) = found else { return Ok(printer.bytes(&sealed)) };
    found.write(disk, &sealed, Readers::AsBeforeOrAll)?;
    Ok(done(
        printer,
        "encrypt",
        place,
        &format!("{} is encrypted for {}", place.display(), fresh.recipients().join(", ")),
    ))
}
