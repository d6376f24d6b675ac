//! A world of things: enough like the real one to get every kind of step wrong in it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use castle_engine::{Change, Class, Decision, Fault, Impact, Operation, Step};
use castle_seams::{BoxFuture, Clock};

use castle_rehearsal::Chance;
use castle_rehearsal::Pulse;

/// Something in the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Thing {
    /// Cannot be changed: another kind is another thing.
    pub kind: u32,
    /// Can be changed while it runs.
    pub size: u32,
    /// Needs a restart to be changed.
    pub firmware: u32,
    /// Changed one at a time.
    pub members: u32,
}

/// How a call ends that does not end well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// Refused; nothing was done.
    Refused,
    /// No answer; nothing was done.
    LostBefore,
    /// No answer; it was done.
    LostAfter,
    /// Come back later, there is too much to do.
    Busy,
    /// It will never work.
    Never,
}

/// How often calls end badly, in a thousand, and how long they take.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// How many of a thousand calls fail, one way or another.
    pub failing: u64,
    /// The longest a call takes, in milliseconds.
    pub slowest_ms: u64,
    /// How long it takes until an effect shows, in milliseconds.
    pub lag_ms: u64,
}

/// A thing and whose it is.
type Owned = (Thing, String);

#[derive(Debug, Default)]
struct State {
    things: BTreeMap<String, Owned>,
    /// What still shows of a thing, and until when.
    stale: BTreeMap<String, (Duration, Option<Owned>)>,
    effects: BTreeMap<String, u32>,
    calls: u64,
    failing: BTreeMap<u64, Call>,
    forbidden: Option<String>,
}

/// The world.
#[derive(Clone)]
pub struct ModelWorld {
    state: Arc<Mutex<State>>,
    pulse: Pulse,
    clock: Arc<dyn Clock>,
    chance: Arc<Chance>,
    weather: Weather,
    witness: Option<Witness>,
}

/// Sees every effect at the moment it is had.
type Witness = Arc<dyn Fn(&Operation) + Send + Sync>;

impl ModelWorld {
    /// An empty world, whose effects are beats of `pulse`.
    #[must_use]
    pub fn new(pulse: &Pulse, clock: Arc<dyn Clock>, seed: u64, weather: Weather) -> Self {
        Self {
            state: Arc::default(),
            pulse: pulse.clone(),
            clock,
            chance: Arc::new(Chance::new(seed)),
            weather,
            witness: None,
        }
    }

    /// The same world, met by a process with another pulse.
    #[must_use]
    pub fn after_crash(&self, pulse: &Pulse, clock: Arc<dyn Clock>) -> Self {
        Self { pulse: pulse.clone(), clock, ..self.clone() }
    }

    /// The same world with a witness.
    #[must_use]
    pub fn witnessed(self, witness: impl Fn(&Operation) + Send + Sync + 'static) -> Self {
        Self { witness: Some(Arc::new(witness)), ..self }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something there that is not ours.
    pub fn put(&self, name: &str, thing: Thing, owner: &str) {
        self.state().things.insert(name.to_owned(), (thing, owner.to_owned()));
    }

    /// All things, in words.
    #[must_use]
    pub fn snapshot(&self) -> String {
        format!("{:#?}", self.state().things.iter().map(|(name, (thing, _))| (name, thing)).collect::<BTreeMap<_, _>>())
    }

    /// How often each thing had each effect.
    #[must_use]
    pub fn effects(&self) -> BTreeMap<String, u32> {
        self.state().effects.clone()
    }

    /// How many calls there have been.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Makes the call of this number end badly, counted from zero.
    pub fn fail_call(&self, number: u64, how: Call) {
        self.state().failing.insert(number, how);
    }

    /// Makes every call for things whose names begin so end in a final refusal.
    pub fn forbid(&self, prefix: &str) {
        self.state().forbidden = Some(prefix.to_owned());
    }

    fn weather(&self, number: u64) -> Option<Call> {
        let drawn = self.chance.below(1000) < self.weather.failing;
        let kinds = [Call::Refused, Call::LostBefore, Call::LostAfter, Call::Busy];
        let chosen = kinds[usize::try_from(self.chance.below(4)).unwrap_or_default()];
        self.state().failing.remove(&number).or(drawn.then_some(chosen))
    }

    /// One call: it takes its time, may go wrong, and has its effect as a beat of the pulse.
    async fn call<T>(&self, name: &str, effect: impl FnOnce(&mut State) -> T) -> Result<T, Fault> {
        let number = {
            let mut state = self.state();
            state.calls += 1;
            state.calls - 1
        };
        let took = Duration::from_millis(self.chance.below(self.weather.slowest_ms + 1));
        if !took.is_zero() {
            self.clock.sleep(took).await;
        }
        let lost = |evidence| Err(Fault::new(Class::EffectUnknown, name, evidence));
        let forbidden = self.state().forbidden.as_ref().is_some_and(|prefix| name.starts_with(prefix.as_str()));
        let how = if forbidden { Some(Call::Never) } else { self.weather(number) };
        match how {
            Some(Call::Refused) => return Err(Fault::new(Class::RefusedBeforeEffect, name, "connection refused")),
            Some(Call::LostBefore) => return lost("no answer"),
            Some(Call::Busy) => return Err(Fault::new(Class::RetryableAfter(None), name, "locked").contended()),
            Some(Call::Never) => return Err(Fault::new(Class::Final, name, "forbidden").next("ask for permission")),
            Some(Call::LostAfter) | None => {}
        }
        match self.pulse.effect(|| effect(&mut self.state())) {
            Some(_) if how == Some(Call::LostAfter) => lost("the answer was lost"),
            Some(result) => Ok(result),
            // The process is dead: it never hears.
            None => std::future::pending().await,
        }
    }
}

/// Wants a thing to be, or not to be.
pub struct ThingStep {
    /// The world.
    pub world: ModelWorld,
    /// The name of the thing.
    pub name: String,
    /// How it is wanted; nothing to have it gone.
    pub wanted: Option<Thing>,
}

/// The things that are made before this one.
type Before = (Vec<Arc<String>>,);

/// What is done to a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Doing {
    /// It comes to be.
    Create,
    /// It goes.
    Remove,
    /// It gets its firmware, and restarts.
    Flash,
    /// It gets its size.
    Resize,
    /// One more member is rolled: then so many are.
    Roll(u32),
}

impl Step for ThingStep {
    type Needs = Before;
    type Observed = Option<Owned>;
    type Action = Doing;
    type Output = String;

    fn observe<'a>(&'a self, _: &'a Before) -> BoxFuture<'a, Result<Self::Observed, Fault>> {
        Box::pin(self.world.call(&self.name, |state| match state.stale.get(&self.name) {
            Some((until, old)) if *until > self.world.clock.monotonic() => old.clone(),
            _ => state.things.get(&self.name).cloned(),
        }))
    }

    fn decide(&self, _: &Before, observed: &Self::Observed) -> Decision<Doing> {
        let number = |doing, field: &str, (is, wanted): (u32, u32), (verb, impact): (&str, Impact)| {
            let change = Change::new(verb, impact).differing(field, Some(is.to_string()), Some(wanted.to_string()));
            (is != wanted).then_some(Decision::Act(doing, change))
        };
        match (observed, &self.wanted) {
            (None, None) => Decision::Nothing,
            (None, Some(_)) => Decision::Act(Doing::Create, Change::new("create", Impact::Create)),
            (Some(_), None) => Decision::Act(Doing::Remove, Change::new("destroy", Impact::Destroy)),
            (Some((is, _)), Some(wanted)) => {
                number(Doing::Remove, "kind", (is.kind, wanted.kind), ("remove", Impact::Replace))
                    .or_else(|| {
                        number(Doing::Flash, "firmware", (is.firmware, wanted.firmware), ("flash", Impact::Reboot))
                    })
                    .or_else(|| number(Doing::Resize, "size", (is.size, wanted.size), ("resize", Impact::InPlace)))
                    .or_else(|| {
                        let (next, verb) = (is.members + 1, format!("roll-{}", is.members + 1));
                        number(Doing::Roll(next), "members", (is.members, wanted.members), (&verb, Impact::Rolling))
                    })
                    .unwrap_or(Decision::Nothing)
            }
        }
    }

    fn act<'a>(
        &'a self,
        _: &'a Before,
        _: &'a Self::Observed,
        doing: &'a Doing,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.world.call(&self.name, move |state| {
            if let Some(witness) = &self.world.witness {
                witness(operation);
            }
            let until = self.world.clock.monotonic() + Duration::from_millis(self.world.weather.lag_ms);
            state.stale.insert(self.name.clone(), (until, state.things.get(&self.name).cloned()));
            *state.effects.entry(format!("{} {doing:?}", self.name)).or_default() += 1;
            let wanted = self.wanted.clone().unwrap_or_default();
            let thing = state.things.get_mut(&self.name).map(|(thing, _)| thing);
            match (doing, thing) {
                (Doing::Create, _) => {
                    let born = Thing { members: 0, ..wanted };
                    state.things.insert(self.name.clone(), (born, operation.id.to_string()));
                }
                (Doing::Remove, _) => {
                    state.things.remove(&self.name);
                }
                (Doing::Flash, Some(thing)) => thing.firmware = wanted.firmware,
                (Doing::Resize, Some(thing)) => thing.size = wanted.size,
                (Doing::Roll(_), Some(thing)) => thing.members += 1,
                (Doing::Flash | Doing::Resize | Doing::Roll(_), None) => {}
            }
        }))
    }

    fn output(&self, _: &Before, _: &Self::Observed) -> String {
        self.name.clone()
    }
}
