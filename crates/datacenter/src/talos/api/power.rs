//! Going down, and what is left behind.

use castle_talos_api::machine::ResetRequest;
use castle_talos_api::machine::reset_request::WipeMode;
use tonic::Status;

use crate::talos::node::{After, Stage};
use crate::talos::stages::uuid;
use crate::world::World;

impl World {
    fn check_is_up(&self, vmid: u32) -> Result<(), Status> {
        match self.talos.boot(vmid) {
            Some(boot) if !boot.stage.is_ending() => Ok(()),
            _ => Err(Status::failed_precondition("another sequence is already in progress")),
        }
    }

    /// A name for what was begun by a call.
    fn actor(&mut self) -> String {
        uuid(&self.chance.bytes("talos actor"))
    }

    pub(super) fn node_reboots(&mut self, vmid: u32) -> Result<String, Status> {
        self.check_is_up(vmid)?;
        let actor = self.actor();
        self.talos_end(vmid, Stage::Rebooting, After::Boot, &actor);
        Ok(actor)
    }

    pub(super) fn node_shuts_down(&mut self, vmid: u32) -> Result<String, Status> {
        self.check_is_up(vmid)?;
        let actor = self.actor();
        self.talos_end(vmid, Stage::ShuttingDown, After::Off, &actor);
        Ok(actor)
    }

    /// A node forgets its configuration, its data, or both, and comes up again or not.
    pub(super) fn node_resets(&mut self, vmid: u32, asked: &ResetRequest) -> Result<String, Status> {
        self.check_is_up(vmid)?;
        let labels: Vec<&str> =
            asked.system_partitions_to_wipe.iter().filter(|it| it.wipe).map(|it| it.label.as_str()).collect();
        if let Some(label) = labels.iter().find(|label| !["STATE", "EPHEMERAL", "META"].contains(*label)) {
            return Err(Status::unknown(format!("failed to get volume status with label {label:?}: not found")));
        }
        let is_system = asked.mode() != WipeMode::UserDisks;
        let wipes = |label: &str| is_system && (labels.is_empty() || labels.contains(&label));
        let actor = self.actor();
        let now = self.now;
        if asked.graceful
            && let Some((etcd, member)) = self.membership(vmid).filter(|_| self.is_member_up(vmid))
        {
            // One that is not let go does not go: the sequence ends where it is, and its caller is not told.
            if let Err(why) = self.may_lose(etcd, member) {
                if let Some(boot) = self.talos.boot_mut(vmid) {
                    boot.story.failure(now, "reset", &format!("failed to leave cluster: {why}"), &actor);
                }
                return Ok(actor);
            }
            self.leave(vmid, etcd, member);
        }
        if let Some(boot) = self.talos.boot_mut(vmid) {
            boot.wipes = (wipes("STATE"), wipes("EPHEMERAL"));
            boot.serve(now, "kubelet", "Finished", None);
        }
        self.effect("reset", vmid);
        let after = if asked.reboot { After::Boot } else { After::Off };
        self.talos_end(vmid, Stage::Resetting, after, &actor);
        Ok(actor)
    }
}
