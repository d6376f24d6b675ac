//! `castle wipe`: emergency removal by mark, within the declared VMIDs alone.

use std::path::PathBuf;

use castle_layers::platform::{self, Doomed, Whose};
use castle_proxmox::steps::Reach;
use clap::Args;

use crate::commands::confirm::{confirmed, typed};
use crate::commands::down::{left_alone, listed};
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::removal::Removal;
use crate::stand::{Stand, Trouble};

/// Remove whatever bears this castle's mark within its VMIDs, without regard to state or file
///
/// For bad days: after a lost state, a half-made castle, an earlier life that was left behind. Lists first, asks, and looks at
/// every guest once more before it goes. Guests outside of the VMIDs and guests of other castles are never touched.
#[derive(Debug, Args)]
pub(crate) struct WipeArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Remove guests without any mark, too, if they are within the castle's VMIDs; asks for the castle's name
    #[arg(long)]
    force_range: bool,
    /// Do not ask
    #[arg(long, conflicts_with = "force_range")]
    yes: bool,
    /// The castle's name, instead of typing it when asked
    #[arg(long, value_name = "CASTLE", requires = "force_range")]
    confirm: Option<String>,
}

pub(crate) async fn wipe(args: &WipeArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let stand = Stand::open(doors, &args.path, printer).await?;
    let mut identity =
        if stand.is_nameless().await { stand.identify_by_marks().await? } else { stand.identify().await? };
    let ground = stand.ground(&identity.castle, false);
    let at = stand.looking_at("guests");
    let within = platform::found(&ground).await?;
    drop(at);
    let goes = |guest: &&Doomed| match guest.whose {
        Whose::Ours | Whose::Unfinished => true,
        Whose::Unmarked => args.force_range,
        Whose::Astray | Whose::Later(_) | Whose::Others | Whose::Copied(_) | Whose::Unreadable(_) => false,
    };
    let doomed: Vec<Doomed> = within.iter().filter(goes).cloned().collect();
    printer.say(&listed(&doomed));
    for guest in within.iter().filter(|guest| !goes(guest)) {
        printer.say(&left_alone(guest));
    }
    let name = stand.kept.castle.castle.as_str();
    let reach = if args.force_range { Reach::Unmarked } else { Reach::Marked };
    if !doomed.is_empty() {
        let (first, last) = (stand.site.vmids.start(), stand.site.vmids.end());
        let question = format!("Remove these {} guests within {first}-{last} for good?", doomed.len());
        let agreed = match &args.confirm {
            Some(given) => given == name,
            None if args.force_range => typed(&question, name, printer),
            None => confirmed(&question, args.yes, printer),
        };
        if !agreed {
            let how = if args.force_range {
                format!("type the castle's name, {name}")
            } else {
                "answer yes, or give --yes".to_owned()
            };
            return Err(Trouble::Refused(format!("nothing was removed: {how}")));
        }
    }
    // Damaged files are set aside once that was agreed to, not before.
    identity.seen_epoch = identity.seen_epoch.max(stand.mend(printer).await?);
    let removal = Removal { reach, ..Removal::new("wipe", &stand, doomed, false) };
    removal.run(&identity, printer).await
}
