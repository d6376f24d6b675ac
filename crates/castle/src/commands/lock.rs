use std::path::PathBuf;

use castle_components::digest;
use castle_components::lock::{Lock, Stale};
use castle_components::pins::{Made, PINS, pin, upstream};
use castle_components::source::Entry;
use castle_components::source::Source;
use castle_spec::model::{ComponentOwner, Platform};
use castle_spec::{ComponentName, WantedComponent};
use clap::Args;
use serde_json::{Value, json};

use crate::components::Manifests;
use crate::doors::Doors;
use crate::output::{Exit, Printer, table};
use crate::stand::Trouble;
use crate::writing::{Place, Readers};

/// Pin the manifests of the cluster's components: version, source and digest, in castle.lock
///
/// What is pinned already stays as it is, as long as castle.yaml wants the same. Versions that this castle was tested with are pinned
/// without asking anybody where their digest is known; others are downloaded once and measured.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  castle lock\n  castle lock --check\n  castle lock --mirror mirror.tar")]
pub(crate) struct LockArgs {
    /// A castle.yaml, or the folder it is in
    #[arg(default_value = ".")]
    path: PathBuf,
    /// Change nothing; say whether castle.lock is up to date (exit code 2 if not)
    #[arg(long)]
    check: bool,
    /// Pin what this mirror has: a folder, or a tar archive of one. Default: CASTLE_MIRROR
    #[arg(long, value_name = "DIR|FILE")]
    mirror: Option<PathBuf>,
}

pub(crate) async fn lock(args: &LockArgs, doors: &Doors, printer: &mut Printer) -> Result<Exit, Trouble> {
    let manifests = Manifests::open(doors, &args.path, args.mirror.as_deref())?;
    let name = manifests.castle.castle.as_str().to_owned();
    let is_embedded = matches!(manifests.castle.platform.value, Platform::Embedded(_));
    if is_embedded && manifests.lock.is_none() && manifests.supply.mirror().is_none() {
        printer.say(&format!(
            "{name} stands in the embedded datacenter, with castle's own small manifests: nothing to pin. --mirror pins upstream's."
        ));
        printer.result(&json!({"verb": "lock", "castle": name, "result": "unchanged", "components": []}));
        return Ok(Exit::Done);
    }
    if args.check {
        return check(&manifests, &name, printer).await;
    }
    let mut fresh = Lock::default();
    for want in manifests.castle.wanted_components().iter().filter(|want| want.owner == ComponentOwner::Castle) {
        fresh.entries.insert(want.name, pinned(&manifests, want).await?);
    }
    let is_new = manifests.lock.as_ref() != Some(&fresh);
    if is_new {
        let place = Place::find(manifests.disk.as_ref(), &manifests.file)?;
        place.write(manifests.disk.as_ref(), fresh.write().as_bytes(), Readers::AsBeforeOrAll)?;
    }
    let file = manifests.file.display();
    printer.say(&format!("{}\n\n{file} {}", rows(&fresh), if is_new { "is written" } else { "is up to date" }));
    printer.result(&json!({
        "verb": "lock", "castle": name, "result": if is_new { "written" } else { "unchanged" }, "file": file.to_string(),
        "components": listed(&fresh),
    }));
    Ok(Exit::Done)
}

/// Whether the lock file is the one that the castle needs.
async fn check(manifests: &Manifests, name: &str, printer: &mut Printer) -> Result<Exit, Trouble> {
    let lock = manifests.lock.clone().unwrap_or_default();
    let mut stale = lock.stale(&manifests.castle.wanted_components());
    for (component, entry) in &lock.entries {
        if let Source::File(file) = &entry.source {
            let found = manifests.supply.measure(*component, &entry.source).await;
            if found.map_or(true, |bytes| digest(&bytes) != entry.sha256) {
                stale.push(Stale::Changed(*component, file.clone()));
            }
        }
    }
    let file = manifests.file.display();
    let result = if stale.is_empty() {
        printer.say(&format!("{file} is up to date"));
        "unchanged"
    } else {
        for one in &stale {
            printer.complain_to_people(&one.to_string());
        }
        printer.complain_to_people(&format!("{file} is not up to date: castle lock"));
        "stale"
    };
    let problems: Vec<Value> = stale
        .iter()
        .map(|one| json!({"severity": "error", "summary": one.to_string(), "hint": "castle lock"}))
        .collect();
    printer.result(&json!({
        "verb": "lock", "castle": name, "result": result, "file": file.to_string(), "components": listed(&lock), "problems": problems,
    }));
    Ok(if stale.is_empty() { Exit::Done } else { Exit::Differs })
}

/// What is to be pinned of a component: what is pinned already, if that is still wanted.
async fn pinned(manifests: &Manifests, want: &WantedComponent) -> Result<Entry, Trouble> {
    let supply = &manifests.supply;
    let measured = async |source: Source| {
        let bytes = supply.measure(want.name, &source).await.map_err(|error| Trouble::of(&error))?;
        Ok(Entry { version: want.version.clone(), source, sha256: digest(&bytes) })
    };
    if let Some(file) = &want.source {
        return measured(Source::File(file.clone())).await;
    }
    let old = manifests.lock.as_ref().and_then(|lock| lock.entries.get(&want.name));
    let old = old.filter(|old| old.version == want.version && !matches!(old.source, Source::File(_)));
    let Some(mirror) = supply.mirror() else {
        if let Some(old) = old {
            return Ok(old.clone());
        }
        return match pin(want.name, &want.version) {
            Some(pin) if pin.made == Made::Upstream => Ok(pin.entry(&want.version)),
            _ => measured(Source::Url(upstream(want.name, &want.version))).await,
        };
    };
    if let Some(old) = old.filter(|old| mirror.with_digest(want.name, &old.sha256).is_some()) {
        return Ok(old.clone());
    }
    let listed = mirror.with_version(want.name, &want.version).ok_or_else(|| {
        let (place, WantedComponent { name, version, .. }) = (mirror.place().display(), want);
        Trouble::Failed(format!(
            "{name}: the mirror {place} has no manifest of {version}; `castle mirror pull` fetches it where there is a way to the web"
        ))
    })?;
    let entry = measured(Source::Mirror(listed.file.clone())).await?;
    if entry.sha256 != listed.sha256 {
        let (place, file) = (mirror.place().display(), &listed.file);
        return Err(Trouble::Failed(format!(
            "{}: {file} of the mirror {place} has the sha256 {}, and its index says {}; castle mirror verify {place}",
            want.name, entry.sha256, listed.sha256
        )));
    }
    Ok(known(want, entry))
}

/// Says where upstream has it, if castle knows that these are upstream's bytes.
fn known(want: &WantedComponent, entry: Entry) -> Entry {
    let is_upstreams =
        PINS.iter().any(|pin| pin.component == want.name && pin.sha256 == entry.sha256 && pin.made == Made::Upstream);
    let source = if is_upstreams { Source::Url(upstream(want.name, &want.version)) } else { entry.source };
    Entry { source, ..entry }
}

fn rows(lock: &Lock) -> String {
    let head = ["component", "version", "sha256", "source"].map(str::to_owned);
    let row = |(name, entry): (&ComponentName, &Entry)| {
        let short = entry.sha256.get(..12).unwrap_or_default();
        [name.to_string(), entry.version.to_string(), short.to_owned(), entry.source.to_string()]
    };
    table(&std::iter::once(head).chain(lock.entries.iter().map(row)).collect::<Vec<_>>())
}

fn listed(lock: &Lock) -> Vec<Value> {
    let entry = |(name, entry): (&ComponentName, &Entry)| {
        json!({
            "component": name.word(), "version": entry.version.to_string(), "source": entry.source.to_string(), "sha256": entry.sha256,
        })
    };
    lock.entries.iter().map(entry).collect()
}
