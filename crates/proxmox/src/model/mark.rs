//! The mark: what castle writes on every guest it makes, and by which it knows its own.
//!
//! The description carries it from the moment of cloning; tags follow, so that one list of the cluster shows whose is what. A guest
//! without the whole mark is a stranger, whatever its name or number.

use std::collections::BTreeSet;
use std::fmt;

use castle_engine::{CastleId, OperationId};

/// The tag of everything that castle makes.
const TAG: &str = "castle";
const HEAD: &str = "Made by castle; changes by hand will be found and undone.";

/// Whose a guest is, and what made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The castle.
    pub castle: CastleId,
    /// Which of its nodes, or which of its images.
    pub name: String,
    /// The effect that made it.
    pub operation: String,
    /// The writer that made it: one that meets a higher epoch than its own has lost its lease.
    pub epoch: u64,
}

/// Whose a guest is, seen from one castle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This castle, in this life.
    Ours(Mark),
    /// This castle, in an earlier life: left behind.
    Earlier(Mark),
    /// Another castle.
    Other(Mark),
    /// Nobody that castle knows.
    Stranger,
}

impl Mark {
    /// The mark of something that `operation` makes.
    #[must_use]
    pub fn new(castle: &CastleId, name: &str, operation: &OperationId, epoch: u64) -> Self {
        Self { castle: castle.clone(), name: name.to_owned(), operation: operation.to_string(), epoch }
    }

    /// Reads the mark from a description. Lines that people added do not matter; a mark that is not whole is none.
    #[must_use]
    pub fn read(description: &str) -> Option<Self> {
        let field = |name: &str| {
            let mut lines = description.lines().filter_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
            let value = lines.next()?.trim();
            // Said twice, it is not clear what is said.
            (!value.is_empty() && lines.next().is_none()).then(|| value.to_owned())
        };
        description.lines().any(|line| line.trim() == HEAD).then_some(())?;
        let castle = CastleId {
            name: field("castle")?,
            lineage: field("lineage")?,
            generation: field("generation")?.parse().ok()?,
        };
        Some(Self {
            castle,
            name: field("name")?,
            operation: field("operation")?,
            epoch: field("epoch")?.parse().ok()?,
        })
    }

    /// Whose a guest with this description is, seen from `castle`.
    #[must_use]
    pub fn owner(castle: &CastleId, description: &str) -> Owner {
        match Self::read(description) {
            None => Owner::Stranger,
            Some(mark) if mark.castle == *castle => Owner::Ours(mark),
            Some(mark) if mark.castle.name == castle.name && mark.castle.lineage == castle.lineage => {
                Owner::Earlier(mark)
            }
            Some(mark) => Owner::Other(mark),
        }
    }

    /// The tags of everything that this castle makes, as Proxmox keeps them: lower case.
    #[must_use]
    pub fn tags_of(castle: &CastleId) -> BTreeSet<String> {
        let fits = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
        let castle: String = castle.name.to_ascii_lowercase().chars().map(fits).collect();
        [TAG.to_owned(), format!("{TAG}-{castle}")].into()
    }
}

impl fmt::Display for Mark {
    /// The description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { castle, name, operation, epoch } = self;
        write!(
            f,
            "{HEAD}\n\ncastle: {}\nlineage: {}\ngeneration: {}\nname: {name}\noperation: {operation}\nepoch: {epoch}",
            castle.name, castle.lineage, castle.generation
        )
    }
}

#[cfg(test)]
mod tests {
    use castle_engine::{Layer, StepId};

    use super::*;

    fn castle() -> CastleId {
        CastleId { name: "blue/proxmox".into(), lineage: "0123456789abcdef".into(), generation: 2 }
    }

    fn mark() -> Mark {
        let step = StepId::new(&Layer::new("platform"), "vm", "blue-cp-1");
        Mark::new(&castle(), "blue-cp-1", &OperationId::of(&castle(), &step, "clone"), 3)
    }

    #[test]
    fn a_mark_is_read_again_whatever_proxmox_and_people_add() {
        let text = mark().to_string();
        for description in [
            text.clone(),
            format!("{text}\n"),
            text.replace('\n', "\r\n"),
            format!("my notes: none\n{text}\n\nask me first\n"),
        ] {
            assert_eq!(Mark::read(&description), Some(mark()), "{description}");
        }
        insta::assert_snapshot!(text, @r"
        Made by castle; changes by hand will be found and undone.

        castle: blue/proxmox
        lineage: 0123456789abcdef
        generation: 2
        name: blue-cp-1
        operation: f4e098bda7fa873f067c
        epoch: 3
        ");
    }

    #[test]
    fn what_is_not_wholly_marked_is_a_strangers() {
        let text = mark().to_string();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let without: Vec<&str> = text.lines().filter(|other| *other != line).collect();
            assert_eq!(Mark::owner(&castle(), &without.join("\n")), Owner::Stranger, "without {line}");
        }
        for text in ["", "castle: blue/proxmox", "blue-cp-1", &format!("{text}\ncastle: green/proxmox")] {
            assert_eq!(Mark::owner(&castle(), text), Owner::Stranger, "{text}");
        }
    }

    #[test]
    fn lives_and_castles_are_told_apart() {
        let seen_from = |castle: CastleId| Mark::owner(&castle, &mark().to_string());
        assert_eq!(seen_from(castle()), Owner::Ours(mark()));
        assert_eq!(seen_from(CastleId { generation: 3, ..castle() }), Owner::Earlier(mark()));
        assert_eq!(
            seen_from(CastleId { lineage: "other".into(), ..castle() }),
            Owner::Other(mark()),
            "of the same name"
        );
        assert_eq!(seen_from(CastleId { name: "green/proxmox".into(), ..castle() }), Owner::Other(mark()));
    }

    #[test]
    fn tags_are_as_proxmox_keeps_them() {
        let tags: Vec<String> = Mark::tags_of(&castle()).into_iter().collect();
        assert_eq!(tags.join(";"), "castle;castle-blue-proxmox");
    }
}
