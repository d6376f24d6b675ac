//! Who asks: by certificate, by token, or in the name of another.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::HeaderMap;
use rustls::pki_types::CertificateDer;
use sha2::{Digest, Sha256};

use super::api::Reply;
use super::request::{Ask, User};
use super::status::Failure;
use super::{Line, discovery, unavailable};
use crate::talos::api::Session;
use crate::talos::config::{Authority, tag};
use crate::talos::credentials;

/// How somebody shows who he is.
pub(super) struct Credentials {
    pub(super) certificate_header: Option<String>,
    pub(super) token: Option<String>,
    /// In whose name he acts.
    pub(super) impersonated: Option<User>,
}

/// The other in whose name somebody acts.
pub(super) fn impersonated(headers: &HeaderMap) -> Option<User> {
    let texts = |name: &str| -> Vec<String> {
        headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).map(str::to_owned).collect()
    };
    let name = texts("impersonate-user").into_iter().next()?;
    let mut groups = texts("impersonate-group");
    let known = if name == "system:anonymous" { "system:unauthenticated" } else { "system:authenticated" };
    if !groups.iter().any(|group| group == known) {
        groups.push(known.to_owned());
    }
    let uid = texts("impersonate-uid").into_iter().next().unwrap_or_default();
    let extra = headers.keys().filter_map(|key| {
        let name = key.as_str().strip_prefix("impersonate-extra-")?;
        Some((name.to_owned(), texts(key.as_str())))
    });
    Some(User { name, groups, uid, extra: extra.collect() })
}

/// What is known of somebody beside his name: by which certificate he came.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest: String = Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("X509SHA256={digest}")
}

impl Line {
    /// Finds out who asks, and which cluster; or answers without knowing.
    pub(super) fn identify(&self, ask: &mut Ask, credentials: &Credentials) -> Result<String, Box<Reply>> {
        let certificate = match &self.session {
            Session::Tls(certificate) => certificate.clone(),
            Session::Plain => {
                let told = credentials.certificate_header.as_ref();
                told.and_then(|text| STANDARD.decode(text).ok()).map(CertificateDer::from)
            }
        };
        let now = self.datacenter.calendar();
        let world = self.datacenter.world();
        let config = world.talos.nodes.get(&self.vmid).and_then(|node| node.config()).cloned();
        let Some(config) = config else { return Err(Box::new(unavailable("stopping"))) };
        let unauthorized = || Err(Box::new(Reply::failure(&Failure::unauthorized())));
        let authorities = config.kubernetes.as_ref().map(Authority::certificates).unwrap_or_default();
        let named = certificate.as_ref().map(|certificate| credentials::judge(Some(certificate), &authorities, now));
        let token = credentials.token.as_deref();
        let of_token = || token.and_then(|token| world.kubernetes.get(&config.key)?.token_user(token, world.now));
        ask.user = match named {
            // A certificate that names nobody is no proof of anybody.
            Some(Ok(named)) if !named.common_name.is_empty() => {
                let mut groups = named.organizations;
                groups.push("system:authenticated".to_owned());
                let extra =
                    certificate.as_ref().map(|certificate| (CREDENTIAL.to_owned(), vec![fingerprint(certificate)]));
                User { name: named.common_name, groups, uid: String::new(), extra: extra.into_iter().collect() }
            }
            Some(_) => return unauthorized(),
            None => match of_token() {
                Some(user) => user,
                None if config.anonymous_paths().contains(&ask.path) => User::master("system:anonymous"),
                None => return unauthorized(),
            },
        };
        if let Some(other) = &credentials.impersonated {
            ask.behind = Some(std::mem::replace(&mut ask.user, other.clone()));
        }
        let image = world.talos.boot(self.vmid).map_or("", |boot| boot.api_image.as_str());
        ask.version = tag(image).unwrap_or(&config.kubernetes_version).to_owned();
        if !world.is_api_ready(self.vmid) {
            return Err(Box::new(match ask.path.as_str() {
                "/livez" | "/healthz" => Reply::text(200, "ok"),
                "/readyz" => Reply::text(500, "[-]etcd failed: reason withheld\nreadyz check failed\n"),
                "/version" => Reply::object(200, discovery::version(&ask.version)),
                _ => unavailable("etcdserver: no leader"),
            }));
        }
        Ok(config.key.clone())
    }
}
