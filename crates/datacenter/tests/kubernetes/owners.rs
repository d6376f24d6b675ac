//! Who owns what Flux applies: what it takes over, what it leaves alone, and what it removes.

use std::collections::BTreeMap;

use castle_components::Fit;
use castle_spec::ComponentName;
use castle_testbed::{VirtualClock, in_virtual_time};
use serde_json::{Value, json};

use crate::stand::{Stand, condition};

const URL: &str = "https://git.example.com/team/castle.git";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const ENTRY: &str = "/apis/kustomize.toolkit.fluxcd.io/v1/namespaces/flux-system/kustomizations/apps";
const FIT: Fit = Fit {
    replicas: 1,
    has_data_disks: false,
    is_without_workers: false,
    is_small: true,
    has_image_automation: false,
    has_source_watcher: false,
};

/// A ConfigMap as a repository has it, with one annotation for Flux.
fn map(name: &str, value: &str, word: Option<(&str, &str)>) -> String {
    let annotations = word.map(|(key, word)| format!("kustomize.toolkit.fluxcd.io/{key}: {word}")).unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: default\n  annotations: {{{annotations}}}\ndata: {{key: '{value}'}}\n"
    )
}

async fn raised(clock: &VirtualClock) -> Stand {
    let stand = Stand::quick(clock, 4).await;
    stand.install_stand_in(ComponentName::Flux, &FIT).await;
    stand.pause(1.0).await;
    stand.nodes.datacenter().add_repository(URL, None);
    stand
}

fn push(stand: &Stand, files: &[(&str, String)]) {
    let files: BTreeMap<String, Vec<u8>> =
        files.iter().map(|(name, text)| (format!("apps/{name}.yaml"), text.clone().into_bytes())).collect();
    stand.nodes.datacenter().push(URL, "main", &files, "a change");
}

/// Lets Flux follow the repository.
async fn follow(stand: &Stand) {
    let repository = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "GitRepository", "metadata": { "name": "castle" },
        "spec": { "url": URL, "interval": "1m", "ref": { "branch": "main" } },
    });
    let path = "/apis/source.toolkit.fluxcd.io/v1/namespaces/flux-system/gitrepositories/castle";
    assert_eq!(stand.apply(path, &repository).await.0, 201);
    let spec = json!({
        "interval": "10m", "retryInterval": "1m", "path": "./apps", "prune": true,
        "sourceRef": { "kind": "GitRepository", "name": "castle" },
    });
    let entry = json!({
        "apiVersion": "kustomize.toolkit.fluxcd.io/v1", "kind": "Kustomization", "metadata": { "name": "apps" }, "spec": spec,
    });
    assert_eq!(stand.apply(ENTRY, &entry).await.0, 201);
    stand.pause(5.0).await;
}

async fn next_look(stand: &Stand) {
    stand.pause(90.0).await;
}

/// Makes a ConfigMap as somebody does who is known by this name.
async fn make(stand: &Stand, manager: &str, name: &str, data: &Value, annotations: &Value) {
    let metadata = json!({ "name": name, "annotations": annotations });
    let object = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data }).to_string();
    let path = format!("{MAPS}?fieldManager={manager}");
    let (status, told) = stand.api().ask("POST", &path, "application/json", &object).await.unwrap();
    assert_eq!(status, 201, "{told}");
}

/// Applies a ConfigMap as somebody who is known by this name.
async fn apply(stand: &Stand, manager: &str, name: &str, data: &Value) {
    let object =
        json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": name }, "data": data }).to_string();
    let path = format!("{MAPS}/{name}?fieldManager={manager}&force=true");
    let (status, told) = stand.api().ask("PATCH", &path, "application/apply-patch+yaml", &object).await.unwrap();
    assert!(status < 300, "{told}");
}

fn data(stand: &Stand, name: &str) -> Value {
    stand.object("configmaps", "default", name)["data"].clone()
}

/// Who manages which keys of the data, in the order of the object.
fn managers(stand: &Stand, name: &str) -> Vec<(String, String, Vec<String>)> {
    let object = stand.object("configmaps", "default", name);
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
    let keys = |entry: &Value| {
        let fields = entry["fieldsV1"]["f:data"].as_object().cloned().unwrap_or_default();
        fields.keys().filter(|key| *key != ".").map(|key| key.trim_start_matches("f:").to_owned()).collect()
    };
    entries.iter().map(|entry| (text(entry, "manager"), text(entry, "operation"), keys(entry))).collect()
}

fn entry(manager: &str, operation: &str, keys: &[&str]) -> (String, String, Vec<String>) {
    (manager.to_owned(), operation.to_owned(), keys.iter().map(|&key| key.to_owned()).collect())
}

#[test]
fn what_kubectl_managed_becomes_fluxs_and_what_others_manage_is_taken_by_force() {
    in_virtual_time(async |clock| {
        let stand = raised(clock).await;
        let last = json!({ "kubectl.kubernetes.io/last-applied-configuration": "{}" });
        make(&stand, "kubectl-client-side-apply", "old", &json!({ "key": "x", "more": "y" }), &last).await;
        apply(&stand, "kubectl", "new", &json!({ "key": "x", "more": "y" })).await;
        apply(&stand, "castle", "ours", &json!({ "key": "x", "more": "y" })).await;
        apply(&stand, "castle", "same", &json!({ "key": "1" })).await;
        push(&stand, &["old", "new", "ours", "same"].map(|name| (name, map(name, "1", None))));
        follow(&stand).await;
        for name in ["old", "new"] {
            assert_eq!(managers(&stand, name), [entry("kustomize-controller", "Apply", &["key"])], "{name}");
            assert_eq!(data(&stand, name), json!({ "key": "1" }), "what it has and does not want, it removes");
        }
        let annotations = &stand.object("configmaps", "default", "old")["metadata"]["annotations"];
        assert!(!annotations.to_string().contains("last-applied"), "{annotations}");
        assert_eq!(data(&stand, "ours"), json!({ "key": "1", "more": "y" }));
        let both = [entry("castle", "Apply", &["more"]), entry("kustomize-controller", "Apply", &["key"])];
        assert_eq!(managers(&stand, "ours"), both, "no conflict is told");
        let both = [entry("castle", "Apply", &["key"]), entry("kustomize-controller", "Apply", &["key"])];
        assert_eq!(managers(&stand, "same"), both, "equal values are shared");
    });
}

#[test]
fn objects_are_left_alone_by_their_own_word_or_that_of_the_repository() {
    in_virtual_time(async |clock| {
        let stand = raised(clock).await;
        let word = |key: &str, word: &str| json!({ (format!("kustomize.toolkit.fluxcd.io/{key}")): word });
        let mine = json!({ "key": "mine" });
        for (name, annotations) in [
            ("off", word("reconcile", "disabled")),
            ("ignored", word("ssa", "ignore")),
            ("kept", word("ssa", "IfNotPresent")),
            ("plain", json!({})),
            ("wished", json!({})),
            ("forced", word("ssa", "Override")),
        ] {
            make(&stand, "somebody", name, &mine, &annotations).await;
        }
        push(
            &stand,
            &[
                ("off", map("off", "1", None)),
                ("ignored", map("ignored", "1", None)),
                ("kept", map("kept", "1", None)),
                ("plain", map("plain", "1", None)),
                ("wished", map("wished", "1", Some(("ssa", "IfNotPresent")))),
                ("forced", map("forced", "1", None)),
                ("absent", map("absent", "1", Some(("ssa", "IfNotPresent")))),
                ("never", map("never", "1", Some(("ssa", "Ignore")))),
            ],
        );
        follow(&stand).await;
        let told = ["off", "ignored", "kept", "wished"].map(|name| data(&stand, name)["key"].clone());
        assert_eq!(told, ["mine"; 4].map(Value::from));
        let told = ["plain", "forced", "absent"].map(|name| data(&stand, name)["key"].clone());
        assert_eq!(told, ["1"; 3].map(Value::from));
        assert_eq!(data(&stand, "never"), Value::Null);
        let inventory = stand.object("kustomizations.kustomize.toolkit.fluxcd.io", "flux-system", "apps");
        assert_eq!(inventory["status"]["inventory"]["entries"].as_array().unwrap().len(), 8, "all are in it");
    });
}

#[test]
fn with_merge_the_fields_of_kubectl_stay_kubectls() {
    in_virtual_time(async |clock| {
        let stand = raised(clock).await;
        apply(&stand, "kubectl", "mine", &json!({ "key": "x", "more": "y" })).await;
        push(&stand, &[("mine", map("mine", "1", Some(("ssa", "Merge"))))]);
        follow(&stand).await;
        assert_eq!(data(&stand, "mine"), json!({ "key": "1", "more": "y" }));
        let both = [entry("kubectl", "Apply", &["more"]), entry("kustomize-controller", "Apply", &["key"])];
        assert_eq!(managers(&stand, "mine"), both);
    });
}

#[test]
fn only_what_is_still_its_own_is_pruned() {
    in_virtual_time(async |clock| {
        let stand = raised(clock).await;
        let names = ["gone", "kept", "off", "given", "stays"];
        push(&stand, &names.map(|name| (name, map(name, "1", None))));
        follow(&stand).await;
        let word = |key: &str| json!({ "metadata": { "annotations": { (format!("kustomize.toolkit.fluxcd.io/{key}")): "disabled" } } });
        stand.merge(&format!("{MAPS}/kept"), &word("prune")).await;
        stand.merge(&format!("{MAPS}/off"), &word("reconcile")).await;
        let labels = json!({ "metadata": { "labels": { "kustomize.toolkit.fluxcd.io/name": "others" } } });
        stand.merge(&format!("{MAPS}/given"), &labels).await;
        stand.merge(ENTRY, &json!({ "spec": { "suspend": true } })).await;
        push(&stand, &[("stays", map("stays", "2", None))]);
        next_look(&stand).await;
        assert!(names.iter().all(|name| data(&stand, name)["key"] == "1"), "nothing is done while it is suspended");
        stand.merge(ENTRY, &json!({ "spec": { "suspend": false } })).await;
        stand.pause(1.0).await;
        let left: Vec<&str> = names.into_iter().filter(|name| !data(&stand, name).is_null()).collect();
        assert_eq!(left, ["kept", "off", "given", "stays"]);
        assert_eq!(data(&stand, "stays")["key"], "2");
        stand.merge(ENTRY, &json!({ "spec": { "suspend": true } })).await;
        assert_eq!(stand.api().ask("DELETE", ENTRY, "", "").await.unwrap().0, 200);
        stand.pause(1.0).await;
        assert_eq!(data(&stand, "stays")["key"], "2", "one that is suspended removes nothing when it ends");
    });
}

#[test]
fn a_field_that_cannot_be_changed_needs_force_and_nothing_of_its_stage_is_applied_without() {
    in_virtual_time(async |clock| {
        let stand = raised(clock).await;
        let fixed = |value: &str, word: Option<(&str, &str)>| map("fixed", value, word) + "immutable: true\n";
        push(&stand, &[("fixed", fixed("1", None)), ("other", map("other", "1", None))]);
        follow(&stand).await;
        let uid = || stand.object("configmaps", "default", "fixed")["metadata"]["uid"].clone();
        let before = uid();
        push(&stand, &[("fixed", fixed("2", None)), ("other", map("other", "2", None))]);
        next_look(&stand).await;
        let state = || stand.object("kustomizations.kustomize.toolkit.fluxcd.io", "flux-system", "apps");
        assert_eq!(condition(&state(), "Ready").1, "ReconciliationFailed");
        assert!(state()["status"]["conditions"].to_string().contains("immutable"), "{}", state());
        assert_eq!((data(&stand, "other")["key"].clone(), uid()), (json!("1"), before.clone()));
        push(&stand, &[("fixed", fixed("2", Some(("force", "enabled")))), ("other", map("other", "2", None))]);
        next_look(&stand).await;
        assert_eq!(condition(&state(), "Ready").1, "ReconciliationSucceeded", "{}", state());
        assert_eq!(
            (data(&stand, "fixed")["key"].clone(), data(&stand, "other")["key"].clone()),
            (json!("2"), json!("2"))
        );
        assert_ne!(uid(), before, "it was made anew");
    });
}
