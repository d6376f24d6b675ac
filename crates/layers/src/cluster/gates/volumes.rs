//! The volume that a node keeps data on.
//!
//! A node that finds no disk for a volume goes on without: what is mounted there is then a folder of its system disk, and everything
//! looks well until that is full. So it is asked for.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;
use castle_talos::client::{Contact, Volume, kinds};
use castle_talos::steps::{Configured, How, Keys, Whom, Wire};

/// Open when the volume of a node is ready.
pub(in super::super) struct VolumeReady {
    wire: Arc<Wire>,
    whom: Whom,
    name: &'static str,
    contact: OnceLock<Contact>,
}

impl VolumeReady {
    pub(in super::super) fn new(wire: Arc<Wire>, whom: Whom, name: &'static str) -> Self {
        Self { wire, whom, name, contact: OnceLock::new() }
    }

    fn contact(&self, keys: &Keys) -> Result<&Contact, Fault> {
        if let Some(contact) = self.contact.get() {
            return Ok(contact);
        }
        let contact = self.wire.contact(&self.whom, keys)?;
        Ok(self.contact.get_or_init(|| contact))
    }

    async fn ask(&self, keys: &Keys) -> Result<Verdict<()>, Fault> {
        let (name, address) = (self.name, self.whom.address);
        let evidence = match self.contact(keys)?.running().volume(name).await? {
            Volume::Ready => return Ok(Verdict::Open(())),
            Volume::Unready { phase, why } if why.is_empty() => format!("its volume {name} is {phase}"),
            Volume::Unready { phase, why } => format!("its volume {name} is {phase}: {why}"),
            Volume::Unknown => format!("it knows of no volume {name} yet"),
        };
        Ok(Verdict::Closed(Closed {
            subject: self.whom.name.clone(),
            evidence,
            next: format!("talosctl --nodes {address} get disks; talosctl --nodes {address} get volumestatus u-{name}"),
        }))
    }
}

impl Gate for VolumeReady {
    type Needs = (Arc<Keys>, Arc<Configured>);
    type Output = ();

    fn check<'a>(&'a self, (keys, configured): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(async move {
            if configured.how == How::Seen {
                return self.ask(keys).await;
            }
            let (subject, evidence) =
                (self.whom.name.clone(), "has no configuration yet, or does not answer".to_owned());
            Ok(Verdict::Closed(Closed { subject, evidence, next: "castle up".to_owned() }))
        })
    }

    fn changed<'a>(&'a self, (keys, _): &'a Self::Needs) -> Option<BoxFuture<'a, ()>> {
        Some(Box::pin(async {
            let id = format!("u-{}", self.name);
            if let Ok(contact) = self.contact(keys)
                && let Ok(true) = contact.running().until_changed(kinds::VOLUME_STATUS, &id, self.deadline()).await
            {
                return;
            }
            // Who cannot be watched is asked again after a while anyway.
            std::future::pending::<()>().await;
        }))
    }

    fn period(&self) -> Duration {
        Duration::from_secs(1)
    }

    /// Nodes try a volume again every half minute.
    fn deadline(&self) -> Duration {
        Duration::from_secs(5 * 60)
    }
}
