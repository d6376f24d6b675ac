//! The mark: what castle writes on every guest it makes, and by which it knows its own.
//!
//! The description carries it from the moment of cloning; tags follow, so that one list of the cluster shows whose is what. A guest
//! without the whole mark is a stranger, whatever its name or number. Proxmox copies descriptions along with guests, so a mark says where
//! it belongs: found elsewhere, it is on a copy, and a copy is a stranger's.

use std::collections::BTreeSet;
use std::fmt;

use castle_engine::{CastleId, OperationId};

/// The tag of everything that castle makes.
const TAG: &str = "castle";
const HEAD: &str = "Made by castle; changes by hand will be found and undone.";
/// The format of marks. What is written here is found again by castles to come: whatever changes gets a new number.
const FORMAT: u32 = 1;

/// Whose a guest is, and what made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The castle.
    pub castle: CastleId,
    /// Which of its nodes, or which of its images.
    pub name: String,
    /// What it is to the castle.
    pub role: Role,
    /// Where it belongs.
    pub place: Place,
    /// The effect that made it.
    pub operation: String,
    /// The writer that made it: one that meets a higher epoch than its own has lost its lease.
    pub epoch: u64,
    /// The etcd of its life. On control planes alone.
    pub etcd: Option<Etcd>,
}

/// What a control plane's mark says of the etcd of its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Etcd {
    /// The control plane that it begins on.
    pub first: String,
    /// Whether it has begun. It never begins again in the same life.
    pub has_begun: bool,
}

const BEGINS: &str = "begins on ";
const BEGAN: &str = "began on ";

impl Etcd {
    /// The etcd of a life that begins on this control plane, and has not yet.
    #[must_use]
    pub fn to_begin_on(first: &str) -> Self {
        Self { first: first.to_owned(), has_begun: false }
    }

    fn read(text: &str) -> Option<Self> {
        let of = |first: &str, has_begun| Some(Self { first: first.to_owned(), has_begun });
        match (text.strip_prefix(BEGINS), text.strip_prefix(BEGAN)) {
            (Some(first), _) => of(first, false),
            (None, Some(first)) => of(first, true),
            (None, None) => None,
        }
    }
}

impl fmt::Display for Etcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.has_begun { BEGAN } else { BEGINS }, self.first)
    }
}

/// What a guest is to its castle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// A node that carries etcd and the API.
    ControlPlane,
    /// Any other node.
    Worker,
    /// What nodes are cloned from.
    Image,
}

impl Role {
    const ALL: [Self; 3] = [Self::ControlPlane, Self::Worker, Self::Image];

    /// The role as it is written in a mark.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
            Self::Image => "image",
        }
    }
}

/// Where a guest is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its number.
    pub vmid: u32,
    /// The name of the Proxmox cluster; nothing on a single host, or where the token may not see it.
    pub cluster: Option<String>,
}

impl Place {
    /// Whether a guest that is here can be the one that was marked there. Where one of the two clusters is not known, only the number
    /// tells: a single host may join a cluster.
    fn may_be(&self, marked: &Self) -> bool {
        let same_cluster = self.cluster.as_ref().zip(marked.cluster.as_ref()).is_none_or(|(is, was)| is == was);
        self.vmid == marked.vmid && same_cluster
    }
}

/// Whose a guest is, seen from one castle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owner {
    /// This castle, in this life.
    Ours(Mark),
    /// This castle, in an earlier life: left behind.
    Earlier(Mark),
    /// This castle, in a life that comes after the one it is seen from: whoever looks knows too little of it to touch it.
    Later(Mark),
    /// Another castle.
    Other(Mark),
    /// Whoever copied a guest of a castle, and the mark with it.
    Copy(Mark),
    /// A castle of a version that writes marks in another format.
    Unreadable(Format),
    /// Nobody that castle knows.
    Stranger,
}

/// A format of marks that this castle does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// What castle wrote before marks had a format.
    Unversioned,
    /// A later one.
    Later(u32),
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unversioned => f.write_str("was made by an early castle, whose marks have no format"),
            Self::Later(format) => {
                write!(f, "was made by a newer castle (its mark has format {format}, this castle reads {FORMAT})")
            }
        }
    }
}

impl Format {
    /// What to do about a guest with such a mark.
    #[must_use]
    pub fn next(self) -> &'static str {
        match self {
            Self::Unversioned => "take it down with the castle that raised it, then run this again",
            Self::Later(_) => "use the castle that raised it, or a newer one",
        }
    }
}

/// The lines `key: value` of a description.
struct Lines<'d>(&'d str);

impl<'d> Lines<'d> {
    fn get(&self, key: &str) -> Option<&'d str> {
        let mut found = self.0.lines().filter_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": "));
        let value = found.next()?.trim();
        // Said twice, it is not clear what is said.
        (!value.is_empty() && found.next().is_none()).then_some(value)
    }

    fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }
}

impl Mark {
    /// The mark of something that `operation` makes.
    #[must_use]
    pub fn new(castle: &CastleId, name: &str, role: Role, place: Place, operation: &OperationId, epoch: u64) -> Self {
        Self {
            castle: castle.clone(),
            name: name.to_owned(),
            role,
            place,
            operation: operation.to_string(),
            epoch,
            etcd: None,
        }
    }

    /// Reads the mark from a description. Lines that people added do not matter; a mark that is not whole is none.
    ///
    /// # Errors
    ///
    /// [`Format`] if it is a mark that this castle does not read.
    pub fn read(description: &str) -> Result<Option<Self>, Format> {
        let lines = Lines(description);
        if !description.lines().any(|line| line.trim() == HEAD) {
            return Ok(None);
        }
        match lines.number("mark") {
            Some(FORMAT) => Ok(Self::of_lines(&lines)),
            Some(format) if format > FORMAT => Err(Format::Later(format)),
            None if lines.get("mark").is_none() && lines.get("lineage").is_some() => Err(Format::Unversioned),
            _ => Ok(None),
        }
    }

    fn of_lines(lines: &Lines<'_>) -> Option<Self> {
        let castle = CastleId {
            name: lines.get("castle")?.to_owned(),
            lineage: lines.get("lineage")?.to_owned(),
            generation: lines.number("generation")?,
        };
        let role = lines.get("role")?;
        Some(Self {
            castle,
            name: lines.get("name")?.to_owned(),
            role: Role::ALL.into_iter().find(|known| known.word() == role)?,
            place: Place { vmid: lines.number("vmid")?, cluster: lines.get("cluster").map(str::to_owned) },
            operation: lines.get("operation")?.to_owned(),
            epoch: lines.number("epoch")?,
            etcd: match lines.get("etcd") {
                Some(text) => Some(Etcd::read(text)?),
                None => None,
            },
        })
    }

    /// Whose a guest with this description is that is here, seen from `castle`.
    #[must_use]
    pub fn owner(castle: &CastleId, here: &Place, description: &str) -> Owner {
        match Self::read(description) {
            Err(format) => Owner::Unreadable(format),
            Ok(None) => Owner::Stranger,
            Ok(Some(mark)) if !here.may_be(&mark.place) => Owner::Copy(mark),
            Ok(Some(mark)) if mark.castle == *castle => Owner::Ours(mark),
            Ok(Some(mark)) if mark.castle.name == castle.name && mark.castle.lineage == castle.lineage => {
                if mark.castle.generation > castle.generation { Owner::Later(mark) } else { Owner::Earlier(mark) }
            }
            Ok(Some(mark)) => Owner::Other(mark),
        }
    }

    /// The tags of everything that this castle makes, as Proxmox keeps them: lower case.
    #[must_use]
    pub fn tags_of(castle: &CastleId) -> BTreeSet<String> {
        let fits = |c: char| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' };
        let castle: String = castle.name.to_ascii_lowercase().chars().map(fits).collect();
        [TAG.to_owned(), format!("{TAG}-{castle}")].into()
    }

    /// A description with this mark in it, in which the etcd of its life has begun: what people have written stays.
    #[must_use]
    pub fn with_begun_etcd(description: &str) -> String {
        let line = |line: &str| match line.trim().strip_prefix("etcd: ").and_then(|text| Etcd::read(text.trim())) {
            Some(etcd) => format!("etcd: {}", Etcd { has_begun: true, ..etcd }),
            None => line.to_owned(),
        };
        description.lines().map(line).collect::<Vec<_>>().join("\n")
    }

    /// What a guest of a later life is, for people who know of an earlier one.
    #[must_use]
    pub fn told_as_later(&self, known: &CastleId) -> String {
        let (its, ours) = (self.castle.generation, known.generation);
        format!(
            "is `{}` of this castle in life {its}, and what is remembered here ends with life {ours}: the state is older than the castle",
            self.name
        )
    }

    /// What a copy says of itself, for people.
    #[must_use]
    pub fn told_as_copy(&self) -> String {
        let cluster = self.place.cluster.as_ref().map_or(String::new(), |cluster| format!(" of the cluster {cluster}"));
        format!(
            "is a copy of VM {}{cluster} (`{}` of {}), made by somebody else: castle leaves it alone",
            self.place.vmid, self.name, self.castle.name
        )
    }
}

impl fmt::Display for Mark {
    /// The description.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { castle, name, role, place, operation, epoch, etcd } = self;
        writeln!(f, "{HEAD}\n\nmark: {FORMAT}\ncastle: {}\nlineage: {}", castle.name, castle.lineage)?;
        writeln!(f, "generation: {}\nname: {name}\nrole: {}\nvmid: {}", castle.generation, role.word(), place.vmid)?;
        if let Some(cluster) = &place.cluster {
            writeln!(f, "cluster: {cluster}")?;
        }
        write!(f, "operation: {operation}\nepoch: {epoch}")?;
        etcd.as_ref().map_or(Ok(()), |etcd| write!(f, "\netcd: {etcd}"))
    }
}

#[cfg(test)]
mod tests;
