//! What a real node has and an embedded one has not: it says so, and who may do what comes first.

use castle_talos_api::common::Data;
use castle_talos_api::machine::{
    ListRequest, ReadRequest, RollbackRequest, ServiceRestartRequest, ServiceStartRequest, ServiceStopRequest,
    UpgradeRequest,
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
