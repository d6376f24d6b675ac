//! One call at a time: what is asked, and what each answer is taken for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{Approvals, Placed, RateLimits, Right};
use castle_datacenter::{Asked, Reply, VaultAsked, VaultReply};
use castle_engine::{Class, Fault};
use castle_seams::Clock;
use castle_secrets::Secret;
use castle_secrets::infisical::{Access, Identity, LARGEST_BODY, Region};
use castle_secrets::vault::{Vault, VaultErrorKind};
use castle_testbed::in_virtual_time;

use crate::room::{CLIENT_ID, HOST, PATH, PROJECT, Room, secrets};

#[test]
fn who_logs_in_once_finds_project_and_environment() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let client = room.client();
        let account = client.whoami().await.unwrap();
        assert_eq!(account.place, "Infisical (eu.infisical.com), project tazlab, environment prod");
        client.whoami().await.unwrap();
        assert_eq!(room.log.brief(), ["POST v1/auth/universal-auth/login", "GET v1/projects/slug/tazlab"]);

        let missing = room.client_with(Access { environment: "production".into(), ..room.access() });
        let error = missing.whoami().await.unwrap_err();
        assert_eq!(error.evidence, "it has no environment production: it has dev, prod");
        let missing = room.client_with(Access { project: "other".into(), ..room.access() });
        let error = missing.whoami().await.unwrap_err();
        assert_eq!(
            (error.kind, error.evidence.as_str()),
            (VaultErrorKind::Missing, "Project with slug 'other' not found")
        );
    });
}

/// Goal: three failures lock an identity, so a refused login is never repeated, whoever asks and however often.
#[test]
fn a_refused_login_is_shown_once_and_names_the_region() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let wrong =
            Identity { client_secret: Secret::from("planted-wrong-secret".to_owned()), ..room.access().identity };
        let client = room.client_with(Access { identity: wrong.clone(), ..room.access() });
        let (one, other) = tokio::join!(client.list(PATH), client.whoami());
        let (one, other) = (one.unwrap_err(), other.unwrap_err());
        assert_eq!(one, other);
        assert_eq!(one.kind, VaultErrorKind::Unauthenticated);
        assert_eq!(
            one.to_string(),
            "Infisical (eu.infisical.com): the login of the identity was refused: Invalid credentials"
        );
        assert!(one.next.contains("region: eu"), "{}", one.next);
        assert_eq!(Fault::from(client.list(PATH).await.unwrap_err()).class, Class::Final);
        assert_eq!(room.log.brief(), ["POST v1/auth/universal-auth/login"]);

        for _ in 0..2 {
            room.client_with(Access { identity: wrong.clone(), ..room.access() }).whoami().await.unwrap_err();
        }
        let error = room.client().whoami().await.unwrap_err();
        assert!(error.evidence.contains("temporarily locked") && error.next.contains("five minutes"), "{error:?}");
        clock.sleep(Duration::from_secs(300)).await;
        room.client().whoami().await.unwrap();
    });
}

#[test]
fn lists_are_as_they_were_written_and_of_one_folder() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let client = room.client();
        let folder = client.list(PATH).await.unwrap().unwrap();
        let shown: Vec<(&str, &str)> =
            folder.iter().map(|(name, entry)| (name.as_str(), entry.value.as_ref().unwrap().expose())).collect();
        let expected = [("GITHUB_TOKEN", "planted-github-token"), ("REFERRING", "a ${GITHUB_TOKEN} b")];
        assert_eq!(shown, expected, "references are not expanded");
        assert!(client.list("/castle/green").await.unwrap().is_none());
        let entry = client.get(PATH, "REFERRING").await.unwrap().unwrap();
        assert_eq!(entry.value.unwrap().expose(), "a ${GITHUB_TOKEN} b");
        assert!(client.get(PATH, "NOBODY").await.unwrap().is_none());
        assert!(client.get("/nowhere", "NOBODY").await.unwrap().is_none());
        for line in room.log.take().iter().filter(|line| line.contains("/v4/secrets")) {
            assert!(line.contains("expandSecretReferences=false&includeImports=false"), "{line}");
        }
    });
}

#[test]
fn many_are_saved_at_once_and_removed_at_once() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let client = room.client();
        client.ensure_folder("/castle/new/deep").await.unwrap();
        client.ensure_folder("/castle/new/deep").await.unwrap();
        client.ensure_folder("/").await.unwrap();
        let wanted = secrets(&[("KUBECONFIG", "  apiVersion: v1\n\n"), ("TALOSCONFIG", "context: blue\n")]);
        client.upsert("/castle/new/deep", &wanted, "a note").await.unwrap();
        client.upsert("/castle/new/deep", &wanted, "a note").await.unwrap();
        let folder = client.list("/castle/new/deep").await.unwrap().unwrap();
        for (name, wanted) in &wanted {
            assert_eq!(folder[name].value.as_ref().unwrap().expose(), client.kept(wanted.expose()), "{name}");
            assert_eq!(folder[name].note, "a note");
        }
        client.remove("/castle/new/deep", &wanted.keys().cloned().collect()).await.unwrap();
        assert!(client.list("/castle/new/deep").await.unwrap().unwrap().is_empty());
        client.remove("/castle/new/deep", &BTreeSet::new()).await.unwrap();
        let changes: Vec<String> = room.log.brief().into_iter().filter(|line| !line.starts_with("GET")).collect();
        assert_eq!(
            changes[1..],
            [
                "POST v2/folders",
                "POST v2/folders",
                "PATCH v4/secrets/batch",
                "PATCH v4/secrets/batch",
                "DELETE v4/secrets/batch"
            ]
        );
    });
}

#[test]
fn what_is_too_large_is_never_sent() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let client = room.client();
        client.whoami().await.unwrap();
        room.log.take();
        let big = secrets(&[("A", "small enough"), ("BIG", &"planted\n".repeat(256 << 10))]);
        let error = client.upsert(PATH, &big, "").await.unwrap_err();
        assert_eq!(error.kind, VaultErrorKind::TooLarge);
        assert!(error.to_string().starts_with("Infisical (eu.infisical.com), secret BIG: "), "{error}");
        assert!(error.evidence.contains(&LARGEST_BODY.to_string()), "{error}");
        assert!(room.log.take().is_empty());

        // Together too large for one request, each alone not.
        let several: Vec<(String, String)> =
            (0..4).map(|number| (format!("N{number}"), "x".repeat(400 << 10))).collect();
        let several: Vec<(&str, &str)> = several.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        client.upsert(PATH, &secrets(&several), "").await.unwrap();
        assert_eq!(room.log.brief(), ["PATCH v4/secrets/batch"; 2]);
    });
}

#[test]
fn a_change_that_waits_for_approval_is_a_failure() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.set_approvals(HOST, PROJECT, Approvals::Everybody);
        let client = room.client();
        let error = client.upsert(PATH, &secrets(&[("NEW", "value")]), "").await.unwrap_err();
        assert_eq!(error.kind, VaultErrorKind::Waiting);
        assert_eq!(Fault::from(error).class, Class::Final);
        assert!(client.get(PATH, "NEW").await.unwrap().is_none());
        let error = client.remove(PATH, &["GITHUB_TOKEN".to_owned()].into()).await.unwrap_err();
        assert_eq!(error.kind, VaultErrorKind::Waiting);
    });
}

#[test]
fn values_that_are_hidden_are_no_values() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::ReadValue);
        let client = room.client();
        assert!(client.list(PATH).await.unwrap().unwrap().values().all(|entry| entry.value.is_none()));
        let error = client.get(PATH, "GITHUB_TOKEN").await.unwrap_err();
        assert_eq!(error.kind, VaultErrorKind::Hidden);
        room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::Describe);
        let error = client.list(PATH).await.unwrap_err();
        assert_eq!(
            (error.kind, error.evidence.as_str()),
            (VaultErrorKind::Forbidden, "You are not allowed to describeSecret on secrets")
        );
        assert!(error.next.contains("project tazlab"), "{error:?}");
    });
}

#[test]
fn limits_are_waited_for_within_a_bound() {
    in_virtual_time(async |clock| {
        let mut vault = crate::room::vault();
        vault.limits = Some(RateLimits { reads: 10, writes: 10, secrets: 2 });
        let room = Room::of(vault, Arc::new(*clock));
        let client = room.client();
        let begun = clock.monotonic();
        for _ in 0..5 {
            client.list(PATH).await.unwrap();
        }
        let taken = clock.monotonic() - begun;
        assert!(taken >= Duration::from_secs(119) && taken <= Duration::from_secs(121), "{taken:?}");

        room.datacenter.set_vault_limits(HOST, Some(RateLimits { reads: 0, writes: 0, secrets: 0 }));
        let begun = clock.monotonic();
        let error = client.list(PATH).await.unwrap_err();
        assert!(matches!(error.kind, VaultErrorKind::Busy(Some(_))), "{error:?}");
        assert!(clock.monotonic() - begun <= Duration::from_secs(120));
        let fault = Fault::from(error);
        assert!(fault.contention && matches!(fault.class, Class::RetryableAfter(Some(_))), "{fault:?}");
    });
}

#[test]
fn a_token_that_ends_midway_is_replaced_once() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let client = room.client();
        client.whoami().await.unwrap();
        for is_revoked in [false, true] {
            let datacenter = &room.datacenter;
            if is_revoked {
                datacenter.revoke_vault_tokens(HOST);
            } else {
                datacenter.expire_vault_tokens(HOST);
            }
            room.log.take();
            client.list(PATH).await.unwrap();
            assert_eq!(room.log.brief(), ["GET v4/secrets", "POST v1/auth/universal-auth/login", "GET v4/secrets"]);
        }
        // Many at once log in once.
        room.datacenter.expire_vault_tokens(HOST);
        let (one, other) = tokio::join!(client.list(PATH), client.list("/shared"));
        assert!(one.is_ok() && other.is_ok());
        assert_eq!(room.log.brief().iter().filter(|line| line.contains("login")).count(), 1);
        // A token about to end is replaced before it is refused.
        clock.sleep(castle_datacenter::blueprint::LONGEST_TOKEN - Duration::from_secs(10)).await;
        client.list(PATH).await.unwrap();
        assert_eq!(room.log.brief(), ["POST v1/auth/universal-auth/login", "GET v4/secrets"]);
        // And if the identity is worth nothing any more, that is told.
        room.datacenter.expire_vault_tokens(HOST);
        room.datacenter.change_client_secret(HOST, CLIENT_ID, "another");
        assert_eq!(client.list(PATH).await.unwrap_err().kind, VaultErrorKind::Unauthenticated);
    });
}

#[test]
fn a_vault_that_is_down_is_told_from_one_that_refuses() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.vault_down(HOST, true);
        let error = room.client().list(PATH).await.unwrap_err();
        assert_eq!(error.kind, VaultErrorKind::Unreachable);
        assert!(error.to_string().contains("connection refused") && error.next.contains("region"), "{error:?}");
        assert_eq!(Fault::from(error).class, Class::RefusedBeforeEffect);
        room.datacenter.vault_down(HOST, false);
        let beside = Region::parse(&format!("http://{HOST}/elsewhere")).unwrap();
        let error = room.client_with(Access { region: beside, ..room.access() }).list(PATH).await.unwrap_err();
        assert_eq!((error.kind, error.changes), (VaultErrorKind::Missing, false), "{error:?}");
        let other = Region::parse("http://us.infisical.com").unwrap();
        let error = room.client_with(Access { region: other, ..room.access() }).list(PATH).await.unwrap_err();
        assert!(error.to_string().starts_with("Infisical (us.infisical.com)"), "{error}");
    });
}

#[test]
fn what_somebody_else_removes_meanwhile_is_looked_at_again() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.place_secret(HOST, PROJECT, Placed::new("prod", PATH, "OURS", "x"));
        let error = room.client().remove(PATH, &["OURS".to_owned(), "GONE".to_owned()].into()).await.unwrap_err();
        assert_eq!(Fault::from(error).class, Class::EffectUnknown);
        assert!(room.client().get(PATH, "OURS").await.unwrap().is_some(), "all or none");
    });
}

/// Answers every login as the server does where many wrong ones come at once.
struct Crowded;

impl castle_datacenter::Witness for Crowded {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn vault(&self, _: &VaultAsked, _: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        Some(VaultReply::failure(429, "RateLimitExceeded", "Failed to acquire lock: rate limit exceeded"))
    }
}

/// Lets everybody in, and then believes no token.
struct Fickle;

impl castle_datacenter::Witness for Fickle {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn vault(&self, asked: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        if asked.is_change { Some(handle()) } else { Some(VaultReply::failure(403, "TokenError", "invalid signature")) }
    }
}

#[test]
fn a_token_that_is_never_believed_is_replaced_once_and_no_more() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.watch(Arc::new(Fickle));
        let error = room.client().list(PATH).await.unwrap_err();
        assert_eq!((error.kind, error.evidence.as_str()), (VaultErrorKind::Unauthenticated, "invalid signature"));
        assert!(error.to_string().starts_with("Infisical (eu.infisical.com), ") && error.next.contains("region: eu"));
        let (login, look) = ("POST v1/auth/universal-auth/login", "GET v1/projects/slug/tazlab");
        assert_eq!(room.log.brief(), [login, look, login, look]);
    });
}

/// Goal: the server says 429 and no time only to a login that was wrong. Method: it is not shown again.
#[test]
fn a_wrong_login_in_a_crowd_is_not_repeated() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.watch(Arc::new(Crowded));
        let client = room.client();
        for _ in 0..2 {
            assert_eq!(client.whoami().await.unwrap_err().kind, VaultErrorKind::Unauthenticated);
        }
        assert_eq!(room.log.brief().len(), 1);
    });
}
