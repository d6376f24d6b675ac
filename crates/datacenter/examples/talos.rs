//! A datacenter on loopback with Talos nodes in maintenance, for `talosctl` and whoever else wants to speak with them.
//!
//! `cargo run -p castle-datacenter --example talos -- CONTROL_PLANES WORKERS SPEED VERSION`; the nodes are at 127.0.10.1 and
//! after.
#![allow(clippy::print_stdout, reason = "it tells where the nodes are")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, ScaledClock};
use castle_http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, SystemClock};
use serde_json::Value;

type Failed = Box<dyn Error>;

/// A client of the hypervisor.
struct Hypervisor {
    client: Client,
    clock: Arc<dyn Clock>,
}

impl Hypervisor {
    async fn ask(&self, method: Method, path: &str, form: &str) -> Result<Value, Failed> {
        let mut ask = Ask::new(method, path);
        let token = format!("PVEAPIToken={EMBEDDED_TOKEN_ID}={EMBEDDED_TOKEN}");
        ask.headers.insert(AUTHORIZATION, HeaderValue::from_str(&token)?);
        if !form.is_empty() {
            ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
            ask.body = form.to_owned().into();
        }
        let answer = self.client.ask(&ask).await?;
        let body: Value = serde_json::from_slice(&answer.body)?;
        if answer.status.as_u16() >= 400 {
            return Err(format!("{path}: {body}").into());
        }
        Ok(body["data"].clone())
    }

    /// Begins a task and waits for its end.
    async fn run(&self, path: &str, form: &str) -> Result<(), Failed> {
        let upid = self.ask(Method::POST, path, form).await?;
        let status = format!("/nodes/pve/tasks/{}/status", upid.as_str().unwrap_or_default());
        loop {
            let status = self.ask(Method::GET, &status, "").await?;
            match status["exitstatus"].as_str() {
                Some("OK") => return Ok(()),
                Some(other) => return Err(format!("{path}: {other}").into()),
                None => self.clock.sleep(Duration::from_millis(200)).await,
            }
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u32| words.get(at).and_then(|word| word.parse().ok()).unwrap_or(default);
    let (control_planes, workers, speed) = (number(0, 3), number(1, 2), number(2, 20));
    let version = words.get(3).map_or("v1.13.9", String::as_str);

    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(Arc::new(SystemClock::new()), f64::from(speed)));
    let datacenter = Datacenter::new(Blueprint::embedded(&[]), clock.clone());
    let serving = datacenter.serve("127.0.0.1:0".parse()?).await?;
    let endpoint = Endpoint::parse("http://pve:8006/api2/json")?;
    let client = Client::new(endpoint, &Trust::PublicRoots, datacenter.dial(), clock.clone())?;
    let pve = Hypervisor { client, clock };

    let schematic = "376567988ad370138ad8b2698212367b8edcb69b5fd68c80be1f2ec7d603b4ba";
    let url = format!("https%3A%2F%2Ffactory.talos.dev%2Fimage%2F{schematic}%2F{version}%2Fnocloud-amd64.qcow2");
    let image = format!("content=import&filename=talos.qcow2&url={url}");
    pve.run("/nodes/pve/storage/local/download-url", &image).await?;
    for index in 1..=control_planes + workers {
        let kind = if index <= control_planes { "cp" } else { "worker" };
        let config = [
            format!(
                "vmid={}&name={kind}-{index}&memory=4096&cores=2&agent=enabled%3D1&scsihw=virtio-scsi-pci",
                400 + index
            ),
            "scsi0=local-lvm%3A0%2Cimport-from%3Dlocal%3Aimport%2Ftalos.qcow2&scsi1=local-lvm%3A20%2Cserial%3Ddata"
                .to_owned(),
            "ide2=local-lvm%3Acloudinit&net0=virtio%2Cbridge%3Dvmbr0".to_owned(),
            format!("ipconfig0=ip%3D127.0.10.{index}%2F8&start=1"),
        ];
        pve.run("/nodes/pve/qemu", &config.join("&")).await?;
    }
    println!("the hypervisor is at {}, the nodes are:", serving.address);
    for node in datacenter.talos_nodes() {
        println!("{} {:?} {:?}", node.hostname, node.addresses, node.stage);
    }
    // Until it is ended from outside.
    std::future::pending().await
}
