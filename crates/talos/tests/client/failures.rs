//! What goes wrong, and what is made of it.

use std::time::Duration;

use castle_engine::{Class, Fault};
use castle_seams::Clock;
use castle_secrets::Secret;
use castle_talos::client::{ApplyMode, ErrorClass, GLANCE, Presence, Refusal, kinds};
use castle_testbed::in_virtual_time;
use tonic::Code;

use crate::node::Fate;
use crate::serving::{Door, Site};

const BOUND: Duration = Duration::from_secs(30);

fn classes(refusal: Refusal) -> (ErrorClass, Class) {
    (refusal.class, Fault::from(refusal).class)
}

/// Goal: what a node says of bootstrapping means what Talos means by it.
#[test]
fn the_node_says_why_it_does_not() {
    let later = Class::RetryableAfter(None);
    for (code, message, class, engine) in [
        (Code::Unavailable, "error reading from server: EOF", ErrorClass::Unavailable, Class::EffectUnknown),
        (Code::DeadlineExceeded, "context deadline exceeded", ErrorClass::Lost, Class::EffectUnknown),
        (Code::Cancelled, "context canceled", ErrorClass::Lost, Class::EffectUnknown),
        (Code::FailedPrecondition, "bootstrap is not available yet", ErrorClass::NotYet, later),
        (Code::AlreadyExists, "etcd data directory is not empty", ErrorClass::Exists, Class::RefusedBeforeEffect),
        (Code::InvalidArgument, "not a control plane", ErrorClass::Invalid, Class::Final),
        (Code::PermissionDenied, "not authorized", ErrorClass::Forbidden, Class::Final),
        (Code::Unimplemented, "no such thing", ErrorClass::Unsupported, Class::Final),
        (Code::ResourceExhausted, "too many", ErrorClass::Busy, later),
        (Code::Unknown, "something else", ErrorClass::Other, Class::EffectUnknown),
    ] {
        in_virtual_time(async |clock| {
            let site = Site::new(clock);
            site.fake.doom("Bootstrap", Fate::Status(code, message.to_owned()));
            let refusal = site.plain().bootstrap().await.unwrap_err();
            assert_eq!(refusal.to_string(), format!("cp-1: Bootstrap: {message}"));
            assert_eq!(classes(refusal), (class, engine), "{code:?}");
            assert_eq!(site.fake.asked(), ["Bootstrap"], "never twice");
        });
    }
}

#[test]
fn where_nobody_listens_nothing_was_done() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        *site.door.lock().unwrap() = Door::Refuses;
        let node = site.plain();
        let refusal = node.bootstrap().await.unwrap_err();
        assert!(refusal.sentence.contains("connection refused"), "{refusal}");
        assert_eq!(classes(refusal), (ErrorClass::Unreachable, Class::RefusedBeforeEffect));
        assert!(matches!(site.plain_contact().probe().await, Presence::Unreachable(_)));
        *site.door.lock().unwrap() = Door::Open;
        node.bootstrap().await.unwrap();
        assert_eq!(clock.monotonic(), Duration::ZERO);
    });
}

#[test]
fn whoever_does_not_even_connect_is_waited_for_to_a_bound() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        *site.door.lock().unwrap() = Door::NeverAnswers;
        let refusal = site.plain().bootstrap().await.unwrap_err();
        assert_eq!(classes(refusal), (ErrorClass::Unreachable, Class::RefusedBeforeEffect));
        assert_eq!(clock.monotonic(), BOUND);
    });
}

#[test]
fn an_answer_that_does_not_come_leaves_the_effect_unknown() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        let configuration = Secret::from(String::new());
        site.fake.doom("ApplyConfiguration", Fate::Silence);
        let refusal = node.apply_configuration(&configuration, ApplyMode::Auto).await.unwrap_err();
        assert_eq!(classes(refusal), (ErrorClass::Lost, Class::EffectUnknown));
        assert_eq!(clock.monotonic(), BOUND);

        site.fake.doom("Disks", Fate::Silence);
        assert_eq!(classes(node.disks().await.unwrap_err()), (ErrorClass::Lost, Class::RetryableAfter(None)));
        assert_eq!(clock.monotonic(), 2 * BOUND, "a look is not repeated when its time is up");
        assert_eq!(site.connections(), 2);
        node.version().await.unwrap();
        assert_eq!(site.connections(), 3, "a connection that was silent is not used again");
    });
}

/// What a node knows by itself it tells at once, or it says nothing.
#[test]
fn a_node_that_says_nothing_is_known_as_such_within_three_seconds() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        for call in ["Version", "ServiceList"] {
            site.fake.doom(call, Fate::Silence);
        }
        assert_eq!(node.version().await.unwrap_err().class, ErrorClass::Lost);
        assert_eq!(clock.monotonic(), GLANCE);
        assert_eq!(node.services().await.unwrap_err().class, ErrorClass::Lost);
        assert_eq!(clock.monotonic(), 2 * GLANCE);
    });
}

/// The same of what it keeps about itself, of its files, and of what it would do: each may be silent alone, and may be asked again.
#[test]
fn what_a_node_keeps_about_itself_is_waited_for_no_longer() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let (node, configuration) = (site.plain(), Secret::from(String::new()));
        let kind = kinds::MACHINE_STATUS;
        for call in ["Get", "List", "Watch", "Read", "ApplyConfiguration"] {
            site.fake.doom(call, Fate::Silence);
            let begun = clock.monotonic();
            let refusal = match call {
                "Get" => node.resource(kind, "machine").await.unwrap_err(),
                "List" => node.resources(kind).await.unwrap_err(),
                "Watch" => node.watch(kind, Some("machine")).await.unwrap_err(),
                "Read" => node.boot_id().await.unwrap_err(),
                _ => node.would_restart(&configuration).await.unwrap_err(),
            };
            assert_eq!(classes(refusal), (ErrorClass::Lost, Class::RetryableAfter(None)), "{call}");
            assert_eq!(clock.monotonic() - begun, GLANCE, "{call}");
        }
        node.version().await.unwrap();
    });
}

#[test]
fn a_node_that_dies_on_the_way_leaves_the_effect_unknown() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        for call in ["ApplyConfiguration", "Bootstrap", "Reset", "Reboot"] {
            site.fake.doom(call, Fate::Outage(site.outage.clone()));
        }
        let node = site.plain();
        let (configuration, reset) = (Secret::from(String::new()), Default::default());
        let refusals = [
            node.apply_configuration(&configuration, ApplyMode::Auto).await.unwrap_err(),
            node.bootstrap().await.unwrap_err(),
            node.reset(&reset).await.unwrap_err(),
            node.reboot().await.unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(classes(refusal), (ErrorClass::Lost, Class::EffectUnknown));
        }
        assert_eq!(site.fake.asked(), ["ApplyConfiguration", "Bootstrap", "Reset", "Reboot"]);
        assert_eq!(clock.monotonic(), Duration::ZERO);
    });
}

#[test]
fn a_look_over_a_connection_that_has_died_is_repeated_once() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        node.version().await.unwrap();
        site.outage.notify_waiters();
        node.version().await.unwrap();
        assert_eq!(site.connections(), 2, "it was seen to be closed");

        site.fake.asked();
        site.fake.doom("Disks", Fate::Outage(site.outage.clone()));
        assert_eq!(node.disks().await.unwrap_err().class, ErrorClass::Lost);
        assert_eq!(site.fake.asked(), ["Disks", "Disks"], "the first may have come too late, the second did not");
        assert_eq!(node.disks().await.unwrap_err().class, ErrorClass::Lost);
        assert_eq!(site.fake.asked(), ["Disks"], "a connection made for it was certainly alive");
        *site.door.lock().unwrap() = Door::Refuses;
        assert_eq!(node.version().await.unwrap_err().class, ErrorClass::Unreachable);
    });
}

#[test]
fn a_connection_that_cannot_be_made_again_is_no_lost_answer() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let node = site.plain();
        node.version().await.unwrap();
        *site.door.lock().unwrap() = Door::Refuses;
        site.outage.notify_waiters();
        assert_eq!(node.version().await.unwrap_err().class, ErrorClass::Unreachable);
    });
}

#[test]
fn no_refusal_tells_what_was_sent() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        let message = "unknown keys found during decoding:\nmachine:\n    tokn: plantedplantedplanted\n";
        site.fake.doom("ApplyConfiguration", Fate::Status(Code::InvalidArgument, message.to_owned()));
        let configuration = Secret::from("machine:\n  tokn: plantedplantedplanted\n".to_owned());
        let refusal = site.plain().apply_configuration(&configuration, ApplyMode::Auto).await.unwrap_err();
        assert_eq!(refusal.sentence, "unknown keys found during decoding: machine: tokn: …");
        let shown = format!("{refusal} {refusal:?} {:?}", Fault::from(refusal.clone()));
        assert!(!shown.contains("planted"), "{shown}");
    });
}
