//! A guest that somebody else made, and that castle is to own from now on: looked at, marked, and nothing else of it changed.

use std::sync::Arc;

use castle_engine::{Change, Class, Decision, Difference, Fault, Impact, Operation, Step};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::begun::BEGUN_TAG;
use super::ground::Ground;
use super::wanted::{Deviation, Wanted, is_lasting};
use crate::client::{Bound, part};
use crate::model::{Config, ErrorClass, Etcd, Form, Guest, Mark, Owner, Properties};

/// The longest description that Proxmox takes.
const MAX_DESCRIPTION: usize = 8192;

/// A guest that stands where a node should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its number.
    pub vmid: u32,
    /// Its name, which is the node's.
    pub name: String,
    /// The host that carries it.
    pub host: String,
    /// Its hardware addresses, in small letters.
    pub macs: Vec<String>,
    /// Whether castle has marked it already.
    pub is_marked: bool,
    /// What is not as the file says, and what it would take.
    pub differences: Vec<(Difference, Impact)>,
}

/// Looks at the guest where a node should be. Changes nothing.
///
/// # Errors
///
/// [`Fault`] if there is none, or if it cannot be that node; or if Proxmox does not say.
pub async fn candidate(ground: &Ground, wanted: &Wanted) -> Result<Candidate, Fault> {
    let Wanted { vmid, name, .. } = wanted;
    let guests = ground.guests(std::time::Duration::ZERO).await?;
    let namesakes: Vec<&Guest> = guests.values().filter(|row| row.name.as_deref() == Some(name)).collect();
    let subject = format!("VM {vmid} ({name})");
    let guard = |evidence: String, next: &str| Err(Fault::guard(subject.clone(), evidence).next(next));
    if !ground.vmids.contains(vmid) {
        return guard("is outside of the castle's VMIDs".to_owned(), "widen vmids in castle.yaml");
    }
    let Some(row) = guests.get(vmid) else {
        let elsewhere = namesakes.first().map(|row| format!("; {} on {} is called so", told(row), row.host));
        let next =
            "name the nodes that are there, with their numbers (nodes.*.firstVmid, or vmid of one node), and no others";
        return guard(format!("is not there{}", elsewhere.unwrap_or_default()), next);
    };
    if !row.is_machine {
        return guard(format!("is a container on {}, and no node", row.host), "give the node the VMID that it has");
    }
    let away = || Fault::new(Class::RefusedBeforeEffect, subject.clone(), format!("is no longer on {}", row.host));
    let config = ground.client.config(&row.host, *vmid).await?.ok_or_else(away)?;
    if config.is_template() {
        return guard(format!("is a template on {}, and no node", row.host), "give the node the VMID that it has");
    }
    if config.get("name") == Some(name) {
        for other in namesakes.iter().filter(|other| other.vmid != *vmid) {
            if is_called(ground, other, name).await? {
                let evidence =
                    format!("is not the only one of that name: {} on {} has it, too", told(other), other.host);
                return guard(evidence, "rename the one that is not the node");
            }
        }
    }
    let is_marked = is_ours(ground, wanted, &config).await?;
    if let Some(other) = other_address(wanted, &config) {
        let evidence = format!("has the address {other}, and the file says {}", wanted.address.0);
        return guard(evidence, "say the node's address in castle.yaml");
    }
    if ground.client.is_running(&row.host, *vmid).await? != Some(true) {
        let evidence = "does not run, so nobody can tell whether it is a node of this cluster".to_owned();
        return guard(evidence, "start it, and run the same command again");
    }
    let difference = |deviation: Deviation| {
        let impact = deviation.impact(true);
        (Difference { field: deviation.option, is: deviation.is, wanted: Some(deviation.wanted) }, impact)
    };
    let differences = wanted.deviations(&config).into_iter().map(difference).collect();
    let macs = hardware_addresses(&config);
    Ok(Candidate { vmid: *vmid, name: name.clone(), host: row.host.clone(), macs, is_marked, differences })
}

/// Whether a guest is called as the list says. A name may be of one that had its number before.
async fn is_called(ground: &Ground, row: &Guest, name: &str) -> Result<bool, Fault> {
    if !row.is_machine {
        return Ok(true);
    }
    let config = ground.client.config(&row.host, row.vmid).await;
    match config {
        // Who may not be looked at, or whose host is away, is believed to be called as the list says.
        Err(refusal)
            if [ErrorClass::Forbidden, ErrorClass::Unreached, ErrorClass::Unknown].contains(&refusal.class) =>
        {
            Ok(true)
        }
        config => Ok(config?.is_some_and(|config| config.get("name") == Some(name))),
    }
}

/// The hardware addresses that a guest has, in small letters.
#[must_use]
pub fn hardware_addresses(config: &Config) -> Vec<String> {
    let devices = config
        .options
        .iter()
        .filter(|(option, _)| option.strip_prefix("net").is_some_and(|rest| rest.parse::<u8>().is_ok()));
    let mac = |line: &String| Some(line.split(',').next()?.split_once('=')?.1.to_lowercase());
    devices.filter_map(|(_, line)| mac(line)).collect()
}

fn told(row: &Guest) -> String {
    format!("{} {}", if row.is_machine { "VM" } else { "container" }, row.vmid)
}

/// Whether it is marked as this node already. One that cannot be this node is refused.
async fn is_ours(ground: &Ground, wanted: &Wanted, config: &Config) -> Result<bool, Fault> {
    let called = config.get("name").unwrap_or("without a name");
    match ground.owner(wanted.vmid, config).await? {
        Owner::Stranger if called == wanted.name => Ok(false),
        Owner::Stranger => {
            let evidence = format!("is called `{called}`, and the file wants `{}` there", wanted.name);
            let next = "give the node the name that it has in castle.yaml, or the VMID of the guest that is meant";
            Err(Fault::guard(format!("VM {}", wanted.vmid), evidence).next(next))
        }
        _ => ground.guard(wanted.vmid, &wanted.name, config).await.map(|_| true),
    }
}

/// The fixed address that it is given, if it is another than the node's.
fn other_address(wanted: &Wanted, config: &Config) -> Option<String> {
    let line = Properties::parse(None, config.get("ipconfig0")?).ok()?;
    let given = line.get(if wanted.address.0.is_ipv6() { "ip6" } else { "ip" })?;
    let address = given.split('/').next()?;
    let is_other = address.parse::<std::net::IpAddr>().is_ok_and(|address| address != wanted.address.0);
    is_other.then(|| address.to_owned())
}

/// Marks a guest as a node of this castle. What people have written about it stays.
pub struct MarkGuest {
    ground: Arc<Ground>,
    wanted: Wanted,
    /// Whether the etcd of its life was seen to have begun.
    has_begun: bool,
}

/// A guest before it is marked.
#[derive(Debug)]
pub struct Unmarked {
    host: String,
    config: Config,
    is_marked: bool,
    /// Whether it is as wanted already, as it runs and as it will after its next start.
    is_as_wanted: bool,
}

impl MarkGuest {
    /// The step for the guest of this node.
    #[must_use]
    pub fn new(ground: Arc<Ground>, wanted: Wanted) -> Self {
        Self { ground, wanted, has_begun: false }
    }

    /// The same, of a castle whose etcd was seen to have begun or not.
    #[must_use]
    pub fn of_etcd(self, has_begun: bool) -> Self {
        Self { has_begun, ..self }
    }

    /// What a control plane's mark says of etcd.
    fn etcd(&self) -> Option<Etcd> {
        let etcd = self.wanted.etcd_begins_on.as_deref().map(Etcd::to_begin_on)?;
        Some(Etcd { has_begun: self.has_begun, ..etcd })
    }

    fn subject(&self) -> String {
        format!("VM {} ({})", self.wanted.vmid, self.wanted.name)
    }

    async fn look(&self) -> Result<Unmarked, Fault> {
        let (client, vmid) = (&self.ground.client, self.wanted.vmid);
        let gone = || Fault::new(Class::Final, self.subject(), "is gone").next("run the same command again");
        let now = client.clock().monotonic();
        let host = self.ground.guests(now).await?.get(&vmid).map(|row| row.host.clone()).ok_or_else(gone)?;
        let config = client.config(&host, vmid).await?.ok_or_else(gone)?;
        let is_marked = is_ours(&self.ground, &self.wanted, &config).await?;
        let live = if is_marked { None } else { client.live_config(&host, vmid).await? };
        let is_as_wanted =
            [Some(&config), live.as_ref()].into_iter().flatten().all(|it| self.wanted.deviations(it).is_empty());
        Ok(Unmarked { host, config, is_marked, is_as_wanted })
    }

    /// The tags that it has, and those that all guests of the castle have; and of one that is as wanted that it is.
    fn tags(&self, seen: &Unmarked) -> String {
        let castle = &self.ground.castle;
        let there = seen.config.get("tags").unwrap_or_default().split([';', ',', ' ']);
        let mut all = if seen.is_as_wanted { self.wanted.tags(castle) } else { Mark::tags_of(castle) };
        all.extend(there.filter(|tag| is_lasting(tag)).map(str::to_owned));
        if self.etcd().is_some_and(|etcd| etcd.has_begun) {
            all.insert(BEGUN_TAG.to_owned());
        }
        all.into_iter().collect::<Vec<String>>().join(";")
    }

    /// What is written about it, and the mark below that.
    fn description(&self, config: &Config, mark: &Mark) -> Result<String, Fault> {
        let there = config.description().trim_end();
        let text = if there.is_empty() { mark.to_string() } else { format!("{there}\n\n{mark}") };
        let evidence = if text.len() > MAX_DESCRIPTION {
            "has so long a description that castle's mark does not fit below it"
        } else if Mark::read(&text).ok().flatten().as_ref() == Some(mark) {
            return Ok(text);
        } else {
            "has lines in its description that read like castle's mark: `mark:`, `castle:`, `lineage:`, `generation:`, `name:`, `role:`, `vmid:`, `cluster:`, `operation:`, `epoch:`, `etcd:`"
        };
        Err(Fault::guard(self.subject(), evidence).next("change its description, and run the same command again"))
    }
}

impl Step for MarkGuest {
    type Needs = ();
    type Observed = Unmarked;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Unmarked, Fault>> {
        Box::pin(self.look())
    }

    fn decide(&self, (): &(), seen: &Unmarked) -> Decision {
        if seen.is_marked {
            return Decision::Nothing;
        }
        let change = Change::new("mark", Impact::InPlace);
        let change = change.differing("tags", seen.config.get("tags").map(str::to_owned), Some(self.tags(seen)));
        Decision::Act(
            (),
            change.differing("description", None, Some("the castle's mark, below what is there".to_owned())),
        )
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        seen: &'a Unmarked,
        (): &'a (),
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Wanted { vmid, name, role, .. } = &self.wanted;
            let place = self.ground.client.place(*vmid).await?;
            let mark = Mark {
                etcd: self.etcd(),
                ..Mark::new(&self.ground.castle, name, *role, place, &operation.id, operation.epoch)
            };
            // If anyone has changed it since, Proxmox refuses by the digest.
            let form = Form::new()
                .with("tags", self.wanted.tags_now(&self.tags(seen), self.ground.client.wall()))
                .with("description", self.description(&seen.config, &mark)?)
                .with("digest", seen.config.digest.clone().unwrap_or_default());
            let path = format!("/nodes/{}/qemu/{vmid}/config", part(&seen.host));
            self.ground.client.run(&self.subject(), Method::POST, &path, &form, Bound::SHORT).await?;
            Ok(())
        })
    }

    fn output(&self, (): &(), _: &Unmarked) {}
}
