//! Whether the etcd of a life has begun: written down in the state, in the vault and in the marks, and found again in any of them.
//!
//! Where it is to begin is written down before the first machine is made, with the secrets of the life; that it has, as soon as that was
//! seen. With any one of these it never begins again. Where none of them says so, because somebody else has raised the castle or its first raise was cut
//! off, the control planes that run are asked for its data.

use std::sync::Arc;
use std::time::Duration;

use castle_engine::{Change, Decision, Fault, GraphBuilder, Handle, Impact, Operation, Place, Step, StepId};
use castle_proxmox::model::{Guest, Mark, Owner};
use castle_proxmox::steps::{BEGUN_TAG, Ground, MarkBegun, vanished};
use castle_seams::BoxFuture;
use castle_spec::{Castle, Node, Role};
use castle_talos::steps::{ForgetMember, Keys, Quorum, Remembered, Vanished, Whom, Wire, holder};

use crate::cluster::whom;
use crate::platform::{layer, power_step, vm_step};
use crate::secrets::Strongroom;
use crate::survey::Survey;

/// What is known of the etcd of this life from elsewhere than its nodes. Whoever is `strict` is not content with a vault or a host that
/// does not answer.
///
/// # Errors
///
/// If what could tell cannot be read.
pub async fn remembered(
    room: &Strongroom,
    ground: &Ground,
    survey: &Survey,
    nodes: &[Node],
    strict: bool,
) -> Result<Remembered, Fault> {
    let in_state = room.beginning().await?;
    let first = in_state.as_ref().map(|beginning| beginning.first.clone());
    let told = |by: &str, on: &str| Remembered {
        first: Some(on.to_owned()),
        began: Some(format!("{by} says that it began on {on}")),
        others: Vec::new(),
    };
    if let Some(known) = in_state.filter(|known| known.has_begun) {
        return Ok(told("the state", &known.first));
    }
    let saved = match room.saved().await.transpose() {
        Err(fault) if strict => return Err(fault),
        saved => saved.ok().flatten().and_then(|saved| saved.beginning),
    };
    if let Some(known) = saved.as_ref().filter(|known| known.has_begun) {
        return Ok(told("the vault", &known.first));
    }
    let tags = Mark::tags_of(&ground.castle);
    let is_control_plane = |vmid: u32| nodes.iter().any(|node| node.vmid.0 == vmid && node.role == Role::ControlPlane);
    let is_ours = |row: &Guest| row.tags.is_superset(&tags) && !row.looks_copied();
    let ours = survey.guests.range(ground.vmids.clone()).filter(|(_, row)| is_ours(row));
    let mut intended: Option<(String, String)> = None;
    for (&vmid, row) in ours.filter(|(vmid, row)| is_control_plane(**vmid) || row.tags.contains(BEGUN_TAG)) {
        let config = match ground.client.config(&row.host, vmid).await {
            Err(_) if !strict => continue,
            config => config?,
        };
        let Some(config) = config else { continue };
        let Owner::Ours(mark) = ground.owner(vmid, &config).await? else { continue };
        let on = format!("the mark on VM {vmid} ({})", mark.name);
        match (mark.etcd, &intended) {
            (Some(etcd), _) if etcd.has_begun => return Ok(told(&on, &etcd.first)),
            (Some(etcd), None) => intended = Some((etcd.first, on)),
            // Told to begin on one of them, it must not be told to begin on the other.
            (Some(etcd), Some((first, by))) if strict && etcd.first != *first => {
                let evidence = format!("{by} says that it begins on {first}, {on} that it begins on {}", etcd.first);
                return Err(Fault::guard("etcd", evidence).next("castle down, then castle up"));
            }
            (Some(_) | None, _) => {}
        }
    }
    // A state that was lost and made anew has chosen for itself; the machines are as old as the choice.
    let first = intended.map(|(first, _)| first).or(first).or(saved.map(|saved| saved.first));
    Ok(Remembered { first, began: None, others: Vec::new() })
}

/// Which control plane that runs has data of etcd: what nobody has written down, they know.
///
/// None says so, too, of nodes that do not answer: this is to protect what is there, not to prove that nothing is.
pub async fn seen(room: &Strongroom, survey: &Survey, nodes: &[Node], wire: &Wire) -> Option<String> {
    let runs = |node: &&Node| node.role == Role::ControlPlane && survey.running.contains(&node.vmid.0);
    let running: Vec<Whom> = nodes.iter().filter(runs).map(whom).collect();
    if running.is_empty() {
        return None;
    }
    // Secrets that cannot be read are told of where they are needed.
    let keys = room.keys().await.ok().flatten()?;
    holder(wire, &keys, running).await
}

fn id(kind: &str, name: &str) -> StepId {
    StepId::new(&layer(), kind, name)
}

/// Adds the steps that write down that etcd has begun: in the state, and in the mark of each control plane.
pub fn note(
    graph: &mut GraphBuilder,
    castle: &Castle,
    nodes: &[Node],
    (ground, room): (&Arc<Ground>, &Arc<Strongroom>),
    quorum: &Handle<Quorum>,
) {
    // Whoever raises the machines alone makes etcd begin.
    graph.step(id("begun", castle.castle.as_str()), Place::default(), (quorum.clone(),), NoteInState(room.clone()));
    for node in nodes.iter().filter(|node| node.role == Role::ControlPlane) {
        let name = &node.name.value;
        let step = MarkBegun::new(ground.clone(), node.vmid.0, name);
        graph.step(id("mark", name), Place::default(), (quorum.clone(),), step);
    }
}

/// Writes into the state that etcd has begun.
struct NoteInState(Arc<Strongroom>);

impl Step for NoteInState {
    type Needs = (Arc<Quorum>,);
    /// Whether there is something to write.
    type Observed = bool;
    type Action = ();
    type Output = ();

    fn observe<'a>(&'a self, (quorum,): &'a Self::Needs) -> BoxFuture<'a, Result<bool, Fault>> {
        Box::pin(async move { Ok(quorum.is_seen() && self.0.lacks_proof().await?) })
    }

    fn decide(&self, _: &Self::Needs, is_new: &bool) -> Decision {
        match is_new {
            false => Decision::Nothing,
            true => {
                let change = Change::new("note", Impact::InPlace);
                Decision::Act((), change.differing("state", None, Some("etcd has begun".to_owned())))
            }
        }
    }

    fn act<'a>(
        &'a self,
        _: &'a Self::Needs,
        _: &'a bool,
        (): &'a (),
        operation: &'a Operation,
    ) -> BoxFuture<'a, Result<(), Fault>> {
        Box::pin(self.0.note_begun(true, operation.epoch))
    }

    fn expect(&self, _: &Self::Needs, _: &bool) -> Option<()> {
        Some(())
    }

    fn output(&self, _: &Self::Needs, _: &bool) {}
}

/// Adds what takes control planes out of an etcd that has begun whose machines are gone, before anything is made anew. Where nobody can say that it has
/// begun, those that are left are asked.
pub fn forget(
    graph: &mut GraphBuilder,
    (ground, wire): (&Arc<Ground>, &Arc<Wire>),
    (nodes, survey): (&[Node], &Survey),
    keys: &Handle<Keys>,
    has_begun: bool,
) {
    let is_absent = |node: &&Node| !survey.guests.contains_key(&node.vmid.0);
    let control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane);
    let (gone, there): (Vec<&Node>, Vec<&Node>) = control_planes.partition(is_absent);
    // Of a castle that nobody has begun to make, nothing is gone.
    if there.is_empty() && !has_begun {
        return;
    }
    let names: Vec<String> = gone.iter().map(|node| node.name.value.clone()).collect();
    let wakes = there.iter().any(|node| !survey.running.contains(&node.vmid.0));
    for lost in gone {
        let name = &lost.name.value;
        let proof = proof(ground.clone(), lost);
        let survivors = there.iter().map(|node| whom(node)).collect();
        let step = ForgetMember::new(wire.clone(), (whom(lost), proof), names.clone(), survivors);
        let step = step.knowing(has_begun).waking(wakes);
        let place = Place { lane: None, predicted: Duration::from_secs(3) };
        let member = id("member", name);
        graph.step(member.clone(), place, (keys.clone(),), step);
        // Those that are left may be off.
        for survivor in &there {
            graph.after(member.clone(), power_step(survivor));
        }
        for absent in nodes.iter().filter(is_absent) {
            graph.after(vm_step(absent), member.clone());
        }
    }
}

/// The proof that the machine of a node is gone, asked for as often as it is needed.
fn proof(ground: Arc<Ground>, node: &Node) -> Vanished {
    let (vmid, name) = (node.vmid.0, node.name.value.clone());
    Box::new(move || {
        let (ground, name) = (ground.clone(), name.clone());
        Box::pin(async move { vanished(&ground, vmid, &name).await })
    })
}
