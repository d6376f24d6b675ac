use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::output::{Exit, Printer};

/// Print the completion script for a shell
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  castle completions bash > ~/.local/share/bash-completion/completions/castle")]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &CompletionsArgs, printer: &mut Printer) -> Exit {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "castle", &mut script);
    printer.data(&String::from_utf8_lossy(&script))
}
