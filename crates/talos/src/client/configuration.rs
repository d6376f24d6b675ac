//! The configuration that a node lives by, and how it stands to the wanted one.

use serde_json::Value;

use super::resources::kinds;
use super::{Contact, Node, Presence, Refusal};
use crate::model::config::{Configuration, Difference};

/// How the live configuration of a node stands to the wanted one.
#[derive(Clone, Debug, PartialEq)]
pub enum Drift {
    /// It is as wanted.
    None,
    /// It differs in this. Secrets are hidden.
    Differs(Vec<Difference>),
    /// The node waits for a configuration.
    Unconfigured,
    /// Nobody could be asked who would know, and why.
    Unknown(Refusal),
}

impl Node {
    /// The configuration that it lives by; nothing as long as it tells of none.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say, or says something else.
    pub async fn configuration(&self) -> Result<Option<Configuration>, Refusal> {
        self.configuration_called("v1alpha1").await
    }

    /// The configuration that it starts with the next time: another one than it lives by if somebody has laid one down for then. Nothing where it keeps none.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say, or says something else.
    pub async fn kept_configuration(&self) -> Result<Option<Configuration>, Refusal> {
        self.configuration_called("persistent").await
    }

    async fn configuration_called(&self, id: &str) -> Result<Option<Configuration>, Refusal> {
        let Some(resource) = self.resource(kinds::MACHINE_CONFIG, id).await? else { return Ok(None) };
        let unreadable = || self.unreadable("Get", "its configuration cannot be read");
        unwrapped(resource.yaml.expose()).map(Some).ok_or_else(unreadable)
    }
}

impl Contact {
    /// How the node's configuration stands to this one. Nothing is waited for.
    pub async fn drift(&self, wanted: &Configuration) -> Drift {
        match self.probe().await {
            Presence::Maintenance(_) => Drift::Unconfigured,
            Presence::Stranger(refusal) | Presence::Unreachable(refusal) => Drift::Unknown(refusal),
            Presence::Running(_) => match self.running().configuration().await {
                Ok(None) => Drift::Unconfigured,
                Ok(Some(live)) => match wanted.differences(&live) {
                    same if same.is_empty() => Drift::None,
                    differences => Drift::Differs(differences),
                },
                Err(refusal) => Drift::Unknown(refusal),
            },
        }
    }
}

/// The configuration inside of the resource that tells of it: a text within a text. What is anything else is not shown to anyone.
fn unwrapped(resource: &str) -> Option<Configuration> {
    let outer = Configuration::parse(resource).ok()?;
    let live = match outer.documents() {
        [Value::String(inner)] => Configuration::parse(inner).ok()?,
        _ => outer,
    };
    live.documents().iter().all(Value::is_object).then_some(live)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_out_of_its_resource() {
        let inside = "version: v1alpha1\nmachine:\n    type: worker\n";
        let wrapped = "|\n    version: v1alpha1\n    machine:\n        type: worker\n";
        for resource in [inside, wrapped] {
            let read = unwrapped(resource).unwrap();
            assert_eq!(read.documents()[0]["machine"]["type"], "worker");
        }
        for nothing in ["", "a text", "- a\n", "{"] {
            assert!(unwrapped(nothing).is_none_or(|read| read.documents().is_empty()), "{nothing}");
        }
    }
}
