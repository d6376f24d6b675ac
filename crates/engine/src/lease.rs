//! One writer a castle, across machines.
//!
//! The lease is a record that only its holder changes, by compare-and-swap. Who holds it is decided by its *epoch* alone: it grows
//! with every taking, and a writer that finds another than its own stops before its next effect. Clocks only tell when it is worth
//! trying to take a lease whose holder has gone silent.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use castle_seams::{BoxFuture, Clock, Entropy};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::fault::{Class, Fault};
use crate::fence::Fence;
use crate::id::hex;
use crate::note::{self, Unreadable};
use crate::store::{Expect, Store, StoreError, StoreErrorKind, Tag};

/// A holder that was silent for so long is taken for dead.
pub const LIFE: Duration = Duration::from_secs(60);
/// How often a holder shows that it lives.
pub const HEARTBEAT: Duration = Duration::from_secs(15);

/// The format of leases.
const FORMAT: u64 = 1;

/// Who holds, or held, the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Counts the takings. It never shrinks.
    pub epoch: u64,
    /// Who: `user@machine`.
    pub owner: String,
    /// On which machine.
    pub machine: String,
    /// When it was taken, in seconds since 1970.
    pub taken_unix: u64,
    /// When the holder last showed that it lives.
    pub heartbeat_unix: u64,
    /// Whether it was given back.
    pub released: bool,
    /// Drawn at every taking: tells one's own writing from another's.
    nonce: String,
}

impl Holder {
    /// How long it has been silent.
    #[must_use]
    pub fn silent_for(&self, now: SystemTime) -> Duration {
        now.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .saturating_sub(Duration::from_secs(self.heartbeat_unix))
    }

    /// Whether it is to be reckoned with.
    #[must_use]
    pub fn is_alive(&self, now: SystemTime) -> bool {
        !self.released && self.silent_for(now) < LIFE
    }
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LeaseError {
    /// Someone else holds it.
    #[error("{} works on this castle since epoch {}, last seen {} s ago", .0.owner, .0.epoch, .1.as_secs())]
    Held(Box<Holder>, Duration),
    /// A newer castle wrote the record.
    #[error("{0} was written by a newer castle (format {1}; this one knows {FORMAT}): use that one")]
    Newer(String, u64),
    /// The record is not one.
    #[error("{0} is not a lease")]
    Damaged(String),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// There is no chance to be had.
    #[error("{0}")]
    Entropy(String),
}

/// How to take a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// Only if nobody holds it who may be alive. A holder on this very machine is known to be dead: the machine's own lock, which
    /// ends with its process, has been taken first.
    Politely,
    /// From whoever holds it: someone decided that they are gone.
    ByForce,
}

/// Who asks for a lease.
#[derive(Clone, Debug)]
pub struct Applicant {
    /// `user@machine`.
    pub owner: String,
    /// The machine.
    pub machine: String,
    /// The highest epoch that marks in the world bear. A store that has forgotten it starts after it.
    pub seen_epoch: u64,
}

/// The lease of a castle, held.
pub struct Lease {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    key: String,
    held: Mutex<Held>,
}

struct Held {
    holder: Holder,
    tag: Tag,
    /// Who took it from us, once someone did.
    lost_to: Option<String>,
}

fn key_of(castle: &str) -> String {
    format!("{castle}/lease")
}

/// The lease of a castle as it is now, held or not.
///
/// # Errors
///
/// If it cannot be read.
pub async fn look(store: &dyn Store, castle: &str) -> Result<Option<(Holder, Tag)>, LeaseError> {
    let key = key_of(castle);
    let Some(found) = store.get(&key).await? else { return Ok(None) };
    Ok(Some((read(&key, &found.bytes)?, found.tag)))
}

fn read(key: &str, bytes: &[u8]) -> Result<Holder, LeaseError> {
    note::read(FORMAT, bytes).map_err(|why| match why {
        Unreadable::Damaged(_) => LeaseError::Damaged(key.to_owned()),
        Unreadable::Newer(format) => LeaseError::Newer(key.to_owned(), format),
    })
}

impl Lease {
    /// Takes the lease.
    ///
    /// # Errors
    ///
    /// [`LeaseError::Held`] if someone else has it.
    pub async fn take(
        store: Arc<dyn Store>,
        castle: &str,
        doors: (Arc<dyn Clock>, &dyn Entropy),
        applicant: &Applicant,
        taking: Taking,
    ) -> Result<Self, LeaseError> {
        let (clock, entropy) = doors;
        let key = key_of(castle);
        let mut before = look(store.as_ref(), castle).await?;
        let elsewhere = |holder: &Holder| !holder.released && holder.machine != applicant.machine;
        if let Some((holder, tag)) =
            before.clone().filter(|(holder, _)| taking == Taking::Politely && elsewhere(holder))
        {
            if !holder.is_alive(clock.wall()) {
                // It looks dead, but one of the two clocks may be wrong: watch whether it stirs.
                clock.sleep(HEARTBEAT * 2).await;
                before = look(store.as_ref(), castle).await?;
            }
            if holder.is_alive(clock.wall()) || before.as_ref().is_none_or(|(_, now)| *now != tag) {
                let silent = holder.silent_for(clock.wall());
                return Err(LeaseError::Held(Box::new(holder), silent));
            }
        }
        let now = clock.wall();
        let mut drawn = [0; 16];
        entropy.fill(&mut drawn).map_err(|error| LeaseError::Entropy(error.to_string()))?;
        let unix = unix(now);
        let holder = Holder {
            epoch: before.as_ref().map_or(0, |(holder, _)| holder.epoch).max(applicant.seen_epoch) + 1,
            owner: applicant.owner.clone(),
            machine: applicant.machine.clone(),
            taken_unix: unix,
            heartbeat_unix: unix,
            released: false,
            nonce: hex(&drawn),
        };
        let expect = before.as_ref().map_or(Expect::Nothing, |(_, tag)| Expect::Version(tag));
        match write(store.as_ref(), &key, &holder, expect).await? {
            Written::Ours(tag) => {
                let held = Mutex::new(Held { holder, tag, lost_to: None });
                Ok(Self { store, clock, key, held })
            }
            Written::Theirs(Some(other)) => {
                let silent = other.silent_for(now);
                Err(LeaseError::Held(Box::new(other), silent))
            }
            Written::Theirs(None) => Err(LeaseError::Damaged(key)),
        }
    }

    /// Under which epoch this writer writes.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.held().holder.epoch
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows that this writer lives.
    ///
    /// # Errors
    ///
    /// A final fault if someone else has the lease now.
    pub async fn beat(&self) -> Result<(), Fault> {
        self.update(|holder, unix| holder.heartbeat_unix = unix).await
    }

    /// Gives the lease back.
    ///
    /// # Errors
    ///
    /// A final fault if someone else has the lease now.
    pub async fn release(&self) -> Result<(), Fault> {
        self.update(|holder, _| holder.released = true).await
    }

    /// Beats for as long as it is polled; completes when the lease is lost.
    pub async fn keep(&self) -> Fault {
        loop {
            self.clock.sleep(HEARTBEAT).await;
            // Who cannot be reached now may be reached at the next beat; the fence decides about effects meanwhile.
            if let Err(fault) = self.beat().await
                && fault.is_final()
            {
                return fault;
            }
        }
    }

    async fn update(&self, change: impl FnOnce(&mut Holder, u64)) -> Result<(), Fault> {
        let (mut holder, tag) = {
            let held = self.held();
            if let Some(other) = &held.lost_to {
                return Err(self.lost(other));
            }
            (held.holder.clone(), held.tag.clone())
        };
        change(&mut holder, unix(self.clock.wall()));
        match write(self.store.as_ref(), &self.key, &holder, Expect::Version(&tag)).await {
            Ok(Written::Ours(tag)) => {
                let mut held = self.held();
                (held.holder, held.tag) = (holder, tag);
                Ok(())
            }
            Ok(Written::Theirs(other)) => Err(self.lose(other)),
            Err(error) => Err(error.into()),
        }
    }

    fn lose(&self, other: Option<Holder>) -> Fault {
        let other = other.map_or("someone".to_owned(), |other| format!("{} under epoch {}", other.owner, other.epoch));
        self.held().lost_to = Some(other.clone());
        self.lost(&other)
    }

    fn lost(&self, other: &str) -> Fault {
        Fault::new(Class::Final, &self.key, format!("the lease was taken by {other}"))
            .next("castle lease show; then run the command again when they are done")
    }
}

impl Fence for Lease {
    fn check(&self) -> BoxFuture<'_, Result<u64, Fault>> {
        Box::pin(async {
            let mine = {
                let held = self.held();
                if let Some(other) = &held.lost_to {
                    return Err(self.lost(other));
                }
                held.holder.epoch
            };
            match self.store.get(&self.key).await.map_err(Fault::from)? {
                Some(found) => match read(&self.key, &found.bytes) {
                    Ok(holder) if holder.epoch == mine && !holder.released => Ok(mine),
                    Ok(holder) => Err(self.lose(Some(holder))),
                    Err(_) => Err(self.lose(None)),
                },
                None => Err(self.lose(None)),
            }
        })
    }
}

/// Who wrote the record that is there now.
enum Written {
    Ours(Tag),
    Theirs(Option<Holder>),
}

async fn write(store: &dyn Store, key: &str, holder: &Holder, expect: Expect<'_>) -> Result<Written, StoreError> {
    let bytes = note::bytes(FORMAT, holder);
    let error = match store.put(key, &bytes, expect).await {
        Ok(tag) => return Ok(Written::Ours(tag)),
        Err(error) => error,
    };
    if !matches!(error.kind, StoreErrorKind::Conflict | StoreErrorKind::Unknown) {
        return Err(error);
    }
    // Lost, or lost sight of: what is there tells.
    match store.get(key).await? {
        Some(found) if found.bytes == bytes => Ok(Written::Ours(found.tag)),
        Some(found) => {
            let other = read(key, &found.bytes).ok();
            let same = other.as_ref().is_some_and(|other| other.nonce == holder.nonce);
            // An older beat of our own: this one did not arrive.
            if same {
                Err(StoreError { kind: StoreErrorKind::Unavailable, ..error })
            } else {
                Ok(Written::Theirs(other))
            }
        }
        None => Ok(Written::Theirs(None)),
    }
}

fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As they were written. What is here has to be read for as long as there are castles.
    #[test]
    fn recorded_leases_are_read() {
        let one = br#"{"format":1,"epoch":3,"owner":"ann@desk","machine":"desk","taken_unix":1794835838,"heartbeat_unix":1794835853,"released":false,"nonce":"000102030405060708090a0b0c0d0e0f","digest":"f4ccee8af72061ba9bd39d3ded810ba4"}"#;
        let read_one = read("blue/lease", one).unwrap();
        assert_eq!((read_one.epoch, read_one.owner.as_str(), read_one.released), (3, "ann@desk", false));
        assert_eq!(note::bytes(FORMAT, &read_one), one);
        let later = read("blue/lease", &note::bytes(2, &serde_json::json!({"holders": []}))).unwrap_err();
        assert_eq!(later, LeaseError::Newer("blue/lease".to_owned(), 2));
        assert!(later.to_string().contains("a newer castle (format 2; this one knows 1)"), "{later}");
        // Nobody knows whether one without a digest is what was written.
        let (said, _) = std::str::from_utf8(one).unwrap().split_once(",\"digest\"").unwrap();
        for damaged in ["{}", &format!("{said}}}")] {
            let told = read("blue/lease", damaged.as_bytes()).unwrap_err();
            assert_eq!(told, LeaseError::Damaged("blue/lease".to_owned()));
        }
    }
}
