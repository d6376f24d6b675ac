//! A plan that is kept in a file: what `up` would do, and what that was decided on.
//!
//! It holds no secret: names, numbers, digests of files that lie beside the castle.yaml, and differences, which never hold one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use castle_components::lock;
use castle_engine::{Difference, Impact, Outcome, Report};
use castle_layers::Placed;
use castle_layers::platform::Doomed;
use castle_seams::{Disk, DiskErrorKind};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::doors::Doors;
use crate::keeping::Kept;
use crate::stand::{Identity, Trouble, UNBORN};
use crate::writing::{Place, Readers};

/// The newest format that this castle reads and writes.
const FORMAT: u64 = 1;
/// No plan is longer: it has a few hundred bytes a step.
const MAX_BYTES: u64 = 64 << 20;
/// Actions that moved are named up to this many.
const NAMED: usize = 20;

/// What `up` would do, and what that was decided on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Planned {
    format: u64,
    /// The version of the castle that planned.
    version: String,
    /// Castle and platform.
    castle: String,
    lineage: String,
    generation: u64,
    /// Whether every guest was looked at in full.
    pub(crate) deep: bool,
    /// The files it was read from, by their names in the castle's folder, and the SHA-256 of each.
    files: BTreeMap<String, String>,
    /// Each node and its host.
    placement: BTreeMap<String, String>,
    actions: Vec<Action>,
    /// The SHA-256 of how each step was found.
    seen: String,
}

/// One thing that would be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Action {
    step: String,
    impact: Impact,
    action: String,
    differences: Vec<Difference>,
}

impl Planned {
    /// What was planned for a castle.
    pub(crate) fn of(
        kept: &Kept,
        identity: &Identity,
        report: &Report,
        placed: &[Placed],
        deep: bool,
    ) -> Result<Self, Trouble> {
        let hosts = kept.nodes.iter().zip(placed);
        let actions = report.outcomes.iter().filter_map(|(step, outcome)| match outcome {
            Outcome::Planned { change } => Some(Action {
                step: step.to_string(),
                impact: change.impact,
                action: change.verb.clone(),
                differences: change.differences.clone(),
            }),
            _ => None,
        });
        Ok(Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            castle: kept.key(),
            lineage: identity.castle.lineage.clone(),
            generation: identity.castle.generation,
            deep,
            files: files(kept)?,
            placement: hosts.map(|(node, placed)| (node.name.value.clone(), placed.host.clone())).collect(),
            actions: actions.collect(),
            seen: seen(report),
        })
    }

    /// Writes it where it was asked for, for its owner alone.
    pub(crate) fn write(&self, doors: &Doors, file: &Path) -> Result<(), Trouble> {
        Place::judge(doors, file)?.write(doors.disk.as_ref(), &self.text(), Readers::Owner)
    }

    fn text(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).unwrap_or_default();
        bytes.push(b'\n');
        bytes
    }

    /// Reads one.
    pub(crate) fn read(disk: &dyn Disk, file: &Path) -> Result<Self, Trouble> {
        let bytes = disk.read(file, MAX_BYTES).map_err(|error| Trouble::Invalid(error.to_string()))?;
        let invalid = |why: &dyn std::fmt::Display| {
            Trouble::Invalid(format!("{0} is not a plan ({why})\n  next: castle plan --out {0}", file.display()))
        };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(|error| invalid(&error))?;
        match value["format"].as_u64() {
            Some(FORMAT) => serde_json::from_value(value).map_err(|error| invalid(&error)),
            Some(format) if format > FORMAT => Err(Trouble::Refused(format!(
                "{} was written by a newer castle (format {format}, this one knows {FORMAT})",
                file.display()
            ))),
            _ => Err(invalid(&"it names no format")),
        }
    }

    /// What is no longer as it was when this was planned, given what would be planned now; nothing if all is.
    pub(crate) fn moved(&self, now: &Self) -> Vec<String> {
        let mut moved = Vec::new();
        if self.version != now.version {
            moved.push(format!("it was planned by castle {}, and this is {}", self.version, now.version));
        }
        let whose = |one: &Self| (one.castle.clone(), one.lineage.clone(), one.generation);
        if self.lineage == UNBORN && now.lineage != UNBORN && self.castle == now.castle {
            moved.push(format!("it was planned before {} was raised for the first time", now.castle));
            return moved;
        }
        if whose(self) != whose(now) {
            let named = |one: &Self| format!("{} (lineage {}, life {})", one.castle, one.lineage, one.generation);
            moved.push(format!("it is for another castle: {}, and this is {}", named(self), named(now)));
            // Nothing else says anything about another castle.
            return moved;
        }
        let names: BTreeSet<&String> = self.files.keys().chain(now.files.keys()).collect();
        for name in names.into_iter().filter(|name| self.files.get(*name) != now.files.get(*name)) {
            moved.push(format!("{name} has changed"));
        }
        for (node, host) in &now.placement {
            match self.placement.get(node) {
                Some(planned) if planned == host => {}
                Some(planned) => moved.push(format!("{node} would go to {host}, not to {planned}")),
                None => moved.push(format!("{node} would go to {host}, and was not planned at all")),
            }
        }
        let actions = self.moved_actions(now);
        let hidden = actions.len().saturating_sub(NAMED);
        moved.extend(actions.into_iter().take(NAMED));
        if hidden > 0 {
            moved.push(format!("… and {hidden} more actions"));
        }
        if moved.is_empty() && self.seen != now.seen {
            moved.push(
                "what is there was found otherwise: something is ready, missing or known that was not".to_owned(),
            );
        }
        moved
    }

    /// Whether this guest goes.
    pub(crate) fn removes(&self, guest: &Doomed) -> bool {
        let step = guest.removal().to_string();
        self.actions.iter().any(|action| action.step == step && action.impact == Impact::Destroy)
    }

    fn moved_actions(&self, now: &Self) -> Vec<String> {
        fn by_step(plan: &Planned) -> BTreeMap<&str, &Action> {
            plan.actions.iter().map(|action| (action.step.as_str(), action)).collect()
        }
        let (then, now) = (by_step(self), by_step(now));
        let steps: BTreeSet<&str> = then.keys().chain(now.keys()).copied().collect();
        let told = |step: &str| match (then.get(step), now.get(step)) {
            (Some(one), Some(other)) if one == other => None,
            (Some(one), Some(other)) => {
                Some(format!("{step}: planned was {}, and now it would be {}", one.told(), other.told()))
            }
            (Some(one), None) => Some(format!("{step}: {} is no longer to be done", one.told())),
            (None, Some(other)) => Some(format!("{step}: {} was not planned", other.told())),
            (None, None) => None,
        };
        steps.into_iter().filter_map(told).collect()
    }
}

impl Action {
    fn told(&self) -> String {
        let differences: Vec<String> = self.differences.iter().map(ToString::to_string).collect();
        match differences.is_empty() {
            true => format!("{} ({})", self.action, self.impact.word()),
            false => format!("{} ({}: {})", self.action, self.impact.word(), differences.join(", ")),
        }
    }
}

/// The files that a castle is read from.
fn files(kept: &Kept) -> Result<BTreeMap<String, String>, Trouble> {
    let folder = kept.file.parent().unwrap_or(Path::new(""));
    let own = kept.file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let patches = kept.nodes.iter().flat_map(|node| node.patches.iter().cloned());
    let components = kept.castle.wanted_components().into_iter();
    let components = components.flat_map(|wanted| wanted.patches.into_iter().chain(wanted.source));
    let names = [own, lock::FILE.to_owned()].into_iter().chain(patches).chain(components);
    let names: BTreeSet<String> = names.collect();
    let mut files = BTreeMap::new();
    for name in names {
        match kept.doors.disk.read(&folder.join(&name), MAX_BYTES) {
            Ok(bytes) => files.insert(name, hex(&bytes)),
            Err(error) if error.kind == DiskErrorKind::NotFound => continue,
            Err(error) => return Err(Trouble::of(&error)),
        };
    }
    Ok(files)
}

/// A digest of how each step was found. What a closed gate says in detail changes by itself and is left out.
fn seen(report: &Report) -> String {
    let found = report.outcomes.iter().map(|(step, outcome)| {
        let how = match outcome {
            Outcome::Waiting { .. } => "waits".to_owned(),
            Outcome::Skipped { .. } => "cannot be told".to_owned(),
            other => serde_json::to_string(other).unwrap_or_default(),
        };
        format!("{step}\n{how}\n")
    });
    hex(found.collect::<String>().as_bytes())
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(step: &str, action: &str, memory: Option<&str>) -> Action {
        let wanted =
            |wanted: &str| Difference { field: "memory".to_owned(), is: None, wanted: Some(wanted.to_owned()) };
        let differences = memory.map(wanted).into_iter().collect();
        Action { step: step.to_owned(), impact: Impact::Create, action: action.to_owned(), differences }
    }

    fn plan() -> Planned {
        Planned {
            format: FORMAT,
            version: "1.0.0".to_owned(),
            castle: "blue/proxmox".to_owned(),
            lineage: "abc".to_owned(),
            generation: 1,
            deep: false,
            files: [("castle.yaml".to_owned(), "01".to_owned())].into(),
            placement: [("blue-cp-1".to_owned(), "pve".to_owned())].into(),
            actions: vec![action("platform/vm/a", "clone", Some("4G")), action("platform/vm/b", "clone", None)],
            seen: "02".to_owned(),
        }
    }

    fn moved(change: impl FnOnce(&mut Planned)) -> Vec<String> {
        let mut now = plan();
        change(&mut now);
        plan().moved(&now)
    }

    const RECORDED: &str = r#"{
  "format": 1,
  "version": "1.0.0",
  "castle": "blue/proxmox",
  "lineage": "abc",
  "generation": 1,
  "deep": false,
  "files": {
    "castle.yaml": "01"
  },
  "placement": {
    "blue-cp-1": "pve"
  },
  "actions": [
    {
      "step": "platform/vm/a",
      "impact": "create",
      "action": "clone",
      "differences": [
        {
          "field": "memory",
          "is": null,
          "wanted": "4G"
        }
      ]
    },
    {
      "step": "platform/vm/b",
      "impact": "create",
      "action": "clone",
      "differences": []
    }
  ],
  "seen": "02"
}
"#;

    /// One of an earlier castle can be read, and is out of date: what would be done is planned anew.
    #[test]
    fn the_recorded_plan_is_written_and_read_and_that_of_a_newer_castle_is_refused() {
        let (disk, file) = (castle_rehearsal::ModelDisk::default(), Path::new("/plan"));
        assert_eq!(plan().text(), RECORDED.as_bytes());
        let read = |text: &str| {
            disk.tamper(file, text.as_bytes().to_vec());
            Planned::read(&disk, file)
        };
        assert_eq!(read(RECORDED).unwrap(), plan());
        let newer = RECORDED.replace("\"format\": 1", "\"format\": 2").replace("placement", "places");
        let Err(Trouble::Refused(why)) = read(&newer) else { panic!() };
        assert_eq!(why, "/plan was written by a newer castle (format 2, this one knows 1)");
        assert_eq!(disk.contents()[file], newer.as_bytes());
        assert!(matches!(read("{}"), Err(Trouble::Invalid(_))));
    }

    #[test]
    fn everything_that_moved_is_named() {
        assert_eq!(moved(|_| {}), Vec::<String>::new());
        assert_eq!(
            moved(|now| now.version = "1.1.0".to_owned()),
            ["it was planned by castle 1.0.0, and this is 1.1.0"]
        );
        assert_eq!(
            moved(|now| now.generation = 2),
            [
                "it is for another castle: blue/proxmox (lineage abc, life 1), and this is blue/proxmox (lineage abc, life 2)"
            ]
        );
        let files = moved(|now| {
            now.files =
                [("castle.yaml".to_owned(), "03".to_owned()), ("castle.lock".to_owned(), "04".to_owned())].into();
        });
        assert_eq!(files, ["castle.lock has changed", "castle.yaml has changed"]);
        assert_eq!(
            moved(|now| now.placement = [("blue-cp-1".to_owned(), "pve2".to_owned())].into()),
            ["blue-cp-1 would go to pve2, not to pve"]
        );
        let actions = moved(|now| {
            now.actions = vec![action("platform/vm/a", "clone", Some("8G")), action("platform/vm/c", "start", None)];
        });
        assert_eq!(
            actions,
            [
                "platform/vm/a: planned was clone (create: memory: 4G), and now it would be clone (create: memory: 8G)",
                "platform/vm/b: clone (create) is no longer to be done",
                "platform/vm/c: start (create) was not planned"
            ]
        );
        assert_eq!(
            moved(|now| now.seen = "05".to_owned()),
            ["what is there was found otherwise: something is ready, missing or known that was not"]
        );
    }

    #[test]
    fn many_actions_are_counted() {
        let actions = moved(|now| {
            now.actions = (0..30).map(|number| action(&format!("platform/vm/{number}"), "clone", None)).collect();
        });
        assert_eq!((actions.len(), actions[20].as_str()), (21, "… and 12 more actions"));
    }

    #[test]
    fn what_is_written_is_read_again_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("blue.plan");
        let disk = castle_seams::SystemDisk;
        plan().write(&Doors::system(), &file).unwrap();
        assert_eq!(Planned::read(&disk, &file).unwrap(), plan());
        let put = |text: &str| {
            disk.replace(&file, text.as_bytes(), 0o600).unwrap();
            Planned::read(&disk, &file).unwrap_err()
        };
        assert!(matches!(put("castle: blue"), Trouble::Invalid(why) if why.contains("castle plan --out")));
        assert!(matches!(put("{}"), Trouble::Invalid(why) if why.contains("names no format")));
        assert!(matches!(put("{\"format\": 1}"), Trouble::Invalid(_)));
        assert!(matches!(put("{\"format\": 2}"), Trouble::Refused(why) if why.contains("a newer castle")));
    }
}
