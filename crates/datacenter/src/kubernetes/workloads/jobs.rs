//! Jobs: pods that run to their end, as often as is wanted.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{is_active, is_ready};
use crate::kubernetes::crd::{condition, is};
use crate::kubernetes::kube::{CONTROLLER_STATUS, Due, Key, Kube, unstamp};
use crate::kubernetes::value;

/// How long a job waits after its first pod that failed; with every further one twice as long.
const BACKOFF: f64 = 10.0;
/// How long it waits at most.
const LONGEST_BACKOFF: f64 = 600.0;

/// Why a job is over before its end.
type Failed = (&'static str, &'static str);
const BACKOFF_LIMIT: Failed = ("BackoffLimitExceeded", "Job has reached the specified backoff limit");
const DEADLINE: Failed = ("DeadlineExceeded", "Job was active longer than specified deadline");

impl Kube {
    pub(super) fn sync_job(&mut self, job: &Arc<Value>) {
        if value::is_deleting(job) {
            return;
        }
        if is(job, "Complete") || is(job, "Failed") {
            return self.forget_job(job);
        }
        let pods = self.controlled(job, "pods");
        let phase = |pod: &&Arc<Value>, word: &str| value::text(pod, "status.phase") == word;
        let succeeded = pods.iter().filter(|pod| phase(pod, "Succeeded")).count() as i64;
        let failed = pods.iter().filter(|pod| phase(pod, "Failed")).count() as i64;
        let mut active = pods.iter().filter(|pod| is_active(pod)).count() as i64;
        let wanted = value::number(job, "spec.completions").unwrap_or(1);
        let limit = value::number(job, "spec.backoffLimit").unwrap_or(6);
        let failure = match () {
            () if failed > limit => Some(BACKOFF_LIMIT),
            () if self.is_past_deadline(job) => Some(DEADLINE),
            () => None,
        };
        let is_suspended = value::is_true(job, "spec.suspend");
        let parallel = value::number(job, "spec.parallelism").unwrap_or(1).min(wanted - succeeded);
        if failure.is_some() || is_suspended {
            pods.iter().filter(|pod| is_active(pod)).for_each(|pod| self.dismiss("pods", pod));
            active = 0;
        } else if active < parallel && !self.waits_after_failure(job, &pods, failed) {
            while active < parallel && self.make_pod(job, &format!("{}-", value::name(job))).is_ok() {
                active += 1;
            }
        }
        let (now, ready) = (self.stamp(), pods.iter().filter(|pod| is_ready(pod)).count() as i64);
        self.amend(&CONTROLLER_STATUS, ("jobs.batch", value::namespace(job), value::name(job)), |object| {
            if is_suspended {
                value::remove(object, "status.startTime");
                probed(object, &now, "Suspended", "True", ("JobSuspended", "Job suspended"));
            } else {
                value::default(object, "status.startTime", now.as_str());
                if is(object, "Suspended") {
                    probed(object, &now, "Suspended", "False", ("JobResumed", "Job resumed"));
                }
            }
            value::set(object, "status.active", active);
            value::set(object, "status.succeeded", succeeded);
            value::set(object, "status.failed", failed);
            value::set(object, "status.ready", ready);
            value::set(object, "status.terminating", 0);
            let done = "Reached expected number of succeeded pods";
            if succeeded >= wanted {
                value::set(object, "status.completionTime", now.as_str());
                probed(object, &now, "SuccessCriteriaMet", "True", ("CompletionsReached", done));
                probed(object, &now, "Complete", "True", ("CompletionsReached", done));
            } else if let Some(why) = failure {
                probed(object, &now, "FailureTarget", "True", why);
                probed(object, &now, "Failed", "True", why);
            }
        });
        if succeeded >= wanted {
            self.tell("job-controller", job, true, "Completed", "Job completed");
        } else if let Some((reason, message)) = failure {
            self.tell("job-controller", job, false, reason, message);
        }
    }

    /// Whether a job was active for longer than it may; if that is still to come, it is looked at then.
    fn is_past_deadline(&mut self, job: &Value) -> bool {
        let Some(seconds) = value::number(job, "spec.activeDeadlineSeconds") else { return false };
        let begun = unstamp(value::text(job, "status.startTime")).unwrap_or(self.calendar + self.now);
        let end = begun + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let left = end.saturating_sub(self.calendar + self.now);
        if !left.is_zero() && value::text(job, "status.startTime").is_empty() {
            self.plan(left, Due::Look(key(job)));
        }
        left.is_zero()
    }

    /// Whether a job whose pods failed waits before it tries again; it is looked at when it does.
    fn waits_after_failure(&mut self, job: &Value, pods: &[Arc<Value>], failed: i64) -> bool {
        if failed == 0 {
            return false;
        }
        let doubled = 2_f64.powi(i32::try_from(failed - 1).unwrap_or(i32::MAX));
        let wait = self.scaled((BACKOFF * doubled).min(LONGEST_BACKOFF));
        let ends = pods.iter().filter(|pod| value::text(pod, "status.phase") == "Failed").map(|pod| ended(pod));
        let since = ends.max().unwrap_or_default().saturating_sub(self.calendar);
        let left = (since + wait).saturating_sub(self.now);
        if !left.is_zero() {
            self.plan(left, Due::Look(key(job)));
        }
        !left.is_zero()
    }

    /// A job that is over goes once its time is over, where it has one.
    fn forget_job(&mut self, job: &Arc<Value>) {
        let Some(seconds) = value::number(job, "spec.ttlSecondsAfterFinished") else { return };
        let conditions = value::items(job, "status.conditions").iter();
        let over = conditions.filter(|it| ["Complete", "Failed"].contains(&value::text(it, "type")));
        let over = over.filter_map(|it| unstamp(value::text(it, "lastTransitionTime"))).max().unwrap_or_default();
        let end = over + Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
        let left = end.saturating_sub(self.calendar + self.now);
        if left.is_zero() {
            self.dismiss_job(job);
        } else {
            self.plan(left, Due::Look(key(job)));
        }
    }
}

fn key(job: &Value) -> Key {
    (Arc::from("jobs.batch"), value::namespace(job).to_owned(), value::name(job).to_owned())
}

/// When the containers of a pod ended.
fn ended(pod: &Value) -> Duration {
    let statuses = value::items(pod, "status.containerStatuses").iter();
    statuses.filter_map(|it| unstamp(value::text(it, "state.terminated.finishedAt"))).max().unwrap_or_default()
}

/// A condition of a job, which also tells when it was looked at.
fn probed(object: &mut Value, now: &str, name: &str, status: &str, why: (&str, &str)) {
    condition(object, now, name, status, why);
    for item in object.pointer_mut("/status/conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        value::default(item, "lastProbeTime", json!(now));
    }
}
