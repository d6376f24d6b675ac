//! Flux: the controllers that a castle wants, and no others.

use serde_json::Value;

use super::PatchError;
use super::edit::Objects;
use crate::fit::Fit;

/// What every castle wants.
const CONTROLLERS: [&str; 4] =
    ["source-controller", "kustomize-controller", "helm-controller", "notification-controller"];
/// What castles with image automation want, too.
const IMAGE_CONTROLLERS: [&str; 2] = ["image-reflector-controller", "image-automation-controller"];
/// What castles want that make sources of parts of a repository.
const WATCHER: &str = "source-watcher";
/// What upstream has besides, each with the group of the kinds it alone serves.
const EXTRA: [(&str, &str); 3] = [
    ("image-reflector-controller", "image.toolkit.fluxcd.io"),
    ("image-automation-controller", "image.toolkit.fluxcd.io"),
    (WATCHER, "source.extensions.fluxcd.io"),
];

/// What each controller asks for in a small castle; they work in bursts.
const SMALL_CPU: &str = "10m";

pub(crate) fn adapt(objects: &mut Objects, fit: &Fit) -> Result<(), PatchError> {
    let images: &[&str] = if fit.has_image_automation { &IMAGE_CONTROLLERS } else { &[] };
    let watcher = fit.has_source_watcher.then_some(WATCHER);
    let wanted: Vec<&str> = CONTROLLERS.iter().chain(images).copied().chain(watcher).collect();
    for controller in &wanted {
        let purpose = match *controller {
            WATCHER => "make sources of parts of the repository",
            controller if IMAGE_CONTROLLERS.contains(&controller) => "follow image tags",
            _ => "follow the Git repository",
        };
        let container = objects.container(("Deployment", controller), "manager", purpose)?;
        if fit.is_small {
            let cpu = container.get_mut("resources").and_then(|resources| resources.pointer_mut("/requests/cpu"));
            let Some(cpu) = cpu else {
                let what = format!("request of CPU in Deployment {controller}");
                return Err(objects.missing(what, "fit it into a small castle"));
            };
            *cpu = SMALL_CPU.into();
        }
    }
    remove(objects, &wanted);
    Ok(())
}

/// Removes the controllers that nobody wants: with their accounts, services, kinds and rights.
fn remove(objects: &mut Objects, wanted: &[&str]) {
    let unwanted: Vec<(&str, &str)> = EXTRA.into_iter().filter(|(name, _)| !wanted.contains(name)).collect();
    let is_unwanted = |name: &Value| unwanted.iter().any(|(unwanted, _)| name == unwanted);
    objects.all.retain(|object| match object["kind"].as_str() {
        Some("Deployment" | "ServiceAccount" | "Service") => !is_unwanted(&object["metadata"]["name"]),
        Some("CustomResourceDefinition") => unwanted.iter().all(|(_, group)| object["spec"]["group"] != *group),
        _ => true,
    });
    for binding in objects.of_kind("ClusterRoleBinding") {
        if let Some(subjects) = binding["subjects"].as_array_mut() {
            subjects.retain(|subject| !is_unwanted(&subject["name"]));
        }
    }
}
