//! Bad days of the repository, as Flux shows them and the handover tells them.

use std::sync::atomic::Ordering;
use std::time::Duration;

use castle_datacenter::{Component, ComponentFault};
use castle_gitops::git::GitError;
use futures_util::future::join;
use serde_json::json;

use crate::day::{day, one};
use crate::fits::{APP_KEY, HOST_KEY, IDENTITY, SSH_URL, parts};
use crate::keep::{BLUE, GIT_HOST, Keep, URL, config, only, with_gitops};
use crate::room::done;
use crate::stands::fallen;

const SOURCE: &str = "GitRepository flux-system/flux-system";
const FIRST: &str = "Kustomization flux-system/flux-system";
const LOOK_AT_SOURCE: &str =
    "kubectl describe --namespace flux-system gitrepository.source.toolkit.fluxcd.io flux-system";
const LOOK_AT_FIRST: &str =
    "kubectl describe --namespace flux-system kustomization.kustomize.toolkit.fluxcd.io flux-system";

/// What the repository usually holds.
fn mend(keep: &Keep) {
    keep.push(&[("clusters/blue/word.yaml", &config("word", "${castle_name}"))]);
}

#[test]
fn a_host_that_cannot_be_reached() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.datacenter().git_down(GIT_HOST, true);
        let said = one(&keep.furnished().await).may_pass();
        said.is(SOURCE, "connection refused", LOOK_AT_SOURCE);
        keep.datacenter().git_down(GIT_HOST, false);
    });
}

/// Flux looks once in a while: that it is done with what it knows is not enough.
#[test]
fn a_commit_that_flux_has_not_fetched_yet_is_waited_for() {
    day(&only(&["gitops"]), async |keep, _| {
        done(&keep.furnished().await);
        keep.push(&[("clusters/blue/word.yaml", &config("word", "newer"))]);
        done(&keep.furnished().await);
        assert_eq!(fallen(keep), None);
    });
}

/// Castle knows the newest commit for a while, and asks once more before it says that Flux has applied it.
#[test]
fn a_commit_that_is_pushed_while_flux_applies_the_one_before_is_waited_for() {
    day(&only(&["gitops"]), async |keep, _| {
        let (keep, clock) = (&*keep, keep.castle.room.clock.clone());
        // At first nothing can be fetched, so that castle has asked for the newest commit before Flux has it.
        keep.datacenter().git_down(GIT_HOST, true);
        let until = async |is_so: &dyn Fn() -> bool| {
            while !is_so() {
                clock.sleep(Duration::from_millis(10)).await;
            }
        };
        let person = async {
            until(&|| keep.asked.load(Ordering::Relaxed) > 0).await;
            keep.datacenter().git_down(GIT_HOST, false);
            let sources = "gitrepositories.source.toolkit.fluxcd.io";
            let fetched = || keep.datacenter().object(BLUE, sources, "flux-system", "flux-system").unwrap_or_default();
            until(&|| !fetched()["status"]["artifact"]["revision"].is_null()).await;
            keep.push(&[("clusters/blue/word.yaml", &config("word", "newer"))]);
        };
        let (report, ()) = join(keep.furnished(), person).await;
        done(&report);
        assert_eq!(fallen(keep), None);
    });
}

#[test]
fn a_branch_that_is_not_there() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.push_to("other", &[("a.yaml", "")]);
        keep.datacenter().delete_branch(URL, "main");
        one(&keep.furnished().await).may_pass().is(
            SOURCE,
            "couldn't find remote ref \"refs/heads/main\"",
            LOOK_AT_SOURCE,
        );
        mend(keep);
    });
}

#[test]
fn a_repository_without_a_commit() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.datacenter().delete_branch(URL, "main");
        one(&keep.furnished().await).may_pass().is(SOURCE, "remote repository is empty", LOOK_AT_SOURCE);
        mend(keep);
    });
}

#[test]
fn a_folder_that_is_not_there() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.push(&[("clusters/green/word.yaml", &config("word", "green"))]);
        let said = one(&keep.furnished().await).cannot_pass();
        said.is(FIRST, "(ArtifactFailed): kustomization path not found", LOOK_AT_FIRST);
        mend(keep);
    });
}

#[test]
fn a_credential_that_is_rejected() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.wishes.token = Some("wrong-and-secret".to_owned());
        let said = one(&keep.furnished().await).may_pass();
        said.is(SOURCE, "authentication required", LOOK_AT_SOURCE);
        assert!(!said.evidence.contains("wrong-and-secret"));
        keep.wishes.token = None;
    });
}

#[test]
fn a_key_that_is_not_known_and_a_host_that_is_another() {
    let known = format!("git.example {HOST_KEY}");
    for (identity, known_hosts, why) in [
        (
            "-----BEGIN OPENSSH PRIVATE KEY-----\nhunter2",
            known.as_str(),
            "unable to authenticate, attempted methods [none publickey]",
        ),
        (IDENTITY, "git.example ssh-ed25519 AAAAother", "knownhosts: key is unknown"),
        (
            IDENTITY,
            "",
            "(AuthenticationFailed): failed to configure authentication options: invalid 'ssh' auth option: 'known_hosts' is required",
        ),
    ] {
        day(&only(&["gitops"]), async |keep, _| {
            keep.datacenter().admit_key(URL, IDENTITY, HOST_KEY);
            keep.wishes.address = Some(SSH_URL.to_owned());
            keep.wishes.parts = parts(&[("identity", identity), ("known_hosts", known_hosts)]);
            let said = one(&keep.furnished().await).may_pass();
            said.is(SOURCE, why, LOOK_AT_SOURCE);
            assert!(!said.evidence.contains("hunter2"), "{}", said.evidence);
            keep.wishes.parts = parts(&[("identity", IDENTITY), ("known_hosts", &known)]);
        });
    }
}

#[test]
fn an_app_that_is_not_installed() {
    day(&only(&["gitops"]), async |keep, _| {
        let app = |key: &str| {
            parts(&[("githubAppID", "12"), ("githubAppPrivateKey", key), ("githubAppInstallationID", "34")])
        };
        keep.datacenter().admit_app(URL, "12", APP_KEY);
        keep.wishes.parts = app("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----\n");
        let said = one(&keep.furnished().await).may_pass();
        let why = "app/installations/34/access_tokens: 401 A JSON web token could not be decoded";
        said.is(SOURCE, why, LOOK_AT_SOURCE);
        assert!(!said.evidence.contains("hunter2"), "{}", said.evidence);
        keep.wishes.parts = app(APP_KEY);
    });
}

#[test]
fn a_server_whose_authority_nobody_knows() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.datacenter().sign_git_host(GIT_HOST, "an authority");
        let said = one(&keep.furnished().await).may_pass();
        said.is(SOURCE, "x509: certificate signed by unknown authority", LOOK_AT_SOURCE);
        keep.wishes.authority = Some("an authority".to_owned());
    });
}

/// Goal: what refuses Flux and castle alike is waited for by nobody, and both say so. Method: castle is refused as its own client tells it.
#[test]
fn what_refuses_flux_and_castle_alike_is_final_at_once() {
    let mended = |keep: &mut Keep| {
        keep.wishes.refusal = None;
        keep.wishes.token = None;
        mend(keep);
    };
    let given_up = async |keep: &mut Keep, words: [&str; 3]| {
        let clock = keep.castle.room.clock.clone();
        let begun = clock.monotonic();
        let said = one(&keep.furnished().await).cannot_pass();
        let [flux, own, next] = words;
        said.is(SOURCE, flux, next);
        assert!(
            said.evidence.contains("castle itself is refused, too: ") && said.evidence.contains(own),
            "{}",
            said.evidence
        );
        assert!(clock.monotonic() - begun < Duration::from_secs(180), "{:?}", clock.monotonic() - begun);
        mended(keep);
    };
    day(&only(&["gitops"]), async |keep, _| {
        keep.push_to("other", &[("a.yaml", "")]);
        keep.datacenter().delete_branch(URL, "main");
        keep.wishes.refusal =
            Some(GitError::BranchMissing { branch: "main".to_owned(), others: vec!["other".to_owned()] });
        let words =
            ["couldn't find remote ref", "has no branch main; it has other", "correct gitops.branch in castle.yaml"];
        given_up(keep, words).await;
    });
    day(&only(&["gitops"]), async |keep, _| {
        keep.datacenter().delete_branch(URL, "main");
        keep.wishes.refusal = Some(GitError::Empty);
        given_up(keep, ["remote repository is empty", "nothing was ever pushed", "git push origin HEAD:main"]).await;
    });
    day(&only(&["gitops"]), async |keep, _| {
        keep.wishes.token = Some("wrong-and-secret".to_owned());
        keep.wishes.refusal = Some(GitError::CredentialRejected { given: true });
        given_up(keep, ["authentication required", "refuses the credential", "a token expires"]).await;
    });
}

/// A host that is away from Flux alone may come back, whatever castle is told.
#[test]
fn what_refuses_castle_alone_does_not_end_the_wait_for_flux() {
    day(&only(&["gitops"]), async |keep, _| {
        keep.wishes.refusal = Some(GitError::CredentialRejected { given: true });
        keep.datacenter().git_down(GIT_HOST, true);
        one(&keep.furnished().await).may_pass().is(SOURCE, "connection refused", LOOK_AT_SOURCE);
        keep.datacenter().git_down(GIT_HOST, false);
        keep.wishes.refusal = None;
    });
}

#[test]
fn a_flux_that_somebody_suspended() {
    day(&only(&["gitops"]), async |keep, person| {
        done(&keep.furnished().await);
        let path = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/flux-system";
        person.edit(path, &json!({"spec": {"suspend": true}})).await;
        keep.push(&[("clusters/blue/word.yaml", &config("word", "another"))]);
        let said = one(&keep.furnished().await).may_pass();
        said.is(FIRST, "is suspended: `flux resume kustomization flux-system` lets it go on", LOOK_AT_FIRST);
        person.edit(path, &json!({"spec": {"suspend": false}})).await;
    });
}

fn kustomization(name: &str, more: &str) -> String {
    format!(
        "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\n\
         spec: {{interval: 10m, retryInterval: 30s, timeout: 1m, prune: true, path: ./{name}, {more}\
         sourceRef: {{kind: GitRepository, name: flux-system}}}}\n"
    )
}

/// Kustomizations of the repository: `apps` waits for `base`, whose Deployment is to be healthy.
fn two(keep: &Keep) {
    keep.push(&[
        ("clusters/blue/base.yaml", &kustomization("base", "wait: true, ")),
        ("clusters/blue/apps.yaml", &kustomization("apps", "dependsOn: [{name: base}], ")),
        ("base/word.yaml", &config("base", "a")),
        ("apps/word.yaml", &config("apps", "b")),
    ]);
}

#[test]
fn a_critical_kustomization_that_fails_is_explained_by_what_it_waits_for() {
    day(&with_gitops(&only(&["gitops"]), "critical: {apps: 5m}"), async |keep, _| {
        two(keep);
        keep.datacenter().fail_component("blue", Component::Flux, ComponentFault::FailedHealthChecks, true);
        let said = one(&keep.furnished().await).may_pass();
        said.is(
            "Kustomization flux-system/apps",
            "waits for base: Kustomization flux-system/base is not ready (HealthCheckFailed)",
            "kubectl describe --namespace flux-system kustomization.kustomize.toolkit.fluxcd.io apps",
        );
        assert!(said.evidence.contains("; event HealthCheckFailed: "), "{}", said.evidence);
        keep.datacenter().fail_component("blue", Component::Flux, ComponentFault::FailedHealthChecks, false);
    });
}

/// It was ready all the time, with the commit before.
#[test]
fn a_critical_kustomization_that_has_applied_an_older_commit_is_waited_for() {
    day(&with_gitops(&only(&["gitops"]), "critical: {apps: 5m}"), async |keep, _| {
        two(keep);
        done(&keep.furnished().await);
        keep.push(&[
            ("clusters/blue/base.yaml", &kustomization("base", "wait: true, ")),
            ("clusters/blue/apps.yaml", &kustomization("apps", "dependsOn: [{name: base}], ")),
            ("base/word.yaml", &config("base", "newer")),
            ("apps/word.yaml", &config("apps", "newer")),
        ]);
        done(&keep.furnished().await);
        let applied = |name: &str| {
            let all = "kustomizations.kustomize.toolkit.fluxcd.io";
            let object = keep.datacenter().object(BLUE, all, "flux-system", name).unwrap();
            object["status"]["lastAppliedRevision"].to_string()
        };
        assert_eq!(applied("apps"), applied("flux-system"));
        assert_eq!(fallen(keep), None);
    });
}

/// Neither is ever applied, and no time changes that.
#[test]
fn critical_kustomizations_that_wait_for_each_other_are_given_up() {
    day(&with_gitops(&only(&["gitops"]), "critical: {apps: 5m}"), async |keep, _| {
        keep.push(&[
            ("clusters/blue/base.yaml", &kustomization("base", "dependsOn: [{name: apps}], ")),
            ("clusters/blue/apps.yaml", &kustomization("apps", "dependsOn: [{name: base}], ")),
            ("base/word.yaml", &config("base", "a")),
            ("apps/word.yaml", &config("apps", "b")),
        ]);
        let said = one(&keep.furnished().await).cannot_pass();
        said.is(
            "Kustomization flux-system/apps",
            "waits for base, which waits for apps: they wait for each other",
            "kubectl describe --namespace flux-system kustomization.kustomize.toolkit.fluxcd.io apps",
        );
        two(keep);
    });
}

#[test]
fn a_kustomization_in_the_background_keeps_nobody_waiting() {
    day(&with_gitops(&only(&["gitops"]), "background: {apps: 5m}"), async |keep, _| {
        two(keep);
        keep.datacenter().fail_component("blue", Component::Flux, ComponentFault::FailedHealthChecks, true);
    });
}
