//! Stores: who may log in where, proven by a login and a listing.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{CLUSTER_STORES, GROUP, SECRETS, STATUS, STORES};
use crate::kubernetes::components::errands::{Listing, VaultErrand, VaultRefusal};
use crate::kubernetes::components::{Component, ComponentFault, secret_text};
use crate::kubernetes::crd::{condition, is};
use crate::kubernetes::kube::{Key, Kube};
use crate::kubernetes::selectors::Labels;
use crate::kubernetes::value;

/// How often a valid store is looked at again.
const AGAIN: Duration = Duration::from_secs(300);

const CREDENTIALS: &str = "spec.provider.infisical.auth.universalAuthCredentials";

/// What is wrong with a store in itself.
pub(super) fn fault(store: &Value, is_for_cluster: bool) -> Option<String> {
    let auth = value::at(store, CREDENTIALS)?;
    for key in ["clientId", "clientSecret"] {
        let namespace = value::text(auth, &format!("{key}.namespace"));
        if is_for_cluster && namespace.is_empty() {
            return Some("cluster scope requires namespace".to_owned());
        }
        if !is_for_cluster && !namespace.is_empty() && namespace != value::namespace(store) {
            let text = "namespace should either be empty or match the namespace of the SecretStore for a namespaced SecretStore";
            return Some(text.to_owned());
        }
    }
    None
}

impl Kube {
    pub(super) fn sync_stores(&mut self) {
        for collection in [CLUSTER_STORES, STORES] {
            for key in self.keys(collection, "") {
                let Some(store) = self.get(&key.0, &key.1, &key.2) else { continue };
                if let Some(message) = fault(&store, collection == CLUSTER_STORES) {
                    self.say_store(&key, "False", ("InvalidStoreConfiguration", &message));
                    continue;
                }
                let mark = self.mark_of_store(&store);
                let now = self.now;
                if self.components.external_secrets.fetched.entry(key.clone()).or_default().begins(now, &mark) {
                    self.send_errand(Component::ExternalSecrets, key);
                }
            }
        }
    }

    /// What changes when a store is to be looked at again.
    fn mark_of_store(&self, store: &Value) -> String {
        let credentials = ["clientId", "clientSecret"].map(|key| {
            let secret =
                self.credential(store, key).map(|secret| value::text(&secret, "metadata.resourceVersion").to_owned());
            secret.unwrap_or_default()
        });
        let generation = value::number(store, "metadata.generation").unwrap_or(0);
        format!("{} {generation} {}", value::uid(store), credentials.join(" "))
    }

    /// The Secret that holds a part of the credential.
    fn credential(&self, store: &Value, key: &str) -> Option<Arc<Value>> {
        let reference = value::at(store, &format!("{CREDENTIALS}.{key}"))?;
        let own = value::text(reference, "namespace");
        let namespace = if own.is_empty() { value::namespace(store) } else { own };
        self.get("secrets", namespace, value::text(reference, "name"))
    }

    /// What is to be asked for a store, or for a secret by its store.
    pub(crate) fn vault_errand(&self, of: &Key) -> Result<VaultErrand, VaultRefusal> {
        let refused = |why: String| Err(VaultRefusal::Login(why));
        let object = self.get(&of.0, &of.1, &of.2);
        let Some(object) = object else { return refused("the object is gone".to_owned()) };
        let (store, folders) = if &*of.0 == SECRETS {
            (self.store_of(&object).map_err(VaultRefusal::Login)?, super::secrets::folders(&object))
        } else {
            (object, Vec::new())
        };
        if self.suffers(Component::ExternalSecrets, ComponentFault::InvalidStore) {
            return refused("failed to authenticate via universal auth".to_owned());
        }
        let Some(provider) = value::at(&store, "spec.provider.infisical") else {
            return refused("this provider is not simulated: only infisical is".to_owned());
        };
        let mut parts = Vec::new();
        for key in ["clientId", "clientSecret"] {
            let reference = value::at(&store, &format!("{CREDENTIALS}.{key}")).cloned().unwrap_or_default();
            let (name, field) = (value::text(&reference, "name"), value::text(&reference, "key"));
            let Some(secret) = self.credential(&store, key) else {
                return refused(format!("cannot get Kubernetes secret {name:?}: secrets {name:?} not found"));
            };
            let Some(text) = secret_text(&secret, field) else {
                return refused(format!("cannot find secret data for key: {field:?}"));
            };
            parts.push(text);
        }
        let [client_id, client_secret] = parts.try_into().unwrap_or_default();
        let host = Some(value::text(provider, "hostAPI")).filter(|host| !host.is_empty());
        let scope = |key: &str| value::text(provider, &format!("secretsScope.{key}")).to_owned();
        let own = Some(scope("secretsPath")).filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned());
        let mut all = vec![own];
        all.extend(folders);
        all.dedup();
        Ok(VaultErrand {
            host: host.unwrap_or("https://app.infisical.com/api").to_owned(),
            client_id,
            client_secret,
            project: scope("projectSlug"),
            environment: scope("environmentSlug"),
            folders: all,
            is_recursive: value::is_true(provider, "secretsScope.recursive"),
            expands: value::at(provider, "secretsScope.expandSecretReferences") != Some(&Value::Bool(false)),
        })
    }

    /// What came of an errand.
    pub(crate) fn vault_told(&mut self, of: &Key, told: Result<Result<Listing, VaultRefusal>, VaultRefusal>) {
        let told = told.and_then(|told| told);
        let Some(object) = self.get(&of.0, &of.1, &of.2) else {
            self.components.external_secrets.fetched.remove(of);
            return;
        };
        if &*of.0 == SECRETS {
            return self.secrets_told(of, &object, told);
        }
        let is_well = told.is_ok();
        match told {
            Ok(_) => self.say_store(of, "True", ("Valid", "store validated")),
            Err(VaultRefusal::Login(why)) => {
                let message = format!("unable to create client: {why}");
                self.say_store(of, "False", ("InvalidProviderConfig", &message));
            }
            Err(VaultRefusal::Listing(why)) => {
                self.say_store(of, "False", ("ValidationFailed", &format!("unable to validate store: {why}")));
            }
        }
        let (mark, now) = (self.mark_of_store(&object), self.now);
        let fetched = self.components.external_secrets.fetched.entry(of.clone()).or_default();
        let next = fetched.ended(now, mark, is_well, AGAIN);
        self.wake_at(Component::ExternalSecrets, next);
    }

    fn say_store(&mut self, key: &Key, status: &str, told: (&str, &str)) {
        let before = self.get(&key.0, &key.1, &key.2);
        let now = self.stamp();
        self.amend(&STATUS, (&key.0, &key.1, &key.2), |store| {
            condition(store, &now, "Ready", status, told);
            value::set(store, "status.capabilities", "ReadOnly");
        });
        let Some(before) = before else { return };
        let was = value::items(&before, "status.conditions").iter().any(|it| value::text(it, "reason") == told.0);
        if !was {
            self.tell("cluster-secret-store", &before, status == "True", told.0, told.1);
        }
    }

    /// The store of a secret, if it is there, ready, and lets this namespace in.
    pub(super) fn store_of(&self, secret: &Value) -> Result<Arc<Value>, String> {
        let name = value::text(secret, "spec.secretStoreRef.name");
        let is_for_cluster = value::text(secret, "spec.secretStoreRef.kind") == "ClusterSecretStore";
        let namespace = value::namespace(secret);
        let (collection, place, kind) = match is_for_cluster {
            true => (CLUSTER_STORES, "", "ClusterSecretStore"),
            false => (STORES, namespace, "SecretStore"),
        };
        let Some(store) = self.get(collection, place, name) else {
            let plural = collection.trim_end_matches(&format!(".{GROUP}"));
            return Err(format!("could not get {kind} {name:?}, {plural}.{GROUP} {name:?} not found"));
        };
        if is_for_cluster && !self.is_let_in(&store, namespace) {
            return Err(format!(
                "using cluster store {name:?} is not allowed from namespace {namespace:?}: denied by spec.condition"
            ));
        }
        if !is(&store, "Ready") {
            return Err(format!("the desired SecretStore {name} is not ready"));
        }
        Ok(store)
    }

    /// Whether a store for the cluster is for this namespace.
    fn is_let_in(&self, store: &Value, namespace: &str) -> bool {
        let conditions = value::items(store, "spec.conditions");
        let own = self.get("namespaces", "", namespace);
        let fits = |rule: &Value| {
            let is_named = value::items(rule, "namespaces").iter().any(|name| name == namespace);
            let is_chosen = rule
                .get("namespaceSelector")
                .is_some_and(|selector| own.as_ref().is_some_and(|own| Labels::of(selector).chooses(own)));
            let mut patterns = value::items(rule, "namespaceRegexes").iter().filter_map(Value::as_str);
            let is_like =
                patterns.any(|pattern| regex::Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(namespace)));
            is_named || is_chosen || is_like
        };
        conditions.is_empty() || conditions.iter().any(fits)
    }
}
