//! Tasks: begun by a call, followed to their end on the host that their name tells.

use std::time::Duration;

use castle_engine::pace;
use castle_http::Method;
use castle_seams::spoken;
use serde_json::Value;

use super::{Client, part};
use crate::model::{ErrorClass, Form, Refusal, TaskEnd, Upid, each};

/// The longest wait between two looks at a task. Most are over within a second.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How much of the end of the log of a task that failed is read: downloads and copies tell in it how far they are.
const LOG_LINES: u64 = 5_000;
/// The most letters of a line that are shown.
const LONGEST_LINE: usize = 200;
/// What the last line of a task that failed begins with.
const END: &str = "TASK ERROR:";
/// What lines begin with that only tell what was asked for.
const ECHOES: [&str; 7] = ["update VM ", "downloading ", "--", "creating ", "create ", "Formatting ", "transferred "];
/// How many looks in a row may fail before nobody knows what became of a task.
const PATIENCE: u32 = 5;

/// How long a task may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound(Duration);

impl Bound {
    /// For what moves no data: config writes, starts, linked clones.
    pub const SHORT: Self = Self(Duration::from_secs(5 * 60));
    /// For what copies disks or downloads them.
    pub const LONG: Self = Self(Duration::from_secs(45 * 60));
}

impl Client {
    /// Asks for a change and follows its task to the end, if it has one. Returns how many warnings the task gave.
    ///
    /// # Errors
    ///
    /// [`Refusal`] if it is refused, if the task fails, or if nobody knows.
    pub async fn run(
        &self,
        subject: &str,
        method: Method,
        path: &str,
        form: &Form,
        bound: Bound,
    ) -> Result<u32, Refusal> {
        let begun = self.change(subject, method, path, form).await?;
        // Some changes are over when they are answered.
        let Some(name) = begun.as_str().filter(|text| text.starts_with("UPID:")) else { return Ok(0) };
        let refusal = |class, sentence: String| Refusal { class, subject: subject.to_owned(), sentence, changes: true };
        let upid: Upid = name.parse().map_err(|error| refusal(ErrorClass::Unreadable, format!("{error}")))?;
        match self.follow(subject, &upid, bound).await? {
            TaskEnd::Well => Ok(0),
            TaskEnd::WithWarnings(count) => Ok(count),
            TaskEnd::Killed => Err(refusal(ErrorClass::Unknown, format!("its task was killed ({upid})"))),
            TaskEnd::Failed(sentence) => {
                let (class, reason) = self.reason(subject, &upid, &sentence).await;
                let told = reason.map(|line| format!("{sentence} ({line})"));
                Err(refusal(class, told.unwrap_or(sentence)))
            }
        }
    }

    /// What a failed task is, and what its log tells of why. The sentence it ended with is often only that a program failed; what that
    /// one said is a line before.
    async fn reason(&self, subject: &str, upid: &Upid, sentence: &str) -> (ErrorClass, Option<String>) {
        let class = ErrorClass::of_sentence(sentence);
        let Ok(lines) = self.log_end(subject, upid).await else { return (class, None) };
        let shown = |line: &Value| {
            Some(line["t"].as_str()?.trim().chars().take(LONGEST_LINE).collect())
                .filter(|line: &String| !line.is_empty())
        };
        let lines = each(&lines, shown);
        // Of what programs say, only this means the same everywhere: others' words of what is not found are no word on guests.
        let is_passing = |class: &ErrorClass| matches!(class, ErrorClass::LockTimeout | ErrorClass::NoSpace);
        let said = lines.iter().rev().map(|line| ErrorClass::of_sentence(line)).find(is_passing);
        let class = if class == ErrorClass::Other { said.unwrap_or(class) } else { class };
        let is_echo = |line: &String| {
            line.starts_with(END)
                || sentence.contains(line.as_str())
                || line.ends_with(sentence)
                || ECHOES.iter().any(|echo| line.starts_with(echo))
                || line.ends_with("...")
        };
        (class, lines.into_iter().rev().find(|line| !is_echo(line)))
    }

    /// The last lines of the log of a task.
    async fn log_end(&self, subject: &str, upid: &Upid) -> Result<Value, Refusal> {
        let path = format!("/nodes/{}/tasks/{}/log", part(&upid.node), part(&upid.to_string()));
        let page = Form::new().with("limit", LOG_LINES);
        match self.page(subject, &path, &page).await? {
            (_, Some(total)) if total > LOG_LINES => {
                self.get(subject, &path, &page.with("start", total - LOG_LINES)).await
            }
            (lines, _) => Ok(lines),
        }
    }

    /// Follows a task to its end, within a bound.
    ///
    /// # Errors
    ///
    /// [`Refusal`] of class [`ErrorClass::Unknown`] if nobody knows how it ended.
    pub async fn follow(&self, subject: &str, upid: &Upid, bound: Bound) -> Result<TaskEnd, Refusal> {
        let path = format!("/nodes/{}/tasks/{}/status", part(&upid.node), part(&upid.to_string()));
        let refusal = |sentence: String| Refusal {
            class: ErrorClass::Unknown,
            subject: subject.to_owned(),
            sentence,
            changes: true,
        };
        let begun = self.clock().monotonic();
        let mut failures = 0;
        loop {
            let waited = self.clock().monotonic().saturating_sub(begun);
            self.clock().sleep(pace(waited, LONGEST_WAIT)).await;
            match self.get(subject, &path, &Form::new()).await {
                Ok(status) if status["status"] == "stopped" => {
                    return Ok(TaskEnd::read(status["exitstatus"].as_str().unwrap_or("unexpected status")));
                }
                Ok(_) => failures = 0,
                // Nobody remembers it: a host that was restarted has forgotten its tasks.
                Err(error) if error.class == ErrorClass::Gone => {
                    return Err(refusal(format!("its task has vanished ({upid})")));
                }
                Err(error) if matches!(error.class, ErrorClass::Unauthenticated | ErrorClass::Untrusted) => {
                    return Err(Refusal { changes: true, ..error });
                }
                Err(error) => {
                    failures += 1;
                    if failures >= PATIENCE {
                        return Err(refusal(format!("its task cannot be followed ({upid}): {}", error.sentence)));
                    }
                }
            }
            if self.clock().monotonic().saturating_sub(begun) > bound.0 {
                return Err(refusal(format!("its task still runs after {} ({upid})", spoken(bound.0))));
            }
        }
    }
}
