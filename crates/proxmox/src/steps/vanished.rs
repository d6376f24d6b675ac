//! The proof that a machine is gone.

use castle_engine::Fault;

use super::ground::Ground;
use crate::model::{Mark, Owner};

/// Holds that Proxmox has no machine of this name of the castle now: neither at its number, seen or not, nor at any other that is seen.
///
/// # Errors
///
/// Where it is, or may be; or if Proxmox does not answer.
pub async fn vanished(ground: &Ground, vmid: u32, name: &str) -> Result<(), Fault> {
    let client = &ground.client;
    let guests = ground.guests(client.clock().monotonic()).await?;
    let there = |vmid: u32, host: &str| {
        let evidence = format!("is there: VM {vmid} on {host}");
        Fault::guard(name, evidence).next("run the same command again")
    };
    if let Some(row) = guests.get(&vmid) {
        return Err(there(vmid, &row.host));
    }
    // The list has only what the token may see.
    if !client.is_free(vmid).await? {
        let evidence = format!("may be there: Proxmox has a VM {vmid}, which the token may not see");
        return Err(Fault::guard(name, evidence)
            .next("give the token VM.Audit on it (castle doctor tells what the token may do), then run the same command again"));
    }
    let tags = Mark::tags_of(&ground.castle);
    for row in guests.values().filter(|row| row.tags.is_superset(&tags)) {
        let Some(config) = client.config(&row.host, row.vmid).await? else { continue };
        match ground.owner(row.vmid, &config).await? {
            Owner::Ours(mark) if mark.name == name => return Err(there(row.vmid, &row.host)),
            _ => {}
        }
    }
    Ok(())
}
