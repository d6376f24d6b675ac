//! Releases of the charts that are known here: their objects appear, and the release is ready once they are.

use serde_json::Value;

use super::apply::Entry;
use super::health::{self, Health};
use super::{RELEASES, Turn, charts, mark};
use crate::kubernetes::kube::{Key, Kube, Writer};
use crate::kubernetes::value;

const CONTROLLER: &str = "helm-controller";
const WRITER: Writer<'_> = Writer { name: CONTROLLER, subresource: "" };
const STATUS: Writer<'_> = Writer { name: CONTROLLER, subresource: "status" };

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
                let turn = Turn { mark, next: now + wait, waits: Some((now, now + wait)), applied: None };
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
        let place = format!("{}/{}", charts::target(release), charts::name(release));
        let Some(objects) = charts::objects(release) else {
            self.say_not_installed(key, &place, &format!("chart {chart:?} is not simulated here"));
            self.rests(key);
            return;
        };
        for object in &objects {
            let applied =
                self.place_of(&Entry::of(object)).and_then(|(path, _)| self.ask_as(CONTROLLER, "PATCH", &path, object));
            if let Err(why) = applied {
                self.say_not_installed(key, &place, &why);
                return;
            }
        }
        let is_ready =
            |object: &Value| self.live(&Entry::of(object)).is_some_and(|live| health::of(&live) == Health::Current);
        if !objects.iter().all(is_ready) {
            return;
        }
        let version = value::text(release, "spec.chart.spec.version");
        let message = format!("Helm install succeeded for release {place}.v1 with chart {chart}@{version}");
        let told = [
            ("Ready", "True", "InstallSucceeded", message.as_str()),
            ("Released", "True", "InstallSucceeded", &message),
        ];
        self.say_flux(&STATUS, key, &told, Self::observe);
        self.tell(CONTROLLER, release, true, "InstallSucceeded", &message);
        self.rests(key);
    }

    fn say_not_installed(&mut self, key: &Key, place: &str, why: &str) {
        let why = format!("Helm install failed for release {place}: {why}");
        let told = [("Ready", "False", "InstallFailed", why.as_str()), ("Released", "False", "InstallFailed", &why)];
        self.say_flux(&STATUS, key, &told, Self::observe);
    }

    fn rests(&mut self, key: &Key) {
        if let Some(turn) = self.components.flux.turns.get_mut(key) {
            turn.waits = None;
        }
    }

    fn uninstall(&mut self, key: &Key, release: &Value) {
        if !value::is_true(release, "spec.suspend") {
            let objects = charts::objects(release).unwrap_or_default();
            for object in objects.iter().filter(|object| !charts::is_kept(object)) {
                let Ok((path, _)) = self.place_of(&Entry::of(object)) else { continue };
                // What is gone already needs no end.
                let _ = self.ask_as(CONTROLLER, "DELETE", &path, &Value::Null);
            }
        }
        self.let_go(&WRITER, key);
    }
}
