//! Real connections to nodes whose addresses are of this machine: listeners that come and go with them, and real TLS.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_seams::ByteStream;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::version::TLS13;
use rustls::{
    ALL_VERSIONS, CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig,
    SignatureScheme, SupportedProtocolVersion,
};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use super::api::{self, Session};
use super::config::{Authority, Config, Role};
use super::cosi::current_addresses;
use super::credentials::{self, Distrust};
use super::identity::{self, Identity};
use super::route::Door;
use super::{KUBERNETES_PORT, TALOS_PORT};
use crate::datacenter::Datacenter;
use crate::world::World;

/// What listens where.
type Doors = BTreeMap<SocketAddr, Door>;

impl World {
    /// What should listen on this machine.
    fn local_doors(&self) -> Doors {
        let mut doors = Doors::new();
        for node in self.talos.nodes.values() {
            for (address, _) in current_addresses(self, node) {
                for port in [TALOS_PORT, KUBERNETES_PORT] {
                    let door = self.door(address, port).ok().filter(|_| address.is_loopback());
                    doors.extend(door.map(|door| (SocketAddr::new(address, port), door)));
                }
            }
        }
        doors
    }

    /// The authority that signs for a cluster: the key is with its control planes.
    fn signer_of(&self, config: &Config) -> Option<Authority> {
        let held = self.talos.nodes.values().filter_map(|node| node.disk.config.as_ref());
        let mut signers = held.filter(|other| other.key == config.key && other.role == Role::ControlPlane);
        signers.find(|other| other.os.can_issue()).map(|other| other.os.clone())
    }
}

/// How long it takes until an address is tried again that was taken.
const AGAIN: Duration = Duration::from_secs(1);

/// A listener. It ends when its sender is dropped.
struct Listening {
    door: Door,
    end: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Opens and closes listeners as nodes come and go, until it is told to end.
pub(crate) async fn supervise(datacenter: Datacenter, ended: watch::Receiver<bool>) {
    let mut over = ended.clone();
    tokio::select! {
        biased;
        _ = over.wait_for(|ended| *ended) => {}
        () = follow(datacenter, ended) => {}
    }
}

async fn follow(datacenter: Datacenter, ended: watch::Receiver<bool>) {
    let mut open: BTreeMap<SocketAddr, Listening> = BTreeMap::new();
    let mut known = Doors::new();
    loop {
        let doors = datacenter.until(|world| Some(world.local_doors()).filter(|doors| *doors != known)).await;
        let closing: Vec<SocketAddr> = (open.iter())
            .filter(|(address, listening)| doors.get(address) != Some(&listening.door))
            .map(|(address, _)| *address)
            .collect();
        for address in closing {
            if let Some(listening) = open.remove(&address) {
                drop(listening.end);
                // Only then is the address free for the next.
                let _ = listening.task.await;
            }
        }
        let mut is_complete = true;
        for (address, door) in &doors {
            if open.contains_key(address) {
                continue;
            }
            match listen(&datacenter, *address, *door, ended.clone()).await {
                Some(listening) => drop(open.insert(*address, listening)),
                None => is_complete = false,
            }
        }
        // What is not open is missed at the next look.
        known = open.iter().map(|(address, listening)| (*address, listening.door)).collect();
        if !is_complete {
            datacenter.shared.clock.sleep(AGAIN).await;
        }
    }
}

/// Listens at an address for what is behind this door. Nothing where the address is taken, or there is no certificate.
async fn listen(
    datacenter: &Datacenter,
    address: SocketAddr,
    door: Door,
    over: watch::Receiver<bool>,
) -> Option<Listening> {
    let acceptor = acceptor(datacenter, door)?;
    let listener = TcpListener::bind(address).await.ok()?;
    let (end, mut ended) = watch::channel(false);
    let datacenter = datacenter.clone();
    let task = tokio::spawn(async move {
        loop {
            let accepted = tokio::select! {
                biased;
                _ = ended.changed() => return,
                accepted = listener.accept() => accepted,
            };
            // A connection that broke before it was one is nobody's loss.
            let Ok((stream, _)) = accepted else { continue };
            // As everywhere: where it is refused, it is only slower.
            let _ = stream.set_nodelay(true);
            let (datacenter, acceptor, mut over) = (datacenter.clone(), acceptor.clone(), over.clone());
            tokio::spawn(async move {
                tokio::select! {
                    biased;
                    _ = over.wait_for(|over| *over) => {}
                    () = converse(datacenter, door, acceptor, stream) => {}
                }
            });
        }
    });
    Some(Listening { door, end, task })
}

async fn converse(datacenter: Datacenter, door: Door, acceptor: TlsAcceptor, stream: impl ByteStream + 'static) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let presented = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).cloned();
    let session = Session::Tls(presented.map(CertificateDer::into_owned));
    match door {
        Door::Talos(vmid, apid) => api::serve(datacenter, vmid, apid, stream, session).await,
        Door::Kubernetes(vmid, life) => crate::kubernetes::serve(datacenter, vmid, life, stream, session).await,
    }
}

/// What a server shows, and whom it lets in.
fn acceptor(datacenter: &Datacenter, door: Door) -> Option<TlsAcceptor> {
    let now = datacenter.calendar();
    let (identity, judge, protocol) = {
        let mut world = datacenter.world();
        let (Door::Talos(vmid, _) | Door::Kubernetes(vmid, _)) = door;
        let now = world.by_clock_of(world.certifier_of(vmid), now);
        let mut seed = || world.chance.bytes(&format!("talos certificate {vmid}"));
        let seeds = [seed(), seed()];
        let node = world.talos.nodes.get(&vmid)?;
        let addresses: Vec<_> = current_addresses(&world, node).iter().map(|(address, _)| *address).collect();
        let hostname = node.hostname();
        match (door, node.config()) {
            (Door::Talos(..), None) => {
                let names = identity::names(&hostname, &addresses, vec!["::1".to_owned()]);
                (identity::of_maintenance(seeds, &names, now).ok()?, None, "h2")
            }
            (Door::Talos(..), Some(config)) => {
                let names = identity::names(&hostname, &addresses, config.talos_sans());
                let signer = world.signer_of(config)?;
                let identity = identity::of_server(&signer, &seeds[0], &hostname, &names, now).ok()?;
                let mut authorities = config.os.certificates();
                authorities.extend(config.accepted.iter().cloned());
                let judge = Judge::new(datacenter, vmid, authorities, true);
                (identity, Some(judge), "h2")
            }
            (Door::Kubernetes(..), config) => {
                let config = config?;
                let mut more = config.kubernetes_sans();
                more.extend(config.vips().iter().map(ToString::to_string));
                more.push(config.endpoint_host().to_owned());
                let service = ["", ".default", ".default.svc", ".default.svc.cluster.local"];
                more.extend(service.map(|part| format!("kubernetes{part}")));
                more.push("localhost".to_owned());
                let names = identity::names(&hostname, &addresses, more);
                let authority = config.kubernetes.as_ref()?;
                let identity = identity::of_server(authority, &seeds[0], "kube-apiserver", &names, now).ok()?;
                let judge = Judge::new(datacenter, vmid, Vec::new(), false);
                (identity, Some(judge), "http/1.1")
            }
        }
    };
    server_config(identity, judge, protocol).map(|config| TlsAcceptor::from(Arc::new(config)))
}

fn server_config(identity: Identity, judge: Option<Judge>, protocol: &str) -> Option<ServerConfig> {
    let builder = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    // The Talos API speaks nothing older.
    let versions: &[&SupportedProtocolVersion] = if protocol == "h2" { &[&TLS13] } else { ALL_VERSIONS };
    let builder = builder.with_protocol_versions(versions).ok()?;
    let builder = match judge {
        Some(judge) => builder.with_client_cert_verifier(Arc::new(judge)),
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_single_cert(identity.chain, identity.key).ok()?;
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Some(config)
}

/// How a client may sign, in the order in which it is asked.
const SCHEMES: [SignatureScheme; 7] = [
    SignatureScheme::RSA_PSS_SHA256,
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
    SignatureScheme::RSA_PSS_SHA384,
    SignatureScheme::RSA_PSS_SHA512,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::ECDSA_NISTP521_SHA512,
];

/// Judges the certificates of clients as calls do.
#[derive(Debug)]
struct Judge {
    datacenter: Datacenter,
    /// By whose clock.
    vmid: u32,
    authorities: Vec<CertificateDer<'static>>,
    /// Whose certificates are asked for.
    subjects: Vec<DistinguishedName>,
    /// Whether one must be shown and hold; else the calls decide.
    is_strict: bool,
}

impl Judge {
    fn new(datacenter: &Datacenter, vmid: u32, authorities: Vec<CertificateDer<'static>>, is_strict: bool) -> Self {
        let mut roots = RootCertStore::empty();
        // An authority that cannot be read vouches for nobody.
        roots.add_parsable_certificates(authorities.iter().cloned());
        Self { datacenter: datacenter.clone(), vmid, subjects: roots.subjects(), authorities, is_strict }
    }
}

impl ClientCertVerifier for Judge {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn client_auth_mandatory(&self) -> bool {
        self.is_strict
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        if !self.is_strict {
            return Ok(ClientCertVerified::assertion());
        }
        let now = self.datacenter.world().by_clock_of(self.vmid, self.datacenter.calendar());
        let judged = credentials::judge(Some(end_entity), &self.authorities, now);
        judged.map(|_| ClientCertVerified::assertion()).map_err(|distrust| {
            rustls::Error::InvalidCertificate(match distrust {
                Distrust::Missing | Distrust::Unknown => CertificateError::UnknownIssuer,
                Distrust::Expired => CertificateError::Expired,
                // As the vendor's library does: it is a bad one, and nothing more is said.
                Distrust::Usage => CertificateError::BadEncoding,
            })
        })
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &default_provider().signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &default_provider().signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        match self.is_strict {
            true => SCHEMES.to_vec(),
            false => default_provider().signature_verification_algorithms.supported_schemes(),
        }
    }
}
