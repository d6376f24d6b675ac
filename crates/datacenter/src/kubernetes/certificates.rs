//! Requests for certificates: people and machines ask, somebody approves, and the cluster's authority signs what is asked of it.
//!
//! Nobody approves by himself here: on real clusters the requests of agents for their own nodes are.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    CertificateSigningRequestParams, DnType, DnValue, ExtendedKeyUsagePurpose, Issuer, KeyUsagePurpose, SanType,
    SerialNumber,
};
use serde_json::{Value, json};

use super::crd::is;
use super::kube::{CONTROLLER_STATUS, Kube};
use super::request::User;
use super::status::Cause;
use super::value;
use crate::talos::config::keys;

/// The collection.
pub(crate) const REQUESTS: &str = "certificatesigningrequests.certificates.k8s.io";

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";

/// How long a certificate holds at most.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// How long it holds at least.
const LEAST: u64 = 600;
/// How much older than now it is: clocks differ.
const BACKDATED: Duration = Duration::from_secs(300);

/// What a certificate may be used for.
const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

/// Notes who asks, and that nobody has answered.
pub(crate) fn prepare(request: &mut Value, user: &User) {
    for key in ["username", "uid", "groups", "extra"] {
        value::remove(request, &format!("spec.{key}"));
    }
    for (key, known) in user.info().as_object().into_iter().flatten() {
        value::set(request, &format!("spec.{key}"), known.clone());
    }
    value::set(request, "status", json!({}));
}

/// What is asked never changes. Through `approval` it is answered, through `status` it is signed.
pub(crate) fn keep_other_half(subresource: &str, old: &Value, new: &mut Value, now: &str) {
    value::set(new, "spec", old["spec"].clone());
    if subresource.is_empty() {
        value::set(new, "status", old["status"].clone());
        return;
    }
    let list = new.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in list.into_iter().flatten() {
        for key in ["lastUpdateTime", "lastTransitionTime"] {
            if value::text(condition, key).is_empty() {
                value::set(condition, key, now);
            }
        }
    }
}

/// What is wrong with a request.
pub(crate) fn faults(request: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Err(why) = asked(request) {
        causes.push(Cause::invalid("spec.request", &request["spec"]["request"], &why));
    }
    let usages = value::items(request, "spec.usages");
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (at, usage) in usages.iter().enumerate() {
        let place = format!("spec.usages[{at}]");
        if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
            causes.push(Cause::unsupported(&place, usage, &USAGES));
        } else if usages[..at].contains(usage) {
            causes.push(Cause::duplicate(&place, usage));
        }
    }
    let signer = value::text(request, "spec.signerName");
    match signer.split_once('/') {
        None if signer.is_empty() => causes.push(Cause::required("spec.signerName", "")),
        Some((domain, path)) if domain.contains('.') && !path.is_empty() => {}
        _ => {
            let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
            causes.push(Cause::invalid("spec.signerName", &json!(signer), detail));
        }
    }
    if let Some(seconds) = value::number(request, "spec.expirationSeconds").filter(|it| *it < LEAST as i64) {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", &json!(seconds), detail));
    }
    let conditions = value::items(request, "status.conditions");
    let has = |kind: &str| conditions.iter().any(|it| value::text(it, "type") == kind);
    if has("Approved") && has("Denied") {
        let detail = "Approved and Denied conditions are mutually exclusive";
        causes.push(Cause::invalid("status.conditions", &json!("Denied"), detail));
    }
    causes
}

/// What of an answer may not be taken back, and what may not be given in this way.
pub(crate) fn changes(subresource: &str, old: &Value, new: &Value) -> Vec<Cause> {
    let of = |object: &Value, kind: &str| -> Vec<Value> {
        value::items(object, "status.conditions").iter().filter(|it| value::text(it, "type") == kind).cloned().collect()
    };
    let mut causes = Vec::new();
    for kind in ["Approved", "Denied", "Failed"] {
        let (was, is) = (of(old, kind), of(new, kind));
        if is.len() < was.len() {
            let detail = format!("updates may not remove a condition of type {kind:?}");
            causes.push(Cause::forbidden("status.conditions", &detail));
        } else if is.len() > was.len() && subresource != "approval" && kind != "Failed" {
            let detail = format!("updates may not add a condition of type {kind:?}");
            causes.push(Cause::forbidden("status.conditions", &detail));
        }
    }
    if subresource == "approval" && value::at(old, "status.certificate") != value::at(new, "status.certificate") {
        causes.push(Cause::forbidden("status.certificate", "updates may not set certificate content"));
    }
    causes
}

/// What is asked for.
fn asked(request: &Value) -> Result<CertificateSigningRequestParams, String> {
    let text = STANDARD.decode(value::text(request, "spec.request")).ok().and_then(|it| String::from_utf8(it).ok());
    let text = text.filter(|text| text.contains("-----BEGIN CERTIFICATE REQUEST-----"));
    let text = text.ok_or("PEM block type must be CERTIFICATE REQUEST")?;
    CertificateSigningRequestParams::from_pem(text.trim()).map_err(|error| error.to_string())
}

/// What keeps a signer from signing.
fn refusal(signer: &str, asked: &CertificateSigningRequestParams, usages: &[&str]) -> Option<String> {
    let name = &asked.params.distinguished_name;
    let text = |kind: &DnType| match name.get(kind) {
        Some(DnValue::Utf8String(text)) => text.clone(),
        Some(DnValue::PrintableString(text)) => text.to_string(),
        _ => String::new(),
    };
    let wanted: &[&str] = match signer {
        KUBELET_CLIENT => &["client auth", "digital signature", "key encipherment"],
        KUBELET_SERVING => &["digital signature", "key encipherment", "server auth"],
        _ => {
            let may = ["digital signature", "key encipherment", "client auth"];
            if let Some(other) = usages.iter().find(|usage| !may.contains(usage)) {
                return Some(format!("invalid usage for client certificate: {other}"));
            }
            let is_meant = usages.contains(&"client auth");
            return (!is_meant).then(|| "missing required usage for client certificate: client auth".to_owned());
        }
    };
    if text(&DnType::OrganizationName) != "system:nodes" {
        return Some("subject organization is not system:nodes".to_owned());
    }
    let names = &asked.params.subject_alt_names;
    let has_place = names.iter().any(|name| matches!(name, SanType::DnsName(_) | SanType::IpAddress(_)));
    if signer == KUBELET_SERVING && !has_place {
        return Some("DNS or IP subjectAltName is required".to_owned());
    }
    if signer == KUBELET_CLIENT && !names.is_empty() {
        return Some("DNS subjectAltNames are not allowed".to_owned());
    }
    if !text(&DnType::CommonName).starts_with("system:node:") {
        return Some("subject common name does not begin with system:node:".to_owned());
    }
    let is_fitting = usages.iter().all(|usage| wanted.contains(usage))
        && wanted.iter().all(|usage| usages.contains(usage) || *usage == "key encipherment");
    (!is_fitting).then(|| format!("usages did not match [{}]", wanted.join(" ")))
}

impl Kube {
    /// Signs a request that was approved, if it is for one of the signers of the cluster itself.
    pub(crate) fn sync_certificate_request(&mut self, request: &Arc<Value>) {
        let signer = value::text(request, "spec.signerName");
        let is_open = is(request, "Approved") && !is(request, "Failed") && !is(request, "Denied");
        let is_signed = !value::text(request, "status.certificate").is_empty();
        if !is_open || is_signed || ![CLIENT, KUBELET_CLIENT, KUBELET_SERVING].contains(&signer) {
            return;
        }
        let usages: Vec<&str> = value::items(request, "spec.usages").iter().filter_map(Value::as_str).collect();
        let seconds = value::number(request, "spec.expirationSeconds").and_then(|it| u64::try_from(it).ok());
        let lasts = seconds.map_or(YEAR, |seconds| Duration::from_secs(seconds.max(LEAST)).min(YEAR));
        let made = asked(request).and_then(|asked| match refusal(signer, &asked, &usages) {
            Some(why) => Err(why),
            None => self.sign(asked, &usages, lasts),
        });
        let now = self.stamp();
        self.amend(&CONTROLLER_STATUS, (REQUESTS, "", value::name(request)), |object| match made {
            Ok(pem) => value::set(object, "status.certificate", STANDARD.encode(pem)),
            Err(why) => {
                let told = ("SignerValidationFailure", why.as_str());
                super::crd::condition(object, &now, "Failed", "True", told);
                let list = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
                for condition in list.into_iter().flatten() {
                    value::default(condition, "lastUpdateTime", now.as_str());
                }
            }
        });
    }

    fn sign(
        &mut self,
        mut asked: CertificateSigningRequestParams,
        usages: &[&str],
        lasts: Duration,
    ) -> Result<String, String> {
        let authority = self.setup.signer.clone().ok_or("the cluster has no authority that signs")?;
        let now = SystemTime::UNIX_EPOCH + self.calendar + self.now;
        let mut serial = [1; 16];
        serial[1..].copy_from_slice(&self.bytes("kubernetes certificate")[..15]);
        let params = &mut asked.params;
        params.not_before = (now - BACKDATED).into();
        params.not_after = (now + lasts - BACKDATED).into();
        params.serial_number = Some(SerialNumber::from_slice(&serial));
        params.key_usages = Vec::new();
        params.extended_key_usages = Vec::new();
        for usage in usages {
            match *usage {
                "digital signature" => params.key_usages.push(KeyUsagePurpose::DigitalSignature),
                "key encipherment" => params.key_usages.push(KeyUsagePurpose::KeyEncipherment),
                "client auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth),
                "server auth" => params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth),
                _ => {}
            }
        }
        let (certificate, key) = (keys::certificate(&authority.pem)?, keys::key(&authority.key)?);
        let issuer = Issuer::from_ca_cert_der(&certificate, key).map_err(|error| error.to_string())?;
        Ok(asked.signed_by(&issuer).map_err(|error| error.to_string())?.pem())
    }
}
