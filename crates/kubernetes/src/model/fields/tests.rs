use serde_json::json;

use super::*;

/// A Deployment as the API tells it after castle applied it.
fn live() -> Object {
    Object::new(json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "n", "labels": {"app": "web", "other": "theirs"}, "uid": "u",
            "managedFields": [
                {"manager": "castle", "operation": "Apply", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:app": {}}},
                    "f:spec": {
                        "f:replicas": {},
                        "f:selector": {},
                        "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"web\"}": {
                            ".": {}, "f:name": {}, "f:image": {},
                            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                        }}}},
                    },
                }},
                {"manager": "kube-controller-manager", "operation": "Update", "subresource": "status", "fieldsV1": {"f:status": {"f:replicas": {}}}},
            ],
        },
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 10,
            "template": {"spec": {"containers": [
                {"name": "web", "image": "web:1", "ports": [{"containerPort": 80, "protocol": "TCP"}], "imagePullPolicy": "Always"},
            ]}},
        },
    }))
    .unwrap()
}

fn wanted(change: impl FnOnce(&mut Value)) -> Object {
    let mut value = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "n", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": {"app": "web"}},
            "template": {"spec": {"containers": [{"name": "web", "image": "web:1", "ports": [{"containerPort": 80}]}]}},
        },
    });
    change(&mut value);
    Object::new(value).unwrap()
}

#[test]
fn what_others_and_the_server_add_is_no_difference() {
    assert_eq!(agrees(&wanted(|_| {}), &live()), Ok(()));
}

#[test]
fn every_difference_is_told_by_its_path() {
    type Case = (fn(&mut Value), &'static str);
    let cases: [Case; 7] = [
        (|value| value["spec"]["replicas"] = json!(3), ".spec.replicas"),
        (|value| value["spec"]["paused"] = json!(true), ".spec.paused"),
        (|value| value["metadata"]["labels"]["new"] = json!("x"), ".metadata.labels.new"),
        (|value| value["spec"]["selector"] = json!({"matchLabels": {}}), ".spec.selector"),
        (|value| drop(value["spec"].as_object_mut().unwrap().remove("replicas")), ".spec.replicas"),
        (
            |value| value["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2"),
            ".spec.template.spec.containers[name=\"web\"].image",
        ),
        (
            |value| {
                let containers = value["spec"]["template"]["spec"]["containers"].as_array_mut().unwrap();
                containers.push(json!({"name": "side"}));
            },
            ".spec.template.spec.containers",
        ),
    ];
    for (change, path) in cases {
        assert_eq!(agrees(&wanted(change), &live()), Err(path.to_owned()));
    }
}

#[test]
fn what_castle_never_applied_is_never_as_wanted() {
    let mut stranger = live();
    stranger.value_mut()["metadata"]["managedFields"][0]["manager"] = json!("kubectl");
    assert!(agrees(&wanted(|_| {}), &stranger).is_err());
}

#[test]
fn paths_are_told_as_people_write_them() {
    let object = live();
    let managed = Managed::castle(&object).unwrap();
    let told: Vec<String> = leaves(managed.fields).into_iter().collect();
    assert_eq!(
        told,
        [
            ".metadata.labels.app",
            ".spec.replicas",
            ".spec.selector",
            ".spec.template.spec.containers[name=\"web\"].image",
            ".spec.template.spec.containers[name=\"web\"].name",
            ".spec.template.spec.containers[name=\"web\"].ports[containerPort=80,protocol=\"TCP\"].containerPort",
        ]
    );
}

#[test]
fn a_try_is_compared_by_what_castle_manages_alone() {
    let mut tried = live();
    tried.value_mut()["status"] = json!({"replicas": 7});
    tried.value_mut()["metadata"]["annotations"] = json!({"deployment.kubernetes.io/revision": "2"});
    assert!(same_of_castle(&tried, &live()), "what others wrote meanwhile");
    let left_out = |mut object: Object| {
        object.value_mut()["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:paused"] = json!({});
        object
    };
    assert!(same_of_castle(&left_out(live()), &left_out(live())), "what is managed and empty, in both");
    tried.value_mut()["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    assert!(!same_of_castle(&tried, &live()), "a value of castle's");
    let mut more = live();
    more.value_mut()["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:paused"] = json!({});
    more.value_mut()["spec"]["paused"] = json!(true);
    assert!(!same_of_castle(&more, &live()), "a field more");
}
