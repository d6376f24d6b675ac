//! What castle wants of Talos: nodes that have their configuration, one bootstrap, and a quorum of voters.

mod answers;
mod awaited;
mod bootstrap;
mod clocks;
mod configure;
mod etcd;
mod identity;
mod keys;
mod members;
mod release;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Class, Fault};
use castle_seams::{Clock, Dial, Target};

use crate::client::{Contact, Hush, Node, PORT, Trust};

pub use answers::Answers;
pub use bootstrap::{Begun, Bootstrap, Quorum, holder};
pub use clocks::Third;
pub use configure::{APPLY, Compose, Configure, Configured, Configuring, How, Machine, Noting, Objection, Sight};
pub use etcd::{Remembered, UNSEEN, Voice, keep_a_copy, voice};
pub use identity::MachineUuid;
pub use keys::Keys;
pub use members::{ForgetMember, Forgetting, Joined, Left, Members, Vanished, leader, voiceless};
pub use release::Release;

/// How nodes are reached.
pub struct Wire {
    /// Connections.
    pub dial: Arc<dyn Dial>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Whether nodes are in memory and spoken with without TLS.
    pub is_plain: bool,
    /// How long a node that does not answer is waited for; not at all by whoever only looks.
    pub patience: Duration,
    /// The nodes that did not answer whoever only looks.
    pub hush: Hush,
    /// A third clock, which tells whose is wrong where two differ.
    pub third: Option<Third>,
}

/// A node by its name and address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Whom {
    /// Its name.
    pub name: String,
    /// Its address.
    pub address: IpAddr,
}

impl Wire {
    /// Whether nobody is waited for, since nothing is to be changed.
    #[must_use]
    pub fn is_looking(&self) -> bool {
        self.patience.is_zero()
    }

    /// The way to a node.
    ///
    /// # Errors
    ///
    /// If nobody can be judged by the keys.
    pub fn contact(&self, whom: &Whom, keys: &Keys) -> Result<Contact, Fault> {
        let target = Target::new(&whom.address.to_string(), PORT);
        let contact = if self.is_plain {
            Contact::plain(&whom.name, &target, Some(&keys.credentials.identity), &self.dial, &self.clock)
        } else {
            Contact::new(&whom.name, &target, &keys.credentials, None, &self.dial, &self.clock)
        };
        let contact = contact.map_err(|error| Fault::new(Class::Final, &whom.name, error.to_string()))?;
        Ok(if self.is_looking() { contact.glancing(&self.hush) } else { contact })
    }
}

impl Wire {
    /// The way to a node that waits for a configuration: to whoever answers first, and to nobody else after that.
    ///
    /// # Errors
    ///
    /// If its address is none that a node can have.
    pub fn newborn(&self, whom: &Whom) -> Result<Node, Fault> {
        let target = Target::new(&whom.address.to_string(), PORT);
        let trust = if self.is_plain { Trust::Plain(None) } else { Trust::FirstMet };
        let node = Node::new(&whom.name, target, &trust, self.dial.clone(), self.clock.clone());
        node.map_err(|error| Fault::new(Class::Final, &whom.name, error.to_string()))
    }
}

impl std::fmt::Debug for Wire {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wire").field("is_plain", &self.is_plain).finish_non_exhaustive()
    }
}
