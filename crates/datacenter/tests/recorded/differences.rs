//! The differences that are right, each with its reason.

use crate::compare::Difference;

/// A difference that may be, and must be, in both releases.
pub(crate) struct Listed {
    /// The request, or requests, apart by spaces.
    pub(crate) probes: &'static str,
    /// Where it differs; what lies below counts, too.
    pub(crate) place: &'static str,
    #[expect(dead_code, reason = "it is for whoever reads the list")]
    reason: &'static str,
}

impl Listed {
    const fn new(probes: &'static str, place: &'static str, reason: &'static str) -> Self {
        Self { probes, place, reason }
    }

    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        let is_here = self.probes.split(' ').any(|probe| probe == difference.probe);
        let below = difference.place.strip_prefix(self.place);
        is_here && below.is_some_and(|below| below.is_empty() || below.starts_with(['.', '[']))
    }
}

const MONITOR: &str = "the monitor of the recorded QEMU did not answer in time";
const SIMULATED: &str = "whoever asks for what is not here must learn that this one is simulated";
const NAMES: &str = "the recorded host had no name server; with one, a name that is none is told like this";
const UNKNOWN: &str = "no-such-path no-such-path2 no-such-method put-on-get";
const ELSEWHERE: &str = "other-node other-node2 bad-node";

pub(crate) const LISTED: &[Listed] = &[
    Listed::new(UNKNOWN, "reason", SIMULATED),
    Listed::new(UNKNOWN, "json.message", SIMULATED),
    Listed::new(ELSEWHERE, "reason", NAMES),
    Listed::new(ELSEWHERE, "json.message", NAMES),
    Listed::new("status-run", "json.data.running-qemu", MONITOR),
    Listed::new("status-run", "json.data.running-machine", MONITOR),
    Listed::new("status-run", "json.data.diskread", MONITOR),
    Listed::new("status-run", "json.data.diskwrite", MONITOR),
    Listed::new("start", "log", "what the processor of the recorded host lacks"),
    Listed::new("clone-running", "log", "Debian's QEMU cannot mirror; here the task only ends as it did there"),
    Listed::new("resize-template", "log", "`qemu-img` was behind a script there, and says so"),
];
