//! Small files that are damaged, set aside by the verbs that promise to work without them: what stands tells the same.

use castle_engine::{
    CastleId, Expect, LeaseError, SealError, StateError, StoreErrorKind, lineage, lineage::LineageError, look,
};
use castle_layers::{platform, secrets};

use super::{Stand, Trouble};
use crate::output::Printer;

/// How many damaged ones of a file are kept.
const MOST_ASIDE: u32 = 99;

impl Stand {
    /// Whether what says which castle this is cannot be read, and a verb that promises to do without it goes by the marks.
    pub(crate) async fn is_nameless(&self) -> bool {
        let found = lineage::find(self.kept.store.as_ref(), &self.kept.key()).await;
        matches!(found, Err(LineageError::Damaged(..)))
    }

    /// Sets aside what does not say any more which castle this is, or who works on it; returns the highest epoch that marks in the world bear,
    /// if that was needed.
    pub(crate) async fn mend(&self, printer: &mut Printer) -> Result<u64, Trouble> {
        let (store, name) = (self.kept.store.as_ref(), self.kept.key());
        if let Err(LineageError::Damaged(key, _)) = lineage::find(store, &name).await {
            self.set_aside(&key, printer).await?;
        }
        match look(store, &name).await {
            Err(LeaseError::Damaged(key)) => {
                // Whoever comes after the one that nobody knows has a higher epoch than all that they have marked.
                let epoch = self.highest_epoch().await?;
                self.set_aside(&key, printer).await?;
                Ok(epoch)
            }
            _ => Ok(0),
        }
    }

    /// Sets aside the newest records of this castle's state that cannot be read, and what this machine remembers of them if they are at odds. For
    /// whoever holds the lease. What only lacks its key is left alone.
    pub(crate) async fn mend_state(&self, castle: &CastleId, printer: &mut Printer) -> Result<(), Trouble> {
        let kept = &self.kept;
        let mut is_forgotten = kept.mend_memory(printer).map_err(Trouble::Failed)?;
        for layer in [secrets::layer(), platform::layer()] {
            // Each round sets something aside.
            loop {
                let mut state = kept.state(castle.clone()).map_err(Trouble::Failed)?;
                // Who may have sealed the others is told by the secrets.
                let _ = state.latest(&secrets::layer()).await;
                let key = match state.latest(&layer).await {
                    Err(StateError::Seal { error: SealError::WrongKey { .. }, .. }) | Ok(_) => break,
                    Err(StateError::RolledBack { .. }) => None,
                    Err(StateError::Seal { subject, .. } | StateError::Mistaken { subject, .. }) => Some(subject),
                    Err(_) => break,
                };
                match key {
                    _ if !is_forgotten => {
                        kept.forget_memory(printer).map_err(Trouble::Failed)?;
                        is_forgotten = true;
                    }
                    Some(key) => self.set_aside(&key, printer).await?,
                    None => break,
                }
            }
        }
        Ok(())
    }

    /// The highest epoch that the marks of castles of this name bear.
    async fn highest_epoch(&self) -> Result<u64, Trouble> {
        Ok(self.marks(&self.kept.key()).await?.iter().map(|mark| mark.epoch).max().unwrap_or(0))
    }

    async fn set_aside(&self, key: &str, printer: &mut Printer) -> Result<(), Trouble> {
        let (store, name) = (self.kept.store.as_ref(), self.kept.key());
        let failed = |error: castle_engine::StoreError| Trouble::of(&error);
        let Some(found) = store.get(key).await.map_err(failed)? else { return Ok(()) };
        let first = format!("{name}/damaged/{}", key.strip_prefix(&format!("{name}/")).unwrap_or(key));
        let (mut aside, mut number) = (first.clone(), 1);
        // Nothing goes that is not kept: beside what was set aside before.
        while let Err(error) = store.put(&aside, &found.bytes, Expect::Nothing).await {
            let earlier = match error.kind {
                StoreErrorKind::Conflict => store.get(&aside).await.map_err(failed)?,
                _ => None,
            };
            match earlier {
                Some(earlier) if earlier.bytes == found.bytes => break,
                Some(_) if number < MOST_ASIDE => {
                    number += 1;
                    aside = format!("{first}.{number}");
                }
                _ => {
                    let why = format!("{key} is damaged, and could not be set aside as {aside}: {error}");
                    return Err(Trouble::Failed(format!("{why}\n  next: move {aside} in {} away", self.kept.place)));
                }
            }
        }
        store.delete(key).await.map_err(failed)?;
        printer.say(&format!("{key} in {} is damaged, and is set aside as {aside}.", self.kept.place));
        Ok(())
    }
}
