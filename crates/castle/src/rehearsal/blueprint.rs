//! The datacenter that a castle's file asks for, with neighbours who are none of its business.

use castle_datacenter::blueprint::{
    AclEntry, GIB, Host, Infisical, Placed, Storage, StorageKind, Stranger, Token, User,
};
use castle_datacenter::{Blueprint, EMBEDDED_ENVIRONMENT, EMBEDDED_PROJECT, EMBEDDED_VAULT};
use castle_engine::CastleId;
use castle_http::Endpoint;
use castle_layers::Site;
use castle_proxmox::model::{Mark, Place, Role};
use castle_spec::model::{self, Platform};
use castle_spec::{Castle, Node};

use super::standins::{CLIENT_ID, CLIENT_SECRET, TOKEN_NAME, TOKEN_SECRET, USER};

/// Another castle's.
const LINEAGE: &str = "0e4ea25a0e4ea25a";
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
    if let Some((iso_storage, _)) = iso_of(&site)
        && blueprint.storages.iter().all(|known| known.name != iso_storage)
    {
        blueprint.storages.push(own(iso_storage, StorageKind::Dir, &["iso"]));
    }
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
    blueprint.guests = neighbours(&site, nodes, &blueprint);
    blueprint.infisical = vault.map(vault_of).into_iter().collect();
    Ok(blueprint)
}

/// Guests right before and behind the castle's VMIDs, and one among them that no node needs: one is in its pool, one is of another
/// castle, and all of them have their disks where the castle has its own.
fn neighbours(site: &Site, nodes: &[Node], blueprint: &Blueprint) -> Vec<Stranger> {
    let (before, behind) = (site.vmids.start().saturating_sub(1), site.vmids.end().saturating_add(1));
    let Some(host) = blueprint.hosts.first() else { return Vec::new() };
    let storage = site.hardware.storage.as_str();
    let is_dir = blueprint.storages.iter().any(|known| known.name == storage && known.kind == StorageKind::Dir);
    let settled = |vmid: u32, name: &str| {
        let mut stranger = Stranger::new(vmid, &host.name, name, storage, 8);
        if is_dir {
            let volume = format!("{storage}:{vmid}/vm-{vmid}-disk-0.raw");
            stranger.volumes = vec![(volume.clone(), 8 * GIB)];
            stranger.config.insert("scsi0".to_owned(), format!("{volume},size=8G"));
        }
        stranger
    };
    let mut all = Vec::new();
    // What is below that Proxmox keeps for itself.
    if before >= 100 {
        all.push(Stranger { running: true, pool: site.pool.clone(), ..settled(before, "nas") });
    }
    if behind <= 999_999_999 {
        let mut other = settled(behind, "router");
        let castle = CastleId { name: "red/elsewhere".to_owned(), lineage: LINEAGE.to_owned(), generation: 1 };
        let mark = Mark {
            castle,
            name: "red-cp-1".to_owned(),
            role: Role::ControlPlane,
            place: Place { vmid: behind, cluster: None },
            operation: "0e4ea25a".to_owned(),
            epoch: 1,
            etcd: None,
        };
        other.config.insert("description".to_owned(), mark.to_string());
        all.push(other);
    }
    let is_free =
        |vmid: &u32| nodes.iter().all(|node| node.vmid.0 != *vmid) && site.image_vmids().all(|image| image != *vmid);
    all.extend(site.vmids.clone().find(is_free).map(|vmid| settled(vmid, "squatter")));
    all
}

/// The storage and the whole name of the ISO that the file has put into every node's drive.
fn iso_of(site: &Site) -> Option<(&str, &str)> {
    let (_, volume) = site.hardware.iso.as_ref()?;
    Some((volume.split_once(':')?.0, volume))
}

/// What others keep on the very storages that the castle's images and disks are on: host, name in full, and kind.
pub(crate) fn volumes_of_others(castle: &Castle) -> Vec<(String, String, &'static str)> {
    let site = Site::of(castle);
    let (images, storage) = (&site.images, &site.hardware.storage);
    let disk = if images == storage { "99/vm-99-disk-0.raw" } else { "vm-99-disk-0" };
    let mut all = Vec::new();
    for host in &site.hosts {
        // What the file names is there: somebody has put it there, as they will at home.
        all.extend(iso_of(&site).map(|(_, volume)| (host.clone(), volume.to_owned(), "iso")));
        all.push((host.clone(), format!("{images}:iso/somebody-elses.iso"), "iso"));
        let image = format!("castle-{}-elsewhere-{LINEAGE}-talos.qcow2", castle.castle.as_str());
        all.push((host.clone(), format!("{images}:import/{image}"), "import"));
        all.push((host.clone(), format!("{storage}:{disk}"), "images"));
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
        let placed = others.map(|(folder, name)| Placed::new(environment, folder, name, "what-others-keep"));
        project.secrets.extend(placed.into_iter().filter(|placed| !placed.path.is_empty()));
    }
    vault
}
