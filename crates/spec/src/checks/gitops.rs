//! Whether Flux can follow the repository, and whether each Kustomization is waited for in one way.

use crate::model::{Castle, Platform};
use crate::problem::{Code, Problem, Problems};

/// What stands for a folder of this machine.
const EMBEDDED: &str = "embedded";

pub(super) fn check(castle: &Castle, problems: &mut Problems) {
    let Some(gitops) = &castle.gitops else { return };
    let address = &gitops.repository;
    let is_embedded = address.as_str() == EMBEDDED;
    match &castle.platform.value {
        Platform::Proxmox(_) if is_embedded => problems.report(
            Problem::new(Code::RepositoryAddress, "the embedded repository is a simulation, and this castle is not")
                .at(address.origin, "a folder of this machine, which its cluster cannot reach")
                .hint("push the folder to a Git server, and give its address"),
        ),
        _ if is_embedded || ["https://", "ssh://"].iter().any(|scheme| address.as_str().starts_with(scheme)) => {}
        _ => problems.report(
            Problem::new(Code::RepositoryAddress, "Flux reads a repository by `https://` or `ssh://`")
                .at(address.origin, "neither")
                .hint("for example `https://github.com/me/castle.git`, or `ssh://git@github.com/me/castle.git`"),
        ),
    }
    if let Some(folder) = gitops.folder.as_ref().filter(|_| !is_embedded) {
        problems.report(
            Problem::new(Code::RepositoryAddress, "a folder, and a repository that is not one")
                .at(folder.origin, "only `repository: embedded` follows a folder")
                .given(address.origin)
                .hint("remove `folder`; where in the repository Flux begins is `path`"),
        );
    }
    for (name, _) in gitops.background.iter() {
        if let Some((other, _)) = gitops.critical.iter().find(|(other, _)| other.value == name.value) {
            problems.report(
                Problem::new(Code::KustomizationTwice, format!("{} is critical and in the background", name.value))
                    .at(name.origin, "nobody waits for it")
                    .at(other.origin, "the castle does not stand without it")
                    .hint("remove one of the two"),
            );
        }
    }
}
