//! Pod Security admission as Talos sets it up: `baseline` is enforced, `restricted` is warned of, `kube-system` is exempt.

use serde_json::Value;

use super::admission::{Deed, Operation};
use super::api::Call;
use super::kube::Kube;
use super::status::Failure;
use super::value;

mod checks;
use checks::{containers, violations};

/// How much pods are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

impl Level {
    fn of(word: &str) -> Option<Self> {
        match word {
            "privileged" => Some(Self::Privileged),
            "baseline" => Some(Self::Baseline),
            "restricted" => Some(Self::Restricted),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Privileged => "privileged",
            Self::Baseline => "baseline",
            Self::Restricted => "restricted",
        }
    }
}

/// Refuses a pod that its namespace does not allow, and warns of one that is too free.
pub(super) fn judge(kube: &Kube, call: &mut Call<'_>, deed: &Deed<'_>, object: &Value) -> Result<(), Failure> {
    let collection = call.resource.qualified();
    if let Some(old) = deed.old.filter(|_| collection == "namespaces" && call.target.subresource.is_empty()) {
        call.warnings.extend(newly_violating(kube, old, object));
        return Ok(());
    }
    let is_pod = collection == "pods";
    let path = match collection.as_str() {
        "pods" => "spec",
        "deployments.apps" | "daemonsets.apps" | "statefulsets.apps" | "replicasets.apps" | "jobs.batch" => {
            "spec.template.spec"
        }
        "cronjobs.batch" => "spec.jobTemplate.spec.template.spec",
        _ => return Ok(()),
    };
    // Of a pod that is changed only its images matter: the rest cannot be changed.
    let is_minor = is_pod
        && deed.operation == Operation::Update
        && deed.old.is_some_and(|old| images(&old["spec"]) == images(&object["spec"]));
    if !call.target.subresource.is_empty() || is_minor {
        return Ok(());
    }
    let name = value::namespace(object);
    if name == "kube-system" {
        return Ok(());
    }
    let Some(spec) = value::at(object, path) else { return Ok(()) };
    let namespace = kube.get("namespaces", "", name);
    let level = |mode: &str, otherwise: Level| {
        namespace.as_deref().map_or(otherwise, |namespace| demanded(namespace, mode, otherwise))
    };
    let (enforced, warned) = (level("enforce", Level::Baseline), level("warn", Level::Restricted));
    if is_pod {
        let wrong = violations(spec, enforced);
        if !wrong.is_empty() {
            let why = format!("violates PodSecurity \"{}:latest\": {}", enforced.word(), wrong.join(", "));
            return Err(Failure::forbidden(&call.resource, value::name(object), &why));
        }
    }
    let wrong = violations(spec, warned);
    if !wrong.is_empty() {
        call.warnings.push(format!("would violate PodSecurity \"{}:latest\": {}", warned.word(), wrong.join(", ")));
    }
    Ok(())
}

/// What a namespace demands of its pods.
fn demanded(namespace: &Value, mode: &str, otherwise: Level) -> Level {
    let labels = value::at(namespace, "metadata.labels");
    let word =
        labels.and_then(|labels| labels.get(format!("pod-security.kubernetes.io/{mode}"))).and_then(Value::as_str);
    word.map_or(otherwise, |word| Level::of(word).unwrap_or(Level::Restricted))
}

fn images(spec: &Value) -> Vec<&str> {
    containers(spec).into_iter().map(|container| value::text(container, "image")).collect()
}

/// What is told of pods that a namespace would not let in any more: those that are wrong in the same way at once.
fn newly_violating(kube: &Kube, old: &Value, new: &Value) -> Vec<String> {
    let [before, now] = [old, new].map(|namespace| demanded(namespace, "enforce", Level::Baseline));
    let name = value::name(new);
    if now <= before || name == "kube-system" {
        return Vec::new();
    }
    let mut alike: Vec<(String, Vec<&str>)> = Vec::new();
    for pod in kube.store.all("pods", name) {
        let wrong = violations(&pod["spec"], now);
        let kinds: Vec<&str> = wrong.iter().map(|text| text.split(" (").next().unwrap_or(text)).collect();
        match alike.iter_mut().find(|(told, _)| *told == kinds.join(", ")) {
            _ if kinds.is_empty() => {}
            Some((_, pods)) => pods.push(value::name(pod)),
            None => alike.push((kinds.join(", "), vec![value::name(pod)])),
        }
    }
    if alike.is_empty() {
        return Vec::new();
    }
    let level = now.word();
    let mut told = vec![format!(
        "existing pods in namespace {name:?} violate the new PodSecurity enforce level \"{level}:latest\""
    )];
    told.extend(alike.into_iter().map(|(kinds, pods)| match pods.as_slice() {
        [first, _] => format!("{first} (and 1 other pod): {kinds}"),
        [first, others @ ..] if !others.is_empty() => format!("{first} (and {} other pods): {kinds}", others.len()),
        names => format!("{}: {kinds}", names.concat()),
    }));
    told
}
