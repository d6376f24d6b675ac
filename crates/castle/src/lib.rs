//! The command line of castle: one file a verb under `commands`, and the only crate that prints.
//!
//! A library only so that [`drive`], which runs whatever graph it is given, can be tested on graphs that no verb has.

mod bucket;
mod cli;
mod closing;
mod commands;
mod components;
mod doors;
mod drive;
mod embedded;
mod furnish;
mod graceful;
mod hypervisor;
mod issuing;
mod keeping;
mod live;
mod output;
mod planned;
mod preflight;
mod project;
mod repository;
mod resolved;
mod secret;
mod stand;
mod terminal;
mod trap;
mod vault;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::doors::Doors;

pub use cli::{Color, Global};
pub use drive::{Driven, Setting, conclude, drive};
pub use output::{Exit, Printer};

/// Runs a verb that may end in trouble, and says which.
macro_rules! verb {
    ($verb:ident, $args:ident, $doors:ident, $printer:ident) => {
        waiting(async {
            let ended = commands::$verb::$verb(&$args, &$doors, &mut $printer).await;
            stand::end(stringify!($verb), ended, &mut $printer)
        })
    };
}

/// Runs the command line of this process.
#[must_use]
pub fn main() -> ExitCode {
    // Secrets are in this memory. Where the system does not allow to keep it from others, there is nothing else to do.
    let _ = castle_seams::no_core_dumps();
    std::panic::set_hook(Box::new(|panic| output::panicked(&castle_secrets::redact::panic_text(panic))));
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // What was asked for (help, version) goes to standard output and is a success; a mistake is invalid input.
            let _ = error.print();
            return if error.use_stderr() { Exit::Invalid.into() } else { Exit::Done.into() };
        }
    };
    let doors = Doors::system();
    let disk = doors.disk.as_ref();
    let mut printer = Printer::new(&cli.global);
    let exit = match cli.command {
        Command::New(args) => commands::new::run(&args, disk, &mut printer),
        Command::Check(args) => commands::check::run(&args, &doors, &mut printer),
        Command::Doctor(args) => verb!(doctor, args, doors, printer),
        Command::Plan(args) => verb!(plan, args, doors, printer),
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
        Command::Datacenter(args) => waiting(commands::datacenter::run(&args, &doors, &mut printer)),
        Command::State(args) => waiting(commands::state::run(&args, &doors, &mut printer)),
        Command::Lock(args) => verb!(lock, args, doors, printer),
        Command::Mirror(args) => verb!(mirror, args, doors, printer),
        Command::Lease(args) => waiting(commands::lease::run(&args, &doors, &mut printer)),
        Command::Secrets(args) => waiting(commands::secrets::run(&args, &doors, &mut printer)),
        Command::Gitops(args) => waiting(commands::gitops::run(&args, &doors, &mut printer)),
        Command::Schema(args) => commands::schema::run(&args, &mut printer),
        Command::Completions(args) => commands::completions::run(&args, &mut printer),
        Command::Man(args) => commands::man::run(&args, disk, &mut printer),
    };
    exit.into()
}

/// Runs a verb that waits for others. Those that do not wait do without a runtime, which costs them nothing then.
fn waiting(verb: impl Future<Output = Exit>) -> Exit {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(verb),
        Err(_) => Exit::Failed,
    }
}
