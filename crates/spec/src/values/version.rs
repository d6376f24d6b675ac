//! Versions of Talos and Kubernetes, and which go together.

use std::fmt;

use semver::Version;
use serde_json::{Value, json};

use crate::shape::{Scalar, Unfit};

/// The shape of machine configuration that a Talos minor expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Contract {
    /// The minor of Talos 1.
    pub minor: u64,
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v1.{}", self.minor)
    }
}

/// What castle knows of a Talos minor.
#[derive(Clone, Copy, Debug)]
struct TalosMinor {
    minor: u64,
    /// The newest patch this castle was tested with.
    newest_patch: u64,
    /// The Kubernetes 1 minors it accepts, both ends included.
    kubernetes: (u64, u64),
}

/// Checked against Talos' own table by `cargo xtask peers`.
const TALOS: [TalosMinor; 3] = [
    TalosMinor { minor: 12, newest_patch: 6, kubernetes: (30, 35) },
    TalosMinor { minor: 13, newest_patch: 9, kubernetes: (31, 36) },
    TalosMinor { minor: 14, newest_patch: 1, kubernetes: (32, 37) },
];

macro_rules! version {
    ($(#[doc = $doc:literal])* $name:ident, $noun:literal, $example:literal) => {
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub struct $name(Version);

        impl $name {
            /// Its first two numbers.
            #[must_use]
            pub fn minor(&self) -> (u64, u64) {
                (self.0.major, self.0.minor)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "v{}", self.0)
            }
        }

        impl Scalar for $name {
            const NOUN: &'static str = $noun;
            const EXAMPLE: &'static str = $example;

            fn parse(text: &str) -> Result<Self, Unfit> {
                parse(text).map(Self)
            }

            fn placeholder() -> Self {
                Self(Version::new(0, 0, 0))
            }

            fn schema() -> Value {
                json!({"type": "string", "pattern": "^v[0-9]+\\.[0-9]+\\.[0-9]+(-(alpha|beta|rc)\\.[0-9]+)?$"})
            }

            fn show(&self) -> Value {
                self.to_string().into()
            }
        }
    };
}

version! {
    /// A version of Talos.
    TalosVersion, "a version of Talos", "v1.13.9"
}

version! {
    /// A version of Kubernetes.
    KubernetesVersion, "a version of Kubernetes", "v1.36.3"
}

version! {
    /// A version of a component of the cluster.
    ComponentVersion, "a version of a component", "v0.16.1"
}

impl std::str::FromStr for ComponentVersion {
    type Err = Unfit;

    fn from_str(text: &str) -> Result<Self, Unfit> {
        Self::parse(text)
    }
}

impl ComponentVersion {
    pub(crate) const fn new(major: u64, minor: u64, patch: u64) -> Self {
        Self(Version::new(major, minor, patch))
    }

    /// Whether it is no pre-release.
    pub(crate) fn is_final(&self) -> bool {
        self.0.pre.is_empty()
    }
}

fn parse(text: &str) -> Result<Version, Unfit> {
    let Some(number) = text.strip_prefix('v') else {
        return Err("it must begin with `v`".into());
    };
    let version = Version::parse(number).map_err(|_| match number.split('.').count() {
        1 | 2 => "all three numbers are needed, so that every machine means the same".to_owned(),
        _ => "not `v`, then three numbers with `.` between".to_owned(),
    })?;
    if version.build.is_empty() { Ok(version) } else { Err("nothing may follow a `+`".into()) }
}

impl TalosVersion {
    fn known(&self) -> Option<TalosMinor> {
        TALOS.into_iter().find(|known| self.0.major == 1 && self.0.minor == known.minor)
    }

    /// The Talos minors castle can raise, for people.
    #[must_use]
    pub fn supported() -> String {
        TALOS.map(|known| format!("v1.{}", known.minor)).join(", ")
    }

    /// The configuration contract, if castle can raise this version.
    #[must_use]
    pub fn contract(&self) -> Option<Contract> {
        self.known().map(|known| Contract { minor: known.minor })
    }

    /// Whether this release is newer than those this castle was tested with, or not final.
    #[must_use]
    pub fn is_untested(&self) -> bool {
        self.known().is_some_and(|known| self.0.patch > known.newest_patch || !self.0.pre.is_empty())
    }

    /// The newest Talos of the same minor that this castle was tested with.
    #[must_use]
    pub fn newest_tested(&self) -> Option<Self> {
        self.known().map(|known| Self(Version::new(1, known.minor, known.newest_patch)))
    }

    /// The Kubernetes minors that go with this version, for people.
    #[must_use]
    pub fn kubernetes_range(&self) -> Option<String> {
        self.known().map(|known| format!("v1.{} to v1.{}", known.kubernetes.0, known.kubernetes.1))
    }

    /// Whether Talos says that it runs this Kubernetes; nothing if the Talos is unknown.
    #[must_use]
    pub fn runs(&self, kubernetes: &KubernetesVersion) -> Option<bool> {
        let (first, last) = self.known()?.kubernetes;
        let Version { major, minor, patch, .. } = kubernetes.0;
        // Talos compares with `1.LAST.99`, which it excludes, and takes no notice of pre-releases.
        Some(major == 1 && (first..=last).contains(&minor) && (minor < last || patch < 99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::read_all;

    #[test]
    fn versions_are_complete() {
        insta::assert_snapshot!(read_all::<TalosVersion>(&["v1.13.9", "v1.14.0-rc.1", "1.13.9", "v1.13", "latest", "v1.13.9+x", "v1.13.9.1"]), @r#"
        "v1.13.9" is "v1.13.9"
        "v1.14.0-rc.1" is "v1.14.0-rc.1"
        "1.13.9": it must begin with `v`
        "v1.13": all three numbers are needed, so that every machine means the same
        "latest": it must begin with `v`
        "v1.13.9+x": nothing may follow a `+`
        "v1.13.9.1": not `v`, then three numbers with `.` between
        "#);
    }

    #[test]
    fn talos_runs_the_kubernetes_it_says() {
        let runs = |talos: &str, kubernetes: &str| {
            TalosVersion::parse(talos).unwrap().runs(&KubernetesVersion::parse(kubernetes).unwrap())
        };
        assert_eq!(runs("v1.13.9", "v1.36.3"), Some(true));
        assert_eq!(runs("v1.13.9", "v1.30.14"), Some(false));
        assert_eq!(runs("v1.13.9", "v1.37.0"), Some(false));
        assert_eq!(runs("v1.14.1", "v1.37.0"), Some(true));
        assert_eq!(runs("v1.14.1", "v1.32.0-rc.1"), Some(true), "as Talos itself says");
        assert_eq!(runs("v1.11.0", "v1.33.0"), None);
    }
}
