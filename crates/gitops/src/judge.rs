//! What is wrong with a tree, before a cluster finds out.
//!
//! A finding is an error if Flux would stop or do harm, a warning if it would do worse than it could, and a note if something
//! could not be judged here. The same tree and world give the same findings in the same order.

mod groups;
mod namespaces;
mod order;
mod owners;
mod references;
mod served;
mod workloads;
mod world;

use crate::flux::{Forest, grow};
use crate::object::Object;
use crate::tree::Tree;
use order::Order;

pub use world::World;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// The castle would not come up as it should.
    Error,
    /// It would, later or worse than it could.
    Warning,
    /// Nobody can tell from here.
    Note,
}

impl Severity {
    /// Its word.
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
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident;)*) => {
        /// What kind of finding it is. The words are stable.
        #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub enum Code {
            $($(#[$doc])* $name,)*
        }

        impl Code {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The word for it.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How much such a finding weighs.
            #[must_use]
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }
        }
    };
}

codes! {
    /// The folder of a Kustomization is not in the repository.
    PathMissing = "path-missing", Error;
    /// A folder cannot be built.
    BuildFailed = "build-failed", Error;
    /// A variable has neither a value nor a default.
    VariableMissing = "variable-missing", Error;
    /// A ConfigMap or Secret that variables come from is made by nobody.
    SubstitutionSourceMissing = "substitution-source-missing", Error;
    /// Nothing in the cluster serves a kind, or not this version of it.
    KindNotServed = "kind-not-served", Error;
    /// A custom resource comes together with what makes its kind.
    OperatorInSameGroup = "operator-in-same-group", Error;
    /// A custom resource may come before what makes its kind.
    OperatorNotAwaited = "operator-not-awaited", Warning;
    /// Kustomizations wait for each other.
    DependsOnCycle = "depends-on-cycle", Error;
    /// A Kustomization waits for one that does not exist.
    DependsOnUnknown = "depends-on-unknown", Error;
    /// A namespace is made by nobody.
    NamespaceMissing = "namespace-missing", Error;
    /// A namespace is made, but perhaps after its content.
    NamespaceLate = "namespace-late", Error;
    /// Castle owns an object that the repository declares.
    OwnedObject = "owned-object", Error;
    /// The repository installs a component that castle installs.
    OwnedComponent = "owned-component", Error;
    /// The repository does not bring a component that castle leaves to it.
    ComponentMissing = "component-missing", Error;
    /// A Secret is made by nobody.
    SecretMissing = "secret-missing", Error;
    /// A ConfigMap is made by nobody.
    ConfigMapMissing = "config-map-missing", Error;
    /// A secret store is made by nobody.
    StoreMissing = "store-missing", Error;
    /// An encrypted file would be applied as it is.
    SopsWithoutDecryption = "sops-without-decryption", Error;
    /// Several Pods share a volume that only one node can mount.
    ReplicasOnOneVolume = "replicas-on-one-volume", Error;
    /// Others wait for a chart that takes long.
    SlowChartWaited = "slow-chart-waited", Warning;
    /// A failure is tried again only after the whole interval.
    RetryIntervalMissing = "retry-interval-missing", Warning;
    /// A Kustomization or release does nothing until it is resumed.
    Suspended = "suspended", Warning;
    /// Something that castle does not look into.
    NotJudged = "not-judged", Note;
}

/// One thing that was found.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Finding {
    /// What kind of finding it is.
    pub code: Code,
    /// The file.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
    /// What it is about.
    pub subject: String,
    /// What is wrong, and what would happen.
    pub why: String,
    /// What to do.
    pub fix: String,
}

impl Finding {
    /// A finding about an object, at the value that a JSON pointer leads to.
    pub(crate) fn of(
        code: Code,
        object: &Object,
        pointer: &str,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self {
            code,
            file: object.file.clone(),
            line: object.line(pointer),
            subject: object.reference().to_string(),
            why: why.into(),
            fix: fix.into(),
        }
    }
}

/// What the judges look at.
pub(crate) struct Case<'c> {
    pub(crate) tree: &'c Tree,
    pub(crate) world: &'c World,
    pub(crate) forest: &'c Forest,
    pub(crate) order: Order,
    pub(crate) findings: Vec<Finding>,
}

/// What was found, and what it was found in.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The Kustomizations and all they apply.
    pub forest: Forest,
    /// What was found: by file, line and kind.
    pub findings: Vec<Finding>,
}

impl Verdict {
    /// Whether something is found that must be mended first.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.code.severity() == Severity::Error)
    }
}

/// Builds a tree as Flux would in this world, and judges it.
#[must_use]
pub fn judge(tree: &Tree, world: &World) -> Verdict {
    let tree = &tree.as_fetched();
    let forest = grow(tree, &world.entry, &world.sources());
    let order = Order::of(&forest);
    let mut case = Case { tree, world, forest: &forest, order, findings: Vec::new() };
    groups::judge(&mut case);
    served::judge(&mut case);
    owners::judge(&mut case);
    namespaces::judge(&mut case);
    references::judge(&mut case);
    workloads::judge(&mut case);
    let mut findings = case.findings;
    findings.sort_by(|one, other| {
        (&one.file, one.line, one.code, &one.why).cmp(&(&other.file, other.line, other.code, &other.why))
    });
    findings.dedup();
    Verdict { forest, findings }
}
