//! What a repository is held against before Flux follows it: all that castle makes of a file; and what it means if the repository
//! cannot be read.

use std::collections::BTreeMap;

use castle_engine::{Class, Fault};
use castle_gitops::git::GitError;
use castle_gitops::{Component, EXTERNAL_SECRETS, FLUX, IMAGE_AUTOMATION, LONGHORN, METALLB, World};
use castle_kubernetes::model::Object;
use castle_spec::model::ComponentOwner;
use castle_spec::values::SecretReference;
use castle_spec::{Castle, ComponentName};

use crate::names::{self, AGE_KEY, FLUX_SYSTEM, FROM_VAULT, POOL, STORE, VARIABLES};

/// What will be there by the time Flux enters the repository, at this folder of it or at the file's own. The objects of components
/// are known by their `manifests`, as far as those are at hand, and else by what is known of the kind.
#[must_use]
pub fn world(castle: &Castle, entry: Option<&str>, manifests: &BTreeMap<ComponentName, Vec<Object>>) -> World {
    let mut world = World::new(&entry.map_or_else(|| names::entry(castle), str::to_owned));
    // Whoever has a repository judged has a Flux that will follow it, even if the file does not say so.
    world.find(&FLUX);
    for wanted in castle.wanted_components() {
        let component = known(wanted.name);
        own_objects(&mut world, wanted.name);
        if wanted.owner == ComponentOwner::Flux {
            world.expected.push(component);
            continue;
        }
        world.install(&component);
        for object in manifests.get(&wanted.name).into_iter().flatten() {
            world.apply_object(component.name, object.value().clone());
        }
    }
    if let Some(gitops) = &castle.gitops {
        if gitops.image_automation.value {
            world.served.add_all(IMAGE_AUTOMATION);
        }
        if gitops.ca.is_some() {
            world.give_secret(FLUX_SYSTEM);
        }
        if let Some(reference) = &gitops.credential {
            world.give_secret(FLUX_SYSTEM);
            if matches!(reference.value, SecretReference::Vault(_)) {
                world.give_secret(FROM_VAULT);
                // Where the cluster reads it from the vault, this is what makes the Secret.
                world.own("castle", "external-secrets.io", "ExternalSecret", FLUX_SYSTEM, FROM_VAULT);
            }
        }
        if gitops.age_key.is_some() {
            world.decrypt_with(AGE_KEY);
        }
    }
    world.give_variables(VARIABLES, names::variables(castle));
    world
}

fn known(name: ComponentName) -> Component {
    match name {
        ComponentName::ExternalSecrets => EXTERNAL_SECRETS,
        ComponentName::Metallb => METALLB,
        ComponentName::Longhorn => LONGHORN,
        ComponentName::Flux => FLUX,
    }
}

/// What castle makes beside a component, whoever installs that.
fn own_objects(world: &mut World, name: ComponentName) {
    match name {
        ComponentName::ExternalSecrets => {
            world.stores.insert(STORE.to_owned());
            world.own("castle", "external-secrets.io", "ClusterSecretStore", "", STORE);
        }
        ComponentName::Metallb => {
            for kind in ["IPAddressPool", "L2Advertisement"] {
                world.own("castle", "metallb.io", kind, METALLB.namespace, POOL);
            }
        }
        ComponentName::Longhorn | ComponentName::Flux => {}
    }
}

/// What it means that a branch of a repository cannot be read, and what to do.
#[must_use]
pub fn fault(address: &str, branch: &str, error: &GitError) -> Fault {
    // No part of an address is told that may hold a password.
    let address = match address.split_once("://") {
        Some((scheme, rest)) => format!("{scheme}://{}", rest.rsplit_once('@').map_or(rest, |(_, rest)| rest)),
        None => address.to_owned(),
    };
    let next = match error {
        GitError::Unreachable(_) | GitError::Damaged(_) => {
            format!("see what Git says: git ls-remote {address} {branch}")
        }
        GitError::Untrusted(_) => {
            "only certificates of public authorities are believed, unless gitops.ca in castle.yaml names yours; see who answers: \
             curl -v on the address"
                .to_owned()
        }
        GitError::CredentialRejected { given: true } => {
            "a token expires, and may be for other repositories: make one that may read this one, for GitHub with \
             Contents: read-only, and keep it where gitops.credential says"
                .to_owned()
        }
        GitError::CredentialRejected { given: false } => {
            "make a token that may read it, and name it as gitops.credential in castle.yaml".to_owned()
        }
        GitError::NotFound(_) => {
            "correct gitops.repository in castle.yaml; a private repository hides from whoever may not \
                                  read it: then it is gitops.credential that is wrong"
                .to_owned()
        }
        GitError::NotGit(_) | GitError::Address(_) => {
            "gitops.repository in castle.yaml is the address that git clone takes: https://HOST/PATH.git".to_owned()
        }
        GitError::Empty => format!("git push origin HEAD:{branch}"),
        GitError::BranchMissing { .. } => {
            format!("correct gitops.branch in castle.yaml, or: git push origin HEAD:{branch}")
        }
        GitError::TooLarge(_) => "let Flux follow a repository that holds manifests alone".to_owned(),
        GitError::Ssh => "with a clone of it: castle gitops check FOLDER".to_owned(),
    };
    let class = if error.may_pass() { Class::RetryableAfter(None) } else { Class::Final };
    Fault::new(class, address, error.to_string()).next(next)
}

#[cfg(test)]
mod tests;
