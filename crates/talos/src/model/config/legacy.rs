//! Contracts 1.12 and 1.13: one document for nearly everything.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::input::{Authority, Cni, Contract, Disk, Input, Install, Role};
use super::shared::put;
use super::{ConfigError, shared};

pub(super) fn generate(contract: Contract, role: Role, input: &Input<'_>) -> Result<Vec<Value>, ConfigError> {
    let mut documents = vec![json!({
        "version": "v1alpha1",
        "debug": false,
        "persist": true,
        "machine": machine(contract, role, input)?,
        "cluster": cluster(role, input),
    })];
    let nameservers = shared::nameservers(&input.node);
    if !nameservers.is_empty() {
        documents.push(shared::document("ResolverConfig", json!({"nameservers": nameservers})));
    }
    documents.extend(shared::volumes(&input.node));
    documents.extend(shared::registries(&input.node));
    documents.extend(shared::network(role, &input.node)?);
    Ok(documents)
}

pub(super) fn machine_type(role: Role) -> &'static str {
    match role {
        Role::ControlPlane => "controlplane",
        Role::Worker => "worker",
    }
}

/// PEM in base64. Workers verify, and sign nothing.
pub(super) fn authority(role: Role, authority: Authority<'_>) -> Value {
    let key = match role {
        Role::ControlPlane => STANDARD.encode(authority.key),
        Role::Worker => String::new(),
    };
    json!({"crt": STANDARD.encode(authority.certificate), "key": key})
}

fn machine(contract: Contract, role: Role, input: &Input<'_>) -> Result<Value, ConfigError> {
    let node = &input.node;
    let mut machine = json!({
        "type": machine_type(role),
        "token": input.secrets.trustd_token,
        "ca": authority(role, input.secrets.os),
        "certSANs": node.certificate_sans,
        "kubelet": kubelet(input),
    });
    if contract == Contract::V1_12 {
        machine["network"] = json!({});
    }
    if let Some(install) = &node.install {
        machine["install"] = installation(contract, install)?;
    }
    put(&mut machine, "sysctls", shared::texts(&node.sysctls));
    machine["features"] = json!({
        "diskQuotaSupport": true,
        "kubePrism": {"enabled": true, "port": 7445},
        "hostDNS": {"enabled": true, "forwardKubeDNSToHost": true},
    });
    if !node.kernel_modules.is_empty() {
        machine["kernel"] = json!({"modules": node.kernel_modules.iter().map(kernel_module).collect::<Vec<_>>()});
    }
    let mut labels = node.labels.clone();
    if role == Role::ControlPlane && !input.cluster.balance_to_control_planes {
        labels.entry(shared::EXCLUDED_FROM_BALANCING.to_owned()).or_default();
    }
    put(&mut machine, "nodeLabels", shared::texts(&labels));
    put(&mut machine, "nodeTaints", shared::texts(&node.taints));
    Ok(machine)
}

fn kubelet(input: &Input<'_>) -> Value {
    let mut kubelet = json!({"image": shared::kubelet_image(input)});
    put(&mut kubelet, "extraArgs", shared::texts(&input.node.kubelet_args));
    put(&mut kubelet, "defaultRuntimeSeccompProfileEnabled", true);
    put(&mut kubelet, "disableManifestsDirectory", true);
    kubelet
}

fn installation(contract: Contract, install: &Install) -> Result<Value, ConfigError> {
    let selector = match &install.disk {
        None => Value::Null,
        Some(Disk::Serial(serial)) => json!({"serial": serial}),
        Some(Disk::Wwid(wwid)) => json!({"wwid": wwid}),
        Some(Disk::Bytes(bytes)) => json!({"size": format!("== {bytes}")}),
        Some(Disk::NotSystem) => return Err(ConfigError::InstallBesideSystem),
        Some(Disk::Matching(_)) => return Err(ConfigError::DiskExpression(contract)),
    };
    let mut section = json!({});
    put(&mut section, "diskSelector", selector);
    put(&mut section, "image", install.image.clone());
    put(&mut section, "wipe", install.wipe);
    put(&mut section, "grubUseUKICmdline", true);
    Ok(section)
}

fn kernel_module((name, parameters): (&String, &Vec<String>)) -> Value {
    let mut module = json!({"name": name});
    put(&mut module, "parameters", parameters.clone());
    module
}

fn cluster(role: Role, input: &Input<'_>) -> Value {
    let (secrets, wanted) = (&input.secrets, &input.cluster);
    let mut network = json!({});
    if wanted.cni == Cni::None {
        network["cni"] = json!({"name": "none"});
    }
    put(&mut network, "dnsDomain", wanted.dns_domain.as_str());
    put(&mut network, "podSubnets", wanted.pod_subnets.clone());
    put(&mut network, "serviceSubnets", wanted.service_subnets.clone());
    let mut cluster = json!({
        "id": secrets.cluster_id,
        "secret": secrets.cluster_secret,
        "controlPlane": {"endpoint": wanted.endpoint},
        "clusterName": wanted.name,
        "network": network,
        "token": secrets.token,
    });
    let is_control_plane = role == Role::ControlPlane;
    if is_control_plane {
        cluster["secretboxEncryptionSecret"] = secrets.secretbox.into();
    }
    cluster["ca"] = authority(role, secrets.k8s);
    if is_control_plane {
        cluster["aggregatorCA"] = authority(role, secrets.aggregator);
        cluster["serviceAccount"] = json!({"key": STANDARD.encode(secrets.service_account_key)});
        cluster["apiServer"] = api_server(input);
        cluster["controllerManager"] = json!({"image": shared::component_image(input, "kube-controller-manager")});
        cluster["proxy"] = json!({"image": shared::component_image(input, "kube-proxy")});
        if !wanted.kube_proxy {
            cluster["proxy"]["disabled"] = true.into();
        }
        cluster["scheduler"] = json!({"image": shared::component_image(input, "kube-scheduler")});
    }
    cluster["discovery"] = json!({
        "enabled": wanted.discovery,
        "registries": {"kubernetes": {"disabled": true}, "service": {}},
    });
    if is_control_plane {
        cluster["etcd"] = json!({"ca": authority(role, secrets.etcd)});
        if wanted.schedule_on_control_planes {
            cluster["allowSchedulingOnControlPlanes"] = true.into();
        }
    }
    cluster
}

fn api_server(input: &Input<'_>) -> Value {
    let mut server = json!({"image": shared::component_image(input, "kube-apiserver")});
    put(&mut server, "certSANs", input.cluster.api_server_sans.clone());
    put(&mut server, "admissionControl", json!([{"name": "PodSecurity", "configuration": shared::pod_security()}]));
    put(&mut server, "auditPolicy", shared::audit_policy());
    server
}
