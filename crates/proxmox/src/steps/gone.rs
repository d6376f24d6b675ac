//! The end of guests: each looked at once more before it is removed.

use std::sync::Arc;

use castle_engine::{Change, Class, Closed, Decision, Fault, Impact, Operation, Step, lineage};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::ground::{Ground, Looks};
use crate::client::{Bound, part};
use crate::model::{Config, Form, Owner};

/// Lets a guest be stopped that somebody is shutting down.
const OVERRULE: &str = "overrule-shutdown";

/// How far the removal of guests reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What this castle made, in any of its lives.
    Marked,
    /// And guests within its range that bear no mark at all. Never one that another castle marked.
    Unmarked,
    /// A guest that was still being made or removed when it was chosen: only if it turns out to be this castle's, whichever of its guests it is.
    Unfinished,
}

/// Removes a guest: stops it, then destroys it, each time holding that it still is the one that was meant.
pub struct RemoveGuest {
    pub(super) ground: Arc<Ground>,
    pub(super) vmid: u32,
    /// What it was called when it was chosen: by its mark, or by Proxmox if it has none.
    name: String,
    reach: Reach,
    looks: Looks,
}

/// What looking at a guest tells that is to go.
#[derive(Debug)]
pub enum Remains {
    /// It is gone.
    Nothing,
    /// It is there.
    Guest {
        /// Where.
        host: String,
        /// Whether it runs.
        is_running: bool,
    },
}

impl RemoveGuest {
    /// The step for the guest that was chosen under this name.
    #[must_use]
    pub fn new(ground: Arc<Ground>, vmid: u32, name: &str, reach: Reach) -> Self {
        Self { ground, vmid, name: name.to_owned(), reach, looks: Looks::default() }
    }

    pub(super) fn subject(&self) -> String {
        format!("VM {} ({})", self.vmid, self.name)
    }

    /// Holds that it is the guest that was meant, and that it may go.
    pub(super) async fn guard(&self, config: &Config) -> Result<(), Fault> {
        let guard =
            |evidence: String| Err(Fault::guard(self.subject(), evidence).next("castle status shows what is castle's"));
        if !self.ground.reaches(self.vmid, config.is_template()) {
            return guard("outside of the castle's VMIDs".to_owned());
        }
        let called = config.get("name").unwrap_or_default();
        match self.ground.owner(self.vmid, config).await? {
            Owner::Ours(mark) | Owner::Earlier(mark) if mark.name == self.name || self.reach == Reach::Unfinished => {
                self.unprotected(config)
            }
            Owner::Ours(mark) | Owner::Earlier(mark) => guard(format!("is `{}` by now", mark.name)),
            Owner::Later(mark) => {
                Err(Fault::guard(self.subject(), mark.told_as_later(&self.ground.castle)).next(lineage::OUTDATED))
            }
            Owner::Other(mark) => guard(format!("belongs to {} (lineage {})", mark.castle.name, mark.castle.lineage)),
            Owner::Copy(mark) => guard(mark.told_as_copy()),
            Owner::Unreadable(format) => Err(Fault::guard(self.subject(), format.to_string()).next(format.next())),
            Owner::Stranger if self.reach == Reach::Unmarked && called == self.name => self.unprotected(config),
            Owner::Stranger => guard(format!("is not castle's: it is called `{called}` and has no mark")),
        }
    }

    async fn is_ours(&self, config: &Config) -> Result<bool, Fault> {
        Ok(matches!(self.ground.owner(self.vmid, config).await?, Owner::Ours(_) | Owner::Earlier(_)))
    }

    /// Stops it, whoever is just shutting it down.
    async fn stop(&self, path: &str) -> Result<(), Fault> {
        let (client, subject) = (&self.ground.client, self.subject());
        let form = Form::new().with_flag(OVERRULE, true);
        match client.run(&subject, Method::POST, path, &form, Bound::SHORT).await {
            // Where high availability looks after it, nothing is to be overruled: that is asked to stop it, and does in its time.
            Err(refusal) if refusal.sentence.contains(OVERRULE) => {
                client.run(&subject, Method::POST, path, &Form::new(), Bound::SHORT).await?;
            }
            stopped => drop(stopped?),
        }
        Ok(())
    }

    /// Holds that nobody has protected it from removal. Proxmox says so only when it is stopped already.
    fn unprotected(&self, config: &Config) -> Result<(), Fault> {
        if !config.is_protected() {
            return Ok(());
        }
        Err(Fault::new(Class::Final, self.subject(), "is protected from removal: it stays as it is")
            .next(unprotect(self.vmid)))
    }
}

/// What lets a protected guest go.
#[must_use]
pub fn unprotect(vmid: u32) -> String {
    format!(
        "if it is to go, on its host: qm set {vmid} --protection 0 (or Options > Protection), then run the same command again"
    )
}

/// What removing a guest does, on the host that it is on.
#[derive(Clone, Debug)]
pub enum Removal {
    /// It is stopped.
    Stop {
        /// Where it is.
        host: String,
    },
    /// It is destroyed, with its disks.
    Destroy {
        /// Where it is.
        host: String,
    },
}

impl Step for RemoveGuest {
    type Needs = ();
    type Observed = Remains;
    type Action = Removal;
    type Output = ();

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Remains, Fault>> {
        Box::pin(async move {
            let client = &self.ground.client;
            let guests = self.ground.guests(self.looks.since(client.clock().monotonic())).await?;
            let Some(row) = guests.get(&self.vmid) else { return Ok(Remains::Nothing) };
            let Some(config) = self.ground.settled(row).await? else { return Ok(Remains::Nothing) };
            if self.reach == Reach::Unfinished && !self.is_ours(&config).await? {
                return Ok(Remains::Nothing);
            }
            self.guard(&config).await?;
            let Some(is_running) = client.is_running(&row.host, self.vmid).await? else { return Ok(Remains::Nothing) };
            Ok(Remains::Guest { host: row.host.clone(), is_running })
        })
    }

    fn awaits(&self) -> Option<Closed> {
        self.ground.awaited(self.vmid)
    }

    fn decide(&self, (): &(), remains: &Remains) -> Decision<Removal> {
        match remains {
            Remains::Nothing => Decision::Nothing,
            Remains::Guest { host, is_running: true } => {
                Decision::Act(Removal::Stop { host: host.clone() }, Change::new("stop", Impact::Destroy))
            }
            Remains::Guest { host, is_running: false } => {
                let destroy = Change::new("destroy", Impact::Destroy);
                let change = destroy.differing("guest", Some(format!("{} on {host}", self.vmid)), None);
                Decision::Act(Removal::Destroy { host: host.clone() }, change)
            }
        }
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        _: &'a Remains,
        action: &'a Removal,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let (Removal::Stop { host } | Removal::Destroy { host }) = action;
            let (client, subject) = (&self.ground.client, self.subject());
            // Between looking and doing someone may have put something else there.
            let Some(config) = client.config(host, self.vmid).await? else { return Ok(()) };
            if config.get("lock") == Some("destroyed") {
                return Ok(());
            }
            self.guard(&config).await?;
            let path = format!("/nodes/{}/qemu/{}", part(host), self.vmid);
            if matches!(action, Removal::Stop { .. }) {
                return self.stop(&format!("{path}/status/stop")).await;
            }
            let warnings = client
                .run(&subject, Method::DELETE, &path, &Form::new().with_flag("purge", true), Bound::SHORT)
                .await?;
            if warnings > 0 {
                let evidence = "is gone, but a disk of it could not be freed";
                return Err(Fault::new(Class::Final, subject, evidence)
                    .next(format!("on {host}: pvesm list STORAGE --vmid {}, then pvesm free VOLUME", self.vmid)));
            }
            Ok(())
        })
    }

    fn foresee(&self) -> Option<Change> {
        let destroy = Change::new("destroy", Impact::Destroy);
        Some(destroy.differing("guest", Some(self.vmid.to_string()), None))
    }

    fn output(&self, (): &(), _: &Remains) {}
}
