//! Who may call what.

use std::any::Any;

use castle_talos_api::machine::ApplyConfigurationRequest;

/// Who may: administrators, and those of these besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Besides {
    Nobody,
    Operators,
    /// Operators and readers.
    Readers,
    /// Those, and whoever makes backups.
    Backups,
    /// Operators and whoever makes backups.
    Snapshots,
    /// Readers only where the node is in maintenance, which the call itself looks at.
    Maintenance,
    MetaWriters,
}

fn besides(method: &str) -> Besides {
    match method {
        "ApplyConfiguration" | "BlockDeviceWipe" => Besides::Maintenance,
        "EtcdAlarmList" | "EtcdMemberList" | "EtcdStatus" => Besides::Backups,
        "EtcdSnapshot" => Besides::Snapshots,
        "MetaWrite" | "MetaDelete" => Besides::MetaWriters,
        "EtcdAlarmDisarm" | "EtcdDefragment" | "Reboot" | "ServiceRestart" | "ServiceStart" | "ServiceStop"
        | "Shutdown" => Besides::Operators,
        "Containers" | "Disks" | "Dmesg" | "Events" | "Get" | "HealthCheck" | "Hostname" | "List" | "LoadAvg"
        | "Logs" | "LogsContainers" | "Memory" | "Mounts" | "ServiceList" | "SystemStat" | "Time" | "TimeCheck"
        | "Version" | "Watch" => Besides::Readers,
        _ => Besides::Nobody,
    }
}

/// Whether somebody of these roles may call a method.
pub(super) fn may(roles: &[String], method: &str) -> bool {
    let has = |role: &str| roles.iter().any(|known| known == role);
    if has("os:admin") {
        return true;
    }
    let (operator, reader, backup) = (has("os:operator"), has("os:reader"), has("os:etcd:backup"));
    match besides(method) {
        Besides::Nobody => false,
        Besides::Operators => operator,
        Besides::Readers => operator || reader,
        Besides::Backups => operator || reader || backup,
        Besides::Snapshots => operator || backup,
        Besides::Maintenance => reader,
        Besides::MetaWriters => has("os:meta:writer"),
    }
}

/// Whether a call asks for more than to look.
pub(super) fn is_change(method: &str) -> bool {
    !matches!(besides(method), Besides::Readers | Besides::Backups | Besides::Snapshots)
        && !["GenerateClientConfiguration", "Kubeconfig", "Read"].contains(&method)
}

/// Whether somebody only asks what would be.
pub(super) fn is_dry(message: &dyn Any) -> bool {
    message.downcast_ref::<ApplyConfigurationRequest>().is_some_and(|asked| asked.dry_run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_decide_what_may_be_called() {
        let of = |role: &str| vec![role.to_owned()];
        for (role, method, expected) in [
            ("os:admin", "Reset", true),
            ("os:operator", "Reboot", true),
            ("os:operator", "Reset", false),
            ("os:reader", "Version", true),
            ("os:reader", "Bootstrap", false),
            ("os:reader", "Kubeconfig", false),
            ("os:reader", "ApplyConfiguration", true),
            ("os:operator", "ApplyConfiguration", false),
            ("os:etcd:backup", "EtcdSnapshot", true),
            ("os:etcd:backup", "Version", false),
            ("os:meta:writer", "MetaWrite", true),
        ] {
            assert_eq!(may(&of(role), method), expected, "{role} {method}");
        }
        assert!(is_change("Bootstrap") && !is_change("Kubeconfig") && !is_change("Watch"));
    }
}
