//! A run as lines: a pure function of what is known of it, of the time and of the room there is.

use std::time::Duration;

use castle_engine::StepId;
use unicode_width::UnicodeWidthChar;

use super::model::{Doing, Model, Running, Share};

/// How wide the bar of a layer is at most.
const BAR: usize = 20;
/// Names are cut to this many columns where others have to stand beside them.
const NAME: usize = 36;

/// The room there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Columns.
    pub(crate) width: usize,
    /// Rows.
    pub(crate) height: usize,
}

/// How a part of a line is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
}

/// A line: parts, each with its tone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(pub(super) Vec<(Tone, String)>);

impl Line {
    fn add(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }

    fn of(tone: Tone, text: impl Into<String>) -> Self {
        Self::default().add(tone, text)
    }

    /// The line, no wider than this, with an ellipsis where it was cut.
    fn cut(self, width: usize) -> Self {
        if self.0.iter().map(|(_, text)| columns(text)).sum::<usize>() <= width {
            return self;
        }
        let mut left = width;
        let mut parts = Vec::new();
        for (tone, text) in self.0 {
            if columns(&text) < left {
                left -= columns(&text);
                parts.push((tone, text));
            } else {
                parts.push((tone, cut(&text, left)));
                break;
            }
        }
        Self(parts)
    }
}

/// How many columns a text takes.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(|character| character.width().unwrap_or(0)).sum()
}

/// A text of at most this many columns, the last of which is an ellipsis if something is missing.
fn cut(text: &str, width: usize) -> String {
    if width == 0 {
        return String::new();
    }
    let mut kept = String::new();
    let mut used = 0;
    for character in text.chars() {
        let wide = character.width().unwrap_or(0);
        if used + wide > width - 1 {
            break;
        }
        used += wide;
        kept.push(character);
    }
    kept + "…"
}

/// A text, cut if it takes more columns than this.
fn within(text: &str, width: usize) -> String {
    if columns(text) > width { cut(text, width) } else { text.to_owned() }
}

/// A text cut or filled to just this many columns.
fn padded(text: &str, width: usize) -> String {
    let text = within(text, width);
    let fill = width.saturating_sub(columns(&text));
    text + &" ".repeat(fill)
}

/// A time as a clock shows it.
pub(crate) fn watch(time: Duration) -> String {
    let seconds = time.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// The run as lines, at most as many and as wide as there is room for.
pub(super) fn lines(model: &Model, now: Duration, size: Size) -> Vec<Line> {
    // The last column stays free: some terminals wrap when it is written. So does the last row, where the cursor is.
    let (width, height) = (size.width.saturating_sub(1), size.height.saturating_sub(1));
    let head = head(model, now);
    let (layer_shares, node_shares) = model.shares();
    let running = model.running_steps();
    let mut layers = layers(model, &layer_shares, BAR.min(width / 4));
    let mut nodes = nodes(model, &node_shares, &running, now);
    let mut others = others(&running, now, NAME.max(width / 2));
    if 1 + layers.len() + nodes.len() + others.len() > height {
        // What stands still is told in one line.
        let (all, done) =
            (nodes.len(), node_shares.iter().filter(|share| share.total > 0 && share.done == share.total).count());
        nodes.retain(|(is_active, _)| *is_active);
        if nodes.len() < all {
            nodes.push((false, Line::of(Tone::Dim, format!("  nodes: {done} of {all} done"))));
        }
    }
    if 1 + layers.len() + nodes.len() + others.len() > height {
        layers = vec![layers_in_short(model, &layer_shares)];
    }
    let room = height.saturating_sub(1 + layers.len());
    let mut rest: Vec<Line> = nodes.into_iter().map(|(_, line)| line).collect();
    rest.append(&mut others);
    if rest.len() > room {
        let hidden = rest.len() - room.saturating_sub(1);
        rest.truncate(room.saturating_sub(1));
        rest.push(Line::of(Tone::Dim, format!("  … and {hidden} more")));
    }
    let all = std::iter::once(head).chain(layers).chain(rest);
    all.take(height).map(|line| line.cut(width)).collect()
}

fn head(model: &Model, now: Duration) -> Line {
    let line = Line::of(Tone::Bold, model.title.clone()).add(Tone::Plain, format!("  {}", watch(now)));
    match model.left(now) {
        _ if model.is_stopping => {
            line.add(Tone::Bad, "  stopping when what is under way has ended; once more stops at once")
        }
        Some(left) if left > Duration::ZERO => {
            // Nobody believes a second; and what is nearly over is not told in minutes.
            let left = Duration::from_secs(left.as_secs().div_ceil(5) * 5);
            line.add(Tone::Dim, format!("  about {} left", watch(left)))
        }
        _ => line,
    }
}

fn layers(model: &Model, shares: &[Share], bar: usize) -> Vec<Line> {
    let widest = model.layers.iter().map(|layer| columns(&layer.to_string())).max().unwrap_or(0);
    let digits = shares.iter().map(|share| share.total.to_string().len()).max().unwrap_or(1);
    let line = |(layer, share): (&castle_engine::Layer, &Share)| {
        let filled = (share.done * bar).checked_div(share.total).unwrap_or(bar);
        let line = Line::of(Tone::Plain, format!("  {}  ", padded(&layer.to_string(), widest)))
            .add(Tone::Good, "━".repeat(filled))
            .add(Tone::Dim, "─".repeat(bar - filled))
            .add(Tone::Plain, format!("  {:>digits$} of {:>digits$}", share.done, share.total));
        if share.bad > 0 { line.add(Tone::Bad, format!("  {} not done", share.bad)) } else { line }
    };
    model.layers.iter().zip(shares).map(line).collect()
}

fn layers_in_short(model: &Model, shares: &[Share]) -> Line {
    let parts = model.layers.iter().zip(shares).map(|(layer, share)| format!("{layer} {}/{}", share.done, share.total));
    Line::of(Tone::Plain, format!("  {}", parts.collect::<Vec<_>>().join("  ")))
}

/// A step that runs, and the node it is about.
type At<'m> = (&'m StepId, Option<usize>, &'m Running);

/// A line for each node, and whether something goes on there. They stay in their order, so that the eye finds them again.
fn nodes(model: &Model, shares: &[Share], running: &[At<'_>], now: Duration) -> Vec<(bool, Line)> {
    let widest = model.nodes.iter().map(|node| columns(node)).max().unwrap_or(0).min(NAME);
    let mut oldest: Vec<Option<&At<'_>>> = vec![None; model.nodes.len()];
    for one in running {
        if let Some(node) = one.1 {
            oldest[node].get_or_insert(one);
        }
    }
    let mut told = Vec::new();
    for ((node, share), oldest) in model.nodes.iter().zip(shares).zip(oldest).filter(|((_, share), _)| share.total > 0)
    {
        let line = Line::of(Tone::Plain, format!("  {}  {} of {}", padded(node, widest), share.done, share.total));
        told.push(match oldest {
            Some((step, _, running)) => (true, at(line.add(Tone::Plain, "  "), &step.kind, running, now)),
            None if share.bad > 0 => (false, line.add(Tone::Bad, "  not done")),
            None if share.done == share.total => (false, line.add(Tone::Good, "  done")),
            None => (false, line),
        });
    }
    told
}

/// A line for each step that runs and is about no node.
fn others(running: &[At<'_>], now: Duration, name: usize) -> Vec<Line> {
    let others = running.iter().filter(|(_, node, _)| node.is_none());
    others
        .map(|(step, _, running)| at(Line::of(Tone::Plain, "  "), &within(&step.to_string(), name), running, now))
        .collect()
}

/// What a step is at, and since when.
fn at(line: Line, name: &str, running: &Running, now: Duration) -> Line {
    let line = line.add(Tone::Plain, name);
    let line = line.add(Tone::Dim, format!("  {}", watch(now.saturating_sub(running.since))));
    match &running.doing {
        Doing::Looking => line,
        Doing::Acting(what) => line.add(Tone::Plain, format!("  {what}")),
        Doing::Hindered(what) => line.add(Tone::Bad, format!("  looks again: {what}")),
        Doing::Waiting(what) => line.add(Tone::Plain, format!("  waits for {what}")),
    }
}
