//! What is wrong with a file, as data: rendering is the caller's.

use crate::span::{Origin, Span};

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file is refused.
    Error,
    /// The file is accepted, but this is probably not what its author wants.
    Warning,
    /// Worth knowing.
    Note,
}

impl Severity {
    /// The word people and programs read.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        }
    }
}

macro_rules! codes {
    ($($variant:ident = $text:literal, $severity:ident;)*) => {
        /// The kinds of problem. Each has a section of the same name in `docs/checks.md`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[expect(missing_docs, reason = "docs/checks.md describes each, and a test holds the two together")]
        pub enum Code { $($variant,)* }

        impl Code {
            /// All codes, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The stable name: in output, in the documentation, for `--explain`.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// How bad a problem of this kind is.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(Self::$variant => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    FileUnreadable = "file-unreadable", Error;
    FileTooLarge = "file-too-large", Error;
    FileEmpty = "file-empty", Error;
    NotUtf8 = "not-utf8", Error;
    YamlSyntax = "yaml-syntax", Error;
    YamlTab = "yaml-tab", Error;
    YamlDepth = "yaml-depth", Error;
    YamlAliases = "yaml-aliases", Error;
    YamlDuplicateKey = "yaml-duplicate-key", Error;
    YamlDocuments = "yaml-documents", Error;
    UnknownKey = "unknown-key", Error;
    MissingKey = "missing-key", Error;
    WrongType = "wrong-type", Error;
    BadValue = "bad-value", Error;
    ControlPlanesEven = "control-planes-even", Error;
    ControlPlanesTooMany = "control-planes-too-many", Error;
    ControlPlaneSingle = "control-plane-single", Note;
    NameTooLong = "name-too-long", Error;
    NameDuplicate = "name-duplicate", Error;
    OverrideUnknownNode = "override-unknown-node", Error;
    HostUnknown = "host-unknown", Error;
    AddressFamily = "address-family", Error;
    AddressOutsideCidr = "address-outside-cidr", Error;
    AddressReserved = "address-reserved", Error;
    AddressDuplicate = "address-duplicate", Error;
    VipMissing = "vip-missing", Warning;
    VipInPool = "vip-in-pool", Error;
    PoolOutsideCidr = "pool-outside-cidr", Warning;
    SubnetOverlap = "subnet-overlap", Error;
    SubnetFamily = "subnet-family", Error;
    TimeServersMixed = "time-servers-mixed", Error;
    VmidsTooFew = "vmids-too-few", Error;
    VmidOutsideRange = "vmid-outside-range", Error;
    VmidDuplicate = "vmid-duplicate", Error;
    MacDuplicate = "mac-duplicate", Error;
    TalosUnsupported = "talos-unsupported", Error;
    KubernetesUnsupported = "kubernetes-unsupported", Error;
    VersionUntested = "version-untested", Warning;
    LonghornExtensions = "longhorn-extensions", Error;
    LonghornReplicas = "longhorn-replicas", Error;
    LonghornDataDisk = "longhorn-data-disk", Warning;
    TaintsEverywhere = "taints-everywhere", Error;
    TaintTwice = "taint-twice", Error;
    KernelModuleUnknown = "kernel-module-unknown", Error;
    KernelModuleNeedless = "kernel-module-needless", Warning;
    MirrorCredentials = "mirror-credentials", Error;
    PatchFile = "patch-file", Error;
    PatchRefused = "patch-refused", Error;
    NetworkMissing = "network-missing", Warning;
    ComponentUntested = "component-untested", Warning;
    ComponentUnused = "component-unused", Warning;
    ComponentOwner = "component-owner", Error;
    ComponentSource = "component-source", Error;
    ComponentIncomplete = "component-incomplete", Error;
    LockBroken = "lock-broken", Error;
    LockStale = "lock-stale", Warning;
    DriveConflict = "drive-conflict", Error;
    TrustTwice = "trust-twice", Error;
    DriveUnavailable = "drive-unavailable", Error;
    IothreadIgnored = "iothread-ignored", Warning;
    MemoryMinimum = "memory-minimum", Error;
    DiskMinimum = "disk-minimum", Error;
    SecretValue = "secret-value", Error;
    RepositoryAddress = "repository-address", Error;
    KustomizationTwice = "kustomization-twice", Error;
    VariableReserved = "variable-reserved", Error;
    VaultMissing = "vault-missing", Error;
    SecretFileMissing = "secret-file-missing", Error;
    SecretFileMode = "secret-file-mode", Error;
    SecretFileTracked = "secret-file-tracked", Error;
    SopsNotEncrypted = "sops-not-encrypted", Error;
    SopsKeyMissing = "sops-key-missing", Error;
    ConfigsTracked = "configs-tracked", Error;
    StateTracked = "state-tracked", Error;
}

/// A stretch of the file that a problem points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The stretch.
    pub span: Span,
    /// What there is to say about it; empty when the caret says enough.
    pub text: String,
}

/// One thing wrong with the file.
///
/// The summary never repeats a value that could be secret; the excerpt drawn from `labels` shows the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its kind.
    pub code: Code,
    /// What is wrong, and why that matters.
    pub summary: String,
    /// The place, then places that matter to it. Empty when the file has none (it could not be read).
    pub labels: Vec<Label>,
    /// What to do about it.
    pub hint: String,
    moot: bool,
}

impl Problem {
    /// A problem without a place yet.
    pub fn new(code: Code, summary: impl Into<String>) -> Self {
        Self { code, summary: summary.into(), labels: Vec::new(), hint: String::new(), moot: false }
    }

    /// Points at the place a value comes from. A problem that points at a broken value is never reported: that the
    /// value could not be read has been said already.
    #[must_use]
    pub fn at(mut self, origin: Origin, text: impl Into<String>) -> Self {
        match origin {
            Origin::File(span) | Origin::Derived(span) => self.labels.push(Label { span, text: text.into() }),
            Origin::Broken => self.moot = true,
            Origin::Default => {}
        }
        self
    }

    /// Makes the problem moot if `origin` is broken, without pointing at it.
    #[must_use]
    pub fn given(mut self, origin: Origin) -> Self {
        self.moot |= origin == Origin::Broken;
        self
    }

    /// Says what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = hint.into();
        self
    }
}

/// All problems of one file, up to [`MOST`].
#[derive(Clone, Debug, Default)]
pub(crate) struct Problems {
    list: Vec<Problem>,
}

/// Nobody mends more at once, and a hostile file could have one in every byte.
const MOST: usize = 1000;

impl Problems {
    /// Adds a problem, unless it only follows from one reported before.
    pub(crate) fn report(&mut self, problem: Problem) {
        if !problem.moot && !self.is_full() {
            self.list.push(problem);
        }
    }

    /// Adds a problem however many there are.
    pub(crate) fn insist(&mut self, problem: Problem) {
        self.list.push(problem);
    }

    /// Whether any more would be dropped.
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MOST
    }

    /// What has been reported so far.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// Whether any of them refuses the file.
    #[must_use]
    pub(crate) fn refuse(&self) -> bool {
        self.list.iter().any(|problem| problem.code.severity() == Severity::Error)
    }

    /// The problems in the order of the file; those without a place come first.
    #[must_use]
    pub(crate) fn sorted(mut self) -> Vec<Problem> {
        self.list.sort_by_key(|problem| (problem.labels.first().map(|label| label.span), problem.code));
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_from_a_broken_value_is_not_reported() {
        let mut problems = Problems::default();
        problems.report(Problem::new(Code::AddressDuplicate, "twice").at(Origin::Broken, ""));
        assert!(!problems.refuse());
        problems.report(Problem::new(Code::AddressDuplicate, "twice").at(Origin::Default, ""));
        assert!(problems.refuse());
    }

    #[test]
    fn problems_come_in_the_order_of_the_file() {
        let mut problems = Problems::default();
        for start in [9, 3] {
            let origin = Origin::File(Span { start, end: start + 1 });
            problems.report(Problem::new(Code::BadValue, start.to_string()).at(origin, ""));
        }
        problems.report(Problem::new(Code::FileEmpty, "no place"));
        let order: Vec<_> = problems.sorted().into_iter().map(|problem| problem.summary).collect();
        assert_eq!(order, ["no place", "3", "9"]);
    }
}
