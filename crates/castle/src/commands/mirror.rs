use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_components::adapt;
use castle_components::images::images;
use castle_components::mirror::{Found, INDEX, Listed, Mirror, write_index};
use castle_components::pins::upstream;
use castle_components::source::Entry;
use castle_components::source::Source;
use castle_components::{Chosen, Fit, choose};
use castle_kubernetes::model::manifest;
use castle_seams::Disk;
use castle_spec::ComponentName;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::components::Manifests;
use crate::doors::Doors;
use crate::output::{Exit, Printer, table};
use crate::stand::Trouble;
use crate::writing::{Place, Readers};

/// Carry the manifests of the cluster's components to where there is no way to the web
#[derive(Debug, Args)]
pub(crate) struct MirrorArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Fetch every manifest that castle.lock pins into a folder, and list the images they need
    #[command(after_help = "Example:\n  castle mirror pull mirror && tar -cf mirror.tar mirror")]
    Pull {
        /// The folder; it is made if it is missing, and what else it holds stays
        folder: PathBuf,
        /// A castle.yaml, or the folder it is in
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Take them from another mirror: a folder, or a tar archive of one. Default: CASTLE_MIRROR
        #[arg(long, value_name = "DIR|FILE")]
        mirror: Option<PathBuf>,
    },
    /// Say whether every manifest of a mirror is there and whole
    Verify {
        /// A folder, or a tar archive of one
        #[arg(value_name = "DIR|FILE")]
        mirror: PathBuf,
    },
}

pub(crate) async fn mirror(args: &MirrorArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    match &args.what {
        What::Pull { folder, path, mirror } => {
            pull(folder, doors, &Manifests::open(doors, path, mirror.as_deref())?, printer).await
        }
        What::Verify { mirror } => verify(mirror, doors, printer),
    }
}

async fn pull(folder: &Path, doors: &Doors, manifests: &Manifests, printer: &mut Printer) -> Result<Exit, Trouble> {
    // Stand-ins need no mirror: what is fetched is for castles that want upstream's.
    let chosen = choose(&manifests.castle, manifests.lock.as_ref(), true);
    let chosen = chosen.map_err(|error| Trouble::Invalid(error.to_string()))?;
    let failed = |error: &dyn std::fmt::Display| Trouble::of(error);
    let disk = manifests.disk.as_ref();
    let fit = Fit::of(&manifests.castle, &manifests.nodes);
    let mut texts = Vec::new();
    for Chosen { wanted, entry } in &chosen {
        let text = manifests.supply.manifest(wanted.name, entry).await.map_err(|error| failed(&error))?;
        texts.push((listed(wanted.name, entry, &text, &fit)?, text));
    }
    disk.create_dir_all(folder, 0o755).map_err(|error| failed(&error))?;
    let mut all = already(&manifests.disk, folder)?;
    for (listed, text) in &texts {
        let place = Place::judge(doors, &folder.join(&listed.file))?;
        place.write(disk, text.as_bytes(), Readers::AsBeforeOrAll)?;
        all.retain(|old| {
            old.file != listed.file && (old.component, &old.version) != (listed.component, &listed.version)
        });
        all.push(listed.clone());
    }
    all.sort_by(|one, two| (one.component, &one.version).cmp(&(two.component, &two.version)));
    // The index last: what it lists is there.
    let index = Place::judge(doors, &folder.join(INDEX))?;
    index.write(disk, write_index(&all).as_bytes(), Readers::AsBeforeOrAll)?;

    let images: BTreeSet<&String> = texts.iter().flat_map(|(listed, _)| &listed.images).collect();
    let head = ["component", "version", "file"].map(str::to_owned);
    let row = |(one, _): &(Listed, String)| [one.component.to_string(), one.version.to_string(), one.file.clone()];
    let rows: Vec<[String; 3]> = std::iter::once(head).chain(texts.iter().map(row)).collect();
    let list: Vec<String> = images.iter().map(|image| format!("\n  {image}")).collect();
    let files: Vec<&String> = texts.iter().map(|(listed, _)| &listed.file).collect();
    printer.say(&format!("{}\n\nTheir images, for a registry of your own:{}", table(&rows), list.concat()));
    printer.result(&json!({
        "verb": "mirror", "castle": manifests.castle.castle.as_str(), "result": "written", "folder": folder.display().to_string(),
        "files": files, "images": images,
    }));
    Ok(Exit::Done)
}

/// What the index says of a manifest. Its images are those of the objects that the castle will have.
fn listed(component: ComponentName, entry: &Entry, text: &str, fit: &Fit) -> Result<Listed, Trouble> {
    let objects = manifest(text).map_err(|error| Trouble::Failed(format!("{component}: {error}")))?;
    let objects = adapt(component, &objects, fit).map_err(|error| Trouble::of(&error))?;
    let file = match &entry.source {
        Source::Mirror(file) => file.clone(),
        _ => format!("{component}-{}.yaml", entry.version),
    };
    Ok(Listed {
        component,
        version: entry.version.clone(),
        file,
        sha256: entry.sha256.clone(),
        upstream: match &entry.source {
            Source::Url(url) => url.clone(),
            _ => upstream(component, &entry.version),
        },
        images: images(&objects).into_iter().collect(),
    })
}

/// What a folder holds that is a mirror already.
fn already(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Vec<Listed>, Trouble> {
    if disk.metadata(&folder.join(INDEX)).is_err() {
        return Ok(Vec::new());
    }
    let mirror = Mirror::open(disk.clone(), folder).map_err(|error| Trouble::Invalid(error.to_string()))?;
    Ok(mirror.listed().to_vec())
}

fn verify(place: &Path, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let mirror = Mirror::open(doors.disk.clone(), place).map_err(|error| Trouble::Invalid(error.to_string()))?;
    let mut rows = vec![["component", "version", "file", "state"].map(str::to_owned)];
    let (mut files, mut is_whole): (Vec<Value>, bool) = (Vec::new(), true);
    for listed in mirror.listed() {
        let found = mirror.look(listed).map_err(|error| Trouble::of(&error))?;
        is_whole &= found == Found::Whole;
        let (word, told) = match found {
            Found::Whole => ("whole", "whole".to_owned()),
            Found::Missing => ("missing", "missing".to_owned()),
            Found::Differs(sha256) => {
                ("differs", format!("differs: its sha256 is {sha256}, and the index says {}", listed.sha256))
            }
        };
        let (component, version) = (listed.component.to_string(), listed.version.to_string());
        files.push(json!({"component": component, "version": version, "file": listed.file, "state": word}));
        rows.push([component, version, listed.file.clone(), told]);
    }
    printer.say(&table(&rows));
    let result = if is_whole { "whole" } else { "damaged" };
    printer.result(&json!({"verb": "mirror", "result": result, "folder": place.display().to_string(), "files": files}));
    if is_whole {
        return Ok(Exit::Done);
    }
    printer.complain_to_people(&format!("{} is damaged: castle mirror pull {0}", place.display()));
    Ok(Exit::Failed)
}
