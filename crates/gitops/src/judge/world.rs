//! What will be in the cluster without the repository: what castle makes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::Taken;
use crate::flux::{PROGRAMS, Source, Sources, add_sources};
use crate::kinds::{
    ApiServer, COMPONENTS, Component, FLUX_2_8, IMAGE_AUTOMATION, IMAGE_AUTOMATION_2_8, Served, has_to_do_with,
};
use crate::object::{Object, Reference};
use crate::yaml::{self, YamlError};

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// Where castle puts what belongs to Flux.
const FLUX_SYSTEM: &str = "flux-system";

/// The kind of an object that defines a kind.
const DEFINITION: &str = "CustomResourceDefinition";

/// What castle makes, and what is served once it has.
#[derive(Clone, Debug)]
pub struct World {
    /// The Kustomization by which Flux enters the repository.
    pub entry: Object,
    /// The kinds that are served.
    pub served: Served,
    /// Objects that castle owns, and the component that each is of.
    pub owned: BTreeMap<Reference, String>,
    /// Charts that would install a component of castle's again, and the component.
    pub charts: BTreeMap<String, String>,
    /// Components that the repository is to install.
    pub expected: Vec<Component>,
    /// Namespaces that are there.
    pub namespaces: BTreeSet<String>,
    /// ConfigMaps that are there, by namespace and name, with what is in them.
    pub config_maps: BTreeMap<(String, String), BTreeMap<String, String>>,
    /// Secrets that are there, by namespace and name.
    pub secrets: BTreeSet<(String, String)>,
    /// ClusterSecretStores that are there.
    pub stores: BTreeSet<String>,
    /// Addresses that are somebody's already.
    pub taken: Vec<Taken>,
    /// Components of castle's whose manifests are not at hand: of them only the usual objects are known.
    pub unseen: Vec<String>,
    /// Those of them in another version than the tables are of, or from a manifest of somebody's own: nobody here knows what they serve.
    pub unknown: Vec<Component>,
    /// What nobody has read of what the nodes' configurations bring, and may be whatever is missing.
    pub unread: Vec<String>,
    /// The version of Flux: `2.9`.
    pub flux: String,
    /// Objects that are there before Flux begins, and are not castle's.
    pub(crate) found: Vec<Object>,
    pub(crate) api_server: ApiServer,
}

/// The versions of Flux whose kinds and habits are known.
const KNOWN_FLUX: [&str; 2] = ["2.8", "2.9"];

impl World {
    /// A cluster without anything of castle's but the way into the repository, at this path of it.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let sync = json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": FLUX_SYSTEM, "namespace": FLUX_SYSTEM},
            "spec": {
                "interval": "10m",
                "retryInterval": "30s",
                "prune": true,
                "path": path,
                "sourceRef": {"kind": "GitRepository", "name": FLUX_SYSTEM},
            },
        });
        let api_server = ApiServer::default();
        let served = api_server.served();
        Self {
            entry: Object::written(sync, "castle.yaml"),
            served,
            owned: BTreeMap::new(),
            charts: BTreeMap::new(),
            expected: Vec::new(),
            namespaces: NAMESPACES.map(str::to_owned).into(),
            config_maps: BTreeMap::new(),
            secrets: BTreeSet::new(),
            stores: BTreeSet::new(),
            taken: Vec::new(),
            unseen: Vec::new(),
            unknown: Vec::new(),
            unread: Vec::new(),
            flux: KNOWN_FLUX[1].to_owned(),
            found: Vec::new(),
            api_server,
        }
    }

    /// Says which Kubernetes it is, by its minor version and by what `runtime-config` of its API server switches on. To be said before
    /// anything is added.
    #[must_use]
    pub fn on_kubernetes(mut self, minor: u64, runtime_config: BTreeSet<String>) -> Self {
        self.api_server = ApiServer { minor, enabled: runtime_config };
        self.served = self.api_server.served();
        self
    }

    /// Says which Flux it is.
    #[must_use]
    pub fn with_flux(mut self, major: u64, minor: u64) -> Self {
        self.flux = format!("{major}.{minor}");
        if self.is_lenient() {
            self.served.add_all(FLUX_2_8);
        }
        self
    }

    /// Says that Flux has its controllers for image tags.
    #[must_use]
    pub fn with_image_automation(mut self) -> Self {
        self.served.add_all(IMAGE_AUTOMATION);
        if self.is_lenient() {
            self.served.add_all(IMAGE_AUTOMATION_2_8);
        }
        self
    }

    /// Whether Flux leaves empty what has no value, as it did before 2.9.
    pub(crate) fn is_lenient(&self) -> bool {
        let minor = self.flux.strip_prefix("2.").and_then(|minor| minor.parse::<u64>().ok());
        minor.is_some_and(|minor| minor < 9)
    }

    /// Whether the fields of its kinds are known.
    pub(crate) fn flux_is_known(&self) -> bool {
        KNOWN_FLUX.contains(&self.flux.as_str())
    }

    /// Adds a component that is there before Flux begins, and is not castle's.
    pub fn find(&mut self, component: &Component) {
        self.served.add_all(component.kinds);
        self.namespaces.insert(component.namespace.to_owned());
    }

    /// Adds an object that is there before Flux begins, and is not castle's. What a program makes once it runs nobody knows here. Of a Secret
    /// only the name is kept.
    pub fn find_object(&mut self, value: Value) {
        let object = Object::written(value, "the nodes' configurations");
        let Reference { kind, namespace, name, .. } = object.reference();
        define(&mut self.served, &object);
        match (object.group(), kind.as_str()) {
            ("", "Namespace") => drop(self.namespaces.insert(name)),
            ("", "Secret") => {
                self.secrets.insert((namespace, name));
                return;
            }
            (_, kind) if PROGRAMS.iter().any(|(program, _)| *program == kind) => {
                self.unread.push(format!("{}, which the nodes' configurations bring", object.reference()));
            }
            _ => {}
        }
        self.found.push(object);
    }

    /// Whether an object is there before Flux begins, and is not castle's.
    pub(crate) fn has(&self, wanted: &Reference) -> bool {
        self.found.iter().any(|object| object.reference() == *wanted)
    }

    /// Whether some of the kinds of a group are defined by what is not castle's; perhaps not all.
    pub(crate) fn defines(&self, group: &str) -> bool {
        let defines = |object: &Object| object.kind() == DEFINITION && object.text("/spec/group") == group;
        self.found.iter().any(defines)
    }

    /// Adds a component that castle installs, by what is known of its kind.
    pub fn install(&mut self, component: &Component) {
        self.find(component);
        for chart in component.charts {
            self.charts.insert((*chart).to_owned(), component.name.to_owned());
        }
        self.own(component.name, "", "Namespace", "", component.namespace);
        for (kind, names) in [("Deployment", component.deployments), ("DaemonSet", component.daemon_sets)] {
            for name in names {
                self.own(component.name, "apps", kind, component.namespace, name);
            }
        }
        if component.namespace == FLUX_SYSTEM {
            self.own("castle", "source.toolkit.fluxcd.io", "GitRepository", FLUX_SYSTEM, FLUX_SYSTEM);
            self.own("castle", "kustomize.toolkit.fluxcd.io", "Kustomization", FLUX_SYSTEM, FLUX_SYSTEM);
        }
    }

    /// Adds what the manifests of a component hold: the kinds that they define, and all their objects as owned.
    ///
    /// # Errors
    ///
    /// [`YamlError`] if they cannot be read.
    pub fn apply(&mut self, component: &str, manifests: &str) -> Result<(), YamlError> {
        for document in yaml::read(manifests)? {
            self.apply_object(component, document.value);
        }
        Ok(())
    }

    /// Adds one object of a component, as [`World::apply`] does.
    pub fn apply_object(&mut self, component: &str, value: Value) {
        let object = Object::written(value, component);
        let reference = object.reference();
        define(&mut self.served, &object);
        match object.kind() {
            "Namespace" => drop(self.namespaces.insert(reference.name.clone())),
            "Secret" => drop(self.secrets.insert((reference.namespace.clone(), reference.name.clone()))),
            _ => {}
        }
        self.owned.insert(reference, component.to_owned());
    }

    /// Adds an object that castle owns.
    pub fn own(&mut self, component: &str, group: &str, kind: &str, namespace: &str, name: &str) {
        let text = |text: &str| text.to_owned();
        let reference =
            Reference { group: text(group), kind: text(kind), namespace: text(namespace), name: text(name) };
        self.owned.insert(reference, component.to_owned());
    }

    /// Gives all of the repository the values of a ConfigMap that castle makes, as `cluster-vars` is.
    pub fn give_variables(&mut self, name: &str, values: BTreeMap<String, String>) {
        self.own("castle", "", "ConfigMap", FLUX_SYSTEM, name);
        self.config_maps.insert((FLUX_SYSTEM.to_owned(), name.to_owned()), values);
        self.entry.value["spec"]["postBuild"] = json!({"substituteFrom": [{"kind": "ConfigMap", "name": name}]});
    }

    /// Adds a Secret beside Flux that castle makes.
    pub fn give_secret(&mut self, name: &str) {
        self.own("castle", "", "Secret", FLUX_SYSTEM, name);
        self.secrets.insert((FLUX_SYSTEM.to_owned(), name.to_owned()));
    }

    /// Lets the first Kustomization open what SOPS has sealed, with the age key in a Secret that castle makes.
    pub fn decrypt_with(&mut self, secret: &str) {
        self.give_secret(secret);
        self.entry.value["spec"]["decryption"] = json!({"provider": "sops", "secretRef": {"name": secret}});
    }

    /// The component that kinds of a group are of.
    pub(crate) fn component_of(&self, group: &str) -> String {
        let component = COMPONENTS.iter().find(|it| it.kinds.iter().any(|kinds| kinds.group == group));
        component.map_or("castle", |component| component.name).to_owned()
    }

    /// The component that may serve kinds of a group which no table has.
    pub(crate) fn may_serve(&self, group: &str) -> Option<&Component> {
        self.unknown.iter().find(|component| has_to_do_with(component.kinds, group))
    }

    pub(crate) fn sources(&self) -> Sources {
        let key = |kind: &str, (namespace, name): &(String, String)| (kind.to_owned(), namespace.clone(), name.clone());
        let config_maps = self
            .config_maps
            .iter()
            .map(|(place, values)| (key("ConfigMap", place), Source { values: values.clone(), is_open: false }));
        // What is in a secret is nobody's business here.
        let secrets =
            self.secrets.iter().map(|place| (key("Secret", place), Source { is_open: true, ..Source::default() }));
        let mut sources = Sources::new();
        add_sources(&mut sources, &self.found);
        sources.extend(config_maps.chain(secrets));
        sources
    }
}

/// Adds the kind that an object defines, if it does.
pub(super) fn define(served: &mut Served, object: &Object) {
    if !object.is("apiextensions.k8s.io", DEFINITION) {
        return;
    }
    let is_cluster_scoped = object.text("/spec/scope") == "Cluster";
    for version in object.list("/spec/versions").filter(|version| version["served"] == true) {
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        served.add(object.text("/spec/group"), name, object.text("/spec/names/kind"), is_cluster_scoped);
    }
}
