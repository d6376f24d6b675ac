//! Longhorn as its vendor ships it, in a namespace that lets it in.

use castle_datacenter::{Blueprint, Component, ComponentFault};
use castle_testbed::in_virtual_time;
use serde_json::{Value, json};

use crate::stand::{Machines, Stand, manifest};
use crate::wire::vmid;

const FILE: &str = "longhorn-v1.12.1.yaml";
const NAMESPACE: &str = "longhorn-system";

/// The manifest with what castle changes in it: the labels of the namespace, and where the data goes.
fn text(path: &str) -> Option<String> {
    let text = manifest(FILE)?;
    let labels = "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: longhorn-system\n  labels:\n    pod-security.kubernetes.io/enforce: privileged\n";
    let setting =
        format!("default-setting.yaml: |-\n    default-data-path: {path}\n    default-replica-count: \"2\"\n");
    let text = text.replace("  default-setting.yaml: |-\n", &format!("  {setting}"));
    let without_nulls: String =
        text.lines().filter(|line| !line.ends_with("nodePort: null")).fold(String::new(), |mut all, line| {
            all.push_str(line);
            all.push('\n');
            all
        });
    Some(format!("{without_nulls}\n---\n{labels}"))
}

/// A Pod that uses the volume of the claim `data`.
const USER: &str = "/api/v1/namespaces/default/pods/user";

async fn use_volume(stand: &Stand) {
    let volumes = json!([{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }]);
    let spec = json!({ "containers": [{ "name": "c", "image": "example.com/c:1" }], "volumes": volumes });
    let pod = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "user" }, "spec": spec });
    assert_eq!(stand.apply(USER, &pod).await.0, 201);
}

async fn claim(stand: &Stand, name: &str) {
    let spec = json!({ "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } });
    let claim =
        json!({ "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": { "name": name }, "spec": spec });
    let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}");
    assert_eq!(stand.apply(&path, &claim).await.0, 201);
}

fn phase(stand: &Stand, name: &str) -> Value {
    stand.object("persistentvolumeclaims", "default", name)["status"]["phase"].clone()
}

fn disk(stand: &Stand, node: &str) -> Vec<String> {
    let object = stand.object("nodes.longhorn.io", NAMESPACE, node);
    let disks = object["status"]["diskStatus"].as_object().cloned().unwrap_or_default();
    let conditions = disks.values().flat_map(|disk| disk["conditions"].as_array().cloned().unwrap_or_default());
    conditions.map(|it| format!("{}={}", it["type"].as_str().unwrap(), it["status"].as_str().unwrap())).collect()
}

fn why(stand: &Stand, node: &str) -> String {
    stand.object("nodes.longhorn.io", NAMESPACE, node)["status"]["diskStatus"].to_string()
}

#[test]
fn a_path_that_the_kubelet_does_not_see_is_no_disk() {
    let Some(text) = text("/var/lib/longhorn/") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        stand.install(&text).await;
        stand.pause(10.0).await;
        assert_eq!(disk(&stand, "node-4"), ["Ready=False", "Schedulable=False"]);
        assert!(why(&stand, "node-4").contains("Read-only file system"), "{}", why(&stand, "node-4"));
    });
}

#[test]
fn a_disk_of_its_own_is_as_large_as_the_machine_has_it() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 4, has_data_disks: true, wants_volumes: true }).await;
        stand.install(&text).await;
        stand.pause(10.0).await;
        assert_eq!(disk(&stand, "node-4"), ["Ready=True", "Schedulable=True"]);
        let size = format!("\"storageMaximum\":{}", 20_u64 << 30);
        assert!(why(&stand, "node-4").contains(&size), "{}", why(&stand, "node-4"));
    });
}

#[test]
fn managers_start_one_after_another_and_make_the_rest_at_run_time() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::raise(clock, Blueprint::embedded(&[]), 5).await;
        stand.install(&text).await;
        let ready = |stand: &Stand| {
            stand.object("daemonsets.apps", NAMESPACE, "longhorn-manager")["status"]["numberReady"].as_i64()
        };
        stand.until("a manager", |stand| ready(stand) == Some(1)).await;
        let validator = stand.object(
            "validatingwebhookconfigurations.admissionregistration.k8s.io",
            "",
            "longhorn-webhook-validator",
        );
        let hook = &validator["webhooks"][0];
        assert!(hook["clientConfig"]["caBundle"].is_string() && hook["failurePolicy"] == "Fail", "{validator}");
        stand.until("the other", |stand| ready(stand) == Some(2)).await;
        stand
            .until("the driver", |stand| {
                stand.object("deployments.apps", NAMESPACE, "csi-provisioner")["status"]["readyReplicas"] == 3
            })
            .await;
        stand.until("its registration", |stand| stand.names("csinodes.storage.k8s.io").len() == 2).await;
        for node in ["node-4", "node-5"] {
            assert_eq!(disk(&stand, node), ["Ready=True", "Schedulable=True"], "{node}");
        }
        let image = stand.names("engineimages.longhorn.io")[0].split_once('/').unwrap().1.to_owned();
        stand
            .until("an engine", |stand| {
                stand.object("engineimages.longhorn.io", NAMESPACE, &image)["status"]["state"] == "deployed"
            })
            .await;
        assert_eq!(stand.names("poddisruptionbudgets.policy").len(), 2);
        // Whoever drains a node sees by their owners that somebody makes its Pods anew.
        let managers = stand.names("instancemanagers.longhorn.io");
        assert_eq!(managers.len(), 2, "{managers:?}");
        for name in managers.iter().map(|manager| manager.split_once('/').unwrap().1) {
            let owner = stand.object("instancemanagers.longhorn.io", NAMESPACE, name);
            let pod = stand.object("pods", NAMESPACE, name);
            let expected = json!([{
                "apiVersion": "longhorn.io/v1beta2", "kind": "InstanceManager", "name": name, "uid": owner["metadata"]["uid"],
                "controller": true, "blockOwnerDeletion": true,
            }]);
            assert_eq!(pod["metadata"]["ownerReferences"], expected, "{name}");
            assert!(
                owner["metadata"]["uid"].is_string() && owner["metadata"]["ownerReferences"][0]["kind"] == "Node",
                "{owner}"
            );
        }
        assert_eq!(stand.object("settings.longhorn.io", NAMESPACE, "default-replica-count")["value"], "2");
        claim(&stand, "data").await;
        stand.until("a volume", |stand| phase(stand, "data") == "Bound").await;
        stand.until("its replicas", |stand| stand.names("replicas.longhorn.io").len() == 2).await;
        let volume = stand.names("volumes.longhorn.io")[0].split_once('/').unwrap().1.to_owned();
        let volume = stand.object("volumes.longhorn.io", NAMESPACE, &volume);
        assert_eq!(volume["status"]["robustness"], "degraded", "the class still wants three");
    });
}

#[test]
fn without_a_webhook_nodes_cannot_be_changed_and_without_a_disk_nothing_is_bound() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 4, has_data_disks: false, wants_volumes: true }).await;
        stand.install(&text).await;
        stand.pause(10.0).await;
        assert_eq!(disk(&stand, "node-4"), ["Ready=False", "Schedulable=False"], "no volume is mounted there");
        assert!(why(&stand, "node-4").contains("no disks matched"), "{}", why(&stand, "node-4"));
        claim(&stand, "data").await;
        stand.pause(60.0).await;
        assert_eq!(phase(&stand, "data"), "Pending");
        let label = json!({ "metadata": { "labels": { "a": "b" } } });
        stand.merge("/api/v1/nodes/node-4", &label).await;
        let fail =
            |fault, holds| assert!(stand.nodes.datacenter().fail_component("blue", Component::Longhorn, fault, holds));
        fail(ComponentFault::DeadWebhook, true);
        stand.pause(1.0).await;
        let change = json!({ "metadata": { "labels": { "a": "c" } } }).to_string();
        let (status, told) =
            stand.api().ask("PATCH", "/api/v1/nodes/node-4", "application/merge-patch+json", &change).await.unwrap();
        assert_eq!(status, 500, "{told}");
        fail(ComponentFault::DeadWebhook, false);
        stand.pause(1.0).await;
        let path = format!("/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/settings/default-replica-count");
        let wrong = json!({ "value": "many" }).to_string();
        let (status, told) = stand.api().ask("PATCH", &path, "application/merge-patch+json", &wrong).await.unwrap();
        assert_eq!(status, 400, "{told}");
    });
}

#[test]
fn a_volume_is_attached_as_long_as_a_pod_on_a_node_uses_it() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 4, has_data_disks: true, wants_volumes: true }).await;
        stand.install(&text).await;
        stand.pause(10.0).await;
        claim(&stand, "data").await;
        stand.until("a volume", |stand| phase(stand, "data") == "Bound").await;
        let state = |stand: &Stand| {
            let name =
                stand.names("volumes.longhorn.io").first().map(|name| name.split_once('/').unwrap().1.to_owned());
            let volume = stand.object("volumes.longhorn.io", NAMESPACE, &name.unwrap_or_default());
            let attached = stand.names("volumeattachments.storage.k8s.io").len();
            (volume["status"]["state"].clone(), volume["status"]["currentNodeID"].clone(), attached)
        };
        stand.until("its own object", |stand| state(stand).0 == "detached").await;
        use_volume(&stand).await;
        stand.until("an attachment", |stand| state(stand) == (json!("attached"), json!("node-4"), 1)).await;
        let fail = |holds| {
            let datacenter = stand.nodes.datacenter();
            assert!(datacenter.fail_component("blue", Component::Longhorn, ComponentFault::StuckVolume, holds));
        };
        fail(true);
        assert_eq!(stand.api().ask("DELETE", USER, "application/json", "{}").await.unwrap().0, 200);
        stand.pause(120.0).await;
        assert!(stand.names("pods").iter().all(|name| name != "default/user"));
        assert_eq!(state(&stand), (json!("attached"), json!("node-4"), 1), "nobody lets go of it");
        fail(false);
        stand.until("the end", |stand| state(stand) == (json!("detached"), json!(""), 0)).await;
    });
}

/// The real managers give a budget up only when a node is closed, no volume is attached there, and by the policy that is set nothing would be lost.
#[test]
fn a_budget_is_given_up_when_nothing_on_a_closed_node_would_be_missed() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 5, has_data_disks: true, wants_volumes: true }).await;
        stand.install(&text).await;
        stand.pause(30.0).await;
        let budgets = |stand: &Stand| stand.names("poddisruptionbudgets.policy").len();
        assert_eq!(budgets(&stand), 2);
        let close = async |node: &str, is_closed: bool| {
            let closed = if is_closed { json!(true) } else { Value::Null };
            stand.merge(&format!("/api/v1/nodes/{node}"), &json!({ "spec": { "unschedulable": closed } })).await;
            stand.pause(5.0).await;
        };
        close("node-4", true).await;
        assert_eq!(budgets(&stand), 1, "nothing is on it");
        close("node-4", false).await;
        assert_eq!(budgets(&stand), 2, "it is there again with the node");

        // A volume with two copies, on both.
        claim(&stand, "data").await;
        stand.until("its replicas", |stand| stand.names("replicas.longhorn.io").len() == 2).await;
        close("node-4", true).await;
        assert_eq!(budgets(&stand), 1, "the other copy is protected");
        close("node-5", true).await;
        assert_eq!(budgets(&stand), 1, "this one is the last that is");
        close("node-4", false).await;
        assert_eq!(budgets(&stand), 1, "one came back, and the other could go");
        close("node-5", false).await;

        // The copy on the other node was never whole, or has failed.
        let own = |kind: &str, name: &str| format!("/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/{kind}/{name}");
        let replicas = stand.names("replicas.longhorn.io");
        let replica = |node: &str| {
            let names = replicas.iter().map(|name| name.split_once('/').unwrap().1);
            let mut names =
                names.filter(|name| stand.object("replicas.longhorn.io", NAMESPACE, name)["spec"]["nodeID"] == node);
            own("replicas", names.next().unwrap())
        };
        let then = "2026-01-01T00:00:00Z";
        for (healthy_at, failed_at) in [("", ""), (then, then)] {
            close("node-4", false).await;
            let spec = json!({ "healthyAt": healthy_at, "failedAt": failed_at });
            stand.merge(&replica("node-5"), &json!({ "spec": spec })).await;
            close("node-4", true).await;
            assert_eq!(budgets(&stand), 2, "{healthy_at:?}, {failed_at:?}");
        }
        let policy = own("settings", "node-drain-policy");
        for (word, expected) in [
            ("always-allow", 1),
            ("block-if-contains-last-replica", 2),
            ("allow-if-replica-is-stopped", 1),
            ("block-for-eviction", 2),
        ] {
            close("node-4", false).await;
            stand.merge(&policy, &json!({ "value": word })).await;
            close("node-4", true).await;
            assert_eq!(budgets(&stand), expected, "{word}");
        }
        // A copy that nobody has written to is not missed.
        stand.merge(&policy, &json!({ "value": "block-if-contains-last-replica" })).await;
        stand.merge(&replica("node-4"), &json!({ "spec": { "healthyAt": "" } })).await;
        stand.until("its end", |stand| budgets(stand) == 1).await;
    });
}

/// A copy on a node that is to be emptied as well is not counted upon, though it has to stay there for now.
#[test]
fn a_copy_on_another_closed_node_is_not_enough() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 5, has_data_disks: true, wants_volumes: true }).await;
        stand.install(&text).await;
        stand.pause(30.0).await;
        claim(&stand, "data").await;
        stand.until("its replicas", |stand| stand.names("replicas.longhorn.io").len() == 2).await;
        use_volume(&stand).await;
        let volume = stand.names("volumes.longhorn.io")[0].split_once('/').unwrap().1.to_owned();
        let user = |stand: &Stand| {
            let volume = stand.object("volumes.longhorn.io", NAMESPACE, &volume);
            volume["status"]["currentNodeID"].as_str().unwrap_or_default().to_owned()
        };
        stand.until("an attachment", |stand| !user(stand).is_empty()).await;
        let other = if user(&stand) == "node-4" { "node-5" } else { "node-4" };
        for node in [&*user(&stand), other] {
            let closed = json!({ "spec": { "unschedulable": true } });
            stand.merge(&format!("/api/v1/nodes/{node}"), &closed).await;
            stand.pause(5.0).await;
            assert_eq!(stand.names("poddisruptionbudgets.policy").len(), 2, "{node}");
        }
    });
}

/// What is missing of a volume is made anew while it is attached, on a node that has none of it.
#[test]
fn copies_are_made_while_a_volume_is_attached() {
    let Some(text) = text("/var/mnt/longhorn") else { return };
    in_virtual_time(async |clock| {
        let stand = Stand::on(clock, Machines { count: 5, has_data_disks: true, wants_volumes: true }).await;
        stand.install(&text).await;
        stand.pause(30.0).await;
        let close = json!({ "spec": { "unschedulable": true } });
        stand.merge("/api/v1/nodes/node-4", &close).await;
        stand.pause(5.0).await;
        claim(&stand, "data").await;
        let copies = |stand: &Stand| {
            let names = stand.names("replicas.longhorn.io");
            let mut nodes: Vec<String> = names
                .iter()
                .map(|name| stand.object("replicas.longhorn.io", NAMESPACE, name.split_once('/').unwrap().1))
                .map(|it| it["spec"]["nodeID"].as_str().unwrap().to_owned())
                .collect();
            nodes.sort();
            nodes
        };
        stand.until("a replica", |stand| copies(stand) == ["node-5"]).await;
        stand.merge("/api/v1/nodes/node-4", &json!({ "spec": { "unschedulable": null } })).await;
        stand.pause(60.0).await;
        assert_eq!(copies(&stand), ["node-5"], "nobody copies what is not attached");
        use_volume(&stand).await;
        stand.until("a second one", |stand| copies(stand) == ["node-4", "node-5"]).await;
        let own = |kind: &str, name: &str| format!("/apis/longhorn.io/v1beta2/namespaces/{NAMESPACE}/{kind}/{name}");
        let first = |kind: &str| stand.names(kind)[0].split_once('/').unwrap().1.to_owned();
        let volume = first("volumes.longhorn.io");
        let robustness =
            |stand: &Stand| stand.object("volumes.longhorn.io", NAMESPACE, &volume)["status"]["robustness"].clone();
        assert_eq!(robustness(&stand), "degraded", "the class wants three");
        stand.merge(&own("volumes", &volume), &json!({ "spec": { "numberOfReplicas": 2 } })).await;
        stand.until("enough of them", |stand| robustness(stand) == "healthy").await;
        // One that has failed is made up for.
        let failed = json!({ "spec": { "failedAt": "2026-01-01T00:00:00Z" } });
        stand.merge(&own("replicas", &first("replicas.longhorn.io")), &failed).await;
        stand.until("a third one", |stand| copies(stand).len() == 3).await;
        assert_eq!(robustness(&stand), "healthy");
        // What is on a node that is gone is no copy.
        let used = stand.object("volumes.longhorn.io", NAMESPACE, &volume)["status"]["currentNodeID"].clone();
        let (other, machine) = if used == "node-4" { ("node-5", "10.0.0.5") } else { ("node-4", "10.0.0.4") };
        assert!(stand.nodes.datacenter().remove_guest(vmid(machine)));
        let gone = stand.api().ask("DELETE", &format!("/api/v1/nodes/{other}"), "application/json", "{}").await;
        assert_eq!(gone.unwrap().0, 200);
        stand.until("one of two", |stand| robustness(stand) == "degraded").await;
    });
}
