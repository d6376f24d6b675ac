//! What others do to an Infisical, and what is in it, told without a request.

use std::collections::BTreeMap;
use std::time::Duration;

use super::blueprint::{Approvals, Placed, RateLimits, Right};
use super::state::{Project, Site, timestamp};
use crate::datacenter::Datacenter;

/// What is in an Infisical. Its `Debug` shows all: it holds what tests put there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VaultView {
    /// Values by `project environment:/folder/NAME`.
    pub secrets: BTreeMap<String, String>,
    /// What was noted at each secret.
    pub comments: BTreeMap<String, String>,
    /// The folders besides the roots: `project environment:/folder`.
    pub folders: Vec<String>,
}

impl Datacenter {
    fn site(&self, host: &str, change: impl FnOnce(&mut Site)) {
        if let Some(site) = self.world().infisical.get_mut(host) {
            change(site);
        }
    }

    fn project(&self, host: &str, slug: &str, change: impl FnOnce(&mut Project)) {
        self.site(host, |site| {
            if let Some(project) = site.projects.values_mut().find(|project| project.slug == slug) {
                change(project);
            }
        });
    }

    /// Takes an Infisical down, or brings it up again.
    pub fn vault_down(&self, host: &str, is_down: bool) {
        self.site(host, |site| site.is_down = is_down);
    }

    /// Revokes all tokens that an Infisical has issued.
    pub fn revoke_vault_tokens(&self, host: &str) {
        self.site(host, |site| site.tokens.values_mut().for_each(|token| token.is_revoked = true));
    }

    /// Lets all tokens that an Infisical has issued expire now.
    pub fn expire_vault_tokens(&self, host: &str) {
        self.site(host, |site| site.tokens.values_mut().for_each(|token| token.expires = Duration::ZERO));
    }

    /// Lets changes in a project wait for approval, or no longer.
    pub fn set_approvals(&self, host: &str, project: &str, approvals: Approvals) {
        self.project(host, project, |project| project.approvals = approvals);
    }

    /// Limits how much may be asked, or no longer.
    pub fn set_vault_limits(&self, host: &str, limits: Option<RateLimits>) {
        self.site(host, |site| {
            site.limits = limits;
            site.windows.clear();
        });
    }

    /// Takes a right in a project from an identity.
    pub fn revoke_vault_right(&self, host: &str, client_id: &str, project: &str, right: Right) {
        self.site(host, |site| {
            let identity = site.identities.get_mut(client_id);
            let rights = identity.and_then(|identity| {
                identity.blueprint.rights.iter_mut().find(|(slug, _)| slug == project).map(|(_, rights)| rights)
            });
            if let Some(rights) = rights {
                rights.remove(&right);
            }
        });
    }

    /// Changes the client secret of an identity: the old one is worth nothing, its tokens go on.
    pub fn change_client_secret(&self, host: &str, client_id: &str, secret: &str) {
        self.site(host, |site| {
            if let Some(identity) = site.identities.get_mut(client_id) {
                secret.clone_into(&mut identity.blueprint.client_secret);
            }
        });
    }

    /// Puts a secret into a project by hand.
    pub fn place_secret(&self, host: &str, project: &str, placed: Placed) {
        let mut world = self.world();
        let now = timestamp(world.epoch());
        let crate::world::World { infisical, chance, .. } = &mut *world;
        let site = infisical.get_mut(host);
        let found = site.and_then(|site| site.projects.values_mut().find(|found| found.slug == project));
        if let Some(found) = found {
            found.place(chance, placed, &now);
        }
    }

    /// Removes a secret by hand.
    pub fn remove_secret(&self, host: &str, project: &str, environment: &str, path: &str, name: &str) {
        self.project(host, project, |project| {
            let environment = project.environments.get_mut(environment);
            if let Some(folder) = environment.and_then(|environment| environment.folders.get_mut(path)) {
                folder.secrets.remove(name);
            }
        });
    }

    /// What is in an Infisical now.
    #[must_use]
    pub fn vault(&self, host: &str) -> VaultView {
        let (world, mut view) = (self.world(), VaultView::default());
        for project in world.infisical.get(host).iter().flat_map(|site| site.projects.values()) {
            for (slug, environment) in &project.environments {
                for (path, folder) in &environment.folders {
                    let at = format!("{} {slug}:{}", project.slug, path.trim_end_matches('/'));
                    if path != "/" {
                        view.folders.push(at.clone());
                    }
                    for (name, secret) in &folder.secrets {
                        view.secrets.insert(format!("{at}/{name}"), secret.value.clone());
                        view.comments.insert(format!("{at}/{name}"), secret.comment.clone());
                    }
                }
            }
        }
        view
    }
}
