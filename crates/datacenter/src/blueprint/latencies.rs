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
            broadcast: BROADCAST,
            factor: 1.0,
        }
    }
}

impl Latencies {
    /// Nothing takes any time, and hosts know everything at once.
    #[must_use]
    pub fn none() -> Self {
        Self { factor: 0.0, broadcast: Duration::ZERO, ..Self::default() }
    }

    /// The same, this many times as long.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self { factor: self.factor * factor, ..self }
    }
}
