//! Whether a node answers at all. What nobody hears of for minutes is mostly a network that is not as the file says.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;

use super::{Keys, Whom, Wire};
use crate::client::{Contact, PORT, Presence};

/// After how long it is worth thinking about why: most nodes answer within that.
const USUAL: Duration = Duration::from_secs(60);

/// What mostly keeps a node from answering.
const CAUSES: &str = "likely causes: the bridge or VLAN of its machine is another than the address is in; a firewall between here and there; another device \
                      has the address; or it does not boot";

/// Open when a node answers, with a configuration or without.
pub struct Answers {
    wire: Arc<Wire>,
    whom: Whom,
    contact: OnceLock<Contact>,
    /// When it was asked for the first time.
    begun: OnceLock<Duration>,
}

impl Answers {
    /// The gate for this node.
    #[must_use]
    pub fn new(wire: Arc<Wire>, whom: Whom) -> Self {
        Self { wire, whom, contact: OnceLock::new(), begun: OnceLock::new() }
    }

    fn contact(&self, keys: &Keys) -> Result<&Contact, Fault> {
        if let Some(contact) = self.contact.get() {
            return Ok(contact);
        }
        let contact = self.wire.contact(&self.whom, keys)?;
        Ok(self.contact.get_or_init(|| contact))
    }

    async fn ask(&self, keys: &Keys) -> Result<Verdict<()>, Fault> {
        let Whom { name, address } = &self.whom;
        let begun = *self.begun.get_or_init(|| self.wire.clock.monotonic());
        let refusal = match self.contact(keys)?.probe().await {
            Presence::Running(_) | Presence::Maintenance(_) => return Ok(Verdict::Open(())),
            Presence::Stranger(refusal) => return Err(refusal.into()),
            Presence::Unreachable(refusal) => refusal,
        };
        let waited = self.wire.clock.monotonic().saturating_sub(begun);
        let causes = if waited < USUAL { String::new() } else { format!("; {CAUSES}") };
        Ok(Verdict::Closed(Closed {
            subject: name.clone(),
            evidence: format!("does not answer at {address} port {PORT}: {}{causes}", refusal.sentence),
            next: format!(
                "look at the console of {name} in Proxmox: does it boot, and with which address? From here: nc -vz {address} {PORT}; then run the same \
                 command again"
            ),
        }))
    }
}

impl Gate for Answers {
    type Needs = (Arc<Keys>,);
    type Output = ();

    fn check<'a>(&'a self, (keys,): &'a Self::Needs) -> BoxFuture<'a, Result<Verdict<()>, Fault>> {
        Box::pin(self.ask(keys))
    }

    fn period(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn deadline(&self) -> Duration {
        self.wire.patience
    }
}
