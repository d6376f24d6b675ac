//! The proof that a machine is gone.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Fault, Gate, Verdict};
use castle_seams::BoxFuture;

use super::ground::Ground;
use crate::model::{Mark, Owner};

/// Open when Proxmox has no machine of this name of the castle: neither at its number, seen or not, nor at any other that is seen.
pub struct Vanished {
    ground: Arc<Ground>,
    vmid: u32,
    name: String,
}

/// There is no such machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl Vanished {
    /// The gate for the node of this name.
    #[must_use]
    pub fn new(ground: Arc<Ground>, vmid: u32, name: &str) -> Self {
        Self { ground, vmid, name: name.to_owned() }
    }

    async fn look(&self) -> Result<(), Fault> {
        let client = &self.ground.client;
        let guests = self.ground.guests(client.clock().monotonic()).await?;
        let there = |vmid: u32, host: &str| {
            let evidence = format!("is there: VM {vmid} on {host}");
            Fault::guard(self.name.clone(), evidence).next("run the same command again")
        };
        if let Some(row) = guests.get(&self.vmid) {
            return Err(there(self.vmid, &row.host));
        }
        // The list has only what the token may see.
        if !client.is_free(self.vmid).await? {
            let evidence = format!("may be there: Proxmox has a VM {}, which the token may not see", self.vmid);
            return Err(Fault::guard(self.name.clone(), evidence)
                .next("give the token VM.Audit on it (castle doctor tells what the token may do), then run the same command again"));
        }
        let tags = Mark::tags_of(&self.ground.castle);
        for row in guests.values().filter(|row| row.tags.is_superset(&tags)) {
            let Some(config) = client.config(&row.host, row.vmid).await? else { continue };
            match self.ground.owner(row.vmid, &config).await? {
                Owner::Ours(mark) if mark.name == self.name => return Err(there(row.vmid, &row.host)),
                _ => {}
            }
        }
        Ok(())
    }
}

impl Gate for Vanished {
    type Needs = ();
    type Output = Gone;

    fn check<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Verdict<Gone>, Fault>> {
        Box::pin(async move { self.look().await.map(|()| Verdict::Open(Gone)) })
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }
}
