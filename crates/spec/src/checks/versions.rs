//! Which Talos runs which Kubernetes, which kernel modules there are, and who nodes are at mirrors.

use std::collections::BTreeMap;

use crate::model::Castle;
use crate::problem::{Code, Problem, Problems};

/// Modules people name because some guide did, and why that cannot work.
const NO_SUCH_MODULE: [(&str, &str); 1] =
    [("iscsi_generic", "Linux has no module of this name; iSCSI is built into the kernel of Talos")];

/// Built into the kernel of every supported Talos.
const BUILT_IN: [&str; 6] = ["iscsi_tcp", "libiscsi", "libiscsi_tcp", "nvme_tcp", "dm_crypt", "nfs"];

pub(super) fn check(castle: &Castle, problems: &mut Problems) {
    let talos = &castle.talos.version;
    let kubernetes = &castle.kubernetes.version;
    match talos.runs(kubernetes) {
        None => problems.report(
            Problem::new(Code::TalosUnsupported, "castle does not know this version of Talos")
                .at(talos.origin, format!("known: {}", crate::values::TalosVersion::supported()))
                .hint("choose one of these minors, with the newest patch release"),
        ),
        Some(false) => problems.report(
            Problem::new(
                Code::KubernetesUnsupported,
                format!("Talos {} does not run Kubernetes {}", talos.value, kubernetes.value),
            )
            .at(kubernetes.origin, format!("it runs {}", talos.kubernetes_range().unwrap_or_default()))
            .at(talos.origin, "")
            .hint("choose a Kubernetes in that range, or another Talos"),
        ),
        Some(true) => {}
    }
    if let Some(tested) = talos.newest_tested().filter(|_| talos.is_untested()) {
        problems.report(
            Problem::new(Code::VersionUntested, format!("Talos {} was not tested with this castle", talos.value))
                .at(talos.origin, "newer than the newest tested, or not a final release")
                .hint(format!("it will probably work; the newest tested of its minor is {tested}")),
        );
    }
    for module in &castle.talos.kernel_modules.value {
        if let Some((_, why)) = NO_SUCH_MODULE.iter().find(|(name, _)| *name == module.as_str()) {
            problems.report(
                Problem::new(Code::KernelModuleUnknown, format!("there is no kernel module `{}`", module.value))
                    .at(module.origin, *why)
                    .hint("remove it: a node that is told to load it fails at boot and tries for ever"),
            );
        } else if BUILT_IN.contains(&module.as_str()) {
            problems.report(
                Problem::new(
                    Code::KernelModuleNeedless,
                    format!("`{}` is built into the kernel of Talos", module.value),
                )
                .at(module.origin, "nothing to load")
                .hint("remove it"),
            );
        }
    }
    mirrors(castle, problems);
}

/// Talos knows nodes by the host of an endpoint: there can be one credential for each.
fn mirrors(castle: &Castle, problems: &mut Problems) {
    let mut known = BTreeMap::new();
    for (registry, mirror) in castle.talos.mirrors.iter() {
        let Some(credential) = mirror.credential.as_ref().filter(|credential| !credential.is_broken()) else {
            continue;
        };
        for endpoint in mirror.endpoints.iter() {
            let text = endpoint.to_string();
            let rest = text.split_once("://").map_or(text.as_str(), |(_, rest)| rest);
            let host = rest.split('/').next().unwrap_or_default().to_owned();
            let (first, before) = known.entry(host.clone()).or_insert((registry, credential));
            if before.value != credential.value {
                problems.report(
                    Problem::new(
                        Code::MirrorCredentials,
                        format!(
                            "the mirrors of {} and {} have different credentials for {host}",
                            first.value, registry.value
                        ),
                    )
                    .at(credential.origin, "another credential")
                    .at(before.origin, "for the same host")
                    .hint("give both the same: Talos keeps one login for a host"),
                );
                return;
            }
        }
    }
}
