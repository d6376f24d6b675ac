//! The datacenter that a castle's file asks for, with neighbours who are none of its business.

use castle_datacenter::blueprint::{
    AclEntry, GIB, Host, Infisical, Placed, Storage, StorageKind, Stranger, Token, User,
};
use castle_datacenter::{Blueprint, EMBEDDED_ENVIRONMENT, EMBEDDED_PROJECT, EMBEDDED_VAULT};
use castle_http::Endpoint;
use castle_layers::Site;
use castle_spec::model::{self, Platform};
use castle_spec::{Castle, Node};

use super::standins::{CLIENT_ID, CLIENT_SECRET, TOKEN_NAME, TOKEN_SECRET, USER};

/// Where somebody else keeps volumes.
const ELSEWHERE: &str = "somebody-elses";
const EVERYTHING: [&str; 6] = ["images", "rootdir", "iso", "vztmpl", "import", "backup"];

/// The castle's vault in a rehearsal.
#[derive(Clone, Debug)]
pub(crate) struct VaultPlace {
    pub(crate) host: String,
    pub(crate) project: String,
    pub(crate) environment: String,
    /// The castle's folder.
    pub(crate) folder: String,
}

/// Where the castle's vault is, if it has one.
pub(crate) fn vault(castle: &Castle) -> Result<Option<VaultPlace>, String> {
    Ok(match castle.secrets.as_deref() {
        None => None,
        Some(model::Vault::Embedded(())) => Some(VaultPlace {
            host: EMBEDDED_VAULT.to_owned(),
            project: EMBEDDED_PROJECT.to_owned(),
            environment: EMBEDDED_ENVIRONMENT.to_owned(),
            folder: format!("/castle/{}/embedded", castle.castle.as_str()),
        }),
        Some(model::Vault::Infisical(infisical)) => Some(VaultPlace {
            host: match infisical.region.to_string().as_str() {
                "us" => "app.infisical.com".to_owned(),
                "eu" => "eu.infisical.com".to_owned(),
                own => host(own).map_err(|why| format!("secrets.infisical.region: {why}"))?,
            },
            project: infisical.project.as_str().to_owned(),
            environment: infisical.environment.as_str().to_owned(),
            folder: infisical.path.as_ref().map_or_else(String::new, |path| path.as_str().to_owned()),
        }),
    })
}

/// The host of an address.
pub(crate) fn host(address: &str) -> Result<String, String> {
    Ok(Endpoint::parse(address).map_err(|error| error.to_string())?.target.host)
}

/// The datacenter: what the file names, enough of it, and neighbours.
pub(crate) fn blueprint(castle: &Castle, nodes: &[Node], vault: Option<&VaultPlace>) -> Result<Blueprint, String> {
    let site = Site::of(castle);
    let mut blueprint = Blueprint::embedded(&site.hosts);
    let memory: u64 = nodes.iter().map(|node| node.memory.mib() << 20).sum();
    let disks: u64 =
        nodes.iter().map(|node| node.disk.mib() + node.data_disk.as_ref().map_or(0, |disk| disk.mib())).sum();
    let cores: u32 = nodes.iter().map(|node| node.cores.value).sum();
    for host in &mut blueprint.hosts {
        host.memory = host.memory.max(memory * 2);
        host.cores = host.cores.max(cores);
    }
    let room = 4096 * GIB + (disks << 21);
    let own = |name: &str, kind, content: &[&str]| Storage::new(name, kind, content, room);
    let (images, storage) = (site.images.as_str(), site.hardware.storage.as_str());
    blueprint.storages = if images == storage {
        vec![own(images, StorageKind::Dir, &EVERYTHING)]
    } else {
        vec![
            own(images, StorageKind::Dir, &["iso", "vztmpl", "import", "backup"]),
            own(storage, StorageKind::LvmThin, &["images", "rootdir"]),
        ]
    };
    blueprint.storages.push(own(ELSEWHERE, StorageKind::LvmThin, &["images", "rootdir"]));
    blueprint.bridges = vec![site.hardware.bridge.clone()];
    blueprint.pools.extend(site.pool.clone());
    if let Platform::Proxmox(proxmox) = &castle.platform.value {
        let way_in = host(proxmox.endpoint.as_str()).map_err(|why| format!("platform.proxmox.endpoint: {why}"))?;
        if let Some(first) = blueprint.hosts.first_mut().filter(|first: &&mut Host| first.name != way_in) {
            first.aliases.push(way_in);
        }
        let token = Token { name: TOKEN_NAME.to_owned(), secret: TOKEN_SECRET.to_owned(), privsep: false };
        blueprint.users = vec![User { id: USER.to_owned(), password: None, tokens: vec![token] }];
        blueprint.acl = vec![AclEntry::new("/", USER, "Castle")];
    }
    blueprint.guests = neighbours(&site, &blueprint.hosts);
    blueprint.infisical = vault.map(vault_of).into_iter().collect();
    Ok(blueprint)
}

/// Guests right before and behind the castle's VMIDs; one of them in its pool, if it has one.
fn neighbours(site: &Site, hosts: &[Host]) -> Vec<Stranger> {
    let (before, behind) = (site.vmids.start().saturating_sub(1), site.vmids.end().saturating_add(1));
    let Some(host) = hosts.first() else { return Vec::new() };
    let mut all = Vec::new();
    for (vmid, name, running) in [(before, "nas", true), (behind, "router", false)] {
        // What is below that Proxmox keeps for itself.
        if (100..=999_999_999).contains(&vmid) {
            let mut stranger = Stranger::new(vmid, &host.name, name, ELSEWHERE, 8);
            stranger.running = running;
            stranger.pool = site.pool.clone().filter(|_| running);
            all.push(stranger);
        }
    }
    all
}

/// A vault with the castle's project, and with what others keep there: beside its folder, above it, and in it.
fn vault_of(place: &VaultPlace) -> Infisical {
    let VaultPlace { host, project, environment, folder } = place;
    let mut vault = if host == EMBEDDED_VAULT {
        let mut embedded = Blueprint::embedded(&[]).infisical;
        embedded.remove(0)
    } else {
        Infisical::new(host, project, &[environment], CLIENT_ID, CLIENT_SECRET)
    };
    let others = [("/", "OF_SOMEBODY"), ("/somebody/else", "OF_SOMEBODY_ELSE"), (folder.as_str(), "OF_A_COLLEAGUE")];
    for project in &mut vault.projects {
        let placed = others.map(|(folder, name)| Placed::new(environment, folder, name, "not castle's"));
        project.secrets.extend(placed.into_iter().filter(|placed| !placed.path.is_empty()));
    }
    vault
}
