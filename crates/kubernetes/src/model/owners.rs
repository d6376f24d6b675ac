//! Who owns an object: by its labels, by inventories, and by who manages its fields.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Key, MANAGER, Managed, Mark, Object, Operation, leaves};

/// Somebody who may say what an object should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// Castle, for a component of a layer; nothing where only its fields tell.
    Castle(Option<Mark>),
    /// A Kustomization of Flux, by namespace and name; both empty where only its fields tell.
    Flux(String, String),
    /// A release of Helm, by namespace and name; both empty where only its fields tell.
    Helm(String, String),
    /// Talos itself.
    Talos,
    /// A person at a command line.
    Person(String),
    /// Some other program that applies.
    Other(String),
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Castle(None) => write!(f, "castle"),
            Self::Castle(Some(mark)) => write!(f, "castle ({}/{} of {})", mark.layer, mark.component, mark.castle),
            Self::Flux(_, name) if name.is_empty() => write!(f, "Flux"),
            Self::Flux(namespace, name) => write!(f, "Flux (Kustomization {namespace}/{name})"),
            Self::Helm(_, name) if name.is_empty() => write!(f, "Helm"),
            Self::Helm(namespace, name) => write!(f, "Helm (release {namespace}/{name})"),
            Self::Talos => write!(f, "Talos"),
            Self::Person(manager) => write!(f, "a person ({manager})"),
            Self::Other(manager) => write!(f, "{manager}"),
        }
    }
}

impl Owner {
    /// Who hides behind the name of a manager of fields; nobody where the name is that of a controller, which reports and fills
    /// in but does not decide what should be.
    #[must_use]
    pub fn of_manager(manager: &str, operation: Operation) -> Option<Self> {
        let empty = String::new;
        match manager {
            MANAGER => Some(Self::Castle(None)),
            "kustomize-controller" | "flux" => Some(Self::Flux(empty(), empty())),
            "helm-controller" | "helm" => Some(Self::Helm(empty(), empty())),
            "talos" | "machined" => Some(Self::Talos),
            _ if manager.starts_with("kubectl") || manager == "k9s" || manager == "Lens" => {
                Some(Self::Person(manager.to_owned()))
            }
            _ if operation == Operation::Apply => Some(Self::Other(manager.to_owned())),
            _ => None,
        }
    }

    /// Whether both are the same owner, one of them perhaps told more closely.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Castle(one), Self::Castle(two)) => one == two || one.is_none() || two.is_none(),
            (Self::Flux(_, one), Self::Flux(_, two)) | (Self::Helm(_, one), Self::Helm(_, two)) => {
                one == two || one.is_empty() || two.is_empty()
            }
            _ => self == other,
        }
    }
}

/// An owner of an object, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Who.
    pub owner: Owner,
    /// By what: labels, an inventory, fields.
    pub evidence: BTreeSet<String>,
    /// The fields it says it wants, as paths.
    pub fields: BTreeSet<String>,
}

/// All owners of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Which object.
    pub key: Key,
    /// Who claims it; nobody claims what controllers made.
    pub claims: Vec<Claim>,
    /// The fields that more than one owner wants.
    pub shared: BTreeSet<String>,
}

impl Ownership {
    /// Whether two owners have a claim, so that each may undo what the other does. What a person said once, nobody says again: who
    /// wants the same as castle is no rival, and who wants something else is named when castle applies. Many put annotations on a namespace
    /// that is not theirs: only fields that two want are contested there.
    #[must_use]
    pub fn is_contested(&self) -> bool {
        let is_namespace = self.key.group.is_empty() && self.key.kind == "Namespace";
        let declared = self.claims.iter().filter(|claim| claim.evidence.iter().any(|by| by != FIELDS)).count();
        let lasting = self.claims.iter().filter(|claim| !matches!(claim.owner, Owner::Person(_)));
        (declared > 1 && !is_namespace) || !shared(lasting).is_empty()
    }

    /// The one owner, if there is one.
    #[must_use]
    pub fn owner(&self) -> Option<&Owner> {
        match self.claims.as_slice() {
            [claim] => Some(&claim.owner),
            _ => None,
        }
    }
}

/// How fields tell.
const FIELDS: &str = "fields";

/// The labels by which Flux knows what a Kustomization owns.
pub(crate) const KUSTOMIZE: [&str; 2] = ["kustomize.toolkit.fluxcd.io/namespace", "kustomize.toolkit.fluxcd.io/name"];
const HELM_RELEASE: [&str; 2] = ["helm.toolkit.fluxcd.io/namespace", "helm.toolkit.fluxcd.io/name"];
const HELM: [&str; 2] = ["meta.helm.sh/release-namespace", "meta.helm.sh/release-name"];

/// Names the inventory that an object is in, where some program keeps one.
const INVENTORY: &str = "config.k8s.io/owning-inventory";
/// The name of the inventory that Talos keeps.
pub(crate) const OF_TALOS: &str = "talos-bootstrap-manifests-inventory";

/// Who owns an object, by what is seen on it and in inventories: who has listed which objects.
#[must_use]
pub fn owners(object: &Object, inventories: &BTreeMap<Key, BTreeSet<Owner>>) -> Ownership {
    let mut claims: Vec<Claim> = Vec::new();
    let mut claim = |owner: Owner, evidence: &str, fields: BTreeSet<String>| {
        let known = claims.iter_mut().find(|claim| claim.owner.is_like(&owner));
        let known = match known {
            Some(known) => known,
            None => {
                claims.push(Claim { owner: owner.clone(), evidence: BTreeSet::new(), fields: BTreeSet::new() });
                let last = claims.len() - 1;
                &mut claims[last]
            }
        };
        if !matches!(owner, Owner::Castle(None)) && matches!(known.owner, Owner::Castle(None)) {
            known.owner = owner;
        }
        known.evidence.insert(evidence.to_owned());
        known.fields.extend(fields);
    };
    if let Some(mark) = Mark::of(object) {
        claim(Owner::Castle(Some(mark)), "labels", BTreeSet::new());
    }
    let pair =
        |[namespace, name]: [&str; 2]| Some((object.label(namespace)?.to_owned(), object.label(name)?.to_owned()));
    if let Some((namespace, name)) = pair(KUSTOMIZE) {
        claim(Owner::Flux(namespace, name), "labels", BTreeSet::new());
    }
    if let Some((namespace, name)) = pair(HELM_RELEASE) {
        claim(Owner::Helm(namespace, name), "labels", BTreeSet::new());
    }
    if let [Some(namespace), Some(name)] = HELM.map(|annotation| object.annotation(annotation)) {
        claim(Owner::Helm(namespace.to_owned(), name.to_owned()), "annotations", BTreeSet::new());
    }
    if object.annotation(INVENTORY) == Some(OF_TALOS) {
        claim(Owner::Talos, "annotations", BTreeSet::new());
    }
    // Castle writes down what it is about to apply. What it was then refused is not its own.
    let is_castles = Mark::of(object).is_some() || Managed::castle(object).is_some();
    let listed = inventories.get(&object.key()).into_iter().flatten();
    for owner in listed.filter(|owner| is_castles || !matches!(owner, Owner::Castle(_))) {
        claim(owner.clone(), "inventory", BTreeSet::new());
    }
    for managed in Managed::of(object).filter(|managed| managed.subresource.is_empty()) {
        if let Some(owner) = Owner::of_manager(managed.manager, managed.operation) {
            claim(owner, FIELDS, leaves(managed.fields));
        }
    }
    let shared = shared(claims.iter()).into_iter().cloned().collect();
    Ownership { key: object.key(), claims, shared }
}

/// The fields that more than one of these want.
fn shared<'a>(claims: impl Iterator<Item = &'a Claim>) -> BTreeSet<&'a String> {
    let mut seen = BTreeSet::new();
    claims.flat_map(|claim| &claim.fields).filter(|field| !seen.insert(*field)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn object(metadata: &Value) -> Object {
        let mut value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "n"}});
        for (key, own) in metadata.as_object().unwrap() {
            value["metadata"][key] = own.clone();
        }
        Object::new(value).unwrap()
    }

    fn managed(list: &[(&str, &str, &Value)]) -> Value {
        list.iter()
            .map(|(manager, operation, fields)| json!({"manager": manager, "operation": operation, "fieldsV1": fields}))
            .collect()
    }

    fn told(ownership: &Ownership) -> Vec<String> {
        ownership.claims.iter().map(|claim| claim.owner.to_string()).collect()
    }

    /// A repository that annotates a namespace of castle's takes nothing away from castle; one that says its labels, too, does.
    #[test]
    fn a_namespace_is_contested_by_its_fields_alone() {
        let own = json!({"f:metadata": {"f:labels": {"f:castle.dev/castle": {}, "f:x": {}}}});
        let found = |fields: &Value| {
            let labels = json!({
                "castle.dev/castle": "blue", "castle.dev/layer": "storage", "castle.dev/component": "longhorn", "x": "y",
                "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
            });
            let fields = managed(&[("castle", "Apply", &own), ("kustomize-controller", "Apply", fields)]);
            let value = json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": {"name": "longhorn-system", "labels": labels, "managedFields": fields},
            });
            owners(&Object::new(value).unwrap(), &BTreeMap::new())
        };
        let annotated = found(&json!({"f:metadata": {"f:annotations": {"f:a": {}}}}));
        assert!(annotated.claims.len() == 2 && !annotated.is_contested());
        assert!(found(&json!({"f:metadata": {"f:labels": {"f:x": {}}}})).is_contested());
    }

    #[test]
    fn a_mark_and_the_fields_of_castle_are_one_owner() {
        let one = json!({"f:data": {"f:a": {}}});
        let found = owners(
            &object(&json!({
                "labels": {"castle.dev/castle": "blue", "castle.dev/layer": "storage", "castle.dev/component": "longhorn"},
                "managedFields": managed(&[("castle", "Apply", &one), ("kube-controller-manager", "Update", &one)]),
            })),
            &BTreeMap::new(),
        );
        assert_eq!(told(&found), ["castle (storage/longhorn of blue)"]);
        assert!(!found.is_contested());
        assert_eq!(found.owner().unwrap().to_string(), "castle (storage/longhorn of blue)");
    }

    #[test]
    fn labels_of_flux_on_an_object_of_castle_are_a_quarrel() {
        let found = owners(
            &object(&json!({"labels": {
                "castle.dev/castle": "blue", "castle.dev/layer": "storage", "castle.dev/component": "longhorn",
                "kustomize.toolkit.fluxcd.io/name": "apps", "kustomize.toolkit.fluxcd.io/namespace": "flux-system",
            }})),
            &BTreeMap::new(),
        );
        assert!(found.is_contested());
        assert_eq!(told(&found), ["castle (storage/longhorn of blue)", "Flux (Kustomization flux-system/apps)"]);
    }

    #[test]
    fn two_who_want_the_same_field_quarrel_even_if_they_agree() {
        let (one, two) = (json!({"f:data": {"f:a": {}, "f:b": {}}}), json!({"f:data": {"f:b": {}}}));
        let fields = managed(&[("castle", "Apply", &one), ("kustomize-controller", "Apply", &two)]);
        let found = owners(&object(&json!({"managedFields": fields})), &BTreeMap::new());
        assert_eq!(found.shared, [".data.b".to_owned()].into());
        assert!(found.is_contested());
        let apart = managed(&[("castle", "Apply", &json!({"f:data": {"f:a": {}}})), ("kubectl-edit", "Update", &two)]);
        let found = owners(&object(&json!({"managedFields": apart})), &BTreeMap::new());
        assert!(!found.is_contested());
        assert_eq!(told(&found), ["castle", "a person (kubectl-edit)"]);
        assert!(found.owner().is_none());
        let set_back = managed(&[("castle", "Apply", &one), ("kubectl-set", "Update", &two)]);
        let found = owners(&object(&json!({"managedFields": set_back})), &BTreeMap::new());
        assert!(!found.shared.is_empty() && !found.is_contested());
    }

    #[test]
    fn inventories_tell_of_what_carries_no_label() {
        let flux = Owner::Flux("flux-system".to_owned(), "apps".to_owned());
        let object = object(
            &json!({"annotations": {"meta.helm.sh/release-name": "web", "meta.helm.sh/release-namespace": "n"}}),
        );
        let refused = Owner::Castle(Some(Mark::new("blue", "storage", "longhorn")));
        let inventories = BTreeMap::from([(object.key(), BTreeSet::from([flux, Owner::Talos, refused]))]);
        let found = owners(&object, &inventories);
        assert_eq!(told(&found), ["Helm (release n/web)", "Flux (Kustomization flux-system/apps)", "Talos"]);
        assert!(found.is_contested());
    }

    #[test]
    fn what_controllers_made_is_nobodys() {
        let fields = managed(&[("kube-controller-manager", "Update", &json!({"f:data": {"f:a": {}}}))]);
        let found = owners(&object(&json!({"managedFields": fields})), &BTreeMap::new());
        assert!(found.claims.is_empty() && !found.is_contested());
    }
}
