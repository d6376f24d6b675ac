use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use castle_components::lock::Stale;
use castle_components::pins::{lacking, whole};
use castle_components::{Chosen, choose};
use castle_seams::{Disk, DiskError, DiskErrorKind, FileKind};
use castle_secrets::Secret;
use castle_spec::{Castle, Code, Component, Lines, Look, Node, Problem, Reading, Role, Schematic, Severity};
use clap::Args;
use serde_json::{Value, json};

use crate::components::{has_mirror, read_lock};
use crate::doors::Doors;
use crate::output::{Exit, Printer, Source, object};
use crate::patches::{self, Refusal};
use crate::project::{self, WorkTree};
use crate::resolved;

/// What documents the checks, for `--explain`.
const CHECKS: &str = include_str!("../../../../docs/checks.md");
/// No file with secrets is longer.
const MAX_SECRET_BYTES: u64 = 16 << 20;

/// Check a castle.yaml offline: every problem with its line and a hint
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  castle check\n  castle check clusters/blue/proxmox --resolved\n  castle check --explain control-planes-even"
)]
pub(crate) struct CheckArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Print the complete castle, with the origin of each value: a line of the file, or the default
    #[arg(long)]
    resolved: bool,
    /// Explain a kind of problem
    #[arg(long, value_name = "CODE", conflicts_with_all = ["path", "resolved"])]
    explain: Option<String>,
}

pub(crate) fn run(args: &CheckArgs, doors: &Doors, printer: &mut Printer) -> Exit {
    let disk = doors.disk.as_ref();
    if let Some(code) = &args.explain {
        return explain(code, printer);
    }
    let file = project::castle_file(disk, &args.path);
    let shown_path = file.display().to_string();
    let mut reading = match disk.read(&file, castle_spec::MAX_BYTES) {
        Ok(bytes) => castle_spec::read(&bytes),
        Err(error) => unreadable(disk, &file, &error),
    };
    let mut further = surroundings(doors, &file, &reading);
    // What is certain is not told as a doubt, too.
    let place = |problem: &Problem| problem.labels.first().map(|label| label.span);
    let certain: Vec<_> =
        further.iter().filter(|problem| problem.code == Code::ComponentIncomplete).map(place).collect();
    reading.problems.retain(|it| it.code != Code::ComponentUntested || !certain.contains(&place(it)));
    reading.problems.append(&mut further);
    let valid = reading.problems.iter().all(|problem| problem.code.severity() != Severity::Error);

    printer.problems(&Source { path: &shown_path, text: &reading.shown }, &reading.problems);
    if printer.is_json() {
        printer.result(&result(args, &shown_path, &reading, valid));
    } else if let (true, Some(castle)) = (valid, &reading.castle) {
        if args.resolved {
            return printer.data(&resolved::text(castle, &reading.nodes, &Lines::new(&reading.shown)));
        }
        printer.say(&summary(&shown_path, castle, &reading.nodes, printer.is_verbose()));
    } else {
        let count = |wanted| reading.problems.iter().filter(|problem| problem.code.severity() == wanted).count();
        let (errors, warnings) = (plural(count(Severity::Error), "error"), count(Severity::Warning));
        let warnings = if warnings == 0 { String::new() } else { format!(" and {}", plural(warnings, "warning")) };
        printer.complain(&format!(
            "{shown_path} is not valid: {errors}{warnings}. `castle check --explain CODE` tells more."
        ));
    }
    if valid { Exit::Done } else { Exit::Invalid }
}

fn plural(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

fn explain(code: &str, printer: &mut Printer) -> Exit {
    let codes: Vec<String> = Code::ALL.iter().map(|code| code.text().to_owned()).collect();
    let section = CHECKS.split("\n### ").skip(1).find(|section| section.lines().next() == Some(code));
    match section {
        // A section ends where the next, of whatever rank, begins.
        Some(section) => {
            let body = section.split("\n## ").next().unwrap_or(section);
            printer.data(&format!("{}\n", body.trim_end()))
        }
        None => {
            let hint = match castle_spec::nearest(code, &codes) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the codes are {}", codes.join(", ")),
            };
            printer.invalid("check", &format!("no problem has the code `{code}`; {hint}"))
        }
    }
}

fn unreadable(disk: &dyn Disk, file: &Path, error: &DiskError) -> Reading {
    let near = castles_near(disk, file);
    let (code, hint) = match error.kind {
        DiskErrorKind::NotFound if !near.is_empty() => (Code::FileUnreadable, format!("there is {}", near.join(", "))),
        DiskErrorKind::NotFound => (Code::FileUnreadable, "`castle new PROJECT` writes one to begin with".to_owned()),
        DiskErrorKind::LinkLoop => {
            (Code::FileUnreadable, "the link leads back to itself: remove it, or point it at a file".to_owned())
        }
        DiskErrorKind::IsDirectory => {
            (Code::FileUnreadable, "name a file, or a folder with a castle.yaml in it".to_owned())
        }
        DiskErrorKind::PermissionDenied => (Code::FileUnreadable, "who may read it? `ls -l` tells".to_owned()),
        DiskErrorKind::TooLarge { .. } => {
            (Code::FileTooLarge, "is this the right file? a castle.yaml has a few hundred lines".to_owned())
        }
        _ => (Code::FileUnreadable, "is this the right file?".to_owned()),
    };
    Reading {
        castle: None,
        nodes: Vec::new(),
        references: Vec::new(),
        problems: vec![Problem::new(code, error.to_string()).hint(hint)],
        shown: String::new(),
    }
}

fn castles_near(disk: &dyn Disk, file: &Path) -> Vec<String> {
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let near = project::castles_below(disk, folder);
    near.iter().take(5).map(|path| path.strip_prefix(".").unwrap_or(path).display().to_string()).collect()
}

/// What the files around the castle say: those it refers to, and what git would take along.
fn surroundings(doors: &Doors, file: &Path, reading: &Reading) -> Vec<Problem> {
    let disk = doors.disk.as_ref();
    let folder = file.parent().unwrap_or(Path::new(""));
    let tree = WorkTree::around(disk, folder);
    let takes = |path: &Path| tree.as_ref().is_some_and(|tree| tree.takes(path));
    let mut problems = castle_spec::references(&reading.references, &mut |path| {
        let path = folder.join(path);
        let look = || -> Result<Look, DiskError> {
            let shared = disk.metadata(&path)?.mode & 0o077 != 0;
            Ok(Look::File { bytes: disk.read(&path, MAX_SECRET_BYTES)?, shared, tracked: takes(&path) })
        };
        look().unwrap_or_else(|error| Look::Missing(error.to_string()))
    });
    let Some(castle) = &reading.castle else { return problems };
    problems.extend(castle_spec::patches(castle, &mut |path| {
        let read = disk.read(&folder.join(path), castle_spec::MAX_BYTES);
        read.map_or_else(
            |error| Look::Missing(error.to_string()),
            |bytes| Look::File { bytes, shared: false, tracked: false },
        )
    }));

    if problems.iter().all(|problem| problem.code != Code::PatchFile) {
        problems.extend(configured(disk, folder, castle, &reading.nodes));
    }
    problems.extend(pinned(doors, folder, castle));

    let configs = project::configs_folder(file, castle.platform.word());
    if takes(&configs.join("kubeconfig")) {
        problems.push(
            Problem::new(
                Code::ConfigsTracked,
                format!("git does not ignore {}, where client files with secrets go", configs.display()),
            )
            .hint("add `**/configs/` to .gitignore"),
        );
    }
    for name in disk.list(&configs).unwrap_or_default() {
        let path = configs.join(name);
        let open = disk.metadata(&path).is_ok_and(|found| found.kind == FileKind::File && found.mode & 0o077 != 0);
        if open {
            problems.push(
                Problem::new(Code::SecretFileMode, format!("{} can be read by others", path.display()))
                    .hint(format!("chmod 600 {}", path.display())),
            );
        }
    }
    if let Some(state) = project::state_folder(&doors.variables).filter(|state| takes(&state.join("state"))) {
        problems.push(
            Problem::new(
                Code::StateTracked,
                format!("git does not ignore {}, where castle keeps its state", state.display()),
            )
            .hint("add it to .gitignore, or point CASTLE_STATE_DIR out of the project"),
        );
    }
    problems
}

/// What configurations of nodes come to with their patches, tried without any secret.
fn configured(disk: &dyn Disk, folder: &Path, castle: &Castle, nodes: &[Node]) -> Vec<Problem> {
    let files = castle_spec::patch_files(castle);
    let read = |file: &str| {
        let bytes = disk.read(&folder.join(file), castle_spec::MAX_BYTES).ok()?;
        String::from_utf8(bytes).ok().map(Secret::from)
    };
    let patches: BTreeMap<String, Secret> =
        files.iter().filter_map(|(file, _)| Some(((*file).to_owned(), read(file)?))).collect();
    let problem = |Refusal { file, why, hint }: Refusal| {
        let mut problem = Problem::new(Code::PatchRefused, format!("Talos would refuse the patch {file}")).hint(hint);
        if let Some((_, origin)) = files.iter().find(|(name, _)| *name == file) {
            problem = problem.at(*origin, why);
        }
        problem
    };
    let mut problems: Vec<Problem> = patches::refused(castle, nodes, &patches).into_iter().map(problem).collect();
    if problems.is_empty() && patches::lacks_network(castle, nodes, &patches) {
        problems.push(
            Problem::new(Code::NetworkMissing, "nothing in the configuration of the nodes brings a network for pods")
                .at(castle.kubernetes.cni.origin, "nodes do not get ready before you bring one")
                .hint("let talos.patches name a patch with its manifests: `castle check --explain network-missing` has a recipe"),
        );
    }
    problems
}

/// What the lock file says, if there is one: that it can be read, and that it is this castle's; and whether what is pinned has all that is wanted.
fn pinned(doors: &Doors, folder: &Path, castle: &Castle) -> Vec<Problem> {
    let lock = match read_lock(doors.disk.as_ref(), &folder.join(castle_components::lock::FILE)) {
        Ok(lock) => lock,
        Err(why) => {
            return vec![Problem::new(Code::LockBroken, why).hint("mend it, or remove it and run `castle lock`")];
        }
    };
    let stale = lock.as_ref().map(|lock| lock.stale(&castle.wanted_components())).unwrap_or_default();
    if !stale.is_empty() {
        let problem = |one: Stale| Problem::new(Code::LockStale, one.to_string()).hint("castle lock");
        return stale.into_iter().map(problem).collect();
    }
    incomplete(castle, &choose(castle, lock.as_ref(), has_mirror(doors)).unwrap_or_default())
}

/// Controllers that the file wants, and that the manifest that would be installed has not.
fn incomplete(castle: &Castle, chosen: &[Chosen]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for Chosen { wanted, entry } in chosen {
        let lacks = lacking(castle, entry);
        let watcher = castle.component(wanted.name).and_then(|component| match &component.value {
            Component::On(settings) => Some(settings.source_watcher.origin),
            Component::Off => None,
        });
        let images = castle.gitops.as_ref().map(|gitops| gitops.image_automation.origin);
        for (what, is_it, origin) in [("source-watcher", true, watcher), ("controllers for image tags", false, images)]
        {
            let Some(origin) = origin.filter(|_| lacks.iter().any(|one| (*one == "source-watcher") == is_it)) else {
                continue;
            };
            let (name, version) = (wanted.name, &wanted.version);
            let whole = whole(name).map_or_else(String::new, |version| {
                format!("write `version: {version}` under components.{}; or ", name.key())
            });
            problems.push(
                Problem::new(Code::ComponentIncomplete, format!("the manifest of {name} {version} has no {what}"))
                    .at(origin, format!("{} is what would be installed", entry.source))
                    .hint(format!(
                        "{whole}pin another manifest: `source`, or `castle lock` without a mirror takes upstream's own, if that has them"
                    )),
            );
        }
    }
    problems
}

/// What a valid castle comes to.
fn summary(path: &str, castle: &Castle, nodes: &[Node], verbose: bool) -> String {
    let count = |role| nodes.iter().filter(|node| node.role == role).count();
    let Sums { cores, memory, disks } = sums(nodes);
    let contract =
        castle.talos.version.contract().map_or_else(String::new, |contract| format!(" (contract {contract})"));
    let mut text = format!(
        "{path} is valid\n\n\
         castle      {} on {}\n\
         nodes       {}, {}\n\
         in sum      {cores} cores, {memory} memory, {disks} disks\n\
         talos       {}{contract}, Kubernetes {}\n\
         schematic   {}",
        castle.castle.value,
        castle.platform.word(),
        plural(count(Role::ControlPlane), "control plane"),
        plural(count(Role::Worker), "worker"),
        castle.talos.version.value,
        castle.kubernetes.version.value,
        Schematic::of(&castle.talos).id(),
    );
    if verbose {
        text += &format!("\n\n{}", resolved::table(nodes));
    }
    text
}

struct Sums {
    cores: u64,
    memory: castle_spec::values::Size,
    disks: castle_spec::values::Size,
}

fn sums(nodes: &[Node]) -> Sums {
    let disks = |node: &Node| [node.disk.value].into_iter().chain(node.data_disk.as_ref().map(|disk| disk.value));
    Sums {
        cores: nodes.iter().map(|node| u64::from(node.cores.value)).sum(),
        memory: nodes.iter().map(|node| node.memory.value).sum(),
        disks: nodes.iter().flat_map(disks).sum(),
    }
}

fn result(args: &CheckArgs, path: &str, reading: &Reading, valid: bool) -> Value {
    let lines = Lines::new(&reading.shown);
    let mut result = json!({
        "verb": "check",
        "result": if valid { "valid" } else { "invalid" },
        "file": path,
        "problems": reading.problems.iter().map(|problem| object(&lines, problem)).collect::<Vec<_>>(),
    });
    let (Some(castle), Some(fields), true) = (&reading.castle, result.as_object_mut(), valid) else { return result };
    let Sums { cores, memory, disks } = sums(&reading.nodes);
    let schematic = Schematic::of(&castle.talos);
    fields.insert("castle".to_owned(), castle.castle.as_str().into());
    fields.insert(
        "sums".to_owned(),
        json!({"nodes": reading.nodes.len(), "cores": cores, "memory": memory.to_string(), "disks": disks.to_string()}),
    );
    fields.insert("contract".to_owned(), castle.talos.version.contract().map(|contract| contract.to_string()).into());
    fields.insert("schematic".to_owned(), json!({"id": schematic.id(), "yaml": schematic.yaml()}));
    fields.insert("nodes".to_owned(), reading.nodes.iter().map(resolved::node).collect());
    if args.resolved {
        fields.insert("resolved".to_owned(), resolved::value(&castle.resolved(), &lines));
    }
    result
}
