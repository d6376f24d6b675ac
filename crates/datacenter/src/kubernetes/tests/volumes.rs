//! Claims: bound, made, waited for, refused, and gone.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Bench;
use crate::kubernetes::workloads::volumes::{ProvisionedVolume, Provisioner};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const PODS: &str = "/api/v1/namespaces/default/pods";
const DRIVER: &str = "driver.example.com";

fn class(bench: &mut Bench, mode: &str, policy: &str) {
    let class = json!({
        "metadata": { "name": "fast" }, "provisioner": DRIVER, "volumeBindingMode": mode, "reclaimPolicy": policy, "allowVolumeExpansion": true,
    });
    assert_eq!(bench.post("/apis/storage.k8s.io/v1/storageclasses", &class).0, 201);
}

fn claim(bench: &mut Bench, name: &str, class: &str) {
    let resources = json!({ "requests": { "storage": "1Gi" } });
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "storageClassName": class, "resources": resources });
    assert_eq!(bench.post(CLAIMS, &json!({ "metadata": { "name": name }, "spec": spec })).0, 201);
}

fn pod(bench: &mut Bench, claim: &str) {
    let volume = json!({ "name": "v", "persistentVolumeClaim": { "claimName": claim } });
    let container = json!({ "name": "x", "image": "i:1" });
    let spec = json!({ "containers": [container], "volumes": [volume] });
    assert_eq!(bench.post(PODS, &json!({ "metadata": { "name": "p" }, "spec": spec })).0, 201);
}

fn serve(bench: &mut Bench) {
    let made = |name: &str| ProvisionedVolume {
        handle: format!("handle-{name}"),
        attributes: BTreeMap::from([("replicas".to_owned(), "3".to_owned())]),
    };
    let provisioner = Provisioner::new(move |asked| match asked.claim["metadata"]["name"].as_str() {
        Some("never") => Err("no room".to_owned()),
        name => Ok(made(name.unwrap_or_default())),
    });
    bench.kube.provisioners.insert(DRIVER.to_owned(), provisioner);
    bench.kube.note_claims();
    bench.settle();
}

fn phase(bench: &mut Bench, path: &str) -> Value {
    bench.get(path).1["status"]["phase"].clone()
}

fn told(bench: &mut Bench, reason: &str) -> Vec<String> {
    let (_, events) = bench.get("/api/v1/namespaces/default/events");
    let events = events["items"].as_array().cloned().unwrap_or_default();
    let own = events.iter().filter(|event| event["reason"] == reason);
    own.map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_volume_is_made_for_a_claim_once_somebody_makes_them() {
    let mut bench = Bench::new();
    bench.node("n1");
    class(&mut bench, "Immediate", "Delete");
    claim(&mut bench, "a", "fast");
    pod(&mut bench, "a");
    assert_eq!(phase(&mut bench, &format!("{CLAIMS}/a")), "Pending");
    assert_eq!(told(&mut bench, "ExternalProvisioning").len(), 1);
    let why = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims. not found";
    assert_eq!(told(&mut bench, "FailedScheduling"), [why]);
    serve(&mut bench);
    let (_, claim) = bench.get(&format!("{CLAIMS}/a"));
    assert_eq!((&claim["status"]["phase"], &claim["status"]["capacity"]["storage"]), (&json!("Bound"), &json!("1Gi")));
    let volume = bench.get(&format!("{VOLUMES}/{}", claim["spec"]["volumeName"].as_str().unwrap())).1;
    let source = json!({ "driver": DRIVER, "volumeHandle": "handle-a", "volumeAttributes": { "replicas": "3" } });
    assert_eq!((&volume["spec"]["csi"], &volume["status"]["phase"]), (&source, &json!("Bound")));
    assert_eq!(phase(&mut bench, &format!("{PODS}/p")), "Running");
    let more = json!({ "spec": { "resources": { "requests": { "storage": "2Gi" } } } });
    bench.merge(&format!("{CLAIMS}/a"), &more);
    assert_eq!(bench.get(&format!("{CLAIMS}/a")).1["status"]["capacity"]["storage"], "2Gi");
    bench.delete(&format!("{CLAIMS}/a"));
    assert_eq!(bench.get(&format!("{CLAIMS}/a")).0, 200, "it is used");
    bench.delete(&format!("{PODS}/p?gracePeriodSeconds=0"));
    assert_eq!(bench.get(&format!("{CLAIMS}/a")).0, 404);
    assert_eq!(bench.get(VOLUMES).1["items"], json!([]), "its class has it deleted");
}

#[test]
fn a_claim_may_wait_for_a_pod_to_have_a_node() {
    let mut bench = Bench::new();
    bench.node("n1");
    class(&mut bench, "WaitForFirstConsumer", "Retain");
    serve(&mut bench);
    claim(&mut bench, "a", "fast");
    assert_eq!(phase(&mut bench, &format!("{CLAIMS}/a")), "Pending");
    pod(&mut bench, "a");
    let (_, claim) = bench.get(&format!("{CLAIMS}/a"));
    assert_eq!(claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"], "n1");
    assert_eq!(claim["status"]["phase"], "Bound");
    assert_eq!(phase(&mut bench, &format!("{PODS}/p")), "Running");
    bench.delete(&format!("{PODS}/p?gracePeriodSeconds=0"));
    bench.delete(&format!("{CLAIMS}/a"));
    let volume = format!("{VOLUMES}/{}", claim["spec"]["volumeName"].as_str().unwrap());
    assert_eq!(phase(&mut bench, &volume), "Released", "its class has it kept");
}

#[test]
fn what_cannot_be_had_is_told() {
    let mut bench = Bench::new();
    bench.node("n1");
    class(&mut bench, "Immediate", "Delete");
    serve(&mut bench);
    claim(&mut bench, "never", "fast");
    assert_eq!(
        told(&mut bench, "ProvisioningFailed"),
        ["failed to provision volume with StorageClass \"fast\": no room"]
    );
    claim(&mut bench, "absent", "slow");
    assert!(
        told(&mut bench, "ProvisioningFailed").contains(&"storageclass.storage.k8s.io \"slow\" not found".to_owned())
    );
    claim(&mut bench, "none", "");
    assert_eq!(told(&mut bench, "FailedBinding").len(), 1);
}

#[test]
fn a_volume_that_is_there_is_taken() {
    let mut bench = Bench::new();
    let spec = |size: &str| json!({ "capacity": { "storage": size }, "accessModes": ["ReadWriteOnce"], "hostPath": { "path": "/x" }, "storageClassName": "by-hand" });
    for (name, size) in [("small", "512Mi"), ("right", "2Gi"), ("large", "9Gi")] {
        bench.post(VOLUMES, &json!({ "metadata": { "name": name }, "spec": spec(size) }));
    }
    claim(&mut bench, "a", "by-hand");
    let (_, claim) = bench.get(&format!("{CLAIMS}/a"));
    assert_eq!((&claim["spec"]["volumeName"], &claim["status"]["phase"]), (&json!("right"), &json!("Bound")));
}
