use std::collections::BTreeSet;

use super::*;
use crate::Fit;
use crate::known::{adapt, namespace};
use crate::patches::tests::{FITS, upstream};

#[test]
fn the_stand_ins_are_whole_and_small() {
    let counts = ComponentName::ALL.map(|component| {
        let text = text(component);
        let objects = manifest(&text).unwrap();
        assert_eq!(objects, super::objects(component));
        let keys: BTreeSet<String> = objects.iter().map(|object| object.key().to_string()).collect();
        assert_eq!(keys.len(), objects.len(), "{component} has an object twice");
        let namespaces: BTreeSet<&str> =
            objects.iter().map(Object::namespace).filter(|name| !name.is_empty()).collect();
        assert_eq!(namespaces, [namespace(component)].into(), "{component}");
        objects.len()
    });
    assert_eq!(counts, [42, 21, 41, 38]);
    let size: usize = ComponentName::ALL.into_iter().map(|component| row(component).stand_in.len()).sum();
    assert!(size < 60 << 10, "{size}");
}

#[test]
fn what_castle_changes_in_upstreams_is_in_the_stand_ins_too() {
    for component in ComponentName::ALL {
        for (has_image_automation, has_source_watcher) in [(false, false), (true, false), (false, true), (true, true)] {
            let fit = |fit| Fit { has_image_automation, has_source_watcher, ..fit };
            let counts = FITS.map(|own| adapt(component, &objects(component), &fit(own)).unwrap().len());
            let without = |has: bool, count| if component == ComponentName::Flux && !has { count } else { 0 };
            let fewer = without(has_image_automation, 7) + without(has_source_watcher, 4);
            assert_eq!(counts, [objects(component).len() - fewer; 2], "{component}");
        }
    }
}

/// Whatever has a name that others refer to has the same in the stand-in.
#[test]
fn names_are_those_of_upstream() {
    for component in ComponentName::ALL {
        let Some(upstream) = upstream(component) else { return };
        let fit = FITS[0];
        let theirs = adapt(component, &upstream, &fit).unwrap();
        let ours = adapt(component, &objects(component), &fit).unwrap();
        let names = |objects: &[Object], kinds: &[&str]| -> BTreeSet<String> {
            let told = |object: &Object| kinds.contains(&object.text("/kind")).then(|| object.key().to_string());
            objects.iter().filter_map(told).collect()
        };
        let whole = [
            "Namespace",
            "Deployment",
            "DaemonSet",
            "Service",
            "ValidatingWebhookConfiguration",
            "CustomResourceDefinition",
            "PriorityClass",
            "Secret",
        ];
        assert_eq!(names(&ours, &whole), names(&theirs, &whole), "{component}");
        let all: BTreeSet<String> = theirs.iter().map(|object| object.key().to_string()).collect();
        for object in &ours {
            assert!(all.contains(&object.key().to_string()), "upstream's {component} has no {}", object.key());
        }
        for (ours, theirs) in ours
            .iter()
            .flat_map(|our| theirs.iter().filter(|their| their.key() == our.key()).map(move |their| (our, their)))
        {
            same_words(ours, theirs);
        }
    }
}

/// Of what the datacenter acts by: kinds and versions, selectors, ports, containers, webhooks; and what `flux` finds Flux by.
fn same_words(ours: &Object, theirs: &Object) {
    let key = ours.key();
    assert_eq!(ours.kind(), theirs.kind(), "{key}");
    let is_looked_for = ["CustomResourceDefinition", "Deployment"].contains(&ours.text("/kind"));
    if is_looked_for && theirs.label("app.kubernetes.io/part-of") == Some("flux") {
        for label in ["app.kubernetes.io/part-of", "app.kubernetes.io/instance", "app.kubernetes.io/version"] {
            assert_eq!(ours.label(label), theirs.label(label), "{key} {label}");
        }
    }
    if ours.text("/kind") == "CustomResourceDefinition" {
        for place in ["/spec/group", "/spec/scope", "/spec/names/kind", "/spec/names/plural"] {
            assert_eq!(ours.at(place), theirs.at(place), "{key} {place}");
        }
        let unseen = |object: &Object| {
            let status = object.at("/spec/versions/0/schema/openAPIV3Schema/properties/status");
            status.get("default").cloned()
        };
        assert_eq!(unseen(ours), unseen(theirs), "{key} before its controller has seen it");
        let version = ours.at("/spec/versions/0/name");
        assert!(
            theirs.list("/spec/versions").iter().any(|their| their["name"] == *version && their["served"] == true),
            "{key} {version}"
        );
    }
    let names = |object: &Object, list: &str| -> BTreeSet<String> {
        object.list(list).iter().filter_map(|item| item["name"].as_str()).map(str::to_owned).collect()
    };
    let containers = "/spec/template/spec/containers";
    assert!(names(ours, containers).is_subset(&names(theirs, containers)), "{key}");
    for our in ours.list("/spec/ports") {
        assert!(
            theirs
                .list("/spec/ports")
                .iter()
                .any(|their| their["port"] == our["port"] && their["targetPort"] == our["targetPort"]),
            "{key}: {our}"
        );
    }
    for our in ours.list("/webhooks") {
        let their = theirs.list("/webhooks").iter().find(|their| their["name"] == our["name"]).unwrap();
        for field in ["rules", "clientConfig", "sideEffects", "failurePolicy", "admissionReviewVersions"] {
            assert_eq!(our[field], their[field], "{key} {field}");
        }
    }
}
