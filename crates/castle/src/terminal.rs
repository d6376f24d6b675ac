//! Asking someone at the terminal for what must not be seen.

use std::io::{BufRead, IsTerminal};

use castle_secrets::Secret;
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use zeroize::Zeroizing;

use crate::output;

/// What is typed, unseen; none if nobody is there or they want no more.
pub(crate) fn ask(question: &str) -> Option<Secret> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return None;
    }
    let usual = tcgetattr(&input).ok()?;
    let mut unseen = usual.clone();
    // Ctrl-C arrives as a character, so that the terminal can be put right before castle ends.
    unseen.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
    tcsetattr(&input, OptionalActions::Flush, &unseen).ok()?;
    output::prompt(question);
    let typed = line(input.lock());
    output::prompt("\n");
    let _ = tcsetattr(&input, OptionalActions::Flush, &usual);
    typed
}

fn line(input: impl BufRead) -> Option<Secret> {
    const INTERRUPT: u8 = 3;
    const END: u8 = 4;
    const CLEAR: u8 = 21;
    let mut typed = Zeroizing::new(Vec::with_capacity(4096));
    for byte in input.bytes() {
        match byte.ok()? {
            b'\n' | b'\r' => return String::from_utf8(typed.to_vec()).ok().map(Secret::from),
            INTERRUPT | END => return None,
            CLEAR => typed.clear(),
            8 | 127 => {
                // A character may be several bytes.
                while typed.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {}
            }
            byte => typed.push(byte),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_typed_and_corrected() {
        let typed = |bytes: &[u8]| line(bytes).map(|secret| secret.expose().to_owned());
        assert_eq!(typed(b"hunter2\n").as_deref(), Some("hunter2"));
        assert_eq!(typed("hü\u{7f}unter3\u{8}2\r".as_bytes()).as_deref(), Some("hunter2"));
        assert_eq!(typed(b"wrong\x15hunter2\n").as_deref(), Some("hunter2"));
        assert_eq!(typed(b"hunter2\x03"), None);
        assert_eq!(typed(b"hunter2"), None);
    }
}
