//! What Longhorn needs of the castle.

use crate::inventory::{Node, pools, storage_nodes};
use crate::model::{Castle, Storage};
use crate::problem::{Code, Problem, Problems};
use crate::span::Origin;

/// The extensions without which Longhorn's managers crash.
const EXTENSIONS: [(&str, &str); 2] =
    [("iscsi-tools", "attach volumes"), ("util-linux-tools", "find and trim file systems")];

pub(super) fn check(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let Storage::Longhorn(longhorn) = &castle.storage.value else { return };
    let counted = pools(castle).all(|(.., pool)| !pool.is_broken() && !pool.count.is_broken());
    if castle.storage.is_broken() || castle.talos.is_broken() || !counted {
        return;
    }
    let extensions = &castle.talos.extensions;
    let place = if extensions.origin == Origin::Default { castle.talos.origin } else { extensions.origin };
    for (name, purpose) in EXTENSIONS {
        if !extensions.iter().any(|extension| extension.as_str() == name) {
            problems.report(
                Problem::new(Code::LonghornExtensions, format!("Longhorn needs the extension `{name}` to {purpose}"))
                    .at(place, "not in this list")
                    .hint(format!("add `{name}`, or set `storage: none`")),
            );
        }
    }

    let holders: Vec<&Node> = storage_nodes(nodes).collect();
    let count = castle.nodes.workers.as_ref().map_or(&castle.nodes.control_planes.count, |workers| &workers.count);
    if let Some(replicas) = &longhorn.replicas
        && replicas.get() as usize > holders.len()
        && !holders.is_empty()
    {
        problems.report(
            Problem::new(
                Code::LonghornReplicas,
                format!("{} copies of each volume on {} nodes", replicas.get(), holders.len()),
            )
            .at(replicas.origin, "more copies than nodes to hold them")
            .at(count.origin, "")
            .hint(format!("write `replicas: {}` or add workers; until then every volume is degraded", holders.len())),
        );
    }
    let without: Vec<&&Node> = holders.iter().filter(|node| node.data_disk.is_none()).collect();
    if let Some(first) = without.first() {
        let pool = castle.nodes.workers.as_ref().unwrap_or(&castle.nodes.control_planes);
        problems.report(
            Problem::new(
                Code::LonghornDataDisk,
                format!(
                    "{} of {} nodes that hold volumes have no data disk, `{}` first",
                    without.len(),
                    holders.len(),
                    first.name.value
                ),
            )
            .at(pool.origin, "volumes will share the system disk")
            .hint("add `dataDisk: 100GiB`, or set `storage: none`; a full system disk stops the node"),
        );
    }
}
