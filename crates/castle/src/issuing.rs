//! Client files, issued from the bundle alone: read from the sealed state, and put where they were asked for.

use std::path::{Path, PathBuf};
use std::time::Duration;

use castle_seams::{Disk, DiskErrorKind};
use castle_secrets::Secret;
use castle_talos::model::bundle::Bundle;
use castle_talos::model::clients::{MergeError, Merged};
use castle_talos::model::pki::{Doors, YEAR};
use clap::Args;
use serde_json::json;

use crate::doors;
use crate::keeping::Kept;
use crate::output::{Exit, Printer};
use crate::project;
use crate::stand::Trouble;
use crate::voice::At;
use crate::writing::{Place, Readers};

/// No file that a client file is merged into is longer.
const MAX_BYTES: u64 = 4 << 20;

/// Where a client file goes, and how long it is good for.
#[derive(Debug, Args)]
pub(crate) struct Issue {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    pub(crate) path: PathBuf,
    /// Write it to this file, for its owner alone, instead of printing it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Merge it into this file: what others wrote stays as it is, this context becomes the current one
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    merge: Option<PathBuf>,
    /// How long it is valid: `90m`, `12h`, `30d`. Default: a year
    #[arg(long, value_name = "TIME", value_parser = time)]
    valid_for: Option<Duration>,
}

/// A time as people write it.
fn time(text: &str) -> Result<Duration, String> {
    let split = text.len() - text.chars().last().map_or(0, char::len_utf8);
    let (number, unit) = text.split_at(split);
    let seconds = match unit {
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("write a number and a unit: 90m, 12h, 30d".to_owned()),
    };
    let number: u64 = number.parse().map_err(|_| "write a number and a unit: 90m, 12h, 30d".to_owned())?;
    let whole = number.checked_mul(seconds).map(Duration::from_secs);
    match whole {
        Some(whole) if whole >= Duration::from_secs(600) && whole <= YEAR * 10 => Ok(whole),
        _ => Err("from 10m to ten years".to_owned()),
    }
}

impl Issue {
    /// How long it is to be valid.
    pub(crate) fn lifetime(&self) -> Duration {
        self.valid_for.unwrap_or(YEAR)
    }

    /// Keeps events for programs out of the file, where that is printed.
    pub(crate) fn hush(&self, doors: &doors::Doors, printer: &Printer) -> Option<At> {
        let is_printed = self.out.is_none() && self.merge.is_none();
        (is_printed && printer.is_json()).then(|| doors.voice.hushed())
    }

    /// Puts `text` where it was asked for; `merge` merges it into what is there.
    pub(crate) fn deliver(
        &self,
        verb: &str,
        kept: &Kept,
        text: &Secret,
        merge: fn(&str, &Secret) -> Result<Merged, MergeError>,
        printer: &mut Printer,
    ) -> Result<Exit, Trouble> {
        let disk = kept.doors.disk.as_ref();
        // Before anything is read: a pipe would be waited for.
        let place =
            self.out.as_ref().or(self.merge.as_ref()).map(|file| Place::judge(&kept.doors, file)).transpose()?;
        let (file, text, context) = match (&self.out, &self.merge) {
            (None, None) => return Ok(printer.data(text.expose())),
            (Some(file), _) => (file, text.clone(), None),
            (None, Some(file)) => match disk.read(file, MAX_BYTES) {
                Ok(bytes) => {
                    let there = String::from_utf8(bytes)
                        .map_err(|_| Trouble::Failed(format!("{} is not text", file.display())))?;
                    let merged = merge(Secret::from(there).expose(), text);
                    let merged = merged
                        .map_err(|why| Trouble::Failed(format!("{}: {why}; it was left as it is", file.display())))?;
                    (file, merged.text, Some(merged.context))
                }
                Err(error) if error.kind == DiskErrorKind::NotFound => (file, text.clone(), None),
                Err(error) => return Err(Trouble::of(&error)),
            },
        };
        refuse_tracked(disk, file)?;
        if let Some(place) = place {
            refuse_tracked(disk, place.target())?;
            if let Some(folder) = place.target().parent().filter(|folder| !folder.as_os_str().is_empty()) {
                disk.create_dir_all(folder, 0o700).map_err(|error| Trouble::of(&error))?;
            }
            let readers = if self.merge.is_some() { Readers::AsBefore } else { Readers::Owner };
            place.write(disk, text.expose().as_bytes(), readers)?;
        }
        printer.say(&match &context {
            Some(context) => format!("merged into {} as {context}", file.display()),
            None => format!("wrote {}", file.display()),
        });
        let name = kept.castle.castle.as_str();
        printer.result(&json!({"verb": verb, "castle": name, "result": "written", "file": file, "context": context}));
        Ok(Exit::Done)
    }
}

/// A file that git would take along is no place for a key.
fn refuse_tracked(disk: &dyn Disk, file: &Path) -> Result<(), Trouble> {
    let folder = file.parent().unwrap_or(Path::new(""));
    match project::WorkTree::around(disk, folder) {
        Some(tree) if tree.takes(file) => Err(Trouble::Refused(format!(
            "{} would be taken along by git, and holds a private key: write it elsewhere, or have git ignore it",
            file.display()
        ))),
        _ => Ok(()),
    }
}

/// The bundle of the castle as it stands, from its sealed state.
pub(crate) async fn bundle(kept: &Kept) -> Result<Bundle, Trouble> {
    let castle = kept.castle_id().await.map_err(Trouble::Failed)?;
    let never = || Trouble::Failed(kept.unknown());
    let castle = castle.ok_or_else(never)?;
    let state = kept.state(castle.clone()).map_err(Trouble::Failed)?;
    let room = kept.strongroom(&castle, Some(state));
    room.bundle().await?.ok_or_else(never)
}

/// The doors that certificates are issued through.
pub(crate) fn doors(kept: &Kept) -> Doors<'_> {
    Doors { mint: kept.doors.mint.as_ref(), entropy: kept.doors.entropy.as_ref(), clock: kept.doors.clock.as_ref() }
}
