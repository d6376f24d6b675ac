//! The newest commit of a branch, asked for or fetched over smart HTTP: protocol version 2, or what older servers speak; one commit
//! deep.

mod pack;
mod session;
mod wire;

use std::sync::Arc;

use castle_http::Trust;
use castle_seams::{Clock, Dial};
use thiserror::Error;

use crate::tree::Tree;
use session::Session;

/// Why a repository cannot be read. No text holds a credential, or what the other end said.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
pub enum GitError {
    /// The address is none that can be asked here.
    #[error("the repository's {0}")]
    Address(String),
    /// It is reached by SSH, which castle does not speak.
    #[error("a repository that is reached by SSH cannot be read from here: Flux will, but nobody can judge it before")]
    Ssh,
    /// Nobody answers, or only that it cannot be now.
    #[error("the repository does not answer: {0}")]
    Unreachable(String),
    /// What answers shows a certificate that is not believed.
    #[error("the repository's server is not believed: {0}")]
    Untrusted(String),
    /// The credential was refused, or one is needed.
    #[error("{}", if *.given { "the repository refuses the credential" } else { "the repository wants a credential" })]
    CredentialRejected {
        /// Whether one was given.
        given: bool,
    },
    /// There is no repository at the address.
    #[error("there is no repository at this address, or the credential may not see it (HTTP {0})")]
    NotFound(u16),
    /// What answers is no Git server.
    #[error("what answers at this address is no Git server: {0}")]
    NotGit(&'static str),
    /// Nothing was ever pushed.
    #[error("the repository is empty: nothing was ever pushed")]
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

impl GitError {
    /// Whether the same question may be answered later, though nobody mends anything.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Damaged(_))
    }
}

/// A repository and the branch that is meant.
#[derive(Clone, Copy)]
pub struct Remote<'r> {
    /// Its address.
    pub address: &'r str,
    /// The branch.
    pub branch: &'r str,
    /// Who may read it.
    pub login: Option<Login<'r>>,
}

/// Who reads a repository. Goes nowhere but into the header of the requests, and has no `Debug`.
#[derive(Clone, Copy)]
pub enum Login<'r> {
    /// Somebody with a password; a token is one, too.
    Password {
        /// The name.
        username: &'r str,
        /// The password.
        password: &'r str,
    },
    /// Whoever bears this token.
    Bearer(&'r str),
}

impl<'r> Login<'r> {
    /// Whoever has a token may have any name.
    #[must_use]
    pub fn token(token: &'r str) -> Self {
        Self::Password { username: "git", password: token }
    }
}

impl std::fmt::Debug for Remote<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote")
            .field("branch", &self.branch)
            .field("has_login", &self.login.is_some())
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

/// Asks for the newest commit of a branch: its id, and nothing of what is in it.
///
/// # Errors
///
/// [`GitError`], each kind of trouble its own.
pub async fn head(
    remote: Remote<'_>,
    trust: &Trust,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
) -> Result<String, GitError> {
    let session = Session::begin(remote, trust, dial, clock).await?;
    find(&session.branches().await?, remote.branch)
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
    let session = Session::begin(remote, trust, dial, clock).await?;
    let id = find(&session.branches().await?, remote.branch)?;
    let objects = pack::read(&session.pack(&id).await?)?;
    Ok(Commit { tree: pack::tree(&objects, &id)?, id })
}

fn find(branches: &[Branch], wanted: &str) -> Result<String, GitError> {
    if let Some(branch) = branches.iter().find(|branch| branch.name == wanted) {
        return Ok(branch.id.clone());
    }
    if branches.is_empty() {
        return Err(GitError::Empty);
    }
    let others = branches.iter().map(|branch| branch.name.clone()).take(10).collect();
    Err(GitError::BranchMissing { branch: wanted.to_owned(), others })
}

/// A branch, and its newest commit.
struct Branch {
    name: String,
    id: String,
}
