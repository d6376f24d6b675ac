use super::*;

fn pairs(given: &[(&str, &str)]) -> Vec<(String, String)> {
    given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn verify(version: Version, request: &str, given: &[(&str, &str)]) -> Result<Params, BTreeMap<String, String>> {
    let (method, path) = request.split_once(' ').unwrap();
    let (operation, from_path) = find(version, method, path).unwrap_or_else(|| panic!("{request}"));
    operation.verify(version, &from_path, &pairs(given))
}

fn accepted(request: &str, given: &[(&str, &str)]) -> Params {
    verify(Version::Nine, request, given).unwrap_or_else(|errors| panic!("{request} {given:?}: {errors:?}"))
}

/// The complaint about one parameter, which must be the only one.
fn check(request: &str, given: &[(&str, &str)], name: &str, complaint: &str) {
    let errors = verify(Version::Nine, request, given).unwrap_err();
    assert_eq!(errors, BTreeMap::from([(name.to_owned(), complaint.to_owned())]), "{request} {given:?}");
}

const CREATE: &str = "POST /nodes/pve/qemu";
const CONFIG: &str = "PUT /nodes/pve/qemu/421/config";

#[test]
fn a_path_is_the_operation_of_its_form() {
    let found = |method, path| find(Version::Nine, method, path).map(|(operation, names)| (operation.call, names));
    let names = |pairs: &[(&'static str, &str)]| {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect::<BTreeMap<_, _>>()
    };
    assert_eq!(found("GET", "/version"), Some((Call::Version, names(&[]))));
    let guest = names(&[("node", "pve"), ("vmid", "421")]);
    assert_eq!(found("POST", "/nodes/pve/qemu/421/config"), Some((Call::SetConfigAsTask, guest.clone())));
    assert_eq!(found("DELETE", "/nodes/pve//qemu/421/"), Some((Call::Destroy, guest)));
    assert_eq!(
        found("GET", "/nodes/pve/storage/local/content/local:iso/a.iso"),
        Some((Call::Volume, names(&[("node", "pve"), ("storage", "local"), ("volume", "local:iso/a.iso")])))
    );
    for (method, path) in
        [("PATCH", "/version"), ("GET", "/versions"), ("GET", "/version/x"), ("DELETE", "/nodes/pve/qemu")]
    {
        assert_eq!(found(method, path), None, "{method} {path}");
    }
}

#[test]
fn releases_differ_in_privileges_and_parameters() {
    let agent = |version| {
        find(version, "GET", "/nodes/pve/qemu/421/agent/network-get-interfaces").map(|(found, _)| {
            match found.permission {
                Permission::Check { privileges, .. } => privileges,
                other => panic!("{other:?}"),
            }
        })
    };
    assert_eq!(agent(Version::Eight), Some(&["VM.Monitor"][..]));
    assert_eq!(agent(Version::Nine), Some(&["VM.GuestAgent.Audit", "VM.GuestAgent.Unrestricted"][..]));
    let given = [("vmid", "421"), ("ha-managed", "1")];
    assert!(verify(Version::Nine, CREATE, &given).is_ok());
    let errors = verify(Version::Eight, CREATE, &given).unwrap_err();
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["ha-managed"]);
    let agent = |version, value| verify(version, CONFIG, &[("agent", value)]).map(|params| params.properties("agent"));
    let frozen = BTreeMap::from([("enabled", "1"), ("freeze-fs", "0")].map(|(k, v)| (k.to_owned(), v.to_owned())));
    assert_eq!(agent(Version::Nine, "1,freeze-fs-on-backup=no"), Ok(Some(frozen)));
    assert!(agent(Version::Eight, "1,freeze-fs=0").is_err());
}

#[test]
fn complaints_are_the_vendors() {
    let missing = "property is missing and it is not optional";
    let unknown = "property is not defined in schema and the schema does not allow additional properties";
    check(CREATE, &[], "vmid", missing);
    check(CREATE, &[("vmid", "")], "vmid", missing);
    check(CONFIG, &[("nonsense", "1")], "nonsense", unknown);
    check(CONFIG, &[("scsi31", "local:1")], "scsi31", unknown);
    check(CONFIG, &[("scsi01", "local:1")], "scsi01", unknown);
    check(CONFIG, &[("scsi", "local:1")], "scsi", unknown);
    check(CONFIG, &[("onboot", "true")], "onboot", "type check ('boolean') failed - got 'true'");
    check(CONFIG, &[("cores", "x")], "cores", "type check ('integer') failed - got 'x'");
    check(CONFIG, &[("cpulimit", "x")], "cpulimit", "type check ('number') failed - got 'x'");
    check(CONFIG, &[("cores", "1"), ("cores", "2")], "cores", "type check ('integer') failed - got ARRAY");
    check(CONFIG, &[("cores", "0")], "cores", "value must have a minimum value of 1");
    check(CONFIG, &[("cpulimit", "128.5")], "cpulimit", "value must have a maximum value of 128");
    check(CREATE, &[("vmid", "99")], "vmid", "invalid format - value does not look like a valid VM ID\n");
    let deep = "invalid format - pool name 'a/b/c/d' nested too deeply (max levels = 3)\n";
    check("PUT /pools", &[("poolid", "a/b/c/d")], "poolid", deep);
    check(CONFIG, &[("serial0", "com1")], "serial0", "value does not match the regex pattern");
    check(CONFIG, &[("digest", &"a".repeat(41))], "digest", "value may only be 40 characters long");
    check(CONFIG, &[("bios", "uefi")], "bios", "value 'uefi' does not have a value in the enumeration 'seabios, ovmf'");
    check(CONFIG, &[("force", "1")], "delete", "missing property required by 'force'");
    let older = verify(Version::Eight, CONFIG, &[("force", "1")]).unwrap_err();
    assert_eq!(older["delete"], "missing property - 'force' requires this property");
    check(
        CREATE,
        &[("vmid", "421"), ("force", "1"), ("unique", "1")],
        "archive",
        "missing property required by 'force'\\nmissing property required by 'unique'",
    );
    check(CONFIG, &[("vmid", "422")], "vmid", "duplicate parameter (already defined in URI) with conflicting values!");
}

#[test]
fn complaints_about_property_strings_are_the_vendors() {
    let list = |what: &str| format!("invalid format - {what} in comma-separated list property");
    let net = |value, complaint: &str| check(CONFIG, &[("net0", value)], "net0", complaint);
    let unknown = "property is not defined in schema and the schema does not allow additional properties";
    net("virtio,nonsense=1", &format!("invalid format - format error\nnet0.nonsense: {unknown}\n"));
    net("virtio,bridge=a,bridge=b", &format!("{}: bridge\n", list("duplicate key")));
    net("virtio,e1000", &format!("{}: model\n", list("duplicate key")));
    net("virtio,bridge=", &format!("{}\n", list("missing key")));
    net("virtio=BC:24:11:00:00:01,e1000=BC:24:11:00:00:02", "invalid format - key alias 'model' is already defined\n");
    net(
        "macaddr=BC:24:11:00:00:01,virtio=BC:24:11:00:00:02",
        "invalid format - key 'macaddr' is already defined (via alias)\n",
    );
    net("bridge=vmbr0", "invalid format - format error\nnet0.model: property is missing and it is not optional\n");
    net("virtio,tag=0", "invalid format - format error\nnet0.tag: value must have a minimum value of 1\n");
    check(
        CONFIG,
        &[("ipconfig0", "gw=10.0.0.1")],
        "ipconfig0",
        "invalid format - format error\nipconfig0.ip: missing property required by 'ipconfig0.gw'\n",
    );
    check(
        CONFIG,
        &[("ipconfig0", "10.0.0.1")],
        "ipconfig0",
        "invalid format - value without key, but schema does not define a default key\n",
    );
}

#[test]
fn what_is_verified_can_be_read() {
    let params = accepted(
        "POST /nodes/pve/qemu/9000/clone",
        &[("newid", "421"), ("full", "1"), ("name", "node-1"), ("pool", ""), ("vmid", "9000")],
    );
    assert_eq!(
        (params.number("newid"), params.number("vmid"), params.number("bwlimit")),
        (Some(421), Some(9000), None)
    );
    assert_eq!((params.flag("full"), params.text("name"), params.text("pool")), (Some(true), Some("node-1"), None));
    assert_eq!(params.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["full", "name", "newid", "node", "vmid"]);
    assert_eq!(params.properties("name"), None);

    let params =
        accepted(CONFIG, &[("delete", "net0"), ("delete", "net1"), ("net0", "e1000=BC:24:11:00:00:01,firewall=ON")]);
    assert_eq!(params.text("delete"), Some("net0,net1"));
    let net = params.properties("net0").unwrap();
    let net: Vec<(&str, &str)> = net.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    assert_eq!(net, [("firewall", "1"), ("macaddr", "BC:24:11:00:00:01"), ("model", "e1000")]);

    let params =
        accepted("GET /nodes/pve/tasks", &[("since", "99999999999999999999"), ("until", "-99999999999999999999")]);
    assert_eq!((params.number("since"), params.number("until")), (Some(i64::MAX), Some(i64::MIN)));
}

#[test]
fn property_strings_are_printed_as_the_vendor_prints_them() {
    let check = |key: &str, value: &str, printed: &str| {
        assert_eq!(canonical(Version::Nine, key, value).as_deref(), Ok(printed), "{key}={value}");
        assert_eq!(canonical(Version::Nine, key, printed).as_deref(), Ok(printed), "{key}: printed twice");
    };
    check("scsi0", "size=34359738368,iothread=on,volume=lvm:vm-421-disk-1", "lvm:vm-421-disk-1,iothread=1,size=32G");
    check("scsi0", "lvm:a,size=1.5G", "lvm:a,size=1536M");
    check("scsi0", "lvm:a,size=2048GiB", "lvm:a,size=2T");
    check("scsi0", "lvm:a,size=1000", "lvm:a,size=1000");
    check("ide2", "media=cdrom,file=lvm:vm-421-cloudinit", "lvm:vm-421-cloudinit,media=cdrom");
    check("net0", "bridge=vmbr0,macaddr=BC:24:11:00:00:01,model=virtio", "virtio=BC:24:11:00:00:01,bridge=vmbr0");
    check("net0", "firewall=1,virtio", "virtio,firewall=1");
    check("ipconfig0", "ip=10.0.0.2/24,gw=10.0.0.1", "gw=10.0.0.1,ip=10.0.0.2/24");
    check("numa0", "hostnodes=0,cpus=0-3", "cpus=0-3,hostnodes=0");
    check("name", "b=1,a=2", "b=1,a=2");

    assert!(canonical(Version::Nine, "net0", "bridge=vmbr0").is_err());
    assert!(properties(Version::Nine, "name", "a").is_err());
    let incomplete = BTreeMap::from([("bridge".to_owned(), "vmbr0".to_owned())]);
    assert!(print(Version::Nine, "net0", &incomplete).is_err());
}

#[test]
fn every_pattern_and_format_of_the_tables_is_understood() {
    fn walk(version: Version, field: &Field, seen: &mut usize) {
        if let Some(pattern) = field.pattern {
            assert!(pattern::read(pattern).is_some(), "{}: {pattern}", field.name);
            *seen += 1;
        }
        if let Format::Named(name) = field.format {
            let name = name.strip_suffix("-list").unwrap_or(name);
            let complaint = format::check(version, name, ":").err().unwrap_or_default();
            assert!(!complaint.starts_with("undefined"), "{}: {complaint}", field.name);
            *seen += 1;
        }
        field.keys_in(version).for_each(|key| walk(version, key, seen));
    }
    for version in [Version::Eight, Version::Nine] {
        let mut seen = 0;
        operations(version)
            .flat_map(|found| found.parameters(version))
            .for_each(|field| walk(version, field, &mut seen));
        assert!(seen > 300, "{seen}");
    }
}

#[test]
fn patterns_match_the_whole_value_or_nothing() {
    for (pattern, yes, no) in [
        ("a|bc", &["a", "bc"][..], &["ab", "b", ""][..]),
        ("[a-c-]+", &["a-c", "-"], &["d", ""]),
        (r"[^/\.:]{2,3}", &["ab", "abc"], &["a", "abcd", "a.b"]),
        (r"(\d+\.)*\d{,2}", &["1.22", "", "1."], &["1.222", "."]),
        (r"(?:^\S+\@x$)", &["a@x", "@@x"], &["a@xy", "@x", "a b@x"]),
        ("(a*)*b", &["b", "aaab"], &["aaaa"]),
    ] {
        assert!(yes.iter().all(|value| pattern::matches(pattern, value)), "{pattern}");
        assert!(!no.iter().any(|value| pattern::matches(pattern, value)), "{pattern}");
    }
    for unread in ["(a", "a)", "[a", "*", r"\q", "a{x}", r"[\S]"] {
        assert!(pattern::read(unread).is_none(), "{unread}");
    }
}
