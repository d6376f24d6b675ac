//! The agent inside of a guest.

use std::time::Duration;

use castle_datacenter::Latencies;
use castle_datacenter::blueprint::Span;
use castle_seams::Clock;
use serde_json::json;

use crate::site::{IMAGE, both, quick, within};

const ASK: &str = "/nodes/pve/qemu/421/agent/network-get-interfaces";
const PING: &str = "/nodes/pve/qemu/421/agent/ping";

#[test]
fn it_tells_the_address_once_the_guest_is_up() {
    let boot = Latencies { boot: Span::new(14.0, 14.0), rest: Span::new(0.0, 0.0), ..Latencies::default() };
    within(quick().with_latencies(boot), async |site| {
        site.make_template("9000").await;
        assert_eq!(site.run("POST", "/nodes/pve/qemu/9000/clone", &[("newid", "421"), ("name", "cp-1")]).await, "OK");
        site.put(
            "/nodes/pve/qemu/421/config",
            &[("ipconfig0", "ip=192.168.1.211/24,gw=192.168.1.1"), ("nameserver", "192.168.1.1 1.1.1.1")],
        )
        .await;
        assert_eq!(site.ask("GET", ASK, &[]).await.line(), "500 VM 421 is not running");
        assert_eq!(site.run("POST", "/nodes/pve/qemu/421/status/start", &[]).await, "OK");

        let begun = site.clock.monotonic();
        assert_eq!(site.ask("GET", ASK, &[]).await.line(), "500 QEMU guest agent is not running");
        assert_eq!(site.clock.monotonic() - begun, Duration::from_secs(3));
        assert_eq!(site.ask("POST", PING, &[]).await.line(), "500 QEMU guest agent is not running");
        site.clock.sleep(Duration::from_secs(12)).await;
        assert_eq!(site.post(PING, &[]).await, json!({ "result": {} }));
        assert_eq!(site.ask("GET", PING, &[]).await.status, 501);
        let can = site.get("/nodes/pve/qemu/421/agent/info").await["result"]["supported_commands"].clone();
        let ping = can.as_array().unwrap().iter().find(|it| it["name"] == "guest-ping").unwrap();
        assert_eq!((&ping["enabled"], &ping["success-response"]), (&json!(true), &json!(true)));
        let told = site.get(ASK).await;
        let net = &told["result"][1];
        assert_eq!(
            net["ip-addresses"],
            json!([{ "ip-address": "192.168.1.211", "ip-address-type": "ipv4", "prefix": 24 }])
        );
        let mac = site.config(421).await["net0"].as_str().unwrap()[7..24].to_lowercase();
        assert_eq!(net["hardware-address"], mac);

        let machines = site.datacenter.machines();
        let machine = machines.iter().find(|machine| machine.vmid == 421).unwrap();
        let told = machine.cloud_init.as_ref().unwrap();
        assert_eq!((machine.image.as_deref(), told.hostname.as_str(), machine.power_on), (Some(IMAGE), "cp-1", 1));
        assert_eq!(told.nameservers, ["192.168.1.1", "1.1.1.1"]);
        assert_eq!(machine.up_at - machine.since, Duration::from_secs(14));
    });
}

#[test]
fn without_an_agent_nothing_is_told() {
    both(async |site| {
        let refused = site.ask("GET", "/nodes/pve/qemu/100/agent/network-get-interfaces", &[]).await;
        assert_eq!(refused.line(), "500 No QEMU guest agent configured");
        let refused = site.ask("GET", "/nodes/pve/qemu/100/agent/info", &[]).await;
        assert_eq!(refused.line(), "500 No QEMU guest agent configured");
        let refused = site.ask("POST", "/nodes/pve/qemu/100/agent/ping", &[]).await;
        assert_eq!(refused.line(), "500 No QEMU guest agent configured");
    });
}
