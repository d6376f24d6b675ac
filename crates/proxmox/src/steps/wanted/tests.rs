use super::super::Image;
use super::*;

fn castle() -> CastleId {
    CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 1 }
}

fn wanted() -> Wanted {
    Wanted {
        role: Role::Worker,
        etcd_begins_on: None,
        vmid: 424,
        name: "blue-worker-1".into(),
        host: "pve".into(),
        pool: None,
        cores: 4,
        memory: 8192,
        system: 32 << 10,
        data: Some(100 << 10),
        mac: "02:9b:0a:ab:f4:61".into(),
        address: ("192.168.1.214".parse().unwrap(), 24),
        gateway: "192.168.1.1".parse().unwrap(),
        nameservers: vec!["192.168.1.1".parse().unwrap(), "1.1.1.1".parse().unwrap()],
        hardware: Hardware {
            machine: "q35".into(),
            cpu: "x86-64-v2-AES".into(),
            scsi_controller: "virtio-scsi-single".into(),
            iothread: true,
            cloud_init_drive: "ide2".into(),
            iso: Some(("ide0".into(), "local:iso/rescue.iso".into())),
            storage: "local-lvm".into(),
            bridge: "vmbr0".into(),
            vlan: Some(7),
            agent: true,
        },
    }
}

/// The guest as Proxmox prints it back.
fn printed() -> Config {
    let lines = "\
        agent: 1\nballoon: 0\nboot: order=scsi0\ncores: 4\ncpu: x86-64-v2-AES\nide0: local:iso/rescue.iso,media=cdrom,size=1M\n\
        ide2: local-lvm:vm-424-cloudinit,media=cdrom,size=4M\nipconfig0: gw=192.168.1.1,ip=192.168.1.214/24\nmachine: q35\nmemory: 8192\n\
        meta: creation-qemu=10.0.2,ctime=1750000000\nname: blue-worker-1\nnameserver: 192.168.1.1 1.1.1.1\n\
        net0: virtio=02:9B:0A:AB:F4:61,bridge=vmbr0,tag=7\nonboot: 1\nostype: l26\nscsi0: local-lvm:vm-424-disk-0,iothread=1,size=32G\n\
        scsi1: local-lvm:vm-424-disk-1,iothread=1,size=100G\nscsihw: virtio-scsi-single\nserial0: socket\n\
        smbios1: uuid=0f0e0d0c-0000-0000-0000-000000000000\nvmgenid: 00000000-0000-0000-0000-000000000000";
    let options = lines.lines().filter_map(|line| line.trim().split_once(": "));
    Config { digest: None, options: options.map(|(key, value)| (key.to_owned(), value.to_owned())).collect() }
}

fn changed(option: &str, value: Option<&str>) -> Config {
    let mut config = printed();
    match value {
        Some(value) => config.options.insert(option.to_owned(), value.to_owned()),
        None => config.options.remove(option),
    };
    config
}

#[test]
fn what_proxmox_prints_back_is_as_wanted() {
    assert_eq!(wanted().deviations(&printed()), []);
    for (option, said_otherwise) in [
        ("agent", "enabled=1"),
        ("cpu", "cputype=x86-64-v2-AES"),
        ("ipconfig0", "ip=192.168.1.214/24,gw=192.168.1.1"),
        ("net0", "model=virtio,bridge=vmbr0,macaddr=02:9b:0a:ab:f4:61,tag=7"),
        ("scsi0", "file=local-lvm:vm-424-disk-0,size=32768M,iothread=on"),
    ] {
        assert_eq!(wanted().deviations(&changed(option, Some(said_otherwise))), [], "{option}");
    }
}

#[test]
fn what_differs_is_found_and_classed() {
    let cases = [
        ("memory", Some("4096"), Impact::Reboot, "8192"),
        ("cores", None, Impact::Reboot, "4"),
        ("name", Some("other"), Impact::InPlace, "blue-worker-1"),
        ("onboot", None, Impact::InPlace, "1"),
        (
            "net0",
            Some("virtio=02:9B:0A:AB:F4:61,bridge=vmbr1,tag=7"),
            Impact::InPlace,
            "virtio=02:9B:0A:AB:F4:61,bridge=vmbr0,tag=7",
        ),
        (
            "net0",
            Some("virtio=02:9B:0A:AB:F4:61,bridge=vmbr0,firewall=1,tag=7"),
            Impact::InPlace,
            "virtio=02:9B:0A:AB:F4:61,bridge=vmbr0,tag=7",
        ),
        ("cpu", Some("kvm64"), Impact::Reboot, "x86-64-v2-AES"),
        ("cpu", Some("x86-64-v2-AES,flags=+aes"), Impact::Reboot, "x86-64-v2-AES"),
        ("agent", None, Impact::Reboot, "1"),
        ("ipconfig0", Some("ip=192.168.1.215/24,gw=192.168.1.1"), Impact::Reboot, "ip=192.168.1.214/24,gw=192.168.1.1"),
        ("ide2", None, Impact::Reboot, "local-lvm:cloudinit"),
        ("ide2", Some("local-lvm:vm-999-cloudinit,media=cdrom"), Impact::Reboot, "local-lvm:cloudinit"),
        ("ide0", Some("none,media=cdrom"), Impact::Reboot, "local:iso/rescue.iso,media=cdrom"),
        ("scsi0", Some("local-lvm:vm-424-disk-0,size=32G"), Impact::Reboot, "local-lvm:vm-424-disk-0,iothread=1"),
        ("scsi1", None, Impact::InPlace, "local-lvm:100,iothread=1"),
    ];
    for (option, value, impact, set) in cases {
        let found = wanted().deviations(&changed(option, value));
        let [deviation] = found.as_slice() else { panic!("{option} {value:?}: {found:?}") };
        assert_eq!((deviation.option.as_str(), deviation.impact(true)), (option, impact), "{value:?}");
        assert_eq!(deviation.impact(false), Impact::InPlace, "a guest that does not run takes up everything at once");
        assert_eq!(deviation.remedy, Remedy::Set(set.to_owned()), "{option} {value:?}");
    }
}

#[test]
fn disks_grow_and_are_never_shrunk() {
    let disk = |option, text| {
        let [deviation] = wanted().deviations(&changed(option, Some(text))).try_into().unwrap();
        deviation.remedy
    };
    assert_eq!(disk("scsi0", "local-lvm:vm-424-disk-0,iothread=1,size=1228M"), Remedy::Grow(32 << 10));
    assert_eq!(disk("scsi0", "local-lvm:vm-424-disk-0,iothread=1"), Remedy::Grow(32 << 10), "of unknown size");
    assert_eq!(disk("scsi0", "local-lvm:vm-424-disk-0,iothread=1,size=64G"), Remedy::Replace);
    assert_eq!(disk("scsi1", "other:vm-424-disk-1,iothread=1,size=100G"), Remedy::Replace, "in another storage");
    let gone = wanted().deviations(&changed("scsi0", None));
    assert_eq!(gone[0].remedy, Remedy::Replace, "a guest without its system");
}

#[test]
fn sizes_are_ordered_exactly() {
    for (mib, size) in [(100 << 10, "100"), (1536, "1.5"), (1, "0.0009765625"), (32 << 10, "32"), (10 << 10, "10")] {
        assert_eq!(gib(mib), size);
    }
    assert_eq!((human(32 << 10), human(1536)), ("32G".to_owned(), "1536M".to_owned()));
}

#[test]
fn the_digest_tells_everything_that_is_wanted_but_not_where() {
    let tags = |wanted: &Wanted| wanted.tags(&castle());
    let usual = tags(&wanted());
    let reader = |change: fn(&mut Wanted)| {
        let mut other = wanted();
        change(&mut other);
        tags(&other)
    };
    let changes: [fn(&mut Wanted); 12] = [
        |it| it.name = "x".into(),
        |it| it.cores = 8,
        |it| it.memory = 1,
        |it| it.system = 1,
        |it| it.data = None,
        |it| it.mac = "02:00:00:00:00:01".into(),
        |it| it.nameservers.clear(),
        |it| it.pool = Some("p".into()),
        |it| it.hardware.cpu = "host".into(),
        |it| it.hardware.storage = "ceph".into(),
        |it| it.hardware.iothread = false,
        |it| it.hardware.iso = None,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        assert_ne!(reader(change), usual, "change {index}");
    }
    assert_eq!(reader(|it| it.host = "elsewhere".into()), usual, "a guest that was moved is as wanted");
    let other_life = CastleId { generation: 2, ..castle() };
    assert_ne!(wanted().tags(&other_life), usual);
    let fits = |tag: &String| {
        tag.len() <= 40 && tag.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    assert!(usual.iter().all(fits), "{usual:?}");
}

/// Guests and images bear these tags, and downloads these names: another castle finds them again by them. Whatever changes here shows every guest as drift,
/// or leaves every download lying, after an update.
#[test]
fn what_is_found_again_is_as_it_was_recorded() {
    let recorded = "guest 1\nballoon: 0\nboot: order=scsi0\ncores: 4\nmemory: 8192\nname: blue-worker-1\nnameserver: 192.168.1.1 1.1.1.1\nonboot: 1\n\
                    ostype: l26\nscsihw: virtio-scsi-single\nserial0: socket\nagent: 1\ncpu: x86-64-v2-AES\n\
                    ipconfig0: ip=192.168.1.214/24,gw=192.168.1.1\nmachine: q35\nnet0: virtio=02:9B:0A:AB:F4:61,bridge=vmbr0,tag=7\nstorage: local-lvm\n\
                    system: 32768\niothread: true\ncloudinit: ide2\ndata: 102400\niso: ide0 local:iso/rescue.iso";
    assert_eq!(wanted().told(), recorded);
    let all = |tags: BTreeSet<String>| tags.into_iter().collect::<Vec<_>>().join(";");
    assert_eq!(all(wanted().tags(&castle())), "castle;castle-blue-proxmox;castle-is-1bac578b857b");
    let image = Image {
        name: "talos-v1.13.9-e187c9b90f77".into(),
        url: String::new(),
        sha256: None,
        host: "pve".into(),
        slots: [431, 432],
        storage: "local".into(),
        pool: None,
        hardware: wanted().hardware,
        can_link: true,
        is_needed: true,
    };
    assert_eq!(all(image.tags(&castle())), "castle;castle-blue-proxmox;castle-is-a8ac2c116df9");
    let volume = "local:import/castle-blue-proxmox-0123456789abcdef-talos-v1.13.9-e187c9b90f77-pve.qcow2";
    assert_eq!(image.volume(&castle()), volume);
}

#[test]
fn tags_of_people_stay_and_old_digests_go() {
    let tags = |text: &str| wanted().tags_deviation(&castle(), &changed("tags", Some(text)));
    let own: Vec<String> = wanted().tags(&castle()).into_iter().collect();
    let since = wanted().tags_now("", std::time::UNIX_EPOCH);
    assert_eq!(tags(&format!("{};{since}", own.join(";"))), None);
    assert_eq!(tags(&format!("backup;{};mine;{since}", own.join(";"))), None);
    assert!(tags(&own.join(";")).is_some(), "nobody knows since when");
    assert!(tags(&format!("{};castle-since-1-2", own.join(";"))).is_some(), "that is told of another guest");
    let [Remedy::Set(written)] =
        [tags(&format!("backup;castle-is-000000000000;castle-since-1-2;{}", own.join(";"))).unwrap().remedy]
    else {
        panic!("tags are written")
    };
    assert_eq!(written, format!("backup;{}", own.join(";")));
    assert!(wanted().tags_now(&written, std::time::UNIX_EPOCH).starts_with(&format!("{written};castle-since-")));
}
