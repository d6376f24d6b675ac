use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::at_hand::{For, Taken};
use super::done;
use crate::commands::confirm::confirmed;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Change who can read a SOPS file, to what .sops.yaml says
///
/// The data key stays: whoever is taken out may have kept it. Follow with `castle secrets rotate`, and replace the secrets they knew.
#[derive(Debug, Args)]
pub(crate) struct UpdatekeysArgs {
    /// The SOPS file
    file: PathBuf,
    #[command(flatten)]
    whom: For,
    /// Do not ask
    #[arg(long)]
    yes: bool,
}

pub(super) fn run(args: &UpdatekeysArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let policy = args.whom.policy(&args.file, None, doors)?;
    let mut taken = Taken::open(&args.file, doors)?;
    let Some((change, bytes)) = taken.opened.update_keys(&policy, doors.entropy.as_ref())? else {
        return Ok(done(
            printer,
            "updatekeys",
            &args.file,
            &format!("{} is for just them already", args.file.display()),
        ));
    };
    let lines =
        |sign: &str, names: &[String]| names.iter().map(|name| format!("\n  {sign} {name}")).collect::<String>();
    let changes = lines("+", &change.added) + &lines("-", &change.removed);
    let question = format!("Who can read {} changes:{changes}\nGo on?", args.file.display());
    if !confirmed(&question, args.yes, printer) {
        return Err(Trouble::Refused("nothing was written: answer yes, or give --yes".to_owned()));
    }
    taken.put(&bytes, doors)?;
    let rest = if change.removed.is_empty() {
        ""
    } else {
        "\nThe data key is the same: castle secrets rotate makes a new one"
    };
    printer.say(&format!("Who can read {} has changed:{changes}{rest}", args.file.display()));
    let result = json!({
        "verb": "secrets", "action": "updatekeys", "result": "done", "file": args.file, "added": change.added, "removed": change.removed,
    });
    printer.result(&result);
    Ok(Exit::Done)
}
