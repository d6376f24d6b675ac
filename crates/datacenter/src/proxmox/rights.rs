//! Which privilege an option of a guest takes to change.

use super::Refusal;
use super::drive::is_drive;
use crate::access::Identity;
use crate::world::World;

const CPU: &[&str] = &["cores", "cpu", "cpulimit", "cpuunits", "numa", "smp", "sockets", "vcpus"];
const MEMORY: &[&str] = &["allow-ksm", "balloon", "memory", "shares"];
const HARDWARE: &[&str] =
    &["acpi", "audio0", "hotplug", "kvm", "machine", "rng0", "scsihw", "smbios1", "tablet", "vga", "watchdog"];
const GENERAL: &[&str] = &[
    "agent",
    "autostart",
    "bios",
    "description",
    "keyboard",
    "localtime",
    "migrate_downtime",
    "migrate_speed",
    "name",
    "onboot",
    "ostype",
    "protection",
    "reboot",
    "startdate",
    "startup",
    "tags",
    "tdf",
    "template",
];
const DISK: &[&str] = &["boot", "bootdisk", "vmstatestorage"];
const CLOUD_INIT: &[&str] =
    &["cicustom", "cipassword", "citype", "ciupgrade", "ciuser", "nameserver", "searchdomain", "sshkeys"];

/// Whether an option belongs to cloud-init.
pub(super) fn is_cloud_init(key: &str) -> bool {
    CLOUD_INIT.contains(&key) || is_numbered(key, "ipconfig")
}

/// Whether a key is the family's name with a number.
pub(super) fn is_numbered(key: &str, family: &str) -> bool {
    let number = key.strip_prefix(family).filter(|number| !number.is_empty());
    number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Refuses where somebody may not do this to the guest, neither by itself nor by the pool it goes into.
pub(super) fn require_on_guest(
    world: &World,
    who: &Identity,
    vmid: u32,
    pool: Option<&str>,
    any_of: &[&str],
) -> Result<(), Refusal> {
    if pool.is_some_and(|pool| world.may(who, &format!("/pool/{pool}"), any_of)) {
        return Ok(());
    }
    world.require_any(who, &format!("/vms/{vmid}"), any_of)
}

/// Refuses where somebody may not change one of these options. Drives are judged by what is in them, elsewhere.
pub(super) fn check_options<'a>(
    world: &World,
    who: &Identity,
    (vmid, pool): (u32, Option<&str>),
    keys: impl IntoIterator<Item = &'a str>,
) -> Result<(), Refusal> {
    if who.is_root() {
        return Ok(());
    }
    for key in keys {
        let is_judged_elsewhere =
            is_drive(key) || ["unused", "serial", "usb", "hostpci"].iter().any(|family| is_numbered(key, family));
        if is_judged_elsewhere {
            continue;
        }
        let privileges: &[&str] = if CPU.contains(&key) || is_numbered(key, "numa") {
            &["VM.Config.CPU"]
        } else if MEMORY.contains(&key) {
            &["VM.Config.Memory"]
        } else if HARDWARE.contains(&key) {
            &["VM.Config.HWType"]
        } else if GENERAL.contains(&key) {
            &["VM.Config.Options"]
        } else if key == "freeze" {
            &["VM.PowerMgmt"]
        } else if DISK.contains(&key) {
            &["VM.Config.Disk"]
        } else if is_numbered(key, "net") {
            &["VM.Config.Network"]
        } else if is_cloud_init(key) {
            &["VM.Config.Cloudinit", "VM.Config.Network"]
        } else {
            return Err(format!("only root can set '{key}' config").into());
        };
        require_on_guest(world, who, vmid, pool, privileges)?;
        if key == "startup" {
            world.require(who, "/", &["Sys.Modify"])?;
        }
    }
    Ok(())
}

/// Refuses devices of the host to everybody but the administrator. `verb` is what is done to the option.
pub(super) fn check_device(
    world: &World,
    who: &Identity,
    (vmid, pool): (u32, Option<&str>),
    (key, value): (&str, Option<&str>),
    verb: &str,
) -> Result<(), Refusal> {
    let is_device = ["serial", "usb", "hostpci"].iter().any(|family| is_numbered(key, family));
    if !is_device || who.is_root() {
        return Ok(());
    }
    if key.starts_with("hostpci") {
        return Err(format!("only root can set '{key}' config for non-mapped devices").into());
    }
    let is_harmless = value.is_none_or(|value| value == "socket" || value.starts_with("spice"));
    if !is_harmless {
        let verb = if key.starts_with("usb") { "set" } else { verb };
        return Err(format!("only root can {verb} '{key}' config for real devices").into());
    }
    require_on_guest(world, who, vmid, pool, &["VM.Config.HWType"])
}

/// Refuses a network device on a bridge that somebody may not use.
pub(super) fn check_bridge(world: &World, who: &Identity, value: &str) -> Result<(), Refusal> {
    let part = |name: &str| value.split(',').find_map(|part| part.strip_prefix(name));
    let Some(bridge) = part("bridge=") else { return Ok(()) };
    let path = match part("tag=") {
        Some(tag) => format!("/sdn/zones/localnetwork/{bridge}/{tag}"),
        None => format!("/sdn/zones/localnetwork/{bridge}"),
    };
    world.require(who, &path, &["SDN.Use"])
}
