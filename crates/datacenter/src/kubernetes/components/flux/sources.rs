//! Repositories as the source controller sees them.

use std::time::Duration;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::credentials::{Credential, credential, not_installed};
use super::{CHART_SOURCES, REPOSITORIES, build, mark, span};
use crate::git::{Files, Refusal, Shown};
use crate::kubernetes::components::{Component, ComponentFault, secret_text};
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;

const WRITER: Writer<'_> = Writer { name: "source-controller", subresource: "" };
const STATUS: Writer<'_> = Writer { name: "source-controller", subresource: "status" };
const MINUTE: Duration = Duration::from_secs(60);

/// What is wanted of a Git host. It has no `Debug`: it holds a credential.
pub(crate) struct GitErrand {
    url: String,
    branch: String,
    commit: String,
    credential: Credential,
    /// Whom it trusts beside public authorities.
    authority: String,
}

impl GitErrand {
    /// Fetches it: the id of the commit, and its files.
    pub(crate) fn run(&self, hosts: &mut crate::git::Hosts) -> Result<(String, Files), (&'static str, String)> {
        let shown = match &self.credential {
            Credential::None => Shown::Nothing,
            Credential::Token(token) => Shown::Token(token),
            Credential::Key { identity, known_hosts } => Shown::Key { identity, known_hosts },
            Credential::App { id, key, .. } => Shown::App { id, key },
        };
        hosts
            .read(&self.url, &self.branch, &self.commit, (&shown, &self.authority))
            .map_err(|refusal| self.refused(refusal))
    }

    /// What the controller says of a refusal, and for which reason: an app is turned away before Git is asked.
    fn refused(&self, refusal: Refusal) -> (&'static str, String) {
        match (&refusal, &self.credential) {
            (Refusal::App, Credential::App { installation, .. }) => {
                ("AuthenticationFailed", not_installed(installation))
            }
            _ => ("GitOperationFailed", self.said(refusal)),
        }
    }

    /// What the controller says of a refusal.
    fn said(&self, refusal: Refusal) -> String {
        let url = &self.url;
        match refusal {
            Refusal::NoHost => format!("unable to list remote for '{url}': dial tcp: lookup: no such host"),
            Refusal::Down => format!("unable to list remote for '{url}': dial tcp: connect: connection refused"),
            Refusal::Credential | Refusal::App => {
                format!("unable to list remote for '{url}': authentication required")
            }
            Refusal::Untrusted => format!(
                "unable to list remote for '{url}': Get \"{url}/info/refs?service=git-upload-pack\": tls: failed to verify certificate: x509: \
                 certificate signed by unknown authority"
            ),
            Refusal::HostKey => {
                format!("unable to list remote for '{url}': ssh: handshake failed: knownhosts: key is unknown")
            }
            Refusal::Key => format!(
                "unable to list remote for '{url}': ssh: handshake failed: ssh: unable to authenticate, attempted methods [none publickey], \
                 no supported methods remain"
            ),
            Refusal::NoRepository => format!("unable to list remote for '{url}': repository not found"),
            Refusal::Source(why) => format!("unable to list remote for '{url}': {why}"),
            Refusal::Empty => format!("unable to list remote for '{url}': remote repository is empty"),
            Refusal::NoBranch if self.commit.is_empty() => {
                format!("unable to clone '{url}': couldn't find remote ref \"refs/heads/{}\"", self.branch)
            }
            Refusal::NoBranch => format!("unable to resolve commit object for '{}': object not found", self.commit),
        }
    }
}

/// The revision as Flux writes it.
fn revision(branch: &str, commit: &str) -> String {
    if branch.is_empty() { format!("sha1:{commit}") } else { format!("{branch}@sha1:{commit}") }
}

fn branch(repository: &Value) -> String {
    let (branch, commit) = (value::text(repository, "spec.ref.branch"), value::text(repository, "spec.ref.commit"));
    if branch.is_empty() && commit.is_empty() { "master".to_owned() } else { branch.to_owned() }
}

impl Kube {
    pub(super) fn sync_sources(&mut self) {
        for key in self.keys(REPOSITORIES, "") {
            let Some(repository) = self.get(&key.0, &key.1, &key.2) else { continue };
            if value::is_deleting(&repository) {
                self.let_go(&WRITER, &key);
                continue;
            }
            self.hold(&WRITER, &key);
            if value::is_true(&repository, "spec.suspend") {
                continue;
            }
            let (mark, now) = (self.mark_of_repository(&repository), self.now);
            if !self.components.flux.fetched.entry(key.clone()).or_default().begins(now, &mark) {
                continue;
            }
            if value::at(&repository, "status.artifact").is_none()
                && value::items(&repository, "status.conditions").is_empty()
            {
                let told = [
                    ("Reconciling", "True", "Progressing", "building artifact"),
                    ("Ready", "Unknown", "Progressing", "building artifact"),
                ];
                self.say_flux(&STATUS, &key, &told, |_| {});
            }
            self.send_errand(Component::Flux, key);
        }
        self.sync_chart_sources();
    }

    fn mark_of_repository(&self, repository: &Value) -> String {
        let secret = value::text(repository, "spec.secretRef.name");
        let secret = self.get("secrets", value::namespace(repository), secret);
        let version = secret.map(|secret| value::text(&secret, "metadata.resourceVersion").to_owned());
        format!("{} {}", mark(repository), version.unwrap_or_default())
    }

    /// What is to be asked for a repository, or why nothing can be: a reason and a text.
    pub(crate) fn git_errand(&self, of: &Key) -> Result<GitErrand, (&'static str, String)> {
        let repository = self.get(&of.0, &of.1, &of.2);
        let repository = repository.ok_or_else(|| ("GitOperationFailed", "the object is gone".to_owned()))?;
        let url = value::text(&repository, "spec.url").to_owned();
        let name = value::text(&repository, "spec.secretRef.name");
        let secret = match name {
            "" => None,
            name => Some(self.get("secrets", &of.1, name).ok_or_else(|| {
                let why = format!(
                    "failed to get secret '{0}/{name}': failed to get secret '{0}/{name}': Secret {name:?} not found",
                    of.1
                );
                ("AuthenticationFailed", why)
            })?),
        };
        let credential = credential(&repository, &url, secret.as_deref())?;
        let commit = value::text(&repository, "spec.ref.commit").to_owned();
        let authority = secret.and_then(|secret| secret_text(&secret, "ca.crt")).unwrap_or_default();
        let errand = GitErrand { url, branch: branch(&repository), commit, credential, authority };
        match self.git_fault() {
            Some(refusal) => Err(("GitOperationFailed", errand.said(refusal))),
            None => Ok(errand),
        }
    }

    /// How every repository refuses, if that is what goes wrong.
    fn git_fault(&self) -> Option<Refusal> {
        let all = [
            (ComponentFault::GitUnreachable, Refusal::Down),
            (ComponentFault::GitCredential, Refusal::Credential),
            (ComponentFault::GitEmpty, Refusal::Empty),
            (ComponentFault::GitBranch, Refusal::NoBranch),
        ];
        all.into_iter().find(|(fault, _)| self.suffers(Component::Flux, *fault)).map(|(_, refusal)| refusal)
    }

    /// What came of an errand.
    pub(crate) fn git_told(&mut self, of: &Key, told: Result<(String, Files), (&'static str, String)>) {
        let Some(repository) = self.get(&of.0, &of.1, &of.2) else {
            self.components.flux.fetched.remove(of);
            return;
        };
        let is_well = told.is_ok();
        match told {
            Ok((commit, files)) => {
                self.keep_artifact(of, &repository, &revision(&branch(&repository), &commit), &files);
            }
            Err((reason, why)) => {
                let message = match reason {
                    "GitOperationFailed" => format!("failed to checkout and determine revision: {why}"),
                    _ => why,
                };
                let told = [
                    ("Reconciling", "True", "ProgressingWithRetry", message.as_str()),
                    ("Ready", "False", reason, &message),
                    ("FetchFailed", "True", reason, &message),
                ];
                let has_artifact = value::at(&repository, "status.artifact").is_some();
                let kept = ("ArtifactInStorage", "True", "Succeeded", "stored artifact");
                let told: Vec<_> = told.into_iter().chain(has_artifact.then_some(kept)).collect();
                self.say_flux(&STATUS, of, &told, Self::handled);
                self.tell("source-controller", &repository, false, reason, &message);
            }
        }
        let (mark, now) = (self.mark_of_repository(&repository), self.now);
        let again = span(&repository, "spec.interval").unwrap_or(MINUTE);
        let next = self.components.flux.fetched.entry(of.clone()).or_default().ended(now, mark, is_well, again);
        self.flux_again(next);
    }

    fn keep_artifact(&mut self, of: &Key, repository: &Value, revision: &str, files: &Files) {
        let tree = build::fetched(files);
        let mut hash = Sha256::new();
        for (path, bytes) in tree.below("") {
            hash.update(path);
            hash.update(bytes);
        }
        let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        let size: usize = tree.below("").map(|(_, bytes)| bytes.len()).sum();
        let is_new = value::text(repository, "status.artifact.revision") != revision;
        self.components.flux.artifacts.insert(of.clone(), (revision.to_owned(), tree));
        let (namespace, name) = (&of.1, &of.2);
        let (_, commit) = revision.rsplit_once(':').unwrap_or(("", revision));
        let path = format!("gitrepository/{namespace}/{name}/{commit}.tar.gz");
        let url = format!("http://source-controller.{namespace}.svc.cluster.local./{path}");
        let artifact = json!({
            "digest": format!("sha256:{digest}"), "lastUpdateTime": self.stamp(), "path": path, "revision": revision, "size": size, "url": url,
        });
        let message = format!("stored artifact for revision '{revision}'");
        let told =
            [("Ready", "True", "Succeeded", message.as_str()), ("ArtifactInStorage", "True", "Succeeded", &message)];
        self.say_flux(&STATUS, of, &told, |object| {
            if is_new {
                value::set(object, "status.artifact", artifact);
            }
            Self::observe(object);
        });
        if is_new {
            self.tell("source-controller", repository, true, "NewArtifact", &message);
        }
    }

    /// Sources of charts are believed.
    fn sync_chart_sources(&mut self) {
        for key in CHART_SOURCES.into_iter().flat_map(|collection| self.keys(collection, "")).collect::<Vec<_>>() {
            let Some(source) = self.get(&key.0, &key.1, &key.2) else { continue };
            let is_seen =
                value::number(&source, "status.observedGeneration") == value::number(&source, "metadata.generation");
            if value::is_deleting(&source) || value::is_true(&source, "spec.suspend") || is_seen {
                continue;
            }
            let told = [("Ready", "True", "Succeeded", "stored artifact")];
            self.say_flux(&STATUS, &key, &told, Self::observe);
        }
    }
}
