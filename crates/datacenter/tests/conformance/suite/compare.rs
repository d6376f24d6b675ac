//! Two tellings of one theme.

use std::fmt::Write as _;

use super::exceptions::{EXCEPTIONS, Exception};
use super::transcript::{Told, difference};

/// What came of holding one telling against another.
#[derive(Default)]
pub(crate) struct Verdict {
    /// The answers that agree.
    pub(crate) agreed: usize,
    /// Those that differ with a reason, and the reason.
    pub(crate) excepted: Vec<String>,
    /// Those that differ without, with both versions.
    pub(crate) differences: Vec<String>,
}

/// Holds what a server told of a theme against what is expected.
pub(crate) fn compare(server: &str, theme: &str, expected: &[Told], came: &[Told]) -> Verdict {
    let mut verdict = Verdict::default();
    let titles = |told: &[Told]| told.iter().map(|told| told.title.clone()).collect::<Vec<_>>();
    if titles(expected) != titles(came) {
        verdict.differences.push(format!("{theme}: the recording is of other scenarios: record it again"));
        return verdict;
    }
    for (expected, came) in expected.iter().zip(came) {
        let title = &expected.title;
        if expected.blocks.len() != came.blocks.len() {
            let (one, other) = (expected.blocks.len(), came.blocks.len());
            verdict.differences.push(format!("{theme}: {title}: {one} answers are recorded, {other} came"));
            continue;
        }
        let mut needless: Vec<&Exception> = exceptions(server, theme, title).collect();
        for (at, (expected, came)) in expected.blocks.iter().zip(&came.blocks).enumerate() {
            if expected == came {
                verdict.agreed += 1;
                continue;
            }
            let request = came.lines().next().unwrap_or_default();
            let excepted =
                exceptions(server, theme, title).find(|one| one.answers.is_empty() || one.answers.contains(&(at + 1)));
            let Some(exception) = excepted else {
                let mut text = format!("{theme}: {title}: {}. {request}\n", at + 1);
                let _ = write!(text, "{}", difference(expected, came));
                verdict.differences.push(text);
                continue;
            };
            needless.retain(|one| !std::ptr::eq(*one, exception));
            verdict.excepted.push(format!("{theme}: {title}: {request}: {}", exception.reason));
        }
        for exception in needless {
            verdict
                .differences
                .push(format!("{theme}: {title}: nothing differs here: drop the exception ({})", exception.reason));
        }
    }
    verdict
}

fn exceptions<'a>(server: &'a str, theme: &'a str, title: &'a str) -> impl Iterator<Item = &'static Exception> + 'a {
    let concerns = move |one: &&Exception| one.server == server && one.theme == theme && one.scenario == title;
    EXCEPTIONS.iter().filter(concerns)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(blocks: &[&str]) -> Vec<Told> {
        vec![Told { title: "t".to_owned(), blocks: blocks.iter().map(|&block| block.to_owned()).collect() }]
    }

    #[test]
    fn every_difference_is_told() {
        let verdict =
            compare("embedded", "x", &told(&["GET /a\n200", "GET /b\n200"]), &told(&["GET /a\n200", "GET /b\n404"]));
        assert_eq!(verdict.agreed, 1);
        assert_eq!(verdict.differences, ["x: t: 2. GET /b\n  - 200\n  + 404\n"]);
        assert_eq!(compare("embedded", "x", &told(&["a"]), &told(&["a", "b"])).differences.len(), 1);
    }
}
