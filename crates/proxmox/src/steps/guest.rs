//! A guest: cloned from the image, made as large as wanted, and configured.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Class, Closed, Decision, Fault, Impact, Operation, Restarts, Step, pace};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::ground::{Ground, Looks};
use super::image::Template;
use super::wanted::{Deviation, Remedy, Wanted, human};
use crate::client::{Bound, part};
use crate::model::{Config, Etcd, Form, Mark};

/// How long a guest that restarts may be off: its host starts it again at once.
const STARTED_AGAIN: Duration = Duration::from_secs(30);
/// The longest wait between two looks at one.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Makes a guest as it is wanted, and keeps it so. Does not start it.
pub struct MakeGuest {
    ground: Arc<Ground>,
    wanted: Wanted,
    restarts: Restarts,
    looks: Looks,
}

/// A guest that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its number.
    pub vmid: u32,
    /// The host that carries it, which need not be the one it was made on.
    pub host: String,
}

/// What looking at a guest tells.
#[derive(Debug)]
pub enum Sight {
    /// There is none.
    Absent,
    /// The list of the cluster shows that it is as wanted.
    AsWanted(Standing),
    /// It is there, and is ours.
    There(Box<There>),
}

/// A guest that is there, in full.
#[derive(Debug)]
pub struct There {
    host: String,
    /// As it will be after its next start.
    config: Config,
    /// As it is now, if it runs.
    live: Option<Config>,
    pool: Option<String>,
    mark: Mark,
}

impl MakeGuest {
    /// The step for this guest.
    #[must_use]
    pub fn new(ground: Arc<Ground>, wanted: Wanted) -> Self {
        Self { ground, wanted, restarts: Restarts::default(), looks: Looks::default() }
    }

    /// The same, which may restart it only then.
    #[must_use]
    pub fn restarting(self, restarts: Restarts) -> Self {
        Self { restarts, ..self }
    }

    fn subject(&self) -> String {
        format!("VM {} ({})", self.wanted.vmid, self.wanted.name)
    }

    async fn look(&self) -> Result<Sight, Fault> {
        let (client, vmid) = (&self.ground.client, self.wanted.vmid);
        let guests = self.ground.guests(self.looks.since(client.clock().monotonic())).await?;
        let Some(row) = guests.get(&vmid) else { return Ok(Sight::Absent) };
        if !row.is_machine {
            let evidence = format!("is a container on {}, not castle's", row.host);
            let next = self.ground.cleared("move that guest", vmid).await?;
            return Err(Fault::guard(format!("guest {vmid}"), evidence).next(next));
        }
        if !self.ground.deep && self.wanted.is_shown_by(&self.ground.castle, row) {
            return Ok(Sight::AsWanted(Standing { vmid, host: row.host.clone() }));
        }
        let host = row.host.clone();
        let moved = || Fault::new(Class::RefusedBeforeEffect, self.subject(), format!("is no longer on {host}"));
        let config = self.ground.settled(row).await?.ok_or_else(moved)?;
        let mark = self.ground.guard(vmid, &self.wanted.name, &config).await?;
        let running = client.is_running(&host, vmid).await?.ok_or_else(moved)?;
        let live = if running { client.live_config(&host, vmid).await? } else { None };
        Ok(Sight::There(Box::new(There { host, config, live, pool: row.pool.clone(), mark })))
    }

    async fn clone_from(&self, template: &Template, operation: &Operation) -> Result<(), Fault> {
        let Wanted { vmid, name, role, host, pool, hardware, .. } = &self.wanted;
        let place = self.ground.client.place(*vmid).await?;
        let mark = Mark {
            etcd: self.wanted.etcd_begins_on.as_deref().map(Etcd::to_begin_on),
            ..Mark::new(&self.ground.castle, name, *role, place, &operation.id, operation.epoch)
        };
        let mut form = Form::new()
            .with("newid", vmid)
            .with("name", name)
            .with("description", mark)
            .with("pool", pool.as_deref().unwrap_or_default())
            .with_flag("full", !template.can_link);
        if !template.can_link {
            form = form.with("storage", &hardware.storage);
        }
        if *host != template.host {
            form = form.with("target", host);
        }
        let path = format!("/nodes/{}/qemu/{}/clone", part(&template.host), template.vmid);
        let bound = if template.can_link { Bound::SHORT } else { Bound::LONG };
        self.ground.client.run(&self.subject(), Method::POST, &path, &form, bound).await?;
        Ok(())
    }

    async fn apply(&self, there: &There, action: &Making, operation: &Operation) -> Result<(), Fault> {
        let (client, vmid, subject) = (&self.ground.client, self.wanted.vmid, self.subject());
        Ground::fence(vmid, &there.mark, operation.epoch)?;
        let restarts = matches!(action, Making::Restart | Making::Configure { restarts: true });
        if restarts && self.restarts == Restarts::Never {
            let evidence = "would have to restart, and did not when castle looked";
            return Err(Fault::guard(subject, evidence).next("run the same command again"));
        }
        let path = |rest: &str| format!("/nodes/{}/qemu/{vmid}/{rest}", part(&there.host));
        let digest = there.config.digest.clone().unwrap_or_default();
        match action {
            Making::Clone => return Err(Fault::defect("a guest that is there was to be cloned")),
            Making::Resize { disk, size } => {
                let form = Form::new().with("disk", disk).with("size", human(*size)).with("digest", digest);
                client.run(&subject, Method::PUT, &path("resize"), &form, Bound::SHORT).await?;
            }
            Making::Configure { .. } => {
                let mut form = Form::new();
                for Deviation { option, remedy, .. } in self.writes(there) {
                    if let Remedy::Set(value) = remedy {
                        let is_tags = option == "tags";
                        let value = if is_tags { self.wanted.tags_now(&value, client.wall()) } else { value };
                        form = form.with(&option, value);
                    }
                }
                let form = form.with("digest", digest);
                client.run(&subject, Method::POST, &path("config"), &form, Bound::SHORT).await?;
            }
            Making::Pool => {
                let pool = self.wanted.pool.clone().unwrap_or_default();
                let form =
                    Form::new().with("poolid", pool).with("vms", vmid).with_flag("allow-move", there.pool.is_some());
                client.change(&subject, Method::PUT, "/pools", &form).await?;
            }
            Making::Restart => {
                let form = Form::new().with("timeout", 120);
                client.run(&subject, Method::POST, &path("status/reboot"), &form, Bound::SHORT).await?;
                self.wait_until_it_runs(&there.host).await?;
            }
            Making::Replace(change) => return Err(irreplaceable(subject, change)),
        }
        Ok(())
    }

    /// Waits for a guest that restarts. The task ends when it has stopped; whoever starts it again is no part of the task. One that
    /// nobody starts is started by the next step.
    async fn wait_until_it_runs(&self, host: &str) -> Result<(), Fault> {
        let (client, vmid) = (&self.ground.client, self.wanted.vmid);
        let begun = client.clock().monotonic();
        loop {
            let waited = client.clock().monotonic().saturating_sub(begun);
            if waited >= STARTED_AGAIN || client.is_running(host, vmid).await? != Some(false) {
                return Ok(());
            }
            client.clock().sleep(pace(waited, LONGEST_WAIT)).await;
        }
    }

    /// What one write brings about. The tags tell that all is as wanted, so they come last: with the rest if that is taken up
    /// at once.
    fn writes(&self, there: &There) -> Vec<Deviation> {
        let mut writes = self.wanted.deviations(&there.config);
        let waits = |deviation: &Deviation| self.impact(there, deviation) != Impact::InPlace;
        if !writes.iter().any(waits) && self.stale(there).is_empty() {
            writes.extend(self.wanted.tags_deviation(&self.ground.castle, &there.config));
        }
        if self.restarts == Restarts::InTurn {
            writes.retain(|deviation| !waits(deviation));
        }
        writes
    }

    /// What it takes to bring an option about. One that only waits for the next start, while the running guest has it as wanted, is
    /// called off by writing it: nothing is restarted for it.
    fn impact(&self, there: &There, deviation: &Deviation) -> Impact {
        let differs = |live: &Config| self.wanted.deviations(live).iter().any(|it| it.option == deviation.option);
        deviation.impact(there.live.as_ref().is_some_and(differs))
    }

    /// What the running guest does not have yet, although it is written.
    fn stale(&self, there: &There) -> Vec<Deviation> {
        let Some(live) = &there.live else { return Vec::new() };
        let waits = |deviation: &Deviation| deviation.impact(true) == Impact::Reboot;
        self.wanted.deviations(live).into_iter().filter(waits).collect()
    }
}

/// That a change is planned and not made: it would take another machine.
#[must_use]
pub fn irreplaceable(subject: String, change: &Change) -> Fault {
    let lost: Vec<String> = change.differences.iter().map(ToString::to_string).collect();
    let evidence = format!(
        "would have to be destroyed and made anew ({}), and castle does not do that to a node by itself",
        lost.join(", ")
    );
    Fault::guard(subject, evidence)
        .next("give it in castle.yaml the sizes and the storage that it has; or castle down, then castle up")
}

/// The change that brings these about.
fn change(verb: &str, impact: Impact, deviations: &[Deviation]) -> Change {
    deviations.iter().fold(Change::new(verb, impact), |change, deviation| {
        change.differing(&deviation.option, deviation.is.clone(), Some(deviation.wanted.clone()))
    })
}

/// What brings a guest about.
#[derive(Clone, Debug)]
pub enum Making {
    /// It is cloned from the image.
    Clone,
    /// A disk grows.
    Resize {
        /// Which.
        disk: String,
        /// To how much.
        size: u64,
    },
    /// Its configuration is written.
    Configure {
        /// Whether some of it is taken up at the next start alone.
        restarts: bool,
    },
    /// It moves to its pool.
    Pool,
    /// It is started anew, for what it does not have yet although it is written.
    Restart,
    /// It would have to be another machine, for what differs here: told, and never done.
    Replace(Change),
}

impl Step for MakeGuest {
    type Needs = (Arc<Option<Template>>,);
    type Observed = Sight;
    type Action = Making;
    type Output = Standing;

    fn observe<'a>(&'a self, _: &'a Self::Needs) -> BoxFuture<'a, Result<Sight, Fault>> {
        Box::pin(self.look())
    }

    fn awaits(&self) -> Option<Closed> {
        self.ground.awaited(self.wanted.vmid)
    }

    fn decide(&self, (template,): &Self::Needs, sight: &Sight) -> Decision<Making> {
        let there = match sight {
            Sight::AsWanted(_) => return Decision::Nothing,
            Sight::Absent => {
                let Wanted { host, cores, memory, system, data, address, .. } = &self.wanted;
                let disks = data.map_or(human(*system), |data| format!("{} + {}", human(*system), human(data)));
                let from = template.as_ref().as_ref().map_or("an image that is not there yet".to_owned(), |template| {
                    format!("template {} ({})", template.vmid, if template.can_link { "linked" } else { "full copy" })
                });
                let wanted = |text: String| (None, Some(text));
                let differences = [
                    ("host", wanted(host.clone())),
                    ("address", wanted(address.0.to_string())),
                    ("cores", wanted(cores.to_string())),
                    ("memory", wanted(human(*memory))),
                    ("disks", wanted(disks)),
                    ("from", wanted(from)),
                ];
                let change = differences
                    .into_iter()
                    .fold(Change::new("clone", Impact::Create), |change, (field, (is, wanted))| {
                        change.differing(field, is, wanted)
                    });
                return Decision::Act(Making::Clone, change);
            }
            Sight::There(there) => there,
        };
        let deviations = self.wanted.deviations(&there.config);
        let (lost, rest): (Vec<_>, Vec<_>) =
            deviations.into_iter().partition(|deviation| deviation.remedy == Remedy::Replace);
        if !lost.is_empty() {
            let change = change("replace", Impact::Replace, &lost);
            return Decision::Act(Making::Replace(change.clone()), change);
        }
        let grow = rest.iter().find_map(|deviation| match deviation.remedy {
            Remedy::Grow(size) => Some((deviation, size)),
            Remedy::Set(_) | Remedy::Replace => None,
        });
        if let Some((deviation, size)) = grow {
            let resize = Making::Resize { disk: deviation.option.clone(), size };
            return Decision::Act(resize, change("resize", Impact::InPlace, std::slice::from_ref(deviation)));
        }
        let writes = self.writes(there);
        let only_tags = writes.iter().all(|deviation| deviation.option == "tags");
        let stale = if self.restarts == Restarts::InTurn { Vec::new() } else { self.stale(there) };
        if !stale.is_empty() && (writes.is_empty() || only_tags) {
            return Decision::Act(Making::Restart, change("restart", Impact::Reboot, &stale));
        }
        if !writes.is_empty() {
            let impact = writes.iter().map(|deviation| self.impact(there, deviation)).max().unwrap_or(Impact::InPlace);
            let configure = Making::Configure { restarts: impact == Impact::Reboot };
            return Decision::Act(configure, change("configure", impact, &writes));
        }
        if self.wanted.pool.is_some() && there.pool != self.wanted.pool {
            let change = Change::new("pool", Impact::InPlace);
            let change = change.differing("pool", there.pool.clone(), self.wanted.pool.clone());
            return Decision::Act(Making::Pool, change);
        }
        Decision::Nothing
    }

    fn act<'a>(
        &'a self,
        (template,): &'a Self::Needs,
        sight: &'a Sight,
        action: &'a Making,
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            match (sight, action) {
                (Sight::There(there), action) => self.apply(there, action, operation).await,
                (Sight::Absent, Making::Clone) => match template.as_ref() {
                    Some(template) => self.clone_from(template, operation).await,
                    None => {
                        let evidence = "has vanished while castle worked, and there is no image to clone it from";
                        Err(Fault::new(Class::Final, self.subject(), evidence).next("run the same command again"))
                    }
                },
                (Sight::Absent | Sight::AsWanted(_), _) => {
                    Err(Fault::defect("a guest that is not there was to be changed"))
                }
            }
        })
    }

    fn expect(&self, needs: &Self::Needs, sight: &Sight) -> Option<Standing> {
        Some(self.output(needs, sight))
    }

    fn output(&self, _: &Self::Needs, sight: &Sight) -> Standing {
        match sight {
            Sight::AsWanted(standing) => standing.clone(),
            Sight::There(there) => Standing { vmid: self.wanted.vmid, host: there.host.clone() },
            Sight::Absent => Standing { vmid: self.wanted.vmid, host: self.wanted.host.clone() },
        }
    }
}
