//! A castle's file, a datacenter, and the doctor.

use std::sync::Arc;

use castle_datacenter::blueprint::Stranger;
use castle_datacenter::{
    Asked, Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, Latencies, Reply, Version, Witness,
};
use castle_engine::{CastleId, Layer, OperationId, StepId};
use castle_http::{Endpoint, Trust};
use castle_layers::Site;
use castle_layers::doctor::{Case, Finding, Verdict, examine};
use castle_proxmox::client::{Access, Client, Token};
use castle_proxmox::model::{Mark, Place, Role};
use castle_seams::{Clock, Dial};
use castle_spec::{Castle, Node};
use castle_testbed::VirtualClock;
use castle_testbed::vendor::Vendor;

pub(crate) const POOL: &str = "pool: blue";
pub(crate) const TWO: &str = "nodes: [pve1, pve2]";

/// A castle of three control planes and so many workers; `keys` go into its platform, over what is usual there.
pub(crate) fn file(workers: u32, keys: &[&str]) -> String {
    let usual = ["nodes: [pve]", "storage: {disks: local-lvm, images: local}", "bridge: vmbr0"];
    let key = |line: &str| line.split(':').next().map(str::to_owned);
    let usual = usual.into_iter().filter(|line| keys.iter().all(|other| key(other) != key(line)));
    let platform = usual.chain(keys.iter().copied()).collect::<Vec<_>>().join("\n    ");
    format!(
        "castle: blue
platform:
  proxmox:
    endpoint: https://pve:8006
    token: env:PROXMOX_TOKEN
    vmids: 421-1429
    {platform}
talos: {{version: v1.13.9, extensions: [qemu-guest-agent]}}
kubernetes: {{version: v1.36.3}}
network: {{cidr: 10.0.0.0/16, gateway: 10.0.0.1, nameservers: [10.0.0.1], vip: 10.0.255.1}}
nodes:
  controlPlanes: {{count: 3, firstAddress: 10.0.1.1, cores: 2, memory: 2GiB, disk: 8GiB}}
  workers: {{count: {workers}, firstAddress: 10.0.1.8, cores: 4, memory: 1GiB, disk: 6GiB, dataDisk: 2GiB}}
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

pub(crate) struct Practice {
    pub(crate) datacenter: Datacenter,
    pub(crate) castle: Castle,
    pub(crate) nodes: Vec<Node>,
    pub(crate) site: Site,
    pub(crate) id: CastleId,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) token: String,
    pub(crate) entry: String,
}

impl Practice {
    pub(crate) fn new(blueprint: Blueprint, text: &str, clock: &VirtualClock) -> Self {
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

    pub(crate) fn client(&self) -> Client {
        let access = Access {
            endpoint: Endpoint::parse(&format!("http://{}:8006", self.entry)).unwrap(),
            trust: Trust::PublicRoots,
            token: Token::parse(&self.token).unwrap(),
        };
        Client::new(access, self.datacenter.dial(), self.clock.clone()).unwrap()
    }

    pub(crate) async fn examine_dialling(&self, dial: &dyn Dial) -> Vec<Finding> {
        let client = self.client();
        let (site, castle, nodes, identity) = (&self.site, &self.castle, self.nodes.as_slice(), &self.id);
        examine(Case { client: &client, site, castle, nodes, identity, dial, probe_addresses: true }).await
    }

    pub(crate) async fn examine(&self) -> Vec<Finding> {
        self.examine_dialling(self.datacenter.dial().as_ref()).await
    }

    /// A guest of this castle as the list shows it.
    pub(crate) fn settle(&self, vmid: u32, name: &str, castle: &CastleId) {
        let operation = OperationId::of(castle, &StepId::new(&Layer::new("platform"), "vm", name), "clone");
        let place = Place { vmid, cluster: None };
        let mut guest = Stranger::new(vmid, &self.entry, name, "local-lvm", 1);
        guest
            .config
            .insert("description".into(), Mark::new(castle, name, Role::Worker, place, &operation, 1).to_string());
        let mut tags: Vec<String> = Mark::tags_of(castle).into_iter().collect();
        tags.push("castle-is-0123456789ab".into());
        guest.config.insert("tags".into(), tags.join(";"));
        self.datacenter.add_guest(guest);
    }
}

pub(crate) fn embedded(hosts: &[&str]) -> Blueprint {
    Blueprint::embedded(&hosts.iter().map(|&host| host.to_owned()).collect::<Vec<_>>())
}

/// The findings that are not well, as `check subject: evidence`.
pub(crate) fn ill(findings: &[Finding]) -> Vec<String> {
    let ill = findings.iter().filter(|finding| finding.verdict != Verdict::Well);
    ill.map(|it| format!("{} {} {}: {}", it.verdict.word(), it.check, it.subject, it.evidence)).collect()
}
