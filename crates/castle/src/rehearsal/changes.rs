//! What happens to a castle that stands: a machine of it is lost, and its file is edited.

use std::path::PathBuf;

use castle_rehearsal::Chance;
use castle_spec::{Node, Role};

use super::life::Life;
use super::script::Script;

/// How much memory an edited file asks for on top.
const MORE_MIB: u64 = 1024;

/// A node whose machine may be lost without anything that cannot be made again: a control plane that others outvote, or a worker.
pub(crate) fn losable<'s>(nodes: &'s [Node], chance: &Chance) -> Option<&'s Node> {
    let control_planes: Vec<&Node> = nodes.iter().filter(|node| node.role == Role::ControlPlane).collect();
    let workers: Vec<&Node> = nodes.iter().filter(|node| node.role == Role::Worker).collect();
    let losable = if control_planes.len() >= 3 { control_planes } else { workers };
    let drawn = usize::try_from(chance.below(losable.len().max(1) as u64)).unwrap_or(0);
    losable.get(drawn).copied()
}

/// The file with more memory for its control planes, where it says how much they have.
pub(crate) fn edited(script: &Script) -> Option<(PathBuf, Vec<u8>)> {
    let memory = script.castle.nodes.control_planes.memory.as_ref()?;
    let span = memory.origin.span()?;
    let text = script.files.get(&script.file)?;
    let (before, after) = (text.get(..span.start)?, text.get(span.end..)?);
    let more = format!("{}MiB", memory.mib() + MORE_MIB);
    Some((script.file.clone(), [before, more.as_bytes(), after].concat()))
}

/// How many etcds there are of the castle: in one life there is one.
pub(crate) fn etcds(life: &Life) -> usize {
    let name = life.script.castle.castle.as_str();
    life.datacenter.cluster(name).map_or(0, |cluster| cluster.etcds.len())
}
