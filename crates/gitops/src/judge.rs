//! What is wrong with a tree, before a cluster finds out.
//!
//! A finding is an error if Flux would stop or do harm, a warning if it would do worse than it could, and a note if something
//! could not be judged here. The same tree and world give the same findings in the same order.

mod addresses;
mod fields;
mod groups;
mod namespaces;
mod order;
mod owners;
mod references;
mod releases;
mod served;
mod sources;
mod workloads;
mod world;

use std::collections::BTreeMap;

use crate::flux::{Forest, Group, Maker, grow, possible_maker};
use crate::object::Object;
use crate::tree::Tree;
use order::Order;

pub use addresses::Taken;
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
    /// A variable comes out empty, or as it is written.
    VariableUnset = "variable-unset", Warning;
    /// A ConfigMap or Secret that variables come from is made by nobody.
    SubstitutionSourceMissing = "substitution-source-missing", Error;
    /// A source that a Kustomization or a release names is made by nobody.
    SourceMissing = "source-missing", Error;
    /// An object of Flux's has a field that its kind does not have, or lacks one that it must have.
    FieldUnknown = "field-unknown", Error;
    /// A key of a kustomization file means nothing.
    KeyDropped = "key-dropped", Warning;
    /// A symbolic link is not in what Flux builds.
    LinkDropped = "link-dropped", Warning;
    /// Nothing in the cluster serves a kind, or not this version of it.
    KindNotServed = "kind-not-served", Error;
    /// A custom resource comes together with what makes its kind.
    OperatorInSameGroup = "operator-in-same-group", Error;
    /// A custom resource may come before what makes its kind.
    OperatorNotAwaited = "operator-not-awaited", Warning;
    /// Kustomizations or releases wait for each other.
    DependsOnCycle = "depends-on-cycle", Error;
    /// A Kustomization or a release waits for one that does not exist.
    DependsOnUnknown = "depends-on-unknown", Error;
    /// A namespace is made by nobody.
    NamespaceMissing = "namespace-missing", Error;
    /// A namespace is made, but perhaps after its content.
    NamespaceLate = "namespace-late", Warning;
    /// A namespace of castle's gets something from the repository, and would go with it.
    NamespaceShared = "namespace-shared", Warning;
    /// Castle owns an object that the repository declares.
    OwnedObject = "owned-object", Error;
    /// The repository installs a component that castle installs.
    OwnedComponent = "owned-component", Error;
    /// The repository does not bring a component that castle leaves to it.
    ComponentMissing = "component-missing", Error;
    /// A Secret is made by nobody.
    SecretMissing = "secret-missing", Error;
    /// A Secret is made by nobody that is not needed to run.
    SecretAbsent = "secret-absent", Warning;
    /// A ConfigMap is made by nobody.
    ConfigMapMissing = "config-map-missing", Error;
    /// A secret store is made by nobody.
    StoreMissing = "store-missing", Error;
    /// Something that is not a chart's own is made by nobody, unless a chart that castle does not know brings it.
    MakerUnseen = "maker-unseen", Warning;
    /// An encrypted file would be applied as it is.
    SopsWithoutDecryption = "sops-without-decryption", Error;
    /// Addresses for services are taken already.
    AddressTaken = "address-taken", Error;
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
    /// Where else the same cause shows: files and lines.
    pub also: Vec<(String, usize)>,
    /// What findings of the same kind share if mending it mends them all; empty if it is alone.
    pub(crate) cause: String,
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
            also: Vec::new(),
            cause: String::new(),
        }
    }

    /// The same, told once with all others of its kind that have this cause.
    pub(crate) fn because(self, cause: impl Into<String>) -> Self {
        Self { cause: cause.into(), ..self }
    }
}

/// What the judges look at.
pub(crate) struct Case<'c> {
    pub(crate) tree: &'c Tree,
    pub(crate) world: &'c World,
    pub(crate) forest: &'c Forest,
    pub(crate) order: Order,
    /// Something that was not read and may bring whatever is missing.
    pub(crate) unread: Option<String>,
    pub(crate) findings: Vec<Finding>,
}

impl Case<'_> {
    /// What is told of an object (its kind, its namespace if it has one, its name) that nobody is known to make: whoever may make it is named, unless
    /// it waits for the object itself.
    pub(crate) fn unless_made(
        &self,
        object: &Object,
        pointer: &str,
        (kind, namespace, name): (&str, &str, &str),
        missing: Finding,
        waits: &dyn Fn(&Group, &Object) -> bool,
    ) -> Finding {
        let maker = possible_maker(self.forest, kind, namespace, waits);
        unless_made_by((self.unread.as_deref(), maker), object, pointer, (kind, namespace, name), missing)
    }

    /// What is told of something that nobody makes: what castle did not read is never called missing.
    pub(crate) fn unless_unread(&self, object: &Object, pointer: &str, what: &str, missing: Finding) -> Finding {
        unless(self.unread.as_deref(), object, pointer, what, missing)
    }
}

/// What is told of an object that nobody is known to make, by what was not read and by who may make it. It is no error while somebody may: that would stop
/// `up`.
pub(crate) fn unless_made_by(
    (unread, maker): (Option<&str>, Option<Maker>),
    object: &Object,
    pointer: &str,
    (kind, namespace, name): (&str, &str, &str),
    missing: Finding,
) -> Finding {
    let place = if namespace.is_empty() { String::new() } else { format!(" in {namespace}") };
    let what = format!("{kind} {name}{place}");
    match maker {
        Some(Maker { name, is_unlikely: false }) => {
            let why = format!("needs {what}: castle cannot tell whether {name} makes it");
            Finding::of(Code::NotJudged, object, pointer, why, "nothing, if it does").because(what)
        }
        Some(Maker { name, .. }) if unread.is_none() => {
            let why = format!(
                "needs {what}, which nobody is seen to make; of the chart of {name} castle does not know what it brings"
            );
            let fix = format!("{}; nothing, if the chart brings it", missing.fix);
            Finding::of(Code::MakerUnseen, object, pointer, why, fix).because(what)
        }
        _ => unless(unread, object, pointer, &what, missing),
    }
}

fn unless(unread: Option<&str>, object: &Object, pointer: &str, what: &str, missing: Finding) -> Finding {
    let Some(unread) = unread else { return missing };
    let why = format!("castle cannot tell who makes {what}: perhaps {unread}");
    Finding::of(Code::NotJudged, object, pointer, why, "nothing, if that does").because("unread")
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
    let forest = grow(tree, &world.entry, &world.sources(), (world.is_lenient(), world.unread.is_empty()));
    let order = Order::of(&forest);
    let mut case = Case {
        tree,
        world,
        forest: &forest,
        order,
        unread: forest.unread().or_else(|| world.unread.first().cloned()),
        findings: Vec::new(),
    };
    groups::judge(&mut case);
    sources::judge(&mut case);
    releases::judge(&mut case);
    fields::judge(&mut case);
    served::judge(&mut case);
    owners::judge(&mut case);
    namespaces::judge(&mut case);
    references::judge(&mut case);
    addresses::judge(&mut case);
    workloads::judge(&mut case);
    let findings = told_once(case.findings);
    Verdict { forest, findings }
}

/// The findings in order, those of one cause as one.
fn told_once(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.sort_by(|one, other| {
        (&one.file, one.line, one.code, &one.why).cmp(&(&other.file, other.line, other.code, &other.why))
    });
    findings.dedup();
    let mut told: Vec<Finding> = Vec::new();
    let mut known: BTreeMap<(Code, String), usize> = BTreeMap::new();
    for finding in findings {
        let key = (finding.code, finding.cause.clone());
        match known.get(&key).and_then(|at| told.get_mut(*at)) {
            Some(first) if !finding.cause.is_empty() => first.also.push((finding.file, finding.line)),
            _ => {
                known.insert(key, told.len());
                told.push(finding);
            }
        }
    }
    for finding in told.iter_mut().filter(|finding| !finding.also.is_empty()) {
        finding.why += &format!("; so it is with {} more", finding.also.len());
    }
    told
}
