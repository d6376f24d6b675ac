//! What a castle has downloaded: where it may lie, and its end.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use castle_engine::{Change, Class, Closed, Decision, Fault, Impact, Operation, Step, pace};
use castle_http::Method;
use castle_seams::BoxFuture;
use futures_util::future::join_all;

use super::ground::Ground;
use super::image::{Image, volume_path};
use crate::client::Bound;
use crate::model::{ErrorClass, Form, Refusal, Storage, Task};

/// How long a download that a castle left behind is waited for.
const DOWNLOADING: Duration = Duration::from_secs(5 * 60);
/// The longest wait between two looks at it.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// A storage of a host where a castle may have downloaded something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DownloadPlace {
    /// The host.
    pub host: String,
    /// The storage there.
    pub storage: String,
}

/// Where nobody could look for downloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unseen {
    /// The host.
    pub host: String,
    /// The storage there; nothing if it is all of them.
    pub storage: Option<String>,
    /// Why.
    pub why: String,
}

impl fmt::Display for Unseen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.storage {
            None => f.write_str(&self.host),
            Some(storage) => write!(f, "{} ({storage})", self.host),
        }
    }
}

/// Where a castle may have downloaded something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Downloads {
    /// Where its file has its images, and wherever else something of it lies or is on its way.
    pub places: Vec<DownloadPlace>,
    /// Where nobody could look.
    pub unseen: Vec<Unseen>,
}

/// What one storage shows.
enum Shown {
    Ours,
    NothingOfOurs,
    Unknown(String),
}

impl Downloads {
    /// Looks where the file has its images, and at every other storage that may keep some, for the file may have named that before.
    ///
    /// What cannot be looked at keeps nobody from going on. It is told only where the castle may have been: on a host of its file or of its record, or
    /// anywhere if there is no record.
    ///
    /// # Errors
    ///
    /// If Proxmox does not say which hosts there are.
    pub async fn find(ground: &Ground, hosts: &[String], images: &str) -> Result<Self, Refusal> {
        let rows = ground.client.hosts().await?;
        let is_online = |host: &str| rows.iter().any(|row| row.name == host && row.is_online);
        let others = rows.iter().map(|row| &row.name).filter(|name| !hosts.contains(name));
        let (there, away): (Vec<&String>, Vec<&String>) = hosts.iter().chain(others).partition(|host| is_online(host));
        let mut found = Self::default();
        for host in away {
            found.unseen.push(Unseen { host: host.clone(), storage: None, why: "it is not there".to_owned() });
        }
        let (mut shared, mut unshown) = (BTreeSet::new(), BTreeSet::new());
        for (host, looked) in there.iter().zip(join_all(there.iter().map(|host| look_at(ground, host))).await) {
            let place = |storage: &str| DownloadPlace { host: (*host).clone(), storage: storage.to_owned() };
            if hosts.contains(host) {
                found.places.push(place(images));
            }
            let (is_downloading, storages) = match looked {
                Ok(looked) => looked,
                Err(refusal) => {
                    let why = refusal.to_string();
                    found.unseen.push(Unseen { host: (*host).clone(), storage: None, why });
                    continue;
                }
            };
            for (storage, shown) in storages {
                let place = place(&storage.name);
                if found.places.contains(&place) {
                    shared.extend(storage.is_shared.then_some(storage.name));
                    continue;
                }
                let is_known = storage.is_shared && shared.contains(&storage.name);
                match shown {
                    _ if is_downloading => found.places.push(place),
                    Shown::Ours if !is_known => found.places.push(place),
                    Shown::Unknown(why) if !is_known => {
                        unshown.extend(storage.is_shared.then(|| storage.name.clone()));
                        found.unseen.push(Unseen { host: place.host, storage: Some(place.storage), why });
                        continue;
                    }
                    _ => {}
                }
                shared.extend(storage.is_shared.then_some(storage.name));
            }
        }
        let may_have_been = |host: &String| {
            hosts.contains(host) || ground.record.as_ref().is_none_or(|record| record.hosts.contains(host))
        };
        // What one host did not show of a storage that all share, another may have; if none did, that is told once.
        found.unseen.retain(|one| {
            let is_told = one.storage.as_ref().is_none_or(|storage| !shared.contains(storage));
            shared.extend(one.storage.clone().filter(|storage| unshown.contains(storage)));
            may_have_been(&one.host) && is_told
        });
        Ok(found)
    }
}

/// Whether something of the castle is being downloaded on a host, and what the storages there show that may keep images.
async fn look_at(ground: &Ground, host: &str) -> Result<(bool, Vec<(Storage, Shown)>), Refusal> {
    let is_downloading = download(ground, host).await?.is_some();
    let storages = ground.client.storages(host).await?.into_iter();
    let storages = storages.filter(|storage| storage.is_enabled && storage.content.contains("import"));
    let looks = storages.map(async |storage| {
        let shown = match storage.is_active {
            false => Shown::Unknown("it is not active".to_owned()),
            true => match volumes(ground, host, &storage.name).await {
                Ok(volumes) if volumes.is_empty() => Shown::NothingOfOurs,
                Ok(_) => Shown::Ours,
                Err(refusal) => Shown::Unknown(refusal.to_string()),
            },
        };
        (storage, shown)
    });
    Ok((is_downloading, join_all(looks).await))
}

/// A download of the castle that a host is at.
async fn download(ground: &Ground, host: &str) -> Result<Option<Task>, Refusal> {
    let prefix = Image::file_prefix(&ground.castle);
    let is_ours = |task: &Task| task.kind == "download" && task.id.as_ref().is_some_and(|id| id.starts_with(&prefix));
    Ok(ground.client.running_tasks(host).await?.into_iter().find(is_ours))
}

/// What the castle has downloaded into a storage.
async fn volumes(ground: &Ground, host: &str, storage: &str) -> Result<Vec<String>, Refusal> {
    let form = Form::new().with("content", "import");
    let prefix = format!("{storage}:import/{}", Image::file_prefix(&ground.castle));
    let volumes = match ground.client.volumes(host, storage, &form).await {
        // Where there is no such storage any more, there is nothing of ours in it.
        Err(refusal) if refusal.class == ErrorClass::Gone => Vec::new(),
        result => result?,
    };
    Ok(volumes.into_iter().map(|volume| volume.id).filter(|id| id.starts_with(&prefix)).collect())
}

/// Removes the downloads of a castle from a storage. Their names are their marks.
pub struct RemoveDownloads {
    ground: Arc<Ground>,
    host: String,
    storage: String,
    /// The download that is waited for.
    awaited: Mutex<Option<String>>,
}

impl RemoveDownloads {
    /// The step for this place.
    #[must_use]
    pub fn new(ground: Arc<Ground>, place: &DownloadPlace) -> Self {
        let DownloadPlace { host, storage } = place.clone();
        Self { ground, host, storage, awaited: Mutex::default() }
    }
}

impl RemoveDownloads {
    /// Waits for downloads that a castle has begun which was cut off: they would put their files back once these are removed.
    async fn until_none_comes(&self) -> Result<(), Fault> {
        let clock = self.ground.client.clock();
        let begun = clock.monotonic();
        loop {
            let task = download(&self.ground, &self.host).await?;
            *self.awaited.lock().unwrap_or_else(PoisonError::into_inner) = task.as_ref().map(|task| task.upid.clone());
            let Some(task) = task else { return Ok(()) };
            let waited = clock.monotonic().saturating_sub(begun);
            if waited >= DOWNLOADING {
                let evidence = format!("a download of it still runs on {} ({})", self.host, task.upid);
                let fault = Fault::new(Class::Final, self.storage.clone(), evidence);
                return Err(fault.next("stop that task, or wait for it; then run the same command again"));
            }
            clock.sleep(pace(waited, LONGEST_WAIT)).await;
        }
    }
}

impl Step for RemoveDownloads {
    type Needs = ();
    type Observed = Vec<String>;
    /// The volume that is removed.
    type Action = String;
    type Output = ();

    fn awaits(&self) -> Option<Closed> {
        let upid = self.awaited.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
        let subject = format!("downloads on {}", self.host);
        Some(Closed {
            subject,
            evidence: format!("one that was begun earlier still runs ({upid})"),
            next: String::new(),
        })
    }

    fn observe<'a>(&'a self, (): &'a ()) -> BoxFuture<'a, Result<Vec<String>, Fault>> {
        Box::pin(async move {
            self.until_none_comes().await?;
            Ok(volumes(&self.ground, &self.host, &self.storage).await?)
        })
    }

    fn decide(&self, (): &(), volumes: &Vec<String>) -> Decision<String> {
        let Some(volume) = volumes.first() else { return Decision::Nothing };
        let change = Change::new("remove", Impact::Destroy).differing("download", Some(volume.clone()), None);
        Decision::Act(volume.clone(), change)
    }

    fn act<'a>(
        &'a self,
        (): &'a (),
        _: &'a Vec<String>,
        volume: &'a String,
        _: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let path = volume_path(&self.host, &self.storage, volume);
            self.ground.client.run(volume, Method::DELETE, &path, &Form::new(), Bound::SHORT).await?;
            Ok(())
        })
    }

    fn output(&self, (): &(), _: &Vec<String>) {}
}
