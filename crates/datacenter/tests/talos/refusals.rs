//! What nodes refuse, and with which words.

use std::time::Duration;

use castle_datacenter::Blueprint;
use castle_seams::{Clock, DialErrorKind, Target};
use castle_talos_api::machine::apply_configuration_request::Mode;
use castle_talos_api::machine::{
    ApplyConfigurationRequest, EtcdMemberListRequest, EtcdRemoveMemberByIdRequest, RebootRequest, ResetRequest,
    ShutdownRequest, UpgradeRequest,
};
use castle_testbed::in_virtual_time;
use rcgen::ExtendedKeyUsagePurpose;
use tonic::{Code, Status};

use crate::castle::{Castle, Wanted};
use crate::wire::{AUTO, Node, Nodes, vmid};

fn told(status: &Status) -> (Code, &str) {
    (status.code(), status.message())
}

#[test]
fn nothing_but_looking_and_applying_is_done_in_maintenance() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        let node = nodes.stranger(0);
        let mut machine = node.machine();
        let refused = [
            machine.bootstrap(castle_talos_api::machine::BootstrapRequest::default()).await.map(|_| ()).unwrap_err(),
            machine.reset(ResetRequest::default()).await.map(|_| ()).unwrap_err(),
            machine.reboot(RebootRequest::default()).await.map(|_| ()).unwrap_err(),
            machine.shutdown(ShutdownRequest::default()).await.map(|_| ()).unwrap_err(),
            machine.upgrade(UpgradeRequest::default()).await.map(|_| ()).unwrap_err(),
            machine.kubeconfig(()).await.map(|_| ()).unwrap_err(),
            node.resource("config", "MachineConfigs.config.talos.dev", "v1alpha1").await.unwrap_err(),
        ];
        for status in &refused {
            assert_eq!(told(status), (Code::PermissionDenied, "not authorized"));
        }
        machine.service_list(()).await.unwrap();
        node.storage().disks(()).await.unwrap();
        let with_certificate = nodes.admin(0).version().await.unwrap_err();
        assert_eq!(with_certificate.code(), Code::Unavailable);
        assert!(with_certificate.message().contains("unknown authority"), "{with_certificate:?}");
        let forwarded = node.aimed(&["10.0.0.9"]).version().await.unwrap_err();
        assert_eq!(told(&forwarded), (Code::PermissionDenied, "no request forwarding"));
    });
}

#[test]
fn only_the_castles_own_certificates_open_a_node() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let with = |certificate: &str| Node::new(nodes.datacenter(), &nodes.addresses[0], Some(certificate));
        let os = &nodes.castle.os;
        let bad = [
            (Castle::new(90).admin(), "tls: unknown certificate authority"),
            (
                os.client("os:admin", |params| params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth)),
                "tls: bad certificate",
            ),
            (os.client("os:admin", |params| params.extended_key_usages.clear()), "tls: bad certificate"),
            (
                os.client("os:admin", |params| {
                    params.not_after = (std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_789_500_000)).into();
                }),
                "tls: expired certificate",
            ),
        ];
        for (certificate, words) in &bad {
            let status = with(certificate).version().await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable);
            assert!(status.message().contains(words), "{status:?}");
        }
        let none = nodes.stranger(0).version().await.unwrap_err();
        assert!(none.message().contains("tls: certificate required"), "{none:?}");

        let reader = with(&os.client("os:reader", |_| {}));
        assert_eq!(reader.version().await.unwrap(), "v1.13.9");
        assert_eq!(told(&reader.bootstrap().await.unwrap_err()), (Code::PermissionDenied, "not authorized"));
        let applied = reader.apply("version: v1alpha1\n", AUTO).await.unwrap_err();
        assert_eq!(told(&applied), (Code::PermissionDenied, "not authorized"));
        let written = reader.resource("config", "Nothing.config.talos.dev", "x").await.unwrap_err();
        assert_eq!(
            told(&written),
            (Code::PermissionDenied, "resource type \"Nothing.config.talos.dev\" is not supported")
        );
    });
}

#[test]
fn a_worker_has_no_etcd() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 4).await;
        nodes.configure(&Wanted::default()).await;
        let worker = nodes.admin(3);
        let refused = worker.bootstrap().await.unwrap_err();
        assert_eq!(told(&refused), (Code::Unimplemented, "bootstrap is only available on control plane nodes"));
        let refused = worker.members().await.unwrap_err();
        assert_eq!(told(&refused), (Code::Unimplemented, "member list is only available on control plane nodes"));
        let forwarded = worker.aimed(&["10.0.0.1"]).version().await.unwrap_err();
        assert_eq!(told(&forwarded), (Code::PermissionDenied, "no request forwarding"));
        assert_eq!(worker.aimed(&["10.0.0.4"]).version().await.unwrap(), "v1.13.9");
    });
}

#[test]
fn control_planes_pass_calls_on_and_join_the_answers() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 2).await;
        nodes.configure(&Wanted::default()).await;
        let both = nodes.admin(0).aimed(&["10.0.0.1", "10.0.0.2", "10.0.0.7"]);
        let answer = both.machine().version(()).await.unwrap().into_inner();
        let told: Vec<(String, bool)> = (answer.messages.iter())
            .map(|message| {
                let metadata = message.metadata.clone().unwrap();
                (metadata.hostname, metadata.error.is_empty())
            })
            .collect();
        let expected = [("10.0.0.1", true), ("10.0.0.2", true), ("10.0.0.7", false)];
        assert_eq!(told, expected.map(|(host, is_fine)| (host.to_owned(), is_fine)));
    });
}

#[test]
fn etcd_that_is_not_there_is_told() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let node = nodes.admin(0);
        assert_eq!(node.members().await.unwrap_err().code(), Code::DeadlineExceeded);
        node.bootstrap().await.unwrap();
        let request = EtcdRemoveMemberByIdRequest { member_id: 7 };
        let refused = node.machine().etcd_remove_member_by_id(request).await.unwrap_err();
        assert_eq!(told(&refused), (Code::NotFound, "failed to remove member 7: etcdserver: member not found"));
        let local = EtcdMemberListRequest { query_local: true };
        let answer = node.machine().etcd_member_list(local).await.unwrap().into_inner();
        assert_eq!(answer.messages[0].members[0].hostname, "node-1");
        let status =
            node.machine().etcd_status(()).await.unwrap().into_inner().messages[0].member_status.clone().unwrap();
        assert_eq!((status.leader, status.is_learner), (status.member_id, false));
    });
}

#[test]
fn configurations_that_a_node_would_refuse_are_refused() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        let good = nodes.castle.config(true, &Wanted::default());
        let node = nodes.stranger(0);
        let cases = [
            (
                good.replace("  token:", "  tocken: x\n  token:"),
                "unknown keys found during decoding:\ncluster:\n    tocken: x\nmachine:\n    tocken: x\n",
            ),
            (good.replace("enabled: true", "enabled: [a]"), "cannot construct !!seq into bool"),
            (good.replace("    endpoint: https://10.0.0.50:6443\n", ""), "cluster controlplane endpoint is required"),
            (good.replace("type: controlplane", "type: king"), "unknown machine type"),
            (good.replace("kubelet:v1.36.3", "kubelet:v1.28.0"), "version of Kubernetes 1.28.0 is too old"),
            (good.replace("crt: LS0", "crt: L%S0"), "illegal base64 data"),
            (format!("{good}---\napiVersion: v1alpha1\nkind: KubeletConfig\nimage: x\n"), "not registered"),
            (
                format!("{good}---\napiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\nhostname: a\n"),
                "cannot be set at the same time",
            ),
            (format!("{good}---\napiVersion: v1alpha1\nkind: LinkConfig\n"), "name must be specified"),
            (String::new(), "config not found"),
        ];
        for (text, words) in &cases {
            let refused = node.apply(text, AUTO).await.unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument, "{words}");
            assert!(refused.message().contains(words), "{words}: {refused:?}");
        }
        assert_eq!(nodes.datacenter().effects().get("apply 421"), None);
        // Documents without a machine hold as far as they go, and the node waits on.
        let partial = "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n";
        assert_eq!(node.apply(partial, AUTO).await.unwrap(), "Applied configuration without a reboot");
        assert_eq!(nodes.stage(0), Some(castle_datacenter::Stage::Maintenance));
    });
}

#[test]
fn modes_do_what_they_say_in_each_version() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        let wanted = Wanted { vip: None, ..Wanted::default() };
        nodes.configure(&wanted).await;
        nodes.until("mutual TLS", async || nodes.admin(0).version().await.is_ok()).await;
        let (node, config) = (nodes.admin(0), nodes.castle.config(true, &wanted));
        let more = config.replace("  kubelet:\n", "  sysctls:\n    a: b\n  kubelet:\n");
        assert_eq!(node.apply(&more, AUTO).await.unwrap(), "Applied configuration without a reboot");
        let files = config.replace("  kubelet:\n", "  env:\n    A: b\n  kubelet:\n");
        let refused = node.apply(&files, Mode::NoReboot).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        let text = "this config change can't be applied in immediate mode\ndiff:\n--- a\n+++ b\n@@";
        assert!(refused.message().starts_with(text), "{refused:?}");
        assert!(node.apply(&more, Mode::Staged).await.unwrap().starts_with("Staged configuration"));
        let dry = |text: &str, mode: Mode| ApplyConfigurationRequest {
            data: text.as_bytes().to_vec(),
            mode: mode.into(),
            dry_run: true,
            ..ApplyConfigurationRequest::default()
        };
        let shown = node.machine().apply_configuration(dry(&files, Mode::Auto)).await.unwrap().into_inner();
        assert!(shown.messages[0].mode_details.starts_with("Dry run summary:"), "{shown:?}");
        // Whoever asks what would be, and does not ask for a try, keeps what is tried.
        let held = async || node.resource("config", "MachineConfigs.config.talos.dev", "v1alpha1").await.unwrap();
        for (asked, stays) in [(Mode::Try, false), (Mode::Auto, true), (Mode::NoReboot, true), (Mode::Staged, true)] {
            node.apply(&config, Mode::NoReboot).await.unwrap();
            assert!(node.apply(&more, Mode::Try).await.unwrap().contains("automatically reverted back in 1m0s"));
            node.machine().apply_configuration(dry(&more, asked)).await.unwrap();
            assert!(held().await.contains("a: b"));
            clock.sleep(Duration::from_secs(61)).await;
            assert_eq!(held().await.contains("a: b"), stays, "{asked:?}");
        }
        let refused = node.machine().apply_configuration(dry(&files, Mode::Try)).await.unwrap_err();
        assert!(refused.message().starts_with(text), "{refused:?}");
        node.apply(&more, AUTO).await.unwrap();

        let (one, two) = futures_util::future::join(node.apply(&more, AUTO), node.apply(&more, AUTO)).await;
        let refused = one.err().or(two.err()).unwrap();
        assert_eq!(told(&refused), (Code::FailedPrecondition, "another apply configuration is already in progress"));

        assert!(node.apply(&files, AUTO).await.unwrap().starts_with("Applied configuration with a reboot"));
        let refused = node.apply(&more, AUTO).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        nodes.until("down", async || nodes.stage(0).is_none()).await;
        nodes.until("up again", async || nodes.admin(0).version().await.is_ok()).await;
        let held = node.resource("config", "MachineConfigs.config.talos.dev", "v1alpha1").await.unwrap();
        assert!(held.contains("A: b"), "{held}");
    });
}

#[test]
fn a_node_is_reached_only_while_it_is_there() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        let dial = nodes.datacenter().dial();
        let kind =
            async |host: &str, port: u16| dial.dial(&Target::new(host, port)).await.err().map(|error| error.kind);
        let address = nodes.addresses[0].clone();
        assert_eq!(kind(&address, 50_000).await, Some(DialErrorKind::Unreachable), "it boots");
        nodes.until("maintenance", async || nodes.stage(0).is_some()).await;
        assert_eq!(kind(&address, 50_000).await, None);
        assert_eq!(kind(&address, 6443).await, Some(DialErrorKind::Refused));
        assert_eq!(kind("10.0.0.99", 50_000).await, Some(DialErrorKind::Unreachable));
        nodes.datacenter().restart_apid(vmid(&address));
        assert_eq!(kind(&address, 50_000).await, Some(DialErrorKind::Refused));
        nodes.datacenter().host_down("pve");
        assert_eq!(kind(&address, 50_000).await, Some(DialErrorKind::Unreachable));
    });
}
