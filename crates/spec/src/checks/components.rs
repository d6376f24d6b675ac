//! Whether what is said of components can be, and whether castle knows their versions.

use crate::model::{Castle, ComponentOwner};
use crate::model::{Component, ComponentName};
use crate::problem::{Code, Problem, Problems};

pub(super) fn check(castle: &Castle, problems: &mut Problems) {
    if castle.components.is_broken() {
        return;
    }
    for name in ComponentName::ALL {
        let Some(component) = castle.component(name) else { continue };
        let Component::On(settings) = &component.value else { continue };
        if !castle.calls_for(name) {
            problems.report(
                Problem::new(Code::ComponentUnused, format!("this castle has no {name}"))
                    .at(component.origin, "nothing calls for it")
                    .given(castle.network.origin)
                    .given(castle.storage.origin)
                    .hint(format!("add {}, or remove this", calls(name))),
            );
            continue;
        }
        if settings.source_watcher.value && name != ComponentName::Flux {
            problems.report(
                Problem::new(Code::ComponentUnused, format!("{name} has no source-watcher"))
                    .at(settings.source_watcher.origin, "only Flux has one")
                    .hint("remove it, or write it under `flux`"),
            );
        }
        if let Some(version) = settings.version.as_ref().filter(|version| !name.is_good(version)) {
            problems.report(
                Problem::new(
                    Code::ComponentUntested,
                    format!("{name} {} was not tested with this castle", version.value),
                )
                .at(version.origin, format!("known to be good: {}", name.good_range()))
                .hint(format!("the newest tested is {}; others may need patches of their own", name.newest())),
            );
        }
        if settings.owner.value == ComponentOwner::Flux {
            let off = castle.component(ComponentName::Flux).filter(|flux| matches!(flux.value, Component::Off));
            let (why, hint) = match name {
                ComponentName::Flux => {
                    ("Flux cannot install itself", "remove `owner`: castle installs Flux".to_owned())
                }
                _ if !castle.calls_for(ComponentName::Flux) => (
                    "there is no Flux to install it",
                    format!("add `gitops`, or remove `owner`: castle installs {name}"),
                ),
                _ if off.is_some() => (
                    "there is no Flux to install it",
                    format!("remove `flux: off`, or remove `owner`: castle installs {name}"),
                ),
                _ => continue,
            };
            let mut problem = Problem::new(Code::ComponentOwner, format!("nobody would install {name}"));
            problem = problem.at(settings.owner.origin, why).hint(hint);
            if let Some(flux) = off {
                problem = problem.at(flux.origin, "castle neither installs nor expects it");
            }
            problems.report(problem);
        }
    }
}

/// What calls for a component.
fn calls(name: ComponentName) -> &'static str {
    match name {
        ComponentName::ExternalSecrets => "`secrets`",
        ComponentName::Metallb => "`network.loadBalancers`",
        ComponentName::Longhorn => "`storage: longhorn`",
        ComponentName::Flux => "`gitops`",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_flux_that_is_there_can_install_others() {
        let owners = |extra: &str| {
            let text = format!(
                "castle: blue
platform: embedded
talos: {{version: v1.13.9}}
kubernetes: {{version: v1.36.3}}
network: {{cidr: 127.42.0.0/24, gateway: 127.42.0.1, nameservers: [127.42.0.1], vip: 127.42.0.10, loadBalancers: 127.42.0.200-127.42.0.210}}
nodes:
  controlPlanes: {{count: 1, firstAddress: 127.42.0.11}}
  workers: {{count: 1, firstAddress: 127.42.0.21}}
storage: none
{extra}"
            );
            let problems = crate::read(text.as_bytes()).problems;
            let found = problems.into_iter().filter(|problem| problem.code == Code::ComponentOwner);
            found.map(|problem| (problem.labels.len(), problem.hint)).collect::<Vec<_>>()
        };
        let gitops = "gitops: {repository: embedded}\n";
        let hint = |what: &str| format!("{what}, or remove `owner`: castle installs metallb");
        assert_eq!(owners("components: {metallb: {owner: flux}}\n"), [(1, hint("add `gitops`"))]);
        assert_eq!(owners(&format!("{gitops}components: {{metallb: {{owner: flux}}}}\n")), []);
        let off = owners(&format!("{gitops}components: {{metallb: {{owner: flux}}, flux: off}}\n"));
        assert_eq!(off, [(2, hint("remove `flux: off`"))]);
        assert_eq!(owners(&format!("{gitops}components: {{flux: off}}\n")), []);
    }
}
