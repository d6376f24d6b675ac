//! How far a machine has come.

use std::fmt;

use castle_yaml as yaml;
use serde_json::Value;

use super::resources::{Resource, kinds};
use super::{Node, Refusal};

/// What a machine is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// It does not say, or says what castle does not know.
    #[default]
    Unknown,
    /// It starts. A control plane stays here until etcd is bootstrapped.
    Booting,
    /// It writes itself onto its disk.
    Installing,
    /// It waits for a configuration.
    Maintenance,
    /// It runs.
    Running,
    /// It starts again.
    Rebooting,
    /// It turns itself off.
    ShuttingDown,
    /// It forgets.
    Resetting,
    /// It becomes another version.
    Upgrading,
}

/// The stages in the words of Talos.
const STAGES: [(&str, Stage); 8] = [
    ("booting", Stage::Booting),
    ("installing", Stage::Installing),
    ("maintenance", Stage::Maintenance),
    ("running", Stage::Running),
    ("rebooting", Stage::Rebooting),
    ("shutting down", Stage::ShuttingDown),
    ("resetting", Stage::Resetting),
    ("upgrading", Stage::Upgrading),
];

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = STAGES.into_iter().find(|(_, stage)| stage == self);
        f.write_str(found.map_or("unknown", |(word, _)| word))
    }
}

/// What keeps a machine from being ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    /// What is waited for.
    pub name: String,
    /// Why it is not so yet.
    pub reason: String,
}

/// How far a machine has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// What it is about.
    pub stage: Stage,
    /// Whether all is as it should be at that stage.
    pub is_ready: bool,
    /// What keeps it from that.
    pub unmet: Vec<Unmet>,
}

impl Machine {
    /// Reads the resource `machine` of [`kinds::MACHINE_STATUS`]; nothing if it says something else.
    #[must_use]
    pub fn read(resource: &Resource) -> Option<Self> {
        let documents = yaml::parse(resource.yaml.expose()).ok()?;
        let said = documents.first()?;
        let word = said["stage"].as_str()?;
        let stage = STAGES.into_iter().find(|(known, _)| *known == word).map(|(_, stage)| stage);
        let unmet = said["status"]["unmetConditions"].as_array().into_iter().flatten().map(|condition| {
            let text = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
            Unmet { name: text("name"), reason: text("reason") }
        });
        Some(Self {
            stage: stage.unwrap_or_default(),
            is_ready: said["status"]["ready"] == Value::Bool(true),
            unmet: unmet.collect(),
        })
    }
}

impl Node {
    /// How far it has come.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it does not say.
    pub async fn machine(&self) -> Result<Machine, Refusal> {
        match self.resource(kinds::MACHINE_STATUS, "machine").await? {
            Some(resource) => {
                Machine::read(&resource).ok_or_else(|| self.unreadable("Get", "the status of the machine is none"))
            }
            None => Ok(Machine::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use castle_secrets::Secret;

    use super::*;

    fn read(yaml: &str) -> Option<Machine> {
        let (id, version, phase) = ("machine".into(), "1".into(), "running".into());
        Machine::read(&Resource { id, version, phase, yaml: Secret::from(yaml.to_owned()) })
    }

    #[test]
    fn the_status_of_a_machine_is_read() {
        let unmet = "stage: booting\nstatus:\n    ready: false\n    unmetConditions:\n        - name: time\n          reason: not in sync\n";
        let expected = vec![Unmet { name: "time".into(), reason: "not in sync".into() }];
        assert_eq!(read(unmet), Some(Machine { stage: Stage::Booting, is_ready: false, unmet: expected }));
        let ready = "stage: running\nstatus:\n    ready: true\n    unmetConditions: []\n";
        assert_eq!(read(ready), Some(Machine { stage: Stage::Running, is_ready: true, unmet: Vec::new() }));
        assert_eq!(read("stage: shutting down\n").unwrap().stage, Stage::ShuttingDown);
        assert_eq!(read("stage: dreaming\n"), Some(Machine::default()));
        assert_eq!(read("other: 1\n"), None);
        assert_eq!(read("- ["), None);
        assert_eq!(Stage::ShuttingDown.to_string(), "shutting down");
    }
}
