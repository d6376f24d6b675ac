//! The real `kubectl`, with a server's address and credentials.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::suite::server::Server;

/// The program, and a folder of its own with a configuration.
pub(crate) struct Kubectl {
    program: PathBuf,
    home: tempfile::TempDir,
}

impl Kubectl {
    pub(crate) fn new(program: &Path, server: &Server) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (authority, url) = (STANDARD.encode(&server.authority), &server.url);
        let (certificate, key) = (STANDARD.encode(&server.admin.certificate), STANDARD.encode(&server.admin.key));
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: castle\n\
             clusters: [{{name: castle, cluster: {{server: '{url}', certificate-authority-data: {authority}}}}}]\n\
             users: [{{name: castle, user: {{client-certificate-data: {certificate}, client-key-data: {key}}}}}]\n\
             contexts: [{{name: castle, context: {{cluster: castle, user: castle}}}}]\n"
        );
        std::fs::write(home.path().join("config"), config).unwrap();
        Self { program: program.to_owned(), home }
    }

    /// Runs it to its end: the status, then what it said, complaints last.
    pub(crate) fn run(&self, words: &str, input: &str) -> String {
        std::fs::write(self.home.path().join("input"), input).unwrap();
        let input = std::fs::File::open(self.home.path().join("input")).unwrap();
        let mut command = Command::new(&self.program);
        command.args(words.split(' ')).stdin(Stdio::from(input)).current_dir(self.home.path());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.env("HOME", self.home.path()).env("KUBECONFIG", self.home.path().join("config"));
        let output = command.output().unwrap();
        let status = output.status.code().unwrap_or(-1);
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        format!("{status}\n{}", said.concat())
    }
}
