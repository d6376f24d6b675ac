//! A guest that goes down by itself, before it is removed.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Class, Decision, Fault, Impact, Operation, Step};
use castle_http::Method;
use castle_seams::BoxFuture;

use super::gone::{Reach, Remains, RemoveGuest};
use super::ground::Ground;
use crate::client::{Bound, part};
use crate::model::{Form, Refusal};

/// What Proxmox says of a guest that does not go down in time.
const TOO_SLOW: &str = "powerdown failed";

/// Tells a guest to go down, and waits for that within a bound. One that does not is left running, and it is told.
pub struct ShutGuest {
    guest: RemoveGuest,
    within: Duration,
}

impl ShutGuest {
    /// The step for the guest that was chosen under this name.
    #[must_use]
    pub fn new(ground: Arc<Ground>, vmid: u32, name: &str, within: Duration) -> Self {
        Self { guest: RemoveGuest::new(ground, vmid, name, Reach::Marked), within }
    }

    /// Why it still runs.
    fn fault(&self, refusal: Refusal) -> Fault {
        if !refusal.sentence.contains(TOO_SLOW) {
            return refusal.into();
        }
        let evidence = format!("did not go down by itself within {} s", self.within.as_secs());
        Fault::new(Class::Final, self.guest.subject(), evidence)
            .next(format!("on its host: qm terminal {}", self.guest.vmid))
    }
}

impl Step for ShutGuest {
    type Needs = ();
    type Observed = Remains;
    /// The host that it runs on.
    type Action = String;
    type Output = ();

    fn observe<'a>(&'a self, needs: &'a ()) -> BoxFuture<'a, Result<Remains, Fault>> {
        self.guest.observe(needs)
    }

    fn decide(&self, (): &(), remains: &Remains) -> Decision<String> {
        match remains {
            Remains::Guest { host, is_running: true } => {
                Decision::Act(host.clone(), Change::new("shut down", Impact::InPlace))
            }
            Remains::Guest { is_running: false, .. } | Remains::Nothing => Decision::Nothing,
        }
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        _: &'a Remains,
        host: &'a String,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let (client, vmid) = (&self.guest.ground.client, self.guest.vmid);
            let Some(config) = client.config(host, vmid).await? else { return Ok(()) };
            self.guest.guard(&config).await?;
            let path = format!("/nodes/{}/qemu/{vmid}/status/shutdown", part(host));
            let form = Form::new().with("timeout", self.within.as_secs());
            let went = client.run(&self.guest.subject(), Method::POST, &path, &form, Bound::SHORT).await;
            went.map(|_| ()).map_err(|refusal| self.fault(refusal))
        })
    }

    fn output(&self, (): &(), _: &Remains) {}
}
