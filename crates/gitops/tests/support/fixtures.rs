//! The trees of the findings, and the castle that they are for.

use std::collections::{BTreeMap, BTreeSet};

use castle_gitops::{EXTERNAL_SECRETS, FLUX, LONGHORN, METALLB, Taken, Tree, World};

use super::{sections, text};

/// A tree, and where in it something is to be found.
pub(crate) struct Fixture {
    pub(crate) expected: Vec<String>,
    pub(crate) files: Vec<(String, String)>,
    /// Symbolic links, and files that are too large to be read.
    pub(crate) links: Vec<String>,
    pub(crate) oversized: Vec<String>,
}

impl Fixture {
    pub(crate) fn read(name: &str) -> Self {
        let mut files = sections(&text(&format!("tests/fixtures/{name}")));
        let expected = files.remove(0);
        assert_eq!(expected.0, "expect", "{name}");
        let mut named = |section: &str| {
            let at = files.iter().position(|(path, _)| path == section);
            let paths = at.map(|at| files.remove(at).1).unwrap_or_default();
            paths.lines().map(str::to_owned).collect::<Vec<String>>()
        };
        let (links, oversized) = (named("links"), named("oversized"));
        Self { expected: expected.1.lines().map(str::to_owned).collect(), files, links, oversized }
    }

    pub(crate) fn tree(&self) -> Tree {
        let files = self.files.iter().map(|(path, text)| (path.clone(), text.clone().into_bytes()));
        Tree::new(files).with_links(self.links.clone()).with_oversized(self.oversized.clone())
    }
}

/// What castle makes for the castle of the fixtures. MetalLB is left to those that say so.
pub(crate) fn world(fixture: &str) -> World {
    let mut world = World::new("clusters/blue");
    if fixture.contains("kubernetes-1-35") {
        world = world.on_kubernetes(35, BTreeSet::new());
    }
    if fixture.contains("runtime-config") {
        world = world.on_kubernetes(
            36,
            ["resource.k8s.io/v1beta2", "storagemigration.k8s.io/v1beta1"].map(str::to_owned).into(),
        );
    }
    for minor in [8, 10].into_iter().filter(|minor| fixture.contains(&format!("flux-2-{minor}"))) {
        world = world.with_flux(2, minor);
    }
    if fixture.contains("manifests-not-at-hand") {
        world.unseen = vec!["longhorn v1.12.1".to_owned()];
    }
    if fixture.contains("of-another-version") {
        world.unseen = vec!["external-secrets v0.14.0".to_owned()];
        world.unknown = vec![EXTERNAL_SECRETS];
    }
    for (whose, first, last, is_pool) in
        [("castle's pool", "10.0.0.50", "10.0.0.60", true), ("the VIP", "10.0.0.9", "10.0.0.9", false)]
    {
        let address = |text: &str| text.parse().unwrap();
        world.taken.push(Taken { whose: whose.to_owned(), first: address(first), last: address(last), is_pool });
    }
    for component in [EXTERNAL_SECRETS, LONGHORN, FLUX] {
        world.install(&component);
    }
    if fixture.contains("left-to-flux") {
        world.expected.push(METALLB);
    } else {
        world.install(&METALLB);
    }
    world.give_variables("cluster-vars", BTreeMap::from([("domain".to_owned(), "example.net".to_owned())]));
    world.stores.insert("infisical".to_owned());
    world
}
