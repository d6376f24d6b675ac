use std::path::{Path, PathBuf};

use castle_seams::{Disk, DiskErrorKind};
use castle_spec::values::Name;
use clap::{Args, ValueEnum};
use serde_json::json;

use crate::output::{Exit, Printer};
use crate::writing::{Place, Readers};

/// The repository that Flux will follow, to begin with: where its files go, and what is in them.
macro_rules! gitops {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("../../../../templates/gitops/", $path)))),*]
    };
}
/// Where the embedded template begins to speak of the repository: at its end.
const FOLLOWS: &str = "\n# The repository that Flux follows";

const GITOPS: &[(&str, &str)] = gitops![
    "README.md",
    "apps/blog/default.conf",
    "apps/blog/deployment.yaml",
    "apps/blog/kustomization.yaml",
    "apps/blog/namespace.yaml",
    "apps/blog/service.yaml",
    "clusters/PROJECT/apps.yaml",
    "clusters/PROJECT/infrastructure.yaml",
    "infrastructure/config/issuer.yaml",
    "infrastructure/config/kustomization.yaml",
    "infrastructure/controllers/cert-manager.yaml",
    "infrastructure/controllers/kustomization.yaml",
    "infrastructure/controllers/traefik.yaml",
];

/// Stamp a new project: castle.yaml, a place for secrets, .gitignore, a GitOps repository
#[derive(Debug, Args)]
#[command(
    after_help = "Nothing that exists is ever overwritten.\n\nExamples:\n  castle new blue\n  castle new blue --platform embedded"
)]
pub(crate) struct NewArgs {
    /// The name of the project and its castle: lower-case letters, digits and `-`
    project: String,
    /// Where the castle will stand
    #[arg(long, default_value = "proxmox")]
    platform: Platform,
    /// The folder that gets `clusters/PROJECT`
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// Leave out the folder `gitops`, a repository for Flux to begin with
    #[arg(long)]
    no_gitops: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Platform {
    /// Your own Proxmox VE
    Proxmox,
    /// The datacenter inside castle itself
    Embedded,
}

/// A file to stamp.
struct Stamp {
    path: PathBuf,
    text: String,
    /// A file of this name may well exist and belong to more than this project.
    shared: bool,
}

/// What stamping one file came to.
enum Outcome {
    Written,
    /// It is there already, word for word.
    Unchanged,
    /// It is there and different, which is all right for a shared file.
    Kept,
}

pub(crate) fn run(args: &NewArgs, disk: &dyn Disk, printer: &mut Printer) -> Exit {
    if let Some(reason) = Name::refuses(&args.project) {
        let near = args.project.to_lowercase().replace(['_', ' ', '.'], "-");
        let hint = if Name::refuses(&near).is_none() { format!("; did you mean `{near}`?") } else { String::new() };
        return printer.invalid("new", &format!("a project cannot be named so: {reason}{hint}"));
    }
    let stamps = stamps(args);
    let strangers: Vec<String> = stamps
        .iter()
        .filter(|stamp| !stamp.shared && matches!(state(disk, stamp), State::Foreign))
        .map(|stamp| stamp.path.display().to_string())
        .collect();
    if !strangers.is_empty() {
        let why = format!("{} exists already; nothing was written", strangers.join(", "));
        return printer.refused("new", &why);
    }
    let mut written = Vec::new();
    let mut notes = Vec::new();
    for stamp in &stamps {
        match write(disk, stamp) {
            Ok(Outcome::Written) => written.push(stamp.path.display().to_string()),
            Ok(Outcome::Unchanged) => {}
            Ok(Outcome::Kept) => notes.extend(kept(disk, stamp)),
            Err(why) => return printer.failed("new", &why),
        }
    }
    let repository = base(args).join("gitops");
    let (of_repository, own): (Vec<&String>, Vec<&String>) =
        written.iter().partition(|path| Path::new(path).starts_with(&repository));
    for path in own {
        printer.say(&format!("wrote  {path}"));
    }
    if !of_repository.is_empty() {
        let (count, folder) = (of_repository.len(), repository.display());
        printer.say(&format!("wrote  {count} files in {folder}: a repository for Flux to begin with"));
    }
    for note in &notes {
        printer.say(note);
    }
    let folder = folder(args);
    if written.is_empty() {
        printer.say("Everything is there already; nothing was written.");
    }
    printer.say(&format!(
        "\nNext: edit {}, then\n  castle check {}",
        folder.join("castle.yaml").display(),
        folder.display()
    ));
    let result = if written.is_empty() { "unchanged" } else { "created" };
    printer.result(&json!({"verb": "new", "castle": args.project, "result": result, "files": written, "notes": notes}));
    Exit::Done
}

fn folder(args: &NewArgs) -> PathBuf {
    let platform = match args.platform {
        Platform::Proxmox => "proxmox",
        Platform::Embedded => "embedded",
    };
    base(args).join("clusters").join(&args.project).join(platform)
}

/// `.` is not worth saying.
fn base(args: &NewArgs) -> &Path {
    if args.dir == Path::new(".") { Path::new("") } else { &args.dir }
}

/// In the order of writing: what protects comes before what is protected.
fn stamps(args: &NewArgs) -> Vec<Stamp> {
    let fill = |template: &str| template.replace("PROJECT", &args.project);
    let (castle, secrets) = match args.platform {
        Platform::Proxmox => (
            include_str!("../../../../templates/proxmox.yaml"),
            Some(include_str!("../../../../templates/secrets.example.yaml")),
        ),
        Platform::Embedded => (include_str!("../../../../templates/embedded.yaml"), None),
    };
    let own = |name: &str, text: String| Stamp { path: folder(args).join(name), text, shared: false };
    let ignore = include_str!("../../../../templates/gitignore").to_owned();
    let mut stamps = vec![
        Stamp { path: base(args).join(".gitignore"), text: ignore, shared: true },
        Stamp { path: base(args).join("clusters/castle.schema.json"), text: super::schema::text(), shared: true },
    ];
    stamps.extend(secrets.map(|secrets| own("secrets.example.yaml", fill(secrets))));
    // Without a repository there is none to follow.
    let castle = if args.no_gitops { castle.split(FOLLOWS).next().unwrap_or(castle) } else { castle };
    stamps.push(own("castle.yaml", fill(castle)));
    if !args.no_gitops {
        let folder = base(args).join("gitops");
        // What is in a repository soon belongs to whoever works in it: whatever is there, stays.
        stamps.extend(GITOPS.iter().map(|(path, text)| Stamp {
            path: folder.join(fill(path)),
            text: fill(text),
            shared: true,
        }));
    }
    stamps
}

/// What is at a stamp's path.
enum State {
    Absent,
    Same,
    /// The beginning of the stamp and nothing else: an earlier run was cut off. Nobody's words are lost by finishing it.
    Unfinished,
    Foreign,
}

fn state(disk: &dyn Disk, stamp: &Stamp) -> State {
    match disk.read(&stamp.path, stamp.text.len() as u64) {
        Ok(bytes) if bytes == stamp.text.as_bytes() => State::Same,
        Ok(bytes) if stamp.text.as_bytes().starts_with(&bytes) => State::Unfinished,
        Err(error) if error.kind == DiskErrorKind::NotFound => State::Absent,
        _ => State::Foreign,
    }
}

fn write(disk: &dyn Disk, stamp: &Stamp) -> Result<Outcome, String> {
    let text = stamp.text.as_bytes();
    let folder = stamp.path.parent().unwrap_or(Path::new(""));
    disk.create_dir_all(folder, 0o755).map_err(|error| error.to_string())?;
    match state(disk, stamp) {
        State::Same => Ok(Outcome::Unchanged),
        State::Foreign if stamp.shared => Ok(Outcome::Kept),
        State::Absent | State::Foreign => {
            disk.create_new(&stamp.path, text, 0o644).map(|()| Outcome::Written).map_err(|error| error.to_string())
        }
        State::Unfinished => {
            // It may be a link: what it leads to is ended, and the link stays.
            let written =
                Place::find(disk, &stamp.path).and_then(|place| place.write(disk, text, Readers::AsBeforeOrAll));
            written.map(|()| Outcome::Written).map_err(|trouble| trouble.told().to_owned())
        }
    }
}

/// What to tell about a shared file that was left as it is.
fn kept(disk: &dyn Disk, stamp: &Stamp) -> Option<String> {
    let path = stamp.path.display();
    if stamp.path.ends_with("castle.schema.json") {
        return Some(format!("kept   {path} as it is; `castle schema > {path}` brings it up to date"));
    }
    if !stamp.path.ends_with(".gitignore") {
        return None;
    }
    let there = disk.read(&stamp.path, 1 << 20).unwrap_or_default();
    let there = String::from_utf8_lossy(&there);
    let has = |rule: &str| there.lines().any(|line| line.trim() == rule);
    let missing: Vec<&str> = stamp.text.lines().filter(|rule| !rule.starts_with('#') && !has(rule)).collect();
    (!missing.is_empty()).then(|| format!("kept   {path} as it is; add these lines to it:\n  {}", missing.join("\n  ")))
}
