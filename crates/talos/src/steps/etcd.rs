//! The etcd of a castle, seen through its control planes: all of them are asked at once, and none what it cannot answer.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use castle_engine::{Closed, Fault};
use castle_talos_api::Timestamp;
use castle_talos_api::machine::{EtcdMember, ServiceInfo};
use futures_util::future::join_all;

use super::{Keys, Whom, Wire};
use crate::client::{Contact, Refusal};

/// How long an etcd that has just started may take until it has found the others. What is younger is starting, not lost.
const FINDING: Duration = Duration::from_secs(60);
/// How long an etcd may take to start: its image may have to be pulled.
const STARTING: Duration = Duration::from_secs(10 * 60);

/// What is known of the etcd of a life from elsewhere than its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Remembered {
    /// The control plane that it begins on, as written down before the first machine was made.
    pub first: Option<String>,
    /// What says that it has begun, for people: the state, the vault, a mark, or a node that has its data. With that, it never begins again.
    pub began: Option<String>,
    /// Control planes of this life that nobody asks, for people: the file does not name them, or they are not to be seen where they were made. They may
    /// have what the others have not.
    pub others: Vec<String>,
}

/// The control planes of a castle, and the ways to them.
#[derive(Debug)]
pub(super) struct ControlPlanes {
    all: Vec<Whom>,
    contacts: OnceLock<Vec<Contact>>,
}

/// What the members say of themselves.
#[derive(Debug)]
pub(super) enum Etcd {
    /// A quorum of them tells who they are.
    Quorate {
        members: Vec<EtcdMember>,
        /// Which of the control planes told it.
        told_by: usize,
        /// Those whose etcd does not run, and what was seen of each. The others know it as a member all the same.
        missing: Vec<(Whom, String)>,
    },
    /// Nobody does.
    Silent(Silence),
}

/// Why nobody tells who the members are.
#[derive(Debug)]
pub(super) struct Silence {
    /// Those that take part in no quorum, and what was seen of each.
    missing: Vec<(Whom, String)>,
    /// How long etcd has been unwell, where someone knows.
    since: Option<Duration>,
    /// Whether it may just be starting: someone's etcd does not run for long, or someone cannot be asked.
    pub(super) is_starting: bool,
    /// A control plane that answers, whose data are worth keeping.
    survivor: Option<Whom>,
}

impl ControlPlanes {
    pub(super) fn new(all: Vec<Whom>) -> Self {
        Self { all, contacts: OnceLock::new() }
    }

    pub(super) fn all(&self) -> &[Whom] {
        &self.all
    }

    /// The ways to them, kept as long as they are asked.
    pub(super) fn contacts(&self, wire: &Wire, keys: &Keys) -> Result<&[Contact], Fault> {
        if let Some(contacts) = self.contacts.get() {
            return Ok(contacts);
        }
        let made = self.all.iter().map(|whom| wire.contact(whom, keys)).collect::<Result<Vec<_>, _>>()?;
        Ok(self.contacts.get_or_init(|| made))
    }

    /// Asks all of them who the members are.
    pub(super) async fn ask(&self, wire: &Wire, keys: &Keys) -> Result<Etcd, Fault> {
        let asked = join_all(self.contacts(wire, keys)?.iter().map(member)).await;
        let now = wire.clock.wall();
        let told = asked.iter().map(|seen| seen.members.as_ref()?.as_ref().ok().filter(|members| !members.is_empty()));
        let members = told.enumerate().find_map(|(place, members)| Some((place, members?)));
        Ok(match members {
            Some((told_by, members)) => {
                Etcd::Quorate { members: members.clone(), told_by, missing: self.missing(&asked, now) }
            }
            None => Etcd::Silent(self.silence(&asked, now)),
        })
    }

    fn missing(&self, asked: &[Seen], now: SystemTime) -> Vec<(Whom, String)> {
        self.all.iter().zip(asked).filter_map(|(whom, seen)| Some((whom.clone(), seen.missing(now)?))).collect()
    }

    fn silence(&self, asked: &[Seen], now: SystemTime) -> Silence {
        let age = |service: &ServiceInfo| {
            let health = service.health.as_ref().filter(|health| !health.unknown).and_then(|health| health.last_change);
            health.map_or_else(|| in_state_for(service, now), |changed| past(changed, now))
        };
        let unwell = asked.iter().filter_map(|seen| {
            let service = seen.service.as_ref().ok()?.as_ref()?;
            if seen.is_unwell(service) { age(service) } else { None }
        });
        let is_young = |seen: &Seen| match &seen.service {
            Err(_) | Ok(None) => true,
            // One that is well does not know yet that the others are gone.
            Ok(Some(service)) if seen.is_running() => {
                !seen.is_unwell(service) || age(service).is_none_or(|age| age < FINDING)
            }
            Ok(Some(service)) => age(service).is_none_or(|age| age < STARTING),
        };
        // One that says that there is no leader has looked for one in vain; so has one that does not say it in time, and has been unwell for longer than that
        // takes.
        let is_leaderless = |seen: &Seen| seen.refusal().is_some_and(|why| why.sentence.contains("no leader"));
        let is_in_vain = |seen: &Seen| match &seen.service {
            Ok(Some(service)) => seen.is_unwell(service) && age(service).is_some_and(|age| age >= FINDING),
            _ => false,
        };
        let has_looked = asked.iter().any(|seen| is_leaderless(seen) || is_in_vain(seen));
        let is_starting = !has_looked && asked.iter().any(is_young);
        let survivor = self.all.iter().zip(asked).find(|(_, seen)| seen.is_running()).map(|(whom, _)| whom.clone());
        Silence { missing: self.missing(asked, now), since: unwell.max(), is_starting, survivor }
    }
}

/// What one control plane says.
struct Seen {
    /// Its service etcd, if it has one.
    service: Result<Option<ServiceInfo>, Refusal>,
    /// The members, where its etcd runs and so can be asked.
    members: Option<Result<Vec<EtcdMember>, Refusal>>,
}

/// For how long a service has been in its state, where it tells.
fn in_state_for(service: &ServiceInfo, now: SystemTime) -> Option<Duration> {
    past(service.events.as_ref()?.events.last()?.ts?, now)
}

fn past(moment: Timestamp, now: SystemTime) -> Option<Duration> {
    now.duration_since(SystemTime::try_from(moment).ok()?).ok()
}

async fn member(contact: &Contact) -> Seen {
    let node = contact.running();
    let service = node.services().await.map(|all| all.into_iter().find(|service| service.id == "etcd"));
    let runs = service.as_ref().is_ok_and(|etcd| etcd.as_ref().is_some_and(|etcd| etcd.state == "Running"));
    // Asked while it does not run, it would not answer before the bound.
    let members = if runs { Some(node.etcd_members().await) } else { None };
    Seen { service, members }
}

impl Seen {
    fn is_running(&self) -> bool {
        self.members.is_some()
    }

    fn refusal(&self) -> Option<&Refusal> {
        self.members.as_ref()?.as_ref().err()
    }

    /// Whether its etcd runs, and is not well: told by its health, or by that nobody knows of any after it was asked in vain.
    fn is_unwell(&self, service: &ServiceInfo) -> bool {
        self.is_running() && service.health.as_ref().is_none_or(|health| !health.healthy)
    }

    /// Why it takes part in no quorum; nothing if its etcd runs.
    fn missing(&self, now: SystemTime) -> Option<String> {
        match &self.service {
            Err(refusal) => Some(format!("{SILENT}: {}", refusal.sentence)),
            Ok(None) => Some("has no etcd yet".to_owned()),
            Ok(Some(etcd)) if etcd.state == "Running" => None,
            Ok(Some(etcd)) => {
                let since = in_state_for(etcd, now).map_or(String::new(), |since| format!(", for {}", roughly(since)));
                Some(format!("its etcd is {}{since}", etcd.state))
            }
        }
    }
}

impl Silence {
    /// Whether somebody who was asked takes part in no quorum.
    pub(super) fn misses_any(&self) -> bool {
        !self.missing.is_empty()
    }

    /// What it comes to: who is missing, since when, and the ways back that lose nothing, in their order. `absent` are control planes
    /// whose machines are not there.
    pub(super) fn closed(&self, absent: &[&str]) -> Closed {
        let mut missing: Vec<String> = absent.iter().map(|name| format!("{name} ({UNSEEN})")).collect();
        // Those that tell nothing of themselves tell no time either; one that has only just started is not missed yet.
        let dated = |how: &str| match how.strip_prefix(SILENT) {
            Some(why) if !self.is_starting => format!("{SILENT}, {UNDATED}{why}"),
            _ => how.to_owned(),
        };
        missing.extend(self.missing.iter().map(|(whom, how)| format!("{} ({})", whom.name, dated(how))));
        let missing = if missing.is_empty() {
            "its members do not find each other".to_owned()
        } else {
            format!("missing: {}", missing.join(", "))
        };
        let since =
            self.since.filter(|_| !self.is_starting).map_or(String::new(), |since| format!(", for {}", ago(since)));
        let state = if self.is_starting { "has no quorum yet" } else { "has lost its quorum" };
        let keep = self.survivor.as_ref().map_or_else(String::new, keep_a_copy);
        // A castle whose machines are not all seen does not end for less.
        let down = if absent.is_empty() { "castle down" } else { "castle down --forget-secrets CASTLE" };
        Closed {
            subject: "etcd".to_owned(),
            evidence: format!("{state}{since}; {missing}"),
            next: format!(
                "{keep}bring back the machines that are missing, with their disks: castle up starts those that are off; then restore one whose disk is lost \
                 from a backup, under its own VMID. What begins anew ({down}, then castle up) begins without what was in it"
            ),
        }
    }

    /// The same as a fault: castle will not go on.
    pub(super) fn fault(&self, absent: &[&str]) -> Fault {
        let Closed { subject, evidence, next } = self.closed(absent);
        Fault::guard(subject, evidence).next(next)
    }
}

/// What is told of a control plane that the hypervisor does not show.
pub const UNSEEN: &str = "its machine is not to be seen, since when is not known";
/// What is told of a control plane whose machine says nothing.
const SILENT: &str = "does not answer";
/// What is told of one that says nothing of since when, and of which nobody else does.
const UNDATED: &str = "since when is not known";

/// What comes before every way back: nothing that is tried can lose what was copied.
#[must_use]
pub fn keep_a_copy(survivor: &Whom) -> String {
    format!(
        "before anything else is tried, keep a copy of what {} has: talosctl --nodes {} copy /var/lib/etcd FOLDER; then ",
        survivor.name, survivor.address
    )
}

/// What control planes say of their etcd, for whoever misses most of them.
#[derive(Clone, Debug, PartialEq)]
pub enum Voice {
    /// A quorum decides, and these are its members.
    Quorate(Vec<EtcdMember>),
    /// They have looked for the others in vain: for how long, where they tell.
    Lost(Option<String>),
    /// They do not say, or have only just started.
    Unknown,
}

/// Asks these control planes, all at once and without waiting for any, whether their etcd has a quorum.
pub async fn voice(wire: &Wire, keys: &Keys, control_planes: Vec<Whom>) -> Voice {
    if control_planes.is_empty() {
        return Voice::Unknown;
    }
    match ControlPlanes::new(control_planes).ask(wire, keys).await {
        Ok(Etcd::Quorate { members, .. }) => Voice::Quorate(members),
        Ok(Etcd::Silent(silence)) if !silence.is_starting => Voice::Lost(silence.since.map(ago)),
        Ok(Etcd::Silent(_)) | Err(_) => Voice::Unknown,
    }
}

/// The same in words that stay for a minute: what is waited for is told again whenever its words change.
fn roughly(duration: Duration) -> String {
    if duration.as_secs() < 120 { "less than 2 min".to_owned() } else { ago(duration) }
}

fn ago(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use castle_talos_api::machine::ServiceHealth;

    use super::*;
    use crate::client::ErrorClass;

    const NOW: u64 = 100_000;

    fn refusal(sentence: &str) -> Refusal {
        let (node, host, sentence) = (String::new(), String::new(), sentence.to_owned());
        Refusal { class: ErrorClass::Lost, node, host, call: "", sentence, changes: false, lead: None }
    }

    /// One whose etcd runs and has been unwell for so long, and that says this when it is asked for the members.
    fn survivor(unwell: u64, sentence: &str) -> Seen {
        let last_change = Some(Timestamp { seconds: (NOW - unwell).cast_signed(), nanos: 0 });
        let health = ServiceHealth { unknown: false, healthy: false, last_message: String::new(), last_change };
        let service =
            ServiceInfo { id: "etcd".into(), state: "Running".into(), health: Some(health), ..Default::default() };
        Seen { service: Ok(Some(service)), members: Some(Err(refusal(sentence))) }
    }

    fn silent() -> Seen {
        Seen { service: Err(refusal("nothing came within 3 s")), members: None }
    }

    /// Goal: a lost quorum is told from one that is found in a moment, also where the word for it does not come within the bound.
    #[test]
    fn one_that_has_been_unwell_for_long_has_looked_in_vain_though_it_does_not_say_so_in_time() {
        let check = |unwell: u64, sentence: &str, is_starting: bool| {
            let address = std::net::Ipv4Addr::LOCALHOST.into();
            let all = ["a", "b"].map(|name| Whom { name: name.to_owned(), address }).to_vec();
            let now = UNIX_EPOCH + Duration::from_secs(NOW);
            let silence = ControlPlanes::new(all).silence(&[survivor(unwell, sentence), silent()], now);
            assert_eq!(silence.is_starting, is_starting, "{unwell} {sentence}");
            let said = silence.closed(&[]).evidence;
            assert_eq!(said.contains("has lost its quorum, for "), !is_starting, "{said}");
        };
        let slow = "nothing came within 3 s";
        check(10, slow, true);
        check(59, slow, true);
        check(60, slow, false);
        check(3 * 60 * 60, slow, false);
        check(10, "etcdserver: no leader", false);
    }
}
