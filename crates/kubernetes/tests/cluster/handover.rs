//! MetalLB from castle to Flux and back, with Flux's own behaviour; and all that can be in the way.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use castle_components::adapt;
use castle_components::{Fit, standin};
use castle_engine::Report;
use castle_kubernetes::model::{Key, Object, Owner};
use castle_kubernetes::steps::{Keeper, Known, declared, give, install, prove, take, tenures};
use castle_seams::Clock;
use castle_spec::ComponentName;
use serde_json::json;

use crate::flux;
use crate::room::{Room, fault, in_hall, in_room, mark, object, well};

const URL: &str = "https://git.example.com/team/castle.git";
const FIT: Fit = Fit {
    replicas: 1,
    has_data_disks: false,
    is_without_workers: false,
    is_small: true,
    has_image_automation: false,
    has_source_watcher: false,
};

async fn converge(room: &Room, objects: &[Object]) {
    well(&room.run(|graph, api| drop(install(graph, api, objects, &mark("metallb")))).await);
}

async fn given(room: &Room) -> Report {
    room.run(|graph, api| give(graph, api, &mark("metallb"))).await
}

async fn taken(room: &Room, objects: &[Object]) -> Report {
    room.run(|graph, api| take(graph, api, objects, &mark("metallb"))).await
}

fn keys(objects: &[Object]) -> BTreeSet<Key> {
    objects.iter().map(Object::key).collect()
}

/// What the arbiter says if castle.yaml has this owner.
async fn way_out(room: &Room, keeper: Keeper, objects: &[Object]) -> Option<String> {
    let known = Known { mark: mark("metallb"), keeper, objects: keys(objects), name: Some("metallb".to_owned()) };
    let mut found = tenures(&room.api, &[known]).await.unwrap();
    found.remove(0).quarrel.map(|(_, next)| next)
}

/// Pushes a tree with these objects, and waits until it is applied.
async fn push(room: &Room, objects: &[Object]) {
    let file = |object: &Object| {
        let name = object.key().line().replace(['/', ':'], "-");
        (format!("apps/{name}.yaml"), object.value().to_string().into_bytes())
    };
    let mut files: BTreeMap<String, Vec<u8>> = objects.iter().map(file).collect();
    files.insert("README.md".to_owned(), b"a tree".to_vec());
    let other = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "default"}});
    files.insert("apps/other.yaml".to_owned(), other.to_string().into_bytes());
    room.datacenter().push(URL, "main", &files, "a commit");
    room.clock.sleep(Duration::from_secs(150)).await;
}

/// Flux as castle installs it, following a repository.
async fn flux_follows(room: &Room) {
    let flux = adapt(ComponentName::Flux, &standin::objects(ComponentName::Flux), &FIT).unwrap();
    well(&room.run(|graph, api| drop(install(graph, api, &flux, &mark("flux")))).await);
    room.datacenter().add_repository(URL, None);
    let sync = [
        object(json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository",
            "metadata": {"name": "castle", "namespace": "flux-system"},
            "spec": {"url": URL, "interval": "1m", "ref": {"branch": "main"}},
        })),
        object(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization",
            "metadata": {"name": "apps", "namespace": "flux-system"},
            "spec": {
                "interval": "1m", "retryInterval": "1m", "path": "./apps", "prune": true,
                "sourceRef": {"kind": "GitRepository", "name": "castle"},
            },
        })),
    ];
    well(&room.run(|graph, api| drop(install(graph, api, &sync, &mark("sync")))).await);
}

#[test]
fn metallb_goes_to_flux_and_back_and_its_pods_notice_nothing() {
    in_hall(async |room| {
        let metallb = adapt(ComponentName::Metallb, &standin::objects(ComponentName::Metallb), &FIT).unwrap();
        converge(room, &metallb).await;
        flux_follows(room).await;
        room.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(way_out(room, Keeper::Castle, &metallb).await, None);

        // It is castle's, and no tree has it: it is not given away.
        push(room, &[]).await;
        let refused = fault(&given(room).await);
        assert!(refused.guarded && refused.evidence.contains("is in no inventory of Flux"), "{refused}");
        assert!(refused.next.contains("commit it"), "{}", refused.next);

        // The tree lacks one object.
        push(room, &metallb[1..]).await;
        let refused = fault(&given(room).await);
        assert_eq!(refused.to_string(), format!("{}: is in no inventory of Flux", metallb[0].key()));

        push(room, &metallb).await;
        assert_eq!(way_out(room, Keeper::Castle, &metallb).await.unwrap(), "castle handover metallb --to castle");
        assert_eq!(way_out(room, Keeper::Flux, &metallb).await.unwrap(), "castle handover metallb --to flux");
        let before = prove(&room.api, &keys(&metallb)).await.unwrap();
        assert!(before.pods.len() >= 2, "a controller and a speaker: {:?}", before.pods);
        well(&given(room).await);
        room.clock.sleep(Duration::from_secs(150)).await;
        let after = prove(&room.api, &keys(&metallb)).await.unwrap();
        assert_eq!(before.disturbed(&after), Vec::<String>::new());
        for (key, seen) in &after.objects {
            assert!(
                seen.managers.contains("kustomize-controller") && !seen.managers.contains("castle"),
                "{key}: {seen:?}"
            );
        }
        assert_eq!(way_out(room, Keeper::Flux, &metallb).await, None);
        assert_eq!(way_out(room, Keeper::Castle, &metallb).await.unwrap(), "castle handover metallb --to castle");

        // And back: first both have it, and Flux is kept from it, whatever the tree says.
        well(&taken(room, &metallb).await);
        room.clock.sleep(Duration::from_secs(150)).await;
        let waiting = declared(&room.api, &keys(&metallb)).await.unwrap();
        assert_eq!(waiting.len(), 1);
        assert_eq!(waiting[0].owner, Owner::Flux("flux-system".to_owned(), "apps".to_owned()));
        assert_eq!(waiting[0].objects.len(), metallb.len());
        assert_eq!(way_out(room, Keeper::Castle, &metallb).await.unwrap(), "castle handover metallb --to castle");
        // Then the tree lets go of it, and Flux prunes nothing.
        push(room, &[]).await;
        assert_eq!(declared(&room.api, &keys(&metallb)).await.unwrap(), []);
        well(&taken(room, &metallb).await);
        room.clock.sleep(Duration::from_secs(150)).await;
        let back = prove(&room.api, &keys(&metallb)).await.unwrap();
        assert_eq!(before.disturbed(&back), Vec::<String>::new());
        for (key, seen) in &back.objects {
            assert!(
                seen.managers.contains("castle") && !seen.managers.contains("kustomize-controller"),
                "{key}: {seen:?}"
            );
        }
        assert_eq!(way_out(room, Keeper::Castle, &metallb).await, None);
        // What castle wants is what is there: nothing is left to do.
        room.seen.take();
        converge(room, &metallb).await;
        let asked = room.seen.take();
        let changes: Vec<&String> =
            asked.iter().filter(|method| !method.starts_with("GET") && !method.starts_with("TRY")).collect();
        assert!(changes.is_empty(), "{changes:?}");
    });
}

fn config(value: &str) -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}, "data": {"a": value, "b": "1"},
    }))
}

const PATH: &str = "/api/v1/namespaces/default/configmaps/a";

#[test]
fn nothing_is_given_that_flux_does_not_hold_now() {
    in_room(async |room| {
        converge(room, &[config("1")]).await;
        let mut part = config("1").value().clone();
        part["data"] = json!({"a": "1"});
        flux::applies(room, &[object(part)]).await;
        let refused = fault(&given(room).await);
        let told = "ConfigMap default/a: castle wants .data.b, and Flux (Kustomization default/apps) does not";
        assert!(refused.guarded);
        assert_eq!(refused.to_string(), told);
        assert!(refused.next.contains("make the object in the Git repository equal"), "{}", refused.next);

        flux::applies(room, &[config("1")]).await;
        for (more, told) in [
            (json!({"suspend": true}), "Kustomization default/apps is suspended"),
            (
                json!({"conditions": [{"type": "Ready", "status": "False", "message": "no such path"}]}),
                "Kustomization default/apps is not reconciled: no such path",
            ),
            (json!({"seen": false}), "Kustomization default/apps is not reconciled: it has changed since"),
            (
                json!({"lastAttemptedRevision": "main@sha1:2"}),
                "Kustomization default/apps has applied main@sha1:1, and not yet main@sha1:2",
            ),
        ] {
            flux::lists(room, &[config("1")], &more).await;
            let refused = fault(&given(room).await);
            assert!(refused.guarded && refused.evidence == told, "{refused}");
        }
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(live.label("castle.dev/component"), Some("metallb"), "castle still has it");
        flux::lists(room, &[config("1")], &json!({})).await;
        well(&given(room).await);
    });
}

#[test]
fn a_mark_in_the_tree_is_told_for_it_would_stay_behind() {
    in_room(async |room| {
        converge(room, &[config("1")]).await;
        flux::applies(room, &[mark("metallb").on(config("1"))]).await;
        let refused = fault(&given(room).await);
        assert_eq!(refused.to_string(), "ConfigMap default/a: has castle's mark in the tree that Flux follows");
    });
}

#[test]
fn a_person_who_edits_in_between_is_neither_overruled_nor_lost() {
    in_room(async |room| {
        // A value that castle wants otherwise: refused, and named.
        flux::applies(room, &[config("1")]).await;
        assert_eq!(room.edited_by("kubectl-edit", PATH, &json!({"data": {"a": "theirs"}})).await, 200);
        let refused = fault(&taken(room, &[config("1")]).await);
        let told = "ConfigMap default/a: .data.a is wanted otherwise by a person (kubectl-edit) than by castle";
        assert!(refused.guarded);
        assert_eq!(refused.to_string(), told);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!((live.text("/data/a"), live.label("castle.dev/castle")), ("theirs", None), "nothing was changed");

        // A value of their own stays, through both phases.
        flux::applies(room, &[config("1")]).await;
        well(&taken(room, &[config("1")]).await);
        assert_eq!(room.edited_by("kubectl-edit", PATH, &json!({"data": {"own": "theirs"}})).await, 200);
        flux::lists(room, &[], &json!({})).await;
        well(&taken(room, &[config("1")]).await);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(*live.at("/data"), json!({"a": "1", "b": "1", "own": "theirs"}));
    });
}

#[test]
fn values_that_differ_are_not_forced_and_those_of_secrets_not_told() {
    in_room(async |room| {
        let secret = |value: &str| {
            object(json!({
                "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}, "data": {"a": value},
            }))
        };
        flux::applies(room, &[secret("cGxhbnRlZA=="), config("2")]).await;
        let refused = fault(&taken(room, &[secret("b3RoZXI="), config("1")]).await);
        assert!(refused.guarded && !format!("{refused:?}").contains("cGxhbnRlZA"), "{refused:?}");
        let told = "Secret default/s: .data.a is wanted otherwise by Flux (kustomize-controller) than by castle; ConfigMap default/a: .data.a";
        assert!(refused.evidence.starts_with(told), "{refused}");
        assert!(refused.next.contains("make them equal, in the Git repository"), "{}", refused.next);
    });
}

#[test]
fn while_flux_is_suspended_or_new_castle_waits_and_says_so() {
    in_room(async |room| {
        flux::applies(room, &[config("1")]).await;
        flux::lists(room, &[config("1")], &json!({"suspend": true})).await;
        well(&taken(room, &[config("1")]).await);
        let waiting = declared(&room.api, &keys(&[config("1")])).await.unwrap();
        assert!(waiting[0].behind.as_ref().unwrap().contains("flux resume kustomization apps --namespace default"));
        // One that has applied nothing yet may declare anything.
        flux::lists(room, &[], &json!({"lastAppliedRevision": ""})).await;
        well(&taken(room, &[config("1")]).await);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(live.annotation("kustomize.toolkit.fluxcd.io/reconcile"), Some("disabled"));
        // Changed one's mind: it goes back as it came.
        flux::lists(room, &[config("1")], &json!({})).await;
        well(&given(room).await);
        let live = room.get("v1", "ConfigMap", "default", "a").await.unwrap();
        assert_eq!(live.at("/metadata/annotations"), &serde_json::Value::Null);
        flux::applies(room, &[config("1")]).await;
        assert_eq!(way_out(room, Keeper::Flux, &[config("1")]).await, None);
    });
}

#[test]
fn what_is_a_charts_a_persons_or_not_there_is_not_taken() {
    in_room(async |room| {
        let refused = fault(&taken(room, &[config("1")]).await);
        assert!(refused.guarded && refused.next == "castle up", "{refused:?}");
        assert_eq!(room.as_other("kubectl", PATH, config("1").value()).await, 201);
        let refused = fault(&taken(room, &[config("1")]).await);
        assert_eq!(refused.to_string(), "ConfigMap default/a: belongs to a person (kubectl)");
        let mut chart = config("1").value().clone();
        chart["metadata"]["labels"] =
            json!({"helm.toolkit.fluxcd.io/name": "m", "helm.toolkit.fluxcd.io/namespace": "n"});
        assert_eq!(room.as_other("helm-controller", PATH, &chart).await, 200);
        let refused = fault(&taken(room, &[config("1")]).await);
        assert_eq!(refused.to_string(), "ConfigMap default/a: belongs to Helm (release n/m)");
        assert!(refused.next.contains("`suspend: true`"), "{}", refused.next);
    });
}
