//! The proof that a machine is gone.

use castle_engine::Fault;

use super::ground::Ground;
use crate::model::{ErrorClass, Guest, Mark, Owner};

/// Holds that Proxmox has no machine of this name now: neither at its number, seen or not, nor at any other that is seen, whoever made it. One that was restored
/// from a backup under another number, or that has lost its mark, may have the data and the voice of the one that is missing.
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
    // The list may not know yet what one is called that was just restored.
    let may_be = |row: &&Guest| row.tags.is_superset(&tags) || row.name.as_deref().is_none_or(|is| is == name);
    for row in guests.values().filter(|row| row.is_machine).filter(may_be) {
        let config = match client.config(&row.host, row.vmid).await {
            // Its host is away, and by its tags it is a copy of another guest.
            Err(refusal)
                if matches!(refusal.class, ErrorClass::Unreached | ErrorClass::Unknown)
                    && row.copied_from().is_some_and(|original| original != vmid) =>
            {
                continue;
            }
            config => config?,
        };
        let Some(config) = config else { continue };
        let is_called_so = config.get("name") == Some(name);
        let what = match ground.owner(row.vmid, &config).await? {
            Owner::Ours(mark) if mark.name == name => return Err(there(row.vmid, &row.host)),
            Owner::Copy(mark) if is_called_so || mark.name == name => format!("a copy of VM {}", mark.place.vmid),
            Owner::Unreadable(format) if is_called_so => format!("which {format}"),
            Owner::Stranger if is_called_so => "without castle's mark".to_owned(),
            // Another name, or the whole mark of another machine, of another life or of another castle.
            Owner::Ours(_)
            | Owner::Earlier(_)
            | Owner::Later(_)
            | Owner::Other(_)
            | Owner::Copy(_)
            | Owner::Unreadable(_)
            | Owner::Stranger => continue,
        };
        let evidence = format!("may be there under another number: VM {} on {}, {what}", row.vmid, row.host);
        return Err(Fault::guard(name, evidence).next(format!(
            "if it is that machine, stop it and restore it under its own number: VM {vmid}; if it is another one, give it another name and description, or \
             remove it; then run the same command again"
        )));
    }
    Ok(())
}
