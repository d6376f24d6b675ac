//! What of Flux cannot pass without another commit, so that nobody waits for it; and what of its source is a refusal.
//!
//! Flux itself tries everything again. Of what its kustomize-controller says, this stays as it is as long as the revision does: a tree that
//! cannot be built, a folder that is not in it, Kustomizations that wait for each other, and what it calls stalled itself. All else may pass: sources
//! and dependencies become ready, webhooks and definitions come, health checks pass.

use castle_kubernetes::model::{Object, condition};

use crate::names::FLUX_SYSTEM;

/// Why Flux cannot make objects of what it has fetched.
const BUILD_FAILED: &str = "BuildFailed";
/// Why there is nothing to make them of: the source is not there yet, or the folder is not in it.
const ARTIFACT_FAILED: &str = "ArtifactFailed";
const NO_FOLDER: &str = "kustomization path not found";
/// The label of the Kustomization that brought an object.
const BROUGHT_BY: &str = "kustomize.toolkit.fluxcd.io/name";

/// Whether Flux itself has given an object up until it is changed.
pub(super) fn is_stalled(object: &Object) -> bool {
    condition(object, "Stalled").is_some_and(|stalled| stalled.status == "True")
}

/// How Flux says that a repository is refused to it, rather than away: by the words of its Git library.
const REFUSED: [&str; 6] = [
    "authentication required",
    "authorization failed",
    "couldn't find remote ref",
    "remote repository is empty",
    "repository not found",
    "x509: certificate signed by unknown authority",
];

/// Whether Flux is refused the repository, and does not just not reach it. Alone that is no reason to give up: somebody may mend it this very minute.
pub(super) fn is_refused(source: &Object) -> bool {
    let generation = source.number("/metadata/generation");
    let ready = condition(source, "Ready").filter(|ready| ready.status == "False" && ready.generation == generation);
    ready.is_some_and(|ready| REFUSED.iter().any(|words| ready.message.contains(words)))
}

/// Whether what Flux says of a Kustomization stays as it is with this revision.
pub(super) fn alone(all: &[Object], object: &Object, revision: &str) -> bool {
    let Some(ready) = condition(object, "Ready").filter(|_| is_as_in(all, object, revision)) else { return false };
    match ready.reason {
        _ if is_stalled(object) => true,
        BUILD_FAILED => object.text("/status/lastAttemptedRevision") == revision,
        // Flux notes a revision as attempted only once it has found the folder. Until then the attempt is told by what it was at.
        ARTIFACT_FAILED if ready.message.starts_with(NO_FOLDER) => {
            let fetching = format!("Fetching manifests for revision {revision} ");
            condition(object, "Reconciling").is_some_and(|at| at.message.starts_with(&fetching))
        }
        _ => false,
    }
}

/// Whether Kustomizations that wait for each other go on doing so with this revision.
pub(super) fn circle(all: &[Object], members: &[&Object], revision: &str) -> bool {
    // Whoever has an expression of its own for what is ready may be content with less.
    let is_plain = |member: &Object| member.list("/spec/dependsOn").iter().all(|need| need.get("readyExpr").is_none());
    members.iter().all(|member| is_plain(member) && is_as_in(all, member, revision))
}

/// Whether a Kustomization is as this revision has it: whoever brought it has applied that. The first is castle's own.
fn is_as_in(all: &[Object], object: &Object, revision: &str) -> bool {
    let by = object.label(BROUGHT_BY).unwrap_or(FLUX_SYSTEM);
    let applied = || all.iter().find(|other| other.name() == by).map(|by| by.text("/status/lastAppliedRevision"));
    !revision.is_empty() && (object.name() == FLUX_SYSTEM || applied() == Some(revision))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NEW: &str = "main@sha1:new";

    fn kustomization(name: &str, by: &str, spec: &Value, status: &Value) -> Object {
        let metadata = json!({"name": name, "namespace": FLUX_SYSTEM, "labels": {BROUGHT_BY: by}});
        let api = "kustomize.toolkit.fluxcd.io/v1";
        let object =
            json!({"apiVersion": api, "kind": "Kustomization", "metadata": metadata, "spec": spec, "status": status});
        Object::new(object).unwrap()
    }

    fn failed(reason: &str, message: &str, attempted: &str, fetched: &str) -> Value {
        let fetching = format!("Fetching manifests for revision {fetched} with a timeout of 5m0s");
        json!({"lastAttemptedRevision": attempted, "conditions": [
            {"type": "Ready", "status": "False", "reason": reason, "message": message},
            {"type": "Reconciling", "status": "True", "reason": "ProgressingWithRetry", "message": fetching},
        ]})
    }

    fn applied(name: &str, by: &str, revision: &str) -> Object {
        kustomization(name, by, &json!({}), &json!({"lastAppliedRevision": revision}))
    }

    #[test]
    fn what_a_revision_cannot_be_is_final_once_it_was_tried() {
        let first = applied("flux-system", "flux-system", NEW);
        let is_final = |status: Value| {
            let apps = kustomization("apps", "flux-system", &json!({}), &status);
            alone(&[first.clone(), apps.clone()], &apps, NEW)
        };
        let gone = "kustomization path not found: stat /tmp/kustomization-1/apps: no such file or directory";
        assert!(is_final(failed("BuildFailed", "no such file", NEW, NEW)));
        assert!(!is_final(failed("BuildFailed", "no such file", "main@sha1:old", "main@sha1:old")));
        assert!(is_final(failed("ArtifactFailed", gone, "main@sha1:old", NEW)));
        assert!(!is_final(failed("ArtifactFailed", gone, "", "main@sha1:old")));
        for passes in ["DependencyNotReady", "HealthCheckFailed", "ReconciliationFailed", "PruneFailed", "Progressing"]
        {
            assert!(!is_final(failed(passes, "not yet", NEW, NEW)), "{passes}");
        }
        assert!(!is_final(failed("ArtifactFailed", "Source artifact not found, retrying in 30s", NEW, NEW)));
        let stalled = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "InvalidCELExpression"},
            {"type": "Stalled", "status": "True", "reason": "InvalidCELExpression"}]});
        assert!(is_final(stalled));
    }

    /// A Kustomization is as its bringer last applied it: one that was tried with a newer tree before it was changed itself may still become well.
    #[test]
    fn nothing_is_final_before_its_bringer_has_applied_the_revision() {
        let (first, apps) =
            (applied("flux-system", "flux-system", NEW), |revision| applied("apps", "flux-system", revision));
        let inner = kustomization("inner", "apps", &json!({}), &failed("BuildFailed", "no such file", NEW, NEW));
        assert!(!alone(&[first.clone(), apps("main@sha1:old"), inner.clone()], &inner, NEW));
        assert!(alone(&[first, apps(NEW), inner.clone()], &inner, NEW));
    }

    #[test]
    fn a_circle_is_final_unless_somebody_is_content_with_less() {
        let first = applied("flux-system", "flux-system", NEW);
        let waits = |name: &str, need: Value| {
            kustomization(
                name,
                "flux-system",
                &json!({"dependsOn": [need]}),
                &failed("DependencyNotReady", "not ready", "", NEW),
            )
        };
        let (one, other) = (waits("one", json!({"name": "other"})), waits("other", json!({"name": "one"})));
        assert!(circle(std::slice::from_ref(&first), &[&one, &other], NEW));
        assert!(!circle(&[], &[&one, &other], NEW));
        let content = waits("other", json!({"name": "one", "readyExpr": "true"}));
        assert!(!circle(&[first], &[&one, &content], NEW));
    }
}
