//! What a real node has and an embedded one has not: it says so, and who may do what comes first.

use castle_datacenter::{Blueprint, Latencies, Stage};
use castle_talos_api::common::{ContainerDriver, Data};
use castle_talos_api::cosi::resource as cosi;
use castle_talos_api::machine::{
    ContainersRequest, ListRequest, LogsRequest, ReadRequest, RollbackRequest, ServiceRestartRequest,
    ServiceStartRequest, ServiceStopRequest, UpgradeRequest,
};
use castle_testbed::in_virtual_time;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use tonic::codegen::Service;
use tonic::{Code, Status, Streaming};

use crate::castle::Wanted;
use crate::wire::{Node, Nodes};

async fn raised(clock: &castle_testbed::VirtualClock) -> Nodes {
    let nodes = Nodes::quick(clock, 1).await;
    nodes.bring_up(&Wanted { vip: None, endpoint: "https://10.0.0.1:6443".to_owned(), ..Wanted::default() }).await;
    nodes
}

/// What is answered to a call that nobody has a word for.
async fn raw(node: &Node, path: &str) -> Status {
    let body = Full::new(Bytes::from_static(&[0; 5])).map_err(|never| match never {});
    let request = hyper::Request::post(format!("http://node{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .unwrap();
    let answer = node.wire().call(request).await.unwrap();
    Status::from_header_map(answer.headers()).expect("a refusal comes in the head")
}

#[test]
fn calls_and_services_that_are_not_simulated_say_so() {
    in_virtual_time(async |clock| {
        let nodes = raised(clock).await;
        let node = nodes.admin(0);
        let methods = [
            "CPUFreqStats",
            "CPUInfo",
            "Copy",
            "DiskStats",
            "DiskUsage",
            "EtcdDowngradeCancel",
            "EtcdDowngradeEnable",
            "EtcdDowngradeValidate",
            "ImageList",
            "ImagePull",
            "NetworkDeviceStats",
            "Netstat",
            "PacketCapture",
            "Processes",
            "Restart",
            "Stats",
        ];
        let calls = methods.map(|method| (format!("machine.MachineService/{method}"), method.to_owned()));
        let services = [
            ("machine.ImageService", "List"),
            ("machine.ImageService", "Pull"),
            ("machine.ImageService", "Remove"),
            ("machine.LifecycleService", "Install"),
            ("machine.LifecycleService", "Upgrade"),
            ("machine.DebugService", "ContainerRun"),
            ("inspect.InspectService", "ControllerRuntimeDependencies"),
        ];
        let services = services.map(|(service, method)| {
            (format!("{service}/{method}"), format!("{}.{method}", service.split_once('.').unwrap().1))
        });
        for (path, what) in calls.into_iter().chain(services) {
            let status = raw(&node, &format!("/{path}")).await;
            let told = (status.code(), status.message().to_owned());
            assert_eq!(told, (Code::Unimplemented, format!("the embedded node simulates no {what}")), "{path}");
        }
        let status = raw(&node, "/nope.Nope/Nope").await;
        assert_eq!((status.code(), status.message()), (Code::Unimplemented, "unknown service nope.Nope"));

        let refused = node.machine().rollback(RollbackRequest {}).await.unwrap_err();
        assert_eq!(refused.message(), "the embedded node simulates no rollback");
        let refused = node.machine().upgrade(UpgradeRequest::default()).await.unwrap_err();
        assert_eq!(refused.message(), "the embedded node simulates no upgrade");
    });
}

/// The code of a refusal, and what it says.
async fn read(node: &Node, path: &str) -> Result<(), (Code, String)> {
    let told = |status: Status| (status.code(), status.message().to_owned());
    let answer: Streaming<Data> =
        node.machine().read(ReadRequest { path: path.to_owned() }).await.map_err(told)?.into_inner();
    let parts: Vec<Result<Data, Status>> = answer.collect().await;
    parts.into_iter().collect::<Result<Vec<_>, _>>().map(|_| ()).map_err(told)
}

#[test]
fn files_that_a_real_node_has_are_told_from_those_that_nobody_has() {
    in_virtual_time(async |clock| {
        let nodes = raised(clock).await;
        let node = nodes.admin(0);
        assert_eq!(read(&node, "/etc/os-release").await, Ok(()));
        for path in
            ["/proc/cpuinfo", "/etc/resolv.conf", "/var/log/audit/kube/kube-apiserver.log", "/system/state/config.yaml"]
        {
            let told = (Code::Unimplemented, format!("the embedded node simulates no {path}"));
            assert_eq!(read(&node, path).await, Err(told));
        }
        for path in ["/nonexistent", "/nonexistent/more", "relative"] {
            let told = (Code::NotFound, format!("stat {path}: no such file or directory"));
            assert_eq!(read(&node, path).await, Err(told));
        }
        let told = (Code::Unknown, "path must be a regular file".to_owned());
        assert_eq!(read(&node, "/sys").await, Err(told));
        let request = ListRequest { root: "/var/log".to_owned(), ..ListRequest::default() };
        let refused = node.machine().list(request).await.unwrap_err();
        let told = "the embedded node simulates no files but those of /var/lib/etcd, asked for /var/log";
        assert_eq!((refused.code(), refused.message()), (Code::Unimplemented, told));
    });
}

/// Goal: services are started, stopped and restarted as the vendor lets others do it. Method: the kubelet, whose restart shows, and others.
#[test]
fn the_kubelet_alone_is_restarted_by_others() {
    in_virtual_time(async |clock| {
        let nodes = raised(clock).await;
        let node = nodes.admin(0);
        let mut machine = node.machine();
        let id = |id: &str| id.to_owned();
        let started = machine.service_start(ServiceStartRequest { id: id("etcd") }).await.unwrap().into_inner();
        assert_eq!(started.messages[0].resp, "Service \"etcd\" started", "it runs already");
        let refused = machine.service_stop(ServiceStopRequest { id: id("kubelet") }).await.unwrap_err();
        assert_eq!(refused.message(), "service \"kubelet\" doesn't support stop operation via API");
        for other in ["apid", "cri", "etcd", "trustd"] {
            let refused = machine.service_restart(ServiceRestartRequest { id: id(other) }).await.unwrap_err();
            assert_eq!(refused.message(), format!("service {other:?} doesn't support restart operation via API"));
        }
        let refused = machine.service_start(ServiceStartRequest { id: id("nope") }).await.unwrap_err();
        assert_eq!(refused.message(), "service \"nope\" not defined");

        let events = async || {
            let told = node.machine().service_list(()).await.unwrap().into_inner();
            let kubelet = told.messages[0].services.iter().find(|service| service.id == "kubelet").unwrap().clone();
            kubelet.events.unwrap().events.len()
        };
        let before = events().await;
        let told = machine.service_restart(ServiceRestartRequest { id: id("kubelet") }).await.unwrap().into_inner();
        assert_eq!(told.messages[0].resp, "Service \"kubelet\" restarted");
        nodes
            .until("the kubelet", async || node.service("kubelet").await.is_some_and(|(state, _)| state == "Running"))
            .await;
        assert!(events().await > before, "nothing happened to it");
    });
}

/// Goal: kinds of resources that nodes have and this one has not say so, and what no node has is told from them.
/// Method: kinds of all sorts, asked by who may see everything and by who may not; of a node of 1.13 and of one of 1.14.
#[test]
fn kinds_that_are_not_simulated_say_so() {
    in_virtual_time(async |clock| {
        let nodes = raised(clock).await;
        let node = nodes.admin(0);
        for (namespace, kind) in [
            ("k8s", "KubeletSpecs.kubernetes.talos.dev"),
            ("network", "LinkSpecs.net.talos.dev"),
            ("perf", "MemoryStats.perf.talos.dev"),
            ("runtime", "DiscoveredVolumes.block.talos.dev"),
            ("runtime", "MetaKeys.runtime.talos.dev"),
            ("secrets", "EtcdSecrets.secrets.talos.dev"),
        ] {
            let told = (Code::Unimplemented, format!("the embedded node simulates no {kind}"));
            assert_eq!(asked(&node, namespace, kind).await, Err(told), "{kind}");
        }
        for (namespace, kind, why) in [
            ("runtime", "Nopes.runtime.talos.dev", "resource type \"Nopes.runtime.talos.dev\" is not supported"),
            ("network", "StaticHosts.net.talos.dev", "resource type \"StaticHosts.net.talos.dev\" is not supported"),
            ("nope", "LinkSpecs.net.talos.dev", "namespace \"nope\" is not supported"),
        ] {
            assert_eq!(asked(&node, namespace, kind).await, Err((Code::PermissionDenied, why.to_owned())), "{kind}");
        }
        let reader =
            Node::new(nodes.datacenter(), &nodes.addresses[0], Some(&nodes.castle.os.client("os:reader", |_| {})));
        let denied = Err((Code::PermissionDenied, "not authorized".to_owned()));
        assert_eq!(asked(&reader, "secrets", "EtcdSecrets.secrets.talos.dev").await, denied);
    });
    in_virtual_time(async |clock| {
        let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none());
        let nodes = Nodes::raise_version(clock, blueprint, 1, "v1.14.0").await;
        nodes.until("maintenance", async || nodes.stage(0) == Some(Stage::Maintenance)).await;
        let told = "the embedded node simulates no StaticHosts.net.talos.dev".to_owned();
        let answered = asked(&nodes.stranger(0), "network", "StaticHosts.net.talos.dev").await;
        assert_eq!(answered, Err((Code::Unimplemented, told)));
    });
}

/// How many resources of a kind are listed.
async fn asked(node: &Node, namespace: &str, kind: &str) -> Result<usize, (Code, String)> {
    let told = |status: Status| (status.code(), status.message().to_owned());
    let request = cosi::ListRequest { namespace: namespace.to_owned(), r#type: kind.to_owned(), options: None };
    Ok(node.state().list(request).await.map_err(told)?.into_inner().count().await)
}

/// Goal: containers of Pods, which nobody simulates, are told from those that nobody has. Method: lists and logs, where they would be and elsewhere.
#[test]
fn containers_of_pods_say_that_they_are_not_simulated() {
    in_virtual_time(async |clock| {
        let nodes = raised(clock).await;
        let node = nodes.admin(0);
        let (cri, containerd) = (ContainerDriver::Cri, ContainerDriver::Containerd);
        let listed = async |namespace: &str, driver: ContainerDriver| {
            let request = ContainersRequest { namespace: namespace.to_owned(), driver: driver.into() };
            let told = node.machine().containers(request).await.map_err(|it| (it.code(), it.message().to_owned()))?;
            Ok(told.into_inner().messages[0].containers.len())
        };
        let none = Err((Code::Unimplemented, "the embedded node simulates no containers of k8s.io".to_owned()));
        assert_eq!((listed("k8s.io", cri).await, listed("k8s.io", containerd).await), (none.clone(), none));
        assert_eq!((listed("system", containerd).await, listed("nope", containerd).await), (Ok(2), Ok(0)));
        let why = "CRI inspector is supported only for K8s namespace".to_owned();
        assert_eq!(listed("system", cri).await, Err((Code::Unknown, why)));
        let why = "namespace can't be empty".to_owned();
        assert_eq!(listed("", containerd).await, Err((Code::InvalidArgument, why)));

        let logs = async |namespace: &str, id: &str| {
            let told = |status: Status| (status.code(), status.message().to_owned());
            let (namespace, id) = (namespace.to_owned(), id.to_owned());
            let request = LogsRequest { namespace, id, tail_lines: -1, ..LogsRequest::default() };
            let parts: Vec<_> = node.machine().logs(request).await.map_err(told)?.into_inner().collect().await;
            parts.into_iter().collect::<Result<Vec<Data>, _>>().map(|parts| !parts.is_empty()).map_err(told)
        };
        let pod = "kube-system/kube-apiserver-node-1:kube-apiserver:0123456789ab";
        let none = "the embedded node simulates no logs of containers of k8s.io".to_owned();
        assert_eq!(logs("k8s.io", pod).await, Err((Code::Unimplemented, none)));
        assert_eq!(logs("k8s.io", "kubelet").await, Ok(true), "the kubelet is found anywhere");
        assert_eq!(logs("nope", "x").await, Err((Code::Unknown, "container \"x\" not found".to_owned())));
        assert_eq!(logs("system", "x").await, Err((Code::Unknown, "log \"x\" was not registered".to_owned())));
    });
}
