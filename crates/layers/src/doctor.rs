//! The doctor: all that a castle will need of its site, looked at before anything is changed.
//!
//! As many requests for five nodes as for five hundred, all of which only look. What cannot be known because something else is wrong
//! is not asked, and said to be unknown.

mod access;
mod addresses;
mod claims;
mod hosts;
mod stores;

use castle_engine::CastleId;
use castle_proxmox::client::Client;
use castle_proxmox::model::{ErrorClass, Form, Needs, Privileges, Refusal, missing, requirements};
use castle_seams::Dial;
use castle_spec::{Castle, Node};
use futures_util::future::{join, join_all, join5};

pub use addresses::occupied;

use crate::placement::place;
use crate::site::Site;
use crate::survey::Survey;

/// How something was found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Well,
    /// It will do, but someone should know.
    Warning,
    /// A castle cannot be raised like this.
    Wrong,
    /// Nobody knows.
    Unknown,
}

impl Verdict {
    /// The word for programs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Warning => "warning",
            Self::Wrong => "wrong",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked for, by the name under which it is documented.
    pub check: &'static str,
    /// How it is.
    pub verdict: Verdict,
    /// What it is about; empty if the check says it all.
    pub subject: String,
    /// What was seen.
    pub evidence: String,
    /// What to do about it; empty if there is nothing.
    pub next: String,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { check, verdict, subject: subject.into(), evidence: evidence.into(), next: String::new() }
    }

    /// A finding that all is well.
    #[must_use]
    pub fn well(check: &'static str, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self::new(check, Verdict::Well, subject, evidence)
    }

    /// A finding that a castle cannot be raised like this.
    #[must_use]
    pub fn wrong(check: &'static str, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self::new(check, Verdict::Wrong, subject, evidence)
    }

    /// A finding that it will do, but someone should know.
    #[must_use]
    pub fn warning(check: &'static str, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self::new(check, Verdict::Warning, subject, evidence)
    }

    fn unknown(check: &'static str, subject: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self::new(check, Verdict::Unknown, subject, evidence)
    }

    /// A finding of which nobody knows, because it was pointless to ask.
    #[must_use]
    pub fn not_asked(check: &'static str, why: &str) -> Self {
        Self::unknown(check, "", format!("not asked: {why}"))
    }

    /// A finding of which nobody knows, because Proxmox did not say.
    fn refused(check: &'static str, subject: impl Into<String>, refusal: &Refusal) -> Self {
        match refusal.class {
            ErrorClass::Forbidden => Self::unknown(check, subject, "not asked: the token may not know"),
            _ => Self::unknown(check, subject, refusal.to_string()),
        }
    }

    /// With what to do about it.
    #[must_use]
    pub fn next(self, next: impl Into<String>) -> Self {
        Self { next: next.into(), ..self }
    }
}

/// Whom the doctor looks at.
#[derive(Clone, Copy)]
pub struct Case<'c> {
    /// The way to Proxmox.
    pub client: &'c Client,
    /// Where the castle stands or will.
    pub site: &'c Site,
    /// The file.
    pub castle: &'c Castle,
    /// Its nodes.
    pub nodes: &'c [Node],
    /// Which castle it is.
    pub identity: &'c CastleId,
    /// The way to the addresses of the nodes.
    pub dial: &'c dyn Dial,
    /// Whether to see if somebody has these addresses already.
    pub probe_addresses: bool,
}

/// What is looked at, in order.
const CHECKS: [&str; 14] = [
    "reachable",
    "certificate",
    "token",
    "version",
    "quorum",
    "hosts",
    "privileges",
    "storage",
    "linked-clones",
    "bridge",
    "placement",
    "vmids",
    "pool",
    "addresses",
];

/// The findings of which nobody knows because of what was found last: all checks that come after `check`.
#[must_use]
pub fn pointless_after(check: &str, site: &Site, probe_addresses: bool, why: &str) -> Vec<Finding> {
    let later = CHECKS.iter().skip_while(|name| **name != check).skip(1);
    let applies = |name: &str| match name {
        "pool" => site.pool.is_some(),
        "addresses" => probe_addresses,
        _ => true,
    };
    later.filter(|name| applies(name)).map(|name| Finding::not_asked(name, why)).collect()
}

/// What a castle on this site needs of Proxmox.
#[must_use]
pub fn needs(site: &Site) -> Needs {
    let hardware = &site.hardware;
    let storage_of = |file: &str| file.split_once(':').map(|(storage, _)| storage.to_owned());
    Needs {
        pool: site.pool.clone(),
        vmids: site.vmids.clone(),
        hosts: site.hosts.clone(),
        disks: hardware.storage.clone(),
        images: site.images.clone(),
        iso: hardware.iso.as_ref().and_then(|(_, file)| storage_of(file)),
        bridge: hardware.bridge.clone(),
        vlan: hardware.vlan,
        zone: None,
    }
}

/// Looks at everything, in order. Changes nothing.
pub async fn examine(case: Case<'_>) -> Vec<Finding> {
    let Case { client, site, nodes, .. } = case;
    let (mut findings, release) = access::admission(client.release().await);
    let Some(release) = release else {
        let last = findings.last().map_or(CHECKS[0], |finding| finding.check);
        findings.extend(pointless_after(last, site, case.probe_addresses, "castle does not get that far"));
        return findings;
    };
    findings.push(access::version(release));
    if findings.iter().any(|finding| finding.verdict == Verdict::Wrong) {
        findings.extend(pointless_after("version", site, case.probe_addresses, "this Proxmox is too old"));
        return findings;
    }
    let (quorum, hosts, granted, guests, pool) =
        join5(client.is_quorate(), client.hosts(), client.privileges(), client.guests(), pool(case)).await;
    findings.push(access::quorum(quorum));
    let hosts = match hosts {
        Ok(hosts) => hosts,
        Err(refusal) => {
            findings.push(Finding::refused("hosts", "", &refusal));
            findings.extend(pointless_after("hosts", site, case.probe_addresses, "the hosts are not known"));
            return findings;
        }
    };
    findings.extend(hosts::presence(site, &hosts));
    let lacks = match granted {
        Ok(granted) => {
            let needs = Needs { zone: zone(site, &granted), ..needs(site) };
            let all = requirements(&needs);
            let lacks = missing(&all, &granted);
            findings.extend(access::privileges(&all, &lacks));
            lacks
        }
        Err(refusal) => {
            findings.push(Finding::refused("privileges", "", &refusal));
            Vec::new()
        }
    };
    let is_lacking = |path: &str, privileges: &[&str]| {
        lacks.iter().any(|lack| lack.path.starts_with(path) && privileges.contains(&lack.privilege))
    };
    let is_online = |name: &&String| hosts.iter().any(|host| host.name == **name && host.is_online);
    let there: Vec<&String> = site.hosts.iter().filter(is_online).collect();
    let storages = join_all(there.iter().map(async |host| (host.as_str(), client.storages(host).await)));
    let bridges = join_all(there.iter().map(async |host| (host.as_str(), client.bridges(host).await)));
    let (storages, bridges) = join(storages, bridges).await;
    let survey = Survey {
        hosts: hosts.into_iter().map(|host| (host.name.clone(), host)).collect(),
        storages: storages.iter().filter_map(|(host, seen)| Some(((*host).to_owned(), seen.clone().ok()?))).collect(),
        guests: std::sync::Arc::new(guests.iter().flatten().map(|guest| (guest.vmid, guest.clone())).collect()),
        // The doctor asks no machine anything.
        running: std::collections::BTreeSet::new(),
    };
    let placed = place(site, &survey, nodes);
    findings.extend(stores::storages(case, &survey, &storages, placed.as_deref().unwrap_or_default(), &is_lacking));
    findings.extend(stores::linked_clones(site, &survey));
    findings.extend(hosts::bridges(site, &bridges, &is_lacking));
    if let Err(refusal) = &guests {
        // Without the list of guests every node would be taken for one that is not made yet.
        findings.push(Finding::refused("placement", "", refusal));
        findings.extend(pointless_after("placement", site, case.probe_addresses, "the guests are not known"));
        return findings;
    }
    findings.extend(hosts::placement(case, &survey, &placed));
    findings.extend(claims::vmids(case, &survey.guests, &is_lacking).await);
    findings.extend(pool.map(|answer| claims::pool(site, answer)));
    findings.extend(match case.probe_addresses {
        true => addresses::probe(case, &survey.guests).await,
        // Of what answers on loopback only another cluster says something.
        false => occupied(case.dial, client.clock(), case.castle, nodes, &survey.guests).await,
    });
    findings
}

/// The pool, if one is named.
async fn pool(case: Case<'_>) -> Option<Result<(), Refusal>> {
    let pool = case.site.pool.as_ref()?;
    let form = Form::new().with("poolid", pool);
    Some(case.client.get(&format!("the pool {pool}"), "/pools", &form).await.map(|_| ()))
}

/// The zone of the bridge, as far as the rights of the token tell: a virtual network is in one of its own.
fn zone(site: &Site, granted: &Privileges) -> Option<String> {
    let zones = granted.keys().filter_map(|path| path.strip_prefix("/sdn/zones/")?.split('/').next());
    let is_usable = |zone: &&str| {
        let needs = Needs { zone: Some((*zone).to_owned()), ..needs(site) };
        let uses: Vec<_> = requirements(&needs).into_iter().filter(|it| it.privilege == "SDN.Use").collect();
        missing(&uses, granted).is_empty()
    };
    zones.filter(|zone| *zone != "localnetwork").find(is_usable).map(str::to_owned)
}

/// A size as people read it.
fn size(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib >= 1024.0 { format!("{:.1} TiB", gib / 1024.0) } else { format!("{gib:.1} GiB") }
}

/// Names for people, not too many.
fn names<'n>(all: impl IntoIterator<Item = &'n str>) -> String {
    const MANY: usize = 10;
    let all: Vec<&str> = all.into_iter().collect();
    let shown = all.iter().take(MANY).copied().collect::<Vec<_>>().join(", ");
    match all.len() {
        0 => "none".to_owned(),
        count if count > MANY => format!("{shown} and {} more", count - MANY),
        _ => shown,
    }
}
