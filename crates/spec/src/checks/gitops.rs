//! Whether Flux can follow the repository, and whether each Kustomization is waited for in one way.

use crate::model::{Castle, Platform};
use crate::problem::{Code, Problem, Problems};

/// What stands for a folder of this machine.
const EMBEDDED: &str = "embedded";
/// The first Kustomization.
const FIRST: &str = "flux-system";
/// What every manifest may use.
const OWN_VARIABLE: &str = "castle_name";

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
    if let Some(ca) = gitops.ca.as_ref().filter(|_| !address.as_str().starts_with("https://")) {
        problems.report(
            Problem::new(Code::RepositoryAddress, "an authority, and a repository that shows no certificate")
                .at(ca.origin, "only a server at `https://` has one")
                .given(address.origin)
                .hint("remove `ca`; for `ssh://`, the host is known by `known_hosts` of the credential"),
        );
    }
    for (name, _) in gitops.critical.iter().chain(gitops.background.iter()) {
        if name.value.as_str() == FIRST {
            problems.report(
                Problem::new(Code::KustomizationTwice, format!("{FIRST} is waited for as it is"))
                    .at(name.origin, "the first Kustomization, which castle makes")
                    .given(gitops.within.origin)
                    .hint("remove it; how long it may take is said by `within`"),
            );
        }
    }
    if let Some((name, _)) = gitops.vars.iter().find(|(name, _)| name.value.as_str() == OWN_VARIABLE) {
        problems.report(
            Problem::new(Code::VariableReserved, format!("{OWN_VARIABLE} is castle's own variable"))
                .at(name.origin, format!("always the name of the castle: `{}`", castle.castle.as_str()))
                .hint("give yours another name"),
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
