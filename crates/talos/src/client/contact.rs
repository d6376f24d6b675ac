//! One node, whatever state it is in.

use std::sync::Arc;

use castle_seams::{Clock, Dial, Target};
use castle_talos_api::machine::VersionInfo;

use super::{ErrorClass, Fingerprint, GLANCE, Hush, Identity, Node, Refusal, Stage, Trust, TrustError};

/// How Talos' own clients tell that they do not know who signed a node's certificate, and how a node tells it of theirs.
const UNKNOWN_AUTHORITY: [&str; 2] = ["certificate signed by unknown authority", "tls: unknown certificate authority"];
/// What a node says to whom shows no certificate, unless it waits for a configuration.
const UNNAMED: &str = "tls: certificate required";

/// What a castle and its nodes know each other by.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The certificate of the authority for Talos' own API, as PEM.
    pub authority: String,
    /// Who castle is.
    pub identity: Identity,
}

/// Who stands at a node's address.
#[derive(Clone, Debug, PartialEq)]
pub enum Presence {
    /// A node that waits for a configuration: whoever asks is answered.
    Maintenance(VersionInfo),
    /// A node of this castle that has its configuration.
    Running(VersionInfo),
    /// A node of another castle, or another one than that of the fingerprint; or something that is no node.
    Stranger(Refusal),
    /// Nobody who can be spoken with at the moment, and why.
    Unreachable(Refusal),
}

/// A node asked in both ways.
#[derive(Debug)]
pub struct Contact {
    running: Node,
    maintenance: Node,
    is_plain: bool,
}

impl Contact {
    /// A node of this name, at this address; nothing is asked yet. With a fingerprint only the node that has it is believed before it
    /// has its configuration.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if nobody can be judged by what is given.
    pub fn new(
        name: &str,
        target: &Target,
        credentials: &Credentials,
        fingerprint: Option<Fingerprint>,
        dial: &Arc<dyn Dial>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, TrustError> {
        let Credentials { authority, identity } = credentials.clone();
        let node = |trust: &Trust| Node::new(name, target.clone(), trust, dial.clone(), clock.clone());
        Ok(Self {
            running: node(&Trust::Castle { authority, identity })?,
            maintenance: node(&Trust::Maintenance(fingerprint))?,
            is_plain: false,
        })
    }

    /// A node in memory, spoken with without TLS; it is told who castle is, if it is to know.
    ///
    /// # Errors
    ///
    /// [`TrustError`] if the address is none that a node can have.
    pub fn plain(
        name: &str,
        target: &Target,
        identity: Option<&Identity>,
        dial: &Arc<dyn Dial>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, TrustError> {
        let node = |identity| Node::new(name, target.clone(), &Trust::Plain(identity), dial.clone(), clock.clone());
        Ok(Self { running: node(identity.cloned())?, maintenance: node(None)?, is_plain: true })
    }

    /// The same for whoever only looks: calls take no longer than a glance, and a node that was silent once is not asked again.
    #[must_use]
    pub fn glancing(mut self, hush: &Hush) -> Self {
        for node in [&mut self.running, &mut self.maintenance] {
            (node.bound, node.hush) = (GLANCE, Some(hush.clone()));
        }
        self
    }

    /// The node, asked as one of this castle.
    #[must_use]
    pub fn running(&self) -> &Node {
        &self.running
    }

    /// The node, asked as one in maintenance mode.
    #[must_use]
    pub fn maintenance(&self) -> &Node {
        &self.maintenance
    }

    /// Finds out who is there.
    ///
    /// A certificate that castle does not know is either that of a node in maintenance mode, which answers everybody, or that of
    /// a stranger, who wants to know who asks. A node that took its configuration between the two questions looks like a stranger,
    /// too: so it is asked once more before it is taken for one.
    pub async fn probe(&self) -> Presence {
        let refusal = match self.ask_as_own().await {
            Ok(presence) => return presence,
            Err(refusal) => refusal,
        };
        match self.maintenance.version().await {
            Ok(version) => Presence::Maintenance(version),
            // Not the node of the fingerprint.
            Err(other) if other.class == ErrorClass::Stranger => Presence::Stranger(other),
            Err(other) if self.wants_a_name(&other) => match self.ask_as_own().await {
                Ok(presence) => presence,
                Err(_) => Presence::Stranger(Refusal { class: ErrorClass::Stranger, ..refusal }),
            },
            Err(other) => Presence::Unreachable(other),
        }
    }

    /// Who is there, asked as a node of this castle; or what a node says that does not know this castle's authority, or that it does
    /// not know.
    async fn ask_as_own(&self) -> Result<Presence, Refusal> {
        let refusal = match self.running.version().await {
            Ok(version) if self.is_plain => return Ok(self.probe_plain(version).await),
            Ok(version) => return Ok(Presence::Running(version)),
            Err(refusal) => refusal,
        };
        // Without TLS a node can only say what TLS would have found out.
        let is_told = self.is_plain && UNKNOWN_AUTHORITY.iter().any(|told| refusal.sentence.contains(told));
        if refusal.class == ErrorClass::Stranger || is_told { Err(refusal) } else { Ok(Presence::Unreachable(refusal)) }
    }

    /// Whether a node wants to know who asks, so that it is in maintenance mode no more.
    fn wants_a_name(&self, refusal: &Refusal) -> bool {
        refusal.class == ErrorClass::Unwelcome || self.is_plain && refusal.sentence.contains(UNNAMED)
    }

    /// Without TLS only the node's own word tells.
    async fn probe_plain(&self, version: VersionInfo) -> Presence {
        match self.running.machine().await {
            Ok(machine) if machine.stage == Stage::Maintenance => Presence::Maintenance(version),
            Ok(_) => Presence::Running(version),
            Err(refusal) => Presence::Unreachable(refusal),
        }
    }
}
