//! The storages: there, in use, fit for what castle puts there, and with room for it.

use std::collections::BTreeMap;

use castle_proxmox::model::{Refusal, Storage};

use super::{Case, Finding, names, size};
use crate::placement::{Placed, Why};
use crate::site::Site;
use crate::survey::Survey;

/// What the image takes: its download is smaller than this, and so is the disk that is made from it.
const IMAGE_BYTES: u64 = 2 << 30;

/// What a storage is for.
struct Purpose<'p> {
    name: &'p str,
    /// The key in castle.yaml.
    key: &'static str,
    content: &'static str,
    is_for_disks: bool,
}

/// What is still to be put on the storages of a host.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    disks: u64,
    needs_image: bool,
}

type Seen<'s> = [(&'s str, Result<Vec<Storage>, Refusal>)];

/// Both storages, on every host that is there.
pub(super) fn storages(
    case: Case<'_>,
    survey: &Survey,
    seen: &Seen<'_>,
    placed: &[Placed],
    is_lacking: &dyn Fn(&str, &[&str]) -> bool,
) -> Vec<Finding> {
    let site = case.site;
    let disks = Purpose { name: &site.hardware.storage, key: "disks", content: "images", is_for_disks: true };
    let images = Purpose { name: &site.images, key: "images", content: "import", is_for_disks: false };
    if seen.is_empty() {
        return vec![Finding::not_asked("storage", "no host is online")];
    }
    let loads = loads(case, placed);
    let mut findings = Vec::new();
    for purpose in [disks, images] {
        let is_shared = seen.iter().any(|(host, _)| survey.storage(host, purpose.name).is_some_and(|it| it.is_shared));
        let all = loads.values().fold(Load::default(), |sum, load| Load {
            disks: sum.disks + load.disks,
            needs_image: sum.needs_image || load.needs_image,
        });
        let mut found = Vec::new();
        for (index, (host, answer)) in seen.iter().enumerate() {
            // What all hosts see is judged once.
            let load = match (is_shared, index) {
                (false, _) => loads.get(host).copied().unwrap_or_default(),
                (true, 0) => all,
                (true, _) => Load::default(),
            };
            let path = format!("/storage/{}", purpose.name);
            let hidden = is_lacking(&path, &["Datastore.Audit", "Datastore.AllocateSpace"]);
            found.extend(match answer {
                Ok(storages) => judge(&purpose, host, storages, hidden, load),
                Err(refusal) => Some(Finding::refused("storage", format!("{} on {host}", purpose.name), refusal)),
            });
        }
        if found.is_empty() {
            let room = |host: &str| {
                let storage = survey.storage(host, purpose.name)?;
                Some(format!("{} of {} free on {host}", size(storage.free?), size(storage.total?)))
            };
            let rooms: Vec<String> = seen.iter().filter_map(|(host, _)| room(host)).collect();
            let evidence = format!("takes `{}`; {}", purpose.content, names(rooms.iter().map(String::as_str)));
            found.push(Finding::well("storage", purpose.name, evidence));
        }
        findings.append(&mut found);
    }
    findings
}

/// What the nodes that are not made yet will put on each host.
fn loads<'p>(case: Case<'_>, placed: &'p [Placed]) -> BTreeMap<&'p str, Load> {
    let mut loads: BTreeMap<&str, Load> = BTreeMap::new();
    for (node, placed) in case.nodes.iter().zip(placed).filter(|(_, placed)| placed.why != Why::Stands) {
        let load = loads.entry(&placed.host).or_default();
        load.disks += (node.disk.mib() + node.data_disk.as_ref().map_or(0, |disk| disk.mib())) << 20;
        load.needs_image = true;
    }
    loads
}

/// What is wrong with a storage on a host, if anything is.
fn judge(purpose: &Purpose<'_>, host: &str, storages: &[Storage], hidden: bool, load: Load) -> Option<Finding> {
    let Purpose { name, key, content, is_for_disks } = purpose;
    let subject = format!("{name} on {host}");
    let Some(storage) = storages.iter().find(|storage| storage.name == *name) else {
        if hidden {
            return Some(Finding::unknown("storage", subject, "not asked: the token may not see it"));
        }
        let others = names(storages.iter().map(|storage| storage.name.as_str()));
        let evidence = format!("there is no such storage; that host has {others}");
        return Some(
            Finding::wrong("storage", subject, evidence)
                .next(format!("correct platform.proxmox.storage.{key} in castle.yaml")),
        );
    };
    if !storage.is_enabled {
        let next = format!("as root: pvesm set {name} --disable 0, or name another storage in castle.yaml");
        return Some(Finding::wrong("storage", subject, "is there, but disabled").next(next));
    }
    if !storage.content.contains(*content) {
        let is: Vec<&str> = storage.content.iter().map(String::as_str).collect();
        let evidence = format!("does not take `{content}`; it takes {}", names(is.iter().copied()));
        let wanted = is.iter().copied().chain([*content]).collect::<Vec<_>>().join(",");
        return Some(
            Finding::wrong("storage", subject, evidence).next(format!("as root: pvesm set {name} --content {wanted}")),
        );
    }
    if !storage.is_active {
        // A busy host answers like this of storages that are well.
        let evidence = format!("{host} does not say that it is active: how full it is, nobody knows");
        return Some(
            Finding::unknown("storage", subject, evidence)
                .next(format!("look again in a minute; on {host}: pvesm status")),
        );
    }
    let (free, total) = (storage.free?, storage.total?);
    let image = if load.needs_image { IMAGE_BYTES } else { 0 };
    let room = "make room there, or name another storage in castle.yaml";
    if free < image {
        let evidence = format!("{} are free, and the image takes up to {}", size(free), size(image));
        return Some(Finding::wrong("storage", subject, evidence).next(room));
    }
    if *is_for_disks && !storage.can_link() && free < load.disks + image {
        let evidence = format!("{} are free, and the disks take {} at once", size(free), size(load.disks + image));
        return Some(Finding::wrong("storage", subject, evidence).next(room));
    }
    if *is_for_disks && load.disks > total {
        let evidence = format!("the disks may grow to {}, and it has {} in all", size(load.disks), size(total));
        return Some(
            Finding::warning("storage", subject, evidence)
                .next("watch it as it fills, or give the nodes smaller disks"),
        );
    }
    None
}

/// Whether nodes are linked to the image or copied in full.
pub(super) fn linked_clones(site: &Site, survey: &Survey) -> Vec<Finding> {
    let name = &site.hardware.storage;
    let Some(storage) = site.hosts.iter().find_map(|host| survey.storage(host, name)) else {
        return vec![Finding::not_asked("linked-clones", "the storage of the disks was not seen")];
    };
    if storage.can_link() {
        return vec![Finding::well("linked-clones", name, format!("{} makes them", storage.kind))];
    }
    let evidence =
        format!("{} cannot: every node is a full copy of the image, which takes longer and more room", storage.kind);
    vec![
        Finding::warning("linked-clones", name, evidence)
            .next("a thin pool, ZFS or Ceph for the disks would do it in a second"),
    ]
}
