//! The same promises for castles of other shapes: without workers, without a component, without a vault, with all that can be added.

use castle_kubernetes::model::{Mark, Object};
use castle_spec::ComponentName;
use castle_testkit::in_virtual_time;

use crate::keep::{BLUE, Keep, Wishes, full, inside_only, with_gitops, without_vault};
use crate::room::door;
use crate::seeds::hold;

/// Holds the promises for this file, and then looks at the castle.
fn fits(file: &str, wishes: Wishes, look: impl FnOnce(&Keep)) {
    in_virtual_time(async |clock| {
        let keep = Keep::new(inside_only(7), file, door(clock)).wishing(wishes);
        hold(&keep, "seed 7").await;
        look(&keep);
    });
}

/// The arguments of the first container of a workload.
fn arguments(keep: &Keep, collection: &str, namespace: &str, name: &str) -> String {
    let object = keep.datacenter().object(BLUE, collection, namespace, name).unwrap();
    object["spec"]["template"]["spec"]["containers"][0]["args"].to_string()
}

#[test]
fn one_node_announces_addresses_itself() {
    fits(&full(1, 0), Wishes::default(), |keep| {
        // Talos labels control planes so that nobody announces from them: nobody else is there.
        assert!(arguments(keep, "daemonsets.apps", "metallb-system", "speaker").contains("--ignore-exclude-lb"));
    });
    fits(&full(1, 1), Wishes::default(), |keep| {
        assert!(!arguments(keep, "daemonsets.apps", "metallb-system", "speaker").contains("--ignore-exclude-lb"));
    });
}

#[test]
fn each_component_can_be_left_out() {
    let key = |name: ComponentName| match name {
        ComponentName::ExternalSecrets => "externalSecrets",
        other => other.word(),
    };
    for name in ComponentName::ALL {
        let file = if name == ComponentName::ExternalSecrets { without_vault(&full(1, 1)) } else { full(1, 1) };
        fits(&format!("{file}components: {{{}: off}}\n", key(name)), Wishes::default(), |keep| {
            let space = castle_components::patches::namespace(name);
            assert!(!keep.manifests.contains_key(&name));
            assert_eq!(keep.datacenter().object(BLUE, "namespaces", "", space), None, "{space}");
        });
    }
}

#[test]
fn what_is_fluxs_is_left_to_flux() {
    let file = full(1, 1) + "components: {metallb: {owner: flux}}\n";
    fits(&file, Wishes::default(), |keep| {
        assert_eq!(keep.datacenter().object(BLUE, "namespaces", "", "metallb-system"), None);
    });
}

#[test]
fn without_a_vault_castle_gives_the_credential() {
    fits(&without_vault(&full(1, 1)), Wishes::default(), |keep| {
        let secret = keep.datacenter().object(BLUE, "secrets", "flux-system", "flux-system").unwrap();
        assert!(Mark::of(&Object::new(secret).unwrap()).is_some_and(|mark| mark.castle == "blue"));
        assert_eq!(keep.datacenter().object(BLUE, "namespaces", "", "external-secrets"), None);
    });
}

#[test]
fn a_public_repository_needs_no_credential() {
    let file = full(1, 1).replace(", credential: vault:GIT_TOKEN", "");
    fits(&file, Wishes::default(), |keep| {
        assert_eq!(keep.datacenter().object(BLUE, "secrets", "flux-system", "flux-system"), None);
    });
}

#[test]
fn a_first_volume_is_written_once() {
    let file = full(1, 1) + "storage: {longhorn: {proof: true}}\n";
    fits(&file, Wishes::default(), |keep| {
        let (world, space, name) = (keep.datacenter(), "longhorn-system", "castle-volume-proof");
        assert!(world.object(BLUE, "configmaps", space, name).is_some());
        assert_eq!(world.object(BLUE, "jobs.batch", space, name), None);
        assert_eq!(world.object(BLUE, "persistentvolumeclaims", space, name), None);
    });
}

#[test]
fn image_automation_and_an_age_key_can_be_had() {
    let file = with_gitops(&full(1, 1), "imageAutomation: true, ageKey: env:AGE");
    let wishes = Wishes { age_key: Some("AGE-SECRET-KEY-1".to_owned()), ..Wishes::default() };
    fits(&file, wishes, |keep| {
        let controllers = keep.datacenter().object_names(BLUE, "deployments.apps");
        assert!(controllers.contains(&"flux-system/image-automation-controller".to_owned()), "{controllers:?}");
        let key = keep.datacenter().object(BLUE, "secrets", "flux-system", "sops-age").unwrap();
        assert!(key["data"]["castle.agekey"].is_string());
    });
}
