//! A bad day: something is wrong, `up` says what, somebody mends it, and `up` again ends where an undisturbed one does.

use castle_engine::{Class, Fault, Outcome, Report};
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::keep::{BLUE, Keep, inside_only};
use crate::person::Person;
use crate::room::{done, door};
use crate::stands::fallen;

/// What is said of a bad day.
pub(crate) struct Said {
    pub(crate) class: Class,
    pub(crate) is_guarded: bool,
    pub(crate) subject: String,
    pub(crate) evidence: String,
    pub(crate) next: String,
}

impl Said {
    pub(crate) fn of(fault: &Fault) -> Self {
        let Fault { class, subject, evidence, next, guarded, .. } = fault.clone();
        Self { class, is_guarded: guarded, subject, evidence, next }
    }

    /// Holds that this is about a thing, shows this evidence, and names this command.
    #[track_caller]
    pub(crate) fn is(&self, subject: &str, evidence: &str, next: &str) {
        let Self { subject: about, evidence: seen, next: todo, .. } = self;
        assert_eq!(about, subject, "{seen}; {todo}");
        assert!(seen.contains(evidence), "{about}: {seen}");
        assert!(todo.contains(next), "{about}: {todo}");
    }

    /// Holds that trying again may help.
    #[track_caller]
    pub(crate) fn may_pass(self) -> Self {
        assert!(
            matches!(self.class, Class::RetryableAfter(_)) && !self.is_guarded,
            "{}: {}",
            self.subject,
            self.evidence
        );
        self
    }

    /// Holds that nobody waits for it any more.
    #[track_caller]
    pub(crate) fn cannot_pass(self) -> Self {
        assert!(self.class == Class::Final && !self.is_guarded, "{}: {}", self.subject, self.evidence);
        self
    }
}

/// The one thing that went wrong; whatever waits for it did not begin.
#[track_caller]
pub(crate) fn one(report: &Report) -> Said {
    let failed: Vec<&Fault> = crate::castle::faults(report);
    assert_eq!(failed.len(), 1, "{failed:#?}");
    let others = report
        .ended(|outcome| !matches!(outcome, Outcome::Done { .. } | Outcome::Failed { .. } | Outcome::Skipped { .. }));
    assert_eq!(others.count(), 0);
    Said::of(failed[0])
}

const STRANGER: &str = "/api/v1/namespaces/default/configmaps";

/// Somebody's own object, as it is.
fn stranger(keep: &Keep) -> Option<Value> {
    keep.datacenter().object(BLUE, "configmaps", "default", "stranger")
}

/// Runs a day in a castle of this file whose cluster is there. Whatever happens, a stranger's object is left alone, and in the end the
/// castle stands and a further `up` has nothing to do.
pub(crate) fn day(file: &str, happens: impl AsyncFnOnce(&mut Keep, &Person)) {
    in_virtual_time(async |clock| {
        let mut keep = Keep::new(inside_only(5), file, door(clock));
        keep.found().await;
        let person = Person::at(&keep).await;
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stranger"}, "data": {"a": "b"}});
        person.create(STRANGER, &object).await;
        let before = stranger(&keep);
        assert!(before.is_some());
        happens(&mut keep, &person).await;
        done(&keep.furnished().await);
        assert_eq!(fallen(&keep), None);
        let again = keep.furnished().await;
        done(&again);
        assert_eq!(again.effects(), 0);
        assert_eq!(stranger(&keep), before, "castle touched a stranger's object");
    });
}
