//! The manifests of a castle's components: what is pinned, and where it is had from.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use castle_components::lock::{self, Lock};
use castle_components::mirror::Mirror;
use castle_components::supply::Supply;
use castle_seams::{Disk, DiskErrorKind};
use castle_spec::{Castle, ComponentName, Node};
use clap::builder::PossibleValuesParser;

use crate::doors::Doors;
use crate::keeping::Kept;
use crate::project;
use crate::stand::Trouble;

/// How long a server of manifests may take to be reached.
const REACHING: Duration = Duration::from_secs(15);

/// Names a mirror for whoever gives none.
const MIRROR: &str = "CASTLE_MIRROR";

/// A castle, what it has pinned, and the way to that.
pub(crate) struct Manifests {
    pub(crate) castle: Castle,
    pub(crate) nodes: Vec<Node>,
    /// The lock file, whether or not it is there.
    pub(crate) file: PathBuf,
    /// What it says, if it is there.
    pub(crate) lock: Option<Lock>,
    pub(crate) supply: Supply,
    pub(crate) disk: Arc<dyn Disk>,
}

impl Manifests {
    /// Of the castle that `path` names; from this mirror, or from the one that the environment names.
    pub(crate) fn open(doors: &Doors, path: &Path, mirror: Option<&Path>) -> Result<Self, Trouble> {
        let read = project::read(doors.disk.as_ref(), path).map_err(Trouble::Invalid)?;
        Self::read(doors, read, mirror)
    }

    /// Of a castle whose file was read.
    pub(crate) fn of(kept: &Kept, mirror: Option<&Path>) -> Result<Self, Trouble> {
        let (file, castle, nodes) = (kept.file.clone(), kept.castle.clone(), kept.nodes.clone());
        Self::read(&kept.doors, project::Read { file, castle, nodes }, mirror)
    }

    fn read(doors: &Doors, read: project::Read, mirror: Option<&Path>) -> Result<Self, Trouble> {
        let project::Read { file, castle, nodes } = read;
        let (disk, clock) = (doors.disk.clone(), doors.clock.clone());
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        let file = folder.join(lock::FILE);
        let lock = read_lock(disk.as_ref(), &file)
            .map_err(|why| Trouble::Invalid(format!("{why}; mend it, or remove it and run `castle lock`")))?;
        let mirror = open_mirror(doors, mirror)?;
        let mut supply = Supply::new(doors.dial(REACHING), clock, disk.clone(), &folder).with_mirror(mirror);
        if let Some(state) = project::state_folder(&doors.variables) {
            supply = supply.with_cache(&state.join(".manifests"));
        }
        Ok(Self { castle, nodes, file, lock, supply, disk })
    }
}

/// Takes the names of components that castle removes.
pub(crate) fn removable() -> PossibleValuesParser {
    castle_layers::removable().map(ComponentName::word).into()
}

/// What a lock file says, if it is there.
pub(crate) fn read_lock(disk: &dyn Disk, file: &Path) -> Result<Option<Lock>, String> {
    let bytes = match disk.read(file, lock::MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let text = String::from_utf8(bytes).map_err(|_| format!("{} is not text", file.display()))?;
    Lock::read(&text).map(Some).map_err(|error| error.to_string())
}

/// Whether a mirror is named for all verbs.
pub(crate) fn has_mirror(doors: &Doors) -> bool {
    doors.variables.filled(MIRROR).is_some()
}

fn open_mirror(doors: &Doors, given: Option<&Path>) -> Result<Option<Mirror>, Trouble> {
    let named = doors.variables.filled(MIRROR).map(PathBuf::from);
    let Some(place) = given.map(Path::to_owned).or(named) else { return Ok(None) };
    Mirror::open(doors.disk.clone(), &place).map(Some).map_err(|error| Trouble::Invalid(error.to_string()))
}
