//! The hosts, their bridges, and whether the nodes fit on them.

use std::collections::{BTreeMap, BTreeSet};

use castle_proxmox::model::{Host, Refusal};

use super::{Case, Finding, names, size};
use crate::placement::{Crowded, Placed, Why};
use crate::site::Site;
use crate::survey::Survey;

/// Whether the hosts that the file names are there.
pub(super) fn presence(site: &Site, hosts: &[Host]) -> Vec<Finding> {
    let known = || names(hosts.iter().map(|host| host.name.as_str()));
    let mut findings = Vec::new();
    for name in &site.hosts {
        match hosts.iter().find(|host| host.name == *name) {
            None => findings.push(
                Finding::wrong("hosts", name, format!("there is no such host: the cluster has {}", known()))
                    .next("correct platform.proxmox.nodes in castle.yaml"),
            ),
            Some(host) if !host.is_online => findings
                .push(Finding::wrong("hosts", name, "is not online").next(format!("bring {name} back: pvecm status"))),
            Some(_) => {}
        }
    }
    if findings.is_empty() {
        findings.push(Finding::well("hosts", names(site.hosts.iter().map(String::as_str)), "online"));
    }
    findings
}

/// Whether each host has the bridge.
pub(super) fn bridges(
    site: &Site,
    seen: &[(&str, Result<BTreeSet<String>, Refusal>)],
    is_lacking: &dyn Fn(&str, &[&str]) -> bool,
) -> Vec<Finding> {
    let bridge = &site.hardware.bridge;
    if seen.is_empty() {
        return vec![Finding::not_asked("bridge", "no host is online")];
    }
    let mut findings = Vec::new();
    for (host, answer) in seen {
        let subject = format!("{bridge} on {host}");
        match answer {
            Ok(bridges) if bridges.contains(bridge) => {}
            // Bridges that the token may not use are not shown to it.
            Ok(_) if is_lacking("/sdn/", &["SDN.Use"]) => {
                findings.push(Finding::unknown("bridge", subject, "not asked: the token may not see it"));
            }
            Ok(bridges) => {
                let others = names(bridges.iter().map(String::as_str));
                findings.push(
                    Finding::wrong("bridge", subject, format!("there is no such bridge; that host has {others}")).next(
                        format!(
                            "add it ({host} > System > Network), or correct platform.proxmox.bridge in castle.yaml"
                        ),
                    ),
                );
            }
            Err(refusal) => findings.push(Finding::refused("bridge", subject, refusal)),
        }
    }
    if findings.is_empty() {
        findings.push(Finding::well("bridge", bridge, format!("on {}", names(seen.iter().map(|(host, _)| *host)))));
    }
    findings
}

/// Whether all nodes fit.
pub(super) fn placement(case: Case<'_>, survey: &Survey, placed: &Result<Vec<Placed>, Vec<Crowded>>) -> Vec<Finding> {
    /// The rest would say the same.
    const SHOWN: usize = 10;
    let placed = match placed {
        Ok(placed) => placed,
        Err(crowded) => {
            let finding = |it: &Crowded| {
                Finding::wrong("placement", &it.node, format!("fits on no host: {}", it.hosts.join("; ")))
                    .next("make room, name more hosts in castle.yaml, or give the castle smaller nodes")
            };
            let mut findings: Vec<Finding> = crowded.iter().take(SHOWN).map(finding).collect();
            if crowded.len() > SHOWN {
                let more = names(crowded.iter().skip(SHOWN).map(|it| it.node.as_str()));
                findings.push(Finding::wrong("placement", more, "fit on no host either"));
            }
            return findings;
        }
    };
    let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
    for (node, placed) in case.nodes.iter().zip(placed).filter(|(_, placed)| placed.why != Why::Stands) {
        *wanted.entry(&placed.host).or_default() += node.memory.mib() << 20;
    }
    if wanted.is_empty() {
        return vec![Finding::well("placement", "", "every node stands already")];
    }
    let line = |(host, wanted): (&&str, &u64)| {
        let free = survey.hosts.get(*host).and_then(|host| Some(host.memory?.saturating_sub(host.memory_used?)));
        (format!("{host}: {} more memory", size(*wanted)), free.map(size))
    };
    let lines: Vec<(String, Option<String>)> = wanted.iter().map(line).collect();
    let is_known = lines.iter().all(|(_, free)| free.is_some());
    let told = |(line, free): (String, Option<String>)| match free {
        Some(free) => format!("{line} of {free} free"),
        None => format!("{line}, and the token may not know how much is free"),
    };
    let evidence = lines.into_iter().map(told).collect::<Vec<_>>().join("; ");
    match is_known {
        true => vec![Finding::well("placement", "", evidence)],
        false => vec![Finding::unknown("placement", "", evidence)],
    }
}
