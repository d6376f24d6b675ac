//! Everything castle prints: data to standard output, the rest to standard error, objects if asked.

mod problems;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use castle_engine::Event;
use castle_secrets::redact::redact_own;
use rustix::termios::tcgetwinsize;
use serde_json::Value;

use crate::cli::{Color, Global};
use crate::live::Size;
use crate::masking;
use crate::voice::{Heard, Voice};

pub(crate) use problems::{Source, object};

/// How a verb ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// As it should.
    Done,
    /// It did not work.
    Failed,
    /// Something is not as it should be, which was the question.
    Differs,
    /// It would not be safe.
    Refused,
    /// What was asked for cannot be.
    Invalid,
    /// Someone wanted no more.
    Interrupted,
}

impl Exit {
    /// Its number.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Differs => 2,
            Self::Refused => 3,
            Self::Invalid => 4,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Knows how much to say, to whom, and in which colours.
pub struct Printer {
    json: bool,
    quiet: bool,
    verbose: bool,
    /// The last result object of a verb that is part of another, which tells it.
    held: Option<Value>,
    to: To,
    voice: Arc<Voice>,
}

/// Where it is printed.
enum To {
    /// To whoever started this process.
    Streams { out: AutoStream<std::io::Stdout>, err: AutoStream<std::io::Stderr> },
    /// Into memory, without colours: for whoever runs a verb to see what it says.
    Memory(Arc<Mutex<Printed>>),
}

/// What a verb said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Printed {
    /// For people, all of it.
    pub(crate) text: String,
    /// What happened, one after the other.
    pub(crate) events: Vec<Event>,
    /// The result object.
    pub(crate) result: Value,
    /// When something was said.
    #[cfg(test)]
    pub(crate) said: Vec<Duration>,
}

impl Printer {
    /// A printer for what the command line asks of every verb.
    #[must_use]
    pub fn new(global: &Global) -> Self {
        masking::begin();
        let choice = match global.color {
            Color::Auto => ColorChoice::Auto,
            Color::Always => ColorChoice::Always,
            Color::Never => ColorChoice::Never,
        };
        Self {
            json: global.json,
            quiet: global.quiet,
            verbose: global.verbose,
            held: None,
            to: To::Streams {
                out: AutoStream::new(std::io::stdout(), choice),
                err: AutoStream::new(std::io::stderr(), choice),
            },
            voice: Voice::new(heard(global.json, global.quiet), None),
        }
    }

    /// A printer into memory, which is told everything.
    pub(crate) fn into_memory() -> Self {
        Self::of_memory(false)
    }

    /// The same for programs.
    pub(crate) fn into_memory_of_objects() -> Self {
        Self::of_memory(true)
    }

    fn of_memory(json: bool) -> Self {
        masking::begin();
        let memory: Arc<Mutex<Printed>> = Arc::default();
        let voice = Voice::new(heard(json, false), Some(memory.clone()));
        Self { json, quiet: false, verbose: true, held: None, to: To::Memory(memory), voice }
    }

    /// What was printed into memory since this was last asked.
    pub(crate) fn printed(&mut self) -> Printed {
        match &self.to {
            To::Streams { .. } => Printed::default(),
            To::Memory(printed) => std::mem::take(&mut *lock(printed)),
        }
    }

    /// What breaks silence beside this printer, while somebody else holds it.
    pub(crate) fn voice(&self) -> Arc<Voice> {
        self.voice.clone()
    }

    /// Takes note of something that happened, where somebody wants to know all of it.
    pub(crate) fn note(&mut self, event: &Event) {
        if let To::Memory(printed) = &self.to {
            lock(printed).events.push(event.clone());
        }
    }

    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    pub(crate) fn is_verbose(&self) -> bool {
        self.verbose
    }

    /// Whether someone watches a terminal that can be drawn on. What is run by a machine is read later, line by line.
    pub(crate) fn is_live(&self) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let can_draw = std::env::var("TERM").is_ok_and(|kind| !kind.is_empty() && kind != "dumb");
        let is_at_hand = matches!(self.to, To::Streams { .. });
        is_at_hand && !self.json && !self.quiet && !is_set("CI") && can_draw && std::io::stdout().is_terminal()
    }

    pub(crate) fn is_coloured(&self) -> bool {
        matches!(&self.to, To::Streams { out, .. } if out.current_choice() != ColorChoice::Never)
    }

    /// How much room there is now: it may be another than a moment ago.
    pub(crate) fn size() -> Size {
        let usual = Size { width: 80, height: 24 };
        let told = tcgetwinsize(std::io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        told.map_or(usual, |size| Size { width: size.ws_col.into(), height: size.ws_row.into() })
    }

    /// Sends to the terminal as it is: where to write is no colour, and is wanted where colour is not.
    pub(crate) fn draw(&mut self, text: &str) {
        self.bytes(redact_own(text).as_bytes());
    }

    /// What was asked for. A reader that has had enough and closes its end is no failure.
    pub(crate) fn data(&mut self, text: &str) -> Exit {
        self.voice.was_heard();
        let out = match &mut self.to {
            To::Streams { out, .. } => out,
            To::Memory(printed) => return remember(printed, text),
        };
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Ok(()) => Exit::Done,
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
            Err(_) => Exit::Failed,
        }
    }

    /// What was asked for, byte by byte: nothing in it is taken for colour.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Exit {
        self.voice.was_heard();
        if let To::Memory(printed) = &self.to {
            return remember(printed, &String::from_utf8_lossy(bytes));
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(bytes).and_then(|()| out.flush()) {
            Ok(()) => Exit::Done,
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Done,
            Err(_) => Exit::Failed,
        }
    }

    /// What a person may want to know: not for programs, not when quiet.
    pub(crate) fn say(&mut self, text: &str) {
        if !self.json && !self.quiet {
            self.data(&redact_own(&format!("{text}\n")));
        }
    }

    /// What went wrong or needs attention.
    pub(crate) fn complain(&mut self, text: &str) {
        self.voice.was_heard();
        let text = format!("{}\n", redact_own(text));
        match &mut self.to {
            To::Streams { err, .. } => {
                let _ = err.write_all(text.as_bytes());
            }
            To::Memory(printed) => {
                remember(printed, &text);
            }
        }
    }

    /// The same, where programs are told in the result object.
    pub(crate) fn complain_to_people(&mut self, text: &str) {
        if !self.json {
            self.complain(text);
        }
    }

    /// Something that happened, if objects were asked for.
    pub(crate) fn event(&mut self, event: &Value) {
        if self.json {
            self.data(&redact_own(&format!("{event}\n")));
        }
    }

    /// The result object, if asked for.
    pub(crate) fn result(&mut self, result: &Value) {
        match &mut self.held {
            Some(held) => held.clone_from(result),
            None => {
                if let To::Memory(printed) = &self.to {
                    lock(printed).result.clone_from(result);
                }
                self.event(result);
            }
        }
    }

    /// From here on result objects are not printed: what comes is part of another verb.
    pub(crate) fn hold_result(&mut self) {
        self.held = Some(Value::Null);
    }

    /// Result objects are printed again; returns the last that was not.
    pub(crate) fn held_result(&mut self) -> Value {
        self.held.take().unwrap_or_default()
    }

    /// Says that a verb failed, and why.
    pub(crate) fn failed(&mut self, verb: &str, why: &str) -> Exit {
        self.ended(verb, "failed", why, Exit::Failed)
    }

    /// Says that a verb refused to go on, and why.
    pub(crate) fn refused(&mut self, verb: &str, why: &str) -> Exit {
        self.ended(verb, "refused", why, Exit::Refused)
    }

    /// Says that a verb was asked for something that cannot be, and why.
    pub(crate) fn invalid(&mut self, verb: &str, why: &str) -> Exit {
        self.ended(verb, "invalid", why, Exit::Invalid)
    }

    /// Says that a verb ended because somebody wanted no more.
    pub(crate) fn interrupted(&mut self, verb: &str) -> Exit {
        self.result(&serde_json::json!({"verb": verb, "result": "interrupted", "problems": []}));
        self.say("Interrupted. Run the same command again to go on.");
        Exit::Interrupted
    }

    fn ended(&mut self, verb: &str, result: &str, why: &str, exit: Exit) -> Exit {
        if self.json || self.held.is_some() || matches!(self.to, To::Memory(_)) {
            self.result(&serde_json::json!({"verb": verb, "result": result, "problems": [{"severity": "error", "summary": why}]}));
        }
        if !self.json {
            self.complain(&format!("\u{1b}[1;31merror\u{1b}[0m: {why}"));
        }
        exit
    }
}

/// Who hears what is said beside a printer for these.
fn heard(json: bool, quiet: bool) -> Heard {
    match (json, quiet) {
        (true, _) => Heard::Programs,
        (false, true) => Heard::Nobody,
        (false, false) => Heard::People,
    }
}

fn lock(printed: &Mutex<Printed>) -> MutexGuard<'_, Printed> {
    printed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints into memory.
pub(crate) fn remember(printed: &Mutex<Printed>, text: &str) -> Exit {
    lock(printed).text += &anstream::adapter::strip_str(text).to_string();
    Exit::Done
}

/// A question, at whose end the answer is typed.
pub(crate) fn prompt(question: &str) {
    let mut err = std::io::stderr().lock();
    let _ = err.write_all(question.as_bytes()).and_then(|()| err.flush());
}

/// What is left to say when castle itself is at fault.
pub(crate) fn panicked(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// How long ago, in words.
pub(crate) fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..120 => format!("{seconds} s ago"),
        120..7200 => format!("{} min ago", seconds / 60),
        7200..172_800 => format!("{} h ago", seconds / 3600),
        _ => format!("{} days ago", seconds / 86_400),
    }
}

/// Rows in columns, the first row being the head.
pub(crate) fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_into_memory_is_read_once_and_without_colours() {
        let mut printer = Printer::into_memory();
        printer.say("said");
        assert_eq!(printer.failed("up", "so"), Exit::Failed);
        let printed = printer.printed();
        assert_eq!((printed.text.as_str(), &printed.result["result"]), ("said\nerror: so\n", &"failed".into()));
        assert_eq!(printer.printed().text, "");
    }
}
