//! Counts, names and sizes of nodes.

use std::collections::{BTreeMap, BTreeSet};

use super::ByCause;
use crate::inventory::{Node, Role, is_name, pools};
use crate::model::Castle;
use crate::problem::{Code, Problem, Problems};
use crate::span::Sourced;
use crate::suggest;
use crate::values::{Size, Taint};

/// What Talos itself asks for.
const CONTROL_PLANE_MEMORY: Size = Size::from_mib(1848);
const WORKER_MEMORY: Size = Size::from_mib(1024);
const SYSTEM_DISK: Size = Size::from_mib(6 << 10);
/// etcd's own advice: beyond it each write waits for more members and nothing gets safer.
const MOST_CONTROL_PLANES: u32 = 7;

pub(super) fn check(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    count(castle, problems);
    names(castle, nodes, problems);
    sizes(nodes, problems);
    taints(castle, nodes, problems);
    keys_of_taints(castle, problems);
}

/// Holds that Talos has words for the taints of a node: it tells them apart by their keys alone.
fn keys_of_taints(castle: &Castle, problems: &mut Problems) {
    let mut found = ByCause::default();
    for (.., pool) in pools(castle) {
        let mut seen: BTreeMap<&str, &Sourced<Taint>> = BTreeMap::new();
        for taint in pool.taints.iter() {
            let (key, ..) = taint.parts();
            let Some(before) = seen.insert(key, taint) else { continue };
            found.add(taint.origin.span(), key, || {
                Problem::new(Code::TaintTwice, format!("two taints of one node have the key `{key}`"))
                    .at(taint.origin, "this one")
                    .at(before.origin, "and this")
                    .hint("Talos tells the taints of a node apart by their keys, and would keep the last one alone: leave one, or give the other a key of its own")
            });
        }
    }
    found.report(problems);
}

/// Holds that what castle puts into the cluster finds a place: it tolerates no taint of the file.
fn taints(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let has_workers = nodes.iter().any(|node| node.role == Role::Worker);
    let schedules = castle.kubernetes.schedule_on_control_planes.as_ref().map_or(!has_workers, |it| it.value);
    let carriers: Vec<&Node> = nodes.iter().filter(|node| node.role == Role::Worker || schedules).collect();
    let keeps_out = |node: &&Node| node.taints.iter().any(|taint| taint.parts().2 != "PreferNoSchedule");
    let components = castle.wanted_components();
    let Some(component) = components.first().filter(|_| !carriers.is_empty() && carriers.iter().all(keeps_out)) else {
        return;
    };
    let pool = castle.nodes.workers.as_ref().unwrap_or(&castle.nodes.control_planes);
    problems.report(
        Problem::new(
            Code::TaintsEverywhere,
            format!("every node that runs workloads has a taint, and {} tolerates none", component.name),
        )
        .at(pool.origin, "nothing that castle puts into the cluster would run")
        .hint("leave one pool without the taint, or give the tainted nodes a pool of their own (`nodes.pools`)"),
    );
}

fn count(castle: &Castle, problems: &mut Problems) {
    let count = &castle.nodes.control_planes.count;
    let number = count.get();
    let problem = match number {
        0 => Problem::new(Code::ControlPlanesEven, "a castle needs at least one control plane")
            .at(count.origin, "none")
            .hint("write `count: 1`, or `count: 3` for a castle that survives the loss of one"),
        1 => Problem::new(Code::ControlPlaneSingle, "a single control plane: the cluster stops while that node does")
            .at(count.origin, "one")
            .hint("this is fine for a trial; with `count: 3` the castle survives the loss of one"),
        2 => Problem::new(Code::ControlPlanesEven, "two control planes are worse than one")
            .at(count.origin, "even")
            .hint(
                "etcd needs more than half of its members, so two stop when either stops: write `count: 3`, or `count: 1`",
            ),
        _ if number > MOST_CONTROL_PLANES => {
            Problem::new(Code::ControlPlanesTooMany, format!("more than {MOST_CONTROL_PLANES} control planes"))
                .at(count.origin, "too many")
                .hint("every write to etcd waits for more than half of them: three survive the loss of one, five of two")
        }
        _ if number.is_multiple_of(2) => {
            let survives = (number - 1) / 2;
            Problem::new(Code::ControlPlanesEven, format!("{number} control planes are no safer than {}", number - 1))
                .at(count.origin, "even")
                .hint(format!(
                    "etcd needs more than half of its members: {number} survive the loss of {survives}, as {} do, with one \
                     more to fail; write `count: {}` or `count: {}`",
                    number - 1,
                    number - 1,
                    number + 1
                ))
        }
        _ => return,
    };
    problems.report(problem);
}

fn names(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let mut seen: BTreeMap<&str, &Node> = BTreeMap::new();
    let mut too_long = ByCause::default();
    for node in nodes {
        if !is_name(&node.name) {
            too_long.add(node.name.origin.span(), "", || {
                Problem::new(
                    Code::NameTooLong,
                    format!("the node name `{}` is longer than 63 characters", node.name.value),
                )
                .at(node.name.origin, "the names of nodes begin with this")
                .hint("shorten the name of the castle or of the pool")
            });
        }
        if let Some(before) = seen.insert(node.name.as_str(), node) {
            problems.report(
                Problem::new(Code::NameDuplicate, format!("two nodes are named `{}`", node.name.value))
                    .at(node.name.origin, "this name")
                    .at(before.name.origin, "and this")
                    .hint("nodes are `CASTLE-cp-N`, `CASTLE-worker-N` and `CASTLE-POOL-N`: rename the pool or the override"),
            );
        }
    }
    too_long.report(problems);
    overrides(castle, problems);
    hosts(castle, nodes, problems);
}

fn overrides(castle: &Castle, problems: &mut Problems) {
    let origins = pools(castle).flat_map(|(.., pool)| [pool.origin, pool.count.origin]).chain([castle.castle.origin]);
    let origins: Vec<_> = origins.collect();
    let known: BTreeSet<String> = pools(castle)
        .flat_map(|(word, _, pool)| {
            (1..=pool.count.get()).map(move |index| format!("{}-{word}-{index}", castle.castle.as_str()))
        })
        .collect();
    for (name, _) in &castle.nodes.overrides.value {
        if known.contains(name.as_str()) || problems.is_full() {
            continue;
        }
        let hint = match suggest::nearest(name.as_str(), &known) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the nodes are {}", listed(&known)),
        };
        let problem = Problem::new(Code::OverrideUnknownNode, "an override for a node that this castle does not have")
            .at(name.origin, "no such node")
            .hint(hint);
        problems.report(origins.iter().fold(problem, |problem, origin| problem.given(*origin)));
    }
}

fn listed(names: &BTreeSet<String>) -> String {
    let mut shown: Vec<&str> = names.iter().take(8).map(String::as_str).collect();
    if names.len() > shown.len() {
        shown.push("…");
    }
    shown.join(", ")
}

fn hosts(castle: &Castle, nodes: &[Node], problems: &mut Problems) {
    let hosts = castle.platform.hosts();
    let known: Vec<String> = hosts.iter().map(|host| host.value.to_string()).collect();
    for host in nodes.iter().filter_map(|node| node.host.as_ref()) {
        if known.iter().any(|name| name == host.as_str()) {
            continue;
        }
        problems.report(
            Problem::new(Code::HostUnknown, "a node is put on a host that is not among the platform's")
                .at(host.origin, "not in the list")
                .at(hosts.origin, "the hosts that may carry nodes")
                .given(castle.platform.origin)
                .hint(match suggest::nearest(host.as_str(), &known) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("one of {}, or add it there", known.join(", ")),
                }),
        );
    }
}

fn sizes(nodes: &[Node], problems: &mut Problems) {
    let mut found = ByCause::default();
    for node in nodes {
        let least = match node.role {
            Role::ControlPlane => CONTROL_PLANE_MEMORY,
            Role::Worker => WORKER_MEMORY,
        };
        let role = node.role.word();
        if node.memory.value < least {
            found.add(node.memory.origin.span(), role, || {
                Problem::new(
                    Code::MemoryMinimum,
                    format!("`{}` has too little memory for a {role} node", node.name.value),
                )
                .at(node.memory.origin, format!("Talos needs {least}"))
                .hint(format!("write at least `memory: {least}`; 4GiB is comfortable"))
            });
        }
        if node.disk.value < SYSTEM_DISK {
            found.add(node.disk.origin.span(), "disk", || {
                Problem::new(Code::DiskMinimum, format!("`{}` has too small a system disk", node.name.value))
                    .at(node.disk.origin, format!("Talos needs {SYSTEM_DISK}"))
                    .hint(format!("write at least `disk: {SYSTEM_DISK}`; 32GiB leaves room for images"))
            });
        }
    }
    found.report(problems);
}
