//! What a verb is at: where nobody sees a picture, silence is broken by it; and a verb whose time is up says what it was at.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io::Write;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use castle_engine::{EVENT_VERSION, Event};
use castle_seams::{BoxFuture, Clock, spoken};
use castle_secrets::redact::redact_own;
use serde_json::{Value, json};

use crate::output::{Printed, remember};

/// How long nothing may be said where nobody sees the picture.
pub(crate) const QUIET: Duration = Duration::from_secs(30);

/// Who hears it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Nobody: only errors are wanted.
    #[default]
    Nobody,
    /// People, line by line.
    People,
    /// Programs, object by object.
    Programs,
}

/// The voice of a verb, beside its printer, which somebody else holds while it works.
#[derive(Default)]
pub(crate) struct Voice {
    heard: Heard,
    /// Where it speaks to, if not to whoever started this process.
    memory: Option<Arc<Mutex<Printed>>>,
    /// How many lines were said, by whomever.
    lines: AtomicU64,
    place: Mutex<Place>,
}

/// What it speaks of.
#[derive(Default)]
struct Place {
    /// When the verb began.
    begun: Duration,
    /// How many lines were said when somebody last listened, and when the last of them was said.
    lines: u64,
    said: Duration,
    /// Whether what nobody had to break has ended since.
    was_hushed: bool,
    /// What the verb is at, the innermost last.
    doing: BTreeMap<u64, Doing>,
    next: u64,
}

enum Doing {
    /// Something that tells of itself.
    Tells(Box<dyn Fn(Duration) -> Option<Still> + Send>),
    /// Something that others see, or that nobody waits for.
    Hushed,
}

/// What takes so long.
#[derive(Clone, Debug)]
pub(crate) enum Still {
    /// A part of the verb, in words.
    At { doing: String, since: Duration },
    /// A step that is looked at, as an event since the verb began, and in words.
    Looking { event: Box<Event>, line: String },
    /// A step of a run, as an event since that began, and in words.
    Running { event: Box<Event>, line: String },
}

impl Still {
    /// For people.
    fn line(&self, now: Duration) -> String {
        match self {
            Self::At { doing, since } => format!("Still {doing}, for {} by now", spoken(whole(now - *since))),
            Self::Looking { line, .. } => format!("Still looking: {line}"),
            Self::Running { line, .. } => line.clone(),
        }
    }

    /// For programs.
    fn object(&self, now: Duration, begun: Duration) -> Value {
        match self {
            Self::At { doing, since } => {
                json!({"version": EVENT_VERSION, "at": now.saturating_sub(begun), "event": "still-running",
                "running": now.saturating_sub(*since), "doing": doing, "others": 0})
            }
            Self::Looking { event, .. } | Self::Running { event, .. } => {
                serde_json::to_value(event).unwrap_or_default()
            }
        }
    }
}

/// Parts of seconds are of no use to people.
fn whole(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// Something that a verb is at, until this is dropped.
#[must_use]
pub(crate) struct At {
    voice: Arc<Voice>,
    number: u64,
}

impl Drop for At {
    fn drop(&mut self) {
        let mut place = self.voice.place();
        let ended = place.doing.remove(&self.number);
        place.was_hushed |= matches!(ended, Some(Doing::Hushed));
    }
}

impl Voice {
    /// A voice for whoever hears it, into memory if that is where all is printed.
    pub(crate) fn new(heard: Heard, memory: Option<Arc<Mutex<Printed>>>) -> Arc<Self> {
        Arc::new(Self { heard, memory, ..Self::default() })
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody has said something.
    pub(crate) fn was_heard(&self) {
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    /// From here on, until what is returned is dropped, the verb is at this: `asking the vault`.
    pub(crate) fn at(self: &Arc<Self>, clock: &dyn Clock, doing: String) -> At {
        let since = clock.monotonic();
        self.tells(move |_| Some(Still::At { doing: doing.clone(), since }))
    }

    /// The same for what tells of itself.
    pub(crate) fn tells(self: &Arc<Self>, tells: impl Fn(Duration) -> Option<Still> + Send + 'static) -> At {
        self.begin(Doing::Tells(Box::new(tells)))
    }

    /// The same for what others see, or nobody waits for.
    pub(crate) fn hushed(self: &Arc<Self>) -> At {
        self.begin(Doing::Hushed)
    }

    fn begin(self: &Arc<Self>, doing: Doing) -> At {
        let mut place = self.place();
        let number = place.next;
        place.next += 1;
        place.doing.insert(number, doing);
        At { voice: self.clone(), number }
    }

    /// When the verb began.
    pub(crate) fn begun(&self) -> Duration {
        self.place().begun
    }

    /// What the verb is at, in words.
    pub(crate) fn doing(&self, now: Duration) -> Option<String> {
        let still = self.place().still(now)?;
        let line = still.line(now);
        Some(line.strip_prefix("Still ").map_or_else(|| line.clone(), |rest| format!("still {rest}")))
    }

    /// Works, and says every now and then what takes so long.
    pub(crate) async fn unbroken<T>(&self, clock: &dyn Clock, work: impl Future<Output = T>) -> T {
        {
            let mut place = self.place();
            (place.begun, place.said) = (clock.monotonic(), clock.monotonic());
        }
        let mut work = pin!(work);
        let mut waiting: Option<(Duration, BoxFuture<'static, ()>)> = None;
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            let now = clock.monotonic();
            self.listen(now);
            if done.is_ready() {
                return done;
            }
            loop {
                let Some(due) = self.due() else {
                    waiting = None;
                    return Poll::Pending;
                };
                if due <= now {
                    self.speak(now);
                    continue;
                }
                if waiting.as_ref().is_none_or(|(at, _)| *at != due) {
                    waiting = Some((due, clock.sleep(due - now)));
                }
                match waiting.as_mut().map(|(_, sleep)| sleep.as_mut().poll(context)) {
                    // The time has come, and the clock that tells it has not seen that yet.
                    Some(Poll::Ready(())) => {
                        waiting = None;
                        self.speak(now);
                    }
                    _ => return Poll::Pending,
                }
            }
        })
        .await
    }

    /// Notes that something was said since somebody last listened.
    fn listen(&self, now: Duration) {
        let lines = self.lines.load(Ordering::Relaxed);
        let mut place = self.place();
        if std::mem::take(&mut place.was_hushed) {
            place.said = now;
        }
        if lines != place.lines {
            (place.lines, place.said) = (lines, now);
            #[cfg(test)]
            if let Some(memory) = &self.memory {
                memory.lock().unwrap_or_else(PoisonError::into_inner).said.push(now);
            }
        }
    }

    /// When silence is to be broken; nothing while there is none to break.
    fn due(&self) -> Option<Duration> {
        let place = self.place();
        let tells = matches!(place.doing.last_key_value(), Some((_, Doing::Tells(_))));
        (tells && self.heard != Heard::Nobody).then(|| place.said + QUIET)
    }

    /// Says what takes so long.
    fn speak(&self, now: Duration) {
        let (still, begun) = {
            let mut place = self.place();
            place.said = now;
            (place.still(now), place.begun)
        };
        let Some(still) = still else { return };
        let is_story = matches!(still, Still::Running { .. });
        match self.heard {
            Heard::Nobody => return,
            Heard::Programs => self.print(&still.object(now, begun).to_string(), true),
            Heard::People => self.print(&still.line(now), is_story),
        }
        self.was_heard();
        self.listen(now);
    }

    /// Prints a line: what is part of a story, or asked for, to standard output, the rest to standard error.
    fn print(&self, text: &str, is_story: bool) {
        let text = format!("{}\n", redact_own(text));
        // Whoever has had enough and closed their end is no failure.
        let _ = match &self.memory {
            Some(memory) => {
                remember(memory, &text);
                Ok(())
            }
            None if is_story => {
                let mut out = std::io::stdout().lock();
                out.write_all(text.as_bytes()).and_then(|()| out.flush())
            }
            None => std::io::stderr().lock().write_all(text.as_bytes()),
        };
    }

    /// Says to people what needs attention, while somebody else holds the printer.
    pub(crate) fn complain_to_people(&self, text: &str) {
        if self.heard != Heard::Programs {
            self.print(text, false);
            self.was_heard();
        }
    }
}

impl Place {
    fn still(&self, now: Duration) -> Option<Still> {
        match self.doing.last_key_value()?.1 {
            Doing::Tells(tells) => tells(now),
            Doing::Hushed => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use castle_rehearsal::in_virtual_time;

    use super::*;
    use crate::output::Printer;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn silence_is_broken_by_what_the_innermost_is_at() {
        in_virtual_time(async |clock| {
            let mut printer = Printer::into_memory();
            let voice = printer.voice();
            let work = async {
                let _outer = voice.at(clock, "working".to_owned());
                clock.sleep(seconds(20)).await;
                let inner = voice.at(clock, "asking the vault".to_owned());
                clock.sleep(seconds(45)).await;
                drop(inner);
                printer.say("a word");
                clock.sleep(seconds(40)).await;
                let hushed = voice.hushed();
                clock.sleep(seconds(90)).await;
                drop(hushed);
                clock.sleep(seconds(25)).await;
            };
            voice.unbroken(clock, work).await;
            let printed = printer.printed();
            let expected = "Still asking the vault, for 10 s by now\nStill asking the vault, for 40 s by now\na word\n\
                            Still working, for 95 s by now\n";
            assert_eq!(printed.text, expected);
            assert_eq!(printed.said, [30, 60, 65, 95].map(seconds));
        })
        .unwrap();
    }

    #[test]
    fn programs_are_told_by_an_event_and_who_wants_errors_alone_is_not() {
        in_virtual_time(async |clock| {
            let mut printer = Printer::into_memory_of_objects();
            let voice = printer.voice();
            let work = async {
                let _at = voice.at(clock, "asking the vault".to_owned());
                clock.sleep(seconds(31)).await;
            };
            voice.unbroken(clock, work).await;
            let event: Value = serde_json::from_str(printer.printed().text.trim()).unwrap();
            assert_eq!((&event["event"], &event["doing"]), (&"still-running".into(), &"asking the vault".into()));
            assert_eq!(event["running"]["secs"], 30);
            let quiet = Arc::new(Voice::default());
            let _at = quiet.at(clock, "working".to_owned());
            quiet.unbroken(clock, clock.sleep(seconds(90))).await;
            assert_eq!(quiet.lines.load(Ordering::Relaxed), 0);
        })
        .unwrap();
    }
}
