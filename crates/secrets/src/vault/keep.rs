//! What a castle keeps in its vault: saved and proven, found again, taken away.
//!
//! What castle wrote is marked in the note at each secret. Nothing without the mark of this castle is changed or removed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use castle_engine::{CastleId, Change, Decision, Fault, Impact, Operation, Step, lineage};
use castle_seams::BoxFuture;

use super::{Entry, Folder, Vault, VaultError, VaultErrorKind};
use crate::Secret;

/// What is to be kept, by name: `KUBECONFIG`, `TALOSCONFIG`, the sealed bundle.
#[derive(Clone, Debug, Default)]
pub struct Files(pub BTreeMap<String, Secret>);

/// The folder of a castle in its vault.
#[derive(Clone)]
pub struct Shelf {
    /// The vault.
    pub vault: Arc<dyn Vault>,
    /// The folder.
    pub path: String,
    /// Whose it is. A later life of the same castle owns what an earlier one wrote.
    pub castle: CastleId,
}

/// What the note of a secret says that castle wrote.
const MARK: &str = "kept by castle";
/// The format of notes. What is written here is found again by castles to come: whatever changes gets a new number.
const FORMAT: u32 = 1;

/// What a note says that castle wrote: `kept by castle, note 1: blue, lineage abc123, life 2`. What follows is for castles to come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Note {
    /// Which castle, in which of its lives.
    Of(CastleId),
    /// Castle wrote it in a format that this one does not read; and the castle's name, if it says so.
    Unreadable(Option<String>),
}

impl Note {
    fn read(note: &str) -> Option<Self> {
        let rest = note.trim().strip_prefix(MARK)?;
        let Some(rest) = rest.strip_prefix(", note ") else {
            // As it was written before notes had a format.
            let (name, _) = rest.strip_prefix(' ')?.split_once(", lineage ")?;
            return Some(Self::Unreadable(Some(name.to_owned())));
        };
        let (format, rest) = rest.split_once(": ")?;
        match format.parse::<u32>().ok()? {
            FORMAT => {}
            later if later > FORMAT => return Some(Self::Unreadable(None)),
            _ => return None,
        }
        let (name, rest) = rest.split_once(", lineage ")?;
        let (lineage, rest) = rest.split_once(", life ")?;
        let generation = rest.split(", ").next()?.parse().ok()?;
        Some(Self::Of(CastleId { name: name.to_owned(), lineage: lineage.to_owned(), generation }))
    }
}

/// What to do about something with a note that cannot be read.
const UNREADABLE: &str = "was kept by a castle of another version, whose notes this one does not read";
const OTHER_CASTLE: &str = "take the castle down with the castle that raised it, or remove it there if that one is gone; a newer one reads newer notes";

impl Shelf {
    /// What is noted at each secret.
    fn mark(&self) -> String {
        let CastleId { name, lineage, generation } = &self.castle;
        format!("{MARK}, note {FORMAT}: {name}, lineage {lineage}, life {generation}")
    }

    fn is_ours(&self, note: &str) -> bool {
        let is_same = |castle: &CastleId| castle.name == self.castle.name && castle.lineage == self.castle.lineage;
        matches!(Note::read(note), Some(Note::Of(castle)) if is_same(&castle))
    }

    /// The life of this castle that a note tells of, if it comes after the one that is known here.
    fn later(&self, note: &str) -> Option<u64> {
        match Note::read(note) {
            Some(Note::Of(castle)) if self.is_ours(note) => {
                (castle.generation > self.castle.generation).then_some(castle.generation)
            }
            _ => None,
        }
    }

    /// Refuses what a later life has kept under one of these names.
    fn hold_order(&self, folder: &Folder, is_named: impl Fn(&str) -> bool) -> Result<(), Fault> {
        let mut entries = folder.iter().filter(|(name, _)| is_named(name));
        let found = entries.find_map(|(name, entry)| Some((name, self.later(&entry.note)?)));
        let Some((name, life)) = found else { return Ok(()) };
        let evidence = format!(
            "is of life {life} of this castle, and what is remembered here ends with life {}: the state is older than the castle",
            self.castle.generation
        );
        Err(Fault::guard(format!("{name} in {} of the vault", self.path), evidence).next(lineage::OUTDATED))
    }

    /// Whether a note may be of this castle, and cannot be read.
    fn is_unreadable(&self, note: &str) -> bool {
        let may_be = |name: &Option<String>| name.as_ref().is_none_or(|name| *name == self.castle.name);
        matches!(Note::read(note), Some(Note::Unreadable(name)) if may_be(&name))
    }

    /// What this castle has kept: needed on a machine that knows nothing of it. Nothing of others is among it.
    ///
    /// # Errors
    ///
    /// If the vault cannot be read, or hides the value of something that is the castle's own.
    pub async fn load(&self) -> Result<Files, VaultError> {
        let folder = self.vault.list(&self.path).await?.unwrap_or_default();
        if let Some((name, _)) = folder.iter().find(|(_, entry)| self.is_unreadable(&entry.note)) {
            let subject = format!("{name} in {}", self.path);
            return Err(VaultError::new(VaultErrorKind::Invalid, subject, UNREADABLE).next(OTHER_CASTLE));
        }
        let ours = folder.into_iter().filter(|(_, entry)| self.is_ours(&entry.note));
        let files = ours.map(|(name, entry)| match entry.value {
            Some(value) => Ok((name, value)),
            None => Err(self.hidden(&name)),
        });
        Ok(Files(files.collect::<Result<_, _>>()?))
    }

    /// Keeps these, whatever is there of this castle under their names.
    ///
    /// # Errors
    ///
    /// If the vault does not take them.
    pub async fn save(&self, files: &Files) -> Result<(), VaultError> {
        self.vault.upsert(&self.path, &files.0, &self.mark()).await
    }

    /// The castles that keep something here, each in a life, for whoever does not know which it is.
    ///
    /// # Errors
    ///
    /// If the vault cannot be read.
    pub async fn owners(vault: &dyn Vault, path: &str) -> Result<BTreeSet<CastleId>, VaultError> {
        let folder = vault.list(path).await?.unwrap_or_default();
        let owner = |entry: &Entry| match Note::read(&entry.note)? {
            Note::Of(castle) => Some(castle),
            Note::Unreadable(_) => None,
        };
        Ok(folder.values().filter_map(owner).collect())
    }

    fn hidden(&self, name: &str) -> VaultError {
        let evidence = "castle wrote it, but its value is hidden from castle's identity";
        VaultError::new(VaultErrorKind::Hidden, format!("{name} in {}", self.path), evidence)
            .next("let the identity read values in that folder, not only describe them")
    }
}

/// Saves files in the castle's folder. It is done when they are read back equal.
pub struct SaveFiles {
    shelf: Shelf,
}

impl SaveFiles {
    /// The step for this folder.
    #[must_use]
    pub fn new(shelf: Shelf) -> Self {
        Self { shelf }
    }

    /// The names whose values are not as wanted, each with whether there is one.
    fn differing<'a>(&self, files: &'a Files, folder: &Folder) -> Vec<(&'a str, bool)> {
        let vault = &self.shelf.vault;
        let differing = files.0.iter().filter_map(|(name, wanted)| match folder.get(name) {
            None => Some((name.as_str(), false)),
            Some(entry) => {
                let is_equal = entry.value.as_ref().is_some_and(|is| vault.kept(wanted.expose()) == is.expose());
                // What an earlier life wrote is noted as this one's from now on.
                let is_noted = entry.note.trim() == self.shelf.mark();
                (!is_equal || !is_noted).then_some((name.as_str(), true))
            }
        });
        differing.collect()
    }
}

/// What saving does.
#[derive(Clone, Debug)]
pub enum Saving {
    /// The folder is made.
    MakeFolder,
    /// The values of these names are written.
    Save(BTreeSet<String>),
}

impl Step for SaveFiles {
    type Needs = (Arc<Files>,);
    /// The folder, if there is one.
    type Observed = Option<Folder>;
    type Action = Saving;
    type Output = ();

    fn observe<'a>(&'a self, (files,): &'a Self::Needs) -> BoxFuture<'a, Result<Option<Folder>, Fault>> {
        Box::pin(async move {
            let Shelf { vault, path, .. } = &self.shelf;
            let Some(folder) = vault.list(path).await? else { return Ok(None) };
            self.shelf.hold_order(&folder, |name| files.0.contains_key(name))?;
            for name in files.0.keys() {
                let Some(entry) = folder.get(name) else { continue };
                if !self.shelf.is_ours(&entry.note) {
                    // Anything may be noted there: only what is a mark is shown.
                    let evidence = match Note::read(&entry.note) {
                        Some(Note::Of(other)) => {
                            format!("it is there already, kept by another castle of the name {}", other.name)
                        }
                        Some(Note::Unreadable(_)) => {
                            let fault = Fault::guard(format!("{name} in {path} of the vault"), UNREADABLE);
                            return Err(fault.next(OTHER_CASTLE));
                        }
                        None => "it is there already, and castle did not write it".to_owned(),
                    };
                    return Err(Fault::guard(format!("{name} in {path} of the vault"), evidence)
                        .next("rename or remove it there, or give this castle another `path` in `secrets:`"));
                }
                if entry.value.is_none() {
                    return Err(self.shelf.hidden(name).into());
                }
            }
            Ok(Some(folder))
        })
    }

    fn decide(&self, (files,): &Self::Needs, folder: &Option<Folder>) -> Decision<Saving> {
        let Some(folder) = folder else {
            let change = Change::new("make-folder", Impact::Create);
            return Decision::Act(Saving::MakeFolder, change.differing("folder", None, Some(self.shelf.path.clone())));
        };
        let differing = self.differing(files, folder);
        if differing.is_empty() {
            return Decision::Nothing;
        }
        let is_new = differing.iter().all(|(_, exists)| !exists);
        let change = Change::new("save", if is_new { Impact::Create } else { Impact::InPlace });
        let names = differing.iter().map(|&(name, _)| name.to_owned()).collect();
        let change = differing.into_iter().fold(change, |change, (name, exists)| {
            // That it differs, never how.
            change.differing(name, exists.then(|| "outdated".to_owned()), Some("saved".to_owned()))
        });
        Decision::Act(Saving::Save(names), change)
    }

    fn act<'a>(
        &'a self,
        (files,): &'a Self::Needs,
        _: &'a Option<Folder>,
        action: &'a Saving,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Shelf { vault, path, .. } = &self.shelf;
            match action {
                Saving::MakeFolder => Ok(vault.ensure_folder(path).await?),
                Saving::Save(names) => {
                    let wanted = names.iter().filter_map(|name| Some((name.clone(), files.0.get(name)?.clone())));
                    Ok(vault.upsert(path, &wanted.collect(), &self.shelf.mark()).await?)
                }
            }
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Option<Folder>) -> Option<()> {
        Some(())
    }

    fn output(&self, _: &Self::Needs, _: &Option<Folder>) {}
}

/// Removes what castle has kept, and nothing else. The folder stays: it may be somebody's.
pub struct RemoveFiles {
    shelf: Shelf,
}

impl RemoveFiles {
    /// The step for this folder.
    #[must_use]
    pub fn new(shelf: Shelf) -> Self {
        Self { shelf }
    }
}

impl Step for RemoveFiles {
    type Needs = ();
    /// What is castle's own.
    type Observed = BTreeSet<String>;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<BTreeSet<String>, Fault>> {
        Box::pin(async move {
            let folder = self.shelf.vault.list(&self.shelf.path).await?.unwrap_or_default();
            self.shelf.hold_order(&folder, |_| true)?;
            let ours = folder.into_iter().filter(|(_, entry)| self.shelf.is_ours(&entry.note));
            Ok(ours.map(|(name, _)| name).collect())
        })
    }

    fn decide(&self, (): &(), names: &BTreeSet<String>) -> Decision {
        if names.is_empty() {
            return Decision::Nothing;
        }
        let change = Change::new("remove", Impact::Destroy);
        Decision::Act((), names.iter().fold(change, |change, name| change.differing(name, Some("saved".into()), None)))
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        names: &'a BTreeSet<String>,
        (): &'a (),
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move { Ok(self.shelf.vault.remove(&self.shelf.path, names).await?) })
    }

    fn output(&self, (): &(), _: &BTreeSet<String>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they were written. What is here has to be told apart for as long as there are castles.
    #[test]
    fn recorded_notes_are_read() {
        let blue = CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 2 };
        let of_blue = Some(Note::Of(blue));
        assert_eq!(Note::read("kept by castle, note 1: blue/proxmox, lineage 0123456789abcdef, life 2"), of_blue);
        let more = "kept by castle, note 1: blue/proxmox, lineage 0123456789abcdef, life 2, whatever comes: later\n";
        assert_eq!(Note::read(more), of_blue);
        let unversioned = Note::read("kept by castle blue/proxmox, lineage 0123456789abcdef");
        assert_eq!(unversioned, Some(Note::Unreadable(Some("blue/proxmox".to_owned()))));
        assert_eq!(Note::read("kept by castle, note 2: something else"), Some(Note::Unreadable(None)));
        for other in [
            "",
            "mine",
            "kept by castle",
            "kept by castle, note 1: blue",
            "kept by castle, note 0: blue, lineage a, life 1",
        ] {
            assert_eq!(Note::read(other), None, "{other}");
        }
    }
}
