//! The whole life of a cluster of three control planes and two workers.

use std::time::Duration;

use castle_datacenter::{Blueprint, Stage};
use castle_seams::Clock;
use castle_talos_api::machine::{ReadRequest, RebootRequest, ResetRequest};
use castle_testbed::in_virtual_time;
use tonic::Code;

use crate::castle::Wanted;
use crate::wire::{AUTO, Nodes, vmid};

/// Goal: from power-on to names that resolve, in the order that the vendor's documentation tells, within believable times.
/// Method: five guests of a template, each asked what it is at every stage.
#[test]
fn five_guests_become_a_cluster() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]).with_seed(3), 5).await;
        let begun = clock.monotonic();
        nodes.until("maintenance", async || (0..5).all(|index| nodes.stage(index) == Some(Stage::Maintenance))).await;
        assert_eq!(nodes.stranger(4).version().await.unwrap(), "v1.13.9");
        nodes.configure(&Wanted::default()).await;

        // The server in maintenance is gone; the next one asks for a certificate.
        nodes.until("mutual TLS", async || nodes.admin(0).version().await.is_ok()).await;
        assert_eq!(nodes.stranger(0).version().await.unwrap_err().code(), Code::Unavailable);
        let early = nodes.admin(0).bootstrap().await.unwrap_err();
        assert_eq!((early.code(), early.message()), (Code::FailedPrecondition, "bootstrap is not available yet"));
        nodes.until("containers", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        assert_eq!(nodes.stage(0), Some(Stage::Booting), "it has no etcd yet");

        nodes.until("a member", async || nodes.admin(0).members().await.is_ok_and(|members| members.len() == 1)).await;
        let mut learners = 0;
        nodes
            .until("three voters", async || {
                let members = nodes.admin(0).members().await.unwrap();
                let learning = members.iter().filter(|member| member.is_learner).count();
                assert!(learning <= 1, "one learner at a time: {members:?}");
                learners = learners.max(learning);
                members.len() == 3 && learning == 0
            })
            .await;
        assert_eq!(learners, 1);
        nodes.until("everything", async || nodes.is_complete()).await;
        let took = clock.monotonic() - begun;
        assert!(took > Duration::from_secs(60) && took < Duration::from_secs(300), "{took:?}");

        let cluster = nodes.datacenter().cluster("blue").unwrap();
        assert_eq!(cluster.etcds.len(), 1);
        assert!(cluster.api_servers.values().all(|is_ready| *is_ready) && cluster.api_servers.len() == 3);
        assert!(cluster.vips.values().all(Option::is_some) && cluster.vips.len() == 1);
        assert_eq!(nodes.datacenter().effects()["bootstrap 421"], 1);
        let again = nodes.admin(0).bootstrap().await.unwrap_err();
        assert_eq!((again.code(), again.message()), (Code::AlreadyExists, "etcd data directory is not empty"));
    });
}

#[test]
fn a_reboot_keeps_the_configuration_and_changes_the_boot_id() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let boot_id = async || {
            let request = ReadRequest { path: "/proc/sys/kernel/random/boot_id".to_owned() };
            let mut stream = nodes.admin(1).machine().read(request).await?.into_inner();
            Ok::<_, tonic::Status>(stream.message().await?.unwrap().bytes)
        };
        let before = boot_id().await.unwrap();
        nodes.admin(1).machine().reboot(RebootRequest::default()).await.unwrap();
        assert_eq!(nodes.stage(1), Some(Stage::Rebooting));
        nodes.until("down", async || nodes.stage(1).is_none()).await;
        assert_eq!(nodes.admin(1).version().await.unwrap_err().code(), Code::Unavailable);
        nodes.until("everything again", async || nodes.is_complete()).await;
        assert_ne!(boot_id().await.unwrap(), before);
        assert_eq!(nodes.admin(0).members().await.unwrap().len(), 3);
    });
}

#[test]
fn a_reset_leaves_nothing_and_the_others_go_on() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let request = ResetRequest { graceful: true, reboot: true, ..ResetRequest::default() };
        nodes.admin(2).machine().reset(request).await.unwrap();
        assert_eq!(nodes.admin(0).members().await.unwrap().len(), 2, "it left before it forgot");
        nodes.until("maintenance", async || nodes.stage(2) == Some(Stage::Maintenance)).await;
        assert_eq!(nodes.admin(2).version().await.unwrap_err().code(), Code::Unavailable);
        assert_eq!(nodes.stranger(2).version().await.unwrap(), "v1.13.9");

        let config = nodes.castle.config(true, &Wanted::default());
        nodes.stranger(2).apply(&config, AUTO).await.unwrap();
        nodes.until("everything again", async || nodes.is_complete()).await;
    });
}

#[test]
fn a_guest_that_is_made_anew_knows_nothing() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        assert_eq!(nodes.stage(0), Some(Stage::Booting));
        let vmid = vmid(&nodes.addresses[0]);
        nodes.datacenter().switch(vmid, false);
        assert_eq!(nodes.stage(0), None);
        nodes.datacenter().switch(vmid, true);
        assert_eq!(nodes.stage(0), Some(Stage::Booting), "the disk remembers");
        nodes.datacenter().remove_guest(vmid);
        assert!(nodes.datacenter().talos_nodes().is_empty());
    });
}
