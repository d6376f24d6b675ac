//! What of Flux cannot pass without another commit, so that nobody waits for it; and what of its source is a refusal.
//!
//! Flux itself tries everything again. Of what its kustomize-controller says, this stays as it is as long as revision and object do: a tree that
//! cannot be built, a folder that is not in it, Kustomizations that wait for each other, and what it calls stalled itself. All else may pass: sources
//! and dependencies become ready, webhooks and definitions come, health checks pass; variables and keys, which `BuildFailed` is said of, too, are in
//! objects that may come or change.

use castle_kubernetes::model::{Condition, Object, condition};

use crate::names::FLUX_SYSTEM;

/// Why Flux cannot make objects of what it has fetched.
const BUILD_FAILED: &str = "BuildFailed";
/// How it says that this is because of the files: where Kustomize builds them, and where Flux looks for what to build.
const UNBUILT: [&str; 2] = ["kustomize build failed: ", "failed to decode Kubernetes YAML from "];
/// What is in such a message if the files come from elsewhere, which may be away.
const ELSEWHERE: [&str; 3] = ["://", "git@", "/git fetch "];
/// Why there is nothing to make them of: the source is not there yet, or the folder is not in it.
const ARTIFACT_FAILED: &str = "ArtifactFailed";
const NO_FOLDER: &str = "kustomization path not found";
/// The label of the Kustomization that brought an object.
const BROUGHT_BY: &str = "kustomize.toolkit.fluxcd.io/name";

/// Whether Flux itself has given an object up until it is changed.
pub(super) fn is_stalled(object: &Object) -> bool {
    said_now(object, "Stalled").is_some_and(|stalled| stalled.status == "True")
}

/// What is said of an object as it is now, and not as it was before it was changed.
fn said_now<'o>(object: &'o Object, kind: &str) -> Option<Condition<'o>> {
    condition(object, kind).filter(|said| said.generation == object.number("/metadata/generation"))
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
    let ready = said_now(source, "Ready").filter(|ready| ready.status == "False");
    ready.is_some_and(|ready| REFUSED.iter().any(|words| ready.message.contains(words)))
}

/// Whether what Flux says of a Kustomization stays as it is with this revision.
pub(super) fn alone(all: &[Object], object: &Object, revision: &str) -> bool {
    let Some(ready) = said_now(object, "Ready").filter(|_| is_as_in(all, object, revision)) else { return false };
    match ready.reason {
        _ if is_stalled(object) => true,
        BUILD_FAILED => object.text("/status/lastAttemptedRevision") == revision && is_of_the_files(ready.message),
        // Flux notes a revision as attempted only once it has found the folder. Until then the attempt is told by what it was at.
        ARTIFACT_FAILED if ready.message.starts_with(NO_FOLDER) => {
            let fetching = format!("Fetching manifests for revision {revision} ");
            condition(object, "Reconciling").is_some_and(|at| at.message.starts_with(&fetching))
        }
        _ => false,
    }
}

/// Whether a failure to build lies in the files of the revision alone.
fn is_of_the_files(message: &str) -> bool {
    UNBUILT.iter().any(|words| message.starts_with(words)) && !ELSEWHERE.iter().any(|words| message.contains(words))
}

/// Whether Kustomizations that wait for each other go on doing so with this revision.
pub(super) fn circle(all: &[Object], members: &[&Object], revision: &str) -> bool {
    // Whoever has an expression of its own for what is ready may be content with less.
    let is_plain = |member: &Object| member.list("/spec/dependsOn").iter().all(|need| need.get("readyExpr").is_none());
    members.iter().all(|member| is_plain(member) && is_as_in(all, member, revision))
}

/// Whether a Kustomization is as this revision has it: whoever brought it has applied that, as it is now itself. The first is castle's own.
fn is_as_in(all: &[Object], object: &Object, revision: &str) -> bool {
    let by = object.label(BROUGHT_BY).unwrap_or(FLUX_SYSTEM);
    let has_applied = |by: &Object| {
        by.text("/status/lastAppliedRevision") == revision
            && by.number("/status/observedGeneration") == by.number("/metadata/generation")
    };
    let is_brought = || all.iter().find(|other| other.name() == by).is_some_and(has_applied);
    !revision.is_empty() && (object.name() == FLUX_SYSTEM || is_brought())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NEW: &str = "main@sha1:new";
    const UNBUILT: &str = "kustomize build failed: accumulating resources: accumulation err='accumulating resources from 'base': \
        stat /tmp/kustomization-1/base: no such file or directory'";
    const GONE: &str = "kustomization path not found: stat /tmp/kustomization-1/apps: no such file or directory";

    /// One that was changed once: this is its second generation.
    fn kustomization(name: &str, by: &str, spec: &Value, status: &Value) -> Object {
        let metadata = json!({"name": name, "namespace": FLUX_SYSTEM, "generation": 2, "labels": {BROUGHT_BY: by}});
        let api = "kustomize.toolkit.fluxcd.io/v1";
        let object =
            json!({"apiVersion": api, "kind": "Kustomization", "metadata": metadata, "spec": spec, "status": status});
        Object::new(object).unwrap()
    }

    fn failed_at(generation: u64, reason: &str, message: &str, attempted: &str, fetched: &str) -> Value {
        let fetching = format!("Fetching manifests for revision {fetched} with a timeout of 5m0s");
        let told = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": generation});
        json!({"lastAttemptedRevision": attempted, "conditions": [
            told("Ready", "False", reason, message), told("Reconciling", "True", "ProgressingWithRetry", &fetching),
        ]})
    }

    fn failed(reason: &str, message: &str, attempted: &str, fetched: &str) -> Value {
        failed_at(2, reason, message, attempted, fetched)
    }

    fn stalled_at(generation: u64) -> Value {
        let told = |kind: &str, status: &str| json!({"type": kind, "status": status, "reason": "InvalidCELExpression", "observedGeneration": generation});
        json!({"conditions": [told("Ready", "False"), told("Stalled", "True")]})
    }

    fn applied_at(generation: u64, name: &str, by: &str, revision: &str) -> Object {
        let status = json!({"lastAppliedRevision": revision, "observedGeneration": generation});
        kustomization(name, by, &json!({}), &status)
    }

    fn applied(name: &str, by: &str, revision: &str) -> Object {
        applied_at(2, name, by, revision)
    }

    fn is_final(status: &Value) -> bool {
        let (first, apps) =
            (applied("flux-system", "flux-system", NEW), kustomization("apps", "flux-system", &json!({}), status));
        alone(&[first, apps.clone()], &apps, NEW)
    }

    #[test]
    fn what_a_revision_cannot_be_is_final_once_it_was_tried() {
        let unread = "failed to decode Kubernetes YAML from /tmp/kustomization-1/apps/a.yaml: MalformedYAMLError";
        for built in [UNBUILT, unread] {
            assert!(is_final(&failed("BuildFailed", built, NEW, NEW)), "{built}");
            assert!(!is_final(&failed("BuildFailed", built, "main@sha1:old", "main@sha1:old")), "{built}");
        }
        assert!(is_final(&failed("ArtifactFailed", GONE, "main@sha1:old", NEW)));
        assert!(!is_final(&failed("ArtifactFailed", GONE, "", "main@sha1:old")));
        for passes in ["DependencyNotReady", "HealthCheckFailed", "ReconciliationFailed", "PruneFailed", "Progressing"]
        {
            assert!(!is_final(&failed(passes, "not yet", NEW, NEW)), "{passes}");
        }
        assert!(!is_final(&failed("ArtifactFailed", "Source artifact not found, retrying in 30s", NEW, NEW)));
        assert!(is_final(&stalled_at(2)));
    }

    /// Flux says of all this that it could not build.
    #[test]
    fn what_may_come_from_elsewhere_passes() {
        for message in [
            "post build failed for 'ConfigMap.v1.[noGrp]/a': substitute from 'Secret/words' error: secrets \"words\" not found",
            "post build failed for 'ConfigMap.v1.[noGrp]/a': envsubst error: variable substitution failed: variable not set (strict mode): \"hue\"",
            "cannot get decryption Secret 'flux-system/sops-age': secrets \"sops-age\" not found",
            "error decrypting sources: cannot decrypt",
            "decryption failed for 'Secret.v1.[noGrp]/a': failed to decrypt",
            "kustomize build failed: accumulating resources: accumulation err='accumulating resources from 'https://example.com/a.yaml': HTTP Error: status code 503",
            "kustomize build failed: accumulating resources from 'github.com/o/r//base?ref=v1': hit 27s timeout running '/usr/bin/git fetch --depth=1 https://github.com/o/r v1'",
            "kustomize build failed: accumulating resources from 'git@example.com:o/r': exit status 128",
        ] {
            assert!(!is_final(&failed("BuildFailed", message, NEW, NEW)), "{message}");
        }
    }

    /// Somebody has changed it since, with the same revision.
    #[test]
    fn what_was_said_before_a_change_is_not_final() {
        assert!(!is_final(&failed_at(1, "BuildFailed", UNBUILT, NEW, NEW)));
        assert!(!is_final(&failed_at(1, "ArtifactFailed", GONE, NEW, NEW)));
        assert!(!is_final(&stalled_at(1)));
        let first = kustomization("flux-system", "", &json!({}), &failed_at(1, "ArtifactFailed", GONE, "", NEW));
        assert!(!alone(std::slice::from_ref(&first), &first, NEW));
    }

    /// A Kustomization is as its bringer last applied it: one that was tried with a newer tree before it was changed itself may still become well.
    #[test]
    fn nothing_is_final_before_its_bringer_has_applied_the_revision() {
        let first = applied("flux-system", "flux-system", NEW);
        let inner = kustomization("inner", "apps", &json!({}), &failed("BuildFailed", UNBUILT, NEW, NEW));
        let with = |apps: Object| alone(&[first.clone(), apps, inner.clone()], &inner, NEW);
        assert!(!with(applied("apps", "flux-system", "main@sha1:old")));
        assert!(!with(applied_at(1, "apps", "flux-system", NEW)), "it was changed since, and would bring another");
        assert!(with(applied("apps", "flux-system", NEW)));
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
