//! What an Infisical holds before anything happens in it.

use std::collections::BTreeSet;
use std::time::Duration;

/// The longest that a token lives, and as long as it lives unless told otherwise: thirty days.
pub const LONGEST_TOKEN: Duration = Duration::from_secs(2_592_000);

/// One Infisical: a region of the cloud, or somebody's own. Another one knows nothing of its identities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Infisical {
    /// The name by which it is dialled: `eu.infisical.com`.
    pub host: String,
    /// Who may log in.
    pub identities: Vec<MachineIdentity>,
    /// Its projects.
    pub projects: Vec<Project>,
    /// How much may be asked in a minute; one's own Infisical has no limits.
    pub limits: Option<RateLimits>,
}

/// A machine identity with universal auth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineIdentity {
    /// Its name.
    pub name: String,
    /// What it logs in as.
    pub client_id: String,
    /// What it logs in with.
    pub client_secret: String,
    /// How long a token holds.
    pub ttl: Duration,
    /// How long it can be renewed.
    pub max_ttl: Duration,
    /// What it may do, by the slug of the project.
    pub rights: Vec<(String, BTreeSet<Right>)>,
}

/// What may be done in a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// See that secrets are there.
    Describe,
    /// See their values.
    ReadValue,
    /// Make new ones.
    Create,
    /// Change them.
    Edit,
    /// Delete them.
    Delete,
    /// Make folders.
    CreateFolder,
    /// Delete folders.
    DeleteFolder,
}

impl Right {
    /// All of them.
    #[must_use]
    pub fn all() -> BTreeSet<Self> {
        use Right::{Create, CreateFolder, Delete, DeleteFolder, Describe, Edit, ReadValue};
        [Describe, ReadValue, Create, Edit, Delete, CreateFolder, DeleteFolder].into()
    }

    /// The words of a refusal: what, on what.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Describe => ("describeSecret", "secrets"),
            Self::ReadValue => ("readValue", "secrets"),
            Self::Create => ("create", "secrets"),
            Self::Edit => ("edit", "secrets"),
            Self::Delete => ("delete", "secrets"),
            Self::CreateFolder => ("create", "secret-folders"),
            Self::DeleteFolder => ("delete", "secret-folders"),
        }
    }
}

/// A project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    /// Its slug.
    pub slug: String,
    /// The slugs of its environments.
    pub environments: Vec<String>,
    /// The secrets that are there already; their folders are made.
    pub secrets: Vec<Placed>,
    /// Folders that take secrets from other folders.
    pub imports: Vec<Import>,
    /// Whose changes wait for somebody's approval.
    pub approvals: Approvals,
}

/// Whose changes wait for approval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Approvals {
    /// Nobody's.
    #[default]
    None,
    /// Those of people: 0.162 asks machine identities for nothing.
    People,
    /// Everybody's, which the interface allows for and other versions may ask.
    Everybody,
}

/// A secret and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The environment.
    pub environment: String,
    /// The folder: `/` or `/a/b`.
    pub path: String,
    /// The name.
    pub name: String,
    /// The value.
    pub value: String,
}

impl Placed {
    /// A secret in this place.
    #[must_use]
    pub fn new(environment: &str, path: &str, name: &str, value: &str) -> Self {
        let [environment, path, name, value] = [environment, path, name, value].map(str::to_owned);
        Self { environment, path, name, value }
    }
}

/// A folder that takes the secrets of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The environment and folder that takes them.
    pub into: (String, String),
    /// The environment and folder that they are taken from.
    pub from: (String, String),
}

/// How much may be asked in a minute from one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimits {
    /// Looks, besides those at secrets.
    pub reads: u32,
    /// Changes and logins, besides those of secrets.
    pub writes: u32,
    /// Everything about secrets and folders.
    pub secrets: u32,
}

impl RateLimits {
    /// Those of the cloud's free plan.
    pub const FREE: Self = Self { reads: 200, writes: 90, secrets: 120 };
}

impl Infisical {
    /// An Infisical with one project and one identity that may everything in it.
    #[must_use]
    pub fn new(host: &str, project: &str, environments: &[&str], client_id: &str, client_secret: &str) -> Self {
        Self {
            host: host.to_owned(),
            identities: vec![MachineIdentity {
                name: "castle".to_owned(),
                client_id: client_id.to_owned(),
                client_secret: client_secret.to_owned(),
                ttl: LONGEST_TOKEN,
                max_ttl: LONGEST_TOKEN,
                rights: vec![(project.to_owned(), Right::all())],
            }],
            projects: vec![Project {
                slug: project.to_owned(),
                environments: environments.iter().map(|&slug| slug.to_owned()).collect(),
                secrets: Vec::new(),
                imports: Vec::new(),
                approvals: Approvals::None,
            }],
            limits: None,
        }
    }
}
