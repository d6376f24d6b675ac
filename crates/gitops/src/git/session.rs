//! A conversation with a Git server. It begins with version 2 of the protocol; whoever only knows what was before answers by telling
//! all branches at once, and is understood, too.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use castle_http::{Answer, Ask, Bytes, Client, Endpoint, Failure, Method, Trust};
use castle_seams::{Clock, Dial};

use super::wire::{self, Packet};
use super::{Branch, GitError, Login, Remote, is_ssh};

/// How long one request may take. A repository of manifests is small.
const DEADLINE: Duration = Duration::from_secs(60);
/// How large a pack may be.
const MAX_PACK_BYTES: usize = 64 << 20;
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
const NOT_LIKE_GIT: GitError = GitError::NotGit("it does not answer like one");
const NAMELESS: GitError = GitError::Damaged("a branch without a name");

/// A server that has been greeted.
pub(super) struct Session<'r> {
    client: Client,
    login: Option<Login<'r>>,
    /// What an older server has told of itself: all its branches. One of today is asked for them.
    told: Option<Bytes>,
}

impl<'r> Session<'r> {
    /// Makes sure that a Git server is there.
    pub(super) async fn begin(
        remote: Remote<'r>,
        trust: &Trust,
        dial: Arc<dyn Dial>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, GitError> {
        if is_ssh(remote.address) {
            return Err(GitError::Ssh);
        }
        let endpoint = Endpoint::parse(remote.address)
            .map_err(|error| GitError::Address(error.to_string().trim_start_matches("the ").to_owned()))?;
        let client = Client::new(endpoint, trust, dial, clock)
            .map_err(|error| GitError::Address(format!("address: {error}")))?;
        let client = client.with_deadline(DEADLINE).with_limit(MAX_PACK_BYTES);
        let session = Self { client, login: remote.login, told: None };
        let body = session.ask(Ask::new(Method::GET, "/info/refs?service=git-upload-pack")).await?.body;
        let packets = wire::packets(&body).map_err(|_| NOT_LIKE_GIT)?;
        let says = |line: &[u8]| packets.iter().filter_map(Packet::line).any(|said| said == line);
        match () {
            () if says(b"version 2") => Ok(session),
            () if says(b"# service=git-upload-pack") => Ok(Self { told: Some(body), ..session }),
            () => Err(NOT_LIKE_GIT),
        }
    }

    async fn ask(&self, mut ask: Ask) -> Result<Answer, GitError> {
        if self.told.is_none() {
            ask.headers.insert(GIT_PROTOCOL, HeaderValue::from_static("version=2"));
        }
        if let Some(login) = self.login {
            let header = match login {
                Login::Password { username, password } => {
                    format!("Basic {}", STANDARD.encode(format!("{}:{}", username.trim(), password.trim())))
                }
                Login::Bearer(token) => format!("Bearer {}", token.trim()),
            };
            let mut value = HeaderValue::from_str(&header).map_err(|_| GitError::CredentialRejected { given: true })?;
            value.set_sensitive(true);
            ask.headers.insert(AUTHORIZATION, value);
        }
        let answer = self.client.ask(&ask).await.map_err(|failure| match failure {
            Failure::TooLarge => GitError::TooLarge("its newest commit, packed"),
            Failure::Untrusted(why) => GitError::Untrusted(why),
            Failure::NotSent(why) | Failure::Lost(why) => GitError::Unreachable(why),
        })?;
        match answer.status.as_u16() {
            200 => Ok(answer),
            401 | 403 => Err(GitError::CredentialRejected { given: self.login.is_some() }),
            404 | 410 => Err(GitError::NotFound(answer.status.as_u16())),
            300..=399 => Err(GitError::NotGit("it sends elsewhere; the address may need .git at its end")),
            status @ (408 | 429 | 500..) => Err(GitError::Unreachable(format!("it answers with HTTP {status}"))),
            _ => Err(GitError::NotGit("it does not know what Git asks")),
        }
    }

    async fn upload_pack(&self, body: String) -> Result<Bytes, GitError> {
        let mut ask = Ask::new(Method::POST, "/git-upload-pack");
        let kind = HeaderValue::from_static("application/x-git-upload-pack-request");
        ask.headers.insert(CONTENT_TYPE, kind);
        ask.body = body.into();
        Ok(self.ask(ask).await?.body)
    }

    /// The branches and their newest commits.
    pub(super) async fn branches(&self) -> Result<Vec<Branch>, GitError> {
        let body = match &self.told {
            Some(told) => told.clone(),
            None => self.upload_pack(wire::command("ls-refs", &["ref-prefix refs/heads/"])).await?,
        };
        let mut branches = Vec::new();
        for line in wire::packets(&body)?.iter().filter_map(Packet::line) {
            // Older servers tell what they can do behind their first reference.
            let line = line.split(|byte| *byte == 0).next().unwrap_or(line);
            let line = std::str::from_utf8(line).map_err(|_| NAMELESS)?;
            if self.told.is_some() && (line.starts_with('#') || line == "version 1") {
                continue;
            }
            let (id, name) = line.split_once(' ').ok_or(NAMELESS)?;
            if id.len() != 40 || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(GitError::Damaged("a branch without a commit"));
            }
            let name = name.split(' ').next().unwrap_or(name);
            if let Some(name) = name.strip_prefix("refs/heads/") {
                branches.push(Branch { name: name.to_owned(), id: id.to_owned() });
            }
        }
        Ok(branches)
    }

    /// The pack with one commit and all its files.
    pub(super) async fn pack(&self, id: &str) -> Result<Vec<u8>, GitError> {
        let body = match &self.told {
            Some(_) => self.upload_pack(wire::old_fetch(id)).await?,
            None => {
                let want = format!("want {id}");
                let arguments = ["no-progress", "ofs-delta", "deepen 1", &want, "done"];
                self.upload_pack(wire::command("fetch", &arguments)).await?
            }
        };
        wire::pack(&body)
    }
}
