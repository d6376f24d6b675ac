//! What comes from outside is masked where castle takes it into its sentences, whatever it is; castle's own words around it stay.

use castle_engine::{Change, Difference, Event, Fault, Outcome, Report, What};
use castle_layers::doctor::Finding;
use castle_layers::platform::Doomed;
use castle_secrets::redact;
use serde_json::Value;

/// The words of castle's own sentences, gathered when it is built.
const WORDS: &str = include_str!(concat!(env!("OUT_DIR"), "/words.txt"));

/// Has castle's own words known.
pub(crate) fn begin() {
    redact::speak(WORDS);
}

/// A text from outside.
pub(crate) fn text(text: &str) -> String {
    redact(text).into_owned()
}

/// An object that holds what is from outside: its texts. What its fields are called stays.
pub(crate) fn value(seen: Value) -> Value {
    match seen {
        Value::String(seen) => text(&seen).into(),
        Value::Array(all) => all.into_iter().map(value).collect(),
        Value::Object(fields) => fields.into_iter().map(|(name, seen)| (name, value(seen))).collect(),
        plain => plain,
    }
}

/// A guest, for whoever shows it.
pub(crate) fn guest(seen: &Doomed) -> Doomed {
    Doomed { name: text(&seen.name), host: text(&seen.host), ..seen.clone() }
}

pub(crate) fn fault(seen: &Fault) -> Fault {
    Fault { subject: text(&seen.subject), evidence: text(&seen.evidence), ..seen.clone() }
}

pub(crate) fn finding(seen: &Finding) -> Finding {
    Finding { subject: text(&seen.subject), evidence: text(&seen.evidence), ..seen.clone() }
}

/// A finding about a repository. Its sentences are castle's, with names from there among them.
pub(crate) fn found(seen: &mut castle_gitops::Finding, is_from_there: &dyn Fn(&str) -> bool) {
    let castle_gitops::Finding { file, subject, why, fix, also, .. } = seen;
    for place in [file, subject].into_iter().chain(also.iter_mut().map(|(file, _)| file)) {
        *place = text(place);
    }
    for own in [why, fix] {
        *own = sentence(own, is_from_there);
    }
}

/// A sentence of castle's: a secret that is one of its words stays, unless it is there from outside.
fn sentence(own: &str, is_from_outside: &dyn Fn(&str) -> bool) -> String {
    let shown = redact::redact_own(own).into_owned();
    if text(&shown) == shown {
        return shown;
    }
    let is_end = |letter: char| !letter.is_alphanumeric() && !"-_.".contains(letter);
    let words = shown.split_inclusive(is_end).map(|piece| {
        let word = piece.trim_end_matches(is_end).trim_end_matches('.');
        let masked = text(word);
        if masked != word && is_from_outside(word) { piece.replacen(word, &masked, 1) } else { piece.to_owned() }
    });
    words.collect()
}

pub(crate) fn difference(seen: &Difference) -> Difference {
    let value = |value: &Option<String>| value.as_deref().map(text);
    Difference { is: value(&seen.is), wanted: value(&seen.wanted), ..seen.clone() }
}

fn change(seen: &Change) -> Change {
    Change { differences: seen.differences.iter().map(difference).collect(), ..seen.clone() }
}

fn outcome(seen: &Outcome) -> Outcome {
    match seen {
        Outcome::Planned { change: planned } => Outcome::Planned { change: change(planned) },
        Outcome::Waiting { subject, evidence } => Outcome::Waiting { subject: text(subject), evidence: text(evidence) },
        Outcome::Failed { fault: seen } => Outcome::Failed { fault: fault(seen) },
        other => other.clone(),
    }
}

pub(crate) fn event(seen: &Event) -> Event {
    let what = match &seen.what {
        What::StepActing { step, change: acting } => What::StepActing { step: step.clone(), change: change(acting) },
        What::StepRetrying { step, fault: met, after } => {
            What::StepRetrying { step: step.clone(), fault: fault(met), after: *after }
        }
        What::GateClosed { step, subject, evidence } => {
            What::GateClosed { step: step.clone(), subject: text(subject), evidence: text(evidence) }
        }
        What::StepEnded { step, outcome: ended } => What::StepEnded { step: step.clone(), outcome: outcome(ended) },
        other => other.clone(),
    };
    Event { what, ..seen.clone() }
}

pub(crate) fn report(mut seen: Report) -> Report {
    for (_, ended) in &mut seen.outcomes {
        *ended = outcome(ended);
    }
    seen
}

#[cfg(test)]
mod tests {
    use castle_engine::Class;
    use castle_secrets::Secret;

    use super::*;
    use crate::output::Printer;
    use crate::stand::Trouble;

    /// Goal: the same in what is found in a repository. Method: such a secret as a name there, in a sentence with that word in it, and without.
    #[test]
    fn findings_show_no_secret_and_keep_castles_words() {
        begin();
        drop(Secret::registered("rehearsed".to_owned()));
        let text = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: rehearsed, namespace: rehearsed}\nspec:\n  template:\n    spec:\n      \
                    volumes: [{name: v, secret: {secretName: rehearsed}}]\n";
        let file = "clusters/blue/rehearsed.yaml".to_owned();
        let tree = castle_gitops::Tree::new([(file, text.as_bytes().to_vec())]);
        let verdict = castle_gitops::judge(&tree, &castle_gitops::World::new("clusters/blue"));
        let mut findings = verdict.findings;
        assert!(findings.iter().any(|finding| finding.why.contains("rehearsed")), "{findings:?}");
        for finding in &mut findings {
            found(finding, &|word| text.contains(word));
            let castle_gitops::Finding { file, subject, why, fix, .. } = &*finding;
            assert!(!format!("{file} {subject} {why} {fix}").contains("rehearsed"), "{finding:?}");
            assert!(
                finding.subject.contains("[secret]") && finding.file == "clusters/blue/[secret].yaml",
                "{finding:?}"
            );
        }
        let own = "not rehearsed: the namespace rehearsed";
        assert_eq!(sentence(own, &|_| false), own);
        assert_eq!(sentence(own, &|_| true), "not [secret]: the namespace [secret]");
    }

    /// Goal: a secret that is one of castle's words blanks no sentence of castle's, and does not show in what others say. Method: such a secret, in
    /// a sentence, in an object, and in an answer.
    #[test]
    fn castles_own_words_stay_and_what_others_say_is_masked() {
        begin();
        drop(Secret::registered("rehearsed".to_owned()));
        let mut printer = Printer::into_memory();
        printer.say("Not rehearsed: your hardware. cmVoZWFyc2Vk");
        let seen = Fault::new(Class::Final, "the server", "password rehearsed is wrong");
        crate::stand::end("up", Err(Trouble::from(seen)), &mut printer);
        // Nor in what enters a sentence without being a fault.
        let answer = castle_engine::StoreError {
            kind: castle_engine::StoreErrorKind::Refused,
            subject: "blue/lease in the bucket".to_owned(),
            evidence: "no such user: rehearsed".to_owned(),
        };
        crate::stand::end("up", Err(Trouble::of(&answer)), &mut printer);
        let told = printer.printed();
        assert!(told.text.contains("in the bucket: no such user: [secret]"), "{}", told.text);
        assert!(told.text.contains("Not rehearsed: your hardware. [secret]"), "{}", told.text);
        assert!(told.text.contains("the server: password [secret] is wrong"), "{}", told.text);
        assert!(!told.result.to_string().contains("rehearsed"), "{}", told.result);
    }
}
