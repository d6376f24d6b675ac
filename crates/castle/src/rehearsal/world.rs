//! What is done in each world, and how castle is held to its promises there.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use castle_engine::{Outcome, StepId, What};
use castle_layers::{cluster, gitops};
use castle_rehearsal::{Chance, Loss, Moment, VirtualClock, in_virtual_time};
use serde_json::Value;
use tokio::sync::oneshot;

use super::changes::{edited, etcds, losable};
use super::life::{At, Kill, Life, Told};
use super::needles::Needles;
use super::picture::Picture;
use super::promises::{ASKED_FOR, Broken, Others, ended, forget, heard, rewritten, shown};
use super::script::Script;
use super::standins::bundle_parts;
use crate::issuing::bundle;
use crate::keeping::Kept;
use crate::output::Exit;

/// As much as the thread has that a process begins with.
const STACK: usize = 8 << 20;
/// One kill in so many is followed by another, while castle recovers.
const AGAIN: u64 = 3;

/// How long it took until something was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Times {
    /// The API answers.
    pub(crate) api: Option<Duration>,
    /// Flux has applied the newest commit.
    pub(crate) handover: Option<Duration>,
    /// All is as the file says.
    pub(crate) whole: Option<Duration>,
}

/// What became of a file that was edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edit {
    /// The castle is as it says.
    Followed,
    /// Nothing was changed.
    Refused,
}

impl Edit {
    /// The word for people and programs.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Followed => "followed",
            Self::Refused => "refused",
        }
    }
}

/// What became of one world.
#[derive(Debug)]
pub(crate) struct Rehearsed {
    pub(crate) seed: u64,
    pub(crate) times: Times,
    /// Where castle was killed: `up before effect 17 of 210`.
    pub(crate) kills: Vec<String>,
    /// The nodes whose machines were lost.
    pub(crate) losses: Vec<String>,
    /// What became of the edited file, if it came to that.
    pub(crate) edit: Option<Edit>,
    /// How many effects raising it took.
    pub(crate) effects: u64,
    pub(crate) broken: Vec<Broken>,
    /// Why `castle up` would not begin with this file, and how it ends then.
    pub(crate) refused: Option<(Exit, String)>,
    /// Everything that was said.
    pub(crate) story: String,
}

/// Worlds of these seeds, at the same time, each of them three lives: one undisturbed, one in which castle is killed, one in which
/// a machine is lost and the file is edited.
///
/// # Errors
///
/// If the machine has no room for them, or castle itself fails.
pub(crate) fn rehearse(script: &Arc<Script>, seeds: &[u64]) -> io::Result<Vec<Rehearsed>> {
    meddled(script, seeds, &|_| ())
}

/// The same, while whoever waits for them does something else: a verb is not silent for as long as a world takes.
///
/// # Errors
///
/// As [`rehearse`].
pub(crate) async fn rehearse_beside(script: &Arc<Script>, seeds: &[u64]) -> io::Result<Vec<Rehearsed>> {
    let (tell, told) = oneshot::channel();
    let (script, own) = (script.clone(), seeds.to_vec());
    let work = move || drop(tell.send(rehearse(&script, &own)));
    std::thread::Builder::new().spawn(work)?;
    told.await
        .unwrap_or_else(|_| Err(io::Error::other(format!("castle itself failed in the worlds of seeds {seeds:?}"))))
}

/// The same as [`rehearse`], where `meddle` may do something to each world at its beginning.
pub(super) fn meddled(
    script: &Arc<Script>,
    seeds: &[u64],
    meddle: &(dyn Fn(&Life) + Sync),
) -> io::Result<Vec<Rehearsed>> {
    std::thread::scope(|scope| {
        let begin = |&seed: &u64| beside(scope, move || in_three_worlds(script, seed, meddle));
        let begun: Vec<_> = seeds.iter().map(begin).collect::<io::Result<_>>()?;
        let ended = begun.into_iter().zip(seeds).map(|(world, seed)| {
            let failed = |_| Err(io::Error::other(format!("castle itself failed in the world of seed {seed}")));
            world.join().unwrap_or_else(failed)
        });
        ended.collect()
    })
}

/// A thread that has room for a verb, which may be on one that has no time of its own.
fn beside<'s, T: Send + 's>(
    scope: &'s Scope<'s, '_>,
    work: impl FnOnce() -> T + Send + 's,
) -> io::Result<ScopedJoinHandle<'s, T>> {
    std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, work)
}

fn in_three_worlds(script: &Arc<Script>, seed: u64, meddle: &dyn Fn(&Life)) -> io::Result<Rehearsed> {
    let rehearsed = Rehearsed {
        seed,
        times: Times::default(),
        kills: Vec::new(),
        losses: Vec::new(),
        edit: None,
        effects: 0,
        broken: Vec::new(),
        refused: None,
        story: String::new(),
    };
    let mut world = World { rehearsed, raised: Picture::default(), beats: (0, 0), told: String::new() };
    let undisturbed = in_virtual_time(async |clock| {
        let life = world.begin(script, clock, meddle);
        world.undisturbed(&life).await
    })?;
    let is_raised = world.beats.0 > 0;
    world.rehearsed.broken.extend(undisturbed.err());
    if is_raised {
        let killed = in_virtual_time(async |clock| {
            let life = world.begin(script, clock, meddle);
            world.killed(&life).await
        })?;
        world.rehearsed.broken.extend(killed.err());
    }
    // Of a castle that does not keep its promises undisturbed, there is nothing more to learn.
    if is_raised && world.rehearsed.broken.is_empty() {
        let changed = in_virtual_time(async |clock| {
            let life = world.begin(script, clock, meddle);
            world.changed(&life).await
        })?;
        world.rehearsed.broken.extend(changed.err());
    }
    Ok(world.rehearsed)
}

struct World {
    rehearsed: Rehearsed,
    /// The castle as it is raised undisturbed.
    raised: Picture,
    /// How many effects raising it and taking it down had then.
    beats: (u64, u64),
    /// What was said in this life.
    told: String,
}

impl World {
    fn begin(&mut self, script: &Arc<Script>, clock: &VirtualClock, meddle: &dyn Fn(&Life)) -> Life {
        let life = Life::begin(script, self.rehearsed.seed, clock);
        meddle(&life);
        self.told.clear();
        life
    }

    async fn run(&mut self, life: &Life, words: &[&str], kill: Option<Kill>) -> Told {
        let told = match kill {
            None => life.run(words).await,
            Some(kill) => life.run_killed(words, kill).await,
        };
        let ending = if told.exit.is_none() { "killed\n" } else { "" };
        let _ = write!(self.rehearsed.story, "\n$ castle {}\n{}{ending}", words.join(" "), told.printed.text);
        self.told += &heard(&told.printed);
        told
    }

    /// Raised, raised again, planned, forgotten, adopted, taken down, taken down again.
    async fn undisturbed(&mut self, life: &Life) -> Result<(), Broken> {
        let others = Others::of(life);
        life.tally.changes();
        let up = self.run(life, &["up"], None).await;
        // What castle does not even begin is no promise that it broke.
        if let Some(exit @ (Exit::Refused | Exit::Invalid)) = up.exit
            && life.tally.changes().is_empty()
        {
            self.rehearsed.refused = Some((exit, refusal(&up)));
            return Ok(());
        }
        ended(1, "up, undisturbed", &up, &["raised"])?;
        self.rehearsed.times = times(&life.script, &up);
        (self.rehearsed.effects, self.raised) = (up.effects, Picture::settled(life).await);
        self.beats.0 = up.effects;
        self.idle(life, &["up"], "up after up", "unchanged").await?;
        self.idle(life, &["plan", "--exit-code"], "plan after up", "unchanged").await?;
        let needles = needles(life).await?;
        self.issued(life, &needles).await?;
        self.kept(life, &others, &needles, "while it stood")?;
        if is_recoverable(&life.script) {
            let before = records(life).await?;
            forget(life);
            self.idle(life, &["adopt"], "adopt after the state was lost", "adopted").await?;
            self.idle(life, &["up"], "up after adopt", "unchanged").await?;
            let after = records(life).await?;
            let differing: Vec<String> =
                before.keys().filter(|layer| before.get(*layer) != after.get(*layer)).cloned().collect();
            if !differing.is_empty() {
                let expected = "the state is rebuilt as it was";
                return Err(Broken::new(3, "adopt after the state was lost", expected, &differing));
            }
            self.kept(life, &others, &needles, "after adopt")?;
        }
        let down = self.run(life, &["down", "--yes"], None).await;
        self.beats.1 = down.effects;
        ended(4, "down", &down, &["gone"])?;
        self.gone(life, &others, "down")?;
        self.idle(life, &["down", "--yes"], "down after down", "gone").await?;
        self.kept(life, &others, &needles, "after it was taken down")
    }

    /// Raised and taken down, killed on the way.
    async fn killed(&mut self, life: &Life) -> Result<(), Broken> {
        let others = Others::of(life);
        let chance = Chance::new(self.rehearsed.seed ^ 0x6b69_6c6c);
        self.kill(life, &["up"], self.beats.0, &chance).await;
        let up = self.run(life, &["up"], None).await;
        ended(1, "up after kill -9", &up, &["raised", "unchanged"])?;
        let differences = Picture::settled(life).await.against(&self.raised);
        if !differences.is_empty() {
            return Err(Broken::new(1, "up after kill -9", "the same castle as undisturbed", &differences));
        }
        let needles = needles(life).await?;
        self.kept(life, &others, &needles, "after kill -9 and up")?;
        self.kill(life, &["down", "--yes"], self.beats.1, &chance).await;
        let down = self.run(life, &["down", "--yes"], None).await;
        ended(4, "down after kill -9", &down, &["gone"])?;
        self.gone(life, &others, "down after kill -9")?;
        self.kept(life, &others, &needles, "after kill -9 and down")
    }

    /// Raised, a machine lost, raised again; the file edited, and set back.
    async fn changed(&mut self, life: &Life) -> Result<(), Broken> {
        let others = Others::of(life);
        let chance = Chance::new(self.rehearsed.seed ^ 0x6c6f_7374);
        let up = self.run(life, &["up"], None).await;
        ended(1, "up, in the third life", &up, &["raised"])?;
        if let Some(node) = losable(&life.script.nodes, &chance) {
            let (name, when) = (&node.name.value, format!("up after the machine of {} was lost", node.name.value));
            life.datacenter.remove_guest(node.vmid.0);
            self.rehearsed.losses.push(name.clone());
            let up = self.run(life, &["up"], None).await;
            ended(6, &when, &up, &["raised"])?;
            self.as_raised(life, &when).await?;
        }
        if let Some((file, text)) = edited(&life.script) {
            let written = life.script.files.get(&file).cloned().unwrap_or_default();
            life.disk().tamper(&file, text);
            self.followed_or_refused(life).await?;
            life.disk().tamper(&file, written);
            let when = "up after the file was set back";
            ended(6, when, &self.run(life, &["up"], None).await, &["raised", "unchanged"])?;
            self.as_raised(life, when).await?;
        }
        let needles = needles(life).await?;
        self.kept(life, &others, &needles, "after a loss and an edit")
    }

    /// Holds that the castle follows its edited file, or refuses and changes nothing.
    async fn followed_or_refused(&mut self, life: &Life) -> Result<(), Broken> {
        let when = "up after the file asked for more memory of the control planes";
        life.tally.changes();
        let up = self.run(life, &["up"], None).await;
        let changes = life.tally.changes();
        let is_refused = matches!(up.exit, Some(Exit::Refused | Exit::Invalid));
        self.rehearsed.edit = Some(if is_refused { Edit::Refused } else { Edit::Followed });
        match is_refused {
            true if changes.is_empty() => Ok(()),
            true => Err(Broken::new(6, when, "what is refused has changed nothing", &changes)),
            false => ended(6, when, &up, &["raised"]),
        }
    }

    /// Holds that the castle is as it was raised undisturbed, and that its life has one etcd.
    async fn as_raised(&self, life: &Life, when: &str) -> Result<(), Broken> {
        let count = etcds(life);
        if count != 1 {
            return Err(Broken::new(6, when, "one life has one etcd", &[format!("there are {count}")]));
        }
        let differences = Picture::settled(life).await.against(&self.raised);
        match differences.is_empty() {
            true => Ok(()),
            false => Err(Broken::new(6, when, "the same castle as undisturbed", &differences)),
        }
    }

    /// Kills a verb at a drawn effect, and sometimes once more while it recovers.
    async fn kill(&mut self, life: &Life, words: &[&str], beats: u64, chance: &Chance) {
        loop {
            let beat = chance.below(beats);
            let moment = if chance.below(2) == 0 { Moment::Before } else { Moment::After };
            let loss = if chance.below(2) == 0 { Loss::None } else { Loss::PowerCut(chance.draw()) };
            let told = self.run(life, words, Some(Kill { at: At::Beat(beat), moment, loss })).await;
            if told.exit.is_some() {
                return;
            }
            let side = if moment == Moment::Before { "before" } else { "after" };
            let power = if loss == Loss::None { "" } else { ", and the power went" };
            self.rehearsed.kills.push(format!("{} {side} effect {} of {beats}{power}", words[0], beat + 1));
            if chance.below(AGAIN) != 0 {
                return;
            }
        }
    }

    /// Has files issued that hold secrets, by which it is known that these would be found.
    async fn issued(&mut self, life: &Life, needles: &Needles) -> Result<(), Broken> {
        for verb in ["kubeconfig", "talosconfig"] {
            let (when, file) = (format!("{verb} while it stood"), Path::new(ASKED_FOR).join(verb));
            self.idle(life, &[verb, "--out", &file.to_string_lossy()], &when, "written").await?;
            let written = life.disk().contents().remove(&file).unwrap_or_default();
            if needles.within(&written).is_empty() {
                let seen = format!("there is no secret in the {verb} that was asked for");
                return Err(Broken::new(5, &when, "the secrets can be looked for", &[seen]));
            }
        }
        Ok(())
    }

    /// Holds that a verb ends like this and asks nobody for a change.
    async fn idle(&mut self, life: &Life, words: &[&str], when: &str, result: &str) -> Result<(), Broken> {
        let promise = if words[0] == "down" { 4 } else { 3 };
        life.tally.changes();
        let told = self.run(life, words, None).await;
        let changes = life.tally.changes();
        if !changes.is_empty() {
            return Err(Broken::new(promise, when, "nothing is changed", &changes));
        }
        ended(promise, when, &told, &[result])
    }

    /// Holds what is to hold at any time: others are as they were, and no secret shows.
    fn kept(&self, life: &Life, others: &Others, needles: &Needles, when: &str) -> Result<(), Broken> {
        let mut touched = others.touched(life);
        touched.extend(rewritten(life));
        if !touched.is_empty() {
            return Err(Broken::new(2, when, "nothing of others is changed", &touched));
        }
        let shown = shown(life, needles, &self.told);
        if !shown.is_empty() {
            return Err(Broken::new(5, when, "no secret shows", &shown));
        }
        Ok(())
    }

    fn gone(&self, life: &Life, others: &Others, when: &str) -> Result<(), Broken> {
        let left = others.left(life);
        if left.is_empty() { Ok(()) } else { Err(Broken::new(4, when, "nothing of the castle is left", &left)) }
    }
}

/// Whether a lost state can be rebuilt: the secrets of the cluster are kept elsewhere, too.
pub(crate) fn is_recoverable(script: &Script) -> bool {
    script.castle.secrets.is_some() || script.castle.talos.bundle.is_some()
}

/// What a verb said when it refused: all that it would have said to people, but for what it did before.
fn refusal(told: &Told) -> String {
    let text = told.printed.text.as_str();
    let from = text.find("error: ").unwrap_or_default();
    text[from..].trim().to_owned()
}

fn times(script: &Script, up: &Told) -> Times {
    let passed = |gate: &StepId| {
        up.printed.events.iter().find_map(|event| match &event.what {
            What::StepEnded { step, outcome: Outcome::Done { .. } } if step == gate => Some(event.at),
            _ => None,
        })
    };
    let cluster = cluster::gates(&script.castle, &script.nodes);
    let api = cluster.iter().find(|(gate, _)| &*gate.kind == "api").and_then(|(gate, _)| passed(gate));
    let handover = gitops::gates(&script.castle);
    Times {
        api,
        handover: handover.first().and_then(|(gate, _)| passed(gate)),
        whole: up.printed.result["seconds"].as_f64().map(Duration::from_secs_f64),
    }
}

/// What must not show anywhere: what castle was given, every key that it can have minted, and what it has drawn.
async fn needles(life: &Life) -> Result<Needles, Broken> {
    let mut needles = life.script.needles.clone();
    let unread = |why: &str| Broken::new(5, "while it stood", "the secrets can be looked for", &[why.to_owned()]);
    let kept = Kept::open(&life.doors(), &life.script.file).map_err(|why| unread(&why))?;
    let bundle = bundle(&kept).await.map_err(|trouble| unread(trouble.told()))?;
    let parts = bundle_parts(bundle.save().expose());
    if parts.is_empty() {
        return Err(unread("the Talos bundle has none"));
    }
    for part in parts {
        needles.add("a secret of the Talos bundle", part);
    }
    Ok(needles)
}

/// What the state says of each layer.
async fn records(life: &Life) -> Result<BTreeMap<String, Value>, Broken> {
    let mut records = BTreeMap::new();
    let unread = |why: &str| Broken::new(3, "while it stood", "the state can be read", &[why.to_owned()]);
    let kept = Kept::open(&life.doors(), &life.script.file).map_err(|why| unread(&why))?;
    let castle = kept.castle_id().await.map_err(|why| unread(&why))?.ok_or_else(|| unread("there is none"))?;
    let mut state = kept.state(castle).map_err(|why| unread(&why))?;
    for layer in [castle_layers::secrets::layer(), castle_layers::platform::layer()] {
        let record = state.latest(&layer).await.map_err(|error| unread(&error.to_string()))?;
        let record = record.ok_or_else(|| unread(&format!("there is no record of {layer}")))?;
        records.insert(layer.to_string(), record.payload);
    }
    Ok(records)
}
