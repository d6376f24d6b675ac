//! Tasks: begun by a call, followed to their end on the host that their name tells.

use std::time::Duration;

use castle_engine::pace;
use castle_http::Method;

use super::{Client, part};
use crate::model::{ErrorClass, Form, Refusal, TaskEnd, Upid, each};

/// The longest wait between two looks at a task. Most are over within a second.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// How much of the log of a task that failed is read.
const LOG_LINES: u32 = 500;
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
            TaskEnd::Failed(sentence) => match ErrorClass::of_sentence(&sentence) {
                // Some programs that a task runs tell the reason in its log alone.
                ErrorClass::Other => {
                    let (class, line) = self.reason(subject, &upid).await.unwrap_or((ErrorClass::Other, String::new()));
                    let sentence = if line.is_empty() { sentence } else { format!("{sentence} ({line})") };
                    Err(refusal(class, sentence))
                }
                class => Err(refusal(class, sentence)),
            },
        }
    }

    /// The line of a task's log that tells why it failed, if one does.
    async fn reason(&self, subject: &str, upid: &Upid) -> Option<(ErrorClass, String)> {
        let path = format!("/nodes/{}/tasks/{}/log", part(&upid.node), part(&upid.to_string()));
        let lines = self.get(subject, &path, &Form::new().with("limit", LOG_LINES)).await.ok()?;
        let lines =
            each(&lines, |line| line["t"].as_str().map(|text| text.trim().chars().take(200).collect::<String>()));
        let classed = lines.into_iter().rev().map(|line| (ErrorClass::of_sentence(&line), line));
        classed.into_iter().find(|(class, _)| *class != ErrorClass::Other)
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
                return Err(refusal(format!("its task still runs after {:?} ({upid})", bound.0)));
            }
        }
    }
}
