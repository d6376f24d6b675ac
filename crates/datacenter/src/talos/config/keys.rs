//! Certificates and keys as configurations carry them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{KeyPair, PublicKeyData};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The text inside of base64. Line breaks in it are left out, as the vendor does; any other white space is wrong.
pub(crate) fn unwrapped(text: &str) -> Result<String, String> {
    let bare: String = text.split(['\n', '\r']).collect();
    let bytes = STANDARD.decode(bare).map_err(|_| "illegal base64 data".to_owned())?;
    String::from_utf8(bytes).map_err(|_| "illegal base64 data".to_owned())
}

/// The certificate in a PEM text.
pub(crate) fn certificate(pem: &str) -> Result<CertificateDer<'static>, String> {
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|_| "failed to parse PEM block".to_owned())
}

/// All certificates in a PEM text.
pub(crate) fn certificates(pem: &str) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok).collect()
}

/// The key in a PEM text, whatever its label.
pub(crate) fn key(pem: &str) -> Result<KeyPair, String> {
    let wrong = || "failed to parse private key".to_owned();
    // What is under Talos' own label is PKCS#8.
    let plain = pem.replace("ED25519 PRIVATE KEY", "PRIVATE KEY");
    let der = PrivateKeyDer::from_pem_slice(plain.as_bytes()).map_err(|_| wrong())?;
    KeyPair::try_from(&der).map_err(|_| wrong())
}

/// Whether a certificate is for this key.
pub(crate) fn belong(certificate: &CertificateDer<'_>, key: &KeyPair) -> bool {
    x509_parser::parse_x509_certificate(certificate)
        .is_ok_and(|(_, parsed)| parsed.public_key().raw == key.subject_public_key_info())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_breaks_inside_base64_do_no_harm() {
        assert_eq!(unwrapped("aGVs\nbG8=\n").unwrap(), "hello");
        assert!(unwrapped("aGVs bG8=").is_err());
    }

    #[test]
    fn a_certificate_knows_its_key() {
        let (one, two) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let made = rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&one).unwrap();
        let made = certificate(&made.pem()).unwrap();
        assert!(belong(&made, &key(&one.serialize_pem()).unwrap()));
        assert!(!belong(&made, &key(&two.serialize_pem()).unwrap()));
        assert!(key("no key").is_err() && certificate("none").is_err());
    }
}
