use std::path::PathBuf;

use castle_secrets::sops::Format;
use clap::{Args, ValueEnum};

use super::at_hand::Taken;
use super::refuse_objects;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Print a SOPS file in clear
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle secrets view secrets.enc.yaml\n  castle secrets view secrets.enc.yaml --as json | jq .proxmox"
)]
pub(crate) struct ViewArgs {
    /// The SOPS file
    file: PathBuf,
    /// Print it in another form
    #[arg(long = "as", value_name = "FORM")]
    form: Option<Form>,
}

/// What to print.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Form {
    Yaml,
    Json,
    Env,
}

pub(super) fn run(args: &ViewArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    refuse_objects(printer)?;
    let taken = Taken::open(&args.file, doors)?;
    let format = match args.form {
        None => taken.opened.format(),
        Some(Form::Yaml) => Format::Yaml,
        Some(Form::Json) => Format::Json,
        Some(Form::Env) => Format::Dotenv,
    };
    Ok(printer.bytes(&taken.opened.clear(format)?))
}
