//! What others do to a datacenter while one is working in it. Each happens at once, at the clock's time.

use std::collections::BTreeMap;

use super::Datacenter;
use crate::blueprint::{AclEntry, Stranger};
use crate::proxmox::{Download, config};
use crate::world::guest::Guest;
use crate::world::stores::{Volume, split};
use crate::world::tasks::Ending;

impl Datacenter {
    /// Adds a guest by hand, over whatever has its number.
    pub fn add_guest(&self, stranger: Stranger) {
        self.world().settle(stranger);
    }

    /// Changes options of a guest by hand, without any check; an option without a value is deleted. Says whether there is
    /// such a guest.
    pub fn change_guest(&self, vmid: u32, changes: &[(&str, Option<&str>)]) -> bool {
        let mut world = self.world();
        let Some(guest) = world.guests.get_mut(&vmid) else { return false };
        for (key, value) in changes {
            match value {
                Some(value) => drop(guest.config.insert((*key).to_owned(), (*value).to_owned())),
                None => drop(guest.config.remove(*key)),
            }
        }
        true
    }

    /// Removes a guest and its volumes by hand. Says whether there was one.
    pub fn remove_guest(&self, vmid: u32) -> bool {
        let mut world = self.world();
        world.power_off(vmid);
        let Some(guest) = world.guests.remove(&vmid) else { return false };
        world.ha.remove(&vmid);
        for drive in crate::proxmox::drive::Drive::all(&guest.config).values().filter(|drive| drive.is_owned()) {
            // What is in use or gone already stays as it is.
            let _ = world.stores.free(&guest.host, &drive.file);
        }
        for pool in world.pools.values_mut() {
            pool.guests.remove(&vmid);
        }
        true
    }

    /// Clones a guest by hand, wholly and at once, with all that a clone has of its source: options, tags and description. Says
    /// whether there was one, and the number was free.
    pub fn clone_guest(&self, vmid: u32, newid: u32) -> bool {
        self.world().copy_guest(vmid, newid, true)
    }

    /// Restores a guest under another number by hand, as from a backup of this very moment: with the name and the hardware
    /// addresses of the first, too. Says whether there was one, and the number was free.
    pub fn restore_guest(&self, vmid: u32, newid: u32) -> bool {
        self.world().copy_guest(vmid, newid, false)
    }

    /// Sets or clears the lock in a guest's configuration.
    pub fn set_lock(&self, vmid: u32, lock: Option<&str>) -> bool {
        self.change_guest(vmid, &[("lock", lock)])
    }

    /// Switches a guest on or off, as somebody at the host would.
    pub fn switch(&self, vmid: u32, on: bool) {
        let mut world = self.world();
        if on { world.power_on(vmid) } else { world.power_off(vmid) }
    }

    /// Moves a guest to another host, with its volumes, as high availability does.
    pub fn move_guest(&self, vmid: u32, host: &str) -> bool {
        let mut world = self.world();
        let Some(guest) = world.guests.get_mut(&vmid) else { return false };
        let from = std::mem::replace(&mut guest.host, host.to_owned());
        let drives = crate::proxmox::drive::Drive::all(&guest.config);
        for drive in drives.values().filter(|drive| drive.is_owned()) {
            let Some((storage, _)) = split(&drive.file) else { continue };
            let is_shared = world.stores.spec(storage).is_ok_and(|spec| spec.shared);
            if !is_shared && let Ok(volume) = world.stores.free(&from, &drive.file) {
                // The other host has the same storages: it takes what this one had.
                let _ = world.stores.put(host, &drive.file, volume);
            }
        }
        world.machines.moved(vmid, host);
        true
    }

    /// Takes a host down: its guests are off, its tasks are gone, and it refuses connections.
    pub fn host_down(&self, host: &str) {
        let mut world = self.world();
        world.kill_tasks_of(host);
        let guests: Vec<u32> =
            world.guests.values().filter(|guest| guest.host == host).map(|guest| guest.vmid).collect();
        for vmid in guests {
            world.power_off(vmid);
        }
        world.down.insert(host.to_owned());
    }

    /// Brings a host up again. Its guests stay off.
    pub fn host_up(&self, host: &str) {
        self.world().down.remove(host);
    }

    /// Takes the cluster's quorum, or gives it back.
    pub fn set_quorum(&self, has_quorum: bool) {
        self.world().has_quorum = has_quorum;
    }

    /// Takes a privilege from a user or a token, everywhere.
    pub fn revoke(&self, who: &str, privilege: &str) {
        self.world().access.revoke(who, privilege);
    }

    /// Gives back what was revoked.
    pub fn grant(&self, who: &str, privilege: &str) {
        self.world().access.grant(who, privilege);
    }

    /// Hides one guest from a user and his tokens, as `NoAccess` on it does, or shows it again.
    pub fn hide_guest(&self, user: &str, vmid: u32, is_hidden: bool) {
        let (mut world, path) = (self.world(), format!("/vms/{vmid}"));
        world.access.forget(&path);
        if is_hidden {
            world.access.allow(AclEntry::new(&path, user, "NoAccess"));
        }
    }

    /// Lets a token hold no more: `castle@pve!embedded`.
    pub fn expire_token(&self, token: &str) {
        self.world().access.expire(token);
    }

    /// Lets a token that was let expire hold again.
    pub fn renew_token(&self, token: &str) {
        self.world().access.renew(token);
    }

    /// Fills a storage until this many bytes are free; a large number empties it of what was filled in.
    pub fn fill_storage(&self, host: &str, storage: &str, leave: u64) {
        let mut world = self.world();
        if let Ok(place) = world.stores.place(host, storage) {
            world.stores.fill(&place, leave);
        }
    }

    /// Lets a host be too busy to say what is in a storage, or not any more: it then tells a storage that is not active, of no
    /// size. What is done with the storage goes on.
    pub fn silence_storage(&self, host: &str, storage: &str, is_silent: bool) {
        let mut world = self.world();
        if let Ok(place) = world.stores.place(host, storage) {
            world.stores.silence(&place, is_silent);
        }
    }

    /// Lets this be found at an address, or at all addresses that begin like it if it ends with a slash.
    pub fn publish(&self, url: &str, found: Download) {
        self.world().published.insert(url.to_owned(), found);
    }

    /// Lets the next operation on a storage fail midway with this text.
    pub fn fail_storage(&self, storage: &str, text: &str) {
        self.world().stores.plan_fault(storage, text);
    }

    /// Puts a volume onto a storage by hand: an image, or something left behind.
    pub fn add_volume(&self, host: &str, volid: &str, content: &str, size: u64) {
        let mut world = self.world();
        let last = volid.rsplit(['/', ':']).next().unwrap_or_default();
        let vmid = last.split('-').nth(1).filter(|_| content == "images").and_then(|vmid| vmid.parse().ok());
        let volume = Volume {
            size,
            written: size,
            format: last.rsplit_once('.').map_or("raw", |(_, ending)| ending).to_owned(),
            content: content.to_owned(),
            vmid,
            created: world.epoch(),
            parent: None,
            image: (content != "images").then(|| volid.to_owned()),
        };
        // A storage that does not exist takes nothing.
        let _ = world.stores.put(host, volid, volume);
    }

    /// Deletes a volume by hand. Says whether there was one.
    pub fn delete_volume(&self, host: &str, volid: &str) -> bool {
        self.world().stores.free(host, volid).is_ok()
    }

    /// Lets the next task of a type (`qmclone`) end like this.
    pub fn end_next_task(&self, kind: &str, ending: Ending) {
        self.world().tasks.plan_ending(kind, ending);
    }

    /// Lets the QEMU of a host refuse to copy the drives of guests that run, with these words.
    pub fn fail_mirrors(&self, host: &str, why: &str) {
        self.world().mirror_faults.insert(host.to_owned(), why.to_owned());
    }

    /// Adds a pool.
    pub fn add_pool(&self, name: &str) {
        self.world().pools.entry(name.to_owned()).or_default();
    }
}

impl crate::world::World {
    /// Puts a guest there, with its volumes.
    pub(crate) fn settle(&mut self, stranger: Stranger) {
        let created = self.epoch();
        for (volid, size) in &stranger.volumes {
            let volume = Volume {
                size: *size,
                written: size / 4,
                format: "raw".to_owned(),
                content: "images".to_owned(),
                vmid: Some(stranger.vmid),
                created,
                parent: None,
                image: None,
            };
            // A blueprint that names a storage that is not there gets a guest without the volume.
            let _ = self.stores.put(&stranger.host, volid, volume);
        }
        let config: BTreeMap<String, String> = stranger.config;
        self.guests.insert(stranger.vmid, Guest::new(stranger.vmid, &stranger.host, config));
        if let Some(pool) = stranger.pool {
            self.pools.entry(pool).or_default().guests.insert(stranger.vmid);
        }
        if stranger.running {
            self.power_on(stranger.vmid);
            // It has been up for long.
            self.machines.come_up(stranger.vmid);
        }
        config::apply(self, stranger.vmid, false);
    }
}
