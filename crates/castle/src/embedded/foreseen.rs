//! A datacenter that nobody has started: in memory, for whoever plans what would be made in one. No process, no file, no port; gone with the verb.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::Blueprint;
use castle_datacenter::{Datacenter, EMBEDDED_GIT, EMBEDDED_VAULT, PORT, VAULT_PORT};
use castle_http::Trust;
use castle_seams::{BoxFuture, ByteStream, Dial, DialError, Target, TcpDial};

use super::{Keys, Serving, followed};
use crate::doors::{Around, Doors};

/// A fingerprint that no certificate has: TLS is not spoken in memory.
pub(crate) const NOBODY: &str =
    "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00";

/// A datacenter in memory, beside whatever is on this machine's network.
pub(crate) struct Foreseen {
    pub(crate) serving: Serving,
    inner: Arc<dyn Dial>,
}

impl Foreseen {
    /// The doors of whoever plans in a new datacenter with these hosts; every other door leads where it did.
    pub(crate) fn doors(doors: &Doors, hosts: &[String]) -> Doors {
        let datacenter = Datacenter::new(Blueprint::embedded(hosts), doors.clock.clone());
        let files = doors.clone();
        datacenter.follow_repositories(EMBEDDED_GIT, Arc::new(move |name| followed(&files, name)));
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let serving = Serving {
            address: address(1),
            fingerprint: NOBODY.to_owned(),
            process: 0,
            hosts: hosts.to_vec(),
            speed: 1,
            is_instant: true,
            vault: address(2),
            vault_fingerprint: NOBODY.to_owned(),
            git: address(3),
            git_fingerprint: NOBODY.to_owned(),
            key_digests: BTreeMap::new(),
            keys: Keys::default(),
        };
        let foreseen = Self { serving, inner: datacenter.dial() };
        Doors { around: Around::Foreseen(Arc::new(foreseen)), ..doors.clone() }
    }

    /// Whether somebody who should be believed like this is in it.
    pub(crate) fn is_meant_by(trust: &Trust) -> bool {
        Trust::fingerprint(NOBODY).is_ok_and(|nobody| nobody == *trust)
    }

    /// Where an address of the datacenter leads to in memory; nothing for one of this machine's network.
    fn place(&self, target: &Target) -> Option<Target> {
        let Serving { address, vault, git, hosts, .. } = &self.serving;
        let host = hosts.first().map_or("", String::as_str);
        let places = [(address, host, PORT), (vault, EMBEDDED_VAULT, VAULT_PORT), (git, EMBEDDED_GIT, VAULT_PORT)];
        let is_meant = |known: &SocketAddr| known.ip().to_string() == target.host && known.port() == target.port;
        places.into_iter().find(|(known, ..)| is_meant(known)).map(|(_, host, port)| Target::new(host, port))
    }
}

/// The way into it, and for everybody else to the network, where they may take so long to be reached.
pub(crate) struct Way {
    pub(crate) foreseen: Arc<Foreseen>,
    pub(crate) timeout: Duration,
}

impl Dial for Way {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            match self.foreseen.place(target) {
                Some(inside) => self.foreseen.inner.dial(&inside).await,
                None => TcpDial { timeout: self.timeout }.dial(target).await,
            }
        })
    }
}
