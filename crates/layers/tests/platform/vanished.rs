//! The proof that a machine is gone: each way in which it may still be there is a refusal of its own.

use castle_layers::survey;
use castle_proxmox::steps::vanished;
use castle_testbed::in_virtual_time;

use crate::room::{Room, done, file};

const NODE: u32 = 421;

#[test]
fn a_machine_is_gone_only_if_it_is_nowhere() {
    in_virtual_time(async |clock| {
        let room = Room::plain(&file(1, 1, "nodes: [pve]"), clock);
        done(&room.up().await);
        let told = async |vmid: u32| {
            let fault = vanished(&room.ground(false), vmid, "blue-cp-1").await.err()?;
            assert!(fault.guarded, "{fault:#?}");
            Some((fault.evidence, fault.next))
        };
        let there = Some(("is there: VM 421 on pve".to_owned(), "run the same command again".to_owned()));
        assert_eq!(told(NODE).await, there);
        // The file gives it another number now.
        assert_eq!(told(600).await, there);

        room.datacenter.hide_guest("castle@pve", NODE, true);
        assert!(!survey(&room.ground(false), &room.site).await.unwrap().guests.contains_key(&NODE), "not to be seen");
        let (evidence, next) = told(NODE).await.unwrap();
        assert_eq!(evidence, "may be there: Proxmox has a VM 421, which the token may not see");
        assert!(next.starts_with("give the token VM.Audit on it"), "{next}");
        room.datacenter.hide_guest("castle@pve", NODE, false);

        // Neither another node nor a copy is the machine.
        assert!(room.datacenter.restore_guest(NODE, 500));
        assert!(room.datacenter.remove_guest(NODE));
        assert_eq!(told(NODE).await, None);
        assert_eq!(told(600).await, None);
    });
}
