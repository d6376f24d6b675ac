//! The secrets layer: so far the Talos bundle, minted once in the life of a castle and sealed before its first machine exists.

use std::sync::Arc;

use castle_engine::{
    Change, Class, Decision, Fault, GraphBuilder, Handle, Impact, Layer, Operation, Place, State, StateError, Step,
    StepId,
};
use castle_seams::{BoxFuture, Clock, Entropy, KeyMint};
use castle_spec::Castle;
use castle_spec::model::ServiceAccountKey;
use castle_talos::model::bundle::{self, Bundle};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::Doors;
use castle_talos::steps::Keys;
use serde_json::json;
use tokio::sync::Mutex;

/// The name of the layer.
#[must_use]
pub fn layer() -> Layer {
    Layer::new("secrets")
}

/// Where the bundle is kept, and what it is made with.
pub struct Strongroom {
    /// The sealed state; nothing for whoever only looks and has no key to it.
    pub state: Option<Arc<Mutex<State>>>,
    /// Which life of the castle it is for: each has secrets of its own.
    pub generation: u64,
    /// Where keys come from.
    pub mint: Arc<dyn KeyMint>,
    /// Chance.
    pub entropy: Arc<dyn Entropy>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

impl Strongroom {
    fn doors(&self) -> Doors<'_> {
        Doors { mint: self.mint.as_ref(), entropy: self.entropy.as_ref(), clock: self.clock.as_ref() }
    }

    /// The bundle of this life, if there is one.
    ///
    /// # Errors
    ///
    /// If the state cannot be read, or what it holds is no bundle.
    pub async fn bundle(&self) -> Result<Option<Bundle>, Fault> {
        let Some(state) = &self.state else { return Ok(None) };
        let record = state.lock().await.latest(&layer()).await.map_err(|error| fault(&error))?;
        let payload = record.map(|record| record.payload).filter(|payload| payload["generation"] == self.generation);
        let Some(text) = payload.as_ref().and_then(|payload| payload["bundle"].as_str()) else { return Ok(None) };
        let damaged = |error: bundle::BundleError| {
            Fault::new(Class::Final, "the Talos bundle in the state", error.to_string())
                .next("castle state history secrets")
        };
        Ok(Some(Bundle::load(text, self.clock.wall()).map_err(damaged)?.bundle))
    }
}

fn fault(error: &StateError) -> Fault {
    let class = match error {
        StateError::Store(_) => Class::RetryableAfter(None),
        _ => Class::Final,
    };
    Fault::new(class, "the sealed state", error.to_string()).next("castle state show")
}

/// Mints the bundle, and issues what castle shows its nodes.
struct MintBundle {
    room: Arc<Strongroom>,
    options: bundle::Options,
}

/// What there is, or would be.
struct Seen {
    keys: Keys,
    is_stored: bool,
}

impl Step for MintBundle {
    type Needs = ();
    type Observed = Seen;
    type Output = Keys;

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Seen, Fault>> {
        Box::pin(async move {
            let stored = self.room.bundle().await?;
            let is_stored = stored.is_some();
            let bundle = match stored {
                Some(bundle) => bundle,
                // One to plan with, which is never written and never shown to a node.
                None => self.mint(bundle::ServiceAccountKey::EcdsaP256).await?,
            };
            Ok(Seen { keys: Keys::issue(bundle, self.room.doors()).await?, is_stored })
        })
    }

    fn decide(&self, (): &(), seen: &Seen) -> Decision {
        if seen.is_stored { Decision::Nothing } else { Decision::Change(Change::new("mint", Impact::Create)) }
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        _: &'a Seen,
        _: &'a Change,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let bundle = self.mint(self.options.service_account).await?;
            let payload = json!({"generation": self.room.generation, "bundle": bundle.save().expose()});
            let Some(state) = &self.room.state else { return Ok(()) };
            let mut state = state.lock().await;
            state.write(&layer(), payload, operation.epoch).await.map(|_| ()).map_err(|error| fault(&error))
        })
    }

    fn expect(&self, (): &(), seen: &Seen, _: &Change) -> Option<Keys> {
        Some(seen.keys.clone())
    }

    fn output(&self, (): &(), seen: &Seen) -> Keys {
        seen.keys.clone()
    }
}

impl MintBundle {
    async fn mint(&self, service_account: bundle::ServiceAccountKey) -> Result<Bundle, Fault> {
        let options = bundle::Options { service_account, ..self.options };
        let minted = Bundle::generate(options, self.room.doors()).await;
        minted.map_err(|error| Fault::new(Class::Final, "the Talos bundle", error.to_string()))
    }
}

/// Adds the step that mints or finds the bundle; returns the promise of it, and what to come after.
pub fn bundle(graph: &mut GraphBuilder, room: &Arc<Strongroom>, castle: &Castle) -> (StepId, Handle<Keys>) {
    let service_account = match castle.talos.service_account_key.value {
        ServiceAccountKey::Rsa4096 => bundle::ServiceAccountKey::Rsa4096,
        ServiceAccountKey::P256 => bundle::ServiceAccountKey::EcdsaP256,
    };
    // What castle does not know yet is most like the newest it knows.
    let contract = Contract::of(&castle.talos.version.value.to_string()).unwrap_or(Contract::V1_14);
    let options = bundle::Options { contract, service_account };
    let id = StepId::new(&layer(), "bundle", castle.castle.as_str());
    let handle = graph.step(id.clone(), Place::default(), (), MintBundle { room: room.clone(), options });
    (id, handle)
}
