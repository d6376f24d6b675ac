//! The Talos image a castle boots, as the Image Factory names it.
//!
//! The factory's id is the SHA-256 of the schematic's YAML as its own library prints it, so it can be computed offline.
//! What could be printed in more than one way is not accepted in the first place (`KernelArg`, `ExtensionName`).

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::model::{Castle, Talos};

/// What goes into an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schematic {
    yaml: String,
}

impl Schematic {
    /// The schematic of a castle's Talos.
    #[must_use]
    pub fn of(talos: &Talos) -> Self {
        let arguments: Vec<&str> = talos.kernel_args.iter().map(|argument| argument.as_str()).collect();
        let extensions: Vec<&str> = talos.extensions.iter().map(|extension| extension.as_str()).collect();
        Self::new(&arguments, &extensions)
    }

    fn new(arguments: &[&str], extensions: &[&str]) -> Self {
        let mut yaml = String::from("customization:");
        if arguments.is_empty() && extensions.is_empty() {
            yaml += " {}";
        }
        yaml += "\n";
        if !arguments.is_empty() {
            yaml += "    extraKernelArgs:\n";
            for argument in arguments {
                let _ = writeln!(yaml, "        - {}", scalar(argument));
            }
        }
        if !extensions.is_empty() {
            yaml += "    systemExtensions:\n        officialExtensions:\n";
            for extension in extensions {
                let _ = writeln!(yaml, "            - siderolabs/{extension}");
            }
        }
        Self { yaml }
    }

    /// The text to give to the factory.
    #[must_use]
    pub fn yaml(&self) -> &str {
        &self.yaml
    }

    /// The id the factory will answer with.
    #[must_use]
    pub fn id(&self) -> String {
        Sha256::digest(&self.yaml).iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

/// As the factory's YAML library prints it: plain unless that would be read as a mapping or a comment.
fn scalar(text: &str) -> String {
    if text.contains(": ") || text.ends_with(':') || text.contains(" #") {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        text.to_owned()
    }
}

impl Castle {
    /// The address of the disk image.
    #[must_use]
    pub fn image_url(&self) -> String {
        let Talos { version, image, .. } = &self.talos.value;
        let schematic = Schematic::of(&self.talos).id();
        format!(
            "{}/image/{schematic}/{}/nocloud-amd64.qcow2",
            image.factory.as_str().trim_end_matches('/'),
            version.value
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_factorys() {
        let cases: [(&[&str], &[&str], &str); 7] = [
            (&[], &[], "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba"),
            (
                &[],
                &["iscsi-tools", "util-linux-tools", "qemu-guest-agent"],
                "e187c9b90f773cd8c84e5a3265c5554ee787b2fe67b508d9f955e90e7ae8c96c",
            ),
            (
                &[],
                &["iscsi-tools", "util-linux-tools"],
                "613e1592b2da41ae5e265e8789429f22e121aab91cb4deb6bc3c0b6262961245",
            ),
            (&[], &["qemu-guest-agent"], "ce4c980550dd2ab1b17bbf2b08801c7eb59418eafe8f279833297925d67c7515"),
            (
                &[],
                &["iscsi-tools", "qemu-guest-agent", "util-linux-tools"],
                "88d1f7a5c4f1d3aba7df787c448c1d3d008ed29cfb34af53fa0df4336a56040b",
            ),
            (&["noapic", "nolapic"], &[], "9cba8e32753f91a16c1837ab8abf356af021706ef284aef07380780177d9a06c"),
            (&["a: b", "it's: c"], &[], "ecd3153aa4b3cc55535c39d5f825da930da80ba7701d09d24c98acb102cd344b"),
        ];
        for (arguments, extensions, id) in cases {
            assert_eq!(Schematic::new(arguments, extensions).id(), id, "{arguments:?} {extensions:?}");
        }
    }

    #[test]
    fn what_yaml_would_misread_is_quoted() {
        let yaml = Schematic::new(&["key=va:lue", "foo: bar", "it's: x", "a #b", "a#b", "-quiet"], &[]).yaml;
        insta::assert_snapshot!(yaml, @r"
        customization:
            extraKernelArgs:
                - key=va:lue
                - 'foo: bar'
                - 'it''s: x'
                - 'a #b'
                - a#b
                - -quiet
        ");
    }
}
