//! A guest that runs.

use std::sync::Arc;

use castle_engine::{Change, Class, Decision, Fault, Impact, Operation, Step};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::ground::{Ground, Looks};
use super::guest::Standing;
use crate::client::{Bound, part};
use crate::model::{Form, Guest};

/// Starts a guest, and starts it again when it has stopped.
pub struct RunGuest {
    ground: Arc<Ground>,
    name: String,
    looks: Looks,
}

/// Whether a guest runs, and where it is.
#[derive(Debug)]
pub struct Power {
    standing: Standing,
    is_running: bool,
}

impl RunGuest {
    /// The step for the guest of this name.
    #[must_use]
    pub fn new(ground: Arc<Ground>, name: &str) -> Self {
        Self { ground, name: name.to_owned(), looks: Looks::default() }
    }

    fn subject(&self, vmid: u32) -> String {
        format!("VM {vmid} ({})", self.name)
    }
}

impl Step for RunGuest {
    type Needs = (Arc<Standing>,);
    type Observed = Power;
    type Action = ();
    type Output = Standing;

    fn observe<'a>(&'a self, (standing,): &'a Self::Needs) -> BoxFuture<'a, Result<Power, Fault>> {
        Box::pin(async move {
            let (client, vmid) = (&self.ground.client, standing.vmid);
            let since = self.looks.since(client.clock().monotonic());
            let guests = self.ground.guests(since).await?;
            let row = guests.get(&vmid);
            let host = row.map_or(&standing.host, |row| &row.host).clone();
            let standing = Standing { vmid, host };
            // What all that its host carries do is as old as the list; one that does not run, or is at something, is asked about itself.
            let is_settled = |row: &&Guest| row.is_running() == Some(true) && row.lock.is_none() && !self.ground.deep;
            if let Some(row) = row.filter(is_settled)
                && self.ground.runs(row, since).await? == Some(true)
            {
                return Ok(Power { standing, is_running: true });
            }
            // What is not there does not run; a plan asks about guests that are yet to be made.
            let is_running = row.is_some() && client.is_running(&standing.host, vmid).await?.unwrap_or(false);
            Ok(Power { standing, is_running })
        })
    }

    fn decide(&self, _: &Self::Needs, power: &Power) -> Decision {
        if power.is_running {
            return Decision::Nothing;
        }
        Decision::Act((), Change::new("start", Impact::InPlace))
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        power: &'a Power,
        (): &'a (),
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let Standing { vmid, host } = &power.standing;
            let (client, subject) = (&self.ground.client, self.subject(*vmid));
            let gone = || Fault::new(Class::RefusedBeforeEffect, subject.clone(), "is not where it was");
            let config = client.config(host, *vmid).await?.ok_or_else(gone)?;
            let mark = self.ground.guard(*vmid, &self.name, &config).await?;
            Ground::fence(*vmid, &mark, operation.epoch)?;
            let path = format!("/nodes/{}/qemu/{vmid}/status/start", part(host));
            client.run(&subject, Method::POST, &path, &Form::new(), Bound::SHORT).await?;
            Ok(())
        })
    }

    fn expect(&self, needs: &Self::Needs, power: &Power) -> Option<Standing> {
        Some(self.output(needs, power))
    }

    fn output(&self, _: &Self::Needs, power: &Power) -> Standing {
        power.standing.clone()
    }
}
