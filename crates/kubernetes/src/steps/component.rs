//! A component: objects that belong together, from the first line in the inventory to the last that is pruned.

use std::time::Duration;

use castle_engine::{GraphBuilder, Handle, Layer, Place, StepId};

use super::prune::Removable;
use super::{Apply, Expect, Present, Prune, Ready, Record};
use crate::client::Api;
use crate::model::{Mark, Object, Stage};

/// How long a definition may take until it is served by every control plane.
const ESTABLISHED: Duration = Duration::from_secs(5 * 60);

fn id(mark: &Mark, name: &str) -> StepId {
    StepId::new(&Layer::new(&mark.layer), &mark.component, name)
}

/// The step that applies the objects of a stage, for whoever has to come before or after it.
#[must_use]
pub fn stage_step(mark: &Mark, stage: Stage) -> StepId {
    id(mark, stage.word())
}

/// The first step of a component: what it consists of is written down.
#[must_use]
pub fn record_step(mark: &Mark) -> StepId {
    id(mark, "record")
}

/// The gate behind which the kinds that a component defines are served.
#[must_use]
pub fn served_step(mark: &Mark) -> StepId {
    id(mark, "served")
}

/// Wants these objects of a component and no others: recorded, applied stage by stage, and what is wanted no more pruned. Gives the
/// promise that they are applied; whether they work is a matter of gates.
pub fn install(graph: &mut GraphBuilder, api: &Handle<Api>, objects: &[Object], mark: &Mark) -> Handle<Present> {
    install_unless(graph, api, objects, mark, &[])
}

/// As [`install`], but with these gates taken for open: so tests show what each is for.
pub fn install_unless(
    graph: &mut GraphBuilder,
    api: &Handle<Api>,
    objects: &[Object],
    mark: &Mark,
    open: &[StepId],
) -> Handle<Present> {
    let mut earlier = record_step(mark);
    let record = Record::new(objects, mark);
    let mut present = graph.step(earlier.clone(), Place::default(), (api.clone(),), record);
    for stage in Stage::ALL {
        let of_stage: Vec<Object> = objects.iter().filter(|object| Stage::of(object) == stage).cloned().collect();
        if of_stage.is_empty() {
            continue;
        }
        let names = of_stage.iter().map(|object| object.name().to_owned()).collect();
        let step = stage_step(mark, stage);
        present = graph.step(step.clone(), Place::default(), (api.clone(),), Apply::new(of_stage, mark));
        graph.after(step.clone(), earlier);
        earlier = step;
        if stage == Stage::Definitions {
            earlier = served_step(mark);
            let served = Expect::Established { names, labels: mark.selector() };
            let expects = if open.contains(&earlier) { Vec::new() } else { vec![served] };
            present =
                graph.gate(earlier.clone(), Place::default(), (api.clone(), present), Ready::new(expects, ESTABLISHED));
        }
    }
    let needs = (api.clone(), present.clone());
    graph.step(prune_step(mark), Place::default(), needs, Prune::new(objects, mark));
    present
}

/// The last step of a component: what is wanted of it no more is gone.
#[must_use]
pub fn prune_step(mark: &Mark) -> StepId {
    id(mark, "prune")
}

/// Wants nothing of a component: all that castle made of it is removed, the last first, unless something of somebody else's would go
/// along with it. Returns the gate that it begins with.
pub fn remove(graph: &mut GraphBuilder, api: &Handle<Api>, mark: &Mark) -> StepId {
    let gate = id(mark, "removable");
    let free = graph.gate(gate.clone(), Place::default(), (api.clone(),), Removable::new(mark));
    graph.step(prune_step(mark), Place::default(), (api.clone(), free), Prune::new(&[], mark));
    gate
}
