//! The privileges, and the roles that Proxmox brings.

use super::Version;

/// What castle needs, and no more.
pub(super) const LEAST: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Pool.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "VM.Allocate",
    "VM.Audit",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.GuestAgent.Audit",
    "VM.PowerMgmt",
];

/// Every privilege of both generations.
const ALL: &[&str] = &[
    "Datastore.Allocate",
    "Datastore.AllocateSpace",
    "Datastore.AllocateTemplate",
    "Datastore.Audit",
    "Group.Allocate",
    "Mapping.Audit",
    "Mapping.Modify",
    "Mapping.Use",
    "Permissions.Modify",
    "Pool.Allocate",
    "Pool.Audit",
    "Realm.Allocate",
    "Realm.AllocateUser",
    "SDN.Allocate",
    "SDN.Audit",
    "SDN.Use",
    "Sys.AccessNetwork",
    "Sys.Audit",
    "Sys.Console",
    "Sys.Incoming",
    "Sys.Modify",
    "Sys.PowerMgmt",
    "Sys.Syslog",
    "User.Modify",
    "VM.Allocate",
    "VM.Audit",
    "VM.Backup",
    "VM.Clone",
    "VM.Config.CDROM",
    "VM.Config.CPU",
    "VM.Config.Cloudinit",
    "VM.Config.Disk",
    "VM.Config.HWType",
    "VM.Config.Memory",
    "VM.Config.Network",
    "VM.Config.Options",
    "VM.Console",
    "VM.GuestAgent.Audit",
    "VM.GuestAgent.FileRead",
    "VM.GuestAgent.FileSystemMgmt",
    "VM.GuestAgent.FileWrite",
    "VM.GuestAgent.Unrestricted",
    "VM.Migrate",
    "VM.Monitor",
    "VM.PowerMgmt",
    "VM.Replicate",
    "VM.Snapshot",
    "VM.Snapshot.Rollback",
];

/// Whether this generation knows the privilege.
fn is_known(version: Version, privilege: &str) -> bool {
    match version {
        Version::Eight => !privilege.starts_with("VM.GuestAgent.") && privilege != "VM.Replicate",
        Version::Nine => privilege != "VM.Monitor",
    }
}

/// The roles that Proxmox brings.
pub(crate) const BUILTIN: &[&str] = &[
    "Administrator",
    "NoAccess",
    "PVEAdmin",
    "PVEAuditor",
    "PVEDatastoreAdmin",
    "PVEDatastoreUser",
    "PVEPoolAdmin",
    "PVEPoolUser",
    "PVESDNAdmin",
    "PVESDNUser",
    "PVESysAdmin",
    "PVETemplateUser",
    "PVEVMAdmin",
    "PVEVMUser",
];

/// The privileges of a role that Proxmox brings.
pub(crate) fn builtin(version: Version, role: &str) -> Option<Vec<&'static str>> {
    // The two that only the administrator has.
    const SYSTEM: &[&str] = &["Permissions.Modify", "Realm.Allocate", "Sys.Incoming", "Sys.Modify", "Sys.PowerMgmt"];
    let all = || ALL.iter().copied().filter(|privilege| is_known(version, privilege));
    let below = |prefix: &'static str| all().filter(move |privilege| privilege.starts_with(prefix));
    let listed = |names: &[&'static str]| names.to_vec();
    Some(match role {
        "Administrator" => all().collect(),
        "PVEAdmin" => all().filter(|privilege| !SYSTEM.contains(privilege)).collect(),
        "PVEVMAdmin" => below("VM.").collect(),
        "PVEVMUser" => {
            let mut user = listed(&["VM.Audit", "VM.Backup", "VM.Config.CDROM", "VM.Config.Cloudinit", "VM.Console"]);
            user.push("VM.PowerMgmt");
            let agent = if version == Version::Eight { "VM.Monitor" } else { "VM.GuestAgent.Audit" };
            user.push(agent);
            user
        }
        "PVETemplateUser" => listed(&["VM.Audit", "VM.Clone"]),
        "PVEDatastoreAdmin" => below("Datastore.").collect(),
        "PVEDatastoreUser" => listed(&["Datastore.AllocateSpace", "Datastore.Audit"]),
        "PVEPoolAdmin" => listed(&["Pool.Allocate", "Pool.Audit"]),
        "PVEPoolUser" => listed(&["Pool.Audit"]),
        "PVESDNAdmin" => below("SDN.").collect(),
        "PVESDNUser" => listed(&["SDN.Audit", "SDN.Use"]),
        "PVESysAdmin" => listed(&["Permissions.Modify", "Sys.Audit", "Sys.Console", "Sys.Syslog"]),
        "PVEAuditor" => all().filter(|privilege| privilege.ends_with(".Audit")).collect(),
        "NoAccess" => Vec::new(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_holds_only_what_its_generation_knows() {
        let eight = builtin(Version::Eight, "Administrator").unwrap();
        assert!(eight.contains(&"VM.Monitor") && !eight.contains(&"VM.GuestAgent.Audit"));
        let nine = builtin(Version::Nine, "PVEVMAdmin").unwrap();
        assert!(nine.contains(&"VM.GuestAgent.Audit") && !nine.contains(&"VM.Monitor"));
        assert_eq!(builtin(Version::Nine, "Castle"), None);
    }

    #[test]
    fn what_castle_needs_exists() {
        assert!(LEAST.iter().all(|privilege| ALL.contains(privilege) && is_known(Version::Nine, privilege)));
    }
}
