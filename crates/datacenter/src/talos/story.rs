//! What happened on a node since its boot, as its stream of events tells it.

use std::time::Duration;

use castle_talos_api::machine::machine_status_event::MachineStage;
use castle_talos_api::machine::machine_status_event::machine_status::UnmetCondition;
use castle_talos_api::machine::service_state_event::Action;
use castle_talos_api::machine::{
    MachineStatusEvent, SequenceEvent, ServiceHealth, ServiceStateEvent, TaskEvent, machine_status_event,
    sequence_event, task_event,
};
use castle_talos_api::{Any, EVENT_TYPE_PREFIX};
use prost::Message;

use super::node::Stage;

/// How many events are kept.
const KEPT: usize = 1_000;

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// Counted from one since the boot.
    pub(crate) number: u64,
    pub(crate) at: Duration,
    pub(crate) content: Any,
    /// One line for logs.
    pub(crate) line: String,
    /// Who asked for it, if somebody did.
    pub(crate) actor: String,
}

/// The events of one boot.
#[derive(Debug, Default)]
pub(crate) struct Story {
    count: u64,
    told: Vec<Told>,
    /// What was last told of where the node stands.
    status: Option<(Stage, Vec<(&'static str, String)>)>,
}

impl Story {
    /// The events after this number.
    pub(crate) fn after(&self, number: u64) -> impl Iterator<Item = &Told> {
        self.told.iter().filter(move |told| told.number > number)
    }

    /// The events of the last while.
    pub(crate) fn since(&self, at: Duration) -> impl Iterator<Item = &Told> {
        self.told.iter().filter(move |told| told.at >= at)
    }

    pub(crate) fn all(&self) -> &[Told] {
        &self.told
    }

    /// The number of the last event.
    pub(crate) fn last(&self) -> u64 {
        self.count
    }

    fn tell(&mut self, at: Duration, name: &str, content: Vec<u8>, line: String, actor: &str) {
        self.count += 1;
        let content = Any { type_url: format!("{EVENT_TYPE_PREFIX}machine.{name}"), value: content };
        self.told.push(Told { number: self.count, at, content, line, actor: actor.to_owned() });
        if self.told.len() > KEPT {
            self.told.remove(0);
        }
    }

    /// Where the node stands, if that is new: its stage, and what it still waits for.
    pub(crate) fn status(&mut self, at: Duration, stage: Stage, unmet: Vec<(&'static str, String)>) {
        let status = Some((stage, unmet.clone()));
        if self.status == status {
            return;
        }
        self.status = status;
        let number = match stage {
            Stage::Booting => MachineStage::Booting,
            Stage::Maintenance => MachineStage::Maintenance,
            Stage::Running => MachineStage::Running,
            Stage::Rebooting => MachineStage::Rebooting,
            Stage::ShuttingDown => MachineStage::ShuttingDown,
            Stage::Resetting => MachineStage::Resetting,
        };
        let ready = unmet.is_empty();
        let line = format!("machine stage: {}, ready: {ready}", stage.word());
        let unmet_conditions =
            unmet.into_iter().map(|(name, reason)| UnmetCondition { name: name.to_owned(), reason }).collect();
        let status = Some(machine_status_event::MachineStatus { ready, unmet_conditions });
        let event = MachineStatusEvent { stage: number.into(), status };
        self.tell(at, "MachineStatusEvent", event.encode_to_vec(), line, "");
    }

    /// A sequence begins that somebody asked for: it stops all services first.
    pub(crate) fn sequence(&mut self, at: Duration, sequence: &str, actor: &str) {
        let event =
            SequenceEvent { sequence: sequence.to_owned(), action: sequence_event::Action::Start.into(), error: None };
        self.tell(at, "SequenceEvent", event.encode_to_vec(), format!("{sequence} sequence: begins"), actor);
        let event = TaskEvent { task: "stopAllServices".to_owned(), action: task_event::Action::Start.into() };
        self.tell(at, "TaskEvent", event.encode_to_vec(), "task stopAllServices: starting".to_owned(), actor);
    }

    /// A sequence that somebody asked for ends with an error.
    pub(crate) fn failure(&mut self, at: Duration, sequence: &str, message: &str, actor: &str) {
        let error = Some(castle_talos_api::common::Error { code: 0, message: message.to_owned(), details: Vec::new() });
        let event = SequenceEvent { sequence: sequence.to_owned(), action: sequence_event::Action::Noop.into(), error };
        let line = format!("{sequence} sequence: failed: {message}");
        self.tell(at, "SequenceEvent", event.encode_to_vec(), line, actor);
    }

    pub(crate) fn service(&mut self, at: Duration, id: &str, state: &str, message: &str, is_healthy: Option<bool>) {
        let action = match state {
            "Running" => Action::Running,
            "Waiting" => Action::Waiting,
            "Preparing" => Action::Preparing,
            "Finished" => Action::Finished,
            _ => Action::Initialized,
        };
        let event = ServiceStateEvent {
            service: id.to_owned(),
            action: action.into(),
            message: message.to_owned(),
            health: Some(ServiceHealth {
                unknown: is_healthy.is_none(),
                healthy: is_healthy == Some(true),
                last_message: message.to_owned(),
                last_change: None,
            }),
        };
        self.tell(at, "ServiceStateEvent", event.encode_to_vec(), format!("service[{id}]({state}): {message}"), "");
    }
}
