//! castle as its users meet it: the real binary, in an empty home, on real files.
#![allow(clippy::disallowed_methods, reason = "tests stand outside: they make the files castle looks at")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on should say so and stop")]

mod bad_input;
mod check;
mod commands;
mod git;
mod new;
mod problems;
mod world;
