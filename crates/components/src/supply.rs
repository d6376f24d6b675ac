//! Where manifests are had from, and that they are what was pinned.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use castle_http::Trust;
use castle_kubernetes::model::{ManifestError, Object, manifest};
use castle_seams::{Clock, Dial, Disk};
use castle_spec::ComponentName;
use thiserror::Error;

use crate::choice::Chosen;
use crate::digest::digest;
use crate::fetch::fetch;
use crate::fit::Fit;
use crate::known::adapt;
use crate::mirror::{MAX_MANIFEST_BYTES, Mirror, MirrorError};
use crate::patches::{PatchError, apply_file};
use crate::source::{Entry, Source};
use crate::standin;

/// Why a manifest cannot be had.
#[derive(Debug, Error)]
pub enum SupplyError {
    /// It is not what was pinned.
    #[error("{component}: {place} is not what is pinned: its sha256 is {found}, and {expected} is expected; {next}")]
    Checksum {
        /// Of which component.
        component: ComponentName,
        /// What was looked at.
        place: String,
        /// The digest that is pinned.
        expected: String,
        /// The digest it has.
        found: String,
        /// What to do.
        next: &'static str,
    },
    /// The mirror has no such file.
    #[error("{component}: the mirror {place} has no manifest of {version} with sha256 {sha256}; {MIRROR_NEXT}")]
    NotMirrored {
        /// Of which component.
        component: ComponentName,
        /// The mirror.
        place: String,
        /// The version.
        version: String,
        /// The digest that is pinned.
        sha256: String,
    },
    /// It is only in mirrors, and there is none.
    #[error(
        "{component}: {file} is pinned, which only a mirror has: give the mirror with --mirror; or pin what upstream publishes: \
         take {component} out of castle.lock, if it is there, and run `castle lock`"
    )]
    NoMirror {
        /// Of which component.
        component: ComponentName,
        /// Its name in a mirror.
        file: String,
    },
    /// The mirror cannot be used.
    #[error("{component}: {source}")]
    Mirror {
        /// Of which component.
        component: ComponentName,
        /// Why.
        source: MirrorError,
    },
    /// The download failed.
    #[error("{component}: {url} cannot be downloaded: {why}; try again, or give a mirror with --mirror")]
    Download {
        /// Of which component.
        component: ComponentName,
        /// The address.
        url: String,
        /// Why.
        why: String,
    },
    /// The file cannot be read.
    #[error("{component}: {why}; `source` and `patches` in castle.yaml name files beside it")]
    File {
        /// Of which component.
        component: ComponentName,
        /// Why.
        why: String,
    },
    /// It is no manifest.
    #[error("{component}: what comes from {place} is no manifest: {why}")]
    NoManifest {
        /// Of which component.
        component: ComponentName,
        /// Where it came from.
        place: String,
        /// Why.
        why: String,
    },
    /// It cannot be adapted.
    #[error(transparent)]
    Patch(#[from] PatchError),
}

const MIRROR_NEXT: &str = "`castle mirror pull` fetches it, `castle lock --mirror` pins what the mirror has";
const UPSTREAM_NEXT: &str = "upstream has changed it, or something in between has: compare before you remove it from castle.lock and run `castle lock`";
const FILE_NEXT: &str = "if that was you, run `castle lock`";
const DAMAGED_NEXT: &str = "`castle mirror verify` tells which files of the mirror are damaged";

/// Gives manifests, checked.
pub struct Supply {
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
    disk: Arc<dyn Disk>,
    trust: Trust,
    folder: PathBuf,
    cache: Option<PathBuf>,
    keeps: bool,
    mirror: Option<Mirror>,
}

impl Supply {
    /// For the castle whose file is in this folder.
    #[must_use]
    pub fn new(dial: Arc<dyn Dial>, clock: Arc<dyn Clock>, disk: Arc<dyn Disk>, folder: &Path) -> Self {
        let folder = folder.to_owned();
        Self { dial, clock, disk, trust: Trust::PublicRoots, folder, cache: None, keeps: true, mirror: None }
    }

    /// Keeps what it has downloaded in this folder, by digest.
    #[must_use]
    pub fn with_cache(self, folder: &Path) -> Self {
        Self { cache: Some(folder.to_owned()), ..self }
    }

    /// Keeps nothing: for whoever only looks. What others have kept is used.
    #[must_use]
    pub fn without_keeping(self) -> Self {
        Self { keeps: false, ..self }
    }

    /// Asks this mirror, and nobody else for what it should have.
    #[must_use]
    pub fn with_mirror(self, mirror: Option<Mirror>) -> Self {
        Self { mirror, ..self }
    }

    /// Believes other certificates than those of the public authorities.
    #[must_use]
    pub fn with_trust(self, trust: Trust) -> Self {
        Self { trust, ..self }
    }

    /// The mirror, if there is one.
    #[must_use]
    pub fn mirror(&self) -> Option<&Mirror> {
        self.mirror.as_ref()
    }

    /// Whether a manifest can be had without asking anybody for it.
    #[must_use]
    pub fn is_at_hand(&self, entry: &Entry) -> bool {
        let is_near = matches!(entry.source, Source::StandIn | Source::File(_));
        is_near || self.mirror.is_some() || self.cached(&entry.sha256).is_some()
    }

    /// The text of a manifest, which is what its entry pins.
    ///
    /// # Errors
    ///
    /// [`SupplyError`] if it cannot be had, or is another.
    pub async fn manifest(&self, component: ComponentName, entry: &Entry) -> Result<String, SupplyError> {
        let bytes = match &entry.source {
            Source::StandIn => standin::text(component).into_bytes(),
            // The file is at hand; that it was changed must not go unnoticed.
            Source::File(_) => self.pinned(component, entry).await?,
            Source::Url(_) | Source::Mirror(_) => match self.cached(&entry.sha256) {
                Some(bytes) => bytes,
                None => {
                    let bytes = self.pinned(component, entry).await?;
                    self.keep(&entry.sha256, &bytes);
                    bytes
                }
            },
        };
        let no_text = |_| SupplyError::NoManifest {
            component,
            place: entry.source.to_string(),
            why: "it is not text".to_owned(),
        };
        String::from_utf8(bytes).map_err(no_text)
    }

    /// The objects that castle applies: those of the manifest, adapted to the castle, with the owner's patches.
    ///
    /// # Errors
    ///
    /// [`SupplyError`] if the manifest cannot be had, or a patch does not find what it changes.
    pub async fn objects(&self, chosen: &Chosen, fit: &Fit) -> Result<Vec<Object>, SupplyError> {
        let component = chosen.wanted.name;
        let text = self.manifest(component, &chosen.entry).await?;
        let no_manifest = |error: ManifestError| SupplyError::NoManifest {
            component,
            place: chosen.entry.source.to_string(),
            why: error.to_string(),
        };
        let mut objects = adapt(component, &manifest(&text).map_err(no_manifest)?, fit)?;
        for file in &chosen.wanted.patches {
            let text = String::from_utf8(self.file(component, file)?)
                .map_err(|_| SupplyError::File { component, why: format!("{file} is not text") })?;
            objects = apply_file(component, &objects, file, &text)?;
        }
        Ok(objects)
    }

    /// What is at a source now, whatever it is: for whoever pins it.
    ///
    /// # Errors
    ///
    /// [`SupplyError`] if it cannot be had.
    pub async fn measure(&self, component: ComponentName, source: &Source) -> Result<Vec<u8>, SupplyError> {
        match source {
            Source::StandIn => Ok(standin::text(component).into_bytes()),
            Source::File(file) => self.file(component, file),
            Source::Url(url) => fetch(&self.dial, &self.clock, &self.trust, url)
                .await
                .map_err(|why| SupplyError::Download { component, url: url.clone(), why }),
            Source::Mirror(file) => match &self.mirror {
                Some(mirror) => mirror.read(file).map_err(|source| SupplyError::Mirror { component, source }),
                None => Err(SupplyError::NoMirror { component, file: file.clone() }),
            },
        }
    }

    async fn pinned(&self, component: ComponentName, entry: &Entry) -> Result<Vec<u8>, SupplyError> {
        let (bytes, place, next) = match (&entry.source, &self.mirror) {
            (Source::Url(_) | Source::Mirror(_), Some(mirror)) => {
                let place = mirror.place().display().to_string();
                let lacks = || SupplyError::NotMirrored {
                    component,
                    place: place.clone(),
                    version: entry.version.to_string(),
                    sha256: entry.sha256.clone(),
                };
                let listed = mirror.with_digest(component, &entry.sha256).ok_or_else(lacks)?;
                let bytes = mirror.read(&listed.file).map_err(|source| SupplyError::Mirror { component, source })?;
                (bytes, format!("{} of the mirror {place}", listed.file), DAMAGED_NEXT)
            }
            (source, _) => {
                let next = if matches!(source, Source::File(_)) { FILE_NEXT } else { UPSTREAM_NEXT };
                (self.measure(component, source).await?, source.to_string(), next)
            }
        };
        let found = digest(&bytes);
        if found == entry.sha256 {
            return Ok(bytes);
        }
        Err(SupplyError::Checksum { component, place, expected: entry.sha256.clone(), found, next })
    }

    /// What an earlier run has kept, if it is still what it was.
    fn cached(&self, sha256: &str) -> Option<Vec<u8>> {
        let bytes = self.disk.read(&self.cache.as_ref()?.join(sha256), MAX_MANIFEST_BYTES).ok()?;
        (digest(&bytes) == sha256).then_some(bytes)
    }

    /// Keeps it for the next run. Where that is not possible the next run fetches it again.
    fn keep(&self, sha256: &str, bytes: &[u8]) {
        let Some(cache) = self.cache.as_ref().filter(|_| self.keeps) else { return };
        if self.disk.create_dir_all(cache, 0o700).is_ok() {
            let _ = self.disk.replace(&cache.join(sha256), bytes, 0o600);
        }
    }

    fn file(&self, component: ComponentName, file: &str) -> Result<Vec<u8>, SupplyError> {
        let read = self.disk.read(&self.folder.join(file), MAX_MANIFEST_BYTES);
        read.map_err(|error| SupplyError::File { component, why: error.to_string() })
    }
}
