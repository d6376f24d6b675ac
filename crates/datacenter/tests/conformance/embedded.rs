//! The embedded control plane, for the time of a run.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use castle_datacenter::{Blueprint, Datacenter, Latencies, Stage};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, Dial, SystemClock, Target, TcpDial};
use rcgen::DnType;
use serde_json::Value;

use crate::castle::{Castle, Wanted};
use crate::site::IMAGE;
use crate::suite::authority::Issued;
use crate::suite::server::Server;
use crate::wire::Node;

const ADDRESS: &str = "127.99.42.1";

fn pem(kind: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let lines: Vec<String> =
        text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned()).collect();
    format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", lines.join("\n"))
}

fn issued(castle: &Castle, group: &str, name: &str) -> Issued {
    let (certificate, key) =
        castle.kubernetes.identity(group, |params| params.distinguished_name.push(DnType::CommonName, name));
    Issued { certificate: pem("CERTIFICATE", &certificate), key: pem("PRIVATE KEY", &key) }
}

async fn until(mut holds: impl FnMut() -> bool) {
    let clock = SystemClock::new();
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        clock.sleep(Duration::from_millis(5)).await;
    }
    panic!("it does not come");
}

async fn raise(datacenter: &Datacenter, clock: &Arc<dyn Clock>) {
    let endpoint = Endpoint::parse("http://pve:8006/api2/json").unwrap();
    let client = Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), clock.clone()).unwrap();
    let post = async |path: &str, form: String| {
        let mut ask = Ask::new(Method::POST, path);
        let token =
            format!("PVEAPIToken={}={}", castle_datacenter::EMBEDDED_TOKEN_ID, castle_datacenter::EMBEDDED_TOKEN);
        ask.headers.insert(AUTHORIZATION, HeaderValue::from_str(&token).unwrap());
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
        ask.body = form.into();
        let answer = client.ask(&ask).await.unwrap();
        let body: Value = serde_json::from_slice(&answer.body).unwrap();
        let upid = body["data"].as_str().unwrap_or_else(|| panic!("{path}: {body}")).to_owned();
        until(|| datacenter.look().tasks.iter().any(|task| task.upid == upid && task.exit.as_deref() == Some("OK")))
            .await;
    };
    let url = IMAGE.replace(':', "%3A").replace('/', "%2F");
    post("/nodes/pve/storage/local/download-url", format!("content=import&filename=talos.qcow2&url={url}")).await;
    let config = format!(
        "vmid=421&name=one&memory=2048&scsi0=local-lvm%3A0%2Cimport-from%3Dlocal%3Aimport%2Ftalos.qcow2&\
         ide2=local-lvm%3Acloudinit&net0=virtio%2Cbridge%3Dvmbr0&ipconfig0=ip%3D{ADDRESS}%2F8&start=1"
    );
    post("/nodes/pve/qemu", config).await;
}

/// Starts a world with one cluster that serves on loopback, and tells the way in.
pub(crate) async fn start() -> Server {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let datacenter = Datacenter::new(Blueprint::embedded(&[]).with_latencies(Latencies::none()), clock.clone());
    let serving = datacenter.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let castle = Castle::new(40);
    raise(&datacenter, &clock).await;
    until(|| datacenter.talos_nodes().first().is_some_and(|node| node.stage == Some(Stage::Maintenance))).await;
    let wanted = Wanted { vip: None, endpoint: format!("https://{ADDRESS}:6443"), ..Wanted::default() };
    datacenter.configure_node(421, &castle.config(true, &wanted)).unwrap();
    let node = Node::new(&datacenter, ADDRESS, Some(&castle.admin()));
    let mut tries = 0;
    while let Err(error) = node.bootstrap().await {
        tries += 1;
        assert!(tries < 500, "{error}");
        clock.sleep(Duration::from_millis(10)).await;
    }
    until(|| datacenter.cluster("blue").is_some_and(|cluster| cluster.nodes.values().any(|node| node.is_ready))).await;
    // In the world it serves; the sockets of this machine follow a moment later.
    let way = TcpDial { timeout: Duration::from_secs(1) };
    let mut tries = 0;
    while let Err(error) = way.dial(&Target::new(ADDRESS, 6443)).await {
        tries += 1;
        assert!(tries < 500, "{error}");
        clock.sleep(Duration::from_millis(10)).await;
    }
    let world = datacenter.clone();
    Server {
        name: "embedded".to_owned(),
        url: format!("https://{ADDRESS}:6443"),
        authority: castle.kubernetes.pem(),
        admin: issued(&castle, "system:masters", "admin"),
        stranger: issued(&castle, "strangers", "stranger"),
        node: issued(&castle, "system:nodes", "system:node:kubelet"),
        compact: Box::new(move || {
            // It serves as long as this is kept.
            let _ = &serving;
            world.compact_objects("blue");
            Box::pin(async {})
        }),
    }
}
