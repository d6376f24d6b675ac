//! A node that has its configuration.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use castle_engine::{Change, Class, Decision, Fault, Impact, Operation, Restarts, Step, pace};
use castle_seams::BoxFuture;
use futures_util::future::join3;

use super::identity::{self, Hardware, MachineUuid};
use super::{Keys, Release, Whom, Wire};
use crate::client::{ApplyMode, Contact, ErrorClass, PORT, Presence, Refusal};
use crate::model::bundle::Bundle;
use crate::model::config::{Configuration, Difference};

/// What is done to a node that gets its configuration.
pub const APPLY: &str = "apply";
/// What is done to a node that gets its configuration for its next start.
const STAGE: &str = "stage";

/// How long a node that does not answer is left alone at most.
const PERIOD: Duration = Duration::from_millis(500);
/// After how long it is told that a node cannot be spoken with by its clock or the one here; a clock that is about to be set is right by then.
const UNTIMELY: Duration = Duration::from_secs(30);

/// Makes the configuration of a node from the secrets of its cluster.
pub type Compose = Box<dyn Fn(&Bundle) -> Result<Configuration, Fault> + Send + Sync>;

/// Why differences are not brought about.
pub type Objection = Box<dyn Fn(&[Difference]) -> Option<Fault> + Send + Sync>;

/// Is told what configuration a node has, before it gets another one.
pub type Noting = Box<dyn Fn(&Configuration) + Send + Sync>;

/// Gives a node its configuration, and keeps it so.
pub struct Configure {
    wire: Arc<Wire>,
    whom: Whom,
    machine: Machine,
    compose: Compose,
    restarts: Restarts,
    /// Whether it is only laid down for the next start.
    for_next_start: bool,
    /// What is not done to a node that has a configuration already.
    objection: Option<Objection>,
    noting: Option<Noting>,
    release: Option<Release>,
    contact: OnceLock<Contact>,
    hardware: Hardware,
}

/// What was seen of a node's machine before anything was done: whoever only looks asks none that cannot answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// It is not there.
    Absent,
    /// It is off.
    Off,
    /// It runs.
    On,
}

/// A node that has its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Configured {
    /// Which node.
    pub whom: Whom,
    /// How that is known.
    pub how: How,
}

/// How it is known that a node has its configuration. Whoever changes things has always seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It was seen.
    Seen,
    /// It will have it.
    Expected,
    /// It is there, and cannot be asked.
    Silent,
}

/// What looking at a node tells.
#[derive(Debug)]
pub enum Sight {
    /// Its machine is not there, and nobody waits for it.
    Nobody,
    /// Its machine is there, and does not answer: why. Nobody waits for it.
    Silent(String),
    /// It waits for a configuration.
    Waiting,
    /// It has one.
    Running {
        /// What differs from what is wanted.
        differences: Vec<Difference>,
        /// Whether it would have to start again to take that up, as it says itself.
        restarts: bool,
    },
}

impl Configure {
    /// The step for this node.
    #[must_use]
    pub fn new(wire: Arc<Wire>, whom: Whom, machine: Machine, compose: Compose) -> Self {
        let (restarts, contact, hardware) = (Restarts::default(), OnceLock::new(), Hardware::default());
        let (objection, noting, release, for_next_start) = (None, None, None, false);
        Self { wire, whom, machine, compose, restarts, for_next_start, objection, noting, release, contact, hardware }
    }

    /// The same, for a node that runs this, and none other.
    #[must_use]
    pub fn only_if(self, release: Release) -> Self {
        Self { release: Some(release), ..self }
    }

    /// The same, which refuses such differences.
    #[must_use]
    pub fn unless(self, objection: Option<Objection>) -> Self {
        Self { objection, ..self }
    }

    /// The same, which tells what configuration the node is seen with.
    #[must_use]
    pub fn noting(self, noting: Noting) -> Self {
        Self { noting: Some(noting), ..self }
    }

    /// The same, which may restart it only then.
    #[must_use]
    pub fn restarting(self, restarts: Restarts) -> Self {
        Self { restarts, ..self }
    }

    /// The same, which only lays it down, for a node that restarts right after: that takes it up, and is not followed by another one. A node that waits for
    /// its first configuration, or says nothing to whoever only looks, is left to whoever comes after its start.
    #[must_use]
    pub fn for_next_start(self) -> Self {
        Self { for_next_start: true, ..self }
    }

    /// Only the machine with this hardware address is given the configuration.
    #[must_use]
    pub fn only_on(self, device: &str) -> Self {
        Self { hardware: Hardware { device: Some(device.to_owned()), ..self.hardware }, ..self }
    }

    /// Only the machine whose firmware has this UUID is, where it tells one.
    #[must_use]
    pub fn known_by(self, uuid: Option<MachineUuid>) -> Self {
        Self { hardware: Hardware { uuid, ..self.hardware }, ..self }
    }

    fn contact(&self, keys: &Keys) -> Result<&Contact, Fault> {
        if let Some(contact) = self.contact.get() {
            return Ok(contact);
        }
        let contact = self.wire.contact(&self.whom, keys)?;
        Ok(self.contact.get_or_init(|| contact))
    }

    fn wanted(&self, keys: &Keys) -> Result<Configuration, Fault> {
        (self.compose)(&keys.bundle)
    }

    /// It was waited for as long as it may take: once more would be no different.
    fn gone(&self, refusal: &Refusal) -> Fault {
        let Whom { name, address } = &self.whom;
        let minutes = self.wire.patience.as_secs() / 60;
        let evidence = format!("did not answer at {address} port {PORT} for {minutes} minutes: {}", refusal.sentence);
        Fault::new(Class::Final, name, evidence).next(format!(
            "look at the console of {name} in Proxmox: does it boot, and with which address? Then run the same command again"
        ))
    }

    /// Who is there, as soon as someone is.
    async fn presence(&self, contact: &Contact) -> Presence {
        let clock = self.wire.clock.as_ref();
        let begun = clock.monotonic();
        loop {
            match contact.probe().await {
                Presence::Unreachable(refusal) => {
                    let waited = clock.monotonic().saturating_sub(begun);
                    let is_untimely = refusal.class == ErrorClass::Untimely;
                    let patience = if is_untimely { UNTIMELY.min(self.wire.patience) } else { self.wire.patience };
                    if waited >= patience {
                        return Presence::Unreachable(refusal);
                    }
                    clock.sleep(pace(waited, PERIOD)).await;
                }
                other => return other,
            }
        }
    }

    async fn look(&self, keys: &Keys) -> Result<Sight, Fault> {
        match self.machine {
            Machine::Absent if self.wire.is_looking() => return Ok(Sight::Nobody),
            Machine::Off if self.wire.is_looking() => return Ok(Sight::Silent("its machine is off".to_owned())),
            _ => {}
        }
        let contact = self.contact(keys)?;
        match self.presence(contact).await {
            Presence::Maintenance(version) => {
                self.hardware.hold(contact.maintenance(), &self.whom).await?;
                if let Some(release) = &self.release {
                    release.hold_version(&self.whom, &version.tag)?;
                }
                Ok(Sight::Waiting)
            }
            Presence::Unreachable(refusal) if self.wire.is_looking() => Ok(Sight::Silent(refusal.sentence)),
            Presence::Unreachable(refusal) if refusal.class == ErrorClass::Untimely => Err(self.wire.untimely(refusal)),
            Presence::Unreachable(refusal) => Err(self.gone(&refusal)),
            Presence::Stranger(refusal) => Err(refusal.into()),
            Presence::Running(version) => {
                let node = contact.running();
                let image = async {
                    let Some(release) = &self.release else { return Ok(()) };
                    release.hold_version(&self.whom, &version.tag)?;
                    release.hold_image(&self.whom, node).await
                };
                let (image, live, kept) = join3(image, node.configuration(), node.kept_configuration()).await;
                image?;
                let live = live?.ok_or_else(|| {
                    Fault::new(Class::RefusedBeforeEffect, &self.whom.name, "runs, and tells of no configuration yet")
                })?;
                if let Some(noting) = &self.noting {
                    noting(&live);
                }
                let wanted = self.wanted(keys)?;
                let differences = wanted.differences(&live);
                if let Some(fault) = self.objection.as_ref().and_then(|objection| objection(&differences)) {
                    return Err(fault);
                }
                // What it would start with the next time is no less its configuration.
                let later = kept?.map(|kept| wanted.differences(&kept)).unwrap_or_default();
                if self.for_next_start || differences.is_empty() {
                    return Ok(Sight::Running { differences: later, restarts: false });
                }
                let restarts = contact.running().would_restart(&wanted.text()).await?;
                Ok(Sight::Running { differences, restarts })
            }
        }
    }
}

/// How a node gets its configuration.
#[derive(Clone, Copy, Debug)]
pub enum Configuring {
    /// It has one, which is brought up to date.
    Amend {
        /// Whether it restarts for that.
        restarts: bool,
    },
    /// It is new, and gets its first.
    Give,
    /// It does not answer, so nobody knows: planned by whoever only looks, and never done.
    Compare,
}

impl Step for Configure {
    type Needs = (Arc<Keys>,);
    type Observed = Sight;
    type Action = Configuring;
    type Output = Configured;

    fn observe<'a>(&'a self, (keys,): &'a Self::Needs) -> BoxFuture<'a, Result<Sight, Fault>> {
        Box::pin(self.look(keys))
    }

    fn decide(&self, _: &Self::Needs, sight: &Sight) -> Decision<Configuring> {
        match sight {
            Sight::Running { differences, .. } if differences.is_empty() => Decision::Nothing,
            Sight::Running { .. } if self.restarts == Restarts::InTurn => Decision::Nothing,
            Sight::Waiting | Sight::Nobody | Sight::Silent(_) if self.for_next_start => Decision::Nothing,
            Sight::Running { differences, restarts } => {
                let verb = if self.for_next_start { STAGE } else { APPLY };
                let change = Change::new(verb, if *restarts { Impact::Reboot } else { Impact::InPlace });
                let change = differences.iter().fold(change, |change, difference| {
                    let (is, wanted) = (difference.is.to_string(), difference.wanted.to_string());
                    change.differing(&difference.path, Some(is), Some(wanted))
                });
                Decision::Act(Configuring::Amend { restarts: *restarts }, change)
            }
            Sight::Waiting | Sight::Nobody => {
                let change = Change::new(APPLY, Impact::Create);
                let change = change.differing("address", None, Some(self.whom.address.to_string()));
                Decision::Act(Configuring::Give, change)
            }
            Sight::Silent(why) => {
                let change = Change::new("compare", Impact::InPlace);
                let change = change.differing("configuration", Some(format!("cannot be asked: {why}")), None);
                Decision::Act(Configuring::Compare, change)
            }
        }
    }

    fn act<'a>(
        &'a self,
        (keys,): &'a Self::Needs,
        _: &'a Sight,
        action: &'a Configuring,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let text = self.wanted(keys)?.text();
            match action {
                Configuring::Amend { restarts: true } if self.restarts == Restarts::Never => {
                    let evidence = "would have to restart for its configuration, and did not when castle looked";
                    return Err(Fault::guard(&self.whom.name, evidence).next("run the same command again"));
                }
                Configuring::Amend { restarts } => {
                    // Whoever changes the node in between does not have it restart: Talos refuses, and it is looked at again.
                    let mode = match restarts {
                        _ if self.for_next_start => ApplyMode::Staged,
                        true => ApplyMode::Auto,
                        false => ApplyMode::NoReboot,
                    };
                    self.contact(keys)?.running().apply_configuration(&text, mode).await?;
                    return Ok(());
                }
                Configuring::Compare => {
                    return Err(Fault::defect("a node that does not answer was to get a configuration"));
                }
                Configuring::Give => {}
            }
            // Between looking and doing another machine may have come to this address, and between these two as well.
            let node = self.wire.newborn(&self.whom)?;
            self.hardware.hold(&node, &self.whom).await?;
            let taken = node.apply_configuration(&text, ApplyMode::Auto).await;
            taken.map(|_| ()).map_err(|refusal| identity::moved_on(refusal, &self.whom))
        })
    }

    fn expect(&self, _: &Self::Needs, sight: &Sight) -> Option<Configured> {
        let how = match sight {
            Sight::Running { .. } => How::Seen,
            Sight::Waiting | Sight::Nobody => How::Expected,
            Sight::Silent(_) => How::Silent,
        };
        Some(Configured { whom: self.whom.clone(), how })
    }

    fn output(&self, _: &Self::Needs, _: &Sight) -> Configured {
        Configured { whom: self.whom.clone(), how: How::Seen }
    }
}
