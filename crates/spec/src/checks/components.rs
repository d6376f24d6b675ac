//! Whether what is said of components can be, and whether castle knows their versions.

use crate::components::{Component, ComponentName};
use crate::model::{Castle, ComponentOwner};
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
            let why = match name {
                ComponentName::Flux => Some("Flux cannot install itself"),
                _ if !castle.calls_for(ComponentName::Flux) => Some("there is no Flux to install it"),
                _ => None,
            };
            let hint = match name {
                ComponentName::Flux => "remove `owner`: castle installs Flux".to_owned(),
                _ => format!("add `gitops`, or remove `owner`: castle installs {name}"),
            };
            if let Some(why) = why {
                problems.report(
                    Problem::new(Code::ComponentOwner, format!("nobody would install {name}"))
                        .at(settings.owner.origin, why)
                        .hint(hint),
                );
            }
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
