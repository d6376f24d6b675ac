//! What a token needs for a castle, what it lacks, and the commands that give it just that.
//!
//! The commands are made from the same list that the token is held against, so that they cannot disagree.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::Release;

/// The privileges on a path; presence tells that they are granted.
pub type Privileges = BTreeMap<String, BTreeMap<String, bool>>;

/// The place of all guests.
const ALL_GUESTS: &str = "/vms";
/// The zone of bridges that are no virtual networks.
const LOCAL_ZONE: &str = "localnetwork";

/// What a castle uses of a Proxmox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Needs {
    /// The resource pool of its guests.
    pub pool: Option<String>,
    /// The numbers of its guests.
    pub vmids: RangeInclusive<u32>,
    /// The hosts that may carry them.
    pub hosts: Vec<String>,
    /// The storage of their disks.
    pub disks: String,
    /// The storage that takes the download of the image.
    pub images: String,
    /// The storage of a CD image, if one is put in.
    pub iso: Option<String>,
    /// The bridge.
    pub bridge: String,
    /// The VLAN on it.
    pub vlan: Option<u32>,
    /// The SDN zone of the bridge; none for a bridge of the hosts themselves.
    pub zone: Option<String>,
}

/// One privilege at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The place: `/storage/local-lvm`.
    pub path: String,
    /// The privilege: `Datastore.AllocateSpace`.
    pub privilege: &'static str,
    /// What it is for.
    pub reason: &'static str,
    /// Whether castle also works without it, though not as well.
    pub optional: bool,
    /// Privileges that do as well.
    instead: &'static [&'static str],
    /// The guests that it must hold for, where it is about guests.
    guests: Option<RangeInclusive<u32>>,
}

impl Requirement {
    fn new(path: &str, privilege: &'static str, reason: &'static str) -> Self {
        Self { path: path.to_owned(), privilege, reason, optional: false, instead: &[], guests: None }
    }

    fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// Where it is lacking; nothing if it is granted.
    fn lacking(&self, granted: &Privileges) -> Option<String> {
        let has = |here: &BTreeMap<String, bool>| self.names().any(|name| here.contains_key(name));
        if self.path != ALL_GUESTS && self.is_inherited(granted, &self.path, true) {
            return None;
        }
        let Some(vmids) = &self.guests else { return Some(self.path.clone()) };
        let own: BTreeMap<u32, bool> = granted
            .iter()
            .filter_map(|(path, here)| Some((path.strip_prefix("/vms/")?.parse().ok()?, has(here))))
            .filter(|(vmid, _)| vmids.contains(vmid))
            .collect();
        let refused = own.iter().find(|(_, has)| !**has).map(|(vmid, _)| *vmid);
        match (self.is_inherited(granted, ALL_GUESTS, false), refused) {
            (true, None) => None,
            (true, Some(vmid)) if self.path == ALL_GUESTS => Some(format!("{ALL_GUESTS}/{vmid}")),
            (false, None) if own.len() == vmids.clone().count() => None,
            _ => Some(self.path.clone()),
        }
    }

    /// Whether it holds at a path: as listed there, or else as the nearest place above passes it on. `here` says whether what does
    /// not pass on counts at the path itself.
    fn is_inherited(&self, granted: &Privileges, path: &str, here: bool) -> bool {
        let mut place = path;
        loop {
            if let Some(listed) = granted.get(place) {
                let counts = |passes_on: &bool| *passes_on || (here && place == path);
                return self.names().any(|name| listed.get(name).is_some_and(counts));
            }
            place = match place.rsplit_once('/') {
                Some(("", "")) | None => return false,
                Some(("", _)) => "/",
                Some((above, _)) => above,
            };
        }
    }

    fn names(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.privilege).chain(self.instead.iter().copied())
    }
}

/// What castle does with guests, by the privilege that it takes.
const GUESTS: [(&str, &str); 12] = [
    ("VM.Allocate", "to make guests and to remove them"),
    ("VM.Audit", "to see guests"),
    ("VM.Clone", "to clone the image"),
    ("VM.Config.CDROM", "the drive that carries address and host name"),
    ("VM.Config.CPU", "CPU type and cores"),
    ("VM.Config.Cloudinit", "address and host name"),
    ("VM.Config.Disk", "disks and their sizes"),
    ("VM.Config.HWType", "machine type, disk controller and serial console"),
    ("VM.Config.Memory", "memory"),
    ("VM.Config.Network", "the network device"),
    ("VM.Config.Options", "name, tags and mark"),
    ("VM.PowerMgmt", "to start guests and to stop them"),
];

/// All that a castle needs, place by place.
#[must_use]
pub fn requirements(needs: &Needs) -> Vec<Requirement> {
    let pool = needs.pool.as_ref().map(|pool| format!("/pool/{pool}"));
    let guests = |path: &str, privilege, reason| Requirement {
        guests: Some(needs.vmids.clone()),
        ..Requirement::new(path, privilege, reason)
    };
    let home = pool.as_deref().unwrap_or(ALL_GUESTS);
    let mut all: Vec<Requirement> = GUESTS.map(|(privilege, reason)| guests(home, privilege, reason)).into();
    if let Some(pool) = &pool {
        all.push(Requirement::new(pool, "Pool.Audit", "to see the pool"));
    }
    all.extend(storage_requirements(needs));
    for host in &needs.hosts {
        let path = format!("/nodes/{host}");
        all.push(Requirement::new(&path, "Sys.AccessNetwork", "to let the host download the image"));
        all.push(Requirement::new(&path, "Sys.Audit", "free memory, so that nodes go where they fit").optional());
    }
    let zone = needs.zone.as_deref().unwrap_or(LOCAL_ZONE);
    let vlan = needs.vlan.map_or(String::new(), |vlan| format!("/{vlan}"));
    let bridge = format!("/sdn/zones/{zone}/{}{vlan}", needs.bridge);
    all.push(Requirement::new(&bridge, "SDN.Use", "to connect guests to the bridge"));
    all.push(Requirement::new("/", "Sys.Audit", "to see whether the cluster has a quorum").optional());
    all
}

fn storage_requirements(needs: &Needs) -> Vec<Requirement> {
    let path = |storage: &str| format!("/storage/{storage}");
    let (disks, images) = (path(&needs.disks), path(&needs.images));
    let seen = |path: &str, reason| Requirement {
        instead: &["Datastore.AllocateSpace"],
        ..Requirement::new(path, "Datastore.Audit", reason)
    };
    let mut all = vec![Requirement::new(&disks, "Datastore.AllocateSpace", "the disks of the guests")];
    all.push(Requirement::new(&images, "Datastore.AllocateTemplate", "the download of the image"));
    if images != disks {
        all.push(seen(&images, "to find the download of the image"));
    }
    all.push(
        Requirement::new(&images, "Datastore.Allocate", "to remove the download once it has become an image")
            .optional(),
    );
    let iso = needs.iso.as_deref().map(path);
    if let Some(iso) = iso.filter(|iso| *iso != disks && *iso != images) {
        all.push(seen(&iso, "the CD image"));
    }
    all
}

/// Those that are not granted. One that lacks for single guests alone names the first of them.
#[must_use]
pub fn missing(requirements: &[Requirement], granted: &Privileges) -> Vec<Requirement> {
    let lacks = |it: &Requirement| it.lacking(granted).map(|path| Requirement { path, ..it.clone() });
    requirements.iter().filter_map(lacks).collect()
}

/// The commands that make a token for a castle with all that it needs and nothing else, in order; lines that begin with `#` say why.
///
/// `user` is made if need be: `castle@pve`. Rights of a token are those that both it and its user have, so both are given them.
#[must_use]
pub fn pveum(needs: &Needs, release: Release, user: &str, castle: &str) -> Vec<String> {
    let all = requirements(needs);
    let token = token_name(castle);
    let mut roles: Vec<(String, String, BTreeSet<&str>)> = Vec::new();
    for Requirement { path, privilege, .. } in &all {
        match roles.iter_mut().find(|(other, ..)| other == path) {
            Some((_, _, privileges)) => drop(privileges.insert(privilege)),
            None => {
                roles.push((path.clone(), format!("castle-{castle}-{}", role_of(needs, path)), [*privilege].into()));
            }
        }
    }
    let mut lines = vec![
        format!(
            "# What the castle `{castle}` needs of Proxmox VE {}, and nothing else. As root, on any one host.",
            release.major
        ),
        "# Run it again whenever you like: of what exists already pveum says so, and goes on.".to_owned(),
    ];
    if let Some(pool) = &needs.pool {
        lines.push(format!("pveum pool add {pool}"));
    } else {
        lines.push(format!("# On {ALL_GUESTS}, which is every guest: rights to a single VMID go when its guest is removed, and castle could"));
        lines.push(
            "# never raise again what it took down. Name a `pool` in castle.yaml, and they are for the pool alone."
                .to_owned(),
        );
    }
    if needs.zone.is_none() {
        lines.push(format!("# If {} is a virtual network, write its zone in place of {LOCAL_ZONE}.", needs.bridge));
    }
    let optional: BTreeSet<(&str, &str)> =
        all.iter().filter(|it| it.optional).map(|it| (it.privilege, it.reason)).collect();
    lines.extend(optional.into_iter().map(|(privilege, reason)| format!("# Can be left out: {privilege} ({reason}).")));
    let distinct: BTreeMap<&str, &BTreeSet<&str>> =
        roles.iter().map(|(_, role, privileges)| (role.as_str(), privileges)).collect();
    for (role, privileges) in distinct {
        let privileges: Vec<&str> = privileges.iter().copied().collect();
        lines.push(format!("pveum role add {role}"));
        lines.push(format!("pveum role modify {role} --privs '{}'", privileges.join(" ")));
    }
    lines.push(format!("pveum user add {user}"));
    lines.push(
        "# Shows the secret once: keep it where `token` in castle.yaml says, as USER@REALM!NAME=SECRET.".to_owned(),
    );
    lines.push(format!("pveum user token add {user} {token} --privsep 1"));
    lines.push("# A token may what both it and its user may, so both are named.".to_owned());
    for (path, role, _) in &roles {
        let below = u8::from(path == ALL_GUESTS);
        lines.push(format!(
            "pveum acl modify {path} --users {user} --tokens '{user}!{token}' --roles {role} --propagate {below}"
        ));
    }
    lines
}

/// What a place is to a castle, in one word.
fn role_of(needs: &Needs, path: &str) -> &'static str {
    let storage = path.strip_prefix("/storage/");
    match path {
        "/" => "cluster",
        _ if path == ALL_GUESTS || path.starts_with("/pool/") => "guests",
        _ if path.starts_with("/nodes/") => "hosts",
        _ if path.starts_with("/sdn/") => "network",
        _ if storage == Some(&needs.disks) => "disks",
        _ if storage == Some(&needs.images) => "images",
        _ => "iso",
    }
}

/// The name of a castle's token: Proxmox wants two letters at least, and none that begins with a digit.
fn token_name(castle: &str) -> String {
    let fits = castle.len() > 1 && castle.starts_with(|first: char| first.is_ascii_alphabetic());
    if fits { castle.to_owned() } else { format!("castle-{castle}") }
}

#[cfg(test)]
mod tests;
