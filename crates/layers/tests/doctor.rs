//! The doctor against the embedded datacenter, in virtual time.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use castle_datacenter::blueprint::{AclEntry, GIB, Storage, StorageKind, Stranger, Token as TokenOf, User};
use castle_datacenter::{Asked, Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, Latencies, Reply, Version, Witness};
use castle_engine::{Alone, CastleId, Deaf, Graph, GraphBuilder, Journal, Layer, OperationId, StepId, Tools, Wanted, run};
use castle_http::{Endpoint, Trust};
use castle_layers::doctor::{Case, Finding, Verdict, examine, needs};
use castle_layers::platform::{self, Design, Whose};
use castle_layers::{Site, place, survey};
use castle_proxmox::client::{Access, Client, Token};
use castle_proxmox::model::{Mark, Release, pveum, requirements};
use castle_proxmox::steps::{Ground, Reach};
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, DialErrorKind, Disk, Target};
use castle_spec::{Castle, Node};
use castle_testkit::vendor::Vendor;
use castle_testkit::{Chance, ModelDisk, Pulse, VirtualClock, in_virtual_time};

const POOL: &str = "pool: blue";
const TWO: &str = "nodes: [pve1, pve2]";

fn file(workers: u32, more: &[&str]) -> String {
    let more = more.join("\n    ");
    format!(
        "castle: blue
platform:
  proxmox:
    endpoint: https://pve:8006
    token: env:PROXMOX_TOKEN
    vmids: 421-1429
    {more}
talos: {{version: v1.13.9, extensions: [qemu-guest-agent]}}
kubernetes: {{version: v1.36.3}}
network: {{cidr: 10.0.0.0/16, gateway: 10.0.0.1, nameservers: [10.0.0.1], vip: 10.0.255.1}}
nodes:
  controlPlanes: {{count: 3, firstAddress: 10.0.1.1, cores: 2, memory: 256MiB, disk: 8GiB}}
  workers: {{count: {workers}, firstAddress: 10.0.1.8, cores: 4, memory: 256MiB, disk: 4GiB, dataDisk: 2GiB}}
storage: none
"
    )
}

/// Holds that every request only looks, and that the vendor would take it.
struct Clerk(Option<Vendor>);

impl Witness for Clerk {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        assert!(!asked.is_change, "{} {}", asked.method, asked.path);
        if let Some(vendor) = &self.0 {
            let verdict = vendor.check(&asked.method, &asked.path, &asked.parameters);
            assert_eq!(verdict, Ok(()), "{} {} {:?}", asked.method, asked.path, asked.parameters);
        }
        Some(handle())
    }
}

struct Practice {
    datacenter: Datacenter,
    castle: Castle,
    nodes: Vec<Node>,
    site: Site,
    id: CastleId,
    clock: Arc<dyn Clock>,
    token: String,
    entry: String,
}

impl Practice {
    fn new(blueprint: Blueprint, text: &str, clock: &VirtualClock) -> Self {
        let reading = castle_spec::read(text.as_bytes());
        let castle = reading.castle.unwrap_or_else(|| panic!("{:?}", reading.problems));
        let clock: Arc<dyn Clock> = Arc::new(*clock);
        let entry = blueprint.hosts[0].name.clone();
        let vendor = Vendor::load(if blueprint.version == Version::Eight { 8 } else { 9 });
        let datacenter = Datacenter::new(blueprint.with_latencies(Latencies::none()), clock.clone());
        datacenter.watch(Arc::new(Clerk(vendor)));
        let id = CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 1 };
        let token = format!("{EMBEDDED_TOKEN_ID}={EMBEDDED_TOKEN}");
        Self { datacenter, site: Site::of(&castle), castle, nodes: reading.nodes, id, clock, token, entry }
    }

    fn client(&self) -> Client {
        let access = Access {
            endpoint: Endpoint::parse(&format!("http://{}:8006", self.entry)).unwrap(),
            trust: Trust::PublicRoots,
            token: Token::parse(&self.token).unwrap(),
        };
        Client::new(access, self.datacenter.dial(), self.clock.clone()).unwrap()
    }

    async fn examine_dialling(&self, dial: &dyn Dial) -> Vec<Finding> {
        let client = self.client();
        let (site, castle, nodes, identity) = (&self.site, &self.castle, self.nodes.as_slice(), &self.id);
        examine(Case { client: &client, site, castle, nodes, identity, dial, probe_addresses: true }).await
    }

    async fn examine(&self) -> Vec<Finding> {
        self.examine_dialling(self.datacenter.dial().as_ref()).await
    }

    /// A guest of this castle as the list shows it.
    fn settle(&self, vmid: u32, name: &str, castle: &CastleId) {
        let operation = OperationId::of(castle, &StepId::new(&Layer::new("platform"), "vm", name), "clone");
        let mut guest = Stranger::new(vmid, &self.entry, name, "local-lvm", 1);
        guest.config.insert("description".into(), Mark::new(castle, name, &operation, 1).to_string());
        let mut tags: Vec<String> = Mark::tags_of(castle).into_iter().collect();
        tags.push("castle-is-0123456789ab".into());
        guest.config.insert("tags".into(), tags.join(";"));
        self.datacenter.add_guest(guest);
    }
}

fn embedded(hosts: &[&str]) -> Blueprint {
    Blueprint::embedded(&hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())
}

/// The findings that are not well, as `check subject: evidence`.
fn ill(findings: &[Finding]) -> Vec<String> {
    let ill = findings.iter().filter(|finding| finding.verdict != Verdict::Well);
    ill.map(|it| format!("{} {} {}: {}", it.verdict.word(), it.check, it.subject, it.evidence)).collect()
}

/// What is found in an embedded datacenter of one host that was changed a little.
fn found(more: &[&str], change: impl FnOnce(&mut Blueprint), then: impl FnOnce(&mut Practice)) -> Vec<String> {
    in_virtual_time(async |clock| {
        let mut blueprint = embedded(&["pve"]);
        change(&mut blueprint);
        let mut practice = Practice::new(blueprint, &file(2, more), clock);
        then(&mut practice);
        let findings = practice.examine().await;
        assert!(findings.iter().filter(|it| it.verdict == Verdict::Wrong).all(|it| !it.evidence.is_empty()), "{findings:?}");
        ill(&findings)
    })
}

#[test]
fn a_castle_that_can_be_raised_is_well() {
    for version in [Version::Eight, Version::Nine] {
        for (hosts, more) in [(&["pve"][..], ""), (&["pve1", "pve2"], TWO)] {
            in_virtual_time(async |clock| {
                let practice = Practice::new(embedded(hosts).on(version), &file(2, &[more]), clock);
                let findings = practice.examine().await;
                assert_eq!(ill(&findings), [""; 0]);
                let checks: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
                let expected = [
                    "reachable", "certificate", "token", "version", "quorum", "hosts", "privileges", "storage", "storage",
                    "linked-clones", "bridge", "placement", "vmids", "addresses",
                ];
                assert_eq!(checks, expected);
            });
        }
    }
}

#[test]
fn who_is_not_let_in_learns_why_and_no_more() {
    let unreachable = found(&[POOL], |_| {}, |practice| practice.entry = "nowhere".into());
    assert_eq!(unreachable.len(), 14, "{unreachable:?}");
    assert!(unreachable[0].starts_with("wrong reachable : cannot connect to nowhere:8006: the name did not resolve"), "{unreachable:?}");
    assert!(unreachable[1..].iter().all(|line| line.starts_with("unknown ") && line.contains("not asked: ")));

    let down = found(&[], |_| {}, |practice| practice.datacenter.host_down("pve"));
    assert!(down[0].contains("connection refused"), "{down:?}");

    for change in [
        (|practice: &mut Practice| practice.token = format!("{EMBEDDED_TOKEN_ID}=wrong")) as fn(&mut Practice),
        |practice| practice.datacenter.expire_token(EMBEDDED_TOKEN_ID),
    ] {
        let refused = found(&[], |_| {}, change);
        assert!(refused[0].starts_with("wrong token : it is wrong, expired or disabled: Authentication failed!"), "{refused:?}");
        assert!(refused[1..].iter().all(|line| line.contains("not asked: ")), "{refused:?}");
    }
}

#[test]
fn hosts_that_are_not_there_are_named() {
    let absent = found(&["nodes: [pve, pve9]"], |_| {}, |_| {});
    assert_eq!(absent, ["wrong hosts pve9: there is no such host: the cluster has pve",
        "wrong privileges /nodes/pve9: Sys.AccessNetwork is missing: to let the host download the image",
        "warning privileges /nodes/pve9: Sys.Audit is missing: free memory, so that nodes go where they fit"][..1]);
    in_virtual_time(async |clock| {
        let practice = Practice::new(embedded(&["pve1", "pve2", "pve3"]), &file(2, &[TWO]), clock);
        practice.datacenter.host_down("pve2");
        assert_eq!(ill(&practice.examine().await), ["wrong hosts pve2: is not online"]);
        practice.datacenter.set_quorum(false);
        let findings = ill(&practice.examine().await);
        assert_eq!(findings[0], "wrong quorum : too few hosts of the cluster are there: nothing can be changed");
    });
}

#[test]
fn storages_that_will_not_do_are_named() {
    let without_import = found(&[], |it| it.storages[0].content.retain(|word| word != "import"), |_| {});
    assert_eq!(without_import, ["wrong storage local on pve: does not take `import`; it takes backup, iso, vztmpl"]);
    let absent = found(&["storage: {disks: fast, images: local}"], |_| {}, |_| {});
    assert_eq!(absent[0], "wrong storage fast on pve: there is no such storage; that host has local, local-lvm");
    let full = found(&[], |_| {}, |practice| practice.datacenter.fill_storage("pve", "local", GIB));
    assert_eq!(full, ["wrong storage local on pve: 1.0 GiB are free, and the image takes up to 2.0 GiB"]);
    let thick = |blueprint: &mut Blueprint| {
        blueprint.storages[1] = Storage::new("local-lvm", StorageKind::Lvm, &["images"], 100 * GIB);
    };
    let slow = found(&[], thick, |practice| practice.datacenter.fill_storage("pve", "local-lvm", 50 * GIB));
    assert_eq!(slow.len(), 1, "{slow:?}");
    assert!(slow[0].starts_with("warning linked-clones local-lvm: lvm cannot"), "{slow:?}");
    // Room for the disks, and none for the image beside them.
    let tight = found(&[], thick, |practice| practice.datacenter.fill_storage("pve", "local-lvm", 37 * GIB));
    assert_eq!(tight[0], "wrong storage local-lvm on pve: 37.0 GiB are free, and the disks take 38.0 GiB at once");
}

#[test]
fn nodes_that_fit_nowhere_are_named() {
    let crowded = found(&[], |it| it.hosts[0].memory = 5 * GIB, |_| {});
    assert_eq!(crowded.len(), 1, "{crowded:?}");
    assert!(crowded[0].starts_with("wrong placement blue-worker-2: fits on no host: pve has "), "{crowded:?}");
}

#[test]
fn a_bridge_and_a_pool_that_are_not_there_are_named() {
    let bridge = found(&["bridge: vmbr7"], |_| {}, |_| {});
    assert_eq!(bridge, ["wrong bridge vmbr7 on pve: there is no such bridge; that host has vmbr0"]);
    let pool = found(&[POOL], |_| {}, |_| {});
    assert_eq!(pool, ["wrong pool blue: there is no such pool"]);
}

#[test]
fn guests_of_others_among_the_numbers_are_named() {
    let stranger = |vmid, name: &str| Stranger::new(vmid, "pve", name, "local-lvm", 8);
    let foreign = found(&[], |it| it.guests.extend([stranger(421, "mail"), stranger(900, "web"), stranger(2000, "far")]), |_| {});
    assert_eq!(foreign, [
        "wrong vmids VM 421 (mail) on pve: is not castle's: it has no mark",
        "warning vmids VM 900 (web) on pve: is not castle's: it has no mark",
    ]);
    let marked = found(&[], |_| {}, |practice| {
        let life = |lineage: &str, generation| CastleId { lineage: lineage.into(), generation, ..practice.id.clone() };
        let green = CastleId { name: "green/proxmox".into(), ..life("fedcba9876543210", 1) };
        practice.settle(421, "green-cp-1", &green);
        practice.settle(422, "blue-cp-2", &life("0123456789abcdef", 0));
        practice.settle(423, "blue-cp-7", &practice.id);
    });
    assert_eq!(marked, [
        "wrong vmids VM 421 (green-cp-1) on pve: belongs to another castle: it is `green-cp-1` of green/proxmox (lineage fedcba9876543210)",
        "wrong vmids VM 423 (blue-cp-7) on pve: is `blue-cp-7` of this castle, and the file wants `blue-cp-3` there",
    ]);
}

#[test]
fn a_castle_of_the_same_name_and_another_lineage_is_seen_through() {
    let namesakes = found(&[], |_| {}, |practice| {
        let other = CastleId { lineage: "fedcba9876543210".into(), ..practice.id.clone() };
        for (vmid, name) in [(421, "blue-cp-1"), (422, "blue-cp-2")] {
            practice.settle(vmid, name, &other);
        }
    });
    assert_eq!(namesakes.len(), 2, "{namesakes:?}");
    assert!(namesakes.iter().all(|line| line.contains("belongs to another castle")), "{namesakes:?}");
}

/// As many requests for five nodes as for five hundred, be they made or not.
#[test]
fn requests_do_not_grow_with_the_castle() {
    let count = |workers: u32, stands: bool| {
        in_virtual_time(async |clock| {
            let practice = Practice::new(embedded(&["pve1", "pve2"]), &file(workers, &[TWO]), clock);
            for node in practice.nodes.iter().filter(|_| stands) {
                practice.settle(node.vmid.0, &node.name.value, &practice.id);
            }
            assert_eq!(ill(&practice.examine().await), [""; 0]);
            practice.datacenter.requests()
        })
    };
    assert_eq!((count(2, false), count(497, false)), (10, 10));
    assert_eq!((count(2, true), count(497, true)), (11, 11));
}

/// However many strangers there are, few are looked at.
#[test]
fn strangers_are_looked_at_within_bounds() {
    in_virtual_time(async |clock| {
        let practice = Practice::new(embedded(&["pve"]), &file(2, &[]), clock);
        for vmid in 430..830 {
            practice.datacenter.add_guest(Stranger::new(vmid, "pve", "other", "local-lvm", 1));
        }
        let findings = ill(&practice.examine().await);
        assert!(practice.datacenter.requests() <= 8 + 32, "{}", practice.datacenter.requests());
        assert!(findings.last().unwrap().contains("368 more guests have numbers of the castle"), "{findings:?}");
    });
}

/// A network in which some answer, some refuse, and the others are silent.
struct Street<'s> {
    clock: &'s dyn Clock,
    answers: BTreeMap<Target, DialErrorKind>,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Dial for Street<'_> {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        Box::pin(async move {
            let kind = self.answers.get(target).copied();
            self.most.fetch_max(self.now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let wait = if kind.is_none() { Duration::from_millis(900) } else { Duration::from_millis(1) };
            self.clock.sleep(wait).await;
            self.now.fetch_sub(1, Ordering::Relaxed);
            let error = |kind| DialError { target: target.clone(), kind, tried: Vec::new(), source: std::io::Error::other("no") };
            match kind {
                Some(DialErrorKind::Other) => Ok(Box::new(Silence) as Box<dyn ByteStream>),
                kind => Err(error(kind.unwrap_or(DialErrorKind::TimedOut))),
            }
        })
    }
}

/// A connection over which nothing comes.
struct Silence;

impl tokio::io::AsyncRead for Silence {
    fn poll_read(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        _: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

impl tokio::io::AsyncWrite for Silence {
    fn poll_write(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}

#[test]
fn addresses_that_somebody_has_are_named() {
    in_virtual_time(async |clock| {
        let mut practice = Practice::new(embedded(&["pve"]), &file(200, &[]), clock);
        let answers = [
            (Target::new("10.0.1.1", 22), DialErrorKind::Other),
            (Target::new("10.0.1.2", 6443), DialErrorKind::Refused),
            (Target::new("10.0.1.3", 50_000), DialErrorKind::Unreachable),
            (Target::new("10.0.255.1", 6443), DialErrorKind::Other),
        ];
        let street = Street { clock, answers: answers.into(), now: AtomicUsize::new(0), most: AtomicUsize::new(0) };
        let begun = clock.monotonic();
        let findings = ill(&practice.examine_dialling(&street).await);
        let took = clock.monotonic() - begun;
        assert_eq!(findings, [
            "wrong addresses 10.0.1.1 (blue-cp-1): somebody is there: port 22 answers",
            "wrong addresses 10.0.1.2 (blue-cp-2): somebody is there: port 6443 is refused",
            "wrong addresses 10.0.255.1 (network.vip): somebody is there: port 6443 answers",
        ]);
        assert_eq!(street.most.load(Ordering::Relaxed), 64, "so many at once");
        assert!(took <= Duration::from_secs(10), "612 dials took {took:?}");
        // A node that stands answers at its own address, and at that of the API.
        let id = practice.id.clone();
        practice.settle(421, "blue-cp-1", &id);
        practice.nodes.truncate(2);
        let findings = ill(&practice.examine_dialling(&street).await);
        assert_eq!(findings, ["wrong addresses 10.0.1.2 (blue-cp-2): somebody is there: port 6443 is refused"]);
    });
}

/// What the commands of [`pveum`] make, read from the commands.
#[derive(Clone, Debug, Default)]
struct Granted {
    roles: BTreeMap<String, Vec<String>>,
    acl: Vec<(String, String, bool)>,
    pools: Vec<String>,
}

impl Granted {
    fn read(lines: &[String]) -> Self {
        let mut granted = Self::default();
        for line in lines.iter().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["pveum", "pool", "add", pool] => granted.pools.push((*pool).to_owned()),
                ["pveum", "role", "add", role] => drop(granted.roles.insert((*role).to_owned(), Vec::new())),
                ["pveum", "role", "modify", role, "--privs", ..] => {
                    let privileges = line.split('\'').nth(1).unwrap().split(' ').map(str::to_owned).collect();
                    assert!(granted.roles.insert((*role).to_owned(), privileges).is_some(), "{role} is not there yet");
                }
                ["pveum", "user", "add", "castle@pve"] => {}
                ["pveum", "user", "token", "add", "castle@pve", "blue", "--privsep", "1"] => {}
                ["pveum", "acl", "modify", path, "--users", "castle@pve", "--tokens", "'castle@pve!blue'", "--roles", role, "--propagate", below] => {
                    assert!(granted.roles.contains_key(*role), "{role} is not there yet");
                    granted.acl.push(((*path).to_owned(), (*role).to_owned(), *below == "1"));
                }
                _ => panic!("what is `{line}`?"),
            }
        }
        granted
    }

    fn of(practice_file: &str, version: Version) -> Self {
        let castle = castle_spec::read(practice_file.as_bytes()).castle.unwrap();
        let site = Site::of(&castle);
        Self::read(&pveum(&needs(&site), release(version), "castle@pve", "blue"))
    }

    /// A datacenter in which nothing else is granted.
    fn blueprint(&self, version: Version) -> Blueprint {
        let mut blueprint = embedded(&["pve1", "pve2"]);
        blueprint.version = version;
        let token = TokenOf { name: "blue".into(), secret: "secret".into(), privsep: true };
        blueprint.users = vec![User { id: "castle@pve".into(), password: None, tokens: vec![token] }];
        blueprint.roles = self.roles.clone();
        blueprint.pools = self.pools.clone();
        let entry = |who: &str| {
            let who = who.to_owned();
            move |(path, role, propagate): &(String, String, bool)| AclEntry {
                path: path.clone(),
                who: who.clone(),
                role: role.clone(),
                propagate: *propagate,
            }
        };
        blueprint.acl = self.acl.iter().map(entry("castle@pve")).chain(self.acl.iter().map(entry("castle@pve!blue"))).collect();
        blueprint
    }

    fn practice(&self, version: Version, text: &str, clock: &VirtualClock) -> Practice {
        let practice = Practice::new(self.blueprint(version), text, clock);
        Practice { token: "castle@pve!blue=secret".into(), ..practice }
    }

    fn examine(&self, version: Version, text: &str) -> Vec<Finding> {
        in_virtual_time(async |clock| self.practice(version, text, clock).examine().await)
    }
}

fn release(version: Version) -> Release {
    match version {
        Version::Eight => Release { major: 8, minor: 4 },
        Version::Nine => Release { major: 9, minor: 2 },
    }
}

/// Castles of all kinds that differ in what they need.
fn kinds() -> Vec<(Version, String)> {
    let mores: [&[&str]; 3] = [&[TWO], &[TWO, POOL], &[TWO, POOL, "vlan: 30"]];
    let files = mores.map(|more| file(2, more));
    [Version::Eight, Version::Nine].into_iter().flat_map(|version| files.clone().map(|file| (version, file))).collect()
}

#[test]
fn what_pveum_grants_is_enough_for_the_doctor_and_nothing_of_it_can_be_left_out() {
    for (version, text) in kinds() {
        let granted = Granted::of(&text, version);
        assert_eq!(ill(&granted.examine(version, &text)), [""; 0], "{text}");
        for (role, privileges) in &granted.roles {
            for privilege in privileges {
                let mut less = granted.clone();
                less.roles.get_mut(role).unwrap().retain(|it| it != privilege);
                let paths: BTreeSet<&str> =
                    granted.acl.iter().filter(|(_, of, _)| of == role).map(|(path, ..)| path.as_str()).collect();
                assert_named(&less.examine(version, &text), privilege, &paths);
            }
        }
        for index in 0..granted.acl.len() {
            let mut less = granted.clone();
            let (path, role, _) = less.acl.remove(index);
            let findings = less.examine(version, &text);
            let named: BTreeSet<&str> = lacking(&findings).map(|it| it.subject.as_str()).collect();
            assert_eq!(named, BTreeSet::from([path.as_str()]), "without {role} on {path}: {findings:?}");
        }
    }
}

fn lacking(findings: &[Finding]) -> impl Iterator<Item = &Finding> {
    findings.iter().filter(|it| it.check == "privileges" && it.verdict != Verdict::Well)
}

/// Holds that this privilege is named at these places, and that nothing else is said to be wrong.
fn assert_named(findings: &[Finding], privilege: &str, paths: &BTreeSet<&str>) {
    let named: BTreeSet<&str> = lacking(findings).map(|it| it.subject.as_str()).collect();
    assert_eq!(&named, paths, "without {privilege}: {findings:?}");
    for finding in lacking(findings) {
        assert!(finding.evidence.starts_with(&format!("{privilege} is missing: ")), "{finding:?}");
    }
    let others = findings.iter().filter(|it| it.check != "privileges");
    for finding in others {
        assert!([Verdict::Well, Verdict::Unknown].contains(&finding.verdict), "without {privilege}: {finding:?}");
    }
}

#[test]
fn each_privilege_that_is_revoked_is_named_and_nothing_else() {
    let text = file(2, &[TWO, POOL]);
    let granted = Granted::of(&text, Version::Nine);
    let site = Site::of(&castle_spec::read(text.as_bytes()).castle.unwrap());
    let all = requirements(&needs(&site), release(Version::Nine));
    for privilege in all.iter().map(|it| it.privilege).collect::<BTreeSet<_>>() {
        let paths = all.iter().filter(|it| it.privilege == privilege).map(|it| it.path.as_str()).collect();
        let findings = in_virtual_time(async |clock| {
            let practice = granted.practice(Version::Nine, &text, clock);
            practice.datacenter.revoke("castle@pve!blue", privilege);
            practice.examine().await
        });
        assert_named(&findings, privilege, &paths);
    }
}

async fn execute(practice: &Practice, graph: &Graph) {
    let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
    let journal = Mutex::new(Journal::open(&disk, Path::new("/journal"), &practice.id).unwrap().0);
    let (clock, fence) = (practice.clock.as_ref(), Alone { epoch: 1 });
    let entropy = &Chance::new(1);
    let tools = Tools { clock, entropy, fence: &fence, listener: &Deaf, signals: None, journal: Some(&journal) };
    let report = run(graph, tools, &Wanted::all(practice.id.clone())).await;
    let undone: Vec<_> = report.ended(|outcome| !outcome.is_done()).collect();
    assert!(undone.is_empty(), "{undone:#?}");
}

/// Not only the doctor: castle itself raises, removes and raises again with these rights alone.
#[test]
fn what_pveum_grants_is_enough_to_raise_a_castle_and_to_raise_it_again() {
    for (version, text) in kinds() {
        let granted = Granted::of(&text, version);
        in_virtual_time(async |clock| {
            let practice = granted.practice(version, &text, clock);
            practice.datacenter.unwatch();
            let (site, castle, nodes) = (&practice.site, &practice.castle, practice.nodes.as_slice());
            for life in 0..2 {
                let ground = || Arc::new(Ground::new(Arc::new(practice.client()), practice.id.clone(), site.vmids.clone(), false));
                let at_work = ground();
                let survey = survey(&at_work, site).await.unwrap();
                let placed = place(site, &survey, nodes).unwrap();
                let mut graph = GraphBuilder::new();
                platform::raise(&mut graph, &at_work, Design { castle, nodes, placed: &placed, site, survey: &survey });
                execute(&practice, &graph.build().unwrap()).await;
                assert_eq!(ill(&practice.examine().await), [""; 0], "life {life}");
                let at_work = ground();
                let mut doomed = platform::within(&at_work).await.unwrap();
                assert!(doomed.iter().all(|guest| guest.whose == Whose::Ours) && doomed.len() > nodes.len());
                let mut graph = GraphBuilder::new();
                doomed.sort_by_key(|guest| guest.vmid);
                platform::raze(&mut graph, &at_work, site, &doomed, Reach::Marked, &site.hosts);
                execute(&practice, &graph.build().unwrap()).await;
            }
        });
    }
}
