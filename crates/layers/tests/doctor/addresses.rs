//! Addresses that somebody has.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, DialErrorKind, Target};
use castle_testbed::in_virtual_time;

use super::practice::{Practice, embedded, file, ill};

/// A network in which some answer, some refuse, and the others are silent.
struct Street<'s> {
    /// Where those live that answer.
    somebody: Arc<dyn Dial>,
    clock: &'s dyn Clock,
    answers: BTreeMap<Target, DialErrorKind>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Dial for Street<'_> {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let kind = self.answers.get(target).copied();
            self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let wait = if kind.is_none() { Duration::from_millis(900) } else { Duration::from_millis(1) };
            self.clock.sleep(wait).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            let error = |kind| DialError {
                target: target.clone(),
                kind,
                tried: Vec::new(),
                source: std::io::Error::other("no"),
            };
            match kind {
                Some(DialErrorKind::Other) => self.somebody.dial(&Target::new("pve", 8006)).await,
                kind => Err(error(kind.unwrap_or(DialErrorKind::TimedOut))),
            }
        })
    }
}

#[test]
fn addresses_that_somebody_has_are_named() {
    in_virtual_time(async |clock| {
        let mut practice = Practice::new(embedded(&["pve"]), &file(200, &[]), clock);
        let answers = [
            (Target::new("10.0.1.1", 22), DialErrorKind::Other),
            (Target::new("10.0.1.2", 6443), DialErrorKind::Refused),
            (Target::new("10.0.1.3", 50_000), DialErrorKind::Unreachable),
            (Target::new("10.0.255.1", 6443), DialErrorKind::Other),
        ];
        let somebody = practice.datacenter.dial();
        let street =
            Street { somebody, clock, answers: answers.into(), now: AtomicUsize::new(0), most: AtomicUsize::new(0) };
        let begun = clock.monotonic();
        let findings = ill(&practice.examine_dialling(&street).await);
        let took = clock.monotonic() - begun;
        assert_eq!(
            findings,
            [
                "wrong addresses 10.0.1.1 (blue-cp-1): somebody is there: port 22 answers",
                "wrong addresses 10.0.1.2 (blue-cp-2): somebody is there: port 6443 is refused",
                "wrong addresses 10.0.255.1 (network.vip): somebody is there: port 6443 answers",
            ]
        );
        assert_eq!(street.most.load(Ordering::Relaxed), 64, "so many at once");
        assert!(took <= Duration::from_secs(10), "612 dials took {took:?}");
        // A node that stands answers at its own address, and at that of the API.
        let id = practice.id.clone();
        practice.settle(421, "blue-cp-1", &id);
        practice.nodes.truncate(2);
        let findings = ill(&practice.examine_dialling(&street).await);
        assert_eq!(findings, ["wrong addresses 10.0.1.2 (blue-cp-2): somebody is there: port 6443 is refused"]);
    });
}

#[test]
fn a_firewall_that_refuses_everything_tells_nothing() {
    in_virtual_time(async |clock| {
        let practice = Practice::new(embedded(&["pve"]), &file(2, &[]), clock);
        let addresses =
            practice.nodes.iter().map(|node| node.address.value.to_string()).chain(["10.0.255.1".to_owned()]);
        let targets = addresses.flat_map(|address| [50_000, 6443, 22].map(|port| Target::new(&address, port)));
        let answers = targets.map(|target| (target, DialErrorKind::Refused)).collect();
        let somebody = practice.datacenter.dial();
        let street = Street { somebody, clock, answers, now: AtomicUsize::new(0), most: AtomicUsize::new(0) };
        let findings = ill(&practice.examine_dialling(&street).await);
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].starts_with("unknown addresses : every port of every address is refused"), "{findings:?}");
    });
}
