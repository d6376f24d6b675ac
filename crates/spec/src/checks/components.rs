//! Whether what is said of components can be, and whether castle knows their versions.

use crate::model::{Castle, Component, ComponentName, ComponentOwner, Platform};
use crate::problem::{Code, Problem, Problems};
use crate::values::ComponentVersion;

/// The newest Flux that this castle was tested with whole. What was made of later ones has the four usual controllers alone.
const WHOLE_FLUX: ComponentVersion = ComponentVersion::new(2, 8, 8);

/// Says that a controller of Flux beyond the usual four may not be in the manifest of a version. The embedded datacenter's has them all.
fn whole(castle: &Castle, problems: &mut Problems) {
    let settings = match castle.component(ComponentName::Flux).map(|flux| &flux.value) {
        Some(Component::Off) => return,
        Some(Component::On(settings)) => Some(settings),
        None => None,
    };
    let version = settings.and_then(|settings| settings.version.as_ref());
    let version = version.map_or_else(|| ComponentName::Flux.newest(), |version| version.value.clone());
    let is_own =
        settings.is_some_and(|settings| settings.source.is_some() || settings.owner.value == ComponentOwner::Flux);
    let is_embedded = matches!(castle.platform.value, Platform::Embedded(_));
    if is_own || is_embedded || version.minor() <= WHOLE_FLUX.minor() {
        return;
    }
    let image_automation = castle.gitops.as_ref().map(|gitops| &gitops.image_automation);
    let source_watcher = settings.map(|settings| &settings.source_watcher);
    for (what, setting) in [("source-watcher", source_watcher), ("controllers for image tags", image_automation)] {
        let Some(setting) = setting.filter(|setting| setting.value && castle.gitops.is_some()) else { continue };
        problems.report(
            Problem::new(Code::ComponentUntested, format!("flux {version} was not tested with its {what}"))
                .at(setting.origin, format!("the manifest of {version} that this castle was tested with has none"))
                .hint(format!(
                    "write `version: {WHOLE_FLUX}` under components.flux; or `castle lock` takes upstream's own manifest, if that has them"
                )),
        );
    }
}

pub(super) fn check(castle: &Castle, problems: &mut Problems) {
    if castle.components.is_broken() {
        return;
    }
    whole(castle, problems);
    for name in ComponentName::ALL {
        let Some(component) = castle.component(name) else { continue };
        let Component::On(settings) = &component.value else { continue };
        if !castle.calls_for(name) {
            problems.report(
                Problem::new(Code::ComponentUnused, format!("this castle has no {name}"))
                    .at(component.origin, "nothing calls for it")
                    .given(castle.network.origin)
                    .given(castle.storage.origin)
                    .hint(format!("add {}, or remove this", name.caller())),
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

    /// Goal: nobody finds out while a castle is raised that the manifest lacks a controller. Method: each of the two, with each version that matters.
    #[test]
    fn controllers_that_were_not_tested_are_named() {
        let told = |platform: &str, more: &str| {
            let text = format!(
                "castle: blue\nplatform: {platform}\ntalos: {{version: v1.13.9}}\nkubernetes: {{version: v1.36.3}}\n\
                 network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, nameservers: [10.0.0.1]}}\n\
                 nodes: {{controlPlanes: {{count: 1, firstAddress: 10.0.0.11}}}}\nstorage: none\n{more}"
            );
            let reading = crate::read(text.as_bytes());
            assert!(reading.castle.is_some(), "{:?}", reading.problems);
            let untested = reading.problems.iter().filter(|problem| problem.code == Code::ComponentUntested);
            untested.map(|problem| problem.summary.clone()).collect::<Vec<_>>()
        };
        let proxmox = "{proxmox: {endpoint: 'https://pve.lan:8006', token: 'env:T', nodes: [pve], vmids: 400-420}}";
        let gitops = |more: &str| format!("gitops: {{repository: 'https://git.example.com/blue.git'{more}}}\n");
        let watcher = |more: &str| format!("{}components: {{flux: {{sourceWatcher: true{more}}}}}\n", gitops(""));
        let images = gitops(", imageAutomation: true");
        assert_eq!(told(proxmox, &watcher("")), ["flux v2.9.0 was not tested with its source-watcher"]);
        assert_eq!(told(proxmox, &watcher(", version: v2.9.0")).len(), 1);
        assert_eq!(told(proxmox, &images), ["flux v2.9.0 was not tested with its controllers for image tags"]);
        for (platform, fine) in [
            (proxmox, gitops("")),
            (proxmox, watcher(", version: v2.8.8")),
            (proxmox, watcher(", source: flux.yaml")),
            (proxmox, format!("{images}components: {{flux: off}}\n")),
            (proxmox, format!("{images}components: {{flux: {{version: v2.8.8}}}}\n")),
            ("embedded", watcher("")),
        ] {
            assert!(told(platform, &fine).is_empty(), "{fine}");
        }
    }
}
