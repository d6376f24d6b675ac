//! Asking before what cannot be taken back.

use std::io::{BufRead, IsTerminal};

use crate::output::Printer;

/// Whether to go on: yes if that was said beforehand, otherwise what someone at a terminal answers.
pub(crate) fn confirmed(question: &str, yes: bool, printer: &mut Printer) -> bool {
    if yes {
        return true;
    }
    let input = std::io::stdin();
    if !input.is_terminal() {
        return false;
    }
    printer.complain(&format!("{question} Type yes to go on:"));
    answered(printer).is_some_and(|answer| answer.trim() == "yes")
}

/// Whether someone at a terminal types just this.
pub(crate) fn typed(question: &str, expected: &str, printer: &mut Printer) -> bool {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return false;
    }
    printer.complain(&format!("{question} Type {expected} to go on:"));
    answered(printer).is_some_and(|answer| answer.trim() == expected)
}

/// What is typed. Nobody is silent while somebody thinks.
fn answered(printer: &Printer) -> Option<String> {
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    printer.voice().was_heard();
    read.is_ok().then_some(answer)
}
