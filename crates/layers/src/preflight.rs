//! What a repository is held against before Flux follows it: all that castle makes of a file; and what it means if the repository
//! cannot be read.

mod configurations;

use std::collections::BTreeMap;

use castle_components::pins::pin;
use castle_engine::{Class, Fault};
use castle_gitops::git::GitError;
use castle_gitops::{FLUX, SOURCE_WATCHER, Taken, World};
use castle_kubernetes::model::Object;
use castle_secrets::Secret;
use castle_spec::model::ComponentOwner;
use castle_spec::values::SecretReference;
use castle_spec::{Castle, ComponentName, Node};

use crate::components::row;
use crate::names::{self, AGE_KEY, FLUX_SYSTEM, FROM_VAULT, VARIABLES};

/// What a castle is given beside its file, as far as a repository can rely on it or collide with it.
#[derive(Clone, Copy, Debug)]
pub struct Given<'g> {
    /// Its nodes.
    pub nodes: &'g [Node],
    /// The folder of the repository that Flux enters, if not the file's own.
    pub entry: Option<&'g str>,
    /// The objects of components, as far as they are at hand; of others the usual ones are known.
    pub manifests: &'g BTreeMap<ComponentName, Vec<Object>>,
    /// The patches of its nodes' configurations.
    pub patches: &'g [Secret],
}

/// What will be there by the time Flux enters the repository.
#[must_use]
pub fn world(castle: &Castle, given: &Given<'_>) -> World {
    let path = given.entry.map_or_else(|| names::entry(castle), str::to_owned);
    let (_, minor) = castle.kubernetes.version.value.minor();
    let mut world = World::new(&path).on_kubernetes(minor, configurations::runtime_config(given.patches));
    let wanted = castle.wanted_components();
    let flux = wanted.iter().find(|wanted| wanted.name == ComponentName::Flux);
    let (major, minor) = flux.map_or_else(|| ComponentName::Flux.newest(), |flux| flux.version.clone()).minor();
    world = world.with_flux(major, minor);
    world.taken = taken(castle, given.nodes);
    // Whoever has a repository judged has a Flux that will follow it, even if the file does not say so.
    world.find(&FLUX);
    for wanted in wanted {
        let component = row(wanted.name).offers;
        own_objects(&mut world, wanted.name);
        if wanted.owner == ComponentOwner::Flux {
            world.expected.push(component);
            continue;
        }
        world.install(&component);
        match given.manifests.get(&wanted.name) {
            Some(objects) => {
                for object in objects {
                    world.apply_object(component.name, object.value().clone());
                }
            }
            None => {
                world.unseen.push(component.name.to_owned());
                if wanted.source.is_some() || pin(wanted.name, &wanted.version).is_none() {
                    world.unknown.push(component);
                }
                if let Some(file) = &wanted.source {
                    world.unread.push(format!("{file}, the manifest of {}", component.name));
                }
            }
        }
    }
    if castle.has_source_watcher() {
        world.served.add_all(SOURCE_WATCHER);
    }
    if let Some(gitops) = &castle.gitops {
        if gitops.image_automation.value {
            world = world.with_image_automation();
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
    configurations::bring(&mut world, given.patches);
    world.give_variables(VARIABLES, names::variables(castle));
    world
}

/// Addresses that are somebody's already: castle's pool, the VIP, the gateway and the nodes.
fn taken(castle: &Castle, nodes: &[Node]) -> Vec<Taken> {
    let network = &castle.network;
    // The pool is MetalLB's: where there is none, castle gives no addresses to services.
    let has_pool = castle.wanted_components().iter().any(|wanted| wanted.name == ComponentName::Metallb);
    let pool = network.load_balancers.as_ref().filter(|_| has_pool).map(|range| Taken {
        whose: "the pool that castle makes".to_owned(),
        first: range.value.first,
        last: range.value.last,
        is_pool: true,
    });
    let one = |whose: &str, address| Taken { whose: whose.to_owned(), first: address, last: address, is_pool: false };
    let vip = network.vip.as_ref().map(|vip| one("the VIP", vip.value));
    let gateway = one("the gateway", network.gateway.value);
    let nodes = nodes.iter().map(|node| one(&format!("the address of {}", node.name.value), node.address.value));
    pool.into_iter().chain(vip).chain([gateway]).chain(nodes).collect()
}

/// What castle makes beside a component, whoever installs that.
fn own_objects(world: &mut World, name: ComponentName) {
    let row = row(name);
    world.stores.extend(row.store.map(str::to_owned));
    for (group, kind, namespace, name) in row.own {
        world.own("castle", group, kind, namespace, name);
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
