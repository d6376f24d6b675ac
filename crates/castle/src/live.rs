//! The live view of a run on a terminal: a few lines that are drawn over, and above them one line for each thing that was done.

mod model;
#[cfg(test)]
mod tests;
mod view;

use std::fmt::Write;
use std::time::Duration;

use castle_engine::Event;

pub(crate) use model::Model;
pub(crate) use view::Size;

use view::{Line, Tone, columns, lines};

/// Between two drawings at least.
const SHORTEST: Duration = Duration::from_millis(100);
/// Between two drawings at most: the clock in it goes on.
const LONGEST: Duration = Duration::from_secs(1);
/// What is over before that is not worth a picture.
const FIRST: Duration = Duration::from_millis(300);

/// A run on a terminal: decides when to draw, and what to send for it.
#[derive(Debug)]
pub(crate) struct Live {
    model: Model,
    is_coloured: bool,
    /// How wide each line is that stands on the screen now.
    drawn: Vec<usize>,
    drawn_at: Option<Duration>,
    /// Lines that are to stay, and are not on the screen yet.
    kept: Vec<String>,
    is_stale: bool,
}

impl Live {
    /// A run that has not begun yet.
    pub(crate) fn new(model: Model, is_coloured: bool) -> Self {
        Self { model, is_coloured, drawn: Vec::new(), drawn_at: None, kept: Vec::new(), is_stale: false }
    }

    /// Takes an event, and the line to keep of it if another than usual is wanted.
    pub(crate) fn hear(&mut self, event: &Event, line: Option<String>) {
        let usual = self.model.hear(event);
        self.kept.extend(line.or_else(|| usual.map(|text| format!("{:8.1} s  {text}", event.at.as_secs_f64()))));
        self.is_stale = true;
    }

    /// What to send to a terminal of this size at this time; nothing if it is too early, or nothing is new.
    pub(crate) fn draw(&mut self, now: Duration, size: Size) -> Option<String> {
        let since = self.drawn_at.map(|at| now.saturating_sub(at));
        let is_due = match since {
            None => now >= FIRST,
            Some(since) => since >= LONGEST || (self.is_stale && since >= SHORTEST),
        };
        if !is_due {
            return None;
        }
        let lines = lines(&self.model, now, size);
        let text = self.over(&lines, size);
        self.drawn = lines.iter().map(|line| line.0.iter().map(|(_, text)| columns(text)).sum()).collect();
        (self.drawn_at, self.is_stale) = (Some(now), false);
        Some(text)
    }

    /// What leaves nothing on the screen but the lines that are to stay.
    pub(crate) fn finish(&mut self, size: Size) -> String {
        let text = self.over(&[], size);
        self.drawn.clear();
        text
    }

    /// Sends new lines over those that are on the screen: row by row, and in one piece, so that nothing flickers.
    fn over(&mut self, lines: &[Line], size: Size) -> String {
        let mut text = String::from(BEGIN);
        // A terminal that became narrower has wrapped what was there.
        let rows: usize = self.drawn.iter().map(|width| width.div_ceil(size.width.max(1)).max(1)).sum();
        if rows > 0 {
            let _ = write!(text, "\r\u{1b}[{rows}A");
        }
        for kept in self.kept.drain(..) {
            let _ = writeln!(text, "{kept}{CLEAR_LINE}");
        }
        for line in lines {
            for (tone, part) in &line.0 {
                text += &toned(*tone, part, self.is_coloured);
            }
            let _ = writeln!(text, "{CLEAR_LINE}");
        }
        text + CLEAR_BELOW + END
    }
}

/// The terminal shows nothing of what follows until its end; one that does not know this ignores it.
const BEGIN: &str = "\u{1b}[?2026h";
const END: &str = "\u{1b}[?2026l";
const CLEAR_LINE: &str = "\u{1b}[K";
const CLEAR_BELOW: &str = "\u{1b}[J";

fn toned(tone: Tone, text: &str, is_coloured: bool) -> String {
    let code = match tone {
        Tone::Bold => "1",
        Tone::Dim => "2",
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Plain => return text.to_owned(),
    };
    if is_coloured && !text.is_empty() { format!("\u{1b}[{code}m{text}\u{1b}[0m") } else { text.to_owned() }
}
