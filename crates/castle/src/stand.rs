//! Where a verb stands that speaks with the hypervisor: the file, the memory, the site, and which castle it is.

mod identity;
mod mending;
mod rolling;
mod running;
mod trouble;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use castle_engine::{CastleId, Fault, Graph, GraphBuilder, Handle, StepId};
use castle_layers::cluster::{self, Rolling};
use castle_layers::platform::{self, Design, Doomed};
use castle_layers::secrets::{self, Strongroom};
use castle_layers::{Placed, Site, Survey, beginning, place, survey, unwanted, vault};
use castle_proxmox::client::Client;
use castle_proxmox::steps::{Ground, Record};
use castle_spec::{ComponentName, Node};
use castle_talos::client::Hush;
use castle_talos::steps::{Keys, Remembered, Third, Wire};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::doors::Doors;
use crate::furnish::Furnishing;
use crate::hypervisor;
use crate::keeping::Kept;
use crate::output::Printer;
use crate::recorded::Recorded;
use crate::standing::vanished;
use crate::voice::At;

pub(crate) use identity::Identity;
pub(crate) use rolling::Foreseen;
pub(crate) use running::{Bounds, while_held};
pub(crate) use trouble::{Trouble, end, with_next};

/// The lineage of a castle that nobody has raised yet: no mark bears it.
pub(crate) const UNBORN: &str = "unborn";

/// How long it may take to reach a node.
pub(crate) const REACHING: Duration = Duration::from_secs(3);

/// How long to wait before the vault is asked again whether it lets castle in: a moment's trouble is no reason to give up.
const KNOCKING: [Duration; 2] = [Duration::from_millis(300), Duration::from_secs(2)];

/// What a verb is at before it has a way to the hypervisor.
const FINDING: &str = "finding the way to the hypervisor, and the token for it";

/// Whoever only looks does not wait for nodes that do not answer.
pub(crate) const LOOKING: Duration = Duration::ZERO;
/// How long `up` waits for a node that does not answer: longer than an image and a boot take on a slow disk.
pub(crate) const RAISING: Duration = Duration::from_secs(10 * 60);

/// Where a verb stands.
pub(crate) struct Stand {
    pub(crate) kept: Kept,
    pub(crate) client: Arc<Client>,
    pub(crate) site: Site,
    /// The mirror that manifests come from, if one was given.
    mirror: Option<PathBuf>,
    /// The components that may be removed if the file wants them no more.
    removal: Vec<ComponentName>,
    /// Whether secrets may be minted where there are none.
    mints: bool,
    /// Whether nothing is changed, and nothing kept.
    only_looks: bool,
    /// The guests that may go though they are the castle's, where somebody was asked: what is found later is left.
    agreed: OnceCell<BTreeSet<u32>>,
    furnishing: OnceCell<Furnishing>,
    /// The life whose etcd was seen to have begun, and by whom: one that has begun does not end because its nodes are slow to say so again.
    begun: Mutex<Option<(CastleId, String)>>,
    /// The nodes that did not answer whoever only looks.
    hush: Hush,
}

/// The steps that have the castle's secrets.
pub(crate) struct Secrets {
    /// That each of them is what it should be.
    checked: StepId,
    /// That they are kept: machines are made after that.
    pub(crate) after: StepId,
    /// What castle and its nodes know each other by.
    pub(crate) keys: Handle<Keys>,
}

impl Stand {
    /// Opens what `path` names, and the way to its hypervisor. Nothing is asked of it yet.
    pub(crate) async fn open(doors: &Doors, path: &Path, printer: &mut Printer) -> Result<Self, Trouble> {
        let kept = Kept::open(doors, path).map_err(Trouble::Invalid)?;
        let _at = doors.at(FINDING);
        let client = hypervisor::connect(&kept, printer).await.map_err(Trouble::Failed)?;
        let site = Site::of(&kept.castle);
        Ok(Self::at(kept, client, site))
    }

    /// The same for whoever only looks: nothing is started for them.
    pub(crate) async fn look_at(doors: &Doors, path: &Path) -> Result<Self, Trouble> {
        let kept = Kept::open(doors, path).map_err(Trouble::Invalid)?;
        let _at = doors.at(FINDING);
        let client = hypervisor::reach(&kept).await.map_err(Trouble::Failed)?;
        let site = Site::of(&kept.castle);
        Ok(Self::at(kept, client, site).looking())
    }

    /// The same for whoever plans: also where nothing is yet, not even a datacenter to be embedded in.
    pub(crate) async fn plan_at(doors: &Doors, path: &Path, printer: &mut Printer) -> Result<Self, Trouble> {
        let kept = Kept::open(doors, path).map_err(Trouble::Invalid)?;
        let Some(foreseen) = hypervisor::foreseen(&kept).map_err(Trouble::Failed)? else {
            return Self::look_at(doors, path).await;
        };
        printer.say("No embedded datacenter runs: planned is what castle up would do in a new one.");
        Self::look_at(&foreseen, path).await
    }

    /// Where a castle is, whose hypervisor is reached like this.
    pub(crate) fn at(kept: Kept, client: Arc<Client>, site: Site) -> Self {
        Self {
            kept,
            client,
            site,
            mirror: None,
            removal: Vec::new(),
            mints: true,
            only_looks: false,
            agreed: OnceCell::new(),
            furnishing: OnceCell::new(),
            begun: Mutex::default(),
            hush: Hush::default(),
        }
    }

    /// Changes nothing, and keeps nothing.
    pub(crate) fn looking(self) -> Self {
        Self { only_looks: true, ..self }
    }

    /// Takes manifests from this mirror.
    pub(crate) fn with_mirror(self, mirror: Option<&Path>) -> Self {
        Self { mirror: mirror.map(Path::to_owned), ..self }
    }

    /// Finds secrets, and mints none: for whoever wants to know again what stands.
    pub(crate) fn without_minting(self) -> Self {
        Self { mints: false, ..self }
    }

    /// Removes these components, if the file wants them no more.
    pub(crate) fn with_removal(self, names: &[String]) -> Result<Self, Trouble> {
        let removal: Vec<ComponentName> = names.iter().filter_map(|name| ComponentName::of_word(name)).collect();
        let unwanted: Vec<ComponentName> = unwanted::of(&self.kept.castle).collect();
        if let Some(name) = removal.iter().find(|name| !unwanted.contains(name)) {
            let file = self.kept.file.display();
            return Err(Trouble::Invalid(format!(
                "{file} still wants {name}: only what it wants no more is removed\n  next: write `components: {{{}: off}}`",
                name.key()
            )));
        }
        Ok(Self { removal, ..self })
    }

    /// Lets these guests go, and no others that the file does not name.
    pub(crate) fn agree_to(&self, leaving: &[Doomed]) {
        let _ = self.agreed.set(leaving.iter().map(|guest| guest.vmid).collect());
    }

    /// Looks at nothing inside of the cluster, for whoever cannot gather what that takes.
    pub(crate) fn leave_inside(&self) {
        let _ = self.furnishing.set(Furnishing::default());
    }

    /// What is put into the cluster: gathered once.
    pub(crate) async fn furnishing(&self) -> Result<&Furnishing, Trouble> {
        let gathered = async {
            let _at = self.kept.doors.at("gathering manifests, vault and repository");
            Furnishing::of(&self.kept, self.mirror.as_deref(), self.only_looks).await
        };
        self.furnishing.get_or_try_init(|| gathered).await
    }

    /// Has the castle's vault let castle in, if there is one: whoever cannot keep secrets there begins nothing.
    pub(crate) async fn knock(&self) -> Result<(), Trouble> {
        let Some(chamber) = self.kept.chamber().map_err(Trouble::Failed)? else { return Ok(()) };
        let _at = self.kept.doors.at(format!("asking the vault whether it lets castle in ({})", chamber.address()));
        let mut waits = KNOCKING.into_iter();
        loop {
            let Err(error) = chamber.vault.whoami().await else { return Ok(()) };
            let fault = Fault::from(error);
            match waits.next() {
                Some(wait) if !fault.is_final() => self.kept.clock().sleep(wait).await,
                _ => return Err(fault.into()),
            }
        }
    }

    /// From here on, until what is returned is dropped, this is looked at where the hypervisor is.
    pub(crate) fn looking_at(&self, what: &str) -> At {
        self.kept.doors.at(format!("looking at {what} at {}", self.client.whereabouts()))
    }

    /// What the steps of this castle share.
    pub(crate) fn ground(&self, castle: &CastleId, deep: bool) -> Arc<Ground> {
        Arc::new(Ground::new(self.client.clone(), castle.clone(), self.site.vmids.clone(), deep))
    }

    /// The same for whoever removes guests, and knows what is written down of them.
    pub(crate) fn ground_of(&self, castle: &CastleId, recorded: Option<&Recorded>) -> Arc<Ground> {
        let ground = Ground::new(self.client.clone(), castle.clone(), self.site.vmids.clone(), false);
        Arc::new(ground.with_record(recorded.map(|recorded| Record {
            vmids: recorded.vmids().chain(self.site.image_vmids()).collect(),
            hosts: recorded.hosts().collect(),
        })))
    }

    /// Looks at the site and says where each node goes.
    ///
    /// A castle that stands by its record and is not seen here is told before anything else: whoever looks in the wrong place is not to make
    /// room there.
    pub(crate) async fn lay_out(&self, ground: &Ground, room: &Strongroom) -> Result<(Survey, Vec<Placed>), Trouble> {
        let _at = self.looking_at("hosts, storages and guests");
        let survey = survey(ground, &self.site).await?;
        match self.assign(&survey) {
            Ok(placed) => Ok((survey, placed)),
            Err(trouble) => Err(vanished(self, room, ground, &survey).await?.map_or(trouble, Trouble::from)),
        }
    }

    /// Says where each node goes.
    fn assign(&self, survey: &Survey) -> Result<Vec<Placed>, Trouble> {
        let unknown: Vec<&String> = self.site.hosts.iter().filter(|host| !survey.hosts.contains_key(*host)).collect();
        if let Some(unknown) = unknown.first() {
            let there: Vec<&str> = survey.hosts.keys().map(String::as_str).collect();
            return Err(Trouble::Failed(format!(
                "there is no host {unknown}: Proxmox has {}\n  next: name hosts that are there in platform.proxmox.nodes",
                there.join(", ")
            )));
        }
        place(&self.site, survey, &self.kept.nodes).map_err(|crowded| {
            let lines: Vec<String> = crowded.iter().map(ToString::to_string).collect();
            Trouble::Failed(format!("{}\n  next: make room, or give the castle smaller nodes", lines.join("\n")))
        })
    }

    /// Where the secrets of this life of the castle are kept, for whoever only looks: without a key to the state, too.
    pub(crate) fn window(&self, castle: &CastleId) -> Arc<Strongroom> {
        self.kept.strongroom(castle, self.kept.state(castle.clone()).ok())
    }

    /// The steps that raise the castle, for whoever waits this long for a node that does not answer (not at all is only looking), and lets these
    /// nodes restart.
    pub(crate) async fn raise(
        &self,
        ground: &Arc<Ground>,
        room: &Arc<Strongroom>,
        survey: &Survey,
        placed: &[Placed],
        (patience, rolling): (Duration, &Rolling),
    ) -> Result<Graph, Trouble> {
        let (castle, nodes) = (&self.kept.castle, &self.kept.nodes);
        let _at = self.kept.doors.at("gathering what is known of the castle");
        let remembered = self.remembered(ground, room, survey, patience != LOOKING).await?;
        let has_begun = remembered.began.is_some();
        // Of what has not begun, nobody misses anything.
        let rolling = if has_begun { rolling.clone() } else { Rolling::at_once() };
        let mut graph = GraphBuilder::new();
        let Secrets { checked, after, keys } = self.keep_secrets(&mut graph, ground, room, survey).await?;
        // What is made from now on says the same of its etcd as what was made before.
        let mut site = self.site.clone();
        if let Some(first) = &remembered.first {
            site.etcd_begins_on.clone_from(first);
        }
        let (site, rolls) = (&site, &rolling);
        let (after, checked) = (Some(&after), Some(&checked));
        let design = Design { castle, nodes, placed, site, survey, after, checked, rolling: rolls };
        let old_images = platform::raise(&mut graph, ground, design);
        let leaving = self.leaving(ground, survey).await?;
        let plan = cluster::Plan {
            castle: Arc::new(castle.clone()),
            nodes: Arc::new(nodes.clone()),
            machines: cluster::machines(nodes, survey),
            wire: Arc::new(self.wire(patience)),
            referred: Arc::new(self.kept.referred().await?),
            remembered,
            rolling: rolling.clone(),
            leaving: leaving.iter().map(|guest| guest.name.clone()).collect(),
            uuids: platform::uuids(ground),
        };
        let formed = cluster::form(&mut graph, &plan, &keys);
        for (step, node) in old_images.iter().flat_map(|step| nodes.iter().map(move |node| (step, node))) {
            graph.after(step.clone(), cluster::config_step(node));
        }
        beginning::forget(&mut graph, (ground, &plan.wire), (nodes, survey), &keys, has_begun);
        beginning::note(&mut graph, castle, nodes, (ground, room), &formed.quorum);
        if let Some(keeping) = self.vault_keeping(ground, room)? {
            vault::note_begun(&mut graph, keeping, &keys, &formed.quorum);
        }
        let departed = self.departed(ground, room, survey).await?;
        let ways = (&formed.api, &formed.quorum);
        platform::shrink(&mut graph, ground, design, (&leaving, departed), ways, patience == LOOKING);
        self.furnishing().await?.raise(&mut graph, (castle, nodes), &formed, &self.removal);
        graph.build().map_err(|error| Trouble::of(&error))
    }

    /// What is known of the etcd of this life: as it is written down, or as its control planes say.
    pub(crate) async fn remembered(
        &self,
        ground: &Ground,
        room: &Strongroom,
        survey: &Survey,
        strict: bool,
    ) -> Result<Remembered, Trouble> {
        let nodes = &self.kept.nodes;
        let remembered = beginning::remembered(room, ground, survey, nodes, strict).await?;
        let remembered = Remembered { others: self.out_of_reach(ground, room, survey, strict).await?, ..remembered };
        if remembered.began.is_some() {
            return Ok(remembered);
        }
        let known = self.begun.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let begun = match known.filter(|(castle, _)| *castle == ground.castle) {
            Some((_, name)) => Some(name),
            None => beginning::seen(room, survey, nodes, &self.wire(LOOKING)).await,
        };
        *self.begun.lock().unwrap_or_else(PoisonError::into_inner) =
            begun.clone().map(|name| (ground.castle.clone(), name));
        let began = begun.map(|name| format!("{name} has its data"));
        Ok(Remembered { began, ..remembered })
    }

    /// Looks afresh: somebody else may have worked on the castle since. Which etcd was seen to have begun stays known as long as the machine that
    /// showed it is there: one that is slow to say so again must not be taken for none.
    pub(crate) fn look_afresh(&self, survey: &Survey) {
        self.hush.forget();
        let is_there = |name: &str| {
            let mut nodes = self.kept.nodes.iter();
            nodes.any(|node| node.name.value == name && survey.guests.contains_key(&node.vmid.0))
        };
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun = begun.take().filter(|(_, name)| is_there(name));
    }

    /// The control planes of this life that nobody will ask what they have, as people read them.
    async fn out_of_reach(
        &self,
        ground: &Ground,
        room: &Strongroom,
        survey: &Survey,
        strict: bool,
    ) -> Result<Vec<String>, Trouble> {
        let nodes = &self.kept.nodes;
        let marked = platform::unnamed_control_planes(ground, &self.site, survey, nodes, strict).await?;
        let mut all: BTreeMap<u32, String> =
            marked.into_iter().map(|(vmid, name)| (vmid, format!("{name} (VM {vmid})"))).collect();
        let recorded = match Recorded::read(room).await {
            Err(error) if strict => return Err(Trouble::of(&error)),
            recorded => recorded.ok().flatten(),
        };
        if let Some(recorded) = recorded {
            for machine in recorded.out_of_reach(ground, &survey.guests, nodes).await? {
                all.entry(machine.vmid).or_insert_with(|| machine.to_string());
            }
        }
        Ok(all.into_values().collect())
    }

    /// Adds the steps that have the castle's secrets and keep them.
    pub(crate) async fn keep_secrets(
        &self,
        graph: &mut GraphBuilder,
        ground: &Ground,
        room: &Arc<Strongroom>,
        survey: &Survey,
    ) -> Result<Secrets, Trouble> {
        let (castle, nodes) = (&self.kept.castle, &self.kept.nodes);
        let checks = self.kept.checks().await.map_err(Trouble::Failed)?;
        let valid = secrets::valid(graph, castle, checks, self.kept.doors.clock.clone());
        let (bundle, keys) = secrets::bundle(graph, room, castle, &ground.castle, (nodes, survey), self.mints);
        graph.after(bundle.clone(), valid.clone());
        let after = match self.vault_keeping(ground, room)? {
            Some(keeping) => vault::keep(graph, keeping, &keys),
            None => bundle,
        };
        Ok(Secrets { checked: valid, after, keys })
    }

    /// What the castle keeps in its vault is made with, if it has one.
    fn vault_keeping(&self, ground: &Ground, room: &Arc<Strongroom>) -> Result<Option<vault::Keeping>, Trouble> {
        let Some(chamber) = self.kept.chamber().map_err(Trouble::Failed)? else { return Ok(None) };
        Ok(Some(vault::Keeping {
            shelf: chamber.shelf(&ground.castle),
            seal: self.kept.seal().ok().map(Arc::new),
            room: room.clone(),
            castle: Arc::new(self.kept.castle.clone()),
            nodes: Arc::new(self.kept.nodes.clone()),
        }))
    }

    /// How nodes are reached, for whoever waits this long for one that does not answer.
    pub(crate) fn wire(&self, patience: Duration) -> Wire {
        let doors = &self.kept.doors;
        let (dial, clock, hush) = (doors.dial(REACHING), doors.clock.clone(), self.hush.clone());
        let client = self.client.clone();
        let ahead = Arc::new(move || client.clock_ahead());
        let third = Some(Third { whose: format!("Proxmox ({})", self.client.host()), ahead });
        Wire { dial, clock, is_plain: doors.is_plain(), patience, hush, third }
    }

    /// The nodes and where they are, for programs and for the state.
    pub(crate) fn nodes(&self, placed: &[Placed]) -> Value {
        self.nodes_that(placed, |_| true)
    }

    /// Those of which this holds.
    pub(crate) fn nodes_that(&self, placed: &[Placed], is_meant: impl Fn(&Node) -> bool) -> Value {
        let node = |(node, placed): (&Node, &Placed)| {
            json!({"name": node.name.value, "role": node.role.word(), "vmid": node.vmid.0, "host": placed.host,
                "address": node.address.value.to_string(), "mac": node.mac.to_string()})
        };
        self.kept.nodes.iter().zip(placed).filter(|(node, _)| is_meant(node)).map(node).collect()
    }

    /// Writes down which machines leave in this run, before they do.
    pub(crate) async fn note_leaving(
        &self,
        room: &Strongroom,
        ground: &Ground,
        survey: &Survey,
        epoch: u64,
    ) -> Result<(), Trouble> {
        let leaving = self.leaving(ground, survey).await?;
        if leaving.is_empty() {
            return Ok(());
        }
        let recorded = Recorded::read(room).await.map_err(|error| Trouble::Failed(self.kept.told(&error)))?;
        let Some(recorded) = recorded else { return Ok(()) };
        let vmids = leaving.iter().map(|guest| guest.vmid);
        recorded.note_going(room, vmids, self.client.whereabouts(), epoch).await
    }

    /// The workers that were this castle's, are not in its file any more, and have lost their machines.
    async fn departed(&self, ground: &Ground, room: &Strongroom, survey: &Survey) -> Result<Vec<String>, Trouble> {
        // Whoever cannot read the state is told so elsewhere.
        let Ok(Some(recorded)) = Recorded::read(room).await else { return Ok(Vec::new()) };
        Ok(recorded.departed(ground, &survey.guests, &self.kept.nodes).await?)
    }

    /// The guests that leave: somebody agreed to it, where somebody was asked.
    async fn leaving(&self, ground: &Ground, survey: &Survey) -> Result<Vec<Doomed>, Fault> {
        let mut leaving = platform::leaving(ground, &self.site, survey, &self.kept.nodes).await?;
        leaving.retain(|guest| self.agreed.get().is_none_or(|agreed| agreed.contains(&guest.vmid)));
        Ok(leaving)
    }

    /// Writes down what the platform layer consists of, unless that is known already; and what has been seen of the state.
    pub(crate) async fn remember(
        &self,
        room: &Strongroom,
        standing: Option<(Value, &Ground)>,
        epoch: u64,
    ) -> Result<(), Trouble> {
        let Some(state) = &room.state else { return Ok(()) };
        let mut state = state.lock().await;
        if let Some((nodes, ground)) = standing {
            let layer = platform::layer();
            let failed = |error: castle_engine::StateError| Trouble::Failed(self.kept.told(&error));
            let known = state.latest(&layer).await.map_err(failed)?;
            let recorded = known.as_ref().and_then(|known| Recorded::of(known.payload.clone(), room.generation));
            let payload = match recorded {
                Some(recorded) => recorded.standing(ground, room.generation, &nodes).await,
                None => Recorded::payload(room.generation, &nodes),
            };
            if known.is_none_or(|record| record.payload != payload) {
                state.write(&layer, payload, epoch).await.map_err(failed)?;
            }
        }
        self.kept.remember(&state).map_err(Trouble::Failed)
    }
}
