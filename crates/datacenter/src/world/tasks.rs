//! Work that goes on after its request was answered: a script of steps, each at its time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::World;
use super::events::Event;
use super::locks::LockName;
use crate::chance::Span;

/// The number of a task.
pub(crate) type TaskId = u64;

/// Something that a task does.
type Deed = Box<dyn FnOnce(&mut World, TaskId) -> Result<Script, String> + Send>;

/// Something that is done if the task fails later.
type Undo = Box<dyn FnOnce(&mut World) + Send>;

enum Step {
    Lock {
        name: LockName,
        shared: bool,
        patience: Duration,
    },
    Unlock(LockName),
    Pause(Duration),
    Draw(String, Span),
    /// What is done even by a task that is to be killed: it leaves its traces.
    Claim(Deed),
    Act(Deed),
    Undo(Undo),
    Prefix(String),
}

/// What a task does, step by step.
#[derive(Default)]
pub(crate) struct Script {
    steps: VecDeque<Step>,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Takes a lock, or fails after `patience`.
    pub(crate) fn lock(mut self, name: LockName, shared: bool, patience: Duration) -> Self {
        self.steps.push_back(Step::Lock { name, shared, patience });
        self
    }

    pub(crate) fn unlock(mut self, name: LockName) -> Self {
        self.steps.push_back(Step::Unlock(name));
        self
    }

    /// Takes a time that is drawn when it begins.
    pub(crate) fn takes(mut self, purpose: impl Into<String>, span: Span) -> Self {
        self.steps.push_back(Step::Draw(purpose.into(), span));
        self
    }

    /// Takes exactly this time.
    pub(crate) fn waits(mut self, duration: Duration) -> Self {
        self.steps.push_back(Step::Pause(duration));
        self
    }

    pub(crate) fn act(mut self, deed: impl FnOnce(&mut World) -> Result<(), String> + Send + 'static) -> Self {
        self.steps.push_back(Step::Act(Box::new(|world, _| deed(world).map(|()| Script::new()))));
        self
    }

    /// As [`Script::act`], for what knows only then how to go on.
    pub(crate) fn then(
        mut self,
        deed: impl FnOnce(&mut World, TaskId) -> Result<Script, String> + Send + 'static,
    ) -> Self {
        self.steps.push_back(Step::Act(Box::new(deed)));
        self
    }

    /// As [`Script::then`], for what even a task leaves behind that is killed.
    pub(crate) fn claim(
        mut self,
        deed: impl FnOnce(&mut World, TaskId) -> Result<Script, String> + Send + 'static,
    ) -> Self {
        self.steps.push_back(Step::Claim(Box::new(deed)));
        self
    }

    /// From here on a failure does this; the latest first.
    pub(crate) fn on_failure(mut self, undo: impl FnOnce(&mut World) + Send + 'static) -> Self {
        self.steps.push_back(Step::Undo(Box::new(undo)));
        self
    }

    /// From here on a failure begins with these words.
    pub(crate) fn fails_as(mut self, prefix: impl Into<String>) -> Self {
        self.steps.push_back(Step::Prefix(prefix.into()));
        self
    }

    pub(crate) fn and(mut self, mut more: Script) -> Self {
        self.steps.append(&mut more.steps);
        self
    }
}

/// How a task ends against its will.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It fails with this text, and cleans up.
    Fails(String),
    /// Its process is gone: nothing is cleaned up, and locks in configurations stay.
    Vanishes,
}

/// A task, as it is told of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Its name in full.
    pub upid: String,
    /// The host it runs on.
    pub host: String,
    /// Its type: `qmclone`.
    pub kind: String,
    /// What it is about: a VMID, most often; of a clone the source.
    pub id: String,
    /// Who started it: a user or a token.
    pub user: String,
    /// The number of its process.
    pub pid: u64,
    /// When its process began, in the host's own time.
    pub pstart: u64,
    /// When it began, in seconds since 1970.
    pub started: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// How it ended; nothing while it runs.
    pub exit: Option<String>,
    /// What it has said.
    pub log: Vec<String>,
}

struct Running {
    script: VecDeque<Step>,
    undo: Vec<Undo>,
    prefix: String,
    warnings: u32,
    fate: Option<Ending>,
}

/// All tasks there have been.
#[derive(Default)]
pub(crate) struct Tasks {
    count: TaskId,
    records: BTreeMap<TaskId, TaskRecord>,
    by_name: BTreeMap<String, TaskId>,
    running: BTreeMap<TaskId, Running>,
    fates: BTreeMap<String, VecDeque<Ending>>,
}

impl Tasks {
    pub(crate) fn records(&self) -> impl DoubleEndedIterator<Item = &TaskRecord> {
        self.records.values()
    }

    pub(crate) fn find(&self, upid: &str) -> Option<(TaskId, &TaskRecord)> {
        let id = *self.by_name.get(upid)?;
        self.records.get(&id).map(|record| (id, record))
    }

    pub(crate) fn plan_ending(&mut self, kind: &str, ending: Ending) {
        self.fates.entry(kind.to_owned()).or_default().push_back(ending);
    }
}

impl World {
    /// Begins a task. It takes its first step at once, but after this request.
    pub(crate) fn begin(&mut self, host: &str, kind: &str, id: &str, user: &str, script: Script) -> String {
        let task = self.tasks.count;
        self.tasks.count += 1;
        let (pid, pstart, started) = (0x1000 + task, self.now.as_millis() as u64 / 10 + 0x10_0000, self.epoch());
        let upid = format!("UPID:{host}:{pid:08X}:{pstart:08X}:{started:08X}:{kind}:{id}:{user}:");
        let record = TaskRecord {
            upid: upid.clone(),
            host: host.to_owned(),
            kind: kind.to_owned(),
            id: id.to_owned(),
            user: user.to_owned(),
            pid,
            pstart,
            started,
            ended: None,
            exit: None,
            log: Vec::new(),
        };
        let fate = self.tasks.fates.get_mut(kind).and_then(VecDeque::pop_front);
        let running = Running { script: script.steps, undo: Vec::new(), prefix: String::new(), warnings: 0, fate };
        self.tasks.by_name.insert(upid.clone(), task);
        self.tasks.records.insert(task, record);
        self.tasks.running.insert(task, running);
        self.events.plan(self.now, Event::Resume(task));
        upid
    }

    /// Writes a line into the task's log.
    pub(crate) fn say(&mut self, task: TaskId, line: impl Into<String>) {
        if let Some(record) = self.tasks.records.get_mut(&task) {
            record.log.push(line.into());
        }
    }

    /// Writes a warning into the task's log; the task then ends with warnings.
    pub(crate) fn warn(&mut self, task: TaskId, line: &str) {
        self.say(task, format!("WARN: {line}"));
        if let Some(running) = self.tasks.running.get_mut(&task) {
            running.warnings += 1;
        }
    }

    /// Goes on with a task until it has to wait or ends.
    pub(crate) fn resume(&mut self, task: TaskId) {
        while let Some(running) = self.tasks.running.get_mut(&task) {
            let Some(step) = running.script.pop_front() else {
                let exit = if running.warnings > 0 { format!("WARNINGS: {}", running.warnings) } else { "OK".into() };
                return self.end(task, exit);
            };
            match step {
                Step::Lock { name, shared, patience } => {
                    if let Err(ticket) = self.locks.take(&name, task, shared) {
                        self.events.plan(self.now + patience, Event::GiveUp(task, name, ticket));
                        return;
                    }
                }
                Step::Unlock(name) => {
                    let granted = self.locks.release(&name, task);
                    self.wake(granted);
                }
                Step::Pause(duration) if duration.is_zero() => {}
                Step::Pause(duration) => return self.events.plan(self.now + duration, Event::Resume(task)),
                Step::Draw(purpose, span) => {
                    let duration = self.draw(&purpose, span);
                    running_front(&mut self.tasks, task, Step::Pause(duration));
                }
                Step::Undo(undo) => running.undo.push(undo),
                Step::Prefix(prefix) => running.prefix = prefix,
                Step::Claim(deed) => self.perform(task, deed),
                Step::Act(deed) => match running.fate.take() {
                    None => self.perform(task, deed),
                    Some(Ending::Fails(text)) => self.fail(task, &text),
                    Some(Ending::Vanishes) => self.end(task, "unexpected status".to_owned()),
                },
            }
        }
    }

    fn perform(&mut self, task: TaskId, deed: Deed) {
        match deed(self, task) {
            Ok(more) => {
                for step in more.steps.into_iter().rev() {
                    running_front(&mut self.tasks, task, step);
                }
            }
            Err(text) => self.fail(task, &text),
        }
    }

    /// Ends a task with an error, after it has cleaned up.
    pub(crate) fn fail(&mut self, task: TaskId, text: &str) {
        let Some(running) = self.tasks.running.get_mut(&task) else { return };
        let (prefix, undo) = (std::mem::take(&mut running.prefix), std::mem::take(&mut running.undo));
        for undo in undo.into_iter().rev() {
            undo(self);
        }
        self.end(task, format!("{prefix}{text}"));
    }

    /// A task has waited in vain for a lock.
    pub(crate) fn give_up(&mut self, task: TaskId, name: &LockName, ticket: u64) {
        if self.locks.give_up(name, ticket) {
            self.say(task, format!("trying to acquire lock... {}", name.timeout_text()));
            self.fail(task, &name.timeout_text());
        }
    }

    fn end(&mut self, task: TaskId, exit: String) {
        self.tasks.running.remove(&task);
        let epoch = self.epoch();
        if let Some(record) = self.tasks.records.get_mut(&task) {
            record.log.push(if exit == "OK" { "TASK OK".to_owned() } else { format!("TASK ERROR: {exit}") });
            record.ended = Some(epoch);
            record.exit = Some(exit);
        }
        let granted = self.locks.drop_all(task);
        self.wake(granted);
    }

    fn wake(&mut self, tasks: Vec<TaskId>) {
        for task in tasks {
            self.events.plan(self.now, Event::Resume(task));
        }
    }

    /// Kills the processes of a host: its tasks vanish.
    pub(crate) fn kill_tasks_of(&mut self, host: &str) {
        let of_host = |task: &&TaskId| self.tasks.records.get(task).is_some_and(|record| record.host == host);
        let killed: Vec<TaskId> = self.tasks.running.keys().filter(of_host).copied().collect();
        for task in killed {
            self.end(task, "unexpected status".to_owned());
        }
    }
}

/// Puts a step before all others.
fn running_front(tasks: &mut Tasks, task: TaskId, step: Step) {
    if let Some(running) = tasks.running.get_mut(&task) {
        running.script.push_front(step);
    }
}
