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
