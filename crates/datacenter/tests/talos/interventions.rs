//! Bad luck, and other people.

use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use castle_datacenter::{Asked, Blueprint, Called, Fate, Reply, Stage, Witness};
use castle_seams::Clock;
use castle_talos_api::cosi::resource::GetRequest;
use castle_testbed::{VirtualClock, in_virtual_time};
use tonic::Code;

use crate::castle::{Castle, Wanted};
use crate::wire::{AUTO, Node, Nodes, vmid};

/// Ten simulated seconds.
const SOON: Duration = Duration::from_secs(10);

#[test]
fn without_time_there_is_no_etcd() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.datacenter().set_time_servers(false);
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        let before = clock.monotonic();
        let refused = nodes.admin(0).bootstrap().await.unwrap_err();
        assert_eq!((refused.code(), refused.message()), (Code::FailedPrecondition, "time is not in sync yet"));
        assert_eq!(clock.monotonic() - before, Duration::from_secs(5));
        let synced = nodes.admin(0).resource("runtime", "TimeStatuses.v1alpha1.talos.dev", "node").await.unwrap();
        assert!(synced.starts_with("synced: false"), "{synced}");
        nodes.datacenter().set_time_servers(true);
        nodes.admin(0).bootstrap().await.unwrap();
        nodes.until("everything", async || nodes.is_complete()).await;
    });
}

/// The newest time that a node tells of its services, and when it last counted what its processors did: seconds after now.
async fn times(node: &Node, clock: &VirtualClock) -> (i64, i64) {
    let now = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() as i64;
    let services = node.machine().service_list(()).await.unwrap().into_inner().messages.remove(0).services;
    let events = services.into_iter().flat_map(|service| service.events.unwrap().events);
    let newest = events.map(|event| event.ts.unwrap().seconds).max().unwrap();
    let (namespace, kind, id) = ("perf".into(), "CPUStats.perf.talos.dev".into(), "latest".into());
    let request = GetRequest { namespace, r#type: kind, id, options: None };
    let counted = node.state().get(request).await.unwrap().into_inner().resource.unwrap();
    (newest - now, counted.metadata.unwrap().updated.unwrap().seconds - now)
}

/// Goal: a node whose clock is wrong says so in all that it tells, judges by it, and keeps the times that it noted before once it is right.
#[test]
fn a_clock_that_is_wrong_shows_in_all_that_a_node_tells() {
    const AHEAD: i64 = 7200;
    in_virtual_time(async |clock| {
        let site = Nodes::quick(clock, 1).await;
        let plane = vmid(&site.addresses[0]);
        let datacenter = site.datacenter();
        assert_eq!(times(&site.stranger(0), clock).await, (0, 0));
        datacenter.shift_clock(plane, AHEAD);
        assert!(datacenter.reboot_node(plane));
        site.until("up again", async || site.stranger(0).version().await.is_ok()).await;
        clock.sleep(Duration::from_secs(40)).await;
        let node = site.stranger(0);
        let (newest, counted) = times(&node, clock).await;
        assert!(
            (AHEAD - 60..=AHEAD).contains(&newest) && (AHEAD - 30..=AHEAD).contains(&counted),
            "{newest} {counted}"
        );
        let synced = node.resource("runtime", "TimeStatuses.v1alpha1.talos.dev", "node").await.unwrap();
        assert_eq!(synced, "synced: false\nepoch: 1\nsyncDisabled: false\n");
        assert_eq!(node.time().time(()).await.unwrap_err().code(), Code::Unknown);

        // With a configuration its certificate is of a time that has not come here.
        site.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        clock.sleep(SOON).await;
        let refused = site.admin(0).version().await.unwrap_err();
        let go = "x509: certificate has expired or is not yet valid: current time 2026-09-21T";
        assert!(refused.message().contains(go) && refused.message().contains("Z is before 2026-09-21T"), "{refused}");

        datacenter.settle_clock(plane);
        let node = site.admin(0);
        let synced = node.resource("runtime", "TimeStatuses.v1alpha1.talos.dev", "node").await.unwrap();
        assert_eq!(synced, "synced: true\nepoch: 2\nsyncDisabled: false\n");
        let (newest, _) = times(&node, clock).await;
        assert!((AHEAD - 60..=AHEAD).contains(&newest), "{newest}");
        clock.sleep(Duration::from_secs(30)).await;
        let (_, counted) = times(&node, clock).await;
        assert!((-30..=0).contains(&counted), "{counted}");
    });
}

/// Goal: to a node whose clock is far behind, a certificate of today is none yet.
#[test]
fn a_node_judges_certificates_by_its_own_clock() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        clock.sleep(SOON).await;
        nodes.admin(0).version().await.unwrap();
        nodes.datacenter().shift_clock(vmid(&nodes.addresses[0]), -400 * 24 * 3600);
        let refused = nodes.admin(0).version().await.unwrap_err();
        assert!(refused.message().contains("remote error: tls: expired certificate"), "{refused}");
    });
}

#[test]
fn old_data_keeps_etcd_from_beginning() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        assert!(nodes.datacenter().plant_etcd_data(vmid(&nodes.addresses[0])));
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        assert_eq!(nodes.admin(0).bootstrap().await.unwrap_err().code(), Code::AlreadyExists);
        assert_eq!(nodes.admin(0).members().await.unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(nodes.stage(0), Some(Stage::Booting));
    });
}

#[test]
fn a_reboot_right_after_bootstrap_loses_it() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        nodes.until("bootstrap", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        assert!(nodes.datacenter().reboot_node(vmid(&nodes.addresses[0])));
        nodes.until("up again", async || nodes.admin(0).version().await.is_ok()).await;
        clock.sleep(6 * SOON).await;
        assert_eq!(nodes.admin(0).members().await.unwrap_err().code(), Code::DeadlineExceeded);
        nodes.admin(0).bootstrap().await.unwrap();
        nodes.until("everything", async || nodes.is_complete()).await;
        assert_eq!(nodes.datacenter().effects()["bootstrap 421"], 1);
    });
}

/// Goal: nothing guards against two bootstraps on two nodes, as with the real program. Method: both are told.
#[test]
fn two_bootstraps_make_two_etcds() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 2).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        nodes.until("one", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        nodes.until("two", async || nodes.admin(1).bootstrap().await.is_ok()).await;
        nodes.until("both", async || nodes.datacenter().clusters()[0].etcds.len() == 2).await;
    });
}

#[test]
fn a_learner_that_stalls_keeps_the_next_waiting() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        let slow: Vec<u32> = nodes.addresses[1..].iter().map(|address| vmid(address)).collect();
        nodes.configure(&Wanted::default()).await;
        for vmid in &slow {
            assert!(nodes.datacenter().freeze_learner(*vmid, true));
        }
        nodes.until("bootstrap", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        nodes.until("a learner", async || nodes.admin(0).members().await.is_ok_and(|members| members.len() == 2)).await;
        clock.sleep(12 * SOON).await;
        let members = nodes.admin(0).members().await.unwrap();
        assert_eq!(members.iter().filter(|member| member.is_learner).count(), 1, "{members:?}");
        assert_eq!(members.len(), 2);
        for vmid in &slow {
            nodes.datacenter().freeze_learner(*vmid, false);
        }
        nodes.until("everything", async || nodes.is_complete()).await;
    });
}

#[test]
fn a_member_that_lost_its_data_comes_back_as_another() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let lost = vmid(&nodes.addresses[2]);
        let number = |nodes: &Nodes| {
            let cluster = nodes.datacenter().cluster("blue").unwrap();
            cluster.etcds[0].iter().find(|member| member.vmid == lost).map(|member| (member.id, member.is_up))
        };
        let (before, _) = number(&nodes).unwrap();
        assert!(nodes.datacenter().lose_etcd_member(lost));
        assert_eq!(number(&nodes), Some((before, false)), "the others still count on it");
        nodes.until("everything again", async || nodes.is_complete()).await;
        assert_ne!(number(&nodes).unwrap().0, before);
    });
}

#[test]
fn the_shared_address_moves_when_its_holder_vanishes() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 3).await;
        nodes.bring_up(&Wanted::default()).await;
        let holder = || nodes.datacenter().cluster("blue").unwrap().vips.into_values().next().unwrap();
        nodes.until("a holder", async || holder().is_some()).await;
        let first = holder().unwrap();
        nodes.datacenter().switch(first, false);
        assert_eq!(holder(), None);
        let took = nodes.until("another holder", async || holder().is_some()).await;
        assert!(took > Duration::from_secs(5), "the lease has to end first: {took:?}");
        assert_ne!(holder(), Some(first));
        let cluster = nodes.datacenter().cluster("blue").unwrap();
        assert_eq!(cluster.api_servers.len(), 2);
        nodes
            .until("silence is noticed", async || {
                nodes.datacenter().cluster("blue").unwrap().nodes.values().any(|node| !node.is_ready)
            })
            .await;
    });
}

#[test]
fn a_node_of_another_castle_does_not_know_us() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 1).await;
        let other = Castle::new(120).config(true, &Wanted::default());
        nodes.datacenter().configure_node(vmid(&nodes.addresses[0]), &other).unwrap();
        let refused = nodes.admin(0).version().await.unwrap_err();
        assert!(refused.message().contains("unknown certificate authority"), "{refused:?}");
        let refused = nodes.stranger(0).version().await.unwrap_err();
        assert!(refused.message().contains("certificate required"), "{refused:?}");
        let wrong = nodes.datacenter().configure_node(1, &other).unwrap_err();
        assert_eq!(wrong, "no such node");
    });
}

#[test]
fn a_server_that_restarts_breaks_connections_and_comes_back() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 1).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        nodes.until("mutual TLS", async || nodes.admin(0).version().await.is_ok()).await;
        let request = castle_talos_api::machine::EventsRequest::default();
        let mut events = nodes.admin(0).machine().events(request).await.unwrap().into_inner();
        assert!(nodes.datacenter().restart_apid(vmid(&nodes.addresses[0])));
        let ended = async { while let Ok(Some(_)) = events.message().await {} };
        castle_seams::deadline(clock, 2 * SOON, ended).await.unwrap();
        assert_eq!(nodes.admin(0).version().await.unwrap_err().code(), Code::Unavailable);
        nodes.until("mutual TLS again", async || nodes.admin(0).version().await.is_ok()).await;
    });
}

/// With an endpoint that control planes share and no discovery, the API of a worker comes only once the address is held.
#[test]
fn a_worker_waits_for_a_control_plane_to_sign() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::raise(clock, Blueprint::embedded(&[]), 4).await;
        nodes.configure(&Wanted { discovery: false, ..Wanted::default() }).await;
        nodes.until("containers", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        assert_eq!(nodes.admin(3).version().await.unwrap_err().code(), Code::Unavailable);
        let has_vip = || nodes.datacenter().clusters()[0].vips.values().any(Option::is_some);
        nodes
            .until("the worker", async || {
                let answers = nodes.admin(3).version().await.is_ok();
                assert!(!answers || has_vip(), "it answers before the address is held");
                answers
            })
            .await;
    });
}

/// Loses one call of a method, before or after its effect.
struct Loses {
    method: &'static str,
    fate: Fate,
    is_done: Mutex<bool>,
}

impl Witness for Loses {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        let mut is_done = self.is_done.lock().unwrap();
        if called.method != self.method || *is_done {
            return Fate::Handled;
        }
        assert!(called.is_change);
        *is_done = true;
        self.fate.clone()
    }
}

#[test]
fn a_call_can_be_lost_before_and_after_its_effect() {
    in_virtual_time(async |clock| {
        for (fate, effects) in
            [(Fate::LostBefore, None), (Fate::LostAfter, Some(1)), (Fate::Refused(14, "no".into()), None)]
        {
            let nodes = Nodes::quick(clock, 1).await;
            nodes.until("maintenance", async || nodes.stage(0) == Some(Stage::Maintenance)).await;
            let is_done = Mutex::new(false);
            nodes.datacenter().watch(Arc::new(Loses { method: "ApplyConfiguration", fate, is_done }));
            let config = nodes.castle.config(true, &Wanted::default());
            nodes.stranger(0).apply(&config, AUTO).await.unwrap_err();
            assert_eq!(nodes.datacenter().effects().get("apply 421").copied(), effects);
        }
    });
}

#[test]
fn a_first_boot_that_fails_repeats_itself() {
    in_virtual_time(async |clock| {
        let mut blueprint = Blueprint::embedded(&[]);
        blueprint.latencies.talos.failed_first_boot = 1.0;
        let nodes = Nodes::raise(clock, blueprint, 1).await;
        let took = nodes.until("maintenance", async || nodes.stage(0) == Some(Stage::Maintenance)).await;
        assert!(took > Duration::from_secs(20), "{took:?}");
    });
}

/// Goal: what nobody has the data of any more is not taken for a later cluster of the same name. Method: one machine goes, and the other.
#[test]
fn a_cluster_is_gone_with_the_last_of_its_machines() {
    in_virtual_time(async |clock| {
        let nodes = Nodes::quick(clock, 2).await;
        nodes.configure(&Wanted { vip: None, ..Wanted::default() }).await;
        nodes.until("bootstrap", async || nodes.admin(0).bootstrap().await.is_ok()).await;
        nodes.until("everything", async || nodes.is_complete()).await;
        let (datacenter, [first, last]) = (nodes.datacenter(), [0, 1].map(|index| vmid(&nodes.addresses[index])));
        let seen = || (datacenter.clusters().len(), datacenter.object_names("blue", "nodes").len());
        assert!(datacenter.remove_guest(first));
        assert_eq!(seen(), (1, 2));
        assert!(datacenter.remove_guest(last));
        assert_eq!((seen(), datacenter.objects().len()), ((0, 0), 0));
    });
}
