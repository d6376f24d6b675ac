//! A client of one datacenter, for all tests.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, Latencies, Version};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use castle_http::{Answer, Ask, Client, Endpoint, Method, Trust};
use castle_seams::Clock;
use castle_testbed::{VirtualClock, in_virtual_time};
use serde_json::Value;

/// An image that every datacenter can download.
pub(crate) const IMAGE: &str = "https://factory.talos.dev/image/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/v1.13.9/nocloud-amd64.qcow2";

/// What was answered.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Said {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) body: Value,
}

impl Said {
    /// Status and reason in one line.
    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.status, self.reason)
    }
}

pub(crate) struct Site {
    pub(crate) datacenter: Datacenter,
    pub(crate) clock: VirtualClock,
    pub(crate) client: Client,
    pub(crate) headers: Vec<(HeaderName, HeaderValue)>,
}

pub(crate) fn client(datacenter: &Datacenter, host: &str, clock: VirtualClock) -> Client {
    let endpoint = Endpoint::parse(&format!("http://{host}:8006/api2/json")).unwrap();
    Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), Arc::new(clock)).unwrap()
}

pub(crate) fn encoded(pairs: &[(&str, &str)]) -> String {
    let code = |text: &str| {
        let letter = |byte: u8| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => (byte as char).to_string(),
            byte => format!("%{byte:02X}"),
        };
        text.bytes().map(letter).collect::<String>()
    };
    pairs.iter().map(|(key, value)| format!("{}={}", code(key), code(value))).collect::<Vec<_>>().join("&")
}

impl Site {
    pub(crate) fn new(blueprint: Blueprint, clock: &VirtualClock) -> Self {
        let host = blueprint.hosts[0].name.clone();
        let datacenter = Datacenter::new(blueprint, Arc::new(*clock));
        let client = client(&datacenter, &host, *clock);
        let mut site = Self { datacenter, clock: *clock, client, headers: Vec::new() };
        site.log_in_as(EMBEDDED_TOKEN_ID, EMBEDDED_TOKEN);
        site
    }

    pub(crate) fn log_in_as(&mut self, token: &str, secret: &str) {
        let value = HeaderValue::from_str(&format!("PVEAPIToken={token}={secret}")).unwrap();
        self.headers = vec![(AUTHORIZATION, value)];
    }

    /// Logs in with the password of the administrator.
    pub(crate) async fn log_in_as_root(&mut self) {
        self.headers.clear();
        let given = [("username", "root@pam"), ("password", castle_datacenter::EMBEDDED_PASSWORD)];
        let ticket = self.post("/access/ticket", &given).await;
        let cookie = format!("PVEAuthCookie={}", ticket["ticket"].as_str().unwrap());
        self.headers = vec![
            (castle_http::header::COOKIE, HeaderValue::from_str(&cookie).unwrap()),
            (
                HeaderName::from_static("csrfpreventiontoken"),
                HeaderValue::from_str(ticket["CSRFPreventionToken"].as_str().unwrap()).unwrap(),
            ),
        ];
    }

    pub(crate) async fn send(&self, ask: Ask) -> Answer {
        let mut ask = ask;
        ask.headers.extend(self.headers.iter().cloned());
        self.client.ask(&ask).await.unwrap()
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, pairs: &[(&str, &str)]) -> Said {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let in_body = method == Method::POST || method == Method::PUT;
        let text = encoded(pairs);
        let path = if in_body || text.is_empty() { path.to_owned() } else { format!("{path}?{text}") };
        let mut ask = Ask::new(method, &path);
        if in_body {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            ask.body = text.into();
        }
        said(&self.send(ask).await)
    }

    async fn data(&self, method: &str, path: &str, pairs: &[(&str, &str)]) -> Value {
        let said = self.ask(method, path, pairs).await;
        assert_eq!(said.status, 200, "{method} {path}: {said:?}");
        said.body["data"].clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        self.data("GET", path, &[]).await
    }

    pub(crate) async fn post(&self, path: &str, pairs: &[(&str, &str)]) -> Value {
        self.data("POST", path, pairs).await
    }

    pub(crate) async fn put(&self, path: &str, pairs: &[(&str, &str)]) -> Value {
        self.data("PUT", path, pairs).await
    }

    /// How a task ends.
    pub(crate) async fn end_of(&self, upid: &Value) -> String {
        let upid = upid.as_str().unwrap();
        let node = upid.split(':').nth(1).unwrap();
        for _ in 0..2_000 {
            let status = self.get(&format!("/nodes/{node}/tasks/{upid}/status")).await;
            if status["status"] == "stopped" {
                return status["exitstatus"].as_str().unwrap().to_owned();
            }
            self.clock.sleep(Duration::from_millis(500)).await;
        }
        panic!("{upid} does not end");
    }

    /// Begins a task and waits for its end.
    pub(crate) async fn run(&self, method: &str, path: &str, pairs: &[(&str, &str)]) -> String {
        let upid = self.data(method, path, pairs).await;
        self.end_of(&upid).await
    }

    /// A template with one disk of an image and a cloud-init drive.
    pub(crate) async fn make_template(&self, vmid: &str) {
        let image = [("content", "import"), ("filename", "talos.qcow2"), ("url", IMAGE)];
        if self.datacenter.look().has_volume("local:import/talos.qcow2") {
            // One image for all templates.
        } else {
            assert_eq!(self.run("POST", "/nodes/pve/storage/local/download-url", &image).await, "OK");
        }
        let config = [
            ("vmid", vmid),
            ("name", "talos-template"),
            ("tags", "blue;castle"),
            ("memory", "2048"),
            ("agent", "enabled=1"),
            ("scsihw", "virtio-scsi-single"),
            ("scsi0", "local-lvm:0,import-from=local:import/talos.qcow2"),
            ("ide2", "local-lvm:cloudinit"),
            ("net0", "virtio,bridge=vmbr0"),
        ];
        assert_eq!(self.run("POST", "/nodes/pve/qemu", &config).await, "OK");
        assert_eq!(self.run("POST", &format!("/nodes/pve/qemu/{vmid}/template"), &[]).await, "OK");
    }

    /// Begins to destroy a guest.
    pub(crate) async fn post_delete(&self, vmid: u32) -> Value {
        self.data("DELETE", &format!("/nodes/pve/qemu/{vmid}"), &[]).await
    }

    pub(crate) async fn config(&self, vmid: u32) -> Value {
        self.get(&format!("/nodes/pve/qemu/{vmid}/config")).await
    }
}

pub(crate) fn said(answer: &Answer) -> Said {
    Said {
        status: answer.status.as_u16(),
        reason: answer.reason.clone().unwrap_or_default(),
        body: serde_json::from_slice(&answer.body).unwrap_or(Value::Null),
    }
}

/// The embedded datacenter of one host in which nothing takes time.
pub(crate) fn quick() -> Blueprint {
    Blueprint::embedded(&[]).with_latencies(Latencies::none())
}

/// Runs a test in a quick datacenter of each generation.
#[expect(clippy::needless_pass_by_value, reason = "a closure reads better without a reference")]
pub(crate) fn both(test: impl AsyncFn(&Site)) {
    for version in [Version::Eight, Version::Nine] {
        in_virtual_time(async |clock| test(&Site::new(quick().on(version), clock)).await);
    }
}

/// Runs a test as the administrator in a quick datacenter of each generation.
#[expect(clippy::needless_pass_by_value, reason = "a closure reads better without a reference")]
pub(crate) fn as_root(test: impl AsyncFn(&Site)) {
    for version in [Version::Eight, Version::Nine] {
        within(quick().on(version), async |mut site| {
            site.log_in_as_root().await;
            test(&site).await;
        });
    }
}

/// Runs a test in the datacenter of this blueprint.
pub(crate) fn within(blueprint: Blueprint, test: impl AsyncFnOnce(Site)) {
    in_virtual_time(async |clock| test(Site::new(blueprint, clock)).await);
}
