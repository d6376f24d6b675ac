//! Where the fields of a bundle stand in the texts that can hold one.

use castle_yaml as yaml;
use serde_json::Value;

use super::problem::{BundleError, Problem, ProblemKind};

/// A field: what it is called in its text, and what stands there.
#[derive(Clone, Copy)]
pub(super) struct Field<'v> {
    pub(super) name: &'static str,
    pub(super) value: Option<&'v Value>,
    /// Whether PEM is written as it is, not wrapped in base64.
    pub(super) plain: bool,
}

/// The fields of a bundle.
pub(super) struct Source<'v> {
    pub(super) cluster_id: Field<'v>,
    pub(super) cluster_secret: Field<'v>,
    pub(super) bootstrap_token: Field<'v>,
    pub(super) secretbox: Field<'v>,
    pub(super) aescbc: Field<'v>,
    pub(super) trustd_token: Field<'v>,
    /// Certificate and key, as of the other authorities.
    pub(super) etcd: [Field<'v>; 2],
    pub(super) kubernetes: [Field<'v>; 2],
    pub(super) aggregator: [Field<'v>; 2],
    pub(super) service_account: Field<'v>,
    pub(super) talos: [Field<'v>; 2],
}

/// The documents of a text that holds secrets. They are wiped in the end.
pub(super) struct Documents(Vec<Value>);

impl Drop for Documents {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(yaml::wipe);
    }
}

/// Every mapping of a `secrets.yaml` and the keys it may have.
const SECRETS_FILE: [(&str, &[&str]); 10] = [
    ("", &["cluster", "secrets", "trustdinfo", "certs"]),
    ("cluster", &["id", "secret"]),
    ("secrets", &["bootstraptoken", "aescbcencryptionsecret", "secretboxencryptionsecret"]),
    ("trustdinfo", &["token"]),
    ("certs", &["etcd", "k8s", "k8saggregator", "k8sserviceaccount", "os"]),
    ("certs.etcd", &["crt", "key"]),
    ("certs.k8s", &["crt", "key"]),
    ("certs.k8saggregator", &["crt", "key"]),
    ("certs.k8sserviceaccount", &["key"]),
    ("certs.os", &["crt", "key"]),
];

impl Documents {
    pub(super) fn parse(text: &str) -> Result<Self, BundleError> {
        let documents = Self(yaml::parse(text)?);
        let is_sealed = |document: &Value| at(document, "sops.mac").is_some();
        if documents.0.iter().any(is_sealed) { Err(BundleError::Sealed) } else { Ok(documents) }
    }

    fn with_key(&self, key: &str) -> Result<&Value, BundleError> {
        let mut found = self.0.iter().filter(|document| document.get(key).is_some());
        let document = found.next().ok_or(BundleError::Unknown)?;
        if found.next().is_some() { Err(BundleError::Several) } else { Ok(document) }
    }

    pub(super) fn has_secrets_file(&self) -> bool {
        self.0.iter().any(|document| document.get("certs").is_some())
    }

    /// The fields of a `secrets.yaml`.
    pub(super) fn secrets_file(&self) -> Result<Source<'_>, BundleError> {
        let document = self.with_key("certs")?;
        let mut problems = Vec::new();
        for (name, known) in SECRETS_FILE {
            match at(document, name) {
                Some(Value::Object(entries)) => {
                    if entries.keys().any(|key| !known.contains(&key.as_str())) {
                        let field = if name.is_empty() { "the bundle" } else { name };
                        problems.push(Problem { field, kind: ProblemKind::UnknownKey });
                    }
                }
                None | Some(Value::Null) => {}
                Some(_) => problems.push(Problem { field: name, kind: ProblemKind::NotMapping }),
            }
        }
        // Of a text of another shape there is nothing to be said in detail.
        if !problems.is_empty() {
            return Err(BundleError::Problems(problems));
        }
        let field = |name| Field { name, value: at(document, name), plain: false };
        Ok(Source {
            cluster_id: field("cluster.id"),
            cluster_secret: field("cluster.secret"),
            bootstrap_token: field("secrets.bootstraptoken"),
            secretbox: field("secrets.secretboxencryptionsecret"),
            aescbc: field("secrets.aescbcencryptionsecret"),
            trustd_token: field("trustdinfo.token"),
            etcd: [field("certs.etcd.crt"), field("certs.etcd.key")],
            kubernetes: [field("certs.k8s.crt"), field("certs.k8s.key")],
            aggregator: [field("certs.k8saggregator.crt"), field("certs.k8saggregator.key")],
            service_account: field("certs.k8sserviceaccount.key"),
            talos: [field("certs.os.crt"), field("certs.os.key")],
        })
    }

    /// The fields of the configuration of a control plane. From 1.14 most have documents of their own.
    pub(super) fn machine_config(&self) -> Result<Source<'_>, BundleError> {
        let main = self.with_key("machine")?;
        match at(main, "machine.type").and_then(Value::as_str) {
            Some("controlplane" | "init") => {}
            Some("worker" | "join") => return Err(BundleError::Worker),
            _ => return Err(BundleError::Unknown),
        }
        let field = |name| Field { name, value: at(main, name), plain: false };
        // A name in a document of its own is `KIND.PATH`.
        let own = |name: &'static str, old: &'static str| match self.own(name) {
            None => field(old),
            value => Field { name, value, plain: true },
        };
        let own_secretbox = "KubeEtcdEncryptionConfig.config";
        let secretbox = match self.own(own_secretbox) {
            None => field("cluster.secretboxEncryptionSecret"),
            Some(config) => Field { name: own_secretbox, value: secretbox_key(config), plain: true },
        };
        Ok(Source {
            cluster_id: own("DiscoveryIdentityConfig.clusterID", "cluster.id"),
            cluster_secret: own("DiscoveryIdentityConfig.clusterSecret", "cluster.secret"),
            bootstrap_token: field("cluster.token"),
            secretbox,
            aescbc: field("cluster.aescbcEncryptionSecret"),
            trustd_token: field("machine.token"),
            etcd: [field("cluster.etcd.ca.crt"), field("cluster.etcd.ca.key")],
            kubernetes: [
                own("KubeAPIServerCAConfig.issuingCA.cert", "cluster.ca.crt"),
                own("KubeAPIServerCAConfig.issuingCA.key", "cluster.ca.key"),
            ],
            aggregator: [
                own("KubeAggregatorCAConfig.issuingCA.cert", "cluster.aggregatorCA.crt"),
                own("KubeAggregatorCAConfig.issuingCA.key", "cluster.aggregatorCA.key"),
            ],
            service_account: own("KubeServiceAccountConfig.issuer.privateKey", "cluster.serviceAccount.key"),
            talos: [field("machine.ca.crt"), field("machine.ca.key")],
        })
    }

    fn own(&self, name: &str) -> Option<&Value> {
        let (kind, path) = name.split_once('.')?;
        let is_kind = |document: &&Value| document.get("kind").and_then(Value::as_str) == Some(kind);
        at(self.0.iter().find(is_kind)?, path)
    }
}

/// The value at a path of keys. An empty one is the value itself.
fn at<'v>(value: &'v Value, path: &str) -> Option<&'v Value> {
    path.split('.').filter(|key| !key.is_empty()).try_fold(value, |value, key| value.get(key))
}

/// The first key of the first sealing of secrets, if it is a secretbox: as Talos takes it out.
fn secretbox_key(config: &Value) -> Option<&Value> {
    let seals_secrets = |resource: &&Value| {
        let kinds = resource.get("resources").and_then(Value::as_array);
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind == "secrets"))
    };
    let resource = config.get("resources")?.as_array()?.iter().find(seals_secrets)?;
    resource.get("providers")?.get(0)?.get("secretbox")?.get("keys")?.get(0)?.get("secret")
}
