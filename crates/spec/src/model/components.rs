//! The components that castle installs in a cluster: which a castle has, and in which versions.

use std::fmt;

use serde_json::{Value, json};

use super::{Castle, ComponentOwner, ComponentSettings, Components, Storage};
use crate::shape::{Definitions, Reader, Resolved, Shape};
use crate::span::Sourced;
use crate::values::ComponentVersion;
use crate::yaml::View;

/// A component that castle can install.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentName {
    /// External Secrets Operator.
    ExternalSecrets,
    /// MetalLB.
    Metallb,
    /// Longhorn.
    Longhorn,
    /// Flux.
    Flux,
}

/// What castle.yaml has to do with a component.
struct Row {
    word: &'static str,
    key: &'static str,
    /// The newest version that this castle was tested with.
    newest: ComponentVersion,
    /// The versions that are known to be good: from the first on, and below the second.
    good: (ComponentVersion, ComponentVersion),
    /// What calls for it, for people.
    caller: &'static str,
    is_called_for: fn(&Castle) -> bool,
    settings: fn(&Components) -> Option<&Sourced<Component>>,
}

static EXTERNAL_SECRETS: Row = Row {
    word: "external-secrets",
    key: "externalSecrets",
    newest: ComponentVersion::new(2, 9, 0),
    // Stores of version v1 alone; upstream supports its newest minor only.
    good: (ComponentVersion::new(2, 9, 0), ComponentVersion::new(2, 10, 0)),
    caller: "`secrets`",
    is_called_for: |castle| castle.secrets.is_some(),
    settings: |components| components.external_secrets.as_ref(),
};

static METALLB: Row = Row {
    word: "metallb",
    key: "metallb",
    newest: ComponentVersion::new(0, 16, 1),
    // The first that tells whether its configuration is valid.
    good: (ComponentVersion::new(0, 15, 3), ComponentVersion::new(0, 17, 0)),
    caller: "`network.loadBalancers`",
    is_called_for: |castle| castle.network.load_balancers.is_some(),
    settings: |components| components.metallb.as_ref(),
};

static LONGHORN: Row = Row {
    word: "longhorn",
    key: "longhorn",
    newest: ComponentVersion::new(1, 12, 1),
    // Settings for each data engine, as castle writes them.
    good: (ComponentVersion::new(1, 12, 0), ComponentVersion::new(1, 13, 0)),
    caller: "`storage: longhorn`",
    is_called_for: |castle| matches!(castle.storage.value, Storage::Longhorn(_)),
    settings: |components| components.longhorn.as_ref(),
};

static FLUX: Row = Row {
    word: "flux",
    key: "flux",
    newest: ComponentVersion::new(2, 9, 0),
    good: (ComponentVersion::new(2, 8, 0), ComponentVersion::new(2, 10, 0)),
    caller: "`gitops`",
    is_called_for: |castle| castle.gitops.is_some(),
    settings: |components| components.flux.as_ref(),
};

impl ComponentName {
    /// All of them, in the order of the layers they belong to.
    pub const ALL: [Self; 4] = [Self::ExternalSecrets, Self::Metallb, Self::Longhorn, Self::Flux];

    fn row(self) -> &'static Row {
        match self {
            Self::ExternalSecrets => &EXTERNAL_SECRETS,
            Self::Metallb => &METALLB,
            Self::Longhorn => &LONGHORN,
            Self::Flux => &FLUX,
        }
    }

    /// The name in files and on command lines.
    #[must_use]
    pub fn word(self) -> &'static str {
        self.row().word
    }

    /// The key in castle.yaml.
    #[must_use]
    pub fn key(self) -> &'static str {
        self.row().key
    }

    /// The component of this name.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.word() == word)
    }

    /// The newest version that this castle was tested with.
    #[must_use]
    pub fn newest(self) -> ComponentVersion {
        self.row().newest.clone()
    }

    /// Whether a version is known to be good.
    #[must_use]
    pub fn is_good(self, version: &ComponentVersion) -> bool {
        let (first, end) = &self.row().good;
        version.is_final() && first <= version && version < end
    }

    /// The versions that are known to be good, for people.
    #[must_use]
    pub fn good_range(self) -> String {
        let (first, end) = &self.row().good;
        format!("from {first}, below {end}")
    }

    /// What in castle.yaml calls for it, for people.
    pub(crate) fn caller(self) -> &'static str {
        self.row().caller
    }
}

impl fmt::Display for ComponentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// What castle.yaml says of a component.
#[derive(Clone, Debug)]
pub enum Component {
    /// It is left out, whatever else the file says.
    Off,
    /// What is special about it.
    On(Box<ComponentSettings>),
}

impl Shape for Component {
    fn decode(view: View<'_>, reader: &mut Reader) -> Option<Self> {
        match view.scalar() {
            // Readers of YAML 1.1 take `off` for this word.
            Some("off" | "false") => Some(Self::Off),
            _ => ComponentSettings::decode(view, reader).map(|settings| Self::On(Box::new(settings))),
        }
    }

    fn placeholder() -> Self {
        Self::Off
    }

    fn noun() -> String {
        "a mapping, or `off`".to_owned()
    }

    fn example() -> String {
        "{version: v0.16.1}".to_owned()
    }

    fn schema(definitions: &mut Definitions) -> Value {
        json!({"anyOf": [{"const": "off"}, {"const": false}, ComponentSettings::schema(definitions)]})
    }

    fn resolved(&self) -> Resolved {
        match self {
            Self::Off => Resolved::Scalar("off".into()),
            Self::On(settings) => settings.resolved(),
        }
    }
}

/// A component that a castle has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedComponent {
    /// Which.
    pub name: ComponentName,
    /// In which version.
    pub version: ComponentVersion,
    /// Who installs it.
    pub owner: ComponentOwner,
    /// The files with patches for its objects, beside castle.yaml, in order.
    pub patches: Vec<String>,
    /// The file with its manifest, beside castle.yaml, if not upstream's.
    pub source: Option<String>,
}

impl WantedComponent {
    /// Whether castle installs it.
    #[must_use]
    pub fn is_castles(&self) -> bool {
        self.owner == ComponentOwner::Castle
    }
}

impl Castle {
    /// What castle.yaml says of a component, if anything.
    #[must_use]
    pub fn component(&self, name: ComponentName) -> Option<&Sourced<Component>> {
        (name.row().settings)(&self.components.value)
    }

    /// Whether the rest of the file calls for a component.
    pub(crate) fn calls_for(&self, name: ComponentName) -> bool {
        (name.row().is_called_for)(self)
    }

    /// Whether Flux's source-watcher is to run.
    #[must_use]
    pub fn has_source_watcher(&self) -> bool {
        match self.component(ComponentName::Flux).map(|component| &component.value) {
            Some(Component::On(settings)) => settings.source_watcher.value,
            Some(Component::Off) | None => false,
        }
    }

    /// The components of the castle, whoever installs them.
    #[must_use]
    pub fn wanted_components(&self) -> Vec<WantedComponent> {
        let wanted = |name: ComponentName| {
            let settings = match self.component(name).map(|component| &component.value) {
                Some(Component::Off) => return None,
                Some(Component::On(settings)) => Some(settings),
                None => None,
            };
            let lines = |settings: &ComponentSettings| settings.patches.iter().map(|file| file.to_string()).collect();
            self.calls_for(name).then(|| WantedComponent {
                name,
                version: settings
                    .and_then(|settings| settings.version.as_ref())
                    .map_or_else(|| name.newest(), |version| version.value.clone()),
                owner: settings.map_or(ComponentOwner::Castle, |settings| settings.owner.value),
                patches: settings.map(|settings| lines(settings)).unwrap_or_default(),
                source: settings.and_then(|settings| settings.source.as_ref()).map(|file| file.to_string()),
            })
        };
        ComponentName::ALL.into_iter().filter_map(wanted).collect()
    }
}
