//! MetalLB from castle to Flux and back on a real control plane, with Flux's part played by a manager of its name.

use std::collections::BTreeSet;

use castle_kubernetes::model::{Key, Object};
use castle_kubernetes::steps::{Keeper, Known, declared, give, prove, take, tenures};
use serde_json::json;

use crate::{Ground, fault, is_well, mark};

const COMPONENT: &str = "metallb";
const CONTROLLER: &str = "kustomize-controller";
pub(crate) const KUSTOMIZATION: &str =
    "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/apps";

fn keys(objects: &[Object]) -> BTreeSet<Key> {
    objects.iter().map(Object::key).collect()
}

async fn path(ground: &Ground, object: &Object) -> String {
    let served = ground.api.served().await.unwrap();
    let resource = served.resource(&object.kind()).unwrap();
    let kind = &resource.kind;
    let base = if kind.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", kind.group) };
    let space = if resource.is_namespaced { format!("/namespaces/{}", object.namespace()) } else { String::new() };
    format!("{base}/{}{space}/{}/{}", kind.version, resource.plural, object.name())
}

/// Applies objects as a Kustomization does: by force, with its labels.
async fn flux_applies(ground: &Ground, objects: &[Object]) {
    for object in objects {
        let mut body = object.value().clone();
        body["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/name"] = json!("apps");
        body["metadata"]["labels"]["kustomize.toolkit.fluxcd.io/namespace"] = json!("flux-system");
        let status = ground.as_other(CONTROLLER, &path(ground, object).await, &body).await;
        assert_eq!(status, 200, "{object:?}");
    }
    flux_lists(ground, objects).await;
}

async fn flux_lists(ground: &Ground, objects: &[Object]) {
    let mut body = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": {"name": "apps"},
        "spec": {"interval": "1m", "prune": true, "suspend": false, "sourceRef": {"kind": "GitRepository", "name": "castle"}},
    });
    assert!(ground.as_other("flux", KUSTOMIZATION, &body).await < 300);
    let id = |key: &Key| {
        let name = key.name.replace(':', "__");
        json!({"id": format!("{}_{name}_{}_{}", key.namespace, key.group, key.kind), "v": "v1"})
    };
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "ReconciliationSucceeded", "message": "Applied revision: main@sha1:1",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    body["status"] = json!({
        "observedGeneration": 1, "conditions": [ready], "lastAppliedRevision": "main@sha1:1",
        "lastAttemptedRevision": "main@sha1:1",
        "inventory": {"entries": keys(objects).iter().map(id).collect::<Vec<_>>()},
    });
    assert_eq!(ground.as_other(CONTROLLER, &format!("{KUSTOMIZATION}/status"), &body).await, 200);
}

async fn way_out(ground: &Ground, keeper: Keeper, objects: &[Object]) -> Option<String> {
    let known = Known { mark: mark(COMPONENT), keeper, objects: keys(objects), name: Some(COMPONENT.to_owned()) };
    tenures(&ground.api, &[known]).await.unwrap().remove(0).quarrel.map(|(_, next)| next)
}

fn is_undisturbed(disturbed: &[String]) -> bool {
    disturbed.iter().for_each(|one| println!("    {one}"));
    disturbed.is_empty()
}

pub(crate) async fn there_and_back(ground: &Ground, objects: &[Object]) {
    let all = keys(objects);
    ground.hold("what is castle's is castle's alone", way_out(ground, Keeper::Castle, objects).await.is_none());
    let refused = fault(&ground.run(|graph, api| give(graph, api, &mark(COMPONENT))).await);
    ground.hold(
        "nothing is given that no tree has",
        refused.guarded && refused.evidence.contains("no inventory of Flux"),
    );
    flux_applies(ground, objects).await;
    let both = way_out(ground, Keeper::Castle, objects).await;
    ground.hold("two owners are told", both.as_deref() == Some("castle handover metallb --to castle"));
    let before = prove(&ground.api, &all).await.unwrap();
    let report = ground.run(|graph, api| give(graph, api, &mark(COMPONENT))).await;
    ground.hold("metallb is given to Flux", is_well(&report));
    let after = prove(&ground.api, &all).await.unwrap();
    ground.hold("nothing of it was changed", is_undisturbed(&before.disturbed(&after)));
    let of_castle = after.objects.values().filter(|seen| seen.managers.contains("castle")).count();
    ground.hold("castle manages no field of it", of_castle == 0);
    let left = [way_out(ground, Keeper::Flux, objects).await, way_out(ground, Keeper::Castle, objects).await];
    ground.hold("it is Flux's", left == [None, Some("castle handover metallb --to castle".to_owned())]);

    let report = ground.run(|graph, api| take(graph, api, objects, &mark(COMPONENT))).await;
    ground.hold("metallb is taken while the tree has it", is_well(&report));
    let versions = ground.versions(objects).await;
    let report = ground.run(|graph, api| take(graph, api, objects, &mark(COMPONENT))).await;
    ground.hold("a second time nothing is changed", is_well(&report) && ground.versions(objects).await == versions);
    ground.hold("the tree is waited for", declared(&ground.api, &all).await.unwrap().len() == 1);
    flux_lists(ground, &[]).await;
    let report = ground.run(|graph, api| take(graph, api, objects, &mark(COMPONENT))).await;
    ground.hold("metallb is castle's when the tree has let go", is_well(&report));
    let back = prove(&ground.api, &all).await.unwrap();
    ground.hold("nothing of it was changed on the way back", is_undisturbed(&before.disturbed(&back)));
    let of_flux = back.objects.values().filter(|seen| seen.managers.contains(CONTROLLER)).count();
    let of_castle = back.objects.values().filter(|seen| seen.managers.contains("castle")).count();
    ground.hold("castle alone manages it", of_flux == 0 && of_castle == objects.len());
    let versions = ground.versions(objects).await;
    let report = ground.converge(COMPONENT, objects).await;
    ground.hold("nothing is left to apply", is_well(&report) && ground.versions(objects).await == versions);
    ground.hold("and nobody quarrels", way_out(ground, Keeper::Castle, objects).await.is_none());
}
