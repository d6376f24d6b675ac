//! Tasks: their names, and how they end.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// A text that is not the name of a task.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{0}` is not the name of a Proxmox task (UPID:...)")]
pub struct UpidError(String);

/// The name of a task. It says on which host the task lives: that host is asked about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Upid {
    text: String,
    /// The host it runs on.
    pub node: String,
    /// What it does: `qmclone`, `qmstart`.
    pub kind: String,
    /// What it does it to, if that is said. For `qmclone` it is the source, never the target.
    pub id: Option<String>,
    /// Who started it: `user@realm`, or `user@realm!token`.
    pub user: String,
    /// When it began, in seconds since 1970.
    pub started_unix: u64,
}

impl FromStr for Upid {
    type Err = UpidError;

    fn from_str(text: &str) -> Result<Self, UpidError> {
        let parse = || {
            let parts: Vec<&str> = text.split(':').collect();
            let [head, node, pid, pstart, start, kind, id, user, tail] = parts.as_slice() else { return None };
            let hex = |text: &str, lengths: std::ops::RangeInclusive<usize>| {
                lengths.contains(&text.len()).then(|| u64::from_str_radix(text, 16).ok())?
            };
            let is_name =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b));
            hex(pid, 8..=8)?;
            hex(pstart, 8..=9)?;
            let fits = *head == "UPID" && tail.is_empty() && is_name(node) && is_name(kind) && user.contains('@');
            fits.then_some(Self {
                text: text.to_owned(),
                node: (*node).to_owned(),
                kind: (*kind).to_owned(),
                id: Some((*id).to_owned()).filter(|id| !id.is_empty()),
                user: (*user).to_owned(),
                started_unix: hex(start, 8..=8)?,
            })
        };
        // What a server says may be long and odd; only its beginning is repeated.
        parse().ok_or_else(|| UpidError(text.chars().take(80).collect()))
    }
}

impl fmt::Display for Upid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// Well.
    Well,
    /// Well, with so many warnings: for `qmdestroy`, a disk may not have been freed.
    WithWarnings(u32),
    /// It was killed, and what it left behind is unknown.
    Killed,
    /// It failed, and said this.
    Failed(String),
}

impl TaskEnd {
    /// Reads what the task's status says under `exitstatus`.
    #[must_use]
    pub fn read(exit_status: &str) -> Self {
        match exit_status {
            "OK" => Self::Well,
            "unexpected status" => Self::Killed,
            other => match other.strip_prefix("WARNINGS: ").and_then(|count| count.parse().ok()) {
                Some(count) => Self::WithWarnings(count),
                None => Self::Failed(other.to_owned()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tasks_are_read() {
        let text = "UPID:pve:0001A2B3:00C4D5E6:6560ABCD:qmclone:9000:castle@pve!up:";
        let upid: Upid = text.parse().unwrap();
        assert_eq!((upid.node.as_str(), upid.kind.as_str(), upid.id.as_deref()), ("pve", "qmclone", Some("9000")));
        assert_eq!((upid.user.as_str(), upid.started_unix), ("castle@pve!up", 0x6560_ABCD));
        assert_eq!(upid.to_string(), text);
        let without: Upid = "UPID:pve-2:0001A2B3:100C4D5E6:6560ABCD:aptupdate::root@pam:".parse().unwrap();
        assert_eq!(without.id, None);
    }

    #[test]
    fn what_is_no_task_is_refused() {
        for text in [
            "",
            "UPID",
            "UPID:pve:1:00C4D5E6:6560ABCD:qmclone:9000:castle@pve:",
            "UPID:pve:0001A2B3:00C4D5E6:6560ABCD:qmclone:9000:castle@pve:x",
            "UPID:../etc:0001A2B3:00C4D5E6:6560ABCD:qmclone:9000:castle@pve:",
            "UPID:pve:0001A2B3:00C4D5E6:6560ABCD:qmclone:9000:nobody:",
        ] {
            assert!(text.parse::<Upid>().is_err(), "{text}");
        }
        let long = "x".repeat(10_000).parse::<Upid>().unwrap_err().to_string();
        assert!(long.len() < 200, "{}", long.len());
    }

    #[test]
    fn ends_are_told_apart() {
        assert_eq!(TaskEnd::read("OK"), TaskEnd::Well);
        assert_eq!(TaskEnd::read("WARNINGS: 2"), TaskEnd::WithWarnings(2));
        assert_eq!(TaskEnd::read("unexpected status"), TaskEnd::Killed);
        assert_eq!(TaskEnd::read("can't lock file"), TaskEnd::Failed("can't lock file".into()));
    }
}
