//! Which castle it is: as its store remembers, or else as its guests and its vault say.

use castle_engine::{CastleId, Fault, lineage};
use castle_proxmox::model::{Config, ErrorClass, Guest, Mark, Owner, Refusal, Role};
use castle_secrets::vault::keep::Shelf;
use futures_util::{StreamExt, stream};

use super::{Stand, Trouble, UNBORN};
use crate::output::Printer;

/// How many guests are asked about at once: a host that does not answer costs the time of one question.
const AT_ONCE: usize = 16;

/// Which castle it is, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) castle: CastleId,
    /// Whether the store knows it; otherwise its marks or its vault do, or nobody yet.
    pub(crate) is_stored: bool,
    pub(crate) is_born: bool,
    /// The highest epoch that its marks bear, where they were read.
    pub(crate) seen_epoch: u64,
    /// Who tells it where the store does not, for people.
    told_by: &'static str,
}

impl Identity {
    /// Whether nothing but the vault knows of the castle.
    pub(crate) fn is_told_by_vault(&self) -> bool {
        !self.is_stored && self.told_by == "its vault"
    }
}

impl Stand {
    /// Which castle it is. Changes nothing.
    ///
    /// Where the store does not say, its machines do; an image alone does not tell the life, for it outlives lives, and neither do machines
    /// alone: the vault may have been left by a later one.
    pub(crate) async fn identify(&self) -> Result<Identity, Trouble> {
        let _at = self.kept.doors.at(format!("reading which castle it is in {}", self.kept.place));
        if let Some(castle) = self.kept.castle_id().await.map_err(Trouble::Failed)? {
            return Ok(Identity { castle, is_stored: true, is_born: true, seen_epoch: 0, told_by: "the state" });
        }
        self.identify_by_marks().await
    }

    /// The same for whoever does without the store.
    pub(crate) async fn identify_by_marks(&self) -> Result<Identity, Trouble> {
        let _at = self.looking_at("the marks of guests");
        let name = self.kept.key();
        let marks = self.marks(&name).await?;
        let in_vault = self.kept_in_vault(&name).await;
        let mut all: Vec<&CastleId> = marks.iter().map(|mark| &mark.castle).chain(&in_vault).collect();
        all.sort_by_key(|castle| castle.generation);
        let Some(newest) = all.pop() else {
            let castle = CastleId { name, lineage: UNBORN.to_owned(), generation: 1 };
            return Ok(Identity { castle, is_stored: false, is_born: false, seen_epoch: 0, told_by: "nobody" });
        };
        if let Some(other) = all.iter().find(|castle| castle.lineage != newest.lineage) {
            return Err(Trouble::Refused(format!(
                "the state is lost, and two castles called {name} have left their marks on the hypervisor or in the vault: lineages {} and {}; \
                 bring the state back (docs/state.md), or remove one of them by hand",
                newest.lineage, other.lineage
            )));
        }
        let is_of_machine = |mark: &Mark| mark.role != Role::Image && mark.castle == *newest;
        let told_by = if marks.iter().any(is_of_machine) || in_vault.is_empty() { "its marks" } else { "its vault" };
        let seen_epoch = marks.iter().map(|mark| mark.epoch).max().unwrap_or(0);
        Ok(Identity { castle: newest.clone(), is_stored: false, is_born: true, seen_epoch, told_by })
    }

    /// The marks of castles of this name: those within the range, or, if there are none, those elsewhere.
    pub(super) async fn marks(&self, name: &str) -> Result<Vec<Mark>, Trouble> {
        let unborn = CastleId { name: name.to_owned(), lineage: UNBORN.to_owned(), generation: 0 };
        let tags = Mark::tags_of(&unborn);
        let guests = self.client.guests().await?;
        let tagged = guests.iter().filter(|row| row.tags.is_superset(&tags));
        let (within, elsewhere): (Vec<&Guest>, Vec<&Guest>) =
            tagged.partition(|row| self.site.vmids.contains(&row.vmid));
        let mut unread: Option<Refusal> = None;
        for rows in [within, elsewhere] {
            let mut marks: Vec<Mark> = Vec::new();
            let asked = stream::iter(rows)
                .map(async |row: &Guest| (row, self.client.config(&row.host, row.vmid).await))
                .buffered(AT_ONCE);
            let asked: Vec<(&Guest, Result<Option<Config>, Refusal>)> = asked.collect().await;
            for (row, config) in asked {
                let config = match config {
                    // Its host does not answer; the others tell as well.
                    Err(refusal) if matches!(refusal.class, ErrorClass::Unreached | ErrorClass::Unknown) => {
                        unread = Some(refusal);
                        continue;
                    }
                    config => config?,
                };
                let Some(config) = config else { continue };
                let here = self.client.place(row.vmid).await?;
                match Mark::owner(&unborn, &here, config.description()) {
                    Owner::Ours(mark) | Owner::Earlier(mark) | Owner::Later(mark) | Owner::Other(mark)
                        if mark.castle.name == name =>
                    {
                        marks.push(mark);
                    }
                    Owner::Unreadable(format) => {
                        let subject = format!("VM {} ({})", row.vmid, config.get("name").unwrap_or("without a name"));
                        return Err(Fault::guard(subject, format.to_string()).next(format.next()).into());
                    }
                    _ => {}
                }
            }
            if !marks.is_empty() {
                return Ok(marks);
            }
        }
        unread.map_or(Ok(Vec::new()), |refusal| Err(refusal.into()))
    }

    /// The castles of this name that keep something in the vault. Whoever cannot ask it goes by the marks.
    async fn kept_in_vault(&self, name: &str) -> Vec<CastleId> {
        let Ok(Some(chamber)) = self.kept.chamber() else { return Vec::new() };
        let owners = Shelf::owners(chamber.vault.as_ref(), &chamber.path).await.unwrap_or_default();
        owners.into_iter().filter(|castle| castle.name == name).collect()
    }

    /// That the vault keeps something of a later life of this castle than the one that is known.
    pub(crate) async fn later_in_vault(&self, known: &CastleId) -> Option<Fault> {
        let kept = self.kept_in_vault(&known.name).await;
        let is_later = |castle: &&CastleId| castle.lineage == known.lineage && castle.generation > known.generation;
        let later = kept.iter().filter(is_later).max_by_key(|castle| castle.generation)?;
        let evidence =
            format!("is of life {} of this castle, and its state knows of {}", later.generation, known.generation);
        let subject = format!("what {} has in the vault", self.kept.name());
        Some(Fault::guard(subject, evidence).next(lineage::OUTDATED))
    }

    /// Holds that castle has the secrets of a life that it knows from others alone, or that nobody has begun one. Whoever minted other secrets for the
    /// same life would make two castles of one, each with a part of the machines.
    pub(crate) async fn hold_secrets(&self, identity: &Identity) -> Result<(), Trouble> {
        if identity.is_stored || !identity.is_born || self.window(&identity.castle).has_bundle().await? {
            return Ok(());
        }
        let CastleId { lineage, generation, .. } = &identity.castle;
        let evidence = format!(
            "is of lineage {lineage}, life {generation} by {}, and its secrets are neither in the state nor in a vault: its state is lost, or somebody else \
             just raises it from elsewhere",
            identity.told_by
        );
        let next = "let both use one state (state.store, docs/state.md), or bring the state back; if nobody has it: castle down, then castle up begins anew";
        Err(Fault::guard(self.kept.name(), evidence).next(next).into())
    }

    /// Which castle it is, written down in its store: found there, found by its marks or in its vault, or born now.
    pub(crate) async fn settle(&self, identity: &Identity, printer: &mut Printer) -> Result<CastleId, Trouble> {
        let failed = |error: lineage::LineageError| Trouble::of(&error);
        let store = self.kept.store.as_ref();
        if identity.is_stored {
            return Ok(identity.castle.clone());
        }
        if !identity.is_born {
            let entropy = self.kept.doors.entropy.as_ref();
            return lineage::find_or_found(store, &self.kept.key(), entropy).await.map_err(failed);
        }
        let say = if identity.told_by == "its marks" { "say" } else { "says" };
        printer.say(&format!(
            "The state of {} is lost; {} {say} that it is of lineage {}, life {}.",
            self.kept.name(),
            identity.told_by,
            identity.castle.lineage,
            identity.castle.generation
        ));
        lineage::adopt(store, &identity.castle).await.map_err(failed)?;
        Ok(identity.castle.clone())
    }
}
