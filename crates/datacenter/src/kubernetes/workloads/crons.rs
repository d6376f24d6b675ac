//! Jobs that begin at certain times.
//!
//! Times are those of UTC, whatever time zone a schedule names: nothing here knows the zones.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kubernetes::crd::is;
use crate::kubernetes::delete::{Options, Propagation};
use crate::kubernetes::kube::{CONTROLLER_STATUS, Due, Key, Kube, stamp, unstamp};
use crate::kubernetes::value;

const CRONS: &str = "cronjobs.batch";
const JOBS: &str = "jobs.batch";
const CONTROLLER_NAME: &str = "cronjob-controller";
/// Where a job says what time it was meant for.
const MEANT_FOR: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How far ahead a time is looked for: leap days come every four years.
const DAYS_AHEAD: u64 = 5 * 366;
const DAY: u64 = 86_400;

impl Kube {
    pub(super) fn sync_cron_job(&mut self, cron: &Arc<Value>) {
        if value::is_deleting(cron) {
            return;
        }
        let jobs = self.controlled(cron, JOBS);
        self.forget_old_jobs(cron, &jobs);
        let now = self.calendar + self.now;
        let mut last = unstamp(value::text(cron, "status.lastScheduleTime"));
        let schedule = Schedule::parse(value::text(cron, "spec.schedule"));
        if let Some(schedule) = schedule.filter(|_| !value::is_true(cron, "spec.suspend")) {
            let since = last.or_else(|| unstamp(value::text(cron, "metadata.creationTimestamp"))).unwrap_or(now);
            if let Some(at) = schedule.latest(since, now)
                && self.begin_job(cron, &jobs, at)
            {
                last = Some(at);
            }
            self.plan_cron(cron, schedule.next(now));
        }
        let jobs = self.controlled(cron, JOBS);
        let active: Vec<Value> = jobs.iter().filter(|job| !is_over(job)).map(|job| reference(job)).collect();
        let done = jobs.iter().filter(|job| is(job, "Complete"));
        let done = done.map(|job| value::text(job, "status.completionTime").to_owned()).max();
        self.amend(&CONTROLLER_STATUS, (CRONS, value::namespace(cron), value::name(cron)), |object| {
            match active.is_empty() {
                true => drop(value::remove(object, "status.active")),
                false => value::set(object, "status.active", active),
            }
            if let Some(last) = last {
                value::set(object, "status.lastScheduleTime", stamp(last));
            }
            if let Some(done) = done.filter(|done| done.as_str() > value::text(object, "status.lastSuccessfulTime")) {
                value::set(object, "status.lastSuccessfulTime", done);
            }
        });
    }

    /// Begins the job of a time. Says whether that time is over: begun, or passed over.
    fn begin_job(&mut self, cron: &Arc<Value>, jobs: &[Arc<Value>], at: Duration) -> bool {
        let now = self.calendar + self.now;
        let deadline = value::number(cron, "spec.startingDeadlineSeconds").and_then(|it| u64::try_from(it).ok());
        if deadline.is_some_and(|seconds| now.saturating_sub(at) > Duration::from_secs(seconds)) {
            let message = format!("Missed scheduled time to start a job: {}", stamp(at));
            self.tell(CONTROLLER_NAME, cron, false, "MissSchedule", &message);
            return false;
        }
        let active: Vec<&Arc<Value>> = jobs.iter().filter(|job| !is_over(job)).collect();
        match value::text(cron, "spec.concurrencyPolicy") {
            "Forbid" if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.tell(CONTROLLER_NAME, cron, true, "JobAlreadyActive", message);
                return false;
            }
            "Replace" => {
                for job in active {
                    self.dismiss_job(job);
                }
            }
            _ => {}
        }
        let name = format!("{}-{}", value::name(cron), at.as_secs() / 60);
        let template = &cron["spec"]["jobTemplate"];
        let mut metadata = json!({
            "name": name, "namespace": value::namespace(cron), "ownerReferences": value::controlled_by(cron),
            "annotations": template["metadata"]["annotations"], "labels": template["metadata"]["labels"],
        });
        value::without_nulls(&mut metadata);
        value::place(&mut metadata, "annotations")[MEANT_FOR] = json!(stamp(at));
        let job = json!({ "apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template["spec"] });
        match self.submit(CONTROLLER_NAME, JOBS, job) {
            Ok(_) => self.tell(CONTROLLER_NAME, cron, true, "SuccessfulCreate", &format!("Created job {name}")),
            Err(failure) => {
                let message = format!("Error creating job: {}", failure.message);
                self.tell(CONTROLLER_NAME, cron, false, "FailedCreate", &message);
            }
        }
        true
    }

    /// The next time is planned once.
    fn plan_cron(&mut self, cron: &Value, next: Option<Duration>) {
        let Some(next) = next.map(|at| at.saturating_sub(self.calendar)) else { return };
        let key: Key = (Arc::from(CRONS), value::namespace(cron).to_owned(), value::name(cron).to_owned());
        if self.workloads.crons.insert(value::uid(cron).to_owned(), next) != Some(next) {
            self.plan(next.saturating_sub(self.now), Due::Look(key));
        }
    }

    /// Only so many of the jobs that are over are kept.
    fn forget_old_jobs(&mut self, cron: &Value, jobs: &[Arc<Value>]) {
        for (kind, limit) in [("Complete", "successfulJobsHistoryLimit"), ("Failed", "failedJobsHistoryLimit")] {
            let Some(limit) = value::number(cron, &format!("spec.{limit}")) else { continue };
            let mut over: Vec<&Arc<Value>> = jobs.iter().filter(|job| is(job, kind)).collect();
            over.sort_by_key(|job| value::text(job, "status.startTime").to_owned());
            let surplus = over.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
            for job in over.into_iter().take(surplus) {
                self.dismiss_job(job);
            }
        }
    }

    /// Ends a job with its pods.
    pub(super) fn dismiss_job(&mut self, job: &Arc<Value>) {
        let options = Options { propagation: Some(Propagation::Background), ..Options::default() };
        if !value::is_deleting(job) && self.dismiss_as(CONTROLLER_NAME, job, JOBS, &options).is_err() {
            let key: Key = (Arc::from(JOBS), value::namespace(job).to_owned(), value::name(job).to_owned());
            self.plan(super::AGAIN, Due::Look(key));
        }
    }
}

fn is_over(job: &Value) -> bool {
    is(job, "Complete") || is(job, "Failed")
}

fn reference(job: &Value) -> Value {
    json!({
        "kind": "Job", "namespace": value::namespace(job), "name": value::name(job), "uid": value::uid(job), "apiVersion": "batch/v1",
        "resourceVersion": value::text(job, "metadata.resourceVersion"),
    })
}

/// When something happens: the minutes, hours, days of the month, months and days of the week at which it may, as bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Whether one of both kinds of days is any day: then a day must be one of both, else one of either.
    is_any_day: bool,
}

impl Schedule {
    /// Reads five fields (`*/5 1,3 * jan-mar mon`), or one of the words that stand for them. Nothing if it is none.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            text => text,
        };
        const MONTHS: [&str; 12] = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
        const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
        let fields: Vec<&str> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields.as_slice() else { return None };
        let is_any = |field: &str| field.starts_with('*') || field.starts_with('?');
        Some(Self {
            minutes: bits(minutes, 0, 59, &[])?,
            hours: bits(hours, 0, 23, &[])?,
            days: bits(days, 1, 31, &[])?,
            months: bits(months, 1, 12, &MONTHS)?,
            weekdays: bits(weekdays, 0, 6, &WEEKDAYS)?,
            is_any_day: is_any(days) || is_any(weekdays),
        })
    }

    /// Whether it happens on a day, counted from that of 1970's beginning.
    fn has_day(&self, day: u64) -> bool {
        let [_, month, date, ..] = castle_seams::calendar(day * DAY);
        let has = |bits: u64, number: u64| bits >> number & 1 == 1;
        let (by_date, by_weekday) = (has(self.days, date), has(self.weekdays, (day + 4) % 7));
        has(self.months, month) && if self.is_any_day { by_date && by_weekday } else { by_date || by_weekday }
    }

    /// The times of a day, in seconds.
    fn times(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let minutes = (0..24 * 60)
            .filter(|minute| self.hours >> (minute / 60) & 1 == 1 && self.minutes >> (minute % 60) & 1 == 1);
        minutes.map(|minute| minute * 60)
    }

    /// The first time after another, as the time since 1970.
    pub(crate) fn next(&self, after: Duration) -> Option<Duration> {
        let (first, now) = (after.as_secs() / DAY, after.as_secs());
        let days = (first..first + DAYS_AHEAD).filter(|day| self.has_day(*day));
        let mut times = days.flat_map(|day| self.times().map(move |time| day * DAY + time));
        times.find(|time| *time > now).map(Duration::from_secs)
    }

    /// The last time after one moment and until another.
    fn latest(&self, after: Duration, until: Duration) -> Option<Duration> {
        let (first, last) = (after.as_secs() / DAY, until.as_secs() / DAY);
        let days = (first..=last).rev().filter(|day| self.has_day(*day));
        let mut times = days.flat_map(|day| self.times().rev().map(move |time| day * DAY + time));
        let found = times.find(|time| *time <= until.as_secs()).filter(|time| *time > after.as_secs());
        found.map(Duration::from_secs)
    }
}

/// The numbers that a field names, as bits.
fn bits(field: &str, least: u64, most: u64, names: &[&str]) -> Option<u64> {
    let number = |word: &str| {
        let by_name = names.iter().position(|name| word.eq_ignore_ascii_case(name)).map(|at| at as u64 + least);
        by_name.or_else(|| word.parse().ok()).filter(|number| (least..=most).contains(number))
    };
    let mut all = 0;
    for part in field.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step.parse::<usize>().ok().filter(|step| *step > 0)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (least, most),
            Some((from, to)) => (number(from)?, number(to)?),
            // `3/5` begins with three and goes on to the end.
            None => (number(range)?, if step.is_some() { most } else { number(range)? }),
        };
        if from > to {
            return None;
        }
        (from..=to).step_by(step.unwrap_or(1)).for_each(|number| all |= 1 << number);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedules_tell_their_next_time() {
        // 2026-09-21, a Monday.
        let now = Duration::from_secs(1_790_000_000);
        for (text, next) in [
            ("* * * * *", "2026-09-21T14:14:00Z"),
            ("*/15 * * * *", "2026-09-21T14:15:00Z"),
            ("0 3 * * *", "2026-09-22T03:00:00Z"),
            ("30 4 1,15 * *", "2026-10-01T04:30:00Z"),
            ("0 0 * * sun", "2026-09-27T00:00:00Z"),
            ("0 0 13 * fri", "2026-09-25T00:00:00Z"),
            ("0 0 29 feb *", "2028-02-29T00:00:00Z"),
            ("5/20 * * * *", "2026-09-21T14:25:00Z"),
            ("@hourly", "2026-09-21T15:00:00Z"),
        ] {
            let schedule = Schedule::parse(text).unwrap();
            assert_eq!(schedule.next(now).map(stamp).as_deref(), Some(next), "{text}");
        }
        for text in ["", "* * * *", "60 * * * *", "* * 0 * *", "5-3 * * * *", "x * * * *", "*/0 * * * *"] {
            assert_eq!(Schedule::parse(text), None, "{text}");
        }
    }
}
