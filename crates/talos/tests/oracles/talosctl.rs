//! Bundles and talosconfigs, passed to talosctl and back.

use std::path::PathBuf;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_seams::{Clock, SystemClock};
use castle_talos::model::bundle::{Bundle, Options, ServiceAccountKey};
use castle_talos::model::clients;
use castle_talos::model::config::Contract;
use castle_talos::model::pki::YEAR;
use castle_yaml as yaml;
use serde_json::Value;

use crate::openssl::{has_openssl, read_by_openssl};
use crate::{is_there, run, system_doors};

fn talosctl() -> Option<PathBuf> {
    let program = std::env::var_os("TALOSCTL").map_or_else(|| "talosctl".into(), PathBuf::from);
    let found = is_there(&program, &["version", "--client"]).then_some(program);
    if found.is_none() {
        castle_testbed::left_to_peers("there is no talosctl to compare with (set TALOSCTL)");
    }
    found
}

#[tokio::test]
async fn talosctl_takes_our_bundle_and_we_take_its() {
    let Some(talosctl) = talosctl() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let clock = SystemClock::new();

    // Its own, and the same after us.
    run(&talosctl, &["gen", "secrets", "--output-file", &file("its.yaml")]);
    let loaded = Bundle::load(&read("its.yaml"), clock.wall()).unwrap();
    assert_eq!(loaded.notes, []);
    assert_eq!(loaded.bundle.save().expose(), read("its.yaml"));

    for service_account in [ServiceAccountKey::EcdsaP256, ServiceAccountKey::Rsa4096] {
        let options = Options { contract: Contract::V1_13, service_account };
        let bundle = Bundle::generate(options, system_doors(&clock)).await.unwrap();
        std::fs::write(file("ours.yaml"), bundle.save().expose()).unwrap();
        let made = ["gen", "config", "base", "https://base:6443", "--force", "--with-secrets", &file("ours.yaml")];
        run(&talosctl, &[&made[..], &["--output", &file("out")]].concat());

        // What it makes of ours gives ours again: by its own reading, and by our own.
        let control_plane = read("out/controlplane.yaml");
        let imported = Bundle::import(&control_plane, clock.wall()).unwrap();
        assert_eq!(imported.bundle.save().expose(), bundle.save().expose());
        let made = ["gen", "secrets", "--force", "--from-controlplane-config", &file("out/controlplane.yaml")];
        run(&talosctl, &[&made[..], &["--output-file", &file("again.yaml")]].concat());
        assert_eq!(read("again.yaml"), bundle.save().expose());
    }
}

#[tokio::test]
async fn talosctl_reads_our_talosconfig_and_writes_the_same() {
    let Some(talosctl) = talosctl() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let read = |name: &str| std::fs::read_to_string(file(name)).unwrap();
    let clock = SystemClock::new();
    let options = Options { contract: Contract::V1_13, service_account: ServiceAccountKey::EcdsaP256 };
    let (bundle, other) = (
        Bundle::generate(options, system_doors(&clock)).await.unwrap(),
        Bundle::generate(options, system_doors(&clock)).await.unwrap(),
    );
    let issue = async |bundle: &Bundle| {
        let addresses = ["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
        clients::talosconfig(bundle, "base", &addresses, &addresses[..1], YEAR, system_doors(&clock)).await.unwrap()
    };

    // Written anew by talosctl, a file of ours is the same.
    let ours = issue(&bundle).await;
    std::fs::write(file("ours"), ours.expose()).unwrap();
    run(&talosctl, &["config", "context", "base", "--talosconfig", &file("ours")]);
    assert_eq!(read("ours"), ours.expose());
    let told: Value =
        serde_json::from_str(&run(&talosctl, &["config", "info", "--output", "json", "--talosconfig", &file("ours")]))
            .unwrap();
    assert_eq!(told["roles"], serde_json::json!(["os:admin"]));

    // Merged by talosctl and by us, two files are the same.
    let others = issue(&other).await;
    std::fs::write(file("others"), others.expose()).unwrap();
    run(&talosctl, &["config", "merge", &file("others"), "--talosconfig", &file("ours")]);
    let merged = clients::merge_talosconfig(ours.expose(), &others).unwrap();
    assert_eq!(merged.context, "base-1");
    assert_eq!(read("ours"), merged.text.expose());

    // And what talosctl makes of the same bundle has the shape of ours.
    std::fs::write(file("secrets.yaml"), bundle.save().expose()).unwrap();
    let made = ["gen", "config", "base", "https://base:6443", "--with-secrets", &file("secrets.yaml")];
    run(&talosctl, &[&made[..], &["--output-types", "talosconfig", "--output", &file("its")]].concat());
    let its = yaml::parse(&read("its")).unwrap().remove(0);
    let own = yaml::parse(ours.expose()).unwrap().remove(0);
    assert_eq!(its["contexts"]["base"]["ca"], own["contexts"]["base"]["ca"]);
    if !has_openssl() {
        return;
    }
    let shape = |config: &Value| {
        let certificate = STANDARD.decode(config["contexts"]["base"]["crt"].as_str().unwrap()).unwrap();
        let text = read_by_openssl(folder.path(), str::from_utf8(&certificate).unwrap());
        text.lines()
            .filter(|line| !line.starts_with("serial=") && !line.starts_with("not"))
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(shape(&its), shape(&own));
}
