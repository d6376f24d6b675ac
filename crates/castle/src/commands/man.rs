use std::path::PathBuf;

use castle_seams::Disk;
use clap::{Args, CommandFactory};

use crate::cli::Cli;
use crate::output::{Exit, Printer};
use crate::stand::end;
use crate::writing::{Place, Readers};

/// Write the manual pages into a folder
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  castle man ~/.local/share/man/man1")]
pub(crate) struct ManArgs {
    /// The folder; it is made if it is missing, and older pages in it are replaced
    folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs, disk: &dyn Disk, printer: &mut Printer) -> Exit {
    let pages = match pages() {
        Ok(pages) => pages,
        Err(error) => return printer.failed("man", &format!("cannot write the manual pages: {error}")),
    };
    if let Err(error) = disk.create_dir_all(&args.folder, 0o755) {
        return printer.failed("man", &error.to_string());
    }
    for (name, page) in &pages {
        let place = Place::find(disk, &args.folder.join(name));
        if let Err(trouble) = place.and_then(|place| place.write(disk, page, Readers::AsBeforeOrAll)) {
            return end("man", Err(trouble), printer);
        }
    }
    let written: Vec<&str> = pages.iter().map(|(name, _)| name.as_str()).collect();
    printer.say(&format!("Wrote {} pages to {}", pages.len(), args.folder.display()));
    printer.result(&serde_json::json!({"verb": "man", "result": "created", "files": written}));
    Exit::Done
}

/// The page of castle itself and one for each verb.
fn pages() -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut castle = Cli::command();
    castle.build();
    let verbs = castle.get_subcommands().filter(|verb| verb.get_name() != "help").cloned();
    let commands: Vec<clap::Command> = std::iter::once(castle.clone()).chain(verbs).collect();
    commands
        .into_iter()
        .map(|command| {
            let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            Ok((format!("{name}.1"), page))
        })
        .collect()
}
