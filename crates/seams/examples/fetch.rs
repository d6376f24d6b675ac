//! Asks a web server for a page through the real doors: `fetch HOST PORT PATH`. Prints the answer as it came, or why there
//! is none. `cargo xtask peers` runs it against servers nobody here wrote.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "an example speaks")]

use std::process::ExitCode;
use std::time::Duration;

use castle_seams::{Dial, SystemClock, Target, TcpDial, deadline};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, host, port, path] = args.as_slice() else {
        eprintln!("usage: fetch HOST PORT PATH");
        return ExitCode::FAILURE;
    };
    match deadline(&SystemClock::new(), Duration::from_secs(10), fetch(host, port, path)).await {
        Ok(Ok(answer)) => {
            print!("{answer}");
            ExitCode::SUCCESS
        }
        Ok(Err(why)) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
        Err(elapsed) => {
            eprintln!("{elapsed}");
            ExitCode::FAILURE
        }
    }
}

async fn fetch(host: &str, port: &str, path: &str) -> Result<String, Box<dyn std::error::Error>> {
    let target = Target::new(host, port.parse()?);
    let mut stream = TcpDial { timeout: Duration::from_secs(5) }.dial(&target).await?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {target}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
