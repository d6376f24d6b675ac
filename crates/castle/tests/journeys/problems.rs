//! Every problem castle knows, as a user sees it: on the terminal and as an object.
//!
//! Each case changes a good castle a little. That there is a case for each code, and a page for each, is a test too.

use castle_spec::Code;

use crate::world::World;

/// A castle without anything to say about it.
pub(crate) const GOOD: &str = "\
castle: blue
platform:
  proxmox:
    endpoint: https://pve.lan:8006
    token: env:PROXMOX_TOKEN
    nodes: [pve]
    vmids: 421-432
talos: {version: v1.13.9}
kubernetes: {version: v1.36.3}
network:
  cidr: 192.168.1.0/24
  gateway: 192.168.1.1
  nameservers: [192.168.1.2]
  vip: 192.168.1.210
  loadBalancers: 192.168.1.240-192.168.1.250
nodes:
  controlPlanes: {count: 3, firstAddress: 192.168.1.211}
  workers: {count: 2, firstAddress: 192.168.1.214, dataDisk: 100GiB}
";

type Case = (Code, &'static [(&'static str, &'static str)]);

/// What turns the good castle into one with that problem.
const CASES: &[Case] = &[
    (Code::YamlSyntax, &[("nodes: [pve]", "nodes: [pve")]),
    (Code::YamlTab, &[("  gateway:", "\tgateway:")]),
    (Code::YamlDuplicateKey, &[("  vip: 192.168.1.210", "  gateway: 192.168.1.3")]),
    (Code::YamlDocuments, &[("network:", "---\nnetwork:")]),
    (
        Code::UnknownKey,
        &[
            ("firstAddress: 192.168.1.214", "firstAddress: 192.168.1.214, memroy: 8GiB"),
            ("castle: blue", "castle: blue\nbridge: vmbr1\ncolour: red"),
        ],
    ),
    (Code::MissingKey, &[("  gateway: 192.168.1.1\n", ""), ("count: 2, ", "")]),
    (
        Code::WrongType,
        &[
            ("nameservers: [192.168.1.2]", "nameservers: 192.168.1.2"),
            ("nodes: [pve]", "nodes:"),
            ("talos: {version: v1.13.9}", "talos: v1.13.9"),
        ],
    ),
    (
        Code::BadValue,
        &[
            ("castle: blue", "castle: Blue"),
            ("dataDisk: 100GiB", "dataDisk: 100GB"),
            ("v1.36.3", "1.36"),
            ("vmids: 421-432", "vmids: 42-432"),
            ("env:PROXMOX_TOKEN", "sops:secrets.yaml"),
        ],
    ),
    (Code::ControlPlanesEven, &[("count: 3", "count: 2")]),
    (
        Code::ControlPlanesTooMany,
        &[("count: 3", "count: 9"), ("192.168.1.214", "192.168.1.224"), ("421-432", "421-450")],
    ),
    (Code::ControlPlaneSingle, &[("count: 3", "count: 1")]),
    (Code::NameTooLong, &[("castle: blue", "castle: a-castle-with-a-name-that-goes-on-and-on-until-nobody-listens")]),
    (Code::NameDuplicate, &[("  workers:", "  overrides: {blue-worker-1: {hostname: blue-cp-1}}\n  workers:")]),
    (
        Code::OverrideUnknownNode,
        &[("  workers:", "  overrides: {blue-workers-1: {cores: 8}, green: {cores: 8}}\n  workers:")],
    ),
    (Code::HostUnknown, &[("  workers:", "  overrides: {blue-worker-1: {host: pve2}}\n  workers:")]),
    (Code::AddressFamily, &[("192.168.1.210", "fd00::210"), ("192.168.1.240-192.168.1.250", "fd00::1-fd00::9")]),
    (
        Code::AddressOutsideCidr,
        &[
            ("gateway: 192.168.1.1", "gateway: 192.168.2.1"),
            ("192.168.1.210", "192.168.3.210"),
            ("192.168.1.214", "192.168.4.214"),
            ("421-432", "421-9999"),
        ],
    ),
    (
        Code::AddressReserved,
        &[
            ("count: 3, firstAddress: 192.168.1.211", "count: 3, firstAddress: 192.168.1.0"),
            ("192.168.1.210", "192.168.1.2"),
            ("192.168.1.214", "192.168.1.248"),
            ("421-432", "421-9999"),
            ("192.168.1.250", "192.168.1.255"),
        ],
    ),
    (Code::AddressDuplicate, &[("192.168.1.214", "192.168.1.212")]),
    (Code::VipMissing, &[("  vip: 192.168.1.210\n", "")]),
    (Code::VipInPool, &[("192.168.1.210", "192.168.1.245")]),
    (Code::PoolOutsideCidr, &[("192.168.1.240-192.168.1.250", "192.168.7.240-192.168.7.250")]),
    (Code::SubnetOverlap, &[("v1.36.3", "v1.36.3, podSubnets: [192.168.0.0/16], serviceSubnets: [192.168.128.0/20]")]),
    (
        Code::SubnetFamily,
        &[
            ("192.168.1.0/24", "fd00::/64"),
            ("192.168.1.1\n", "fe80::1\n"),
            ("192.168.1.210", "fd00::210"),
            ("192.168.1.240-192.168.1.250", "fd00::a:1-fd00::a:f"),
            ("192.168.1.211", "fd00::211"),
            ("192.168.1.214", "fd00::214"),
        ],
    ),
    (Code::TimeServersMixed, &[("[192.168.1.2]", "[192.168.1.2]\n  timeServers: [time.lan, /dev/ptp0]")]),
    (Code::VmidsTooFew, &[("421-432", "421-425")]),
    (
        Code::VmidOutsideRange,
        &[
            ("192.168.1.214", "192.168.1.220"),
            ("  workers:", "  pools: {gpu: {count: 1, firstAddress: 192.168.1.100}}\n  workers:"),
        ],
    ),
    (Code::VmidDuplicate, &[("count: 2,", "count: 2, firstVmid: 422,")]),
    (
        Code::MacDuplicate,
        &[(
            "  workers:",
            "  overrides: {blue-cp-1: {mac: \"02:00:00:00:00:01\"}, blue-cp-2: {mac: \"02:00:00:00:00:01\"}}\n  workers:",
        )],
    ),
    (Code::TalosUnsupported, &[("v1.13.9", "v1.11.0")]),
    (Code::KubernetesUnsupported, &[("v1.36.3", "v1.37.0")]),
    (Code::VersionUntested, &[("v1.13.9", "v1.13.99")]),
    (Code::LonghornExtensions, &[("v1.13.9", "v1.13.9, extensions: [qemu-guest-agent]")]),
    (Code::TaintsEverywhere, &[("dataDisk: 100GiB}", "dataDisk: 100GiB, taints: ['dedicated=db:NoExecute']}")]),
    (
        Code::TaintTwice,
        &[("192.168.1.211}", "192.168.1.211, taints: ['dedicated=db:NoSchedule', 'dedicated=db:NoExecute']}")],
    ),
    (Code::LonghornReplicas, &[("castle: blue", "castle: blue\nstorage: {longhorn: {replicas: 3}}")]),
    (Code::LonghornDataDisk, &[(", dataDisk: 100GiB", "")]),
    (Code::KernelModuleUnknown, &[("v1.13.9", "v1.13.9, kernelModules: [iscsi_generic]")]),
    (Code::KernelModuleNeedless, &[("v1.13.9", "v1.13.9, kernelModules: [iscsi-tcp]")]),
    (
        Code::MirrorCredentials,
        &[(
            "{version: v1.13.9}",
            "\n  version: v1.13.9\n  mirrors:\n    docker.io: {endpoints: ['https://mirror.lan'], credential: env:HUB}\n    \
             ghcr.io: {endpoints: ['https://mirror.lan'], credential: env:GHCR}",
        )],
    ),
    (Code::ComponentUntested, &[("castle: blue", "castle: blue\ncomponents: {metallb: {version: v0.14.9}}")]),
    (Code::ComponentUnused, &[("castle: blue", "castle: blue\ncomponents: {flux: {version: v2.9.0}, longhorn: off}")]),
    (Code::ComponentOwner, &[("castle: blue", "castle: blue\ncomponents: {longhorn: {owner: flux}}")]),
    (
        Code::TrustTwice,
        &[(
            "    nodes:",
            "    fingerprint: AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA:AA\n    ca: pve-root-ca.pem\n    nodes:",
        )],
    ),
    (
        Code::DriveConflict,
        &[("    nodes:", "    hardware: {iso: {file: 'local:iso/rescue.iso', drive: ide2}}\n    nodes:")],
    ),
    (Code::DriveUnavailable, &[("    nodes:", "    hardware: {cloudInitDrive: ide3}\n    nodes:")]),
    (Code::IothreadIgnored, &[("    nodes:", "    hardware: {iothread: true}\n    nodes:")]),
    (Code::MemoryMinimum, &[("count: 3,", "count: 3, memory: 1GiB,"), ("count: 2,", "count: 2, memory: 512MiB,")]),
    (Code::DiskMinimum, &[("count: 3,", "count: 3, disk: 4GiB,")]),
    (
        Code::SecretValue,
        &[
            ("env:PROXMOX_TOKEN", "hunter2hunter2"),
            ("castle: blue", "castle: blue # root@pam!castle=01234567-89ab-cdef-0123-456789abcdef"),
        ],
    ),
    (
        Code::RepositoryAddress,
        &[("castle: blue", "castle: blue\ngitops: {repository: 'git@github.com:me/blue.git', ca: ca.pem}")],
    ),
    (
        Code::KustomizationTwice,
        &[(
            "castle: blue",
            "castle: blue\ngitops: {repository: 'https://github.com/me/blue.git', critical: {apps: 5m}, background: {apps: 1h, flux-system: 1h}}",
        )],
    ),
    (
        Code::VariableReserved,
        &[(
            "castle: blue",
            "castle: blue\ngitops: {repository: 'https://github.com/me/blue.git', vars: {castle_name: red}}",
        )],
    ),
    (
        Code::VaultMissing,
        &[(
            "castle: blue",
            "castle: blue\ngitops: {repository: 'https://github.com/me/blue.git', credential: vault:TOKEN}",
        )],
    ),
];

fn changed(case: &Case) -> String {
    case.1.iter().fold(GOOD.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{}: {from}", case.0.text());
        text.replacen(from, to, 1)
    })
}

/// Snapshots what castle says of a world, and holds that it says `code`.
fn hold(world: &World, code: Code, path: &str) {
    let name = code.text();
    let (terminal, objects) = (world.castle(&["check", path]), world.castle(&["check", path, "--json"]));
    let shown = format!("{}[{name}]", code.severity().word());
    assert!(terminal.stderr.contains(&shown), "{name}: {}", terminal.transcript());
    assert_eq!(terminal.code, objects.code);
    let masked = |text: String| text.replace(world.path("").to_str().unwrap(), "/home/");
    insta::assert_snapshot!(name, masked(terminal.transcript()));
    let problems = &objects.result()["problems"];
    assert!(problems.as_array().unwrap().iter().any(|problem| problem["code"] == name), "{name}: {problems}");
    insta::assert_snapshot!(format!("{name}.json"), masked(format!("{problems:#}\n")));
}

#[test]
fn the_good_castle_has_none() {
    let ran = World::with_castle(GOOD).castle(&["check"]);
    assert_eq!((ran.stderr.as_str(), ran.code), ("", Some(0)));
}

#[test]
fn in_the_file_itself() {
    for case in CASES {
        hold(&World::with_castle(&changed(case)), case.0, "castle.yaml");
    }
}

#[test]
fn in_what_is_no_castle() {
    hold(&World::new(), Code::FileUnreadable, "castle.yaml");
    hold(&World::with_castle(&"# long\n".repeat(200_000)), Code::FileTooLarge, "castle.yaml");
    hold(&World::with_castle("# nothing\n"), Code::FileEmpty, "castle.yaml");
    let world = World::new();
    world.write("castle.yaml", b"castle: bl\xfce\n");
    hold(&world, Code::NotUtf8, "castle.yaml");
    hold(&World::with_castle(&"[".repeat(40)), Code::YamlDepth, "castle.yaml");
    let lines =
        (1..9).map(|level| format!("l{level}: &l{level} [{}]\n", vec![format!("*l{}", level - 1); 9].join(", ")));
    let bomb: String = std::iter::once("l0: &l0 [x, x, x, x, x, x, x, x, x]\n".to_owned()).chain(lines).collect();
    hold(&World::with_castle(&bomb), Code::YamlAliases, "castle.yaml");
}

const LOCK: &str = "schema: 1
components:
  metallb:
    version: v0.16.1
    source: https://raw.githubusercontent.com/metallb/metallb/v0.16.1/config/manifests/metallb-native.yaml
    sha256: bf25feebb7582ca7df845efd52ffbc2960d6cbf4cfc972f47fded9f788b67f0b
  longhorn:
    version: v1.12.1
    source: https://raw.githubusercontent.com/longhorn/longhorn/v1.12.1/deploy/longhorn.yaml
    sha256: 41648963af867ac1d0c85755fb53cf61cacd57c9bb22e1942e3fb0439eeb04fd
  flux:
    version: v2.9.0
    source: mirror:flux-v2.9.0-components.yaml
    sha256: a1dc029bb89dc6f55fc1a5370674adefce990b4d58d1913d7ea5a6a45edc39bf
";

const SEALED: &str = "proxmox:\n    token: ENC[AES256_GCM,data:AA==,iv:AA==,tag:AA==,type:str]\nsops:\n    mac: x\n";

#[test]
fn in_the_files_around_it() {
    let referring = |reference: &str| {
        let world = World::with_castle(&GOOD.replace("env:PROXMOX_TOKEN", reference));
        std::fs::create_dir(world.path(".git")).unwrap();
        world.write(".gitignore", "configs/\n.local/\n");
        world
    };
    hold(&referring("sops:secrets.enc.yaml#proxmox.token"), Code::SecretFileMissing, "castle.yaml");

    let world = referring("sops:secrets.enc.yaml#proxmox.tokn");
    world.write("secrets.enc.yaml", SEALED);
    hold(&world, Code::SopsKeyMissing, "castle.yaml");

    let world = referring("sops:secrets.enc.yaml#proxmox.token");
    world.write("secrets.enc.yaml", "proxmox: {token: hunter2}\n");
    hold(&world, Code::SopsNotEncrypted, "castle.yaml");

    let world = referring("file:token");
    world.write("token", "hunter2\n");
    hold(&world, Code::SecretFileTracked, "castle.yaml");
    world.write(".gitignore", "configs/\n.local/\ntoken\n");
    hold(&world, Code::SecretFileMode, "castle.yaml");

    let world =
        World::with_castle(&GOOD.replace("{version: v1.13.9}", "{version: v1.13.9, patches: [all.yaml, odd.yaml]}"));
    world.write("odd.yaml", "- op: remove\n");
    hold(&world, Code::PatchFile, "castle.yaml");
    world.write("all.yaml", "machine: {certSANs: [castle.lan]}\n");
    world.write("odd.yaml", "# nothing\n");
    assert_eq!(world.castle(&["check"]).code, Some(0));
    // What Talos would refuse only once the machines are there. Nothing of a patch is shown but places.
    world.write("odd.yaml", "machine:\n  network:\n    hostnam: never-shown-value\n");
    hold(&world, Code::PatchRefused, "castle.yaml");
    for (patch, said) in [
        ("machine: {install: {wipe: never-shown-value}}\n", "machine.install.wipe: must be a bool"),
        ("machine: {certSANs: {a: never-shown-value}}\n", "machine.certSANs: must be a list"),
        (
            "apiVersion: v1alpha1\nkind: KubeInlineManifestConfig\nname: never-shown-value\n",
            "this Talos knows no such document",
        ),
        (
            "cluster: {apiServer: {admissionControl: [{name: PodSecurity, configuration: {kind: {}}}]}}\n",
            "of another type",
        ),
        ("cluster:\n  network:\n    cni: {name: custom}\n---\ncluster:\n  network: {}\n", "twice"),
        ("machine: {kubelet: {image: a, $patch: replace}}\n", "$patch knows only delete"),
        // What merges, and a node refuses as a whole.
        (
            "machine: {network: {hostname: never-shown-value}}\n",
            "machine.network.hostname: static hostname is already set in v1alpha1 config",
        ),
        ("machine: {time: {servers: [never-shown-value]}}\n", ""),
        ("machine: {nodeTaints: {key: never-shown-value}}\n", "invalid machine node taints"),
        (
            "apiVersion: v1alpha1\nkind: Layer2VIPConfig\nname: never-shown-value\nlink: net0\n",
            "must be a valid IP address",
        ),
    ] {
        world.write("odd.yaml", patch);
        for verb in [&["check"][..], &["plan", "--json"]] {
            let ran = world.castle(verb);
            assert!(!ran.transcript().contains("never-shown-value"), "{}", ran.transcript());
            if verb[0] == "check" {
                // Without time servers of castle's own, those of a patch are in nobody's way.
                assert_eq!(ran.code, Some(if said.is_empty() { 0 } else { 4 }), "{patch}: {}", ran.transcript());
                assert!(ran.transcript().contains(said), "{patch}: {}", ran.transcript());
            }
        }
    }
    // Talos 1.14 has documents in the place of much of the first one.
    let world = World::with_castle(&GOOD.replace("{version: v1.13.9}", "{version: v1.14.0, patches: [odd.yaml]}"));
    for (patch, said) in [
        ("machine: {kubelet: {extraArgs: {v: '4'}}}\n", "machine.kubelet: kubelet config is already set"),
        (
            "cluster: {apiServer: {certSANs: [never-shown-value]}}\n",
            "cluster.apiServer: kube-apiserver config is already set",
        ),
        ("cluster: {network: {dnsDomain: never-shown-value}}\n", "cluster.network: "),
        (
            "apiVersion: v1alpha1\nkind: KubeSchedulerConfig\nimage: never-shown-value\n",
            "KubeSchedulerConfig: only control planes",
        ),
    ] {
        world.write("odd.yaml", patch);
        let ran = world.castle(&["check"]);
        assert!(ran.code == Some(4) && ran.transcript().contains(said), "{patch}: {}", ran.transcript());
        assert!(!ran.transcript().contains("never-shown-value"), "{}", ran.transcript());
        assert_eq!(ran.transcript().matches("error[patch-refused]").count(), 1, "one cause: {}", ran.transcript());
    }
    world.write("odd.yaml", "apiVersion: v1alpha1\nkind: KubeletConfig\nextraArgs: {v: '4'}\n");
    assert_eq!(world.castle(&["check"]).code, Some(0));

    let world = World::with_castle(
        &GOOD
            .replace("{version: v1.36.3}", "{version: v1.36.3, cni: none}")
            .replace("{version: v1.13.9}", "{version: v1.13.9, patches: [all.yaml]}"),
    );
    world.write("all.yaml", "machine: {certSANs: [castle.lan]}\n");
    hold(&world, Code::NetworkMissing, "castle.yaml");
    for network in [
        "cluster: {inlineManifests: [{name: cilium, contents: x}]}\n",
        "cluster: {extraManifests: ['https://manifests.lan/cilium.yaml']}\n",
    ] {
        world.write("all.yaml", network);
        let ran = world.castle(&["check"]);
        assert!(ran.code == Some(0) && !ran.transcript().contains("network-missing"), "{}", ran.transcript());
    }

    let special = "castle: blue\ncomponents: {metallb: {patches: [odd.yaml], source: metallb.yaml}}";
    let world = World::with_castle(&GOOD.replace("castle: blue", special));
    world.write("odd.yaml", "spec: {}\n");
    hold(&world, Code::ComponentSource, "castle.yaml");

    // What a controller is wanted of and has none is known before anything is raised, once that manifest is the pinned one.
    let watched = "castle: blue\ngitops: {repository: 'https://github.com/me/blue.git'}\ncomponents: {flux: {sourceWatcher: true}}";
    let world = World::with_castle(&GOOD.replace("castle: blue", watched));
    let doubted = world.castle(&["check"]);
    assert!(
        doubted.code == Some(0) && doubted.stderr.contains("warning[component-untested]"),
        "{}",
        doubted.transcript()
    );
    world.write("castle.lock", LOCK);
    hold(&world, Code::ComponentIncomplete, "castle.yaml");
    assert!(!world.castle(&["check"]).stderr.contains("component-untested"), "one cause, told once");
    let other = LOCK.replace("a1dc029bb89dc6f55fc1a5370674adefce990b4d58d1913d7ea5a6a45edc39bf", &"f".repeat(64));
    world.write("castle.lock", other);
    assert_eq!(world.castle(&["check"]).code, Some(0), "of another manifest castle knows nothing");

    let world = World::with_castle(GOOD);
    world.write("castle.lock", "schema: 1\ncomponents:\n  metallb:\n    version: v0.16.1\n    sha256: x\n");
    hold(&world, Code::LockBroken, "castle.yaml");
    world.write("castle.lock", "schema: 1\ncomponents: {}\n");
    hold(&world, Code::LockStale, "castle.yaml");

    let world = referring("env:PROXMOX_TOKEN");
    assert_eq!(world.castle(&["check"]).code, Some(0));
    world.write(".gitignore", ".local/\n");
    hold(&world, Code::ConfigsTracked, "castle.yaml");
    world.write(".gitignore", "configs/\n");
    hold(&world, Code::StateTracked, "castle.yaml");
}

#[test]
fn each_has_a_case_and_a_page() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/journeys/snapshots");
    let pages = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/checks.md")).unwrap();
    let anchors: Vec<&str> = pages.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    for code in Code::ALL {
        let name = code.text();
        for form in ["", ".json"] {
            let snapshot = format!("{folder}/journeys__problems__{name}{form}.snap");
            assert!(std::path::Path::new(&snapshot).exists(), "{name} has no case: {snapshot}");
        }
        let page = pages
            .split(&format!("\n### {name}\n"))
            .nth(1)
            .unwrap_or_else(|| panic!("{name} has no section in docs/checks.md"));
        let word = code.severity().word();
        let marked = format!("*{}{}.*", word[..1].to_uppercase(), &word[1..]);
        assert!(page.starts_with(&marked), "the section of {name} does not begin with {marked}");
    }
    for anchor in &anchors {
        assert!(
            Code::ALL.iter().any(|code| code.text() == *anchor),
            "docs/checks.md has {anchor}, which no check reports"
        );
    }
    assert_eq!(anchors.len(), Code::ALL.len(), "a section twice");
}
