//! The secrets of one castle, the same in every run, and the configurations made of them.

use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PKCS_ED25519, SerialNumber,
};

/// Some day before the virtual clock begins.
fn yesterday() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_789_000_000)
}

const YEARS: Duration = Duration::from_secs(5 * 365 * 86_400);

fn key(seed: u8) -> KeyPair {
    let mut der = vec![0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    der.extend([seed; 32]);
    KeyPair::from_pkcs8_der_and_sign_algo(&der.into(), &PKCS_ED25519).unwrap()
}

fn params(organization: &str, seed: u8) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, organization);
    params.not_before = yesterday().into();
    params.not_after = (yesterday() + YEARS).into();
    params.serial_number = Some(SerialNumber::from_slice(&[seed; 8]));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params
}

/// An authority and its key.
pub(crate) struct Authority {
    certificate: Certificate,
    seed: u8,
}

impl Authority {
    fn new(organization: &str, seed: u8) -> Self {
        let mut params = params(organization, seed);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages.push(KeyUsagePurpose::KeyCertSign);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        Self { certificate: params.self_signed(&key(seed)).unwrap(), seed }
    }

    pub(crate) fn pem(&self) -> String {
        self.certificate.pem()
    }

    pub(crate) fn key_pem(&self) -> String {
        key(self.seed).serialize_pem().replace("PRIVATE KEY", "ED25519 PRIVATE KEY")
    }

    /// The certificate of a client: as base64 of its DER.
    pub(crate) fn client(&self, organization: &str, change: impl FnOnce(&mut CertificateParams)) -> String {
        let made = self.identity(organization, change).0;
        STANDARD.encode(made)
    }

    /// The certificate of a client and its key, as DER.
    pub(crate) fn identity(
        &self,
        organization: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (Vec<u8>, Vec<u8>) {
        let mut params = params(organization, self.seed + 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        change(&mut params);
        let issuer = Issuer::from_ca_cert_der(self.certificate.der(), key(self.seed)).unwrap();
        let own = key(self.seed + 1);
        (params.signed_by(&own, &issuer).unwrap().der().to_vec(), own.serialize_der())
    }
}

/// A castle's secrets.
pub(crate) struct Castle {
    pub(crate) os: Authority,
    pub(crate) kubernetes: Authority,
    pub(crate) etcd: Authority,
    id: String,
}

/// What differs between configurations of one castle.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) endpoint: String,
    pub(crate) vip: Option<String>,
    pub(crate) discovery: bool,
    pub(crate) kubernetes: String,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            endpoint: "https://10.0.0.50:6443".to_owned(),
            vip: Some("10.0.0.50".to_owned()),
            discovery: true,
            kubernetes: "v1.36.3".to_owned(),
        }
    }
}

impl Castle {
    pub(crate) fn new(seed: u8) -> Self {
        let id = STANDARD.encode([seed; 32]);
        let of = |name, more| Authority::new(name, seed + more);
        Self { os: of("talos", 0), kubernetes: of("kubernetes", 10), etcd: of("etcd", 20), id }
    }

    /// The certificate of its administrator.
    pub(crate) fn admin(&self) -> String {
        self.os.client("os:admin", |_| {})
    }

    /// The certificate of its administrator of Kubernetes.
    pub(crate) fn kubernetes_admin(&self) -> String {
        self.kubernetes.client("system:masters", |params| {
            params.distinguished_name.push(DnType::CommonName, "admin");
        })
    }

    /// The configuration of a control plane or a worker, as 1.13 has it.
    pub(crate) fn config(&self, is_control_plane: bool, wanted: &Wanted) -> String {
        let wrapped = |text: &str| STANDARD.encode(text);
        let pair = |authority: &Authority, indent: &str| {
            let key = if is_control_plane { wrapped(&authority.key_pem()) } else { "\"\"".to_owned() };
            format!("{indent}crt: {}\n{indent}key: {key}\n", wrapped(&authority.pem()))
        };
        let role = if is_control_plane { "controlplane" } else { "worker" };
        let mut text = format!(
            "version: v1alpha1\nmachine:\n  type: {role}\n  token: abcdef.0123456789abcdef\n  ca:\n{}  kubelet:\n    \
             image: ghcr.io/siderolabs/kubelet:{}\ncluster:\n  id: {}\n  secret: {}\n  controlPlane:\n    endpoint: {}\n  \
             clusterName: blue\n  token: abcdef.0123456789abcdef\n  ca:\n{}  discovery:\n    enabled: {}\n",
            pair(&self.os, "    "),
            wanted.kubernetes,
            self.id,
            STANDARD.encode([7; 32]),
            wanted.endpoint,
            pair(&self.kubernetes, "    "),
            wanted.discovery,
        );
        if is_control_plane {
            text += &format!("  secretboxEncryptionSecret: {}\n  etcd:\n    ca:\n", STANDARD.encode([9; 32]));
            text += &pair(&self.etcd, "      ");
            if let Some(vip) = &wanted.vip {
                text += &format!("---\napiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: {vip}\nlink: eth0\n");
            }
        }
        text
    }

    /// The configuration of a control plane or a worker, as 1.14 has it.
    pub(crate) fn config_14(&self, is_control_plane: bool, wanted: &Wanted) -> String {
        let block = |pem: &str| pem.lines().map(|line| format!("    {line}\n")).collect::<String>();
        let wrapped = |text: &str| STANDARD.encode(text);
        let pair = |authority: &Authority| {
            let key = if is_control_plane { wrapped(&authority.key_pem()) } else { "\"\"".to_owned() };
            format!("crt: {}\n      key: {key}\n", wrapped(&authority.pem()))
        };
        let document = |kind: &str, rest: &str| format!("---\napiVersion: v1alpha1\nkind: {kind}\n{rest}");
        let image = |name: &str| format!("image: registry.k8s.io/{name}:{}\n", wanted.kubernetes);
        let endpoint = &wanted.endpoint;
        let (role, token) = (if is_control_plane { "controlplane" } else { "worker" }, "abcdef.0123456789abcdef");
        let mut text = [
            format!("machine:\n    type: {role}\n    token: {token}\n    ca:\n      {}", pair(&self.os)),
            format!("cluster:\n    token: {token}\n"),
            if is_control_plane { format!("    etcd:\n     ca:\n      {}", pair(&self.etcd)) } else { String::new() },
            document("DiscoveryServiceConfig", "name: default\nendpoint: https://discovery.talos.dev/\n"),
            document("DiscoveryIdentityConfig", &format!("clusterID: {0}\nclusterSecret: {0}\n", self.id)),
            document("KubeClusterConfig", &format!("clusterName: blue\nendpoint: {endpoint}\n")),
            document("KubeletConfig", &image("kubelet")),
        ]
        .concat();
        let (certificate, key) = (block(&self.kubernetes.pem()), block(&self.kubernetes.key_pem()));
        if !is_control_plane {
            return text + &document("KubeAPIServerCAConfig", &format!("acceptedCAs:\n  - |\n{certificate}"));
        }
        let authority = format!("issuingCA:\n  cert: |\n{certificate}  key: |\n{key}");
        let anonymous = "configuration:\n  anonymous:\n    enabled: true\n    conditions:\n      - path: /readyz\n";
        for (kind, rest) in [
            ("KubeNodeConfig", "labels:\n    node-role.kubernetes.io/control-plane: \"\"\n"),
            ("KubeAPIServerConfig", &image("kube-apiserver")),
            ("KubeAPIServerCAConfig", &authority),
            ("KubeEtcdEncryptionConfig", "config:\n  resources: []\n"),
            ("KubeFlannelCNIConfig", "backendType: vxlan\n"),
            ("KubeCoreDNSConfig", "enabled: true\n"),
            ("KubeAuthenticationConfig", anonymous),
        ] {
            text += &document(kind, rest);
        }
        text
    }
}
