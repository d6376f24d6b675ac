//! Who may write: one process on this machine, and one machine of all.

use std::path::Path;

use castle_engine::{Applicant, HEARTBEAT, LIFE, Lease, LeaseError, Taking, look};
use castle_seams::{DiskErrorKind, LockGuard};

use super::{Kept, with_way_out};
use crate::masking;

/// Why there is no right to write.
#[derive(Debug)]
pub(crate) enum Denied {
    /// Someone else has it.
    Busy(String),
    /// It could not be had.
    Failed(String),
}

impl std::fmt::Display for Denied {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Busy(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

/// The right to write: the lease, and this machine's own lock, which ends with the process.
pub(crate) struct Held {
    pub(crate) lease: Lease,
    _turn: Box<dyn LockGuard>,
}

impl Kept {
    /// Who seems to have died with the lease, and is watched for a while before it is taken from them; nothing if nobody did.
    async fn silent_holder(&self) -> Option<String> {
        let (holder, _) = look(self.store.as_ref(), &self.key()).await.ok()??;
        let now = self.clock().wall();
        let is_elsewhere = self.machine().map_or(true, |machine| machine != holder.machine);
        (is_elsewhere && !holder.released && !holder.is_alive(now)).then(|| {
            let (silent, watched) = (holder.silent_for(now).as_secs(), (HEARTBEAT * 2).as_secs());
            let owner = masking::text(&holder.owner);
            format!("{owner} has worked on {} and is silent for {silent} s: watching for {watched} s", self.name())
        })
    }

    /// Makes this process the only writer: first on this machine, then everywhere.
    ///
    /// `seen_epoch` is the highest epoch that marks in the world bear, as far as it is known.
    pub(crate) async fn lease(&self, taking: Taking, seen_epoch: u64) -> Result<Held, Denied> {
        let folder = self.own_folder();
        let failed = |error: &dyn std::fmt::Display| Denied::Failed(error.to_string());
        self.doors.disk.create_dir_all(&folder, 0o700).map_err(|error| failed(&error))?;
        let turn = self.doors.disk.try_lock(&folder.join(".writer"), 0o600).map_err(|error| match error.kind {
            DiskErrorKind::Locked => Denied::Busy(format!(
                "another castle on this machine works on {}\n  next: run the same command again once it has ended; castle lease show tells who it is",
                self.name()
            )),
            _ => Denied::Failed(with_way_out(&error)),
        })?;
        let machine = self.machine().map_err(|why| failed(&why))?;
        let _at = self.doors.at(format!("taking the lease of {}", self.name()));
        if taking == Taking::Politely
            && let Some(silent) = self.silent_holder().await
        {
            self.doors.voice.complain_to_people(&silent);
        }
        let applicant = Applicant { owner: self.owner(), machine, seen_epoch };
        let doors = (self.doors.clock.clone(), self.doors.entropy.as_ref());
        let lease = Lease::take(self.store.clone(), &self.key(), doors, &applicant, taking).await;
        let lease = lease.map_err(|error| match error {
            LeaseError::Held(_, silent) => {
                let rest = LIFE.saturating_sub(silent).as_secs();
                let error = masking::text(&error.to_string());
                Denied::Busy(format!(
                    "{error}\n  next: castle lease show tells whether they live; if they are silent for {rest} s more, castle goes \
                     on without them; castle lease take takes it from them at once"
                ))
            }
            LeaseError::Damaged(_) => Denied::Failed(format!(
                "{error} (in {})\n  next: castle lease take {}: whoever holds it stops before their next effect",
                self.place,
                self.folder_of_file()
            )),
            error => failed(&error),
        })?;
        Ok(Held { lease, _turn: turn })
    }

    /// The epoch of whoever wrote last and writes no more, by the store; nothing if nobody can tell, or somebody is still at it.
    pub(crate) async fn written_epoch(&self) -> Option<u64> {
        let holder = look(self.store.as_ref(), &self.key()).await.ok()?;
        match holder {
            None => Some(0),
            Some((holder, _)) => holder.released.then_some(holder.epoch),
        }
    }

    /// Who runs castle, for people.
    pub(super) fn owner(&self) -> String {
        let variable = |name: &str| self.doors.variables.text(name).filter(|value| !value.is_empty());
        let host = self.doors.disk.read(Path::new("/proc/sys/kernel/hostname"), 4096).unwrap_or_default();
        let host = Some(String::from_utf8_lossy(&host).trim().to_owned()).filter(|host| !host.is_empty());
        let host = host.or_else(|| variable("HOSTNAME")).unwrap_or_else(|| "unknown".to_owned());
        let user = variable("USER").or_else(|| variable("LOGNAME")).unwrap_or_else(|| "someone".to_owned());
        format!("{user}@{host}")
    }

    /// What tells this machine from others: drawn once, and kept beside the lock whose being free tells that a holder of this name is
    /// dead. (The system's own machine id will not do: copies of one image share it.)
    fn machine(&self) -> Result<String, String> {
        let file = self.folder.join(".machine");
        let mut drawn = [0; 16];
        self.doors.entropy.fill(&mut drawn).map_err(|error| error.to_string())?;
        let fresh: String = drawn.iter().map(|byte| format!("{byte:02x}")).collect();
        match self.doors.disk.create_new(&file, fresh.as_bytes(), 0o600) {
            Ok(()) => Ok(fresh),
            Err(error) if error.kind == DiskErrorKind::AlreadyExists => {
                let known = self.doors.disk.read(&file, 4096).map_err(|error| with_way_out(&error))?;
                let known = String::from_utf8_lossy(&known).trim().to_owned();
                // Damaged: a name that nobody has yet is as good as any.
                if known.len() == fresh.len() {
                    return Ok(known);
                }
                self.doors
                    .disk
                    .replace(&file, fresh.as_bytes(), 0o600)
                    .map(|()| fresh)
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(with_way_out(&error)),
        }
    }
}
