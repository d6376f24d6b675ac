use std::path::PathBuf;

use castle_secrets::sops::{Format, Item, KeyPath, Node, Opened, Part, Value};
use clap::Args;
use zeroize::Zeroizing;

use super::at_hand::{For, Taken};
use super::done;
use crate::doors::Doors;
use crate::output::{Exit, Printer};
use crate::stand::Trouble;

/// Take secrets over from the environment or a dotenv file into a SOPS file
///
/// Only names are arguments; the values are read from the environment of castle, or from the file, without the quotes around them. A SOPS
/// file that is missing is made.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle secrets import-env secrets.enc.yaml PROXMOX_TOKEN GITHUB_TOKEN\n  castle secrets import-env secrets.enc.yaml --from .env --under old"
)]
pub(crate) struct ImportEnvArgs {
    /// The SOPS file
    file: PathBuf,
    /// The variables to take over; all of the dotenv file if none is named
    names: Vec<String>,
    /// Read this dotenv file instead of the environment
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Put them below this key path
    #[arg(long, value_name = "PATH")]
    under: Option<KeyPath>,
    #[command(flatten)]
    whom: For,
}

pub(super) fn run(args: &ImportEnvArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let found = values(args, doors)?;
    let mut taken = Taken::open_or_begin(&args.file, &args.whom, doors)?;
    for (name, value) in &found {
        let mut parts = args.under.as_ref().map(|under| under.parts().to_vec()).unwrap_or_default();
        parts.push(Part::Key(name.clone()));
        taken.opened.set(&KeyPath::from(parts), value.clone())?;
    }
    taken.save(doors)?;
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    Ok(done(printer, "import-env", &args.file, &format!("{} holds {} now", args.file.display(), names.join(", "))))
}

/// The names and their values.
fn values(args: &ImportEnvArgs, doors: &Doors) -> Result<Vec<(String, Value)>, Trouble> {
    let Some(file) = &args.from else {
        if args.names.is_empty() {
            return Err(Trouble::Invalid("name the variables to take over, or a dotenv file with --from".to_owned()));
        }
        let one = |name: &String| {
            let missing = || Trouble::Invalid(format!("the environment has no {name}, or it is not text"));
            let value = doors.variables.text(name).map(Zeroizing::new).ok_or_else(missing)?;
            Ok((name.clone(), Value::text(&value)))
        };
        return args.names.iter().map(one).collect();
    };
    let clear = doors.disk.read(file, 4 << 20).map_err(|error| Trouble::of(&error))?;
    let clear = Zeroizing::new(clear);
    let name = file.display().to_string();
    let lines = Opened::read_clear(&name, Format::Dotenv, &clear)?;
    let mut found = Vec::new();
    for line in lines.iter().flat_map(|node| if let Node::Map(items) = node { items.as_slice() } else { &[] }) {
        if let Item::Entry { key, node: Node::Value(value), .. } = line {
            let key = key.strip_prefix("export ").unwrap_or(key).trim();
            if args.names.is_empty() || args.names.iter().any(|name| name == key) {
                found.push((key.to_owned(), value.unquoted()));
            }
        }
    }
    if let Some(missing) = args.names.iter().find(|name| !found.iter().any(|(key, _)| key == *name)) {
        return Err(Trouble::Invalid(format!("{name} has no {missing}")));
    }
    Ok(found)
}
