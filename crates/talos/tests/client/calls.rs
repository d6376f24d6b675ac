//! Every call, there and back.

use castle_secrets::Secret;
use castle_talos::client::{ApplyMode, ErrorClass, Presence, Reset, Stage};
use castle_talos_api::common::Metadata;
use castle_talos_api::google::rpc;
use castle_talos_api::machine::apply_configuration_request::Mode;
use castle_testbed::in_virtual_time;
use tonic::Code;

use crate::node::Fate;
use crate::serving::Site;

#[test]
fn what_is_looked_at_comes_over_one_connection() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        assert_eq!(node.version().await.unwrap().tag, "v1.13.9");
        let services = node.services().await.unwrap();
        assert_eq!((services[0].id.as_str(), services[0].health.as_ref().unwrap().healthy), ("etcd", true));
        let disks = node.disks().await.unwrap();
        assert_eq!((disks[0].device_name.as_str(), disks[0].size), ("/dev/vda", 1 << 40));
        let members = node.etcd_members().await.unwrap();
        assert_eq!((members[0].id, members[0].is_learner), (u64::MAX, true));
        assert_eq!(node.etcd_status().await.unwrap().leader, 7);
        assert_eq!(node.kubeconfig().await.unwrap().expose(), "apiVersion: v1\n");
        assert_eq!(node.boot_id().await.unwrap(), "0f1e-2d3c");
        assert_eq!(site.connections(), 1);
        assert_eq!(node.name(), "cp-1");
        assert_eq!(node.target().to_string(), "10.0.0.11:50000");
    });
}

#[test]
fn a_configuration_arrives_as_it_is_and_the_mode_is_what_was_done() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let text = "machine:\n    token: abcdef.ghijklmnopqrstuv\n";
        *site.fake.warnings.lock().unwrap() = vec!["token abcdef.ghijklmnopqrstuv is old".to_owned()];
        let configuration = Secret::from(text.to_owned());
        let applied = site.plain().apply_configuration(&configuration, ApplyMode::Auto).await.unwrap();
        assert_eq!(applied.mode, Some(ApplyMode::NoReboot));
        assert_eq!(applied.warnings, ["token … is old"]);
        let request = site.fake.applied.lock().unwrap().take().unwrap();
        assert_eq!(request.data, text.as_bytes());
        assert_eq!((request.mode(), request.dry_run), (Mode::Auto, false));
        for (mode, word) in [
            (ApplyMode::NoReboot, Mode::NoReboot),
            (ApplyMode::Reboot, Mode::Reboot),
            (ApplyMode::Staged, Mode::Staged),
        ] {
            site.plain().apply_configuration(&configuration, mode).await.unwrap();
            assert_eq!(site.fake.applied.lock().unwrap().take().unwrap().mode(), word);
        }
    });
}

/// Goal: what cannot be repeated goes over a connection that is certainly alive.
#[test]
fn each_change_has_a_connection_of_its_own() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        node.version().await.unwrap();
        node.bootstrap().await.unwrap();
        node.reboot().await.unwrap();
        let partitions = vec!["STATE".to_owned(), "EPHEMERAL".to_owned()];
        node.reset(&Reset { graceful: true, reboot: true, partitions }).await.unwrap();
        let request = site.fake.reset.lock().unwrap().take().unwrap();
        let wiped: Vec<_> =
            request.system_partitions_to_wipe.iter().map(|wiped| (wiped.label.as_str(), wiped.wipe)).collect();
        assert_eq!((request.graceful, request.reboot), (true, true));
        assert_eq!(wiped, [("STATE", true), ("EPHEMERAL", true)]);
        assert_eq!(site.connections(), 4);
        assert_eq!(site.fake.asked(), ["Version", "Bootstrap", "Reboot", "Reset"]);
    });
}

#[test]
fn what_went_wrong_inside_of_an_answer_is_a_refusal() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        let told = Metadata { error: "the disk is gone".into(), ..Metadata::default() };
        site.fake.doom("Version", Fate::Metadata(told.clone()));
        let refusal = node.version().await.unwrap_err();
        assert_eq!((refusal.class, refusal.sentence.as_str()), (ErrorClass::Other, "the disk is gone"));
        assert_eq!(refusal.to_string(), "cp-1: Version: the disk is gone");

        let status =
            rpc::Status { code: Code::AlreadyExists as i32, message: "it is there".into(), ..Default::default() };
        site.fake.doom("Bootstrap", Fate::Metadata(Metadata { status: Some(status), ..told }));
        let refusal = node.bootstrap().await.unwrap_err();
        assert_eq!((refusal.class, refusal.sentence.as_str()), (ErrorClass::Exists, "it is there"));

        site.fake.doom("EtcdMemberList", Fate::Nobody);
        assert_eq!(node.etcd_members().await.unwrap_err().class, ErrorClass::Unreadable);
        site.fake.doom("Kubeconfig", Fate::Nobody);
        assert_eq!(node.kubeconfig().await.unwrap_err().class, ErrorClass::Unreadable);
        assert_eq!(site.connections(), 2, "nothing is wrong with the connection");
    });
}

#[test]
fn answers_may_be_long_and_not_endless() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        *site.fake.content.lock().unwrap() = vec![vec![7; 5 << 20]];
        assert_eq!(node.read("/x").await.unwrap().len(), 5 << 20, "longer than what is usual in gRPC");
        *site.fake.content.lock().unwrap() = vec![vec![7; 11 << 20]; 3];
        assert_eq!(node.read("/x").await.unwrap_err().class, ErrorClass::Unreadable, "all pieces together");
        *site.fake.content.lock().unwrap() = vec![vec![7; 33 << 20]];
        assert_eq!(node.read("/x").await.unwrap_err().class, ErrorClass::Unreadable, "one piece");
    });
}

#[test]
fn without_tls_the_stage_tells_who_is_there() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let contact = site.plain_contact();
        assert!(matches!(contact.probe().await, Presence::Running(_)), "it does not say");
        let key = "runtime/MachineStatuses.runtime.talos.dev/machine".to_owned();
        site.fake.resources.lock().unwrap().insert(key.clone(), "stage: maintenance\n".into());
        assert!(matches!(contact.probe().await, Presence::Maintenance(version) if version.tag == "v1.13.9"));
        site.fake.resources.lock().unwrap().insert(key.clone(), "stage: booting\n".into());
        assert!(matches!(contact.probe().await, Presence::Running(_)));
        assert_eq!(contact.running().machine().await.unwrap().stage, Stage::Booting);
        assert_eq!(contact.maintenance().machine().await.unwrap().stage, Stage::Booting);
        site.fake.resources.lock().unwrap().insert(key, "other: 1\n".into());
        assert!(
            matches!(contact.probe().await, Presence::Unreachable(refusal) if refusal.class == ErrorClass::Unreadable)
        );
    });
}

/// Goal: steps and gates can wait for every call, whatever thread they run on.
#[test]
fn every_call_can_be_waited_for_anywhere() {
    fn anywhere<F: Future + Send>(future: F) {
        drop(future);
    }
    in_virtual_time(async |clock| {
        use castle_talos::client::kinds;
        let site = Site::new(clock);
        let (contact, configuration) = (site.plain_contact(), Secret::from(String::new()));
        let node = contact.running();
        anywhere(contact.probe());
        anywhere(node.version());
        anywhere(node.kubeconfig());
        anywhere(node.boot_id());
        anywhere(node.machine());
        anywhere(node.resource(kinds::MEMBERS, "x"));
        anywhere(node.resources(kinds::MEMBERS));
        anywhere(node.watch(kinds::MEMBERS, None));
        anywhere(node.apply_configuration(&configuration, ApplyMode::Auto));
        anywhere(node.reset(&Reset::default()));
        assert!(site.fake.asked().is_empty());
    });
}
