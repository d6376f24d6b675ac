//! One world: a datacenter, a disk and a clock of its own, in which verbs are run as on a command line, and killed.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use castle_datacenter::blueprint::{GIB, Placed};
use castle_datacenter::{Datacenter, EMBEDDED_GIT};
use castle_rehearsal::{Chance, Loss, ModelDisk, Moment, Pulse, VirtualClock};
use castle_seams::{BoxFuture, ByteStream, Clock, Dial, DialError, Entropy, KeyMint, Signal, Signals, Target};
use clap::Parser;
use futures_util::future::{Either, select};
use tokio::sync::Notify;

use super::blueprint::volumes_of_others;
use super::script::Script;
use super::tally::{IsMeant, Tally};
use crate::cli::Cli;
use crate::commands::perform;
use crate::doors::{Around, Doors, Room, Variables};
use crate::embedded::{self, Keys, NOBODY, Serving};
use crate::output::{Exit, Printed, Printer};

/// How long what a killed process has sent may be on its way.
const LINGERING: Duration = Duration::from_secs(1);

/// A world in which castle lives. Everything of it is reached through `&self`, so that others can do something meanwhile.
pub(crate) struct Life {
    pub(crate) script: Arc<Script>,
    /// Where interventions are made.
    pub(crate) datacenter: Datacenter,
    /// Who sees every request.
    pub(crate) tally: Arc<Tally>,
    clock: VirtualClock,
    disk: Arc<Mutex<ModelDisk>>,
    entropy: Arc<dyn Entropy>,
    mint: Arc<dyn KeyMint>,
    hand: Arc<Hand>,
}

/// How a verb ended, and what it said.
#[derive(Debug)]
pub(crate) struct Told {
    /// Nothing if it was killed.
    pub(crate) exit: Option<Exit>,
    pub(crate) printed: Printed,
    /// How many effects it had: on the disk, at the hypervisor, the nodes, the cluster and the vault.
    pub(crate) effects: u64,
    /// How long it took.
    #[cfg_attr(not(test), expect(dead_code, reason = "rehearsals measure with the whole world"))]
    pub(crate) took: Duration,
}

/// Whose memory a process has.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// That of everybody else in this world.
    Usual,
    /// That of a colleague, who shares the file, the hypervisor, the vault and the keys, and nothing else.
    Colleague,
}

#[cfg(test)]
impl Home {
    pub(crate) fn state(self) -> &'static str {
        match self {
            Self::Usual => super::script::STATE,
            Self::Colleague => "/rehearsal/colleague",
        }
    }
}

/// How a verb ended that was not alone, and when.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Raced {
    pub(crate) told: Told,
    pub(crate) begun: Duration,
    pub(crate) ended: Duration,
}

impl Told {
    /// How it ended, in words.
    pub(crate) fn ending(&self) -> String {
        self.exit.map_or_else(|| "killed".to_owned(), |exit| format!("exit code {}", exit.code()))
    }
}

/// Where a verb is killed, as by `kill -9`: nothing of it happens any more.
pub(crate) struct Kill {
    pub(crate) at: At,
    pub(crate) moment: Moment,
    /// What the disk loses.
    pub(crate) loss: Loss,
}

/// At which effect.
pub(crate) enum At {
    /// The one of this number, counted from zero.
    Beat(u64),
    /// The first request for a change that is meant: `POST /nodes/pve/qemu/421/status/start`.
    #[cfg_attr(not(test), expect(dead_code, reason = "rehearsals draw a number; tests know which change they mean"))]
    Change(IsMeant),
}

/// The operator's hand.
#[derive(Debug, Default)]
struct Hand(Notify);

impl Signals for Hand {
    fn next(&self) -> BoxFuture<'_, Signal> {
        Box::pin(async {
            self.0.notified().await;
            Signal::Interrupt
        })
    }
}

/// The way into the datacenter, by the names that a castle's file has for it.
struct Ways {
    inner: Arc<dyn Dial>,
    ways: Vec<((String, u16), (String, u16))>,
}

impl Dial for Ways {
    fn dial<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        let is_meant = |(host, port): &(String, u16)| *host == target.host && *port == target.port;
        let way = self.ways.iter().find(|(outside, _)| is_meant(outside));
        let Some((_, (host, port))) = way else { return self.inner.dial(target) };
        let inside = Target::new(host, *port);
        Box::pin(async move { self.inner.dial(&inside).await })
    }
}

impl Life {
    /// A world that begins now, of this seed.
    pub(crate) fn begin(script: &Arc<Script>, seed: u64, clock: &VirtualClock) -> Self {
        let blueprint = script.blueprint.clone().with_seed(seed);
        let datacenter = Datacenter::new(blueprint, Arc::new(*clock));
        for (host, volume, kind) in volumes_of_others(&script.castle) {
            datacenter.add_volume(&host, &volume, kind, GIB);
        }
        let disk = ModelDisk::default();
        for (path, bytes) in &script.files {
            disk.tamper(path, bytes.clone());
        }
        if let Some(vault) = &script.vault {
            for (name, value) in &script.vaulted {
                let placed = Placed::new(&vault.environment, &vault.folder, name, value);
                datacenter.place_secret(&vault.host, &vault.project, placed);
            }
        }
        if let Some(repository) = &script.repository {
            datacenter.add_repository(&repository.url, repository.token);
            datacenter.push(&repository.url, &repository.branch, &repository.files, "a commit");
        }
        let tally = Arc::new(Tally::default());
        datacenter.watch(tally.clone());
        let life = Self {
            datacenter,
            tally,
            clock: *clock,
            disk: Arc::new(Mutex::new(disk)),
            entropy: Arc::new(Chance::new(seed)),
            mint: Arc::new(script.stock.mint()),
            hand: Arc::default(),
            script: script.clone(),
        };
        life.follow();
        life
    }

    /// Lets the datacenter serve the folder that castle announces.
    fn follow(&self) {
        let (disk, variables) = (self.disk.clone(), Variables::These(self.script.variables.clone()));
        let files = move |name: &str| {
            let disk = disk.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let doors = Doors { disk: Arc::new(disk), variables: variables.clone(), ..Doors::system() };
            embedded::followed(&doors, name)
        };
        self.datacenter.follow_repositories(EMBEDDED_GIT, Arc::new(files));
    }

    /// The disk of the machine that castle runs on.
    pub(crate) fn disk(&self) -> ModelDisk {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same for whoever looks again and again: what a verb works on is the disk as the one before has left it.
    #[cfg(test)]
    pub(crate) fn files(
        &self,
    ) -> impl Fn() -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> + Send + Sync + 'static {
        let disk = self.disk.clone();
        move || disk.lock().unwrap_or_else(PoisonError::into_inner).contents()
    }

    /// The time of this world.
    pub(crate) fn clock(&self) -> &dyn Clock {
        &self.clock
    }

    /// Presses Ctrl-C.
    #[cfg_attr(not(test), expect(dead_code, reason = "rehearsals kill"))]
    pub(crate) fn interrupt(&self) {
        self.hand.0.notify_one();
    }

    /// The doors of a process on that machine.
    pub(crate) fn doors(&self) -> Doors {
        let address = |last: u8, port: u16| ([127, 0, 0, last], port).into();
        let serving = Serving {
            address: address(1, 8006),
            fingerprint: NOBODY.to_owned(),
            process: 0,
            hosts: self.script.blueprint.hosts.iter().map(|host| host.name.clone()).collect(),
            speed: 1,
            is_instant: false,
            vault: address(2, 443),
            vault_fingerprint: NOBODY.to_owned(),
            git: address(3, 443),
            git_fingerprint: NOBODY.to_owned(),
            key_digests: std::collections::BTreeMap::new(),
            keys: Keys::default(),
        };
        let dial = Ways { inner: self.datacenter.dial(), ways: self.script.ways() };
        let room = Room { dial: Arc::new(dial), signals: self.hand.clone(), serving: Some(serving) };
        Doors {
            disk: Arc::new(self.disk()),
            clock: Arc::new(self.clock),
            entropy: self.entropy.clone(),
            mint: self.mint.clone(),
            variables: Variables::These(self.script.variables.clone()),
            around: Around::Room(Arc::new(room)),
            hand: Arc::default(),
            voice: Arc::default(),
        }
    }

    /// Runs a verb on the castle: `["down", "--yes"]`.
    pub(crate) async fn run(&self, words: &[&str]) -> Told {
        self.live(words, &Pulse::new(), None).await
    }

    /// Runs a verb until it is killed, or to its end if it does not come to that.
    pub(crate) async fn run_killed(&self, words: &[&str], kill: Kill) -> Told {
        let Kill { at, moment, loss } = kill;
        let (pulse, meant) = match at {
            At::Beat(beat) => (Pulse::killed_at(beat, moment), None),
            At::Change(is_meant) => (Pulse::new(), Some((is_meant, moment))),
        };
        let told = self.live(words, &pulse, meant).await;
        if told.exit.is_none() {
            let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
            *disk = disk.after_crash(loss, &Pulse::new());
        }
        told
    }

    /// Runs two verbs at once, the second so much later than the first, each from a home of its own or both from the same.
    #[cfg(test)]
    pub(crate) async fn race(&self, verbs: [(&[&str], Home); 2], gap: Duration) -> [Raced; 2] {
        self.start(&Pulse::new(), None);
        let racing = async |(words, home): (&[&str], Home), wait: Duration| {
            self.clock.sleep(wait).await;
            let (pulse, begun) = (Pulse::new(), self.clock.monotonic());
            let told = self.perform(words, &self.doors_of(home), &pulse).await;
            Raced { told, begun, ended: self.clock.monotonic() }
        };
        let [first, second] = verbs;
        let (first, second) = futures_util::join!(racing(first, Duration::ZERO), racing(second, gap));
        [first, second]
    }

    /// Runs a verb from this home.
    #[cfg(test)]
    pub(crate) async fn run_from(&self, home: Home, words: &[&str]) -> Told {
        let pulse = Pulse::new();
        self.start(&pulse, None);
        self.perform(words, &self.doors_of(home), &pulse).await
    }

    /// Runs a verb with this value of a variable, or without that variable.
    #[cfg(test)]
    pub(crate) async fn run_with(&self, variable: &str, value: Option<&str>, words: &[&str]) -> Told {
        let pulse = Pulse::new();
        self.start(&pulse, None);
        self.perform(words, &self.doors_with(variable, value), &pulse).await
    }

    /// The doors of a process that has its memory in this home.
    #[cfg(test)]
    fn doors_of(&self, home: Home) -> Doors {
        self.doors_with("CASTLE_STATE_DIR", Some(home.state()))
    }

    #[cfg(test)]
    fn doors_with(&self, variable: &str, value: Option<&str>) -> Doors {
        let mut variables = (*self.script.variables).clone();
        match value {
            Some(value) => variables.insert(variable.to_owned(), value.into()),
            None => variables.remove(variable),
        };
        Doors { variables: Variables::These(Arc::new(variables)), ..self.doors() }
    }

    async fn live(&self, words: &[&str], pulse: &Pulse, kill: Option<(IsMeant, Moment)>) -> Told {
        self.start(pulse, kill);
        self.perform(words, &self.doors(), pulse).await
    }

    /// The machine is as whoever worked last has left it, and this is whose effects are counted from now on.
    fn start(&self, pulse: &Pulse, kill: Option<(IsMeant, Moment)>) {
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        *disk = disk.after_crash(Loss::None, pulse);
        self.tally.begin(pulse, kill);
    }

    async fn perform(&self, words: &[&str], doors: &Doors, pulse: &Pulse) -> Told {
        let begun = self.clock.monotonic();
        let is_for_programs = words.contains(&"--json");
        let mut printer = if is_for_programs { Printer::into_memory_of_objects() } else { Printer::into_memory() };
        let folder = self.script.file.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
        let mirror = self.script.mirror.as_ref().map(|mirror| mirror.to_string_lossy().into_owned());
        let takes_mirror = ["up", "plan", "status", "drift", "rebirth"];
        let mirror = mirror.filter(|_| words.first().is_some_and(|verb| takes_mirror.contains(verb)));
        // Whoever names no tree means the castle where they are.
        let is_here = words == ["gitops", "check"];
        let folder = (!is_here).then_some(folder.as_str());
        let mut all: Vec<&str> = ["castle"].into_iter().chain(words.iter().copied()).chain(folder).collect();
        all.extend(mirror.iter().flat_map(|mirror| ["--mirror", mirror.as_str()]));
        let exit = match Cli::try_parse_from(all) {
            Err(error) => {
                printer.complain(&error.to_string());
                Some(Exit::Invalid)
            }
            Ok(cli) => {
                let work = Box::pin(perform(&cli.command, doors, &mut printer));
                let death = Box::pin(pulse.death());
                match select(death, work).await {
                    Either::Left(((), work)) => {
                        // It is not polled any more. What it has sent before is on its way, and arrives.
                        self.clock.sleep(LINGERING).await;
                        drop(work);
                        None
                    }
                    // It went on to its end without waiting for anything: that never was.
                    Either::Right((exit, _)) => (!pulse.is_dead()).then_some(exit),
                }
            }
        };
        let took = self.clock.monotonic().saturating_sub(begun);
        Told { exit, printed: printer.printed(), effects: pulse.beats(), took }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        // The datacenter holds whoever watches it, and connections hold the datacenter.
        self.datacenter.unwatch();
    }
}
