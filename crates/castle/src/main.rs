//! The command line of castle: one file a verb under `commands`, and the only crate that prints.

mod cli;
mod commands;
mod output;
mod project;
mod resolved;

use std::process::ExitCode;

use clap::Parser;

use crate::cli::{Cli, Command};
use crate::output::{Exit, Printer};

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // What was asked for (help, version) goes to standard output and is a success; a mistake is invalid input.
            let _ = error.print();
            return if error.use_stderr() { Exit::Invalid.into() } else { Exit::Done.into() };
        }
    };
    let disk = castle_seams::SystemDisk;
    let mut printer = Printer::new(&cli.global);
    let exit = match cli.command {
        Command::New(args) => commands::new::run(&args, &disk, &mut printer),
        Command::Check(args) => commands::check::run(&args, &disk, &mut printer),
        Command::Schema(args) => commands::schema::run(&args, &mut printer),
        Command::Completions(args) => commands::completions::run(&args, &mut printer),
        Command::Man(args) => commands::man::run(&args, &disk, &mut printer),
    };
    exit.into()
}
