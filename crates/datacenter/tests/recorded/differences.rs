//! The differences that are right, each with its reason.

use serde_json::Value;

use crate::compare::Difference;

/// What is told here instead of what was recorded.
pub(crate) enum Here {
    /// One of these, as JSON where it is no text.
    Told(&'static [&'static str]),
    /// The same, but for one part.
    But(&'static str, &'static str),
    /// The same, and this behind it.
    Also(&'static str),
}

/// A difference that may be, and must be, in both releases.
pub(crate) struct Listed {
    /// The request, or requests, apart by spaces.
    pub(crate) probes: &'static str,
    /// Where it differs.
    pub(crate) place: &'static str,
    here: Here,
    #[expect(dead_code, reason = "it is for whoever reads the list")]
    reason: &'static str,
}

impl Listed {
    const fn new(probes: &'static str, place: &'static str, here: Here, reason: &'static str) -> Self {
        Self { probes, place, here, reason }
    }

    pub(crate) fn covers(&self, difference: &Difference) -> bool {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let (recorded, here) = (text(&difference.recorded), text(&difference.here));
        let is_foretold = match self.here {
            Here::Told(told) => told.contains(&here.as_str()),
            Here::But(theirs, ours) => recorded.matches(theirs).count() == 1 && recorded.replace(theirs, ours) == here,
            Here::Also(more) => here == format!("{recorded}{more}"),
        };
        is_foretold && difference.place == self.place && self.probes.split(' ').any(|probe| probe == difference.probe)
    }
}

const MONITOR: &str = "the monitor of the recorded QEMU did not answer in time";
const SIMULATED: &str = "whoever asks for what is not here must learn that this one is simulated";
const NAMES: &str = "the recorded host had no name server; with one, a name that is none is told like this";
const UNKNOWN: &str = "no-such-path no-such-path2 no-such-method put-on-get";
const ELSEWHERE: &str = "other-node other-node2 bad-node";
const UNRESOLVED: Here = Here::But("Temporary failure in name resolution", "Name or service not known");

pub(crate) const LISTED: &[Listed] = &[
    Listed::new(UNKNOWN, "reason", Here::Also(" (this hypervisor is simulated)"), SIMULATED),
    Listed::new(UNKNOWN, "json.message", Here::Also(" (this hypervisor is simulated)"), SIMULATED),
    Listed::new(ELSEWHERE, "reason", UNRESOLVED, NAMES),
    Listed::new(ELSEWHERE, "json.message", UNRESOLVED, NAMES),
    Listed::new("status-run", "json.data.running-qemu", Here::Told(&["9.2.0", "10.1.2"]), MONITOR),
    Listed::new(
        "status-run",
        "json.data.running-machine",
        Here::Told(&["pc-q35-9.2+pve0", "pc-q35-10.1+pve0"]),
        MONITOR,
    ),
    Listed::new("status-run", "json.data.diskread", Here::Told(&["0"]), MONITOR),
    Listed::new("status-run", "json.data.diskwrite", Here::Told(&["0"]), MONITOR),
    Listed::new("start", "log", Here::Told(&["[]"]), "what the processor of the recorded host lacks"),
    Listed::new(
        "resize-template",
        "log",
        Here::But("qemu-img.real: ", "qemu-img: "),
        "`qemu-img` was behind a script there, and says so",
    ),
];
