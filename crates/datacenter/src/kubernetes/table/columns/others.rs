//! What is told of by few columns.

use serde_json::{Value, json};

use super::{Column, Row, Source, age, age_column, at, created, integer, of, or_none, text};
use crate::kubernetes::{crd, scale, value};

/// The columns of most kinds.
pub(super) fn others(collection: &str) -> Vec<Column> {
    let boolean = |name: &str, path: &str| Column::new(name, "boolean", Source::Path(path.to_owned()));
    let middle = match collection {
        "namespaces" => vec![at("Status", "status.phase")],
        "configmaps" => vec![text("Data", |row| json!(row.count("data") + row.count("binaryData")))],
        "secrets" => vec![at("Type", "type"), text("Data", |row| json!(row.count("data")))],
        "endpoints" => vec![text("Endpoints", |row| {
            let mut found = Vec::new();
            for subset in value::items(row.object, "subsets") {
                for port in value::items(subset, "ports") {
                    let addresses = value::items(subset, "addresses").iter();
                    found.extend(addresses.map(|it| format!("{}:{}", value::text(it, "ip"), port["port"])));
                }
            }
            or_none(&found.join(","))
        })],
        "endpointslices.discovery.k8s.io" => vec![
            at("AddressType", "addressType"),
            text("Ports", |row| {
                let ports = value::items(row.object, "ports").iter().map(|port| port["port"].to_string());
                json!(match ports.collect::<Vec<_>>().join(",").as_str() {
                    "" => "<unset>".to_owned(),
                    ports => ports.to_owned(),
                })
            }),
            text("Endpoints", |row| {
                let all = value::items(row.object, "endpoints").iter();
                let found = all.flat_map(|it| value::items(it, "addresses")).filter_map(Value::as_str);
                json!(match found.collect::<Vec<_>>().join(",").as_str() {
                    "" => "<unset>".to_owned(),
                    found => found.to_owned(),
                })
            }),
        ],
        "leases.coordination.k8s.io" => vec![text("Holder", |row| json!(row.text("spec.holderIdentity")))],
        "rolebindings.rbac.authorization.k8s.io" | "clusterrolebindings.rbac.authorization.k8s.io" => {
            return bindings();
        }
        "limitranges"
        | "roles.rbac.authorization.k8s.io"
        | "clusterroles.rbac.authorization.k8s.io"
        | crd::DEFINITIONS => return vec![created()],
        "validatingwebhookconfigurations.admissionregistration.k8s.io"
        | "mutatingwebhookconfigurations.admissionregistration.k8s.io" => {
            vec![integer("Webhooks", |row| json!(row.count("webhooks")))]
        }
        "priorityclasses.scheduling.k8s.io" => {
            return vec![
                integer("Value", |row| json!(row.number("value"))),
                of("Global-Default", "boolean", |row| json!(value::is_true(row.object, "globalDefault"))),
                age_column(),
                at("PreemptionPolicy", "preemptionPolicy"),
            ];
        }
        "networkpolicies.networking.k8s.io" => {
            vec![text("Pod-Selector", |row| or_none(&scale::written(&row.object["spec"]["podSelector"])))]
        }
        "ingresses.networking.k8s.io" => vec![
            text("Class", |row| or_none(row.text("spec.ingressClassName"))),
            text("Hosts", |row| match row.listed("spec.rules", "host") {
                Value::String(hosts) if hosts == "<none>" => json!("*"),
                hosts => hosts,
            }),
            text("Address", |row| {
                let ways = value::items(row.object, "status.loadBalancer.ingress").iter();
                json!(ways.map(|way| value::text(way, "ip")).collect::<Vec<_>>().join(","))
            }),
            text("Ports", |row| json!(if row.count("spec.tls") > 0 { "80, 443" } else { "80" })),
        ],
        "ingressclasses.networking.k8s.io" => vec![
            at("Controller", "spec.controller"),
            text("Parameters", |row| or_none(row.text("spec.parameters.name"))),
        ],
        "poddisruptionbudgets.policy" => {
            fn amount(row: &Row<'_>, path: &str) -> Value {
                json!(match value::at(row.object, path) {
                    Some(Value::String(share)) => share.clone(),
                    Some(number) => number.to_string(),
                    None => "N/A".to_owned(),
                })
            }
            vec![
                text("Min Available", |row| amount(row, "spec.minAvailable")),
                text("Max Unavailable", |row| amount(row, "spec.maxUnavailable")),
                integer("Allowed Disruptions", |row| json!(row.number("status.disruptionsAllowed"))),
            ]
        }
        "resourcequotas" => {
            fn shares(row: &Row<'_>, of_limits: bool) -> Value {
                let hard = value::members(row.object, "spec.hard");
                let wanted = hard.filter(|(name, _)| name.starts_with("limits.") == of_limits);
                let told = wanted.map(|(name, hard)| {
                    let used = value::at(row.object, "status.used").and_then(|used| used.get(name));
                    let used = used.and_then(Value::as_str).unwrap_or("0");
                    format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
                });
                json!(told.collect::<Vec<_>>().join(", "))
            }
            vec![text("Request", |row| shares(row, false)), text("Limit", |row| shares(row, true))]
        }
        "csidrivers.storage.k8s.io" => vec![
            boolean("AttachRequired", "spec.attachRequired"),
            boolean("PodInfoOnMount", "spec.podInfoOnMount"),
            boolean("StorageCapacity", "spec.storageCapacity"),
            text("TokenRequests", |_| json!("<unset>")),
            boolean("RequiresRepublish", "spec.requiresRepublish"),
            text("Modes", |row| {
                let modes = value::items(row.object, "spec.volumeLifecycleModes").iter().filter_map(Value::as_str);
                json!(modes.collect::<Vec<_>>().join(","))
            }),
        ],
        "csinodes.storage.k8s.io" => vec![integer("Drivers", |row| json!(row.count("spec.drivers")))],
        "volumeattachments.storage.k8s.io" => vec![
            at("Attacher", "spec.attacher"),
            at("PV", "spec.source.persistentVolumeName"),
            at("Node", "spec.nodeName"),
            boolean("Attached", "status.attached"),
        ],
        "horizontalpodautoscalers.autoscaling" => vec![
            text("Reference", |row| {
                json!(format!("{}/{}", row.text("spec.scaleTargetRef.kind"), row.text("spec.scaleTargetRef.name")))
            }),
            text("Targets", targets),
            text("MinPods", |row| json!(row.number("spec.minReplicas").to_string())),
            text("MaxPods", |row| json!(row.number("spec.maxReplicas"))),
            text("Replicas", |row| json!(row.number("status.currentReplicas"))),
        ],
        "certificatesigningrequests.certificates.k8s.io" => {
            return vec![
                age_column(),
                text("SignerName", |row| or_none(row.text("spec.signerName"))),
                at("Requestor", "spec.username"),
                text("RequestedDuration", |row| match row.number("spec.expirationSeconds") {
                    0 => json!("<none>"),
                    seconds => json!(age(std::time::Duration::from_secs(seconds.unsigned_abs()))),
                }),
                text("Condition", answered),
            ];
        }
        "runtimeclasses.node.k8s.io" => vec![at("Handler", "handler")],
        "apiservices.apiregistration.k8s.io" => vec![
            text("Service", |row| match row.text("spec.service.name") {
                "" => json!("Local"),
                name => json!(format!("{}/{name}", row.text("spec.service.namespace"))),
            }),
            text("Available", |row| json!(if crd::is(row.object, "Available") { "True" } else { "False" })),
        ],
        _ => Vec::new(),
    };
    middle.into_iter().chain([age_column()]).collect()
}

/// What an autoscaler aims at. Nobody measures anything here.
fn targets(row: &Row<'_>) -> Value {
    let told = value::items(row.object, "spec.metrics").iter().map(|metric| {
        let (name, target) = match value::text(metric, "type") {
            "Resource" => (value::text(metric, "resource.name"), &metric["resource"]["target"]),
            "ContainerResource" => {
                (value::text(metric, "containerResource.name"), &metric["containerResource"]["target"])
            }
            "Pods" => ("", &metric["pods"]["target"]),
            "Object" => ("", &metric["object"]["target"]),
            _ => ("", &metric["external"]["target"]),
        };
        let wanted = match value::number(target, "averageUtilization") {
            Some(share) => format!("{share}%"),
            None => ["averageValue", "value"].map(|key| value::text(target, key)).concat(),
        };
        if name.is_empty() { format!("<unknown>/{wanted}") } else { format!("{name}: <unknown>/{wanted}") }
    });
    or_none(&told.collect::<Vec<_>>().join(", "))
}

/// How a request for a certificate was answered.
fn answered(row: &Row<'_>) -> Value {
    let mut told = match () {
        () if crd::is(row.object, "Denied") => "Denied",
        () if crd::is(row.object, "Approved") => "Approved",
        () => "Pending",
    }
    .to_owned();
    if crd::is(row.object, "Failed") {
        told += ",Failed";
    }
    if !row.text("status.certificate").is_empty() {
        told += ",Issued";
    }
    json!(told)
}

fn bindings() -> Vec<Column> {
    fn subjects(row: &Row<'_>, kind: &str) -> Value {
        let all = value::items(row.object, "subjects").iter().filter(|it| value::text(it, "kind") == kind);
        let names = all.map(|it| match value::text(it, "namespace") {
            "" => value::text(it, "name").to_owned(),
            namespace => format!("{namespace}/{}", value::text(it, "name")),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    }
    vec![
        text("Role", |row| json!(format!("{}/{}", row.text("roleRef.kind"), row.text("roleRef.name")))),
        age_column(),
        text("Users", |row| subjects(row, "User")).wide(),
        text("Groups", |row| subjects(row, "Group")).wide(),
        text("ServiceAccounts", |row| subjects(row, "ServiceAccount")).wide(),
    ]
}
