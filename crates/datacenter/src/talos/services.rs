//! The services of a node: the state of each, and what happened to it since the boot.

use std::time::Duration;

use super::node::Boot;

/// How many events of a service are kept.
const KEPT: usize = 64;

/// A service, as lists tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// `Initialized`, `Starting`, `Waiting`, `Preparing`, `Running`, `Finished`.
    pub(crate) state: &'static str,
    /// Nothing as long as nobody has looked.
    pub(crate) is_healthy: Option<bool>,
    /// Why it is not healthy.
    pub(crate) complaint: String,
    /// When its health last changed.
    pub(crate) since: Duration,
    pub(crate) events: Vec<Happened>,
}

/// Something that happened to a service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    pub(crate) state: &'static str,
    pub(crate) message: String,
    pub(crate) at: Duration,
}

/// What a service waits for before it can run; nothing for those that wait for nothing.
fn needs(id: &str) -> Option<&'static str> {
    Some(match id {
        "apid" => "service \"containerd\" to be \"up\", api certificates, config to be ready",
        "cri" => "volumes /var/lib, /var/lib/cni, /var/lib/containerd, /var/run, /var/run/lock to be mounted, network",
        "etcd" => "volumes /var/lib, ETCD to be mounted, service \"cri\" to be \"up\", time sync, network, etcd spec",
        "kubelet" => "service \"cri\" to be \"up\", time sync, network",
        "syslogd" => "service \"machined\" to be \"up\"",
        "trustd" => "service \"containerd\" to be \"up\", time sync, network",
        _ => return None,
    })
}

/// The number of a service's process: only that there is one matters.
pub(crate) fn pid(id: &str) -> u32 {
    80 + u32::from(id.bytes().fold(0_u8, u8::wrapping_add))
}

/// How a service tells that it has been started.
fn started(id: &str) -> String {
    let pid = pid(id);
    let process = |arguments: &str| format!("Process Process([{arguments}]) started with PID {pid}");
    match id {
        "auditd" | "machined" | "syslogd" => "Service started as goroutine".to_owned(),
        "containerd" => process(
            "\"/bin/containerd\" \"--address\" \"/system/run/containerd/containerd.sock\" \"--state\" \
             \"/system/run/containerd\" \"--root\" \"/system/var/lib/containerd\"",
        ),
        "cri" => process(
            "\"/bin/containerd\" \"--address\" \"/run/containerd/containerd.sock\" \"--config\" \
             \"/etc/cri/containerd.toml\"",
        ),
        "udevd" => process("\"/sbin/systemd-udevd\" \"--resolve-names=never\""),
        _ => format!("Started task {id} (PID {pid}) for container {id}"),
    }
}

impl Boot {
    /// Notes what a service does, if that is new.
    pub(crate) fn serve(&mut self, now: Duration, id: &'static str, state: &'static str, is_healthy: Option<bool>) {
        let known = self.services.get(id);
        if known.is_some_and(|known| known.state == state && known.is_healthy == is_healthy) {
            return;
        }
        if state == "Waiting" && known.is_some_and(|known| known.state == "Running") {
            self.note(now, id, "Finished", "Service finished successfully");
        }
        let known = self.services.get(id);
        if known.is_none_or(|known| ["Finished", "Initialized"].contains(&known.state)) {
            self.note(now, id, "Starting", "Starting service");
            if let Some(needs) = needs(id) {
                self.note(now, id, "Waiting", &format!("Waiting for {needs}"));
            }
        }
        match state {
            "Waiting" => {}
            "Preparing" => self.note(now, id, state, "Running pre state"),
            "Running" => {
                self.run(now, id);
                if let Some(is_healthy) = is_healthy {
                    self.check(now, id, is_healthy, "context deadline exceeded");
                }
            }
            other => self.note(now, id, other, "Service finished successfully"),
        }
    }

    /// Volumes are mounted before anything else that a service waits for.
    pub(crate) fn mounted(&mut self, now: Duration, id: &'static str) {
        let rest = needs(id).and_then(|needs| needs.split_once("to be mounted, ")).map(|(_, rest)| rest);
        // What is there already is waited for no more.
        let rest: Vec<&str> = rest.into_iter().flat_map(|rest| rest.split(", ")).collect();
        let is_left = |need: &&str| need.starts_with("service") || *need == "time sync" && !self.is_synced;
        let left: Vec<&str> = rest.into_iter().filter(is_left).collect();
        if !left.is_empty() {
            self.note(now, id, "Waiting", &format!("Waiting for {}", left.join(", ")));
        }
    }

    /// A service goes through all that comes before it runs.
    fn run(&mut self, now: Duration, id: &'static str) {
        let state = self.services.get(id).map(|service| service.state);
        if state == Some("Running") {
            return;
        }
        if id == "apid" && state == Some("Waiting") {
            self.note(now, id, "Waiting", "Waiting for config to be ready");
        }
        if state != Some("Preparing") {
            self.note(now, id, "Preparing", "Running pre state");
        }
        self.note(now, id, "Preparing", "Creating service runner");
        self.note(now, id, "Running", &started(id));
    }

    /// Somebody looked at the health of a service that runs.
    fn check(&mut self, now: Duration, id: &'static str, is_healthy: bool, why: &str) {
        let Some(service) = self.services.get_mut(id) else { return };
        if service.is_healthy == Some(is_healthy) {
            return;
        }
        (service.is_healthy, service.since) = (Some(is_healthy), now);
        service.complaint = if is_healthy { String::new() } else { why.to_owned() };
        let message = if is_healthy {
            "Health check successful".to_owned()
        } else {
            format!("Health check failed: {}", service.complaint)
        };
        self.note(now, id, "Running", &message);
    }

    /// Notes that a service is in a state, in these words.
    pub(crate) fn note(&mut self, now: Duration, id: &'static str, state: &'static str, message: &str) {
        let fresh = || Service { state, is_healthy: None, complaint: String::new(), since: now, events: Vec::new() };
        let service = self.services.entry(id).or_insert_with(fresh);
        if state != "Running" && service.is_healthy == Some(true) {
            (service.is_healthy, service.since) = (Some(false), now);
            "service not running".clone_into(&mut service.complaint);
        }
        service.state = state;
        service.events.push(Happened { state, message: message.to_owned(), at: now });
        if service.events.len() > KEPT {
            service.events.remove(0);
        }
        let is_healthy = service.is_healthy;
        self.story.service(now, id, state, message, is_healthy);
    }

    /// A service is loaded, but not started: whatever happened before is forgotten.
    pub(crate) fn load(&mut self, now: Duration, id: &'static str) {
        let (is_healthy, complaint, events) = (None, String::new(), Vec::new());
        self.services.insert(id, Service { state: "Initialized", is_healthy, complaint, since: now, events });
    }

    pub(crate) fn is_healthy(&self, service: &str) -> bool {
        let service = self.services.get(service);
        service.is_some_and(|service| service.state == "Running" && service.is_healthy == Some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::talos::node::Boot;

    #[test]
    fn a_service_tells_all_that_happened_to_it() {
        let mut boot = Boot::new(Duration::ZERO, String::new());
        let second = Duration::from_secs(1);
        boot.serve(Duration::ZERO, "etcd", "Waiting", None);
        boot.serve(second, "etcd", "Preparing", None);
        boot.serve(second, "etcd", "Running", None);
        boot.serve(second, "etcd", "Running", Some(true));
        boot.note(2 * second, "etcd", "Waiting", "Error");
        let etcd = &boot.services["etcd"];
        let told: Vec<_> = etcd.events.iter().map(|event| event.state).collect();
        assert_eq!(
            told,
            ["Starting", "Waiting", "Preparing", "Preparing", "Running", "Running", "Waiting"],
            "{:?}",
            etcd.events
        );
        assert_eq!((etcd.is_healthy, etcd.complaint.as_str()), (Some(false), "service not running"));
        assert!(!boot.is_healthy("etcd"));
    }
}
