//! One call: whom it is for, who asks, whether they may, how long it takes, and what becomes of the answer.

use std::net::IpAddr;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_talos_api::common::Metadata;
use futures_util::stream::select_all;
use rustls::pki_types::CertificateDer;
use tonic::codegen::BoxStream;
use tonic::metadata::MetadataMap;
use tonic::{Code, Request, Response, Status};

use super::etcd::Needs;
use super::reply::Reply;
use super::{Api, rules};
use crate::blueprint::Span;
use crate::talos::credentials::{self, CERTIFICATE_HEADER, Distrust};
use crate::witness::{Called, Fate};
use crate::world::World;

/// Somebody who calls, and the node that the call is for.
#[derive(Clone, Debug)]
pub(super) struct Caller {
    pub(super) vmid: u32,
    pub(super) roles: Vec<String>,
    /// Whether the node has no configuration.
    pub(super) is_maintenance: bool,
    /// By what name the node was asked, where several may be.
    label: Option<String>,
}

impl Caller {
    pub(super) fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == "os:admin")
    }

    /// Whose answer it is, where several answer.
    pub(super) fn metadata(&self) -> Option<Metadata> {
        self.label.clone().map(|hostname| Metadata { hostname, ..Metadata::default() })
    }
}

/// The name of a node that was asked, and whether it can be.
type Aimed = (String, Result<Caller, Status>);

/// Whom a call is for.
enum Aim {
    /// The node that was dialled, which answers as itself.
    Itself,
    /// One node, which is passed the call.
    One(String),
    /// Several, whose answers are joined.
    Many(Vec<String>),
}

impl Aim {
    fn of(metadata: &MetadataMap) -> Self {
        let all = |name: &str| -> Vec<String> {
            let values = metadata.get_all(name).iter().filter_map(|value| value.to_str().ok());
            values.filter(|value| !value.is_empty()).map(Into::into).collect()
        };
        let (nodes, node) = (all("nodes"), all("node"));
        match (nodes.is_empty(), node.into_iter().next()) {
            (false, _) => Self::Many(nodes),
            (true, Some(node)) => Self::One(node),
            (true, None) => Self::Itself,
        }
    }
}

/// What a client sees whose certificate is not accepted, or that does not accept the node's.
fn handshake_failed(text: &str) -> Status {
    Status::unavailable(format!("connection error: desc = \"transport: authentication handshake failed: {text}\""))
}

impl Api {
    /// Who calls, by the certificate that was presented.
    pub(super) fn caller(&self, world: &World, certificate: Option<&str>) -> Result<Caller, Status> {
        let vmid = self.vmid;
        let decoded = certificate.and_then(|text| STANDARD.decode(text).ok()).map(CertificateDer::from);
        let Some(config) = world.talos.nodes.get(&vmid).and_then(|node| node.config()) else {
            // Who has a certificate expects one of the same authority, which a node in maintenance does not have.
            return match decoded {
                Some(_) => Err(handshake_failed(
                    "tls: failed to verify certificate: x509: certificate signed by unknown authority",
                )),
                None => Ok(Caller { vmid, roles: vec!["os:reader".to_owned()], is_maintenance: true, label: None }),
            };
        };
        // A client judges the node's certificate before it shows its own.
        let untimely = world.untimely(vmid).filter(|_| self.is_plain && decoded.is_some());
        if let Some(untimely) = untimely {
            return Err(handshake_failed(&untimely));
        }
        let mut authorities = config.os.certificates();
        authorities.extend(config.accepted.iter().cloned());
        let now = world.by_clock_of(vmid, self.datacenter.calendar());
        let named = credentials::judge(decoded.as_ref(), &authorities, now)
            .map_err(|distrust: Distrust| handshake_failed(&format!("remote error: {}", distrust.alert())))?;
        Ok(Caller { vmid, roles: named.organizations, is_maintenance: false, label: None })
    }

    /// The node that an address or a name means, seen from this one.
    fn aimed(&self, world: &World, target: &str) -> Result<u32, Status> {
        let own = world.talos.nodes.get(&self.vmid);
        let address = target.parse::<IpAddr>();
        let is_own = own.is_some_and(|node| {
            node.hostname() == target || address.as_ref().is_ok_and(|address| node.has_address(*address))
        });
        if is_own {
            return Ok(self.vmid);
        }
        if !own.is_some_and(super::super::node::Node::is_control_plane) {
            return Err(Status::permission_denied("no request forwarding"));
        }
        let key = own.and_then(|node| node.config()).map(|config| config.key.clone()).unwrap_or_default();
        let found = match address {
            Ok(address) => world.node_at(address),
            Err(_) => world.talos.nodes.values().find(|node| node.hostname() == target).map(|node| node.vmid),
        };
        let is_there = |vmid: &u32| {
            let boot = world.talos.boot(*vmid);
            boot.is_some_and(|boot| boot.apid.is_some() && boot.config.as_ref().is_some_and(|it| it.key == key))
        };
        found.filter(is_there).ok_or_else(|| {
            Status::unavailable(format!(
                "connection error: desc = \"transport: Error while dialing: dial tcp {target}:50000: connect: no route to host\""
            ))
        })
    }

    /// The connection ends here: nothing more is answered.
    pub(super) async fn lost<T>(&self) -> T {
        self.cut.notify_one();
        std::future::pending().await
    }

    fn is_open(&self) -> bool {
        self.datacenter.world().is_open(self.door)
    }

    /// How long a call takes.
    fn latency(&self, method: &str) -> Duration {
        let mut world = self.datacenter.world();
        let span: Span =
            if method == "ApplyConfiguration" { world.latencies.talos.apply } else { world.latencies.talos.call };
        world.draw(&format!("talos call {} {method}", self.vmid), span)
    }

    /// What the witnesses have in store for a call.
    fn fate(&self, method: &str, is_change: bool) -> Fate {
        let address = {
            let world = self.datacenter.world();
            world
                .talos
                .nodes
                .get(&self.vmid)
                .and_then(super::super::node::Node::address)
                .map(|ip| ip.to_string())
                .unwrap_or_default()
        };
        let called =
            Called { number: self.datacenter.number(), vmid: self.vmid, address, method: method.to_owned(), is_change };
        let witnesses = self.datacenter.witnesses();
        witnesses
            .iter()
            .map(|witness| witness.call(&called))
            .find(|fate| *fate != Fate::Handled)
            .unwrap_or(Fate::Handled)
    }

    /// Judges a call for each node that it is for: the nodes, and whether their answers are labelled; or the refusal.
    fn callers(&self, world: &World, metadata: &MetadataMap, method: &str) -> Result<(Vec<Aimed>, bool), Status> {
        let certificate = metadata.get(CERTIFICATE_HEADER).and_then(|value| value.to_str().ok());
        let caller = self.caller(world, certificate)?;
        if !rules::may(&caller.roles, method) {
            return Err(Status::permission_denied("not authorized"));
        }
        let (targets, is_labelled) = match Aim::of(metadata) {
            Aim::Itself => return Ok((vec![(String::new(), Ok(caller))], false)),
            Aim::One(target) => (vec![target], false),
            Aim::Many(targets) => (targets, true),
        };
        let aim = |target: String| {
            let label = is_labelled.then(|| target.clone());
            let aimed = self.aimed(world, &target).map(|vmid| Caller { vmid, label, ..caller.clone() });
            (target, aimed)
        };
        let aimed: Vec<_> = targets.into_iter().map(aim).collect();
        // What is not passed on at all is refused as a whole.
        let denied =
            aimed.iter().find_map(|(_, aimed)| aimed.as_ref().err().filter(|it| it.code() == Code::PermissionDenied));
        match denied {
            Some(denied) => Err(denied.clone()),
            None => Ok((aimed, is_labelled)),
        }
    }

    /// Answers a call that has one answer.
    pub(super) async fn unary<Q: 'static, R: Reply>(
        &self,
        method: &str,
        request: Request<Q>,
        work: impl FnMut(&mut World, &Caller, &Q) -> Result<R, Status>,
    ) -> Result<Response<R>, Status> {
        self.unary_with(method, None, request, work).await
    }

    /// As [`Api::unary`], once etcd is as the call needs it; at most as long as the caller waits.
    pub(super) async fn unary_with<Q: 'static, R: Reply>(
        &self,
        method: &str,
        needs: Option<Needs>,
        request: Request<Q>,
        mut work: impl FnMut(&mut World, &Caller, &Q) -> Result<R, Status>,
    ) -> Result<Response<R>, Status> {
        let (metadata, _, message) = request.into_parts();
        let clock = &self.datacenter.shared.clock;
        let began = self.datacenter.clients_clock().monotonic();
        let latency = self.latency(method);
        clock.sleep(latency / 2).await;
        let fate = self.fate(method, rules::is_change(method) && !rules::is_dry(&message));
        if fate == Fate::LostBefore || !self.is_open() {
            return self.lost().await;
        }
        if let Fate::Refused(code, text) = &fate {
            return Err(Status::new(Code::from_i32(*code), text));
        }
        if let Some(needs) = needs {
            self.wait_for_etcd(&metadata, method, needs, began).await?;
        }
        if !self.is_open() {
            return self.lost().await;
        }
        let answer = {
            let mut world = self.datacenter.world();
            match self.callers(&world, &metadata, method) {
                Err(status) => Err(status),
                Ok((callers, is_labelled)) => {
                    joined(&mut world, callers, is_labelled, |world, caller| work(world, caller, &message))
                }
            }
        };
        clock.sleep(latency - latency / 2).await;
        // What ended this very server with its effect is still answered; a node that is down answers nothing.
        let is_down = self.datacenter.world().talos.boot(self.vmid).is_none();
        if fate == Fate::LostAfter || is_down {
            return self.lost().await;
        }
        answer.map(Response::new)
    }

    /// Waits until etcd is as a call needs it, or the time of the caller is over, which is told by his own clock.
    async fn wait_for_etcd(
        &self,
        metadata: &MetadataMap,
        method: &str,
        needs: Needs,
        began: Duration,
    ) -> Result<(), Status> {
        let asked = {
            let world = self.datacenter.world();
            self.callers(&world, metadata, method)?.0
        };
        let vmids: Vec<u32> = asked.iter().filter_map(|(_, caller)| caller.as_ref().ok()).map(|it| it.vmid).collect();
        let waiting = self.until_etcd(&vmids, needs);
        let Some(timeout) = timeout(metadata) else {
            waiting.await;
            return Ok(());
        };
        let clock = self.datacenter.clients_clock();
        let spent = clock.monotonic().saturating_sub(began);
        let waited = castle_seams::deadline(clock.as_ref(), timeout.saturating_sub(spent), waiting).await;
        waited.map_err(|_| Status::deadline_exceeded("context deadline exceeded"))
    }

    /// Admits a call that has a stream of answers, for each node that it is for.
    pub(super) async fn admit<Q>(&self, method: &str, request: Request<Q>) -> Result<(Vec<Caller>, Q), Status> {
        let (metadata, _, message) = request.into_parts();
        let latency = self.latency(method);
        self.datacenter.shared.clock.sleep(latency).await;
        let fate = self.fate(method, rules::is_change(method));
        if matches!(fate, Fate::LostBefore | Fate::LostAfter) || !self.is_open() {
            return self.lost().await;
        }
        if let Fate::Refused(code, text) = &fate {
            return Err(Status::new(Code::from_i32(*code), text));
        }
        let world = self.datacenter.world();
        let (callers, _) = self.callers(&world, &metadata, method)?;
        let callers = callers.into_iter().map(|(_, caller)| caller).collect::<Result<Vec<_>, _>>()?;
        Ok((callers, message))
    }

    /// As [`Api::admit`], where only one node can be asked.
    pub(super) async fn admit_one<Q>(&self, method: &str, request: Request<Q>) -> Result<(Caller, Q), Status> {
        let (callers, message) = self.admit(method, request).await?;
        let mut callers = callers.into_iter();
        match (callers.next(), callers.next()) {
            (Some(caller), None) => Ok((caller, message)),
            _ => Err(Status::invalid_argument(format!("one-2-many proxying is not supported for method {method}"))),
        }
    }
}

/// How long a caller waits, if it said so: digits and a unit.
fn timeout(metadata: &MetadataMap) -> Option<Duration> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}

/// The streams of several nodes as one.
pub(super) fn merged<T: Send + 'static>(mut streams: Vec<BoxStream<T>>) -> Response<BoxStream<T>> {
    match streams.len() {
        1 => Response::new(streams.remove(0)),
        _ => Response::new(Box::pin(select_all(streams))),
    }
}

/// The answers of all nodes as one.
fn joined<R: Reply>(
    world: &mut World,
    callers: Vec<Aimed>,
    is_labelled: bool,
    mut work: impl FnMut(&mut World, &Caller) -> Result<R, Status>,
) -> Result<R, Status> {
    let mut all: Option<R> = None;
    for (target, caller) in callers {
        let answer = caller.and_then(|caller| work(world, &caller));
        let answer = match answer {
            Ok(mut answer) => {
                if is_labelled {
                    answer.label(&target);
                }
                answer
            }
            Err(status) if is_labelled => R::failed(&target, &status),
            Err(status) => return Err(status),
        };
        match &mut all {
            Some(all) => all.join(answer),
            None => all = Some(answer),
        }
    }
    all.ok_or_else(|| Status::invalid_argument("no node is named"))
}
