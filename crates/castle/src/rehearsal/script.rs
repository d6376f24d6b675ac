//! What is rehearsed: a castle's file and all that belongs to it, read once and never again.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use castle_components::lock::{self, Lock};
use castle_components::source::Source;
use castle_datacenter::{Blueprint, EMBEDDED_GIT, EMBEDDED_VAULT};
use castle_engine::Seal;
use castle_gitops::git;
use castle_rehearsal::{Chance, KeyStock, dawn};
use castle_seams::{BoxFuture, Clock, Disk, DiskErrorKind, KeyKind, KeyMint};
use castle_spec::model::{Platform, ServiceAccountKey};
use castle_spec::{Castle, Node};
use castle_talos::model::bundle::{self, Bundle};
use castle_talos::model::config::Contract;
use castle_talos::model::pki;

use super::blueprint::{VaultPlace, blueprint, host, vault};
use super::fitted;
use super::needles::Needles;
use super::standins::{GIT_TOKEN, Given};
use crate::doors::{Doors, Variables};
use crate::embedded;
use crate::project;
use crate::secret::with_keyring;

/// The folder of castle's memory in every world.
pub(crate) const STATE: &str = "/rehearsal/state";
/// Where a mirror is in every world.
const MIRROR: &str = "/rehearsal/mirror";
/// No file that a castle includes is longer.
const MAX_BYTES: u64 = 64 << 20;
/// As many keys of a kind as a castle needs; then the same again.
const MANY_KEYS: usize = 24;
/// What stands for a folder that the embedded datacenter follows.
const EMBEDDED: &str = "embedded";

/// The repository that Flux follows in a rehearsal.
#[derive(Clone, Debug)]
pub(crate) struct Repository {
    pub(crate) url: String,
    pub(crate) branch: String,
    pub(crate) token: Option<&'static str>,
    pub(crate) files: BTreeMap<String, Vec<u8>>,
}

/// What is rehearsed.
pub(crate) struct Script {
    /// castle.yaml, which is in every world where it is in this one.
    pub(crate) file: PathBuf,
    pub(crate) castle: Castle,
    pub(crate) nodes: Vec<Node>,
    /// Everything that is on the disk of a world at its beginning.
    pub(crate) files: BTreeMap<PathBuf, Vec<u8>>,
    pub(crate) variables: Arc<BTreeMap<String, OsString>>,
    pub(crate) blueprint: Blueprint,
    pub(crate) vault: Option<VaultPlace>,
    /// Entries of the castle's folder in its vault.
    pub(crate) vaulted: BTreeMap<String, String>,
    /// One that is not a followed folder.
    pub(crate) repository: Option<Repository>,
    pub(crate) mirror: Option<PathBuf>,
    /// What must not show anywhere.
    pub(crate) needles: Needles,
    pub(crate) stock: KeyStock,
    /// What of the castle is not rehearsed, for people.
    pub(crate) left_out: Vec<String>,
}

/// What a rehearsal is given beside the castle.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Props<'p> {
    /// The folder that Flux is to follow instead of the repository.
    pub(crate) tree: Option<&'p Path>,
    /// Where manifests come from.
    pub(crate) mirror: Option<&'p Path>,
}

impl Script {
    /// The castle that `path` means, read through these doors. Of its secrets nothing is read.
    pub(crate) async fn of(doors: &Doors, path: &Path, props: Props<'_>) -> Result<Self, String> {
        let disk = doors.disk.as_ref();
        let project::Read { file, castle, nodes } = project::read(disk, path)?;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let folder = disk.real_path(folder).map_err(|error| error.to_string())?;
        let castle = fitted(castle);
        let mut left_out = vec!["your hardware: times are those of a usual machine room".to_owned()];
        left_out.push("certificates, the checksum of your image, and where and for whom your state is kept".to_owned());
        if !castle.references().is_empty() {
            left_out.push("your secrets: each has a stand-in, and none was read".to_owned());
        }
        if castle.secrets.is_none() && castle.talos.bundle.is_none() {
            left_out.push("losing the state: nothing but the state has the secrets of the cluster".to_owned());
        }
        let mut files = Reading { disk, folder: &folder, files: BTreeMap::new() };
        files.included(&castle, &nodes)?;
        let mirror = props.mirror.map(|mirror| files.mirror(mirror)).transpose()?;
        if mirror.is_none() && castle.wanted_components().iter().any(|component| component.source.is_none()) {
            left_out.push("upstream's manifests: small ones stand in for them (--mirror takes yours)".to_owned());
        }
        let text = disk.read(&file, castle_spec::MAX_BYTES).map_err(|error| error.to_string())?;
        let mut text = String::from_utf8(text).map_err(|_| format!("{} is not text", file.display()))?;
        let repository = files.repository(&castle, props.tree, &mut text, &mut left_out)?;
        let file = folder.join("castle.yaml");
        let Reading { mut files, .. } = files;
        files.insert(file.clone(), text.into_bytes());
        let mut keys = vec![(KeyKind::Ed25519, MANY_KEYS), (KeyKind::EcdsaP256, MANY_KEYS)];
        if castle.talos.service_account_key.value == ServiceAccountKey::Rsa4096 {
            keys.push((KeyKind::Rsa4096, 1));
        }
        let stock = KeyStock::lay_in(doors.mint.as_ref(), &keys).await.map_err(|error| error.to_string())?;
        // The same for every script, as are all stand-ins: what is printed of a seed is the same each time.
        let chance = Chance::new(3);
        let identity = || Seal::mint_identity(&chance).map_err(|error| error.to_string());
        let (identity, age_key) = (identity()?, identity()?);
        let given = Given {
            castle: &castle,
            folder: &folder,
            identity: &identity,
            recipient: &recipient(doors, &identity)?,
            age_key: &age_key,
            bundle: &bundle(&castle, &stock.mint()).await?,
        };
        let planted = given.plant(dawn())?;
        let mut needles = Needles::of_stock(&stock);
        for (what, secret) in &planted.secrets {
            needles.add(what, secret);
        }
        files.extend(planted.files);
        let mut variables = planted.variables;
        for (name, value) in [("HOME", "/rehearsal/home"), ("CASTLE_STATE_DIR", STATE), ("USER", "rehearsal")] {
            variables.insert(name.to_owned(), value.into());
        }
        // A castle.yaml that was changed for the room is another castle.
        let reading = castle_spec::read(files.get(&file).map(Vec::as_slice).unwrap_or_default());
        let (castle, nodes) = reading.castle.map_or((castle, nodes), |castle| (fitted(castle), reading.nodes));
        let vault = vault(&castle)?;
        Ok(Self {
            blueprint: blueprint(&castle, &nodes, vault.as_ref())?,
            file,
            castle,
            nodes,
            files,
            variables: Arc::new(variables),
            vault,
            vaulted: planted.vault,
            repository,
            mirror,
            needles,
            stock,
            left_out,
        })
    }

    /// Names of this machine's network that lead to the datacenter: host and port there.
    pub(crate) fn ways(&self) -> Vec<((String, u16), (String, u16))> {
        let host_of = |address: &str| castle_http::Endpoint::parse(address).ok().map(|endpoint| endpoint.target);
        let mut ways = Vec::new();
        let first = self.blueprint.hosts.first().map(|host| host.name.clone()).unwrap_or_default();
        match &self.castle.platform.value {
            Platform::Embedded(_) => ways.push((("127.0.0.1".to_owned(), 8006), (first, castle_datacenter::PORT))),
            Platform::Proxmox(proxmox) => {
                if let Some(target) = host_of(proxmox.endpoint.as_str()) {
                    ways.push(((target.host, target.port), (first, castle_datacenter::PORT)));
                }
            }
        }
        let port = castle_datacenter::VAULT_PORT;
        ways.push((("127.0.0.2".to_owned(), 443), (EMBEDDED_VAULT.to_owned(), port)));
        ways.push((("127.0.0.3".to_owned(), 443), (EMBEDDED_GIT.to_owned(), port)));
        let own = match self.castle.secrets.as_deref() {
            Some(castle_spec::model::Vault::Infisical(infisical)) => host_of(&infisical.region.to_string()),
            _ => None,
        };
        let own = own.map_or(443, |target| target.port);
        ways.extend(self.vault.as_ref().map(|vault| ((vault.host.clone(), own), (vault.host.clone(), port))));
        let git = self.repository.as_ref().and_then(|repository| host_of(&repository.url));
        ways.extend(git.map(|target| ((target.host.clone(), target.port), (target.host, port))));
        ways
    }
}

/// The files of a castle, as they are read.
struct Reading<'r> {
    disk: &'r dyn Disk,
    folder: &'r Path,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

impl Reading<'_> {
    /// One that must be there.
    fn needed(&mut self, name: &str) -> Result<(), String> {
        let file = self.folder.join(name);
        let bytes = self.disk.read(&file, MAX_BYTES).map_err(|error| error.to_string())?;
        self.files.insert(file, bytes);
        Ok(())
    }

    /// Everything that castle.yaml names, but for secrets.
    fn included(&mut self, castle: &Castle, nodes: &[Node]) -> Result<(), String> {
        for patch in nodes.iter().flat_map(|node| node.patches.iter()) {
            self.needed(patch)?;
        }
        for component in castle.wanted_components() {
            for name in component.patches.iter().chain(&component.source) {
                self.needed(name)?;
            }
        }
        let file = self.folder.join(lock::FILE);
        match self.disk.read(&file, lock::MAX_BYTES) {
            Err(error) if error.kind == DiskErrorKind::NotFound => {}
            Err(error) => return Err(error.to_string()),
            Ok(bytes) => {
                let locked = Lock::read(&String::from_utf8_lossy(&bytes)).map_err(|error| error.to_string())?;
                for entry in locked.entries.values() {
                    if let Source::File(name) = &entry.source {
                        self.needed(name)?;
                    }
                }
                self.files.insert(file, bytes);
            }
        }
        Ok(())
    }

    /// A mirror, and where it is then.
    fn mirror(&mut self, mirror: &Path) -> Result<PathBuf, String> {
        let told = |error: castle_seams::DiskError| error.to_string();
        if self.disk.metadata(mirror).map_err(told)?.kind == castle_seams::FileKind::File {
            let place = Path::new(MIRROR).with_extension("tar");
            self.files.insert(place.clone(), self.disk.read(mirror, MAX_BYTES * 4).map_err(told)?);
            return Ok(place);
        }
        let place = PathBuf::from(MIRROR);
        for name in self.disk.list(mirror).map_err(told)? {
            let file = mirror.join(&name);
            if self.disk.metadata(&file).map_err(told)?.kind == castle_seams::FileKind::File {
                self.files.insert(place.join(&name), self.disk.read(&file, MAX_BYTES * 4).map_err(told)?);
            }
        }
        Ok(place)
    }

    /// The repository that Flux will follow: a folder of this machine, or the least that there can be.
    fn repository(
        &mut self,
        castle: &Castle,
        tree: Option<&Path>,
        text: &mut String,
        left_out: &mut Vec<String>,
    ) -> Result<Option<Repository>, String> {
        let Some(gitops) = castle.gitops.as_ref() else { return Ok(None) };
        let given = tree.map(|tree| embedded::files_of(self.disk, tree)).transpose()?;
        let address = gitops.repository.as_str();
        if address == EMBEDDED {
            let folder = gitops.folder.as_ref().map_or("gitops", |folder| folder.as_str());
            let folder = self.folder.join(folder);
            let files = given.map_or_else(|| embedded::files_of(self.disk, &folder), Ok)?;
            self.files.extend(files.into_iter().map(|(name, bytes)| (folder.join(name), bytes)));
            return Ok(None);
        }
        let mut url = address.to_owned();
        if git::is_ssh(address) {
            url = by_https(address);
            *text = text.replace(address, &url);
            left_out.push("the way to your repository by SSH: it is read by HTTPS".to_owned());
        }
        host(&url).map_err(|why| format!("gitops.repository: {why}"))?;
        if given.is_none() {
            left_out
                .push("your Git repository: the least there can be stands in for it (--tree takes yours)".to_owned());
        }
        let path = gitops
            .path
            .as_ref()
            .map_or_else(|| format!("clusters/{}", castle.castle.as_str()), |path| path.to_string());
        let names = gitops.critical.iter().chain(gitops.background.iter()).map(|(name, _)| name.value.as_str());
        let files = given.unwrap_or_else(|| least(path.trim_matches('/'), names));
        let token = gitops.credential.as_ref().map(|_| GIT_TOKEN);
        Ok(Some(Repository { url, branch: gitops.branch.as_str().to_owned(), token, files }))
    }
}

/// The same repository by HTTPS.
fn by_https(address: &str) -> String {
    let rest = address.strip_prefix("ssh://").unwrap_or(address);
    let rest = rest.split_once('@').map_or(rest, |(_, rest)| rest);
    let (host, path) = rest.split_once(['/', ':']).unwrap_or((rest, ""));
    // A port is not part of the path.
    let path = path.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start_matches('/');
    format!("https://{host}/{path}")
}

/// The least that Flux can follow: one object, and the Kustomizations that the castle names.
fn least<'n>(path: &str, names: impl Iterator<Item = &'n str>) -> BTreeMap<String, Vec<u8>> {
    let config = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: rehearsal-{name}, namespace: default}}\ndata: {{a: b}}\n"
        )
    };
    let mut files = BTreeMap::from([(format!("{path}/rehearsal.yaml"), config("least").into_bytes())]);
    for name in names {
        let text = format!(
            "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {{name: {name}, namespace: flux-system}}\n\
             spec: {{interval: 10m, path: ./rehearsal/{name}, prune: true, sourceRef: {{kind: GitRepository, name: flux-system}}}}\n"
        );
        files.insert(format!("{path}/{name}.yaml"), text.into_bytes());
        files.insert(format!("rehearsal/{name}/config.yaml"), config(name).into_bytes());
    }
    files
}

/// Whom an identity of age stands for.
fn recipient(doors: &Doors, identity: &str) -> Result<String, String> {
    let only = BTreeMap::from([("SOPS_AGE_KEY".to_owned(), identity.into())]);
    let disk = castle_rehearsal::ModelDisk::default();
    let doors = Doors { disk: Arc::new(disk), variables: Variables::These(Arc::new(only)), ..doors.clone() };
    let publics = with_keyring(&doors, |keyring| keyring.publics());
    publics.into_iter().next().ok_or_else(|| "an identity of age stands for nobody".to_owned())
}

/// The time at which every world begins: what is valid then is valid in it.
struct Dawn;

impl Clock for Dawn {
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }

    fn wall(&self) -> SystemTime {
        dawn()
    }

    fn sleep(&self, _: Duration) -> BoxFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

/// The secrets of a cluster that never was.
async fn bundle(castle: &Castle, mint: &dyn KeyMint) -> Result<String, String> {
    let contract = Contract::of(&castle.talos.version.value.to_string()).unwrap_or(Contract::V1_14);
    let options = bundle::Options { contract, service_account: bundle::ServiceAccountKey::EcdsaP256 };
    let made = Bundle::generate(options, pki::Doors { mint, entropy: &Chance::new(2), clock: &Dawn }).await;
    Ok(made.map_err(|error| error.to_string())?.save().expose().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_by_ssh_has_an_address_by_https() {
        for (address, expected) in [
            ("ssh://git@github.com/me/castle.git", "https://github.com/me/castle.git"),
            ("ssh://git@git.lan:2222/me/castle.git", "https://git.lan/me/castle.git"),
            ("git@github.com:me/castle.git", "https://github.com/me/castle.git"),
        ] {
            assert_eq!(by_https(address), expected);
        }
    }
}
