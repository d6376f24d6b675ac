use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use castle_datacenter::blueprint::{Approvals, Infisical, Placed};
use castle_datacenter::{Blueprint, Datacenter, Latencies};
use castle_http::{Ask, Client, Endpoint, Method, Trust};
use castle_seams::{SystemClock, TcpDial};
use castle_testbed::in_virtual_time;
use serde_json::json;

use crate::site::{HOST, ID, SECRET, Site, plain, vault};

#[test]
fn approvals_bind_people_alone_unless_everybody() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        let change = async |value: &str| {
            site.ask("PATCH", "/v4/secrets/ROOT", site.body("/", &json!({ "secretValue": value }))).await
        };
        site.datacenter.set_approvals(HOST, "tazlab", Approvals::People);
        assert_eq!(change("by machine").await.body["secret"]["secretValue"], "by machine");
        site.datacenter.set_approvals(HOST, "tazlab", Approvals::Everybody);
        let told = change("waiting").await;
        assert_eq!((told.status, &told.body["approval"]["status"]), (200, &json!("open")));
        assert_eq!(site.look("/ROOT", "/", "").await.body["secret"]["secretValue"], "by machine");
        site.datacenter.set_approvals(HOST, "tazlab", Approvals::None);
        assert_eq!(change("at once").await.body["secret"]["secretValue"], "at once");
    });
}

#[test]
fn what_others_do_is_seen() {
    in_virtual_time(async |clock| {
        let site = Site::open(vault(), Arc::new(*clock)).await;
        site.datacenter.place_secret(HOST, "tazlab", Placed::new("prod", "/new", "HAND", "x"));
        site.datacenter.remove_secret(HOST, "tazlab", "prod", "/", "ROOT");
        let view = site.datacenter.vault(HOST);
        assert_eq!(view.secrets["tazlab prod:/new/HAND"], "x");
        assert!(!view.secrets.contains_key("tazlab prod:/ROOT"));
        assert_eq!(view.folders, ["tazlab dev:/c", "tazlab prod:/a", "tazlab prod:/a/b", "tazlab prod:/new"]);
        site.datacenter.change_client_secret(HOST, ID, "rotated");
        assert_eq!(site.login(ID, SECRET).await.status, 401);
        assert_eq!(site.look("", "/new", "").await.status, 200, "its tokens go on");
        site.datacenter.expire_vault_tokens(HOST);
        assert_eq!(site.look("", "/new", "").await.status, 403);
        let body = site.body("/", &json!({"secretValue": "x"}));
        assert_eq!(site.ask("POST", "/v4/secrets/LATE", body).await.status, 403);
        assert!(site.datacenter.effects().keys().all(|effect| !effect.contains("LATE")));
    });
}

#[test]
fn the_same_requests_get_the_same_answers() {
    let run = || {
        in_virtual_time(async |clock| {
            let site = Site::open(vault(), Arc::new(*clock)).await;
            let body = site.body("/", &json!({"secretValue": "x"}));
            let made = site.ask("POST", "/v4/secrets/NEW", body).await.body;
            format!("{} {} {made}", site.token, site.project)
        })
    };
    assert_eq!(run(), run());
}

/// Goal: a region knows nothing of another's identities, and listens on loopback with TLS. Method: two of them, one client
/// each.
#[tokio::test]
async fn regions_know_nothing_of_each_other() {
    let clock = Arc::new(SystemClock::new());
    let other = Infisical::new("app.infisical.com", "tazlab", &["prod"], "american", SECRET);
    let blueprint = Blueprint::embedded(&[]).with_latencies(Latencies::none()).with_vault(vault()).with_vault(other);
    let datacenter = Datacenter::new(blueprint, clock.clone());
    let mut statuses = Vec::new();
    for host in [HOST, "app.infisical.com"] {
        let serving = datacenter.serve_vault(host, SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        let endpoint = Endpoint::parse(&format!("https://{}/api", serving.address)).unwrap();
        let trust = Trust::fingerprint(&serving.fingerprint).unwrap();
        let dial = Arc::new(TcpDial { timeout: Duration::from_secs(5) });
        let client = Client::new(endpoint, &trust, dial, clock.clone()).unwrap();
        let mut ask = Ask::new(Method::POST, "/v1/auth/universal-auth/login");
        ask.headers.insert("content-type", "application/json".parse().unwrap());
        ask.body = json!({"clientId": ID, "clientSecret": SECRET}).to_string().into();
        let answer = client.ask(&ask).await.unwrap();
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        statuses.push(format!("{} {}", answer.status.as_u16(), plain(&body["message"])));
        datacenter.vault_down(host, true);
        assert!(client.ask(&ask).await.is_err(), "it is down");
        serving.stop();
    }
    assert_eq!(statuses, ["200 null", "401 Invalid credentials"]);
}
