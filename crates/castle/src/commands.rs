//! One file a verb: its arguments, whose comments are its help, and one `run`.

pub(crate) mod adopt;
pub(crate) mod check;
pub(crate) mod completions;
pub(crate) mod confirm;
pub(crate) mod datacenter;
pub(crate) mod doctor;
pub(crate) mod down;
pub(crate) mod drift;
pub(crate) mod gitops;
pub(crate) mod handover;
pub(crate) mod kubeconfig;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod man;
pub(crate) mod mirror;
pub(crate) mod new;
pub(crate) mod owners;
pub(crate) mod plan;
pub(crate) mod rebirth;
pub(crate) mod rehearse;
pub(crate) mod schema;
pub(crate) mod secrets;
pub(crate) mod state;
pub(crate) mod status;
pub(crate) mod talosconfig;
pub(crate) mod timeline;
pub(crate) mod up;
pub(crate) mod wipe;

use crate::cli::Command;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand;

/// Runs a verb that may end in trouble, and says which.
macro_rules! verb {
    ($verb:ident, $args:ident, $doors:ident, $printer:ident) => {{
        // Each on the heap: together they are more than a stack may hold.
        let ended = $doors.heed(Box::pin($verb::$verb($args, $doors, $printer))).await;
        stand::end(stringify!($verb), ended, $printer)
    }};
}

/// Does what was asked for, through these doors, and is not silent for long.
pub(crate) async fn perform(command: &Command, doors: &Doors, printer: &mut Printer) -> Exit {
    let voice = printer.voice();
    let doors = &doors.of_one_verb(voice.clone());
    let working = Box::pin(performed(command, doors, printer));
    voice.unbroken(doors.clock.as_ref(), working).await
}

async fn performed(command: &Command, doors: &Doors, printer: &mut Printer) -> Exit {
    let disk = doors.disk.as_ref();
    // Whoever serves is not waited for.
    let _at = (!matches!(command, Command::Datacenter(_))).then(|| doors.at("working"));
    match command {
        Command::New(args) => new::run(args, disk, printer),
        Command::Check(args) => check::run(args, doors, printer),
        Command::Doctor(args) => verb!(doctor, args, doors, printer),
        Command::Plan(args) => verb!(plan, args, doors, printer),
        Command::Rehearse(args) => verb!(rehearse, args, doors, printer),
        Command::Up(args) => verb!(up, args, doors, printer),
        Command::Status(args) => verb!(status, args, doors, printer),
        Command::Adopt(args) => verb!(adopt, args, doors, printer),
        Command::Down(args) => verb!(down, args, doors, printer),
        Command::Rebirth(args) => verb!(rebirth, args, doors, printer),
        Command::Wipe(args) => verb!(wipe, args, doors, printer),
        Command::Kubeconfig(args) => verb!(kubeconfig, args, doors, printer),
        Command::Timeline(args) => verb!(timeline, args, doors, printer),
        Command::Drift(args) => verb!(drift, args, doors, printer),
        Command::Owners(args) => verb!(owners, args, doors, printer),
        Command::Handover(args) => verb!(handover, args, doors, printer),
        Command::Talosconfig(args) => verb!(talosconfig, args, doors, printer),
        Command::Datacenter(args) => datacenter::run(args, doors, printer).await,
        Command::State(args) => state::run(args, doors, printer).await,
        Command::Lock(args) => verb!(lock, args, doors, printer),
        Command::Mirror(args) => verb!(mirror, args, doors, printer),
        Command::Lease(args) => lease::run(args, doors, printer).await,
        Command::Secrets(args) => secrets::run(args, doors, printer).await,
        Command::Gitops(args) => gitops::run(args, doors, printer).await,
        Command::Schema(args) => schema::run(args, printer),
        Command::Completions(args) => completions::run(args, printer),
        Command::Man(args) => man::run(args, disk, printer),
    }
}
