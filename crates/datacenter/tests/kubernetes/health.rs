//! The vendor's checks of a cluster's health, as a node runs them for `talosctl health`.

use castle_datacenter::{Blueprint, Latencies, PodFault};
use castle_talos_api::Duration;
use castle_talos_api::cluster::{ClusterInfo, HealthCheckRequest};
use castle_testbed::{VirtualClock, in_virtual_time};
use serde_json::json;
use tonic::Code;

use crate::castle::Wanted;
use crate::stand::Stand;
use crate::wire::{AUTO, Node, Nodes, vmid};

/// What a node says in the end, and whether it goes well.
async fn last(node: &Node, named: Option<ClusterInfo>) -> (String, bool) {
    let wait_timeout = Some(Duration { seconds: 20, nanos: 0 });
    let request = HealthCheckRequest { wait_timeout, cluster_info: named };
    let mut told = node.cluster().health_check(request).await.unwrap().into_inner();
    let mut last = String::new();
    loop {
        match told.message().await {
            Ok(Some(progress)) => last = progress.message,
            Ok(None) => return (last, true),
            Err(status) => {
                assert_eq!((status.code(), status.message()), (Code::DeadlineExceeded, "context deadline exceeded"));
                return (last, false);
            }
        }
    }
}

/// Gives the nodes disks that are large enough for the vendor.
async fn enlarge(nodes: &Nodes) {
    for address in &nodes.addresses {
        let path = format!("/nodes/pve/qemu/{}/resize", vmid(address));
        assert_eq!(nodes.site.run("PUT", &path, &[("disk", "scsi0"), ("size", "+10G")]).await, "OK");
    }
}

async fn raised(clock: &VirtualClock) -> Stand {
    let stand = Stand::quick(clock, 4).await;
    enlarge(&stand.nodes).await;
    stand
}

const WELL: &str = "waiting for all k8s nodes to report schedulable: OK";

/// Goal: what is wrong is told in the vendor's words. Method: a node that is closed, and Pods of the system that do not come up.
#[test]
fn closed_nodes_and_dead_pods_of_the_system_are_told() {
    in_virtual_time(async |clock| {
        let stand = raised(clock).await;
        let node = stand.nodes.admin(0);
        assert_eq!(last(&node, None).await, (WELL.to_owned(), true));

        let close = |is_closed: bool| json!({ "spec": { "unschedulable": is_closed } });
        stand.merge("/api/v1/nodes/node-4", &close(true)).await;
        let told = "waiting for all k8s nodes to report schedulable: some nodes are not schedulable: [node-4]";
        assert_eq!(last(&node, None).await, (told.to_owned(), false));
        stand.merge("/api/v1/nodes/node-4", &close(false)).await;

        let datacenter = stand.nodes.datacenter();
        let proxy = stand.names("pods").into_iter().find_map(|pod| {
            pod.strip_prefix("kube-system/").filter(|name| name.starts_with("kube-proxy-")).map(str::to_owned)
        });
        let proxy = proxy.unwrap();
        let dead = "no ready pods found for namespace \"kube-system\" and label selector \"k8s-app=kube-dns\"";
        for (prefix, what, expected) in [
            ("coredns", "coredns", dead.to_owned()),
            (proxy.as_str(), "kube-proxy", format!("some pods are not ready: [{proxy}]")),
        ] {
            assert!(datacenter.fail_pods("blue", "kube-system", prefix, Some(PodFault::NotReady)));
            stand.pause(5.0).await;
            let told = format!("waiting for {what} to report ready: {expected}");
            assert_eq!(last(&node, None).await, (told, false));
            assert!(datacenter.fail_pods("blue", "kube-system", prefix, None));
            stand.pause(60.0).await;
        }
        assert_eq!(last(&node, None).await, (WELL.to_owned(), true));
    });
}

/// Goal: machines are judged as the vendor judges them. Method: nodes that are off, too small, strangers, and in the range of Pods.
#[test]
fn machines_that_do_not_do_are_told() {
    in_virtual_time(async |clock| {
        let stand = Stand::quick(clock, 4).await;
        let node = stand.nodes.admin(0);
        let (told, is_well) = last(&node, None).await;
        let small = "waiting for all nodes disk sizes: 4 errors occurred:\n\t* ephemeral partition \"/dev/sda5\" for node \"10.0.0.1\" \
                     is too small, expected at least 3.8 GiB, actual ";
        assert!(!is_well && told.starts_with(small), "{told}");
        enlarge(&stand.nodes).await;

        let named = |control_planes: &[&str], workers: &[&str]| {
            let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let (control_plane_nodes, worker_nodes) = (texts(control_planes), texts(workers));
            Some(ClusterInfo { control_plane_nodes, worker_nodes, ..ClusterInfo::default() })
        };
        let three = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
        assert_eq!(last(&node, named(&three, &["10.0.0.4"])).await, (WELL.to_owned(), true));
        let unnamed = "waiting for all k8s nodes to report: unexpected nodes with IPs [\"10.0.0.4\"]";
        assert_eq!(last(&node, named(&three, &[])).await, (unnamed.to_owned(), false));
        // Members come in the order of their numbers.
        let (told, is_well) = last(&node, named(&three[..2], &["10.0.0.3", "10.0.0.4"])).await;
        let fewer = " are not subset of control plane node ips [\"10.0.0.1\" \"10.0.0.2\"]";
        assert!(!is_well && told.ends_with(fewer) && told.contains("etcd member ips [\"10.0.0."), "{told}");
        let (told, _) = last(&node, named(&three, &["10.0.0.99"])).await;
        assert!(
            told.starts_with("waiting for apid to be ready: 1 error occurred:\n\t* 10.0.0.99: rpc error: "),
            "{told}"
        );
        stand.nodes.datacenter().switch(423, false);
        let (told, _) = last(&node, named(&three, &["10.0.0.4"])).await;
        assert!(
            told.starts_with("waiting for etcd to be healthy: 1 error occurred:\n\t* 10.0.0.3: rpc error: "),
            "{told}"
        );
    });
}

#[test]
fn a_node_among_the_addresses_of_pods_warns_of_it() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]).with_latencies(Latencies::none()), 1).await;
        enlarge(&nodes).await;
        nodes.until("maintenance", async || nodes.stranger(0).version().await.is_ok()).await;
        let name = "  clusterName: blue\n";
        let ranges = format!("{name}  network:\n    podSubnets: [10.0.0.0/16]\n    serviceSubnets: [10.96.0.0/12]\n");
        let wanted = Wanted { vip: None, endpoint: "https://10.0.0.1:6443".to_owned(), ..Wanted::default() };
        let config = nodes.castle.config(true, &wanted).replace(name, &ranges);
        nodes.stranger(0).apply(&config, AUTO).await.unwrap();
        nodes.bring_up_configured().await;
        let node = nodes.admin(0);
        let said = node.resource("runtime", "Diagnostics.runtime.talos.dev", "address-overlap").await.unwrap();
        assert!(said.contains("Kubernetes pod CIDRs: [\"10.0.0.0/16\"]"), "{said}");
        let told = "waiting for no diagnostics: active diagnostics: 10.0.0.1: host and Kubernetes pod/service CIDR addresses overlap";
        assert_eq!(last(&node, None).await, (told.to_owned(), false));
    });
}
