//! Certificates for the servers of a run.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType,
};

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct Issued {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Who signs.
pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    /// For a server on 127.0.0.1.
    pub(crate) fn server(&self) -> Issued {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        self.issue(&params)
    }

    pub(crate) fn issue(&self, params: &CertificateParams) -> Issued {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Issued { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}
