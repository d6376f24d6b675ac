//! The checks of a cluster's health, in the vendor's order and words (`pkg/cluster/check` of Talos 1.13.9).

use serde_json::Value;
use tonic::Status;

use super::kubernetes;
use crate::talos::config::Cni;
use crate::talos::cosi;
use crate::talos::node::{Boot, Node, Stage};
use crate::talos::volumes;
use crate::world::World;

/// A machine that is looked at.
#[derive(Clone, Debug)]
pub(super) struct Member {
    /// Where the Talos API is asked.
    pub(super) ip: String,
    /// All of its addresses.
    pub(super) ips: Vec<String>,
    pub(super) is_control_plane: bool,
}

/// What is looked at, and by which node.
pub(super) struct Wanted {
    pub(super) own: u32,
    pub(super) key: String,
    pub(super) members: Vec<Member>,
}

/// A check that was passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Passed {
    Held,
    /// There is nothing to hold.
    Skipped,
}

/// Why a check is not passed, in the vendor's words.
pub(super) type Verdict = Result<Passed, String>;

/// A check: what is waited for, and whether it is so.
type Check = (&'static str, fn(&World, &Wanted) -> Verdict);

pub(super) const CHECKS: &[Check] = &[
    ("etcd to be healthy", |world, wanted| service(world, wanted, "etcd")),
    ("etcd members to be consistent across nodes", etcd_is_consistent),
    ("etcd members to be control plane nodes", etcd_is_of_control_planes),
    ("apid to be ready", |world, wanted| reached(world, wanted.members.iter()).map(|_| Passed::Held)),
    ("all nodes memory sizes", memory),
    ("all nodes disk sizes", disks),
    ("no diagnostics", diagnostics),
    ("kubelet to be healthy", |world, wanted| service(world, wanted, "kubelet")),
    ("all nodes to finish boot sequence", booted),
    ("all k8s nodes to report", kubernetes::nodes_report),
    ("all control plane static pods to be running", static_pods),
    ("all control plane components to be ready", kubernetes::control_plane),
    ("all k8s nodes to report ready", |world, wanted| unless_bare(world, wanted, kubernetes::nodes_ready)),
    ("kube-proxy to report ready", |world, wanted| kubernetes::daemons(world, wanted, "k8s-app=kube-proxy")),
    ("coredns to report ready", |world, wanted| {
        unless_bare(world, wanted, |world, wanted| kubernetes::deployment(world, wanted, "k8s-app=kube-dns"))
    }),
    ("all k8s nodes to report schedulable", kubernetes::nodes_schedulable),
];

impl Wanted {
    pub(super) fn control_planes(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.is_control_plane)
    }
}

/// Several errors as one text.
fn together(errors: &[String]) -> String {
    let count = match errors.len() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    let points: Vec<String> = errors.iter().map(|error| format!("* {error}")).collect();
    format!("{count} occurred:\n\t{}", points.join("\n\t"))
}

fn unless_any(errors: &[String]) -> Verdict {
    if errors.is_empty() { Ok(Passed::Held) } else { Err(together(errors)) }
}

/// A refusal, as clients of the vendor print it.
fn printed(status: &Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}

fn silent(member: &Member) -> String {
    let ip = &member.ip;
    let why = format!("transport: Error while dialing: dial tcp {ip}:50000: connect: no route to host");
    printed(&Status::unavailable(format!("connection error: desc = {why:?}")))
}

/// The node at an address, if its Talos API answers.
fn answering<'w>(world: &'w World, member: &Member) -> Option<(&'w Node, &'w Boot)> {
    let node = world.talos.nodes.get(&world.node_at(member.ip.parse().ok()?)?)?;
    let boot = node.boot.as_ref().filter(|boot| boot.apid.is_some())?;
    Some((node, boot))
}

/// What nodes answer: all of them, or who does not.
fn reached<'w, 'm>(
    world: &'w World,
    members: impl Iterator<Item = &'m Member>,
) -> Result<Vec<(&'m Member, &'w Node, &'w Boot)>, String> {
    let (mut found, mut silent_ones) = (Vec::new(), Vec::new());
    for member in members {
        match answering(world, member) {
            Some((node, boot)) => found.push((member, node, boot)),
            None => silent_ones.push(format!("{}: {}", member.ip, silent(member))),
        }
    }
    if silent_ones.is_empty() { Ok(found) } else { Err(together(&silent_ones)) }
}

/// The same of one node.
fn one<'w>(world: &'w World, member: &Member) -> Result<(&'w Node, &'w Boot), String> {
    answering(world, member).ok_or_else(|| silent(member))
}

/// Whether a service of the control planes runs and is healthy; the vendor looks at no others.
fn service(world: &World, wanted: &Wanted, name: &str) -> Verdict {
    let mut asked = reached(world, wanted.control_planes())?;
    asked.sort_by(|one, other| one.0.ip.cmp(&other.0.ip));
    let all = asked.len();
    let found: Vec<_> =
        asked.into_iter().filter_map(|(member, _, boot)| Some((&member.ip, boot.services.get(name)?))).collect();
    if found.len() != all {
        return Err(format!("expected a response with {all} node(s), got {}", found.len()));
    }
    let complaints = found.into_iter().filter_map(|(ip, service)| match service.events.last() {
        None => Some(format!("{ip}: no events recorded yet for service {name:?}")),
        Some(last) if last.state != "Running" => Some(format!(
            "{ip}: service {name:?} not in expected state \"Running\": current state [{}] {}",
            last.state, last.message
        )),
        Some(_) if service.is_healthy != Some(true) => Some(format!("{ip}: service is not healthy: {name}")),
        Some(_) => None,
    });
    unless_any(&complaints.collect::<Vec<_>>())
}

fn etcd_is_consistent(world: &World, wanted: &Wanted) -> Verdict {
    let mut asked = reached(world, wanted.control_planes())?;
    asked.sort_by(|one, other| one.0.ip.cmp(&other.0.ip));
    let (mut lists, mut refused) = (Vec::new(), Vec::new());
    for (member, node, _) in asked {
        match world.member_list(node.vmid, false) {
            Ok(told) => {
                lists.push((&member.ip, told.messages.into_iter().flat_map(|it| it.members).collect::<Vec<_>>()));
            }
            Err(status) => refused.push(format!("{}: {}", member.ip, printed(&status))),
        }
    }
    if !refused.is_empty() {
        return Err(together(&refused));
    }
    let Some(((_, first), rest)) = lists.split_first() else { return Err("no messages returned".to_owned()) };
    for (ip, members) in rest {
        let names = |members: &[castle_talos_api::machine::EtcdMember]| {
            members.iter().map(|member| member.hostname.clone()).collect::<Vec<_>>().join(" ")
        };
        if members.len() != first.len() {
            return Err(format!("{ip}: expected to have [{}] members, got [{}]", names(first), names(members)));
        }
        let is_known = |member: &castle_talos_api::machine::EtcdMember| {
            first
                .iter()
                .any(|it| (it.id, &it.hostname, it.is_learner) == (member.id, &member.hostname, member.is_learner))
        };
        if let Some(stranger) = members.iter().find(|member| !is_known(member)) {
            return Err(format!("{ip}: found unexpected etcd member {}", stranger.hostname));
        }
    }
    Ok(Passed::Held)
}

fn etcd_is_of_control_planes(world: &World, wanted: &Wanted) -> Verdict {
    let told = world.member_list(wanted.own, false).map_err(|status| printed(&status))?;
    let urls = told.messages.iter().flat_map(|it| &it.members).flat_map(|member| &member.peer_urls);
    let ips: Vec<&str> =
        urls.map(|url| url.trim_start_matches("https://").trim_end_matches(":2380").trim_matches(['[', ']'])).collect();
    let known: Vec<&str> = wanted.control_planes().flat_map(|member| member.ips.iter().map(String::as_str)).collect();
    if ips.iter().all(|ip| known.contains(ip)) {
        return Ok(Passed::Held);
    }
    Err(format!("etcd member ips {} are not subset of control plane node ips {}", quoted(&ips), quoted(&known)))
}

/// A list of texts, as the vendor quotes it.
pub(super) fn quoted(texts: &[&str]) -> String {
    format!("[{}]", texts.iter().map(|text| format!("{text:?}")).collect::<Vec<_>>().join(" "))
}

fn memory(world: &World, wanted: &Wanted) -> Verdict {
    let complaints = reached(world, wanted.members.iter())?.into_iter().filter_map(|(member, node, _)| {
        // What the kernel takes for itself is forgiven.
        let least = if member.is_control_plane { 1_848 - 150 } else { 1_024 - 150 };
        let actual = world.node_memory(node.vmid) >> 20;
        let ip = &member.ip;
        (actual < least).then(|| {
            format!("node {ip:?} does not meet memory requirements: expected at least {least} MiB, actual {actual} MiB")
        })
    });
    unless_any(&complaints.collect::<Vec<_>>())
}

/// The least that there has to be for data: what six gibibytes leave when all other partitions have theirs.
const LEAST_DATA: u64 = (6 << 30) - ((2_101 + 100 + 1 + 10) << 20);

fn disks(world: &World, wanted: &Wanted) -> Verdict {
    let mut asked = reached(world, wanted.members.iter())?;
    asked.sort_by(|one, other| one.0.ip.cmp(&other.0.ip));
    let complaints = asked.into_iter().filter_map(|(member, node, boot)| {
        let ip = &member.ip;
        let all = volumes::all(boot, &world.block_devices(node.vmid));
        let Some((_, data)) = all.into_iter().find(|(name, _)| name == "EPHEMERAL") else {
            let why = "resource VolumeStatuses.block.talos.dev(runtime/EPHEMERAL@undefined) doesn't exist";
            return Some(format!("error getting volume status for node {ip:?}: {}", printed(&Status::not_found(why))));
        };
        let (size, place) = (data["size"].as_u64().unwrap_or(0), data["location"].as_str().unwrap_or_default());
        (size < LEAST_DATA).then(|| {
            format!(
                "ephemeral partition {place:?} for node {ip:?} is too small, expected at least {}, actual {}",
                ibytes(LEAST_DATA),
                ibytes(size)
            )
        })
    });
    unless_any(&complaints.collect::<Vec<_>>())
}

/// A size as the vendor prints it: `3.8 GiB`.
fn ibytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 10 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(5);
    // To one digit behind the point, half of one rounded up.
    let value = (bytes as f64 / 1024_f64.powi(power.cast_signed()) * 10.0 + 0.5).floor() / 10.0;
    let unit = UNITS[power as usize];
    if value < 10.0 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

fn diagnostics(world: &World, wanted: &Wanted) -> Verdict {
    let mut worried = Vec::new();
    for member in &wanted.members {
        let (node, _) = one(world, member)?;
        let said = cosi::overlap(world, node);
        let said: Vec<&str> = said.iter().filter_map(|(_, spec)| spec["message"].as_str()).collect();
        if !said.is_empty() {
            worried.push(format!("{}: {}", member.ip, said.join(", ")));
        }
    }
    worried.sort();
    if worried.is_empty() { Ok(Passed::Held) } else { Err(format!("active diagnostics: {}", worried.join("; "))) }
}

fn booted(world: &World, wanted: &Wanted) -> Verdict {
    let mut stages: Vec<(Stage, Vec<&str>)> = Vec::new();
    for member in &wanted.members {
        let (_, boot) = one(world, member)?;
        match stages.iter_mut().find(|(stage, _)| *stage == boot.stage) {
            _ if boot.stage == Stage::Running => {}
            Some((_, ips)) => ips.push(&member.ip),
            None => stages.push((boot.stage, vec![&member.ip])),
        }
    }
    stages.sort_by_key(|(stage, _)| *stage);
    let told = stages.into_iter().map(|(stage, mut ips)| {
        ips.sort_unstable();
        format!("{}: [{}]", stage.word(), ips.join(" "))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { Ok(Passed::Held) } else { Err(format!("nodes are not running: {}", told.join(", "))) }
}

fn static_pods(world: &World, wanted: &Wanted) -> Verdict {
    for member in wanted.control_planes() {
        let ip = &member.ip;
        let (node, _) = one(world, member).map_err(|why| format!("error listing static pods on node {ip}: {why}"))?;
        let known = cosi::static_pod_names(world, node);
        let missing: Vec<&str> = ["kube-apiserver", "kube-controller-manager", "kube-scheduler"]
            .into_iter()
            .filter(|part| !known.iter().any(|(id, _)| id.starts_with(&format!("kube-system/{part}"))))
            .collect();
        if !missing.is_empty() {
            let missing: Vec<String> = missing.iter().map(|part| format!("kube-system/{part}")).collect();
            return Err(format!("missing static pods on node {ip}: [{}]", missing.join(" ")));
        }
    }
    Ok(Passed::Held)
}

/// A check that is for clusters whose nodes bring a network along.
fn unless_bare(world: &World, wanted: &Wanted, check: fn(&World, &Wanted) -> Verdict) -> Verdict {
    let config = world.talos.nodes.get(&wanted.own).and_then(Node::config);
    let is_bare = config.is_some_and(|config| config.cni() == Cni::None);
    if is_bare { Ok(Passed::Skipped) } else { check(world, wanted) }
}

/// The text at a place of an object, for sentences.
pub(super) fn text<'o>(object: &'o Value, pointer: &str) -> &'o str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_errors_are_printed_as_the_vendor_does() {
        for (bytes, expected) in
            [(0, "0 B"), (1_023, "1023 B"), (1_536, "1.5 KiB"), (LEAST_DATA, "3.8 GiB"), (100 << 30, "100 GiB")]
        {
            assert_eq!(ibytes(bytes), expected);
        }
        assert_eq!(together(&["a".to_owned()]), "1 error occurred:\n\t* a");
        assert_eq!(together(&["a".to_owned(), "b".to_owned()]), "2 errors occurred:\n\t* a\n\t* b");
    }
}
