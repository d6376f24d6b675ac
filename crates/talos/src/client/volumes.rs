//! What became of the volumes that a node was told to make.

use castle_yaml as yaml;

use super::resources::{Resource, kinds};
use super::{Node, Refusal};

/// What became of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Volume {
    /// It is there to be used.
    Ready,
    /// It is not, and how far it has come: `waiting`, `failed`, and why if the node says it.
    Unready {
        /// How far, in the words of Talos.
        phase: String,
        /// Why not; empty where nothing is said.
        why: String,
    },
    /// The node does not know of it.
    Unknown,
}

/// The name by which a node keeps a volume that its configuration calls so.
fn id(name: &str) -> String {
    format!("u-{name}")
}

impl Node {
    /// What became of the volume that the configuration calls so.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if the node does not say.
    pub async fn volume(&self, name: &str) -> Result<Volume, Refusal> {
        let resource = self.resource(kinds::VOLUME_STATUS, &id(name)).await?;
        Ok(resource.map_or(Volume::Unknown, |resource| read(&resource)))
    }
}

fn read(resource: &Resource) -> Volume {
    let documents = yaml::parse(resource.yaml.expose()).unwrap_or_default();
    let text = |key: &str| documents.first().and_then(|said| said[key].as_str()).unwrap_or_default().to_owned();
    match text("phase").as_str() {
        "" => Volume::Unknown,
        "ready" => Volume::Ready,
        phase => Volume::Unready { phase: phase.to_owned(), why: text("errorMessage") },
    }
}

#[cfg(test)]
mod tests {
    use castle_secrets::Secret;

    use super::*;

    #[test]
    fn the_status_of_a_volume_is_read() {
        let said = |yaml: &str| {
            let (id, version, phase) = (id("longhorn"), "1".into(), "running".into());
            read(&Resource { id, version, phase, yaml: Secret::from(yaml.to_owned()) })
        };
        assert_eq!(said("phase: ready\ntype: partition\nlocation: /dev/sdb1\n"), Volume::Ready);
        let why = "no disks matched selector for volume".to_owned();
        assert_eq!(
            said("phase: failed\nerrorMessage: no disks matched selector for volume\n"),
            Volume::Unready { phase: "failed".to_owned(), why }
        );
        assert_eq!(said("phase: waiting\n"), Volume::Unready { phase: "waiting".to_owned(), why: String::new() });
        assert_eq!(said("{}\n"), Volume::Unknown);
        assert_eq!(id("longhorn"), "u-longhorn");
    }
}
