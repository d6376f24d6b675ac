//! Certificates that components of a cluster make for their webhooks.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    SerialNumber,
};

use crate::kubernetes::kube::Kube;
use crate::talos::identity;

/// How long they hold, as those that MetalLB and others make for themselves.
const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 60 * 60);

/// What a component serves with, all as PEM.
#[derive(Clone)]
pub struct ServingCertificate {
    /// The certificate of the authority: what a `caBundle` holds, in base64.
    pub authority: String,
    /// Its key.
    pub authority_key: String,
    /// The certificate that is shown ([`crate::Webhook::listen`]).
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for ServingCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServingCertificate").field("authority", &self.authority).finish_non_exhaustive()
    }
}

impl Kube {
    /// Makes an authority and a certificate for these names (`metallb-webhook-service.metallb-system.svc`).
    pub(crate) fn issue_certificate(&mut self, names: &[String]) -> Result<ServingCertificate, String> {
        let from = SystemTime::UNIX_EPOCH + self.calendar + self.now;
        let [one, two] = [self.bytes("kubernetes webhook certificate"), self.bytes("kubernetes webhook certificate")];
        let params = |names: &[String], common_name: &str, seed: &[u8; 32]| {
            let mut params = CertificateParams::new(names).map_err(|error| error.to_string())?;
            params.distinguished_name.push(DnType::CommonName, common_name);
            params.not_before = (from - Duration::from_secs(3_600)).into();
            params.not_after = (from + TEN_YEARS).into();
            let mut serial = [1; 16];
            serial[1..].copy_from_slice(&seed[..15]);
            params.serial_number = Some(SerialNumber::from_slice(&serial));
            Ok::<_, String>(params)
        };
        let mut authority = params(&[], "cert", &one)?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let authority_key = identity::ed25519(&one)?;
        let key_text = authority_key.serialize_pem();
        let authority = CertifiedIssuer::self_signed(authority, authority_key).map_err(|error| error.to_string())?;
        let common_name = names.first().map(String::as_str).unwrap_or_default();
        let mut own = params(names, common_name, &two)?;
        own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let key = identity::ed25519(&two)?;
        let made = own.signed_by(&key, &authority).map_err(|error| error.to_string())?;
        Ok(ServingCertificate {
            authority: authority.pem(),
            authority_key: key_text,
            certificate: made.pem(),
            key: key.serialize_pem(),
        })
    }
}
