//! From the bytes of a file to a castle, or to all that is wrong with it.

use crate::checks;
use crate::inventory::{self, Node};
use crate::leaks;
use crate::model::Castle;
use crate::problem::{Code, Problem};
use crate::shape::{Reader, Resolved, Shape};
use crate::span::{Origin, Sourced, Span};
use crate::values::SecretReference;
use crate::yaml::{self, Limits};

/// No castle.yaml is longer: a thousand nodes with overrides take a tenth.
pub const MAX_BYTES: u64 = 1 << 20;

/// Leaks that are reported one by one; all are hidden.
const MOST_LEAKS: usize = 100;

/// What came of reading a file.
#[derive(Debug)]
pub struct Reading {
    /// The castle, complete with every default; nothing if the file is refused.
    pub castle: Option<Castle>,
    /// Its nodes; empty if the file is refused.
    pub nodes: Vec<Node>,
    /// Every secret the file refers to, as far as it could be read, even if the file is refused.
    pub references: Vec<Sourced<SecretReference>>,
    /// All that there is to say about the file, in its order.
    pub problems: Vec<Problem>,
    /// The text of the file with everything hidden that is, or may be, a secret: the only form to show.
    pub shown: String,
}

impl Castle {
    /// Every value with its origin.
    #[must_use]
    pub fn resolved(&self) -> Resolved {
        Shape::resolved(self)
    }
}

/// Reads the bytes of a `castle.yaml`.
#[must_use]
pub fn read(bytes: &[u8]) -> Reading {
    match text_of(bytes) {
        Ok(text) => read_text(text),
        Err(problem) => Reading::refused(String::from_utf8_lossy(bytes.get(..4096).unwrap_or(bytes)).as_ref(), problem),
    }
}

fn text_of(bytes: &[u8]) -> Result<&str, Problem> {
    if bytes.len() as u64 > MAX_BYTES {
        return Err(Problem::new(Code::FileTooLarge, format!("the file is larger than {} MiB", MAX_BYTES >> 20))
            .hint("is this the right file? a castle.yaml has a few hundred lines"));
    }
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::new(
            Code::NotUtf8,
            format!("the file is not UTF-8: byte {} is not part of any character", error.valid_up_to()),
        )
        .hint("save it as UTF-8 (without BOM), and check that it is a text file")
    })?;
    // A byte order mark is not part of the text; positions are counted from behind it.
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn read_text(text: &str) -> Reading {
    let leaks = leaks::find(text);
    let mut reader = Reader::knowing(crate::schema::home_of);
    reader.masks.extend(leaks.iter().map(|leak| leak.span));
    let draft = draft(text, &mut reader);

    let mut problems = std::mem::take(&mut reader.problems);
    let mut reading = Reading::empty();
    if let Some(mut castle) = draft {
        reading.references = castle.references();
        inventory::inherit(&mut castle);
        let nodes = inventory::derive(&castle);
        checks::all(&castle, &nodes, &mut problems);
        inventory::complete(&mut castle, &nodes);
        reading.castle = Some(castle);
        reading.nodes = nodes;
    }
    for leak in leaks.into_iter().take(MOST_LEAKS) {
        // A value in the place of a reference has been reported with the name of that place.
        let reported = problems.iter().any(|problem| {
            problem.code == Code::SecretValue
                && problem
                    .labels
                    .iter()
                    .any(|label| label.span.start <= leak.span.start && leak.span.end <= label.span.end)
        });
        if !reported {
            problems.insist(leak.problem());
        }
    }
    if problems.refuse() {
        reading.castle = None;
        reading.nodes.clear();
    }
    reading.problems = problems.sorted();
    reading.hide(text, &reader.masks);
    reading
}

fn draft(text: &str, reader: &mut Reader) -> Option<Castle> {
    let stream = yaml::parse(text, Limits::CASTLE).map_err(|problem| reader.problems.report(problem)).ok()?;
    let mut documents = stream.documents();
    let root = documents.next().filter(|root| !root.is_null());
    let Some(root) = root else {
        reader.problems.report(
            Problem::new(Code::FileEmpty, "the file says nothing")
                .hint("`castle new PROJECT` writes one to begin with"),
        );
        return None;
    };
    if let Some(second) = documents.next() {
        reader.problems.report(
            Problem::new(Code::YamlDocuments, "the file has more than one document")
                .at(Origin::File(second.span()), "a second document begins here")
                .hint("a castle is one document: remove the `---`, or make the second a file of its own"),
        );
        return None;
    }
    Castle::decode(root, reader)
}

impl Reading {
    fn empty() -> Self {
        Self { castle: None, nodes: Vec::new(), references: Vec::new(), problems: Vec::new(), shown: String::new() }
    }

    fn refused(text: &str, problem: Problem) -> Self {
        let mut reading = Self { problems: vec![problem], ..Self::empty() };
        let leaks: Vec<Span> = leaks::find(text).into_iter().map(|leak| leak.span).collect();
        reading.hide(text, &leaks);
        reading
    }

    /// Hides secrets in the text to show and in what is said: a name of the user's own, a key say, may be one.
    fn hide(&mut self, text: &str, masks: &[Span]) {
        self.shown = leaks::mask(text, masks);
        for problem in &mut self.problems {
            let texts = [&mut problem.summary, &mut problem.hint].into_iter();
            for said in texts.chain(problem.labels.iter_mut().map(|label| &mut label.text)) {
                for leak in leaks::find(said).into_iter().rev() {
                    said.replace_range(leak.span.start..leak.span.end, "********");
                }
            }
        }
    }
}
