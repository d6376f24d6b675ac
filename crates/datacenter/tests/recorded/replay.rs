//! The recorded requests, sent to an embedded hypervisor that is set up like the recorded one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{AclEntry, Host, Storage, StorageKind, Token, User};
use castle_datacenter::{Blueprint, Datacenter, Download, Latencies, Version};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use castle_http::{Answer, Ask, Client, Endpoint, Method, Trust};
use castle_seams::Clock;
use castle_testbed::VirtualClock;
use serde_json::Value;

use crate::probes::Probe;

/// The image that the recorded host could download: a disk of one gibibyte with nothing on it.
const IMAGE: &str = "http://127.0.0.1:8090/image/e187c9b90f773cd8c84e5a3265c5554ee787b2fe67b508d9f955e90e7ae8c96c/v1.13.9/nocloud-amd64.qcow2";
const SECRET: &str = "11111111-1111-4111-8111-111111111111";
/// Recorded after the next round of statistics had been waited for.
const WAITED_FOR_STATISTICS: &[&str] = &["resources2", "resources3"];

pub(crate) struct Hypervisor {
    client: Client,
    clock: VirtualClock,
}

/// One host, one folder, and on 8.4 a pool with the rights that castle asks for on it.
fn blueprint(version: Version) -> Blueprint {
    let content: &[&str] = match version {
        Version::Eight => &["images", "snippets", "import", "iso", "vztmpl", "backup"],
        Version::Nine => &["iso", "import", "snippets", "backup", "vztmpl", "images"],
    };
    let root = User {
        id: "root@pam".to_owned(),
        password: None,
        tokens: vec![Token { name: "probe".to_owned(), secret: SECRET.to_owned(), privsep: false }],
    };
    let (pools, acl) = match version {
        Version::Eight => {
            let paths = ["/nodes/pve1", "/storage/local", "/pool/greenpool", "/sdn/zones/localnetwork/vmbr0"];
            (vec!["greenpool".to_owned()], paths.map(|path| AclEntry::new(path, "castle@pve", "Castle")).to_vec())
        }
        Version::Nine => (Vec::new(), Vec::new()),
    };
    Blueprint {
        hosts: vec![Host { cores: 2, ..Host::new("pve1") }],
        storages: vec![Storage::new("local", StorageKind::Dir, content, 270_553_174_016)],
        users: vec![root],
        acl,
        pools,
        guests: Vec::new(),
        infisical: Vec::new(),
        ..Blueprint::embedded(&[]).on(version)
    }
    .with_latencies(Latencies { broadcast: Duration::from_secs(10), ..Latencies::none() })
}

impl Hypervisor {
    pub(crate) fn new(version: Version, clock: &VirtualClock) -> Self {
        let datacenter = Datacenter::new(blueprint(version), Arc::new(*clock));
        datacenter.publish(IMAGE, Download::File { bytes: 4_521_984, size: 1 << 30, boots: false });
        datacenter.publish("http://127.0.0.1:1/", Download::Refused);
        // The recorded host had Debian's QEMU, which cannot mirror as Proxmox' does.
        datacenter.fail_mirrors("pve1", "Unknown protocol 'zeroinit' ");
        let endpoint = Endpoint::parse("http://pve1:8006/api2/json").unwrap();
        let client = Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), Arc::new(*clock)).unwrap();
        Self { client, clock: *clock }
    }

    /// What is answered to a recorded request, and how its task ends if it begins one.
    pub(crate) async fn answer(&self, probe: &Probe) -> Probe {
        self.prepare(&probe.name).await;
        let (method, path) = probe.req.split_once(' ').unwrap();
        let form = probe.form.clone().unwrap_or_default();
        let answer = self.ask(method, path, &form, authorization(&probe.name)).await;
        let mut said = Probe { name: probe.name.clone(), ..heard(&answer) };
        let upid = said.json.as_ref().and_then(|json| json["data"].as_str()).filter(|data| data.starts_with("UPID:"));
        if let Some(upid) = upid.map(str::to_owned) {
            said.task = Some(self.end_of(&upid).await);
            let log = self.get(&format!("/nodes/pve1/tasks/{upid}/log?limit=0")).await;
            let lines = log.as_array().unwrap().iter().map(|line| line["t"].as_str().unwrap().to_owned());
            said.log = Some(lines.collect());
        }
        said
    }

    /// What stood otherwise there when it was recorded.
    async fn prepare(&self, name: &str) {
        if WAITED_FOR_STATISTICS.contains(&name) {
            self.clock.sleep(Duration::from_secs(12)).await;
        }
        if name == "status-run" {
            // Some seconds went by.
            self.clock.sleep(Duration::from_secs(4)).await;
        }
    }

    async fn ask(
        &self,
        method: &str,
        path: &str,
        form: &BTreeMap<String, Value>,
        authorization: Option<String>,
    ) -> Answer {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let pairs = form.iter().map(|(key, value)| {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            format!("{key}={}", encoded(&value))
        });
        let text = pairs.collect::<Vec<_>>().join("&");
        let in_body = method == Method::POST || method == Method::PUT;
        let path = if in_body || text.is_empty() { path.to_owned() } else { format!("{path}?{text}") };
        let mut ask = Ask::new(method, &path);
        if in_body {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            ask.body = text.into();
        }
        if let Some(value) = authorization {
            ask.headers.insert(AUTHORIZATION, HeaderValue::from_str(&value).unwrap());
        }
        self.client.ask(&ask).await.unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let answer = self.ask("GET", path, &BTreeMap::new(), authorization("")).await;
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        body["data"].clone()
    }

    async fn end_of(&self, upid: &str) -> Value {
        for _ in 0..1_000 {
            let status = self.get(&format!("/nodes/pve1/tasks/{upid}/status")).await;
            if status["status"] == "stopped" {
                return status;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("{upid} does not end");
    }
}

/// What a request was authorized by.
fn authorization(name: &str) -> Option<String> {
    let token = |id: &str, secret: &str| Some(format!("PVEAPIToken={id}={secret}"));
    match name {
        "no-auth" | "version-noauth" => None,
        "bad-token" => token("root@pam!nope", SECRET),
        "bad-secret" => token("root@pam!probe", "00000000-0000-4000-8000-000000000000"),
        "malformed-token" => Some("PVEAPIToken=nonsense".to_owned()),
        "other-scheme" => Some("Bearer nonsense".to_owned()),
        _ => token("root@pam!probe", SECRET),
    }
}

fn heard(answer: &Answer) -> Probe {
    let usual = answer.status.canonical_reason().unwrap_or_default();
    let kind = answer.headers.get(CONTENT_TYPE).map(|kind| kind.to_str().unwrap().to_owned());
    Probe {
        status: answer.status.as_u16(),
        reason: answer.reason.clone().unwrap_or_else(|| usual.to_owned()),
        ctype: kind,
        json: serde_json::from_slice(&answer.body).ok(),
        ..Probe::default()
    }
}

fn encoded(text: &str) -> String {
    let letter = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => (byte as char).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(letter).collect()
}
