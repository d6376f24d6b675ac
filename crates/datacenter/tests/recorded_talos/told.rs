//! Answers in the form of the recordings.

use castle_talos_api::cosi::resource::Resource;
use castle_talos_api::machine::{
    ContainersResponse, EtcdAlarmListResponse, EtcdMemberListResponse, EtcdStatusResponse, HostnameResponse,
    ServiceListResponse, VersionResponse,
};
use castle_talos_api::storage::DisksResponse;
use tonic::{Code, Status};

/// A map of what is not empty.
fn map(entries: &[(&str, String)]) -> String {
    let is_there = |text: &str| !["", "\"\"", "[]", "\"0\"", "0", "false", "{}"].contains(&text);
    let entries = entries.iter().filter(|(_, text)| is_there(text)).map(|(key, text)| format!("{key:?}:{text}"));
    format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn text(text: &str) -> String {
    format!("{text:?}")
}

fn texts(texts: &[String]) -> String {
    list(texts.iter().map(|it| text(it)))
}

/// The answers of all nodes.
fn messages(messages: impl Iterator<Item = String>) -> String {
    format!("{{\"messages\":{}}}", list(messages))
}

/// A refusal.
pub(crate) fn refused(status: &Status) -> String {
    let code = match status.code() {
        Code::Ok => "OK".to_owned(),
        code => format!("{code:?}"),
    };
    format!("ERR {code}: {:?}", status.message())
}

pub(crate) fn version(answer: &VersionResponse) -> String {
    messages(answer.messages.iter().map(|it| {
        let (version, platform) = (it.version.clone().unwrap_or_default(), it.platform.clone().unwrap_or_default());
        let version = map(&[
            ("tag", text(&version.tag)),
            ("sha", text(&version.sha)),
            ("goVersion", text(&version.go_version)),
            ("os", text(&version.os)),
            ("arch", text(&version.arch)),
        ]);
        let platform = map(&[("name", text(&platform.name)), ("mode", text(&platform.mode))]);
        let features = it.features.as_ref().map(|it| map(&[("rbac", it.rbac.to_string())])).unwrap_or_default();
        map(&[("version", version), ("platform", platform), ("features", features)])
    }))
}

pub(crate) fn hostname(answer: &HostnameResponse) -> String {
    messages(answer.messages.iter().map(|it| map(&[("hostname", text(&it.hostname))])))
}

pub(crate) fn services(answer: &ServiceListResponse) -> String {
    let stamp = || "\"<X>\"".to_owned();
    messages(answer.messages.iter().map(|it| {
        let services = it.services.iter().map(|service| {
            let events = service.events.iter().flat_map(|events| &events.events);
            let events = list(
                events.map(|event| map(&[("msg", text(&event.msg)), ("state", text(&event.state)), ("ts", stamp())])),
            );
            let health = service.health.clone().unwrap_or_default();
            let health = map(&[
                ("unknown", health.unknown.to_string()),
                ("healthy", health.healthy.to_string()),
                ("lastMessage", text(&health.last_message)),
                ("lastChange", stamp()),
            ]);
            let events = map(&[("events", events)]);
            map(&[("id", text(&service.id)), ("state", text(&service.state)), ("events", events), ("health", health)])
        });
        map(&[("services", list(services))])
    }))
}

pub(crate) fn disks(answer: &DisksResponse) -> String {
    messages(answer.messages.iter().map(|it| {
        let disks = list(it.disks.iter().map(|disk| map(&[("deviceName", text(&disk.device_name))])));
        map(&[("disks", disks)])
    }))
}

pub(crate) fn members(answer: &EtcdMemberListResponse) -> String {
    messages(answer.messages.iter().map(|it| {
        let members = it.members.iter().map(|member| {
            map(&[
                ("id", text(&member.id.to_string())),
                ("hostname", text(&member.hostname)),
                ("peerUrls", texts(&member.peer_urls)),
                ("clientUrls", texts(&member.client_urls)),
                ("isLearner", member.is_learner.to_string()),
            ])
        });
        map(&[("legacyMembers", texts(&it.legacy_members)), ("members", list(members))])
    }))
}

pub(crate) fn etcd_status(answer: &EtcdStatusResponse) -> String {
    messages(answer.messages.iter().map(|it| {
        let status = it.member_status.clone().unwrap_or_default();
        let number = |number: u64| text(&number.to_string());
        let size = |size: i64| text(&size.to_string());
        let status = map(&[
            ("storageVersion", text(&status.storage_version)),
            ("memberId", number(status.member_id)),
            ("protocolVersion", text(&status.protocol_version)),
            ("dbSize", size(status.db_size)),
            ("dbSizeInUse", size(status.db_size_in_use)),
            ("leader", number(status.leader)),
            ("raftIndex", number(status.raft_index)),
            ("raftTerm", number(status.raft_term)),
            ("raftAppliedIndex", number(status.raft_applied_index)),
            ("errors", texts(&status.errors)),
        ]);
        map(&[("memberStatus", status)])
    }))
}

pub(crate) fn alarms(answer: &EtcdAlarmListResponse) -> String {
    messages(
        answer
            .messages
            .iter()
            .map(|it| map(&[("memberAlarms", list(it.member_alarms.iter().map(|_| "{}".to_owned())))])),
    )
}

pub(crate) fn containers(answer: &ContainersResponse) -> String {
    messages(answer.messages.iter().map(|it| {
        let containers = it.containers.iter().map(|container| {
            map(&[
                ("namespace", text(&container.namespace)),
                ("id", text(&container.id)),
                ("internalId", text(&container.internal_id)),
                ("pid", container.pid.to_string()),
                ("status", text(&container.status)),
                ("podId", text(&container.pod_id)),
                ("name", text(&container.name)),
            ])
        });
        map(&[("containers", list(containers))])
    }))
}

/// A resource, with all that typed programs and people see of it.
pub(crate) fn resource(resource: &Resource) -> String {
    let metadata = resource.metadata.clone().unwrap_or_default();
    let spec = resource.spec.clone().unwrap_or_default();
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        let pairs: Vec<String> = map.iter().map(|(key, value)| format!("{key}:{value}")).collect();
        format!("map[{}]", pairs.join(" "))
    };
    format!(
        "id={} phase={} owner={:?} finalizers=[{}] labels={} annotations={} proto={} yaml={:?}",
        metadata.id,
        metadata.phase,
        metadata.owner,
        metadata.finalizers.join(" "),
        pairs(&metadata.labels),
        pairs(&metadata.annotations),
        spec.proto_spec.len(),
        spec.yaml_spec,
    )
}
