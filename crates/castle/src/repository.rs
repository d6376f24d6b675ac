//! The Git repository that Flux follows: what Flux is told of it, and how castle reads it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use castle_engine::{Class, Fault};
use castle_gitops::git::{self, GitError, Remote};
use castle_gitops::{Tree, TreeError};
use castle_http::Trust;
use castle_layers::preflight;
use castle_secrets::Secret;
use castle_secrets::validate::{self, Kind, Origin};
use castle_spec::model::Gitops;

use crate::doors::Doors;
use crate::embedded;
use crate::keeping::Kept;

/// A host that does not answer the first packet for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What stands for a folder of this machine that the embedded datacenter follows.
const EMBEDDED: &str = "embedded";
/// That folder, unless the file names another.
const EMBEDDED_FOLDER: &str = "gitops";
/// The branch, where no file names one.
const BRANCH: &str = "main";
/// Names a file with authorities to Git, and so to whoever reads for it.
const AUTHORITIES: &str = "GIT_SSL_CAINFO";
/// No file of authorities is longer.
const MAX_AUTHORITIES_BYTES: u64 = 1 << 20;
const BY_AN_APP: &str =
    "a repository that an app of GitHub's may read cannot be read from here: Flux will, but nobody can judge it before";

/// A repository, and the branch that is meant.
pub(crate) struct Repository {
    /// What Flux is told: its address.
    pub(crate) url: String,
    /// And its branch.
    pub(crate) branch: String,
    way: Way,
    doors: Doors,
}

/// How castle reads it.
enum Way {
    /// From a Git server. Its address may be another than the one by which the cluster reaches it.
    Server { address: String, trust: Trust, login: Option<Login> },
    /// From a folder of this machine.
    Folder(PathBuf),
    /// Not at all, and why.
    Closed(String),
}

/// Who castle is to a Git server.
enum Login {
    Password { username: Secret, password: Secret },
    Bearer(Secret),
}

impl Login {
    /// By the parts of a credential, as Flux takes them; nothing if castle cannot.
    fn of(mut parts: BTreeMap<String, Secret>) -> Option<Self> {
        if let Some(token) = parts.remove("bearerToken") {
            return Some(Self::Bearer(token));
        }
        Some(Self::Password { username: parts.remove("username")?, password: parts.remove("password")? })
    }

    fn shown(&self) -> git::Login<'_> {
        match self {
            Self::Password { username, password } => {
                git::Login::Password { username: username.expose(), password: password.expose() }
            }
            Self::Bearer(token) => git::Login::Bearer(token.expose()),
        }
    }
}

/// The files, and the commit they are of.
pub(crate) struct Found {
    pub(crate) tree: Tree,
    /// A folder has none.
    pub(crate) commit: Option<String>,
}

/// Why a repository is not read.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Flux may well read it, but castle cannot: why.
    NotFromHere(String),
    /// What castle.yaml or the command line says of it cannot be.
    Invalid(Fault),
    /// It did not work.
    Failed(Fault),
}

impl Unread {
    /// What is told when a server did not give it.
    fn server(url: &str, branch: &str, error: &GitError) -> Self {
        let fault = preflight::fault(url, branch, error);
        match error {
            GitError::BranchMissing { .. } | GitError::Empty | GitError::Address(_) => Self::Invalid(fault),
            // Castle's bounds are not Flux's.
            GitError::TooLarge(_) => Self::NotFromHere(error.to_string()),
            _ => Self::Failed(fault),
        }
    }

    /// What is told of a folder that is not read.
    fn folder(folder: &Path, error: &TreeError) -> Self {
        match error {
            TreeError::TooLarge(_) => Self::NotFromHere(error.to_string()),
            TreeError::Unreadable(_) => {
                Self::Invalid(Fault::new(Class::Final, folder.display().to_string(), error.to_string()))
            }
        }
    }
}

impl Repository {
    /// The one that castle.yaml names, if it names one. Nothing is asked of it yet.
    pub(crate) async fn of(kept: &Kept) -> Result<Option<Self>, Unread> {
        let Some(gitops) = kept.castle.gitops.as_ref() else { return Ok(None) };
        let url = gitops.repository.as_str();
        let way = match url {
            EMBEDDED => return folder_of(kept).map(|folder| followed(kept, &folder)).transpose(),
            _ => match server(kept, url)? {
                Way::Server { address, trust, .. } => opened(kept, gitops, address, trust).await?,
                way => way,
            },
        };
        Ok(Some(Self::new(kept, url, way)))
    }

    /// One at another place: an address, or else a folder. The credential is for the one that castle.yaml names, and goes nowhere
    /// else.
    pub(crate) fn at(kept: &Kept, place: &str) -> Result<Self, Unread> {
        let is_address = place.contains("://") || git::is_ssh(place);
        let way = if is_address { server(kept, place)? } else { Way::Folder(place.into()) };
        Ok(Self::new(kept, place, way))
    }

    fn new(kept: &Kept, url: &str, way: Way) -> Self {
        let branch = kept.castle.gitops.as_ref().map_or(BRANCH, |gitops| gitops.branch.as_str()).to_owned();
        Self { url: url.to_owned(), branch, way, doors: kept.doors.clone() }
    }

    /// The newest commit of the branch; nothing if it cannot be read from here.
    pub(crate) async fn head(&self) -> Result<Option<String>, Fault> {
        match self.source() {
            Ok(Reading::Folder(_)) | Err(Unread::NotFromHere(_)) => Ok(None),
            Ok(Reading::Server(remote, trust)) => {
                let head = git::head(remote, trust, self.doors.dial(CONNECT_TIMEOUT), self.doors.clock.clone()).await;
                head.map(Some).map_err(|error| preflight::fault(&self.url, &self.branch, &error))
            }
            Err(Unread::Invalid(fault) | Unread::Failed(fault)) => Err(fault),
        }
    }

    /// The files of the newest commit of the branch, or of the folder.
    pub(crate) async fn tree(&self) -> Result<Found, Unread> {
        match self.source()? {
            Reading::Folder(folder) => {
                let tree = Tree::of_folder(self.doors.disk.as_ref(), folder)
                    .map_err(|error| Unread::folder(folder, &error))?;
                Ok(Found { tree, commit: None })
            }
            Reading::Server(remote, trust) => {
                let commit =
                    git::fetch(remote, trust, self.doors.dial(CONNECT_TIMEOUT), self.doors.clock.clone()).await;
                let commit = commit.map_err(|error| Unread::server(&self.url, &self.branch, &error))?;
                Ok(Found { tree: commit.tree, commit: Some(commit.id) })
            }
        }
    }

    fn source(&self) -> Result<Reading<'_>, Unread> {
        match &self.way {
            Way::Closed(why) => Err(Unread::NotFromHere(why.clone())),
            Way::Folder(folder) => Ok(Reading::Folder(folder)),
            Way::Server { address, trust, login } => {
                let login = login.as_ref().map(Login::shown);
                Ok(Reading::Server(Remote { address, branch: &self.branch, login }, trust))
            }
        }
    }
}

/// The folder that castle.yaml names, as the embedded datacenter serves it; the folder itself while that does not run.
fn followed(kept: &Kept, folder: &Path) -> Result<Repository, Unread> {
    let wrong = |why: String| Unread::Invalid(Fault::new(Class::Final, folder.display().to_string(), why));
    let Some(serving) = embedded::find(&kept.doors).map_err(wrong)? else {
        return Ok(Repository::new(kept, EMBEDDED, Way::Folder(folder.to_owned())));
    };
    let name = name_of(kept);
    let way = if embedded::is_followed(&kept.doors, &name, folder).map_err(wrong)? {
        let (address, trust) = serving.repository_access(&name).map_err(wrong)?;
        let login = serving
            .keys
            .git
            .clone()
            .map(|password| Login::Password { username: Secret::from(embedded::GIT_USER.to_owned()), password });
        Way::Server { address, trust: kept.doors.trust(trust), login }
    } else {
        Way::Folder(folder.to_owned())
    };
    Ok(Repository::new(kept, &embedded::repository(&name), way))
}

/// What the embedded datacenter calls the repository of a castle.
fn name_of(kept: &Kept) -> String {
    kept.key().replace('/', "-")
}

/// The folder that castle.yaml names, if the embedded datacenter is to serve one.
fn folder_of(kept: &Kept) -> Option<PathBuf> {
    let gitops = kept.castle.gitops.as_ref().filter(|gitops| gitops.repository.as_str() == EMBEDDED)?;
    let folder = gitops.folder.as_ref().map_or(EMBEDDED_FOLDER, |folder| folder.as_str());
    Some(kept.file.parent().unwrap_or(Path::new("")).join(folder))
}

/// Lets the embedded datacenter serve the folder that castle.yaml names, if it names one: from now on Flux follows it.
pub(crate) fn announce(kept: &Kept) -> Result<(), String> {
    let Some(folder) = folder_of(kept) else { return Ok(()) };
    embedded::follow(&kept.doors, &name_of(kept), &folder)
}

/// Where it can be read from.
enum Reading<'r> {
    Folder(&'r Path),
    Server(Remote<'r>, &'r Trust),
}

/// The way to a server, without a credential.
fn server(kept: &Kept, address: &str) -> Result<Way, Unread> {
    if git::is_ssh(address) {
        return Ok(Way::Closed(GitError::Ssh.to_string()));
    }
    let trust = match kept.doors.variables.filled(AUTHORITIES) {
        None => Trust::PublicRoots,
        Some(file) => {
            let bytes = kept.doors.disk.read(Path::new(&file), MAX_AUTHORITIES_BYTES).map_err(|error| {
                Unread::Failed(Fault::new(Class::Final, AUTHORITIES, error.to_string()).next("correct it, or unset it"))
            })?;
            Trust::Authorities(String::from_utf8_lossy(&bytes).into_owned())
        }
    };
    Ok(Way::Server { address: address.to_owned(), trust: kept.doors.trust(trust), login: None })
}

/// The way to a server, with the credential that castle.yaml names for it.
async fn opened(kept: &Kept, gitops: &Gitops, address: String, trust: Trust) -> Result<Way, Unread> {
    let trust = authority(kept, gitops)?.map_or(trust, |own| kept.doors.trust(Trust::Authorities(own)));
    let Some(reference) = &gitops.credential else { return Ok(Way::Server { address, trust, login: None }) };
    let parts = kept.credential(reference, &address).await;
    let parts = parts.map_err(|why| Unread::Failed(Fault::new(Class::Final, "gitops.credential", why)))?;
    Ok(match Login::of(parts) {
        Some(login) => Way::Server { address, trust, login: Some(login) },
        None => Way::Closed(BY_AN_APP.to_owned()),
    })
}

/// The authority of the Git server that castle.yaml names, as PEM.
pub(crate) fn authority(kept: &Kept, gitops: &Gitops) -> Result<Option<String>, Unread> {
    let Some(ca) = &gitops.ca else { return Ok(None) };
    let file = kept.file.parent().unwrap_or(Path::new("")).join(ca.as_str());
    let wrong = |why: String| {
        let next = "gitops.ca is a file with certificates as PEM, beside castle.yaml";
        Unread::Invalid(Fault::new(Class::Final, "gitops.ca", why).next(next))
    };
    let bytes = kept.doors.disk.read(&file, MAX_AUTHORITIES_BYTES).map_err(|error| wrong(error.to_string()))?;
    let pem = String::from_utf8(bytes).map_err(|_| wrong(format!("{} is not text", file.display())))?;
    let origin = Origin::new("gitops.ca", ca.as_str());
    let now = kept.doors.clock.wall();
    validate::check(Kind::CertificateAuthority, &Secret::from(pem.clone()), &origin, now)
        .map_err(|error| wrong(error.to_string()))?;
    Ok(Some(pem))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a repository that is too much for castle stands in nobody's way, for Flux has no such bounds. Method: each way in which one can be.
    #[test]
    fn what_is_too_large_to_judge_is_not_wrong() {
        let server = |error: GitError| Unread::server("https://git.example.com/blue.git", "main", &error);
        let folder = |error: TreeError| Unread::folder(Path::new("gitops"), &error);
        let is_large = |unread: &Unread| matches!(unread, Unread::NotFromHere(why) if why.contains("larger than castle reads") || why.contains("more than castle reads"));
        for unread in
            [server(GitError::TooLarge("its newest commit, packed")), folder(TreeError::TooLarge("gitops".to_owned()))]
        {
            assert!(is_large(&unread), "{unread:?}");
        }
        assert!(matches!(server(GitError::Empty), Unread::Invalid(_)));
        assert!(matches!(server(GitError::NotFound(404)), Unread::Failed(_)));
        assert!(matches!(folder(TreeError::Unreadable("gitops: gone".to_owned())), Unread::Invalid(_)));
    }
}
