//! The versions that castle knows, and what their manifests must be.

use castle_spec::values::ComponentVersion;
use castle_spec::{Castle, ComponentName};

use crate::fit::Fit;
use crate::known::row;
use crate::source::{Entry, Source};

/// How a manifest came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// It is what upstream publishes at its address, byte for byte.
    Upstream,
    /// It was made of upstream's own parts. What is published at upstream's address says the same in other bytes, so this file comes
    /// from a mirror, and `castle lock` measures the other.
    Rendered,
}

/// A manifest that castle was tested with.
#[derive(Clone, Copy, Debug)]
pub struct Pin {
    /// Of which component.
    pub component: ComponentName,
    /// Of which version.
    pub version: &'static str,
    /// Its name in a mirror.
    pub file: &'static str,
    /// Its SHA-256.
    pub sha256: &'static str,
    /// How it came to be.
    pub made: Made,
    /// The controllers that castles can want of it, and that it has not.
    pub lacks: &'static [&'static str],
}

/// All that castle knows; of each component the newest first.
pub const PINS: [Pin; 5] = [
    Pin {
        component: ComponentName::ExternalSecrets,
        version: "v2.9.0",
        file: "external-secrets-v2.9.0.yaml",
        sha256: "138c45c68f1b06ef20b8a61d217f882ea05f12589436f2b393552b433fad6881",
        made: Made::Rendered,
        lacks: &[],
    },
    Pin {
        component: ComponentName::Metallb,
        version: "v0.16.1",
        file: "metallb-native-v0.16.1.yaml",
        sha256: "bf25feebb7582ca7df845efd52ffbc2960d6cbf4cfc972f47fded9f788b67f0b",
        made: Made::Upstream,
        lacks: &[],
    },
    Pin {
        component: ComponentName::Longhorn,
        version: "v1.12.1",
        file: "longhorn-v1.12.1.yaml",
        sha256: "41648963af867ac1d0c85755fb53cf61cacd57c9bb22e1942e3fb0439eeb04fd",
        made: Made::Upstream,
        lacks: &[],
    },
    Pin {
        component: ComponentName::Flux,
        version: "v2.9.0",
        file: "flux-v2.9.0-components.yaml",
        sha256: "a1dc029bb89dc6f55fc1a5370674adefce990b4d58d1913d7ea5a6a45edc39bf",
        made: Made::Rendered,
        lacks: &["source-watcher", "image-reflector-controller", "image-automation-controller"],
    },
    // The newest with the controllers for image tags that could be had whole.
    Pin {
        component: ComponentName::Flux,
        version: "v2.8.8",
        file: "flux-v2.8.8-install.yaml",
        sha256: "8e09de789a7a1266abaff6057ba2df1e27ab533291250e1bea98d12a33ad24d0",
        made: Made::Rendered,
        lacks: &[],
    },
];

/// Where upstream publishes the manifest of a version.
#[must_use]
pub fn upstream(component: ComponentName, version: &ComponentVersion) -> String {
    (row(component).upstream)(version)
}

/// The manifest of a version that castle was tested with, if it was.
#[must_use]
pub fn pin(component: ComponentName, version: &ComponentVersion) -> Option<&'static Pin> {
    let version = version.to_string();
    PINS.iter().find(|pin| pin.component == component && pin.version == version)
}

/// The controllers that a castle wants of Flux and that the manifest it is held to has not: it is one that castle was tested with, by its digest.
#[must_use]
pub fn lacking(castle: &Castle, entry: &Entry) -> Vec<&'static str> {
    let Some(pin) = PINS.iter().find(|pin| pin.sha256 == entry.sha256) else { return Vec::new() };
    let fit = Fit::of(castle, &[]);
    let is_wanted = |controller: &str| match controller {
        "source-watcher" => fit.has_source_watcher,
        _ => fit.has_image_automation,
    };
    pin.lacks.iter().copied().filter(|controller| is_wanted(controller)).collect()
}

/// The newest version of a component whose pinned manifest lacks nothing.
#[must_use]
pub fn whole(component: ComponentName) -> Option<&'static str> {
    PINS.iter().find(|pin| pin.component == component && pin.lacks.is_empty()).map(|pin| pin.version)
}

impl Pin {
    /// What a lock file says of it.
    #[must_use]
    pub fn entry(&self, version: &ComponentVersion) -> Entry {
        let source = match self.made {
            Made::Upstream => Source::Url(upstream(self.component, version)),
            Made::Rendered => Source::Mirror(self.file.to_owned()),
        };
        Entry { version: version.clone(), source, sha256: self.sha256.to_owned() }
    }
}

#[cfg(test)]
mod tests {

    use super::*;

    #[test]
    fn the_newest_of_each_component_is_pinned_and_all_are_good() {
        for name in ComponentName::ALL {
            assert!(pin(name, &name.newest()).is_some(), "{name}");
        }
        for pin in PINS {
            assert!(pin.component.is_good(&pin.version.parse().unwrap()), "{} {}", pin.component, pin.version);
        }
    }

    /// What a pin is said to lack, its manifest lacks; and what it is not said to lack, it has.
    #[test]
    fn manifests_lack_what_is_said() {
        for pin in PINS.iter().filter(|pin| pin.component == ComponentName::Flux) {
            let Some(text) = castle_testbed::oracle_text(&format!("mirror/{}", pin.file)) else { return };
            let objects = castle_kubernetes::model::manifest(&text).unwrap();
            let has = |name: &str| {
                objects.iter().any(|it| it.value()["kind"] == "Deployment" && it.value()["metadata"]["name"] == name)
            };
            for controller in ["source-watcher", "image-reflector-controller", "image-automation-controller"] {
                assert_ne!(has(controller), pin.lacks.contains(&controller), "{} {controller}", pin.version);
            }
        }
    }

    /// The pins are those of the mirror that the tests of all components use.
    #[test]
    fn pins_agree_with_the_mirror() {
        let Some(text) = castle_testbed::oracle_text("mirror/index.yaml") else { return };
        let index = castle_yaml::parse(&text).unwrap().remove(0);
        let listed = index["manifests"].as_array().unwrap();
        assert_eq!(listed.len(), PINS.len());
        for manifest in listed {
            let text = |key: &str| manifest[key].as_str().unwrap();
            let version = text("version").parse().unwrap();
            let pin = pin(ComponentName::of_word(text("component")).unwrap(), &version).unwrap();
            assert_eq!((pin.file, pin.sha256), (text("file"), text("sha256")));
            assert_eq!(pin.made == Made::Upstream, text("byte_identical") == "yes", "{}", pin.file);
            if pin.made == Made::Upstream {
                assert_eq!(upstream(pin.component, &version), text("upstream"));
            }
        }
    }
}
