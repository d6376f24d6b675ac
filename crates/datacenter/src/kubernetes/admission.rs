//! Who has a say before an object is kept: first those that change it, then those that only judge.

use serde_json::{Value, json};

use super::api::Call;
use super::kube::Kube;
use super::quantity;
use super::status::Failure;
use super::{podsecurity, restriction, value};

/// What is about to happen to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Update,
    Delete,
}

impl Operation {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// What is about to happen, and to what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deed<'a> {
    pub(crate) operation: Operation,
    /// The object as it is, where there is one.
    pub(crate) old: Option<&'a Value>,
}

impl<'a> Deed<'a> {
    pub(crate) const CREATE: Self = Self { operation: Operation::Create, old: None };

    pub(crate) fn update(old: &'a Value) -> Self {
        Self { operation: Operation::Update, old: Some(old) }
    }

    pub(crate) fn delete(old: &'a Value) -> Self {
        Self { operation: Operation::Delete, old: Some(old) }
    }

    /// The object that it is about: the new one, or the old where nothing is left.
    pub(crate) fn subject<'b>(&self, object: &'b Value) -> &'b Value
    where
        'a: 'b,
    {
        if object.is_null() { self.old.unwrap_or(object) } else { object }
    }
}

impl Kube {
    /// Lets those have their say who change objects.
    pub(crate) fn admit(&mut self, call: &mut Call<'_>, deed: &Deed<'_>, object: &mut Value) -> Result<(), Failure> {
        if deed.operation == Operation::Create {
            self.check_namespace(call, object)?;
        }
        let collection = call.resource.qualified();
        if deed.operation == Operation::Create && call.target.subresource.is_empty() {
            match collection.as_str() {
                "pods" => self.admit_pod(call, object)?,
                "namespaces" => value::default(object, "spec.finalizers", json!(["kubernetes"])),
                "persistentvolumeclaims" => {
                    value::set(object, "metadata.finalizers", json!(["kubernetes.io/pvc-protection"]));
                    if value::at(object, "spec.storageClassName").is_none()
                        && let Some(class) = self.default_class()
                    {
                        value::set(object, "spec.storageClassName", class);
                    }
                }
                "persistentvolumes" => {
                    value::set(object, "metadata.finalizers", json!(["kubernetes.io/pv-protection"]));
                    value::set(object, "status.lastPhaseTransitionTime", self.stamp());
                }
                "nodes" => {
                    let taint = json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoSchedule" });
                    if !value::items(object, "spec.taints").contains(&taint) {
                        push(object, "spec.taints", taint);
                    }
                }
                _ => {}
            }
        }
        self.call_mutating(call, deed, object)
    }

    /// Lets those have their say who only judge.
    pub(crate) fn review(&mut self, call: &mut Call<'_>, deed: &Deed<'_>, object: &Value) -> Result<(), Failure> {
        if deed.operation != Operation::Delete {
            self.check_escalation(call, object)?;
            podsecurity::judge(self, call, deed, object)?;
            restriction::judge(call, deed, object)?;
        }
        if deed.operation == Operation::Create {
            self.check_quota(call, object)?;
        }
        self.call_validating(call, deed, object)
    }

    /// Nothing is made in a namespace that is not there, or that ends.
    fn check_namespace(&self, call: &Call<'_>, object: &Value) -> Result<(), Failure> {
        let definition =
            call.resource.custom().and_then(|_| self.get(super::crd::DEFINITIONS, "", &call.resource.qualified()));
        if definition.is_some_and(|definition| value::is_deleting(&definition)) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Failure::forbidden(&call.resource, value::name(object), why));
        }
        if !call.resource.is_namespaced {
            return Ok(());
        }
        let name = value::namespace(object);
        let Some(resource) = super::kinds::named("namespaces") else { return Ok(()) };
        let Some(namespace) = self.get("namespaces", "", name) else {
            return Err(Failure::not_found(resource, name));
        };
        if value::is_deleting(&namespace) {
            let why = format!("unable to create new content in namespace {name} because it is being terminated");
            let mut failure = Failure::forbidden(&call.resource, value::name(object), &why);
            if let Some(details) = &mut failure.details {
                let message = format!("namespace {name} is being terminated");
                value::set(
                    details,
                    "causes",
                    json!([{ "reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace" }]),
                );
            }
            return Err(failure);
        }
        Ok(())
    }

    /// Gives a pod its account, its priority, and what every pod tolerates.
    fn admit_pod(&mut self, call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
        let namespace = value::namespace(pod).to_owned();
        let is_mirror =
            value::at(pod, "metadata.annotations").is_some_and(|all| all.get("kubernetes.io/config.mirror").is_some());
        if !is_mirror {
            self.give_account(call, pod, &namespace)?;
        }
        self.give_priority(call, pod)?;
        self.give_limits(pod, &namespace);
        for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
            let tolerates = value::items(pod, "spec.tolerations").iter().any(|it| {
                (value::text(it, "key") == key
                    || value::text(it, "key").is_empty() && value::text(it, "operator") == "Exists")
                    && ["", "NoExecute"].contains(&value::text(it, "effect"))
            });
            if !tolerates {
                push(
                    pod,
                    "spec.tolerations",
                    json!({ "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300 }),
                );
            }
        }
        Ok(())
    }

    fn give_account(&mut self, call: &Call<'_>, pod: &mut Value, namespace: &str) -> Result<(), Failure> {
        if value::text(pod, "spec.serviceAccountName").is_empty() {
            value::set(pod, "spec.serviceAccountName", "default");
            value::set(pod, "spec.serviceAccount", "default");
        }
        let name = value::text(pod, "spec.serviceAccountName").to_owned();
        let Some(account) = self.get("serviceaccounts", namespace, &name) else {
            let why = format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
            return Err(Failure::forbidden(&call.resource, value::name(pod), &why));
        };
        let own = value::at(pod, "spec.automountServiceAccountToken").and_then(Value::as_bool);
        let mounts =
            own.or_else(|| account.get("automountServiceAccountToken").and_then(Value::as_bool)).unwrap_or(true);
        if !mounts {
            return Ok(());
        }
        let volume = format!("kube-api-access-{}", self.suffix(5));
        let target = "/var/run/secrets/kubernetes.io/serviceaccount";
        let mut is_used = false;
        for list in ["initContainers", "containers"] {
            for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if value::items(container, "volumeMounts").iter().all(|mount| value::text(mount, "mountPath") != target)
                {
                    is_used = true;
                    push(container, "volumeMounts", json!({ "name": volume, "readOnly": true, "mountPath": target }));
                }
            }
        }
        if is_used {
            let projected = json!({ "sources": [
                { "serviceAccountToken": { "expirationSeconds": 3_607, "path": "token" } },
                { "configMap": { "name": "kube-root-ca.crt", "items": [{ "key": "ca.crt", "path": "ca.crt" }] } },
                { "downwardAPI": { "items": [{ "path": "namespace", "fieldRef": { "apiVersion": "v1", "fieldPath": "metadata.namespace" } }] } },
            ], "defaultMode": 420 });
            push(pod, "spec.volumes", json!({ "name": volume, "projected": projected }));
        }
        Ok(())
    }

    fn give_priority(&self, call: &Call<'_>, pod: &mut Value) -> Result<(), Failure> {
        let name = value::text(pod, "spec.priorityClassName").to_owned();
        const CLASSES: &str = "priorityclasses.scheduling.k8s.io";
        let class = if name.is_empty() {
            self.store.all(CLASSES, "").find(|class| value::is_true(class, "globalDefault")).cloned()
        } else {
            let Some(class) = self.get(CLASSES, "", &name) else {
                let why = format!("no PriorityClass with name {name} was found");
                return Err(Failure::forbidden(&call.resource, value::name(pod), &why));
            };
            Some(class)
        };
        let policy =
            class.as_ref().map_or("PreemptLowerPriority", |class| value::text(class, "preemptionPolicy")).to_owned();
        let number = class.as_ref().and_then(|class| value::number(class, "value")).unwrap_or(0);
        if let Some(class) = class.as_ref().filter(|_| name.is_empty()) {
            value::set(pod, "spec.priorityClassName", value::name(class));
        }
        value::set(pod, "spec.priority", number);
        value::default(pod, "spec.preemptionPolicy", policy);
        Ok(())
    }

    /// What limits of the namespace give to containers that say nothing.
    fn give_limits(&self, pod: &mut Value, namespace: &str) {
        for range in self.store.all("limitranges", namespace) {
            for item in
                value::items(range, "spec.limits").iter().filter(|item| value::text(item, "type") == "Container")
            {
                for container in pod["spec"].get_mut("containers").and_then(Value::as_array_mut).into_iter().flatten() {
                    for (from, into) in [("default", "limits"), ("defaultRequest", "requests")] {
                        for (name, amount) in value::members(item, from) {
                            let place = value::place(container, &format!("resources.{into}"));
                            if place.get(name).is_none() {
                                place[name.as_str()] = amount.clone();
                            }
                        }
                    }
                }
            }
        }
    }

    fn default_class(&self) -> Option<String> {
        let is_default = |class: &&std::sync::Arc<Value>| {
            let annotations = value::at(class, "metadata.annotations");
            annotations
                .and_then(|all| all.get("storageclass.kubernetes.io/is-default-class"))
                .is_some_and(|word| word == "true")
        };
        self.store.all("storageclasses.storage.k8s.io", "").find(is_default).map(|class| value::name(class).to_owned())
    }

    /// A job finds its pods by its own uid.
    pub(crate) fn prepare_job(&self, job: &mut Value) {
        if value::is_true(job, "spec.manualSelector") {
            return;
        }
        let (uid, name) = (value::uid(job).to_owned(), value::name(job).to_owned());
        let labels = value::place(job, "spec.template.metadata.labels");
        for (key, text) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            if labels.get(key).is_none() {
                labels[key] = json!(text);
            }
        }
        value::default(job, "spec.selector", json!({ "matchLabels": { "batch.kubernetes.io/controller-uid": uid } }));
    }

    /// Refuses what a quota does not leave room for: counts of objects, and requests of pods.
    fn check_quota(&self, call: &Call<'_>, object: &Value) -> Result<(), Failure> {
        let (namespace, collection) = (value::namespace(object), call.resource.qualified());
        for quota in self.store.all("resourcequotas", namespace).filter(|quota| applies(quota, object)) {
            for (name, hard) in value::members(quota, "spec.hard") {
                let bound = hard.as_str().and_then(quantity::nano).unwrap_or(0);
                let Some(asked) = usage(name, &collection, object) else { continue };
                let used: i128 = self
                    .store
                    .all(&collection, namespace)
                    .filter(|other| applies(quota, other))
                    .filter_map(|other| usage(name, &collection, other))
                    .sum();
                if used + asked > bound {
                    let text = |nano: i128| quantity::canonical(&format!("{nano}n")).unwrap_or_default();
                    let why = format!(
                        "exceeded quota: {}, requested: {name}={}, used: {name}={}, limited: {name}={}",
                        value::name(quota),
                        text(asked),
                        text(used),
                        text(bound)
                    );
                    return Err(Failure::forbidden(&call.resource, value::name(object), &why));
                }
            }
        }
        Ok(())
    }
}

/// Whether a quota counts an object: it may be for pods of some priorities alone.
fn applies(quota: &Value, object: &Value) -> bool {
    value::items(quota, "spec.scopeSelector.matchExpressions").iter().all(|item| {
        let own = value::text(object, "spec.priorityClassName");
        let listed = value::items(item, "values").iter().any(|word| word == own);
        match (value::text(item, "scopeName"), value::text(item, "operator")) {
            ("PriorityClass", "In") => listed,
            ("PriorityClass", "NotIn") => !listed,
            ("PriorityClass", "Exists") => !own.is_empty(),
            _ => true,
        }
    })
}

/// How much of what a quota bounds an object takes, in billionths.
fn usage(name: &str, collection: &str, object: &Value) -> Option<i128> {
    const ONE: i128 = 1_000_000_000;
    let counted = name.strip_prefix("count/").unwrap_or(name);
    if counted == collection {
        let is_over = collection == "pods" && ["Succeeded", "Failed"].contains(&value::text(object, "status.phase"));
        return Some(if is_over { 0 } else { ONE });
    }
    let (kind, what) = match name {
        "cpu" | "memory" => ("requests", name),
        _ => name.split_once('.')?,
    };
    if collection != "pods" || !["requests", "limits"].contains(&kind) {
        return None;
    }
    let amounts = value::items(object, "spec.containers").iter().map(|container| {
        value::at(container, &format!("resources.{kind}"))
            .and_then(|all| all.get(what))
            .and_then(Value::as_str)
            .and_then(quantity::nano)
            .unwrap_or(0)
    });
    Some(amounts.sum())
}

/// Adds to a list that may not be there yet.
fn push(object: &mut Value, path: &str, item: Value) {
    let place = value::place(object, path);
    match place.as_array_mut() {
        Some(items) => items.push(item),
        None => *place = json!([item]),
    }
}
