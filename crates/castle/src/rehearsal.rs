//! A castle's own file tried in worlds that are in memory and in virtual time: the same verbs, through doors that lead nowhere else.
//!
//! - [`Script`] is what is rehearsed: the file and what belongs to it, read once, with stand-ins for all secrets.
//! - [`Life`] is one world in which verbs are run, and killed.
//! - [`rehearse_beside`] is what is done in each world, and holds castle to its promises.

#[cfg(test)]
mod bad_days;
mod blueprint;
mod changes;
#[cfg(test)]
mod defects;
#[cfg(test)]
pub(crate) mod fixture;
mod life;
mod needles;
mod picture;
mod promises;
mod script;
mod standins;
mod tally;
#[cfg(test)]
mod tests;
mod world;

#[cfg(test)]
pub(crate) use life::{At, Kill, Life, Told};
pub(crate) use promises::Broken;
#[cfg(test)]
pub(crate) use promises::forget;
pub(crate) use script::{Props, Script};
#[cfg(test)]
use world::rehearse;
pub(crate) use world::{Edit, Rehearsed, rehearse_beside};

use castle_spec::Castle;
use castle_spec::model::{Platform, StateStore, Vault};

/// A castle as it can stand in a room: what it remembers stays there, too, for whoever is there; nobody shows certificates; and its
/// image is not the real one, so that it has another checksum.
pub(crate) fn fitted(mut castle: Castle) -> Castle {
    castle.state.value.store.value = StateStore::Directory(());
    castle.state.value.recipients = None;
    castle.talos.value.image.value.sha256 = None;
    if let Platform::Proxmox(proxmox) = &mut castle.platform.value {
        proxmox.ca = None;
    }
    if let Some(Vault::Infisical(infisical)) = castle.secrets.as_mut().map(|vault| &mut vault.value) {
        infisical.ca = None;
    }
    if let Some(gitops) = &mut castle.gitops {
        gitops.value.ca = None;
    }
    castle
}
