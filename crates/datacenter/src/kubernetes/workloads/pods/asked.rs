//! What clients ask of pods: to be evicted, to be bound, their logs.

use serde_json::{Value, json};

use super::containers;
use crate::kubernetes::admission::Deed;
use crate::kubernetes::api::Call;
use crate::kubernetes::crd::condition;
use crate::kubernetes::delete::Options;
use crate::kubernetes::kube::{Kube, SERVER_STATUS};
use crate::kubernetes::status::{Cause, Failure};
use crate::kubernetes::value;
use crate::kubernetes::workloads::is_ready;

impl Kube {
    /// `POST .../eviction`.
    pub(crate) fn evict(&mut self, call: &mut Call<'_>) -> Result<Value, Failure> {
        let Some(pod) = self.get("pods", &call.target.namespace, &call.target.name) else {
            return Err(Failure::not_found(&call.resource, &call.target.name));
        };
        self.check_budget(&pod)?;
        let given = if call.ask.body.iter().all(u8::is_ascii_whitespace) { json!({}) } else { call.body()?.value };
        let options = given.get("deleteOptions").cloned().unwrap_or_default();
        call.is_dry_run =
            call.ask.query.is_dry_run("CreateOptions")? || value::items(&options, "dryRun").contains(&json!("All"));
        self.review(call, &Deed::delete(&pod), &Value::Null)?;
        if !call.is_dry_run {
            let now = self.stamp();
            self.amend(&SERVER_STATUS, ("pods", value::namespace(&pod), value::name(&pod)), |object| {
                let why = ("EvictionByEvictionAPI", "Eviction API: evicting");
                condition(object, &now, "DisruptionTarget", "True", why);
            });
            let pod = self.get("pods", value::namespace(&pod), value::name(&pod)).unwrap_or(pod);
            let grace = value::number(&options, "gracePeriodSeconds");
            self.end(&call.resource.clone(), &pod, &Options { grace, ..Options::default() });
        }
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
    }

    /// Refuses to evict a pod that a budget keeps.
    fn check_budget(&self, pod: &Value) -> Result<(), Failure> {
        // What does not run, or ends already, is missed by nobody.
        let is_idle = ["Pending", "Succeeded", "Failed"].contains(&value::text(pod, "status.phase"));
        if is_idle || value::is_deleting(pod) {
            return Ok(());
        }
        let budgets = self.budgets_of(pod);
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let text =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(Failure::new(500, "", text));
            }
        };
        let stand = self.stand_of(budget);
        if !is_ready(pod) {
            let is_always = value::text(budget, "spec.unhealthyPodEvictionPolicy") == "AlwaysAllow";
            if is_always || stand.healthy >= stand.wanted && stand.wanted > 0 {
                return Ok(());
            }
        }
        if stand.left() > 0 {
            return Ok(());
        }
        let name = value::name(budget);
        let why = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            stand.wanted, stand.healthy
        );
        let details = json!({ "causes": [{ "reason": "DisruptionBudget", "message": why }] });
        let text = "Cannot evict pod as it would violate the pod's disruption budget.";
        Err(Failure::new(429, "TooManyRequests", text).with_details(details))
    }

    /// `POST .../binding`.
    pub(crate) fn bind(&mut self, call: &mut Call<'_>) -> Result<Value, Failure> {
        let body = call.body()?.value;
        let Some(pod) = self.get("pods", &call.target.namespace, &call.target.name) else {
            return Err(Failure::not_found(&call.resource, &call.target.name));
        };
        let node = value::text(&body, "target.name");
        if node.is_empty() {
            return Err(Failure::invalid_kind("", "Binding", value::name(&pod), &[Cause::required("target.name", "")]));
        }
        if !value::text(&pod, "spec.nodeName").is_empty() {
            let why = format!(
                "pod {} is already assigned to node {:?}",
                value::name(&pod),
                value::text(&pod, "spec.nodeName")
            );
            return Err(Failure::conflict(&call.resource, value::name(&pod), &why));
        }
        self.place_pod(&pod, node);
        Ok(json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 }))
    }

    /// `GET .../log`: there are none.
    pub(crate) fn log(&self, call: &Call<'_>) -> Result<String, Failure> {
        let pod = self.read(call)?;
        let names: Vec<&str> =
            containers(&pod).into_iter().map(|(_, container)| value::text(container, "name")).collect();
        let wanted = call.ask.query.get("container");
        if let Some(wanted) = wanted.filter(|wanted| !names.contains(wanted)) {
            return Err(Failure::bad_request(format!("container {wanted} is not valid for pod {}", value::name(&pod))));
        }
        if wanted.is_none() && names.len() > 1 {
            let text = format!(
                "a container name must be specified for pod {}, choose one of: [{}]",
                value::name(&pod),
                names.join(" ")
            );
            return Err(Failure::bad_request(text));
        }
        let name = wanted.or_else(|| names.first().copied()).unwrap_or_default();
        let node = value::text(&pod, "spec.nodeName");
        if node.is_empty() {
            return Ok(String::new());
        }
        if self.get("nodes", "", node).is_none() {
            return Err(Failure::not_found(&call.resource, node));
        }
        if value::text(&pod, "status.phase") == "Pending" {
            let text =
                format!("container {name:?} in pod {:?} is waiting to start: ContainerCreating", value::name(&pod));
            return Err(Failure::bad_request(text));
        }
        Ok(format!("castle: pod {} is simulated and writes no log\n", value::name(&pod)))
    }
}
