//! Connections that are pipes in memory.

use std::io;

use castle_seams::{BoxFuture, ByteStream, Dial, DialError, DialErrorKind, Target};

use super::{PORT, connection};
use crate::datacenter::Datacenter;

/// The bytes that may be under way in each direction.
const PIPE: usize = 64 << 10;

/// The way in by the names of the hosts.
pub(crate) struct Pipes {
    pub(crate) datacenter: Datacenter,
}

impl Dial for Pipes {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let refused = |kind, error| DialError { target: target.clone(), kind, tried: Vec::new(), source: error };
            let world = self.datacenter.world();
            let Some(host) = world.hosts.values().find(|host| {
                host.name.eq_ignore_ascii_case(&target.host)
                    || host.aliases.iter().any(|alias| alias.eq_ignore_ascii_case(&target.host))
            }) else {
                return Err(refused(DialErrorKind::Unresolved, io::Error::other("Name or service not known")));
            };
            if target.port != PORT || !world.is_up(&host.name) {
                return Err(refused(DialErrorKind::Refused, io::ErrorKind::ConnectionRefused.into()));
            }
            let host = host.name.clone();
            drop(world);
            let (near, far) = tokio::io::duplex(PIPE);
            tokio::spawn(connection::serve(self.datacenter.clone(), host, far, self.datacenter.shared.clock.clone()));
            Ok(Box::new(near) as Box<dyn ByteStream>)
        })
    }
}
