//! HTTP within the vendor's limits.

use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::Blueprint;
use castle_http::header::{CONNECTION, CONTENT_TYPE, HeaderName, HeaderValue};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{Clock, DialErrorKind, Target};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::site::{both, client, quick, said, within};

#[test]
fn an_error_is_told_in_the_status_line_and_in_the_body() {
    both(async |site| {
        let said = site.ask("GET", "/nodes/pve/qemu/777/config", &[]).await;
        let message = "Configuration file 'nodes/pve/qemu-server/777.conf' does not exist";
        assert_eq!(said.line(), format!("500 {message}"));
        assert_eq!(said.body, json!({ "data": null, "message": format!("{message}\n") }));
        let said = site.ask("GET", "/nodes/pve/nonsense", &[]).await;
        assert_eq!(said.line(), "501 Method 'GET /nodes/pve/nonsense' not implemented (this hypervisor is simulated)");
        assert!(!said.body["message"].as_str().unwrap().ends_with('\n'), "{said:?}");
        let said = site.ask("POST", "/nodes/pve/qemu", &[]).await;
        assert_eq!(said.line(), "400 Parameter verification failed.");
        assert_eq!(said.body["errors"], json!({ "vmid": "property is missing and it is not optional" }));
    });
}

#[test]
fn a_connection_ends_after_a_refusal_and_after_a_hundred_requests() {
    both(async |site| {
        let refused = site.send(Ask::new(Method::GET, "/nonsense")).await;
        assert_eq!(refused.headers.get(CONNECTION), Some(&HeaderValue::from_static("close")));
        for number in 1..=100 {
            let answer = site.send(Ask::new(Method::GET, "/version")).await;
            assert_eq!(answer.headers.contains_key(CONNECTION), number == 100, "{number}");
        }
    });
}

#[test]
fn a_body_is_taken_as_form_or_json_within_limits() {
    both(async |site| {
        let mut ask = Ask::new(Method::PUT, "/nodes/pve/qemu/101/config");
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        ask.body = r#"{"cores": 4, "onboot": true, "description": "a;b=c"}"#.into();
        assert_eq!(said(&site.send(ask).await).status, 200);
        let config = site.config(101).await;
        assert_eq!(
            (&config["cores"], &config["onboot"], &config["description"]),
            (&json!(4), &json!(1), &json!("a;b=c"))
        );

        let mut ask = Ask::new(Method::PUT, "/nodes/pve/qemu/101/config");
        ask.body = "description=x".to_owned().into();
        ask.body = [&ask.body[..], &vec![b'y'; 512 << 10]].concat().into();
        assert_eq!(said(&site.send(ask).await).line(), "501 for data too large");

        let mut ask = Ask::new(Method::PUT, "/nodes/pve/qemu/101/config");
        ask.body = "description=a;b=c".into();
        let errors = said(&site.send(ask).await).body["errors"].clone();
        assert!(errors["b"].is_string(), "an unencoded semicolon begins a parameter: {errors}");
    });
}

#[test]
fn headers_have_limits() {
    both(async |site| {
        let mut ask = Ask::new(Method::GET, "/version");
        for number in 0..70 {
            let name = HeaderName::from_bytes(format!("x-{number}").as_bytes()).unwrap();
            ask.headers.insert(name, HeaderValue::from_static("x"));
        }
        assert_eq!(said(&site.send(ask).await).line(), "501 too many http header lines (> 64)");
        let mut ask = Ask::new(Method::GET, "/version");
        ask.headers.insert("x-long", HeaderValue::from_str(&"x".repeat(8 << 10)).unwrap());
        assert_eq!(said(&site.send(ask).await).line(), "501 http header too large");
    });
}

/// Sends bytes as they are, and returns the first line of what comes back.
async fn raw(site: &crate::site::Site, text: &str) -> String {
    let mut stream = site.datacenter.dial().dial(&Target::new("pve", 8006)).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8(answer).unwrap().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn what_the_vendor_cannot_read_is_refused() {
    both(async |site| {
        let chunked = "POST /api2/json/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
        assert_eq!(raw(site, chunked).await, "HTTP/1.1 501 chunked transfer encoding not supported");
        let body = "DELETE /api2/json/x HTTP/1.1\r\nhost: h\r\ncontent-length: 3\r\n\r\na=b";
        assert_eq!(raw(site, body).await, "HTTP/1.1 501 Unexpected content for method 'DELETE'");
        let method = "PATCH /api2/json/x HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(raw(site, method).await, "HTTP/1.1 501 method 'PATCH' not available");
        assert_eq!(raw(site, "GET /x HTTP/1.1\r\nhost: h\r\n\r\n").await, "HTTP/1.1 404 Not Found");
    });
}

#[test]
fn an_idle_connection_is_closed_after_five_seconds() {
    both(async |site| {
        let mut stream = site.datacenter.dial().dial(&Target::new("pve", 8006)).await.unwrap();
        let begun = site.clock.monotonic();
        assert_eq!(stream.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(site.clock.monotonic() - begun, Duration::from_secs(5));
    });
}

#[test]
fn only_hosts_that_are_up_can_be_dialled() {
    let mut blueprint = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]);
    blueprint.hosts[1].aliases.push("two.lan".to_owned());
    within(blueprint, async |site| {
        let kind = async |host: &str, port: u16| {
            site.datacenter.dial().dial(&Target::new(host, port)).await.map(|_| ()).map_err(|error| error.kind)
        };
        assert_eq!(kind("two.lan", 8006).await, Ok(()));
        assert_eq!(kind("PVE", 8006).await, Ok(()));
        assert_eq!(kind("pve", 22).await, Err(DialErrorKind::Refused));
        assert_eq!(kind("three", 8006).await, Err(DialErrorKind::Unresolved));
        site.datacenter.host_down("two");
        assert_eq!(kind("two", 8006).await, Err(DialErrorKind::Refused));
    });
}

#[test]
fn a_host_forwards_to_others_as_long_as_they_are_up() {
    let blueprint = Blueprint::embedded(&["pve".to_owned(), "two".to_owned()]);
    within(blueprint, async |site| {
        assert_eq!(site.get("/nodes/two/qemu").await, json!([]));
        site.datacenter.host_down("two");
        assert_eq!(site.ask("GET", "/nodes/two/qemu", &[]).await.line(), "595 No route to host");
        assert_eq!(site.ask("GET", "/nodes/three/qemu", &[]).await.status, 500);
        let nodes = site.get("/nodes").await;
        assert_eq!((&nodes[0]["status"], &nodes[1]["status"]), (&json!("online"), &json!("offline")));
        site.datacenter.host_up("two");
        assert_eq!(site.get("/nodes/two/qemu").await, json!([]));
    });
}

/// Goal: what takes longer than the outer server waits has its effect, but nobody hears of it. Method: an import within a
/// synchronous write.
#[test]
fn a_write_that_takes_too_long_is_lost_but_had() {
    let mut blueprint = quick();
    blueprint.latencies.factor = 1.0;
    blueprint.latencies.full_copy = castle_datacenter::blueprint::Span::new(100.0, 100.0);
    within(blueprint, async |site| {
        site.datacenter.add_volume("pve", "local:import/x.qcow2", "import", 1 << 30);
        let patient = client(&site.datacenter, "pve", site.clock).with_deadline(Duration::from_secs(120));
        let site = crate::site::Site { client: patient, ..site };
        let disk = [("scsi1", "local-lvm:0,import-from=local:import/x.qcow2")];
        let lost = site.ask("PUT", "/nodes/pve/qemu/101/config", &disk).await;
        assert_eq!(lost.line(), "596 Connection timed out");
        assert_eq!(site.config(101).await["scsi1"], "local-lvm:vm-101-disk-1,size=1G");
    });
}

#[test]
fn the_path_wins_no_contradiction() {
    both(async |site| {
        let said = site.ask("PUT", "/nodes/pve/qemu/101/config", &[("vmid", "100"), ("cores", "2")]).await;
        assert_eq!(said.status, 400);
        assert_ne!(said.body["errors"]["vmid"], Value::Null);
    });
}

#[test]
fn two_clients_ask_at_once() {
    within(Blueprint::embedded(&[]), async |site| {
        let other = Client::new(
            Endpoint::parse("http://pve:8006/api2/json").unwrap(),
            &Trust::PublicRoots,
            site.datacenter.dial(),
            Arc::new(site.clock),
        );
        let other = crate::site::Site {
            client: other.unwrap(),
            headers: site.headers.clone(),
            datacenter: site.datacenter.clone(),
            clock: site.clock,
        };
        let begun = site.clock.monotonic();
        let (one, two) = futures_util::future::join(site.get("/version"), other.get("/nodes")).await;
        assert!(one["version"].is_string() && two.is_array());
        assert!(site.clock.monotonic() > begun, "a request takes its time");
        assert_eq!(site.datacenter.requests(), 2);
    });
}
