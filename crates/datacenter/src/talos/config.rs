//! A machine configuration: read strictly, judged by the rules of its version, and what it says.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use crate::world::guest::hex;

mod conflicts;
mod decode;
pub(crate) mod keys;
mod kubernetes;
pub(crate) mod misread;
mod names;
pub(crate) mod objections;
mod rules;
mod selectors;
pub(crate) mod shapes;
#[cfg(test)]
mod tests;
mod words;
pub(crate) mod yaml;

pub(crate) use decode::{Document, prefix};
pub(crate) use rules::tag;

use shapes::Minor;
use yaml::Yaml;

/// What a machine is in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Role {
    ControlPlane,
    Worker,
}

impl Role {
    /// The word for it.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "controlplane",
            Self::Worker => "worker",
        }
    }
}

/// An authority that certificates are issued by: the certificate, and on control planes the key.
#[derive(Clone)]
pub(crate) struct Authority {
    /// The certificates as they were written.
    pub(crate) pem: String,
    /// The key as it was written; empty where there is none.
    pub(crate) key: String,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Authority {
    /// The certificates, as far as they can be read.
    pub(crate) fn certificates(&self) -> Vec<CertificateDer<'static>> {
        keys::certificates(&self.pem)
    }

    /// Whether certificates can be issued: there is a certificate, and the key is its key.
    pub(crate) fn can_issue(&self) -> bool {
        let (certificate, key) = (keys::certificate(&self.pem), keys::key(&self.key));
        certificate.is_ok_and(|certificate| key.is_ok_and(|key| keys::belong(&certificate, &key)))
    }
}

/// Which network plugin the cluster brings up by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cni {
    Flannel,
    None,
}

/// A configuration that a node accepted, or would accept.
pub(crate) struct Config {
    /// As it was sent.
    pub(crate) text: String,
    pub(crate) documents: Vec<Document>,
    /// What tells one cluster from another: the authority of its API, and its id.
    pub(crate) key: String,
    pub(crate) role: Role,
    /// Who issues the certificates of the Talos API.
    pub(crate) os: Authority,
    /// Whose certificates are accepted besides.
    pub(crate) accepted: Vec<CertificateDer<'static>>,
    pub(crate) cluster_name: String,
    /// The address of the Kubernetes API: `https://10.0.0.1:6443`.
    pub(crate) endpoint: String,
    /// Who issues the certificates of the Kubernetes API.
    pub(crate) kubernetes: Option<Authority>,
    pub(crate) kubernetes_version: String,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("role", &self.role).finish_non_exhaustive()
    }
}

/// What became of a configuration that was looked at.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) config: Arc<Config>,
    pub(crate) warnings: Vec<String>,
}

impl Config {
    /// Reads and judges a configuration as a node of this version does: `1.13.9`.
    pub(crate) fn accept(minor: Minor, version: &str, text: &str) -> Result<Accepted, String> {
        let (documents, warnings) = Self::judge(minor, version, text, true)?;
        let config = Self::of(text, documents).ok_or_else(|| NO_MACHINE.to_owned())?;
        Ok(Accepted { config: Arc::new(config), warnings })
    }

    /// The documents of a configuration that holds, and what is to be said about them; it may have to be that of a machine.
    pub(crate) fn judge(
        minor: Minor,
        version: &str,
        text: &str,
        is_whole: bool,
    ) -> Result<(Vec<Document>, Vec<String>), String> {
        let documents = decode::decode(minor, text)?;
        if is_whole && !documents.iter().any(|document| document.kind.is_none()) {
            return Err(NO_MACHINE.to_owned());
        }
        let warnings = rules::judge(minor, &documents)?;
        kubernetes::judge_versions(minor, version, &documents)?;
        Ok((documents, warnings))
    }

    fn of(text: &str, documents: Vec<Document>) -> Option<Self> {
        let machine = documents.iter().find(|document| document.kind.is_none())?.value.clone();
        let role =
            if machine.text_at("machine.type") == Some("controlplane") { Role::ControlPlane } else { Role::Worker };
        let find = |kind: &'static str| of_kind(&documents, kind).next().map(|document| &document.value);
        let either = |kind: &'static str, key: &str, old: &str| {
            let new = find(kind).and_then(|value| value.text_at(key));
            new.or_else(|| machine.text_at(old)).unwrap_or_default().to_owned()
        };
        let kubernetes = match find("KubeAPIServerCAConfig") {
            Some(value) => Some(Authority {
                pem: value
                    .text_at("issuingCA.cert")
                    .map_or_else(|| value.texts_at("acceptedCAs").join("\n"), Into::into),
                key: value.text_at("issuingCA.key").unwrap_or_default().to_owned(),
            }),
            None => machine.at("cluster.ca").map(authority),
        };
        let image = either("KubeletConfig", "image", "machine.kubelet.image");
        let accepted = machine.at("machine.acceptedCAs").and_then(Yaml::list).unwrap_or_default();
        let accepted: Vec<_> = accepted.iter().flat_map(|value| authority(value).certificates()).collect();
        let os = machine.at("machine.ca").map_or(Authority { pem: String::new(), key: String::new() }, authority);
        let cluster_id = either("DiscoveryIdentityConfig", "clusterID", "cluster.id");
        let mut hash = Sha256::new();
        if let Some(certificate) = os.certificates().first().or(accepted.first()) {
            hash.update(certificate);
        }
        hash.update(&cluster_id);
        Some(Self {
            key: hex(&hash.finalize()[..16]),
            role,
            os,
            accepted,
            cluster_name: either("KubeClusterConfig", "clusterName", "cluster.clusterName"),
            endpoint: either("KubeClusterConfig", "endpoint", "cluster.controlPlane.endpoint"),
            kubernetes,
            kubernetes_version: tag(&image).unwrap_or_default().to_owned(),
            text: text.to_owned(),
            documents,
        })
    }

    /// The document that has no kind.
    pub(crate) fn machine(&self) -> Option<&Yaml> {
        self.documents.iter().find(|document| document.kind.is_none()).map(|document| &document.value)
    }

    /// The documents of a kind.
    pub(crate) fn documents_of<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Document> {
        of_kind(&self.documents, kind)
    }

    /// The host of the endpoint.
    pub(crate) fn endpoint_host(&self) -> &str {
        let rest = self.endpoint.split_once("://").map_or(self.endpoint.as_str(), |(_, rest)| rest);
        let rest = rest.split('/').next().unwrap_or_default();
        match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, _)) => host,
            None => rest.rsplit_once(':').map_or(rest, |(host, _)| host),
        }
    }
}

/// What a node says of a configuration that is none of a machine.
pub(crate) const NO_MACHINE: &str = "the applied machine configuration doesn't contain v1alpha1 config, \
     did you mean to patch the machine config instead?";

fn of_kind<'a>(documents: &'a [Document], kind: &'a str) -> impl Iterator<Item = &'a Document> {
    documents.iter().filter(move |document| document.kind.as_deref() == Some(kind))
}

/// A pair of the first document; what cannot be read was refused before.
fn authority(value: &Yaml) -> Authority {
    let text = |key: &str| value.text_at(key).and_then(|text| keys::unwrapped(text).ok()).unwrap_or_default();
    Authority { pem: text("crt"), key: text("key") }
}

/// The parts of an address with its prefix.
pub(crate) type Network = (IpAddr, u8);
