//! The real door to the network, against a server nobody here wrote.

use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::peers::Bench;
use crate::peers::server::Server;
use crate::shell;

pub(super) fn dial(bench: &Bench) -> Result<usize> {
    let fetch = shell::example("fetch")?;
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("page"), "what the server sent\n")?;
    let mut cases = 0;
    for address in ["127.0.0.1", "::1"] {
        let mut python = Command::new(bench.peer("python")?.join("bin/python"));
        python.args(["-u", "-m", "http.server", "0", "--bind", address, "--directory"]).arg(folder.path());
        let server = Server::start(&mut python, |line| line.starts_with("Serving HTTP on "))?;
        let port = server
            .ready
            .split(" port ")
            .nth(1)
            .and_then(|rest| rest.split(' ').next())
            .context("the server names no port")?
            .to_owned();
        let answer = shell::output(Command::new(&fetch).args([address, &port, "/page"]))?;
        ensure!(
            answer.starts_with("HTTP/1.0 200 OK\r\n") && answer.ends_with("\r\n\r\nwhat the server sent\n"),
            "{address}: {answer}"
        );
        drop(server);
        let refused = Command::new(&fetch).args([address, &port, "/page"]).output()?;
        let said = String::from_utf8(refused.stderr)?;
        ensure!(
            !refused.status.success() && said.contains("connection refused"),
            "{address}, after the server ended: {said}"
        );
        cases += 2;
    }
    Ok(cases)
}
