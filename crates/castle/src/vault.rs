//! The castle's vault: found by its file, opened with its identity.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::EMBEDDED_VAULT;
use castle_engine::CastleId;
use castle_http::Trust;
use castle_layers::engine;
use castle_secrets::Secret;
use castle_secrets::infisical::{Access, Client, Identity, Region};
use castle_secrets::validate::{self, Kind, Origin};
use castle_secrets::vault::keep::Shelf;
use castle_secrets::vault::{Reference, Resolver, Vault};
use castle_spec::model::{self, Infisical};
use castle_spec::values::SecretReference;

use crate::doors::Doors;
use crate::embedded;
use crate::keeping::Kept;
use crate::secret::{members, secret};
use crate::trap;

/// A vault that does not answer the first packet for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// No file of authorities is longer.
const MAX_CA_BYTES: u64 = 1 << 20;

/// The castle's vault, and its folder there.
pub(crate) struct Chamber {
    pub(crate) vault: Arc<dyn Vault>,
    pub(crate) path: String,
    resolver: Resolver,
    /// Where the cluster finds it, and as whom.
    inside: engine::Vault,
}

impl Chamber {
    /// The vault that the file names, if it names one. Nothing is asked of it yet.
    pub(crate) fn open(kept: &Kept) -> Result<Option<Self>, String> {
        let (access, address, path) = match kept.castle.secrets.as_deref() {
            None => return Ok(None),
            Some(model::Vault::Infisical(infisical)) => {
                let path = infisical.path.as_ref().map_or_else(String::new, |path| path.as_str().to_owned());
                let access = access(infisical, &kept.file, &kept.doors)?;
                (access, address(&infisical.region.to_string()), path)
            }
            Some(model::Vault::Embedded(())) => {
                let serving = embedded::find(&kept.doors)?;
                let serving =
                    serving.ok_or("the embedded datacenter does not run, and the vault is in it: castle up")?;
                let path = format!("/castle/{}/embedded", kept.castle.castle.as_str());
                (serving.vault_access()?, format!("https://{EMBEDDED_VAULT}"), path)
            }
        };
        let inside = engine::Vault {
            address,
            authority: match &access.trust {
                Trust::Authorities(pem) => Some(pem.clone()),
                _ => None,
            },
            project: access.project.clone(),
            environment: access.environment.clone(),
            path: path.clone(),
            identity: access.identity.clone(),
        };
        let access = Access { trust: kept.doors.trust(access.trust), ..access };
        let client = Client::new(access, kept.doors.dial(CONNECT_TIMEOUT), kept.doors.clock.clone());
        let vault: Arc<dyn Vault> = Arc::new(client.map_err(|error| format!("secrets.infisical: {error}"))?);
        Ok(Some(Self { resolver: Resolver::new(vault.clone()), vault, path, inside }))
    }

    /// Where it is, for people.
    pub(crate) fn address(&self) -> &str {
        &self.inside.address
    }

    /// What an entry of the castle's folder holds.
    pub(crate) async fn secret(&self, name: &str) -> Result<Secret, String> {
        let reference = Reference::new(&self.path, name);
        let mut found = self.resolver.resolve([reference.clone()]).await;
        let told = |error: castle_secrets::vault::VaultError| castle_engine::Fault::from(error);
        match found.remove(&reference) {
            Some(Ok(secret)) => {
                trap::spring("vault", secret.expose());
                Ok(secret)
            }
            Some(Err(error)) => Err(crate::stand::with_next(&told(error))),
            None => Err(format!("{reference} was not asked for")),
        }
    }

    /// The vault as the cluster reaches it.
    pub(crate) fn as_seen_inside(&self) -> engine::Vault {
        self.inside.clone()
    }

    /// What this castle has put there.
    pub(crate) fn shelf(&self, castle: &CastleId) -> Shelf {
        Shelf { vault: self.vault.clone(), path: self.path.clone(), castle: castle.clone() }
    }
}

/// The address of a region, as clients other than castle are told it.
fn address(region: &str) -> String {
    match region {
        "us" => "https://app.infisical.com".to_owned(),
        "eu" => "https://eu.infisical.com".to_owned(),
        own => own.trim_end_matches('/').to_owned(),
    }
}

fn access(infisical: &Infisical, castle_file: &Path, doors: &Doors) -> Result<Access, String> {
    let named = |key: &str, why: String| format!("secrets.infisical.{key}: {why}");
    let region = Region::parse(&infisical.region.to_string()).map_err(|error| named("region", error.to_string()))?;
    let trust = match &infisical.ca {
        Some(ca) => {
            let file = castle_file.parent().unwrap_or(Path::new("")).join(ca.as_str());
            let bytes = doors.disk.read(&file, MAX_CA_BYTES).map_err(|error| named("ca", error.to_string()))?;
            Trust::Authorities(String::from_utf8_lossy(&bytes).into_owned())
        }
        None => Trust::PublicRoots,
    };
    let identity = identity(&infisical.identity, castle_file, doors).map_err(|why| named("identity", why))?;
    let (project, environment) = (infisical.project.as_str().to_owned(), infisical.environment.as_str().to_owned());
    Ok(Access { region, trust, identity, project, environment })
}

/// A machine identity: a mapping in a SOPS file, or an object as JSON anywhere else.
fn identity(reference: &SecretReference, castle_file: &Path, doors: &Doors) -> Result<Identity, String> {
    let members = match reference {
        SecretReference::Sops { file, path } => {
            let file = castle_file.parent().unwrap_or(Path::new("")).join(file);
            members(&file, path, &["clientId", "clientSecret"], doors)?
        }
        other => {
            let text = secret(other, castle_file, doors)?;
            let object: BTreeMap<String, String> = serde_json::from_str(text.expose())
                .map_err(|_| format!("{other} is not an object with clientId and clientSecret, as JSON"))?;
            object.into_iter().map(|(name, value)| (name, Secret::from(value))).collect()
        }
    };
    let identity = Identity::of(&members).map_err(|error| error.to_string())?;
    // Before anyone is asked: three failed logins lock an identity out.
    let parts = [
        ("clientId", Kind::InfisicalClientId, &identity.client_id),
        ("clientSecret", Kind::InfisicalClientSecret, &identity.client_secret),
    ];
    for (name, kind, part) in parts {
        let origin = Origin::new(name, &reference.to_string());
        validate::check(kind, part, &origin, doors.clock.wall()).map_err(|invalid| invalid.to_string())?;
    }
    Ok(identity)
}
