//! Real connections with real TLS, on loopback.

use std::net::SocketAddr;
use std::sync::Arc;

use castle_seams::SystemClock;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;

use super::connection;
use crate::datacenter::Datacenter;
use crate::kubernetes::webhooks::reach::Loopback;
use crate::talos::tls;

/// Why nothing listens.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The address cannot be listened at.
    #[error("cannot listen at {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: std::io::Error,
    },
    /// There is no certificate to show.
    #[error("cannot make a certificate: {0}")]
    Certificate(String),
}

/// A datacenter that listens. Ends when it is dropped.
#[derive(Debug)]
pub struct Serving {
    /// Where it listens.
    pub address: SocketAddr,
    /// The SHA-256 of its certificate, as Proxmox shows it: `AA:BB:…`.
    pub fingerprint: String,
    /// The certificate of the authority that signed it, as PEM: for clients that believe authorities.
    pub authority: String,
    end: watch::Sender<bool>,
}

impl Serving {
    /// Stops listening, and ends all connections.
    pub fn stop(&self) {
        self.end.send_replace(true);
    }
}

impl Datacenter {
    /// Listens at this address, as the first host by name, with a certificate of its own. The nodes that have addresses
    /// of this machine (`127.0.0.0/8`) listen at theirs, as they come and go. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the address is taken, or no certificate can be made.
    pub async fn serve(&self, address: SocketAddr) -> Result<Serving, ServeError> {
        let failed = |error| ServeError::Listen { address, error };
        let host = self.world().hosts.keys().next().cloned().unwrap_or_default();
        let Identity { acceptor, fingerprint, authority } = identity(&host)?;
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.world().fingerprints.insert(host.clone(), fingerprint.clone());
        let (end, ended) = watch::channel(false);
        // Whatever time the datacenter has, the certificates that clients judge are of real time.
        self.follow_calendar(Arc::new(SystemClock::new()));
        self.reach_outside(Arc::new(Loopback));
        tokio::spawn(tls::supervise(self.clone(), ended.clone()));
        tokio::spawn(listen(self.clone(), Behind::Proxmox(host), listener, acceptor, ended));
        Ok(Serving { address, fingerprint, authority, end })
    }

    /// Listens at this address as the vault of this name, with a certificate of its own. Needs a tokio runtime with I/O.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the address is taken, or no certificate can be made.
    pub async fn serve_vault(&self, host: &str, address: SocketAddr) -> Result<Serving, ServeError> {
        let failed = |error| ServeError::Listen { address, error };
        let Identity { acceptor, fingerprint, authority } = identity(host)?;
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.world().vault_doors.insert(address.to_string(), host.to_owned());
        let (end, ended) = watch::channel(false);
        tokio::spawn(listen(self.clone(), Behind::Vault(host.to_owned()), listener, acceptor, ended));
        Ok(Serving { address, fingerprint, authority, end })
    }

    /// Listens at this address as the host of repositories of this name, with a certificate of its own. Needs a tokio runtime
    /// with I/O.
    ///
    /// # Errors
    ///
    /// [`ServeError`] if the address is taken, or no certificate can be made.
    pub async fn serve_git(&self, host: &str, address: SocketAddr) -> Result<Serving, ServeError> {
        let failed = |error| ServeError::Listen { address, error };
        let Identity { acceptor, fingerprint, authority } = identity(host)?;
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        self.world().git.listens(address.to_string(), host);
        let (end, ended) = watch::channel(false);
        tokio::spawn(listen(self.clone(), Behind::Git(host.to_owned()), listener, acceptor, ended));
        Ok(Serving { address, fingerprint, authority, end })
    }
}

/// Who answers, by name.
#[derive(Clone)]
enum Behind {
    Proxmox(String),
    Vault(String),
    Git(String),
}

async fn listen(
    datacenter: Datacenter,
    behind: Behind,
    listener: TcpListener,
    acceptor: TlsAcceptor,
    ended: watch::Receiver<bool>,
) {
    let mut end = ended.clone();
    loop {
        tokio::select! {
            biased;
            _ = end.wait_for(|ended| *ended) => return,
            accepted = listener.accept() => {
                // A connection that broke before it was one is nobody's loss.
                let Ok((stream, _)) = accepted else { continue };
                // Small answers do not wait for earlier ones to be acknowledged. Where that is refused, it is only slower.
                let _ = stream.set_nodelay(true);
                let (datacenter, behind, acceptor) = (datacenter.clone(), behind.clone(), acceptor.clone());
                let mut ended = ended.clone();
                tokio::spawn(async move {
                    let conversation = async {
                        match (acceptor.accept(stream).await, behind) {
                            (Err(_), _) => {}
                            // Whatever time the datacenter has, its clients live in real time.
                            (Ok(stream), Behind::Proxmox(host)) => {
                                connection::serve(datacenter, host, stream, Arc::new(SystemClock::new())).await;
                            }
                            (Ok(stream), Behind::Git(host)) => {
                                crate::git::line::serve(datacenter, host, stream).await;
                            }
                            (Ok(stream), Behind::Vault(host)) => {
                                crate::infisical::line::serve(datacenter, host, stream).await;
                            }
                        }
                    };
                    tokio::select! {
                        biased;
                        _ = ended.wait_for(|ended| *ended) => {}
                        () = conversation => {}
                    }
                });
            }
        }
    }
}

/// Who a listener is.
struct Identity {
    acceptor: TlsAcceptor,
    fingerprint: String,
    authority: String,
}

/// A certificate signed by an authority of its own, as a new cluster has it.
fn identity(host: &str) -> Result<Identity, ServeError> {
    let wrong = |error: &dyn std::fmt::Display| ServeError::Certificate(error.to_string());
    let generate = || KeyPair::generate().map_err(|error| wrong(&error));
    let mut authority = CertificateParams::new(Vec::new()).map_err(|error| wrong(&error))?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "Proxmox Virtual Environment");
    authority.distinguished_name.push(DnType::OrganizationName, "PVE Cluster Manager CA");
    let authority_key = generate()?;
    let shown = authority.self_signed(&authority_key).map_err(|error| wrong(&error))?.pem();
    let issuer = Issuer::new(authority, authority_key);

    let names = ["127.0.0.1", "::1", "localhost", host].map(str::to_owned).to_vec();
    let mut leaf = CertificateParams::new(names).map_err(|error| wrong(&error))?;
    leaf.distinguished_name.push(DnType::CommonName, host);
    leaf.distinguished_name.push(DnType::OrganizationName, "Proxmox Virtual Environment");
    let key = generate()?;
    let certificate = leaf.signed_by(&key, &issuer).map_err(|error| wrong(&error))?;
    let certificate = CertificateDer::from(certificate.der().to_vec());
    let digest = Sha256::digest(&certificate);
    let fingerprint = digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":");

    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .map_err(|error| wrong(&error))?;
    Ok(Identity { acceptor: TlsAcceptor::from(Arc::new(config)), fingerprint, authority: shown })
}
