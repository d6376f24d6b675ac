//! What must hold in and between the documents of a configuration, in the vendor's words.

use super::decode::Document;
use super::objections::{Objection, Wrong, Wrongs};
use super::shapes::{self, Kind, Minor, SHAPES, Shape};
use super::yaml::Yaml;
use super::{conflicts, kubernetes, names, of_kind, prefix, selectors};

/// All that the rules find in a configuration.
struct Found<'d> {
    of_machine: Wrongs,
    of_documents: Vec<(&'d Document, Wrongs)>,
    between: Wrongs,
    warnings: Vec<String>,
}

fn found(minor: Minor, documents: &[Document]) -> Found<'_> {
    let mut warnings = Vec::new();
    let first = documents.iter().find(|document| document.kind.is_none()).map(|document| &document.value);
    let of_machine = first.map(|machine| of_machine(minor, machine, &mut warnings)).unwrap_or_default();
    let of_documents = documents.iter().map(|document| (document, of_document(minor, document))).collect();
    let mut wrongs = conflicts::found(documents, first);
    if minor >= 14 {
        wrongs.extend(between(documents, first));
    }
    Found { of_machine, of_documents, between: wrongs, warnings }
}

/// Judges a configuration without regard to where it runs: warnings, or all that is wrong.
pub(super) fn judge(minor: Minor, documents: &[Document]) -> Result<Vec<String>, String> {
    let Found { of_machine, of_documents, between, warnings } = found(minor, documents);
    let mut errors = Vec::new();
    if !of_machine.is_empty() {
        errors.push(format!("v1alpha1.Config: {}", listed(&of_machine.texts())));
    }
    for (document, found) in of_documents.iter().filter(|(_, found)| !found.is_empty()) {
        let kind = document.kind.as_deref().unwrap_or_default();
        let id = if has_name(minor, kind) { format!("{kind}/{}", document.name) } else { kind.to_owned() };
        errors.push(format!("{id}: {}", found.texts().join("\n")));
    }
    errors.extend(between.texts());
    if errors.is_empty() { Ok(warnings) } else { Err(listed(&errors)) }
}

/// The same without any value, as far as it is certain.
pub(super) fn objections(minor: Minor, documents: &[Document]) -> Vec<Objection> {
    let Found { of_machine, of_documents, between, .. } = found(minor, documents);
    let of_documents = of_documents.into_iter().map(|(document, found)| (document.kind.as_deref(), found));
    let all = [(None, of_machine)].into_iter().chain(of_documents).chain([(None, between)]);
    all.flat_map(|(kind, found)| found.into_iter().filter_map(move |wrong: Wrong| wrong.objection(kind))).collect()
}

/// Several errors as one text.
pub(super) fn listed(errors: &[String]) -> String {
    let count =
        if errors.len() == 1 { "1 error occurred:".to_owned() } else { format!("{} errors occurred:", errors.len()) };
    let lines: String = errors.iter().map(|error| format!("\t* {error}\n")).collect();
    format!("{count}\n{lines}\n")
}

fn has_name(minor: Minor, kind: &str) -> bool {
    shapes::document(minor, kind).is_some_and(|shape| shape.field(minor, "name").is_some())
}

/// The rules of the first document.
fn of_machine(minor: Minor, config: &Yaml, warnings: &mut Vec<String>) -> Wrongs {
    let mut wrongs = Wrongs::default();
    let Some(machine) = config.at("machine") else {
        wrongs.say(true, "machine instructions are required");
        return wrongs;
    };
    let has = |path: &str| config.text_at(path).is_some_and(|text| !text.is_empty());
    let role = machine.text_at("type").unwrap_or_default();
    let is_control_plane = role == "controlplane";
    let is_worker = ["worker", ""].contains(&role);
    if role.is_empty() {
        warnings.push("use \"worker\" instead of \"\" for machine type".to_owned());
    }
    match config.at("cluster") {
        None => wrongs.say(true, "cluster instructions are required"),
        Some(cluster) => {
            let endpoint = cluster.text_at("controlPlane.endpoint");
            let needs_endpoint = minor < 14 || cluster.at("controlPlane").is_some();
            wrongs.say(needs_endpoint && endpoint.is_none(), "cluster controlplane endpoint is required");
            let wrong = endpoint.and_then(endpoint_fault);
            let text = format!("invalid controlplane endpoint: {}", wrong.unwrap_or_default());
            wrongs.quote(wrong.is_some(), text, Some("invalid controlplane endpoint"));
            wrongs.say(
                !is_control_plane && cluster.at("etcd").is_some(),
                "etcd config is only allowed on control plane machines",
            );
            let lacks_pair = is_control_plane && cluster.at("etcd").is_some() && cluster.at("etcd.ca").is_none();
            wrongs.say(lacks_pair, "key/cert combination should not be empty");
            let has_key = !is_control_plane && has("cluster.ca.key");
            wrongs.say(has_key, "cluster CA key is not allowed on non-controlplane nodes (.cluster.ca)");
            if minor < 14 && cluster.bool_at("discovery.enabled") == Some(true) {
                let is_off = cluster.bool_at("discovery.registries.service.disabled") == Some(true);
                wrongs.say(!is_off && !has("cluster.id"), "cluster discovery service requires .cluster.id");
                wrongs.say(!is_off && !has("cluster.secret"), "cluster discovery service requires .cluster.secret");
            }
            for name in duplicates(cluster) {
                let bare = "the name of an inline manifest is there twice";
                wrongs.quote(true, format!("inline manifest name {name:?} is duplicate"), Some(bare));
            }
        }
    }
    let forwards = machine.bool_at("features.hostDNS.forwardKubeDNSToHost") == Some(true);
    wrongs.say(
        minor >= 13 && forwards && machine.bool_at("features.hostDNS.enabled") != Some(true),
        "feature hostDNS.forwardKubeDNSToHost requires hostDNS.enabled to be true (.machine.features.hostDNS)",
    );
    let has_authority = machine.at("ca").is_some();
    let has_accepted = machine.at("acceptedCAs").and_then(Yaml::list).is_some_and(|list| !list.is_empty());
    wrongs.say(
        !has_authority && !has_accepted,
        "issuing CA or some accepted CAs are required (.machine.ca, machine.acceptedCAs)",
    );
    if is_control_plane {
        let cni = config.text_at("cluster.network.cni.name").unwrap_or("flannel");
        let is_known = ["flannel", "custom", "none"].contains(&cni);
        wrongs.say(!is_known, "cni name should be one of [\"flannel\", \"custom\", \"none\"]");
        let has_urls = !config.texts_at("cluster.network.cni.urls").is_empty();
        let bare = "the URLs of a CNI are for the one that is called custom";
        let is_odd = has_urls && ["flannel", "none"].contains(&cni);
        wrongs.quote(is_odd, format!("\"urls\" field should be empty for {cni:?} CNI"), Some(bare));
        if cni == "custom" && !has_urls {
            warnings.push("\"urls\" field should not be empty for \"custom\" CNI".to_owned());
        }
        wrongs.say(!has_authority, "issuing CA is required (.machine.ca)");
        let has_key = has("machine.ca.key");
        wrongs.say(has_authority && !has_key, "issuing CA key is required for controlplane nodes (.machine.ca.key)");
    } else if is_worker {
        let devices = machine.at("network.interfaces").and_then(Yaml::list).unwrap_or_default();
        let has_vip = devices.iter().any(|device| device.at("vip").is_some());
        wrongs.say(has_vip, "virtual (shared) IP is not allowed on non-controlplane nodes");
        let (has_key, has_crt) = (has("machine.ca.key"), has("machine.ca.crt"));
        wrongs.say(has_key, "issuing Talos API CA key is not allowed on non-controlplane nodes (.machine.ca)");
        let lacks = has_authority && !has_crt && !has_accepted;
        wrongs.say(
            lacks,
            "trusted CA certificates are required on non-controlplane nodes (.machine.ca.crt, .machine.acceptedCAs)",
        );
        let has_key = has("cluster.ca.key");
        wrongs.say(has_key, "issuing Kubernetes API CA key is not allowed on non-controlplane nodes (.cluster.ca)");
    } else {
        wrongs.quote(true, format!("unknown machine type {role:?}"), Some("unknown machine type"));
    }
    for subnet in machine.texts_at("kubelet.nodeIP.validSubnets") {
        let subnet = subnet.trim_start_matches('!');
        let is_fit = prefix(subnet).is_some() || subnet.parse::<std::net::IpAddr>().is_ok();
        let text = format!("kubelet nodeIP subnet is not valid: {subnet:?}");
        wrongs.quote(!is_fit, text, Some("kubelet nodeIP subnet is not valid"));
    }
    for field in PROTECTED {
        let is_there = machine.at("kubelet.extraConfig").is_some_and(|value| value.at(field).is_some());
        let text = format!("kubelet configuration field {field:?} can't be overridden");
        wrongs.quote(is_there, text, Some("a kubelet configuration field is set that Talos sets itself"));
    }
    for (what, fault) in [
        ("invalid machine node labels", names::labels(machine.at("nodeLabels"))),
        ("invalid machine node annotations", names::annotations(machine.at("nodeAnnotations"))),
        ("invalid machine node taints", names::taints(machine.at("nodeTaints"))),
    ] {
        let text = fault.as_deref().unwrap_or_default();
        wrongs.quote(fault.is_some(), format!("{what}: {text}"), Some(what));
    }
    wrongs.say(config.bool_at("persist") == Some(false), ".persist should be enabled");
    wrongs
}

/// The settings of the kubelet that Talos makes itself.
const PROTECTED: [&str; 13] = [
    "apiVersion",
    "authentication",
    "authorization",
    "cgroupRoot",
    "kind",
    "kubeletCgroups",
    "port",
    "protectKernelDefaults",
    "resolvConf",
    "rotateCertificates",
    "systemCgroups",
    "staticPodPath",
    "seccompDefault",
];

/// The names of inline manifests that are there twice.
fn duplicates(cluster: &Yaml) -> Vec<String> {
    let manifests = cluster.at("inlineManifests").and_then(Yaml::list).unwrap_or_default();
    let names: Vec<&str> = manifests.iter().filter_map(|manifest| manifest.text_at("name")).collect();
    let twice = names.iter().enumerate().filter(|(index, name)| names[..*index].contains(name));
    twice.map(|(_, name)| (*name).to_owned()).collect()
}

/// A time such as `1m30s`, in seconds.
fn seconds(text: &str) -> Option<f64> {
    let (mut left, mut total) = (text, 0.0);
    while !left.is_empty() {
        let end = left.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, rest) = left.split_at(end);
        let units = [("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9), ("h", 3_600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, length) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        total += number.parse::<f64>().ok()? * length;
        left = &rest[unit.len()..];
    }
    Some(total)
}

fn endpoint_fault(endpoint: &str) -> Option<&'static str> {
    let Some((_, rest)) = endpoint.split_once("://") else { return Some("hostname must not be blank") };
    let host = rest.split('/').next().unwrap_or_default();
    host.rsplit_once(':').map_or(host, |(host, _)| host).is_empty().then_some("hostname must not be blank")
}

/// The rules of one document: what it must have, and what else its kind wants.
fn of_document(minor: Minor, document: &Document) -> Wrongs {
    let Some(shape) = document.kind.as_deref().and_then(|kind| shapes::document(minor, kind)) else {
        return Wrongs::default();
    };
    let value = &document.value;
    let mut wrongs = Wrongs::default();
    for text in lacking(minor, shape, value) {
        wrongs.quote(true, text, None);
    }
    match shape.name.as_str() {
        "HostnameConfig" => {
            let (auto, name) = (value.text_at("auto"), value.text_at("hostname").unwrap_or_default());
            let is_nothing = auto.is_none_or(|auto| auto == "off" && minor < 13) && name.is_empty();
            wrongs.say(is_nothing, "either 'auto' or 'hostname' must be set");
            let is_both = auto.is_some_and(|auto| auto != "off") && !name.is_empty();
            wrongs.say(is_both, "'auto' and 'hostname' cannot be set at the same time");
            let label = name.split('.').next().unwrap_or_default();
            let is_long = label.is_empty() || label.len() > 63;
            let text = format!("invalid hostname {label:?}");
            wrongs.quote(!name.is_empty() && is_long, text, Some("invalid hostname"));
            wrongs.quote(name.len() > 253, format!("fqdn is too long: {}", name.len()), Some("fqdn is too long"));
        }
        "Layer2VIPConfig" => {
            let name = &document.name;
            let is_bad = !name.is_empty() && name.parse::<std::net::IpAddr>().is_err();
            let text = format!("name must be a valid IP address: ParseAddr({name:?}): unable to parse IP");
            wrongs.quote(is_bad, text, Some("name must be a valid IP address"));
            wrongs.say(value.text_at("link").is_none(), "link must be specified");
        }
        "LinkAliasConfig" => match value.text_at("selector.match") {
            None => wrongs.say(true, "link selector is required"),
            Some(text) => {
                let fault = selectors::fault(text, selectors::LINKS);
                wrongs.quote(fault.is_some(), format!("link selector is invalid: {}", fault.unwrap_or_default()), None);
            }
        },
        "KmsgLogConfig" => {
            let url = value.text_at("url").unwrap_or_default();
            let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let faults = [
                (document.name.is_empty(), "name is required"),
                (url.is_empty(), "url is required"),
                (!["tcp", "udp"].contains(&scheme), "url scheme must be tcp:// or udp://"),
                (!path.is_empty(), "url path must be empty"),
                (!host.contains(':'), "url port is required"),
            ];
            // It tells the first.
            let fault = faults.iter().find(|(is_wrong, _)| *is_wrong);
            wrongs.say(fault.is_some(), fault.map_or("", |(_, text)| text));
        }
        "TimeSyncConfig" => {
            let is_both = value.at("ntp").is_some() && value.at("ptp").is_some();
            wrongs.say(is_both, "only one of ntp or ptp configuration can be specified");
        }
        "WatchdogTimerConfig" => {
            let lacks = value.text_at("device").is_none_or(str::is_empty);
            let is_short = value.text_at("timeout").and_then(seconds).is_some_and(|time| time > 0.0 && time < 10.0);
            wrongs.say(lacks, "watchdog device: empty value");
            wrongs.say(!lacks && is_short, "watchdog timeout: minimum value is 10s");
        }
        "UserVolumeConfig" | "RawVolumeConfig" => {
            let is_fit = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
            wrongs.say(document.name.is_empty(), "name is required");
            wrongs.say(
                !document.name.chars().all(is_fit),
                "name can only contain lowercase and uppercase ASCII letters, digits, and hyphens",
            );
            let is_directory = value.text_at("volumeType") == Some("directory");
            let lacks = !is_directory && value.at("provisioning.diskSelector.match").is_none();
            wrongs.say(lacks, "disk selector is required");
            let selector = value.text_at("provisioning.diskSelector.match").filter(|_| !is_directory);
            let fault = selector.and_then(|text| selectors::fault(text, selectors::DISKS));
            wrongs.quote(fault.is_some(), format!("disk selector is invalid: {}", fault.unwrap_or_default()), None);
            let has_size = value.at("provisioning.minSize").is_some() || value.at("provisioning.maxSize").is_some();
            let is_part = value.text_at("volumeType").is_none_or(|kind| kind == "partition");
            wrongs.say(is_part && !has_size, "min size or max size is required");
        }
        "StaticHostConfig" => wrongs.say(value.texts_at("hostnames").is_empty(), "at least one hostname is required"),
        "VolumeConfig" => {
            let known: &[&str] = if minor < 14 { &VOLUMES[..3] } else { &VOLUMES };
            let words = known.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ");
            let is_unknown = !known.contains(&document.name.as_str());
            wrongs.quote(is_unknown, format!("only [{words}] volumes are supported"), Some("Talos has no such volume"));
        }
        "ResolverConfig" => {
            let forwards = value.bool_at("hostDNS.forwardKubeDNSToHost") == Some(true);
            let is_on = value.bool_at("hostDNS.enabled") == Some(true);
            wrongs.say(
                forwards && !is_on,
                "hostDNS.forwardKubeDNSToHost cannot be enabled when hostDNS.enabled is false",
            );
        }
        "UnattendedInstallConfig" => {
            wrongs.say(
                value.at("provisioning.diskSelector.match").is_none(),
                "provisioning.diskSelector.match is required",
            );
        }
        _ => wrongs.extend(kubernetes::faults(document)),
    }
    let routes = value.at("routes").and_then(Yaml::list).unwrap_or_default();
    for (index, route) in routes.iter().enumerate() {
        let all = route.text_at("destination").and_then(prefix).is_some_and(|(address, _)| address.is_unspecified());
        let text = format!("route {index} destination must be a valid IP prefix");
        wrongs.quote(all, text, Some("a route to all destinations is written without `destination`"));
    }
    wrongs
}

/// What a document must have and has not, in its parts too.
pub(super) fn lacking(minor: Minor, shape: &Shape, value: &Yaml) -> Vec<String> {
    let is_there = |name: &str| value.at(name).is_some_and(|value| value.text() != Some(""));
    let lacks = shape.fields.iter().filter(|field| field.is_required && !is_there(&field.name));
    let own = lacks.map(|field| format!("{} must be specified", field.name));
    let parts = value.map().unwrap_or_default().iter();
    let below = parts.filter_map(|(key, part)| Some(lacking_in(minor, &shape.field(minor, key)?.kind, part))).flatten();
    own.chain(below).collect()
}

fn lacking_in(minor: Minor, kind: &Kind, value: &Yaml) -> Vec<String> {
    match kind {
        Kind::Shape(name) => SHAPES.get(name).map(|shape| lacking(minor, shape, value)).unwrap_or_default(),
        Kind::List(inner) => {
            value.list().unwrap_or_default().iter().flat_map(|item| lacking_in(minor, inner, item)).collect()
        }
        _ => Vec::new(),
    }
}

/// The volumes that a configuration may speak of; the first three up to 1.13.
const VOLUMES: [&str; 7] = ["STATE", "EPHEMERAL", "IMAGECACHE", "ETCD", "CRI", "KUBELET", "LOG"];

/// Kinds that only control planes may have.
const CONTROL_PLANE_ONLY: [&str; 15] = [
    "KubeAPIServerConfig",
    "KubeAdmissionControlConfig",
    "KubeAggregatorCAConfig",
    "KubeAuditPolicyConfig",
    "KubeAuthenticationConfig",
    "KubeAuthorizerConfig",
    "KubeControllerManagerConfig",
    "KubeCoreDNSConfig",
    "KubeEtcdEncryptionConfig",
    "KubeFlannelCNIConfig",
    "KubeProxyConfig",
    "KubeSchedulerConfig",
    "KubeServiceAccountConfig",
    "KubeStaticPodConfig",
    "KubeTalosAPIAccessConfig",
];

/// The rules between documents.
fn between(documents: &[Document], first: Option<&Yaml>) -> Wrongs {
    let mut wrongs = Wrongs::default();
    let is_control_plane = first.and_then(|value| value.text_at("machine.type")) == Some("controlplane");
    let has = |kind: &str| of_kind(documents, kind).next().is_some();
    let old = |path: &str| first.is_some_and(|value| value.at(path).is_some());
    let lacks_identity = has("DiscoveryServiceConfig") && !has("DiscoveryIdentityConfig");
    wrongs.say(
        lacks_identity && !old("cluster.id"),
        "cluster ID (.cluster.id or DiscoveryIdentityConfig) should be set when cluster discovery (DiscoveryServiceConfig) \
         is enabled",
    );
    wrongs.say(
        lacks_identity && !old("cluster.secret"),
        "cluster secret (.cluster.secret or DiscoveryIdentityConfig) should be set when cluster discovery \
         (DiscoveryServiceConfig) is enabled",
    );
    let has_authority = has("KubeAPIServerCAConfig") || old("cluster.ca");
    let is_encrypted = has("KubeEtcdEncryptionConfig")
        || old("cluster.secretboxEncryptionSecret")
        || old("cluster.aescbcEncryptionSecret");
    wrongs.say(
        is_control_plane && has_authority && !is_encrypted,
        "etcd encryption config is required for control plane machines running kube-apiserver",
    );
    wrongs.say(
        has_authority && !has("KubeClusterConfig") && !old("cluster.controlPlane.endpoint"),
        "cluster name and endpoint are required when Kubernetes is configured: either \
         .cluster.clusterName/.cluster.controlPlane.endpoint or the KubeClusterConfig document",
    );
    let mut misplaced: Vec<&'static str> = CONTROL_PLANE_ONLY.into_iter().filter(|kind| has(kind)).collect();
    misplaced.sort_unstable();
    if !is_control_plane && !misplaced.is_empty() {
        let text = "the following document kinds are only allowed on control plane machines";
        wrongs.misplaced(format!("{text}: [{}]", misplaced.join(" ")), &misplaced);
    }
    wrongs
}

/// The tag of an image.
pub(crate) fn tag(image: &str) -> Option<&str> {
    let image = image.split('@').next().unwrap_or(image);
    image.rsplit('/').next()?.split_once(':').map(|(_, tag)| tag)
}
