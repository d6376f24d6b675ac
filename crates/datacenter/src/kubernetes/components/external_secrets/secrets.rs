//! Secrets that are made of what a store holds.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{SECRETS, STATUS};
use crate::kubernetes::components::Component;
use crate::kubernetes::components::errands::{Listing, VaultRefusal};
use crate::kubernetes::crd::condition;
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;

const CREATED_BY: &str = "reconcile.external-secrets.io/created-by";
const DATA_HASH: &str = "reconcile.external-secrets.io/data-hash";
const MANAGED: &str = "reconcile.external-secrets.io/managed";
/// How often it is looked at where nothing is said.
const HOUR: Duration = Duration::from_secs(3_600);

/// What is wrong with an ExternalSecret in itself.
pub(super) fn fault(secret: &Value) -> Option<String> {
    if value::items(secret, "spec.data").is_empty() && value::items(secret, "spec.dataFrom").is_empty() {
        return Some("either data or dataFrom should be specified".to_owned());
    }
    let creation = value::text(secret, "spec.target.creationPolicy");
    if value::text(secret, "spec.target.deletionPolicy") == "Delete" && ["Merge", "None"].contains(&creation) {
        return Some(format!("deletionPolicy=Delete must not be used with creationPolicy={creation}"));
    }
    None
}

/// The folder and the name that a key means; a name alone is in the folder of the store.
fn split(key: &str) -> (Option<String>, &str) {
    match key.rsplit_once('/') {
        Some(("", name)) => (Some("/".to_owned()), name),
        Some((folder, name)) => (Some(folder.to_owned()), name),
        None => (None, key),
    }
}

/// The folders that an ExternalSecret asks for besides the store's own.
pub(super) fn folders(secret: &Value) -> Vec<String> {
    let one = value::items(secret, "spec.data").iter().filter_map(|it| split(value::text(it, "remoteRef.key")).0);
    let many = value::items(secret, "spec.dataFrom").iter().filter_map(|it| {
        let path = value::text(it, "find.path");
        if path.is_empty() { split(value::text(it, "extract.key")).0 } else { Some(path.to_owned()) }
    });
    one.chain(many).collect()
}

fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(28).map(|byte| format!("{byte:02x}")).collect()
}

impl Kube {
    pub(super) fn sync_external(&mut self) {
        for key in self.keys(SECRETS, "") {
            let Some(secret) = self.get(&key.0, &key.1, &key.2).filter(|it| !value::is_deleting(it)) else { continue };
            let (mark, now) = (self.mark_of_secret(&secret), self.now);
            if self.components.external_secrets.fetched.entry(key.clone()).or_default().begins(now, &mark) {
                self.send_errand(Component::ExternalSecrets, key);
            }
        }
    }

    /// What changes when a secret is to be made again.
    fn mark_of_secret(&self, secret: &Value) -> String {
        let store = self.store_of(secret).map_or_else(|why| why, |store| value::uid(&store).to_owned());
        let target = self.get("secrets", value::namespace(secret), target_name(secret));
        let is_whole = target.is_some_and(|target| {
            let hash = digest(&target["data"].to_string());
            crate::kubernetes::components::annotation(&target, DATA_HASH) == Some(hash.as_str())
        });
        format!("{} {} {store} {is_whole}", value::uid(secret), synced_version(secret))
    }

    pub(super) fn secrets_told(&mut self, of: &Key, secret: &Value, told: Result<Listing, VaultRefusal>) {
        let made = told
            .map_err(|refusal| match refusal {
                VaultRefusal::Login(why) | VaultRefusal::Listing(why) => why,
            })
            .and_then(|listing| data(secret, &self.own_folder(secret), &listing))
            .and_then(|data| self.write_target(secret, &data));
        let (status, reason, message) = match &made {
            Ok(()) => ("True", "SecretSynced", "secret synced".to_owned()),
            Err(why) => ("False", "SecretSyncedError", format!("could not update secret: {why}")),
        };
        let now = self.stamp();
        self.amend(&STATUS, (&of.0, &of.1, &of.2), |object| {
            condition(object, &now, "Ready", status, (reason, &message));
            if status == "True" {
                value::set(object, "status.refreshTime", now.as_str());
                value::set(object, "status.syncedResourceVersion", synced_version(secret));
                value::set(object, "status.binding.name", target_name(secret));
            }
        });
        let was = value::items(secret, "status.conditions").iter().any(|it| value::text(it, "message") == message);
        if !was {
            let reason = if made.is_ok() { "Updated" } else { "UpdateFailed" };
            self.tell("external-secrets", secret, made.is_ok(), reason, &message);
        }
        let interval =
            crate::kubernetes::components::duration(value::text(secret, "spec.refreshInterval")).unwrap_or(HOUR);
        // Zero is once and never again.
        let again = if interval.is_zero() { HOUR * 24 * 365 } else { interval };
        let (mark, now) = (self.mark_of_secret(secret), self.now);
        let fetched = self.components.external_secrets.fetched.entry(of.clone()).or_default();
        let next = fetched.ended(now, mark, made.is_ok(), again);
        self.wake_at(Component::ExternalSecrets, next);
    }

    fn own_folder(&self, secret: &Value) -> String {
        let store = self.store_of(secret).ok();
        let path = store.map(|it| value::text(&it, "spec.provider.infisical.secretsScope.secretsPath").to_owned());
        path.filter(|path| !path.is_empty()).unwrap_or_else(|| "/".to_owned())
    }

    fn write_target(&mut self, secret: &Value, data: &BTreeMap<String, String>) -> Result<(), String> {
        let (namespace, name) = (value::namespace(secret), target_name(secret));
        let policy = value::text(secret, "spec.target.creationPolicy");
        let known = self.get("secrets", namespace, name);
        if policy == "None" {
            return Ok(());
        }
        if policy == "Merge" && known.is_none() {
            return Err(format!("the desired secret {name} was not found"));
        }
        let is_owner = policy.is_empty() || policy == "Owner";
        let uid = value::uid(secret);
        if let Some(owner) = known.as_ref().and_then(|known| value::controller(known))
            && is_owner
            && value::text(owner, "uid") != uid
        {
            return Err(format!("target is owned by another {}", value::text(owner, "kind")));
        }
        let encoded: BTreeMap<&str, String> =
            data.iter().map(|(key, text)| (key.as_str(), STANDARD.encode(text))).collect();
        let template = value::at(secret, "spec.target.template").cloned().unwrap_or_default();
        let manager = format!("externalsecrets.external-secrets.io/{}", value::name(secret));
        let kind = Some(value::text(&template, "type")).filter(|kind| !kind.is_empty()).unwrap_or("Opaque");
        let object = json!({ "metadata": { "name": name, "namespace": namespace }, "type": kind, "data": {} });
        let owners = value::controlled_by(secret);
        let writer = Writer { name: &manager, subresource: "" };
        self.ensure(&writer, "secrets", &object, |target| {
            for part in ["labels", "annotations"] {
                for (key, text) in value::members(&template, &format!("metadata.{part}")) {
                    value::place(target, &format!("metadata.{part}"))[key.as_str()] = text.clone();
                }
            }
            let labels = value::place(target, "metadata.labels");
            labels[MANAGED] = json!("true");
            if policy != "Merge" {
                labels[CREATED_BY] = json!(digest(&format!("{namespace}/{}", value::name(secret))));
            }
            if is_owner {
                value::set(target, "metadata.ownerReferences", owners);
            }
            if is_owner || !target["data"].is_object() {
                value::set(target, "data", json!(encoded));
            } else {
                for (key, text) in &encoded {
                    target["data"][*key] = json!(text);
                }
            }
            let hash = digest(&target["data"].to_string());
            value::place(target, "metadata.annotations")[DATA_HASH] = json!(hash);
        });
        Ok(())
    }
}

fn target_name(secret: &Value) -> &str {
    Some(value::text(secret, "spec.target.name")).filter(|name| !name.is_empty()).unwrap_or_else(|| value::name(secret))
}

/// What a change of the object alters: its generation, labels and annotations.
fn synced_version(secret: &Value) -> String {
    let generation = value::number(secret, "metadata.generation").unwrap_or(0);
    let marks = format!("{}{}", secret["metadata"]["labels"], secret["metadata"]["annotations"]);
    format!("{generation}-{}", digest(&marks))
}

/// The data that an ExternalSecret asks for.
fn data(secret: &Value, own: &str, listing: &Listing) -> Result<BTreeMap<String, String>, String> {
    let found = |key: &str| {
        let (folder, name) = split(key);
        let place = (folder.unwrap_or_else(|| own.to_owned()), name.to_owned());
        listing.get(&place).ok_or_else(|| format!("error retrieving secret at {key:?}: Secret does not exist"))
    };
    let mut data = BTreeMap::new();
    for source in value::items(secret, "spec.dataFrom") {
        if let Some(find) = source.get("find") {
            let path = Some(value::text(find, "path")).filter(|path| !path.is_empty()).unwrap_or(own);
            let pattern = regex::Regex::new(value::text(find, "name.regexp")).map_err(|error| error.to_string())?;
            let all = listing.iter().filter(|((folder, name), _)| folder == path && pattern.is_match(name));
            data.extend(all.map(|((_, name), text)| (name.clone(), text.clone())));
        } else {
            let key = value::text(source, "extract.key");
            let read: BTreeMap<String, Value> = serde_json::from_str(found(key)?)
                .map_err(|_| format!("unable to unmarshal secret {key:?} into an object"))?;
            data.extend(read.into_iter().map(|(key, value)| (key, plain(&value))));
        }
    }
    for source in value::items(secret, "spec.data") {
        let key = value::text(source, "remoteRef.key");
        let text = found(key)?;
        let property = value::text(source, "remoteRef.property");
        let text = if property.is_empty() {
            text.clone()
        } else {
            let read: Value = serde_json::from_str(text).unwrap_or_default();
            plain(read.get(property).ok_or_else(|| format!("property {property:?} does not exist in secret {key:?}"))?)
        };
        data.insert(value::text(source, "secretKey").to_owned(), text);
    }
    templated(secret, data)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The data that a template makes of the data, as far as it names nothing but keys: `{{ .key }}`.
fn templated(secret: &Value, data: BTreeMap<String, String>) -> Result<BTreeMap<String, String>, String> {
    let templates: Vec<(&String, &Value)> = value::members(secret, "spec.target.template.data").collect();
    if templates.is_empty() {
        return Ok(data);
    }
    let mut made = BTreeMap::new();
    for (key, template) in templates {
        let mut text = template.as_str().unwrap_or_default().to_owned();
        for (name, value) in &data {
            for form in [format!("{{{{ .{name} }}}}"), format!("{{{{.{name}}}}}")] {
                text = text.replace(&form, value);
            }
        }
        if text.contains("{{") {
            return Err(format!("could not execute template: key {key:?} uses more than the names of keys"));
        }
        made.insert(key.clone(), text);
    }
    Ok(made)
}
