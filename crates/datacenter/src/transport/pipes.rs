//! Connections that are pipes in memory.

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use castle_seams::{BoxFuture, ByteStream, Dial, DialError, DialErrorKind, Target};

use super::{PORT, VAULT_PORT, connection};
use crate::datacenter::Datacenter;
use crate::talos::api::{self, Session};
use crate::talos::route::{Closed, Door};
use crate::{git, infisical};

/// The bytes that may be under way in each direction.
const PIPE: usize = 64 << 10;

/// How long an address is looked for that nobody has.
const NOBODY: Duration = Duration::from_secs(3);

/// The way in by the names of hosts and vaults, and by the addresses of nodes.
pub(crate) struct Pipes {
    pub(crate) datacenter: Datacenter,
}

impl Dial for Pipes {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let failed = |kind, error| DialError { target: target.clone(), kind, tried: Vec::new(), source: error };
            let host = {
                let world = self.datacenter.world();
                let is_meant = |name: &String| name.eq_ignore_ascii_case(&target.host);
                let host = world.hosts.values().find(|host| is_meant(&host.name) || host.aliases.iter().any(is_meant));
                host.map(|host| (host.name.clone(), world.is_up(&host.name)))
            };
            if let Some(is_up) = self.datacenter.world().vault_state(&target.host) {
                if !is_up || target.port != VAULT_PORT {
                    return Err(failed(DialErrorKind::Refused, io::ErrorKind::ConnectionRefused.into()));
                }
                let (near, far) = tokio::io::duplex(PIPE);
                tokio::spawn(infisical::line::serve(self.datacenter.clone(), target.host.clone(), far));
                return Ok(Box::new(near) as Box<dyn ByteStream>);
            }
            let repositories = self.datacenter.world().git.state(&target.host);
            if let Some(is_up) = repositories {
                if !is_up || target.port != VAULT_PORT {
                    return Err(failed(DialErrorKind::Refused, io::ErrorKind::ConnectionRefused.into()));
                }
                let (near, far) = tokio::io::duplex(PIPE);
                tokio::spawn(git::line::serve(self.datacenter.clone(), target.host.clone(), far));
                return Ok(Box::new(near) as Box<dyn ByteStream>);
            }
            match (host, target.host.parse::<IpAddr>()) {
                (Some((host, true)), _) if target.port == PORT => {
                    let (near, far) = tokio::io::duplex(PIPE);
                    let (datacenter, clock) = (self.datacenter.clone(), self.datacenter.shared.clock.clone());
                    tokio::spawn(connection::serve(datacenter, host, far, clock));
                    Ok(Box::new(near) as Box<dyn ByteStream>)
                }
                (Some(_), _) => Err(failed(DialErrorKind::Refused, io::ErrorKind::ConnectionRefused.into())),
                (None, Ok(address)) => self.node(target, address).await,
                (None, Err(_)) => Err(failed(DialErrorKind::Unresolved, io::Error::other("Name or service not known"))),
            }
        })
    }
}

impl Pipes {
    /// A connection to what runs on a node.
    async fn node(&self, target: &Target, address: IpAddr) -> Result<Box<dyn ByteStream>, DialError> {
        let failed = |kind, error| DialError { target: target.clone(), kind, tried: Vec::new(), source: error };
        let datacenter = self.datacenter.clone();
        let (door, patience, is_hushed) = {
            let world = datacenter.world();
            let is_hushed = world.node_at(address).is_some_and(|vmid| world.talos.hushed.contains(&vmid));
            (world.door(address, target.port), NOBODY.mul_f64(world.latencies.factor.max(0.0)), is_hushed)
        };
        let (near, far) = tokio::io::duplex(PIPE);
        match door {
            Err(Closed::Refused) => {
                return Err(failed(DialErrorKind::Refused, io::ErrorKind::ConnectionRefused.into()));
            }
            Err(Closed::Unreachable) => {
                datacenter.shared.clock.sleep(patience).await;
                return Err(failed(DialErrorKind::Unreachable, io::ErrorKind::HostUnreachable.into()));
            }
            Ok(_) if is_hushed => drop(tokio::spawn(async move {
                let _held = far;
                std::future::pending::<()>().await;
            })),
            Ok(Door::Talos(vmid, apid)) => drop(tokio::spawn(api::serve(datacenter, vmid, apid, far, Session::Plain))),
            Ok(Door::Kubernetes(vmid, life)) => {
                drop(tokio::spawn(crate::kubernetes::serve(datacenter, vmid, life, far, Session::Plain)));
            }
        }
        Ok(Box::new(near) as Box<dyn ByteStream>)
    }
}
