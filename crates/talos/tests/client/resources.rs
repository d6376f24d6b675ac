//! Resources: one, all of a kind, and how they change.

use std::time::Duration;

use castle_seams::Clock;
use castle_talos::client::{ErrorClass, Happening, kinds};
use castle_talos_api::cosi::resource::{Event, EventType, WatchResponse};
use castle_testbed::in_virtual_time;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::node::{Fate, resource};
use crate::serving::Site;

const SECOND: Duration = Duration::from_secs(1);

fn event(kind: EventType, id: &str, yaml: &str) -> Event {
    Event { resource: Some(resource(id, yaml)), event_type: kind.into(), ..Event::default() }
}

/// A site whose watches tell what is sent.
fn site(clock: &castle_testbed::VirtualClock) -> (Site, mpsc::UnboundedSender<Result<WatchResponse, Status>>) {
    let site = Site::new(clock);
    let (teller, news) = mpsc::unbounded_channel();
    *site.fake.news.lock().unwrap() = Some(news);
    teller.send(Ok(WatchResponse::default())).unwrap();
    (site, teller)
}

/// A word for each happening.
fn told(happening: Option<Happening>) -> String {
    match happening {
        Some(Happening::Is(resource)) => format!("{} is {}", resource.id, resource.yaml.expose().trim()),
        Some(Happening::Gone { id }) => format!("{id} is gone"),
        Some(Happening::Told) => "told".to_owned(),
        None => "nothing".to_owned(),
    }
}

#[test]
fn resources_are_read() {
    in_virtual_time(async |clock| {
        let site = Site::new(clock);
        for (id, yaml) in [("etcd", "healthy: true\n"), ("kubelet", "healthy: false\n")] {
            let key = format!("runtime/Services.v1alpha1.talos.dev/{id}");
            site.fake.resources.lock().unwrap().insert(key, yaml.into());
        }
        let node = site.plain();
        let etcd = node.resource(kinds::SERVICES, "etcd").await.unwrap().unwrap();
        assert_eq!((etcd.id.as_str(), etcd.version.as_str(), etcd.phase.as_str()), ("etcd", "3", "running"));
        assert_eq!(etcd.yaml.expose(), "healthy: true\n");
        assert!(!format!("{etcd:?}").contains("healthy"));
        assert!(node.resource(kinds::SERVICES, "cri").await.unwrap().is_none());
        let all = node.resources(kinds::SERVICES).await.unwrap();
        assert_eq!(all.iter().map(|service| service.id.as_str()).collect::<Vec<_>>(), ["etcd", "kubelet"]);
        assert!(node.resources(kinds::MEMBERS).await.unwrap().is_empty());
        site.fake.doom("Get", Fate::Status(Code::PermissionDenied, "not authorized".into()));
        assert_eq!(node.resource(kinds::MACHINE_CONFIG, "v1alpha1").await.unwrap_err().class, ErrorClass::Forbidden);
    });
}

#[test]
fn one_resource_is_watched() {
    in_virtual_time(async |clock| {
        let (site, teller) = site(clock);
        let node = site.plain();
        let mut watch = node.watch(kinds::MACHINE_STATUS, Some("machine")).await.unwrap();
        let request = site.fake.watched.lock().unwrap().take().unwrap();
        assert_eq!((request.namespace.as_str(), request.id.as_deref()), ("runtime", Some("machine")));
        assert_eq!(request.r#type, "MachineStatuses.runtime.talos.dev");
        assert!(!request.options.unwrap().bootstrap_contents, "a node refuses that of one resource");

        let both = vec![
            event(EventType::Created, "machine", "stage: booting"),
            event(EventType::Updated, "machine", "stage: running"),
        ];
        teller.send(Ok(WatchResponse { event: both })).unwrap();
        assert_eq!(told(watch.next(SECOND).await.unwrap()), "machine is stage: booting");
        assert_eq!(told(watch.next(SECOND).await.unwrap()), "machine is stage: running");
        assert_eq!(clock.monotonic(), Duration::ZERO);
        assert_eq!(told(watch.next(SECOND).await.unwrap()), "nothing");
        assert_eq!(clock.monotonic(), SECOND);

        let gone = vec![event(EventType::Noop, "machine", ""), event(EventType::Destroyed, "machine", "")];
        teller.send(Ok(WatchResponse { event: gone })).unwrap();
        assert_eq!(told(watch.next(SECOND).await.unwrap()), "machine is gone");
        drop(teller);
        let refusal = watch.next(SECOND).await.unwrap_err();
        assert_eq!((refusal.class, refusal.sentence.as_str()), (ErrorClass::Unavailable, "the watch has ended"));
    });
}

#[test]
fn what_is_told_first_is_no_change() {
    in_virtual_time(async |clock| {
        let (site, teller) = site(clock);
        let node = site.plain();
        teller.send(Ok(WatchResponse { event: vec![event(EventType::Created, "machine", "stage: booting")] })).unwrap();
        assert!(!node.until_changed(kinds::MACHINE_STATUS, "machine", SECOND).await.unwrap());
        assert_eq!(clock.monotonic(), SECOND);
    });
    in_virtual_time(async |clock| {
        let (site, teller) = site(clock);
        let node = site.plain();
        for stage in ["stage: booting", "stage: running"] {
            teller.send(Ok(WatchResponse { event: vec![event(EventType::Updated, "machine", stage)] })).unwrap();
        }
        assert!(node.until_changed(kinds::MACHINE_STATUS, "machine", SECOND).await.unwrap());
        assert_eq!(clock.monotonic(), Duration::ZERO);
    });
}

#[test]
fn a_kind_is_watched_from_what_is_there() {
    in_virtual_time(async |clock| {
        let (site, teller) = site(clock);
        let node = site.plain();
        let mut watch = node.watch(kinds::MEMBERS, None).await.unwrap();
        let request = site.fake.watched.lock().unwrap().take().unwrap();
        assert!(request.id.is_none() && request.options.unwrap().bootstrap_contents);
        assert_eq!(request.api_version, 1, "else the end of what is there is not told");
        let event_of_all = Event { event_type: EventType::Bootstrapped.into(), ..Event::default() };
        teller.send(Ok(WatchResponse { event: vec![event(EventType::Created, "cp-1", "a: 1")] })).unwrap();
        teller.send(Ok(WatchResponse { event: vec![event_of_all] })).unwrap();
        assert_eq!(told(watch.next(SECOND).await.unwrap()), "cp-1 is a: 1");
        assert_eq!(told(watch.next(SECOND).await.unwrap()), "told");

        let error = Some("too slow".to_owned());
        let failed = Event { event_type: EventType::Errored.into(), error, ..Event::default() };
        teller.send(Ok(WatchResponse { event: vec![failed] })).unwrap();
        let refusal = watch.next(SECOND).await.unwrap_err();
        assert_eq!((refusal.class, refusal.sentence.as_str()), (ErrorClass::Unavailable, "too slow"));
        let nothing = Event { event_type: EventType::Updated.into(), ..Event::default() };
        teller.send(Ok(WatchResponse { event: vec![nothing] })).unwrap();
        assert_eq!(watch.next(SECOND).await.unwrap_err().class, ErrorClass::Unreadable);
    });
}

#[test]
fn a_watch_ends_with_the_node() {
    in_virtual_time(async |clock| {
        let (site, _teller) = site(clock);
        let node = site.plain();
        let mut watch = node.watch(kinds::MEMBERS, None).await.unwrap();
        site.outage.notify_waiters();
        assert_eq!(watch.next(SECOND).await.unwrap_err().class, ErrorClass::Lost);
        assert_eq!(clock.monotonic(), Duration::ZERO);
        site.fake.doom("Watch", Fate::Silence);
        assert_eq!(node.watch(kinds::MEMBERS, None).await.unwrap_err().class, ErrorClass::Lost);
    });
}
