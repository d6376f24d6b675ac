//! Inputs that tests generate from.

use super::*;

/// Secrets that are told apart in the output, and are none.
pub(super) fn fake() -> Secrets<'static> {
    let authority = |certificate, key| Authority { certificate, key };
    Secrets {
        cluster_id: "cluster id",
        cluster_secret: "cluster secret",
        token: "bootstrap token",
        trustd_token: "trustd token",
        secretbox: "secretbox",
        etcd: authority("etcd certificate\n", "etcd key\n"),
        k8s: authority("k8s certificate\n", "k8s key\n"),
        aggregator: authority("aggregator certificate\n", "aggregator key\n"),
        os: authority("os certificate\n", "os key\n"),
        service_account_key: "service account key\n",
    }
}

/// What Talos' generator was asked for.
pub(super) fn plain(secrets: Secrets<'_>) -> Input<'_> {
    let node = Node { install: Some(Install::default()), ..Node::default() };
    Input { secrets, cluster: Cluster::new("base", "https://base:6443", "1.28.0"), node }
}

/// A node of a castle that asks for everything.
pub(super) fn rich(secrets: Secrets<'_>) -> Input<'_> {
    let mut cluster = Cluster::new("blue", "https://192.168.1.210:6443", "v1.36.3");
    cluster.cni = Cni::None;
    cluster.kube_proxy = false;
    cluster.discovery = false;
    cluster.schedule_on_control_planes = true;
    cluster.balance_to_control_planes = true;
    cluster.workload_isolation = false;
    cluster.pod_subnets = vec!["10.1.0.0/16".to_owned()];
    cluster.service_subnets = vec!["10.2.0.0/16".to_owned()];
    cluster.api_server_sans = vec!["192.168.1.210".to_owned(), "kube.blue.lan".to_owned()];
    let text = |text: &str| text.to_owned();
    let link = Link {
        name: text("net0"),
        mac: Some(text("BC:24:11:00:00:01")),
        mtu: Some(1400),
        addresses: vec![text("192.168.1.211/24"), text("fd00::211/64")],
        routes: vec![
            Route { destination: None, gateway: text("192.168.1.1") },
            Route { destination: Some(text("10.9.0.0/16")), gateway: text("192.168.1.2") },
        ],
    };
    let installer = factory_installer("factory.talos.dev", "nocloud", "e187c9b9", "1.13.9");
    let node = Node {
        hostname: Some(text("blue-cp-1")),
        certificate_sans: vec![text("blue-cp-1.lan")],
        links: vec![link],
        vip: Some(Vip { address: text("192.168.1.210"), link: text("net0") }),
        nameservers: vec![text("192.168.1.1"), text("9.9.9.9")],
        time_servers: vec![text("192.168.1.1"), text("time.lan")],
        install: Some(Install { disk: Some(Disk::Serial(text("root \"1\""))), image: Some(installer), wipe: false }),
        volumes: vec![Volume::longhorn(Disk::Serial(text("data1")))],
        labels: [(text("castle.dev/pool"), text("main"))].into(),
        taints: [(text("dedicated"), text("storage:NoSchedule"))].into(),
        mirrors: vec![Mirror {
            registry: text("docker.io"),
            endpoints: vec![(text("https://mirror.lan/v2/hub"), true), (text("https://other.lan"), false)],
            skip_fallback: true,
        }],
        registry_logins: vec![
            RegistryLogin {
                registry: text("mirror.lan"),
                credential: Credential::Password {
                    username: text("me"),
                    password: Secret::from(text("mirror password")),
                },
            },
            RegistryLogin {
                registry: text("other.lan"),
                credential: Credential::Basic(Secret::from(text("bWU6bWU="))),
            },
            RegistryLogin { registry: text("third.lan"), credential: Credential::Token(Secret::from(text("a token"))) },
        ],
        kernel_modules: [(text("nbd"), vec![text("nbds_max=16")]), (text("ublk_drv"), vec![])].into(),
        sysctls: [(text("vm.nr_hugepages"), text("1024"))].into(),
        kubelet_args: [(text("v"), text("2"))].into(),
    };
    Input { secrets, cluster, node }
}

/// Every input that tests use, by name.
pub(super) fn inputs(secrets: Secrets<'_>) -> Vec<(&'static str, Input<'_>)> {
    let with = |change: &dyn Fn(&mut Input<'_>)| {
        let mut input = plain(secrets);
        change(&mut input);
        input
    };
    let disk = |disk: Disk| {
        with(&|input| input.node.install = Some(Install { disk: Some(disk.clone()), ..Install::default() }))
    };
    let volume = |disk: Disk| with(&|input| input.node.volumes = vec![Volume::longhorn(disk.clone())]);
    vec![
        ("plain", plain(secrets)),
        ("rich", rich(secrets)),
        ("image", with(&|input| input.node.install = None)),
        ("install by serial", disk(Disk::Serial("root".to_owned()))),
        ("install by wwid", disk(Disk::Wwid("naa.5000".to_owned()))),
        ("install by size", disk(Disk::Bytes(34_359_738_368))),
        ("volume beside the system", volume(Disk::NotSystem)),
        ("volume by size", volume(Disk::Bytes(107_374_182_400))),
        (
            "volume by expression",
            volume(Disk::Matching("disk.transport == \"nvme\" && disk.size > 50u * GiB".to_owned())),
        ),
        ("clock of the host", with(&|input| input.node.time_servers = vec!["/dev/ptp0".to_owned()])),
        (
            "name of an interface",
            with(&|input| {
                input.node.links = vec![Link {
                    name: "eth0".to_owned(),
                    mac: None,
                    mtu: None,
                    addresses: vec!["10.0.0.2/24".to_owned()],
                    routes: vec![],
                }];
            }),
        ),
    ]
}
