//! That a node which waits for its first configuration is in the machine that castle made: a configuration is full of secrets, and in
//! maintenance mode a node takes it from anybody and says who it is to everybody.

use castle_engine::{Class, Fault};

use super::Whom;
use crate::client::{ErrorClass, Node, Refusal};

/// Holds that the machine which answers has the network device that castle gave the node's machine.
pub(super) async fn hold(node: &Node, whom: &Whom, device: &str) -> Result<(), Fault> {
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

/// What a node says that was asked as one in maintenance mode. One that has left it meanwhile is looked at again.
pub(super) fn moved_on(refusal: Refusal, whom: &Whom) -> Fault {
    match refusal.class {
        ErrorClass::Unwelcome => {
            let evidence = format!("is in maintenance mode no more: {}", refusal.sentence);
            Fault::new(Class::RefusedBeforeEffect, &whom.name, evidence)
        }
        _ => refusal.into(),
    }
}
