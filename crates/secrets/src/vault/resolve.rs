//! Many references, one look at each folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::join_all;
use tokio::sync::OnceCell;

use super::{Folder, Vault, VaultError, VaultErrorKind};
use crate::Secret;

/// A secret in the vault, by folder and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// The folder.
    pub path: String,
    /// The name.
    pub name: String,
}

impl Reference {
    /// The secret of this name in this folder.
    #[must_use]
    pub fn new(path: &str, name: &str) -> Self {
        Self { path: path.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vault:{} in {}", self.name, self.path)
    }
}

/// A folder that somebody looks at, once for all.
type Look = Arc<OnceCell<Option<Folder>>>;

/// Reads secrets, each folder once, and remembers them in memory alone. A look that failed is made again when asked again.
pub struct Resolver {
    vault: Arc<dyn Vault>,
    folders: Mutex<BTreeMap<String, Look>>,
}

impl Resolver {
    /// Reads from this vault.
    #[must_use]
    pub fn new(vault: Arc<dyn Vault>) -> Self {
        Self { vault, folders: Mutex::default() }
    }

    /// What the references refer to, or why that is not known, each on its own. All folders are looked at together.
    pub async fn resolve(
        &self,
        references: impl IntoIterator<Item = Reference>,
    ) -> BTreeMap<Reference, Result<Secret, VaultError>> {
        let references: BTreeSet<Reference> = references.into_iter().collect();
        let paths: BTreeSet<&str> = references.iter().map(|reference| reference.path.as_str()).collect();
        let folders: BTreeMap<&str, _> =
            join_all(paths.into_iter().map(async |path| (path, self.folder(path).await))).await.into_iter().collect();
        let answers = references.iter().map(|reference| {
            let answer = match folders.get(reference.path.as_str()) {
                Some(Ok(look)) => find(reference, look.get().and_then(Option::as_ref)),
                Some(Err(error)) => Err(error.clone()),
                None => find(reference, None),
            };
            (reference.clone(), answer)
        });
        answers.collect()
    }

    async fn folder(&self, path: &str) -> Result<Look, VaultError> {
        let look = {
            let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
            folders.entry(path.to_owned()).or_default().clone()
        };
        look.get_or_try_init(|| self.vault.list(path)).await?;
        Ok(look)
    }
}

fn find(reference: &Reference, folder: Option<&Folder>) -> Result<Secret, VaultError> {
    let Reference { path, name } = reference;
    let failed = |kind, evidence: String| VaultError::new(kind, reference.to_string(), evidence);
    let Some(folder) = folder else {
        return Err(failed(VaultErrorKind::Missing, format!("the vault has no folder {path}"))
            .next("check `secrets:` in castle.yaml, its path and its environment"));
    };
    match folder.get(name) {
        Some(entry) => entry.value.clone().ok_or_else(|| {
            failed(VaultErrorKind::Hidden, "it is there, but its value is hidden from castle's identity".to_owned())
                .next("let the identity read values in that folder, not only describe them")
        }),
        None => {
            let near = folder
                .keys()
                .max_by(|one, other| strsim::jaro_winkler(one, name).total_cmp(&strsim::jaro_winkler(other, name)));
            let near = near.map_or_else(|| "it is empty".to_owned(), |near| format!("the nearest name is {near}"));
            Err(failed(VaultErrorKind::Missing, format!("{path} has no secret {name}: {near}"))
                .next("create it in the vault, or correct the reference in castle.yaml"))
        }
    }
}
