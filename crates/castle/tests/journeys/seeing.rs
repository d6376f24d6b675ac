//! What someone at a terminal sees while castle works: a real one, of a size of its own.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::room::Room;

/// castle at a terminal of 80 columns and 24 rows: the process, and what it sends there.
fn watched(room: &Room, args: &[&str], variables: &[(&str, &str)]) -> (Child, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    tcsetwinsize(&terminal, Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let end = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_castle"));
    command.args(args).current_dir(room.world.path("")).env_clear().env("HOME", room.world.path(""));
    command.env("TERM", "xterm-256color").envs(variables.iter().copied());
    let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
    (child, File::from(terminal))
}

/// All that is sent until castle ends, and how it ends.
fn seen(room: &Room, args: &[&str], variables: &[(&str, &str)]) -> (String, Option<i32>) {
    let (mut child, terminal) = watched(room, args, variables);
    let sent = rest(terminal);
    (sent, child.wait().unwrap().code())
}

/// What is still sent. That the other end is closed is an error on a terminal, and the end for us.
fn rest(mut terminal: File) -> String {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = terminal.read(&mut piece) {
        all.extend_from_slice(&piece[..read]);
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Whether it is drawn over what was there.
fn is_drawn(sent: &str) -> bool {
    sent.contains("\u{1b}[J")
}

#[test]
fn on_a_terminal_a_picture_and_a_line_for_what_was_done() {
    let room = Room::new(60);
    let (sent, code) = seen(&room, &["up"], &[]);
    assert_eq!(code, Some(0), "{sent}");
    let picture = sent.rsplit("\u{1b}[?2026h").find(|frame| frame.contains("blue-worker-2")).unwrap_or_default();
    for words in ["up blue on embedded", "platform", " of ", "blue-cp-1"] {
        assert!(picture.contains(words), "{words}: {picture:?}");
    }
    let (_, closing) = sent.rsplit_once("\u{1b}[J").unwrap();
    assert!(closing.contains("raised in "), "nothing is drawn after the closing word: {closing:?}");
    assert!(sent.contains("platform/vm/blue-cp-1  clone"), "{sent}");
    assert!(!sent.contains("platform/vm/blue-cp-1  done"), "one line for each: {sent}");
    assert!(!sent.contains("\u{1b}[?25l"), "the cursor is never taken away");
    // Nothing to do is done too soon to be drawn.
    let (sent, code) = seen(&room, &["plan"], &[]);
    assert!(code == Some(0) && !is_drawn(&sent), "{sent:?}");

    let (sent, code) = seen(&room, &["down", "--yes"], &[("NO_COLOR", "1")]);
    assert_eq!(code, Some(0), "{sent}");
    assert!(!sent.contains("\u{1b}[1m") && !sent.contains("\u{1b}[3"), "no colour: {sent:?}");
}

#[test]
fn elsewhere_lines_with_times() {
    let room = Room::new(400);
    for variables in [("TERM", "dumb"), ("CI", "true"), ("TERM", "")] {
        let (sent, code) = seen(&room, &["up"], &[variables]);
        assert!(code == Some(0) && !is_drawn(&sent), "{variables:?}: {sent:?}");
        assert!(sent.contains(" s  platform/vm/blue-cp-1  clone\r\n"), "{variables:?}: {sent}");
        assert_eq!(room.castle(&["down", "--yes"]).code, Some(0));
    }
    let (sent, code) = seen(&room, &["up", "--quiet"], &[]);
    assert!(code == Some(0) && sent.is_empty(), "{sent:?}");
    let (sent, _) = seen(&room, &["up", "--json"], &[]);
    assert!(sent.starts_with('{') && !is_drawn(&sent), "{sent:?}");
}

#[test]
fn interrupted_it_leaves_a_clean_screen() {
    let room = Room::new(20);
    let (mut child, mut terminal) = watched(&room, &["up"], &[]);
    let (mut sent, mut piece) = (String::new(), [0; 4096]);
    while !sent.contains("download") {
        let read = terminal.read(&mut piece).unwrap();
        sent += &String::from_utf8_lossy(&piece[..read]);
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let rest = rest(terminal);
    assert_eq!(child.wait().unwrap().code(), Some(130), "{rest}");
    assert!(rest.contains("stopping when what is under way has ended"), "{rest:?}");
    let (_, closing) = rest.rsplit_once("\u{1b}[J").unwrap();
    assert!(closing.contains("Interrupted. ") && !closing.contains("\u{1b}[K"), "{closing:?}");
}
