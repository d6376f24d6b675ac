//! Options of a guest: how they are stored, and how they are told.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::api::{self, Kind, Version};
use super::rights::is_numbered;
use crate::world::World;

/// Parameters of a request that are no options of a guest.
pub(super) const NOT_OPTIONS: &[&str] = &[
    "archive",
    "background_delay",
    "bwlimit",
    "delete",
    "digest",
    "force",
    "ha-managed",
    "idlist",
    "import-working-storage",
    "live-restore",
    "node",
    "pool",
    "revert",
    "skiplock",
    "start",
    "storage",
    "unique",
    "vmid",
];

/// An option as it is stored.
pub(super) fn stored(world: &mut World, vmid: u32, key: &str, value: &str) -> Result<String, String> {
    if is_numbered(key, "net") {
        return network(world, vmid, key, value);
    }
    Ok(match key {
        "tags" => tags(value),
        "description" => value.trim_end_matches('\n').to_owned(),
        _ => value.to_owned(),
    })
}

/// Each tag once, in small letters, in order.
fn tags(text: &str) -> String {
    let words = text.split([',', ';', ' ', '\0']).filter(|word| !word.is_empty()).map(str::to_lowercase);
    words.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(";")
}

/// A network device as it is printed. One without a hardware address is given one.
fn network(world: &mut World, vmid: u32, key: &str, value: &str) -> Result<String, String> {
    let mut parts = api::properties(world.version, key, value)?;
    let mac = match parts.get("macaddr") {
        Some(mac) => mac.to_uppercase(),
        None => new_mac(world, vmid),
    };
    parts.insert("macaddr".to_owned(), mac);
    api::print(world.version, key, &parts)
}

/// A hardware address with the vendor's prefix.
pub(super) fn new_mac(world: &mut World, vmid: u32) -> String {
    let [a, b, c, ..] = world.chance.bytes(&format!("mac {vmid}"));
    format!("BC:24:11:{a:02X}:{b:02X}:{c:02X}")
}

/// A random UUID.
pub(super) fn new_uuid(world: &mut World, vmid: u32) -> String {
    let bytes = world.chance.bytes(&format!("uuid {vmid}"));
    let hex = crate::world::guest::hex(&bytes[..16]);
    let (variant, rest) = (["8", "9", "a", "b"][usize::from(bytes[16] & 3)], &hex[17..20]);
    format!("{}-{}-4{}-{variant}{rest}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[20..32])
}

/// What is known of an option of this name.
pub(super) fn field(version: Version, key: &str) -> Option<&'static api::Field> {
    let operation = api::operations(version).find(|operation| operation.call == api::Call::SetConfig)?;
    operation
        .parameters(version)
        .find(|field| field.name == key || (field.highest_index.is_some() && is_numbered(key, field.name)))
}

/// An option as JSON: numbers where the vendor's type is a number, text otherwise.
pub(super) fn told(version: Version, key: &str, value: &str) -> Value {
    if key == "lock" || key == "digest" {
        return json!(value);
    }
    match field(version, key).map(|field| field.kind) {
        Some(Kind::Whole | Kind::Flag) => value.parse::<i64>().map_or_else(|_| json!(value), |number| json!(number)),
        _ => json!(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_normalised() {
        assert_eq!(tags("b, A;b c"), "a;b;c");
        assert_eq!(tags(""), "");
    }

    #[test]
    fn numbers_are_told_as_numbers() {
        assert_eq!(told(Version::Nine, "cores", "4"), json!(4));
        assert_eq!(told(Version::Nine, "onboot", "1"), json!(1));
        assert_eq!(told(Version::Nine, "memory", "4096"), json!("4096"));
        assert_eq!(told(Version::Nine, "scsi0", "local-lvm:vm-1-disk-0"), json!("local-lvm:vm-1-disk-0"));
    }
}
