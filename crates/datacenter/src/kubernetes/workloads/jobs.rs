//! Jobs: pods that run to their end, as often as is wanted.

use std::sync::Arc;

use serde_json::{Value, json};

use super::is_active;
use crate::kubernetes::crd::{condition, is};
use crate::kubernetes::kube::{CONTROLLER_STATUS, Kube};
use crate::kubernetes::value;

impl Kube {
    pub(super) fn sync_job(&mut self, job: &Arc<Value>) {
        if value::is_deleting(job) || is(job, "Complete") || is(job, "Failed") {
            return;
        }
        let pods = self.controlled(job, "pods");
        let phase = |pod: &&Arc<Value>, word: &str| value::text(pod, "status.phase") == word;
        let succeeded = pods.iter().filter(|pod| phase(pod, "Succeeded")).count() as i64;
        let failed = pods.iter().filter(|pod| phase(pod, "Failed")).count() as i64;
        let mut active = pods.iter().filter(|pod| is_active(pod)).count() as i64;
        let wanted = value::number(job, "spec.completions").unwrap_or(1);
        let limit = value::number(job, "spec.backoffLimit").unwrap_or(6);
        let is_failed = failed > limit;
        let parallel = value::number(job, "spec.parallelism").unwrap_or(1).min(wanted - succeeded);
        if !is_failed && !value::is_true(job, "spec.suspend") {
            while active < parallel {
                if self.make_pod(job, &format!("{}-", value::name(job))).is_err() {
                    break;
                }
                active += 1;
            }
        }
        let now = self.stamp();
        self.amend(&CONTROLLER_STATUS, ("jobs.batch", value::namespace(job), value::name(job)), |object| {
            value::default(object, "status.startTime", now.as_str());
            value::set(object, "status.active", active);
            value::set(object, "status.succeeded", succeeded);
            value::set(object, "status.failed", failed);
            value::set(object, "status.ready", 0);
            value::set(object, "status.terminating", 0);
            let done = "Reached expected number of succeeded pods";
            if succeeded >= wanted {
                value::set(object, "status.completionTime", now.as_str());
                probed(object, &now, "SuccessCriteriaMet", ("CompletionsReached", done));
                probed(object, &now, "Complete", ("CompletionsReached", done));
            } else if is_failed {
                let why = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
                probed(object, &now, "FailureTarget", why);
                probed(object, &now, "Failed", why);
            }
        });
        if succeeded >= wanted {
            self.tell("job-controller", job, true, "Completed", "Job completed");
        } else if is_failed {
            self.tell(
                "job-controller",
                job,
                false,
                "BackoffLimitExceeded",
                "Job has reached the specified backoff limit",
            );
        }
    }
}

/// A condition of a job, which also tells when it was looked at.
fn probed(object: &mut Value, now: &str, name: &str, why: (&str, &str)) {
    condition(object, now, name, "True", why);
    for item in object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        value::default(item, "lastProbeTime", json!(now));
    }
}
