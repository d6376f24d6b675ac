//! Git hosts beside the datacenter: repositories with branches and commits, reached over smart HTTP (protocol version 2), and by
//! the source controllers of clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::datacenter::Datacenter;

pub(crate) mod line;
mod objects;
mod wire;

use objects::{Id, commit_id, hex};

/// The branch of a repository that follows files elsewhere.
const FOLLOWING_BRANCH: &str = "main";
const FOLLOWING_MESSAGE: &str = "The folder as it is now";

/// What tells the files of a repository as they are now, by its path without an ending: nothing if there is no such repository,
/// and for people why they cannot be had.
pub type RepositorySource = Arc<dyn Fn(&str) -> Result<Option<BTreeMap<String, Vec<u8>>>, String> + Send + Sync>;

/// The files of a commit by their paths.
pub(crate) type Files = BTreeMap<String, Arc<[u8]>>;

/// All hosts, and where they listen.
#[derive(Default)]
pub(crate) struct Hosts {
    by_name: BTreeMap<String, Host>,
    /// Which host listens at an address of this machine.
    doors: BTreeMap<String, String>,
}

#[derive(Default)]
struct Host {
    is_down: bool,
    /// What it shows of itself by SSH: `ssh-ed25519 AAAA...`.
    host_key: String,
    /// The authority that signed its certificate, as PEM; without one it is a public one.
    authority: String,
    /// By path, without an ending.
    repositories: BTreeMap<String, Repository>,
    /// What everybody must show who comes from outside of the datacenter.
    outer_token: Option<String>,
    /// Where repositories come from that nobody pushes to.
    source: Option<RepositorySource>,
}

/// A repository. It has no `Debug`: it holds what opens it.
#[derive(Default)]
pub(crate) struct Repository {
    /// Without this, a key or an app everybody may read it, except by SSH.
    token: Option<String>,
    /// The private key whose public half the host knows.
    key: Option<String>,
    /// The number and the private key of an app that is installed.
    app: Option<(String, String)>,
    branches: BTreeMap<String, Id>,
    commits: BTreeMap<Id, Commit>,
    /// Whether it follows files elsewhere: whatever branch is asked for is then the same.
    is_following: bool,
}

pub(crate) struct Commit {
    files: Files,
    parent: Option<Id>,
    /// What is hashed besides the files.
    message: String,
    at: u64,
}

/// Why a commit cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// There is no such host.
    NoHost,
    /// It does not answer.
    Down,
    /// The credential is wrong, or missing.
    Credential,
    /// Its certificate is signed by an authority that is not known.
    Untrusted,
    /// Who answers by SSH is not the one that is known.
    HostKey,
    /// The key of SSH is not known.
    Key,
    /// The app is not known, or its key is another.
    App,
    /// There is no such repository.
    NoRepository,
    /// Nothing was ever pushed.
    Empty,
    /// There is no such branch.
    NoBranch,
    /// The files that it follows cannot be had.
    Source(String),
}

/// What a credential is shown as.
pub(crate) enum Shown<'a> {
    Nothing,
    /// A password or a token.
    Token(&'a str),
    /// A key of SSH, and the hosts that are known.
    Key {
        identity: &'a str,
        known_hosts: &'a str,
    },
    /// An app: its number and its key.
    App {
        id: &'a str,
        key: &'a str,
    },
}

/// Whether a file of known hosts has a line for a host with this key.
fn knows(known_hosts: &str, host: &str, key: &str) -> bool {
    known_hosts.lines().filter_map(|line| line.trim().split_once(' ')).any(|(names, rest)| {
        let is_named = names.split(',').any(|name| name == host || name == format!("[{host}]:22"));
        let mut words = rest.split_whitespace();
        is_named && key.split_whitespace().take(2).all(|word| words.next() == Some(word))
    })
}

/// The host and the path of an address.
fn parts(url: &str) -> (String, String) {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    (host.to_ascii_lowercase(), plain(path))
}

/// A path without slashes around it, and without an ending.
fn plain(path: &str) -> String {
    let path = path.trim_matches('/');
    path.strip_suffix(".git").unwrap_or(path).to_owned()
}

impl Hosts {
    /// Whether a host is up; nothing if there is none of this name.
    pub(crate) fn state(&self, host: &str) -> Option<bool> {
        self.by_name.get(&host.to_ascii_lowercase()).map(|host| !host.is_down)
    }

    pub(crate) fn listens(&mut self, address: String, host: &str) {
        self.doors.insert(address, host.to_ascii_lowercase());
    }

    /// Whether somebody from outside of the datacenter may ask a host for anything.
    fn lets_in(&self, host: &str, token: Option<&str>) -> bool {
        let wanted = self.by_name.get(host).and_then(|host| host.outer_token.as_deref());
        wanted.is_none() || wanted == token
    }

    fn repository(&self, host: &str, path: &str) -> Option<&Repository> {
        self.by_name.get(host)?.repositories.get(path)
    }

    fn repository_mut(&mut self, url: &str) -> &mut Repository {
        let (host, path) = parts(url);
        self.by_name.entry(host).or_default().repositories.entry(path).or_default()
    }

    /// Looks at the files that a repository follows: what has changed is its next commit.
    fn refresh(&mut self, host: &str, path: &str) -> Result<(), String> {
        let Some(host) = self.by_name.get_mut(host) else { return Ok(()) };
        let Some(source) = &host.source else { return Ok(()) };
        match source(path)? {
            Some(files) => host.repositories.entry(path.to_owned()).or_default().follow(files),
            None => drop(host.repositories.remove(path)),
        }
        Ok(())
    }

    /// The newest commit of a branch, or one by its id, with its files; for whoever trusts these authorities beside the public ones.
    pub(crate) fn read(
        &mut self,
        url: &str,
        branch: &str,
        commit: &str,
        (shown, trusted): (&Shown<'_>, &str),
    ) -> Result<(String, Files), Refusal> {
        let (name, path) = parts(url);
        let bare = name.split(':').next().unwrap_or_default();
        let known = [name.as_str(), bare].into_iter().find(|name| self.by_name.contains_key(*name));
        let name = known.or_else(|| self.doors.get(&name).map(String::as_str)).ok_or(Refusal::NoHost)?.to_owned();
        if self.by_name.get(&name).ok_or(Refusal::NoHost)?.is_down {
            return Err(Refusal::Down);
        }
        let authority = self.by_name.get(&name).map(|host| host.authority.trim()).unwrap_or_default();
        if url.starts_with("https://") && !trusted.contains(authority) {
            return Err(Refusal::Untrusted);
        }
        self.refresh(&name, &path).map_err(Refusal::Source)?;
        let host = self.by_name.get(&name).ok_or(Refusal::NoHost)?;
        let repository = host.repositories.get(&path).ok_or(Refusal::NoRepository)?;
        if let Shown::Key { known_hosts, .. } = shown
            && !knows(known_hosts, &name, &host.host_key)
        {
            return Err(Refusal::HostKey);
        }
        repository.lets_in(shown)?;
        if repository.branches.is_empty() {
            return Err(Refusal::Empty);
        }
        let wanted = repository.commits.keys().find(|id| hex(id) == commit);
        let head = if commit.is_empty() { repository.branch(branch) } else { wanted };
        let found = head.and_then(|id| Some((hex(id), repository.commits.get(id)?)));
        found.map(|(id, commit)| (id, commit.files.clone())).ok_or(Refusal::NoBranch)
    }
}

impl Repository {
    fn lets_in(&self, shown: &Shown<'_>) -> Result<(), Refusal> {
        let is_public = self.token.is_none() && self.key.is_none() && self.app.is_none();
        let (is_let_in, refusal) = match shown {
            Shown::Nothing => (is_public, Refusal::Credential),
            Shown::Token(token) => (is_public || self.token.as_deref() == Some(*token), Refusal::Credential),
            Shown::Key { identity, .. } => {
                (self.key.as_deref().is_some_and(|own| own.trim() == identity.trim()), Refusal::Key)
            }
            Shown::App { id, key } => {
                let is_own = |(own, own_key): &(String, String)| own == id && own_key.trim() == key.trim();
                (self.app.as_ref().is_some_and(is_own), Refusal::App)
            }
        };
        if is_let_in { Ok(()) } else { Err(refusal) }
    }

    fn branch(&self, name: &str) -> Option<&Id> {
        self.branches.get(if self.is_following { FOLLOWING_BRANCH } else { name })
    }

    /// Makes a commit of these files unless the newest holds the same. The same files one after another are the same commits,
    /// whenever that happens.
    fn follow(&mut self, files: BTreeMap<String, Vec<u8>>) {
        self.is_following = true;
        let newest = self.branch("").and_then(|id| self.commits.get(id)).map(|commit| &commit.files);
        let kept = |path: &String, bytes: Vec<u8>| -> Arc<[u8]> {
            let same = newest.and_then(|files| files.get(path)).filter(|known| ***known == *bytes);
            same.cloned().unwrap_or_else(|| bytes.into())
        };
        let files: Files = files.into_iter().map(|(path, bytes)| (path.clone(), kept(&path, bytes))).collect();
        if newest != Some(&files) {
            let at = self.commits.len() as u64;
            self.push(FOLLOWING_BRANCH, files, FOLLOWING_MESSAGE, at);
        }
    }

    fn push(&mut self, branch: &str, files: Files, message: &str, at: u64) -> String {
        let parent = self.branches.get(branch).copied();
        let commit = Commit { files, parent, message: message.to_owned(), at };
        let id = commit_id(&commit);
        self.commits.insert(id, commit);
        self.branches.insert(branch.to_owned(), id);
        hex(&id)
    }
}

/// What people do with repositories.
impl Datacenter {
    /// Adds an empty repository at this address (`https://git.example.com/team/castle.git`), for those who know a token, or
    /// for everybody. One that is there only gets the token.
    pub fn add_repository(&self, url: &str, token: Option<&str>) {
        self.world().git.repository_mut(url).token = token.map(str::to_owned);
    }

    /// Lets whoever has this private key read a repository by SSH; its host shows this key (`ssh-ed25519 AAAA...`) of its own.
    pub fn admit_key(&self, url: &str, identity: &str, host_key: &str) {
        let mut world = self.world();
        world.git.repository_mut(url).key = Some(identity.to_owned());
        world.git.by_name.entry(parts(url).0).or_default().host_key = host_key.to_owned();
    }

    /// Has the certificate of a host signed by this authority (as PEM), and no longer by a public one.
    pub fn sign_git_host(&self, host: &str, authority: &str) {
        let mut world = self.world();
        authority.trim().clone_into(&mut world.git.by_name.entry(host.to_ascii_lowercase()).or_default().authority);
    }

    /// Lets an app of GitHub's read a repository: its number, and its private key.
    pub fn admit_app(&self, url: &str, id: &str, key: &str) {
        self.world().git.repository_mut(url).app = Some((id.to_owned(), key.to_owned()));
    }

    /// Pushes a commit that holds just these files, and tells its id.
    pub fn push(&self, url: &str, branch: &str, files: &BTreeMap<String, Vec<u8>>, message: &str) -> String {
        let mut world = self.world();
        let at = world.epoch();
        let files = files.iter().map(|(path, bytes)| (path.clone(), Arc::from(bytes.as_slice()))).collect();
        let id = world.git.repository_mut(url).push(branch, files, message, at);
        world.touch();
        id
    }

    /// Gives a host the repositories that this source tells: each is the files as they are whenever somebody asks, on whatever
    /// branch, and every change is a commit.
    pub fn follow_repositories(&self, host: &str, source: RepositorySource) {
        self.world().git.by_name.entry(host.to_ascii_lowercase()).or_default().source = Some(source);
    }

    /// Asks whoever comes to a host from outside of the datacenter for this token. Clusters in it are inside.
    pub fn close_git_host(&self, host: &str, token: &str) {
        self.world().git.by_name.entry(host.to_ascii_lowercase()).or_default().outer_token = Some(token.to_owned());
    }

    /// Deletes a branch; without any the repository is empty.
    pub fn delete_branch(&self, url: &str, branch: &str) {
        self.world().git.repository_mut(url).branches.remove(branch);
    }

    /// Takes a host of repositories down, or brings it up again.
    pub fn git_down(&self, host: &str, is_down: bool) {
        self.world().git.by_name.entry(host.to_ascii_lowercase()).or_default().is_down = is_down;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const URL: &str = "https://git.embedded/blue.git";

    type Told = Result<Option<BTreeMap<String, Vec<u8>>>, String>;

    /// A host that follows what is told here.
    fn following() -> (Hosts, Arc<Mutex<Told>>) {
        let told: Arc<Mutex<Told>> = Arc::new(Mutex::new(Ok(None)));
        let (mut hosts, seen) = (Hosts::default(), told.clone());
        hosts.by_name.entry("git.embedded".to_owned()).or_default().source =
            Some(Arc::new(move |path| if path == "blue" { seen.lock().unwrap().clone() } else { Ok(None) }));
        (hosts, told)
    }

    fn one(text: &str) -> Told {
        Ok(Some(BTreeMap::from([("a.yaml".to_owned(), text.as_bytes().to_vec())])))
    }

    #[test]
    fn what_is_followed_is_a_history_of_its_changes() {
        let read = |hosts: &mut Hosts, branch: &str| hosts.read(URL, branch, "", (&Shown::Nothing, ""));
        let run = || {
            let (mut hosts, told) = following();
            assert_eq!(read(&mut hosts, "main"), Err(Refusal::NoRepository));
            let mut ids = Vec::new();
            for text in ["1", "1", "2", "1"] {
                *told.lock().unwrap() = one(text);
                let (id, files) = read(&mut hosts, "main").unwrap();
                assert_eq!(read(&mut hosts, "any/other").unwrap().0, id);
                assert_eq!(&*files["a.yaml"], text.as_bytes());
                ids.push(id);
            }
            let first = hosts.read(URL, "main", &ids[0], (&Shown::Nothing, "")).unwrap();
            assert_eq!(&*first.1["a.yaml"], b"1", "what was before is still there");
            ids
        };
        let ids = run();
        assert!(ids[0] == ids[1] && ids[1] != ids[2] && ids[0] != ids[3], "a change back is a change: {ids:?}");
        assert_eq!(ids, run());
    }

    #[test]
    fn what_cannot_be_followed_says_why() {
        let (mut hosts, told) = following();
        *told.lock().unwrap() = one("1");
        let read = |hosts: &mut Hosts, url: &str| hosts.read(url, "main", "", (&Shown::Nothing, "")).map(|(id, _)| id);
        let id = read(&mut hosts, URL).unwrap();
        *told.lock().unwrap() = Err("the folder is gone".to_owned());
        assert_eq!(read(&mut hosts, URL), Err(Refusal::Source("the folder is gone".to_owned())));
        *told.lock().unwrap() = one("1");
        assert_eq!(read(&mut hosts, URL), Ok(id), "nothing has changed since");
        assert_eq!(read(&mut hosts, "https://git.embedded/green.git"), Err(Refusal::NoRepository));
    }
}
