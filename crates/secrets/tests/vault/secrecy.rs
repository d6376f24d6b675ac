//! No error, no `Debug` and no address that was asked holds anything secret.

use std::sync::Arc;

use castle_datacenter::blueprint::{Approvals, RateLimits, Right};
use castle_datacenter::{Asked, Reply, VaultAsked, VaultReply, Witness};
use castle_engine::Fault;
use castle_secrets::vault::{Reference, Resolver, Vault, VaultError};
use castle_testbed::in_virtual_time;

use crate::room::{CLIENT_ID, CLIENT_SECRET, HOST, PATH, PROJECT, Room, secrets};

const CANARY: &str = "planted-canary-value-of-the-castle";

/// Refuses logins, or all other changes, with secrets: a server that repeats what it was told.
struct Parrot {
    says: String,
    logins: bool,
}

impl Parrot {
    fn new(says: &str, logins: bool) -> Arc<Self> {
        Arc::new(Self { says: format!("bad value {says} of {CLIENT_ID} with {CLIENT_SECRET}"), logins })
    }
}

impl Witness for Parrot {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn vault(&self, asked: &VaultAsked, handle: &mut dyn FnMut() -> VaultReply) -> Option<VaultReply> {
        let is_meant = asked.is_change && asked.target.contains("/auth/") == self.logins;
        if is_meant { Some(VaultReply::failure(400, "BadRequest", self.says.as_str())) } else { Some(handle()) }
    }
}

/// Goal: a value that castle has only ever written is masked, too. Method: one that nothing else knows, repeated by the
/// server that refuses it.
#[test]
fn what_a_server_repeats_of_a_refused_write_is_masked() {
    in_virtual_time(async |clock| {
        let room = Room::new(Arc::new(*clock));
        room.datacenter.watch(Parrot::new("planted-and-never-read", false));
        let wanted = secrets(&[("NEW", "planted-and-never-read")]);
        let error = room.client().upsert(PATH, &wanted, "a note").await.unwrap_err();
        assert_eq!(error.evidence, "bad value [secret] of [secret] with [secret]");
    });
}

/// Goal: whatever goes wrong, nothing planted is shown. Method: every intervention there is, every call, and a server that
/// repeats what it was told; all that could be shown or recorded is searched.
#[test]
fn nothing_planted_is_ever_shown() {
    let interventions: [fn(&Room); 10] = [
        |_| {},
        |room| room.datacenter.vault_down(HOST, true),
        |room| room.datacenter.change_client_secret(HOST, CLIENT_ID, "another"),
        |room| room.datacenter.set_approvals(HOST, PROJECT, Approvals::Everybody),
        |room| room.datacenter.set_vault_limits(HOST, Some(RateLimits { reads: 0, writes: 0, secrets: 0 })),
        |room| room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::ReadValue),
        |room| room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::Edit),
        |room| room.datacenter.revoke_vault_right(HOST, CLIENT_ID, PROJECT, Right::Create),
        |room| room.datacenter.watch(Parrot::new(CANARY, false)),
        |room| room.datacenter.watch(Parrot::new(CANARY, true)),
    ];
    let mut shown = Vec::new();
    for intervene in interventions {
        in_virtual_time(async |clock| {
            let room = Room::new(Arc::new(*clock));
            intervene(&room);
            let client = Arc::new(room.client());
            let wanted = secrets(&[("CANARY", CANARY), ("GITHUB_TOKEN", CANARY)]);
            let mut note = |what: &str, error: VaultError| {
                shown.push(format!("{what}: {error} {error:?} {:?}", Fault::from(error.clone())));
            };
            client.whoami().await.map_err(|error| note("whoami", error)).ok();
            client.upsert(PATH, &wanted, "a note").await.map_err(|error| note("upsert", error)).ok();
            client.upsert("/missing", &wanted, "a note").await.map_err(|error| note("upsert", error)).ok();
            client.get(PATH, "CANARY").await.map_err(|error| note("get", error)).ok();
            client.remove(PATH, &["CANARY".to_owned()].into()).await.map_err(|error| note("remove", error)).ok();
            client.ensure_folder("/x").await.map_err(|error| note("folder", error)).ok();
            let folder = client.list(PATH).await;
            let access = room.access();
            let resolved = Resolver::new(client.clone()).resolve([Reference::new(PATH, "GITHUB_TOKEN")]).await;
            shown.push(format!("{client:?} {folder:?} {resolved:?} {:?} {wanted:?}", access.identity));
            shown.extend(room.log.take());
        });
    }
    assert!(shown.len() > 60, "{}", shown.len());
    for text in shown {
        assert!(!text.contains("planted") && !text.contains(CLIENT_ID), "{text}");
        assert!(!text.contains("Bearer") && !text.contains("eyJ"), "{text}");
    }
}
