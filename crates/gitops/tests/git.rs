//! Repositories that real git made, served by real git, fetched by castle.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use castle_gitops::Tree;
use castle_gitops::git::{Commit, GitError, Login, Remote, fetch, head};
use castle_http::Trust;
use castle_seams::{BoxFuture, ByteStream, Dial, DialError, SystemDisk, Target};
use castle_testbed::in_virtual_time;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

const TOKEN: &str = "of-no-use-anywhere-else";

/// Runs git in a folder, without anything of this machine's settings.
fn git(folder: &Path, args: &[&str]) -> String {
    let mut command = Command::new("git");
    command.current_dir(folder).env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", folder);
    command.args(["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]);
    let output = command.args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// git's own server behind a pipe.
#[derive(Clone)]
struct Server {
    root: PathBuf,
    /// Whether a token is wanted.
    is_private: bool,
    /// Whether it does not know version 2 of the protocol.
    is_old: bool,
    /// Said instead of an answer.
    instead: Option<&'static str>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(root: &Path) -> Self {
        Self { root: root.to_owned(), is_private: false, is_old: false, instead: None, asked: Arc::default() }
    }

    fn answer(&self, head: &str, body: &[u8]) -> Vec<u8> {
        self.asked.lock().unwrap().push(head.to_owned());
        let header =
            |name: &str| head.lines().find_map(|line| line.to_lowercase().strip_prefix(name).map(str::to_owned));
        if let Some(text) = self.instead {
            return text.as_bytes().to_vec();
        }
        let wanted = STANDARD.encode(format!("git:{TOKEN}"));
        let is_let_in = head.contains(&format!("Basic {wanted}"))
            || head.lines().any(|line| line.ends_with(&format!(": Bearer {TOKEN}")));
        if self.is_private && !is_let_in {
            return b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n".to_vec();
        }
        let mut words = head.split(' ');
        let (method, target) = (words.next().unwrap(), words.next().unwrap());
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut backend = Command::new("git");
        backend.arg("http-backend").env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        backend.env("GIT_PROJECT_ROOT", &self.root).env("GIT_HTTP_EXPORT_ALL", "1").env("HOME", &self.root);
        backend.env("GIT_CONFIG_COUNT", "1").env("GIT_CONFIG_KEY_0", "safe.directory").env("GIT_CONFIG_VALUE_0", "*");
        backend.env("REQUEST_METHOD", method).env("PATH_INFO", path).env("QUERY_STRING", query);
        backend.env("CONTENT_TYPE", header("content-type: ").unwrap_or_default());
        backend.env("CONTENT_LENGTH", body.len().to_string());
        if !self.is_old {
            backend.env("GIT_PROTOCOL", header("git-protocol: ").unwrap_or_default());
        }
        let mut child = backend.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(body).unwrap();
        let output = child.wait_with_output().unwrap().stdout;
        let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let said = String::from_utf8_lossy(&output[..end]);
        let status = said.lines().find_map(|line| line.strip_prefix("Status: ")).unwrap_or("200 OK");
        let content = &output[end + 4..];
        [format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", content.len()).as_bytes(), content].concat()
    }
}

impl Dial for Server {
    fn dial<'a>(&'a self, _: &'a Target) -> BoxFuture<'a, Result<Box<dyn ByteStream>, DialError>> {
        let (ours, mut theirs) = duplex(1 << 16);
        let server = self.clone();
        tokio::spawn(async move {
            let mut seen = Vec::new();
            let mut chunk = [0; 4096];
            while let Ok(count) = theirs.read(&mut chunk).await {
                seen.extend_from_slice(&chunk[..count]);
                let Some(end) = seen.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
                    if count == 0 { return } else { continue }
                };
                let head = String::from_utf8_lossy(&seen[..end]).into_owned();
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
                let whole = end + 4 + length.unwrap_or(0);
                while seen.len() < whole {
                    let count = theirs.read(&mut chunk).await.unwrap();
                    seen.extend_from_slice(&chunk[..count]);
                }
                let answer = server.answer(&head, &seen[end + 4..whole]);
                seen.drain(..whole);
                if theirs.write_all(&answer).await.is_err() {
                    return;
                }
            }
        });
        Box::pin(async { Ok(Box::new(ours) as Box<dyn ByteStream>) })
    }
}

fn fetched(server: &Server, address: &str, branch: &str, token: Option<&str>) -> Result<Commit, GitError> {
    in_virtual_time(async |clock| {
        fetch(
            Remote { address, branch, login: token.map(Login::token) },
            &Trust::PublicRoots,
            Arc::new(server.clone()),
            Arc::new(*clock),
        )
        .await
    })
}

fn headed(server: &Server, address: &str, branch: &str, token: Option<&str>) -> Result<String, GitError> {
    in_virtual_time(async |clock| {
        head(
            Remote { address, branch, login: token.map(Login::token) },
            &Trust::PublicRoots,
            Arc::new(server.clone()),
            Arc::new(*clock),
        )
        .await
    })
}

/// A repository with some history: files that change a little, so that there are differences.
fn repository() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    let write = |path: &str, text: &str| support::write_at(&work.join(path), text);
    write("README.md", "first\n");
    git(&work, &["init", "--quiet"]);
    let long: String = (0..2000).map(|line| format!("line {line} of a manifest that is long enough\n")).collect();
    // What castle does not read of a repository, but must get past: a file that is too large, and links.
    let noise: String =
        (0_u64..600_000).map(|line| format!("{:x}\n", line.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    assert!(noise.len() as u64 > castle_gitops::MAX_FILE_BYTES);
    write("docs/video.txt", &noise);
    // Packed as differences to it, or it to them.
    write("docs/longer.txt", &format!("{noise}{noise}more\n"));
    write("docs/again.txt", &format!("one\n{noise}\n"));
    std::os::unix::fs::symlink("README.md", work.join("link.md")).unwrap();
    std::os::unix::fs::symlink("nowhere", work.join("docs/dangling")).unwrap();
    for round in 0..3 {
        write("clusters/blue/all.yaml", &format!("round: {round}\n"));
        for file in 0..5 {
            write(&format!("apps/{file}/long.yaml"), &format!("{long}in round {round} of {file}\n"));
        }
        git(&work, &["add", "--all"]);
        git(&work, &["commit", "--quiet", "--message", "round"]);
    }
    git(&work, &["branch", "other", "HEAD~1"]);
    git(root.path(), &["clone", "--quiet", "--bare", "work", "site.git"]);
    git(&root.path().join("site.git"), &["repack", "-adfq", "--depth=50", "--window=50"]);
    root
}

#[test]
fn the_newest_commit_of_a_branch_is_what_git_checks_out() {
    let root = repository();
    let work = root.path().join("work");
    for (is_old, questions) in [(false, 2), (true, 1)] {
        let server = Server { is_old, ..Server::new(root.path()) };
        let asked = || server.asked.lock().unwrap().drain(..).count();
        for branch in ["main", "other"] {
            git(&work, &["checkout", "--quiet", branch]);
            let id = git(&work, &["rev-parse", branch]);
            assert_eq!(headed(&server, "http://git.example/site.git", branch, None).unwrap(), id);
            assert_eq!(asked(), questions, "a greeting and the branches, which older servers tell at once");
            let commit = fetched(&server, "http://git.example/site.git", branch, None).unwrap();
            assert_eq!(asked(), questions + 1, "and the pack");
            assert_eq!(commit.id, id);
            assert_eq!(commit.tree, Tree::of_folder(&SystemDisk, &work).unwrap());
            assert_eq!(commit.tree.below("apps").count(), 5);
        }
    }
}

#[test]
fn each_kind_of_trouble_is_its_own() {
    let root = repository();
    git(root.path(), &["init", "--quiet", "--bare", "empty.git"]);
    let server = Server::new(root.path());
    let missing =
        GitError::BranchMissing { branch: "nowhere".to_owned(), others: vec!["main".to_owned(), "other".to_owned()] };
    assert_eq!(missing.to_string(), "the repository has no branch nowhere; it has main, other");
    for is_old in [false, true] {
        let server = Server { is_old, ..server.clone() };
        for (repository, branch, expected) in [
            ("site", "nowhere", &missing),
            ("empty", "main", &GitError::Empty),
            ("none", "main", &GitError::NotFound(404)),
        ] {
            let address = format!("http://git.example/{repository}.git");
            assert_eq!(fetched(&server, &address, branch, None).unwrap_err(), *expected);
            assert_eq!(headed(&server, &address, branch, None).unwrap_err(), *expected);
            assert!(!expected.may_pass());
        }
    }
    for ssh in ["ssh://git@git.example/site.git", "git@git.example:me/site.git"] {
        assert_eq!(fetched(&server, ssh, "main", None).unwrap_err(), GitError::Ssh);
    }
    assert!(matches!(fetched(&server, "git.example", "main", None), Err(GitError::Address(_))));
    for (said, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>", "it does not answer like one"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n0000", "it does not answer like one"),
        ("HTTP/1.1 400 Bad\r\ncontent-length: 0\r\n\r\n", "it does not know what Git asks"),
        ("HTTP/1.1 301 Moved\r\ncontent-length: 0\r\n\r\n", "it sends elsewhere; the address may need .git at its end"),
    ] {
        let server = Server { instead: Some(said), ..Server::new(root.path()) };
        let found = fetched(&server, "http://git.example/site.git", "main", None).unwrap_err();
        assert_eq!(found, GitError::NotGit(expected));
    }
    let server = Server { instead: Some("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n"), ..server };
    let found = fetched(&server, "http://git.example/site.git", "main", None).unwrap_err();
    assert_eq!(found, GitError::Unreachable("it answers with HTTP 503".to_owned()));
    assert!(found.may_pass());
}

#[test]
fn a_credential_opens_what_is_private_and_is_never_shown() {
    let root = repository();
    let server = Server { is_private: true, ..Server::new(root.path()) };
    let address = "http://git.example/site.git";
    assert_eq!(fetched(&server, address, "main", None).unwrap_err(), GitError::CredentialRejected { given: false });
    let wrong = fetched(&server, address, "main", Some("wrong-token")).unwrap_err();
    assert_eq!(wrong, GitError::CredentialRejected { given: true });
    assert!(!format!("{wrong} {wrong:?}").contains("wrong-token"));
    assert!(fetched(&server, address, "main", Some(TOKEN)).is_ok());
    assert_eq!(headed(&server, address, "main", Some("wrong-token")).unwrap_err(), wrong);
    assert!(headed(&server, address, "main", Some(TOKEN)).is_ok());
    let asked = |login: Login<'_>| {
        let (server, remote) = (Arc::new(server.clone()), Remote { address, branch: "main", login: Some(login) });
        in_virtual_time(async |clock| head(remote, &Trust::PublicRoots, server, Arc::new(*clock)).await)
    };
    assert!(asked(Login::Bearer(TOKEN)).is_ok());
    assert_eq!(asked(Login::Bearer("wrong-token")).unwrap_err(), wrong);
    assert_eq!(asked(Login::Password { username: "me", password: TOKEN }).unwrap_err(), wrong, "a name counts");
    let remote =
        Remote { address: "https://me:secret@git.example/x", branch: "main", login: Some(Login::token(TOKEN)) };
    assert!(!format!("{remote:?}").contains(TOKEN) && !format!("{remote:?}").contains("secret"));
    let refused = fetched(&server, remote.address, "main", None).unwrap_err();
    assert!(!format!("{refused} {refused:?}").contains("secret"));
}
