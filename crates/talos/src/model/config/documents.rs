//! Contract 1.14: a document for each concern. PEM is plain text in those of Kubernetes.

use serde_json::{Value, json};

use super::input::{Authority, Cni, Disk, Input, Role};
use super::shared::{document, put};
use super::{ConfigError, legacy, shared};

/// On control planes Kubernetes expects the role as label and as taint.
const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";

pub(super) fn generate(role: Role, input: &Input<'_>) -> Result<Vec<Value>, ConfigError> {
    let mut documents = vec![base(role, input)];
    documents.extend(discovery(input));
    documents.extend(installation(input)?);
    documents.extend(system(input));
    documents.extend(shared::registries(&input.node));
    documents.extend(shared::network(role, &input.node)?);
    documents.extend(kubernetes(role, input));
    if role == Role::ControlPlane {
        documents.extend(api(input));
        documents.extend(components(input));
    }
    Ok(documents)
}

/// What has no document of its own yet.
fn base(role: Role, input: &Input<'_>) -> Value {
    let mut cluster = json!({"token": input.secrets.token});
    if role == Role::ControlPlane {
        cluster["etcd"] = json!({"ca": legacy::authority(role, input.secrets.etcd)});
    }
    json!({
        "version": "v1alpha1",
        "debug": false,
        "persist": true,
        "machine": {
            "type": legacy::machine_type(role),
            "token": input.secrets.trustd_token,
            "ca": legacy::authority(role, input.secrets.os),
            "certSANs": input.node.certificate_sans,
            "features": {"diskQuotaSupport": true},
        },
        "cluster": cluster,
    })
}

fn discovery(input: &Input<'_>) -> Vec<Value> {
    let mut documents = Vec::new();
    if input.cluster.discovery {
        let service = json!({"name": "default", "endpoint": "https://discovery.talos.dev/"});
        documents.push(document("DiscoveryServiceConfig", service));
    }
    let identity = json!({"clusterID": input.secrets.cluster_id, "clusterSecret": input.secrets.cluster_secret});
    documents.push(document("DiscoveryIdentityConfig", identity));
    documents
}

fn installation(input: &Input<'_>) -> Result<Option<Value>, ConfigError> {
    let Some((install, disk)) = input.node.install.as_ref().and_then(|install| Some((install, install.disk.as_ref()?)))
    else {
        return Ok(None);
    };
    if *disk == Disk::NotSystem {
        return Err(ConfigError::InstallBesideSystem);
    }
    let mut entries = json!({});
    if let Some(image) = &install.image {
        entries["installer"] = json!({"image": image});
    }
    // Left out, the disk would be wiped.
    entries["provisioning"] = json!({"diskSelector": {"match": disk.expression()}, "wipe": install.wipe});
    Ok(Some(document("UnattendedInstallConfig", entries)))
}

fn system(input: &Input<'_>) -> Vec<Value> {
    let node = &input.node;
    let mut resolver = json!({});
    put(&mut resolver, "nameservers", shared::nameservers(node));
    put(&mut resolver, "hostDNS", json!({"enabled": true, "forwardKubeDNSToHost": true}));
    let mut documents = vec![document("ResolverConfig", resolver)];
    if !node.sysctls.is_empty() {
        documents.push(document("SysctlConfig", json!({"params": node.sysctls})));
    }
    documents.extend(node.kernel_modules.iter().map(|(name, parameters)| {
        let mut entries = json!({"name": name});
        put(&mut entries, "parameters", parameters.clone());
        document("KernelModuleConfig", entries)
    }));
    documents.push(document("VolumeConfig", json!({"name": "EPHEMERAL", "mount": {"secure": true}})));
    documents.push(document("FilesystemTrimConfig", json!({"interval": "168h0m0s"})));
    documents.extend(shared::volumes(node));
    if input.cluster.workload_isolation {
        documents.push(document("SecurityProfileConfig", json!({"workloadIsolation": true})));
    }
    documents
}

/// What every node knows of Kubernetes.
fn kubernetes(role: Role, input: &Input<'_>) -> [Value; 6] {
    let (cluster, node) = (&input.cluster, &input.node);
    let (mut labels, mut taints) = (node.labels.clone(), node.taints.clone());
    if role == Role::ControlPlane {
        labels.entry(CONTROL_PLANE.to_owned()).or_default();
        if !cluster.balance_to_control_planes {
            labels.entry(shared::EXCLUDED_FROM_BALANCING.to_owned()).or_default();
        }
        if !cluster.schedule_on_control_planes {
            taints.entry(CONTROL_PLANE.to_owned()).or_insert_with(|| "NoSchedule".to_owned());
        }
    }
    let mut node_config = json!({"nodeIP": {}});
    put(&mut node_config, "labels", shared::texts(&labels));
    put(&mut node_config, "taints", shared::texts(&taints));

    let mut kubelet = json!({"image": shared::kubelet_image(input), "config": {}});
    put(&mut kubelet, "extraArgs", shared::texts(&node.kubelet_args));
    put(&mut kubelet, "defaultRuntimeSeccompProfileEnabled", true);

    let network = json!({
        "dnsDomain": cluster.dns_domain,
        "podSubnets": cluster.pod_subnets,
        "serviceSubnets": cluster.service_subnets,
    });
    let authority = match role {
        Role::ControlPlane => json!({"issuingCA": issuing(input.secrets.k8s)}),
        Role::Worker => json!({"acceptedCAs": [input.secrets.k8s.certificate]}),
    };
    [
        document("KubeClusterConfig", json!({"clusterName": cluster.name, "endpoint": cluster.endpoint})),
        document("KubeNodeConfig", node_config),
        document("KubeletConfig", kubelet),
        document("KubeNetworkConfig", network),
        document("KubeAPIServerCAConfig", authority),
        document("KubePrismConfig", json!({"port": 7445})),
    ]
}

fn issuing(authority: Authority<'_>) -> Value {
    json!({"cert": authority.certificate, "key": authority.key})
}

/// Whom the Kubernetes API trusts, and what it lets them do.
fn api(input: &Input<'_>) -> [Value; 8] {
    let secrets = &input.secrets;
    // Only what a load balancer asks is answered to strangers.
    let authentication = json!({"configuration": {
        "anonymous": {
            "conditions": [{"path": "/livez"}, {"path": "/readyz"}, {"path": "/healthz"}],
            "enabled": true,
        },
        "jwt": [],
    }});
    let encryption = json!({"config": {"resources": [{
        "providers": [{"secretbox": {"keys": [{"name": "key2", "secret": secrets.secretbox}]}}],
        "resources": ["secrets"],
    }]}});
    let issuer = json!({"privateKey": secrets.service_account_key, "issuerURL": input.cluster.endpoint});
    let admission = json!({"name": "PodSecurity", "configuration": shared::pod_security()});
    [
        document("KubeAggregatorCAConfig", json!({"issuingCA": issuing(secrets.aggregator)})),
        document("KubeAdmissionControlConfig", admission),
        document("KubeAuditPolicyConfig", json!({"configuration": shared::audit_policy()})),
        document("KubeAuthenticationConfig", authentication),
        document("KubeAuthorizerConfig", json!({"name": "node", "type": "Node"})),
        document("KubeAuthorizerConfig", json!({"name": "rbac", "type": "RBAC"})),
        document("KubeEtcdEncryptionConfig", encryption),
        document("KubeServiceAccountConfig", json!({"issuer": issuer})),
    ]
}

fn components(input: &Input<'_>) -> Vec<Value> {
    let cluster = &input.cluster;
    let image = |component| json!({"image": shared::component_image(input, component)});
    let mut server = image("kube-apiserver");
    put(&mut server, "certExtraSANs", cluster.api_server_sans.clone());
    let mut scheduler = image("kube-scheduler");
    scheduler["config"] = json!({});
    let mut proxy = json!({});
    if !cluster.kube_proxy {
        proxy["enabled"] = false.into();
    }
    proxy["image"] = shared::component_image(input, "kube-proxy").into();
    proxy["config"] = json!({});
    let mut documents = vec![
        document("KubeAPIServerConfig", server),
        document("KubeControllerManagerConfig", image("kube-controller-manager")),
        document("KubeSchedulerConfig", scheduler),
        document("KubeProxyConfig", proxy),
    ];
    if cluster.cni == Cni::Flannel {
        documents.push(document("KubeFlannelCNIConfig", json!({"backendType": "vxlan", "backendPort": 4789})));
    }
    documents.push(document("KubeCoreDNSConfig", json!({"enabled": true})));
    documents
}
