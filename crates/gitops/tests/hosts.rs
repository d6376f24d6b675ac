//! Repositories of the embedded datacenter, asked and fetched by castle: over pipes in virtual time, and over loopback with TLS.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say so and stop")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Blueprint, Datacenter, Latencies};
use castle_gitops::git::{GitError, Login, Remote, fetch, head};
use castle_http::Trust;
use castle_seams::{Clock, Dial, SystemClock, TcpDial};
use castle_testbed::in_virtual_time;

const HOST: &str = "git.example.com";
const URL: &str = "https://git.example.com/team/castle.git";
/// Pipes have no TLS.
const PIPED: &str = "http://git.example.com:80/team/castle.git";
const TOKEN: &str = "of-no-use-anywhere-else";

fn files(text: &str) -> BTreeMap<String, Vec<u8>> {
    let large: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
    [("clusters/blue/all.yaml", text.as_bytes().to_vec()), ("large", large)]
        .map(|(path, it)| (path.to_owned(), it))
        .into()
}

/// How castle reaches a repository.
struct Way {
    address: String,
    trust: Trust,
    dial: Arc<dyn Dial>,
    clock: Arc<dyn Clock>,
}

impl Way {
    async fn head(&self, branch: &str, token: Option<&str>) -> Result<String, GitError> {
        let remote = Remote { address: &self.address, branch, login: token.map(Login::token) };
        let head = head(remote, &self.trust, self.dial.clone(), self.clock.clone()).await;
        let fetched = fetch(remote, &self.trust, self.dial.clone(), self.clock.clone()).await;
        assert_eq!(head, fetched.map(|commit| commit.id), "whoever asks and whoever fetches are told the same");
        head
    }
}

/// Goal: what happens to repositories is told as what it is. Method: the datacenter's interventions, one after the other.
async fn through_bad_days(datacenter: &Datacenter, way: &Way) {
    assert_eq!(way.head("main", None).await, Err(GitError::NotFound(404)));
    datacenter.add_repository(URL, None);
    assert_eq!(way.head("main", None).await, Err(GitError::Empty));
    let first = datacenter.push(URL, "main", &files("one: 1\n"), "first");
    assert_eq!(way.head("main", None).await, Ok(first));
    let second = datacenter.push(URL, "main", &files("two: 2\n"), "second");
    assert_eq!(way.head("main", None).await, Ok(second.clone()));
    let others = vec!["main".to_owned()];
    let missing = GitError::BranchMissing { branch: "live".to_owned(), others };
    assert_eq!(way.head("live", None).await, Err(missing));
    datacenter.add_repository(URL, Some(TOKEN));
    assert_eq!(way.head("main", None).await, Err(GitError::CredentialRejected { given: false }));
    assert_eq!(way.head("main", Some("wrong")).await, Err(GitError::CredentialRejected { given: true }));
    assert_eq!(way.head("main", Some(TOKEN)).await, Ok(second.clone()));
    let remote = Remote { address: &way.address, branch: "main", login: Some(Login::token(TOKEN)) };
    let commit = fetch(remote, &way.trust, way.dial.clone(), way.clock.clone()).await.unwrap();
    let fetched: BTreeMap<String, Vec<u8>> =
        commit.tree.below("").map(|(path, bytes)| (path.to_owned(), bytes.to_vec())).collect();
    assert_eq!(fetched, files("two: 2\n"));
    datacenter.git_down(HOST, true);
    let down = way.head("main", Some(TOKEN)).await.unwrap_err();
    assert!(down.may_pass() && matches!(down, GitError::Unreachable(_)), "{down:?}");
    datacenter.git_down(HOST, false);
    assert_eq!(way.head("main", Some(TOKEN)).await, Ok(second));
    datacenter.delete_branch(URL, "main");
    assert_eq!(way.head("main", Some(TOKEN)).await, Err(GitError::Empty));
}

#[test]
fn over_pipes() {
    in_virtual_time(async |clock| {
        let clock: Arc<dyn Clock> = Arc::new(*clock);
        let datacenter = Datacenter::new(Blueprint::embedded(&[]), clock.clone());
        datacenter.git_down(HOST, false);
        let way = Way { address: PIPED.to_owned(), trust: Trust::PublicRoots, dial: datacenter.dial(), clock };
        through_bad_days(&datacenter, &way).await;
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn over_loopback() {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let datacenter = Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), clock.clone());
    datacenter.git_down(HOST, false);
    let serving = datacenter.serve_git(HOST, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let trust = Trust::fingerprint(&serving.fingerprint).unwrap();
    let dial: Arc<dyn Dial> = Arc::new(TcpDial { timeout: Duration::from_secs(10) });
    let way = Way { address: format!("https://{}/team/castle.git", serving.address), trust, dial, clock };
    through_bad_days(&datacenter, &way).await;
    let stranger = Way { trust: Trust::PublicRoots, ..way };
    let told = stranger.head("main", Some(TOKEN)).await.unwrap_err();
    assert!(!told.may_pass() && matches!(told, GitError::Untrusted(_)), "{told:?}");
}
