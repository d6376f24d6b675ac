//! Storages and the volumes on them.

use std::collections::{BTreeMap, VecDeque};

use super::locks::LockName;
use crate::blueprint::{Host, Storage, StorageKind};

pub(crate) mod name;

/// One place with volumes: a storage, and the host if others do not see the same.
pub(crate) type Place = (String, Option<String>);

/// The size of a cloud-init volume.
pub(crate) const CLOUD_INIT_SIZE: u64 = 4 << 20;

/// A volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Volume {
    /// What a guest sees.
    pub(crate) size: u64,
    /// What it takes of its storage.
    pub(crate) written: u64,
    pub(crate) format: String,
    pub(crate) content: String,
    pub(crate) vmid: Option<u32>,
    pub(crate) created: u64,
    /// The name of the volume that it is a linked clone of.
    pub(crate) parent: Option<String>,
    /// The image that it came from.
    pub(crate) image: Option<String>,
}

#[derive(Debug, Default)]
struct Shelf {
    volumes: BTreeMap<String, Volume>,
    /// What others have written there.
    filled: u64,
    /// Whether its host cannot say what is in it.
    is_silent: bool,
}

/// What a new volume is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Disk,
    CloudInit,
}

/// All storages.
#[derive(Debug)]
pub(crate) struct Stores {
    specs: BTreeMap<String, Storage>,
    shelves: BTreeMap<Place, Shelf>,
    faults: BTreeMap<String, VecDeque<String>>,
}

/// The storage and the name in `storage:name`.
pub(crate) fn split(volid: &str) -> Option<(&str, &str)> {
    volid.split_once(':').filter(|(storage, name)| !storage.is_empty() && !name.is_empty())
}

/// A name without its folder, its parent and its ending.
fn stem(name: &str) -> &str {
    let last = name.rsplit('/').next().unwrap_or(name);
    last.split('.').next().unwrap_or(last)
}

impl Stores {
    pub(crate) fn new(storages: &[Storage], hosts: &[Host]) -> Self {
        let mut shelves = BTreeMap::new();
        for storage in storages {
            for host in hosts.iter().filter(|host| storage.hosts.is_empty() || storage.hosts.contains(&host.name)) {
                let host = (!storage.shared).then(|| host.name.clone());
                shelves.insert((storage.name.clone(), host), Shelf::default());
            }
        }
        let specs = storages.iter().map(|storage| (storage.name.clone(), storage.clone())).collect();
        Self { specs, shelves, faults: BTreeMap::new() }
    }

    pub(crate) fn specs(&self) -> impl Iterator<Item = &Storage> {
        self.specs.values()
    }

    pub(crate) fn spec(&self, storage: &str) -> Result<&Storage, String> {
        self.specs.get(storage).ok_or_else(|| format!("storage '{storage}' does not exist"))
    }

    /// Where a host finds this storage.
    pub(crate) fn place(&self, host: &str, storage: &str) -> Result<Place, String> {
        let spec = self.spec(storage)?;
        if !spec.hosts.is_empty() && !spec.hosts.iter().any(|name| name == host) {
            return Err(format!("storage '{storage}' is not available on node '{host}'"));
        }
        Ok((storage.to_owned(), (!spec.shared).then(|| host.to_owned())))
    }

    pub(crate) fn lock_name(&self, host: &str, storage: &str) -> Result<LockName, String> {
        let (name, host) = self.place(host, storage)?;
        Ok(LockName::Storage(name, host))
    }

    /// The volumes of every place.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Place, &BTreeMap<String, Volume>)> {
        self.shelves.iter().map(|(place, shelf)| (place, &shelf.volumes))
    }

    pub(crate) fn volumes(&self, place: &Place) -> impl Iterator<Item = (&String, &Volume)> {
        self.shelves.get(place).into_iter().flat_map(|shelf| shelf.volumes.iter())
    }

    pub(crate) fn used(&self, place: &Place) -> u64 {
        let written: u64 = self.volumes(place).map(|(_, volume)| volume.written).sum();
        let filled = self.shelves.get(place).map_or(0, |shelf| shelf.filled);
        let total = self.specs.get(&place.0).map_or(u64::MAX, |spec| spec.total);
        written.saturating_add(filled).min(total)
    }

    pub(crate) fn free_bytes(&self, place: &Place) -> u64 {
        self.specs.get(&place.0).map_or(0, |spec| spec.total).saturating_sub(self.used(place))
    }

    /// Takes all free space but this much, or gives it back.
    pub(crate) fn fill(&mut self, place: &Place, leave: u64) {
        if let Some(shelf) = self.shelves.get_mut(place) {
            shelf.filled = 0;
        }
        let filled = self.free_bytes(place).saturating_sub(leave);
        if let Some(shelf) = self.shelves.get_mut(place) {
            shelf.filled = filled;
        }
    }

    /// Whether its host can say what is in a storage.
    pub(crate) fn is_active(&self, place: &Place) -> bool {
        !self.shelves.get(place).is_some_and(|shelf| shelf.is_silent)
    }

    pub(crate) fn silence(&mut self, place: &Place, is_silent: bool) {
        if let Some(shelf) = self.shelves.get_mut(place) {
            shelf.is_silent = is_silent;
        }
    }

    pub(crate) fn plan_fault(&mut self, storage: &str, text: &str) {
        self.faults.entry(storage.to_owned()).or_default().push_back(text.to_owned());
    }

    /// The failure that was planned for this storage, if there is one.
    pub(crate) fn fault(&mut self, volid: &str) -> Result<(), String> {
        let storage = volid.split(':').next().unwrap_or_default();
        self.faults.get_mut(storage).and_then(VecDeque::pop_front).map_or(Ok(()), Err)
    }

    pub(crate) fn get(&self, host: &str, volid: &str) -> Option<&Volume> {
        let (storage, name) = split(volid)?;
        self.shelves.get(&self.place(host, storage).ok()?)?.volumes.get(name)
    }

    pub(crate) fn get_mut(&mut self, host: &str, volid: &str) -> Option<&mut Volume> {
        let (storage, name) = split(volid)?;
        let place = self.place(host, storage).ok()?;
        self.shelves.get_mut(&place)?.volumes.get_mut(name)
    }

    /// Puts a volume there, over whatever has that name.
    pub(crate) fn put(&mut self, host: &str, volid: &str, volume: Volume) -> Result<(), String> {
        let (storage, name) = split(volid).ok_or_else(|| format!("unable to parse volume ID '{volid}'"))?;
        let place = self.place(host, storage)?;
        let shelf = self.shelves.entry(place).or_default();
        shelf.volumes.insert(name.to_owned(), volume);
        Ok(())
    }

    /// A name for a new volume of a guest: the lowest number that is free.
    fn new_name(&self, place: &Place, vmid: u32, purpose: Purpose, format: &str) -> String {
        let kind = self.specs.get(&place.0).map(|spec| spec.kind);
        let bare = match purpose {
            Purpose::CloudInit => format!("vm-{vmid}-cloudinit"),
            Purpose::Disk => {
                let is_taken = |number: u32| {
                    let (own, base) = (format!("vm-{vmid}-disk-{number}"), format!("base-{vmid}-disk-{number}"));
                    self.volumes(place).any(|(name, _)| stem(name) == own || stem(name) == base)
                };
                let number = (0..).find(|number| !is_taken(*number)).unwrap_or_default();
                format!("vm-{vmid}-disk-{number}")
            }
        };
        match kind {
            Some(StorageKind::Dir) => format!("{vmid}/{bare}.{format}"),
            _ => bare,
        }
    }

    /// Makes an empty volume and returns its name in full.
    pub(crate) fn allocate(
        &mut self,
        host: &str,
        storage: &str,
        (vmid, purpose): (u32, Purpose),
        format: Option<&str>,
        (size, created): (u64, u64),
    ) -> Result<String, String> {
        let place = self.place(host, storage)?;
        let spec = self.spec(storage)?;
        if !spec.content.iter().any(|content| content == "images") {
            return Err(format!("storage '{storage}' does not support content-type 'images'"));
        }
        let is_file = spec.kind == StorageKind::Dir;
        let format = match format {
            Some(format) if is_file || format == "raw" => format,
            Some(format) => return Err(format!("unsupported format '{format}'")),
            None if is_file && purpose == Purpose::CloudInit => "qcow2",
            None => "raw",
        };
        let (kind, name) = (spec.kind, self.new_name(&place, vmid, purpose, format));
        if self.get(host, &format!("{storage}:{name}")).is_some() {
            return Err(exists(kind, &name));
        }
        let written = if kind == StorageKind::Lvm { size } else { 0 };
        let free = self.free_bytes(&place);
        if free < written || free == 0 {
            return Err(no_room(kind, &name, size));
        }
        let volid = format!("{storage}:{name}");
        let volume = Volume {
            size,
            written,
            format: format.to_owned(),
            content: "images".to_owned(),
            vmid: Some(vmid),
            created,
            parent: None,
            image: None,
        };
        self.put(host, &volid, volume)?;
        Ok(volid)
    }

    /// Fills a volume with what another has. Fails where there is no room for it.
    pub(crate) fn copy(&mut self, from: (&str, &str), to: (&str, &str)) -> Result<(), String> {
        let source = self.get(from.0, from.1).ok_or_else(|| format!("no such volume '{}'", from.1))?;
        let (written, image) = (source.written, source.image.clone());
        let image = image.or_else(|| (source.content != "images").then(|| from.1.to_owned()));
        self.fault(to.1)?;
        let place = self.place(to.0, to.1.split(':').next().unwrap_or_default())?;
        let free = self.free_bytes(&place);
        let Some(target) = self.get_mut(to.0, to.1) else { return Err(format!("no such volume '{}'", to.1)) };
        let more = written.saturating_sub(target.written);
        target.image = image;
        if more > free {
            target.written += free;
            return Err(format!(
                "copy failed: command '/usr/bin/qemu-img convert -p -n -O {} {} {}' failed: exit code 1",
                target.format, from.1, to.1
            ));
        }
        target.written += more;
        Ok(())
    }

    /// What a guest or a task writes into a volume, as far as there is room.
    pub(crate) fn write(&mut self, host: &str, volid: &str, bytes: u64) {
        let Some(place) = split(volid).and_then(|(storage, _)| self.place(host, storage).ok()) else { return };
        let free = self.free_bytes(&place);
        if let Some(volume) = self.get_mut(host, volid) {
            volume.written += bytes.min(free).min(volume.size.saturating_sub(volume.written));
        }
    }

    /// Whether guests can share what is in this volume.
    pub(crate) fn can_link(&self, host: &str, volid: &str) -> bool {
        let Some((storage, name)) = split(volid) else { return false };
        let can_at_all = self.specs.get(storage).is_some_and(|spec| spec.kind != StorageKind::Lvm);
        can_at_all && stem(name).starts_with("base-") && self.get(host, volid).is_some()
    }

    /// A volume that holds only what differs from this one.
    pub(crate) fn link(&mut self, host: &str, volid: &str, vmid: u32, created: u64) -> Result<String, String> {
        let (storage, base) = split(volid).ok_or_else(|| format!("unable to parse volume ID '{volid}'"))?;
        let source = self.get(host, volid).cloned().ok_or_else(|| format!("no such volume '{volid}'"))?;
        let (place, kind) = (self.place(host, storage)?, self.spec(storage)?.kind);
        if self.free_bytes(&place) == 0 {
            return Err(format!("clone image 'pve/{base}' error:   {}", threshold()));
        }
        let name = self.new_name(&place, vmid, Purpose::Disk, "qcow2");
        let name = match kind {
            StorageKind::Dir | StorageKind::ZfsPool | StorageKind::Rbd => format!("{base}/{name}"),
            StorageKind::LvmThin | StorageKind::Lvm => name,
        };
        let format = if kind == StorageKind::Dir { "qcow2".to_owned() } else { source.format };
        let (vmid, parent) = (Some(vmid), Some(base.to_owned()));
        let volume = Volume { written: 0, format, vmid, created, parent, ..source };
        let linked = format!("{storage}:{name}");
        self.fault(&linked)?;
        self.put(host, &linked, volume)?;
        Ok(linked)
    }

    /// Makes a volume one that others can be linked to. Returns its new name; the old one where the storage cannot.
    pub(crate) fn make_base(&mut self, host: &str, volid: &str) -> Result<String, String> {
        let (storage, name) = split(volid).ok_or_else(|| format!("unable to parse volume ID '{volid}'"))?;
        if self.spec(storage)?.kind == StorageKind::Lvm || stem(name).starts_with("base-") {
            return Ok(volid.to_owned());
        }
        let (folder, last) = name.rsplit_once('/').map_or(("", name), |(folder, last)| (folder, last));
        let base = format!("base-{}", last.strip_prefix("vm-").unwrap_or(last));
        let renamed = if folder.is_empty() { base } else { format!("{folder}/{base}") };
        let place = self.place(host, storage)?;
        let shelf = self.shelves.entry(place).or_default();
        let volume = shelf.volumes.remove(name).ok_or_else(|| format!("no such volume '{volid}'"))?;
        shelf.volumes.insert(renamed.clone(), volume);
        Ok(format!("{storage}:{renamed}"))
    }

    /// Whether something is linked to this volume, as far as its storage knows: clones of a thin volume stand by themselves.
    pub(crate) fn is_base_in_use(&self, host: &str, volid: &str) -> bool {
        let Some((storage, name)) = split(volid) else { return false };
        if self.specs.get(storage).is_some_and(|spec| spec.kind == StorageKind::LvmThin) {
            return false;
        }
        let Ok(place) = self.place(host, storage) else { return false };
        self.volumes(&place).any(|(_, volume)| volume.parent.as_deref() == Some(name))
    }

    pub(crate) fn free(&mut self, host: &str, volid: &str) -> Result<Volume, String> {
        let (storage, name) = split(volid).ok_or_else(|| format!("unable to parse volume ID '{volid}'"))?;
        if self.is_base_in_use(host, volid) {
            return Err(format!("base volume '{name}' is still in use by linked cloned"));
        }
        let place = self.place(host, storage)?;
        self.fault(volid)?;
        let shelf = self.shelves.entry(place).or_default();
        shelf.volumes.remove(name).ok_or_else(|| format!("failed to free '{volid}': no such volume"))
    }
}

fn threshold() -> &'static str {
    "Cannot create new thin volume, free space in thin pool pve/data reached threshold."
}

fn exists(kind: StorageKind, name: &str) -> String {
    match kind {
        StorageKind::Dir => format!("disk image '/var/lib/vz/images/{name}' already exists"),
        StorageKind::Lvm | StorageKind::LvmThin => {
            format!("lvcreate 'pve/{name}' error:   Logical Volume \"{name}\" already exists in volume group \"pve\"")
        }
        StorageKind::ZfsPool => {
            format!("zfs error: cannot create 'rpool/data/{name}': dataset already exists")
        }
        StorageKind::Rbd => format!("rbd create '{name}' error: rbd image {name} already exists"),
    }
}

fn no_room(kind: StorageKind, name: &str, size: u64) -> String {
    match kind {
        StorageKind::LvmThin => format!("lvcreate 'pve/{name}' error:   {}", threshold()),
        StorageKind::Lvm => format!(
            "lvcreate 'pve/{name}' error:   Volume group \"pve\" has insufficient free space (0 extents): {} required.",
            size.div_ceil(4 << 20)
        ),
        StorageKind::ZfsPool => format!("zfs error: cannot create 'rpool/data/{name}': out of space"),
        StorageKind::Rbd => format!("rbd create '{name}' error: (28) No space left on device"),
        StorageKind::Dir => {
            format!("unable to create image: qemu-img: /var/lib/vz/images/{name}: No space left on device")
        }
    }
}

#[cfg(test)]
mod tests;
