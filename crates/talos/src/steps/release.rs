//! What a node runs, held against what its castle's file says: the version of Talos, and the image that it was made from.

use std::collections::BTreeSet;

use castle_engine::{Class, Fault};
use castle_yaml as yaml;

use super::Whom;
use crate::client::{Node, Resource, kinds};

/// The name under which an image of the factory tells its schematic among its extensions.
const SCHEMATIC: &str = "schematic";
/// What any image with kernel modules has among its extensions: Talos' own list of them.
const MODULES: &str = "modules.dep";

/// What a node is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Release {
    /// The version of Talos: `v1.13.9`.
    pub version: String,
    /// The schematic of its image, which stands for its extensions and kernel arguments.
    pub schematic: String,
    /// Its extensions, by which an image of somebody's own is known, which tells no schematic.
    pub extensions: Vec<String>,
    /// The kernel arguments that such an image is to have among its own; one that begins with `-` it is not to have.
    pub kernel_args: Vec<String>,
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
        match extensions.iter().find_map(schematic) {
            Some(is) if is != self.schematic => {
                let what = "an image with other extensions or kernel arguments: schematic";
                Err(self.other(whom, what, &is, &self.schematic))
            }
            Some(_) => Ok(()),
            None => {
                let names: Vec<String> = extensions.iter().filter_map(name).collect();
                let line = node.resource(kinds::KERNEL_COMMAND_LINE, "cmdline").await?;
                self.hold_own_image(whom, &names, line.as_ref().and_then(command_line).as_deref())
            }
        }
    }

    /// Holds that an image of somebody's own has these extensions, and was started as is wanted.
    fn hold_own_image(&self, whom: &Whom, extensions: &[String], line: Option<&str>) -> Result<(), Fault> {
        let (is, wanted) = (plain(extensions), plain(&self.extensions));
        if is != wanted {
            let said = |names: &BTreeSet<&str>| match names.len() {
                0 => "none".to_owned(),
                _ => names.iter().copied().collect::<Vec<_>>().join(", "),
            };
            return Err(self.other(whom, "an image with other extensions:", &said(&is), &said(&wanted)));
        }
        let Some(line) = line else {
            let evidence = "tells neither the schematic of its image nor what its kernel was started with: \
                            whether that is as castle.yaml says was not looked at";
            let next = format!("talosctl --nodes {} get kernelcmdlines", whom.address);
            return Err(Fault::new(Class::RefusedBeforeEffect, &whom.name, evidence).next(next));
        };
        // The line itself is not shown: addresses in it may hold a password.
        let unheeded: Vec<&str> =
            self.kernel_args.iter().map(String::as_str).filter(|argument| !is_heeded(argument, line)).collect();
        if unheeded.is_empty() {
            return Ok(());
        }
        let unheeded = unheeded.join(" ");
        Err(self.other(whom, "a kernel", &format!("that was started without {unheeded}"), &unheeded))
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

/// Extensions by the names that nodes tell.
fn plain(names: &[String]) -> BTreeSet<&str> {
    let short = names.iter().map(|name| name.rsplit_once('/').map_or(name.as_str(), |(_, name)| name));
    short.filter(|name| *name != MODULES).collect()
}

/// Whether a kernel was started with an argument, or without it, if it begins with `-`.
fn is_heeded(argument: &str, line: &str) -> bool {
    let mut there = line.split_whitespace();
    match argument.strip_prefix('-') {
        Some(unwanted) => {
            !there.any(|word| word == unwanted || word.split_once('=').is_some_and(|(key, _)| key == unwanted))
        }
        None => argument.split_whitespace().all(|wanted| line.split_whitespace().any(|word| word == wanted)),
    }
}

/// What a kernel was started with.
fn command_line(resource: &Resource) -> Option<String> {
    yaml::parse(resource.yaml.expose()).ok()?.first()?["cmdline"].as_str().map(str::to_owned)
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

    /// What is told of an image of somebody's own, where the file wants these kernel arguments.
    fn told(extensions: &[&str], line: Option<&str>, kernel_args: &[&str]) -> Option<String> {
        let names = |all: &[&str]| -> Vec<String> { all.iter().map(|&name| name.to_owned()).collect() };
        let release = Release {
            version: "v1.13.9".to_owned(),
            schematic: "ab12".to_owned(),
            extensions: names(&["siderolabs/iscsi-tools", "qemu-guest-agent"]),
            kernel_args: names(kernel_args),
            installer: "installer".to_owned(),
        };
        let whom = Whom { name: "a".to_owned(), address: [10, 0, 0, 1].into() };
        release.hold_own_image(&whom, &names(extensions), line).err().map(|fault| fault.evidence)
    }

    #[test]
    fn an_image_of_ones_own_is_known_by_its_extensions() {
        let line = Some("talos.platform=nocloud");
        assert_eq!(told(&["iscsi-tools", "qemu-guest-agent", "modules.dep"], line, &[]), None);
        for (extensions, is) in [
            (&["iscsi-tools"][..], "iscsi-tools"),
            (&["iscsi-tools", "mine", "qemu-guest-agent"][..], "iscsi-tools, mine, qemu-guest-agent"),
            (&[][..], "none"),
        ] {
            let expected = format!(
                "runs an image with other extensions: {is}, and castle.yaml says iscsi-tools, qemu-guest-agent"
            );
            assert!(told(extensions, line, &[]).is_some_and(|told| told.starts_with(&expected)), "{extensions:?}");
        }
    }

    #[test]
    fn an_image_of_ones_own_is_known_by_its_kernel_arguments() {
        let own = ["iscsi-tools", "qemu-guest-agent"];
        let line = Some("talos.config=https://me:secret@here console=ttyS0,115200 quiet a: b");
        for heeded in
            [&[][..], &["quiet", "console=ttyS0,115200"][..], &["a: b"][..], &["-splash", "-console=tty0"][..]]
        {
            assert_eq!(told(&own, line, heeded), None, "{heeded:?}");
        }
        for unheeded in ["mitigations=off", "console=ttyS0", "console", "-quiet", "-console", "-console=ttyS0,115200"] {
            let told = told(&own, line, &[unheeded, "quiet"]).unwrap();
            let expected =
                format!("runs a kernel that was started without {unheeded}, and castle.yaml says {unheeded}: ");
            assert!(told.starts_with(&expected) && !told.contains("secret"), "{told}");
        }
        for arguments in [&[][..], &["quiet"][..]] {
            assert!(told(&own, None, arguments).is_some_and(|told| told.ends_with("was not looked at")));
        }
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
