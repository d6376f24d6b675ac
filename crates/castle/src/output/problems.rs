//! Problems of a file, for people and for programs.

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use castle_spec::{Label, Lines, Problem, Severity};
use serde_json::{Value, json};

use super::Printer;

/// Beyond this nobody reads on; the rest is counted.
const MOST_SHOWN: usize = 50;

/// The file that problems are about, in the form that may be shown.
pub(crate) struct Source<'t> {
    pub(crate) path: &'t str,
    pub(crate) text: &'t str,
}

impl Printer {
    /// Shows problems with excerpts. Notes and warnings are left out when quiet.
    pub(crate) fn problems(&mut self, source: &Source<'_>, problems: &[Problem]) {
        if self.json {
            return;
        }
        let quiet = self.quiet;
        let wanted: Vec<&Problem> =
            problems.iter().filter(|problem| !quiet || problem.code.severity() == Severity::Error).collect();
        let renderer = Renderer::styled();
        for problem in wanted.iter().take(MOST_SHOWN) {
            let text = render(&renderer, source, problem);
            self.complain(&format!("{text}\n"));
        }
        if wanted.len() > MOST_SHOWN {
            self.complain(&format!("… and {} more; --json lists all\n", wanted.len() - MOST_SHOWN));
        }
    }
}

fn render(renderer: &Renderer, source: &Source<'_>, problem: &Problem) -> String {
    let level = match problem.code.severity() {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let title = level.primary_title(problem.summary.as_str()).id(problem.code.text());
    let group = match excerpt(source, &problem.labels) {
        Some(snippet) => title.element(snippet),
        None => title.element(Origin::path(source.path)),
    };
    let group: Group<'_> =
        if problem.hint.is_empty() { group } else { group.element(Level::HELP.message(problem.hint.as_str())) };
    renderer.render(&[group])
}

/// The lines the labels stand on, and those between.
fn excerpt<'t>(source: &Source<'t>, labels: &'t [Label]) -> Option<Snippet<'t, annotate_snippets::Annotation<'t>>> {
    let length = source.text.len();
    let first = labels.iter().map(|label| label.span.start).min()?.min(length);
    let last = labels.iter().map(|label| label.span.end).max()?.clamp(first, length);
    let start = source.text[..first].rfind('\n').map_or(0, |at| at + 1);
    let end = source.text[last..].find('\n').map_or(length, |at| last + at);
    let line = source.text[..start].matches('\n').count() + 1;
    let annotations = labels.iter().enumerate().map(|(index, label)| {
        let kind = if index == 0 { AnnotationKind::Primary } else { AnnotationKind::Context };
        let span = label.span.start.min(length) - start
            ..label.span.end.clamp(label.span.start, end.max(label.span.start)).min(length) - start;
        let annotation = kind.span(span);
        if label.text.is_empty() { annotation } else { annotation.label(label.text.as_str()) }
    });
    Some(Snippet::source(&source.text[start..end]).line_start(line).path(source.path).annotations(annotations))
}

/// A problem as an object.
pub(crate) fn object(lines: &Lines<'_>, problem: &Problem) -> Value {
    let place = |label: &Label| {
        let (start, end) = (lines.position(label.span.start), lines.position(label.span.end));
        json!({
            "line": start.line, "column": start.column, "end_line": end.line, "end_column": end.column, "label": label.text,
        })
    };
    let mut object = json!({
        "code": problem.code.text(),
        "severity": problem.code.severity().word(),
        "summary": problem.summary,
        "hint": problem.hint,
        "docs": format!("docs/checks.md#{}", problem.code.text()),
    });
    if let (Some(first), Some(object)) = (problem.labels.first(), object.as_object_mut()) {
        if let Value::Object(fields) = place(first) {
            object.extend(fields);
        }
        object.insert("related".to_owned(), problem.labels[1..].iter().map(place).collect());
    }
    object
}
