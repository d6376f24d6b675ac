//! What happens to objects, as it happens.

use std::fmt;

use castle_http::Stream;
use serde::Deserialize;
use serde_json::Value;

use super::Trouble;
use super::trouble::Status;
use crate::model::{Kind, Object};

/// The longest line: no object is larger, nor half as large.
const LINE: usize = 16 << 20;

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// An object came to be, or changed.
    Is(Object),
    /// An object is gone; this is how it was.
    Gone(Object),
    /// Nothing happened up to this version.
    Bookmark(String),
}

/// A line of a watch.
#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum Line {
    Added(Value),
    Modified(Value),
    Deleted(Value),
    Bookmark(Value),
    Error(Box<Status>),
}

/// A watch. Ends when the API ends it, which it does every few minutes.
pub struct Watch {
    stream: Stream,
    kind: Kind,
    rest: Vec<u8>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Watch {
    pub(super) fn new(stream: Stream, kind: Kind) -> Self {
        Self { stream, kind, rest: Vec::new() }
    }

    /// What happens next; nothing at the end.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if it broke, or the API says that it cannot go on from there ([`Trouble::is_expired`]).
    pub async fn next(&mut self) -> Result<Option<Event>, Trouble> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                if line.len() > 1 {
                    return self.event(&line).map(Some);
                }
                continue;
            }
            match self.stream.next().await? {
                Some(piece) if self.rest.len() + piece.len() <= LINE => self.rest.extend_from_slice(&piece),
                Some(_) => return Err(Trouble::nonsense("a line that ends")),
                None => return Ok(None),
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<Event, Trouble> {
        let object = |value: Value| Object::told(value, &self.kind).ok_or_else(|| Trouble::nonsense("an object"));
        Ok(match serde_json::from_slice(line).map_err(|_| Trouble::nonsense("an event"))? {
            Line::Added(value) | Line::Modified(value) => Event::Is(object(value)?),
            Line::Deleted(value) => Event::Gone(object(value)?),
            Line::Bookmark(bookmark) => match bookmark.pointer("/metadata/resourceVersion") {
                Some(Value::String(version)) => Event::Bookmark(version.clone()),
                _ => return Err(Trouble::nonsense("an event")),
            },
            Line::Error(status) => return Err(Trouble::Refused(status)),
        })
    }
}
