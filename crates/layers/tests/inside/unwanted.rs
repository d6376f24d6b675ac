//! Components that go from one hand to another, or that nobody wants any more.

use castle_spec::ComponentName;
use serde_json::json;

use crate::day::{day, one};
use crate::keep::{BLUE, Keep, only};
use crate::person::Person;
use crate::room::done;

fn there(keep: &Keep, namespace: &str) -> bool {
    keep.datacenter().object(BLUE, "namespaces", "", namespace).is_some()
}

fn left(keep: &Keep) -> Vec<ComponentName> {
    keep.leftovers.lock().unwrap().keys().copied().collect()
}

#[test]
fn a_component_that_flux_never_brings() {
    let file = only(&["networking", "gitops"]) + "components: {metallb: {owner: flux}}\n";
    day(&file, async |keep, _| {
        let said = one(&keep.furnished().await).may_pass();
        let why = "Flux is to bring metallb with the Git repository, and has not yet";
        said.is("Namespace metallb-system", why, "kubectl describe namespace metallb-system");
        keep.push_component(ComponentName::Metallb);
    });
}

#[test]
fn a_pool_follows_the_file_while_metallb_is_fluxs() {
    let file = only(&["networking", "gitops"]) + "components: {metallb: {owner: flux}}\n";
    day(&file, async |keep, _| {
        keep.push_component(ComponentName::Metallb);
        done(&keep.furnished().await);
        keep.rewrite(&file.replace("10.0.200.20", "10.0.200.30"));
        done(&keep.furnished().await);
        let pool = keep.datacenter().object(BLUE, "ipaddresspools.metallb.io", "metallb-system", "castle").unwrap();
        assert_eq!(pool["spec"]["addresses"], json!(["10.0.200.1-10.0.200.30"]));
    });
}

/// A castle that has this component, and whose file then wants it no more.
fn unwanted(name: ComponentName, layers: &[&str], happens: impl AsyncFnOnce(&mut Keep, &Person)) {
    let key = if name == ComponentName::ExternalSecrets { "externalSecrets" } else { name.word() };
    let file = only(layers);
    day(&file, async |keep, person| {
        done(&keep.furnished().await);
        assert_eq!(left(keep), []);
        keep.rewrite(&(file.clone() + &format!("components: {{{key}: off}}\n")));
        done(&keep.furnished().await);
        assert_eq!(left(keep), [name]);
        assert!(there(keep, castle_components::namespace(name)), "nobody said that it may go");
        done(&keep.foreseen().await);
        assert_eq!(left(keep), [name], "a plan tells it, too");
        happens(keep, person).await;
    });
}

/// Removes it, and holds that nothing is left of it.
async fn removed(keep: &mut Keep, name: ComponentName) {
    let space = castle_components::namespace(name);
    keep.wishes.removal = vec![name];
    done(&keep.furnished().await);
    assert!(!there(keep, space), "{space}");
    let inventories = keep.datacenter().object_names(BLUE, "configmaps");
    let own = format!("kube-system/castle-{}-", castle_layers::layer_of(name));
    assert!(!inventories.iter().any(|name| name.starts_with(&own)), "{inventories:?}");
    keep.wishes.removal = Vec::new();
    done(&keep.furnished().await);
    assert_eq!(left(keep), []);
}

#[test]
fn metallb_goes_if_that_was_said() {
    unwanted(ComponentName::Metallb, &["networking"], async |keep, _| removed(keep, ComponentName::Metallb).await);
}

#[test]
fn external_secrets_go_if_that_was_said() {
    let layers = ["engine", "gitops"];
    unwanted(ComponentName::ExternalSecrets, &layers, async |keep, _| {
        removed(keep, ComponentName::ExternalSecrets).await;
    });
}

#[test]
fn what_holds_somebody_elses_objects_stays() {
    unwanted(ComponentName::Metallb, &["networking"], async |keep, person| {
        let path = "/apis/metallb.io/v1beta1/namespaces/metallb-system/ipaddresspools";
        let metadata = json!({"name": "mine", "namespace": "metallb-system"});
        let spec = json!({"addresses": ["10.0.210.1-10.0.210.2"]});
        let pool =
            json!({"apiVersion": "metallb.io/v1beta1", "kind": "IPAddressPool", "metadata": metadata, "spec": spec});
        person.create(path, &pool).await;
        keep.scribe.take();
        keep.wishes.removal = vec![ComponentName::Metallb];
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded);
        let why = "IPAddressPool metallb-system/mine in it belongs to a person";
        said.is("Namespace metallb-system", why, "kubectl get all --namespace metallb-system");
        let writes = keep.scribe.take().writes;
        assert!(writes.is_empty(), "{writes:?}");
        person.delete(&format!("{path}/mine")).await;
        removed(keep, ComponentName::Metallb).await;
    });
}

#[test]
fn a_definition_of_somebody_elses_objects_stays() {
    unwanted(ComponentName::ExternalSecrets, &["engine"], async |keep, person| {
        let path = "/apis/external-secrets.io/v1/namespaces/default/externalsecrets";
        let spec = json!({"secretStoreRef": {"kind": "ClusterSecretStore", "name": "infisical"},
            "data": [{"secretKey": "a", "remoteRef": {"key": "GIT_TOKEN"}}]});
        let mine = json!({"apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": {"name": "mine"}, "spec": spec});
        person.create(path, &mine).await;
        keep.castle.room.clock.sleep(std::time::Duration::from_secs(30)).await;
        keep.wishes.removal = vec![ComponentName::ExternalSecrets];
        keep.scribe.take();
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded);
        let definition = "externalsecrets.external-secrets.io";
        let why = "ExternalSecret default/mine would go with it, and belongs to a person";
        let next = format!("kubectl get {definition} --all-namespaces");
        said.is(&format!("CustomResourceDefinition {definition}"), why, &next);
        let writes = keep.scribe.take().writes;
        assert!(writes.is_empty(), "{writes:?}");
        assert!(keep.datacenter().object(BLUE, "secrets", "default", "mine").is_some());
        person.delete(&format!("{path}/mine")).await;
        // Programs leave no claim, and want what they have made all the same.
        person.create_by("some-program", path, &mine).await;
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded);
        let why =
            "ExternalSecret default/mine would go with it, and belongs to somebody whose name castle does not know";
        said.is(&format!("CustomResourceDefinition {definition}"), why, &next);
        person.delete(&format!("{path}/mine")).await;
        removed(keep, ComponentName::ExternalSecrets).await;
    });
}

#[test]
fn flux_goes_only_if_nothing_would_go_with_it() {
    unwanted(ComponentName::Flux, &["gitops"], async |keep, _| {
        keep.wishes.removal = vec![ComponentName::Flux];
        let said = one(&keep.furnished().await);
        assert!(said.is_guarded);
        let why = "has applied 1 objects, and Flux would remove them with it";
        said.is("Kustomization flux-system/flux-system", why, "flux uninstall");
        assert!(keep.datacenter().object(BLUE, "configmaps", "default", "word").is_some());
        keep.push(&[("clusters/blue/kustomization.yaml", "resources: []\n")]);
        keep.castle.room.clock.sleep(std::time::Duration::from_secs(120)).await;
        removed(keep, ComponentName::Flux).await;
    });
}

#[test]
fn longhorn_is_named_and_never_removed() {
    unwanted(ComponentName::Longhorn, &["storage"], async |keep, _| {
        keep.wishes.removal = vec![ComponentName::Longhorn];
        done(&keep.furnished().await);
        assert_eq!(left(keep), [ComponentName::Longhorn]);
        assert!(there(keep, "longhorn-system"));
        let way_out = castle_layers::unwanted::way_out(ComponentName::Longhorn);
        assert!(way_out.contains("castle-storage-longhorn"), "{way_out}");
    });
}
