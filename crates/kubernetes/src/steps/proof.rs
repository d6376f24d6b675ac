//! What must be the same before and after a component has changed its owner: the objects, and the Pods that they run.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use castle_engine::Fault;
use serde_json::Value;

use super::give::live;
use super::ownership::fault_of;
use crate::client::{Api, Scope};
use crate::model::{Key, Kind, Managed, Object};

/// An object, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Which life of it.
    pub uid: String,
    /// A digest of all that it says beside its metadata and its status. Its generation would not do: that of a Deployment rises
    /// with a mere annotation.
    pub content: u64,
    /// Who manages its fields.
    pub managers: BTreeSet<String>,
}

/// A Pod, as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodSeen {
    /// Which life of it.
    pub uid: String,
    /// How often its containers were started anew.
    pub restarts: i64,
}

/// What was seen of a component at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Its objects.
    pub objects: BTreeMap<Key, Seen>,
    /// The Pods of its workloads, by namespace and name.
    pub pods: BTreeMap<String, PodSeen>,
}

impl Proof {
    /// What is not as it was, although only the owner should be another: nothing, if all went well.
    #[must_use]
    pub fn disturbed(&self, after: &Self) -> Vec<String> {
        let mut found = Vec::new();
        for (key, before) in &self.objects {
            match after.objects.get(key) {
                None => found.push(format!("{key} is gone")),
                Some(now) if now.uid != before.uid => found.push(format!("{key} was made anew")),
                Some(now) if now.content != before.content => found.push(format!("{key} was changed")),
                Some(_) => {}
            }
        }
        for (name, before) in &self.pods {
            match after.pods.get(name) {
                Some(now) if now.uid == before.uid && now.restarts == before.restarts => {}
                Some(now) if now.uid == before.uid => found.push(format!("Pod {name} was restarted")),
                _ => found.push(format!("Pod {name} was replaced")),
            }
        }
        found
    }
}

/// What is seen of these objects now.
///
/// # Errors
///
/// [`Fault`] if the API does not say.
pub async fn prove(api: &Api, keys: &BTreeSet<Key>) -> Result<Proof, Fault> {
    let objects = live(api, keys).await?;
    let mut proof = Proof::default();
    let workloads: Vec<&Object> = objects.iter().filter(|object| selector(object).is_some()).collect();
    let namespaces: BTreeSet<&str> = workloads.iter().map(|object| object.namespace()).collect();
    for namespace in namespaces {
        let pods = api.list(&Kind::new("v1", "Pod"), &Scope::within(namespace)).await.map_err(fault_of("Pod"))?;
        for pod in &pods.objects {
            let is_theirs = workloads.iter().any(|workload| {
                workload.namespace() == namespace && selector(workload).is_some_and(|wanted| has_labels(pod, wanted))
            });
            if is_theirs {
                let statuses = pod.list("/status/containerStatuses").iter();
                let restarts = statuses.filter_map(|status| status["restartCount"].as_i64()).sum();
                let uid = pod.text("/metadata/uid").to_owned();
                proof.pods.insert(format!("{namespace}/{}", pod.name()), PodSeen { uid, restarts });
            }
        }
    }
    for object in &objects {
        let managers = Managed::of(object).filter(|managed| managed.subresource.is_empty());
        let seen = Seen {
            uid: object.text("/metadata/uid").to_owned(),
            content: content(object),
            managers: managers.map(|managed| managed.manager.to_owned()).collect(),
        };
        proof.objects.insert(object.key(), seen);
    }
    Ok(proof)
}

fn content(object: &Object) -> u64 {
    let mut hasher = DefaultHasher::new();
    let said = object.value().as_object().into_iter().flatten();
    for (key, value) in said.filter(|(key, _)| !matches!(key.as_str(), "metadata" | "status")) {
        (key, value.to_string()).hash(&mut hasher);
    }
    hasher.finish()
}

/// The labels of the Pods that an object runs.
fn selector(object: &Object) -> Option<&serde_json::Map<String, Value>> {
    let is_workload = matches!(object.text("/kind"), "Deployment" | "DaemonSet" | "StatefulSet" | "ReplicaSet");
    object.at("/spec/selector/matchLabels").as_object().filter(|labels| is_workload && !labels.is_empty())
}

fn has_labels(pod: &Object, wanted: &serde_json::Map<String, Value>) -> bool {
    wanted.iter().all(|(name, value)| pod.label(name) == value.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(uid: &str, content: u64, restarts: i64) -> Proof {
        let seen = Seen { uid: uid.to_owned(), content, managers: BTreeSet::new() };
        let pod = PodSeen { uid: uid.to_owned(), restarts };
        Proof {
            objects: [(Key::new("apps", "Deployment", "n", "a"), seen)].into(),
            pods: [("n/a-1".to_owned(), pod)].into(),
        }
    }

    #[test]
    fn only_who_owns_it_may_be_another() {
        let before = proof("u", 1, 0);
        let mut after = before.clone();
        for seen in after.objects.values_mut() {
            seen.managers.insert("castle".to_owned());
        }
        assert!(before.disturbed(&after).is_empty());
        assert_eq!(before.disturbed(&proof("u", 2, 1)), ["Deployment n/a was changed", "Pod n/a-1 was restarted"]);
        assert_eq!(before.disturbed(&proof("v", 1, 0)), ["Deployment n/a was made anew", "Pod n/a-1 was replaced"]);
        assert_eq!(before.disturbed(&Proof::default()), ["Deployment n/a is gone", "Pod n/a-1 was replaced"]);
    }
}
