//! Whether a node answers at all, and at the time that it is. What nobody hears of for minutes is mostly a network that is not as the file says.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use castle_engine::{Closed, Fault, Gate, Verdict};
use castle_seams::BoxFuture;

use super::clocks::{self, Disagreement, Whose};
use super::{Keys, Whom, Wire};
use crate::client::{Contact, ErrorClass, PORT, Presence};

/// After how long it is worth thinking about why: most nodes answer within that.
const USUAL: Duration = Duration::from_secs(60);

/// How long a clock that is wrong is waited for where the configuration names time servers: nobody but it can tell the node about them.
const UNTIL_TOLD: Duration = Duration::from_secs(30);

/// How long a certificate that is not of its time is told in the same words, though the time goes on.
const SAME_WORDS: Duration = Duration::from_secs(60);

/// What mostly keeps a node from answering.
const CAUSES: &str = "likely causes: the bridge or VLAN of its machine is another than the address is in; a firewall between here and there; another device \
                      has the address; or it does not boot";

/// Open when a node answers, with a configuration or without. One that has none yet must agree about the time, or nobody could speak with it once it has.
pub struct Answers {
    wire: Arc<Wire>,
    whom: Whom,
    contact: OnceLock<Contact>,
    /// When it was asked for the first time.
    begun: OnceLock<Duration>,
    names_time_servers: bool,
    /// How its clock differs, and when that was seen first.
    differs: Mutex<Option<(Disagreement, Duration)>>,
    /// Which certificate was not of its time, and when that was told.
    untimely: Mutex<Option<(Fault, Duration)>>,
}

impl Answers {
    /// The gate for this node.
    #[must_use]
    pub fn new(wire: Arc<Wire>, whom: Whom) -> Self {
        let (contact, begun) = (OnceLock::new(), OnceLock::new());
        let (differs, untimely) = (Mutex::default(), Mutex::default());
        Self { wire, whom, contact, begun, names_time_servers: false, differs, untimely }
    }

    /// The same, for a node whose configuration names time servers, or not.
    #[must_use]
    pub fn naming_time_servers(self, names_time_servers: bool) -> Self {
        Self { names_time_servers, ..self }
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
            Presence::Running(_) => return Ok(Verdict::Open(())),
            Presence::Maintenance(_) => return Ok(self.compare(self.contact(keys)?).await),
            Presence::Stranger(refusal) => return Err(refusal.into()),
            // A gate that cannot be asked is closed, with what is to be done about that.
            Presence::Unreachable(refusal) if refusal.class == ErrorClass::Untimely => {
                return Err(self.in_same_words(self.wire.untimely(refusal)));
            }
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

impl Answers {
    fn in_same_words(&self, fault: Fault) -> Fault {
        let now = self.wire.clock.monotonic();
        let mut told = self.untimely.lock().unwrap_or_else(PoisonError::into_inner);
        let (told, _) = match told.take() {
            Some((before, since)) if now.saturating_sub(since) < SAME_WORDS => told.insert((before, since)),
            _ => told.insert((fault, now)),
        };
        told.clone()
    }

    /// Open unless the clock of a node without a configuration differs.
    async fn compare(&self, contact: &Contact) -> Verdict<()> {
        let found = clocks::compare(contact.maintenance(), &*self.wire.clock, self.wire.third.as_ref()).await;
        let now = self.wire.clock.monotonic();
        let mut differs = self.differs.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(found) = found else {
            *differs = None;
            return Verdict::Open(());
        };
        // The same is told in the same words, though no two looks have the same bounds.
        let (told, since) = match differs.take() {
            Some((told, since)) if told.is_as(&found) => (told, since),
            _ => (found, now),
        };
        let may_heal = self.names_time_servers && told.whose != Whose::Here;
        let closed =
            Closed { subject: self.whom.name.clone(), evidence: told.evidence(), next: told.next(&self.whom.name) };
        *differs = Some((told, since));
        if may_heal && now.saturating_sub(since) >= UNTIL_TOLD { Verdict::Open(()) } else { Verdict::Closed(closed) }
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
