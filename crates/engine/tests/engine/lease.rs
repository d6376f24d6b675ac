//! One writer at a time: across machines, crashes, lost answers and wrong clocks.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use castle_engine::{
    Applicant, CastleId, DirectoryStore, Expect, Fence, Found, Lease, LeaseError, Store, StoreError, StoreErrorKind,
    Stored, Tag, Taking, lineage, look,
};
use castle_seams::{BoxFuture, Clock, Disk};
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};

fn store() -> Arc<dyn Store> {
    let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
    Arc::new(DirectoryStore::new(disk, Path::new("/state")))
}

fn applicant(machine: &str) -> Applicant {
    Applicant { owner: format!("me@{machine}"), machine: machine.to_owned(), seen_epoch: 0 }
}

async fn take(
    store: &Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    machine: &str,
    taking: Taking,
) -> Result<Lease, LeaseError> {
    let chance = Chance::new(machine.bytes().map(u64::from).sum());
    Lease::take(store.clone(), "blue", (clock, &chance), &applicant(machine), taking).await
}

#[test]
fn the_second_machine_waits_until_the_first_is_done() {
    in_virtual_time(async |clock| {
        let (store, clock): (_, Arc<dyn Clock>) = (store(), Arc::new(*clock));
        let first = take(&store, clock.clone(), "one", Taking::Politely).await.unwrap();
        let error = take(&store, clock.clone(), "two", Taking::Politely).await.map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "me@one works on this castle since epoch 1, last seen 0 s ago");
        assert_eq!(first.check().await, Ok(1));
        first.release().await.unwrap();
        let second = take(&store, clock, "two", Taking::Politely).await.unwrap();
        assert_eq!((second.epoch(), second.check().await), (2, Ok(2)));
        assert!(first.check().await.unwrap_err().is_final());
    });
}

#[test]
fn a_process_killed_on_this_machine_is_followed_at_once() {
    in_virtual_time(async |clock| {
        let (store, started) = (store(), clock.monotonic());
        let doors: Arc<dyn Clock> = Arc::new(*clock);
        let dead = take(&store, doors.clone(), "one", Taking::Politely).await.unwrap();
        let next = take(&store, doors, "one", Taking::Politely).await.unwrap();
        assert_eq!((next.epoch(), clock.monotonic()), (2, started));
        assert!(dead.check().await.unwrap_err().is_final());
    });
}

#[test]
fn a_machine_that_died_is_followed_once_it_has_been_silent_and_does_not_stir() {
    in_virtual_time(async |clock| {
        let store = store();
        let doors: Arc<dyn Clock> = Arc::new(*clock);
        let dead = take(&store, doors.clone(), "one", Taking::Politely).await.unwrap();
        doors.sleep(Duration::from_secs(59)).await;
        assert!(matches!(take(&store, doors.clone(), "two", Taking::Politely).await, Err(LeaseError::Held(..))));
        doors.sleep(Duration::from_secs(2)).await;
        let next = take(&store, doors.clone(), "two", Taking::Politely).await.unwrap();
        assert_eq!((next.epoch(), clock.monotonic()), (2, Duration::from_secs(91)));
        let fault = dead.check().await.unwrap_err();
        assert!(fault.is_final() && fault.evidence.contains("me@two under epoch 2"), "{fault}");
        assert!(dead.beat().await.unwrap_err().is_final(), "and it cannot beat its way back");
    });
}

/// A clock whose calendar is wrong.
struct Wrong(VirtualClock, Duration);

impl Clock for Wrong {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn wall(&self) -> SystemTime {
        self.0.wall() + self.1
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        self.0.sleep(duration)
    }
}

#[test]
fn a_wrong_calendar_does_not_take_the_lease_of_one_who_lives() {
    in_virtual_time(async |clock| {
        let store = store();
        let lease = take(&store, Arc::new(*clock), "one", Taking::Politely).await.unwrap();
        let wrong: Arc<dyn Clock> = Arc::new(Wrong(*clock, Duration::from_secs(86_400)));
        let mut keeping = std::pin::pin!(lease.keep());
        let mut taking = std::pin::pin!(take(&store, wrong, "two", Taking::Politely));
        let taken = std::future::poll_fn(|context| {
            assert!(keeping.as_mut().poll(context).is_pending(), "it lost its lease");
            taking.as_mut().poll(context)
        })
        .await;
        assert!(matches!(taken, Err(LeaseError::Held(..))));
        assert_eq!(lease.check().await, Ok(1));
    });
}

#[test]
fn force_takes_it_from_anyone_and_the_other_stops() {
    in_virtual_time(async |clock| {
        let (store, doors): (_, Arc<dyn Clock>) = (store(), Arc::new(*clock));
        let first = take(&store, doors.clone(), "one", Taking::Politely).await.unwrap();
        let second = take(&store, doors, "two", Taking::ByForce).await.unwrap();
        assert_eq!(second.epoch(), 2);
        assert!(first.check().await.unwrap_err().is_final());
        let (holder, _) = look(store.as_ref(), "blue").await.unwrap().unwrap();
        assert_eq!((holder.epoch, holder.owner.as_str()), (2, "me@two"));
    });
}

/// A store whose answer to a write is lost, after or before the effect.
struct Forgetful {
    inner: Arc<dyn Store>,
    lose: Mutex<Option<bool>>,
}

impl Store for Forgetful {
    fn get<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Found>> {
        self.inner.get(key)
    }

    fn put<'a>(&'a self, key: &'a str, bytes: &'a [u8], expect: Expect<'a>) -> Stored<'a, Tag> {
        Box::pin(async move {
            let lose = self.lose.lock().unwrap().take();
            let lost =
                StoreError { kind: StoreErrorKind::Unknown, subject: key.to_owned(), evidence: "no answer".to_owned() };
            match lose {
                None => self.inner.put(key, bytes, expect).await,
                Some(effect) => {
                    if effect {
                        self.inner.put(key, bytes, expect).await?;
                    }
                    Err(lost)
                }
            }
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<String>> {
        self.inner.list(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        self.inner.delete(key)
    }
}

#[test]
fn a_lost_answer_is_made_out_by_looking() {
    in_virtual_time(async |clock| {
        let doors: Arc<dyn Clock> = Arc::new(*clock);
        let forgetful = Arc::new(Forgetful { inner: store(), lose: Mutex::new(Some(true)) });
        let store: Arc<dyn Store> = forgetful.clone();
        let lease = take(&store, doors.clone(), "one", Taking::Politely).await.unwrap();
        assert_eq!(lease.check().await, Ok(1), "it was taken, though nobody said so");
        for effect in [true, false] {
            doors.sleep(Duration::from_secs(5)).await;
            *forgetful.lose.lock().unwrap() = Some(effect);
            let beat = lease.beat().await;
            assert_eq!(beat.is_ok(), effect, "{beat:?}");
            assert!(beat.err().is_none_or(|fault| !fault.is_final()), "one lost beat is not the end");
            assert_eq!(lease.beat().await, Ok(()));
        }
        assert_eq!(lease.check().await, Ok(1));
    });
}

/// A store that writes whatever it is told to expect.
struct Careless(Arc<dyn Store>);

impl Store for Careless {
    fn get<'a>(&'a self, key: &'a str) -> Stored<'a, Option<Found>> {
        self.0.get(key)
    }

    fn put<'a>(&'a self, key: &'a str, bytes: &'a [u8], _: Expect<'a>) -> Stored<'a, Tag> {
        Box::pin(async move {
            let found = self.0.get(key).await?;
            let expect = found.as_ref().map_or(Expect::Nothing, |found| Expect::Version(&found.tag));
            self.0.put(key, bytes, expect).await
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Stored<'a, Vec<String>> {
        self.0.list(prefix)
    }

    fn delete<'a>(&'a self, key: &'a str) -> Stored<'a, ()> {
        self.0.delete(key)
    }
}

#[test]
fn a_store_without_conditional_writes_is_refused_at_the_birth_of_a_castle() {
    in_virtual_time(async |_| {
        let chance = Chance::new(1);
        let error = lineage::find_or_found(&Careless(store()), "blue", &chance).await.unwrap_err();
        assert!(matches!(error, lineage::LineageError::Unconditional(_)), "{error}");
        let good = store();
        let castle = lineage::find_or_found(good.as_ref(), "blue", &chance).await.unwrap();
        assert_eq!(lineage::find_or_found(good.as_ref(), "blue", &chance).await.unwrap(), castle, "born once");
    });
}

#[test]
fn a_store_that_has_forgotten_starts_after_what_the_marks_bear() {
    in_virtual_time(async |clock| {
        let seen = Applicant { seen_epoch: 7, ..applicant("here") };
        let chance = Chance::new(1);
        let doors = (Arc::new(*clock) as Arc<dyn Clock>, &chance as &dyn castle_seams::Entropy);
        let lease = Lease::take(store(), "blue", doors, &seen, Taking::Politely).await.unwrap();
        assert_eq!(lease.epoch(), 8);
    });
}

#[test]
fn lives_follow_each_other_and_a_castle_is_adopted_once() {
    in_virtual_time(async |_| {
        let store = store();
        let castle = CastleId { name: "blue".into(), lineage: "by its marks".into(), generation: 3 };
        lineage::adopt(store.as_ref(), &castle).await.unwrap();
        lineage::adopt(store.as_ref(), &castle).await.unwrap();
        let other = CastleId { lineage: "another".into(), ..castle.clone() };
        assert!(lineage::adopt(store.as_ref(), &other).await.is_err(), "the name is taken");
        let next = lineage::next_life(store.as_ref(), &castle).await.unwrap();
        assert_eq!(next.generation, 4);
        assert_eq!(lineage::next_life(store.as_ref(), &castle).await.unwrap(), next, "begun once");
        assert_eq!(lineage::find(store.as_ref(), "blue").await.unwrap(), Some(next));
    });
}

#[test]
fn castles_that_share_a_folder_do_not_stand_in_each_others_way() {
    in_virtual_time(async |_| {
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let store = DirectoryStore::new(disk.clone(), Path::new("/state"));
        store.put("blue/embedded/lease", b"1", Expect::Nothing).await.unwrap();
        let writing = disk.try_lock(Path::new("/state/blue/embedded/.lock"), 0o600).unwrap();
        let busy = store.put("blue/embedded/castle", b"1", Expect::Nothing).await.unwrap_err();
        assert_eq!(busy.kind, StoreErrorKind::Unavailable);
        store.put("green/embedded/lease", b"1", Expect::Nothing).await.unwrap();
        drop(writing);
        store.put("blue/embedded/castle", b"1", Expect::Nothing).await.unwrap();
    });
}
