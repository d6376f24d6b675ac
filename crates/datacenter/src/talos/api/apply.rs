//! Taking over a configuration.

use std::sync::Arc;
use std::time::Duration;

use castle_talos_api::machine::apply_configuration_request::Mode;
use castle_talos_api::machine::{ApplyConfiguration, ApplyConfigurationRequest, ApplyConfigurationResponse};
use serde_json::{Map, Value};
use tonic::{Request, Response, Status};

use super::Api;
use super::call::Caller;
use crate::datacenter::Datacenter;
use crate::talos::Happening;
use crate::talos::config::yaml::{Content, Yaml};
use crate::talos::config::{Config, NO_MACHINE};
use crate::talos::node::{After, Moment, Stage};
use crate::world::World;
use crate::world::events::Event;

/// How long a configuration is tried that nobody gave a time for.
const TRIED: Duration = Duration::from_secs(60);
/// After so many seconds the kubelet, which looks every 20 s, finds that the API server is to be started in another way.
const POD_CHECK: f64 = 12.0;
/// How long it takes until what a configuration says of its node of Kubernetes has come through to it: several controllers follow one another.
const FOLLOWING: f64 = 0.5;

/// Where the parts of a machine's configuration are that hold without a reboot, up to 1.13.
const AT_ONCE: [&str; 16] = [
    "ca",
    "acceptedCAs",
    "time",
    "certSANs",
    "install",
    "network",
    "sysfs",
    "sysctls",
    "logging",
    "controlPlane",
    "kubelet",
    "kernel",
    "registries",
    "pods",
    "seccompProfiles",
    "nodeAnnotations",
];

/// The same among the features.
const FEATURES_AT_ONCE: [&str; 5] =
    ["kubernetesTalosAPIAccess", "kubePrism", "hostDNS", "imageCache", "nodeAddressSortAlgorithm"];

/// Notes that a node takes over a configuration, as long as it does.
struct Applying {
    datacenter: Datacenter,
    vmid: u32,
}

impl Drop for Applying {
    fn drop(&mut self) {
        self.datacenter.world().talos.applying.remove(&self.vmid);
    }
}

impl Api {
    pub(super) async fn apply(
        &self,
        request: Request<ApplyConfigurationRequest>,
    ) -> Result<Response<ApplyConfigurationResponse>, Status> {
        let is_first = self.datacenter.world().talos.applying.insert(self.vmid);
        let _applying = is_first.then(|| Applying { datacenter: self.datacenter.clone(), vmid: self.vmid });
        self.unary("ApplyConfiguration", request, |world, caller, asked| {
            if !is_first {
                return Err(Status::failed_precondition("another apply configuration is already in progress"));
            }
            let applied = world.apply_configuration(caller, asked)?;
            Ok(ApplyConfigurationResponse { messages: vec![applied] })
        })
        .await
    }
}

impl World {
    fn apply_configuration(
        &mut self,
        caller: &Caller,
        asked: &ApplyConfigurationRequest,
    ) -> Result<ApplyConfiguration, Status> {
        let vmid = caller.vmid;
        if !caller.is_maintenance && !caller.is_admin() {
            return Err(Status::permission_denied("not authorized"));
        }
        let gone = || Status::unavailable("the node is going down");
        let node = self.talos.nodes.get(&vmid).ok_or_else(gone)?;
        let version = node.image.version.trim_start_matches('v').to_owned();
        let (minor, boot) = (node.image.minor(), node.boot.as_ref().ok_or_else(gone)?);
        if minor < 14 && boot.stage == Stage::Rebooting {
            return Err(Status::failed_precondition(
                "configuration was already applied and node is rebooting, cannot apply more configuration changes until next reboot",
            ));
        }
        let current = boot.config.clone();
        let is_maintenance = current.is_none();
        // Before anything is read of it, also of what is only asked for: what was tried stays.
        if asked.mode() != Mode::Try
            && let Some(boot) = self.talos.boot_mut(vmid)
        {
            boot.tried = None;
        }
        let text = std::str::from_utf8(&asked.data).map_err(|_| Status::invalid_argument("config is not text"))?;
        let mut mode = asked.mode();
        if mode == Mode::Reboot && minor >= 14 && !is_maintenance {
            return Err(Status::unimplemented(
                "the REBOOT mode is not supported, please use AUTO or NO_REBOOT modes instead",
            ));
        }
        let is_partial = is_maintenance && is_partial(text);
        let (config, warnings) = if is_partial {
            let (_, warnings) = Config::judge(minor, &version, text, false).map_err(Status::invalid_argument)?;
            (None, warnings)
        } else {
            let accepted = Config::accept(minor, &version, text).map_err(Status::invalid_argument)?;
            (Some(accepted.config), accepted.warnings)
        };
        if mode == Mode::Reboot && is_maintenance {
            mode = Mode::NoReboot;
        }
        let before = current.as_ref().map(|current| current.text.as_str()).unwrap_or_default();
        let can_hold = minor >= 14
            || current.as_ref().zip(config.as_ref()).is_none_or(|(current, config)| holds_at_once(current, config));
        let cannot =
            || format!("this config change can't be applied in immediate mode\ndiff:\n{}", difference(before, text));
        let (mut details, mut why) = match mode {
            Mode::Staged => ("Staged configuration to be applied after the next reboot".to_owned(), String::new()),
            Mode::Auto | Mode::NoReboot | Mode::Try if can_hold => {
                ("Applied configuration without a reboot".to_owned(), String::new())
            }
            Mode::NoReboot | Mode::Try => return Err(Status::invalid_argument(cannot())),
            Mode::Auto => ("Applied configuration with a reboot".to_owned(), format!(": {}", cannot())),
            Mode::Reboot => ("Applied configuration with a reboot".to_owned(), String::new()),
        };
        if mode == Mode::Auto {
            mode = if can_hold { Mode::NoReboot } else { Mode::Reboot };
        }
        // What is only looked at is not warned about.
        let mut told = Vec::new();
        if asked.dry_run {
            let difference = difference(before, text);
            let difference = if difference.is_empty() { "No changes." } else { difference.as_str() };
            details = format!("Dry run summary:\n{details} (skipped in dry-run).\nConfig diff:\n\n{difference}");
            why.clear();
        } else {
            told = warnings;
            match config {
                Some(config) => self.take_over(vmid, mode, asked, config, &mut details)?,
                // Without a machine it holds as far as it goes, and the node waits on.
                None => self.effect("apply", vmid),
            }
        }
        Ok(ApplyConfiguration { metadata: None, warnings: told, mode: mode.into(), mode_details: details + &why })
    }

    pub(in super::super) fn take_over(
        &mut self,
        vmid: u32,
        mode: Mode,
        asked: &ApplyConfigurationRequest,
        config: Arc<Config>,
        details: &mut String,
    ) -> Result<(), Status> {
        let current = self.talos.boot(vmid).and_then(|boot| boot.config.clone());
        let given = asked.try_mode_timeout.as_ref().map(|time| Duration::from_secs(time.seconds.unsigned_abs()));
        if mode == Mode::Try {
            let Some(current) = &current else { return Err(Status::invalid_argument(NO_MACHINE)) };
            let timeout = given.unwrap_or(TRIED);
            *details += &format!(
                "\nThe config is applied in 'try' mode and will be automatically reverted back in {}",
                clock(timeout)
            );
            let at = self.now + timeout;
            let Some(node) = self.talos.nodes.get_mut(&vmid) else { return Ok(()) };
            let life = node.life;
            if let Some(boot) = &mut node.boot {
                // What another try was to go back to is forgotten.
                boot.tried = Some((current.clone(), at));
            }
            self.events.plan(at, Event::Talos(Happening::Node(vmid, life, Moment::Untry)));
        } else if let Some(node) = self.talos.nodes.get_mut(&vmid) {
            node.disk.config = Some(config.clone());
        }
        self.effect("apply", vmid);
        match mode {
            Mode::Staged => {}
            Mode::Reboot => self.talos_end(vmid, Stage::Rebooting, After::Boot, ""),
            _ if current.is_none() => self.talos_begin(vmid, config),
            _ => self.hold(vmid, config),
        }
        self.touch();
        Ok(())
    }

    /// A configuration takes the place of another without a reboot.
    fn hold(&mut self, vmid: u32, config: Arc<Config>) {
        let now = self.now;
        let Some(boot) = self.talos.boot_mut(vmid) else { return };
        let is_other = boot.config.as_ref().is_some_and(|before| kubelet(before) != kubelet(&config));
        let is_served_anew = boot.config.as_ref().is_some_and(|before| api_server(before) != api_server(&config));
        let before = boot.config.replace(config);
        boot.shown = boot.shown.take().or_else(|| before.clone());
        if is_other && boot.runs_kubelet {
            // It is started again, with the image and the settings that it is now given.
            boot.runs_kubelet = false;
            boot.serve(now, "kubelet", "Finished", None);
        }
        let (is_missed, runs_apiserver) = (!boot.runs_kubelet, boot.runs_apiserver);
        if is_missed {
            self.kubelet_ends(vmid);
        }
        if is_served_anew && runs_apiserver {
            self.talos_plan_fixed(vmid, Moment::StaticPods, POD_CHECK);
        }
        self.talos_plan_fixed(vmid, Moment::Specs, FOLLOWING);
        self.talos_settle_of(vmid);
        if let Some(before) = before {
            self.talos_settle(&before.key);
        }
    }

    /// A configuration that was only tried is taken back, unless it was confirmed.
    pub(crate) fn talos_untry(&mut self, vmid: u32) {
        let now = self.now;
        let tried = self.talos.boot_mut(vmid).and_then(|boot| boot.tried.take_if(|(_, until)| *until <= now));
        if let Some((config, _)) = tried {
            self.hold(vmid, config);
        }
    }
}

/// Whether a configuration is none of a machine: documents alone.
fn is_partial(text: &str) -> bool {
    let documents = crate::talos::config::yaml::documents(text).unwrap_or_default();
    !documents.is_empty() && documents.iter().all(|document| document.text_at("kind").is_some())
}

/// A time in the vendor's form: `1m0s`.
fn clock(time: Duration) -> String {
    let (hours, minutes, seconds) = (time.as_secs() / 3_600, time.as_secs() / 60 % 60, time.as_secs() % 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds}s"),
        (0, _) => format!("{minutes}m{seconds}s"),
        _ => format!("{hours}h{minutes}m{seconds}s"),
    }
}

/// How two texts differ, with the lines around it: secrets stand there as they stand in the texts.
fn difference(before: &str, after: &str) -> String {
    const AROUND: usize = 3;
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    if old == new {
        return String::new();
    }
    let first = old.iter().zip(&new).take_while(|(one, two)| one == two).count();
    let most = old.len().min(new.len()) - first;
    let last = old.iter().rev().zip(new.iter().rev()).take(most).take_while(|(one, two)| one == two).count();
    let start = first.saturating_sub(AROUND);
    let end = |lines: &[&str]| (lines.len() - last + AROUND).min(lines.len());
    let (old_end, new_end) = (end(&old), end(&new));
    let mut text = format!(
        "--- a\n+++ b\n@@ -{},{} +{},{} @@\n",
        (start + 1).min(old.len()),
        old_end - start,
        start + 1,
        new_end - start
    );
    let mut put = |mark: char, lines: &[&str]| lines.iter().for_each(|line| text.push_str(&format!("{mark}{line}\n")));
    put(' ', &old[start..first]);
    put('-', &old[first..old.len() - last]);
    put('+', &new[first..new.len() - last]);
    put(' ', &new[new.len() - last..new_end]);
    text
}

/// What of a configuration the kubelet is started with.
fn kubelet(config: &Config) -> Vec<Value> {
    let new = config.documents_of("KubeletConfig").map(|document| plain(&document.value));
    let old = config.machine().and_then(|machine| machine.at("machine.kubelet")).map(plain);
    new.chain(old).collect()
}

/// What of a configuration the API server is started with. It goes on with the old until the kubelet has looked.
fn api_server(config: &Config) -> Vec<Value> {
    const PARTS: [&str; 5] =
        ["apiServer", "network", "controlPlane", "aescbcEncryptionSecret", "secretboxEncryptionSecret"];
    let machine = config.machine();
    let old = PARTS.iter().filter_map(|part| machine?.at(&format!("cluster.{part}"))).map(plain);
    let new = config.documents_of("KubeAPIServerConfig").map(|document| plain(&document.value));
    new.chain(old).collect()
}

/// Whether a change holds without a reboot, up to 1.13.
fn holds_at_once(current: &Config, wanted: &Config) -> bool {
    rest(current) == rest(wanted)
}

/// What of a configuration needs a reboot to hold.
fn rest(config: &Config) -> Value {
    let mut value = config.machine().map_or(Value::Null, plain);
    let Some(parts) = value.as_object_mut() else { return value };
    parts.remove("cluster");
    parts.remove("debug");
    if let Some(machine) = parts.get_mut("machine").and_then(Value::as_object_mut) {
        machine
            .retain(|key, _| !AT_ONCE.contains(&key.as_str()) && !["nodeLabels", "nodeTaints"].contains(&key.as_str()));
        if let Some(features) = machine.get_mut("features").and_then(Value::as_object_mut) {
            features.retain(|key, _| !FEATURES_AT_ONCE.contains(&key.as_str()));
        }
    }
    value
}

/// A value without its lines; maps in the order of their keys.
fn plain(value: &Yaml) -> Value {
    match &value.content {
        Content::Scalar(text, _) => Value::String(text.clone()),
        Content::List(items) => items.iter().map(plain).collect(),
        Content::Map(entries) => {
            let mut entries: Vec<_> = entries.iter().map(|(key, value)| (key.clone(), plain(value))).collect();
            entries.sort_by(|one, other| one.0.cmp(&other.0));
            Value::Object(entries.into_iter().collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_with_what_is_around_them() {
        let told = difference("a\nb\nc\nd\ne\n", "a\nb\nc\nx\ne\n");
        assert_eq!(told, "--- a\n+++ b\n@@ -1,5 +1,5 @@\n a\n b\n c\n-d\n+x\n e\n");
        assert_eq!(difference("", "a\n"), "--- a\n+++ b\n@@ -0,0 +1,1 @@\n+a\n");
        assert_eq!(difference("a\n", "a\n"), "");
        assert_eq!((clock(Duration::from_secs(60)), clock(TRIED)), ("1m0s".to_owned(), "1m0s".to_owned()));
    }
}
