//! A configuration is full of secrets: it goes to the very machine that has shown to be the node.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{CastleId, Class, Layer, Operation, OperationId, Step, StepId};
use castle_seams::{BoxFuture, ByteStream, Dial, DialError, SystemEntropy, SystemKeyMint, Target};
use castle_talos::client::Hush;
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::config::{Configuration, Contract};
use castle_talos::model::pki::Doors;
use castle_talos::steps::{APPLY, Configure, Configuring, Keys, Machine, Sight, Whom, Wire};
use castle_testbed::{VirtualClock, in_virtual_time};

use crate::serving::Site;
use crate::tls::{Authority, acceptor};

const DEVICE: &str = "02:00:00:00:00:01";

/// Two machines at one address: the first has it for so many connections, and then the other.
struct Taken {
    first: Site,
    other: Site,
    lasts: usize,
}

impl Dial for Taken {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        if self.first.connections() < self.lasts { self.first.dial(target) } else { self.other.dial(target) }
    }
}

/// A machine in maintenance mode that shows this hardware address, and a certificate that it has made itself.
fn machine(clock: &VirtualClock) -> Site {
    let server = Authority::new().server("maintenance-service.talos.dev");
    let site = Site { tls: Some(acceptor(&server, None)), ..Site::new(clock) };
    let link = ("network/LinkStatuses.net.talos.dev/eth0".to_owned(), format!("hardwareAddr: {DEVICE}\n"));
    site.fake.resources.lock().unwrap().extend([link]);
    site
}

async fn keys(clock: &VirtualClock) -> Arc<Keys> {
    let doors = Doors { mint: &SystemKeyMint, entropy: &SystemEntropy, clock };
    let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
    let bundle = Bundle::generate(options, doors).await.unwrap();
    Arc::new(Keys::issue(bundle, Doors { mint: &SystemKeyMint, entropy: &SystemEntropy, clock }).await.unwrap())
}

#[test]
fn whoever_takes_the_address_after_the_node_has_shown_itself_gets_nothing() {
    for (lasts, is_taken) in [(1, true), (2, false)] {
        in_virtual_time(async |clock| {
            let (first, other) = (machine(clock), machine(clock));
            let dial = Arc::new(Taken { first: first.clone(), other: other.clone(), lasts });
            let (patience, hush) = (Duration::from_secs(600), Hush::default());
            let wire = Arc::new(Wire { dial, clock: Arc::new(*clock), is_plain: false, patience, hush, third: None });
            let whom = Whom { name: "cp-1".to_owned(), address: "10.0.0.11".parse().unwrap() };
            let compose = Box::new(|_: &Bundle| Ok(Configuration::parse("machine: {}\n").unwrap()));
            let step = Configure::new(wire, whom, Machine::On, compose).only_on(DEVICE);
            let castle = CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 1 };
            let id = OperationId::of(&castle, &StepId::new(&Layer::new("platform"), "config", "cp-1"), APPLY);
            let needs = (keys(clock).await,);
            let acted = step.act(&needs, &Sight::Waiting, &Configuring::Give, &Operation { id, epoch: 1 }).await;
            assert!(other.fake.applied.lock().unwrap().is_none(), "the secrets went to another machine");
            assert_eq!(first.fake.applied.lock().unwrap().is_none(), is_taken);
            match acted {
                Ok(()) => assert!(!is_taken),
                // Looked at again, it shows who it is.
                Err(fault) => {
                    assert_eq!(fault.class, Class::RefusedBeforeEffect, "{fault:#?}");
                    assert!(is_taken && fault.evidence.contains("somebody else answers at 10.0.0.11"), "{fault:#?}");
                }
            }
        });
    }
}
