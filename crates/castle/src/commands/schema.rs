use clap::Args;

use crate::output::{Exit, Printer};

/// Print the JSON Schema of castle.yaml, for editors
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  castle schema > clusters/castle.schema.json")]
pub(crate) struct SchemaArgs {
    /// Print the reference page made from it instead
    #[arg(long, hide = true)]
    reference: bool,
}

pub(crate) fn run(args: &SchemaArgs, printer: &mut Printer) -> Exit {
    if args.reference { printer.data(&castle_spec::reference()) } else { printer.data(&text()) }
}

/// The schema as it is stored in files.
pub(crate) fn text() -> String {
    format!("{:#}\n", castle_spec::schema())
}
