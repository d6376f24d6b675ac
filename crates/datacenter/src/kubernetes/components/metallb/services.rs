//! Addresses for services, and who announces them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{ADVERTISEMENTS, CONTROLLER, CONTROLLER_STATUS, NAMESPACE, POOLS, SPEAKER_STATUS, pools};
use crate::kubernetes::components::annotation;
use crate::kubernetes::crd::is;
use crate::kubernetes::kube::Kube;
use crate::kubernetes::selectors::Labels;
use crate::kubernetes::value;
use crate::kubernetes::workloads::is_ready;

const L2_STATUSES: &str = "servicel2statuses.metallb.io";
const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const FROM_POOL: &str = "metallb.io/ip-allocated-from-pool";

/// What a service asks MetalLB for, by either prefix of the annotation.
fn wish<'a>(service: &'a Value, key: &str) -> Option<&'a str> {
    let of = |prefix: &str| annotation(service, &format!("{prefix}/{key}"));
    of("metallb.io").or_else(|| of("metallb.universe.tf"))
}

fn place(service: &Value) -> String {
    format!("{}/{}", value::namespace(service), value::name(service))
}

fn given(service: &Value) -> Option<IpAddr> {
    let ingress = value::items(service, "status.loadBalancer.ingress").first()?;
    value::text(ingress, "ip").parse().ok()
}

/// Whether a service wants its address from here.
fn wants_address(service: &Value) -> bool {
    value::text(service, "spec.type") == "LoadBalancer"
        && value::text(service, "spec.loadBalancerClass").is_empty()
        && !value::is_deleting(service)
}

impl Kube {
    /// Gives an address to every service that wants one, and says who announces it.
    pub(super) fn give_addresses(&mut self) {
        let services: Vec<Arc<Value>> = self.store.all("services", "").cloned().collect();
        let pools: Vec<Arc<Value>> = self.store.all(POOLS, NAMESPACE).cloned().collect();
        let mut taken: BTreeMap<IpAddr, (String, String)> = BTreeMap::new();
        let mut homeless = Vec::new();
        for service in &services {
            let own = given(service);
            if !wants_address(service) {
                if own.is_some() && annotation(service, FROM_POOL).is_some() {
                    self.take_address(service);
                }
                continue;
            }
            // An address that is still offered stays.
            let is_offered = |address: &IpAddr| pools.iter().any(|pool| offers(pool, service, *address));
            match own.filter(is_offered) {
                Some(address) => drop(taken.insert(address, (place(service), share_key(service)))),
                None => homeless.push(service.clone()),
            }
        }
        for service in homeless {
            let free = |address: &IpAddr| {
                taken.get(address).is_none_or(|(_, key)| !key.is_empty() && *key == share_key(&service))
            };
            let found = pools.iter().filter(|pool| may_give(pool, &service)).find_map(|pool| {
                let mut own = pools::addresses(pool).filter(|address| offers(pool, &service, *address)).filter(free);
                own.next().map(|address| (address, value::name(pool).to_owned()))
            });
            match found {
                Some((address, pool)) => {
                    taken.insert(address, (place(&service), share_key(&service)));
                    self.give_address(&service, address, &pool);
                }
                None => {
                    if given(&service).is_some() {
                        self.take_address(&service);
                    }
                    if !pools.is_empty() {
                        let message = format!("Failed to allocate IP for {:?}: no available IPs", place(&service));
                        self.tell_once(&service, "AllocationFailed", &message);
                    }
                }
            }
        }
        self.count_addresses(&pools, &taken);
        self.announce();
    }

    fn give_address(&mut self, service: &Value, address: IpAddr, pool: &str) {
        let at = ("services", value::namespace(service), value::name(service));
        self.amend(&CONTROLLER, at, |object| {
            value::place(object, "metadata.annotations")[FROM_POOL] = json!(pool);
        });
        let ingress = json!([{ "ip": address.to_string(), "ipMode": "VIP" }]);
        self.amend(&CONTROLLER_STATUS, at, |object| value::set(object, "status.loadBalancer.ingress", ingress));
        let message = format!("Assigned IP [\"{address}\"]");
        self.tell("metallb-controller", service, true, "IPAllocated", &message);
    }

    fn take_address(&mut self, service: &Value) {
        let at = ("services", value::namespace(service), value::name(service));
        self.amend(&CONTROLLER, at, |object| {
            if let Some(all) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
                all.shift_remove(FROM_POOL);
            }
        });
        self.amend(&CONTROLLER_STATUS, at, |object| value::set(object, "status.loadBalancer", json!({})));
    }

    /// Tells of something that stays as it is, once.
    fn tell_once(&mut self, about: &Value, reason: &str, message: &str) {
        let is_told = self.store.all("events", value::namespace(about)).any(|event| {
            value::text(event, "involvedObject.uid") == value::uid(about) && value::text(event, "message") == message
        });
        if !is_told {
            self.tell("metallb-controller", about, false, reason, message);
        }
    }

    fn count_addresses(&mut self, pools: &[Arc<Value>], taken: &BTreeMap<IpAddr, (String, String)>) {
        for pool in pools {
            let ranges = pools::ranges(pool);
            let is_own = |address: &&IpAddr| ranges.iter().any(|range| range.holds(**address));
            let assigned = taken.keys().filter(is_own).count();
            let (all, all_v6) = pools::counts(pool);
            let clamp = |number: u128| i64::try_from(number).unwrap_or(i64::MAX);
            let left = clamp(all).saturating_sub(i64::try_from(assigned).unwrap_or(i64::MAX));
            let status = json!({
                "assignedIPv4": assigned, "assignedIPv6": 0, "availableIPv4": left, "availableIPv6": clamp(all_v6),
            });
            let at = (POOLS, NAMESPACE, value::name(pool));
            self.amend(&CONTROLLER_STATUS, at, |object| value::set(object, "status", status));
        }
    }

    /// The nodes whose speakers may announce.
    fn announcers(&self) -> Vec<Arc<Value>> {
        let ignores = self.get("daemonsets.apps", NAMESPACE, "speaker").is_some_and(|set| {
            let containers = value::items(&set, "spec.template.spec.containers").iter();
            let mut words = containers.flat_map(|container| value::items(container, "args")).filter_map(Value::as_str);
            words.any(|word| word.starts_with("--ignore-exclude-lb") && !word.ends_with("=false"))
        });
        let speakers = self.pods_of("daemonsets.apps", NAMESPACE, "speaker");
        let nodes = speakers.iter().filter(|pod| is_ready(pod));
        let nodes = nodes.filter_map(|pod| self.get("nodes", "", value::text(pod, "spec.nodeName")));
        let is_excluded =
            |node: &Value| value::at(node, "metadata.labels").is_some_and(|labels| labels.get(EXCLUDED).is_some());
        nodes.filter(|node| is(node, "Ready") && (ignores || !is_excluded(node))).collect()
    }

    /// One node announces each address; which one follows from their names.
    fn announce(&mut self) {
        let nodes = self.announcers();
        let advertisements: Vec<Arc<Value>> = self.store.all(ADVERTISEMENTS, NAMESPACE).cloned().collect();
        let services: Vec<Arc<Value>> = self.store.all("services", "").cloned().collect();
        let mut wanted: BTreeMap<(String, String), String> = BTreeMap::new();
        for service in services.iter().filter(|service| wants_address(service)) {
            let Some(address) = given(service) else { continue };
            let pool = annotation(service, FROM_POOL).and_then(|pool| self.get(POOLS, NAMESPACE, pool));
            let Some(pool) = pool.filter(|_| self.has_endpoints(service)) else { continue };
            let own: Vec<&Arc<Value>> = advertisements.iter().filter(|it| advertises(it, &pool)).collect();
            let fits = |node: &&Arc<Value>| own.iter().any(|advertisement| chooses_node(advertisement, node));
            let rank =
                |node: &&Arc<Value>| -> Vec<u8> { Sha256::digest(format!("{}#{address}", value::name(node))).to_vec() };
            if let Some(node) = nodes.iter().filter(fits).min_by_key(rank) {
                let at = (value::namespace(service).to_owned(), value::name(service).to_owned());
                wanted.insert(at, value::name(node).to_owned());
            }
        }
        let known: Vec<Arc<Value>> = self.store.all(L2_STATUSES, NAMESPACE).cloned().collect();
        for status in known {
            let text = |key: &str| value::text(&status, &format!("status.{key}")).to_owned();
            let at = (text("serviceNamespace"), text("serviceName"));
            if wanted.get(&at) == Some(&text("node")) {
                wanted.remove(&at);
            } else {
                self.erase(L2_STATUSES, NAMESPACE, value::name(&status));
            }
        }
        for ((namespace, name), node) in wanted {
            self.say_announced(&namespace, &name, &node);
        }
    }

    fn say_announced(&mut self, namespace: &str, name: &str, node: &str) {
        let own = format!("l2-{}", self.suffix(5));
        let labels = json!({ "metallb.io/node": node, "metallb.io/service-name": name, "metallb.io/service-namespace": namespace });
        let metadata = json!({ "name": own, "namespace": NAMESPACE, "labels": labels });
        let status = json!({ "node": node, "serviceName": name, "serviceNamespace": namespace });
        let object = json!({ "metadata": metadata, "spec": {} });
        self.ensure(&SPEAKER_STATUS, L2_STATUSES, &object, |object| value::set(object, "status", status));
        if let Some(service) = self.get("services", namespace, name) {
            let message = format!("announcing from node {node:?} with protocol \"layer2\"");
            self.tell("metallb-speaker", &service, true, "nodeAssigned", &message);
        }
    }
}

fn share_key(service: &Value) -> String {
    wish(service, "allow-shared-ip").unwrap_or_default().to_owned()
}

/// Whether a pool may give a service an address it did not have before.
fn may_give(pool: &Value, service: &Value) -> bool {
    let is_asked = wish(service, "address-pool").is_some() || wish(service, "loadBalancerIPs").is_some();
    is_asked || value::at(pool, "spec.autoAssign") != Some(&Value::Bool(false))
}

/// Whether an address of a pool is what a service may have.
fn offers(pool: &Value, service: &Value, address: IpAddr) -> bool {
    let is_pool = wish(service, "address-pool").is_none_or(|name| name == value::name(pool));
    let spec = Some(value::text(service, "spec.loadBalancerIP")).filter(|text| !text.is_empty());
    let wanted = wish(service, "loadBalancerIPs").or(spec);
    let is_wanted = wanted.is_none_or(|list| list.split(',').any(|text| text.trim().parse() == Ok(address)));
    is_pool && is_wanted && pools::ranges(pool).iter().any(|range| range.holds(address))
}

/// Whether an advertisement is for a pool.
fn advertises(advertisement: &Value, pool: &Value) -> bool {
    let names = value::items(advertisement, "spec.ipAddressPools");
    let selectors = value::items(advertisement, "spec.ipAddressPoolSelectors");
    let is_named = names.iter().any(|name| name == value::name(pool));
    let is_chosen = selectors.iter().any(|selector| Labels::of(selector).chooses(pool));
    names.is_empty() && selectors.is_empty() || is_named || is_chosen
}

fn chooses_node(advertisement: &Value, node: &Value) -> bool {
    let selectors = value::items(advertisement, "spec.nodeSelectors");
    selectors.is_empty() || selectors.iter().any(|selector| Labels::of(selector).chooses(node))
}
