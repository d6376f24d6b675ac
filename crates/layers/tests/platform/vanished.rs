//! The proof that a machine is gone: each way in which it may still be there is a refusal of its own.

use castle_layers::survey;
use castle_proxmox::steps::vanished;
use castle_seams::Clock as _;
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

        // A copy that is called so, or was marked so, may be the machine under another number.
        assert!(room.datacenter.restore_guest(NODE, 500));
        assert!(room.datacenter.remove_guest(NODE));
        let under = |what: &str| format!("may be there under another number: VM 500 on pve, {what}");
        for vmid in [NODE, 600] {
            let (evidence, next) = told(vmid).await.unwrap();
            assert_eq!(evidence, under("a copy of VM 421"));
            assert!(
                next.contains(&format!("under its own number: VM {vmid}")) && next.contains("another name"),
                "{next}"
            );
        }
        assert!(room.datacenter.change_guest(500, &[("name", Some("spare"))]));
        assert_eq!(told(NODE).await.unwrap().0, under("a copy of VM 421"));
        // One without a mark is known by its name alone, also before the list tells it.
        assert!(
            room.datacenter.change_guest(500, &[("name", Some("blue-cp-1")), ("description", None), ("tags", None)])
        );
        assert_eq!(told(NODE).await.unwrap().0, under("without castle's mark"));
        clock.sleep(std::time::Duration::from_secs(60)).await;
        assert_eq!(told(NODE).await.unwrap().0, under("without castle's mark"));
        assert!(room.datacenter.change_guest(500, &[("name", Some("spare"))]));
        clock.sleep(std::time::Duration::from_secs(60)).await;
        // Neither another node nor another machine is it.
        assert_eq!(told(NODE).await, None);
        assert_eq!(told(600).await, None);
    });
}
