//! Clones: linked ones that share a template's volumes, and full ones.

use std::collections::BTreeMap;
use std::time::Duration;

use super::api::Version;
use super::create::check_pool;
use super::disks::{self, Plan, Source, Workbench};
use super::drive::Drive;
use super::{Outcome, Refusal, Request, create, options, rights};
use crate::access::Identity;
use crate::world::World;
use crate::world::guest::Guest;
use crate::world::locks::LockName;
use crate::world::stores::split;
use crate::world::tasks::{Script, TaskId};

/// How long a clone waits for the locks of both guests.
const PATIENCE: Duration = Duration::from_secs(1);

/// What is asked for.
#[derive(Clone)]
struct Wish {
    host: String,
    source: u32,
    target: u32,
    full: Option<bool>,
    storage: Option<String>,
    format: Option<String>,
    /// The host that the clone goes to.
    target_host: String,
    name: Option<String>,
    description: Option<String>,
    pool: Option<String>,
    snapshot: Option<String>,
    was_running: bool,
}

/// What a clone is made of.
struct Pattern {
    /// Everything but the disks.
    config: BTreeMap<String, String>,
    disks: BTreeMap<String, (Drive, bool)>,
}

/// Looks whether the clone can be made: once before the task begins, and once inside of it.
fn check(world: &World, wish: &Wish) -> Result<Pattern, Refusal> {
    check_pool(world, wish.pool.as_deref())?;
    if !world.hosts.contains_key(&wish.target_host) {
        return Err(format!("no such cluster node '{}'", wish.target_host).into());
    }
    world.check_quorum()?;
    let guest = world.guest(&wish.host, wish.source)?;
    guest.check_lock()?;
    if guest.is_running() != wish.was_running {
        return Err("unexpected state change".to_owned().into());
    }
    if let Some(name) = wish.snapshot.as_ref().filter(|name| !guest.snapshots.contains_key(*name)) {
        return Err(format!("snapshot '{name}' does not exist").into());
    }
    let full = wish.full.unwrap_or(!guest.is_template());
    for (name, is_given) in [("storage", wish.storage.is_some()), ("format", wish.format.is_some())] {
        if is_given && !full {
            return Err(format!("parameter '{name}' not allowed for linked clones").into());
        }
    }
    if wish.target_host != wish.host && !is_shared(world, guest) {
        return Err(format!("can't clone VM to node '{}' (VM uses local storage)", wish.target_host).into());
    }
    if world.guests.contains_key(&wish.target) {
        return Err(format!("unable to create VM {}: config file already exists", wish.target).into());
    }
    let mut pattern = Pattern { config: BTreeMap::new(), disks: BTreeMap::new() };
    for (key, value) in &guest.config {
        if rights::is_numbered(key, "unused") || key == "template" || key == "parent" {
            continue;
        }
        match Drive::of(&guest.config, key).filter(Drive::is_owned) {
            None => drop(pattern.config.insert(key.clone(), value.clone())),
            Some(drive) => {
                let is_copied = full || drive.is_cloud_init();
                if !is_copied && !world.stores.can_link(&wish.host, &drive.file) {
                    let volid = &drive.file;
                    return Err(format!("Linked clone feature is not supported for '{volid}' ({key})").into());
                }
                pattern.disks.insert(key.clone(), (drive, is_copied));
            }
        }
    }
    Ok(pattern)
}

fn is_shared(world: &World, guest: &Guest) -> bool {
    let drives = Drive::all(&guest.config);
    let storages = drives.values().filter_map(|drive| split(&drive.file)).map(|(storage, _)| storage);
    storages.into_iter().all(|storage| world.stores.spec(storage).is_ok_and(|spec| spec.shared))
}

/// Refuses storages and bridges that whoever asks may not use.
fn check_access(world: &World, who: &Identity, wish: &Wish) -> Result<(), Refusal> {
    let guest = world.guest(&wish.host, wish.source)?;
    for drive in Drive::all(&guest.config).values().filter(|drive| !drive.is_cdrom()) {
        let own = split(&drive.file).map_or("", |(storage, _)| storage);
        let storage = wish.storage.as_deref().unwrap_or(own);
        world.require(who, &format!("/storage/{storage}"), &["Datastore.AllocateSpace"])?;
        world.stores.place(&wish.host, storage)?;
    }
    let networks = guest.config.iter().filter(|(key, _)| rights::is_numbered(key, "net"));
    networks.into_iter().try_for_each(|(_, value)| rights::check_bridge(world, who, value))
}

pub(super) fn clone(world: &mut World, request: &Request) -> Outcome {
    let text = |name: &str| request.text(name).map(str::to_owned);
    let source = request.vmid();
    let was_running = world.guest_to_run(&request.host, source)?.is_running();
    let wish = Wish {
        host: request.host.clone(),
        source,
        target: request.number("newid"),
        full: request.params.flag("full"),
        storage: text("storage"),
        format: text("format"),
        target_host: text("target").unwrap_or_else(|| request.host.clone()),
        name: text("name"),
        description: text("description"),
        pool: text("pool"),
        snapshot: text("snapname"),
        was_running,
    };
    check(world, &wish)?;
    check_access(world, &request.who, &wish)?;
    if wish.snapshot.is_some() {
        return Err(Refusal::simulated("clones no snapshots"));
    }
    Ok(start(world, wish, &request.who.name()).into())
}

/// Somebody clones a guest by hand, wholly. Says whether it begins.
pub(crate) fn by_hand(world: &mut World, source: u32, target: u32) -> bool {
    let Some(guest) = world.guests.get(&source) else { return false };
    let (host, was_running) = (guest.host.clone(), guest.is_running());
    let wish = Wish {
        target_host: host.clone(),
        host,
        source,
        target,
        full: Some(true),
        storage: None,
        format: None,
        name: None,
        description: None,
        pool: None,
        snapshot: None,
        was_running,
    };
    let is_possible = check(world, &wish).is_ok();
    if is_possible {
        start(world, wish, "root@pam");
    }
    is_possible
}

fn start(world: &mut World, wish: Wish, who: &str) -> String {
    let (host, source) = (wish.host.clone(), wish.source);
    // Clones of a stopped guest run side by side; of a running one, one after the other.
    let script = Script::new()
        .lock(LockName::Guest(source), !wish.was_running, PATIENCE)
        .lock(LockName::Guest(wish.target), false, PATIENCE)
        .claim(move |world, task| begin(world, task, wish));
    world.begin(&host, "qmclone", &source.to_string(), who, script)
}

/// Leaves the placeholder, and plans the rest.
fn begin(world: &mut World, task: TaskId, wish: Wish) -> Result<Script, String> {
    let Pattern { mut config, disks } = check(world, &wish).map_err(Refusal::into_text)?;
    if world.version == Version::Nine {
        world.say(task, format!("creating a clone of VM {} with ID {}", wish.source, wish.target));
    }
    let target = wish.target;
    renew(world, &wish, &mut config);
    let bench = Workbench::default();
    let (undo, undo_host) = (bench.clone(), wish.host.clone());
    let mut script = Script::new().fails_as("clone failed: ").on_failure(move |world| {
        undo.undo(world, &undo_host);
        world.guests.remove(&target);
    });
    for (key, (drive, is_copied)) in disks {
        let making = if is_copied {
            copied(world, &wish, &key, drive).script(world, &wish.host, target, &bench)?
        } else {
            linked(world, &wish, &key, drive, &bench)?
        };
        // From the first disk on the file says what it is going to be; the lock stays until the end.
        let (bench, host, mut sofar) = (bench.clone(), wish.host.clone(), config.clone());
        script = script.and(making).act(move |world| {
            sofar.extend(bench.made().options.clone());
            sofar.insert("lock".to_owned(), "clone".to_owned());
            world.guest_mut(&host, target)?.config = sofar;
            Ok(())
        });
    }
    world.guests.insert(target, Guest::placeholder(target, &wish.host, "clone"));
    Ok(script.act(move |world| {
        config.extend(bench.made().options.clone());
        let guest = world.guest_mut(&wish.host, target)?;
        guest.config = config;
        guest.host.clone_from(&wish.target_host);
        world.effect("clone", target);
        create::join_pool(world, target, wish.pool.as_deref());
        Ok(())
    }))
}

/// What a clone does not share with its source: hardware addresses, ids, name.
fn renew(world: &mut World, wish: &Wish, config: &mut BTreeMap<String, String>) {
    let networks: Vec<String> = config.keys().filter(|key| rights::is_numbered(key, "net")).cloned().collect();
    for key in networks {
        let mac = options::new_mac(world, wish.target);
        if let Some(value) = config.get_mut(&key) {
            let (first, rest) = value.split_once(',').map_or((value.as_str(), None), |(a, b)| (a, Some(b)));
            let model = first.split('=').next().unwrap_or_default();
            *value = rest.map_or_else(|| format!("{model}={mac}"), |rest| format!("{model}={mac},{rest}"));
        }
    }
    let uuid = options::new_uuid(world, wish.target);
    let smbios = config.get("smbios1").cloned().unwrap_or_default();
    let kept = smbios.split(',').filter(|part| !part.starts_with("uuid=") && !part.is_empty()).map(str::to_owned);
    let parts: Vec<String> = std::iter::once(format!("uuid={uuid}")).chain(kept).collect();
    config.insert("smbios1".to_owned(), parts.join(","));
    if config.contains_key("vmgenid") {
        let uuid = options::new_uuid(world, wish.target);
        config.insert("vmgenid".to_owned(), uuid);
    }
    let old = config.get("name").cloned().unwrap_or_else(|| wish.source.to_string());
    let name = wish.name.clone().unwrap_or_else(|| format!("Copy-of-VM-{old}"));
    config.insert("name".to_owned(), name);
    if let Some(description) = &wish.description {
        config.insert("description".to_owned(), description.trim_end_matches('\n').to_owned());
    }
}

/// A disk with a volume of its own.
fn copied(world: &World, wish: &Wish, key: &str, drive: Drive) -> Plan {
    let own = split(&drive.file).map_or("", |(storage, _)| storage);
    let storage = wish.storage.clone().unwrap_or_else(|| own.to_owned());
    let is_file = world.stores.spec(&storage).is_ok_and(|spec| spec.kind == crate::blueprint::StorageKind::Dir);
    let format = wish
        .format
        .clone()
        .or_else(|| world.stores.get(&wish.host, &drive.file).filter(|_| is_file).map(|volume| volume.format.clone()));
    let source = if drive.is_cloud_init() { Source::CloudInit } else { Source::Copy(drive.file.clone()) };
    let runs = wish.was_running.then_some(wish.source);
    Plan { key: key.to_owned(), drive, storage, format, source, is_clone: true, runs }
}

/// A disk that holds only what differs: one after the other on each storage.
fn linked(world: &World, wish: &Wish, key: &str, drive: Drive, bench: &Workbench) -> Result<Script, String> {
    let storage = split(&drive.file).map_or("", |(storage, _)| storage);
    let lock = world.stores.lock_name(&wish.host, storage)?;
    let patience = lock.patience();
    let (host, target, key, bench) = (wish.host.clone(), wish.target, key.to_owned(), bench.clone());
    Ok(Script::new()
        .lock(lock.clone(), false, patience)
        .takes(format!("link {target} {key}"), world.latencies.linked_clone)
        .then(move |world, task| {
            let epoch = world.epoch();
            world.say(task, format!("create linked clone of drive {key} ({})", drive.file));
            let volid = world.stores.link(&host, &drive.file, target, epoch)?;
            say_linked(world, task, (&host, target), (&drive.file, &volid));
            let mut linked = drive;
            linked.file.clone_from(&volid);
            let printed = linked.print(world.version, &key)?;
            let mut made = bench.made();
            made.volumes.push(volid);
            made.options.insert(key, printed);
            Ok(Script::new())
        })
        .unlock(lock))
}

/// What a storage that is a folder says of a file that is linked to another.
fn say_linked(world: &mut World, task: TaskId, (host, target): (&str, u32), (base, volid): (&str, &str)) {
    let base = split(base).map_or("", |(_, name)| name);
    let file = volid.rsplit('/').next().unwrap_or_default();
    let Some(formatted) = disks::formatted_link(world, host, volid, &format!("../{base}")) else { return };
    world.say(task, format!("clone {base}: images, {file}, {target} to {file} (base=../{base})"));
    world.say(task, formatted);
}

impl World {
    /// A full copy of a guest under a number that is free, without a task. A clone has addresses, ids and a name of its own; what is
    /// restored from a backup has not.
    pub(crate) fn copy_guest(&mut self, vmid: u32, newid: u32, is_clone: bool) -> bool {
        let Some(source) = self.guests.get(&vmid).cloned() else { return false };
        if self.guests.contains_key(&newid) {
            return false;
        }
        let wish = Wish {
            host: source.host.clone(),
            source: vmid,
            target: newid,
            full: Some(true),
            storage: None,
            format: None,
            target_host: source.host.clone(),
            name: None,
            description: None,
            pool: None,
            snapshot: None,
            was_running: source.is_running(),
        };
        let left_out = |key: &str| ["template", "parent", "lock"].contains(&key) || rights::is_numbered(key, "unused");
        let mut config = source.config.clone();
        config.retain(|key, _| !left_out(key));
        if is_clone {
            renew(self, &wish, &mut config);
        }
        let bench = Workbench::default();
        for (key, drive) in Drive::all(&source.config).into_iter().filter(|(_, drive)| drive.is_owned()) {
            let plan = copied(self, &wish, &key, drive);
            if plan.make_now(self, &wish.host, newid, &bench).is_err() {
                bench.undo(self, &wish.host);
                return false;
            }
        }
        config.extend(bench.made().options.clone());
        self.guests.insert(newid, Guest::new(newid, &wish.host, config));
        true
    }
}
