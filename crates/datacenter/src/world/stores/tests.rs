use super::*;
use crate::blueprint::GIB;

const HOST: &str = "pve";

fn stores(kind: StorageKind, total: u64) -> Stores {
    Stores::new(&[Storage::new("s", kind, &["images"], total)], &[Host::new(HOST)])
}

fn allocate(stores: &mut Stores, vmid: u32, size: u64) -> Result<String, String> {
    stores.allocate(HOST, "s", (vmid, Purpose::Disk), None, (size, 0))
}

#[test]
fn the_lowest_free_number_is_taken() {
    let mut stores = stores(StorageKind::LvmThin, GIB);
    assert_eq!(allocate(&mut stores, 421, 1).unwrap(), "s:vm-421-disk-0");
    assert_eq!(allocate(&mut stores, 421, 1).unwrap(), "s:vm-421-disk-1");
    stores.free(HOST, "s:vm-421-disk-0").unwrap();
    assert_eq!(allocate(&mut stores, 421, 1).unwrap(), "s:vm-421-disk-0");
    assert_eq!(stores.make_base(HOST, "s:vm-421-disk-0").unwrap(), "s:base-421-disk-0");
    assert_eq!(allocate(&mut stores, 421, 1).unwrap(), "s:vm-421-disk-2");
}

fn linked(kind: StorageKind) -> (Stores, String, String) {
    let mut stores = stores(kind, GIB);
    let volid = allocate(&mut stores, 9000, 1).unwrap();
    assert!(!stores.can_link(HOST, &volid));
    let base = stores.make_base(HOST, &volid).unwrap();
    assert!(stores.can_link(HOST, &base));
    let linked = stores.link(HOST, &base, 421, 0).unwrap();
    (stores, base, linked)
}

#[test]
fn a_base_stays_while_something_is_linked_to_it() {
    for kind in [StorageKind::Dir, StorageKind::ZfsPool, StorageKind::Rbd] {
        let (mut stores, base, linked) = linked(kind);
        assert!(stores.free(HOST, &base).unwrap_err().contains("still in use by linked clone"));
        stores.free(HOST, &linked).unwrap();
        stores.free(HOST, &base).unwrap();
    }
}

#[test]
fn clones_of_a_thin_volume_stand_by_themselves() {
    let (mut stores, base, linked) = linked(StorageKind::LvmThin);
    stores.free(HOST, &base).unwrap();
    assert!(stores.get(HOST, &linked).is_some());
}

#[test]
fn thick_volumes_take_their_size_at_once() {
    let mut stores = stores(StorageKind::Lvm, 10 * GIB);
    allocate(&mut stores, 421, 8 * GIB).unwrap();
    let place = stores.place(HOST, "s").unwrap();
    assert_eq!(stores.free_bytes(&place), 2 * GIB);
    assert!(allocate(&mut stores, 422, 8 * GIB).unwrap_err().contains("insufficient free space"));
}

#[test]
fn a_copy_that_finds_no_room_says_so_and_has_filled_what_there_was() {
    let mut stores = stores(StorageKind::LvmThin, 10 * GIB);
    let from = allocate(&mut stores, 1, 8 * GIB).unwrap();
    stores.write(HOST, &from, 6 * GIB);
    let to = allocate(&mut stores, 2, 8 * GIB).unwrap();
    assert!(stores.copy((HOST, &from), (HOST, &to)).unwrap_err().starts_with("copy failed"));
    let place = stores.place(HOST, "s").unwrap();
    assert_eq!(stores.free_bytes(&place), 0);
}

#[test]
fn every_kind_says_in_its_own_words_that_it_is_full() {
    for kind in [StorageKind::LvmThin, StorageKind::Lvm, StorageKind::Dir, StorageKind::ZfsPool, StorageKind::Rbd] {
        let mut stores = stores(kind, GIB);
        let place = stores.place(HOST, "s").unwrap();
        stores.fill(&place, 0);
        let told = allocate(&mut stores, 1, GIB).unwrap_err().to_lowercase();
        assert!(told.contains("space"), "{kind:?}: {told}");
        stores.fill(&place, u64::MAX);
        assert!(allocate(&mut stores, 1, GIB).is_ok());
    }
}

#[test]
fn a_storage_is_where_its_hosts_are() {
    let mut storage = Storage::new("s", StorageKind::LvmThin, &["images"], GIB);
    storage.hosts = vec!["one".to_owned()];
    let stores = Stores::new(&[storage], &[Host::new("one"), Host::new("two")]);
    assert!(stores.place("one", "s").is_ok());
    assert_eq!(stores.place("two", "s").unwrap_err(), "storage 's' is not available on node 'two'");
    assert_eq!(stores.place("one", "x").unwrap_err(), "storage 'x' does not exist");
}
