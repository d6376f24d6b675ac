//! The certificates that nodes issue: their own, and those of administrators.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;

use super::config::{Authority, Config, keys};
use super::yaml;

/// How long the certificates of servers hold.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// How long those of administrators do.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A certificate with its key.
pub(crate) struct Identity {
    pub(crate) chain: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
}

/// Whom a certificate is for.
pub(crate) struct Subject<'a> {
    pub(crate) common_name: &'a str,
    pub(crate) organizations: &'a [String],
    /// The names and addresses of a server; none for a client.
    pub(crate) names: &'a [String],
    pub(crate) from: SystemTime,
    pub(crate) until: SystemTime,
    pub(crate) serial: [u8; 16],
}

fn failed(error: &dyn std::fmt::Display) -> String {
    format!("failed to generate certificate: {error}")
}

/// The Ed25519 key of a seed, as PKCS#8.
pub(crate) fn ed25519(seed: &[u8; 32]) -> Result<KeyPair, String> {
    const HEAD: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let der: Vec<u8> = HEAD.iter().chain(seed).copied().collect();
    let der = PrivatePkcs8KeyDer::from(der);
    KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519).map_err(|error| failed(&error))
}

fn params(subject: &Subject) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::new(subject.names).map_err(|error| failed(&error))?;
    let mut name = DistinguishedName::new();
    for organization in subject.organizations {
        name.push(DnType::OrganizationName, organization.as_str());
    }
    if !subject.common_name.is_empty() {
        name.push(DnType::CommonName, subject.common_name);
    }
    params.distinguished_name = name;
    params.not_before = subject.from.into();
    params.not_after = subject.until.into();
    params.serial_number = Some(SerialNumber::from_slice(&subject.serial));
    let is_server = !subject.names.is_empty();
    let usage = if is_server { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth };
    params.extended_key_usages = vec![usage];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(params)
}

/// A certificate by this authority, for this key.
fn issue(authority: &Authority, key: &KeyPair, params: &CertificateParams) -> Result<CertificateDer<'static>, String> {
    let certificate = keys::certificate(&authority.pem)?;
    let signer = keys::key(&authority.key)?;
    let issuer = Issuer::from_ca_cert_der(&certificate, signer).map_err(|error| failed(&error))?;
    let made = params.signed_by(key, &issuer).map_err(|error| failed(&error))?;
    Ok(made.der().clone())
}

/// The certificate of a node in maintenance: by an authority that nobody knows.
pub(crate) fn of_maintenance(seeds: [[u8; 32]; 2], names: &[String], now: SystemTime) -> Result<Identity, String> {
    let [one, two] = seeds;
    let mut serial = [1; 16];
    serial[1..].copy_from_slice(&one[..15]);
    let subject = Subject {
        common_name: "maintenance-service.talos.dev",
        organizations: &[],
        names,
        from: now,
        until: now + DAY,
        serial,
    };
    let mut authority = params(&Subject { names: &[], common_name: "", ..subject })?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.key_usages.push(KeyUsagePurpose::KeyCertSign);
    authority.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    let issuer = Issuer::new(authority, ed25519(&one)?);
    let key = ed25519(&two)?;
    let made = params(&subject)?.signed_by(&key, &issuer).map_err(|error| failed(&error))?;
    Ok(Identity { chain: vec![made.der().clone()], key: private(&key) })
}

/// The certificate of a server that this authority vouches for.
pub(crate) fn of_server(
    authority: &Authority,
    seed: &[u8; 32],
    common_name: &str,
    names: &[String],
    now: SystemTime,
) -> Result<Identity, String> {
    let mut serial = [1; 16];
    serial[1..].copy_from_slice(&seed[..15]);
    let key = ed25519(seed)?;
    let subject = Subject { common_name, organizations: &[], names, from: now, until: now + DAY, serial };
    let made = issue(authority, &key, &params(&subject)?)?;
    Ok(Identity { chain: vec![made], key: private(&key) })
}

fn private(key: &KeyPair) -> PrivateKeyDer<'static> {
    PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()))
}

/// The names of a server: its host name, its addresses, itself.
pub(crate) fn names(hostname: &str, addresses: &[IpAddr], more: Vec<String>) -> Vec<String> {
    let mut names = vec![hostname.to_owned(), "127.0.0.1".to_owned()];
    for name in addresses.iter().map(ToString::to_string).chain(more) {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// A certificate and key of somebody who uses the Talos API: both as PEM.
pub(crate) fn talos_client(
    authority: &Authority,
    roles: &[String],
    seed: &[u8; 32],
    now: SystemTime,
    ttl: Duration,
) -> Result<(String, String), String> {
    let key = ed25519(seed)?;
    let mut serial = [2; 16];
    serial[1..].copy_from_slice(&seed[..15]);
    let until = now + ttl;
    let subject = Subject { common_name: "", organizations: roles, names: &[], from: now, until, serial };
    let made = issue(authority, &key, &params(&subject)?)?;
    let key = pem("ED25519 PRIVATE KEY", &key.serialize_der());
    Ok((pem("CERTIFICATE", &made), key))
}

/// What an administrator of the cluster needs to reach its Kubernetes API.
pub(crate) fn kubeconfig(config: &Config, serial: [u8; 16], now: SystemTime) -> Result<String, String> {
    let authority = config.kubernetes.as_ref().ok_or("k8s API server CA config is not set")?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|error| failed(&error))?;
    let from = now - Duration::from_secs(10);
    let organizations = ["system:masters".to_owned()];
    let subject =
        Subject { common_name: "admin", organizations: &organizations, names: &[], from, until: now + YEAR, serial };
    let mut params = params(&subject)?;
    params.key_usages.push(KeyUsagePurpose::KeyEncipherment);
    let made = issue(authority, &key, &params)?;
    let name = &config.cluster_name;
    let user = format!("admin@{name}");
    let wrapped = |text: &str| STANDARD.encode(text);
    Ok(yaml::text(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": name, "cluster": {
            "server": config.endpoint,
            "certificate-authority-data": wrapped(&authority.pem),
        }}],
        "users": [{ "name": user, "user": {
            "client-certificate-data": wrapped(&pem("CERTIFICATE", &made)),
            "client-key-data": wrapped(&key.serialize_pem()),
        }}],
        "contexts": [{ "context": { "cluster": name, "namespace": "default", "user": user }, "name": user }],
        "current-context": user,
    })))
}

/// DER as PEM.
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}
