//! How long things take.

use std::time::Duration;

use super::{BROADCAST, Span};

/// How long things take. The default is an estimate for one LAN with thin LVM on NVMe; none was measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct Latencies {
    /// A request and its answer.
    pub rest: Span,
    /// A linked clone of one disk, one after the other on each storage.
    pub linked_clone: Span,
    /// A full clone or an import of a disk.
    pub full_copy: Span,
    /// The download of an image to a host.
    pub download: Span,
    /// The creation of an empty volume.
    pub allocate: Span,
    /// A write of the configuration by a task.
    pub config: Span,
    /// Making a disk larger.
    pub resize: Span,
    /// Starting a guest, until its task ends.
    pub start: Span,
    /// Switching a guest off.
    pub stop: Span,
    /// A guest's own way down.
    pub shutdown: Span,
    /// Freeing one volume.
    pub destroy: Span,
    /// Making a template.
    pub template: Span,
    /// From power-on until Talos answers in maintenance, or any other guest is up.
    pub boot: Span,
    /// What happens inside of Talos nodes.
    pub talos: TalosLatencies,
    /// How often the hosts tell each other what their guests do; zero for at once.
    pub broadcast: Duration,
    /// What everything drawn is multiplied by; below one compresses.
    pub factor: f64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            rest: Span::new(0.08, 0.25),
            linked_clone: Span::new(0.5, 1.5),
            full_copy: Span::new(20.0, 70.0),
            download: Span::new(30.0, 90.0),
            allocate: Span::new(0.3, 1.0),
            config: Span::new(0.3, 1.0),
            resize: Span::new(0.5, 1.5),
            start: Span::new(1.5, 4.0),
            stop: Span::new(0.5, 1.5),
            shutdown: Span::new(5.0, 12.0),
            destroy: Span::new(0.5, 2.0),
            template: Span::new(0.5, 1.5),
            boot: Span::new(14.0, 25.0),
            talos: TalosLatencies::default(),
            broadcast: BROADCAST,
            factor: 1.0,
        }
    }
}

impl Latencies {
    /// Nothing takes any time, and hosts know everything at once.
    #[must_use]
    pub fn none() -> Self {
        let talos = TalosLatencies { failed_first_boot: 0.0, ..TalosLatencies::default() };
        Self { factor: 0.0, broadcast: Duration::ZERO, talos, ..Self::default() }
    }

    /// The same, this many times as long.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { factor: self.factor * factor, ..self }
    }
}

/// How long things take inside of Talos nodes, and how often the first boot fails.
#[derive(Clone, Debug, PartialEq)]
pub struct TalosLatencies {
    /// A call of the Talos API and its answer.
    pub call: Span,
    /// A call of the Kubernetes API and its answer.
    pub kubernetes_call: Span,
    /// The share of first boots that fail; the node then reboots by itself.
    pub failed_first_boot: f64,
    /// How long a failed first boot takes until the next attempt is up.
    pub failed_boot: Span,
    /// Taking over a configuration.
    pub apply: Span,
    /// Stopping what runs before a node goes down.
    pub stopping: Span,
    /// From down to up again: firmware and kernel.
    pub reboot: Span,
    /// Until the Talos API answers with the certificate of a configuration.
    pub apid: Span,
    /// Until the clock is right.
    pub time_sync: Span,
    /// From a configuration until containers can be run.
    pub services: Span,
    /// Pulling and starting the kubelet.
    pub kubelet: Span,
    /// Pulling etcd.
    pub etcd_image: Span,
    /// From bootstrap to the first member of etcd.
    pub etcd_first: Span,
    /// Until a node that waits for others asks again.
    pub etcd_retry: Span,
    /// From being taken in as a learner to being a voter.
    pub etcd_join: Span,
    /// Until the next look at the health of etcd.
    pub etcd_health: Span,
    /// From etcd to an API of Kubernetes that is ready.
    pub api_server: Span,
    /// Claiming an address that control planes share.
    pub vip: Span,
    /// Until the lease of a holder that vanished has ended.
    pub vip_lost: Span,
    /// Until a node has registered.
    pub register: Span,
    /// Until its network is ready.
    pub cni: Span,
    /// Until names resolve.
    pub dns: Span,
    /// What happens inside of their cluster.
    pub workloads: WorkloadLatencies,
}

impl Default for TalosLatencies {
    fn default() -> Self {
        Self {
            call: Span::new(0.01, 0.05),
            kubernetes_call: Span::new(0.015, 0.1),
            failed_first_boot: 0.01,
            failed_boot: Span::new(24.0, 35.0),
            apply: Span::new(0.5, 2.0),
            stopping: Span::new(3.0, 8.0),
            reboot: Span::new(12.0, 25.0),
            apid: Span::new(1.5, 4.0),
            time_sync: Span::new(1.0, 3.0),
            services: Span::new(14.0, 25.0),
            kubelet: Span::new(8.0, 25.0),
            etcd_image: Span::new(5.0, 15.0),
            etcd_first: Span::new(4.0, 8.0),
            etcd_retry: Span::new(1.5, 3.5),
            etcd_join: Span::new(10.0, 25.0),
            etcd_health: Span::new(8.0, 19.0),
            api_server: Span::new(12.0, 25.0),
            vip: Span::new(3.0, 8.0),
            vip_lost: Span::new(30.0, 60.0),
            register: Span::new(5.0, 15.0),
            cni: Span::new(8.0, 20.0),
            dns: Span::new(10.0, 25.0),
            workloads: WorkloadLatencies::default(),
        }
    }
}

/// How long things take inside of a cluster of Kubernetes.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadLatencies {
    /// Until a controller has seen a change and acts on it.
    pub reconcile: Span,
    /// From a new definition to a kind that is served.
    pub establish: Span,
    /// Pulling an image, where none of [`WorkloadLatencies::pulls`] is meant.
    pub pull: Span,
    /// Pulling images whose names hold such a word.
    pub pulls: Vec<(String, Span)>,
    /// From an image to a container that runs.
    pub start: Span,
    /// From a container that runs to one that passes its readiness probe.
    pub ready: Span,
    /// Until the containers of a pod that was told to end have ended.
    pub stop: Span,
    /// What a job takes to do its work.
    pub job: Span,
    /// Making a volume for a claim.
    pub provision: Span,
    /// What the components of castles take.
    pub components: ComponentLatencies,
}

impl Default for WorkloadLatencies {
    fn default() -> Self {
        let pulls = [
            ("metallb", Span::new(8.0, 30.0)),
            ("external-secrets", Span::new(8.0, 25.0)),
            // 35 s for all of Longhorn, 120 s in one of twenty, shared out by the sizes of its images; those of CSI are as any other.
            ("longhorn-instance-manager", Span::new(18.0, 62.0)),
            ("longhorn-engine", Span::new(7.0, 24.0)),
            ("longhorn-manager", Span::new(6.0, 20.0)),
            ("longhorn-ui", Span::new(4.0, 13.0)),
            ("fluxcd", Span::new(12.0, 45.0)),
            ("siderolabs", Span::new(8.0, 20.0)),
        ];
        Self {
            reconcile: Span::new(0.02, 0.08),
            establish: Span::new(0.05, 0.3),
            pull: Span::new(8.0, 25.0),
            pulls: pulls.into_iter().map(|(word, span)| (word.to_owned(), span)).collect(),
            start: Span::new(1.0, 3.0),
            ready: Span::new(2.0, 6.0),
            stop: Span::new(1.0, 4.0),
            job: Span::new(3.0, 10.0),
            provision: Span::new(2.0, 6.0),
            components: ComponentLatencies::default(),
        }
    }
}

impl WorkloadLatencies {
    /// How long it takes to pull an image.
    #[must_use]
    pub fn pull_of(&self, image: &str) -> Span {
        self.pulls.iter().find(|(word, _)| image.contains(word.as_str())).map_or(self.pull, |(_, span)| *span)
    }
}

/// How long things take inside of the components that castles install. None was measured here.
#[derive(Clone, Debug, PartialEq)]
pub struct ComponentLatencies {
    /// Until a component has seen a change and acts on it.
    pub look: Span,
    /// Making an authority and a certificate.
    pub certificate: Span,
    /// Until a Secret that was changed shows in the volume of a pod that runs.
    pub mount: Span,
    /// Registering one more path of a webhook.
    pub path: Span,
    /// Telling an authority to one more webhook configuration.
    pub inject: Span,
    /// Asking somebody outside of the cluster.
    pub errand: Span,
    /// Installing a chart, besides waiting for its pods.
    pub chart: Span,
    /// The turn of one manager of Longhorn.
    pub lease: Span,
}

impl Default for ComponentLatencies {
    fn default() -> Self {
        Self {
            look: Span::new(0.1, 0.4),
            certificate: Span::new(0.8, 2.5),
            mount: Span::new(25.0, 70.0),
            path: Span::new(0.05, 0.2),
            inject: Span::new(0.4, 1.5),
            errand: Span::new(0.6, 2.0),
            chart: Span::new(6.0, 20.0),
            lease: Span::new(3.0, 8.0),
        }
    }
}
