//! The rules of the documents about Kubernetes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::decode::Document;
use super::objections::Wrongs;
use super::rules::{listed, tag};
use super::shapes::Minor;
use super::yaml::Yaml;
use super::{keys, of_kind};

/// What is wrong with one document.
pub(super) fn faults(document: &Document) -> Wrongs {
    let value = &document.value;
    let mut wrongs = Wrongs::default();
    let lacks = |path: &str| value.text_at(path).is_none_or(str::is_empty);
    match document.kind.as_deref().unwrap_or_default() {
        kind @ ("KubeAPIServerCAConfig" | "KubeAggregatorCAConfig") => {
            let has_authority = value.at("issuingCA").is_some();
            wrongs.say(!has_authority && kind == "KubeAggregatorCAConfig", "issuing CA is not set");
            wrongs.say(has_authority && lacks("issuingCA.cert"), "issuing CA: certificate is required");
            wrongs.say(has_authority && lacks("issuingCA.key"), "issuing CA: key is required");
            let cert = value.text_at("issuingCA.cert").map(|pem| keys::certificate(pem).is_err());
            wrongs.say(cert == Some(true), "issuing CA: certificate: failed to decode PEM block");
            let key = value.text_at("issuingCA.key").map(|pem| keys::key(pem).is_err());
            wrongs.say(key == Some(true), "issuing CA: key: failed to decode PEM block");
            let bad = value.texts_at("acceptedCAs").iter().position(|pem| keys::certificate(pem).is_err());
            let text = format!("accepted CA #{}: failed to decode PEM block", bad.unwrap_or_default());
            wrongs.quote(bad.is_some(), text, Some("accepted CA: failed to decode PEM block"));
        }
        "KubeAdmissionControlConfig" => {
            wrongs.say(document.name.is_empty(), "admission control plugin name is required");
        }
        "KubeAuthorizerConfig" => {
            wrongs.say(document.name.is_empty(), "authorizer name is required");
            wrongs.say(lacks("type"), "authorizer type is required");
        }
        "KubeEtcdEncryptionConfig" => {
            let is_empty = value.at("config").and_then(Yaml::map).is_none_or(<[_]>::is_empty);
            wrongs.say(is_empty, "etcd encryption config is required");
        }
        "KubeFlannelCNIConfig" => wrongs.say(lacks("backendType"), "flannel backend type must be specified"),
        "KubeNetworkConfig" => {
            let (pods, services) = (value.texts_at("podSubnets"), value.texts_at("serviceSubnets"));
            wrongs.say(pods.is_empty(), "pod subnets: at least one subnet must be specified");
            wrongs.say(pods.contains(&""), "pod subnets: invalid subnet: invalid Prefix");
            wrongs.say(services.is_empty(), "service subnets: at least one subnet must be specified");
            wrongs.say(services.contains(&""), "service subnets: invalid subnet: invalid Prefix");
        }
        "KubeNodeConfig" => {
            for (_, effect) in value.at("taints").and_then(Yaml::map).unwrap_or_default() {
                let effect = effect.text().unwrap_or_default();
                let effect = effect.rsplit_once(':').map_or(effect, |(_, effect)| effect);
                let is_known = ["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect);
                let text = format!("invalid node taints: 1 error occurred:\n\t* invalid taint effect: {effect:?}\n\n");
                wrongs.quote(!is_known, text, Some("invalid node taints: invalid taint effect"));
            }
        }
        "KubeServiceAccountConfig" => {
            let key = value.text_at("issuer.privateKey").filter(|pem| !pem.is_empty());
            let is_bad = key.is_some_and(|pem| keys::key(pem).is_err());
            wrongs.say(is_bad, "service issuer private key is invalid: failed to parse PEM block");
        }
        "DiscoveryIdentityConfig" => {
            let secret = value.text_at("clusterSecret").unwrap_or_default();
            let is_bad = STANDARD.decode(secret).is_err();
            wrongs.say(is_bad, "invalid clusterSecret: failed to decode from base64: illegal base64 data");
        }
        _ => {}
    }
    wrongs
}

/// The generations of Kubernetes that a version of Talos runs.
fn supported(minor: Minor) -> std::ops::RangeInclusive<u32> {
    let minor = minor.max(12);
    minor + 18..=minor + 23
}

/// Where images of Kubernetes are named: what runs, the old key, the document.
const IMAGES: [(&str, &str, &str); 5] = [
    ("kubelet", "machine.kubelet.image", "KubeletConfig"),
    ("kube-apiserver", "cluster.apiServer.image", "KubeAPIServerConfig"),
    ("kube-controller-manager", "cluster.controllerManager.image", "KubeControllerManagerConfig"),
    ("kube-scheduler", "cluster.scheduler.image", "KubeSchedulerConfig"),
    ("kube-proxy", "", "KubeProxyConfig"),
];

/// Refuses images of Kubernetes that this version of Talos does not run.
pub(super) fn judge_versions(minor: Minor, version: &str, documents: &[Document]) -> Result<(), String> {
    let first = documents.iter().find(|document| document.kind.is_none()).map(|document| &document.value);
    let wrong = IMAGES.iter().filter_map(|(name, old, kind)| {
        let new = of_kind(documents, kind).next().and_then(|document| document.value.text_at("image"));
        let image = new.or_else(|| first?.text_at(old)).filter(|image| !image.is_empty())?;
        let tag = tag(image).unwrap_or_default();
        let generation = tag.trim_start_matches('v').split('.').nth(1).and_then(|part| part.parse::<u32>().ok());
        let text = match generation {
            None => format!("failed to parse Kubernetes version from image reference {image:?}"),
            Some(generation) if supported(minor).contains(&generation) => return None,
            Some(generation) => {
                let how = if generation < *supported(minor).start() { "old" } else { "new" };
                let tag = tag.trim_start_matches('v');
                format!("version of Kubernetes {tag} is too {how} to be used with Talos {version}")
            }
        };
        let whose = if new.is_some() { kind } else { "v1alpha1.Config" };
        Some((whose, format!("{name} image is not valid: {text}")))
    });
    let mut by_document: Vec<(&str, Vec<String>)> = Vec::new();
    for (whose, text) in wrong {
        match by_document.iter_mut().find(|(known, _)| *known == whose) {
            Some((_, texts)) => texts.push(text),
            None => by_document.push((whose, vec![text])),
        }
    }
    let wrong: Vec<String> = by_document.iter().map(|(whose, texts)| format!("{whose}: {}", listed(texts))).collect();
    if wrong.is_empty() { Ok(()) } else { Err(listed(&wrong)) }
}
