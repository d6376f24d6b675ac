//! A castle with a vault: nothing is made before its bundle is sealed there, and what somebody else has sealed there for the same life is not written over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{
    EMBEDDED_CLIENT_ID, EMBEDDED_CLIENT_SECRET, EMBEDDED_ENVIRONMENT, EMBEDDED_PROJECT, EMBEDDED_VAULT, Latencies,
    Version,
};
use castle_http::Trust;
use castle_secrets::Secret;
use castle_secrets::infisical::{Access, Client, Identity, Region};
use castle_testbed::{VirtualClock, in_virtual_time};

use crate::castle::{Castle, bundle, faults, quick};
use crate::raise::Slow;
use crate::room::{Room, blueprint, done, door};

/// The castle, with the vault of the room.
fn vaulted(latencies: Option<Latencies>, clock: &VirtualClock) -> Castle {
    let blueprint = blueprint(&["pve"], Version::Nine);
    let blueprint = latencies.map_or(blueprint.clone(), |latencies| blueprint.with_latencies(latencies));
    let mut castle = Castle::new(Room::new(blueprint, &quick(1, 0), door(clock)));
    let members = [("clientId", EMBEDDED_CLIENT_ID), ("clientSecret", EMBEDDED_CLIENT_SECRET)];
    let members: BTreeMap<String, Secret> =
        members.into_iter().map(|(name, value)| (name.to_owned(), Secret::from(value.to_owned()))).collect();
    let access = Access {
        region: Region::parse(&format!("http://{EMBEDDED_VAULT}")).unwrap(),
        trust: Trust::PublicRoots,
        identity: Identity::of(&members).unwrap(),
        project: EMBEDDED_PROJECT.to_owned(),
        environment: EMBEDDED_ENVIRONMENT.to_owned(),
    };
    castle.vault = Some(Arc::new(Client::new(access, castle.room.datacenter.dial(), door(clock)).unwrap()));
    castle
}

/// Goal: the download alone runs beside the minting; the image, and with it the first guest, waits until the bundle is sealed in the vault, not only in the state.
/// Method: keys that take their time, and when each step began and ended.
#[test]
fn what_is_made_of_the_image_waits_for_the_seal_in_the_vault() {
    in_virtual_time(async |clock| {
        let mut castle = vaulted(None, clock);
        castle.mint = Arc::new(Slow(*clock));
        let report = castle.up().await;
        done(&report);
        let span = |kind: &str| report.timeline.spans.iter().find(|span| &*span.step.kind == kind).unwrap();
        let began = |kind: &str| span(kind).ready + span(kind).waited;
        let ended = |kind: &str| began(kind) + span(kind).worked;
        assert!(began("download") < Duration::from_secs(1), "{:?}", span("download"));
        // Client files have keys of their own: they, too, are minted before the vault has the bundle.
        assert!(ended("vault") > ended("bundle"), "{:#?}", report.timeline.spans);
        let kept = castle.room.datacenter.vault(EMBEDDED_VAULT).secrets;
        assert!(kept.keys().any(|name| name.ends_with("/TALOS_BUNDLE")), "{:?}", kept.keys());
        assert!(began("image") >= ended("vault") && began("vm") >= ended("vault"), "{:#?}", report.timeline.spans);
    });
}

/// Goal: one life has one bundle, and the first that was kept is it. Method: the state has another than the vault, as that of somebody has who began the same life from
/// elsewhere.
#[test]
fn other_secrets_of_the_same_life_are_named_and_stay() {
    in_virtual_time(async |clock| {
        let castle = vaulted(Some(Latencies::none()), clock);
        done(&castle.up().await);
        let kept = |castle: &Castle| castle.room.datacenter.vault(EMBEDDED_VAULT).secrets;
        let before = kept(&castle);
        castle.keep_bundle(bundle(clock).await.save().expose()).await;
        let report = castle.up().await;
        let fault = faults(&report).into_iter().find(|fault| fault.subject.contains("TALOS_BUNDLE")).unwrap();
        assert!(fault.guarded);
        assert_eq!(fault.subject, "TALOS_BUNDLE in /castle/blue/proxmox of the vault");
        assert_eq!(
            fault.evidence,
            "holds other secrets of life 1 than the state here: somebody else has begun this life from elsewhere"
        );
        assert_eq!(
            fault.next,
            "let both use one state (state.store, docs/state.md); if those in the vault are the castle's, move the state here away and run castle adopt; if \
             those here are, remove the others from the vault"
        );
        assert_eq!(kept(&castle), before);
    });
}
