//! Resources, services, disks, events: what a node tells of itself.

use castle_datacenter::{Blueprint, Latencies, Stage};
use castle_talos_api::cluster::HealthCheckRequest;
use castle_talos_api::cosi::resource::{EventType, ListRequest, WatchOptions, WatchRequest};
use castle_talos_api::machine::{
    DmesgRequest, EventsRequest, GenerateClientConfigurationRequest, LogsRequest, apply_configuration_request,
};
use castle_talos_api::{Duration, EVENT_TYPE_PREFIX};
use castle_testbed::in_virtual_time;
use futures_util::StreamExt;
use tonic::Code;

use crate::castle::Wanted;
use crate::wire::{AUTO, Node, Nodes};

fn watch(namespace: &str, kind: &str, id: Option<&str>) -> WatchRequest {
    WatchRequest {
        namespace: namespace.to_owned(),
        r#type: kind.to_owned(),
        id: id.map(Into::into),
        options: Some(WatchOptions { bootstrap_contents: id.is_none(), ..WatchOptions::default() }),
        api_version: 1,
    }
}

/// Goal: whoever watches sees every stage as it comes. Method: the stages of a node from maintenance to running.
#[test]
fn a_watch_follows_the_stages() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        nodes.until("bootstrap", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        let request = watch("runtime", "MachineStatuses.runtime.talos.dev", Some("machine"));
        let mut stream = nodes.admin(0).state().watch(request).await.unwrap().into_inner();
        assert!(stream.message().await.unwrap().unwrap().event.is_empty(), "the first says that it has begun");
        let mut told = Vec::new();
        loop {
            let answer = stream.message().await.unwrap().unwrap();
            let event = &answer.event[0];
            let resource = event.resource.clone().unwrap();
            let spec = resource.spec.unwrap().yaml_spec;
            told.push((event.event_type(), spec.clone(), resource.metadata.unwrap().version.parse::<u64>().unwrap()));
            if spec.starts_with("stage: running\nstatus:\n    ready: true\n") {
                break;
            }
        }
        assert_eq!(told[0].0, EventType::Created);
        assert!(told[0].1.starts_with("stage: booting"), "{told:?}");
        assert!(told[1..].iter().all(|(kind, ..)| *kind == EventType::Updated));
        assert!(told.windows(2).all(|pair| pair[0].2 < pair[1].2), "versions grow: {told:?}");
        assert_eq!(nodes.stage(0), Some(Stage::Running));
    });
}

#[test]
fn a_watch_of_a_kind_begins_with_what_there_is() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 2).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let request = watch("cluster", "Members.cluster.talos.dev", None);
        let stream = nodes.admin(0).state().watch(request).await.unwrap().into_inner();
        let told: Vec<EventType> = stream
            .take(4)
            .map(|answer| {
                answer
                    .unwrap()
                    .event
                    .first()
                    .map_or(EventType::Noop, castle_talos_api::cosi::resource::Event::event_type)
            })
            .collect()
            .await;
        assert_eq!(told, [EventType::Noop, EventType::Created, EventType::Created, EventType::Bootstrapped]);
    });
}

async fn list(node: &Node, namespace: &str, kind: &str) -> Vec<(String, String)> {
    let request = ListRequest { namespace: namespace.to_owned(), r#type: kind.to_owned(), options: None };
    let stream = node.state().list(request).await.unwrap().into_inner();
    let said = stream.map(|answer| {
        let resource = answer.unwrap().resource.unwrap();
        (resource.metadata.unwrap().id, resource.spec.unwrap().yaml_spec)
    });
    said.collect().await
}

#[test]
fn resources_say_what_the_sheet_says() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 4).await;
        nodes.bring_up(&Wanted::default()).await;
        let node = nodes.admin(0);
        let has = async |namespace: &str, kind: &str, id: &str, words: &[&str]| {
            let text = node.resource(namespace, kind, id).await.unwrap();
            for word in words {
                assert!(text.contains(word), "{kind} {id}: {word} is not in {text}");
            }
        };
        has("runtime", "MachineStatuses.runtime.talos.dev", "machine", &["stage: running", "unmetConditions: []"])
            .await;
        for service in ["etcd", "kubelet", "cri"] {
            has(
                "runtime",
                "Services.v1alpha1.talos.dev",
                service,
                &["running: true", "healthy: true", "unknown: false"],
            )
            .await;
        }
        has("runtime", "Disks.block.talos.dev", "sda", &["dev_path: /dev/sda", "transport: virtio", "cdrom: false"])
            .await;
        has("runtime", "TimeStatuses.v1alpha1.talos.dev", "node", &["synced: true"]).await;
        has("runtime", "ExtensionStatuses.runtime.talos.dev", "0", &["name: schematic", &"a".repeat(64)]).await;
        has("cluster", "Members.cluster.talos.dev", "node-4", &["machineType: worker", "10.0.0.4"]).await;
        has("config", "MachineConfigs.config.talos.dev", "v1alpha1", &["clusterName: blue"]).await;
        let holder = nodes.datacenter().cluster("blue").unwrap().vips.into_values().next().unwrap().unwrap();
        let holder = nodes.admin((holder - 421) as usize);
        let addresses = holder.resource("network", "NodeAddresses.net.talos.dev", "current").await.unwrap();
        assert!(addresses.contains("- 10.0.0.50/32"), "{addresses}");
        assert!(list(&node, "runtime", "Diagnostics.runtime.talos.dev").await.is_empty());
        assert_eq!(list(&node, "runtime", "Disks.block.talos.dev").await.len(), 2);

        let missing = node.resource("runtime", "Services.v1alpha1.talos.dev", "nothing").await.unwrap_err();
        assert_eq!(missing.code(), Code::NotFound);
        let missing = node.resource("nowhere", "Services.v1alpha1.talos.dev", "etcd").await.unwrap_err();
        assert_eq!(missing.message(), "namespace \"nowhere\" is not supported");
    });
}

#[test]
fn lists_and_streams_are_there() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.bring_up(&Wanted { vip: None, ..Wanted::default() }).await;
        let node = nodes.admin(0);
        let services = node.machine().service_list(()).await.unwrap().into_inner().messages.remove(0).services;
        let etcd = services.iter().find(|service| service.id == "etcd").unwrap();
        assert_eq!((etcd.state.as_str(), etcd.health.clone().unwrap().healthy), ("Running", true));

        let disks = node.storage().disks(()).await.unwrap().into_inner().messages.remove(0).disks;
        let names: Vec<(&str, bool)> = disks.iter().map(|disk| (disk.device_name.as_str(), disk.system_disk)).collect();
        assert_eq!(names, [("/dev/sda", true), ("/dev/sr0", false)]);

        let request = EventsRequest { tail_events: -1, ..EventsRequest::default() };
        let mut events = node.machine().events(request).await.unwrap().into_inner();
        let first = events.message().await.unwrap().unwrap();
        assert!(first.data.unwrap().type_url.starts_with(EVENT_TYPE_PREFIX));
        let lines = node.machine().dmesg(DmesgRequest::default()).await.unwrap().into_inner();
        assert!(lines.count().await > 5);
        let request = LogsRequest {
            namespace: "system".to_owned(),
            id: "etcd".to_owned(),
            tail_lines: -1,
            ..LogsRequest::default()
        };
        let logs = node.machine().logs(request).await.unwrap().into_inner();
        assert!(logs.count().await >= 2);

        // The vendor wants a disk that has room.
        for address in &nodes.addresses {
            let path = format!("/nodes/pve/qemu/{}/resize", crate::wire::vmid(address));
            assert_eq!(nodes.site.run("PUT", &path, &[("disk", "scsi0"), ("size", "+10G")]).await, "OK");
        }
        let request = HealthCheckRequest { wait_timeout: Some(Duration { seconds: 60, nanos: 0 }), cluster_info: None };
        let health = node.cluster().health_check(request).await.unwrap().into_inner();
        let told: Vec<String> = health.map(|progress| progress.unwrap().message).collect().await;
        assert_eq!(told[0], "discovered nodes: [\"10.0.0.1\"]");
        assert_eq!(told.last().unwrap(), "waiting for all k8s nodes to report schedulable: OK");

        let request = GenerateClientConfigurationRequest {
            roles: vec!["os:reader".to_owned()],
            crt_ttl: Some(Duration { seconds: 3_600, nanos: 0 }),
        };
        let made = node.machine().generate_client_configuration(request).await.unwrap().into_inner().messages.remove(0);
        let text = String::from_utf8(made.talosconfig).unwrap();
        assert!(text.starts_with("context: reader@blue\n"), "{text}");
    });
}

#[test]
fn a_health_check_that_waits_in_vain_ends() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let request = HealthCheckRequest { wait_timeout: Some(Duration { seconds: 30, nanos: 0 }), cluster_info: None };
        let mut health = nodes.admin(0).cluster().health_check(request).await.unwrap().into_inner();
        let error = loop {
            match health.message().await {
                Ok(progress) => assert!(progress.is_some(), "it ends without a word"),
                Err(error) => break error,
            }
        };
        assert_eq!(error.code(), Code::DeadlineExceeded);
    });
}

/// Goal: what is a document in 1.14 is unknown in 1.13, and does the same there. Method: one node of each.
#[test]
fn a_node_of_the_next_version_takes_documents() {
    in_virtual_time(async |clock| {
        let wanted = Wanted { vip: None, ..Wanted::default() };
        let nodes = Nodes::quick(clock, 1).await;
        let config = nodes.castle.config_14(true, &wanted);
        let refused = nodes.stranger(0).apply(&config, AUTO).await.unwrap_err();
        assert!(refused.message().contains("not registered"), "{refused:?}");

        let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none());
        let nodes = Nodes::raise_version(clock, blueprint, 4, "v1.14.1").await;
        for index in 0..4 {
            nodes.stranger(index).apply(&nodes.castle.config_14(index < 3, &wanted), AUTO).await.unwrap();
        }
        nodes.bring_up_configured().await;
        let node = nodes.admin(0);
        assert_eq!(node.version().await.unwrap(), "v1.14.1");
        let refused = node.apply(&config, apply_configuration_request::Mode::Reboot).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unimplemented);
        assert_eq!(node.apply(&config, AUTO).await.unwrap(), "Applied configuration without a reboot");
        let boot_id = node.resource("runtime", "BootIDs.runtime.talos.dev", "boot-id").await.unwrap();
        assert!(boot_id.starts_with("bootID: "), "{boot_id}");
        let both = config.replace("    token: abcdef.0123456789abcdef\n    etcd", "    clusterName: x\n    etcd");
        let refused = node.apply(&both, AUTO).await.unwrap_err();
        assert!(refused.message().contains("cluster name is already set in the v1alpha1 config"), "{refused:?}");
    });
}

/// Goal: what typed programs read is there, as they read nothing else; among it what `talosctl health` looks at. Method: every
/// resource of every kind of a cluster that is up.
#[test]
fn everything_is_told_to_programs_as_well() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 4).await;
        nodes.bring_up(&Wanted::default()).await;
        let node = nodes.admin(0);
        let all = async |namespace: &str, kind: &str| {
            let request = ListRequest { namespace: namespace.to_owned(), r#type: kind.to_owned(), options: None };
            let stream = node.state().list(request).await.unwrap().into_inner();
            stream.map(|answer| answer.unwrap().resource.unwrap()).collect::<Vec<_>>().await
        };
        let mut empty = Vec::new();
        let mut count = 0;
        for definition in all("meta", "ResourceDefinitions.meta.cosi.dev").await {
            let text = definition.spec.unwrap().yaml_spec;
            let line = |key: &str| {
                text.lines().find_map(|line| line.strip_prefix(&format!("{key}: "))).unwrap_or_default().to_owned()
            };
            for resource in all(&line("defaultNamespace"), &line("type")).await {
                let (metadata, spec) = (resource.metadata.unwrap(), resource.spec.unwrap());
                count += 1;
                // Nobody has addresses of Pods and Services here.
                if spec.proto_spec.is_empty() && !metadata.id.ends_with("-only-k8s") {
                    empty.push(format!("{} {}", metadata.r#type, metadata.id));
                }
                let is_kept = metadata.owner.is_empty() == metadata.r#type.starts_with("MachineConfigs.");
                assert!(is_kept, "{} {}", metadata.r#type, metadata.id);
            }
        }
        assert!(count > 60, "{count}");
        // Whatever is as it is by itself is nothing to programs.
        assert_eq!(empty, ["SecurityStates.talos.dev securitystate"]);

        let pods = list(&node, "k8s", "StaticPodStatuses.kubernetes.talos.dev").await;
        let names: Vec<&str> = pods.iter().map(|(id, _)| id.as_str()).collect();
        let parts = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"];
        assert_eq!(names, parts.map(|part| format!("kube-system/{part}-node-1")));
        assert!(pods.iter().all(|(_, text)| text.contains("phase: Running")), "{pods:?}");
        let volume = node.resource("runtime", "VolumeStatuses.block.talos.dev", "EPHEMERAL").await.unwrap();
        assert!(volume.starts_with("phase: ready\ntype: partition\nlocation: /dev/sda5\n"), "{volume}");
        let kind = "BootstrapManifestsConfigs.kubernetes.talos.dev";
        let manifests = node.resource("controlplane", kind, "manifests").await.unwrap();
        assert!(manifests.contains("cniName: flannel"), "{manifests}");
        let mounted = list(&node, "runtime", "VolumeMountStatuses.block.talos.dev").await;
        let ids: Vec<&str> = mounted.iter().map(|(id, _)| id.as_str()).collect();
        assert_eq!(ids, ["EPHEMERAL", "service/etcd-ETCD"]);
    });
}

/// Goal: before it has any secret, a machine tells by what it is known to its hypervisor. Method: hardware addresses and the
/// identity of the guest, asked of a node in maintenance.
#[test]
fn a_machine_is_known_before_it_is_configured() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        let config = nodes.site.get("/nodes/pve/qemu/421/config").await;
        let part = |key: &str, name: &str| {
            let text = config[key].as_str().unwrap();
            text.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('=')).unwrap().to_lowercase()
        };
        let (mac, uuid) = (part("net0", "virtio"), part("smbios1", "uuid"));
        let node = nodes.stranger(0);
        let link = node.resource("network", "LinkStatuses.net.talos.dev", "eth0").await.unwrap();
        for key in ["hardwareAddr", "permanentAddr"] {
            assert!(link.replace('"', "").contains(&format!("{key}: {mac}\n")), "{link}");
        }
        let first = node.resource("network", "HardwareAddresses.net.talos.dev", "first").await.unwrap();
        assert!(first.contains(&mac), "{first}");
        let kind = "SystemInformations.hardware.talos.dev";
        let system = node.resource("hardware", kind, "systeminformation").await.unwrap();
        assert!(system.to_lowercase().contains(&format!("uuid: {uuid}\n")), "{system}");
        let absent = node.files("/var/lib/etcd").await.unwrap_err();
        assert_eq!(absent.message(), "lstat /var/lib/etcd: no such file or directory");
    });
}
