//! The secrets bundle: everything that makes a cluster this one, as `talosctl gen secrets` writes it.
//!
//! [`Bundle::generate`] makes a new one, [`Bundle::load`] reads a `secrets.yaml`, [`Bundle::from_machine_config`] takes one out
//! of the configuration of a control plane, and [`Bundle::import`] tells the two apart. Whatever is read is checked as a whole:
//! a bundle exists only if nothing is wrong with it, and what is wrong is told all at once, by field and never by value.

mod problem;
mod read;
mod source;

use std::time::SystemTime;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use castle_seams::{EntropyError, KeyKind};
use castle_secrets::Secret;
use castle_yaml as yaml;
use futures_util::future::{try_join, try_join4};
use serde_json::{Value, json};
use zeroize::Zeroizing;

pub use problem::{BundleError, Note, NoteKind, Problem, ProblemKind};

use crate::model::config::Contract;
use crate::model::pki::{self, Authority, Credential, Doors, PkiError};

/// The kind of the key that signs the tokens of service accounts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ServiceAccountKey {
    /// What Talos makes. Everything that reads tokens outside of the cluster knows it; finding one takes about a second.
    #[default]
    Rsa4096,
    /// Found at once. Some programs outside of the cluster do not read its tokens.
    EcdsaP256,
}

/// What a new bundle is to be like.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The version of Talos it is for.
    pub contract: Contract,
    /// The kind of its key for service accounts.
    pub service_account: ServiceAccountKey,
}

/// What Kubernetes seals its secrets in etcd with.
#[derive(Clone, Debug)]
pub enum EncryptionSecret {
    /// What Talos makes.
    Secretbox(Secret),
    /// What Talos made until 1.2.
    AesCbc(Secret),
}

/// The secrets of a cluster.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// What the cluster is called by the discovery service: opaque, and not a secret.
    pub cluster_id: String,
    /// What discovery is sealed with: 32 bytes in base64.
    pub cluster_secret: Secret,
    /// What joins nodes to Kubernetes.
    pub bootstrap_token: Secret,
    /// What secrets in etcd are sealed with: 32 bytes in base64.
    pub encryption: EncryptionSecret,
    /// What joins nodes to Talos: the `machine.token` of every node.
    pub trustd_token: Secret,
    /// The authority of etcd.
    pub etcd: Credential,
    /// The authority of Kubernetes.
    pub kubernetes: Credential,
    /// The authority of Kubernetes' aggregation layer.
    pub aggregator: Credential,
    /// The key, as PEM, that signs the tokens of service accounts.
    pub service_account: Secret,
    /// The authority of the Talos API.
    pub talos: Credential,
}

/// A bundle that was read, and what had to be put right for that.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The bundle.
    pub bundle: Bundle,
    /// What is not as it should be, and does not matter.
    pub notes: Vec<Note>,
}

impl Bundle {
    /// Makes a new bundle. The keys are minted side by side, and nothing but the mint takes long.
    ///
    /// # Errors
    /// If a door fails.
    pub async fn generate(options: Options, doors: Doors<'_>) -> Result<Self, PkiError> {
        let draw_32 = || -> Result<Zeroizing<[u8; 32]>, EntropyError> { Ok(Zeroizing::new(doors.draw()?)) };
        let cluster_id = match options.contract {
            Contract::V1_12 | Contract::V1_13 => URL_SAFE.encode(draw_32()?),
            Contract::V1_14 => STANDARD.encode(draw_32()?),
        };
        let cluster_secret = STANDARD.encode(draw_32()?).into();
        let encryption = EncryptionSecret::Secretbox(STANDARD.encode(draw_32()?).into());
        let (bootstrap_token, trustd_token) = (token(doors)?, token(doors)?);
        let authorities = try_join4(
            pki::new_authority(Authority::Etcd, doors),
            pki::new_authority(Authority::Kubernetes, doors),
            pki::new_authority(Authority::Aggregator, doors),
            pki::new_authority(Authority::Talos, doors),
        );
        let service_account = async {
            let kind = match options.service_account {
                ServiceAccountKey::Rsa4096 => KeyKind::Rsa4096,
                ServiceAccountKey::EcdsaP256 => KeyKind::EcdsaP256,
            };
            Ok(pki::to_pem(&doors.mint.mint(kind).await?)?)
        };
        let ((etcd, kubernetes, aggregator, talos), service_account) = try_join(authorities, service_account).await?;
        Ok(Self {
            cluster_id,
            cluster_secret,
            bootstrap_token,
            encryption,
            trustd_token,
            etcd,
            kubernetes,
            aggregator,
            service_account,
            talos,
        })
    }

    /// Reads a `secrets.yaml`, decrypted.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(text: &str, now: SystemTime) -> Result<Loaded, BundleError> {
        source::Documents::parse(text)?.secrets_file()?.read(now)
    }

    /// Takes the bundle out of the configuration of a control plane, decrypted: of one document or of many.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_machine_config(text: &str, now: SystemTime) -> Result<Loaded, BundleError> {
        source::Documents::parse(text)?.machine_config()?.read(now)
    }

    /// Reads a `secrets.yaml` or the configuration of a control plane, whichever it is.
    ///
    /// # Errors
    /// Everything that is wrong with it, or that it is neither.
    pub fn import(text: &str, now: SystemTime) -> Result<Loaded, BundleError> {
        let documents = source::Documents::parse(text)?;
        if documents.has_secrets_file() {
            documents.secrets_file()?.read(now)
        } else {
            documents.machine_config()?.read(now)
        }
    }

    /// Checks it as one that is read is checked.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn validate(&self, now: SystemTime) -> Result<(), BundleError> {
        Self::load(self.save().expose(), now).map(|_| ())
    }

    /// Writes it as `talosctl gen secrets` does.
    #[must_use]
    pub fn save(&self) -> Secret {
        let (kind, encryption) = match &self.encryption {
            EncryptionSecret::Secretbox(secret) => ("secretboxencryptionsecret", secret),
            EncryptionSecret::AesCbc(secret) => ("aescbcencryptionsecret", secret),
        };
        let armoured = |text: &str| STANDARD.encode(text);
        let pair = |pair: &Credential| json!({"crt": armoured(&pair.certificate), "key": armoured(pair.key.expose())});
        let mut value = json!({
            "cluster": {"id": self.cluster_id, "secret": self.cluster_secret.expose()},
            "secrets": {"bootstraptoken": self.bootstrap_token.expose(), kind: encryption.expose()},
            "trustdinfo": {"token": self.trustd_token.expose()},
            "certs": {
                "etcd": pair(&self.etcd),
                "k8s": pair(&self.kubernetes),
                "k8saggregator": pair(&self.aggregator),
                "k8sserviceaccount": {"key": armoured(self.service_account.expose())},
                "os": pair(&self.talos),
            },
        });
        written(&mut value, yaml::emit)
    }
}

/// Writes a value that holds secrets, and wipes it.
pub(super) fn written(value: &mut Value, emit: impl Fn(&Value) -> String) -> Secret {
    let text = emit(value).into();
    yaml::wipe(value);
    text
}

/// Six characters, a dot, and sixteen.
fn token(doors: Doors<'_>) -> Result<Secret, EntropyError> {
    const CHARACTERS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    // The largest multiple of 36 in a byte: what lies above would make some characters likelier than others.
    const FAIR: u8 = 252;
    let mut token = Zeroizing::new(String::with_capacity(23));
    while token.len() < 23 {
        if token.len() == 6 {
            token.push('.');
        }
        let [byte] = doors.draw()?;
        if byte < FAIR {
            token.push(char::from(CHARACTERS[usize::from(byte % 36)]));
        }
    }
    Ok(token.into())
}

#[cfg(test)]
mod tests;
