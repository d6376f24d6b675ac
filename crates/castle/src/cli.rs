//! The command line's shape: parsing, help, completions and manual pages all come from here.

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands;

/// From nothing to a Talos Kubernetes cluster that Flux runs, and back, with one command each
#[derive(Debug, Parser)]
#[command(name = "castle", version, max_term_width = 100, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done, 1 failed, 2 differences found, 3 refused for safety, 4 invalid input, \
                          130 interrupted.";

/// What every verb takes.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub struct Global {
    /// Print objects for programs, one a line; the last is the result
    #[arg(long, global = true)]
    pub json: bool,
    /// Print nothing but errors and what was asked for
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print more
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
}

/// When to use colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    New(commands::new::NewArgs),
    Check(commands::check::CheckArgs),
    Doctor(commands::doctor::DoctorArgs),
    Plan(commands::plan::PlanArgs),
    Rehearse(commands::rehearse::RehearseArgs),
    Up(commands::up::UpArgs),
    Status(commands::status::StatusArgs),
    Drift(commands::drift::DriftArgs),
    Adopt(commands::adopt::AdoptArgs),
    Down(commands::down::DownArgs),
    Rebirth(commands::rebirth::RebirthArgs),
    Wipe(commands::wipe::WipeArgs),
    Kubeconfig(commands::kubeconfig::KubeconfigArgs),
    Talosconfig(commands::talosconfig::TalosconfigArgs),
    Owners(commands::owners::OwnersArgs),
    Handover(commands::handover::HandoverArgs),
    Timeline(commands::timeline::TimelineArgs),
    Datacenter(commands::datacenter::DatacenterArgs),
    State(commands::state::StateArgs),
    Lock(commands::lock::LockArgs),
    Mirror(commands::mirror::MirrorArgs),
    Lease(commands::lease::LeaseArgs),
    Secrets(commands::secrets::SecretsArgs),
    Gitops(commands::gitops::GitopsArgs),
    Schema(commands::schema::SchemaArgs),
    Completions(commands::completions::CompletionsArgs),
    Man(commands::man::ManArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    /// What castle's sentences say of castle, gathered when it is built.
    const PHRASES: &str = include_str!(concat!(env!("OUT_DIR"), "/phrases.txt"));
    /// What follows its name where it is not told to do anything.
    const PROSE: &str = "a and another are as begins believe cannot changes could did does downloaded embedded examples free gave goes has in install installs is it \
                         itself keeps kept knows leaves looked mac makes may merges moves needs neither nor of on or other owns puts reads remembers sees since \
                         smaller starts still stopped survives takes that this to upgrades wants was will worked wrote";

    /// What is wrong with a phrase, if it names a verb, a part of one or a flag that there is not.
    fn wrong(phrase: &str) -> Option<String> {
        let told = |what: String| Some(format!("`{phrase}`: {what}"));
        let mut command = Cli::command();
        command.build();
        let mut words = phrase.split(' ').skip(1).peekable();
        let first = words.peek()?;
        if !first.starts_with(|letter: char| letter.is_ascii_lowercase())
            || PROSE.split_whitespace().any(|word| word == *first)
        {
            return None;
        }
        while command.has_subcommands() {
            let Some(word) = words.peek() else { break };
            let Some(next) = command.find_subcommand(word).cloned() else {
                let is_first = command.get_name() == "castle";
                // After a verb that has parts the sentence may go on.
                let is_part = word.starts_with(|letter: char| letter.is_ascii_lowercase())
                    && !PROSE.split_whitespace().any(|known| known == *word);
                return if is_first || is_part { told(format!("there is no {word}")) } else { None };
            };
            (command, _) = (next, words.next());
        }
        let flags = words
            .filter_map(|word| word.strip_prefix("--"))
            .map(|flag| flag.split('=').next().unwrap_or(flag).to_owned());
        let knows = |flag: &str| command.get_arguments().any(|argument| argument.get_long() == Some(flag));
        flags
            .filter(|flag| !flag.is_empty() && flag != "help")
            .find(|flag| !knows(flag))
            .and_then(|flag| told(format!("there is no --{flag}")))
    }

    /// Goal: no message names a verb or a flag that does not exist. Method: all that castle's own texts say after its name, held against the command line.
    #[test]
    fn messages_name_only_what_there_is() {
        let found: Vec<String> = PHRASES.lines().filter_map(wrong).collect();
        assert_eq!(found, Vec::<String>::new());
        for missing in [
            "castle etcd restore",
            "castle node replace",
            "castle down --everything",
            "castle state forget",
            "castle upgrade",
        ] {
            assert!(wrong(missing).is_some(), "{missing}");
        }
        let known = PHRASES.lines().filter(|phrase| phrase.starts_with("castle down")).count();
        assert!(
            known > 5 && PHRASES.lines().any(|phrase| phrase.contains("--forget-secrets")),
            "they are gathered: {known}"
        );
    }
}
