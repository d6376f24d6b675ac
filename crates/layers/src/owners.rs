//! Who is to keep each component, and that nobody else has it: asked before anything of it is applied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, Gate, GraphBuilder, Handle, Place, StepId, Verdict};
use castle_kubernetes::client::Api;
use castle_kubernetes::model::Mark;
use castle_kubernetes::steps::{Keeper, Known, Present, Tenure, tenures};
use castle_seams::BoxFuture;
use castle_spec::model::ComponentOwner;
use castle_spec::{Castle, ComponentName};
use tokio::sync::OnceCell;

use crate::components::{layer_of, row};
use crate::names::id;

/// The components of a castle, for the arbiter: who is to keep each, and what it is known by.
#[must_use]
pub fn known(castle: &Castle) -> Vec<Known> {
    let one = |name: ComponentName, owner: ComponentOwner| Known {
        mark: Mark::new(castle.castle.as_str(), layer_of(name), name.word()),
        keeper: keeper(owner),
        objects: row(name).signs().into(),
        name: (name != ComponentName::Flux).then(|| name.word().to_owned()),
    };
    castle.wanted_components().iter().map(|wanted| one(wanted.name, wanted.owner)).collect()
}

/// Who is to keep a component of this owner.
#[must_use]
pub fn keeper(owner: ComponentOwner) -> Keeper {
    match owner {
        ComponentOwner::Castle => Keeper::Castle,
        ComponentOwner::Flux => Keeper::Flux,
    }
}

/// The gate behind which a component may be touched.
pub(crate) fn settled(mark: &Mark) -> StepId {
    id(&mark.layer, &mark.component, "owner")
}

/// Adds a gate for each component: open if exactly the one has it, or nobody yet, who should. Returns those of components that are Flux's.
pub(crate) fn arbitrate(
    graph: &mut GraphBuilder,
    castle: &Castle,
    api: &Handle<Api>,
) -> BTreeMap<String, Handle<Present>> {
    let known = Arc::new(known(castle));
    let seen = Arc::new(OnceCell::new());
    let mut left = BTreeMap::new();
    for (which, one) in known.iter().enumerate() {
        let gate = Settled { known: known.clone(), which, seen: seen.clone() };
        let is_settled = graph.gate(settled(&one.mark), Place::default(), (api.clone(),), gate);
        if one.keeper == Keeper::Flux {
            left.insert(one.mark.component.clone(), is_settled);
        }
    }
    left
}

struct Settled {
    known: Arc<Vec<Known>>,
    which: usize,
    /// All of them are looked at together, once.
    seen: Arc<OnceCell<Vec<Tenure>>>,
}

impl Gate for Settled {
    type Needs = (Arc<Api>,);
    type Output = Present;

    fn check<'a>(&'a self, (api,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<Present>, Fault>> {
        Box::pin(async move {
            let seen = self.seen.get_or_try_init(|| tenures(api, &self.known)).await?;
            seen.get(self.which).map_or(Ok(()), Tenure::settled)?;
            Ok(Verdict::Open(Present))
        })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}
