//! What an administrator's programs need to reach a cluster: `talosconfig` and `kubeconfig`, issued from the bundle alone, and
//! merged into the files of those who have several clusters.

mod merge;

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_secrets::Secret;
use castle_yaml as yaml;
use serde_json::json;

pub use merge::{File, MergeError, Merged, merge_kubeconfig, merge_talosconfig};

use super::bundle::{Bundle, written};
use super::pki::{Doors, PkiError, new_kubernetes_admin, new_talos_admin};

/// Issues a `talosconfig` with one context, named after the cluster. If there are no nodes, none are mentioned.
///
/// # Errors
/// If the bundle's authority cannot be used, the lifetime cannot be had, or a door fails.
pub async fn talosconfig(
    bundle: &Bundle,
    cluster: &str,
    endpoints: &[String],
    nodes: &[String],
    lifetime: Duration,
    doors: Doors<'_>,
) -> Result<Secret, PkiError> {
    let admin = new_talos_admin(&bundle.talos, lifetime, doors).await?;
    let mut context = json!({"endpoints": endpoints, "nodes": nodes});
    if let Some(entries) = context.as_object_mut() {
        if nodes.is_empty() {
            entries.remove("nodes");
        }
        entries.insert("ca".to_owned(), armoured(&bundle.talos.certificate).into());
        entries.insert("crt".to_owned(), armoured(&admin.certificate).into());
        entries.insert("key".to_owned(), armoured(admin.key.expose()).into());
    }
    let mut value = json!({"context": cluster, "contexts": {cluster: context}});
    Ok(written(&mut value, yaml::emit))
}

/// Issues a `kubeconfig` with one context, `admin@CLUSTER`, for the API at a URL.
///
/// # Errors
/// If the bundle's authority cannot be used, the lifetime cannot be had, or a door fails.
pub async fn kubeconfig(
    bundle: &Bundle,
    cluster: &str,
    url: &str,
    lifetime: Duration,
    doors: Doors<'_>,
) -> Result<Secret, PkiError> {
    let admin = new_kubernetes_admin(&bundle.kubernetes, lifetime, doors).await?;
    let user = user_name(cluster);
    let mut value = json!({
        "apiVersion": "v1",
        "clusters": [{
            "cluster": {"certificate-authority-data": armoured(&bundle.kubernetes.certificate), "server": url},
            "name": cluster,
        }],
        "contexts": [{
            "context": {"cluster": cluster, "namespace": "default", "user": user},
            "name": user,
        }],
        "current-context": user,
        "kind": "Config",
        "users": [{
            "name": user,
            "user": {
                "client-certificate-data": armoured(&admin.certificate),
                "client-key-data": armoured(admin.key.expose()),
            },
        }],
    });
    Ok(written(&mut value, yaml::emit_for_kubernetes))
}

/// What Talos calls the user, and the context, of a cluster's administrator.
fn user_name(cluster: &str) -> String {
    format!("admin@{cluster}")
}

fn armoured(text: &str) -> String {
    STANDARD.encode(text)
}

#[cfg(test)]
mod tests;
