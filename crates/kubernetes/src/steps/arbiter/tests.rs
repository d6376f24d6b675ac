use serde_json::{Value, json};

use super::*;

fn mark() -> Mark {
    Mark::new("blue", "networking", "metallb")
}

fn known(keeper: Keeper) -> Known {
    let objects = [Key::new("apps", "Deployment", "m", "controller")].into();
    Known { mark: mark(), keeper, objects, name: Some("metallb".to_owned()) }
}

fn flux() -> Owner {
    Owner::Flux("flux-system".to_owned(), "apps".to_owned())
}

fn castle() -> Owner {
    Owner::Castle(Some(mark()))
}

/// The controller with castle's mark, and managers of one field of it.
fn controller(labels: &[(&str, &str)], managers: &[&str]) -> Object {
    let managed: Vec<Value> = managers
        .iter()
        .map(|name| json!({"manager": name, "operation": "Apply", "fieldsV1": {"f:spec": {"f:replicas": {}}}}))
        .collect();
    let mut value = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "controller", "namespace": "m", "managedFields": managed, "labels": {}},
    });
    for (name, own) in labels {
        value["metadata"]["labels"][*name] = json!(own);
    }
    mark().on(Object::new(value).unwrap())
}

fn listed(owners: &[Owner]) -> BTreeMap<Key, BTreeSet<Owner>> {
    let key = Key::new("apps", "Deployment", "m", "controller");
    if owners.is_empty() { BTreeMap::new() } else { [(key, owners.iter().cloned().collect())].into() }
}

#[test]
fn one_owner_who_is_the_right_one_is_no_quarrel() {
    let own = judge(&known(Keeper::Castle), &[controller(&[], &["castle"])], &listed(&[castle()]));
    assert_eq!((own.quarrel.clone(), own.told().as_str()), (None, "castle (networking/metallb of blue)"));
    assert!(own.settled().is_ok());
    let theirs = judge(&known(Keeper::Flux), &[], &listed(&[flux()]));
    assert_eq!((theirs.quarrel.clone(), theirs.told().as_str()), (None, "Flux (Kustomization flux-system/apps)"));
    for keeper in [Keeper::Castle, Keeper::Flux] {
        let nobody = judge(&known(keeper), &[], &listed(&[]));
        assert_eq!((nobody.quarrel.clone(), nobody.told().as_str()), (None, "nobody"), "nothing is installed yet");
    }
}

#[test]
fn each_way_to_have_two_owners_names_both_and_the_way_out() {
    let label =
        [("kustomize.toolkit.fluxcd.io/name", "apps"), ("kustomize.toolkit.fluxcd.io/namespace", "flux-system")];
    let cases = [
        (controller(&[], &["castle"]), listed(&[castle(), flux()])),
        (controller(&label, &["castle"]), listed(&[castle()])),
        (controller(&[], &["castle", "kustomize-controller"]), listed(&[castle()])),
    ];
    for (object, inventories) in cases {
        let found = judge(&known(Keeper::Castle), &[object], &inventories);
        let fault = found.settled().unwrap_err();
        assert!(fault.guarded && fault.evidence.contains("castle (networking/metallb of blue) and Flux"), "{fault}");
        assert_eq!(fault.next, "castle handover metallb --to castle");
    }
    let helm = [("helm.toolkit.fluxcd.io/name", "metallb"), ("helm.toolkit.fluxcd.io/namespace", "m")];
    let found = judge(&known(Keeper::Castle), &[controller(&helm, &["castle"])], &listed(&[castle()]));
    let fault = found.settled().unwrap_err();
    assert!(fault.evidence.ends_with("and Helm (release m/metallb)"), "{fault}");
    assert!(fault.next.contains("switch metallb off"), "{}", fault.next);
}

#[test]
fn the_file_and_the_cluster_may_disagree_either_way() {
    let still = judge(&known(Keeper::Flux), &[controller(&[], &["castle"])], &listed(&[castle()]));
    assert_eq!(still.quarrel.unwrap().1, "castle handover metallb --to flux");
    // Killed before the inventory was forgotten.
    let nearly = judge(&known(Keeper::Flux), &[], &listed(&[castle(), flux()]));
    assert_eq!(nearly.quarrel.unwrap().1, "castle handover metallb --to flux");
    let theirs = judge(&known(Keeper::Castle), &[], &listed(&[flux()]));
    let (what, next) = theirs.quarrel.unwrap();
    assert_eq!(what, "castle.yaml gives it to castle, and Flux (Kustomization flux-system/apps) has it");
    assert_eq!(next, "castle handover metallb --to castle");
    // What castle wrote down and was then refused is not its own.
    let refused = judge(&known(Keeper::Castle), &[], &listed(&[castle(), flux()]));
    assert_eq!(refused.quarrel.unwrap().1, "castle handover metallb --to castle");
}
