//! Budgets of disruptions: how many pods may be missing, and how many are.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{is_ready, share};
use crate::kubernetes::kube::{CONTROLLER_STATUS, Key, Kube};
use crate::kubernetes::selectors::Labels;
use crate::kubernetes::value;

pub(crate) const BUDGETS: &str = "poddisruptionbudgets.policy";

/// How a budget stands.
pub(super) struct Stand {
    pub(super) expected: i64,
    pub(super) healthy: i64,
    pub(super) wanted: i64,
}

impl Stand {
    /// How many more pods may go.
    pub(super) fn left(&self) -> i64 {
        if self.expected > 0 { (self.healthy - self.wanted).max(0) } else { 0 }
    }
}

impl Kube {
    /// Budgets that a pod counts for are to be looked at again.
    pub(super) fn note_budgets(&mut self, pod: &Value) {
        let chosen = self.budgets_of(pod);
        let keys: Vec<Key> = chosen
            .iter()
            .map(|it| (Arc::from(BUDGETS), value::namespace(it).to_owned(), value::name(it).to_owned()))
            .collect();
        keys.into_iter().for_each(|key| self.note(key));
    }

    /// The budgets that a pod counts for.
    pub(super) fn budgets_of(&self, pod: &Value) -> Vec<Arc<Value>> {
        let all = self.store.all(BUDGETS, value::namespace(pod));
        all.filter(|budget| Labels::of(&budget["spec"]["selector"]).chooses(pod)).cloned().collect()
    }

    /// How a budget stands now.
    pub(super) fn stand_of(&self, budget: &Value) -> Stand {
        let choice = Labels::of(&budget["spec"]["selector"]);
        let pods: Vec<&Arc<Value>> =
            self.store.all("pods", value::namespace(budget)).filter(|pod| choice.chooses(pod)).collect();
        let healthy = pods.iter().filter(|pod| is_ready(pod)).count() as i64;
        let (expected, wanted) = match (budget.pointer("/spec/maxUnavailable"), budget.pointer("/spec/minAvailable")) {
            (Some(amount), _) => {
                let expected = self.scale_of_owners(&pods);
                (expected, (expected - share(Some(amount), expected, true)).max(0))
            }
            (None, Some(Value::String(part))) => {
                let expected = self.scale_of_owners(&pods);
                (expected, share(Some(&json!(part)), expected, true))
            }
            (None, amount) => (pods.len() as i64, share(amount, 0, true)),
        };
        Stand { expected, healthy, wanted }
    }

    /// How many pods those want that these pods are of. Whoever owns no number of pods is counted by what is there.
    fn scale_of_owners(&self, pods: &[&Arc<Value>]) -> i64 {
        let mut seen = BTreeSet::new();
        let mut sum = 0;
        for pod in pods {
            let owner = value::controller(pod).and_then(|owner| self.uids.get(value::text(owner, "uid")));
            let replicas = owner
                .and_then(|key| self.get(&key.0, &key.1, &key.2))
                .and_then(|owner| value::number(&owner, "spec.replicas"));
            match (owner, replicas) {
                (Some(key), Some(replicas)) if seen.insert(key.clone()) => sum += replicas,
                (Some(_), Some(_)) => {}
                _ => sum += 1,
            }
        }
        sum
    }

    pub(super) fn sync_budget(&mut self, budget: &Value) {
        if value::is_deleting(budget) {
            return;
        }
        let (stand, now) = (self.stand_of(budget), self.stamp());
        let is_enough = stand.left() > 0;
        let (status, reason) = if is_enough { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
        self.amend(&CONTROLLER_STATUS, (BUDGETS, value::namespace(budget), value::name(budget)), |object| {
            let generation = object["metadata"]["generation"].clone();
            for (key, number) in [
                ("currentHealthy", stand.healthy),
                ("desiredHealthy", stand.wanted),
                ("disruptionsAllowed", stand.left()),
                ("expectedPods", stand.expected),
            ] {
                value::set(object, &format!("status.{key}"), number);
            }
            value::set(object, "status.observedGeneration", generation.clone());
            crate::kubernetes::crd::condition(object, &now, "DisruptionAllowed", status, (reason, ""));
            let list = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
            list.into_iter().flatten().for_each(|it| value::set(it, "observedGeneration", generation.clone()));
        });
    }
}
