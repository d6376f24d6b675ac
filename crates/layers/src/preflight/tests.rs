use castle_components::Fit;
use castle_gitops::{Code, Tree, judge};

use super::*;

fn castle(more: &str) -> Castle {
    let storage = if more.contains("storage:") { "" } else { "storage: none\n" };
    let text = format!(
        "castle: blue\nplatform: embedded\ntalos: {{version: v1.13.9}}\nkubernetes: {{version: v1.36.3}}\n\
         network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, nameservers: [10.0.0.1], loadBalancers: 10.0.0.50-10.0.0.60}}\n\
         nodes: {{controlPlanes: {{count: 1, firstAddress: 10.0.0.11}}}}\n{storage}secrets: embedded\n{more}"
    );
    let reading = castle_spec::read(text.as_bytes());
    reading.castle.unwrap_or_else(|| panic!("{:?}", reading.problems))
}

const GITOPS: &str = "gitops: {repository: 'https://git.example.com/blue.git'}\n";

/// The findings of a repository with one file, in a castle whose file says this, too.
fn codes(more: &str, manifests: &BTreeMap<ComponentName, Vec<Object>>, text: &str) -> Vec<Code> {
    let given = Given { nodes: &[], entry: None, manifests, patches: &[] };
    codes_in(&world(&castle(more), &given), text)
}

/// The findings but that manifests are not at hand, which is told in a test of its own.
fn codes_in(world: &World, text: &str) -> Vec<Code> {
    let tree = Tree::new([("clusters/blue/all.yaml".to_owned(), text.as_bytes().to_vec())]);
    let findings = judge(&tree, world).findings;
    findings.into_iter().filter(|it| it.file != "castle.yaml" || it.code != Code::NotJudged).map(|it| it.code).collect()
}

fn object(kind: &str, name: &str) -> String {
    format!("apiVersion: {kind}\nmetadata: {name}\n")
}

#[test]
fn components_are_whose_the_file_says() {
    let namespace = object("v1\nkind: Namespace", "{name: metallb-system}");
    let pool = object("metallb.io/v1beta1\nkind: IPAddressPool", "{name: castle, namespace: metallb-system}");
    let other = object("metallb.io/v1beta1\nkind: IPAddressPool", "{name: mine, namespace: metallb-system}");
    let by = |settings: &str| format!("{GITOPS}components: {{metallb: {settings}}}\n");
    let none = BTreeMap::new();
    for (file, text, expected) in [
        (GITOPS.to_owned(), &namespace, vec![Code::OwnedObject]),
        (GITOPS.to_owned(), &pool, vec![Code::OwnedObject]),
        (GITOPS.to_owned(), &other, vec![]),
        (by("{owner: flux}"), &namespace, vec![Code::ComponentMissing]),
        // The pool is castle's, whoever installs MetalLB.
        (
            by("{owner: flux}"),
            &pool,
            vec![Code::ComponentMissing, Code::NamespaceMissing, Code::KindNotServed, Code::OwnedObject],
        ),
        (by("{owner: flux}"), &other, vec![Code::ComponentMissing, Code::NamespaceMissing, Code::KindNotServed]),
        (by("off"), &namespace, vec![]),
        (by("off"), &other, vec![Code::KindNotServed, Code::NamespaceMissing]),
    ] {
        let mut found = codes(&file, &none, text);
        let mut expected = expected;
        found.sort();
        expected.sort();
        assert_eq!(found, expected, "{file}{text}");
    }
}

/// Each component as castle has it, committed to the repository that it is handed over to, as docs/owners.md says. What its controllers make once they
/// run is missing in no manifest: MetalLB's `memberlist`, the certificates of webhooks.
#[test]
fn what_castle_hands_over_passes() {
    use castle_components::adapt;
    let gitops = format!("{GITOPS}storage: {{longhorn: {{replicas: 1}}}}\n");
    let fit = Fit::of(&castle(&gitops), &[]);
    for (name, key, file) in [
        (ComponentName::Metallb, "metallb", "metallb-native-v0.16.1.yaml"),
        (ComponentName::ExternalSecrets, "externalSecrets", "external-secrets-v2.9.0.yaml"),
        (ComponentName::Longhorn, "longhorn", "longhorn-v1.12.1.yaml"),
    ] {
        let mirrored = castle_testbed::oracle_text(&format!("mirror/{file}"));
        let upstream = mirrored.map(|text| castle_kubernetes::model::manifest(&text).unwrap());
        for objects in [Some(castle_components::standin::objects(name)), upstream].into_iter().flatten() {
            let objects = adapt(name, &objects, &fit).unwrap();
            let text: String = objects.iter().map(|object| format!("---\n{}\n", object.value())).collect();
            let left = format!("{gitops}components: {{{key}: {{owner: flux}}}}\n");
            assert!(castle(&left).wanted_components().iter().any(|it| it.name == name), "{name}");
            assert_eq!(codes(&left, &BTreeMap::new(), &text), [], "{name}");
        }
    }
}

#[test]
fn what_is_at_hand_is_known_object_by_object() {
    let role = object("rbac.authorization.k8s.io/v1\nkind: ClusterRole", "{name: 'metallb-system:speaker'}");
    let none = BTreeMap::new();
    assert_eq!(codes(GITOPS, &none, &role), []);
    let objects = castle_kubernetes::model::manifest(&role).unwrap();
    let manifests = BTreeMap::from([(ComponentName::Metallb, objects)]);
    assert_eq!(codes(GITOPS, &manifests, &role), [Code::OwnedObject]);
    let left = format!("{GITOPS}components: {{metallb: {{owner: flux}}}}\n");
    assert_eq!(
        codes(&left, &manifests, &role),
        [Code::ComponentMissing],
        "what castle does not install it does not own"
    );
}

#[test]
fn what_the_file_gives_is_there() {
    let more = |keys: &str| format!("gitops: {{repository: 'https://git.example.com/blue.git', {keys}}}\n");
    let none = BTreeMap::new();
    let secret = |name: &str| object("v1\nkind: Secret", &format!("{{name: {name}, namespace: flux-system}}"));
    let image = object(
        "image.toolkit.fluxcd.io/v1\nkind: ImagePolicy",
        "{name: a, namespace: flux-system}\nspec: {imageRepositoryRef: {name: a}, policy: {alphabetical: {}}}",
    );
    let sealed = object("v1\nkind: Secret", "{name: a, namespace: default}\nsops: {mac: x}");
    let map = object("v1\nkind: ConfigMap", "{name: a, namespace: default}\ndata: {a: \"${castle_name}${domain}\"}");
    for (file, text, expected) in [
        (GITOPS.to_owned(), secret("flux-system"), vec![]),
        (more("credential: 'env:T'"), secret("flux-system"), vec![Code::OwnedObject]),
        (
            more("credential: 'vault:T'"),
            secret("flux-system-vault").replace("v1\nkind: ", "external-secrets.io/v1\nkind: External"),
            vec![Code::OwnedObject],
        ),
        (more("ageKey: 'env:T'"), secret("sops-age"), vec![Code::OwnedObject]),
        (GITOPS.to_owned(), image.clone(), vec![Code::KindNotServed]),
        (more("imageAutomation: true"), image, vec![]),
        (GITOPS.to_owned(), sealed.clone(), vec![Code::SopsWithoutDecryption]),
        (more("ageKey: 'env:T'"), sealed, vec![]),
        (GITOPS.to_owned(), map.clone(), vec![Code::VariableMissing]),
        (more("vars: {domain: example.org}"), map, vec![]),
    ] {
        assert_eq!(codes(&file, &none, &text), expected, "{file}{text}");
    }
}

/// Which Kubernetes and which Flux it is, what patches switch on, and which addresses are taken: all of it is in the file.
#[test]
fn the_world_is_that_of_the_file() {
    let claim = object("resource.k8s.io/v1beta2\nkind: ResourceClaim", "{name: a, namespace: default}");
    let told = |file: &str, patches: &[Secret], text: &str| {
        let manifests = BTreeMap::new();
        let text_of = format!("{file}{GITOPS}");
        let castle = castle_spec::read(
            format!(
                "castle: blue\nplatform: embedded\ntalos: {{version: v1.13.9}}\n\
                 network: {{cidr: 10.0.0.0/24, gateway: 10.0.0.1, nameservers: [10.0.0.1], vip: 10.0.0.9, loadBalancers: 10.0.0.50-10.0.0.60}}\n\
                 nodes: {{controlPlanes: {{count: 1, firstAddress: 10.0.0.11}}}}\nstorage: none\n{text_of}"
            )
            .as_bytes(),
        );
        let nodes = castle.nodes;
        let castle = castle.castle.unwrap_or_else(|| panic!("{:?}", castle.problems));
        codes_in(&world(&castle, &Given { nodes: &nodes, entry: None, manifests: &manifests, patches }), text)
    };
    let (this, before) = ("kubernetes: {version: v1.36.3}\n", "kubernetes: {version: v1.35.1}\n");
    assert_eq!(told(this, &[], &claim), [Code::KindNotServed]);
    assert_eq!(told(before, &[], &claim), [Code::NotJudged]);
    for patch in [
        "cluster: {apiServer: {extraArgs: {runtime-config: 'api/alpha=true,resource.k8s.io/v1beta2=true'}}}",
        "cluster:\n  apiServer:\n    extraArgs:\n      runtime-config: [resource.k8s.io/v1beta2=true]\n",
    ] {
        assert_eq!(told(this, &[Secret::from(patch.to_owned())], &claim), [Code::NotJudged], "{patch}");
    }
    let off =
        Secret::from("cluster: {apiServer: {extraArgs: {runtime-config: resource.k8s.io/v1beta2=false}}}".to_owned());
    assert_eq!(told(this, &[off], &claim), [Code::KindNotServed]);

    let map = object("v1\nkind: ConfigMap", "{name: a, namespace: default}\ndata: {a: \"${domain}\"}");
    assert_eq!(told(this, &[], &map), [Code::VariableMissing]);
    let old = format!("{this}components: {{flux: {{version: v2.8.8, sourceWatcher: true}}}}\n");
    assert_eq!(told(&old, &[], &map), [Code::VariableUnset]);
    let generator = object(
        "source.extensions.fluxcd.io/v1beta1\nkind: ArtifactGenerator",
        "{name: a, namespace: flux-system}\nspec: {sources: [], artifacts: []}",
    );
    assert_eq!(told(this, &[], &generator), [Code::KindNotServed]);
    assert_eq!(told(&old, &[], &generator), []);

    for (addresses, expected) in [
        ("10.0.0.60-10.0.0.70", vec![Code::AddressTaken]),
        ("10.0.0.9/32", vec![Code::AddressTaken]),
        ("10.0.0.11-10.0.0.12", vec![Code::AddressTaken]),
        ("10.0.0.70-10.0.0.80", vec![]),
    ] {
        let pool = object("metallb.io/v1beta1\nkind: IPAddressPool", "{name: mine, namespace: metallb-system}");
        assert_eq!(told(this, &[], &format!("{pool}spec: {{addresses: [{addresses}]}}\n")), expected, "{addresses}");
    }
    // Without MetalLB castle makes no pool, whatever the file says of one: the repository may have its own.
    let own = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: ipaddresspools.metallb.io}\n\
               spec: {group: metallb.io, scope: Namespaced, names: {kind: IPAddressPool}, versions: [{name: v1beta1, served: true}]}\n---\n\
               apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: mine, namespace: default}\n";
    let pool = |addresses: &str| format!("{own}spec: {{addresses: [{addresses}]}}\n");
    let off = format!("{this}components: {{metallb: off}}\n");
    assert_eq!(told(&off, &[], &pool("10.0.0.50-10.0.0.60")), []);
    assert_eq!(told(&off, &[], &pool("10.0.0.9/32")), [Code::AddressTaken], "the VIP stays castle's");
}

/// Goal: what machine configurations bring is there, and what nobody read of it is never called missing. Method: docs/checks.md's way to a network of
/// one's own, in each place where a configuration can have it, and one custom resource of it.
#[test]
fn what_configurations_bring_is_there() {
    let told = |patch: &str, text: &str| {
        let (castle, manifests) = (castle(GITOPS), BTreeMap::new());
        let patches = [Secret::from(patch.to_owned())];
        codes_in(&world(&castle, &Given { nodes: &[], entry: None, manifests: &manifests, patches: &patches }), text)
    };
    let indented = |text: &str| text.lines().map(|line| format!("      {line}\n")).collect::<String>();
    let inline = |text: &str| format!("cluster:\n  inlineManifests:\n  - name: x\n    contents: |\n{}", indented(text));
    let document = |text: &str| {
        format!("apiVersion: v1alpha1\nkind: KubeInlineManifestConfig\nname: x\nmanifest: |\n{}", indented(text))
    };
    let policy = object("cilium.io/v2\nkind: CiliumNetworkPolicy", "{name: a, namespace: default}");
    let program = object("apps/v1\nkind: Deployment", "{name: cilium-operator, namespace: kube-system}\nspec: {}");
    let map = |namespace: &str| object("v1\nkind: ConfigMap", &format!("{{name: a, namespace: {namespace}}}"));
    assert_eq!(told("", &policy), [Code::KindNotServed]);
    let forms: [&dyn Fn(&str) -> String; 2] = [&inline, &document];
    for bring in forms {
        // Cilium's operator makes the definitions once it runs.
        assert_eq!(told(&bring(&program), &policy), [Code::NotJudged]);
        assert_eq!(told(&bring(&program), &map("net")), [Code::NotJudged]);
        assert_eq!(told(&bring("a: [not a manifest"), &policy), [Code::NotJudged]);
        // A program may also make what variables come from.
        let open = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: a, namespace: flux-system}\n\
                    spec: {interval: 1h, retryInterval: 1m, prune: true, path: ./a, sourceRef: {kind: GitRepository, name: flux-system}, \
                    postBuild: {substitute: {a: b}, substituteFrom: [{kind: ConfigMap, name: made, optional: true}]}}\n";
        let tree = Tree::new([
            ("clusters/blue/all.yaml".to_owned(), open.as_bytes().to_vec()),
            ("a/map.yaml".to_owned(), format!("{}data: {{a: '${{unknown}}'}}\n", map("default")).into_bytes()),
        ]);
        for (patch, expected) in [(bring(&program), None), (String::new(), Some(Code::VariableMissing))] {
            let (castle, manifests) = (castle(GITOPS), BTreeMap::new());
            let patches = [Secret::from(patch)];
            let given = Given { nodes: &[], entry: None, manifests: &manifests, patches: &patches };
            let mut findings = judge(&tree, &world(&castle, &given)).findings.into_iter();
            assert_eq!(findings.find(|it| it.code == Code::VariableMissing).map(|it| it.code), expected);
        }

        let namespace = object("v1\nkind: Namespace", "{name: net}");
        assert_eq!(told(&bring(&namespace), &map("net")), []);
        assert_eq!(told(&bring(&namespace), &map("other")), [Code::NamespaceMissing], "all of it was read");
        assert_eq!(told(&bring(&namespace), &namespace), [], "it is not castle's");

        let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
                          metadata: {name: ciliumnetworkpolicies.cilium.io}\n\
                          spec: {group: cilium.io, names: {kind: CiliumNetworkPolicy}, versions: [{name: v2, served: true}]}\n";
        assert_eq!(told(&bring(definition), &policy), []);
        assert_eq!(told(&bring(definition), definition), [], "nor is that");
        assert_eq!(told(&bring(definition), &policy.replace("NetworkPolicy", "NodeConfig")), [Code::KindNotServed]);

        let secret =
            object("v1\nkind: Secret", "{name: key, namespace: kube-system}\nstringData: {a: of-no-use-anywhere}");
        let world = {
            let (castle, manifests) = (castle(GITOPS), BTreeMap::new());
            let patches = [Secret::from(bring(&secret))];
            world(&castle, &Given { nodes: &[], entry: None, manifests: &manifests, patches: &patches })
        };
        assert!(!format!("{world:?}").contains("of-no-use-anywhere"), "of a Secret only the name is kept");
    }
    for named in [
        "cluster: {extraManifests: ['https://me:secret@manifests.lan/cilium.yaml']}\n",
        "cluster: {network: {cni: {name: custom, urls: ['https://manifests.lan/cilium.yaml']}}}\n",
        "cluster: {externalCloudProvider: {enabled: true, manifests: ['https://manifests.lan/cloud.yaml']}}\n",
        "apiVersion: v1alpha1\nkind: KubeExternalManifestConfig\nname: x\nurl: https://manifests.lan/cilium.yaml\n",
    ] {
        assert_eq!(told(named, &policy), [Code::NotJudged], "{named}");
        assert_eq!(told(named, &map("net")), [Code::NotJudged], "{named}");
    }
    assert_eq!(told("cluster: {extraManifests: []}\n", &policy), [Code::KindNotServed]);
}

/// On hypervisors manifests are downloaded when they are applied, not only to be compared with. That they were not is said.
#[test]
fn manifests_that_are_not_at_hand_are_named() {
    let unseen = |manifests: &BTreeMap<ComponentName, Vec<Object>>| {
        let tree = Tree::new([("clusters/blue/all.yaml".to_owned(), Vec::new())]);
        let given = Given { nodes: &[], entry: None, manifests, patches: &[] };
        let verdict = judge(&tree, &world(&castle(GITOPS), &given));
        verdict.findings.into_iter().find(|it| it.code == Code::NotJudged).map(|it| it.subject)
    };
    assert_eq!(unseen(&BTreeMap::new()).as_deref(), Some("external-secrets, metallb, flux"));
    let all = ComponentName::ALL.map(|name| (name, Vec::new())).into();
    assert_eq!(unseen(&all), None);
}

/// Goal: what a component serves that castle was not tested with is not taken from the tables. Method: a version and a manifest of one's own, not at hand.
#[test]
fn what_another_manifest_serves_is_not_judged() {
    let (none, all) = (BTreeMap::new(), ComponentName::ALL.map(|name| (name, Vec::new())).into());
    let old = object(
        "external-secrets.io/v1beta1\nkind: ExternalSecret",
        "{name: a, namespace: default}\nspec: {secretStoreRef: {kind: ClusterSecretStore, name: infisical}}",
    );
    let routes = object("frrk8s.metallb.io/v1beta1\nkind: FRRConfiguration", "{name: a, namespace: default}");
    let stranger = object("acme.example/v1\nkind: Widget", "{name: a, namespace: default}");
    let by = |settings: &str| format!("{GITOPS}components: {{{settings}}}\n");
    let (judged, unjudged) = (vec![Code::KindNotServed], vec![Code::NotJudged]);
    for (file, manifests, text, expected) in [
        (GITOPS.to_owned(), &none, &old, &judged),
        (by("externalSecrets: {version: v2.9.0}"), &none, &old, &judged),
        (by("externalSecrets: {version: v2.9.3}"), &none, &old, &unjudged),
        (by("externalSecrets: {source: own.yaml}"), &none, &old, &unjudged),
        (by("externalSecrets: {source: own.yaml}"), &all, &old, &judged),
        (by("metallb: {source: own.yaml}"), &none, &old, &judged),
        (by("metallb: {source: own.yaml}"), &none, &routes, &unjudged),
        (by("metallb: {version: v0.15.3}"), &none, &routes, &unjudged),
        (by("metallb: {version: v0.15.3}"), &none, &stranger, &judged),
        (by("metallb: {source: own.yaml}"), &none, &stranger, &unjudged),
    ] {
        assert_eq!(&codes(&file, manifests, text), expected, "{file}{text}");
    }
}

#[test]
fn each_trouble_has_its_class_and_a_way_out() {
    let told = |error: &GitError| fault("https://me:secret@git.example.com/blue.git", "main", error);
    for (error, is_final) in [
        (GitError::Unreachable("refused".to_owned()), false),
        (GitError::Damaged("a pack without an end"), false),
        (GitError::Untrusted("expired".to_owned()), true),
        (GitError::CredentialRejected { given: true }, true),
        (GitError::CredentialRejected { given: false }, true),
        (GitError::NotFound(404), true),
        (GitError::NotGit("so"), true),
        (GitError::Address("address: so".to_owned()), true),
        (GitError::Empty, true),
        (GitError::BranchMissing { branch: "main".to_owned(), others: Vec::new() }, true),
        (GitError::TooLarge("so"), true),
        (GitError::Ssh, true),
    ] {
        let fault = told(&error);
        assert_eq!(fault.is_final(), is_final, "{error:?}");
        assert!(!fault.next.is_empty() && !format!("{fault:?}").contains("secret"), "{fault:?}");
        assert_eq!(fault.subject, "https://git.example.com/blue.git");
    }
}
