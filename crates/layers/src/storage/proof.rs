//! The strongest proof that storage works: a volume that was bound, written and deleted.
//!
//! It is made once in the life of a cluster. That it was is written down in the cluster; a Job and its claim are there only meanwhile.

use std::sync::Arc;
use std::time::Duration;

use castle_components::namespace;
use castle_engine::{Change, Class, Decision, Fault, GraphBuilder, Handle, Impact, Operation, Place, Step};
use castle_kubernetes::client::{Api, Mode, Scope};
use castle_kubernetes::model::{Kind, Mark, Object, condition};
use castle_kubernetes::steps::{Expect, Present, Test, Unmet};
use castle_seams::BoxFuture;
use castle_spec::ComponentName;
use serde_json::{Value, json};

use super::{CLASS, LAYER};
use crate::inside::{DECIDED, Inside};
use crate::names::id;

/// The Job, its claim, and the ConfigMap that tells of it.
const NAME: &str = "castle-volume-proof";

fn space() -> &'static str {
    namespace(ComponentName::Longhorn)
}

/// Adds the proof, once storage is ready.
pub(super) fn prove(graph: &mut GraphBuilder, inside: &Inside<'_>, ready: &Handle<Present>) -> Handle<Present> {
    let mark = inside.mark(LAYER, "proof");
    let image = inside.manifests.get(&ComponentName::Longhorn).and_then(|objects| manager_image(objects));
    let place = Place { lane: None, predicted: Duration::from_secs(10) };
    let needs = (inside.api.clone(), ready.clone());
    let begun = graph.step(id(LAYER, "proof", "volume"), place, needs, Begin { mark: mark.clone(), image });
    let written = inside.gate(graph, (id(LAYER, "proof", "written"), DECIDED), &begun, vec![written()]);
    let needs = (inside.api.clone(), written);
    graph.step(id(LAYER, "proof", "end"), Place::default(), needs, End { mark })
}

/// The image of Longhorn's managers: it is on the nodes already, and has a shell.
fn manager_image(objects: &[Object]) -> Option<String> {
    let manager =
        objects.iter().find(|object| object.kind().kind == "DaemonSet" && object.name() == "longhorn-manager")?;
    manager.list("/spec/template/spec/containers").first()?["image"].as_str().map(str::to_owned)
}

/// That the Job has written and read its volume, or that it was once written down that it did.
fn written() -> Expect {
    let test = Test::new(|jobs| match jobs.first() {
        // No Job and nothing written down cannot be: the step before has seen to it.
        None => Ok(()),
        Some(job) if job.number("/status/succeeded").unwrap_or(0) > 0 => Ok(()),
        Some(job) if has_failed(job) => Err(Unmet::of(job, "has failed: castle up tries it once more")),
        Some(job) => Err(Unmet::of(job, "has not written its volume yet")),
    });
    Expect::Holds(Kind::new("batch/v1", "Job"), Scope::named(space(), NAME), test)
}

fn has_failed(job: &Object) -> bool {
    condition(job, "Failed").is_some_and(|failed| failed.status == "True")
}

/// What there is of the proof.
#[derive(Clone)]
struct Traces {
    record: Option<Object>,
    job: Option<Object>,
    claim: Option<Object>,
}

async fn traces(api: &Api, mark: &Mark) -> Result<Traces, Fault> {
    let look = async |api_version: &str, kind: &str| -> Result<Option<Object>, Fault> {
        let kind = Kind::new(api_version, kind);
        let key = castle_kubernetes::model::Key::new(&kind.group, &kind.kind, space(), NAME);
        let found = api.get(&kind, space(), NAME).await.map_err(|trouble| trouble.fault(&key))?;
        match found {
            Some(found) if Mark::of(&found).as_ref() != Some(mark) => {
                let fault = Fault::guard(key.to_string(), "has the name of castle's own, but not its mark");
                Err(fault.next(format!("kubectl get {} --output yaml", key.for_kubectl())))
            }
            found => Ok(found),
        }
    };
    let record = look("v1", "ConfigMap").await?;
    Ok(Traces { record, job: look("batch/v1", "Job").await?, claim: look("v1", "PersistentVolumeClaim").await? })
}

async fn apply(api: &Api, mark: &Mark, value: Value) -> Result<(), Fault> {
    let Some(object) = Object::new(value).map(|object| mark.on(object)) else { return Ok(()) };
    let applied = api.apply(&object, Mode::Real).await;
    applied.map(|_| ()).map_err(|trouble| trouble.fault(&object.key()))
}

/// Wants the volume written, unless that was done.
struct Begin {
    mark: Mark,
    /// Nothing if the manifest has none.
    image: Option<String>,
}

/// What brings a volume about that is written.
enum Beginning {
    /// The Job that failed goes, for another to come.
    Remove(Object),
    /// The Job and its claim are made.
    Prove,
}

fn proving() -> Change {
    Change::new("prove", Impact::Create).differing("a first volume", None, Some("written".to_owned()))
}

impl Begin {
    fn image(&self) -> Result<&str, Fault> {
        self.image.as_deref().ok_or_else(|| {
            let evidence = "its manifest tells no image, and so nothing that could write a volume";
            let fault = Fault::new(Class::Final, format!("DaemonSet {}/longhorn-manager", space()), evidence);
            fault.next("correct components.longhorn in castle.yaml, or remove storage.longhorn.proof")
        })
    }
}

impl Step for Begin {
    type Needs = (Arc<Api>, Arc<Present>);
    type Observed = Traces;
    type Action = Beginning;
    type Output = Present;

    fn observe<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Traces, Fault>> {
        Box::pin(traces(api, &self.mark))
    }

    fn decide(&self, _: &Self::Needs, seen: &Traces) -> Decision<Beginning> {
        if let (None, Some(job)) = (&seen.record, seen.job.as_ref().filter(|job| has_failed(job))) {
            let change = Change::new("remove", Impact::Destroy);
            let change = change.differing("the Job that failed", Some("there".to_owned()), None);
            return Decision::Act(Beginning::Remove(job.clone()), change);
        }
        if seen.record.is_some() || (seen.job.is_some() && seen.claim.is_some()) {
            return Decision::Nothing;
        }
        Decision::Act(Beginning::Prove, proving())
    }

    fn act<'a>(
        &'a self,
        (api, _): &'a Self::Needs,
        _: &'a Traces,
        action: &'a Beginning,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            if let Beginning::Remove(job) = action {
                return api.delete(job).await.map_err(|trouble| trouble.fault(&job.key()));
            }
            let image = self.image()?;
            apply(api, &self.mark, claim()).await?;
            apply(api, &self.mark, job(image)).await
        })
    }

    fn expect(&self, _: &Self::Needs, _: &Traces) -> Option<Present> {
        Some(Present)
    }

    fn foresee(&self) -> Option<Change> {
        Some(proving())
    }

    fn output(&self, _: &Self::Needs, _: &Traces) -> Present {
        Present
    }
}

/// Wants it written down, and the volume gone.
struct End {
    mark: Mark,
}

/// What is done once the volume was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// That it was is written down.
    Record,
    /// Job and claim are deleted.
    Delete,
}

fn recording() -> Change {
    Change::new("record", Impact::Create).differing("the first volume", None, Some("was written".to_owned()))
}

impl Step for End {
    type Needs = (Arc<Api>, Arc<Present>);
    type Observed = Traces;
    type Action = Ending;
    type Output = Present;

    fn observe<'a>(&'a self, (api, _): &'a Self::Needs) -> BoxFuture<'a, Result<Traces, Fault>> {
        Box::pin(async move {
            let seen = traces(api, &self.mark).await?;
            let has_written = seen.job.as_ref().is_some_and(|job| job.number("/status/succeeded").unwrap_or(0) > 0);
            if seen.record.is_none() && !has_written {
                let subject = format!("Job {}/{NAME}", space());
                let evidence = "was removed before it was seen to have written its volume";
                return Err(Fault::new(Class::Final, subject, evidence).next("castle up"));
            }
            Ok(seen)
        })
    }

    fn decide(&self, _: &Self::Needs, seen: &Traces) -> Decision<Ending> {
        let is_left = |object: &Option<Object>| object.as_ref().is_some_and(|object| !object.is_ending());
        if seen.record.is_none() {
            return Decision::Act(Ending::Record, recording());
        }
        if is_left(&seen.job) || is_left(&seen.claim) {
            let change = Change::new("delete", Impact::Destroy);
            let change = change.differing("the first volume", Some("there".to_owned()), None);
            return Decision::Act(Ending::Delete, change);
        }
        Decision::Nothing
    }

    fn act<'a>(
        &'a self,
        (api, _): &'a Self::Needs,
        seen: &'a Traces,
        action: &'a Ending,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            if *action == Ending::Record {
                return apply(api, &self.mark, record()).await;
            }
            for object in [&seen.job, &seen.claim].into_iter().flatten().filter(|object| !object.is_ending()) {
                api.delete(object).await.map_err(|trouble| trouble.fault(&object.key()))?;
            }
            Ok(())
        })
    }

    fn foresee(&self) -> Option<Change> {
        Some(recording())
    }

    fn output(&self, _: &Self::Needs, _: &Traces) -> Present {
        Present
    }
}

fn metadata() -> Value {
    json!({"name": NAME, "namespace": space()})
}

fn record() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(),
        "data": {"proof": format!("a volume of class {CLASS} was bound, written and read")},
    })
}

fn claim() -> Value {
    json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(),
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": CLASS, "resources": {"requests": {"storage": "64Mi"}},
        },
    })
}

fn job(image: &str) -> Value {
    let script = "echo castle > /proof/word && sync && test \"$(cat /proof/word)\" = castle";
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata(),
        "spec": {"backoffLimit": 3, "template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "writer", "image": image, "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "proof", "mountPath": "/proof"}],
            }],
            "volumes": [{"name": "proof", "persistentVolumeClaim": {"claimName": NAME}}],
        }}},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manager(name: &str, containers: &Value) -> Object {
        let spec = json!({"template": {"spec": {"containers": containers}}});
        let metadata = json!({"name": name, "namespace": space()});
        Object::new(json!({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec})).unwrap()
    }

    #[test]
    fn a_manifest_without_an_image_has_nothing_that_could_write_a_volume() {
        let begin = |object| Begin { mark: Mark::new("blue", LAYER, "proof"), image: manager_image(&[object]) };
        let told = begin(manager("longhorn-manager", &json!([{"image": "example.com/manager:1"}, {"image": "other"}])));
        assert_eq!(told.image(), Ok("example.com/manager:1"));
        for object in [
            manager("longhorn-manager", &json!([])),
            manager("longhorn-manager", &json!([{"name": "manager"}])),
            manager("somebody-else", &json!([{"image": "example.com/manager:1"}])),
        ] {
            let fault = begin(object).image().unwrap_err();
            let told = "DaemonSet longhorn-system/longhorn-manager: its manifest tells no image, and so nothing that could write a volume";
            assert_eq!((fault.to_string().as_str(), fault.is_final()), (told, true));
            assert_eq!(fault.next, "correct components.longhorn in castle.yaml, or remove storage.longhorn.proof");
        }
    }
}
