//! The embedded datacenter as a process of its own: found, started, stopped.
//!
//! Whoever serves holds a lock that ends with the process, so a file that tells of a datacenter is believed only while someone
//! holds it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use castle_datacenter::{EMBEDDED_CLIENT_ID, EMBEDDED_ENVIRONMENT, EMBEDDED_GIT, EMBEDDED_PROJECT};
use castle_http::{Endpoint, Trust};
use castle_proxmox::client::{Access, Token};
use castle_seams::{Clock, Disk, DiskErrorKind, LockGuard, spoken};
use castle_secrets::Secret;
use castle_secrets::infisical::{self, Region};
use serde::{Deserialize, Serialize};

use crate::doors::{Around, Doors};
use crate::keeping::with_way_out;
use crate::notes::{self, Note};
use crate::output::Printer;
use crate::project;

mod following;
mod foreseen;
mod keys;

pub(crate) use foreseen::{Foreseen, NOBODY, Way};
pub(crate) use keys::{GIT_USER, Kept as KeptKeys, Keys};

const MAX_BYTES: u64 = 64 << 10;
/// How long a datacenter may take from its start to its first answer.
const START_BOUND: Duration = Duration::from_secs(20);
const LOOK_PERIOD: Duration = Duration::from_millis(20);
/// How often a datacenter looks whether it can still be found. A castle that starts another one waits longer for its addresses.
const FOUND_PERIOD: Duration = Duration::from_millis(250);
/// The way out where the datacenter that runs is of no use, and what it costs.
const ANEW: &str =
    "castle datacenter stop, then the same command again; all castles that stand in the datacenter are gone with it";

/// A datacenter that serves.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Serving {
    /// Where.
    pub(crate) address: SocketAddr,
    /// The fingerprint of its certificate.
    pub(crate) fingerprint: String,
    /// The process.
    pub(crate) process: u32,
    /// Its hosts.
    pub(crate) hosts: Vec<String>,
    /// How many of its seconds pass in one of ours.
    pub(crate) speed: u32,
    /// Whether nothing in it takes any time.
    #[serde(default)]
    pub(crate) is_instant: bool,
    /// Where its vault is.
    pub(crate) vault: SocketAddr,
    /// The fingerprint of the vault's certificate.
    pub(crate) vault_fingerprint: String,
    /// Where its repositories are.
    pub(crate) git: SocketAddr,
    /// The fingerprint of their certificate.
    pub(crate) git_fingerprint: String,
    /// What the files are that open it, by their names; nothing of a datacenter whose keys are known.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) key_digests: BTreeMap<String, String>,
    /// What opens it: kept beside, each in a file of its own.
    #[serde(skip)]
    pub(crate) keys: Keys,
}

impl Serving {
    /// The address for people and clients.
    pub(crate) fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// How castle reaches it.
    pub(crate) fn access(&self) -> Result<Access, String> {
        Ok(Access {
            endpoint: Endpoint::parse(&self.url()).map_err(|error| error.to_string())?,
            trust: Trust::fingerprint(&self.fingerprint).map_err(|error| error.to_string())?,
            token: Token::parse(&self.keys.token()).map_err(|error| error.to_string())?,
        })
    }

    /// Where castle itself reads a followed folder, and whom it believes there.
    pub(crate) fn repository_access(&self, name: &str) -> Result<(String, Trust), String> {
        let trust = Trust::fingerprint(&self.git_fingerprint).map_err(|error| error.to_string())?;
        Ok((format!("https://{}/{name}.git", self.git), trust))
    }

    /// How castle reaches its vault.
    pub(crate) fn vault_access(&self) -> Result<infisical::Access, String> {
        let id = Secret::from(EMBEDDED_CLIENT_ID.to_owned());
        let client = [("clientId", id), ("clientSecret", self.keys.client_secret.clone())];
        let client = client.map(|(name, value)| (name.to_owned(), value));
        Ok(infisical::Access {
            region: Region::parse(&format!("https://{}", self.vault)).map_err(|error| error.to_string())?,
            trust: Trust::fingerprint(&self.vault_fingerprint).map_err(|error| error.to_string())?,
            identity: infisical::Identity::of(&client.into()).map_err(|error| error.to_string())?,
            project: EMBEDDED_PROJECT.to_owned(),
            environment: EMBEDDED_ENVIRONMENT.to_owned(),
        })
    }
}

/// The address of a followed folder, as Flux in the embedded datacenter knows it.
pub(crate) fn repository(name: &str) -> String {
    format!("https://{EMBEDDED_GIT}/{name}.git")
}

fn folder(doors: &Doors) -> Result<PathBuf, String> {
    Ok(project::state_folder(&doors.variables)
        .ok_or("there is no home for the state: set CASTLE_STATE_DIR")?
        .join("datacenter"))
}

/// Where the datacenter that serves tells how to reach it.
fn announcement(doors: &Doors) -> Result<PathBuf, String> {
    Ok(folder(doors)?.join("serving.json"))
}

/// Lets the embedded datacenter serve a folder as the repository of this name, whatever it holds from now on. One that cannot be
/// served now is an error.
pub(crate) fn follow(doors: &Doors, name: &str, followed: &Path) -> Result<(), String> {
    following::announce(doors.disk.as_ref(), &folder(doors)?, name, followed)
}

/// The files of a folder by their paths, as they would be served, or why they cannot be.
pub(crate) fn files_of(disk: &dyn Disk, folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, String> {
    following::read(disk, folder)
}

/// Whether the embedded datacenter serves this folder as the repository of this name.
pub(crate) fn is_followed(doors: &Doors, name: &str, followed: &Path) -> Result<bool, String> {
    following::is_announced(doors.disk.as_ref(), &folder(doors)?, name, followed)
}

/// The files of the repository of this name as they are now; nothing if nobody has announced it.
pub(crate) fn followed(doors: &Doors, name: &str) -> Result<Option<BTreeMap<String, Vec<u8>>>, String> {
    following::files(doors.disk.as_ref(), &folder(doors)?, name)
}

/// The right to be the datacenter of this user; ends with the process.
pub(crate) fn claim(doors: &Doors) -> Result<Option<Box<dyn LockGuard>>, String> {
    let (disk, folder): (&dyn Disk, _) = (doors.disk.as_ref(), folder(doors)?);
    disk.create_dir_all(&folder, 0o700).map_err(|error| error.to_string())?;
    match disk.try_lock(&folder.join(".serving"), 0o600) {
        Ok(guard) => Ok(Some(guard)),
        Err(error) if error.kind == DiskErrorKind::Locked => Ok(None),
        Err(error) => Err(with_way_out(&error)),
    }
}

/// Where the keys of the datacenter are kept.
pub(crate) fn kept_keys(doors: &Doors) -> Result<KeptKeys, String> {
    Ok(KeptKeys::in_folder(&folder(doors)?))
}

/// Tells others of this user where it serves, and what opens it.
pub(crate) fn announce(doors: &Doors, serving: &Serving) -> Result<(), String> {
    serving.keys.keep(doors.disk.as_ref(), &folder(doors)?, serving.git)?;
    doors.disk.replace(&announcement(doors)?, &notes::bytes(serving), 0o600).map_err(|error| error.to_string())
}

/// The datacenter that serves now, if one does. One that has only just begun is not there yet.
pub(crate) fn find(doors: &Doors) -> Result<Option<Serving>, String> {
    match &doors.around {
        Around::Room(room) => return Ok(room.serving.clone()),
        Around::Foreseen(foreseen) => return Ok(Some(foreseen.serving.clone())),
        Around::Machine => {}
    }
    let Some(serving) = announced(doors)? else { return Ok(None) };
    let keys = Keys::read(doors.disk.as_ref(), &folder(doors)?, &serving.key_digests)?;
    Ok(Some(Serving { keys, ..serving }))
}

/// The datacenter that serves now on this machine, without its keys: whoever ends it needs none.
fn announced(doors: &Doors) -> Result<Option<Serving>, String> {
    // Read before the lock is tried, which would make the file it stands for: whoever only looks leaves nothing behind.
    let file = announcement(doors)?;
    let bytes = match doors.disk.read(&file, MAX_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == DiskErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(with_way_out(&error)),
    };
    if claim(doors)?.is_some() {
        return Ok(None);
    }
    match notes::of::<Serving>(bytes) {
        Note::Read(serving) => Ok(Some(serving)),
        Note::Newer(format) => Err(notes::newer(&file, format)),
        Note::None | Note::Damaged(_) => Err(format!(
            "{} is damaged\n  next: run the same command again: the datacenter that runs mends it within a second",
            file.display()
        )),
    }
}

/// The datacenter that serves now, for whoever only looks: it has these hosts. Nothing if none does.
pub(crate) fn running(doors: &Doors, hosts: &[String]) -> Result<Option<Serving>, String> {
    let Some(serving) = find(doors)? else { return Ok(None) };
    if hosts.iter().all(|host| serving.hosts.contains(host)) {
        return Ok(Some(serving));
    }
    Err(format!(
        "the datacenter that runs has the hosts {}, and the file wants {}\n  next: {ANEW}",
        serving.hosts.join(", "),
        hosts.join(", ")
    ))
}

/// Returns when nobody can find this datacenter any more: somebody has removed what castle keeps, and perhaps there is another one by now. Where it
/// can be found is only damaged, that is mended: castles stand in it.
pub(crate) async fn lost(doors: &Doors, serving: &Serving) -> Result<(), String> {
    let (file, whole) = (announcement(doors)?, notes::bytes(serving));
    let mut is_supplanted = false;
    loop {
        doors.clock.sleep(FOUND_PERIOD).await;
        match doors.disk.read(&file, MAX_BYTES).map_err(|error| error.kind) {
            Ok(bytes) if bytes == whole => {}
            Ok(bytes) if is_anothers(&bytes, serving) => return Ok(()),
            Err(DiskErrorKind::NotFound) if !is_supplanted => return Ok(()),
            Err(DiskErrorKind::IsDirectory) => is_supplanted = true,
            Ok(_) | Err(DiskErrorKind::NotFound) => {
                is_supplanted = false;
                // What cannot be written now is tried again.
                let _ = doors.disk.replace(&file, &whole, 0o600);
            }
            // A disk that cannot be read now is no reason to let castles fall.
            Err(_) => {}
        }
    }
}

/// Whether an announcement is that of another datacenter, and not that of this one, damaged.
fn is_anothers(announced: &[u8], serving: &Serving) -> bool {
    match notes::of::<Serving>(announced.to_vec()) {
        Note::Read(found) => found.process != serving.process && found.fingerprint != serving.fingerprint,
        Note::Newer(_) => true,
        Note::None | Note::Damaged(_) => false,
    }
}

/// Forgets where the last one served, before the next begins.
pub(crate) fn forget(doors: &Doors) -> Result<(), String> {
    let KeptKeys { token, password, vault, git } = kept_keys(doors)?;
    for file in [announcement(doors)?, token, password, vault, git] {
        match doors.disk.remove_file(&file) {
            Err(error) if error.kind != DiskErrorKind::NotFound => return Err(with_way_out(&error)),
            _ => {}
        }
    }
    Ok(())
}

/// The datacenter with these hosts: the one that serves, or one that is started now, in the background, at this speed.
pub(crate) async fn ensure(
    doors: &Doors,
    hosts: &[String],
    speed: u32,
    printer: &mut Printer,
) -> Result<Serving, String> {
    if let Some(serving) = running(doors, hosts)? {
        return Ok(serving);
    }
    if let Around::Room(_) = doors.around {
        return Err("there is no embedded datacenter in this room".to_owned());
    }
    let program = std::env::current_exe().map_err(|error| format!("castle does not know where it is: {error}"))?;
    let mut command = Command::new(program);
    command.args(["datacenter", "--quiet", "--speed", &speed.to_string()]);
    command.args(hosts.iter().flat_map(|host| ["--host", host]));
    // Whatever secrets the environment holds are not for it.
    let needed = ["HOME", "XDG_STATE_HOME", "CASTLE_STATE_DIR", "TMPDIR"];
    let kept = needed.into_iter().filter_map(|name| Some((name, doors.variables.get(name)?)));
    command.env_clear().envs(kept);
    // A group of its own: Ctrl-C at this terminal is not meant for it.
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut child =
        command.spawn().map_err(|error| format!("the embedded datacenter could not be started: {error}"))?;
    let serving = wait(doors, &mut child).await?;
    if serving.process == child.id() {
        printer.say(&format!("Started the embedded datacenter at {} (castle datacenter stop ends it)", serving.url()));
    }
    Ok(serving)
}

async fn wait(doors: &Doors, child: &mut Child) -> Result<Serving, String> {
    let clock: &dyn Clock = doors.clock.as_ref();
    let begun = clock.monotonic();
    while clock.monotonic().saturating_sub(begun) < START_BOUND {
        if let Some(serving) = find(doors)? {
            return Ok(serving);
        }
        // Unless another one was faster: then it is soon found.
        if let Ok(Some(status)) = child.try_wait()
            && claim(doors)?.is_some()
        {
            return Err(format!("the embedded datacenter ended at once ({status}): run castle datacenter to see why"));
        }
        clock.sleep(LOOK_PERIOD).await;
    }
    Err(format!(
        "the embedded datacenter did not begin to serve within {}: run castle datacenter to see why",
        spoken(START_BOUND)
    ))
}

/// Ends the datacenter that serves; returns what it was, once it is gone.
pub(crate) async fn stop(doors: &Doors) -> Result<Option<Serving>, String> {
    let Some(serving) = announced(doors)? else { return Ok(None) };
    castle_seams::terminate(serving.process).map_err(|error| format!("process {}: {error}", serving.process))?;
    let clock: &dyn Clock = doors.clock.as_ref();
    let begun = clock.monotonic();
    while clock.monotonic().saturating_sub(begun) < START_BOUND {
        if claim(doors)?.is_some() {
            return Ok(Some(serving));
        }
        clock.sleep(LOOK_PERIOD).await;
    }
    Err(format!("process {} does not end", serving.process))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;

    use castle_rehearsal::{ModelDisk, VirtualClock, in_virtual_time};
    use futures_util::future::{Either, select};

    use super::*;
    use crate::doors::Variables;

    const FILE: &str = "/state/datacenter/serving.json";

    fn serving() -> Serving {
        let recorded = r#"{"address":"127.0.0.1:8006","fingerprint":"AA:BB","process":7,"hosts":["pve"],"speed":1,"vault":"127.0.0.1:8443",
            "vault_fingerprint":"CC:DD","git":"127.0.0.1:9418","git_fingerprint":"EE:FF"}"#;
        serde_json::from_str(recorded).unwrap()
    }

    /// A datacenter that serves, and can be found.
    fn begun(clock: VirtualClock) -> (ModelDisk, Doors, Box<dyn LockGuard>) {
        let (disk, variables) = (ModelDisk::default(), [("CASTLE_STATE_DIR".to_owned(), "/state".into())]);
        let variables = Variables::These(Arc::new(variables.into()));
        let doors = Doors { disk: Arc::new(disk.clone()), clock: Arc::new(clock), variables, ..Doors::system() };
        let claim = claim(&doors).unwrap().unwrap();
        announce(&doors, &serving()).unwrap();
        (disk, doors, claim)
    }

    /// Whether the datacenter ends itself within a second.
    async fn ends(doors: &Doors) -> bool {
        let serving = serving();
        let (ended, second) = (pin!(lost(doors, &serving)), pin!(doors.clock.sleep(Duration::from_secs(1))));
        matches!(select(ended, second).await, Either::Left(_))
    }

    /// Goal: a datacenter ends only if what tells of it is removed, or another one's, and is found again otherwise. Method: every bit of that file is flipped,
    /// and more.
    #[test]
    fn only_who_removes_what_tells_of_a_datacenter_ends_it() {
        in_virtual_time(async |clock| {
            let (disk, doors, _claim) = begun(*clock);
            let (file, whole) = (Path::new(FILE), notes::bytes(&serving()));
            let flipped = (0..whole.len() * 8).map(|bit| {
                let mut bytes = whole.clone();
                bytes[bit / 8] ^= 1 << (bit % 8);
                bytes
            });
            for bytes in [Vec::new(), whole[..whole.len() / 2].to_vec()].into_iter().chain(flipped) {
                disk.tamper(file, bytes.clone());
                assert!(!ends(&doors).await, "{}", String::from_utf8_lossy(&bytes));
                assert_eq!(disk.contents()[file], whole);
            }
            disk.supplant(file);
            let told = find(&doors).unwrap_err();
            assert!(told.contains(FILE) && told.contains("\n  next: move it away"), "{told}");
            let (serving, second) = (serving(), Duration::from_secs(1));
            let moved_away = pin!(async {
                clock.sleep(second).await;
                disk.lose(file);
                clock.sleep(second).await;
            });
            assert!(matches!(select(pin!(lost(&doors, &serving)), moved_away).await, Either::Right(_)));
            assert_eq!(disk.contents()[file], whole);
            let other = Serving { process: 8, fingerprint: "11:22".to_owned(), ..serving.clone() };
            disk.tamper(file, notes::bytes(&other));
            assert!(ends(&doors).await, "another one");
            disk.lose(file);
            assert!(ends(&doors).await, "removed");
        })
        .unwrap();
    }

    /// Goal: a datacenter that serves is never told as none. Method: what tells of it is damaged, as it is found before that is mended.
    #[test]
    fn a_datacenter_whose_place_is_damaged_is_not_told_as_none() {
        in_virtual_time(async |clock| {
            let (disk, doors, claim) = begun(*clock);
            disk.tamper(Path::new(FILE), b"{".to_vec());
            let told = find(&doors).unwrap_err();
            assert!(told.contains(&format!("{FILE} is damaged\n  next: ")), "{told}");
            assert!(stop(&doors).await.is_err());
            drop(claim);
            assert!(find(&doors).unwrap().is_none(), "nobody serves");
        })
        .unwrap();
    }
}
