//! The regions by their names, over real connections with real TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::Infisical;
use castle_datacenter::{Blueprint, Datacenter, Latencies};
use castle_http::Trust;
use castle_seams::{BoxFuture, ByteStream, Dial, DialError, SystemClock, Target, TcpDial};
use castle_secrets::infisical::{Access, Client, Region};
use castle_secrets::vault::{Vault, VaultErrorKind};

use crate::room::{CLIENT_ID, CLIENT_SECRET, HOST, Room, vault};

/// Leads to one address whatever is dialled, if it is what is expected.
struct Instead {
    expected: &'static str,
    address: SocketAddr,
}

impl Dial for Instead {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        assert_eq!(target.to_string(), self.expected);
        Box::pin(async move {
            let there = Target::new(&self.address.ip().to_string(), self.address.port());
            TcpDial { timeout: Duration::from_secs(5) }.dial(&there).await
        })
    }
}

fn client(region: &str, expected: &'static str, address: SocketAddr, fingerprint: &str) -> Client {
    let clock = Arc::new(SystemClock::new());
    let access = Room::new(clock.clone()).access();
    let trust = Trust::fingerprint(fingerprint).unwrap();
    let access = Access { region: Region::parse(region).unwrap(), trust, ..access };
    Client::new(access, Arc::new(Instead { expected, address }), clock).unwrap()
}

/// Goal: the same identity in the wrong region is refused as a wrong one would be, and the region is named. Method: two
/// regions that know nothing of each other.
#[tokio::test]
async fn the_wrong_region_answers_as_wrong_credentials_and_is_named() {
    let other = Infisical::new("app.infisical.com", "tazlab", &["prod"], "somebody", CLIENT_SECRET);
    assert_ne!(other.identities[0].client_id, CLIENT_ID);
    let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none()).with_vault(vault()).with_vault(other);
    let datacenter = Datacenter::new(blueprint, Arc::new(SystemClock::new()));
    let anywhere: SocketAddr = ([127, 0, 0, 1], 0).into();
    let eu = datacenter.serve_vault(HOST, anywhere).await.unwrap();
    let us = datacenter.serve_vault("app.infisical.com", anywhere).await.unwrap();

    let account = client("eu", "eu.infisical.com:443", eu.address, &eu.fingerprint).whoami().await.unwrap();
    assert_eq!(account.place, "Infisical (eu), project tazlab, environment prod");
    let error = client("us", "app.infisical.com:443", us.address, &us.fingerprint).whoami().await.unwrap_err();
    assert_eq!(error.kind, VaultErrorKind::Unauthenticated);
    assert_eq!(error.to_string(), "Infisical (us): the login of the identity was refused: Invalid credentials");
    assert!(error.next.contains("if the project is in the EU cloud, write `region: eu`"), "{}", error.next);

    let error = client("eu", "eu.infisical.com:443", us.address, &eu.fingerprint).whoami().await.unwrap_err();
    assert_eq!(error.kind, VaultErrorKind::Untrusted);
}
