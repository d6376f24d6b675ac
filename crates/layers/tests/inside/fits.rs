//! The same promises for castles of other shapes: without workers, without a component, without a vault, with all that can be added.

use castle_kubernetes::model::{Mark, Object};
use castle_spec::ComponentName;
use castle_testbed::in_virtual_time;

use crate::keep::{BLUE, GIT_HOST, Keep, TOKEN, URL, Wishes, full, inside_only, with_gitops, without_vault};
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
            let space = castle_components::namespace(name);
            assert!(!keep.manifests.contains_key(&name));
            assert_eq!(keep.datacenter().object(BLUE, "namespaces", "", space), None, "{space}");
        });
    }
}

/// Holds the promises for a castle whose Flux brings this component, and then looks at it.
fn brings(name: ComponentName, look: impl FnOnce(&Keep)) {
    let key = if name == ComponentName::Metallb { "metallb" } else { "externalSecrets" };
    let file = full(1, 1) + &format!("components: {{{key}: {{owner: flux}}}}\n");
    in_virtual_time(async |clock| {
        let keep = Keep::new(inside_only(7), &file, door(clock));
        keep.push_component(name);
        hold(&keep, key).await;
        look(&keep);
    });
}

/// What castle's mark of an object says it is of.
fn part(keep: &Keep, collection: &str, namespace: &str, name: &str) -> Option<String> {
    let object = Object::new(keep.datacenter().object(BLUE, collection, namespace, name)?)?;
    Mark::of(&object).map(|mark| mark.component)
}

#[test]
fn the_pool_is_castles_where_metallb_is_fluxs() {
    brings(ComponentName::Metallb, |keep| {
        let part = |collection: &str, name: &str| part(keep, collection, "metallb-system", name);
        assert_eq!(part("deployments.apps", "controller"), None, "Flux's");
        assert_eq!(part("ipaddresspools.metallb.io", "castle").as_deref(), Some("pool"));
        assert_eq!(part("l2advertisements.metallb.io", "castle").as_deref(), Some("advertisement"));
    });
}

#[test]
fn the_store_is_castles_where_external_secrets_are_fluxs() {
    brings(ComponentName::ExternalSecrets, |keep| {
        let stores = "clustersecretstores.external-secrets.io";
        assert_eq!(part(keep, "deployments.apps", "external-secrets", "external-secrets"), None, "Flux's");
        assert_eq!(part(keep, stores, "", "infisical").as_deref(), Some("store"));
        assert_eq!(crate::stands::is_valid_store(keep.datacenter()), None);
        // Flux reads the repository with what it cannot have from what it brings.
        assert_eq!(part(keep, "secrets", "flux-system", "flux-system").as_deref(), Some("inputs"));
    });
}

/// A key, and what its host shows of itself.
pub(crate) const IDENTITY: &str =
    "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----\n";
pub(crate) const HOST_KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHo";
pub(crate) const APP_KEY: &str = "-----BEGIN RSA PRIVATE KEY-----\nMIIB\n-----END RSA PRIVATE KEY-----\n";
pub(crate) const SSH_URL: &str = "ssh://git@git.example/team/blue.git";

pub(crate) fn parts(all: &[(&str, &str)]) -> Option<std::collections::BTreeMap<String, String>> {
    Some(all.iter().map(|(name, part)| ((*name).to_owned(), (*part).to_owned())).collect())
}

/// Holds the promises for a castle whose repository lets in who shows this.
fn lets_in(wishes: Wishes, prepare: impl FnOnce(&Keep)) {
    in_virtual_time(async |clock| {
        let keep = Keep::new(inside_only(7), &without_vault(&full(1, 1)), door(clock)).wishing(wishes);
        prepare(&keep);
        hold(&keep, "seed 7").await;
    });
}

#[test]
fn a_repository_is_read_with_whatever_flux_can_show() {
    lets_in(Wishes { parts: parts(&[("username", "somebody"), ("password", TOKEN)]), ..Wishes::default() }, |_| {});
    lets_in(Wishes { parts: parts(&[("bearerToken", TOKEN)]), ..Wishes::default() }, |_| {});
}

#[test]
fn a_repository_is_read_by_ssh() {
    let known_hosts = format!("git.example {HOST_KEY}");
    let wishes = Wishes {
        parts: parts(&[("identity", IDENTITY), ("known_hosts", &known_hosts)]),
        address: Some(SSH_URL.to_owned()),
        // Castle does not speak SSH, and takes Flux's word for what is the newest.
        is_head_unknown: true,
        ..Wishes::default()
    };
    lets_in(wishes, |keep| keep.datacenter().admit_key(URL, IDENTITY, HOST_KEY));
}

#[test]
fn a_repository_is_read_by_an_app() {
    for installation in ["githubAppInstallationID", "githubAppInstallationOwner"] {
        let app = [("githubAppID", "12"), ("githubAppPrivateKey", APP_KEY), (installation, "34")];
        let wishes = Wishes { parts: parts(&app), is_head_unknown: true, ..Wishes::default() };
        lets_in(wishes, |keep| keep.datacenter().admit_app(URL, "12", APP_KEY));
    }
}

#[test]
fn a_git_server_of_ones_own_authority_is_believed() {
    let authority = "-----BEGIN CERTIFICATE-----\nMIIC\n-----END CERTIFICATE-----\n";
    for file in [full(1, 1), without_vault(&full(1, 1)), full(1, 1).replace(", credential: vault:GIT_TOKEN", "")] {
        in_virtual_time(async |clock| {
            let wishes = Wishes { authority: Some(authority.to_owned()), ..Wishes::default() };
            let keep = Keep::new(inside_only(7), &file, door(clock)).wishing(wishes);
            keep.datacenter().sign_git_host(GIT_HOST, authority);
            hold(&keep, &file).await;
        });
    }
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
fn image_automation_the_source_watcher_and_an_age_key_can_be_had() {
    let file = with_gitops(&full(1, 1), "imageAutomation: true, ageKey: env:AGE");
    let file = format!("{file}components: {{flux: {{version: v2.8.8, sourceWatcher: true}}}}\n");
    let wishes = Wishes { age_key: Some("AGE-SECRET-KEY-1".to_owned()), ..Wishes::default() };
    fits(&file, wishes, |keep| {
        let controllers = keep.datacenter().object_names(BLUE, "deployments.apps");
        for controller in ["image-automation-controller", "source-watcher"] {
            assert!(controllers.contains(&format!("flux-system/{controller}")), "{controllers:?}");
        }
        let key = keep.datacenter().object(BLUE, "secrets", "flux-system", "sops-age").unwrap();
        assert!(key["data"]["castle.agekey"].is_string());
    });
}
