//! How the nodes stand to the file: what they live by, compared with what castle would give them.

use castle_engine::Fault;
use castle_talos::client::Drift;
use castle_talos::steps::{Keys, Whom};
use futures_util::stream::{StreamExt, iter};

use super::{Plan, configuration};

/// How many nodes are asked at once: enough for most castles, and far from what a machine runs out of.
const AT_ONCE: usize = 32;

/// How the configuration of each node stands to the wanted one, in the order of the nodes. Nobody is waited for, and secrets are hidden.
///
/// # Errors
///
/// If there is no telling what is wanted.
pub async fn drift(plan: &Plan, keys: &Keys) -> Result<Vec<(Whom, Drift)>, Fault> {
    let ask = async |node: &castle_spec::Node| {
        let whom = Whom { name: node.name.value.clone(), address: node.address.value };
        let wanted = configuration(&plan.castle, &plan.nodes, node, &keys.bundle, &plan.referred);
        let wanted = wanted.map_err(|error| error.fault(&whom.name))?;
        let drift = plan.wire.contact(&whom, keys)?.drift(&wanted).await;
        Ok((whom, drift))
    };
    let asked: Vec<Result<_, Fault>> = iter(plan.nodes.iter()).map(ask).buffered(AT_ONCE).collect().await;
    asked.into_iter().collect()
}
