//! The files of the newest commit of a branch, fetched over smart HTTP: protocol version 2, one commit deep.

mod pack;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use castle_http::{Answer, Ask, Bytes, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, Dial};
use thiserror::Error;

use crate::tree::Tree;
use wire::Packet;

/// How long one request may take. A repository of manifests is small.
const DEADLINE: Duration = Duration::from_secs(60);
/// How large a pack may be.
const MAX_PACK_BYTES: usize = 64 << 20;
const GIT_PROTOCOL: HeaderName = HeaderName::from_static("git-protocol");
const UPLOAD_PACK: &str = "/git-upload-pack";

/// Why a repository cannot be read. No text holds a credential, or what the other end said.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum GitError {
    /// The address is none that can be asked here.
    #[error("the repository's {0}")]
    Address(String),
    /// It is reached by SSH, which castle does not speak.
    #[error("a repository that is reached by SSH cannot be read from here: Flux will, but nobody can judge it before")]
    Ssh,
    /// Nobody answers.
    #[error("the repository does not answer: {0}")]
    Unreachable(String),
    /// The credential was refused, or one is needed.
    #[error("{}", if *.given { "the repository refuses the credential" } else { "the repository wants a credential" })]
    CredentialRejected {
        /// Whether one was given.
        given: bool,
    },
    /// There is no repository at the address.
    #[error("there is no repository at this address, or the credential may not see it (HTTP {0})")]
    NotFound(u16),
    /// What answers is no Git server that speaks protocol version 2.
    #[error("what answers at this address is no Git server of today: {0}")]
    NotGit(&'static str),
    /// Nothing was ever pushed.
    #[error("the repository is empty: push a first commit")]
    Empty,
    /// The branch is not there.
    #[error("the repository has no branch {branch}; it has {}", if .others.is_empty() { "none".to_owned() } else { .others.join(", ") })]
    BranchMissing {
        /// The branch that was asked for.
        branch: String,
        /// Some that are there.
        others: Vec<String>,
    },
    /// It is larger than any GitOps repository.
    #[error("the repository is larger than castle reads of one: {0}")]
    TooLarge(&'static str),
    /// What was sent does not hold together.
    #[error("what the repository sent is damaged: {0}")]
    Damaged(&'static str),
}

/// A repository and the branch that is meant.
#[derive(Clone, Copy)]
pub struct Remote<'r> {
    /// Its address.
    pub address: &'r str,
    /// The branch.
    pub branch: &'r str,
    /// The token that may read it. Goes nowhere but into the header of the requests.
    pub token: Option<&'r str>,
}

impl std::fmt::Debug for Remote<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("branch", &self.branch)
            .field("has_token", &self.token.is_some())
            .finish_non_exhaustive()
    }
}

/// The newest commit of a branch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Commit {
    /// Its id.
    pub id: String,
    /// Its files.
    pub tree: Tree,
}

/// Whether an address is one of SSH: `ssh://...` or `git@host:path`.
#[must_use]
pub fn is_ssh(address: &str) -> bool {
    address.starts_with("ssh://") || (!address.contains("://") && address.contains('@') && address.contains(':'))
}

/// Fetches the newest commit of a branch, without its history.
///
/// # Errors
///
/// [`GitError`], each kind of trouble its own.
pub async fn fetch(
    remote: Remote<'_>,
    trust: &Trust,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
) -> Result<Commit, GitError> {
    if is_ssh(remote.address) {
        return Err(GitError::Ssh);
    }
    let endpoint = Endpoint::parse(remote.address)
        .map_err(|error| GitError::Address(error.to_string().trim_start_matches("the ").to_owned()))?;
    let client =
        Client::new(endpoint, trust, dial, clock).map_err(|error| GitError::Address(format!("address: {error}")))?;
    let session = Session { client: client.with_deadline(DEADLINE).with_limit(MAX_PACK_BYTES), token: remote.token };
    session.greet().await?;
    let branches = session.branches().await?;
    let wanted = format!("refs/heads/{}", remote.branch);
    let head = match branches.iter().find(|(name, _)| *name == wanted) {
        Some((_, id)) => id.clone(),
        None if branches.is_empty() => return Err(GitError::Empty),
        None => {
            let others = branches.iter().filter_map(|(name, _)| name.strip_prefix("refs/heads/")).take(10);
            return Err(GitError::BranchMissing {
                branch: remote.branch.to_owned(),
                others: others.map(str::to_owned).collect(),
            });
        }
    };
    let pack = session.pack(&head).await?;
    let objects = pack::read(&pack)?;
    Ok(Commit { tree: pack::tree(&objects, &head)?, id: head })
}

struct Session<'r> {
    client: Client,
    token: Option<&'r str>,
}

impl Session<'_> {
    async fn ask(&self, mut ask: Ask) -> Result<Answer, GitError> {
        ask.headers.insert(GIT_PROTOCOL, HeaderValue::from_static("version=2"));
        if let Some(token) = self.token {
            // Who has a token may have any name.
            let basic = STANDARD.encode(format!("git:{}", token.trim()));
            let mut value = HeaderValue::from_str(&format!("Basic {basic}"))
                .map_err(|_| GitError::CredentialRejected { given: true })?;
            value.set_sensitive(true);
            ask.headers.insert(AUTHORIZATION, value);
        }
        let answer = self.client.ask(&ask).await.map_err(|failure| match failure {
            castle_http::Failure::TooLarge => GitError::TooLarge("its newest commit, packed"),
            failure => GitError::Unreachable(failure.to_string()),
        })?;
        match answer.status.as_u16() {
            200 => Ok(answer),
            401 | 403 => Err(GitError::CredentialRejected { given: self.token.is_some() }),
            300..=399 => Err(GitError::NotGit("it sends elsewhere; the address may need .git at its end")),
            404 | 410 => Err(GitError::NotFound(answer.status.as_u16())),
            status => Err(GitError::Unreachable(format!("it answers with HTTP {status}"))),
        }
    }

    /// Makes sure that a Git server is there that speaks as we do.
    async fn greet(&self) -> Result<(), GitError> {
        let answer = self.ask(Ask::new(Method::GET, "/info/refs?service=git-upload-pack")).await?;
        let packets = wire::packets(&answer.body).map_err(|_| GitError::NotGit("it does not answer like one"))?;
        let speaks =
            packets.iter().any(|packet| matches!(packet, Packet::Data(data) if data.trim_ascii_end() == b"version 2"));
        if speaks { Ok(()) } else { Err(GitError::NotGit("it does not speak protocol version 2")) }
    }

    async fn command(&self, name: &str, arguments: &[String]) -> Result<Bytes, GitError> {
        let mut ask = Ask::new(Method::POST, UPLOAD_PACK);
        let kind = HeaderValue::from_static("application/x-git-upload-pack-request");
        ask.headers.insert(CONTENT_TYPE, kind);
        ask.body = wire::command(name, arguments).into();
        Ok(self.ask(ask).await?.body)
    }

    /// The branches and their newest commits.
    async fn branches(&self) -> Result<Vec<(String, String)>, GitError> {
        let body = self.command("ls-refs", &["ref-prefix refs/heads/".to_owned()]).await?;
        let mut branches = Vec::new();
        for packet in wire::packets(&body)? {
            let Packet::Data(data) = packet else { continue };
            let line = std::str::from_utf8(data).map_err(|_| GitError::Damaged("a branch without a name"))?;
            let (id, name) = line.trim_end().split_once(' ').ok_or(GitError::Damaged("a branch without a name"))?;
            let name = name.split(' ').next().unwrap_or(name);
            branches.push((name.to_owned(), id.to_owned()));
        }
        Ok(branches)
    }

    /// The pack with one commit and all its files.
    async fn pack(&self, id: &str) -> Result<Vec<u8>, GitError> {
        let arguments = ["no-progress", "ofs-delta", "deepen 1", &format!("want {id}"), "done"].map(str::to_owned);
        let body = self.command("fetch", &arguments).await?;
        wire::pack(&body)
    }
}
