//! What Proxmox says when it does not do what it was asked, and what that means.
//!
//! Most of it comes as status 500 and a sentence: permanent and passing, found and not found. The sentence decides. The same
//! sentences end tasks, so tasks are read by the same rules.

use castle_engine::{Class, Fault};
use thiserror::Error;

/// The kinds of refusal, each with what can be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ErrorClass {
    /// The token is wrong, expired or gone.
    Unauthenticated,
    /// The token may not do this.
    Forbidden,
    /// A parameter is not accepted.
    Invalid,
    /// There is no such call: another version of Proxmox.
    NotImplemented,
    /// A lock could not be had in time; someone else holds it for a moment.
    LockTimeout,
    /// The guest is locked by an operation on it, or by one that was cut off.
    Locked,
    /// Something of that name or number is there already.
    Exists,
    /// It is not there.
    Gone,
    /// The cluster cannot decide anything: too few of its hosts are there.
    NoQuorum,
    /// It runs already.
    Running,
    /// It does not run.
    NotRunning,
    /// It is protected from removal.
    Protected,
    /// Other disks are linked to it.
    BaseInUse,
    /// There is no room.
    NoSpace,
    /// Someone else changed the configuration in between.
    Changed,
    /// The host could not start a worker for it.
    NoWorker,
    /// The host asked could not reach the host concerned.
    Unreached,
    /// Whether it was done is unknown: the answer was lost on its way.
    Unknown,
    /// Nobody could be reached; nothing was asked.
    Unreachable,
    /// Whoever answers is not who is expected.
    Untrusted,
    /// The answer is none of Proxmox: not JSON, not what was asked for, or far too long.
    Unreadable,
    /// Something else.
    Other,
}

/// Sentences and what they mean; the first that is found decides, so the special comes before the general.
const SENTENCES: [(&str, ErrorClass); 29] = [
    ("got timeout", ErrorClass::LockTimeout),
    ("got lock request timeout", ErrorClass::LockTimeout),
    ("unable to acquire lock", ErrorClass::LockTimeout),
    ("is locked (", ErrorClass::Locked),
    ("checksum mismatch (file change by other user?)", ErrorClass::Changed),
    ("detected modified configuration", ErrorClass::Changed),
    ("still in use by linked clone", ErrorClass::BaseInUse),
    ("protection mode enabled", ErrorClass::Protected),
    ("can't remove VM", ErrorClass::Protected),
    ("already exists", ErrorClass::Exists),
    ("refusing to override existing file", ErrorClass::Exists),
    ("File exists", ErrorClass::Exists),
    ("already running", ErrorClass::Running),
    ("not running", ErrorClass::NotRunning),
    ("is running", ErrorClass::Running),
    ("cluster not ready - no quorum", ErrorClass::NoQuorum),
    ("no quorum!", ErrorClass::NoQuorum),
    ("got no worker upid", ErrorClass::NoWorker),
    ("Permission check failed", ErrorClass::Forbidden),
    ("permission denied", ErrorClass::Forbidden),
    ("No space left on device", ErrorClass::NoSpace),
    ("not enough space", ErrorClass::NoSpace),
    ("out of space", ErrorClass::NoSpace),
    ("insufficient free space", ErrorClass::NoSpace),
    ("reached threshold", ErrorClass::NoSpace),
    ("does not exist", ErrorClass::Gone),
    ("no such", ErrorClass::Gone),
    ("unable to find", ErrorClass::Gone),
    ("not found", ErrorClass::Gone),
];

impl ErrorClass {
    /// What a sentence means, be it of an answer or of a task that failed.
    #[must_use]
    pub fn of_sentence(sentence: &str) -> Self {
        let found = SENTENCES.into_iter().find(|(part, _)| sentence.contains(part));
        found.map_or(Self::Other, |(_, class)| class)
    }

    /// What an answer means: its status, and the sentence it came with.
    #[must_use]
    pub fn of_answer(status: u16, sentence: &str) -> Self {
        match status {
            401 => Self::Unauthenticated,
            403 => Self::Forbidden,
            // `vmid: VM 421 already exists` and `upid: no such task` are answers to parameters, too.
            400 => match Self::of_sentence(sentence) {
                class @ (Self::Exists | Self::Gone) => class,
                _ => Self::Invalid,
            },
            501 => Self::NotImplemented,
            595 => Self::Unreached,
            596..=599 | 502..=504 => Self::Unknown,
            _ => Self::of_sentence(sentence),
        }
    }
}

/// A refusal, ready for the engine.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{subject}: {sentence}")]
pub struct Refusal {
    /// What kind.
    pub class: ErrorClass,
    /// What was asked, and of what: `clone VM 421`.
    pub subject: String,
    /// What Proxmox said.
    pub sentence: String,
    /// Whether the call was to change something.
    pub changes: bool,
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Self {
        let Refusal { class, subject, sentence, changes } = refusal;
        let (engine, next) = match class {
            ErrorClass::Unknown if changes => (Class::EffectUnknown, ""),
            ErrorClass::Unknown | ErrorClass::LockTimeout | ErrorClass::NoWorker => (Class::RetryableAfter(None), ""),
            // Passing while an operation runs; the step that meets it for long reports it as stuck.
            ErrorClass::Locked => {
                (Class::RetryableAfter(None), "on the host, as root: qm unlock VMID, if no task of it runs")
            }
            // What was answered cannot be read, but it was answered: it may have been done.
            ErrorClass::Unreadable if changes => (Class::EffectUnknown, "is that address really Proxmox?"),
            ErrorClass::Unreadable => (Class::Final, "is that address really Proxmox?"),
            ErrorClass::Unreachable => {
                (Class::RefusedBeforeEffect, "is the host up, and the address right? castle doctor")
            }
            ErrorClass::Untrusted => (
                Class::Final,
                "on the host: pvenode cert info; if it is the right one, write its fingerprint into castle.yaml",
            ),
            ErrorClass::Changed => (Class::RefusedBeforeEffect, ""),
            ErrorClass::NoQuorum => (Class::RetryableAfter(None), "bring the other hosts back: pvecm status"),
            ErrorClass::Unreached => (Class::RefusedBeforeEffect, "is that host up? pvecm status"),
            ErrorClass::Unauthenticated => {
                (Class::Final, "check the token and its expiry: Datacenter > Permissions > API Tokens")
            }
            ErrorClass::Forbidden => (Class::Final, "grant the privilege that is named: Datacenter > Permissions"),
            ErrorClass::NoSpace => (Class::Final, "make room on that storage, then run the same command again"),
            ErrorClass::Protected => (Class::Final, "someone protected it: qm set VMID --protection 0, if it is to go"),
            ErrorClass::BaseInUse => (Class::Final, "remove the linked clones first"),
            // Whether these are failures is for the step to say, which looks first.
            ErrorClass::Exists | ErrorClass::Gone | ErrorClass::Running | ErrorClass::NotRunning => {
                (Class::RefusedBeforeEffect, "")
            }
            ErrorClass::Invalid | ErrorClass::NotImplemented | ErrorClass::Other => (Class::Final, ""),
        };
        let fault = Self::new(engine, subject, sentence).next(next);
        match class {
            ErrorClass::LockTimeout | ErrorClass::NoWorker | ErrorClass::Locked => fault.contended(),
            _ => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sentences as Proxmox itself writes them.
    #[test]
    fn sentences_are_classed() {
        let cases = [
            (500, "can't lock file '/var/lock/qemu-server/lock-421.conf' - got timeout", ErrorClass::LockTimeout),
            (
                500,
                "can't lock file '/var/lock/pve-manager/pve-storage-local-lvm' - got timeout",
                ErrorClass::LockTimeout,
            ),
            (500, "cfs-lock 'storage-ceph' error: got lock request timeout", ErrorClass::LockTimeout),
            (500, "VM is locked (clone)", ErrorClass::Locked),
            (500, "unable to create VM 421 - VM 421 already exists on node 'pve'", ErrorClass::Exists),
            (500, "unable to create VM 421: config file already exists", ErrorClass::Exists),
            (500, "link '/etc/pve/nodes/pve/qemu-server/421.conf' failed: File exists", ErrorClass::Exists),
            (400, "vmid: VM 421 already exists", ErrorClass::Exists),
            (400, "upid: no such task", ErrorClass::Gone),
            (400, "Parameter verification failed.", ErrorClass::Invalid),
            (500, "Configuration file 'nodes/pve/qemu-server/421.conf' does not exist", ErrorClass::Gone),
            (500, "cluster not ready - no quorum?", ErrorClass::NoQuorum),
            (500, "VM 421 already running", ErrorClass::Running),
            (500, "VM 421 is not running", ErrorClass::NotRunning),
            (500, "QEMU guest agent is not running", ErrorClass::NotRunning),
            (500, "can't remove VM 421 - protection mode enabled", ErrorClass::Protected),
            (500, "base volume 'local-lvm:base-9000-disk-0' is still in use by linked cloned", ErrorClass::BaseInUse),
            (500, "checksum mismatch (file change by other user?)", ErrorClass::Changed),
            (500, "detected modified configuration - file changed by other user? Try again.", ErrorClass::Changed),
            (500, "got no worker upid - start worker failed", ErrorClass::NoWorker),
            (403, "Permission check failed (/vms/421, VM.Audit)", ErrorClass::Forbidden),
            (401, "authentication failure", ErrorClass::Unauthenticated),
            (501, "Method 'GET /x' not implemented", ErrorClass::NotImplemented),
            (595, "Connection refused", ErrorClass::Unreached),
            (596, "Connection timed out", ErrorClass::Unknown),
            (599, "Too many redirections", ErrorClass::Unknown),
            (500, "something nobody has seen", ErrorClass::Other),
        ];
        for (status, sentence, class) in cases {
            assert_eq!(ErrorClass::of_answer(status, sentence), class, "{status} {sentence}");
        }
    }

    #[test]
    fn a_lost_answer_is_unknown_only_if_something_was_to_change() {
        let refusal =
            |changes| Refusal { class: ErrorClass::Unknown, subject: "x".into(), sentence: "y".into(), changes };
        assert_eq!(Fault::from(refusal(true)).class, Class::EffectUnknown);
        assert_eq!(Fault::from(refusal(false)).class, Class::RetryableAfter(None));
    }

    #[test]
    fn what_too_many_at_once_caused_narrows_the_lane() {
        let fault = |class| Fault::from(Refusal { class, subject: "x".into(), sentence: "y".into(), changes: true });
        assert!(fault(ErrorClass::LockTimeout).contention && fault(ErrorClass::Locked).contention);
        assert!(!fault(ErrorClass::NoSpace).contention && fault(ErrorClass::NoSpace).is_final());
    }
}
