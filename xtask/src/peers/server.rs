//! Servers that a suite needs: started on loopback, ready before the suite goes on, gone when it ends.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// No server takes longer to come up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running server; it is stopped when this goes out of scope.
pub(crate) struct Server {
    child: Child,
    /// The line by which it said that it is ready.
    pub(crate) ready: String,
}

impl Server {
    /// Starts a server and waits until it prints a line that `is_ready` accepts.
    pub(crate) fn start(command: &mut Command, is_ready: fn(&str) -> bool) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot start {program}"))?;
        let output = child.stdout.take().context("the server has no output")?;
        let mut server = Self { child, ready: String::new() };
        let (sender, receiver) = mpsc::channel();
        // Reads on to the end, so that the server never waits for a reader.
        std::thread::spawn(move || {
            let mut lines = BufReader::new(output).lines().map_while(Result::ok);
            if let Some(line) = lines.find(|line| is_ready(line)) {
                let _ = sender.send(line);
            }
            lines.for_each(drop);
        });
        match receiver.recv_timeout(PATIENCE) {
            Ok(line) => server.ready = line,
            Err(_) => bail!("{program} did not say that it is ready"),
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
