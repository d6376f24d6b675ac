//! What was asked of the recorded node, asked again.

use castle_talos_api::Duration;
use castle_talos_api::cluster::HealthCheckRequest;
use castle_talos_api::common::Data;
use castle_talos_api::cosi::resource::{
    CreateRequest, DestroyRequest, Event, EventType, GetRequest, ListRequest, UpdateRequest, WatchOptions,
    WatchRequest, WatchResponse,
};
use castle_talos_api::machine::{
    ContainersRequest, DmesgRequest, EtcdMemberListRequest, LogsRequest, ReadRequest, ServiceRestartRequest,
    ServiceStopRequest,
};
use castle_talos_api::time::TimeRequest;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use tonic::codegen::Service;
use tonic::{Response, Status, Streaming};

use crate::told;
use crate::wire::Node;

/// How many messages of a stream that goes on are looked at.
const LOOKED_AT: usize = 8;

/// What is answered in this probe: the lines of the recording without its name.
pub(crate) async fn ask(node: &Node, name: &str, recorded: usize) -> Vec<String> {
    let mut machine = node.machine();
    if let Some(place) = name.strip_prefix("cosi ").filter(|place| place.contains('/')) {
        return cosi(node, place).await;
    }
    if name.starts_with("watch ") {
        return watch(node, name.contains(" one "), name.ends_with("bootstrap=true"), recorded).await;
    }
    if name == "HealthCheck" {
        return health(node, recorded).await;
    }
    if let Some(path) = name.strip_prefix("Read ") {
        let answer = machine.read(ReadRequest { path: path.to_owned() }).await;
        return vec![bytes(answer).await];
    }
    let said = match name {
        "Version" => tell(machine.version(()).await, told::version),
        "Hostname" => tell(machine.hostname(()).await, told::hostname),
        "ServiceList" => tell(machine.service_list(()).await, told::services),
        "Disks" => tell(node.storage().disks(()).await, told::disks),
        "EtcdMemberList" | "EtcdMemberList local" => {
            let request = EtcdMemberListRequest { query_local: name.ends_with("local") };
            tell(machine.etcd_member_list(request).await, told::members)
        }
        "EtcdStatus" => tell(machine.etcd_status(()).await, told::etcd_status),
        "EtcdAlarmList" => tell(machine.etcd_alarm_list(()).await, told::alarms),
        "Memory" => tell(machine.memory(()).await, |_| String::new()),
        "LoadAvg" => tell(machine.load_avg(()).await, |_| String::new()),
        "SystemStat" => tell(machine.system_stat(()).await, |_| String::new()),
        "Mounts" => tell(machine.mounts(()).await, |_| String::new()),
        "Time" => tell(node.time().time(()).await, |_| "an answer".to_owned()),
        "TimeCheck 127.0.0.1" => {
            let request = TimeRequest { server: "127.0.0.1".to_owned() };
            tell(node.time().time_check(request).await, |_| "an answer".to_owned())
        }
        "Kubeconfig" => bytes(machine.kubeconfig(()).await).await,
        "Dmesg" => bytes(machine.dmesg(DmesgRequest::default()).await).await,
        "Logs machined" | "Logs nope" => {
            let id = name.rsplit(' ').next().unwrap_or_default().to_owned();
            let request = LogsRequest { namespace: "system".to_owned(), id, tail_lines: -1, ..LogsRequest::default() };
            bytes(machine.logs(request).await).await
        }
        "Containers system" => {
            let request = ContainersRequest { namespace: "system".to_owned(), ..ContainersRequest::default() };
            tell(machine.containers(request).await, told::containers)
        }
        "ServiceRestart nope" => {
            let request = ServiceRestartRequest { id: "nope".to_owned() };
            tell(machine.service_restart(request).await, |_| String::new())
        }
        "ServiceStop machined" => {
            let request = ServiceStopRequest { id: "machined".to_owned() };
            tell(machine.service_stop(request).await, |_| String::new())
        }
        "unknown method" => raw(node, "/machine.MachineService/Nope").await,
        "unknown service" => raw(node, "/nope.Nope/Nope").await,
        "cosi Create" => tell(node.state().create(CreateRequest::default()).await, |_| String::new()),
        "cosi Update" => tell(node.state().update(UpdateRequest::default()).await, |_| String::new()),
        "cosi Destroy" => tell(node.state().destroy(DestroyRequest::default()).await, |_| String::new()),
        other => panic!("nobody knows how to ask {other:?}"),
    };
    vec![said]
}

fn tell<T>(answer: Result<Response<T>, Status>, say: impl FnOnce(&T) -> String) -> String {
    match answer {
        Ok(answer) => say(answer.get_ref()),
        Err(status) => told::refused(&status),
    }
}

/// A stream of bytes: how many, or why not.
async fn bytes(answer: Result<Response<Streaming<Data>>, Status>) -> String {
    let parts: Vec<Result<Data, Status>> = match answer {
        Ok(answer) => answer.into_inner().collect().await,
        Err(status) => return told::refused(&status),
    };
    let parts: Result<Vec<Data>, Status> = parts.into_iter().collect();
    match parts {
        Ok(parts) => format!("ok {} bytes", parts.iter().map(|part| part.bytes.len()).sum::<usize>()),
        Err(status) => told::refused(&status),
    }
}

async fn cosi(node: &Node, place: &str) -> Vec<String> {
    let mut parts = place.splitn(3, '/').map(str::to_owned);
    let mut part = || parts.next().unwrap_or_default();
    let (namespace, r#type, id) = (part(), part(), part());
    if !id.is_empty() {
        let answer = node.state().get(GetRequest { namespace, r#type, id, options: None }).await;
        let say = |resource: &Option<_>| format!("GET {}", resource.as_ref().map(told::resource).unwrap_or_default());
        return vec![tell(answer, |answer| say(&answer.resource))];
    }
    let answer = node.state().list(ListRequest { namespace, r#type, options: None }).await;
    let items: Vec<_> = match answer {
        Ok(answer) => answer.into_inner().map(|it| it.unwrap().resource.unwrap()).collect().await,
        Err(status) => return vec![told::refused(&status)],
    };
    let ids = items.iter().map(|it| it.metadata.clone().unwrap_or_default().id).collect::<Vec<_>>().join(" ");
    let mut lines = vec![format!("LIST [{ids}]")];
    lines.extend(items.first().map(|first| format!("    first: {}", told::resource(first))));
    lines
}

async fn watch(node: &Node, is_one: bool, wants_contents: bool, recorded: usize) -> Vec<String> {
    let request = WatchRequest {
        namespace: "runtime".to_owned(),
        r#type: if is_one { "MachineStatuses.runtime.talos.dev" } else { "Services.v1alpha1.talos.dev" }.to_owned(),
        id: is_one.then(|| "machine".to_owned()),
        options: Some(WatchOptions { bootstrap_contents: wants_contents, ..WatchOptions::default() }),
        api_version: 1,
    };
    let answers: Vec<Result<WatchResponse, Status>> = match node.state().watch(request).await {
        Ok(answer) => answer.into_inner().take(recorded.max(if is_one { 0 } else { LOOKED_AT })).collect().await,
        Err(status) => return vec![told::refused(&status)],
    };
    let one = |event: &Event| {
        let id = event.resource.as_ref().and_then(|it| it.metadata.clone()).unwrap_or_default().id;
        let kind = format!("{:?}", event.event_type()).to_uppercase();
        match is_one {
            true => format!("{kind} res={} old={}", event.resource.is_some(), event.old.is_some()),
            false => format!("{kind}({id})"),
        }
    };
    let mut lines = Vec::new();
    for answer in answers {
        let events = answer.unwrap().event;
        let told: String = events.iter().map(|event| format!(" {}", one(event))).collect();
        lines.push(format!("{} events{told}", events.len()));
        if events.iter().any(|event| event.event_type() == EventType::Bootstrapped) {
            break;
        }
    }
    lines
}

async fn health(node: &Node, recorded: usize) -> Vec<String> {
    let wait_timeout = Some(Duration { seconds: 5, nanos: 0 });
    let request = HealthCheckRequest { wait_timeout, ..HealthCheckRequest::default() };
    let answers: Vec<_> = match node.cluster().health_check(request).await {
        Ok(answer) => answer.into_inner().take(recorded).collect().await,
        Err(status) => return vec![told::refused(&status)],
    };
    let say = |answer: Result<castle_talos_api::cluster::HealthCheckProgress, Status>| match answer {
        Ok(progress) => format!("{{\"message\":{:?}}}", progress.message),
        Err(status) => told::refused(&status),
    };
    answers.into_iter().map(say).collect()
}

/// A call that nobody has a word for.
async fn raw(node: &Node, path: &str) -> String {
    let body = Full::new(Bytes::from_static(&[0; 5])).map_err(|never| match never {});
    let request = hyper::Request::post(format!("http://node{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(tonic::body::Body::new(body))
        .unwrap();
    let answer = node.wire().call(request).await.unwrap();
    let status = Status::from_header_map(answer.headers()).expect("a refusal comes in the head");
    told::refused(&status)
}
