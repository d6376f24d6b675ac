use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use castle_seams::{Signal, Signals, terminate};
use castle_secrets::sops::{Format, command_words};
use clap::Args;
use futures_util::future::{Either, select};
use zeroize::Zeroizing;

use super::at_hand::{For, Taken};
use super::done;
use super::workbench::Workbench;
use crate::commands::confirm::confirmed;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::secret::IDENTITY_VARIABLE;
use crate::stand::Trouble;

/// How often the editor is looked after.
const LOOK: Duration = Duration::from_millis(50);
/// How long an editor that was asked to stop may take.
const GRACE_LOOKS: u32 = 40;

/// Edit a SOPS file in an editor; what is not changed keeps its ciphertext
///
/// The editor is that of SOPS_EDITOR or EDITOR, else vi. It works on a file in memory that its owner alone can read, and that is gone
/// afterwards, also when castle is asked to stop. A file that is missing is made.
#[derive(Debug, Args)]
pub(crate) struct EditArgs {
    /// The SOPS file
    file: PathBuf,
    #[command(flatten)]
    whom: For,
}

pub(super) async fn run(args: &EditArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let signals = doors.signals().map_err(|error| Trouble::of(&error))?;
    let mut taken = Taken::open_or_begin(&args.file, &args.whom, doors)?;
    let format = taken.opened.format();
    let is_blank = taken.is_new() && format != Format::Json;
    let before = if is_blank { Zeroizing::default() } else { taken.opened.clear(format)? };
    let folders: Vec<PathBuf> =
        doors.variables.get("XDG_RUNTIME_DIR").map(PathBuf::from).into_iter().chain(["/dev/shm".into()]).collect();
    let ending = args.file.extension().map(|ending| format!(".{}", ending.display())).unwrap_or_default();
    let bench = Workbench::lay_out(&folders, &ending, &before, doors.disk.as_ref(), doors.entropy.as_ref())?;
    loop {
        edited(&bench.file, &signals, doors).await?;
        let after = bench.read()?;
        if after == before {
            return Ok(done(printer, "edit", &args.file, &format!("{} is as it was", args.file.display())));
        }
        let Err(error) = taken.opened.replace(&after) else { break };
        if !confirmed(&format!("{error}\nOpen the editor again?"), false, printer) {
            return Err(Trouble::Invalid(format!("{error}; {} is as it was", args.file.display())));
        }
    }
    taken.save(doors)?;
    Ok(done(printer, "edit", &args.file, &format!("{} is changed", args.file.display())))
}

/// Runs the editor until it ends, or until castle is asked to stop.
async fn edited(file: &Path, signals: &dyn Signals, doors: &Doors) -> Result<(), Trouble> {
    let clock = doors.clock.as_ref();
    let named =
        ["SOPS_EDITOR", "EDITOR"].iter().filter_map(|name| doors.variables.text(name)).find(|name| !name.is_empty());
    let named = named.unwrap_or_else(|| "vi".to_owned());
    let words = command_words(&named).ok_or_else(|| Trouble::Invalid(format!("the editor `{named}` is no command")))?;
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .arg(file)
        .env_remove(IDENTITY_VARIABLE)
        .spawn()
        .map_err(|error| Trouble::Failed(format!("the editor `{named}` cannot be run: {error}")))?;
    loop {
        if let Some(status) = ended(&mut child)? {
            return if status {
                Ok(())
            } else {
                Err(Trouble::Failed(format!("the editor `{named}` failed; nothing was changed")))
            };
        }
        let at_terminal = std::io::IsTerminal::is_terminal(&std::io::stdin());
        match select(signals.next(), clock.sleep(LOOK)).await {
            // Ctrl-C at a terminal reaches the editor too, whose business it is.
            Either::Left((Signal::Interrupt, _)) if at_terminal => {}
            Either::Left(_) => {
                let _ = terminate(child.id());
                for _ in 0..GRACE_LOOKS {
                    if ended(&mut child)?.is_some() {
                        break;
                    }
                    clock.sleep(LOOK).await;
                }
                return Err(Trouble::Said(Exit::Interrupted));
            }
            Either::Right(_) => {}
        }
    }
}

/// Whether the editor has ended, and well.
fn ended(child: &mut Child) -> Result<Option<bool>, Trouble> {
    let status = child.try_wait().map_err(|error| Trouble::of(&error))?;
    Ok(status.map(|status| status.success()))
}
