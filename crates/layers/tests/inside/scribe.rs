//! Who watches every request to the cluster: what was written how often, what was refused, and what came too early.

use std::collections::BTreeMap;
use std::sync::Mutex;

use castle_datacenter::{Asked, Called, Datacenter, Fate, Reply, Witness};

use crate::keep::BLUE;
use crate::stands::{current, definitions, is_valid_store, missing_authority, storage_stands, written};

/// What castle asked of the cluster.
pub(crate) struct Scribe {
    datacenter: Datacenter,
    noted: Mutex<Noted>,
}

/// What was noted since the last time somebody looked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Noted {
    /// How often each object was written, by method and path.
    pub(crate) writes: BTreeMap<String, u32>,
    /// The writes that were refused, and how.
    pub(crate) refused: Vec<String>,
    /// What was written before the world was ready for it.
    pub(crate) early: Vec<String>,
    /// How many questions there were in all.
    pub(crate) questions: u32,
}

impl Noted {
    /// What is not as castle promises.
    pub(crate) fn broken(&self) -> Vec<String> {
        let twice = self.writes.iter().filter(|(_, count)| **count != 1);
        let twice = twice.map(|(write, count)| format!("{count} times {write}"));
        self.refused.iter().chain(&self.early).cloned().chain(twice).collect()
    }
}

impl Scribe {
    pub(crate) fn new(datacenter: Datacenter) -> Self {
        Self { datacenter, noted: Mutex::default() }
    }

    /// What was noted since the last time.
    pub(crate) fn take(&self) -> Noted {
        std::mem::take(&mut self.noted.lock().unwrap())
    }
}

impl Witness for Scribe {
    fn request(&self, _: &Asked, handle: &mut dyn FnMut() -> Reply) -> Option<Reply> {
        Some(handle())
    }

    fn call(&self, called: &Called) -> Fate {
        let Some((_, path)) = called.method.split_once(' ').filter(|(_, path)| path.starts_with("/api")) else {
            return Fate::Handled;
        };
        let early = if called.is_change { too_early(&self.datacenter, path) } else { None };
        let mut noted = self.noted.lock().unwrap();
        noted.questions += 1;
        if called.is_change {
            *noted.writes.entry(called.method.clone()).or_default() += 1;
        }
        noted.early.extend(early.map(|why| format!("{path} was written too early: {why}")));
        Fate::Handled
    }

    fn answered(&self, called: &Called, status: u16) {
        if called.is_change && status >= 400 && called.method.contains(" /api") {
            self.noted.lock().unwrap().refused.push(format!("{} was refused with {status}", called.method));
        }
    }
}

/// Why the world is not ready for an object; nothing if it is. Each is what some gate is there for, read from the world itself.
fn too_early(world: &Datacenter, path: &str) -> Option<String> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, rest) = match parts.as_slice() {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return None,
    };
    let (namespace, plural, name) = match rest {
        ["namespaces", namespace, plural, name] => (*namespace, *plural, *name),
        [plural, name] => ("", *plural, *name),
        _ => return None,
    };
    let own = ["metallb.io", "external-secrets.io", "longhorn.io", "fluxcd.io"];
    if own.iter().any(|own| group.ends_with(own))
        && let Some(why) = definitions(world, &format!("{plural}.{group}"))
    {
        return Some(why);
    }
    match (namespace, plural, name) {
        ("metallb-system", "ipaddresspools" | "l2advertisements", _) => {
            current(world, "deployments.apps", namespace, "controller")
                .or_else(|| current(world, "daemonsets.apps", namespace, "speaker"))
                .or_else(|| missing_authority(world, "metallb-webhook-configuration", None))
        }
        (_, "clustersecretstores", _) => ["", "-cert-controller", "-webhook"]
            .iter()
            .find_map(|part| current(world, "deployments.apps", "external-secrets", &format!("external-secrets{part}")))
            .or_else(|| {
                let secret = Some(("external-secrets", "external-secrets-webhook"));
                let configurations = ["secretstore-validate", "externalsecret-validate"];
                configurations.iter().find_map(|name| missing_authority(world, name, secret))
            }),
        ("flux-system", "externalsecrets", _) => is_valid_store(world),
        ("flux-system", "gitrepositories" | "kustomizations", _) => {
            let store = world.object(BLUE, "clustersecretstores.external-secrets.io", "", "infisical");
            let credential = "externalsecrets.external-secrets.io";
            let is_vaulted = world.object(BLUE, credential, "flux-system", "flux-system-vault").is_some();
            store
                .and_then(|_| is_valid_store(world))
                .or_else(|| written(world, "configmaps", "flux-system", "cluster-vars"))
                .or_else(|| is_vaulted.then(|| written(world, "secrets", "flux-system", "flux-system-vault")).flatten())
        }
        ("longhorn-system", "persistentvolumeclaims", _) => storage_stands(world),
        ("longhorn-system", "configmaps", "castle-volume-proof") => {
            let job = world.object(BLUE, "jobs.batch", namespace, name).unwrap_or_default();
            (job["status"]["succeeded"] != 1).then(|| "no volume was written".to_owned())
        }
        ("metallb-system", "deployments" | "daemonsets", _) => definitions(world, ".metallb.io"),
        ("longhorn-system", "deployments" | "daemonsets", _) => definitions(world, ".longhorn.io"),
        ("external-secrets", "deployments", _) => definitions(world, ".external-secrets.io"),
        ("flux-system", "deployments", _) => definitions(world, ".fluxcd.io"),
        _ => None,
    }
}
