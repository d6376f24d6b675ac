//! The command line of castle: one file a verb under `commands`, and the only crate that prints.
//!
//! A library only so that [`drive`], which runs whatever graph it is given, can be tested on graphs that no verb has.

mod addresses;
mod bucket;
mod cli;
mod closing;
mod commands;
mod components;
mod doors;
mod drive;
mod embedded;
mod foreign;
#[cfg(test)]
mod foundlings;
mod furnish;
mod graceful;
mod hand;
mod hypervisor;
mod issuing;
mod keeping;
mod leaving;
mod live;
mod masking;
mod notes;
mod output;
mod patches;
mod planned;
mod preflight;
mod project;
mod recorded;
mod rehearsal;
mod removal;
mod repository;
mod resolved;
mod secret;
mod stand;
mod standing;
mod terminal;
mod trap;
mod vault;
mod voice;
mod writing;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::Cli;
use crate::doors::Doors;

pub use cli::{Color, Global};
pub use drive::{Driven, Setting, conclude, drive};
pub use output::{Exit, Printer};

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
    let mut printer = Printer::new(&cli.global);
    let exit = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(commands::perform(&cli.command, &doors, &mut printer));
            // A key that is still looked for, and that nobody needs any more, is not waited for.
            runtime.shutdown_background();
            exit
        }
        Err(_) => Exit::Failed,
    };
    exit.into()
}
