//! The secrets layer: so far the Talos bundle, minted once in the life of a castle and sealed before its first machine exists.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{
    CastleId, Change, Class, Decision, Fault, Gate, GraphBuilder, Handle, Impact, Layer, Operation, Place, State,
    StateError, Step, StepId, Verdict,
};
use castle_proxmox::model::Mark;
use castle_seams::{BoxFuture, Clock, Entropy, KeyMint};
use castle_secrets::Secret;
use castle_secrets::validate::{Check, SecretsValid};
use castle_spec::model::ServiceAccountKey;
use castle_spec::{Castle, Node};
use castle_talos::model::bundle::{self, Bundle};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::Doors;
use castle_talos::steps::Keys;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use crate::survey::Survey;

/// The name of the layer.
#[must_use]
pub fn layer() -> Layer {
    Layer::new("secrets")
}

/// What is written down of the etcd of a life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// The control plane that it begins on.
    pub first: String,
    /// Whether it has.
    pub has_begun: bool,
}

impl Beginning {
    pub(crate) fn read(value: &Value) -> Option<Self> {
        Some(Self { first: value["first"].as_str()?.to_owned(), has_begun: value["begun"].as_bool()? })
    }

    pub(crate) fn json(&self) -> Value {
        json!({"first": self.first, "begun": self.has_begun})
    }
}

/// Where the bundle is kept, and what it is made with.
pub struct Strongroom {
    /// The sealed state; nothing for whoever only looks and has no key to it.
    pub state: Option<Arc<Mutex<State>>>,
    /// Which life of the castle it is for: each has secrets of its own.
    pub generation: u64,
    /// The control plane that etcd begins on, if it has not yet.
    pub etcd_begins_on: String,
    /// Finds the secrets of an existing cluster that the file names.
    pub given: Option<Search<Secret>>,
    /// Finds what this life of the castle has saved in its vault.
    pub saved: Option<Search<Saved>>,
    /// Where keys come from.
    pub mint: Arc<dyn KeyMint>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Finds what there is elsewhere than in the state; nothing if there is none.
pub type Search<T> = Box<dyn Fn() -> BoxFuture<'static, Option<Result<T, Fault>>> + Send + Sync>;

/// What a life of a castle has saved in its vault.
#[derive(Debug)]
pub struct Saved {
    /// Which life.
    pub generation: u64,
    /// The bundle, as a text.
    pub bundle: Secret,
    /// What is written down of its etcd.
    pub beginning: Option<Beginning>,
}

/// The record of a life. Its version is that of the record around it.
fn payload(generation: u64, bundle: &Secret, beginning: &Beginning) -> Value {
    json!({"generation": generation, "bundle": bundle.expose(), "etcd": beginning.json()})
}

/// An older record with what the newest of the same life says of its etcd, where `records` are all, the newest first: one that has begun since does
/// not begin once more because an older record comes back.
#[must_use]
pub fn restored<'r>(older: &Value, mut records: impl Iterator<Item = &'r Value>) -> Value {
    let mut payload = older.clone();
    if let Some(newest) = records.find(|newest| newest["generation"] == older["generation"]) {
        payload["etcd"] = newest["etcd"].clone();
    }
    payload
}

impl Strongroom {
    /// The etcd of a life that has none yet.
    pub(crate) fn to_begin(&self) -> Beginning {
        Beginning { first: self.etcd_begins_on.clone(), has_begun: false }
    }

    pub(crate) fn doors(&self) -> Doors<'_> {
        Doors { mint: self.mint.as_ref(), entropy: self.entropy.as_ref(), clock: self.clock.as_ref() }
    }

    /// The bundle of this life, if there is one.
    ///
    /// # Errors
    ///
    /// If the state cannot be read, or what it holds is no bundle.
    pub async fn bundle(&self) -> Result<Option<Bundle>, Fault> {
        let payload = self.payload().await?;
        let Some(text) = payload.as_ref().and_then(|payload| payload["bundle"].as_str()) else { return Ok(None) };
        let damaged = |error: bundle::BundleError| {
            Fault::new(Class::Final, "the Talos bundle in the state", error.to_string())
                .next("castle state history secrets")
        };
        Ok(Some(Bundle::load(text, self.clock.wall()).map_err(damaged)?.bundle))
    }

    /// What the state has of this life.
    async fn payload(&self) -> Result<Option<Value>, Fault> {
        let Some(state) = &self.state else { return Ok(None) };
        let record = state.lock().await.latest(&layer()).await.map_err(|error| fault(&error))?;
        Ok(record.map(|record| record.payload).filter(|payload| payload["generation"] == self.generation))
    }

    /// What the state says of the etcd of this life.
    ///
    /// # Errors
    ///
    /// If the state cannot be read.
    pub async fn beginning(&self) -> Result<Option<Beginning>, Fault> {
        Ok(self.payload().await?.and_then(|payload| Beginning::read(&payload["etcd"])))
    }

    /// Whether the state has the secrets of this life, and does not say that its etcd has begun: not yet, or nothing of it at all.
    pub(crate) async fn lacks_proof(&self) -> Result<bool, Fault> {
        let is_proved = |payload: &Value| Beginning::read(&payload["etcd"]).is_some_and(|known| known.has_begun);
        Ok(self.payload().await?.is_some_and(|payload| !is_proved(&payload)))
    }

    /// Writes into the state whether the etcd of this life has begun. That it has not is for whoever has seen that none of its machines is
    /// left.
    ///
    /// # Errors
    ///
    /// If the state cannot be read or written.
    pub async fn note_begun(&self, has_begun: bool, epoch: u64) -> Result<(), Fault> {
        let (Some(mut payload), Some(state)) = (self.payload().await?, &self.state) else { return Ok(()) };
        let known = Beginning::read(&payload["etcd"]).unwrap_or_else(|| self.to_begin());
        let beginning = Beginning { has_begun, ..known };
        if payload["etcd"] == beginning.json() {
            return Ok(());
        }
        payload["etcd"] = beginning.json();
        state.lock().await.write(&layer(), payload, epoch).await.map(|_| ()).map_err(|error| fault(&error))
    }

    /// What this life has saved in its vault.
    pub(crate) async fn saved(&self) -> Option<Result<Saved, Fault>> {
        self.saved.as_ref()?().await
    }

    /// What castle and the nodes know each other by, from wherever the bundle of this life is; nothing if it is nowhere.
    ///
    /// # Errors
    ///
    /// If what there is is no bundle, or cannot be read.
    pub async fn keys(&self) -> Result<Option<Keys>, Fault> {
        let bundle = match self.bundle().await? {
            Some(bundle) => Some(bundle),
            None => self.elsewhere().await?,
        };
        match bundle {
            Some(bundle) => Keys::issue(bundle, self.doors()).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether there are secrets of this life: in the state, in the file, or in the vault.
    ///
    /// # Errors
    ///
    /// If what there is is no bundle, or cannot be read.
    pub async fn has_bundle(&self) -> Result<bool, Fault> {
        Ok(self.bundle().await?.is_some() || self.elsewhere().await?.is_some())
    }

    /// The bundle from where else it may be than in the state: as the file says, or from the vault.
    async fn elsewhere(&self) -> Result<Option<Bundle>, Fault> {
        match self.given().await {
            Some(given) => given.map(Some),
            None => {
                let saved = self.saved().await.map(|saved| saved.map(|saved| saved.bundle));
                saved.map(|saved| self.read(saved, "the Talos bundle in the vault")).transpose()
            }
        }
    }

    /// The bundle that the file names, if it names one.
    ///
    /// # Errors
    ///
    /// If it cannot be had, or is none.
    pub async fn given(&self) -> Option<Result<Bundle, Fault>> {
        let found = self.given.as_ref()?().await?;
        Some(self.read(found, "talos.bundle"))
    }

    /// That the bundle that the file names, if it names one, can be read: unread, it may be of another cluster.
    ///
    /// # Errors
    ///
    /// A guard, if it cannot.
    pub async fn hold_given(&self) -> Result<(), Fault> {
        let Some(Err(fault)) = self.given().await else { return Ok(()) };
        let evidence = format!("was not held against the secrets of this castle: {}", fault.evidence);
        let mend = if fault.next.is_empty() { "bring it back" } else { &*fault.next };
        let next = format!("{mend}; or remove talos.bundle from castle.yaml: the state has the secrets");
        Err(Fault::guard("talos.bundle", evidence).next(next))
    }

    fn read(&self, found: Result<Secret, Fault>, what: &str) -> Result<Bundle, Fault> {
        let wrong = |why: String| {
            Fault::new(Class::Final, what, why).next(
                "it must be a secrets.yaml of talosctl, or the configuration of a control plane, with nothing left out",
            )
        };
        match Bundle::import(found?.expose(), self.clock.wall()) {
            Ok(loaded) => Ok(loaded.bundle),
            Err(error) => Err(wrong(error.to_string())),
        }
    }
}

fn fault(error: &StateError) -> Fault {
    let class = match error {
        StateError::Store(error) => Fault::from(error.clone()).class,
        _ => Class::Final,
    };
    Fault::new(class, "the sealed state", error.to_string())
        .next("castle state show tells what can be read; castle adopt sets aside what cannot")
}

fn other_secrets() -> Fault {
    Fault::guard("talos.bundle", "holds other secrets than those that this castle was raised with")
        .next("remove talos.bundle from castle.yaml; or, for a cluster with these secrets: castle down, then castle up")
}

/// Holds that the bundle that the file names can be held against the one that the castle has. Whoever only looks goes on behind it.
struct GivenIsRead(Arc<Strongroom>);

impl Gate for GivenIsRead {
    type Needs = ();
    type Output = ();

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            // Where there is none yet, or it cannot be read, the step that finds one tells it.
            if !matches!(self.0.bundle().await, Ok(Some(_))) {
                return Ok(Verdict::Open(()));
            }
            self.0.hold_given().await.map(Verdict::Open)
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(300)
    }
}

/// Mints the bundle, and issues what castle shows its nodes.
struct MintBundle {
    room: Arc<Strongroom>,
    options: bundle::Options,
    /// Nodes that were made with a bundle already.
    made: Vec<String>,
    /// Whether one may be minted where there is none.
    mints: bool,
}

/// Where a bundle comes from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    State,
    Given,
    Minted,
}

/// What there is, or would be.
struct Seen {
    keys: Keys,
    origin: Origin,
}

/// Where the secrets that are written down come from.
#[derive(Clone, Copy, Debug)]
pub enum Founding {
    /// They were given, or found in the vault.
    Import,
    /// They are made now.
    Mint,
}

impl Step for MintBundle {
    type Needs = ();
    type Observed = Seen;
    type Action = Founding;
    type Output = Keys;

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move {
            let (bundle, origin) = match self.room.bundle().await? {
                Some(stored) => {
                    let given = self.room.given().await;
                    let differs = |given: Bundle| given.save().expose() != stored.save().expose();
                    if given.is_some_and(|given| given.is_ok_and(differs)) {
                        return Err(other_secrets());
                    }
                    (stored, Origin::State)
                }
                None => match self.room.elsewhere().await? {
                    Some(found) => (found, Origin::Given),
                    None if !self.made.is_empty() => return Err(self.lost()),
                    None if !self.mints => return Err(Self::nowhere()),
                    // One to plan with, which is never written and never shown to a node.
                    None => (self.mint(bundle::ServiceAccountKey::EcdsaP256).await?, Origin::Minted),
                },
            };
            Ok(Seen { keys: Keys::issue(bundle, self.room.doors()).await?, origin })
        })
    }

    fn decide(&self, (): &(), seen: &Seen) -> Decision<Founding> {
        match seen.origin {
            Origin::State => Decision::Nothing,
            Origin::Given => Decision::Act(Founding::Import, Change::new("import", Impact::Create)),
            Origin::Minted => Decision::Act(Founding::Mint, Change::new("mint", Impact::Create)),
        }
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        seen: &'a Seen,
        action: &'a Founding,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Some(state) = &self.room.state else {
                return Err(Fault::defect("secrets were to be kept where no state is open"));
            };
            let bundle = match action {
                Founding::Mint => self.mint(self.options.service_account).await?,
                Founding::Import => seen.keys.bundle.clone(),
            };
            // What the vault knows of the etcd of this life is worth keeping.
            let saved = self.room.saved().await.transpose()?.and_then(|saved| saved.beginning);
            let beginning = saved.unwrap_or_else(|| self.room.to_begin());
            let payload = payload(self.room.generation, &bundle.save(), &beginning);
            let mut state = state.lock().await;
            state.write(&layer(), payload, operation.epoch).await.map(|_| ()).map_err(|error| fault(&error))
        })
    }

    fn expect(&self, (): &(), seen: &Seen) -> Option<Keys> {
        Some(seen.keys.clone())
    }

    fn output(&self, (): &(), seen: &Seen) -> Keys {
        seen.keys.clone()
    }
}

impl MintBundle {
    /// Nodes are there, and what they were made with is not: new secrets would lock castle out of them for good.
    fn lost(&self) -> Fault {
        let why = if self.room.state.is_none() { "cannot be opened here" } else { "is not in the state" };
        let evidence = format!("{why}, and there are nodes that were made with it: {}", self.made.join(", "));
        Fault::guard("the Talos bundle", evidence).next(
            "bring the state back (docs/state.md), an earlier record of it (castle state history secrets, castle state restore secrets), or name the cluster's \
             secrets in talos.bundle; or begin anew: castle down, then castle up",
        )
    }

    fn nowhere() -> Fault {
        let evidence = "is neither in the state nor in the vault, and what stands cannot be known again without it";
        Fault::guard("the Talos bundle", evidence)
            .next("bring the state back (docs/state.md), or name the cluster's secrets in talos.bundle")
    }

    async fn mint(&self, service_account: bundle::ServiceAccountKey) -> Result<Bundle, Fault> {
        let options = bundle::Options { service_account, ..self.options };
        let minted = Bundle::generate(options, self.room.doors()).await;
        minted.map_err(|error| Fault::new(Class::Final, "the Talos bundle", error.to_string()))
    }
}

/// Adds the gate that every secret of the castle is what it should be; returns what all else comes after.
pub fn valid(graph: &mut GraphBuilder, castle: &Castle, checks: Vec<Check>, clock: Arc<dyn Clock>) -> StepId {
    let step = StepId::new(&layer(), "valid", castle.castle.as_str());
    graph.gate(step.clone(), Place::default(), (), SecretsValid { checks, clock });
    step
}

/// Adds the step that mints or finds the bundle; returns the promise of it, and what to come after. What `survey` has of the castle's
/// nodes was made with a bundle already. Whoever does not mint only finds.
pub fn bundle(
    graph: &mut GraphBuilder,
    room: &Arc<Strongroom>,
    castle: &Castle,
    id: &CastleId,
    (nodes, survey): (&[Node], &Survey),
    mints: bool,
) -> (StepId, Handle<Keys>) {
    let service_account = match castle.talos.service_account_key.value {
        ServiceAccountKey::Rsa4096 => bundle::ServiceAccountKey::Rsa4096,
        ServiceAccountKey::P256 => bundle::ServiceAccountKey::EcdsaP256,
    };
    // What castle does not know yet is most like the newest it knows.
    let contract = Contract::of(&castle.talos.version.value.to_string()).unwrap_or(Contract::V1_14);
    let options = bundle::Options { contract, service_account };
    let tags = Mark::tags_of(id);
    let is_made = |node: &&Node| survey.guests.get(&node.vmid.0).is_some_and(|guest| guest.tags.is_superset(&tags));
    let made = nodes.iter().filter(is_made).map(|node| node.name.value.clone()).collect();
    if room.given.is_some() {
        let given = StepId::new(&layer(), "given", castle.castle.as_str());
        graph.gate(given, Place::default(), (), GivenIsRead(room.clone()));
    }
    let step = StepId::new(&layer(), "bundle", castle.castle.as_str());
    let handle =
        graph.step(step.clone(), Place::default(), (), MintBundle { room: room.clone(), options, made, mints });
    (step, handle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As it is sealed in the state.
    const RECORDED: &str =
        r#"{"generation":2,"bundle":"cluster:\n    id: abc\n","etcd":{"first":"blue-cp-1","begun":true}}"#;

    #[test]
    fn the_recorded_secrets_are_written_and_read() {
        let beginning = Beginning { first: "blue-cp-1".to_owned(), has_begun: true };
        let bundle = Secret::from("cluster:\n    id: abc\n".to_owned());
        assert_eq!(payload(2, &bundle, &beginning).to_string(), RECORDED);
        let read: Value = serde_json::from_str(RECORDED).unwrap();
        assert_eq!(Beginning::read(&read["etcd"]), Some(beginning));
        assert_eq!((read["generation"].as_u64(), read["bundle"].as_str()), (Some(2), Some(bundle.expose())));
    }

    /// A record from before it said where etcd begins: nothing is known of it, and the nodes are asked.
    #[test]
    fn what_an_earlier_castle_did_not_write_is_not_known() {
        let read: Value = serde_json::from_str(r#"{"generation":2,"bundle":"cluster: {}"}"#).unwrap();
        assert_eq!(Beginning::read(&read["etcd"]), None);
    }
}
