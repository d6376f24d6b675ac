//! Real sockets and real TLS.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::{Blueprint, Datacenter, EMBEDDED_TOKEN, EMBEDDED_TOKEN_ID, ScaledClock};
use castle_http::header::{AUTHORIZATION, HeaderValue};
use castle_http::{Answer, Ask, Client, Endpoint, Failure, Method, Trust};
use castle_seams::{Clock, SystemClock, TcpDial};
use serde_json::Value;

async fn ask(client: &Client, method: Method, path: &str) -> Result<Answer, Failure> {
    let mut ask = Ask::new(method, path);
    let token = format!("PVEAPIToken={EMBEDDED_TOKEN_ID}={EMBEDDED_TOKEN}");
    ask.headers.insert(AUTHORIZATION, HeaderValue::from_str(&token).unwrap());
    client.ask(&ask).await
}

fn client(address: &str, fingerprint: &str) -> Client {
    let endpoint = Endpoint::parse(&format!("https://{address}/api2/json")).unwrap();
    let trust = Trust::fingerprint(fingerprint).unwrap();
    let dial = TcpDial { timeout: Duration::from_secs(5) };
    Client::new(endpoint, &trust, Arc::new(dial), Arc::new(SystemClock::new())).unwrap()
}

/// Goal: the datacenter serves any client, with time compressed. Method: a client that pins the certificate starts a guest,
/// which takes seconds of the datacenter's time.
#[tokio::test(flavor = "multi_thread")]
async fn it_listens_with_a_certificate_of_its_own() {
    let clock: Arc<dyn Clock> = Arc::new(ScaledClock::new(Arc::new(SystemClock::new()), 1_000.0));
    let datacenter = Datacenter::new(Blueprint::embedded(&[]), clock);
    let serving = datacenter.serve("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let pinned = client(&serving.address.to_string(), &serving.fingerprint);

    let nodes = ask(&pinned, Method::GET, "/nodes").await.unwrap();
    let nodes: Value = serde_json::from_slice(&nodes.body).unwrap();
    assert_eq!(nodes["data"][0]["ssl_fingerprint"], serving.fingerprint.as_str());
    let started = ask(&pinned, Method::POST, "/nodes/pve/qemu/101/status/start").await.unwrap();
    let started: Value = serde_json::from_slice(&started.body).unwrap();
    let path = format!("/nodes/pve/tasks/{}/status", started["data"].as_str().unwrap());
    let is_over = async || {
        let status = ask(&pinned, Method::GET, &path).await.unwrap();
        serde_json::from_slice::<Value>(&status.body).unwrap()["data"]["exitstatus"] == "OK"
    };
    let mut rounds = 0;
    while !is_over().await {
        rounds += 1;
        assert!(rounds < 10_000, "the task does not end");
    }
    assert!(datacenter.look().guests[&101].running);

    let strange = client(&serving.address.to_string(), "00:".repeat(32).trim_end_matches(':'));
    assert!(matches!(ask(&strange, Method::GET, "/version").await, Err(Failure::Untrusted(_))));
    serving.stop();
    let mut rounds = 0;
    while ask(&pinned, Method::GET, "/version").await.is_ok() {
        rounds += 1;
        assert!(rounds < 10_000, "it goes on listening");
    }
}
