//! What is generated, against golden files, the schema, and Talos' own validators.

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::oracles::{Bundle, Schema, data, library, talosctl};
use super::samples::{fake, inputs, plain, rich};
use super::*;

const CONTRACTS: [Contract; 3] = [Contract::V1_12, Contract::V1_13, Contract::V1_14];
const ROLES: [Role; 2] = [Role::ControlPlane, Role::Worker];

/// Reading it takes a while.
static SCHEMA: LazyLock<Option<Schema>> = LazyLock::new(Schema::load);

/// Generates and has the schema judge it.
fn made(contract: Contract, role: Role, input: &Input<'_>) -> Configuration {
    let configuration = generate(contract, role, input).unwrap();
    if let Some(schema) = SCHEMA.as_ref() {
        schema.judge(contract, &configuration);
    }
    configuration
}

/// The document of a kind, which there must be once.
fn document<'c>(configuration: &'c Configuration, kind: &str) -> &'c Value {
    let mut found = configuration.documents().iter().filter(|document| document["kind"] == kind);
    let document = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    document
}

fn has(configuration: &Configuration, kind: &str) -> bool {
    configuration.documents().iter().any(|document| document["kind"] == kind)
}

#[test]
fn golden_files_are_met_byte_for_byte() {
    let Some(bundle) = Bundle::load() else { return };
    for contract in CONTRACTS {
        for (role, name) in [(Role::ControlPlane, "controlplane"), (Role::Worker, "worker")] {
            let Some(golden) = data(&format!("golden/v{contract}/base-{name}.yaml")) else { return };
            let mine = made(contract, role, &plain(bundle.secrets()));
            assert_eq!(mine.documents(), yaml::parse(&golden).unwrap(), "{contract} {name}");
            assert_eq!(mine.text().expose(), golden, "{contract} {name}");
        }
    }
}

#[test]
fn everything_that_is_asked_for_is_said() {
    for contract in [Contract::V1_13, Contract::V1_14] {
        for role in ROLES {
            let configuration = made(contract, role, &rich(fake()));
            insta::assert_snapshot!(format!("{contract}-{role:?}"), configuration.text().expose());
        }
    }
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    for contract in CONTRACTS {
        for role in ROLES {
            for (name, input) in inputs(fake()) {
                let text = made(contract, role, &input).text();
                assert_eq!(text.expose(), made(contract, role, &input.clone()).text().expose(), "{contract} {name}");
                let again = Configuration::parse(text.expose()).unwrap();
                assert_eq!(again.text().expose(), text.expose(), "{contract} {name}");
            }
        }
    }
}

#[test]
fn only_control_planes_hold_keys_and_the_shared_address() {
    for contract in CONTRACTS {
        let worker = made(contract, Role::Worker, &rich(fake()));
        assert!(!has(&worker, "Layer2VIPConfig"));
        let keys = ["etcd key", "k8s key", "aggregator key", "os key", "service account key", "secretbox"];
        let text = worker.text();
        for key in keys {
            use base64::Engine as _;
            let encoded = base64::engine::general_purpose::STANDARD.encode(format!("{key}\n"));
            assert!(!text.expose().contains(key) && !text.expose().contains(&encoded), "{contract}: {key}");
        }
        let control_plane = made(contract, Role::ControlPlane, &rich(fake()));
        assert_eq!(document(&control_plane, "Layer2VIPConfig")["name"], "192.168.1.210");
    }
}

#[test]
fn control_planes_that_work_are_neither_tainted_nor_left_out() {
    let taint = "node-role.kubernetes.io/control-plane";
    let label = "node.kubernetes.io/exclude-from-external-load-balancers";
    let mut input = plain(fake());
    let before = made(Contract::V1_14, Role::ControlPlane, &input);
    assert_eq!(document(&before, "KubeNodeConfig")["taints"], json!({taint: "NoSchedule"}));
    input.cluster.schedule_on_control_planes = true;
    let after = made(Contract::V1_14, Role::ControlPlane, &input);
    assert_eq!(document(&after, "KubeNodeConfig").get("taints"), None);
    assert_eq!(document(&after, "KubeNodeConfig")["labels"], json!({taint: "", label: ""}));
    input.cluster.balance_to_control_planes = true;
    let balanced = made(Contract::V1_14, Role::ControlPlane, &input);
    assert_eq!(document(&balanced, "KubeNodeConfig")["labels"], json!({taint: ""}));
    let older = made(Contract::V1_13, Role::ControlPlane, &input);
    assert_eq!(older.documents()[0]["cluster"]["allowSchedulingOnControlPlanes"], true);
    assert_eq!(older.documents()[0]["machine"].get("nodeLabels"), None);
}

#[test]
fn a_disk_that_comes_with_talos_is_not_installed_on() {
    let mut input = plain(fake());
    input.node.install = None;
    for contract in CONTRACTS {
        let configuration = made(contract, Role::Worker, &input);
        assert_eq!(configuration.documents()[0]["machine"].get("install"), None);
        assert!(!has(&configuration, "UnattendedInstallConfig"));
    }
}

#[test]
fn what_a_contract_cannot_say_is_refused() {
    let install = |disk| Some(Install { disk: Some(disk), ..Install::default() });
    let mut input = plain(fake());
    input.node.install = install(Disk::Matching("disk.rotational".to_owned()));
    assert_eq!(
        generate(Contract::V1_13, Role::Worker, &input).unwrap_err(),
        ConfigError::DiskExpression(Contract::V1_13)
    );
    let newer = made(Contract::V1_14, Role::Worker, &input);
    assert_eq!(
        document(&newer, "UnattendedInstallConfig")["provisioning"],
        json!({"diskSelector": {"match": "disk.rotational"}, "wipe": false})
    );
    input.node.install = install(Disk::NotSystem);
    for contract in CONTRACTS {
        assert_eq!(generate(contract, Role::Worker, &input).unwrap_err(), ConfigError::InstallBesideSystem);
    }
    input.node.install = None;
    input.node.time_servers = vec!["/dev/ptp0".to_owned(), "time.lan".to_owned()];
    for contract in CONTRACTS {
        assert_eq!(generate(contract, Role::Worker, &input).unwrap_err(), ConfigError::MixedClocks);
    }
}

#[test]
fn contracts_are_told_from_versions() {
    assert_eq!(Contract::of("v1.12.0"), Some(Contract::V1_12));
    assert_eq!(Contract::of("1.13.9"), Some(Contract::V1_13));
    assert_eq!(Contract::of("v1.14.0-rc.1"), Some(Contract::V1_14));
    for unknown in ["v1.11.5", "v1.15.0", "v2.13.0", "v1", "", "main"] {
        assert_eq!(Contract::of(unknown), None, "{unknown}");
    }
}

#[test]
fn nothing_shows_a_secret() {
    let input = rich(fake());
    let configuration = made(Contract::V1_14, Role::ControlPlane, &input);
    for shown in [format!("{configuration:?}"), format!("{input:?}")] {
        for secret in ["cluster secret", "trustd token", "os key", "mirror password", "a token"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
    assert!(format!("{configuration:?}").contains("LinkConfig/net0"));
}

/// Which of the inputs a disk-less mode accepts: on metal Talos wants to know where to install.
fn is_for_metal(input: &Input<'_>) -> bool {
    input.node.install.as_ref().is_some_and(|install| install.disk.is_some())
}

#[test]
fn talosctl_finds_every_configuration_valid() {
    let Some(bundle) = Bundle::load() else { return };
    for contract in [Contract::V1_12, Contract::V1_13] {
        for role in ROLES {
            for (name, input) in inputs(bundle.secrets()) {
                let text = made(contract, role, &input).text();
                for mode in ["cloud", "metal"] {
                    let Some(verdict) =
                        talosctl(&["validate", "--strict", "--mode", mode, "--config", "{}"], &[text.expose()])
                    else {
                        return;
                    };
                    if mode == "cloud" || is_for_metal(&input) {
                        assert!(verdict.is_ok(), "{contract} {role:?} {name} {mode}: {verdict:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn talos_library_finds_every_configuration_valid() {
    let Some(bundle) = Bundle::load() else { return };
    let mut names = Vec::new();
    let mut questions = Vec::new();
    for contract in CONTRACTS {
        for role in ROLES {
            for (name, input) in inputs(bundle.secrets()) {
                let text = made(contract, role, &input).text();
                let mode = if is_for_metal(&input) { "metal" } else { "cloud" };
                questions.push(json!({"config": text.expose(), "mode": mode}));
                names.push(format!("{contract} {role:?} {name}"));
            }
        }
    }
    // The judge is awake.
    questions.push(json!({"config": "machine:\n    type: worker\n    tokens: x\n", "mode": "cloud"}));
    names.push("an unknown key".to_owned());
    let Some(mut answer) = library(&json!({"validate": questions})) else { return };
    let last = answer["validate"].as_array_mut().unwrap().pop().unwrap();
    assert!(last["error"].as_str().unwrap().contains("unknown keys"), "{last}");
    names.pop();
    for (name, verdict) in names.iter().zip(answer["validate"].as_array().unwrap()) {
        assert_eq!(verdict["error"], "", "{name}");
    }
    assert_eq!(answer["validate"].as_array().unwrap().len(), names.len());
}

/// What Talos hides is hidden here, too.
#[test]
fn talos_library_hides_nothing_that_is_shown_here() {
    let Some(bundle) = Bundle::load() else { return };
    let whole: Vec<_> = CONTRACTS.map(|contract| made(contract, Role::ControlPlane, &rich(bundle.secrets()))).into();
    let texts: Vec<_> = whole.iter().map(|whole| whole.text().expose().to_owned()).collect();
    let Some(answer) = library(&json!({"redact": texts})) else { return };
    for (whole, hidden) in whole.iter().zip(answer["redact"].as_array().unwrap()) {
        assert_eq!(hidden["error"], "");
        let hidden = Configuration::parse(hidden["config"].as_str().unwrap()).unwrap();
        let found = whole.differences(&hidden);
        assert!(found.len() >= 9, "{found:#?}");
        for difference in found {
            assert_eq!((&difference.is, &difference.wanted), (&Side::Hidden, &Side::Hidden), "{}", difference.path);
        }
    }
}
