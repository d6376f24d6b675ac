//! What is held of a castle that stands, before anything of it is changed: that its machines are seen.

use std::collections::BTreeSet;

use castle_engine::{Fault, lineage};
use castle_layers::Survey;
use castle_layers::cluster::whom;
use castle_layers::platform::{self, Doomed, Whose};
use castle_layers::secrets::Strongroom;
use castle_proxmox::model::{Guest, Mark, Owner};
use castle_proxmox::steps::Ground;
use castle_spec::Role;
use castle_talos::client::is_at;
use castle_talos::steps::{UNSEEN, Voice, Whom, keep_a_copy, voice};
use serde_json::{Value, json};

use crate::recorded::{self, Machine, Recorded};
use crate::stand::{LOOKING, Stand, Trouble};

/// Why a castle that stands by its record is not raised: none of its machines is seen, or none of its control planes. What is made
/// instead would be a second castle beside the first.
pub(crate) async fn vanished(
    stand: &Stand,
    room: &Strongroom,
    ground: &Ground,
    survey: &Survey,
) -> Result<Option<Fault>, Trouble> {
    let (kept, nodes) = (&stand.kept, &stand.kept.nodes);
    if let Some(fault) = astray(stand, ground, survey).await? {
        return Ok(Some(fault));
    }
    let is_image = |vmid: u32| stand.site.image_vmids().any(|image| image == vmid);
    let ours = || survey.guests.values().filter(|row| is_marked(ground, row));
    let recorded = Recorded::read(room).await.map_err(|error| Trouble::Failed(kept.told(&error)))?;
    let is_written_down = recorded.as_ref().is_some_and(|recorded| !recorded.machines.is_empty());
    if let Some(recorded) = &recorded
        && let Some(fault) = unmarked(stand, recorded, ground, survey).await?
    {
        return Ok(Some(fault));
    }
    // Where castle itself has removed all control planes, what may be left of the others stands in nobody's way.
    let is_razed = recorded.as_ref().is_some_and(|recorded| recorded.is_razed(stand.client.whereabouts()));
    if let (Some(recorded), true) = (&recorded, is_written_down && !ours().any(|row| !is_image(row.vmid)))
        && !is_razed
    {
        return Ok(Some(nothing_there(stand, recorded).await?));
    }
    if !is_written_down && let Some(fault) = taken(stand, ground, survey).await? {
        return Ok(Some(fault));
    }
    if let Some(recorded) = &recorded
        && let Some(fault) = without_quorum(stand, room, recorded, survey).await
    {
        return Ok(Some(fault));
    }
    let mut control_planes = nodes.iter().filter(|node| node.role == Role::ControlPlane);
    if control_planes.any(|node| survey.guests.contains_key(&node.vmid.0)) {
        return Ok(None);
    }
    // Those of which the file does not know any more may well have all that is in etcd.
    let prefix = format!("{}-cp-", kept.castle.castle.as_str());
    let others = ours().filter(|row| row.name.as_ref().is_some_and(|name| name.starts_with(&prefix)));
    let others: Vec<String> =
        others.map(|row| format!("VM {} ({})", row.vmid, row.name.as_deref().unwrap_or_default())).collect();
    if !others.is_empty() {
        let evidence = format!(
            "none of the control planes of the file is to be seen, and others are there: {}",
            others.join(", ")
        );
        return Ok(Some(
            Fault::guard(kept.name(), evidence).next("put them back into castle.yaml (nodes.controlPlanes)"),
        ));
    }
    if let Some(recorded) = &recorded
        && recorded.control_planes().next().is_some()
    {
        let seen = survey.guests.keys().copied().collect();
        let missing = recorded.missing(&stand.client, &seen).await?;
        if !missing.iter().any(Machine::is_control_plane) {
            return Ok(Some(cut_off(stand)));
        }
    }
    let remembered = stand.remembered(ground, room, survey, false).await?;
    Ok(remembered.began.map(|began| {
        let names = nodes.iter().filter(|node| node.role == Role::ControlPlane).map(|node| node.name.value.as_str());
        let names: Vec<&str> = names.collect();
        let evidence =
            format!("is lost: {began}, and none of its control planes is to be seen: {}; looked at {}", names.join(", "), stand.client.whereabouts());
        Fault::guard("etcd", evidence).next(format!(
            "restore a control plane from a backup, under its own VMID; or begin a new life, without what was in etcd: castle down --forget-secrets {}, \
             then castle up",
            kept.castle.castle.as_str()
        ))
    }))
}

/// Why castle would raise nothing, for whoever only looks.
pub(crate) struct Obstacle {
    summary: String,
    next: String,
    /// Whether that was seen, or what castle knows of its machines could not be held against them.
    pub(crate) is_seen: bool,
}

impl Obstacle {
    /// In one sentence.
    pub(crate) fn sentence(&self) -> String {
        if self.next.is_empty() { self.summary.clone() } else { format!("{}; next: {}", self.summary, self.next) }
    }

    /// For people.
    pub(crate) fn told(&self) -> String {
        if self.next.is_empty() { self.summary.clone() } else { format!("{}\n  next: {}", self.summary, self.next) }
    }

    /// For programs.
    pub(crate) fn object(&self) -> Value {
        json!({"severity": "error", "summary": self.summary, "hint": self.next})
    }
}

/// The same as [`vanished`] for whoever only looks: what cannot be looked at keeps nobody from seeing the rest.
pub(crate) async fn obstacle(stand: &Stand, room: &Strongroom, ground: &Ground, survey: &Survey) -> Option<Obstacle> {
    match vanished(stand, room, ground, survey).await {
        Ok(fault) => fault.map(|fault| {
            let fault = crate::masking::fault(&fault);
            Obstacle { summary: fault.to_string(), next: fault.next, is_seen: true }
        }),
        Err(trouble) => {
            let (why, next) = trouble.told().split_once("\n  next: ").unwrap_or((trouble.told(), ""));
            let summary = format!("what the state knows of machines was not held against them: {why}");
            Some(Obstacle { summary, next: next.to_owned(), is_seen: false })
        }
    }
}

/// Whether a guest is marked as one of this castle, as far as the list can tell: one that is just being cloned has the tags of its image.
pub(crate) fn is_marked(ground: &Ground, row: &Guest) -> bool {
    row.is_machine && row.tags.is_superset(&Mark::tags_of(&ground.castle)) && !row.looks_copied()
}

/// Why nothing is raised where another castle of the same name has its machines: their tags are the same, and their secrets are not known here.
pub(crate) async fn taken(stand: &Stand, ground: &Ground, survey: &Survey) -> Result<Option<Fault>, Trouble> {
    let rows = stand.kept.nodes.iter().filter_map(|node| survey.guests.get(&node.vmid.0));
    for row in rows.filter(|row| is_marked(ground, row)) {
        let config = ground.client.config(&row.host, row.vmid).await.map_err(Fault::from)?;
        let Some(config) = config else { continue };
        if let Owner::Other(mark) = ground.owner(row.vmid, &config).await.map_err(Fault::from)? {
            return Ok(Some(ground.taken(row.vmid, &mark)));
        }
    }
    Ok(None)
}

/// Why nothing is raised while a machine of the castle that its file does not name, or none that it does, has lost its mark: nobody would ever remove it.
/// One that the file names is told by its own step.
async fn unmarked(
    stand: &Stand,
    recorded: &Recorded,
    ground: &Ground,
    survey: &Survey,
) -> Result<Option<Fault>, Trouble> {
    let is_named = |machine: &Machine| stand.kept.nodes.iter().any(|node| node.vmid.0 == machine.vmid);
    let sees_any = survey.guests.values().any(|row| is_marked(ground, row) && row.is_template() != Some(true));
    let open = recorded.machines.iter().filter(|machine| !recorded.is_going(machine));
    // What the list shows with the castle's tags, or not at all, need not be read.
    let is_suspect = |machine: &&Machine| {
        let row = survey.guests.get(&machine.vmid);
        row.is_some_and(|row| !is_marked(ground, row)) && !(sees_any && is_named(machine))
    };
    for machine in open.filter(is_suspect) {
        if let Some(row) = machine.unmarked(&ground.client, &ground.castle, &survey.guests).await? {
            let subject = format!("VM {} ({}) on {}", machine.vmid, machine.name, row.host);
            let by_hand = remove_by_hand(machine.vmid);
            return Ok(Some(Fault::guard(subject, UNMARKED).next(format!(
                "castle adopt --foreign gives it its mark back, if castle.yaml names it and all of its nodes run; or {by_hand}"
            ))));
        }
    }
    Ok(None)
}

/// What is said of a machine of the castle that has no mark.
pub(crate) const UNMARKED: &str = "is this castle's by its state and has no mark";

/// How a person removes a machine of the castle that has no mark.
pub(crate) fn remove_by_hand(vmid: u32) -> String {
    format!("remove it by hand, if you are sure: qm stop {vmid} && qm destroy {vmid}")
}

/// Why nothing is raised where none of the machines is to be seen that the state knows.
async fn nothing_there(stand: &Stand, recorded: &Recorded) -> Result<Fault, Trouble> {
    let (name, whereabouts) = (stand.kept.name(), stand.client.whereabouts());
    let missing = recorded.missing(&stand.client, &BTreeSet::new()).await?;
    let fault = |evidence: String| Fault::guard(name, evidence);
    if missing.is_empty() {
        return Ok(cut_off(stand));
    }
    let evidence = format!(
        "stands by its state, and none of its machines is to be seen: {}; looked at {whereabouts}",
        recorded::listed(&missing)
    );
    let forget = format!("castle down --forget-secrets {}", stand.kept.castle.castle.as_str());
    Ok(fault(evidence).next(format!(
        "mend the endpoint or the token in castle.yaml (castle doctor tells what the token may see); if the machines are truly gone: {forget} ends this life \
         of the castle, then castle up begins the next"
    )))
}

/// Why nothing is raised where castle itself has removed the control planes, and was cut off.
fn cut_off(stand: &Stand) -> Fault {
    let evidence = "is gone, and its life has not ended: castle itself has removed its machines, and was cut off";
    Fault::guard(stand.kept.name(), evidence).next(
        "castle down ends this life, then castle up begins the next; or, if it was a rebirth: castle rebirth, as before",
    )
}

/// What the control planes that are seen say of their etcd, and they themselves.
async fn heard(stand: &Stand, room: &Strongroom, there: &[&Machine]) -> (Voice, Vec<Whom>) {
    let node = |machine: &&Machine| stand.kept.nodes.iter().find(|node| node.vmid.0 == machine.vmid).map(whom);
    let survivors: Vec<Whom> = there.iter().filter_map(node).collect();
    let said = match room.keys().await {
        Ok(Some(keys)) => voice(&stand.wire(LOOKING), &keys, survivors.clone()).await,
        _ => Voice::Unknown,
    };
    (said, survivors)
}

/// The control planes that are written down: those that are seen, and those that are not.
fn parted<'r>(recorded: &'r Recorded, survey: &Survey) -> (Vec<&'r Machine>, Vec<&'r Machine>) {
    recorded.control_planes().partition(|machine| survey.guests.contains_key(&machine.vmid))
}

/// Why nothing is made of an etcd most of whose members have lost their machines: what is left cannot decide anything, and what is made anew
/// would wait for it in vain. What is written down is only a reason to ask: members may have been let go since, and etcd alone knows who has a vote.
async fn without_quorum(stand: &Stand, room: &Strongroom, recorded: &Recorded, survey: &Survey) -> Option<Fault> {
    let (there, gone) = parted(recorded, survey);
    if there.is_empty() || there.len() > gone.len() {
        return None;
    }
    let (said, survivors) = heard(stand, room, &there).await;
    let (state, first) = match said {
        Voice::Quorate(_) => return None,
        Voice::Lost(since) => {
            (format!("has lost its quorum{}", since.map_or(String::new(), |since| format!(", for {since}"))), "")
        }
        Voice::Unknown => {
            let names: Vec<&str> = there.iter().map(|machine| machine.name.as_str()).collect();
            (
                format!(
                    "has most likely lost its quorum: of those that are left none says that it has one ({})",
                    names.join(", ")
                ),
                "see that those that are left run (qm start VMID), wait a minute, and run the same command again; if it says the same, ",
            )
        }
    };
    let keep = survivors.first().map_or_else(String::new, keep_a_copy);
    let missing: Vec<String> = gone.iter().map(|machine| format!("{} ({UNSEEN})", machine.name)).collect();
    let forget = format!("castle down --forget-secrets {}", stand.kept.castle.castle.as_str());
    let evidence = format!("{state}; missing: {}; looked at {}", missing.join(", "), stand.client.whereabouts());
    Some(Fault::guard("etcd", evidence).next(format!(
        "{first}{keep}restore those machines from a backup, under their own VMIDs, and run castle up; or, if they are there, mend the token (castle doctor tells what \
         it may see). What begins anew ({forget}, then castle up) begins without what was in it"
    )))
}

/// Forgets the control planes that are proved to be gone and have no vote any more, as a quorum of the others says: castle has let go of them and was cut off,
/// or a person has. What could not be asked stays written down.
pub(crate) async fn let_go(
    stand: &Stand,
    room: &Strongroom,
    ground: &Ground,
    survey: &Survey,
    epoch: u64,
) -> Result<(), Trouble> {
    let Some(recorded) = Recorded::read(room).await.map_err(|error| Trouble::Failed(stand.kept.told(&error)))? else {
        return Ok(());
    };
    let (there, unseen) = parted(&recorded, survey);
    if there.is_empty() || unseen.is_empty() {
        return Ok(());
    }
    let (Voice::Quorate(members), _) = heard(stand, room, &there).await else { return Ok(()) };
    let mut gone = BTreeSet::new();
    for machine in unseen {
        // Where it is not known, its name alone has to tell.
        let is_it = |address| members.iter().any(|member| is_at(member, address));
        let votes = members.iter().any(|member| member.hostname == machine.name) || machine.address.is_some_and(is_it);
        if !votes && machine.is_gone(ground, &survey.guests).await? {
            gone.insert(machine.vmid);
        }
    }
    recorded.forget(room, &gone, epoch).await
}

/// Why nothing is raised while machines of the castle are where its file does not have them, or are of a later life than is known.
async fn astray(stand: &Stand, ground: &Ground, survey: &Survey) -> Result<Option<Fault>, Trouble> {
    let found = platform::elsewhere(ground, &survey.guests).await?;
    let machines: Vec<&Doomed> = found.iter().filter(|guest| !guest.is_template).collect();
    let told = |guest: &&Doomed| format!("VM {} ({}) on {}", guest.vmid, guest.name, guest.host);
    let all = machines.iter().map(told).collect::<Vec<_>>().join(", ");
    if machines.is_empty() {
        return Ok(None);
    }
    if machines.iter().any(|guest| matches!(guest.whose, Whose::Later(_))) {
        let evidence = format!("has machines of a later life than the one that its state knows: {all}");
        return Ok(Some(Fault::guard(stand.kept.name(), evidence).next(lineage::OUTDATED)));
    }
    let (first, last) = (ground.vmids.start(), ground.vmids.end());
    let evidence = format!("has machines outside of its vmids {first}-{last}: {all}");
    Ok(Some(Fault::guard(stand.kept.name(), evidence).next(
        "give castle.yaml the vmids back that they were made with: castle moves no machine; or castle down, and then castle up",
    )))
}
