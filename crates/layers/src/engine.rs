//! The engine layer: External Secrets, and the store that reads the castle's vault.
//!
//! The store is castle's, whoever installs External Secrets. Ready means that both webhooks have the authority that signed their certificate, that the very store was accepted, and that the
//! operator logged in to the vault and listed the castle's folder.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_components::namespace;
use castle_engine::{GraphBuilder, Handle, StepId};
use castle_kubernetes::model::{Kind, Stage};
use castle_kubernetes::steps::{Authority, Expect, Present, stage_step};
use castle_secrets::infisical::Identity;
use castle_spec::ComponentName;
use serde_json::{Value, json};

use crate::inside::{DECIDED, Inside, SERVING, deployments, objects};
use crate::names::STORE;
use crate::names::id;

const LAYER: &str = "engine";
const COMPONENT: ComponentName = ComponentName::ExternalSecrets;
/// The Secret with which the operator logs in to the vault.
const IDENTITY: &str = "castle-vault-identity";

/// The castle's vault, as the cluster reaches it.
#[derive(Clone, Debug)]
pub struct Vault {
    /// Where it is: `https://` and a host.
    pub address: String,
    /// The certificates of its authorities as PEM, if they are not public.
    pub authority: Option<String>,
    /// The slug of the project.
    pub project: String,
    /// The slug of the environment.
    pub environment: String,
    /// The castle's folder.
    pub path: String,
    /// Who castle is there.
    pub identity: Identity,
}

/// Adds the layer; returns the promise of a store that is valid, for whoever may wait for it: where Flux installs External Secrets, nothing
/// that Flux needs may.
pub fn raise(graph: &mut GraphBuilder, inside: &Inside<'_>, vault: &Vault) -> Option<Handle<Present>> {
    let [identity, store] = [identity(vault), store(vault)];
    let stores = objects([identity, store.clone()]);
    let mark = inside.mark(LAYER, "store");
    let accepted = objects([store]).into_iter().map(|store| Expect::Accepted(Box::new(mark.on(store)))).collect();
    let own = inside.component(graph, COMPONENT);
    let gate = match &own {
        Some((_, present)) => serving(graph, inside, present, accepted),
        None => {
            let brought = inside.brought(graph, COMPONENT)?;
            let gate = id(LAYER, "store", "accepted");
            inside.gate(graph, (gate.clone(), SERVING), &brought, accepted);
            gate
        }
    };
    let store = inside.beside(graph, COMPONENT, &mark, &stores);
    graph.after(stage_step(&mark, Stage::Rest), gate);
    // The condition tells no generation, so one of a moment before opens this, too. It does no harm: castle has let itself in with the same
    // identity before it changed anything.
    let valid = Expect::Condition {
        kind: Kind::new("external-secrets.io/v1", "ClusterSecretStore"),
        namespace: String::new(),
        name: STORE.to_owned(),
        condition: "Ready".to_owned(),
        reason: "Valid".to_owned(),
    };
    let valid = inside.gate(graph, (id(LAYER, "store", "valid"), DECIDED), &store, vec![valid]);
    own.map(|_| valid)
}

/// Adds the gate behind which External Secrets serves, and takes the store.
fn serving(graph: &mut GraphBuilder, inside: &Inside<'_>, present: &Handle<Present>, accepted: Vec<Expect>) -> StepId {
    let mut expects =
        deployments(COMPONENT, &["external-secrets", "external-secrets-cert-controller", "external-secrets-webhook"]);
    let authority = Authority {
        namespace: namespace(COMPONENT).to_owned(),
        name: "external-secrets-webhook".to_owned(),
        key: "ca.crt".to_owned(),
    };
    expects.extend(["secretstore-validate", "externalsecret-validate"].map(|name| Expect::Injected {
        kind: "ValidatingWebhookConfiguration".to_owned(),
        name: name.to_owned(),
        authority: Some(authority.clone()),
    }));
    expects.extend(accepted);
    let serving = id(LAYER, COMPONENT.word(), "serving");
    inside.gate(graph, (serving.clone(), SERVING), present, expects);
    serving
}

fn identity(vault: &Vault) -> Value {
    let encoded = |secret: &castle_secrets::Secret| STANDARD.encode(secret.expose());
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": IDENTITY, "namespace": namespace(COMPONENT)},
        "data": {"clientId": encoded(&vault.identity.client_id), "clientSecret": encoded(&vault.identity.client_secret)},
    })
}

fn store(vault: &Vault) -> Value {
    let part = |key: &str| json!({"name": IDENTITY, "namespace": namespace(COMPONENT), "key": key});
    let mut infisical = json!({
        "hostAPI": vault.address,
        "auth": {"universalAuthCredentials": {"clientId": part("clientId"), "clientSecret": part("clientSecret")}},
        "secretsScope": {
            "projectSlug": vault.project, "environmentSlug": vault.environment, "secretsPath": vault.path,
        },
    });
    if let Some(authority) = &vault.authority {
        infisical["caBundle"] = STANDARD.encode(authority).into();
    }
    json!({
        "apiVersion": "external-secrets.io/v1", "kind": "ClusterSecretStore", "metadata": {"name": STORE},
        "spec": {"provider": {"infisical": infisical}},
    })
}
