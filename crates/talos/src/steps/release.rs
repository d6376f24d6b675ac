//! What a node runs, held against what its castle's file says: the version of Talos, and the image that it was made from.

use castle_engine::Fault;
use castle_yaml as yaml;

use super::Whom;
use crate::client::{Node, Resource, kinds};

/// The name under which an image of the factory tells its schematic among its extensions.
const SCHEMATIC: &str = "schematic";

/// What a node is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version of Talos: `v1.13.9`.
    pub version: String,
    /// The schematic of its image, which stands for its extensions and kernel arguments.
    pub schematic: String,
    /// Its extensions, by which an image of somebody's own is known, which tells no schematic.
    pub extensions: Vec<String>,
    /// The image that it would be upgraded with, by hand.
    pub installer: String,
}

impl Release {
    /// Holds that a node runs this version of Talos. Another one is not waited for: castle upgrades no node yet.
    pub(super) fn hold_version(&self, whom: &Whom, version: &str) -> Result<(), Fault> {
        if version == self.version { Ok(()) } else { Err(self.other(whom, "Talos", version, &self.version)) }
    }

    /// Holds that a node that has its configuration was made from this image.
    pub(super) async fn hold_image(&self, whom: &Whom, node: &Node) -> Result<(), Fault> {
        let extensions = node.resources(kinds::EXTENSIONS).await?;
        let names: Vec<String> = extensions.iter().filter_map(name).collect();
        match extensions.iter().find_map(schematic) {
            Some(is) if is != self.schematic => {
                let what = "an image with other extensions or kernel arguments: schematic";
                Err(self.other(whom, what, &is, &self.schematic))
            }
            Some(_) => Ok(()),
            None => match lacking(&self.extensions, &names) {
                Some(lacking) => {
                    let is = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                    Err(self.other(whom, "an image with other extensions:", &is, &lacking))
                }
                None => Ok(()),
            },
        }
    }

    fn other(&self, whom: &Whom, what: &str, is: &str, wanted: &str) -> Fault {
        let evidence =
            format!("runs {what} {is}, and castle.yaml says {wanted}: castle upgrades no node that stands yet");
        Fault::guard(&whom.name, evidence).next(format!(
            "take the change back in castle.yaml; or upgrade each node by hand, one after the other: talosctl --nodes {} upgrade --image {}",
            whom.address, self.installer
        ))
    }
}

/// The extensions that are wanted and not there. Others may be there: castle did not make the image.
fn lacking(wanted: &[String], there: &[String]) -> Option<String> {
    let short = |name: &str| name.rsplit_once('/').map_or(name, |(_, name)| name).to_owned();
    let is_there = |name: &&String| there.iter().any(|other| short(other) == short(name));
    let lacking: Vec<&str> = wanted.iter().filter(|name| !is_there(name)).map(String::as_str).collect();
    (!lacking.is_empty()).then(|| lacking.join(", "))
}

/// What an extension is called.
fn name(extension: &Resource) -> Option<String> {
    let documents = yaml::parse(extension.yaml.expose()).ok()?;
    documents.first()?["metadata"]["name"].as_str().map(str::to_owned)
}

/// The schematic that an extension tells, if it is the one that does.
fn schematic(extension: &Resource) -> Option<String> {
    let documents = yaml::parse(extension.yaml.expose()).ok()?;
    let metadata = &documents.first()?["metadata"];
    let version = metadata["version"].as_str().filter(|_| metadata["name"] == SCHEMATIC)?;
    Some(version.to_owned())
}

#[cfg(test)]
mod tests {
    use castle_secrets::Secret;

    use super::*;

    #[test]
    fn an_image_of_ones_own_is_known_by_its_extensions() {
        let names = |all: &[&str]| -> Vec<String> { all.iter().map(|&name| name.to_owned()).collect() };
        let wanted = names(&["siderolabs/iscsi-tools", "qemu-guest-agent"]);
        assert_eq!(lacking(&wanted, &names(&["iscsi-tools", "qemu-guest-agent", "mine"])), None);
        assert_eq!(lacking(&wanted, &names(&["iscsi-tools"])).as_deref(), Some("qemu-guest-agent"));
    }

    #[test]
    fn only_the_extension_of_that_name_tells_the_schematic() {
        let told = |yaml: &str| {
            let (id, version, phase) = ("0".into(), "1".into(), "running".into());
            schematic(&Resource { id, version, phase, yaml: Secret::from(yaml.to_owned()) })
        };
        assert_eq!(told("metadata: {name: schematic, version: ab12}\n").as_deref(), Some("ab12"));
        assert_eq!(told("metadata: {name: iscsi-tools, version: v0.2.0}\n"), None);
        assert_eq!(told("image: 0.sqsh\n"), None);
    }
}
