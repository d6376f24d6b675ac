//! Addresses and ports of services.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::kinds::Resource;
use super::kube::Kube;
use super::status::{Cause, Failure};
use super::value;

/// The ports that nodes give to services.
const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

impl Kube {
    /// Gives a service its addresses and ports, as far as it has none.
    pub(crate) fn allocate(
        &mut self,
        object: &mut Value,
        old: Option<&Value>,
        resource: &Resource,
        is_dry_run: bool,
    ) -> Result<(), Failure> {
        if !resource.is("services") {
            return Ok(());
        }
        let kind = value::text(object, "spec.type").to_owned();
        if kind == "ExternalName" {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                value::remove(object, &format!("spec.{key}"));
            }
            return Ok(());
        }
        if let Some(old) = old {
            for key in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                let path = format!("spec.{key}");
                if value::at(object, &path).is_none()
                    && let Some(known) = value::at(old, &path)
                {
                    value::set(object, &path, known.clone());
                }
            }
        }
        let given = value::text(object, "spec.clusterIP").to_owned();
        let is_headless = given == "None";
        if given.is_empty() {
            let ip = self.free_address(is_dry_run);
            value::set(object, "spec.clusterIP", ip.to_string());
        } else if !is_headless && old.is_none() {
            self.check_address(&given, value::name(object), resource)?;
        }
        let own = value::text(object, "spec.clusterIP").to_owned();
        value::default(object, "spec.clusterIPs", json!([own]));
        // Who leads nowhere by itself may lead anywhere.
        let is_open = is_headless && value::at(object, "spec.selector").is_none();
        value::default(object, "spec.ipFamilies", if is_open { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) });
        value::default(object, "spec.ipFamilyPolicy", if is_open { "RequireDualStack" } else { "SingleStack" });
        let wants_ports =
            kind == "NodePort" || kind == "LoadBalancer" && !is_false(object, "spec.allocateLoadBalancerNodePorts");
        self.give_ports(object, old, wants_ports);
        let is_local = kind == "LoadBalancer" && value::text(object, "spec.externalTrafficPolicy") == "Local";
        if is_local && value::number(object, "spec.healthCheckNodePort").is_none() {
            let known = old.and_then(|old| value::number(old, "spec.healthCheckNodePort"));
            let port = known.unwrap_or_else(|| self.free_port(&BTreeSet::new()));
            value::set(object, "spec.healthCheckNodePort", port);
        }
        Ok(())
    }

    fn give_ports(&mut self, object: &mut Value, old: Option<&Value>, wants_ports: bool) {
        let mut taken: BTreeSet<i64> = BTreeSet::new();
        let known: Vec<Value> = old.map(|old| value::items(old, "spec.ports").to_vec()).unwrap_or_default();
        let count = value::items(object, "spec.ports").len();
        for at in 0..count {
            let port = value::items(object, "spec.ports")[at].clone();
            let given = value::number(&port, "nodePort").filter(|port| *port > 0);
            let number = match given {
                Some(given) => Some(given),
                None if wants_ports => {
                    let before =
                        known.iter().find(|own| own["port"] == port["port"] && own["protocol"] == port["protocol"]);
                    Some(
                        before.and_then(|own| value::number(own, "nodePort")).unwrap_or_else(|| self.free_port(&taken)),
                    )
                }
                None => None,
            };
            let Some(number) = number else { continue };
            taken.insert(number);
            if let Some(place) = object.pointer_mut(&format!("/spec/ports/{at}")) {
                value::set(place, "nodePort", number);
            }
        }
    }

    fn used_addresses(&self) -> BTreeSet<String> {
        self.store.all("services", "").map(|service| value::text(service, "spec.clusterIP").to_owned()).collect()
    }

    fn free_address(&mut self, is_dry_run: bool) -> Ipv4Addr {
        let (first, count) = self.setup.services;
        let used = self.used_addresses();
        let purpose = if is_dry_run { "kubernetes dry service address" } else { "kubernetes service address" };
        let from = self.number(purpose);
        let addresses = (0..u64::from(count)).map(|step| {
            let offset = (from.wrapping_add(step) % u64::from(count.max(12)).saturating_sub(11).max(1)) + 11;
            Ipv4Addr::from(u32::from(first).wrapping_add(u32::try_from(offset).unwrap_or(11)))
        });
        let mut free = addresses.take(4_096).filter(|address| !used.contains(&address.to_string()));
        free.next().unwrap_or(first)
    }

    fn check_address(&self, given: &str, name: &str, resource: &Resource) -> Result<(), Failure> {
        let (first, count) = self.setup.services;
        let is_inside = given
            .parse::<Ipv4Addr>()
            .is_ok_and(|ip| u32::from(ip).checked_sub(u32::from(first)).is_some_and(|at| at <= count));
        let list = json!([given]);
        let wrong =
            |detail: &str| Failure::invalid(resource, name, &[Cause::invalid("spec.clusterIPs", &list, detail)]);
        if given.parse::<std::net::IpAddr>().is_err() {
            let detail = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            let cause = Cause::invalid("spec.clusterIPs[0]", &json!(given), detail);
            return Err(Failure::invalid(resource, name, &[cause]));
        }
        if !is_inside {
            return Err(wrong(&format!(
                "failed to allocate IP {given}: the provided network does not match the current range"
            )));
        }
        if self.used_addresses().contains(given) {
            return Err(wrong(&format!("failed to allocate IP {given}: provided IP is already allocated")));
        }
        Ok(())
    }

    fn free_port(&mut self, taken: &BTreeSet<i64>) -> i64 {
        let mut used = taken.clone();
        for service in self.store.all("services", "") {
            used.extend(value::items(service, "spec.ports").iter().filter_map(|port| value::number(port, "nodePort")));
            used.extend(value::number(service, "spec.healthCheckNodePort"));
        }
        let span = NODE_PORTS.end() - NODE_PORTS.start() + 1;
        let from = i64::try_from(self.number("kubernetes node port") % 2_768).unwrap_or(0);
        (0..span)
            .map(|step| NODE_PORTS.start() + (from + step) % span)
            .find(|port| !used.contains(port))
            .unwrap_or(*NODE_PORTS.start())
    }
}

fn is_false(object: &Value, path: &str) -> bool {
    value::at(object, path) == Some(&Value::Bool(false))
}
