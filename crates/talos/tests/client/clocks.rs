//! The clock of a node that waits for its configuration, beside the one here: how little is asked, and whose it is.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use castle_engine::{Closed, Gate, Verdict};
use castle_seams::{Clock, SystemEntropy, SystemKeyMint};
use castle_talos::client::Hush;
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::Contract;
use castle_talos::model::pki::Doors;
use castle_talos::steps::{Answers, Keys, Whom, Wire};
use castle_testbed::{VirtualClock, in_virtual_time};
use tonic::Code;

use crate::node::Fate;
use crate::serving::Site;

const HOUR: i64 = 3600;
const SYNCED: &str = "synced: true\nepoch: 1\nsyncDisabled: false\n";
const WAITING: &str = "synced: false\nepoch: 0\nsyncDisabled: false\n";
const OFF: &str = "synced: true\nepoch: 0\nsyncDisabled: true\n";
/// What it takes to know that a node is in maintenance mode, without TLS, and what its services noted.
const LITTLE: [&str; 3] = ["Version", "Get", "ServiceList"];

async fn keys(clock: &VirtualClock) -> (Arc<Keys>,) {
    let doors = Doors { mint: &SystemKeyMint, entropy: &SystemEntropy, clock };
    let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
    let bundle = Bundle::generate(options, doors).await.unwrap();
    (Arc::new(Keys::issue(bundle, doors).await.unwrap()),)
}

/// A node in maintenance whose clock, and whose time server's, are so many seconds ahead.
fn node(clock: &VirtualClock, sync: &str, ahead: i64, server: i64) -> Site {
    let site = Site::new(clock);
    let now = clock.wall().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().cast_signed();
    *site.fake.clock.lock().unwrap() = (now + ahead, now + server);
    let mut resources = site.fake.resources.lock().unwrap();
    resources.insert("runtime/MachineStatuses.runtime.talos.dev/machine".into(), "stage: maintenance\n".into());
    resources.insert("runtime/TimeStatuses.v1alpha1.talos.dev/node".into(), sync.into());
    drop(resources);
    site
}

fn gate(site: &Site) -> Answers {
    let (dial, clock) = (Arc::new(site.clone()), Arc::new(site.clock));
    let wire =
        Wire { dial, clock, is_plain: true, patience: Duration::from_secs(600), hush: Hush::default(), third: None };
    Answers::new(Arc::new(wire), Whom { name: "cp-1".into(), address: "10.0.0.11".parse().unwrap() })
}

/// What a gate says, and what was asked for it.
async fn asked(site: &Site, gate: &Answers, keys: &(Arc<Keys>,)) -> (Option<Closed>, Vec<&'static str>) {
    let closed = match gate.check(keys).await.unwrap() {
        Verdict::Open(()) => None,
        Verdict::Closed(closed) => Some(closed),
    };
    (closed, site.fake.asked())
}

/// Goal: a node whose clock is right is asked for one thing more, however it came to that; what happened a while ago says nothing.
#[test]
fn a_clock_that_is_right_costs_one_question() {
    in_virtual_time(async |clock| {
        let keys = keys(clock).await;
        for ahead in [0, 60, -60, -HOUR + 1] {
            let site = node(clock, WAITING, ahead, 0);
            let (closed, calls) = asked(&site, &gate(&site), &keys).await;
            assert_eq!((closed, calls), (None, LITTLE.to_vec()), "{ahead}");
        }
    });
}

/// Goal: whose clock it is follows from whether the node has reached a time server. Method: two hours ahead, noted and counted.
#[test]
fn whose_clock_it_is_follows_from_the_time_server() {
    in_virtual_time(async |clock| {
        let keys = keys(clock).await;
        let check = async |sync: &str, server: i64, more: &[&str], words: &[&str]| {
            let site = node(clock, sync, 2 * HOUR, server);
            let (closed, calls) = asked(&site, &gate(&site), &keys).await;
            assert_eq!(calls, [&LITTLE[..], more].concat());
            let closed = closed.unwrap();
            assert_eq!(closed.subject, "cp-1");
            for word in ["its clock is ahead of this machine's by "].iter().chain(words) {
                assert!(format!("{} {}", closed.evidence, closed.next).contains(word), "{word}: {closed:?}");
            }
        };
        let nodes = ["it has not reached a time server yet", "the node's clock that is wrong", "network.timeServers"];
        check(WAITING, 0, &["Get", "Get"], &nodes).await;
        check(OFF, 0, &["Get", "Get"], &["it asks no time server, so either clock may be wrong", "timedatectl"]).await;
        let here =
            ["in sync with its time server time.lan, so it is this machine's clock that is wrong", "timedatectl"];
        check(SYNCED, 2 * HOUR, &["Get", "Time"], &here).await;
        check(SYNCED, 0, &["Get", "Time"], &["by its time server time.lan it is 2026-", "the node's clock"]).await;
    });
}

/// Goal: what a node noted before it reached a time server holds nobody up. Method: its events are old, its clock is right; or it does not say.
#[test]
fn a_clock_that_was_put_right_holds_nobody_up() {
    in_virtual_time(async |clock| {
        let keys = keys(clock).await;
        let site = node(clock, SYNCED, -2 * HOUR, -2 * HOUR);
        site.fake.doom("Time", Fate::Status(Code::Unknown, "error querying NTP server".into()));
        let (closed, calls) = asked(&site, &gate(&site), &keys).await;
        assert!(closed.is_none() && calls.contains(&"Time"), "{closed:?} {calls:?}");
        let begun = clock.monotonic();
        site.fake.doom("Time", Fate::Silence);
        assert_eq!(asked(&site, &gate(&site), &keys).await.0, None);
        assert_eq!(clock.monotonic() - begun, Duration::from_secs(3));
        // One that runs for long has noted nothing for hours, and does not say what time it is: that proves nothing.
        let site = node(clock, WAITING, -5 * HOUR, 0);
        assert_eq!(asked(&site, &gate(&site), &keys).await.0, None);
    });
}

/// Goal: time servers that only the configuration tells a node about are no reason to withhold it.
#[test]
fn a_clock_that_the_configuration_puts_right_is_told_and_let_through() {
    in_virtual_time(async |clock| {
        let keys = keys(clock).await;
        let site = node(clock, WAITING, 2 * HOUR, 0);
        let gate = gate(&site).naming_time_servers(true);
        let first = asked(&site, &gate, &keys).await.0.unwrap();
        clock.sleep(Duration::from_secs(29)).await;
        assert_eq!(asked(&site, &gate, &keys).await.0, Some(first));
        clock.sleep(Duration::from_secs(1)).await;
        assert_eq!(asked(&site, &gate, &keys).await.0, None);
    });
}
