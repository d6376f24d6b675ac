//! A machine room in memory: the embedded datacenter, a castle's file, and bystanders who watch every request.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use castle_datacenter::{
    Asked, Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, GuestView, Latencies, Reply, Version, Witness,
};
use castle_engine::{Alone, CastleId, Deaf, Graph, GraphBuilder, Journal, Report, Tools, Wanted, run};
use castle_http::{Endpoint, Trust};
use castle_layers::cluster::Rolling;
use castle_layers::platform::{self, Design, Doomed, Whose};
use castle_layers::{Site, Survey, place, survey};
use castle_proxmox::client::{Access, Client, Token};
use castle_proxmox::model::{Guest, Host, Mark, Owner, Place, Storage};
use castle_proxmox::steps::{DownloadPlace, Ground, Reach};
use castle_seams::{Clock, Disk};
use castle_spec::{Castle, Node};
use castle_testbed::vendor::Vendor;
use castle_testbed::{Chance, ModelDisk, Pulse, VirtualClock};

/// A castle on Proxmox with so many nodes; `more` is added to the platform.
pub(crate) fn file(control_planes: u32, workers: u32, more: &str) -> String {
    format!(
        "castle: blue
platform:
  proxmox:
    endpoint: https://pve:8006
    token: env:PROXMOX_TOKEN
    vmids: 421-999
    {more}
talos: {{version: v1.13.9}}
kubernetes: {{version: v1.36.3}}
network: {{cidr: 10.0.0.0/16, gateway: 10.0.0.1, nameservers: [10.0.0.1], vip: 10.0.255.1}}
nodes:
  controlPlanes: {{count: {control_planes}, firstAddress: 10.0.1.1, cores: 2, memory: 4GiB, disk: 16GiB}}
  workers: {{count: {workers}, firstAddress: 10.0.1.8, cores: 4, memory: 8GiB, disk: 16GiB, dataDisk: 20GiB}}
storage: none
"
    )
}

/// Reads a file that has no mistakes.
pub(crate) fn read(text: &str) -> (Castle, Vec<Node>) {
    let reading = castle_spec::read(text.as_bytes());
    let castle = reading.castle.unwrap_or_else(|| panic!("{:?}", reading.problems));
    (castle, reading.nodes)
}

/// The life of the castle that tests raise.
pub(crate) fn blue() -> CastleId {
    CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 1 }
}

/// The datacenter of the tests: some hosts with all the usual storages, and two strangers.
pub(crate) fn blueprint(hosts: &[&str], version: Version) -> Blueprint {
    let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
    Blueprint::embedded(&hosts).on(version)
}

/// Holds every request against the vendor's description, and counts them.
struct Clerk {
    vendor: Option<&'static Vendor>,
    counts: Mutex<BTreeMap<String, u32>>,
}

/// The vendor's description, read once.
fn vendor(version: Version) -> Option<&'static Vendor> {
    static EIGHT: OnceLock<Option<Vendor>> = OnceLock::new();
    static NINE: OnceLock<Option<Vendor>> = OnceLock::new();
    match version {
        Version::Eight => EIGHT.get_or_init(|| Vendor::load(8)).as_ref(),
        Version::Nine => NINE.get_or_init(|| Vendor::load(9)).as_ref(),
    }
}

impl Witness for Clerk {
    fn request(&self, asked: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        if let Some(vendor) = self.vendor {
            let verdict = vendor.check(&asked.method, &asked.path, &asked.parameters);
            assert_eq!(verdict, Ok(()), "{} {} {:?}", asked.method, asked.path, asked.parameters);
        }
        let said = format!("{} {:?}", asked.path, asked.parameters);
        let has_secret = [EMBEDDED_TOKEN, "PRIVATE KEY", "LS0tLS1CRUdJTi"].iter().any(|secret| said.contains(secret));
        assert!(!has_secret, "a secret is in a request: {} {}", asked.method, asked.path);
        let line = format!("{} {}", asked.method, asked.path);
        *self.counts.lock().unwrap().entry(line).or_default() += 1;
        Some(handle())
    }
}

/// A room with a castle's file.
pub(crate) struct Room {
    pub(crate) datacenter: Datacenter,
    pub(crate) castle: Castle,
    pub(crate) nodes: Vec<Node>,
    pub(crate) site: Site,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) id: CastleId,
    pub(crate) epoch: u64,
    /// Which nodes may restart.
    pub(crate) rolling: Rolling,
    clerk: Arc<Clerk>,
    strangers: Vec<GuestView>,
}

impl Room {
    pub(crate) fn new(blueprint: Blueprint, file: &str, clock: Arc<dyn Clock>) -> Self {
        let vendor = vendor(blueprint.version);
        let datacenter = Datacenter::new(blueprint, clock.clone());
        let clerk = Arc::new(Clerk { vendor, counts: Mutex::default() });
        let (castle, nodes) = read(file);
        let site = Site::of(&castle);
        let strangers = datacenter.look().guests.into_values().collect();
        let (id, epoch, rolling) = (blue(), 1, Rolling::at_once());
        let room = Self { datacenter, site, castle, nodes, clock, id, epoch, rolling, clerk, strangers };
        room.watch();
        room
    }

    /// Lets the clerk see every request, after whoever watches already.
    pub(crate) fn watch(&self) {
        self.datacenter.watch(self.clerk.clone());
    }

    /// A room where nobody holds requests against the vendor's description: for measuring.
    #[allow(dead_code, reason = "tests are always judged; only the example measures")]
    pub(crate) fn unjudged(blueprint: Blueprint, file: &str, clock: Arc<dyn Clock>) -> Self {
        let mut room = Self::new(blueprint, file, clock);
        room.datacenter.unwatch();
        room.clerk = Arc::new(Clerk { vendor: None, counts: Mutex::default() });
        room.watch();
        room
    }

    /// A room of one host, without latencies.
    pub(crate) fn plain(file: &str, clock: &VirtualClock) -> Self {
        Self::new(blueprint(&["pve"], Version::Nine).with_latencies(Latencies::none()), file, door(clock))
    }

    /// The same room, met by another process.
    pub(crate) fn again(&self) -> Self {
        let (datacenter, clerk, strangers) = (self.datacenter.clone(), self.clerk.clone(), self.strangers.clone());
        let (castle, nodes, site) = (self.castle.clone(), self.nodes.clone(), self.site.clone());
        Self {
            datacenter,
            site,
            castle,
            nodes,
            clock: self.clock.clone(),
            id: self.id.clone(),
            epoch: self.epoch,
            rolling: self.rolling.clone(),
            clerk,
            strangers,
        }
    }

    /// Goes on with another file.
    pub(crate) fn rewrite(&mut self, file: &str) {
        (self.castle, self.nodes) = read(file);
        self.site = Site::of(&self.castle);
    }

    pub(crate) fn client_with(&self, token: &str) -> Client {
        let access = Access {
            endpoint: Endpoint::parse(&format!("http://{}:8006", self.site.hosts[0])).unwrap(),
            trust: Trust::PublicRoots,
            token: Token::parse(token).unwrap(),
        };
        Client::new(access, self.datacenter.dial(), self.clock.clone()).unwrap()
    }

    pub(crate) fn client(&self) -> Client {
        self.client_with(&format!("{EMBEDDED_TOKEN_ID}={EMBEDDED_TOKEN}"))
    }

    pub(crate) fn ground(&self, deep: bool) -> Arc<Ground> {
        let client = Arc::new(self.client());
        Arc::new(Ground::new(client, self.id.clone(), self.site.vmids.clone(), deep))
    }

    pub(crate) fn graph(&self, ground: &Arc<Ground>, survey: &Survey) -> Graph {
        let placed = place(&self.site, survey, &self.nodes).unwrap();
        let mut graph = GraphBuilder::new();
        let (castle, nodes, site) = (&self.castle, self.nodes.as_slice(), &self.site);
        platform::raise(
            &mut graph,
            ground,
            Design { castle, nodes, placed: &placed, site, survey, after: None, checked: None, rolling: &self.rolling },
        );
        graph.build().unwrap()
    }

    /// The survey as Proxmox would tell it, without asking: contracts want their graphs at once.
    pub(crate) fn told(&self) -> Survey {
        let host = Host { name: "pve".into(), is_online: true, memory: None, memory_used: None, cpus: None };
        let storage = |name: &str, kind: &str| Storage {
            name: name.into(),
            kind: kind.into(),
            content: ["images", "import"].map(str::to_owned).into(),
            is_enabled: true,
            is_active: true,
            is_shared: false,
            total: None,
            free: None,
        };
        let guests = self.datacenter.look().guests.into_values().map(|guest| {
            let row = Guest {
                vmid: guest.vmid,
                host: guest.host,
                is_machine: true,
                name: None,
                status: None,
                shows_template: false,
                is_settled: false,
                tags: [].into(),
                pool: None,
                lock: None,
                memory: None,
                cpus: None,
            };
            (row.vmid, row)
        });
        Survey {
            hosts: [("pve".to_owned(), host)].into(),
            storages: [("pve".to_owned(), vec![storage("local-lvm", "lvmthin"), storage("local", "dir")])].into(),
            guests: Arc::new(guests.collect()),
            running: [].into(),
        }
    }

    /// What takes away all that is this castle's, without asking which that is.
    pub(crate) fn razing(&self) -> Graph {
        let ours = self.datacenter.look().guests.into_values().filter_map(|guest| {
            let description = guest.config.get("description").cloned().unwrap_or_default();
            let Owner::Ours(mark) = Mark::owner(&self.id, &Place { vmid: guest.vmid, cluster: None }, &description)
            else {
                return None;
            };
            let is_template = guest.config.get("template").is_some_and(|template| template == "1");
            let (host, is_protected) = (guest.host, false);
            Some(Doomed { vmid: guest.vmid, name: mark.name, host, is_template, is_protected, whose: Whose::Ours })
        });
        let (mut graph, doomed): (_, Vec<Doomed>) = (GraphBuilder::new(), ours.collect());
        platform::raze(&mut graph, &self.ground(false), &self.site, &doomed, Reach::Marked, &self.downloads());
        graph.build().unwrap()
    }

    /// Where the file leads, which never changes here.
    fn downloads(&self) -> Vec<DownloadPlace> {
        let place = |host: &String| DownloadPlace { host: host.clone(), storage: self.site.images.clone() };
        self.site.hosts.iter().map(place).collect()
    }

    /// Runs a graph; without a journal it only looks.
    pub(crate) async fn run(&self, graph: &Graph, acting: bool) -> Report {
        let disk: Arc<dyn Disk> = Arc::new(ModelDisk::new(&Pulse::new()));
        let journal = Mutex::new(Journal::open(&disk, Path::new("/journal"), &self.id).unwrap().0);
        let chance = Chance::new(1);
        let tools = Tools {
            clock: self.clock.as_ref(),
            entropy: &chance,
            fence: &Alone { epoch: self.epoch },
            listener: &Deaf,
            signals: None,
            journal: acting.then_some(&journal),
        };
        run(graph, tools, &Wanted::all(self.id.clone())).await
    }

    /// What `castle up` does.
    pub(crate) async fn up(&self) -> Report {
        self.raise(true, false).await
    }

    /// What `castle plan` does.
    pub(crate) async fn plan(&self, deep: bool) -> Report {
        self.raise(false, deep).await
    }

    async fn raise(&self, acting: bool, deep: bool) -> Report {
        let ground = self.ground(deep);
        let survey = survey(&ground, &self.site).await.unwrap();
        let report = self.run(&self.graph(&ground, &survey), acting).await;
        self.check_strangers();
        report
    }

    /// What `castle down` does.
    pub(crate) async fn down(&self) -> Report {
        let ground = self.ground(false);
        let doomed = platform::found(&ground).await.unwrap();
        let doomed: Vec<Doomed> = doomed.into_iter().filter(|guest| guest.whose == Whose::Ours).collect();
        let mut graph = GraphBuilder::new();
        platform::raze(&mut graph, &ground, &self.site, &doomed, Reach::Marked, &self.downloads());
        let report = self.run(&graph.build().unwrap(), true).await;
        self.check_strangers();
        report
    }

    /// Whoever was there before castle came is as they were.
    pub(crate) fn check_strangers(&self) {
        let now = self.datacenter.look().guests;
        for stranger in &self.strangers {
            assert_eq!(now.get(&stranger.vmid), Some(stranger), "castle touched a stranger");
        }
    }

    /// How often each request was made since the last time this was asked.
    pub(crate) fn requests(&self) -> BTreeMap<String, u32> {
        std::mem::take(&mut *self.clerk.counts.lock().unwrap())
    }

    /// The guests of castle's range: all that matters about them, and nothing that is drawn.
    pub(crate) fn snapshot(&self) -> String {
        snapshot(&self.datacenter)
    }
}

/// What there is, without what is drawn or counted.
pub(crate) fn snapshot(datacenter: &Datacenter) -> String {
    let (look, mut text) = (datacenter.look(), String::new());
    for guest in look.guests.values() {
        let state = if guest.running { "running" } else { "stopped" };
        writeln!(text, "guest {} on {}, {state}, pool {:?}, lock {:?}", guest.vmid, guest.host, guest.pool, guest.lock)
            .unwrap();
        for (key, value) in
            guest.config.iter().filter(|(key, _)| !["smbios1", "vmgenid", "meta", "digest"].contains(&key.as_str()))
        {
            let drawn = |line: &&str| !line.starts_with("operation: ") && !line.starts_with("epoch: ");
            let value: Vec<&str> = value.lines().filter(drawn).collect();
            let value = value.join(" | ");
            let value: Vec<&str> = value.split(';').filter(|tag| !tag.starts_with("castle-since-")).collect();
            writeln!(text, "  {key}: {}", value.join(";")).unwrap();
        }
        for (key, value) in &guest.pending {
            writeln!(text, "  pending {key}: {value:?}").unwrap();
        }
    }
    for ((host, name), volume) in &look.volumes {
        writeln!(text, "volume {name} on {host}: {} bytes", volume.size).unwrap();
    }
    text
}

/// Holds that all went well.
pub(crate) fn done(report: &Report) {
    let undone: Vec<_> = report.ended(|outcome| !outcome.is_done()).collect();
    assert!(undone.is_empty(), "{undone:#?}");
}

/// The clock as a door.
pub(crate) fn door(clock: &VirtualClock) -> Arc<dyn Clock> {
    Arc::new(*clock)
}
