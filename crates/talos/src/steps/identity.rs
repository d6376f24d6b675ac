//! That a node which waits for its first configuration is in the machine that castle made: a configuration is full of secrets, and in
//! maintenance mode a node takes it from anybody and says who it is to everybody.

use castle_engine::{Class, Fault};
use castle_seams::BoxFuture;

use super::Whom;
use crate::client::{ErrorClass, Node, Refusal};

/// The search for what whoever made a machine knows it by: the UUID of its firmware; nothing if that is not known.
pub type MachineUuid = Box<dyn Fn() -> BoxFuture<'static, Result<Option<String>, Fault>> + Send + Sync>;

/// What castle knows the machine of a node by.
#[derive(Default)]
pub(super) struct Hardware {
    /// The hardware address that castle gave it.
    pub(super) device: Option<String>,
    pub(super) uuid: Option<MachineUuid>,
}

impl Hardware {
    /// Holds that the machine which answers is the one that castle made for the node, by all that both tell.
    pub(super) async fn hold(&self, node: &Node, whom: &Whom) -> Result<(), Fault> {
        if let Some(device) = &self.device {
            hold_device(node, whom, device).await?;
        }
        match &self.uuid {
            Some(uuid) => hold_uuid(node, whom, uuid).await,
            None => Ok(()),
        }
    }
}

/// Holds that the firmware of the machine which answers has the UUID that the hypervisor gave it, where it tells one: whoever copies a
/// machine, and its hardware address, gets another.
async fn hold_uuid(node: &Node, whom: &Whom, uuid: &MachineUuid) -> Result<(), Fault> {
    let there = match node.machine_uuid().await {
        Err(refusal) if matches!(refusal.class, ErrorClass::Forbidden | ErrorClass::Unsupported) => None,
        there => there.map_err(|refusal| moved_on(refusal, whom))?,
    };
    let (Some(there), Some(given)) = (there, uuid().await?) else { return Ok(()) };
    if is_same(&there, &given) {
        return Ok(());
    }
    let Whom { name, address } = whom;
    let evidence = format!(
        "another machine answers at {address}: its firmware has the UUID {there}, and that of this node has {given}; nothing was sent to it"
    );
    let next = format!(
        "find out who has {address}: talosctl get systeminformation --insecure --nodes {address}; switch that machine off, or give the node another \
         address in castle.yaml"
    );
    Err(Fault::guard(name, evidence).next(next))
}

/// Whether two texts are one UUID. Firmware stores its first three parts with the last octet first, and some who read it forget that.
fn is_same(one: &str, other: &str) -> bool {
    let swapped = |uuid: &str| -> String {
        let swap = |(place, part): (usize, &str)| match place {
            0..=2 => part.as_bytes().chunks(2).rev().map(String::from_utf8_lossy).collect::<String>(),
            _ => part.to_owned(),
        };
        uuid.split('-').enumerate().map(swap).collect::<Vec<_>>().join("-")
    };
    one.eq_ignore_ascii_case(other) || swapped(one).eq_ignore_ascii_case(other)
}

/// Holds that the machine which answers has the network device that castle gave the node's machine.
async fn hold_device(node: &Node, whom: &Whom, device: &str) -> Result<(), Fault> {
    let there = node.hardware_addresses().await.map_err(|refusal| moved_on(refusal, whom))?;
    let Whom { name, address } = whom;
    if there.is_empty() {
        let evidence = format!("the machine at {address} tells of no network device yet");
        return Err(Fault::new(Class::RetryableAfter(None), name, evidence));
    }
    if there.iter().any(|mac| mac.eq_ignore_ascii_case(device)) {
        return Ok(());
    }
    let evidence = format!(
        "another machine answers at {address}: it has the hardware address {}, and castle gave this node {}; nothing was sent to it",
        there.join(", "),
        device.to_lowercase()
    );
    let next = format!(
        "find out who has {address}: talosctl get links --insecure --nodes {address}; switch that machine off, or give the node another address in castle.yaml"
    );
    Err(Fault::guard(name, evidence).next(next))
}

/// What a node says that was asked as one in maintenance mode. One that has left it meanwhile, or is another by now, is looked at again.
pub(super) fn moved_on(refusal: Refusal, whom: &Whom) -> Fault {
    match refusal.class {
        ErrorClass::Unwelcome => {
            let evidence = format!("is in maintenance mode no more: {}", refusal.sentence);
            Fault::new(Class::RefusedBeforeEffect, &whom.name, evidence)
        }
        ErrorClass::Stranger => {
            let evidence = format!("somebody else answers at {} than a moment ago: {}", whom.address, refusal.sentence);
            Fault::new(Class::RefusedBeforeEffect, &whom.name, evidence)
                .next(format!("find out who has {0}: talosctl version --insecure --nodes {0}", whom.address))
        }
        _ => refusal.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn a_uuid_is_one_in_either_order_of_its_octets() {
        let uuid = "0f0e0d0c-1122-3344-5566-778899aabbcc";
        assert!(is_same(uuid, "0F0E0D0C-1122-3344-5566-778899AABBCC"));
        assert!(is_same(uuid, "0c0d0e0f-2211-4433-5566-778899aabbcc"));
        assert!(!is_same(uuid, "0c0d0e0f-2211-4433-6655-778899aabbcc"));
        assert!(!is_same(uuid, "") && !is_same(uuid, "none"));
    }
}
