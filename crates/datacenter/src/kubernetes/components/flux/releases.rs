//! Releases of the charts that are known here: their Deployments appear, and the release is ready once they are.

use serde_json::{Value, json};

use super::health::{self, Health};
use super::{RELEASES, Turn, mark};
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;

const CONTROLLER: &str = "helm-controller";
const WRITER: Writer<'_> = Writer { name: CONTROLLER, subresource: "" };
const STATUS: Writer<'_> = Writer { name: CONTROLLER, subresource: "status" };

/// The Deployments of a chart; nothing if it is not known here.
fn deployments(chart: &str) -> Option<&'static [&'static str]> {
    match chart {
        "traefik" => Some(&["traefik"]),
        "cert-manager" => Some(&["cert-manager", "cert-manager-cainjector", "cert-manager-webhook"]),
        _ => None,
    }
}

impl Kube {
    pub(super) fn sync_releases(&mut self) {
        for key in self.keys(RELEASES, "") {
            let Some(release) = self.get(&key.0, &key.1, &key.2) else { continue };
            if value::is_deleting(&release) {
                self.uninstall(&key, &release);
                continue;
            }
            self.hold(&WRITER, &key);
            if value::is_true(&release, "spec.suspend") {
                continue;
            }
            let (mark, now) = (mark(&release), self.now);
            if self.components.flux.turns.get(&key).is_none_or(|turn| turn.mark != mark) {
                let wait = self.draw("flux helm", self.setup.latencies.components.chart);
                let turn = Turn { mark, next: now + wait, waits: Some((now, now + wait)) };
                self.components.flux.turns.insert(key.clone(), turn);
                let told = [
                    ("Reconciling", "True", "Progressing", "Running 'install' action"),
                    ("Ready", "Unknown", "Progressing", "Running 'install' action"),
                ];
                self.say_flux(&STATUS, &key, &told, |_| {});
                self.flux_again(now + wait);
            }
            let is_due =
                self.components.flux.turns.get(&key).is_some_and(|turn| turn.waits.is_some() && now >= turn.next);
            if is_due {
                self.install(&key, &release);
            }
        }
    }

    fn install(&mut self, key: &Key, release: &Value) {
        let chart = value::text(release, "spec.chart.spec.chart");
        let name = release_name(release);
        let Some(names) = deployments(chart) else {
            let why = format!(
                "Helm install failed for release {}/{name}: chart {chart:?} is not simulated here",
                target(release)
            );
            let told =
                [("Ready", "False", "InstallFailed", why.as_str()), ("Released", "False", "InstallFailed", &why)];
            self.say_flux(&STATUS, key, &told, Self::observe);
            self.rests(key);
            return;
        };
        for deployment in names {
            let object = manifest(release, deployment);
            let path = format!("/apis/apps/v1/namespaces/{}/deployments/{deployment}", target(release));
            if let Err(why) = self.ask_as(CONTROLLER, "PATCH", &path, &object) {
                let why = format!("Helm install failed for release {}/{name}: {why}", target(release));
                let told = [("Ready", "False", "InstallFailed", why.as_str())];
                self.say_flux(&STATUS, key, &told, Self::observe);
                return;
            }
        }
        let is_ready = names.iter().all(|deployment| {
            self.get("deployments.apps", target(release), deployment)
                .is_some_and(|it| health::of(&it) == Health::Current)
        });
        if !is_ready {
            return;
        }
        let version = value::text(release, "spec.chart.spec.version");
        let message =
            format!("Helm install succeeded for release {}/{name}.v1 with chart {chart}@{version}", target(release));
        let told = [
            ("Ready", "True", "InstallSucceeded", message.as_str()),
            ("Released", "True", "InstallSucceeded", &message),
        ];
        self.say_flux(&STATUS, key, &told, Self::observe);
        self.tell(CONTROLLER, release, true, "InstallSucceeded", &message);
        self.rests(key);
    }

    fn rests(&mut self, key: &Key) {
        if let Some(turn) = self.components.flux.turns.get_mut(key) {
            turn.waits = None;
        }
    }

    fn uninstall(&mut self, key: &Key, release: &Value) {
        let names = deployments(value::text(release, "spec.chart.spec.chart")).unwrap_or_default();
        for name in names.iter().filter(|_| !value::is_true(release, "spec.suspend")) {
            let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}", target(release));
            // What is gone already needs no end.
            let _ = self.ask_as(CONTROLLER, "DELETE", &path, &Value::Null);
        }
        self.let_go(&WRITER, key);
    }
}

fn target(release: &Value) -> &str {
    let own = value::text(release, "spec.targetNamespace");
    if own.is_empty() { value::namespace(release) } else { own }
}

fn release_name(release: &Value) -> &str {
    let own = value::text(release, "spec.releaseName");
    if own.is_empty() { value::name(release) } else { own }
}

fn manifest(release: &Value, name: &str) -> Value {
    let labels = json!({
        "app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "Helm",
        "helm.toolkit.fluxcd.io/name": value::name(release), "helm.toolkit.fluxcd.io/namespace": value::namespace(release),
    });
    let annotations = json!({
        "meta.helm.sh/release-name": release_name(release), "meta.helm.sh/release-namespace": target(release),
    });
    let selector = json!({ "app.kubernetes.io/name": name });
    let image = format!("example.com/charts/{name}:1");
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": target(release), "labels": labels, "annotations": annotations },
        "spec": {
            "selector": { "matchLabels": selector },
            "template": { "metadata": { "labels": selector }, "spec": { "containers": [{ "name": "main", "image": image }] } },
        },
    })
}
