//! What a datacenter is made of before anything happens in it.

use std::collections::BTreeMap;
use std::time::Duration;

pub use crate::chance::{Seed, Span};
pub use crate::infisical::blueprint::{
    Approvals, Import, Infisical, LONGEST_TOKEN, MachineIdentity, Placed, Project, RateLimits, Right,
};
pub use crate::kubernetes::workloads::PodFault;
pub use crate::proxmox::api::Version;

mod latencies;
mod roles;

pub use latencies::{ComponentLatencies, Latencies, TalosLatencies, WorkloadLatencies};
pub(crate) use roles::{BUILTIN, builtin};

/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// The secret of the token `castle@pve!embedded`, unless [`Blueprint::with_keys`] gives another. It is no secret: it is for datacenters that
/// nobody else can reach.
pub const EMBEDDED_TOKEN: &str = "ca571e00-0000-4000-8000-000000000000";

/// Who logs in at the vault of the datacenter that castle embeds.
pub const EMBEDDED_CLIENT_ID: &str = "ca571e00-0000-4000-8000-000000000001";

/// What [`EMBEDDED_CLIENT_ID`] logs in with, unless [`Blueprint::with_keys`] gives another. It is no secret either.
pub const EMBEDDED_CLIENT_SECRET: &str = "embedded-embedded-embedded-embedded";

/// The name of that vault.
pub const EMBEDDED_VAULT: &str = "infisical";
/// The host of repositories of the embedded datacenter, as clusters in it know it.
pub const EMBEDDED_GIT: &str = "git.embedded";

/// The one project in it.
pub const EMBEDDED_PROJECT: &str = "castle";

/// The one environment of that project.
pub const EMBEDDED_ENVIRONMENT: &str = "embedded";

/// The token that [`EMBEDDED_TOKEN`] belongs to.
pub const EMBEDDED_TOKEN_ID: &str = "castle@pve!embedded";

/// The password of `root@pam` in the embedded datacenter, unless [`Blueprint::with_keys`] gives another; no secret either.
pub const EMBEDDED_PASSWORD: &str = "castle";

/// What opens a datacenter that others can reach, in place of what everybody knows. It has no `Debug`.
pub struct Keys<'k> {
    /// The secret of [`EMBEDDED_TOKEN_ID`].
    pub token: &'k str,
    /// The password of `root@pam`.
    pub password: &'k str,
    /// What [`EMBEDDED_CLIENT_ID`] logs in with.
    pub client_secret: &'k str,
    /// What signs tickets, and what tokens and keys are drawn from.
    pub seed: &'k [u8; 32],
}

/// What a datacenter is made of.
#[derive(Clone, Debug, PartialEq)]
pub struct Blueprint {
    /// The generation of Proxmox VE that is spoken.
    pub version: Version,
    /// The name of the cluster, told by more than one host.
    pub cluster: String,
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The storages.
    pub storages: Vec<Storage>,
    /// The bridges that every host has.
    pub bridges: Vec<String>,
    /// The users.
    pub users: Vec<User>,
    /// The roles besides those that Proxmox brings: name and privileges.
    pub roles: BTreeMap<String, Vec<String>>,
    /// Who may do what where, besides `root@pam`, who may everything.
    pub acl: Vec<AclEntry>,
    /// The pools.
    pub pools: Vec<String>,
    /// The guests that are there already.
    pub guests: Vec<Stranger>,
    /// What all draws come from.
    pub seed: Seed,
    /// How long things take.
    pub latencies: Latencies,
    /// Whether the cluster has a quorum.
    pub has_quorum: bool,
    /// The vaults.
    pub infisical: Vec<Infisical>,
    /// The pods that go wrong, in every cluster and from its beginning.
    pub faulty_pods: Vec<FaultyPods>,
}

/// Pods that go wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultyPods {
    /// Their namespace.
    pub namespace: String,
    /// What their names begin with.
    pub prefix: String,
    /// What goes wrong.
    pub fault: PodFault,
}

/// A machine that guests run on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name in the cluster, by which it is also dialled.
    pub name: String,
    /// Other names that lead to it: a domain name, an address.
    pub aliases: Vec<String>,
    /// Logical processors.
    pub cores: u32,
    /// Memory, in bytes.
    pub memory: u64,
}

impl Host {
    /// A host of 64 cores and 256 GiB.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), aliases: Vec::new(), cores: 64, memory: 256 * GIB }
    }
}

/// What a storage is built on, which decides its names of volumes and what it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageKind {
    /// Files in a folder.
    Dir,
    /// A thin pool of logical volumes.
    LvmThin,
    /// Logical volumes that take their whole size at once; no linked clones.
    Lvm,
    /// Datasets of a ZFS pool.
    ZfsPool,
    /// Ceph images, the same from all hosts.
    Rbd,
}

impl StorageKind {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Dir => "dir",
            Self::LvmThin => "lvmthin",
            Self::Lvm => "lvm",
            Self::ZfsPool => "zfspool",
            Self::Rbd => "rbd",
        }
    }
}

/// A place for volumes. One that is not shared is a place of its own on each host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// Its name.
    pub name: String,
    /// What it is built on.
    pub kind: StorageKind,
    /// Whether all hosts see the same volumes.
    pub shared: bool,
    /// The kinds of content it takes: `images`, `rootdir`, `iso`, `vztmpl`, `import`, `backup`, `snippets`.
    pub content: Vec<String>,
    /// Its size in bytes, on each host if it is not shared.
    pub total: u64,
    /// The hosts that have it; all if empty.
    pub hosts: Vec<String>,
}

impl Storage {
    /// A storage of this kind on all hosts; Ceph is shared.
    #[must_use]
    pub fn new(name: &str, kind: StorageKind, content: &[&str], total: u64) -> Self {
        Self {
            name: name.to_owned(),
            kind,
            shared: kind == StorageKind::Rbd,
            content: content.iter().map(|&word| word.to_owned()).collect(),
            total,
            hosts: Vec::new(),
        }
    }
}

/// Somebody who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// The name with its realm: `castle@pve`.
    pub id: String,
    /// The password for tickets, if there is one.
    pub password: Option<String>,
    /// The tokens.
    pub tokens: Vec<Token>,
}

/// A token of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Its name, without that of the user.
    pub name: String,
    /// Its secret.
    pub secret: String,
    /// Whether it has only those rights that it and its user have been given; else it has those of the user.
    pub privsep: bool,
}

/// A right at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AclEntry {
    /// The place: `/`, `/vms/100`, `/pool/blue`.
    pub path: String,
    /// A user, or a token as `user@realm!token`.
    pub who: String,
    /// The role.
    pub role: String,
    /// Whether it holds below the place too.
    pub propagate: bool,
}

impl AclEntry {
    /// A right at a place and below.
    #[must_use]
    pub fn new(path: &str, who: &str, role: &str) -> Self {
        Self { path: path.to_owned(), who: who.to_owned(), role: role.to_owned(), propagate: true }
    }
}

/// A guest that is there from the beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Its number.
    pub vmid: u32,
    /// The host it is on.
    pub host: String,
    /// Its configuration, as in its file.
    pub config: BTreeMap<String, String>,
    /// Its volumes: name in full and size in bytes.
    pub volumes: Vec<(String, u64)>,
    /// Whether it runs.
    pub running: bool,
    /// Its pool.
    pub pool: Option<String>,
}

impl Stranger {
    /// A guest with one disk of this size on this storage.
    #[must_use]
    pub fn new(vmid: u32, host: &str, name: &str, storage: &str, gib: u64) -> Self {
        let volume = format!("{storage}:vm-{vmid}-disk-0");
        let config = [
            ("boot", "order=scsi0".to_owned()),
            ("cores", "2".to_owned()),
            ("memory", "2048".to_owned()),
            ("name", name.to_owned()),
            ("net0", format!("virtio=BC:24:11:00:{:02X}:{:02X},bridge=vmbr0", vmid >> 8 & 0xff, vmid & 0xff)),
            ("ostype", "l26".to_owned()),
            ("scsi0", format!("{volume},size={gib}G")),
            ("scsihw", "virtio-scsi-single".to_owned()),
            ("smbios1", format!("uuid=00000000-0000-4000-8000-{vmid:012}")),
        ];
        Self {
            vmid,
            host: host.to_owned(),
            config: config.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
            volumes: vec![(volume, gib * GIB)],
            running: false,
            pool: None,
        }
    }
}

impl Blueprint {
    /// The datacenter that the product serves: generation 9 with these hosts, a token with the least privileges that
    /// castle needs, two guests that are nobody's business, and a vault. One host of the name `pve` if none is named.
    #[must_use]
    pub fn embedded(hosts: &[String]) -> Self {
        let mut hosts: Vec<Host> = hosts.iter().map(|name| Host::new(name)).collect();
        if hosts.is_empty() {
            hosts.push(Host::new("pve"));
        }
        let mut nas = Stranger::new(100, &hosts[0].name, "nas", "local-lvm", 64);
        nas.running = true;
        let router = Stranger::new(101, &hosts[0].name, "router", "local-lvm", 8);
        let least = roles::LEAST.iter().map(|&word| word.to_owned()).collect();
        Self {
            version: Version::Nine,
            cluster: "embedded".to_owned(),
            hosts,
            storages: vec![
                Storage::new("local", StorageKind::Dir, &["iso", "vztmpl", "import", "backup"], 500 * GIB),
                Storage::new("local-lvm", StorageKind::LvmThin, &["images", "rootdir"], 4096 * GIB),
            ],
            bridges: vec!["vmbr0".to_owned()],
            users: vec![
                User {
                    id: "castle@pve".to_owned(),
                    password: None,
                    tokens: vec![Token {
                        name: "embedded".to_owned(),
                        secret: EMBEDDED_TOKEN.to_owned(),
                        privsep: false,
                    }],
                },
                User { id: "root@pam".to_owned(), password: Some(EMBEDDED_PASSWORD.to_owned()), tokens: Vec::new() },
            ],
            roles: BTreeMap::from([("Castle".to_owned(), least)]),
            acl: vec![AclEntry::new("/", "castle@pve", "Castle")],
            pools: Vec::new(),
            guests: vec![nas, router],
            seed: Seed::from(0),
            latencies: Latencies::default(),
            has_quorum: true,
            infisical: vec![Infisical::new(
                EMBEDDED_VAULT,
                EMBEDDED_PROJECT,
                &[EMBEDDED_ENVIRONMENT],
                EMBEDDED_CLIENT_ID,
                EMBEDDED_CLIENT_SECRET,
            )],
            faulty_pods: Vec::new(),
        }
    }

    /// The same on the other generation. The privilege to ask the guest agent has another name there.
    #[must_use]
    pub fn on(mut self, version: Version) -> Self {
        let (old, new) = match version {
            Version::Eight => ("VM.GuestAgent.Audit", "VM.Monitor"),
            Version::Nine => ("VM.Monitor", "VM.GuestAgent.Audit"),
        };
        for privileges in self.roles.values_mut() {
            for privilege in privileges.iter_mut().filter(|privilege| *privilege == old) {
                new.clone_into(privilege);
            }
        }
        Self { version, ..self }
    }

    /// The embedded datacenter with keys of its own.
    #[must_use]
    pub fn with_keys(mut self, keys: &Keys<'_>) -> Self {
        for user in &mut self.users {
            if let Some(password) = &mut user.password {
                keys.password.clone_into(password);
            }
            for token in &mut user.tokens {
                keys.token.clone_into(&mut token.secret);
            }
        }
        for vault in self.infisical.iter_mut().filter(|vault| vault.host == EMBEDDED_VAULT) {
            for identity in vault.identities.iter_mut().filter(|identity| identity.client_id == EMBEDDED_CLIENT_ID) {
                keys.client_secret.clone_into(&mut identity.client_secret);
            }
        }
        self.seed = Seed::from(*keys.seed);
        self
    }

    /// The same with these latencies.
    #[must_use]
    pub fn with_latencies(self, latencies: Latencies) -> Self {
        Self { latencies, ..self }
    }

    /// The same with one more vault.
    #[must_use]
    pub fn with_vault(mut self, vault: Infisical) -> Self {
        self.infisical.push(vault);
        self
    }

    /// The same with another seed.
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed: seed.into(), ..self }
    }
}

/// How often hosts tell each other what their guests do.
pub const BROADCAST: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_blueprint_has_a_host_of_every_name() {
        let blueprint = Blueprint::embedded(&["a".to_owned(), "b".to_owned()]);
        let names: Vec<&str> = blueprint.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(Blueprint::embedded(&[]).hosts[0].name, "pve");
    }

    #[test]
    fn the_privilege_for_the_agent_follows_the_generation() {
        let role = |version| Blueprint::embedded(&[]).on(version).roles["Castle"].clone();
        assert!(role(Version::Eight).contains(&"VM.Monitor".to_owned()));
        assert!(!role(Version::Eight).iter().any(|word| word.starts_with("VM.GuestAgent")));
        assert!(role(Version::Nine).contains(&"VM.GuestAgent.Audit".to_owned()));
    }
}
