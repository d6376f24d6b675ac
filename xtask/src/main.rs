//! Developer commands. `cargo xtask ci` is everything CI does.
#![allow(clippy::print_stdout, reason = "a developer tool speaks on standard output")]

mod bench;
mod ci;
mod deny;
mod generate;
mod mutants;
mod peers;
mod readme;
mod shell;
mod tidy;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(about = "Developer commands of castle")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What one asks after every change: format, house rules, licences, lints, and the tests that take seconds
    Quick,
    /// The same, and all tests that need no outside program
    Test,
    /// Everything CI does, in its order
    Ci(ci::Args),
    /// Write the files that are made of others: the schema, the reference page, the words of Talos
    Generate,
    /// Check licences, bans and sources of all dependencies against deny.toml
    Deny,
    /// Run the commands of the README and of the tutorial, and compare what they print
    Readme(readme::Args),
    /// Check the house rules that no other tool checks
    Tidy,
    /// Test castle against programs nobody here wrote
    Peers(peers::Args),
    /// Plant bugs in a copy of the tree, and see that the tests find them
    Mutants(mutants::Args),
    /// Measure; figures only, nothing fails
    Bench,
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Quick => ci::quick(),
        Command::Test => ci::tests(),
        Command::Ci(args) => ci::run(&args),
        Command::Generate => generate::run(),
        Command::Deny => deny::run(),
        Command::Readme(args) => readme::run(&args),
        Command::Tidy => tidy::run(),
        Command::Peers(args) => peers::run(&args),
        Command::Mutants(args) => mutants::run(&args),
        Command::Bench => bench::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Without the backtrace that `Debug` would add: these are findings, not crashes.
            println!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
