//! The numbers of the castle, and its pool: free, or its own.

use std::collections::BTreeMap;

use castle_engine::lineage;
use castle_proxmox::model::{Config, ErrorClass, Guest, Mark, Owner, Place, Refusal};
use castle_proxmox::steps::{Guests, cleared, stands};
use futures_util::future::join_all;

use super::{Case, Finding, names};
use crate::site::Site;

/// How many guests are looked at in full at most. Whoever has more strangers among its numbers has chosen the wrong ones.
const LOOKS: usize = 32;
/// What the tag begins with that every guest has which castle has finished.
const DIGEST_TAG: &str = "castle-is-";

/// Whether all guests among the castle's numbers are the castle's.
pub(super) async fn vmids(case: Case<'_>, guests: &Guests, is_lacking: &dyn Fn(&str, &[&str]) -> bool) -> Vec<Finding> {
    let Case { client, site, .. } = case;
    if is_lacking("/", &["VM.Audit"]) {
        return vec![Finding::not_asked("vmids", "the token may not see guests")];
    }
    let wanted: BTreeMap<u32, &str> = case.nodes.iter().map(|node| (node.vmid.0, node.name.value.as_str())).collect();
    let within: Vec<&Guest> = guests.range(site.vmids.clone()).map(|(_, guest)| guest).collect();
    let (shown, mut suspects): (Vec<&Guest>, Vec<&Guest>) =
        within.iter().copied().partition(|guest| is_shown(case, &wanted, guest));
    // Whoever does not tell the cluster's name is asked for the rest all the same.
    let cluster = client.cluster().await.ok().flatten();
    let look = async |guest: &Guest| client.config(&guest.host, guest.vmid).await;
    // Tags tell the name of a castle, but neither its lineage nor its life: a few of those that look right speak for the others.
    let (images, nodes): (Vec<&Guest>, Vec<&Guest>) = shown.iter().copied().partition(|guest| guest.shows_template);
    let mut speakers: Vec<&Guest> =
        [nodes.first(), nodes.last(), images.first()].into_iter().flatten().copied().collect();
    speakers.dedup_by_key(|guest| guest.vmid);
    let spoken = join_all(speakers.iter().map(|guest| look(guest))).await;
    let judge = |guest: &Guest, config| {
        judge(case, &wanted, (cluster, stands(case.identity, guests, guest.vmid)), guest, config)
    };
    if speakers.iter().zip(spoken).any(|(guest, config)| judge(guest, config).is_some()) {
        suspects.extend(shown);
        suspects.sort_by_key(|guest| guest.vmid);
    }
    let budget = LOOKS.saturating_sub(speakers.len());
    let (seen, unseen) = suspects.split_at(suspects.len().min(budget));
    let configs = join_all(seen.iter().map(|guest| look(guest))).await;
    let judged = seen.iter().zip(configs).filter_map(|(guest, config)| judge(guest, config));
    let mut findings: Vec<Finding> = judged.collect();
    if !unseen.is_empty() {
        let all: Vec<String> = unseen.iter().map(|guest| called(guest)).collect();
        let evidence = format!("{} more guests have numbers of the castle, and were not looked at", unseen.len());
        let is_standing = unseen.first().is_some_and(|guest| stands(case.identity, guests, guest.vmid));
        let next = cleared("move those that are not castle's", is_standing);
        findings.push(Finding::unknown("vmids", names(all.iter().map(String::as_str)), evidence).next(next));
    }
    if findings.is_empty() {
        let (first, last) = (site.vmids.start(), site.vmids.end());
        // Who has rights to a pool alone does not see what is outside of it.
        let view = if site.pool.is_some() { ", as far as the token may see" } else { "" };
        let evidence = format!("{} of them are this castle's guests, the others are free{view}", within.len());
        findings.push(Finding::well("vmids", format!("{first}-{last}"), evidence));
    }
    findings
}

/// Whether the list alone says that a guest is the node or the image that belongs there.
fn is_shown(case: Case<'_>, wanted: &BTreeMap<u32, &str>, guest: &Guest) -> bool {
    let is_tagged = guest.tags.is_superset(&Mark::tags_of(case.identity))
        && guest.tags.iter().any(|tag| tag.starts_with(DIGEST_TAG))
        && guest.is_machine
        && guest.lock.is_none();
    let is_expected = match wanted.get(&guest.vmid) {
        Some(name) => !guest.shows_template && guest.name.as_deref().is_none_or(|called| called == *name),
        None => guest.shows_template && case.site.image_vmids().any(|vmid| vmid == guest.vmid),
    };
    is_tagged && is_expected
}

fn called(guest: &Guest) -> String {
    let kind = if guest.is_machine { "VM" } else { "container" };
    format!("{kind} {} ({}) on {}", guest.vmid, guest.name.as_deref().unwrap_or("without a name"), guest.host)
}

/// What is wrong with a guest at its number, if anything is.
fn judge(
    case: Case<'_>,
    wanted: &BTreeMap<u32, &str>,
    (cluster, is_standing): (Option<&str>, bool),
    guest: &Guest,
    config: Result<Option<Config>, Refusal>,
) -> Option<Finding> {
    let subject = called(guest);
    let node = wanted.get(&guest.vmid);
    let is_used = node.is_some() || case.site.image_vmids().any(|vmid| vmid == guest.vmid);
    // A number that nothing is to be made at does not stop anything yet.
    let in_the_way = |evidence: String| match is_used {
        true => Finding::wrong("vmids", subject.clone(), evidence),
        false => Finding::warning("vmids", subject.clone(), evidence),
    };
    if !guest.is_machine {
        return Some(in_the_way("is not castle's".to_owned()).next(cleared("move that guest", is_standing)));
    }
    if let Some(lock @ ("clone" | "create")) = guest.lock.as_deref() {
        let evidence = format!("is locked ({lock}): it is just being made, or its making was cut off");
        let next = format!("if no task works on it, on {}: qm unlock {}", guest.host, guest.vmid);
        return Some(Finding::unknown("vmids", subject, evidence).next(next));
    }
    let config = match config {
        Ok(config) => config?,
        Err(refusal) => {
            let next = cleared("let the token see it, or move it", is_standing);
            return Some(Finding::refused("vmids", subject, &refusal).next(next));
        }
    };
    let here = Place { vmid: guest.vmid, cluster: cluster.map(str::to_owned) };
    match (Mark::owner(case.identity, &here, config.description()), node) {
        (Owner::Ours(mark), Some(name)) if mark.name == *name => None,
        (Owner::Ours(mark), Some(name)) => {
            let evidence = format!("is `{}` of this castle, and the file wants `{name}` there", mark.name);
            Some(in_the_way(evidence).next("give the nodes the VMIDs they had, or run castle down first"))
        }
        // An image outlives a life of its castle.
        (Owner::Ours(_) | Owner::Earlier(_), None) if is_used => None,
        (Owner::Ours(mark), None) => {
            let evidence = format!("is `{}` of this castle, and no node of the file", mark.name);
            Some(in_the_way(evidence).next("castle down removes it with all others"))
        }
        (Owner::Earlier(mark), _) => {
            let evidence =
                format!("is `{}` of an earlier life of this castle (life {})", mark.name, mark.castle.generation);
            Some(in_the_way(evidence).next("castle wipe removes what is left of earlier lives"))
        }
        (Owner::Later(mark), _) => Some(in_the_way(mark.told_as_later(case.identity)).next(lineage::OUTDATED)),
        (Owner::Other(mark), _) => {
            let Mark { castle, name, .. } = mark;
            let evidence =
                format!("belongs to another castle: it is `{name}` of {} (lineage {})", castle.name, castle.lineage);
            Some(in_the_way(evidence).next(cleared("move that guest, or take that castle down", is_standing)))
        }
        (Owner::Copy(mark), _) => {
            Some(in_the_way(mark.told_as_copy()).next(cleared("move or remove the copy", is_standing)))
        }
        (Owner::Unreadable(format), _) => Some(in_the_way(format.to_string()).next(format.next())),
        (Owner::Stranger, _) => {
            let next = cleared("move that guest", is_standing);
            Some(in_the_way("is not castle's: it has no mark".to_owned()).next(next))
        }
    }
}

/// Whether the pool is there.
pub(super) fn pool(site: &Site, answer: Result<(), Refusal>) -> Finding {
    let name = site.pool.as_deref().unwrap_or_default();
    match answer {
        Ok(()) => Finding::well("pool", name, "is there"),
        Err(refusal) if refusal.class == ErrorClass::Gone => {
            Finding::wrong("pool", name, "there is no such pool").next(format!("as root: pveum pool add {name}"))
        }
        Err(refusal) => Finding::refused("pool", name, &refusal),
    }
}
