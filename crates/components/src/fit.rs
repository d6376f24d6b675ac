//! What manifests have to be adapted to.

use castle_spec::model::Storage;
use castle_spec::{Castle, Node, Role};

/// A castle whose nodes for the workload have fewer cores together is small: what components ask for would leave little for anything else.
const SMALL_CORES: u32 = 8;

/// What of a castle matters to its components.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// How many nodes hold a copy of each volume.
    pub replicas: u32,
    /// Whether every node that holds volumes has a disk for them.
    pub has_data_disks: bool,
    /// Whether there are control planes alone.
    pub is_without_workers: bool,
    /// Whether components should ask for less than they usually do.
    pub is_small: bool,
    /// Whether Flux's controllers for image tags are wanted.
    pub has_image_automation: bool,
    /// Whether Flux's source-watcher is wanted.
    pub has_source_watcher: bool,
}

impl Fit {
    /// Of a castle and its nodes.
    #[must_use]
    pub fn of(castle: &Castle, nodes: &[Node]) -> Self {
        let is_without_workers = nodes.iter().all(|node| node.role != Role::Worker);
        let working: Vec<&Node> = nodes.iter().filter(|node| is_without_workers || node.role == Role::Worker).collect();
        let replicas = match &castle.storage.value {
            Storage::Longhorn(longhorn) => longhorn.replicas.as_ref().map_or(1, |replicas| replicas.get()),
            Storage::None(()) => 1,
        };
        Self {
            replicas,
            has_data_disks: working.iter().all(|node| node.data_disk.is_some()),
            is_without_workers,
            is_small: working.iter().map(|node| node.cores.value).sum::<u32>() < SMALL_CORES,
            has_image_automation: castle.gitops.as_ref().is_some_and(|gitops| gitops.image_automation.value),
            has_source_watcher: castle.has_source_watcher(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit(nodes: &str) -> Fit {
        let text = format!(
            "castle: blue\nplatform: embedded\ntalos: {{version: v1.13.9}}\nkubernetes: {{version: v1.36.3}}\n\
             network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, nameservers: [10.0.0.1], vip: 10.0.0.9}}\nnodes: {nodes}\n"
        );
        let reading = castle_spec::read(text.as_bytes());
        Fit::of(&reading.castle.unwrap_or_else(|| panic!("{:?}", reading.problems)), &reading.nodes)
    }

    #[test]
    fn a_castle_is_told_by_the_nodes_that_work() {
        let large = fit(
            "{controlPlanes: {count: 3, firstAddress: 10.0.0.11}, workers: {count: 2, firstAddress: 10.0.0.14, cores: 4, dataDisk: 9GiB}}",
        );
        let expected = Fit {
            replicas: 2,
            has_data_disks: true,
            is_without_workers: false,
            is_small: false,
            has_image_automation: false,
            has_source_watcher: false,
        };
        assert_eq!(large, expected);
        let small = fit("{controlPlanes: {count: 1, firstAddress: 10.0.0.11, cores: 4}}");
        let expected = Fit { replicas: 1, has_data_disks: false, is_without_workers: true, is_small: true, ..expected };
        assert_eq!(small, expected);
    }
}
