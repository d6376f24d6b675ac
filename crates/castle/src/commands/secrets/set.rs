use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use castle_secrets::Secret;
use castle_secrets::sops::{KeyPath, Kind, Value};
use clap::{Args, ValueEnum};
use zeroize::Zeroizing;

use super::at_hand::{For, Taken};
use super::done;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;
use crate::terminal;

/// No value is longer.
const MAX_BYTES: u64 = 4 << 20;

/// Set one value of a SOPS file; the others keep their ciphertext
///
/// The value is typed unseen at the terminal, or comes from standard input or a file: never from the command line, where everyone on the
/// machine could read it. One newline at its end is left out. A file that is missing is made.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle secrets set secrets.enc.yaml proxmox.token\n  pveum user token add ... | castle secrets set secrets.enc.yaml proxmox.token\n  castle secrets set secrets.enc.yaml tls.key --from key.pem"
)]
pub(crate) struct SetArgs {
    /// The SOPS file
    file: PathBuf,
    /// The key path: `a.b[0]`, or `["a"]["b"][0]` as sops writes it
    path: KeyPath,
    /// Read the value from this file
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// What the value is
    #[arg(long = "as", value_name = "KIND", default_value = "text")]
    kind: As,
    #[command(flatten)]
    whom: For,
}

/// What a value is.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum As {
    Text,
    Integer,
    Float,
    Bool,
}

pub(super) fn run(args: &SetArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let mut taken = Taken::open_or_begin(&args.file, &args.whom, doors)?;
    let text = value(args, doors)?;
    let (kind, word) = match args.kind {
        As::Text => (Kind::Text, "text"),
        As::Integer => (Kind::Integer, "integer"),
        As::Float => (Kind::Float, "float"),
        As::Bool => (Kind::Bool, "bool"),
    };
    let value = Value::read(kind, text.expose()).ok_or_else(|| Trouble::Invalid(format!("the value is no {word}")))?;
    taken.opened.set(&args.path, value)?;
    taken.save(doors)?;
    Ok(done(printer, "set", &args.file, &format!("{} of {} is set", args.path, args.file.display())))
}

fn value(args: &SetArgs, doors: &Doors) -> Result<Secret, Trouble> {
    let bytes = if let Some(file) = &args.from {
        Zeroizing::new(doors.disk.read(file, MAX_BYTES).map_err(|error| Trouble::of(&error))?)
    } else {
        let input = std::io::stdin();
        if input.is_terminal() {
            let typed = terminal::ask(&format!("{} of {}: ", args.path, args.file.display()));
            return typed.ok_or(Trouble::Said(Exit::Interrupted));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(64 << 10));
        let read = input.lock().take(MAX_BYTES + 1).read_to_end(&mut bytes);
        read.map_err(|error| Trouble::Failed(format!("standard input cannot be read: {error}")))?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(Trouble::Invalid(format!("the value is longer than {} MiB", MAX_BYTES >> 20)));
        }
        bytes
    };
    let text = std::str::from_utf8(&bytes).map_err(|_| Trouble::Invalid("the value is not text".to_owned()))?;
    Ok(Secret::from(text.strip_suffix('\n').unwrap_or(text).to_owned()))
}
