//! References: one look at each folder, however many there are.

use std::sync::Arc;

use castle_datacenter::blueprint::{Placed, Right};
use castle_secrets::vault::{Reference, Resolver, VaultErrorKind};
use castle_testbed::in_virtual_time;

use crate::room::{CLIENT_ID, HOST, PATH, PROJECT, Room, vault};

#[test]
fn fifty_references_cost_one_look_a_folder() {
    in_virtual_time(async |clock| {
        let mut vault = vault();
        let names = |path: &str| (0..25).map(|number| Reference::new(path, &format!("N{number}"))).collect::<Vec<_>>();
        for path in [PATH, "/shared"] {
            for Reference { path, name } in names(path) {
                vault.projects[0].secrets.push(Placed::new("prod", &path, &name, &format!("{path} {name}")));
            }
        }
        let room = Room::of(vault, Arc::new(*clock));
        let resolver = Resolver::new(Arc::new(room.client()));
        let wanted = [names(PATH), names("/shared")].concat();
        let (one, other) = tokio::join!(resolver.resolve(wanted.clone()), resolver.resolve(wanted.clone()));
        for (reference, secret) in one.iter().chain(&other) {
            assert_eq!(secret.as_ref().unwrap().expose(), format!("{} {}", reference.path, reference.name));
        }
        assert_eq!((one.len(), other.len()), (50, 50));
        resolver.resolve(wanted).await;
        let looks = room.log.brief().into_iter().filter(|line| line == "GET v4/secrets").count();
        assert_eq!(looks, 2);
    });
}

#[test]
fn each_reference_fails_on_its_own() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let resolver = Resolver::new(Arc::new(room.client()));
        let wanted = [(PATH, "GITHUB_TOKEN"), (PATH, "GITHUB_TOKN"), ("/castle/red", "X")];
        let answers = resolver.resolve(wanted.map(|(path, name)| Reference::new(path, name))).await;
        let told: Vec<String> = answers
            .values()
            .map(|answer| answer.as_ref().map_or_else(ToString::to_string, |_| "found".to_owned()))
            .collect();
        assert_eq!(
            told,
            [
                "found",
                "vault:GITHUB_TOKN in /castle/blue/proxmox: /castle/blue/proxmox has no secret GITHUB_TOKN: the nearest name is GITHUB_TOKEN",
                "vault:X in /castle/red: the vault has no folder /castle/red",
            ]
        );
    });
}

#[test]
fn a_look_that_failed_is_made_again() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        let resolver = Resolver::new(Arc::new(room.client()));
        let wanted = Reference::new(PATH, "GITHUB_TOKEN");
        room.datacenter.vault_down(HOST, true);
        assert_eq!(
            resolver.resolve([wanted.clone()]).await[&wanted].as_ref().unwrap_err().kind,
            VaultErrorKind::Unreachable
        );
        room.datacenter.vault_down(HOST, false);
        assert!(resolver.resolve([wanted.clone()]).await[&wanted].is_ok());
    });
}

#[test]
fn a_hidden_value_fails_only_who_wants_it() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::ReadValue);
        let wanted = Reference::new(PATH, "GITHUB_TOKEN");
        let answers = Resolver::new(Arc::new(room.client())).resolve([wanted.clone()]).await;
        let error = answers[&wanted].as_ref().unwrap_err();
        assert_eq!(error.kind, VaultErrorKind::Hidden);
        assert!(error.next.contains("read values"), "{error:?}");
    });
}
